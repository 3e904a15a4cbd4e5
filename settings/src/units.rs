//! Durations, sizes, shares and addresses, as flags have them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use xds_units::{InvalidSpan, Percent, Span};

/// A text that is not a size or a share; the message says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

impl UnitError {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }
}

/// The share of a group's objects that may go at once without being confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassRemoval(Option<Percent>);

impl MassRemoval {
    /// The share from 0 to 1; `None` for any.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        self.0.map(|percent| percent.number() / 100.0)
    }
}

/// Reads a [`Span`], such as `500ms`, `10s` or `1h30m`.
///
/// # Errors
///
/// [`InvalidSpan`] if it is none.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidSpan> {
    text.parse().map(Span::duration)
}

/// Reads `IP:PORT`, `[IPv6]:PORT` or `localhost:PORT`.
///
/// # Errors
///
/// A text that says what is missing.
pub fn parse_address(text: &str) -> Result<SocketAddr, UnitError> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = |advice: String| Err(UnitError::new(advice));
    if text.parse::<IpAddr>().is_ok() {
        let host = if text.contains(':') { format!("[{text}]") } else { text.to_owned() };
        return wrong(format!("the port is missing: write {host}:18000, or port 0 for any free one"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong("not an address: write IP:PORT, such as 127.0.0.1:18000".to_owned());
    };
    match (host, port.parse::<u16>()) {
        ("localhost", Ok(port)) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        ("" | "*", Ok(port)) => wrong(format!(
            "the host is missing: write 127.0.0.1:{port}, or 0.0.0.0:{port} for every interface"
        )),
        (_, Err(_)) => wrong(format!("`{port}` is not a port: use a number from 0 to 65535")),
        (host, Ok(port)) => {
            wrong(format!("`{host}` is not an IP address: write 127.0.0.1:{port} or [::1]:{port}"))
        }
    }
}

/// Reads `1048576`, `64MiB`, `512KiB` or `1GiB`; `KB`, `MB` and `GB` are powers of 1000.
///
/// # Errors
///
/// [`UnitError`] if the unit is unknown, or the number is not one.
pub fn parse_size(text: &str) -> Result<usize, UnitError> {
    let (number, unit) = split(text);
    let bytes: u32 = match unit {
        "" | "B" => 1,
        "KB" | "kB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err(UnitError(format!("unknown unit `{unit}`: use KiB, MiB or GiB, as in 64MiB"))),
    };
    let value = parse_number(number, "64MiB")? * f64::from(bytes);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: from 0 to 2^53")]
    let size = if value <= MAX_EXACT {
        value as usize
    } else {
        return Err(UnitError("the size is too large".to_owned()));
    };
    Ok(size)
}

/// Reads `50%`, `50` or `off`.
///
/// # Errors
///
/// [`UnitError`] if it is neither `off` nor a whole number from 1 to 100.
pub fn parse_mass_removal(text: &str) -> Result<MassRemoval, UnitError> {
    let wrong =
        || UnitError(format!("`{text}` is not a share: write a whole number from 1% to 100%, or `off`"));
    if text.trim() == "off" {
        return Ok(MassRemoval(None));
    }
    let is_whole = |share: &Percent| *share != Percent::NONE && share.hundredths().is_multiple_of(100);
    let share = text.parse().ok().filter(is_whole);
    share.map(|share| MassRemoval(Some(share))).ok_or_else(wrong)
}

/// The largest integer below which a double holds every integer.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

fn parse_number(number: &str, example: &str) -> Result<f64, UnitError> {
    number
        .parse::<f64>()
        .map_err(|_| UnitError(format!("not a number with a unit: write something like {example}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_or_decimal() {
        let table = [
            ("64MiB", Some(64 << 20)),
            ("64MB", Some(64_000_000)),
            ("1.5KiB", Some(1536)),
            ("12", Some(12)),
            ("12B", Some(12)),
            ("12 Mb", None),
            ("", None),
            ("99999999999GiB", None),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn a_share_is_a_whole_percentage_or_off() {
        assert_eq!(parse_mass_removal("50%").unwrap().share(), Some(0.5));
        assert_eq!(parse_mass_removal("100").unwrap().share(), Some(1.0));
        assert_eq!(parse_mass_removal("off").unwrap().share(), None);
        for wrong in ["0", "101%", "half", "", "-1", "on"] {
            assert!(parse_mass_removal(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_address_is_told_what_is_missing() {
        let table = [
            ("127.0.0.1", "the port is missing: write 127.0.0.1:18000, or port 0 for any free one"),
            ("::1", "the port is missing: write [::1]:18000, or port 0 for any free one"),
            (":80", "the host is missing: write 127.0.0.1:80, or 0.0.0.0:80 for every interface"),
            ("127.0.0.1:99999", "`99999` is not a port: use a number from 0 to 65535"),
            ("example.com:1", "`example.com` is not an IP address: write 127.0.0.1:1 or [::1]:1"),
            ("x", "not an address: write IP:PORT, such as 127.0.0.1:18000"),
        ];
        for (text, advice) in table {
            assert_eq!(parse_address(text).unwrap_err().to_string(), advice, "{text}");
        }
        for (text, address) in
            [("localhost:1", "127.0.0.1:1"), ("[::1]:0", "[::1]:0"), ("0.0.0.0:5", "0.0.0.0:5")]
        {
            assert_eq!(parse_address(text).unwrap().to_string(), address);
        }
    }
}
