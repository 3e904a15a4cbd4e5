//! The responses of one type on one stream, by nonce.

use std::collections::VecDeque;

use xds_cache::status::Sent;
use xds_cache::{Name, Version};

use crate::request::Nonce;

/// The responses of one type on one stream that a request may answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Responses {
    /// The client has not answered these, oldest first.
    unanswered: VecDeque<Unanswered>,
    /// The last response, if the client answered it.
    answered: Option<Sent>,
}

/// A response that the client has not answered.
#[derive(Clone, Debug)]
struct Unanswered {
    sent: Sent,
    load: Load,
}

/// The resources in full that a response brought, and why. Empty for a complete list, whose table tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Sorted by name, each with the version that was sent.
    pub(crate) brought: Box<[(Name, Version)]>,
    /// All of them came in a rejected response before.
    pub(crate) is_trial: bool,
    /// The names in a short complete list, in its order: the client may ask for something else by now. Empty for a longer one.
    pub(crate) listed: Box<[Name]>,
}

/// How many resources of unanswered responses are remembered at least. The client rejects what is forgotten as a whole.
const MIN_BROUGHT: usize = 1024;

/// How many unanswered responses are remembered; answers to older ones count for nothing.
const MAX_UNANSWERED: usize = 256;

/// The response that the nonce of a request answers.
pub(crate) enum Answered {
    /// The last response.
    Last(Sent, Load),
    /// An older one.
    Older(Sent, Load),
    /// The last response, once more.
    Again(Sent),
    /// Nothing, or a response that no answer is expected for.
    Nothing,
}

impl Load {
    fn brings(&self, name: &Name, version: Version) -> bool {
        let position = self.brought.binary_search_by(|(brought, _)| brought.cmp(name));
        position.is_ok_and(|position| self.brought.get(position).is_some_and(|(_, of)| *of == version))
    }
}

impl Responses {
    /// Finds what a request's nonce answers. It is answered from now on.
    pub(crate) fn take(&mut self, nonce: Nonce) -> Answered {
        let Nonce::Ours(nonce) = nonce else { return Answered::Nothing };
        if self.unanswered.back().is_some_and(|last| last.sent.nonce == nonce)
            && let Some(last) = self.unanswered.pop_back()
        {
            // Answers come in the order of the responses, so no older one is expected.
            self.unanswered = VecDeque::new();
            return Answered::Last(self.answered.insert(last.sent).clone(), last.load);
        }
        if let Some(last) = self.answered.as_ref().filter(|last| last.nonce == nonce) {
            return Answered::Again(last.clone());
        }
        let position = self.unanswered.iter().position(|unanswered| unanswered.sent.nonce == nonce);
        let older = position.and_then(|position| self.unanswered.remove(position));
        older.map_or(Answered::Nothing, |older| Answered::Older(older.sent, older.load))
    }

    /// Adds a response that was made of a table of `n_served` resources, before it is handed out (pitfall 5).
    pub(crate) fn add(&mut self, sent: Sent, load: Load, n_served: usize) {
        self.answered = None;
        if self.unanswered.len() == MAX_UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(Unanswered { sent, load });
        let mut room = MIN_BROUGHT.max(2 * n_served);
        for unanswered in self.unanswered.iter_mut().rev() {
            match room.checked_sub(unanswered.load.brought.len()) {
                Some(rest) => room = rest,
                None => unanswered.load.brought = Box::default(),
            }
        }
    }

    /// Returns `true` if a response that is not answered yet brings this version of a resource.
    pub(crate) fn bring(&self, name: &Name, version: Version) -> bool {
        self.unanswered.iter().any(|unanswered| unanswered.load.brings(name, version))
    }

    /// Returns `true` if a response that is not answered yet brings a resource of this name in any version.
    pub(crate) fn bring_any(&self, name: &Name) -> bool {
        let has = |load: &Load| load.brought.binary_search_by(|(brought, _)| brought.cmp(name)).is_ok();
        self.unanswered.iter().any(|unanswered| has(&unanswered.load))
    }

    /// How many unanswered responses are trials.
    pub(crate) fn n_trials(&self) -> usize {
        self.unanswered.iter().filter(|unanswered| unanswered.load.is_trial).count()
    }

    /// The nonce of the last response, if the client answered it.
    pub(crate) fn last_answered(&self) -> Option<u64> {
        self.answered.as_ref().map(|last| last.nonce)
    }

    /// Returns `true` if every response was answered, so that none is on its way.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Returns `true` if nothing was sent yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.last().is_none()
    }

    /// Returns `true` if an unanswered response or the last one has this nonce.
    pub(crate) fn has(&self, nonce: Nonce) -> bool {
        let Nonce::Ours(nonce) = nonce else { return false };
        let unanswered = self.unanswered.iter().map(|unanswered| &unanswered.sent);
        unanswered.chain(&self.answered).any(|sent| sent.nonce == nonce)
    }

    /// How many are remembered besides the last.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_older(&self) -> usize {
        self.unanswered.len().saturating_sub(1)
    }

    fn last(&self) -> Option<&Sent> {
        self.unanswered.back().map(|unanswered| &unanswered.sent).or(self.answered.as_ref())
    }
}
