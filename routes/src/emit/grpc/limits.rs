//! Time limits and retries of a route.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::emit::shared::{duration, time_limit, with};
use crate::model::{Retry, Timeouts};

/// The limit of a whole call as `max_stream_duration`.
///
/// gRPC ignores `timeout` (row B121). It prefers `grpc_timeout_header_max` to `max_stream_duration`, and reads 0 as "the application's
/// own deadline" (rows B119 and B120). That is also the default here, because streams may be long.
pub(super) fn max_stream_duration(timeouts: &Timeouts, is_retried: bool) -> Json {
    match time_limit(timeouts, is_retried) {
        Some(limit) => {
            let limit = duration(limit);
            json!({"max_stream_duration": limit, "grpc_timeout_header_max": limit})
        }
        None => json!({"grpc_timeout_header_max": "0s"}),
    }
}

/// The time limits that gRPC clients do not support.
pub(super) fn lost_timeout(timeouts: &Timeouts, is_retried: bool) -> Option<String> {
    let has_limit = timeouts.backend_request.is_some_and(|limit| !limit.is_zero());
    (has_limit && is_retried).then(|| "gRPC clients ignore the time limit of a single attempt".to_owned())
}

/// Retries as a `RetryPolicy`, if gRPC supports any of them; and the reasons for those that it does not support.
///
/// gRPC retries only by gRPC status. HTTP statuses that gRPC reads as UNAVAILABLE when a proxy sends them are retried as such. gRPC reads
/// the others as INTERNAL or UNKNOWN, which have too many other causes to be retried.
pub(super) fn retry_policy(retry: &Retry) -> (Option<Json>, Vec<String>) {
    let mut lost = Vec::new();
    let unknown: Vec<String> = retry
        .codes
        .iter()
        .filter(|code| !UNAVAILABLE_CODES.contains(code))
        .map(ToString::to_string)
        .collect();
    if !unknown.is_empty() {
        lost.push(format!("gRPC clients cannot retry by the HTTP status {}", unknown.join(", ")));
    }
    let by_code = retry.codes.iter().any(|code| UNAVAILABLE_CODES.contains(code));
    let is_wanted = |condition: &str| {
        retry.grpc_on.iter().any(|wanted| wanted == condition) || (by_code && condition == "unavailable")
    };
    let conditions: Vec<&str> =
        Retry::GRPC_CONDITIONS.into_iter().filter(|condition| is_wanted(condition)).collect();
    if conditions.is_empty() || retry.attempts == 0 {
        return (None, lost);
    }
    if retry.attempts > MAX_RETRIES {
        lost.push(format!("gRPC clients retry a call at most {MAX_RETRIES} times"));
    }
    // C-core accepts no blanks and no capitals (row B128).
    let policy = json!({"retry_on": conditions.join(","), "num_retries": retry.attempts.min(MAX_RETRIES)});
    let Some(base) = retry.backoff else { return (Some(policy), lost) };
    // Ten times the base is the default, too. Java rejects less than the base (row B130).
    let base = base.clamp(MIN_BACKOFF, MAX_BACKOFF);
    let back_off = json!({"base_interval": duration(base), "max_interval": duration(base * 10)});
    (Some(with(policy, "retry_back_off", back_off)), lost)
}

/// The HTTP status codes that gRPC clients read as UNAVAILABLE.
const UNAVAILABLE_CODES: [u16; 4] = [429, 502, 503, 504];

/// Clients try a call at most five times (row B127).
const MAX_RETRIES: u32 = 4;

/// Shorter times act as this one, but 0 is rejected (row B129).
const MIN_BACKOFF: Duration = Duration::from_millis(1);

/// Ten times this is still a valid Duration (row B16). No document can have a longer time.
const MAX_BACKOFF: Duration = Duration::from_secs(31_000_000_000);
