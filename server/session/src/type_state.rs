//! One resource type on one stream: what is common to both variants.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::status::{EventKind, MAX_NACK_MESSAGE, Sent, Variant};
use xds_cache::{Name, Node, Profile, Resource, ResourceKey, ResourceType, Revision, TypeTable, View};

use crate::applied::Applied;
use crate::quirks::{Asker, Quirk};
use crate::references::{is_referred_to, refers};
use crate::request::Nonce;
use crate::response::{Contents, Entries, Entry, Form};
use crate::subscription::{Owed, Subscription};
use crate::target::Target;

/// What a stream knows of one type.
#[derive(Clone, Debug)]
pub(crate) struct TypeState {
    pub(crate) resource_type: ResourceType,
    variant: Variant,
    pub(crate) subscription: Subscription,
    /// What the client may be using, by what it answered.
    pub(crate) applied: Applied,
    /// Whether a name was ever given; from then on an empty list means "nothing", not "all" (R2).
    pub(crate) named_once: bool,
    /// Whether a request for the type came before.
    pub(crate) is_known: bool,
    /// Whether the client showed that it holds something from an earlier stream, and was not answered since then.
    pub(crate) came_back: bool,
    /// Whether something may be owed; cleared when nothing was found.
    pub(crate) is_dirty: bool,
    /// Whether an answer is owed even if there is nothing to put into it.
    pub(crate) is_answer_owed: bool,
    /// The last response, and what became of it.
    last: Option<(Sent, Fate)>,
    /// Older responses that were not answered, oldest first.
    older: VecDeque<Sent>,
    /// Since which nonce the client was sent parts of what it was owed at one time; the last part is final.
    series: u64,
    /// Whether it rejected a part of that.
    is_series_rejected: bool,
    /// Names that were sent again because what refers to them changed; an unchanged repeat of the request asks for them once
    /// more (R14). Of SotW only, and never more than there are names and resources.
    pub(crate) renewed: BTreeSet<Name>,
    /// What the client waits to hear of though it asks for nothing of it: all hosts of a route configuration, as `ROUTE/*`. Few
    /// streams ever have any.
    #[expect(clippy::box_collection, reason = "a stream has one of these for each type, mostly none")]
    pub(crate) awaited: Option<Box<BTreeSet<Name>>>,
    /// When the next heartbeat is due; `None` while the client has nothing with a time to live.
    pub(crate) next_heartbeat: Option<Instant>,
}

/// How many unanswered responses are remembered besides the last; answers to older ones count for nothing.
const MAX_OLDER: usize = 255;

/// What the client said to the last response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unanswered,
    Answered,
}

/// What a nonce of a request tells.
pub(crate) enum Answer {
    /// It answers the last response.
    ToLast(Sent),
    /// It answers an older one.
    ToOlder(Sent),
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
    pub(crate) fn new(resource_type: ResourceType, variant: Variant) -> Self {
        Self {
            subscription: Subscription::new(&resource_type),
            variant,
            resource_type,
            applied: Applied::default(),
            named_once: false,
            is_known: false,
            came_back: false,
            is_dirty: false,
            is_answer_owed: false,
            last: None,
            older: VecDeque::new(),
            series: 0,
            is_series_rejected: false,
            renewed: BTreeSet::new(),
            awaited: None,
            next_heartbeat: None,
        }
    }

    /// Returns `true` if the stream's client has a quirk with this type.
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        let is_wildcard = self.subscription.is_wildcard();
        quirk.is_of_asker(Asker { resource_type: &self.resource_type, variant: self.variant, is_wildcard })
    }

    /// Returns `true` if nothing of the type is sent yet: the client came back and may have any version of something that it wants.
    pub(crate) fn is_put_off(&self, target: Target<'_>) -> bool {
        let is_wanted = |key: &ResourceKey| {
            key.resource_type == self.resource_type && self.subscription.covers_name(&key.name)
        };
        self.came_back && target.put_off().any(is_wanted)
    }

    /// Returns `true` if the client never learns that something of the type is gone.
    pub(crate) fn hides_removals(&self) -> bool {
        self.variant == Variant::Sotw && !self.has(Quirk::CompleteLists)
    }

    /// About how many names and resources the next response looks at.
    pub(crate) fn response_size(&self, target: Target<'_>, now: Instant) -> usize {
        let table = target.table(&self.resource_type);
        let has_heartbeats = self.next_heartbeat.is_some_and(|due| due <= now);
        let is_listed = self.has(Quirk::CompleteLists)
            && !(self.subscription.is_wildcard() && self.subscription.names().is_empty());
        let is_dirty = self.is_dirty && !self.is_put_off(target);
        let n_owed = if is_dirty { self.subscription.owed_size(table) } else { 0 };
        let is_whole = has_heartbeats || (is_listed && (n_owed > 0 || (is_dirty && self.is_answer_owed)));
        let n_whole = if is_whole { table.len() + self.subscription.names().len() } else { 0 };
        n_owed + n_whole
    }

    /// About how many names and resources a plan looks at to find what of the type has to wait.
    pub(crate) fn plan_size(&self, table: &TypeTable) -> usize {
        if !refers(&self.resource_type) && !is_referred_to(&self.resource_type) {
            return 0;
        }
        self.subscription.owed_size(table) + self.applied.answer_size()
    }

    /// How many names and responses are remembered in all.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_entries(&self) -> usize {
        let n_awaited = self.awaited.as_ref().map_or(0, |awaited| awaited.len());
        let n_renewed = self.renewed.len();
        self.subscription.n_entries() + self.applied.n_names() + self.older.len() + n_renewed + n_awaited
    }

    /// What the request's nonce answers; it is answered from now on.
    pub(crate) fn take_answered(&mut self, nonce: Nonce) -> Answer {
        let Nonce::Ours(nonce) = nonce else { return Answer::Nothing };
        match &mut self.last {
            Some((last, fate @ Fate::Unanswered)) if last.nonce == nonce => {
                *fate = Fate::Answered;
                // Answers come in the order of the responses, so nothing older is waited for, or on its way.
                self.older = VecDeque::new();
                self.subscription.forget_lingering();
                return Answer::ToLast(last.clone());
            }
            Some((last, Fate::Answered)) if last.nonce == nonce => return Answer::Repeated(last.clone()),
            Some(_) | None => {}
        }
        let position = self.older.iter().position(|sent| sent.nonce == nonce);
        position.and_then(|position| self.older.remove(position)).map_or(Answer::Nothing, Answer::ToOlder)
    }

    /// Whether every response was answered, so that none is on its way.
    pub(crate) fn is_answered(&self) -> bool {
        self.last.as_ref().is_none_or(|(_, fate)| *fate == Fate::Answered)
    }

    /// Whether nothing was sent because the client said that it holds it already; asked when nothing is owed.
    pub(crate) fn came_with_everything(&self) -> bool {
        self.last.is_none() && self.subscription.shows_versions()
    }

    /// Whether there is nothing to be sent, and nothing was.
    pub(crate) fn asks_for_nothing(&self) -> bool {
        self.last.is_none() && !self.subscription.is_wildcard() && self.subscription.names().is_empty()
    }

    /// Whether a response of this type that is waited for, or the last one, has this nonce.
    pub(crate) fn has_sent(&self, nonce: Nonce) -> bool {
        let Nonce::Ours(nonce) = nonce else { return false };
        let last = self.last.as_ref().map(|(last, _)| last);
        last.into_iter().chain(&self.older).any(|sent| sent.nonce == nonce)
    }

    /// Remembers a response that was made, before it is handed out (pitfall 5).
    pub(crate) fn remember(&mut self, sent: Sent) {
        self.came_back = false;
        if self.last.as_ref().is_none_or(|(last, _)| last.is_final) {
            self.series = sent.nonce;
            self.is_series_rejected = false;
        }
        if let Some((last, Fate::Unanswered)) = self.last.replace((sent, Fate::Unanswered)) {
            if self.older.len() == MAX_OLDER {
                self.older.pop_front();
            }
            self.older.push_back(last);
        }
    }

    /// What an answer means for the status. An ACK of one part is worth nothing if another part of the same series was rejected:
    /// then the client has not accepted what it was owed. `is_complete`: the response was a list of everything.
    pub(crate) fn answered(
        &mut self,
        sent: Sent,
        error_detail: Option<&str>,
        is_complete: bool,
    ) -> Option<EventKind> {
        if error_detail.is_some() {
            self.applied.handle_nack(sent.nonce);
        } else {
            let is_leaf = !refers(&self.resource_type);
            if !is_leaf && !self.subscription.is_wildcard() {
                let wants = |table: &TypeTable, name: &Name| self.subscription.wants(table, name);
                self.applied.note_missed(sent.nonce, wants);
            }
            self.applied.handle_ack(sent.nonce, is_complete, is_leaf);
        }
        let is_of_series = sent.nonce.wrapping_sub(self.series) < u64::MAX / 2;
        match error_detail {
            None if is_of_series && self.is_series_rejected => None,
            None => Some(EventKind::Acked(sent)),
            Some(message) => {
                self.is_series_rejected |= is_of_series;
                Some(EventKind::Nacked { sent, message: shortened(message).into() })
            }
        }
    }

    /// The client needs the resource again although it did not change. Tells whether it wants it at all.
    pub(crate) fn renew(&mut self, name: &Name) -> bool {
        let is_wanted = self.subscription.mark_unknown(name);
        self.is_dirty |= is_wanted;
        is_wanted
    }

    /// The client, which may repeat its request for that, needs the resource again. Tells whether it wants it at all.
    pub(crate) fn renew_once_more(&mut self, name: &Name) -> bool {
        let is_wanted = self.renew(name);
        if is_wanted {
            self.renewed.insert(Arc::clone(name));
        }
        let Self { renewed, subscription, .. } = self;
        let (names, settled) = (subscription.names(), subscription.settled());
        if renewed.len() > names.len() + settled.len() {
            // Under a wildcard, names come and go without a request.
            renewed.retain(|name| names.contains(name) || settled.find(name).is_some());
        }
        is_wanted
    }

    /// What is owed of the type, if anything is; an answer without contents counts.
    pub(crate) fn owed(&self, target: Target<'_>) -> Option<Owed> {
        let owed = self.subscription.owed(target.table(&self.resource_type));
        (self.is_answer_owed || self.awaited.is_some() || !owed.is_empty()).then_some(owed)
    }

    /// Takes as much of `owed` as fits into `max_bytes`, at least one thing, and marks it as sent.
    pub(crate) fn take_part(&mut self, mut owed: Owed, table: &Arc<TypeTable>, max_bytes: usize) -> Part {
        let mut rest = Owed::default();
        let mut budget = Budget { left: max_bytes, is_untouched: true };
        let n = owed.changed.iter().take_while(|r| budget.takes(r.n_bytes() + r.name().len())).count();
        rest.changed = owed.changed.split_off(n);
        for (names, rest) in [(&mut owed.missing, &mut rest.missing), (&mut owed.removed, &mut rest.removed)]
        {
            let n = names.iter().take_while(|name| budget.takes(name.len())).count();
            *rest = names.split_off(n);
        }
        self.settle_all_but(table, &rest);
        Part { sent: owed, is_whole: rest.is_empty() }
    }

    /// The client was sent everything of `table` but `rest`.
    pub(crate) fn settle_all_but(&mut self, table: &Arc<TypeTable>, rest: &Owed) {
        if rest.is_empty() {
            self.subscription.settle(table);
        } else {
            self.subscription.settle_part(table, rest);
        }
    }

    /// How long the client may go without a heartbeat: half of the shortest time to live that it was given.
    pub(crate) fn heartbeat_interval(&self, table: &TypeTable) -> Option<Duration> {
        if self.has(Quirk::NoHeartbeats) {
            return None;
        }
        let wanted = table.resources_with_ttl().filter(|resource| {
            self.subscription.covers(table, resource) || self.subscription.derives_from(table, resource)
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
        let wanted = self.subscription.wanted(table).into_iter();
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

/// The part of what is owed that one response takes.
pub(crate) struct Part {
    pub(crate) sent: Owed,
    pub(crate) is_whole: bool,
}

/// How much more fits into a response; the first thing always does.
struct Budget {
    left: usize,
    is_untouched: bool,
}

impl Budget {
    fn takes(&mut self, n_bytes: usize) -> bool {
        let left = self.left.checked_sub(n_bytes + ENTRY_OVERHEAD);
        let fits = left.is_some() || self.is_untouched;
        self.left = left.unwrap_or_default();
        self.is_untouched = false;
        fits
    }
}

/// Heartbeats are not sent more often, however short a time to live is.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::stream::Stream;

    /// What an idle stream costs, besides the names that it asked for: itself and this for each of its types, which are four to
    /// six. No copy of what it was sent is kept, only a reference to the table.
    #[test]
    fn an_idle_stream_is_small() {
        let sizes =
            [size_of::<Client>(), size_of::<Stream>(), size_of::<TypeState>(), size_of::<Subscription>()];
        assert!(sizes.iter().zip([256, 88, 320, 120]).all(|(size, limit)| *size <= limit), "{sizes:?}");
    }
}
