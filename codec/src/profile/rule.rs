//! Rules as data: the message, its fields, the fault, and the reaction of the client.

use std::collections::HashMap;

use prost_reflect::Value;
use xds_cache::{Profile, Resource};

use super::{Effect, Language, ProfileFinding};
use crate::inner::Inner;
use crate::message::{Item, Message, child, default_of, seconds_and_nanos};
use crate::path::{Path, Step, format_steps};

/// The side that reads a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    /// A gRPC client or an Envoy.
    Client,
    /// A gRPC server.
    Server,
}

/// The condition that makes a field a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// It is set, to any value.
    Set,
    /// It is unset or empty.
    Unset,
    /// It is true.
    True,
    /// It is set to zero.
    Zero,
    /// It is a number above this one.
    Above(u64),
    /// It is an enum with one of these numbers.
    Is(&'static [i32]),
    /// It is a negative duration, or out of bounds (row B16).
    BadDuration,
    /// It is a duration of more nanoseconds than a signed number of 64 bits can hold, which are 292 years.
    LongDuration,
}

/// One rule. A field may be a path of single messages, joined by dots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) row: &'static str,
    pub(super) message: &'static str,
    pub(super) code: &'static str,
    pub(super) effect: Effect,
    pub(super) when: When,
    pub(super) fields: &'static [&'static str],
    /// The message, with `{}` in place of the field.
    pub(super) text: &'static str,
    pub(super) side: Option<Side>,
    pub(super) suggestion: Option<&'static str>,
    /// The languages of gRPC for which it holds.
    pub(super) languages: &'static [Language],
}

impl Rule {
    pub(super) const fn new(
        row: &'static str,
        (effect, code): (Effect, &'static str),
        message: &'static str,
        (when, fields): (When, &'static [&'static str]),
        text: &'static str,
    ) -> Self {
        Self {
            row,
            message,
            code,
            effect,
            when,
            fields,
            text,
            side: None,
            suggestion: None,
            languages: &Language::ALL,
        }
    }

    /// The rule for only one side.
    pub(super) const fn on(self, side: Side) -> Self {
        Self { side: Some(side), ..self }
    }

    /// The rule for some languages.
    pub(super) const fn by(self, languages: &'static [Language]) -> Self {
        Self { languages, ..self }
    }

    pub(super) const fn suggest(self, suggestion: &'static str) -> Self {
        Self { suggestion: Some(suggestion), ..self }
    }

    fn applies(&self, message: &Message, field: &str) -> bool {
        let value = value_at(message, field);
        match self.when {
            When::Set => has(message, field),
            When::Unset => !has(message, field),
            When::True => value.is_some_and(|value| value.as_bool() == Some(true)),
            When::Zero => value.is_some_and(|value| number(&value) == Some(0)),
            When::Above(limit) => value.is_some_and(|value| number(&value).is_some_and(|n| n > limit)),
            When::Is(numbers) => numbers.contains(&enum_at(message, field)),
            When::BadDuration => {
                let bounds = 0..=MAX_DURATION_SECONDS * 1_000_000_000;
                duration_at(message, field).is_some_and(|nanos| !bounds.contains(&nanos))
            }
            When::LongDuration => {
                duration_at(message, field).is_some_and(|nanos| i64::try_from(nanos).is_err())
            }
        }
    }
}

/// The rules of one kind of client, by message.
pub(super) struct Rules(HashMap<&'static str, Vec<Rule>>);

impl Rules {
    pub(super) fn new(tables: &[&[Rule]]) -> Self {
        let mut rules: HashMap<_, Vec<_>> = HashMap::new();
        for rule in tables.iter().copied().flatten() {
            rules.entry(rule.message).or_default().push(*rule);
        }
        Self(rules)
    }

    /// Reports each rule that the message breaks.
    pub(super) fn check(&self, message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        for rule in self.0.get(message.name()).map(Vec::as_slice).unwrap_or_default() {
            if rule.side.is_some_and(|side| side != scope.side) {
                continue;
            }
            for field in rule.fields {
                if rule.applies(message, field) {
                    let text = rule.text.replace("{}", field);
                    let suggestion = rule.suggestion.map(str::to_owned);
                    let fault = Fault::new(rule.row, rule.effect, rule.code).by(rule.languages);
                    scope.report_with(fault, path, field, text, suggestion);
                }
            }
        }
    }
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) row: &'static str,
    pub(super) effect: Effect,
    pub(super) code: &'static str,
    /// The languages of gRPC that it concerns.
    pub(super) languages: &'static [Language],
}

impl Fault {
    pub(super) const fn new(row: &'static str, effect: Effect, code: &'static str) -> Self {
        Self { row, effect, code, languages: &Language::ALL }
    }

    /// The fault in some languages.
    pub(super) const fn by(self, languages: &'static [Language]) -> Self {
        Self { languages, ..self }
    }
}

/// The checked resource with its surroundings, and its findings.
pub(super) struct Scope<'a> {
    pub(super) inner: &'a Inner,
    pub(super) profile: Profile,
    pub(super) side: Side,
    pub(super) resource: &'a Resource,
    pub(super) findings: Vec<ProfileFinding>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(inner: &'a Inner, profile: Profile, side: Side, resource: &'a Resource) -> Self {
        Self { inner, profile, side, resource, findings: Vec::new() }
    }

    /// Reports a fault at a field of the value at `path`, or at the value itself if the field is empty.
    pub(super) fn report(&mut self, fault: Fault, path: &Path<'_>, field: &str, text: impl Into<String>) {
        self.report_with(fault, path, field, text.into(), None);
    }

    /// Like [`report`](Self::report), with a suggestion.
    pub(super) fn report_with(
        &mut self,
        fault: Fault,
        path: &Path<'_>,
        field: &str,
        message: String,
        suggestion: Option<String>,
    ) {
        if self.findings.len() >= MAX_FINDINGS {
            return;
        }
        let mut steps = path.to_steps();
        steps.extend(field.split('.').filter(|name| !name.is_empty()).map(|name| Step::Field(name.into())));
        self.findings.push(ProfileFinding {
            resource: self.resource.key().clone(),
            origin: self.resource.origin().clone(),
            profile: self.profile,
            effect: fault.effect,
            code: fault.code,
            row: fault.row,
            path: format_steps(&steps),
            message,
            suggestion,
            languages: if self.profile == Profile::Grpc { fault.languages.to_vec() } else { Vec::new() },
            is_shared: false,
            steps,
        });
    }
}

impl Scope<'_> {
    /// Checks on behalf of one language, which reads what the others skip. Keeps its severe findings alone, with `why` before them.
    pub(super) fn only(&mut self, language: Language, why: &str, check: impl FnOnce(&mut Self)) {
        let already = std::mem::take(&mut self.findings);
        check(self);
        let found = std::mem::replace(&mut self.findings, already);
        self.add_of(language, why, found);
    }

    /// Adds severe findings that concern one language alone, as far as a resource may have findings.
    pub(super) fn add_of(&mut self, language: Language, why: &str, found: Vec<ProfileFinding>) {
        for mut finding in found {
            if self.findings.len() >= MAX_FINDINGS {
                return;
            }
            let is_known = |one: &ProfileFinding| is_same(one, &finding) && one.languages.contains(&language);
            let is_known = self.findings.iter().any(is_known);
            if finding.effect.is_severe() && finding.languages.contains(&language) && !is_known {
                finding.message = format!("{why}: {}", finding.message);
                finding.languages = vec![language];
                self.findings.push(finding);
            }
        }
    }

    /// Checks for each language by itself, and joins what is the same. A text begins with `gRPC`, and gets the languages unless it has them.
    pub(super) fn by_language(&mut self, check: impl Fn(Language, &mut Self)) {
        let already = std::mem::take(&mut self.findings);
        let mut joined: Vec<ProfileFinding> = Vec::new();
        for language in Language::ALL {
            check(language, self);
            for mut finding in self.findings.drain(..).filter(|one| one.languages.contains(&language)) {
                if let Some(same) = joined.iter_mut().find(|one| is_same(one, &finding)) {
                    same.languages.push(language);
                } else {
                    finding.languages = vec![language];
                    joined.push(finding);
                }
            }
        }
        for one in joined.iter_mut().filter(|one| one.languages.len() < Language::ALL.len()) {
            let names: Vec<_> = one.languages.iter().map(|language| language.name()).collect();
            if let Some(rest) = one.message.strip_prefix("gRPC ").filter(|rest| !rest.starts_with('(')) {
                one.message = format!("gRPC ({}) {rest}", names.join(", "));
            }
        }
        self.findings = already;
        joined.truncate(MAX_FINDINGS.saturating_sub(self.findings.len()));
        self.findings.append(&mut joined);
    }
}

fn is_same(one: &ProfileFinding, other: &ProfileFinding) -> bool {
    one.path == other.path && one.message == other.message
}

/// The value of a single field that is set. Follows dots, and unwraps messages such as `UInt32Value`. Other messages have no value.
pub(super) fn value_at(message: &Message, field: &str) -> Option<Value> {
    match item_at(message, field)? {
        Item::Scalar(value) => Some(value),
        Item::Message(message) => {
            let name = message.name();
            if !(name.starts_with("google.protobuf.") && name.ends_with("Value"))
                || name == "google.protobuf.Value"
            {
                return None;
            }
            let field = message.descriptor().get_field_by_name("value")?;
            let value = message.value(&field).unwrap_or_else(|| default_of(&field));
            value.as_scalar().cloned()
        }
    }
}

/// The values of a list of numbers, texts or enums. Follows dots.
pub(super) fn values_at(message: &Message, field: &str) -> Vec<Value> {
    let Some((first, rest)) = field.split_once('.') else {
        let Some(field) = message.descriptor().get_field_by_name(field) else { return Vec::new() };
        return message.items(&field).filter_map(|item| item.as_scalar().cloned()).collect();
    };
    child(message, first).map(|child| values_at(&child, rest)).unwrap_or_default()
}

/// The value of a field that is set, or one value of a list or map. Follows dots.
fn item_at(message: &Message, field: &str) -> Option<Item> {
    match field.split_once('.') {
        Some((first, rest)) => item_at(&child(message, first)?, rest),
        None => message.items(&message.descriptor().get_field_by_name(field)?).next(),
    }
}

/// Returns `true` if a field is set.
pub(super) fn has(message: &Message, field: &str) -> bool {
    item_at(message, field).is_some()
}

/// A number that is set, also in a wrapper.
pub(super) fn number_at(message: &Message, field: &str) -> Option<u64> {
    number(&value_at(message, field)?)
}

/// The number of an enum; 0 if it is not set.
pub(super) fn enum_at(message: &Message, field: &str) -> i32 {
    value_at(message, field).and_then(|value| value.as_enum_number()).unwrap_or_default()
}

/// Nanoseconds of a duration that is set.
pub(super) fn duration_at(message: &Message, field: &str) -> Option<i128> {
    let (seconds, nanos) = seconds_and_nanos(item_at(message, field)?.as_message()?)?;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

fn number(value: &Value) -> Option<u64> {
    value.as_u32().map(u64::from).or_else(|| value.as_u64())
}

/// The limit for one resource. Nobody reads more.
const MAX_FINDINGS: usize = 100;

/// The limit of `google.protobuf.Duration`: ten thousand years.
const MAX_DURATION_SECONDS: i128 = 315_576_000_000;
