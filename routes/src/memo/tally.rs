//! Sums over facts, updated along with them. A sum is a fact too: units that read it run when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fact::{Fact, Load, Sum, Value};
use super::state::{Memo, Values};
use crate::model::{DocumentKey, Kind, RouteKind, Spec};
use crate::plan::{Cost, Host, ListenerKey, Requests, rungs};
use crate::thin::Thin;

/// The changes of sums.
pub(super) type Changes = BTreeMap<Fact, Sum>;

/// Returns `true` if the changes that follow from a fact depend on other facts of its kind.
pub(super) fn looks_around(fact: &Fact) -> bool {
    matches!(fact, Fact::On(_, _, Some(_)))
}

/// The changes that follow from a fact's new value. `values` has neither the old nor the new one if the fact [looks
/// around](looks_around).
pub(super) fn changes(values: &Values, fact: &Fact, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::new();
    old.into_iter().for_each(|old| count(fact, old, -1, &mut changes));
    new.into_iter().for_each(|new| count(fact, new, 1, &mut changes));
    if let Fact::On(listener, host, Some(by)) = fact
        && old.is_some() != new.is_some()
    {
        rivals(values, listener, host, by.kind, if new.is_some() { 1 } else { -1 }, &mut changes);
    }
    changes.retain(|_, sum| *sum != Sum::default());
    changes
}

impl Memo {
    /// Adds to a sum.
    pub(super) fn add(&mut self, fact: Fact, change: Sum) {
        let sum = self.values.get(&fact).map(|value| sum(Some(value))).unwrap_or_default();
        let sum = sum.plus(change, 1);
        match sum == Sum::default() {
            true => self.values.remove(&fact),
            false => self.values.insert(self.shared(&[], fact), Value::Sum(sum.into())),
        };
    }
}

/// A sum; 0 if there is none.
pub(super) fn sum(value: Option<&Value>) -> Sum {
    let Some(Value::Sum(sum)) = value else { return Sum::default() };
    **sum
}

impl Sum {
    fn plus(self, other: Self, sign: i64) -> Self {
        let plus = |one: i64, other: i64| one.saturating_add(other.saturating_mul(sign));
        Self {
            routes: plus(self.routes, other.routes),
            hosts: plus(self.hosts, other.hosts),
            bytes: plus(self.bytes, other.bytes),
        }
    }

    /// The cost that it represents.
    pub(super) fn cost(self) -> Cost {
        let count = |count: i64| usize::try_from(count).unwrap_or_default();
        Cost { routes: count(self.routes), hosts: count(self.hosts), bytes: count(self.bytes) }
    }
}

impl From<Cost> for Sum {
    fn from(cost: Cost) -> Self {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self { routes: count(cost.routes), hosts: count(cost.hosts), bytes: count(cost.bytes) }
    }
}

fn of_count(count: usize) -> Cost {
    Cost { hosts: count, ..Cost::default() }
}

/// Adds a fact to sums, or subtracts it.
fn count(fact: &Fact, value: &Value, sign: i64, changes: &mut Changes) {
    let mut add = |fact: Fact, cost: Cost| {
        let sum = changes.entry(fact).or_default();
        *sum = sum.plus(cost.into(), sign);
    };
    if let Fact::Routes(host) = fact
        && !host.namespace.is_empty()
    {
        add(Fact::Ports(host.group().clone()), of_count(1));
    }
    if let Value::Outline(outline) = value {
        if let Spec::Route(route) = &outline.0.document.spec
            && route.kind == RouteKind::Native
            && route.parents.is_empty()
        {
            add(Fact::Unnamed, of_count(1));
        }
        if let Spec::Service(service) = &outline.0.document.spec {
            add(Fact::Load(Some(Load::Ports)), of_count(service.ports.len()));
        }
    }
    if let Value::Requests(requests) = value {
        if let Fact::Requests(_) = fact {
            load(requests, &mut add);
        }
        let listeners = requests.listeners().into_iter();
        listeners.for_each(|listener| add(Fact::Attached(Arc::clone(listener)), of_count(1)));
    }
    if let Value::Calls(calls) = value {
        add(Fact::Load(Some(Load::Group(calls.group.clone()))), calls.cost);
        add(Fact::Load(Some(Load::Consumed)), of_count(calls.n_consumed));
    }
    let mut take = |listener: &Arc<ListenerKey>| {
        let sum = changes.entry(Fact::Attached(Arc::clone(listener))).or_default();
        *sum = sum.plus(of_count(1).into(), -sign);
    };
    if let Value::Refused(refused) = value {
        refused.listeners.iter().for_each(&mut take);
    }
    if let Fact::Lost(listener, _) = fact {
        take(listener);
    }
}

/// The load of a route's requests.
fn load(requests: &Requests, add: &mut impl FnMut(Fact, Cost)) {
    add(Fact::Load(Some(Load::Asked)), of_count(requests.n_asked));
    let mut own = Cost::default();
    for attachment in requests.attachments() {
        let is_wildcard = |host: &&Host| host.is_wildcard();
        let n_wildcards = attachment.hosts.iter().filter(is_wildcard).count();
        let listener = Load::Listener(Arc::clone(&attachment.listener.key));
        add(
            Fact::Load(Some(listener)),
            Cost { hosts: attachment.hosts.len(), ..requests.cost.times(n_wildcards) },
        );
        own.add(Cost { hosts: 1, ..requests.cost }.times(attachment.hosts.len()));
    }
    add(Fact::Load(Some(Load::Group(requests.group.clone()))), own);
}

/// The changes when a route begins or stops to bring a host to a listener.
fn rivals(
    values: &Values,
    listener: &Arc<ListenerKey>,
    host: &Host,
    kind: Kind,
    sign: i64,
    changes: &mut Changes,
) {
    let Some((kind, own, other)) = kinds(kind) else { return };
    let has = |host: &Host, kind: Kind| {
        let first = DocumentKey::before(kind);
        let first = Fact::On(Arc::clone(listener), Thin::new(host.clone()), Some(first));
        let next = values.range::<_, Fact>(first..).next();
        next.is_some_and(|(fact, _)| {
            let Fact::On(of, at, Some(by)) = &**fact else { return false };
            of == listener && **at == *host && by.kind == kind
        })
    };
    if has(host, own) {
        return;
    }
    let rungs: Vec<Host> = rungs(host).iter().map(|rung| Host::of(rung)).collect();
    let above = rungs.iter().filter(|rung| has(rung, other)).count();
    let rival = if kind == RouteKind::Grpc { RouteKind::Http } else { RouteKind::Grpc };
    let below =
        sum(values.get(&Fact::Within(Arc::clone(listener), Thin::new(host.clone()), rival))).cost().hosts;
    let mut add = |fact: Fact, n: usize| {
        let sum = changes.entry(fact).or_default();
        *sum = sum.plus(of_count(n).into(), sign);
    };
    add(Fact::Rivals(Arc::clone(listener)), above + below);
    for rung in rungs.into_iter().skip(1) {
        add(Fact::Within(Arc::clone(listener), Thin::new(rung), kind), 1);
    }
}

/// The kind of a route, with the kinds of documents for it and for the routes that it excludes; `None` if it excludes none.
fn kinds(kind: Kind) -> Option<(RouteKind, Kind, Kind)> {
    let all = [
        (RouteKind::Grpc, Kind::GrpcRoute, Kind::HttpRoute),
        (RouteKind::Http, Kind::HttpRoute, Kind::GrpcRoute),
    ];
    all.into_iter().find(|(_, own, _)| *own == kind)
}
