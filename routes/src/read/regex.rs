//! Regular expressions that every client must take: Envoy (C++), C-core, grpc-go, grpc-js and grpc-java each have their own RE2.
//!
//! A single bad expression makes clients reject a whole RouteConfiguration, so syntax that one of them lacks is refused.

use xds_codec::echo;
use xds_re2::{check_shared_regex, exhausts_js};

use super::fields::{Reader, Value};
use crate::model::Spot;

/// Reads a regular expression of `least` to `most` characters; an error if a client does not accept it.
pub(crate) fn read_regex(
    value: &Value<'_>,
    least: usize,
    most: usize,
    reader: &mut Reader,
) -> Option<String> {
    let text = value.bounded_text(least, most, reader)?;
    check(text, &value.spot, reader).then(|| text.to_owned())
}

/// Returns `true` if every client accepts the text, and reports why not. Warns if the expression is too large for Envoy or grpc-js.
pub(crate) fn check(text: &str, spot: &Spot, reader: &mut Reader) -> bool {
    if let Some(n) = exhausts_js(text) {
        reader.warn("large-regex", spot, format!(
            "{} takes about {n} instructions; gRPC (js) has memory for 120,000 of all expressions, and its process ends when it is used up",
            echo(text)
        ));
    }
    match check_shared_regex(text) {
        Ok(Some(size)) if size > MAX_PROGRAM_SIZE => {
            reader.warn("large-regex", spot, format!(
                "the size of {} is {size}; Envoy refuses all routes of a configuration with an expression larger \
                 than 100, unless its runtime has a higher `re2.max_program_size.error_level`",
                echo(text)
            ));
            true
        }
        Ok(_) => true,
        Err(reason) => {
            reader.error("bad-regex", spot, format!("{} is not valid RE2: {reason}", echo(text)));
            false
        }
    }
}

/// Envoy's default is 100. The text around an expression in a matcher takes some of it.
const MAX_PROGRAM_SIZE: usize = 90;
