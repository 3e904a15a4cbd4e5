//! Differences between two JSON values.

use std::collections::BTreeSet;

use serde_json::Value as Json;

/// A difference between two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The JSON pointer (RFC 6901). For a list item that only one of the values has, the index in that value.
    pub pointer: String,
    /// The value before; `None` if there was none.
    pub old: Option<Json>,
    /// The value after; `None` if there is none.
    pub new: Option<Json>,
}

/// The changes from `old` to `new`, each as small as possible, in the order of the keys.
///
/// For lists, equal beginnings and ends are skipped, and the rest is compared item by item. If the result is stored or shown, pass
/// redacted JSON ([`Codec::to_json`](crate::Codec::to_json)).
#[must_use]
pub fn json_diff(old: &Json, new: &Json) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(old, new, &mut String::new(), &mut changes);
    changes
}

fn compare(old: &Json, new: &Json, pointer: &mut String, changes: &mut Vec<Change>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Json::Object(old), Json::Object(new)) => {
            let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for key in keys {
                step(
                    pointer,
                    &key.replace('~', "~0").replace('/', "~1"),
                    old.get(key),
                    new.get(key),
                    changes,
                );
            }
        }
        (Json::Array(old), Json::Array(new)) => {
            let n_head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
            let longest_tail = old.len().min(new.len()) - n_head;
            let tails = old.iter().rev().zip(new.iter().rev()).take(longest_tail);
            let n_tail = tails.take_while(|(old, new)| old == new).count();
            let n_middle = old.len().max(new.len()) - n_tail;
            for index in n_head..n_middle {
                let item = |list: &'_ Vec<Json>| {
                    (index < list.len() - n_tail).then(|| list.get(index).cloned()).flatten()
                };
                step(pointer, &index.to_string(), item(old).as_ref(), item(new).as_ref(), changes);
            }
        }
        (_, _) => {
            changes.push(Change { pointer: pointer.clone(), old: Some(old.clone()), new: Some(new.clone()) });
        }
    }
}

fn step(pointer: &mut String, key: &str, old: Option<&Json>, new: Option<&Json>, changes: &mut Vec<Change>) {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(key);
    match (old, new) {
        (Some(old), Some(new)) => compare(old, new, pointer, changes),
        (_, _) => changes.push(Change { pointer: pointer.clone(), old: old.cloned(), new: new.cloned() }),
    }
    pointer.truncate(length);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(old: &Json, new: &Json) -> Vec<(String, bool, bool)> {
        let changes = json_diff(old, new).into_iter();
        changes.map(|change| (change.pointer, change.old.is_some(), change.new.is_some())).collect()
    }

    #[test]
    fn changes_are_named_by_their_smallest_part() {
        let old = json!({"a": {"b/c": 1, "d": [1, 2, 3]}, "e": "x", "gone": null});
        let new = json!({"a": {"b/c": 2, "d": [0, 1, 2, 3]}, "e": "x", "come": true});
        let expected = [
            ("/a/b~1c", true, true),
            ("/a/d/0", false, true),
            ("/come", false, true),
            ("/gone", true, false),
        ];
        assert_eq!(pointers(&old, &new), expected.map(|(pointer, old, new)| (pointer.to_owned(), old, new)));
    }

    #[test]
    fn equal_values_have_no_changes() {
        let value = json!([{"a": [1, {"b": null}]}]);
        assert_eq!(json_diff(&value, &value), []);
        assert_eq!(pointers(&json!([1, 1]), &json!([1])), [("/1".to_owned(), true, false)]);
    }
}
