//! TrafficSplits of SMI: they divide the requests to one Service between several.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::backends::{Referent, is_http2_name};
use super::lookup::{Lookup, RefProblem};
use super::parts::{Action, ClusterRef, PlannedRoute, RouteId, Target, Weighted};
use super::statuses::Fault;
use super::{split_matches, weights};
use crate::conditions::ConditionReason;
use crate::input::Placed;
use crate::model::{
    Document, DocumentKey, Kind, Match, PathMatch, Service, ServicePort, Spec, Spot, TrafficSplit,
};

/// Ports of a Service, for the clients of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// The group.
    pub(crate) group: GroupName,
    /// The Service.
    pub(crate) service: DocumentKey,
    /// Its ports, without duplicates.
    pub(crate) ports: Vec<u16>,
}

/// The plan of one split.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedSplit {
    /// The reason why it is not accepted, if so.
    pub(crate) fault: Option<Fault>,
    /// The references that cannot be followed.
    pub(crate) problems: Vec<RefProblem>,
    /// The ports of the root, for the clients of the split's group; `None` if the split has no effect.
    pub(crate) wanted: Option<Wanted>,
    /// The routes of each of these ports.
    pub(crate) ports: Vec<(u16, Vec<PlannedRoute>)>,
}

/// The root of a split, a Service of its own namespace; `None` if it names one of another namespace.
pub(crate) fn root_of(document: &Document) -> Option<DocumentKey> {
    let Spec::TrafficSplit(split) = &document.spec else { return None };
    let namespace = &document.key.namespace;
    let name = name_in(&split.service, namespace).ok()?;
    Some(DocumentKey::of(Kind::Service, namespace.clone(), name.into()))
}

/// The Services that a split names as backends.
pub(crate) fn backends_of(document: &Document) -> Vec<DocumentKey> {
    let Spec::TrafficSplit(split) = &document.spec else { return Vec::new() };
    let namespace = &document.key.namespace;
    let names = split.backends.iter().filter_map(|backend| name_in(&backend.service, namespace).ok());
    names.map(|name| DocumentKey::new(Kind::Service, namespace, name)).collect()
}

/// Plans a split. `holding` has the split that applies to each root in the split's group. Warnings go to `diagnostics`.
pub(crate) fn plan_split(
    lookup: &Lookup<'_>,
    placed: &Placed,
    split: &TrafficSplit,
    holding: &BTreeMap<DocumentKey, DocumentKey>,
    diagnostics: &mut Vec<Diagnostic>,
) -> PlannedSplit {
    let document = &*placed.document;
    let mut planner = Planner { lookup, holding, document, split, diagnostics, problems: Vec::new() };
    let (fault, wanted, ports) = match planner.root() {
        Ok((root, service)) => {
            let (fault, ports) = planner.ports(root, service);
            let numbers = ports.iter().map(|(port, _)| *port).collect();
            let wanted = Wanted { group: placed.group.clone(), service: root.key.clone(), ports: numbers };
            (fault, Some(wanted), ports)
        }
        Err(fault) => (Some(fault), None, Vec::new()),
    };
    if let Some(Fault { reason, message }) = &fault {
        planner.warn(reason.diagnostic_code(), &split.service_spot, message.clone());
    }
    let problems = planner.problems;
    PlannedSplit { fault, problems, wanted, ports }
}

/// The Services that TrafficSplits name as their roots. They may be missing.
#[must_use]
pub fn split_roots<'d>(documents: impl Iterator<Item = &'d Document>) -> BTreeSet<DocumentKey> {
    documents.filter_map(root_of).collect()
}

/// Plans one split.
struct Planner<'l, 'd> {
    lookup: &'l Lookup<'d>,
    holding: &'l BTreeMap<DocumentKey, DocumentKey>,
    document: &'d Document,
    split: &'d TrafficSplit,
    diagnostics: &'l mut Vec<Diagnostic>,
    problems: Vec<RefProblem>,
}

/// A backend of a split. There is one for each Service.
struct Candidate<'d> {
    name: &'d str,
    spot: &'d Spot,
    weight: u64,
}

impl<'l, 'd> Planner<'l, 'd> {
    /// The root. If its Service is missing, its ports are unknown and the split has no effect.
    fn root(&self) -> Result<(&'d Document, &'d Service), Fault> {
        let namespace = self.namespace();
        let name = name_in(&self.split.service, namespace)
            .map_err(|why| Fault::new(ConditionReason::RefNotPermitted, why))?;
        let winner = self.holding(name);
        if let Some(winner) = winner.filter(|winner| **winner != self.document.key) {
            let message = format!("{winner} splits the same Service and takes precedence");
            return Err(Fault::new(ConditionReason::Conflicted, message));
        }
        let missing = || {
            Fault::new(
                ConditionReason::RootServiceNotFound,
                format!("there is no Service {namespace}/{name}"),
            )
        };
        self.lookup.service(namespace, name).ok_or_else(missing)
    }

    /// The routes of every port of the root. If no backend is left for a port, its requests go to the root itself.
    fn ports(
        &mut self,
        root: &'d Document,
        service: &'d Service,
    ) -> (Option<Fault>, Vec<(u16, Vec<PlannedRoute>)>) {
        let candidates = self.candidates(&root.key.name);
        let matches = self.matches();
        let mut ports: Vec<(u16, Vec<PlannedRoute>)> = Vec::new();
        let mut splits_any = false;
        for port in &service.ports {
            if ports.iter().any(|(number, _)| *number == port.port) {
                continue;
            }
            let is_grpc = is_grpc(port);
            let own = Referent::Port { document: root, service, port };
            let to_root = Action::Forward(vec![self.weighted(&own, is_grpc, 1)]);
            let routes = match self.action(&candidates, port, is_grpc) {
                None => {
                    let everything = Match::of_path(&self.split.service_spot, PathMatch::Any);
                    vec![self.route(1, 0, is_grpc, to_root, everything)]
                }
                Some(action) => {
                    splits_any = true;
                    self.routes(matches.as_deref(), is_grpc, &action, to_root)
                }
            };
            ports.push((port.port, routes));
        }
        let root = &root.key;
        let none = || {
            let message =
                "no backend with a weight has a port of the root, so requests go to the root itself";
            Fault::new(ConditionReason::NoEligibleBackends, format!("{message}, {root}"))
        };
        ((!splits_any).then(none), ports)
    }

    /// The backends with their weights. Reports doubtful ones.
    fn candidates(&mut self, root: &str) -> Vec<Candidate<'d>> {
        let (namespace, split) = (self.namespace(), self.split);
        let mut candidates: Vec<Candidate<'d>> = Vec::new();
        for backend in &split.backends {
            let spot = &backend.spot;
            let name = match name_in(&backend.service, namespace) {
                Ok(name) => name,
                Err(message) => {
                    self.problem(ConditionReason::RefNotPermitted, spot, message);
                    continue;
                }
            };
            if let Some(same) = candidates.iter_mut().find(|one| one.name == name) {
                same.weight = same.weight.saturating_add(backend.weight);
                let message = format!("the backend {name} is named twice, so its weights are added");
                self.warn("duplicate-backend", spot, message);
                continue;
            }
            candidates.push(Candidate { name, spot, weight: backend.weight });
            if name == root {
                let message = format!(
                    "the backend {name} is the root itself, so this share goes to all of its endpoints, of any version",
                );
                self.warn("self-referential-split", spot, message);
            } else if let Some(other) = self.holding(name) {
                let message = format!(
                    "the backend {name} is split by {other}, which has no effect here; requests go to its own endpoints",
                );
                self.warn("nested-split", spot, message);
            }
        }
        for candidate in candidates.iter().filter(|candidate| candidate.weight > 0) {
            if self.lookup.document(Kind::Service, namespace, candidate.name).is_none() {
                let message = format!(
                    "there is no Service {namespace}/{}, so it gets no share of the traffic",
                    candidate.name,
                );
                self.problem(ConditionReason::BackendNotFound, candidate.spot, message);
            }
        }
        candidates
    }

    /// The action for split requests to a port; `None` if no backend is left. Ports are compared by number.
    fn action(&mut self, candidates: &[Candidate<'d>], port: &ServicePort, is_grpc: bool) -> Option<Action> {
        let namespace = self.namespace();
        let mut eligible = Vec::new();
        for candidate in candidates {
            if let Some(referent) = self.lookup.port_of(namespace, candidate.name, port.port) {
                eligible.push((referent, candidate.weight));
            } else if self.lookup.document(Kind::Service, namespace, candidate.name).is_some() {
                let (name, number) = (candidate.name, port.port);
                let message = format!(
                    "the Service {name} has no port {number}, so it gets no share of the traffic to this port",
                );
                self.warn("split-port-mismatch", candidate.spot, message);
            }
        }
        let weights: Vec<u64> = eligible.iter().map(|(_, weight)| *weight).collect();
        if weights.iter().all(|weight| *weight == 0) {
            return None;
        }
        let weights = weights::fit(&weights);
        let targets = eligible.iter().zip(weights);
        Some(Action::Forward(
            targets.map(|((referent, _), weight)| self.weighted(referent, is_grpc, weight)).collect(),
        ))
    }

    /// The matches of all groups; `None` if all requests are split. A missing group matches nothing.
    fn matches(&mut self) -> Option<Vec<Match>> {
        let (namespace, split) = (self.namespace(), self.split);
        if split.matches.is_empty() {
            return None;
        }
        let mut matches = Vec::new();
        for (spot, name) in &split.matches {
            let document = self.lookup.document(Kind::HttpRouteGroup, namespace, name);
            match document.map(|document| &document.spec) {
                Some(Spec::HttpRouteGroup(group)) => {
                    matches.extend(split_matches::of_group(group, self.lookup.matches_whole_paths));
                }
                Some(_) | None => {
                    let message =
                        format!("there is no HTTPRouteGroup {namespace}/{name}, so it matches nothing");
                    self.problem(ConditionReason::HttpRouteGroupNotFound, spot, message);
                }
            }
        }
        Some(matches)
    }

    /// The routes of a port: requests that match are split, all others go to the root.
    fn routes(
        &self,
        matches: Option<&[Match]>,
        is_grpc: bool,
        action: &Action,
        to_root: Action,
    ) -> Vec<PlannedRoute> {
        let everything = Match::of_path(&self.split.service_spot, PathMatch::Any);
        let Some(matches) = matches else {
            return vec![self.route(0, 0, is_grpc, action.clone(), everything)];
        };
        let split = matches
            .iter()
            .enumerate()
            .map(|(index, one)| self.route(0, index, is_grpc, action.clone(), one.clone()));
        let mut routes: Vec<PlannedRoute> = split.collect();
        routes.push(self.route(1, 0, is_grpc, to_root, everything));
        routes
    }

    /// A route of the split (rule 0), or the one to the root (rule 1).
    fn route(
        &self,
        rule: usize,
        match_index: usize,
        is_grpc: bool,
        action: Action,
        matches: Match,
    ) -> PlannedRoute {
        let rule_name = (rule == 1).then(|| "root".into());
        let id = RouteId { document: self.document.key.clone(), rule, rule_name, match_index };
        PlannedRoute::plain(id, is_grpc, matches, action)
    }

    fn weighted(&self, referent: &Referent<'d>, is_grpc: bool, weight: u32) -> Weighted {
        let is_http2 = match referent {
            Referent::Port { port, .. } => self::is_grpc(port),
            Referent::Backend { .. } => false,
        };
        let protocol = self.lookup.protocol(referent, is_grpc || is_http2);
        Weighted::plain(Target::Backend(ClusterRef { name: referent.cluster_name(), protocol }), weight)
    }

    /// The split that applies to a Service of the namespace, if any.
    fn holding(&self, name: &str) -> Option<&'l DocumentKey> {
        self.holding.get(&DocumentKey::new(Kind::Service, self.namespace(), name))
    }

    fn problem(&mut self, reason: ConditionReason, spot: &Spot, message: String) {
        let problem = RefProblem { reason, message, spot: spot.clone() };
        self.diagnostics.push(problem.diagnostic(self.document));
        self.problems.push(problem);
    }

    fn warn(&mut self, code: &'static str, spot: &Spot, message: String) {
        self.diagnostics.push(self.document.diagnostic(Severity::Warning, code, spot, message));
    }

    fn namespace(&self) -> &'d str {
        &self.document.key.namespace
    }
}

/// Returns `true` if a port is for gRPC by its `appProtocol` or its name. SMI has no field for it.
pub(super) fn is_grpc(port: &ServicePort) -> bool {
    match &port.app_protocol {
        Some(protocol) => is_http2_name(protocol),
        None => is_http2_name(&port.name),
    }
}

/// The name of a Service of the namespace, from its short or fully qualified form. The error says that it is in another one.
fn name_in<'a>(service: &'a str, namespace: &str) -> Result<&'a str, String> {
    let text = service.strip_suffix('.').unwrap_or(service);
    let Some((name, rest)) = text.split_once('.') else {
        let is_plain = !text.is_empty() && !text.contains('/');
        return if is_plain { Ok(text) } else { Err(foreign(service, namespace)) };
    };
    let (owner, domain) = rest.split_once('.').unwrap_or((rest, "svc"));
    let is_service = domain == "svc" || domain.starts_with("svc.");
    let is_ours = owner == namespace && is_service && !name.is_empty();
    if is_ours { Ok(name) } else { Err(foreign(service, namespace)) }
}

fn foreign(service: &str, namespace: &str) -> String {
    let shown = xds_codec::echo_name(service);
    format!("{shown} is not a Service of the namespace {namespace}, and a split cannot leave its own")
}
