//! What goes next: which changes a client is not sent yet, so that it never uses what it does not have (R12, A.8).
//!
//! There are no phases. Whenever something happens, the tables that a client is to be led to are computed anew, from what the view
//! has and from what the client may be using: the final tables, but with what has to wait as the client has it. A change waits in
//! two cases. What newly refers to a cluster waits until the client has the cluster ready (*held*); what is gone stays as long as
//! something refers to it that the client may be using (*retained*). Everything else about sending knows only tables.

mod known;
mod ready;
mod replace;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::{EventKind, StreamId};
use xds_cache::{
    Deviation, Deviations, HeldBack, Name, References, Resource, ResourceKey, ResourceType, TypeTable, View,
    WaitsFor,
};

use crate::limits::Limits;
use crate::stream::Stream;
use crate::type_state::TypeState;
use known::{Known, known};
use ready::Readiness;
use replace::{forgotten, release_all, released, renew_rejected, renew_returned, settling};

pub(crate) use table::{is_referred_to, refers};

/// What one client is led over, and what it waits for. A client that has everything costs nothing here.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Whether something happened that may make a difference.
    pub(crate) is_due: bool,
    /// What is remembered while something waits.
    waiting: Option<Box<Waiting>>,
    /// Types of which the client accepted something on streams that it has closed.
    accepted: BTreeSet<ResourceType>,
    /// What the client may have learned of, and asks for only when it uses it. Few clients have any.
    known: Option<Box<Known>>,
}

/// What is remembered while something waits.
#[derive(Debug, Default)]
struct Waiting {
    /// What stands in for the view's tables.
    transitional: BTreeMap<ResourceType, Transitional>,
    /// What is not sent yet.
    held_back: Vec<HeldBack>,
    /// Since when; by resource, and whether it is a removal.
    since: BTreeMap<(ResourceKey, bool), Instant>,
    /// Since when each resource is waited for that something held refers to; those that take too long stay here, so that nothing
    /// waits for them again.
    awaited: BTreeMap<ResourceKey, Instant>,
    /// Since when each resource is retained while nobody but the client keeps it.
    retained: BTreeMap<ResourceKey, Instant>,
    /// What is retained only because nobody tells the client that it is gone.
    silent: BTreeSet<ResourceKey>,
    /// Until when clusters settle that the client accepted.
    settling: BTreeMap<Name, Instant>,
    /// When it has to be looked at again though nothing happens.
    timeout: Option<Instant>,
}

/// What a client is served instead of the view's table of a type.
#[derive(Debug)]
pub(crate) struct Transitional {
    table: Arc<TypeTable>,
    version_info: Arc<str>,
    /// Whether the client is sent everything nevertheless, because nobody tells it that something is gone.
    is_final: bool,
}

/// What a client is to be brought up to now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) view: &'a View,
    order: &'a Order,
}

impl<'a> Target<'a> {
    /// The table of a type.
    pub(crate) fn table(&self, resource_type: &ResourceType) -> &'a Arc<TypeTable> {
        let transitional = self.order.transitional(resource_type);
        transitional.map_or_else(|| self.view.table(resource_type), |transitional| &transitional.table)
    }

    /// What responses of the type carry as version: a transitional table has one of its own (D8).
    pub(crate) fn version_info(&self, resource_type: &ResourceType) -> &'a Arc<str> {
        let transitional = self.order.transitional(resource_type);
        transitional
            .map_or_else(|| self.view.version_info(resource_type), |transitional| &transitional.version_info)
    }

    /// Whether the client has everything that the view owes it of the type, once it has this.
    pub(crate) fn is_final(&self, resource_type: &ResourceType) -> bool {
        self.order.transitional(resource_type).is_none_or(|transitional| transitional.is_final)
    }
}

/// What came of a plan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Types of which the client is to be brought to another table than before.
    pub(crate) changed: BTreeSet<ResourceType>,
    /// What happened, by type.
    pub(crate) events: Vec<(ResourceType, EventKind)>,
}

impl Order {
    /// What the client is to be brought up to.
    pub(crate) fn target<'a>(&'a self, view: &'a View) -> Target<'a> {
        Target { view, order: self }
    }

    /// Whether something waits.
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.is_some()
    }

    /// What the client accepted on a stream it has not accepted for the first time on the next one.
    pub(crate) fn handle_close(&mut self, stream: &Stream) {
        // Of others it does not matter, and there may be any number of them.
        let accepted = stream
            .types()
            .iter()
            .filter(|state| refers(&state.resource_type) && state.applied.has_accepted());
        self.accepted.extend(accepted.map(|state| state.resource_type.clone()));
    }

    /// When to plan again though nothing happens.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.waiting.as_ref()?.timeout
    }

    /// What is held back, and why.
    pub(crate) fn held_back(&self) -> &[HeldBack] {
        self.waiting.as_ref().map(|waiting| &waiting.held_back[..]).unwrap_or_default()
    }

    fn transitional(&self, resource_type: &ResourceType) -> Option<&Transitional> {
        self.waiting.as_ref()?.transitional.get(resource_type)
    }

    /// Computes anew what the client is to be brought up to.
    pub(crate) fn plan(
        &mut self,
        view: &View,
        streams: &mut BTreeMap<StreamId, Stream>,
        limits: &Limits,
        now: Instant,
    ) -> Outcome {
        self.is_due = false;
        let before = self.waiting.take().map(|waiting| *waiting).unwrap_or_default();
        let settling = settling(&before.settling, streams, limits, now);
        if !limits.is_phased {
            release_all(streams);
            return Outcome { changed: before.transitional.into_keys().collect(), events: vec![] };
        }
        let blocked_until = loop {
            let readiness = Readiness::new(view, streams, &settling, self.known.as_deref()).strict();
            let (released, blocked_until) = released(&readiness, limits, now);
            if released.is_empty() {
                break blocked_until;
            }
            // What goes out of use frees what it refers to.
            for (stream, resource_type, positions) in released {
                let state = streams.get_mut(&stream).and_then(|stream| stream.find_mut(&resource_type));
                state.into_iter().for_each(|state| state.applied.release(&positions));
            }
        };
        let mut plan = Plan {
            readiness: Readiness::new(view, streams, &settling, self.known.as_deref()),
            accepted: &self.accepted,
            limits,
            now,
            before: &before,
            deviations: BTreeMap::new(),
            transient: BTreeSet::new(),
            rejected: BTreeSet::new(),
            events: vec![],
            after: Waiting { timeout: blocked_until, ..Waiting::default() },
        };
        plan.hold();
        plan.retain_known();
        plan.retain();
        plan.leave_unanswered();
        plan.keep_unasked();
        plan.keep_known();
        let forgotten = forgotten(&plan.readiness);
        let Plan { deviations, transient, rejected, events, mut after, .. } = plan;
        for (stream, resource_type, names) in forgotten {
            let state = streams.get_mut(&stream).and_then(|stream| stream.find_mut(&resource_type));
            state.into_iter().for_each(|state| state.subscription.forget(&names));
        }
        renew_rejected(&rejected, view, streams);
        renew_returned(before.silent.difference(&after.silent), view, streams);
        for (resource_type, deviations) in deviations {
            let table = view.table(&resource_type).deviating(&deviations);
            let version_info = table.version().to_string().into();
            let is_final = !transient.contains(&resource_type);
            after.transitional.insert(resource_type, Transitional { table, version_info, is_final });
        }
        // That the same table has become final is news too: maybe nothing more has to be sent.
        let table = |waiting: &Waiting, resource_type: &ResourceType| {
            let transitional = waiting.transitional.get(resource_type)?;
            Some((Arc::as_ptr(&transitional.table), transitional.is_final))
        };
        let types = before.transitional.keys().chain(after.transitional.keys());
        let changed = types.filter(|of| table(&before, of) != table(&after, of)).cloned().collect();
        after.settling = settling;
        let is_idle = after.transitional.is_empty() && after.timeout.is_none() && after.settling.is_empty();
        self.waiting = (!is_idle).then(|| Box::new(after));
        self.known = known(self.target(view), streams);
        Outcome { changed, events }
    }
}

/// A plan in the making.
struct Plan<'a> {
    readiness: Readiness<'a>,
    /// Types of which the client accepted something on streams that it has closed.
    accepted: &'a BTreeSet<ResourceType>,
    limits: &'a Limits,
    now: Instant,
    before: &'a Waiting,
    deviations: BTreeMap<ResourceType, Deviations>,
    /// Types of which the client has not everything.
    transient: BTreeSet<ResourceType>,
    /// What the client rejected, and something held refers to.
    rejected: BTreeSet<ResourceKey>,
    events: Vec<(ResourceType, EventKind)>,
    after: Waiting,
}

impl Plan<'_> {
    /// Finds the changes that newly refer to something which the client has not ready. Only what replaces a response that the
    /// client has accepted waits, and only for what it takes without asking (a client that asks for clusters by name learns the
    /// names from what refers to them).
    fn hold(&mut self) {
        for stream in self.readiness.streams.values() {
            for state in stream.types() {
                let of = &state.resource_type;
                let has_accepted = || {
                    self.accepted.contains(of)
                        || self.readiness.states(of).any(|state| state.applied.has_accepted())
                };
                let is_update = refers(of) && has_accepted();
                let table = self.readiness.view.table(&state.resource_type);
                if !is_update || state.subscription.is_at(table) {
                    continue;
                }
                for resource in state.subscription.owed(table).changed {
                    // What is made of a pattern has no name of its own.
                    let is_own = table.find(resource.name()).is_some_and(|own| Arc::ptr_eq(own, &resource));
                    if is_own {
                        self.hold_if_unready(stream, state, &resource);
                    }
                }
                if *of == ResourceType::ScopedRouteConfiguration {
                    self.hold_together(stream, state);
                }
            }
        }
    }

    fn hold_if_unready(&mut self, stream: &Stream, state: &TypeState, resource: &Arc<Resource>) {
        let subscription = &state.subscription;
        let sent = subscription.sent(resource.name());
        let none = References::default();
        let known = sent.map_or(&none, |sent| sent.references());
        let mut reason = None;
        for to in resource.references().missing_in(known) {
            // Of clusters that refer to each other the new ones come together.
            let is_mutual = sent.is_none() && to.resource_type == state.resource_type;
            if is_mutual {
                continue;
            }
            for needed in self.readiness.needs(&state.resource_type, to) {
                let Some(obstacle) = self.readiness.obstacle(&needed, false) else { continue };
                if self.may_wait(resource.key(), &obstacle) {
                    reason = reason.or(Some(obstacle));
                }
            }
        }
        if let Some(waits_for) = reason {
            self.hold_back(stream, state, resource, waits_for);
        }
    }

    /// If one scope waits, all do: the key of one may pass to another, no two may have the same, and a key without a scope has no
    /// routes.
    fn hold_together(&mut self, stream: &Stream, state: &TypeState) {
        let of = &state.resource_type;
        let is_scope = |held: &&HeldBack| held.resource.resource_type == *of;
        let Some(first) = self.after.held_back.iter().find(is_scope).cloned() else { return };
        let table = self.readiness.view.table(of);
        for resource in state.subscription.owed(table).changed {
            if !self.is_held(resource.key()) {
                self.hold_back(stream, state, &resource, first.waits_for.clone());
            }
        }
        for resource in state.subscription.gone_from(table) {
            let deviations = self.deviations.entry(of.clone()).or_default();
            deviations.insert(Arc::clone(resource.name()), Deviation::Kept(Arc::clone(&resource)));
            self.note(resource.key(), true, first.waits_for.clone());
        }
    }

    fn hold_back(
        &mut self,
        stream: &Stream,
        state: &TypeState,
        resource: &Arc<Resource>,
        waits_for: WaitsFor,
    ) {
        let subscription = &state.subscription;
        let sent = subscription.sent(resource.name());
        // To be absent from a complete list would be to be deleted.
        let deviation = match subscription.settled().find(resource.name()) {
            Some(kept) if sent.is_some() || stream.lists_completely(state) => {
                Deviation::Kept(Arc::clone(kept))
            }
            kept => Deviation::Withheld(kept.cloned()),
        };
        let deviations = self.deviations.entry(state.resource_type.clone()).or_default();
        deviations.insert(Arc::clone(resource.name()), deviation);
        self.transient.insert(state.resource_type.clone());
        self.note(resource.key(), false, waits_for);
    }

    /// Whether a change may wait for that any longer. Only silence ends waiting: not what the client has said, nor what it needs
    /// time for.
    fn may_wait(&mut self, waiting: &ResourceKey, obstacle: &WaitsFor) -> bool {
        let awaited = obstacle.resource();
        match obstacle {
            WaitsFor::Change(rejected) => {
                self.rejected.insert(rejected.clone());
                return true;
            }
            WaitsFor::Settling(_) => {
                let until = self.readiness.settling.get(&awaited.name).copied();
                self.look_again_at(until);
                return true;
            }
            WaitsFor::Sending(_) | WaitsFor::Request(_) | WaitsFor::Ack(_) | WaitsFor::Disuse(_) => {}
        }
        let since = self.before.awaited.get(awaited).copied().unwrap_or(self.now);
        self.after.awaited.insert(awaited.clone(), since);
        let end = since.checked_add(self.limits.addition_grace);
        let may_wait = end.is_none_or(|end| self.now < end);
        if may_wait {
            self.look_again_at(end);
            return true;
        }
        if self.before.since(waiting, false).is_some() {
            self.events.push((waiting.resource_type.clone(), EventKind::GraceExpired));
        }
        false
    }

    /// Finds what is gone from the view and still in use.
    fn retain(&mut self) {
        for stream in self.readiness.streams.values() {
            for state in stream.types().iter().filter(|state| is_referred_to(&state.resource_type)) {
                let table = self.readiness.view.table(&state.resource_type);
                for resource in state.subscription.gone_from(table) {
                    let is_kept = self.deviations.get(&state.resource_type);
                    let is_kept = is_kept.is_some_and(|kept| kept.contains_key(resource.name()));
                    if !is_kept && self.readiness.knows_best(state, resource.name()) {
                        self.retain_if_used(stream, state, &resource);
                    }
                }
            }
        }
    }

    fn retain_if_used(&mut self, stream: &Stream, state: &TypeState, resource: &Arc<Resource>) {
        let key = resource.key();
        let users = self.readiness.users(key);
        // What nobody tells the client that it is gone, it uses as long as it asks for it; and what it does not ask for any more as
        // long as something does that asked for it.
        let is_wanted = state.subscription.wants(state.subscription.settled(), &key.name);
        let is_draining = is_wanted && users.is_empty() && stream.breaks_by_removals(state);
        let is_kept_silently = !is_wanted || stream.tells_no_removals(state) || is_draining;
        let uses_clusters = table::row_of(&key.resource_type, &ResourceType::Cluster).is_some();
        if users.is_empty() && !(is_wanted && is_kept_silently && uses_clusters) {
            return;
        }
        if !self.may_retain(key, &users) {
            return;
        }
        let deviations = self.deviations.entry(key.resource_type.clone()).or_default();
        // A client that has it keeps it; one that asks for it now might not have what it refers to. What is used before it is there has
        // to come nevertheless: virtual hosts, and routes of a scope.
        let deviation = if uses_clusters && !table::is_used_at_once(&key.resource_type, &users) {
            Deviation::Withheld(Some(Arc::clone(resource)))
        } else {
            Deviation::Kept(Arc::clone(resource))
        };
        deviations.insert(Arc::clone(&key.name), deviation);
        if is_kept_silently {
            self.after.silent.insert(key.clone());
            return;
        }
        self.transient.insert(key.resource_type.clone());
        let user = users.into_iter().map(|(user, _)| user).next();
        self.note(key, true, WaitsFor::Disuse(user.unwrap_or_else(|| key.clone())));
    }

    /// Whether the client need not do without a resource yet. Only its silence counts, not what waits by our doing, or because of a
    /// rejection.
    fn may_retain(&mut self, key: &ResourceKey, users: &[(ResourceKey, bool)]) -> bool {
        if users.iter().any(|(user, is_rejected)| *is_rejected || self.is_held(user)) {
            return true;
        }
        let since = self.before.retained.get(key).copied().unwrap_or(self.now);
        self.after.retained.insert(key.clone(), since);
        let end = since.checked_add(self.limits.removal_grace);
        if end.is_some_and(|end| self.now >= end) {
            if self.before.since(key, true).is_some() {
                self.events.push((key.resource_type.clone(), EventKind::GraceExpired));
            }
            return false;
        }
        self.look_again_at(end);
        true
    }

    /// Finds what a client asks for when it is gone already, because of something that goes or changes too: told that it does not
    /// exist, the client would use that without it.
    fn leave_unanswered(&mut self) {
        for state in self.readiness.streams.values().flat_map(Stream::types) {
            let of = &state.resource_type;
            // Hosts that do not exist may be asked for at any time.
            if !is_referred_to(of) || *of == ResourceType::VirtualHost {
                continue;
            }
            for name in state.subscription.unanswered(self.readiness.view.table(of)) {
                let key = ResourceKey { resource_type: of.clone(), name };
                let users = self.readiness.users(&key);
                let goes_on = users.iter().any(|(user, _)| self.readiness.goes_on(user, &key));
                let is_kept = self.deviations.get(of).is_some_and(|kept| kept.contains_key(&key.name));
                let Some((user, _)) = users.first().filter(|_| !goes_on && !is_kept) else { continue };
                if self.may_retain(&key, &users) {
                    let deviations = self.deviations.entry(of.clone()).or_default();
                    deviations.insert(Arc::clone(&key.name), Deviation::Withheld(None));
                    self.transient.insert(of.clone());
                    self.note(&key, true, WaitsFor::Disuse(user.clone()));
                }
            }
        }
    }

    /// Finds what changed, and the client does not ask for and may be using: as long as it does, its tables have what it has. It
    /// may ask for it again, and what it was never sent must not count as what replaces that.
    fn keep_unasked(&mut self) {
        for state in self.readiness.streams.values().flat_map(Stream::types) {
            let of = &state.resource_type;
            if !is_referred_to(of) || !refers(of) {
                continue;
            }
            for resource in state.subscription.changed_from(self.readiness.view.table(of)) {
                if self.readiness.is_needed_unasked(resource.key()) {
                    let deviations = self.deviations.entry(of.clone()).or_default();
                    deviations.insert(Arc::clone(resource.name()), Deviation::Kept(resource));
                }
            }
        }
    }

    fn is_held(&self, key: &ResourceKey) -> bool {
        self.after.since(key, false).is_some()
    }

    fn note(&mut self, key: &ResourceKey, is_removal: bool, waits_for: WaitsFor) {
        let before = self.before.since(key, is_removal);
        if before.is_none() {
            self.events.push((key.resource_type.clone(), EventKind::HeldBack));
        }
        let since = before.unwrap_or(self.now);
        self.after.since.insert((key.clone(), is_removal), since);
        self.after.held_back.push(HeldBack { resource: key.clone(), is_removal, waits_for, since });
    }

    fn look_again_at(&mut self, at: Option<Instant>) {
        self.after.timeout = self.after.timeout.into_iter().chain(at).min();
    }
}

impl Waiting {
    /// Since when a change is held back.
    fn since(&self, key: &ResourceKey, is_removal: bool) -> Option<Instant> {
        self.since.get(&(key.clone(), is_removal)).copied()
    }
}
