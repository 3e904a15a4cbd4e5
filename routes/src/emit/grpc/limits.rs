//! Time limits and retries of a route.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::emit::shared::{duration, time_limit, with};
use crate::model::{Retry, Timeouts};

/// The limit of a whole call as `max_stream_duration`.
///
/// gRPC ignores `timeout` (row B121), takes `grpc_timeout_header_max` before `max_stream_duration` and reads 0 as "the
/// application's own deadline" (rows B119 and B120), which is also the default here: streams may be long.
pub(super) fn max_stream_duration(timeouts: &Timeouts, is_retried: bool) -> Json {
    match time_limit(timeouts, is_retried) {
        Some(limit) => {
            let limit = duration(limit);
            json!({"max_stream_duration": limit, "grpc_timeout_header_max": limit})
        }
        None => json!({"grpc_timeout_header_max": "0s"}),
    }
}

/// The time limits that gRPC clients cannot have.
pub(super) fn lost_timeout(timeouts: &Timeouts, is_retried: bool) -> Option<String> {
    let has_limit = timeouts.backend_request.is_some_and(|limit| !limit.is_zero());
    (has_limit && is_retried).then(|| "gRPC clients ignore the time limit of a single attempt".to_owned())
}

/// Retries as a `RetryPolicy`, if gRPC supports any of them; and those that it does not support.
///
/// gRPC retries by gRPC status alone. A status of HTTP counts as what gRPC makes of it when it comes from a proxy, if that is
/// UNAVAILABLE; the others become INTERNAL or UNKNOWN, which stand for too much else to be retried unasked.
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
    // C-core takes no blanks and no capitals (row B128).
    let policy = json!({"retry_on": conditions.join(","), "num_retries": retry.attempts.min(MAX_RETRIES)});
    let Some(base) = retry.backoff else { return (Some(policy), lost) };
    // Ten times as much is also what is taken where it is left out; Java refuses less than the base (row B130).
    let base = base.clamp(MIN_BACKOFF, MAX_BACKOFF);
    let back_off = json!({"base_interval": duration(base), "max_interval": duration(base * 10)});
    (Some(with(policy, "retry_back_off", back_off)), lost)
}

/// The HTTP status codes that gRPC clients read as UNAVAILABLE.
const UNAVAILABLE_CODES: [u16; 4] = [429, 502, 503, 504];

/// A call is tried five times at most (row B127).
const MAX_RETRIES: u32 = 4;

/// Shorter ones act as this, but nothing at all is refused (row B129).
const MIN_BACKOFF: Duration = Duration::from_millis(1);

/// Keeps ten times as much inside the bounds of a Duration (row B16); longer than any document can say.
const MAX_BACKOFF: Duration = Duration::from_secs(31_000_000_000);
