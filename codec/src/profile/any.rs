//! `Any`s: their type, and their content.

/// The full name of the message in an `Any`. For a `TypedStruct`, that of the message that it represents (row B14).
pub(super) fn type_of(inner: &crate::inner::Inner, any: &Message) -> String {
    let url = text(any, "type_url").unwrap_or_default();
    let name = after_slash(&url).to_owned();
    if !TYPED_STRUCTS.contains(&&*name) {
        return name;
    }
    let content = crate::encode::decode_any(inner, any);
    let url = content.and_then(|content| text(&content, "type_url"));
    url.map_or(name, |url| after_slash(&url).to_owned())
}

/// Returns `true` for an `Any` that represents a message of another type as a struct.
pub(super) fn is_typed_struct(any: &Message) -> bool {
    text(any, "type_url").is_some_and(|url| TYPED_STRUCTS.contains(&after_slash(&url)))
}

/// The last part of a type name, for messages.
pub(super) fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn after_slash(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

const TYPED_STRUCTS: [&str; 2] = ["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"];
use crate::message::{Message, text};
