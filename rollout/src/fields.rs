//! Reads JSON field by field, so that every fault is reported with its place, not only the first.

use std::fmt;

use serde_json::{Map, Value};

use xds_units::{Percent, Span};

/// One thing that is wrong with a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFault {
    /// Where: a JSON pointer, empty for the whole.
    pub pointer: String,
    /// The fault, and the right value.
    pub detail: String,
}

impl fmt::Display for SpecFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}: {}", self.pointer, self.detail)
    }
}

/// The faults so far.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<SpecFault>);

/// A JSON object that is being read.
#[derive(Debug)]
pub(crate) struct Object<'v> {
    fields: &'v Map<String, Value>,
    pointer: String,
    known: Vec<&'static str>,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct At<'v> {
    pub(crate) value: &'v Value,
    pub(crate) pointer: String,
}

impl Faults {
    pub(crate) fn add(&mut self, pointer: &str, detail: impl Into<String>) {
        // A body full of errors must not cause a larger answer.
        if self.0.len() < MAX_FAULTS {
            self.0.push(SpecFault { pointer: pointer.to_owned(), detail: detail.into() });
        }
    }
}

impl<'v> At<'v> {
    pub(crate) fn object(&self, faults: &mut Faults) -> Option<Object<'v>> {
        let Some(fields) = self.value.as_object() else {
            self.wrong("an object", faults);
            return None;
        };
        Some(Object { fields, pointer: self.pointer.clone(), known: vec![] })
    }

    /// The items of a list of at most `most`.
    pub(crate) fn list(&self, most: usize, faults: &mut Faults) -> Vec<Self> {
        let Some(items) = self.value.as_array() else {
            self.wrong("a list", faults);
            return vec![];
        };
        if items.len() > most {
            faults.add(&self.pointer, format!("{} entries; at most {most} are allowed", items.len()));
        }
        let at = |(index, value)| Self { value, pointer: format!("{}/{index}", self.pointer) };
        items.iter().take(most).enumerate().map(at).collect()
    }

    /// A text of 1 to `most` bytes without control characters.
    pub(crate) fn text(&self, most: usize, faults: &mut Faults) -> Option<&'v str> {
        let Some(text) = self.value.as_str() else {
            self.wrong("a text", faults);
            return None;
        };
        if text.is_empty() || text.len() > most || text.chars().any(char::is_control) {
            faults.add(&self.pointer, format!("must be 1 to {most} bytes without control characters"));
            return None;
        }
        Some(text)
    }

    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)], faults: &mut Faults) -> Option<T> {
        let found = choices.iter().find(|(name, _)| self.value.as_str() == Some(name));
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.wrong(&format!("one of {}", names.join(", ")), faults);
        }
        found.map(|(_, choice)| *choice)
    }

    pub(crate) fn integer(&self, least: u64, most: u64, faults: &mut Faults) -> Option<u64> {
        let number = self.value.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.wrong(&format!("a whole number from {least} to {most}"), faults);
        }
        number
    }

    /// A number of percent, or a text such as `5%`.
    pub(crate) fn percent(&self, faults: &mut Faults) -> Option<Percent> {
        let text = self.value.as_str().filter(|text| text.ends_with('%'));
        let percent = text.and_then(|text| text.parse().ok());
        let percent = percent.or_else(|| Percent::of_number(self.value.as_f64()?));
        if percent.is_none() {
            self.wrong("a percentage from 0 to 100 with at most two decimals", faults);
        }
        percent
    }

    pub(crate) fn truth(&self, faults: &mut Faults) -> Option<bool> {
        let truth = self.value.as_bool();
        if truth.is_none() {
            self.wrong("true or false", faults);
        }
        truth
    }

    /// A duration from `least` to 30 days: a text with units, or a number of seconds.
    pub(crate) fn span(&self, least: Span, faults: &mut Faults) -> Option<Span> {
        let seconds =
            self.value.as_u64().and_then(|seconds| seconds.checked_mul(1_000)).map(Span::from_millis);
        let span = self.value.as_str().and_then(|text| text.parse().ok()).or(seconds);
        let span = span.filter(|span| (least..=MAX_SPAN).contains(span));
        if span.is_none() {
            self.wrong(
                &format!("a duration such as \"10m\" or whole seconds, from {least} to {MAX_SPAN}"),
                faults,
            );
        }
        span
    }

    pub(crate) fn wrong(&self, expected: &str, faults: &mut Faults) {
        let mut found = match self.value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.value.to_string(),
        };
        if found.chars().count() > MAX_SHOWN {
            found = found.chars().take(MAX_SHOWN).chain("…".chars()).collect();
        }
        faults.add(&self.pointer, format!("expected {expected}, found {found}"));
    }
}

impl<'v> Object<'v> {
    /// The value of a field; `None` if it is absent or null.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<At<'v>> {
        self.known.push(name);
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        Some(At { value, pointer: format!("{}/{name}", self.pointer) })
    }

    /// As [`take`](Self::take); absence is a fault.
    pub(crate) fn need(&mut self, name: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        let taken = self.take(name);
        if taken.is_none() {
            faults.add(&self.pointer, format!("the field {name:?} is missing"));
        }
        taken
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    /// All fields, for maps whose keys are the user's; none of them is unknown then.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'v str, At<'v>)> {
        self.fields.iter().map(|(name, value)| {
            let pointer = format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"));
            (name.as_str(), At { value, pointer })
        })
    }

    /// Reports the fields that were not read.
    pub(crate) fn finish(self, faults: &mut Faults) {
        for (name, at) in self.entries() {
            if !self.known.contains(&name) {
                faults.add(
                    &at.pointer,
                    format!("unknown field; the known fields are {}", self.known.join(", ")),
                );
            }
        }
    }
}

/// The most faults that are reported for one rollout.
const MAX_FAULTS: usize = 100;
/// The longest value that is repeated in a fault, in characters.
const MAX_SHOWN: usize = 80;
/// The longest duration. A rollout that takes longer is two configurations, not a rollout.
pub(crate) const MAX_SPAN: Span = Span::from_millis(30 * 86_400_000);
