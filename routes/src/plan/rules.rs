//! The rules of a route: every match with its action.

use xds_codec::{Diagnostic, Severity};

use super::backends::Referent;
use super::lookup::{Lookup, RefProblem, RoutePlan};
use super::parts::{Action, ClusterRef, Effects, Mirror, PlannedRoute, RouteId, Session, Target, Weighted};
use super::weights;
use crate::conditions::ConditionReason;
use crate::input::Placed;
use crate::model::{
    BackendRef, Document, DocumentKey, DocumentName, Filter, FilterKind, Fraction, HeaderEdits, ObjectRef,
    PathMatch, Redirect, Route, RouteKind, Rule, SessionKind, SessionPersistence, Spec,
};
use crate::rare::{Rare, Silent as _};

impl<'d> Lookup<'d> {
    /// Plans every match of every rule of a route, in the order of the document, and reports faults of its references.
    pub(crate) fn route_plan(&self, placed: &'d Placed, route: &'d Route) -> RoutePlan {
        let key = &placed.document.key;
        let mut plan = RoutePlan::default();
        for (index, rule) in route.rules.iter().enumerate() {
            let referents: Vec<_> =
                rule.backends.iter().map(|backend| self.backend(key, &backend.object)).collect();
            let is_grpc = is_grpc(self, route.kind, rule, &referents);
            let mut planner = Planner {
                lookup: self,
                key,
                is_grpc,
                index,
                rule,
                plan: &mut plan,
                effects: Effects::SILENT.clone(),
                redirect: None,
                must_fail: false,
            };
            planner.take_filters();
            let action = planner.action(referents);
            planner.add_routes(&action);
        }
        plan
    }
}

/// Warns about rules that have neither a backend nor a filter that answers. They are allowed, but rarely intended.
pub(super) fn without_backends(document: &Document) -> impl Iterator<Item = Diagnostic> {
    let rules = if let Spec::Route(route) = &document.spec { route.rules.as_slice() } else { &[] };
    let unanswered = rules.iter().filter(|rule| rule.backends.is_empty() && rule.filters.is_empty());
    unanswered.map(|rule| {
        let message = "the rule has no backend, so all its requests fail".to_owned();
        document.diagnostic(Severity::Warning, "no-backend", &rule.spot, message)
    })
}

/// Returns `true` if the requests of a rule are gRPC: always for a GRPCRoute, never for an HTTPRoute. For a rule of the native form, if
/// it matches a gRPC method, or if all its backends use HTTP/2.
fn is_grpc(
    lookup: &Lookup<'_>,
    kind: RouteKind,
    rule: &Rule,
    referents: &[Result<Referent<'_>, RefProblem>],
) -> bool {
    let mut backends = referents.iter().flatten().peekable();
    match kind {
        RouteKind::Grpc => true,
        RouteKind::Http => false,
        RouteKind::Native => {
            rule.matches.iter().any(|one| matches!(one.path, PathMatch::Method(_)))
                || (backends.peek().is_some() && backends.all(|backend| lookup.speaks_http2(backend)))
        }
    }
}

/// Plans one rule.
struct Planner<'l, 'd> {
    lookup: &'l Lookup<'d>,
    key: &'l DocumentKey,
    is_grpc: bool,
    index: usize,
    rule: &'l Rule,
    plan: &'l mut RoutePlan,
    /// The effects of filters on every request.
    effects: Effects,
    redirect: Option<Redirect>,
    /// True if a filter is unknown, so all requests must fail.
    must_fail: bool,
}

impl Planner<'_, '_> {
    /// Adds the filters of the rule.
    fn take_filters(&mut self) {
        let rule = self.rule;
        rule.filters.iter().for_each(|filter| self.take_filter(filter));
        // The filters of the only backend apply to every request of the rule.
        if let [only] = rule.backends.as_slice() {
            let for_rule = |filter: &&Filter| match &filter.kind {
                FilterKind::Mirror { .. }
                | FilterKind::Redirect(_)
                | FilterKind::Rewrite { .. }
                | FilterKind::Cors(_) => true,
                FilterKind::RequestHeaders(_)
                | FilterKind::ResponseHeaders(_)
                | FilterKind::Extension { .. } => false,
            };
            only.filters.iter().filter(for_rule).for_each(|filter| self.take_filter(filter));
        }
        let effects = &mut self.effects;
        let rewrites = effects.host_rewrite.is_some() || effects.path_rewrite.is_some();
        if self.redirect.is_some() && rewrites {
            self.must_fail = true;
            self.drop_rule("the filters RequestRedirect and URLRewrite cannot be used together");
        }
    }

    fn take_filter(&mut self, filter: &Filter) {
        let effects = &mut self.effects;
        match &filter.kind {
            FilterKind::RequestHeaders(edits) => add_edits(&mut effects.request_edits, edits),
            FilterKind::ResponseHeaders(edits) => add_edits(&mut effects.response_edits, edits),
            FilterKind::Mirror { backend, fraction } => self.mirror(backend, *fraction),
            FilterKind::Redirect(redirect) => {
                self.redirect.get_or_insert_with(|| redirect.clone());
            }
            FilterKind::Rewrite { host, path } => {
                effects.host_rewrite = effects.host_rewrite.take().or_else(|| host.clone());
                effects.path_rewrite = effects.path_rewrite.take().or_else(|| path.clone());
            }
            FilterKind::Cors(cors) => {
                effects.cors.get_or_insert_with(|| cors.clone());
            }
            FilterKind::Extension { .. } => {
                self.must_fail = true;
                self.refuse_extension(filter);
            }
        }
    }

    /// Adds a mirror. If its backend cannot be used, requests are served without it.
    fn mirror(&mut self, to: &ObjectRef, fraction: Fraction) {
        match self.lookup.backend(self.key, to).and_then(|referent| self.spoken_to(&referent, to)) {
            Ok(_) if fraction.numerator == 0 => {}
            Ok(backend) => self.effects.mirrors.push(Mirror { backend, fraction }),
            Err(problem) => self.plan.problems.push(problem),
        }
    }

    /// The action for the requests of the rule.
    fn action(&mut self, referents: Vec<Result<Referent<'_>, RefProblem>>) -> Action {
        let mut targets: Vec<Weighted> = Vec::new();
        let mut weights: Vec<u64> = Vec::new();
        for (backend, referent) in self.rule.backends.iter().zip(referents) {
            let target = self.target(backend, referent);
            let weight = u64::from(backend.weight);
            let is_same = |other: &Weighted| other.target == target.target && target.target != Target::Broken;
            let Some(same) = targets.iter().position(is_same) else {
                targets.push(target);
                weights.push(weight);
                continue;
            };
            if let Some(sum) = weights.get_mut(same) {
                *sum += weight;
            }
            let is_edited_alike = |first: &Weighted| {
                first.request_edits == target.request_edits && first.response_edits == target.response_edits
            };
            if !targets.get(same).is_some_and(is_edited_alike) {
                let name = &backend.object.name;
                self.fall_back(&format!(
                    "the backend {name} is named twice; the filters of the first one are used"
                ));
            }
        }
        if self.must_fail {
            return Action::Fail;
        }
        if let Some(redirect) = self.redirect.take() {
            return Action::Redirect(redirect.into());
        }
        let is_broken = targets.iter().all(|one| one.target == Target::Broken);
        if is_broken || weights.iter().all(|weight| *weight == 0) {
            return Action::Fail;
        }
        let fitted = weights::fit(&weights);
        targets.iter_mut().zip(fitted).for_each(|(target, weight)| target.weight = weight);
        Action::Forward(targets)
    }

    /// A backend as a target. The caller sets the weight.
    fn target(&mut self, backend: &BackendRef, referent: Result<Referent<'_>, RefProblem>) -> Weighted {
        let mut weighted = Weighted::plain(Target::Broken, 0);
        match referent.and_then(|referent| self.spoken_to(&referent, &backend.object)) {
            Ok(backend) => weighted.target = Target::Backend(backend),
            Err(problem) => self.plan.problems.push(problem),
        }
        let is_only = self.rule.backends.len() == 1;
        let name = &backend.object.name;
        for filter in &backend.filters {
            match &filter.kind {
                FilterKind::RequestHeaders(edits) => add_edits(&mut weighted.request_edits, edits),
                FilterKind::ResponseHeaders(edits) => add_edits(&mut weighted.response_edits, edits),
                FilterKind::Extension { .. } => {
                    weighted.target = Target::Broken;
                    self.refuse_extension(filter);
                }
                FilterKind::Mirror { .. }
                | FilterKind::Cors(_)
                | FilterKind::Redirect(_)
                | FilterKind::Rewrite { .. }
                    if is_only => {}
                FilterKind::Mirror { .. } => self.fall_back(&format!(
                    "the filter RequestMirror of the backend {name} is ignored, because the backend is one of several",
                )),
                FilterKind::Cors(_) => self.fall_back(&format!(
                    "the filter CORS of the backend {name} is ignored, because the backend is one of several",
                )),
                FilterKind::Redirect(_) | FilterKind::Rewrite { .. } => {
                    weighted.target = Target::Broken;
                    self.drop_rule(&format!(
                        "the backend {name} is one of several and cannot redirect or rewrite on its own",
                    ));
                }
            }
        }
        weighted
    }

    /// The backend with the protocol of this rule.
    fn spoken_to(&self, referent: &Referent<'_>, to: &ObjectRef) -> Result<ClusterRef, RefProblem> {
        self.lookup.check_protocol(referent, self.is_grpc, to)?;
        let protocol = self.lookup.protocol(referent, self.is_grpc);
        Ok(ClusterRef { name: referent.cluster_name(), protocol })
    }

    fn refuse_extension(&mut self, filter: &Filter) {
        let FilterKind::Extension { group, kind, name } = &filter.kind else { return };
        let message = match name.is_empty() {
            true => format!("the filter {kind} is not supported, so all requests of the rule fail"),
            false => format!("the filter {group}/{kind} is unknown, so requests for {name} fail"),
        };
        let spot = filter.spot.clone();
        self.plan.problems.push(RefProblem { reason: ConditionReason::InvalidKind, message, spot });
    }

    /// Reports that the rule cannot be carried out, so its requests fail.
    fn drop_rule(&mut self, why: &str) {
        let label = self.label();
        self.plan.partly_invalid.push(format!("Dropped {label}: {why}; these requests fail"));
    }

    /// Reports that a part of the rule has no effect. Its requests are served.
    fn fall_back(&mut self, what: &str) {
        let label = self.label();
        self.plan.partly_invalid.push(format!("Fall Back in {label}: {what}"));
    }

    fn label(&self) -> String {
        match &self.rule.name {
            Some(name) => format!("Rule {} ({name})", self.index),
            None => format!("Rule {}", self.index),
        }
    }

    /// One route for each match.
    fn add_routes(self, action: &Action) {
        let Self { key, is_grpc, index, rule, plan, effects, .. } = self;
        let session = rule.session.as_ref().map(|persistence| session(key, index, rule, persistence));
        let (timeouts, retry) = (rule.timeouts, rule.retry.as_deref().cloned());
        let effects: Rare<Effects> = Effects { timeouts, retry, session, ..effects }.into();
        plan.routes.extend(rule.matches.iter().enumerate().map(|(match_index, matches)| PlannedRoute {
            id: RouteId { document: key.clone(), rule: index, rule_name: rule.name.clone(), match_index },
            is_grpc,
            matches: matches.clone(),
            action: action.clone(),
            effects: effects.clone(),
        }));
    }
}

fn add_edits(edits: &mut HeaderEdits, more: &HeaderEdits) {
    edits.set.extend(more.set.iter().cloned());
    edits.add.extend(more.add.iter().cloned());
    edits.remove.extend(more.remove.iter().cloned());
}

/// The session of a rule. A cookie without a name gets one that depends only on the rule's identity, because two rules must never share a
/// session (GEP-1619), and a session must outlive changes of the rule.
fn session(key: &DocumentKey, index: usize, rule: &Rule, persistence: &SessionPersistence) -> Session {
    let name = match &persistence.kind {
        SessionKind::Cookie { name: Some(name), .. } | SessionKind::Header { name } => name.clone(),
        SessionKind::Cookie { name: None, .. } => {
            let DocumentName { kind, namespace, name } = &**key;
            let rule = rule.name.as_ref().map_or_else(|| format!("#{index}"), |name| format!("@{name}"));
            format!("xds-session-{:016x}", fnv1a(&format!("{kind}/{namespace}/{name}/{rule}")))
        }
    };
    Session { name, persistence: persistence.clone() }
}

/// FNV-1a: unlike the standard library's hasher, the same on every machine and in every version.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
