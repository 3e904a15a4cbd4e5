//! Contents of a chosen size in every shape that is hard on a reader: deep, wide, long, many small parts.
//!
//! A reader that takes 20 times a text in one shape may take 1,000 times in another, so a limit is only proved by all of
//! them.

use std::fmt::Write as _;

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};

/// A shape of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A list of small numbers.
    Numbers,
    /// A list of empty lists.
    EmptyLists,
    /// A list of empty maps.
    EmptyMaps,
    /// A list of texts with one character each.
    ShortTexts,
    /// A long text.
    LongText,
    /// A map with many short keys.
    WideMap,
    /// A map that repeats one key.
    RepeatedKey,
    /// Lists within lists.
    DeepLists,
    /// Maps within maps.
    DeepMaps,
    /// Maps of one entry, one beside the other.
    SmallMaps,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 10] = [
        Self::Numbers,
        Self::EmptyLists,
        Self::EmptyMaps,
        Self::ShortTexts,
        Self::LongText,
        Self::WideMap,
        Self::RepeatedKey,
        Self::DeepLists,
        Self::DeepMaps,
        Self::SmallMaps,
    ];

    /// JSON of this shape with about `n_bytes`. The same text is YAML, in flow style.
    #[must_use]
    pub fn json(self, n_bytes: usize) -> String {
        let list = |item: &str| format!("[{}]", repeated(item, n_bytes));
        match self {
            Self::Numbers => list("0"),
            Self::EmptyLists => list("[]"),
            Self::EmptyMaps => list("{}"),
            Self::ShortTexts => list("\"a\""),
            Self::LongText => format!("\"{}\"", "a".repeat(n_bytes)),
            Self::WideMap => format!("{{{}}}", numbered(n_bytes, |text, n| write!(text, "\"{n}\":0,"))),
            Self::RepeatedKey => format!("{{{}}}", repeated("\"a\":0", n_bytes)),
            Self::DeepLists => nested("[", "0", "]", n_bytes),
            Self::DeepMaps => nested("{\"a\":", "0", "}", n_bytes),
            Self::SmallMaps => list("{\"a\":0}"),
        }
    }

    /// YAML of this shape in block style, indented by `indent` spaces, with about `n_bytes`.
    #[must_use]
    pub fn yaml(self, n_bytes: usize, indent: usize) -> String {
        let indent = " ".repeat(indent);
        let lines =
            |line: &str| format!("{indent}{line}\n").repeat(n_bytes / (line.len() + indent.len() + 1));
        match self {
            Self::Numbers => lines("- 0"),
            Self::EmptyLists => lines("- []"),
            Self::EmptyMaps => lines("- {}"),
            Self::ShortTexts => lines("- a"),
            Self::WideMap => numbered(n_bytes, |text, n| writeln!(text, "{indent}k{n}: 0")),
            Self::RepeatedKey => lines("a: 0"),
            Self::SmallMaps => lines("- a: 0"),
            Self::LongText | Self::DeepLists | Self::DeepMaps => format!("{indent}{}\n", self.json(n_bytes)),
        }
    }

    /// A protobuf value of this shape that has about `n_bytes` on the wire.
    #[must_use]
    pub fn value(self, n_bytes: usize) -> Value {
        let list = |item: Value, n_item: usize| list(vec![item; n_bytes / n_item]);
        match self {
            Self::Numbers => list(value(Kind::NumberValue(0.0)), 11),
            Self::EmptyLists => list(value(Kind::ListValue(ListValue::default())), 4),
            // The wire needs no more than an empty value.
            Self::EmptyMaps => list(Value { kind: None }, 2),
            Self::ShortTexts => list(value(Kind::StringValue("a".to_owned())), 5),
            Self::LongText => value(Kind::StringValue("a".repeat(n_bytes))),
            // A map that is encoded has each key once; the wire with repeated keys is the test's to write.
            Self::WideMap | Self::RepeatedKey => {
                map((0..n_bytes / 8).map(|n| (n.to_string(), Value { kind: None })).collect())
            }
            Self::DeepLists => {
                (0..MAX_WIRE_DEPTH).fold(Value { kind: None }, |inner, _| self::list(vec![inner]))
            }
            Self::DeepMaps => {
                let within = |inner, _| map([("a".to_owned(), inner)].into());
                (0..MAX_WIRE_DEPTH).fold(Value { kind: None }, within)
            }
            Self::SmallMaps => list(map([("a".to_owned(), Value { kind: None })].into()), 10),
        }
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn list(values: Vec<Value>) -> Value {
    value(Kind::ListValue(ListValue { values }))
}

fn map(fields: std::collections::HashMap<String, Value>) -> Value {
    value(Kind::StructValue(Struct { fields }))
}

/// `item` again and again, separated by commas.
fn repeated(item: &str, n_bytes: usize) -> String {
    let mut text = format!("{item},").repeat((n_bytes / (item.len() + 1)).max(1));
    text.pop();
    text
}

fn numbered(n_bytes: usize, mut line: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::with_capacity(n_bytes + 64);
    let mut n = 0;
    while text.len() < n_bytes {
        // A string takes everything.
        let _ = line(&mut text, n);
        n += 1;
    }
    if text.ends_with(',') {
        text.pop();
    }
    text
}

fn nested(open: &str, inner: &str, close: &str, n_bytes: usize) -> String {
    let depth = n_bytes / (open.len() + close.len());
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

/// Decoders of protobuf go no deeper than 100 messages; a value within a list is two.
const MAX_WIRE_DEPTH: usize = 40;

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn every_shape_has_the_size_that_was_asked_for() {
        for shape in Shape::ALL {
            let n_json = shape.json(10_000).len();
            assert!((9_900..10_100).contains(&n_json), "{shape:?}: {n_json}");
            assert!(shape.yaml(10_000, 2).len().abs_diff(10_000) < 100, "{shape:?}");
            let n_wire = shape.value(10_000).encoded_len();
            let is_deep = matches!(shape, Shape::DeepLists | Shape::DeepMaps);
            assert!(is_deep || (7_000..13_000).contains(&n_wire), "{shape:?}: {n_wire}");
        }
    }

    #[test]
    fn json_is_json() {
        for shape in
            Shape::ALL.into_iter().filter(|shape| *shape != Shape::DeepLists && *shape != Shape::DeepMaps)
        {
            let text = shape.json(1000);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
    }
}
