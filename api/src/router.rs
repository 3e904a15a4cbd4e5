//! The routers: the admin port's, and the one for probes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::answer::render;
use crate::endpoints::ENDPOINTS;
use crate::fresh::fresh;
use crate::guard::guard;
use crate::measure::measure;
use crate::problem::ApiError;
use crate::state::ApiState;

/// Everything that the admin port serves.
pub fn router(state: ApiState) -> Router {
    router_with(state, Router::new())
}

/// Everything that the admin port serves, and `others` behind the same guard. They must have no path of the API and no
/// fallback.
pub fn router_with(state: ApiState, others: Router) -> Router {
    let (access, counts) = (Arc::clone(&state.access), Arc::clone(&state.counts));
    endpoints(state.clone(), |_| true)
        .layer(from_fn_with_state(state, fresh))
        .merge(others)
        .fallback(|| async { ApiError::NoPath })
        .method_not_allowed_fallback(|| async { ApiError::NoMethod })
        .layer(from_fn_with_state(access, guard))
        .layer(from_fn(render))
        .layer(from_fn_with_state(counts, measure))
}

/// Health, readiness and metrics alone, for everyone who can reach the port (`--probe-listen`).
pub fn probe_router(state: ApiState) -> Router {
    let counts = Arc::clone(&state.counts);
    endpoints(state, |path| PROBES.contains(&path))
        .fallback(|| async { ApiError::NoPath })
        .method_not_allowed_fallback(|| async { ApiError::NoMethod })
        .layer(from_fn(render))
        .layer(from_fn_with_state(counts, measure))
}

const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

fn endpoints(state: ApiState, wants: impl Fn(&str) -> bool) -> Router {
    let mut router = Router::new();
    for endpoint in ENDPOINTS.iter().filter(|endpoint| wants(endpoint.path)) {
        router = router.route(endpoint.path, endpoint.route());
    }
    router.with_state(state)
}
