//! The clusters that routes reach, with their endpoints and secrets.

use std::collections::BTreeMap;

use xds_codec::{Diagnostic, Severity};

use super::backends::Referent;
use super::endpoints;
use super::lookup::Lookup;
use super::parts::{
    Action, Assignment, BackendProtocol, Cluster, ClusterRef, PlannedRoute, Target, TlsSecret, UpstreamTls,
};
use super::tls::invalid_tls;
use crate::model::{BackendLimits, BackendSource, LbPolicy, Spot};

/// All protocols, sorted.
const PROTOCOLS: [BackendProtocol; 2] = [BackendProtocol::Http1, BackendProtocol::Http2];

/// How routes use a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// True if routes for Envoys use it over HTTP/1.1, and over HTTP/2.
    is_spoken_to: [bool; 2],
    has_sessions: bool,
    is_fallback_member: bool,
    /// True if a route of a document uses it. False if only the implicit route of a Service to itself does.
    pub(crate) is_asked_for: bool,
}

impl Usage {
    /// Adds the uses of another route.
    pub(crate) fn join(&mut self, other: &Self) {
        let both = self.is_spoken_to.iter_mut().zip(other.is_spoken_to);
        both.for_each(|(own, other)| *own |= other);
        self.has_sessions |= other.has_sessions;
        self.is_fallback_member |= other.is_fallback_member;
        self.is_asked_for |= other.is_asked_for;
    }

    /// The protocols that routes for Envoys use, sorted.
    fn protocols(&self) -> Vec<BackendProtocol> {
        let all = PROTOCOLS.into_iter().zip(self.is_spoken_to);
        all.filter_map(|(protocol, is_spoken)| is_spoken.then_some(protocol)).collect()
    }
}

/// The clients that get a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Served {
    /// True if Envoys get it.
    pub(crate) is_for_envoys: bool,
    /// True if a document asks for it.
    pub(crate) is_asked_for: bool,
}

/// A cluster with its endpoints and its secret.
pub(crate) struct Reached {
    pub(crate) cluster: Cluster,
    /// Its endpoints, if they come by EDS.
    pub(crate) assignment: Option<Assignment>,
    /// The secret that it names.
    pub(crate) secret: Option<(String, TlsSecret)>,
    /// Warnings about it.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Lookup<'_> {
    /// The cluster with this name and usage; `None` if nothing has this name.
    pub(crate) fn reached(&self, name: &str, usage: &Usage) -> Option<Reached> {
        let referent = self.of_cluster_name(name)?;
        let mut diagnostics = Vec::new();
        let found = endpoints::find(self, &referent, name);
        // Reported only for clusters of Envoys, because gRPC clients could dial every Service.
        if let Some(message) = found.warning.filter(|_| usage.is_spoken_to.contains(&true)) {
            warn("no-endpoints", &referent, message, &mut diagnostics);
        }
        let (tls, secret) = self.upstream_tls(&referent).unzip();
        if tls == Some(UpstreamTls::Invalid) {
            warn("invalid-tls", &referent, invalid_tls(&referent).to_owned(), &mut diagnostics);
        }
        let (lb_policy, limits) = match &referent {
            Referent::Port { .. } => (LbPolicy::default(), BackendLimits::default()),
            Referent::Backend { backend, .. } => (backend.lb_policy, backend.limits),
        };
        let cluster = Cluster {
            protocols: usage.protocols(),
            discovery: found.discovery,
            tls,
            lb_policy,
            limits,
            has_sessions: usage.has_sessions,
            is_fallback_member: usage.is_fallback_member,
            drain: referent.drain(),
            origin: referent.document().origin(),
        };
        warn_of_idle_tls(&referent, &mut diagnostics);
        Some(Reached { cluster, assignment: found.assignment, secret: secret.flatten(), diagnostics })
    }
}

/// Every cluster that routes reach, directly or as a member of a fallback. Routes that Envoys do not get add no protocol.
pub(crate) fn usages(
    routes: &[PlannedRoute],
    served: Served,
    members: impl Fn(&str) -> Vec<String>,
) -> BTreeMap<String, Usage> {
    let mut usages: BTreeMap<String, Usage> = BTreeMap::new();
    let mut rest: Vec<(String, Usage)> = routes.iter().flat_map(uses).collect();
    for (_, usage) in &mut rest {
        usage.is_asked_for = served.is_asked_for;
        if !served.is_for_envoys {
            usage.is_spoken_to = [false; 2];
        }
    }
    while let Some((name, usage)) = rest.pop() {
        let is_new = !usages.contains_key(&name);
        let known = usages.entry(name.clone()).or_default();
        let before = known.clone();
        known.join(&usage);
        if *known == before && !is_new {
            continue;
        }
        let below = Usage { is_fallback_member: true, ..known.clone() };
        rest.extend(members(&name).into_iter().map(|member| (member, below.clone())));
    }
    usages
}

/// The clusters that a route names.
fn uses(route: &PlannedRoute) -> Vec<(String, Usage)> {
    let usage = |backend: &ClusterRef, has_sessions| {
        let is_spoken_to = PROTOCOLS.map(|protocol| protocol == backend.protocol);
        (backend.name.clone(), Usage { is_spoken_to, has_sessions, ..Usage::default() })
    };
    let mut uses: Vec<_> = route.effects.mirrors.iter().map(|mirror| usage(&mirror.backend, false)).collect();
    if let Action::Forward(targets) = &route.action {
        uses.extend(targets.iter().filter_map(|weighted| match &weighted.target {
            Target::Backend(backend) => Some(usage(backend, route.effects.session.is_some())),
            Target::Broken => None,
        }));
    }
    uses
}

/// Warns about TLS settings of a fallback, which makes no connections itself.
fn warn_of_idle_tls(referent: &Referent<'_>, diagnostics: &mut Vec<Diagnostic>) {
    let Referent::Backend { backend, .. } = referent else { return };
    match &backend.source {
        BackendSource::Fallback(_) if backend.tls.is_some() => {
            let message = "a fallback makes no connections itself; set TLS on its members";
            warn("unused-tls", referent, message.to_owned(), diagnostics);
        }
        BackendSource::Fallback(_) | BackendSource::Endpoints(_) => {}
    }
}

fn warn(code: &'static str, referent: &Referent<'_>, message: String, diagnostics: &mut Vec<Diagnostic>) {
    let spot = match referent {
        Referent::Port { port, .. } => port.spot.clone(),
        Referent::Backend { backend, .. } => {
            backend.tls.as_ref().map_or_else(Spot::default, |tls| tls.spot.clone())
        }
    };
    diagnostics.push(referent.document().diagnostic(Severity::Warning, code, &spot, message));
}
