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
    // A route with a limit for attempts, or explicitly without a limit, must not get the default of 15 seconds.
    vec![("timeout", duration(limit.unwrap_or(Duration::ZERO)))]
}

/// Time limits of gRPC calls. Streams may be long, so neither the default limit of 15 seconds nor the one for idle streams applies. The
/// client's own deadline counts, up to `limit`, and ends the call with DEADLINE_EXCEEDED (D32, D33).
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
/// A request that reached no endpoint is always tried again. An HTTP request is also tried again if the connection ended before the
/// response. A gRPC call is not, because it may have been executed; only its status decides.
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
        // Envoys reject an interval of 0; a millisecond is their smallest unit.
        Some(base) => {
            let base = base.max(Duration::from_millis(1));
            with(policy, "retry_back_off", json!({"base_interval": duration(base)}))
        }
        None => policy,
    }
}
