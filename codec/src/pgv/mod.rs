//! The rules in Envoy's protos (`validate.rules`). Envoy rejects a resource that breaks one, so the server reports it first.
//!
//! This checks the fields of one message. `walk` visits every message, also inside `Any`s.

use std::hash::{Hash as _, Hasher as _};

use envoy_types::pb::validate::field_rules::Type;
use envoy_types::pb::validate::{DurationRules, FieldRules, MapRules, RepeatedRules};
use prost_reflect::{Kind, Value};

use crate::facts::{FieldFacts, MessageFacts};
use crate::finding::Finding;
use crate::message::{Item, Message, default_of, key_text, seconds_and_nanos};
use crate::path::Path;

mod scalar;

/// Receives violations.
type Sink<'s> = &'s mut dyn FnMut(Finding);

/// Reports every field of `message` that breaks a rule.
pub(crate) fn check(facts: &MessageFacts, message: &Message, path: &Path<'_>, sink: Sink<'_>) {
    if facts.is_unchecked {
        return;
    }
    for oneof in &facts.required_oneofs {
        if !oneof.fields().any(|field| message.has(&field)) {
            let names: Vec<_> = oneof.fields().map(|field| field.name().to_owned()).collect();
            let text = format!("one of {} is required", names.join(", "));
            sink(Finding::error("pgv-required", &path.field(oneof.name()), text));
        }
    }
    for field in &facts.fields {
        if let Some(rules) = &field.rules {
            check_field(field, rules, message, &path.field(field.descriptor.name()), sink);
        }
    }
}

/// Returns `true` if a text breaks no rule of a string field, or of the items of a list of strings.
pub(crate) fn allows(field: &FieldFacts, text: &str) -> bool {
    let Some(rules) = field.rules.as_ref().and_then(|rules| rules.r#type.as_ref()) else { return true };
    let rules = if let Type::Repeated(rules) = rules {
        rules.items.as_ref().and_then(|items| items.r#type.as_ref())
    } else {
        Some(rules)
    };
    let Some(Type::String(rules)) = rules else { return true };
    let mut is_allowed = true;
    let mut sink = |_| is_allowed = false;
    Check { field, path: &Path::Root, sink: &mut sink }.string(rules, text);
    is_allowed
}

/// Returns `true` if the rules of a field compare its items with each other.
pub(crate) fn compares_items(field: &FieldFacts) -> bool {
    let rules = field.rules.as_ref().and_then(|rules| rules.r#type.as_ref());
    matches!(rules, Some(Type::Repeated(rules)) if rules.unique())
}

fn check_field(field: &FieldFacts, rules: &FieldRules, message: &Message, path: &Path<'_>, sink: Sink<'_>) {
    let has = message.has(&field.descriptor);
    // The rules of a member of a oneof apply only if this member is set.
    if !has && field.descriptor.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) {
        return;
    }
    if !has && is_required(rules) {
        return sink(Finding::error("pgv-required", path, "a value is required"));
    }
    if !has && field.descriptor.supports_presence() {
        return;
    }
    let mut check = Check { field, path, sink };
    match &rules.r#type {
        Some(Type::Repeated(rules)) if field.descriptor.is_list() => check.list(rules, message),
        Some(Type::Map(rules)) if field.descriptor.is_map() => check.map(rules, message),
        Some(_) if field.descriptor.is_list() || field.descriptor.is_map() => {}
        Some(_) => {
            let value = message.value(&field.descriptor).unwrap_or_else(|| default_of(&field.descriptor));
            check.value(rules, &value);
        }
        None => {}
    }
}

fn is_required(rules: &FieldRules) -> bool {
    let of_type = match &rules.r#type {
        Some(Type::Duration(rules)) => rules.required(),
        Some(Type::Timestamp(rules)) => rules.required(),
        Some(Type::Any(rules)) => rules.required(),
        Some(_) | None => false,
    };
    of_type || rules.message.as_ref().is_some_and(|rules| rules.required())
}

/// The check of one value, or of one item of a list or map.
struct Check<'a> {
    field: &'a FieldFacts,
    path: &'a Path<'a>,
    sink: Sink<'a>,
}

impl Check<'_> {
    fn value(&mut self, rules: &FieldRules, value: &Item) {
        match (&rules.r#type, value) {
            (Some(Type::Duration(rules)), Item::Message(message)) => self.duration(rules, message),
            (Some(_), Item::Message(message)) => {
                if let Some(inner) = unwrap(message) {
                    self.value(rules, &inner);
                }
            }
            (Some(rules), Item::Scalar(value)) => self.single(rules, value),
            (None, _) => {}
        }
    }

    fn single(&mut self, rules: &Type, value: &Value) {
        match (rules, value) {
            (Type::Enum(rules), Value::EnumNumber(number)) => {
                let kind = self.kind();
                let defined = kind.as_enum().is_none_or(|kind| kind.get_value(*number).is_some());
                if rules.defined_only() && !defined {
                    self.fail("pgv-enum", format!("{number} is not a defined value"));
                }
                if rules.not_in.contains(number) {
                    self.fail("pgv-enum", format!("{number} is not allowed"));
                }
                if !rules.r#in.is_empty() && !rules.r#in.contains(number) {
                    self.fail("pgv-enum", format!("{number} is not allowed"));
                }
                if let Some(only) = rules.r#const.filter(|only| only != number) {
                    self.fail("pgv-enum", format!("must be {only}"));
                }
            }
            (rules, value) => self.scalar(rules, value),
        }
    }

    /// The kind of the checked value; for a map, that of its values.
    fn kind(&self) -> Kind {
        let kind = self.field.descriptor.kind();
        let entry = kind.as_message().filter(|message| message.is_map_entry());
        entry.map_or(kind.clone(), |entry| entry.map_entry_value_field().kind())
    }

    fn list(&mut self, rules: &RepeatedRules, message: &Message) {
        let items = || message.items(&self.field.descriptor);
        let n_items = items().count() as u64;
        if rules.ignore_empty() && n_items == 0 {
            return;
        }
        if let Some(least) = rules.min_items.filter(|least| n_items < *least) {
            self.fail("pgv-items", format!("must have at least {least} item(s), has {n_items}"));
        }
        if let Some(most) = rules.max_items.filter(|most| n_items > *most) {
            self.fail("pgv-items", format!("must have at most {most} item(s), has {n_items}"));
        }
        if rules.unique() {
            self.unique(message);
        }
        let Some(rules) = &rules.items else { return };
        for (index, item) in message.items(&self.field.descriptor).enumerate() {
            let path = self.path.index(index);
            Check { field: self.field, path: &path, sink: &mut *self.sink }.value(rules, &item);
        }
    }

    /// Reports each duplicate item. Compares hashes to save memory, because there can be as many items as bytes of text.
    fn unique(&mut self, message: &Message) {
        let mut hashes: Vec<(u64, u32)> = Vec::new();
        for (index, item) in message.items(&self.field.descriptor).enumerate() {
            hashes.push((hash(&item), u32::try_from(index).unwrap_or(u32::MAX)));
        }
        hashes.sort_unstable();
        for same in hashes.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
            let Some((_, first)) = same.first() else { continue };
            for (_, index) in same.iter().skip(1) {
                let path = self.path.index(*index as usize);
                let text = format!("the item appears twice, first as number {first}");
                (self.sink)(Finding::error("pgv-unique", &path, text));
            }
        }
    }

    fn map(&mut self, rules: &MapRules, message: &Message) {
        let n_pairs = message.entries(&self.field.descriptor).count() as u64;
        if rules.ignore_empty() && n_pairs == 0 {
            return;
        }
        if let Some(least) = rules.min_pairs.filter(|least| n_pairs < *least) {
            self.fail("pgv-items", format!("must have at least {least} pair(s), has {n_pairs}"));
        }
        if let Some(most) = rules.max_pairs.filter(|most| n_pairs > *most) {
            self.fail("pgv-items", format!("must have at most {most} pair(s), has {n_pairs}"));
        }
        for (key, value) in message.entries(&self.field.descriptor) {
            let text = key_text(&key);
            let path = self.path.key(&text);
            let mut check = Check { field: self.field, path: &path, sink: &mut *self.sink };
            if let Some(rules) = &rules.keys {
                check.value(rules, &Item::Scalar(key.into()));
            }
            if let Some(rules) = &rules.values {
                check.value(rules, &value);
            }
        }
    }

    fn duration(&mut self, rules: &DurationRules, message: &Message) {
        let Some(found) = seconds_and_nanos(message) else { return };
        let (seconds, nanos) = found;
        let bounds = [
            (&rules.lt, "less than", std::cmp::Ordering::Less, false),
            (&rules.lte, "at most", std::cmp::Ordering::Less, true),
            (&rules.gt, "more than", std::cmp::Ordering::Greater, false),
            (&rules.gte, "at least", std::cmp::Ordering::Greater, true),
        ];
        for (bound, words, wanted, or_equal) in bounds {
            let Some(bound) = bound else { continue };
            let order = found.cmp(&(bound.seconds, bound.nanos));
            if order != wanted && !(or_equal && order.is_eq()) {
                let bound = format_seconds(bound.seconds, bound.nanos);
                self.fail(
                    "pgv-range",
                    format!("must be {words} {bound}, is {}", format_seconds(seconds, nanos)),
                );
            }
        }
    }

    fn fail(&mut self, code: &'static str, text: String) {
        let is_sensitive = self.field.is_sensitive;
        (self.sink)(Finding { is_sensitive, ..Finding::error(code, self.path, text) });
    }
}

/// The value inside a wrapper such as `UInt32Value`, which the rules are for.
fn unwrap(message: &Message) -> Option<Item> {
    let name = message.name().strip_prefix("google.protobuf.")?;
    if !crate::convert::known::is_wrapper(name) {
        return None;
    }
    let field = message.descriptor().get_field_by_name("value")?;
    Some(message.value(&field).unwrap_or_else(|| default_of(&field)))
}

/// A hash of an item. Different items have different hashes in practice.
fn hash(item: &Item) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    match item {
        Item::Message(message) => message.bytes().hash(&mut hasher),
        Item::Scalar(Value::String(text)) => text.hash(&mut hasher),
        Item::Scalar(Value::Bytes(bytes)) => bytes.hash(&mut hasher),
        Item::Scalar(value) => format!("{value:?}").hash(&mut hasher),
    }
    hasher.finish()
}

fn format_seconds(seconds: i64, nanos: i32) -> String {
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let fraction = format!("{:09}", nanos.unsigned_abs());
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    format!("{sign}{}.{}s", seconds.unsigned_abs(), fraction.trim_end_matches('0'))
}
