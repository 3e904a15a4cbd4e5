//! Shares of requests, written as `5%` or `0.01%`.

use xds_codec::echo;

use crate::model::Fraction;
use crate::read::fields::{Reader, Value};

/// Reads a share from 0% to 100% with at most four decimals, in the coarsest denominator of xDS that fits.
pub(super) fn read_share(value: &Value<'_>, reader: &mut Reader) -> Option<Fraction> {
    let parsed = value.tree.as_str().and_then(parse_share);
    if parsed.is_none() {
        let found = value.tree.as_str().map_or_else(|| value.tree.kind().to_owned(), echo);
        let message = format!(
            "expected a share such as `5%`, from 0% to 100% with at most four decimals, found {found}"
        );
        reader.error("bad-share", &value.spot, message);
    }
    parsed
}

/// Parses `5%` or `0.5%`; `None` for anything else.
fn parse_share(text: &str) -> Option<Fraction> {
    let number = text.strip_suffix('%')?.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || whole.len() > 3 {
        return None;
    }
    let decimals = decimals.trim_end_matches('0');
    let (denominator, width) = match decimals.len() {
        0 => (100, 0),
        1 | 2 => (10_000, 2),
        3 | 4 => (1_000_000, 4),
        _ => return None,
    };
    let numerator: u32 = format!("{whole}{decimals:0<width$}").parse().ok()?;
    (numerator <= denominator).then_some(Fraction { numerator, denominator })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_with_at_most_four_decimals() {
        let table = [
            ("5%", Some((5, 100))),
            ("5 %", Some((5, 100))),
            ("0%", Some((0, 100))),
            ("100%", Some((100, 100))),
            ("100.0%", Some((100, 100))),
            ("0.5%", Some((50, 10_000))),
            ("12.25%", Some((1_225, 10_000))),
            ("0.001%", Some((10, 1_000_000))),
            ("0.0001%", Some((1, 1_000_000))),
            ("0.00001%", None),
            ("100.01%", None),
            ("101%", None),
            ("1000%", None),
            ("-5%", None),
            ("+5%", None),
            ("5", None),
            ("%", None),
            (".5%", None),
            ("5.%", None),
            ("1e1%", None),
            ("\u{665}%", None),
        ];
        for (text, expected) in table {
            let found = parse_share(text).map(|share| (share.numerator, share.denominator));
            assert_eq!(found, expected, "{text}");
        }
    }
}
