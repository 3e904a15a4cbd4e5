//! One resource type on one stream: what is common to both variants.

mod lists;
mod owed;
mod rejections;
mod subscribe;
mod tried;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::status::{Sent, Variant};
use xds_cache::{Name, Profile, Resource, ResourceKey, ResourceType, Revision, TypeTable, View};

use crate::culprits::KnownCulprits;
use crate::ledger::{Answered, Carried, Ledger};
use crate::owed::Owed;
use crate::quirks::{Asker, Quirk};
use crate::references::{is_referred_to, refers};
use crate::request::Nonce;
use crate::response::{Contents, Entries, Entry, Form};
use crate::target::Target;
use crate::wants::Wants;
use rejections::{LastRejection, Rejections};

/// The state of one type on one stream.
#[derive(Clone, Debug)]
pub(crate) struct TypeState {
    pub(crate) resource_type: ResourceType,
    variant: Variant,
    /// The resources that the client asks for.
    pub(crate) wants: Wants,
    /// The responses that it was sent, and its answers.
    pub(crate) ledger: Ledger,
    /// A name was ever given; from then on an empty list means "nothing", not "all" (R2).
    pub(crate) named_once: bool,
    /// Something may be owed; cleared when nothing was found.
    pub(crate) is_dirty: bool,
    /// An answer is owed even if there is nothing to put into it.
    pub(crate) is_answer_owed: bool,
    /// Names that were sent again because what refers to them changed; an unchanged repeat of the request asks for them once
    /// more (R14). Of SotW only, and never more than there are names and resources.
    pub(crate) renewed: BTreeSet<Name>,
    /// Names that the client waits to hear of though it does not ask for them: all hosts of a route configuration, as `ROUTE/*`. Few
    /// streams ever have any.
    #[expect(clippy::box_collection, reason = "a stream has one of these for each type, mostly none")]
    pub(crate) awaited: Option<Box<BTreeSet<Name>>>,
    /// The length of the longest name in its requests, in bytes.
    pub(crate) longest_name: u16,
    /// When the next heartbeat is due; `None` while the client has nothing with a time to live.
    pub(crate) next_heartbeat: Option<Instant>,
    /// The resources that came in rejected responses.
    rejections: Option<Box<Rejections>>,
    /// Names of which the client, which came back, was sent another version than what it had rejected before. Few clients have any.
    #[expect(clippy::box_collection, reason = "a stream has one of these for each type, mostly none")]
    judged_anew: Option<Box<BTreeSet<Name>>>,
    /// The client rejected the last response.
    last_rejection: Option<Box<LastRejection>>,
}

/// How an Envoy calls itself.
pub(crate) const ENVOY: &str = "envoy";

/// A response of one type: the contents, and the resources in them that are news to the client.
pub(crate) struct Update {
    pub(crate) contents: Contents,
    pub(crate) changed: Vec<Arc<Resource>>,
    /// Owed of the type after that.
    pub(crate) rest: Owed,
    /// It repeats what the client has, to keep that alive.
    pub(crate) is_heartbeat: bool,
}

impl TypeState {
    pub(crate) fn new(resource_type: ResourceType, variant: Variant) -> Self {
        Self {
            wants: Wants::new(&resource_type),
            ledger: Ledger::new(),
            variant,
            resource_type,
            named_once: false,
            is_dirty: false,
            is_answer_owed: false,
            renewed: BTreeSet::new(),
            judged_anew: None,
            awaited: None,
            longest_name: 0,
            next_heartbeat: None,
            rejections: None,
            last_rejection: None,
        }
    }

    /// Returns `true` if the stream's client has a quirk with this type.
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        let is_wildcard = self.wants.is_wildcard();
        quirk.is_of_asker(Asker { resource_type: &self.resource_type, variant: self.variant, is_wildcard })
    }

    /// Returns `true` if nothing of the type is sent yet: the client came back and may have any version of something that it wants.
    pub(crate) fn is_put_off(&self, target: Target<'_>) -> bool {
        let is_wanted =
            |key: &ResourceKey| key.resource_type == self.resource_type && self.wants.covers_name(&key.name);
        self.ledger.came_back() && target.put_off().any(is_wanted)
    }

    /// Returns `true` if the stream is incremental.
    pub(crate) fn is_incremental(&self) -> bool {
        self.variant == Variant::Delta
    }

    /// Returns `true` if the client never learns that something of the type is gone.
    pub(crate) fn hides_removals(&self) -> bool {
        self.variant == Variant::Sotw && !self.has(Quirk::CompleteLists)
    }

    /// About how many names and resources the next response looks at.
    pub(crate) fn response_size(&self, target: Target<'_>, now: Instant) -> usize {
        let table = target.table(&self.resource_type);
        let has_heartbeats = self.next_heartbeat.is_some_and(|due| due <= now);
        let is_listed =
            self.has(Quirk::CompleteLists) && !(self.wants.is_wildcard() && self.wants.names().is_empty());
        let is_dirty = self.is_dirty && !self.is_put_off(target);
        let n_owed = if is_dirty { self.owed_size(table) } else { 0 };
        let is_whole = has_heartbeats || (is_listed && (n_owed > 0 || (is_dirty && self.is_answer_owed)));
        let n_whole = if is_whole { table.len() + self.wants.names().len() } else { 0 };
        n_owed + n_whole
    }

    /// About how many names and resources a plan looks at to find what of the type has to wait.
    pub(crate) fn plan_size(&self, table: &TypeTable) -> usize {
        if !refers(&self.resource_type) && !is_referred_to(&self.resource_type) {
            return 0;
        }
        self.owed_size(table) + self.ledger.answer_size()
    }

    /// How many names and responses are remembered in all.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_entries(&self) -> usize {
        let n_awaited = self.awaited.as_ref().map_or(0, |awaited| awaited.len());
        let n_rejected = self.rejections.as_ref().map_or(0, |rejections| rejections.len());
        self.wants.names().len() + self.ledger.n_entries() + self.renewed.len() + n_awaited + n_rejected
    }

    /// Returns `true` if there is nothing to be sent, and nothing was.
    pub(crate) fn asks_for_nothing(&self) -> bool {
        self.ledger.responses().is_empty() && self.wants.is_empty()
    }

    /// Finds what the nonce of a request answers. It is answered from now on.
    pub(crate) fn take_answered(&mut self, nonce: Nonce) -> Answered {
        self.ledger.take_answered(nonce)
    }

    /// Settles a type of which there is nothing to send. Tells whether the client came with everything.
    pub(crate) fn settle_without_response(&mut self, target: Target<'_>) -> bool {
        self.review_rejections(target);
        let comes_with_it = self.ledger.came_with_everything();
        let is_leaf = !refers(&self.resource_type);
        self.awaited = None;
        self.ledger.record_nothing(&self.wants, target.table(&self.resource_type), is_leaf);
        comes_with_it
    }

    /// Records a response that was made of `update`, before it is handed out (pitfall 5). Tells whether it is a trial.
    pub(crate) fn record(&mut self, sent: Sent, target: Target<'_>, update: &Update) -> bool {
        if update.is_heartbeat {
            self.ledger.record_heartbeats(&self.wants, sent, update.rest.is_empty());
            return false;
        }
        let table = target.table(&self.resource_type);
        let is_list = self.variant == Variant::Sotw && update.rest.is_empty();
        let removed = &update.contents.told_gone();
        let is_complete = self.has(Quirk::CompleteLists);
        let is_trial = !is_complete && self.is_trial(&update.changed);
        let is_trial_list = self.is_trial_list();
        let list = is_complete.then_some(&update.contents.entries);
        let carried = Carried { changed: &update.changed, removed, is_list, is_complete, is_trial, list };
        self.ledger.record(&self.wants, sent, table, carried, &update.rest);
        self.review_rejections(target);
        is_trial || is_trial_list
    }

    /// The client needs the resource again although it did not change. Tells whether it wants it at all.
    pub(crate) fn renew(&mut self, name: &Name) -> bool {
        let is_wanted = self.mark_unknown(name);
        self.is_dirty |= is_wanted;
        is_wanted
    }

    /// The client, which may repeat its request for that, needs the resource again. Tells whether it wants it at all.
    pub(crate) fn renew_once_more(&mut self, name: &Name) -> bool {
        let is_wanted = self.renew(name);
        if is_wanted {
            self.renewed.insert(Arc::clone(name));
        }
        let Self { renewed, wants, ledger, .. } = self;
        let (names, settled) = (wants.names(), ledger.settled());
        if renewed.len() > names.len() + settled.len() {
            // Under a wildcard, names come and go without a request.
            renewed.retain(|name| names.contains(name) || settled.find(name).is_some());
        }
        is_wanted
    }

    /// The resources that are owed of the type, if any answer is; one without contents counts.
    pub(crate) fn owed(&self, target: Target<'_>) -> Option<Owed> {
        let table = target.table(&self.resource_type);
        let owed = self.lacks(table);
        let mut awaited = self.awaited.iter().flat_map(|awaited| awaited.iter());
        let is_awaited = awaited.any(|all| self.wants.is_left_waiting(table, all));
        (self.is_answer_owed || is_awaited || !owed.is_empty()).then_some(owed)
    }

    /// How long the client may go without a heartbeat: half of the shortest time to live that it was given.
    pub(crate) fn heartbeat_interval(&self, table: &TypeTable) -> Option<Duration> {
        if self.has(Quirk::NoHeartbeats) {
            return None;
        }
        let wanted = table.resources_with_ttl().filter(|resource| {
            self.wants.covers(table, resource) || self.wants.derives_from(table, resource)
        });
        let shortest = wanted.filter_map(|resource| resource.ttl()).min()?;
        Some((shortest / 2).max(MIN_HEARTBEAT_INTERVAL))
    }

    /// The heartbeats of everything that has a time to live, with whatever else must stand beside them (row A139). What is owed is
    /// left out: it is sent in full.
    pub(crate) fn heartbeats(&self, target: Target<'_>, form: Form, owed: &Owed) -> Contents {
        let table = target.table(&self.resource_type);
        let must_be_complete = form == Form::SotwWrapped && self.has(Quirk::CompleteLists);
        let is_owed = |resource: &Resource| {
            owed.changed.binary_search_by(|changed| changed.name().cmp(resource.name())).is_ok()
        };
        let wanted = self.wants.of(table).into_iter();
        let entries = wanted.filter_map(|resource| match resource.ttl() {
            Some(_) => (!is_owed(&resource)).then_some(Entry::Heartbeat(resource)),
            None => must_be_complete.then_some(Entry::Full(resource)),
        });
        self.contents(target, form, Entries::Listed(entries.collect()))
    }

    /// Contents without removals.
    pub(crate) fn contents(&self, target: Target<'_>, form: Form, entries: Entries) -> Contents {
        Contents {
            resource_type: self.resource_type.clone(),
            version_info: Arc::clone(target.version_info(&self.resource_type)),
            form,
            entries,
            removed: vec![],
            not_found: vec![],
        }
    }
}

/// Heartbeats are not sent more often, however short a time to live is.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Entries in full.
pub(crate) fn full(resources: &[Arc<Resource>]) -> Entries {
    Entries::Listed(resources.iter().cloned().map(Entry::Full).collect())
}

/// The traits of a client on which its responses depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTraits<'a> {
    pub(crate) profile: Profile,
    /// It says that it is an Envoy. Of other proxies' quirks nothing is known.
    pub(crate) is_envoy: bool,
    pub(crate) takes_ttl: bool,
    pub(crate) takes_wrapped_resources: bool,
    pub(crate) max_response_bytes: usize,
    pub(crate) culprits: KnownCulprits<'a>,
}

impl<'a> ClientTraits<'a> {
    pub(crate) fn new(culprits: KnownCulprits<'a>, view: &View, max_response_bytes: usize) -> Self {
        let node = culprits.node;
        Self {
            profile: view.key().profile,
            is_envoy: node.user_agent_name == ENVOY,
            takes_ttl: node.takes_ttl(),
            takes_wrapped_resources: node.takes_wrapped_resources(),
            max_response_bytes,
            culprits,
        }
    }
}

/// A response as the status board remembers it.
pub(crate) fn sent(nonce: u64, contents: &Contents, revision: Revision, is_final: bool) -> Sent {
    Sent { nonce, version_info: Arc::clone(&contents.version_info), revision, is_final }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::stream::Stream;

    /// An idle stream costs, besides the names that it asked for, itself and this for each of its types, which are four to
    /// six. No copy of what it was sent is kept, only a reference to the table.
    #[test]
    fn an_idle_stream_is_small() {
        let sizes = [size_of::<Client>(), size_of::<Stream>(), size_of::<TypeState>()];
        assert!(sizes.iter().zip([304, 64, 328]).all(|(size, limit)| *size <= limit), "{sizes:?}");
    }
}
