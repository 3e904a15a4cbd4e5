//! The parts that matches of GRPCRoutes and HTTPRoutes share: headers, and the comparison of values.

use xds_codec::document::TreeValue;
use xds_codec::echo;

use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::regex;
use crate::model::{HeaderMatch, HeaderValue, MatchType, Spot};

/// Reads `type`; the default is `Exact`.
pub(crate) fn read_match_type(object: &mut Object<'_>, reader: &mut Reader) -> Option<MatchType> {
    let Some(value) = object.take("type") else { return Some(MatchType::Exact) };
    let choice = value.choice(&["Exact", "RegularExpression"], reader)?;
    Some(if choice == "Exact" { MatchType::Exact } else { MatchType::RegularExpression })
}

/// Reads `headers`: at most 16. If a name appears twice, in whatever case, the first one is used.
pub(crate) fn read_headers(list: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<HeaderMatch> {
    if context.version() == "v1alpha2" && list.is_object() {
        return read_header_map(list, reader);
    }
    let items = list.list(16, reader);
    let mut headers = Vec::with_capacity(items.len());
    for value in items {
        if let Some(header) = read_header(&value, reader) {
            push_first(header, &mut headers, reader);
        }
    }
    headers
}

fn read_header(value: &Value<'_>, reader: &mut Reader) -> Option<HeaderMatch> {
    let mut object = value.object(reader)?;
    let name = object.need("name", reader).and_then(|name| read_header_name(&name, reader));
    let match_type = read_match_type(&mut object, reader);
    let text = object.need("value", reader);
    let text = match (text, match_type) {
        (Some(text), Some(MatchType::Exact)) => {
            text.bounded_text(1, 4_096, reader).map(|text| HeaderValue::Exact(text.to_owned()))
        }
        (Some(text), Some(MatchType::RegularExpression)) => {
            regex::read_regex(&text, 1, 4_096, reader).map(HeaderValue::Regex)
        }
        (None, _) | (_, None) => None,
    };
    object.finish(reader);
    Some(HeaderMatch { spot: value.spot.clone(), name: name?.to_ascii_lowercase(), value: text? })
}

/// Reads `headers: {values: {version: 2}}`, a form in a comment of GEP-1016.
fn read_header_map(value: &Value<'_>, reader: &mut Reader) -> Vec<HeaderMatch> {
    let mut headers = Vec::new();
    let Some(mut object) = value.object(reader) else { return headers };
    reader.warn("old-form", &value.spot, "`headers` is a list of `name` and `value` since v1");
    let values = object.need("values", reader);
    object.finish(reader);
    let Some(values) = values.and_then(|values| values.object(reader)) else { return headers };
    for (name, value) in values.entries(reader) {
        let text = match value.tree.value() {
            TreeValue::String(_) => match value.bounded_text(1, 4_096, reader) {
                Some(text) => text.to_owned(),
                None => continue,
            },
            TreeValue::Number(number) => number.to_string(),
            TreeValue::Bool(truth) => truth.to_string(),
            TreeValue::Null | TreeValue::List(_) | TreeValue::Object(_) => {
                value.wrong("a string", reader);
                continue;
            }
        };
        if let Some(name) = check_header_name(name, &value.spot, reader) {
            let (spot, name) = (value.spot, name.to_ascii_lowercase());
            push_first(HeaderMatch { spot, name, value: HeaderValue::Exact(text) }, &mut headers, reader);
        }
    }
    headers
}

fn push_first(header: HeaderMatch, headers: &mut Vec<HeaderMatch>, reader: &mut Reader) {
    if headers.iter().any(|other| other.name == header.name) {
        let message = format!("the header {} appears twice; only the first one is used", echo(&header.name));
        reader.warn("duplicate-header", &header.spot, message);
        return;
    }
    headers.push(header);
}

/// Reads the name of a header or query parameter, as written: 1 to 256 characters that HTTP allows.
pub(crate) fn read_header_name<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    let text = value.text(reader)?;
    check_header_name(text, &value.spot, reader)
}

/// Checks the name of a header. The pseudo-headers of HTTP/2, which begin with a colon, are refused.
pub(crate) fn check_header_name<'t>(text: &'t str, spot: &Spot, reader: &mut Reader) -> Option<&'t str> {
    if text.is_empty() || text.len() > 256 || !text.bytes().all(is_token) {
        let message = format!(
            "{} is not the name of a header: 1 to 256 letters, digits and characters of `!#$%&'*+-.^_`|~` are allowed",
            echo(text)
        );
        reader.error("bad-header-name", spot, message);
        return None;
    }
    Some(text)
}

/// Returns `true` if an HTTP token, such as the name of a header or cookie, may have this character.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
