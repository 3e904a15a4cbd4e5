//! Session persistence.
//!
//! Weights choose a cluster first, and then Envoy's filter keeps a session with an endpoint of that cluster. So with several backends, the
//! session must choose the cluster as well. A cookie session has a second cookie, `<name>-backend`. It is set where the weights choose, and
//! routes before that one match it. Routes with one backend set it too: otherwise a backend that joins would take sessions from the first
//! one, and a session that moved while its backend was not in the route would return with it. A header session cannot have a second header
//! that clients would send back. But its value is the endpoint's address, by which these routes recognise the backend. In both cases, a
//! session stays while its backend is in the route and has endpoints, whatever its weight.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

use super::parts::{HostContext, Pinned, Pins};
use super::{cluster, matcher};
use crate::emit::shared::{cookie_session_override, duration, quote, session_override, type_of, with};
use crate::model::SessionKind;
use crate::plan::{
    Action, ClusterRef, Discovery, Plan, PlannedRoute, Session, Target, UpstreamTls, Weighted,
};

/// The override of a route for the filter. If the endpoint is gone, another one takes over and the client gets a new value.
pub(super) fn per_route(session: &Session, is_tls: bool) -> Json {
    match &session.persistence.kind {
        SessionKind::Header { .. } => {
            let config = json!({
                "@type": type_of("extensions.http.stateful_session.header.v3.HeaderBasedSessionState"),
                "name": session.name,
            });
            session_override("envoy.http.stateful_session.header", config)
        }
        SessionKind::Cookie { path, .. } => {
            // The filter adds `HttpOnly` itself.
            let own = attributes(is_tls).into_iter().filter(|(name, _)| *name != "HttpOnly");
            let attributes = own.map(|(name, value)| match value {
                Some(value) => json!({"name": name, "value": value}),
                None => json!({"name": name}),
            });
            let cookie = json!({
                "name": session.name, "path": path, "attributes": attributes.collect::<Vec<_>>(),
            });
            cookie_session_override(match session.persistence.max_age() {
                Some(age) => with(cookie, "ttl", duration(age)),
                None => cookie,
            })
        }
    }
}

/// The attributes of cookies. `Secure` is only for TLS, because browsers never send a secure cookie over plaintext.
fn attributes(is_tls: bool) -> Vec<(&'static str, Option<&'static str>)> {
    let mut attributes = vec![("SameSite", Some("Strict")), ("HttpOnly", None)];
    if is_tls {
        attributes.push(("Secure", None));
    }
    attributes
}

/// Recognises the requests of sessions with one backend.
pub(super) struct Pin<'p> {
    /// The name of the backend's cluster.
    pub(super) name: String,
    /// The backend.
    pub(super) target: &'p Weighted,
    /// The matcher for their header.
    pub(super) header: Json,
}

/// The facts that the pins of these routes need: those about the backends of routes with several.
pub(super) fn pins<'p>(plan: &Plan, routes: &'p [PlannedRoute]) -> Pins<'p> {
    let mut pins = Pins::new();
    for route in routes {
        let (Some(session), Action::Forward(targets)) = (&route.effects.session, &route.action) else {
            continue;
        };
        for target in targets.iter().filter(|_| targets.len() > 1) {
            let Target::Backend(backend) = &target.target else { continue };
            let pinned = pins.entry(backend.name.as_str()).or_insert_with(|| {
                let may_have_endpoints = may_have_endpoints(plan, backend);
                Pinned { may_have_endpoints, values: None }
            });
            match &session.persistence.kind {
                SessionKind::Header { .. } => pinned.values = endpoints_regex(plan, backend),
                SessionKind::Cookie { .. } => {}
            }
        }
    }
    pins
}

/// The pins of a route, one for each backend that can have sessions. For the only target, there is one only by cookie: it tells which
/// sessions need no new cookie, whether or not the target has endpoints.
pub(super) fn pins_of<'t>(
    host: &HostContext<'_>,
    route: &PlannedRoute,
    targets: &'t [Weighted],
) -> Vec<Pin<'t>> {
    let Some(session) = &route.effects.session else { return Vec::new() };
    let is_only = targets.len() == 1;
    let mut pins = Vec::new();
    for target in targets {
        let Target::Backend(backend) = &target.target else { continue };
        let pinned = host.pins.get(backend.name.as_str());
        let name = cluster::name(backend);
        let header = match &session.persistence.kind {
            SessionKind::Cookie { .. } => (is_only || pinned.is_some_and(|pinned| pinned.may_have_endpoints))
                .then(|| {
                    let (cookie, value) = (quote(&backend_cookie(session)), quote(&name));
                    matcher::header_regex("cookie", &format!(r"(?:.*;\s*)?{cookie}={value}(?:;.*)?"))
                }),
            SessionKind::Header { .. } => pinned
                .filter(|_| !is_only)
                .and_then(|pinned| pinned.values.as_ref())
                .map(|values| matcher::header_regex(&session.name, values)),
        };
        pins.extend(header.map(|header| Pin { name, target, header }));
    }
    pins
}

/// Returns `true` if a session can continue with this backend. Without endpoints, its sessions move elsewhere.
fn may_have_endpoints(plan: &Plan, backend: &ClusterRef) -> bool {
    let Some(cluster) = plan.clusters.get(&backend.name) else { return false };
    if cluster.tls == Some(UpstreamTls::Invalid) {
        return false;
    }
    match &cluster.discovery {
        Discovery::Eds { assignment } => plan.assignments.get(assignment).is_some_and(|assignment| {
            assignment.localities.iter().any(|locality| !locality.endpoints.is_empty())
        }),
        Discovery::Dns(_) | Discovery::Static(_) | Discovery::Aggregate(_) => true,
    }
}

/// An expression that matches the session headers of a backend's endpoints. `None` if the endpoints are unknown, or too many.
fn endpoints_regex(plan: &Plan, backend: &ClusterRef) -> Option<String> {
    let Discovery::Eds { assignment } = &plan.clusters.get(&backend.name)?.discovery else { return None };
    let endpoints =
        plan.assignments.get(assignment)?.localities.iter().flat_map(|locality| &locality.endpoints);
    let values: Vec<String> = endpoints
        .map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port).to_string())
        .map(|address| quote(&BASE64_STANDARD.encode(address)))
        .collect();
    (1..=MAX_PINNED_ENDPOINTS).contains(&values.len()).then(|| values.join("|"))
}

/// The limit of endpoints in an expression. More would make routes large, and these routes change with every endpoint.
const MAX_PINNED_ENDPOINTS: usize = 256;

/// Marks new sessions, and those that moved, with their backend.
pub(super) struct Marks<'p> {
    session: &'p Session,
    path: &'p str,
    is_tls: bool,
}

impl<'p> Marks<'p> {
    /// `None` if there is no session by cookie.
    pub(super) fn new(host: &HostContext<'_>, route: &'p PlannedRoute) -> Option<Self> {
        let session = route.effects.session.as_ref()?;
        match &session.persistence.kind {
            SessionKind::Cookie { path, .. } => Some(Self { session, path, is_tls: host.frame.port.is_tls }),
            SessionKind::Header { .. } => None,
        }
    }

    /// The header that is added to responses of the cluster.
    pub(super) fn set_cookie(&self, cluster: &str) -> (String, String) {
        let mut cookie = format!("{}={cluster}; Path={}", backend_cookie(self.session), self.path);
        if let Some(age) = self.session.persistence.max_age() {
            cookie.push_str(&format!("; Max-Age={}", age.as_secs()));
        }
        for (name, value) in attributes(self.is_tls) {
            cookie.push_str("; ");
            cookie.push_str(name);
            if let Some(value) = value {
                cookie.push('=');
                cookie.push_str(value);
            }
        }
        ("set-cookie".to_owned(), cookie)
    }
}

fn backend_cookie(session: &Session) -> String {
    format!("{}-backend", session.name)
}
