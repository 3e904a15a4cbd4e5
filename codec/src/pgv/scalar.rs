//! Rules of numbers, strings, bools and bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use envoy_types::pb::validate::field_rules::Type;
use envoy_types::pb::validate::string_rules::WellKnown;
use envoy_types::pb::validate::{BytesRules, StringRules};
use prost_reflect::Value;

use super::Check;
use crate::diagnostic::echo;

/// Checks a number against rules whose fields have the same names for every type of number.
macro_rules! check_number {
    ($check:expr, $rules:expr, $number:expr) => {{
        let (rules, number) = ($rules, $number);
        if rules.ignore_empty() && is_zero(&number) {
            return;
        }
        if let Some(bound) = rules.lt.filter(|bound| !(number < *bound)) {
            $check.fail("pgv-range", format!("must be less than {bound}, is {number}"));
        }
        if let Some(bound) = rules.lte.filter(|bound| !(number <= *bound)) {
            $check.fail("pgv-range", format!("must be at most {bound}, is {number}"));
        }
        if let Some(bound) = rules.gt.filter(|bound| !(number > *bound)) {
            $check.fail("pgv-range", format!("must be more than {bound}, is {number}"));
        }
        if let Some(bound) = rules.gte.filter(|bound| !(number >= *bound)) {
            $check.fail("pgv-range", format!("must be at least {bound}, is {number}"));
        }
        if let Some(only) = rules.r#const.filter(|only| number != *only) {
            $check.fail("pgv-const", format!("must be {only}, is {number}"));
        }
        if !rules.r#in.is_empty() && !rules.r#in.contains(&number) {
            $check.fail("pgv-in", format!("{number} is not one of {:?}", rules.r#in));
        }
        if rules.not_in.contains(&number) {
            $check.fail("pgv-in", format!("{number} is not allowed"));
        }
    }};
}

/// Returns `true` if a number is the default of an unset field.
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Check<'_> {
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must break a bound, not meet it")]
    pub(super) fn scalar(&mut self, rules: &Type, value: &Value) {
        match (rules, value) {
            (Type::String(rules), Value::String(text)) => self.string(rules, text),
            (Type::Bytes(rules), Value::Bytes(bytes)) => self.bytes(rules, bytes),
            (Type::Bool(rules), Value::Bool(truth)) => {
                if let Some(only) = rules.r#const.filter(|only| only != truth) {
                    self.fail("pgv-const", format!("must be {only}"));
                }
            }
            (Type::Uint32(rules), Value::U32(number)) => check_number!(self, rules, *number),
            (Type::Uint64(rules), Value::U64(number)) => check_number!(self, rules, *number),
            (Type::Int32(rules), Value::I32(number)) => check_number!(self, rules, *number),
            (Type::Int64(rules), Value::I64(number)) => check_number!(self, rules, *number),
            (Type::Sint32(rules), Value::I32(number)) => check_number!(self, rules, *number),
            (Type::Sint64(rules), Value::I64(number)) => check_number!(self, rules, *number),
            (Type::Fixed32(rules), Value::U32(number)) => check_number!(self, rules, *number),
            (Type::Fixed64(rules), Value::U64(number)) => check_number!(self, rules, *number),
            (Type::Sfixed32(rules), Value::I32(number)) => check_number!(self, rules, *number),
            (Type::Sfixed64(rules), Value::I64(number)) => check_number!(self, rules, *number),
            (Type::Float(rules), Value::F32(number)) => check_number!(self, rules, *number),
            (Type::Double(rules), Value::F64(number)) => check_number!(self, rules, *number),
            (_, _) => {}
        }
    }

    pub(super) fn string(&mut self, rules: &StringRules, text: &str) {
        if rules.ignore_empty() && text.is_empty() {
            return;
        }
        self.lengths(text.chars().count() as u64, "character(s)", [rules.len, rules.min_len, rules.max_len]);
        self.lengths(text.len() as u64, "byte(s)", [rules.len_bytes, rules.min_bytes, rules.max_bytes]);
        let mut require = |holds: bool, text: &dyn Fn() -> String| {
            if !holds {
                self.fail("pgv-string", text());
            }
        };
        if let Some(only) = &rules.r#const {
            require(text == only, &|| format!("must be {}", echo(only)));
        }
        if let Some(prefix) = &rules.prefix {
            require(text.starts_with(prefix), &|| format!("must begin with {}", echo(prefix)));
        }
        if let Some(suffix) = &rules.suffix {
            require(text.ends_with(suffix), &|| format!("must end with {}", echo(suffix)));
        }
        if let Some(part) = &rules.contains {
            require(text.contains(part), &|| format!("must contain {}", echo(part)));
        }
        if let Some(part) = &rules.not_contains {
            require(!text.contains(part), &|| format!("must not contain {}", echo(part)));
        }
        if !rules.r#in.is_empty() {
            let is_listed = rules.r#in.iter().any(|one| one == text);
            require(is_listed, &|| format!("must be one of {}", rules.r#in.join(", ")));
        }
        let is_forbidden = rules.not_in.iter().any(|one| one == text);
        require(!is_forbidden, &|| "the value is not allowed".to_owned());
        if let Some(pattern) = &self.field.pattern
            && !pattern.is_match(text)
        {
            self.fail("pgv-string", format!("must match `{pattern}`"));
        }
        if let Some(well_known) = &rules.well_known {
            self.well_known(well_known, rules.strict.unwrap_or(true), text);
        }
    }

    fn bytes(&mut self, rules: &BytesRules, bytes: &[u8]) {
        if rules.ignore_empty() && bytes.is_empty() {
            return;
        }
        self.lengths(bytes.len() as u64, "byte(s)", [rules.len, rules.min_len, rules.max_len]);
    }

    /// Checks a length against an exact value, a minimum and a maximum.
    fn lengths(&mut self, length: u64, unit: &str, [exact, least, most]: [Option<u64>; 3]) {
        if let Some(exact) = exact.filter(|exact| length != *exact) {
            self.fail("pgv-length", format!("must have {exact} {unit}, has {length}"));
        }
        if let Some(least) = least.filter(|least| length < *least) {
            self.fail("pgv-length", format!("must have at least {least} {unit}, has {length}"));
        }
        if let Some(most) = most.filter(|most| length > *most) {
            self.fail("pgv-length", format!("must have at most {most} {unit}, has {length}"));
        }
    }

    fn well_known(&mut self, rule: &WellKnown, strict: bool, text: &str) {
        let (holds, what) = match rule {
            WellKnown::WellKnownRegex(1) if strict => (is_header_name(text), "an HTTP header name"),
            WellKnown::WellKnownRegex(1) => (!has_line_break(text), "an HTTP header name"),
            WellKnown::WellKnownRegex(2) if strict => (!text.chars().any(is_control), "an HTTP header value"),
            WellKnown::WellKnownRegex(2) => (!has_line_break(text), "an HTTP header value"),
            WellKnown::Ip(true) => (text.parse::<IpAddr>().is_ok(), "an IP address"),
            WellKnown::Ipv4(true) => (text.parse::<Ipv4Addr>().is_ok(), "an IPv4 address"),
            WellKnown::Ipv6(true) => (text.parse::<Ipv6Addr>().is_ok(), "an IPv6 address"),
            WellKnown::Hostname(true) => (is_host_name(text), "a host name"),
            WellKnown::Address(true) => {
                (is_host_name(text) || text.parse::<IpAddr>().is_ok(), "a host name or an IP address")
            }
            WellKnown::Uri(true) => (text.contains(':') && !text.contains(' '), "a URI"),
            WellKnown::UriRef(true) => (!text.contains(' '), "a URI"),
            WellKnown::Email(true) => (text.contains('@'), "an e-mail address"),
            WellKnown::Uuid(true) => (text.len() == 36 && text.matches('-').count() == 4, "a UUID"),
            WellKnown::WellKnownRegex(_)
            | WellKnown::Ip(false)
            | WellKnown::Ipv4(false)
            | WellKnown::Ipv6(false)
            | WellKnown::Hostname(false)
            | WellKnown::Address(false)
            | WellKnown::Uri(false)
            | WellKnown::UriRef(false)
            | WellKnown::Email(false)
            | WellKnown::Uuid(false) => return,
        };
        if !holds {
            self.fail("pgv-string", format!("must be {what}"));
        }
    }
}

/// `^:?[0-9a-zA-Z!#$%&'*+-.^_|~\x60]+$`, where `+-.` is a range.
fn is_header_name(text: &str) -> bool {
    let name = text.strip_prefix(':').unwrap_or(text);
    let belongs = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+,-.^_|~`".contains(&b);
    !name.is_empty() && name.bytes().all(belongs)
}

/// `[\x00-\x08\x0A-\x1F\x7F]`
fn is_control(character: char) -> bool {
    character != '\t' && (character < ' ' || character == '\x7f')
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\0', '\n', '\r'])
}

/// Returns `true` for a host name by RFC 1034, in PGV's reading.
fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
