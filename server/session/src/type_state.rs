//! One resource type on one stream: what is common to both variants.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::status::{EventKind, MAX_NACK_MESSAGE, Sent};
use xds_cache::{Name, Node, Profile, Resource, ResourceType, Revision, TypeTable, View};

use crate::request::Nonce;
use crate::response::{Contents, Entries, Entry, Form};
use crate::subscription::{Owed, Subscription};

/// What a stream knows of one type.
#[derive(Debug)]
pub(crate) struct TypeState {
    pub(crate) resource_type: ResourceType,
    pub(crate) subscription: Subscription,
    /// Whether a name was ever given; from then on an empty list means "nothing", not "all" (R2).
    pub(crate) named_once: bool,
    /// Whether a request for the type came before.
    pub(crate) is_known: bool,
    /// Whether something may be owed; cleared when nothing was found.
    pub(crate) is_dirty: bool,
    /// Whether an answer is owed even if there is nothing to put into it.
    pub(crate) is_answer_owed: bool,
    /// The responses that were not answered, oldest first. In SotW at most the last one.
    outstanding: VecDeque<Sent>,
    /// The last response, answered or not.
    last: Option<Sent>,
    /// Names that were sent again because what refers to them changed; an unchanged repeat of the request asks for them once
    /// more (R14).
    pub(crate) renewed: BTreeSet<Name>,
    /// When the next heartbeat is due; `None` while the client has nothing with a time to live.
    pub(crate) next_heartbeat: Option<Instant>,
}

/// How many unanswered delta responses are remembered; answers to older ones are not told from stale ones.
const MAX_OUTSTANDING: usize = 256;

/// What a nonce of a request tells.
pub(crate) enum Answer {
    /// It answers a response that was not answered before.
    To(Sent),
    /// It repeats the answer to the last response.
    Repeated(Sent),
    /// It answers nothing, or something that is no longer waited for.
    Nothing,
}

/// What to send of one type: the contents, and what of them is news to the client.
pub(crate) struct Update {
    pub(crate) contents: Contents,
    pub(crate) changed: Vec<Arc<Resource>>,
    /// Whether nothing more is owed of the type.
    pub(crate) is_final: bool,
}

impl TypeState {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self {
            resource_type,
            subscription: Subscription::default(),
            named_once: false,
            is_known: false,
            is_dirty: false,
            is_answer_owed: false,
            outstanding: VecDeque::new(),
            last: None,
            renewed: BTreeSet::new(),
            next_heartbeat: None,
        }
    }

    /// What the request's nonce answers; it is answered from now on.
    pub(crate) fn take_answered(&mut self, nonce: Nonce) -> Answer {
        let Nonce::Ours(nonce) = nonce else { return Answer::Nothing };
        if let Some(position) = self.outstanding.iter().position(|sent| sent.nonce == nonce)
            && let Some(sent) = self.outstanding.remove(position)
        {
            return Answer::To(sent);
        }
        match &self.last {
            Some(last) if last.nonce == nonce => Answer::Repeated(last.clone()),
            Some(_) | None => Answer::Nothing,
        }
    }

    /// Remembers a response that was made.
    pub(crate) fn remember(&mut self, sent: Sent, is_only_answerable: bool) {
        if is_only_answerable {
            self.outstanding.clear();
        }
        if self.outstanding.len() == MAX_OUTSTANDING {
            self.outstanding.pop_front();
        }
        self.last = Some(sent.clone());
        self.outstanding.push_back(sent);
    }

    /// The client needs the resource again although it did not change. Tells whether it wants it at all.
    pub(crate) fn renew(&mut self, name: &Name) -> bool {
        let is_wanted = self.subscription.mark_unknown(name);
        if is_wanted {
            self.renewed.insert(Arc::clone(name));
            self.is_dirty = true;
        }
        is_wanted
    }

    /// What is owed of the type, if anything is; an answer without contents counts.
    pub(crate) fn owed(&self, view: &View) -> Option<Owed> {
        let owed = self.subscription.owed(view.table(&self.resource_type));
        (self.is_answer_owed || !owed.is_empty()).then_some(owed)
    }

    /// Takes as much of `owed` as fits into `max_bytes`, at least one resource, and marks it as sent.
    pub(crate) fn take_changed(&mut self, owed: &Owed, table: &Arc<TypeTable>, max_bytes: usize) -> Part {
        let mut bytes = 0;
        let fitting = owed.changed.iter().take_while(|resource| {
            let is_first = bytes == 0;
            bytes += resource.value().len() + resource.name().len() + ENTRY_OVERHEAD;
            is_first || bytes <= max_bytes
        });
        let n = fitting.count();
        if n == owed.changed.len() {
            self.subscription.settle(table);
            return Part { changed: owed.changed.clone(), is_whole: true };
        }
        let changed: Vec<_> = owed.changed.iter().take(n).cloned().collect();
        changed.iter().for_each(|resource| self.subscription.mark_sent(resource));
        Part { changed, is_whole: false }
    }

    /// How long the client may go without a heartbeat: half of the shortest time to live that it was given.
    pub(crate) fn heartbeat_interval(&self, table: &TypeTable) -> Option<Duration> {
        let wanted = table.resources_with_ttl().filter(|resource| self.subscription.covers(resource));
        wanted.filter_map(|resource| resource.ttl()).min().map(|ttl| ttl / 2)
    }

    /// The heartbeats of everything that has a time to live, with whatever else must stand beside them (row A139).
    pub(crate) fn heartbeats(&self, view: &View, form: Form) -> Contents {
        let table = view.table(&self.resource_type);
        let must_be_complete =
            form != (Form::Delta { with_ttl: true }) && self.resource_type.is_complete_in_sotw();
        let wanted = self.subscription.wanted(table).into_iter();
        let entries =
            wanted.filter(|resource| must_be_complete || resource.ttl().is_some()).map(|resource| {
                if resource.ttl().is_some() { Entry::Heartbeat(resource) } else { Entry::Full(resource) }
            });
        self.contents(view, form, Entries::Listed(entries.collect()))
    }

    /// Contents without removals.
    pub(crate) fn contents(&self, view: &View, form: Form, entries: Entries) -> Contents {
        Contents {
            resource_type: self.resource_type.clone(),
            version_info: Arc::clone(view.version_info(&self.resource_type)),
            form,
            entries,
            removed: vec![],
            not_found: vec![],
        }
    }
}

/// The part of what is owed that one response takes.
pub(crate) struct Part {
    pub(crate) changed: Vec<Arc<Resource>>,
    pub(crate) is_whole: bool,
}

/// What a resource costs in a response besides its name and value, roughly: tags, lengths, version and type URL.
const ENTRY_OVERHEAD: usize = 128;

/// Entries in full.
pub(crate) fn full(resources: &[Arc<Resource>]) -> Entries {
    Entries::Listed(resources.iter().cloned().map(Entry::Full).collect())
}

/// What the session needs to know of the client to make a response for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTraits {
    pub(crate) profile: Profile,
    pub(crate) takes_ttl: bool,
    pub(crate) takes_wrapped_resources: bool,
    pub(crate) max_response_bytes: usize,
}

impl ClientTraits {
    pub(crate) fn new(node: &Node, view: &View, max_response_bytes: usize) -> Self {
        Self {
            profile: view.key().profile,
            takes_ttl: node.takes_ttl(),
            takes_wrapped_resources: node.takes_wrapped_resources(),
            max_response_bytes,
        }
    }
}

/// The event of an answer.
pub(crate) fn answered(sent: Sent, error_detail: Option<&str>) -> EventKind {
    match error_detail {
        None => EventKind::Acked(sent),
        Some(message) => EventKind::Nacked { sent, message: shortened(message).into() },
    }
}

/// At most [`MAX_NACK_MESSAGE`] bytes of a text, cut between characters.
fn shortened(message: &str) -> &str {
    let mut end = message.len().min(MAX_NACK_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// A response as the status board remembers it.
pub(crate) fn sent(nonce: u64, contents: &Contents, revision: Revision, is_final: bool) -> Sent {
    Sent { nonce, version_info: Arc::clone(&contents.version_info), revision, is_final }
}
