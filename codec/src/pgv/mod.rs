//! The rules that Envoy's protos carry (`validate.rules`): Envoy refuses what breaks one, so we say it first.
//!
//! Only the fields of one message are checked here; `walk` brings every message, also those inside `Any`s.

use envoy_types::pb::validate::field_rules::Type;
use envoy_types::pb::validate::{DurationRules, FieldRules, MapRules, RepeatedRules};
use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage, Value};

use crate::facts::{FieldFacts, MessageFacts};
use crate::finding::Finding;
use crate::path::Path;
use crate::walk::key_text;

mod scalar;

/// Where violations go.
type Sink<'s> = &'s mut dyn FnMut(Finding);

/// Reports every field of `message` that breaks a rule.
pub(crate) fn check(facts: &MessageFacts, message: &DynamicMessage, path: &Path<'_>, sink: Sink<'_>) {
    if facts.is_unchecked {
        return;
    }
    for oneof in &facts.required_oneofs {
        if !oneof.fields().any(|field| message.has_field(&field)) {
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

fn check_field(
    field: &FieldFacts,
    rules: &FieldRules,
    message: &DynamicMessage,
    path: &Path<'_>,
    sink: Sink<'_>,
) {
    let has = message.has_field(&field.descriptor);
    // A rule of a oneof's member counts only while that member is the one that is set.
    if !has && field.descriptor.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) {
        return;
    }
    if !has && is_required(rules) {
        return sink(Finding::error("pgv-required", path, "a value is required"));
    }
    if !has && field.descriptor.supports_presence() {
        return;
    }
    Check { field, path, sink }.value(rules, &message.get_field(&field.descriptor));
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
    fn value(&mut self, rules: &FieldRules, value: &Value) {
        if let Value::Message(message) = value
            && let Some(inner) = unwrap(message)
        {
            return self.value(rules, &inner);
        }
        match (&rules.r#type, value) {
            (Some(Type::Repeated(rules)), Value::List(items)) => self.list(rules, items),
            (Some(Type::Map(rules)), Value::Map(map)) => self.map(rules, map),
            (Some(Type::Duration(rules)), Value::Message(message)) => self.duration(rules, message),
            (Some(Type::Enum(rules)), Value::EnumNumber(number)) => {
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
            (Some(rules), value) => self.scalar(rules, value),
            (None, _) => {}
        }
    }

    /// The kind of what is checked: of a map, its values.
    fn kind(&self) -> Kind {
        let kind = self.field.descriptor.kind();
        let entry = kind.as_message().filter(|message| message.is_map_entry());
        entry.map_or(kind.clone(), |entry| entry.map_entry_value_field().kind())
    }

    fn list(&mut self, rules: &RepeatedRules, items: &[Value]) {
        let n_items = items.len() as u64;
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
            let mut seen = std::collections::HashMap::new();
            for (index, item) in items.iter().enumerate() {
                if let Some(first) = seen.insert(format!("{item:?}"), index) {
                    let path = self.path.index(index);
                    let text = format!("the item is there twice, first as number {first}");
                    (self.sink)(Finding::error("pgv-unique", &path, text));
                }
            }
        }
        let Some(rules) = &rules.items else { return };
        for (index, item) in items.iter().enumerate() {
            let path = self.path.index(index);
            Check { field: self.field, path: &path, sink: &mut *self.sink }.value(rules, item);
        }
    }

    fn map(&mut self, rules: &MapRules, map: &std::collections::HashMap<MapKey, Value>) {
        let n_pairs = map.len() as u64;
        if rules.ignore_empty() && n_pairs == 0 {
            return;
        }
        if let Some(least) = rules.min_pairs.filter(|least| n_pairs < *least) {
            self.fail("pgv-items", format!("must have at least {least} pair(s), has {n_pairs}"));
        }
        if let Some(most) = rules.max_pairs.filter(|most| n_pairs > *most) {
            self.fail("pgv-items", format!("must have at most {most} pair(s), has {n_pairs}"));
        }
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries {
            let text = key_text(key);
            let path = self.path.key(&text);
            let mut check = Check { field: self.field, path: &path, sink: &mut *self.sink };
            if let Some(rules) = &rules.keys {
                check.value(rules, &key.clone().into());
            }
            if let Some(rules) = &rules.values {
                check.value(rules, value);
            }
        }
    }

    fn duration(&mut self, rules: &DurationRules, message: &DynamicMessage) {
        let seconds =
            message.get_field_by_name("seconds").and_then(|value| value.as_i64()).unwrap_or_default();
        let nanos = message.get_field_by_name("nanos").and_then(|value| value.as_i32()).unwrap_or_default();
        let found = (seconds, nanos);
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

/// The value inside a wrapper such as `UInt32Value`: rules are about it.
fn unwrap(message: &DynamicMessage) -> Option<Value> {
    let descriptor = message.descriptor();
    let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
    if !crate::convert::known::is_wrapper(name) {
        return None;
    }
    message.get_field_by_name("value").map(std::borrow::Cow::into_owned)
}

fn format_seconds(seconds: i64, nanos: i32) -> String {
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let fraction = format!("{:09}", nanos.unsigned_abs());
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    format!("{sign}{}.{}s", seconds.unsigned_abs(), fraction.trim_end_matches('0'))
}
