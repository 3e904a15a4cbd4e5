//! Points in time of the wall clock as numbers, as they are stored and counted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 for a time before.
#[must_use]
pub fn millis(time: SystemTime) -> u64 {
    duration_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The time of so many milliseconds since 1970; one beyond all times is the first.
#[must_use]
pub fn from_millis(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

/// Whole milliseconds; as many as there can be, of a longer time.
#[must_use]
pub fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
