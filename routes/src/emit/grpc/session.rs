//! Session persistence by gRFCs A55 and A60.
//!
//! Only C-core supports it. Others accept the filter and its overrides, because both are optional, and ignore them.

use serde_json::{Value as Json, json};

use crate::emit::shared::{
    STATEFUL_SESSION, UNAVAILABLE, cookie_session_override, duration, http_filter, type_of, with,
};
use crate::model::SessionKind;
use crate::plan::Session;

/// The filter. It has no session state itself, so only routes that override it keep sessions.
pub(super) fn filter() -> Json {
    let filter = http_filter(STATEFUL_SESSION, "extensions.filters.http.stateful_session.v3.StatefulSession");
    with(filter, "is_optional", true)
}

/// Says why gRPC clients cannot keep a session; `None` if they can.
pub(super) fn loss(session: &Session) -> Option<&'static str> {
    match &session.persistence.kind {
        // C-core rejects every session state but cookies (row B155).
        SessionKind::Header { .. } => Some("gRPC clients keep sessions only by cookie, not by header"),
        SessionKind::Cookie { .. } if session.name.is_empty() => {
            Some("gRPC clients keep sessions only by a cookie with a name")
        }
        SessionKind::Cookie { .. } => None,
    }
}

/// The override of a route for the filter; `None` if gRPC clients do not support it.
pub(super) fn per_route(session: &Session) -> Option<Json> {
    let path = match &session.persistence.kind {
        SessionKind::Cookie { path, .. } if loss(session).is_none() => path,
        SessionKind::Cookie { .. } | SessionKind::Header { .. } => return None,
    };
    let cookie = json!({"name": session.name, "path": path});
    let cookie = match session.persistence.max_age() {
        Some(age) => with(cookie, "ttl", duration(age)),
        None => cookie,
    };
    Some(json!({
        "@type": type_of("config.route.v3.FilterConfig"),
        "is_optional": true,
        "config": cookie_session_override(cookie),
    }))
}

/// Gives every backend with weight 0 a weight so small that hardly any new call goes there. Returns `true` if there was one.
///
/// C-core removes an entry with weight 0, and then loses its sessions, which must continue (GEP-1619). The other weights are multiplied
/// to keep their ratio.
pub(super) fn keep_drained(targets: &mut [(&str, u64)]) -> bool {
    let is_drained = |(name, weight): &&(&str, u64)| *weight == 0 && *name != UNAVAILABLE;
    let n_drained = targets.iter().filter(is_drained).fold(0, |n, _| n + 1);
    let sum: u64 = targets.iter().map(|(_, weight)| weight).sum();
    if n_drained == 0 || sum == 0 {
        return false;
    }
    let room = u64::from(u32::MAX).saturating_sub(n_drained);
    let scale = (room / sum).clamp(1, MAX_SCALE);
    // Above 0 only if there was no room for the sum before.
    let mut excess = (sum * scale).saturating_sub(room);
    for (name, weight) in targets.iter_mut() {
        *weight *= scale;
        if *weight == 0 && *name != UNAVAILABLE {
            *weight = 1;
        } else if *weight > excess {
            *weight -= excess;
            excess = 0;
        }
    }
    true
}

/// A target with weight 0 next to one with weight 100 gets one call in a million.
const MAX_SCALE: u64 = 10_000;
