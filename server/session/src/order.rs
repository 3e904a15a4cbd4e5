//! The order of sending: changes wait, so that a client never uses a resource that it does not have (R12).
//!
//! There are no phases. Whenever something happens, [`decide`] decides anew about every resource that the view has otherwise than the
//! client, by the resources that the client may be using ([`in_use`]) and those that it lacks ([`obstacles`]). [`fold`] turns the
//! decisions into tables: those of the view, but with each waiting resource as the client has it. Everything else about sending knows
//! only tables. ARCHITECTURE.md has the rule.

mod came_back;
mod decide;
mod facts;
mod fold;
mod in_use;
mod known;
mod obstacles;
mod replace;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::{EventKind, StreamId};
use xds_cache::{Deviation, Deviations, HeldBack, ResourceType, View};

use crate::limits::Limits;
use crate::references::refers;
use crate::stream::Stream;
use crate::target::Target;
use facts::{Facts, Input};
use fold::Fold;
use replace::{forgotten, release, release_all, renew_returned, settling};
use waiting::{Known, Waiting};

/// How one client gets to the view, and why it waits. A client that has everything costs nothing here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Something happened that may make a difference.
    pub(crate) is_due: bool,
    /// Remembered while something waits.
    waiting: Option<Box<Waiting>>,
    /// Types of which the client accepted something on streams that it has closed.
    accepted: BTreeSet<ResourceType>,
    /// Resources that the client may have learned of, and asks for only when it uses them. Few clients have any.
    known: Option<Box<Known>>,
    /// When it showed that it came back.
    came_back: Option<Instant>,
    /// When it seemed to have come back, without a version to show for that.
    seemed_back: Option<Instant>,
}

/// The result of a plan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Types of which the client is to be brought to another table than before.
    pub(crate) changed: BTreeSet<ResourceType>,
    /// Events, by type.
    pub(crate) events: Vec<(ResourceType, EventKind)>,
}

/// What the client refuses of lists, or may refuse, as it has it; and the types that are still searched for that.
fn substitutes(
    view: &View,
    streams: &BTreeMap<StreamId, Stream>,
) -> (BTreeMap<ResourceType, Deviations>, BTreeSet<ResourceType>) {
    let (mut all, mut searching) = (BTreeMap::<ResourceType, Deviations>::new(), BTreeSet::new());
    for state in streams.values().flat_map(Stream::types) {
        let of = &state.resource_type;
        // Of two streams, each would hold back what the other offers: they search one after the other.
        let searches = state.is_searching() && searching.insert(of.clone());
        for (name, substitute) in state.substitutes(view.table(of), searches) {
            let kept = all.entry(of.clone()).or_default();
            if matches!(substitute, Deviation::Absent) && kept.contains_key(&name) {
                continue;
            }
            // Another stream may have accepted what this one never had.
            let others = streams.values().filter_map(|stream| stream.find(of));
            let others = others.filter(|other| !std::ptr::eq(*other, state));
            let had = others.filter_map(|other| other.ledger.in_use(&name).last()).next();
            let substitute = match (substitute, had) {
                (Deviation::Absent, Some(had)) => Deviation::Kept(Arc::clone(had)),
                (substitute, _) => substitute,
            };
            kept.insert(name, substitute);
        }
    }
    (all, searching)
}

/// The types of which the client is to be brought to another table than before. A table that has become final is news too: maybe nothing
/// more has to be sent.
fn changed(before: &Waiting, after: &Waiting) -> BTreeSet<ResourceType> {
    let table = |waiting: &Waiting, resource_type: &ResourceType| {
        let transitional = waiting.detour.transitional.get(resource_type)?;
        Some((Arc::as_ptr(&transitional.table), transitional.is_final))
    };
    let types = before.detour.transitional.keys().chain(after.detour.transitional.keys());
    let changed = types.filter(|of| table(before, of) != table(after, of));
    let put_off = before.detour.put_off.symmetric_difference(&after.detour.put_off);
    changed.chain(put_off.map(|key| &key.resource_type)).cloned().collect()
}

impl Order {
    /// The tables that the client is to be brought up to.
    pub(crate) fn target<'a>(&'a self, view: &'a View) -> Target<'a> {
        Target::new(view, self.waiting.as_ref().map(|waiting| &waiting.detour))
    }

    /// Returns `true` if something waits.
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.is_some()
    }

    /// Remembers the types that the client accepted on a stream: on the next one it does not accept them for the first time.
    pub(crate) fn handle_close(&mut self, stream: &Stream) {
        // Other types make no difference, and there may be any number of them.
        let accepted =
            stream.types().iter().filter(|state| refers(&state.resource_type) && state.ledger.has_accepted());
        self.accepted.extend(accepted.map(|state| state.resource_type.clone()));
    }

    /// When to plan again though nothing happens.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.waiting.as_ref()?.timeout
    }

    /// The resources that are held back, and why.
    pub(crate) fn held_back(&self) -> &[HeldBack] {
        self.waiting.as_ref().map(|waiting| &waiting.held_back[..]).unwrap_or_default()
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
        let (substitutes, searching) = substitutes(view, streams);
        if !limits.is_phased {
            release_all(streams);
            let mut after = Waiting::default();
            after.deviate(view, substitutes, &searching);
            let changed = changed(&before, &after);
            self.waiting = (!after.is_idle()).then(|| Box::new(after));
            return Outcome { changed, events: vec![] };
        }
        let shows_versions = came_back::believe(view, streams, now);
        if self.came_back.is_none() && shows_versions {
            self.came_back = Some(now);
        } else if self.came_back.or(self.seemed_back).is_none()
            && came_back::asks_for_what_it_was_not_told_of(view, streams, now)
        {
            self.seemed_back = Some(now);
        }
        let until = |at: Option<Instant>, grace| at.and_then(|at| at.checked_add(grace));
        let seems_so_until = until(self.seemed_back, limits.addition_grace.min(came_back::MAX_GUESS));
        let back_until = until(self.came_back, limits.addition_grace).max(seems_so_until);
        let is_back = back_until.is_some_and(|until| now < until);
        if is_back {
            came_back::note_other_names(view, streams, now);
            came_back::doubt_referents(view, streams, now);
        }
        let (accepted, known) = (&self.accepted, self.known.as_deref());
        let (settling, before, substitutes) = (&settling, &before, &substitutes);
        let input = Input { view, accepted, settling, known, is_back, before, substitutes, limits, now };
        let timeout = release(input, streams);
        let facts = Facts::new(input, streams);
        let Fold { mut deviations, mut transient, events, mut after } = Fold::of(&facts);
        after.look_again_at(timeout);
        let forgotten = forgotten(&facts);
        for (stream, resource_type, names) in forgotten {
            let state = streams.get_mut(&stream).and_then(|stream| stream.find_mut(&resource_type));
            state.into_iter().for_each(|state| state.ledger.forget_dropped(&names));
        }
        renew_returned(before.silent.difference(&after.silent), view, streams);
        for (of, substitutes) in substitutes {
            deviations.entry(of.clone()).or_default().extend(substitutes.clone());
        }
        transient.extend(searching);
        after.deviate(view, deviations, &transient);
        let changed = changed(before, &after);
        if !after.held_back.is_empty() {
            after.look_again_at(back_until.filter(|_| is_back));
        }
        after.settling = settling.clone();
        self.waiting = (!after.is_idle()).then(|| Box::new(after));
        self.known = known::known(self.target(view), streams);
        Outcome { changed, events }
    }
}
