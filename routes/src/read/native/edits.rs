//! Changes of headers.

use std::collections::BTreeSet;

use xds_codec::echo;

use super::target::one_or_list;
use crate::model::{HeaderEdits, Spot};
use crate::read::fields::{Object, Reader, Value};
use crate::read::matches::check_header_name;

/// The fields for requests: headers to set, add and remove.
pub(super) const REQUEST_FIELDS: [&str; 3] = ["set_headers", "add_headers", "remove_headers"];

/// The fields for responses.
pub(super) const RESPONSE_FIELDS: [&str; 3] =
    ["set_response_headers", "add_response_headers", "remove_response_headers"];

/// Reads changes of headers, with the spot of the first; `None` if there are none.
///
/// A header can appear only once in all fields, because clients apply changes in different orders.
pub(super) fn read_edits(
    fields: &mut Object<'_>,
    [set, add, remove]: [&'static str; 3],
    reader: &mut Reader,
) -> Option<(Spot, HeaderEdits)> {
    let mut names = ChangedNames::default();
    let mut first = None;
    let mut edits = HeaderEdits::default();
    for (field, pairs) in [(set, &mut edits.set), (add, &mut edits.add)] {
        let Some(map) = fields.take(field) else { continue };
        first.get_or_insert_with(|| map.spot.clone());
        let entries = map.object(reader).map(|map| map.entries(reader)).unwrap_or_default();
        check_count(entries.len(), &map, reader);
        for (name, value) in entries {
            names.check(name, &value.spot, reader);
            if let Some(text) = read_value(&value, reader) {
                pairs.push((name.to_owned(), text));
            }
        }
    }
    if let Some(list) = fields.take(remove) {
        first.get_or_insert_with(|| list.spot.clone());
        for item in one_or_list(&list, MAX_EDITS, reader) {
            let Some(name) = item.text(reader) else { continue };
            names.check(name, &item.spot, reader);
            edits.remove.push(name.to_owned());
        }
    }
    first.map(|spot| (spot, edits))
}

fn check_count(count: usize, map: &Value<'_>, reader: &mut Reader) {
    if count > MAX_EDITS {
        let message = format!("there are {count} items, at most {MAX_EDITS} are allowed");
        reader.error("too-many-items", &map.spot, message);
    }
}

/// The names of changed headers, in lower case.
#[derive(Default)]
struct ChangedNames(BTreeSet<String>);

impl ChangedNames {
    /// Checks a name. Clients reject changes of `host` and of the pseudo-headers of HTTP/2.
    fn check(&mut self, name: &str, spot: &Spot, reader: &mut Reader) {
        let lower = name.to_ascii_lowercase();
        if lower == "host" || lower == ":authority" {
            let message = "use `rewrite` to change the host";
            reader.error("bad-header-name", spot, message);
        } else {
            check_header_name(name, spot, reader);
        }
        if !self.0.insert(lower) {
            reader.error("duplicate-name", spot, format!("the header {} appears twice", echo(name)));
        }
    }
}

/// Reads a value of a header: no control characters, because a line break would end the header.
fn read_value(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(0, 4_096, reader)?;
    if text.chars().any(|one| one.is_control() && one != '\t') || text.trim() != text {
        let message = format!(
            "{} is not the value of a header: control characters, and spaces at its ends, are not allowed",
            echo(text)
        );
        reader.error("bad-header-value", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

/// The limit of the Gateway API.
const MAX_EDITS: usize = 16;
