//! Time limits and retries.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::emit::shared::{duration, time_limit, with};
use crate::model::{Retry, Timeouts};
use crate::plan::PlannedRoute;

/// The fields of a `RouteAction` that limit time.
pub(super) fn timeouts(route: &PlannedRoute) -> Vec<(&'static str, Json)> {
    let limit = time_limit(&route.effects.timeouts, route.effects.retry.is_some());
    if route.is_grpc {
        return grpc_timeouts(limit);
    }
    if route.effects.timeouts == Timeouts::default() {
        return Vec::new();
    }
    // A route that limits an attempt, or says that there is no limit, does not want the default of 15 seconds.
    vec![("timeout", duration(limit.unwrap_or(Duration::ZERO)))]
}

/// gRPC streams may last: neither the default limit of 15 seconds nor that of idle streams holds for them. The client's own
/// deadline counts, up to the limit, and ends the call with DEADLINE_EXCEEDED as the client would (D32, D33).
fn grpc_timeouts(limit: Option<Duration>) -> Vec<(&'static str, Json)> {
    let max = json!({"grpc_timeout_header_max": duration(limit.unwrap_or(Duration::ZERO))});
    let max = match limit {
        Some(limit) => with(max, "max_stream_duration", duration(limit)),
        None => max,
    };
    let zero = || duration(Duration::ZERO);
    vec![("timeout", zero()), ("idle_timeout", zero()), ("max_stream_duration", max)]
}

/// A `RetryPolicy`.
///
/// A request that never reached an endpoint is always tried again, one of HTTP also if the connection ended before there was
/// an answer: a gRPC call may have been executed by then, and its status decides.
pub(super) fn retry_policy(route: &PlannedRoute, retry: &Retry) -> Json {
    let mut conditions = vec!["connect-failure", "refused-stream"];
    if !route.is_grpc {
        conditions.push("reset");
    }
    if !retry.codes.is_empty() {
        conditions.push("retriable-status-codes");
    }
    conditions.extend(retry.grpc_on.iter().map(String::as_str));
    let mut policy = json!({"retry_on": conditions.join(","), "num_retries": retry.attempts});
    if !retry.codes.is_empty() {
        policy = with(policy, "retriable_status_codes", retry.codes.clone());
    }
    if let Some(limit) = route.effects.timeouts.backend_request.filter(|limit| !limit.is_zero()) {
        policy = with(policy, "per_try_timeout", duration(limit));
    }
    match retry.backoff {
        // Envoys refuse an interval of nothing; this is the shortest that they count in.
        Some(base) => {
            let base = base.max(Duration::from_millis(1));
            with(policy, "retry_back_off", json!({"base_interval": duration(base)}))
        }
        None => policy,
    }
}
