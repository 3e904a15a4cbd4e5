//! The meaning of plain YAML scalars: JSON's words and numbers, and a string in every other case.

use super::Number;
use super::tape::Scalar;

/// Resolves a scalar without quotes.
///
/// The three spellings of YAML 1.2's core schema for `true`, `false` and `null` count; `yes`, `on`, `010`, `0x1f`,
/// `1_000` and `.inf` are strings, so a field that wants a bool or a number refuses them instead of guessing.
pub(super) fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        _ => parse_number(text).map_or_else(|| Scalar::String(text), Scalar::Number),
    }
}

/// Reads a number in JSON's notation; `None` for any other text.
pub(crate) fn parse_number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let n_digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let (integer, rest) = unsigned.split_at(n_digits);
    if integer.is_empty() || (integer.len() > 1 && integer.starts_with('0')) {
        return None;
    }
    if rest.is_empty() {
        return Some(
            text.parse()
                .map_or_else(|_| Number::Float(text.parse().unwrap_or(f64::INFINITY)), Number::Integer),
        );
    }
    let exponent = match rest.strip_prefix('.') {
        Some(fraction) => {
            let n_digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if n_digits == 0 {
                return None;
            }
            fraction.split_at(n_digits).1
        }
        None => rest,
    };
    if !exponent.is_empty() {
        let digits = exponent.strip_prefix(['e', 'E'])?;
        let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    }
    text.parse().ok().map(Number::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_words_and_numbers_are_not_strings() {
        for text in [
            "yes",
            "on",
            "No",
            "off",
            "y",
            "010",
            "0o10",
            "0x1f",
            "1_000",
            "+1",
            ".5",
            "1.",
            "1e",
            ".inf",
            ".nan",
            "-",
            "1:20",
            "1.2.3",
            "2024-01-01",
        ] {
            assert_eq!(resolve(text), Scalar::String(text), "{text}");
        }
        for (text, number) in [
            ("0", Number::Integer(0)),
            ("-12", Number::Integer(-12)),
            ("18446744073709551615", Number::Integer(18_446_744_073_709_551_615)),
            ("1.5", Number::Float(1.5)),
            ("1e3", Number::Float(1000.0)),
            ("-0.5E-1", Number::Float(-0.05)),
        ] {
            assert_eq!(resolve(text), Scalar::Number(number), "{text}");
        }
        assert_eq!(resolve("true"), Scalar::Bool(true));
        assert_eq!(resolve("~"), Scalar::Null);
    }
}
