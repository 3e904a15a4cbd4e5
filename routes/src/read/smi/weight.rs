//! Weights of a TrafficSplit: whole numbers, or quantities in the first version.

use xds_codec::document::{Number, TreeValue};
use xds_codec::echo;

use crate::read::fields::{Reader, Value};

/// Reads a whole number from 0 to 4,294,967,295, which may be written as `10.0`. A number in quotes is a warning.
pub(super) fn read_whole(value: &Value<'_>, reader: &mut Reader) -> Option<u64> {
    let TreeValue::String(text) = value.tree.value() else {
        return value.integer(0, MAX_WHOLE, reader).and_then(|weight| u64::try_from(weight).ok());
    };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let weight = text.parse::<u64>().ok().filter(|weight| is_number && *weight <= MAX_WHOLE.unsigned_abs());
    match weight {
        Some(_) => {
            reader.warn("quoted-number", &value.spot, "the weight is a number in quotes; remove the quotes");
        }
        None => {
            let message =
                format!("{} is not a weight; a weight is a whole number from 0 to {MAX_WHOLE}", echo(text));
            reader.error("bad-weight", &value.spot, message);
        }
    }
    weight
}

/// Reads a quantity of Kubernetes, in thousandths: `1` is 1000, `500m` is 500.
pub(super) fn read_quantity(value: &Value<'_>, reader: &mut Reader) -> Option<u64> {
    let text = match value.tree.value() {
        TreeValue::String(text) => text.to_owned(),
        TreeValue::Number(Number::Integer(number)) => number.to_string(),
        TreeValue::Number(Number::Float(number)) => number.to_string(),
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::List(_) | TreeValue::Object(_) => {
            value.wrong("a quantity such as `1`, `1.5` or `500m`", reader);
            return None;
        }
    };
    let thousandths = parse_quantity(&text);
    if let Err(reason) = thousandths {
        reader.error("bad-weight", &value.spot, format!("{} is not a weight: {reason}", echo(&text)));
    }
    thousandths.ok()
}

/// Parses a quantity in thousandths, at most [`MAX_THOUSANDTHS`].
fn parse_quantity(text: &str) -> Result<u64, &'static str> {
    let no_quantity = "write a quantity such as `1`, `1.5` or `500m`";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end).ok_or(no_quantity)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || fraction.contains('.') {
        return Err(no_quantity);
    }
    let (times, power) = scale_of(suffix).ok_or(no_quantity)?;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if text.starts_with('-') {
        return Err("it is negative");
    }
    let too_large = "it is too large";
    let mantissa: u128 = digits.parse().map_err(|_| too_large)?;
    let scaled = mantissa.checked_mul(times).ok_or(too_large)?;
    let n_decimals = i32::try_from(fraction.len()).map_err(|_| too_large)?;
    let power = power + 3 - n_decimals;
    let factor = 10_u128.checked_pow(power.unsigned_abs());
    let thousandths = if power >= 0 {
        scaled.checked_mul(factor.ok_or(too_large)?).ok_or(too_large)?
    } else {
        let too_fine = "it has more than three decimals";
        let factor = factor.ok_or(too_fine)?;
        if scaled % factor != 0 {
            return Err(too_fine);
        }
        scaled / factor
    };
    u64::try_from(thousandths).ok().filter(|thousandths| *thousandths <= MAX_THOUSANDTHS).ok_or(too_large)
}

/// The scale of a suffix: a factor, and a power of ten.
fn scale_of(suffix: &str) -> Option<(u128, i32)> {
    let decimal = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    if let Some((_, power)) = decimal.into_iter().find(|(name, _)| *name == suffix) {
        return Some((1, power));
    }
    let binary = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    if let Some((_, bits)) = binary.into_iter().find(|(name, _)| *name == suffix) {
        return Some((1 << bits, 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = exponent.parse().ok()?;
    (-18..=18).contains(&power).then_some((1, power))
}

/// The highest sum of weights that a route can have.
const MAX_WHOLE: i64 = 4_294_967_295;

/// Large enough for every ratio, and small enough that no sum of weights overflows.
const MAX_THOUSANDTHS: u64 = 1_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes_in_thousandths() {
        let table = [
            ("10m", Some(10)),
            ("100m", Some(100)),
            ("1500m", Some(1_500)),
            ("1", Some(1_000)),
            ("0m", Some(0)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("500m", Some(500)),
            ("1.5", Some(1_500)),
            ("+1.5", Some(1_500)),
            (".5", Some(500)),
            ("5.", Some(5_000)),
            ("0.001", Some(1)),
            ("1.5000000", Some(1_500)),
            ("2k", Some(2_000_000)),
            ("1M", Some(1_000_000_000)),
            ("1G", Some(1_000_000_000_000)),
            ("1T", Some(1_000_000_000_000_000)),
            ("1Ki", Some(1_024_000)),
            ("1Mi", Some(1_048_576_000)),
            ("0.5Ki", Some(512_000)),
            ("1e3", Some(1_000_000)),
            ("1E2", Some(100_000)),
            ("100e-2", Some(1_000)),
            ("1000u", Some(1)),
            ("1000000n", Some(1)),
            ("1u", None),
            ("0.0005", None),
            ("-1", None),
            ("-10m", None),
            ("2T", None),
            ("1E", None),
            ("1Ei", None),
            ("99999999999999999999999999999999999999999999", None),
            ("1e99", None),
            ("1e-99", None),
            ("1K", None),
            ("1 m", None),
            ("m", None),
            (".", None),
            ("1.2.3", None),
            ("10%", None),
            ("\u{661}", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_quantity(text).ok(), expected, "{text}");
        }
        let fine = format!("0.{}1", "0".repeat(100));
        assert_eq!(parse_quantity(&fine), Err("it has more than three decimals"));
    }
}
