//! TrafficSplits of SMI (§3.2, §3.3): the requests to one Service, shared between several.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::backends::{Referent, is_http2_name};
use super::lookup::{Lookup, RefProblem, of_kinds};
use super::parts::{Action, Backend, PlannedRoute, RouteId, Target, Weighted};
use super::precedence::Seniority;
use super::statuses::{Fault, code_of};
use super::{split_matches, weights};
use crate::model::{
    Document, DocumentKey, Kind, Match, PathMatch, Service, ServicePort, Spec, Spot, TrafficSplit,
};

/// What one split comes to.
pub(super) struct PlannedSplit<'d> {
    pub(super) document: &'d Document,
    /// The group that it is for.
    pub(super) group: &'d GroupName,
    /// Why it is not accepted, if it is not.
    pub(super) fault: Option<Fault>,
    /// What of it cannot be found.
    pub(super) problems: Vec<RefProblem>,
    /// The root's Service; `None` if nothing is done.
    pub(super) root: Option<&'d Document>,
    /// The routes of each port of the root.
    pub(super) ports: Vec<(u16, Vec<PlannedRoute>)>,
}

/// Plans every split.
pub(super) fn plan_splits<'d>(
    lookup: &Lookup<'d>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<PlannedSplit<'d>> {
    let roots = roots(lookup);
    let mut all = Vec::new();
    for (_, placed) in of_kinds(lookup.documents, Kind::TrafficSplit..=Kind::TrafficSplit) {
        let document = &*placed.document;
        let Spec::TrafficSplit(split) = &document.spec else { continue };
        let mut planner =
            Planner { lookup, roots: &roots, document, split, diagnostics, problems: Vec::new() };
        let (fault, root, ports) = match planner.root(&placed.group) {
            Ok((root, service)) => {
                let (fault, ports) = planner.ports(&placed.group, root, service);
                (fault, Some(root), ports)
            }
            Err(fault) => (Some(fault), None, Vec::new()),
        };
        if let Some(Fault { reason, message }) = &fault {
            planner.warn(code_of(reason), &split.service_spot, message.clone());
        }
        let problems = planner.problems;
        all.push(PlannedSplit { document, group: &placed.group, fault, problems, root, ports });
    }
    all
}

/// The split that holds for each root, by group, namespace and name: of several the oldest, whatever they match.
type Roots<'d> = BTreeMap<(&'d GroupName, &'d str, &'d str), &'d Document>;

fn roots<'d>(lookup: &Lookup<'d>) -> Roots<'d> {
    let mut roots = Roots::new();
    for (_, placed) in of_kinds(lookup.documents, Kind::TrafficSplit..=Kind::TrafficSplit) {
        let document = &*placed.document;
        let Spec::TrafficSplit(split) = &document.spec else { continue };
        let namespace = &*document.key.namespace;
        let Ok(name) = name_in(&split.service, namespace) else { continue };
        let holds = roots.entry((&placed.group, namespace, name)).or_insert(document);
        if Seniority::of(document) < Seniority::of(holds) {
            *holds = document;
        }
    }
    roots
}

/// The Services that TrafficSplits name as their roots, whether they are there or not.
#[must_use]
pub fn split_roots<'d>(documents: impl Iterator<Item = &'d Document>) -> BTreeSet<DocumentKey> {
    let root = |document: &Document| {
        let Spec::TrafficSplit(split) = &document.spec else { return None };
        let namespace = &document.key.namespace;
        let name = name_in(&split.service, namespace).ok()?;
        Some(DocumentKey { kind: Kind::Service, namespace: namespace.clone(), name: name.into() })
    };
    documents.filter_map(root).collect()
}

/// Plans one split.
struct Planner<'l, 'd> {
    lookup: &'l Lookup<'d>,
    roots: &'l Roots<'d>,
    document: &'d Document,
    split: &'d TrafficSplit,
    diagnostics: &'l mut Vec<Diagnostic>,
    problems: Vec<RefProblem>,
}

/// A backend of a split, once for each Service.
struct Candidate<'d> {
    name: &'d str,
    spot: &'d Spot,
    weight: u64,
}

impl<'d> Planner<'_, 'd> {
    /// The root. Without its Service nobody knows its ports, and nothing can be done.
    fn root(&self, group: &GroupName) -> Result<(&'d Document, &'d Service), Fault> {
        let namespace = self.namespace();
        let name =
            name_in(&self.split.service, namespace).map_err(|why| Fault::new("RefNotPermitted", why))?;
        let winner = self.roots.get(&(group, namespace, name));
        if let Some(winner) = winner.filter(|winner| winner.key != self.document.key) {
            let message = format!("{} splits the same Service and comes first", winner.key);
            return Err(Fault::new("Conflicted", message));
        }
        let missing = || Fault::new("RootServiceNotFound", format!("there is no Service {namespace}/{name}"));
        self.lookup.service(namespace, name).ok_or_else(missing)
    }

    /// The routes of every port of the root. Where no backend is left, requests go to the root itself: a split never makes a
    /// hole (§3.2).
    fn ports(
        &mut self,
        group: &GroupName,
        root: &'d Document,
        service: &'d Service,
    ) -> (Option<Fault>, Vec<(u16, Vec<PlannedRoute>)>) {
        let candidates = self.candidates(group, &root.key.name);
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
            let message = "no backend has a port of the root and a weight: requests go to the root itself";
            Fault::new("NoEligibleBackends", format!("{message}, {root}"))
        };
        ((!splits_any).then(none), ports)
    }

    /// The backends with their weights. What is doubtful about them is told.
    fn candidates(&mut self, group: &GroupName, root: &str) -> Vec<Candidate<'d>> {
        let (namespace, split) = (self.namespace(), self.split);
        let mut candidates: Vec<Candidate<'d>> = Vec::new();
        for backend in &split.backends {
            let spot = &backend.spot;
            let name = match name_in(&backend.service, namespace) {
                Ok(name) => name,
                Err(message) => {
                    self.problem("RefNotPermitted", spot, message);
                    continue;
                }
            };
            if let Some(same) = candidates.iter_mut().find(|one| one.name == name) {
                same.weight = same.weight.saturating_add(backend.weight);
                let message = format!("the backend {name} is named twice: the weights are added");
                self.warn("duplicate-backend", spot, message);
                continue;
            }
            candidates.push(Candidate { name, spot, weight: backend.weight });
            if name == root {
                let message = format!(
                    "the backend {name} is the root itself: this share goes to all of its endpoints, whatever version",
                );
                self.warn("self-referential-split", spot, message);
            } else if let Some(other) = self.roots.get(&(group, namespace, name)) {
                let message = format!(
                    "the backend {name} is split by {}, which does not count here: its own endpoints are used",
                    other.key,
                );
                self.warn("nested-split", spot, message);
            }
        }
        for candidate in candidates.iter().filter(|candidate| candidate.weight > 0) {
            if self.lookup.document(Kind::Service, namespace, candidate.name).is_none() {
                let message = format!(
                    "there is no Service {namespace}/{}: traffic will not be split for it",
                    candidate.name,
                );
                self.problem("BackendNotFound", candidate.spot, message);
            }
        }
        candidates
    }

    /// What becomes of the requests to a port that are split; `None` if no backend is left. Ports are compared by number.
    fn action(&mut self, candidates: &[Candidate<'d>], port: &ServicePort, is_grpc: bool) -> Option<Action> {
        let namespace = self.namespace();
        let mut eligible = Vec::new();
        for candidate in candidates {
            if let Some(referent) = self.lookup.port_of(namespace, candidate.name, port.port) {
                eligible.push((referent, candidate.weight));
            } else if self.lookup.document(Kind::Service, namespace, candidate.name).is_some() {
                let (name, number) = (candidate.name, port.port);
                let message = format!(
                    "the Service {name} has no port {number}: traffic to port {number} will not be split for {name}",
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

    /// The matches of all groups; `None` if everything is split. A group that is missing matches nothing, never everything.
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
                        format!("there is no HTTPRouteGroup {namespace}/{name}: it matches nothing");
                    self.problem("HTTPRouteGroupNotFound", spot, message);
                }
            }
        }
        Some(matches)
    }

    /// The routes of a port: what matches is split, everything else goes to the root.
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
        let rule_name = (rule == 1).then(|| "root".to_owned());
        let id = RouteId { document: self.document.key.clone(), rule, rule_name, match_index };
        PlannedRoute::plain(id, is_grpc, matches, action)
    }

    fn weighted(&self, referent: &Referent<'d>, is_grpc: bool, weight: u32) -> Weighted {
        let is_http2 = match referent {
            Referent::Port { port, .. } => self::is_grpc(port),
            Referent::Backend { .. } => false,
        };
        let protocol = self.lookup.protocol(referent, is_grpc || is_http2);
        Weighted::plain(Target::Backend(Backend { name: referent.cluster_name(), protocol }), weight)
    }

    fn problem(&mut self, reason: &'static str, spot: &Spot, message: String) {
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

/// Whether a port is one of gRPC, as far as its `appProtocol` or its name tells: SMI has no other word for it (§3.2).
pub(super) fn is_grpc(port: &ServicePort) -> bool {
    match &port.app_protocol {
        Some(protocol) => is_http2_name(protocol),
        None => is_http2_name(&port.name),
    }
}

/// The name of a Service of the namespace, of its short or fully qualified form; why not, if it is of another one (C116).
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
    format!("{shown} is no Service of the namespace {namespace}, and splits stay in their own")
}
