//! The skeleton of a JSON value: everything except its texts.

use serde_json::Value as Json;

/// The skeleton of a value, and the texts that it leaves open.
///
/// Values with equal skeletons differ at most in their texts: they have the same keys in the same order, the same types of messages
/// (`@type`), the same numbers, and texts at the same places, of which the same ones are empty.
#[derive(Default)]
pub(super) struct Skeleton<'j> {
    pub(super) bytes: Vec<u8>,
    /// The texts in the order of the value, without empty texts and types.
    pub(super) texts: Vec<&'j str>,
}

impl<'j> Skeleton<'j> {
    /// The skeleton of a value, written into `room`; `None` if it has more than `most` bytes.
    pub(super) fn of(json: &'j Json, room: Vec<u8>, most: usize) -> Option<Self> {
        let mut skeleton = Self { bytes: room, texts: Vec::with_capacity(32) };
        skeleton.bytes.clear();
        skeleton.value(json, most).then_some(skeleton)
    }

    /// Writes a value unambiguously: a tag, its content, and the end of a list or object.
    fn value(&mut self, json: &'j Json, most: usize) -> bool {
        match json {
            Json::Null => self.bytes.push(b'0'),
            Json::Bool(false) => self.bytes.push(b'f'),
            Json::Bool(true) => self.bytes.push(b't'),
            Json::Number(number) => self.number(number),
            Json::String(text) if text.is_empty() => self.bytes.push(b'e'),
            Json::String(text) => {
                self.bytes.push(b's');
                self.texts.push(text);
            }
            Json::Array(items) => {
                self.bytes.push(b'[');
                if !items.iter().all(|item| self.value(item, most)) {
                    return false;
                }
                self.bytes.push(b']');
            }
            Json::Object(entries) => {
                self.bytes.push(b'{');
                for (key, value) in entries {
                    self.bytes.push(b'k');
                    self.whole(key);
                    if let Some(type_url) = type_of(key, value) {
                        self.bytes.push(b'u');
                        self.whole(type_url);
                    } else if !self.value(value, most) {
                        return false;
                    }
                }
                self.bytes.push(b'}');
            }
        }
        self.bytes.len() <= most
    }

    fn number(&mut self, number: &serde_json::Number) {
        let (tag, bits) = if let Some(number) = number.as_i64() {
            (b'i', number.to_le_bytes())
        } else if let Some(number) = number.as_u64() {
            (b'n', number.to_le_bytes())
        } else {
            (b'd', number.as_f64().unwrap_or(f64::NAN).to_le_bytes())
        };
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&bits);
    }

    /// Writes a text after its length.
    fn whole(&mut self, text: &str) {
        self.bytes.extend_from_slice(&text.len().to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// The text of the entry `@type`, which is part of the skeleton.
pub(super) fn type_of<'j>(key: &str, value: &'j Json) -> Option<&'j str> {
    value.as_str().filter(|_| key == "@type")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn skeleton(json: &Json) -> Option<(Vec<u8>, Vec<&str>)> {
        Skeleton::of(json, Vec::new(), 1_000).map(|skeleton| (skeleton.bytes, skeleton.texts))
    }

    #[test]
    fn values_that_differ_in_texts_have_one_skeleton() {
        let one = json!({"@type": "t", "a": ["b", "", 1], "c": {"d": "e"}});
        let (bytes, texts) = skeleton(&one).unwrap();
        assert_eq!(texts, ["b", "e"]);
        let other = json!({"@type": "t", "a": ["longer", "", 1], "c": {"d": "s"}});
        assert_eq!(skeleton(&other).unwrap().0, bytes);
    }

    #[test]
    fn values_that_differ_in_anything_else_do_not() {
        let all = [
            json!(null),
            json!(true),
            json!(false),
            json!(1),
            json!(1.0),
            json!(-1),
            json!(u64::MAX),
            json!("a"),
            json!(""),
            json!([]),
            json!({}),
            json!([[]]),
            json!([[], []]),
            json!(["a"]),
            json!(["a", "a"]),
            json!(["a", ""]),
            json!([["a"], "a"]),
            json!({"a": "a"}),
            json!({"b": "a"}),
            json!({"a": ["a"]}),
            json!({"a": "a", "b": "a"}),
            json!({"b": "a", "a": "a"}),
            json!({"a": {"b": "a"}}),
            json!({"@type": "a"}),
            json!({"@type": "b"}),
            json!({"@type": ["a"]}),
            json!({"@type": ""}),
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                let is_same = skeleton(one).unwrap().0 == skeleton(other).unwrap().0;
                assert_eq!(is_same, at == other_at, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_value_that_is_too_long_has_none() {
        assert!(skeleton(&json!(vec!["a"; 998])).is_some());
        assert!(skeleton(&json!(vec!["a"; 999])).is_none());
        assert!(skeleton(&json!({"k".repeat(1_000): 1})).is_none());
    }
}
