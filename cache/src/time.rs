//! Points in time of the wall clock as numbers, as they are stored and counted; and durations with an upper limit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xds_units::Span;

/// A text that is not a duration, or one that is too long; the message says what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write 500ms, 30s, 5m or 2h, at most 168h")]
pub struct InvalidDuration(String);

/// Milliseconds since 1970; 0 for a time before.
#[must_use]
pub fn millis(time: SystemTime) -> u64 {
    duration_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The time of so many milliseconds since 1970. A time that cannot be represented becomes 1970.
#[must_use]
pub fn from_millis(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

/// Whole milliseconds; as many as there can be, of a longer time.
#[must_use]
pub fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a [`Span`] of at most [`MAX_DURATION`]: the time for a drain, a hold or a wait.
///
/// # Errors
///
/// If the text is not such a duration.
pub fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    let duration = text.parse::<Span>().ok().map(Span::duration);
    duration
        .filter(|duration| *duration <= MAX_DURATION)
        .ok_or_else(|| InvalidDuration(text.trim().to_owned()))
}

/// The longest time for a drain, a hold or a wait: a week.
pub const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_an_end() {
        assert_eq!(duration("2h"), duration("120m"));
        assert_eq!(duration("168h"), Ok(MAX_DURATION));
        for wrong in ["", "5", "s", "-1s", "169h", "99999999999999999999s"] {
            let told = duration(wrong).unwrap_err().to_string();
            assert!(told.contains("is not a duration: write 500ms, 30s, 5m or 2h, at most 168h"), "{told}");
        }
    }
}
