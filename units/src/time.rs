//! Points in time as RFC 3339 text, in UTC.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `2026-11-20T12:20:44.123Z`. A time before 1970 is shown as 1970.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Reads RFC 3339: `2026-11-20T12:20:44Z`, with or without a fraction, in UTC or with an offset. `None` for anything else,
/// and for times before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let number = |range: Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is_separated = [(4, '-'), (7, '-'), (13, ':'), (16, ':')]
        .into_iter()
        .all(|(at, separator)| text.get(at..).is_some_and(|rest| rest.starts_with(separator)));
    let has_time = text.get(10..11).is_some_and(|separator| matches!(separator, "T" | "t" | " "));
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !is_separated || !has_time || hour > 23 || minute > 59 || second > 60 || year < 1970 {
        return None;
    }
    let seconds = days(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second;
    let rest = text.get(19..)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let fraction = match rest.get(..rest.len() - zone.len())? {
        "" => 0.0,
        fraction => format!("0{fraction}").parse::<f64>().ok().filter(|_| fraction.starts_with('.'))?,
    };
    let local = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::try_from_secs_f64(fraction).ok()?;
    if zone.eq_ignore_ascii_case("z") {
        return Some(local);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let two_digits = |part: &str| part.parse::<u64>().ok().filter(|_| part.len() == 2);
    let offset = Duration::from_secs(two_digits(hours)? * 3_600 + two_digits(minutes)? * 60);
    match zone.get(..1)? {
        "+" => local.checked_sub(offset),
        "-" => local.checked_add(offset),
        _ => None,
    }
}

/// The days since 1970-01-01 of a day that exists; the other way round than [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) {
        return None;
    }
    let (year_from_march, month_from_march) =
        if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (date(days) == (year, month, day)).then_some(days)
}

/// Year, month and day of the days since 1970-01-01, counted in eras of 400 years that begin on the first of March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_177_244_123, "2026-11-20T12:20:44.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(millis)), text);
            let read = parse_rfc3339(text).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            assert_eq!(
                read.map(|since| since.as_micros().div_ceil(1_000)),
                Some(u128::from(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn times_are_read_in_every_form_and_nothing_else_is() {
        let noon = UNIX_EPOCH + Duration::from_millis(1_795_177_244_000);
        for text in [
            "2026-11-20T12:20:44Z",
            "2026-11-20 12:20:44.000z",
            "2026-11-20T14:20:44+02:00",
            "2026-11-20T11:50:44-00:30",
        ] {
            assert_eq!(parse_rfc3339(text), Some(noon), "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-11-20",
            "2026-11-20T12:20:44",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T12:20:44+2",
            "2026-11-20T12:20:44.Z.",
            "2026-11-20T12:20:44+02:0é",
            "é026-11-20T12:20:44Z",
            "2026-11-20T12:20:44..5Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
