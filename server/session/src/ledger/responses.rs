//! The responses of one type on one stream, by nonce.

use std::collections::VecDeque;

use xds_cache::status::Sent;

use crate::request::Nonce;

/// The responses of one type on one stream that a request may answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Responses {
    /// The client has not answered these, oldest first.
    unanswered: VecDeque<Sent>,
    /// The last response, if the client answered it.
    answered: Option<Sent>,
    /// The nonce of the first response of a series. A series has the parts that the client was owed at one time; the last part is
    /// final.
    series: u64,
    /// The client rejected a part of the series.
    is_series_rejected: bool,
}

/// How many unanswered responses are remembered; answers to older ones count for nothing.
const MAX_UNANSWERED: usize = 256;

/// The response that the nonce of a request answers.
pub(crate) enum Answered {
    /// The last response.
    Last(Sent),
    /// An older one.
    Older(Sent),
    /// The last response, once more.
    Again(Sent),
    /// Nothing, or a response that no answer is expected for.
    Nothing,
}

impl Responses {
    /// Finds what a request's nonce answers. It is answered from now on.
    pub(crate) fn take(&mut self, nonce: Nonce) -> Answered {
        let Nonce::Ours(nonce) = nonce else { return Answered::Nothing };
        if let Some(last) = self.unanswered.back().filter(|last| last.nonce == nonce).cloned() {
            // Answers come in the order of the responses, so no older one is expected.
            self.unanswered = VecDeque::new();
            return Answered::Last(self.answered.insert(last).clone());
        }
        if let Some(last) = self.answered.as_ref().filter(|last| last.nonce == nonce) {
            return Answered::Again(last.clone());
        }
        let position = self.unanswered.iter().position(|sent| sent.nonce == nonce);
        position
            .and_then(|position| self.unanswered.remove(position))
            .map_or(Answered::Nothing, Answered::Older)
    }

    /// Adds a response that was made, before it is handed out (pitfall 5).
    pub(crate) fn add(&mut self, sent: Sent) {
        if self.last().is_none_or(|last| last.is_final) {
            self.series = sent.nonce;
            self.is_series_rejected = false;
        }
        self.answered = None;
        if self.unanswered.len() == MAX_UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(sent);
    }

    /// Returns `true` if an ACK of this response is worth nothing, because another part of its series was rejected: the client has not
    /// accepted what it was owed.
    pub(crate) fn is_rejected(&self, sent: &Sent) -> bool {
        self.is_series_rejected && self.is_of_series(sent)
    }

    /// The client rejected this response.
    pub(crate) fn reject(&mut self, sent: &Sent) {
        self.is_series_rejected |= self.is_of_series(sent);
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
        self.unanswered.iter().chain(&self.answered).any(|sent| sent.nonce == nonce)
    }

    /// How many are remembered besides the last.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_older(&self) -> usize {
        self.unanswered.len().saturating_sub(1)
    }

    fn last(&self) -> Option<&Sent> {
        self.unanswered.back().or(self.answered.as_ref())
    }

    fn is_of_series(&self, sent: &Sent) -> bool {
        sent.nonce.wrapping_sub(self.series) < u64::MAX / 2
    }
}
