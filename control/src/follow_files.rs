//! The loop over the files that a server of a shared store watches: it proposes them for all servers when they are due.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use tokio::time::{Duration, Instant, sleep_until};
use xds_codec::Diagnostic;

use crate::accepted::ContentSum;
use crate::causes::chain;
use crate::control::Control;
use crate::key::FILES_HASH;
use crate::model::{
    Asked, EntityTags, FileLoad, ReloadOutcome, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome,
};
use crate::own_files::{OwnFiles, OwnState, SaveSet, Standing, Watched, standing};
use crate::{others, push};

/// What came of a look at the files.
struct Looked {
    state: OwnState,
    /// Why they are not served.
    reason: Option<String>,
    /// What the proposal changed.
    outcome: Option<WriteOutcome>,
    /// The store's failure, after which it is tried again.
    failure: Option<WriteError>,
    /// When to look again, if nothing happens before.
    again: Option<Instant>,
}

impl Looked {
    fn new(state: OwnState) -> Self {
        Self { state, reason: None, outcome: None, failure: None, again: None }
    }
}

impl Control {
    /// Sets which files this server had when they last settled, and how that is kept beyond a restart.
    pub fn remember_files(&self, settled: Option<String>, save: SaveSet) {
        let mut own = self.shared().own.lock().unwrap_or_else(PoisonError::into_inner);
        (own.settled, own.save) = (settled, Some(save));
    }

    /// Takes it that the files which this server is going to have follow those of the store.
    pub fn settle_files(&self) {
        let settled = self.store_set();
        self.shared().own.lock().unwrap_or_else(PoisonError::into_inner).settled = settled;
    }

    /// Proposes the files that this server watches when they are due. Ends if no other server shares the store; else never.
    pub async fn follow_files(self) {
        if !self.shares_store() {
            return;
        }
        let (mut watched, mut accepted) = (self.shared().watched.subscribe(), self.shared().watch());
        loop {
            let seen = accepted.borrow_and_update().contents;
            let own = watched.borrow_and_update().clone();
            self.note_store_set();
            let mut again = None;
            if let Some(own) = own {
                again = self.look_at_files(&own, Asked::ByNobody).await.again;
            }
            let again = async {
                match again {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                told = watched.changed() => if told.is_err() {
                    return;
                },
                told = async { accepted.wait_for(|now| now.contents != seen).await.map(drop) } => if told.is_err() {
                    return;
                },
                () = again => {}
            }
        }
    }

    /// Takes in the files that this server watches, if several servers share its store, and proposes them for all if they are due.
    ///
    /// # Errors
    ///
    /// If somebody asked, and the store does not take them.
    pub async fn take_watched(&self, load: FileLoad, asked: Asked) -> Result<ReloadOutcome, WriteError> {
        let known = self.shared().watched.borrow().clone();
        let nothing = (xds_cache::Layer::default(), crate::model::document::GroupedDocuments::new());
        let sum = match &known {
            Some(known) => {
                known.sum.changed((&known.load.layer, &known.load.documents), (&load.layer, &load.documents))
            }
            None => ContentSum::default().changed((&nothing.0, &nothing.1), (&load.layer, &load.documents)),
        };
        let own = Watched { load: Arc::new(load), sum, read_at: Instant::now() };
        self.note_store_set();
        let looked = self.look_at_files(&own, asked).await;
        let n_errors = errors(&own.load).count();
        self.shared().watched.send_replace(Some(own));
        if let Some(failure) = looked.failure.filter(|_| asked != Asked::ByNobody) {
            return Err(failure);
        }
        let outcome = looked.outcome;
        Ok(ReloadOutcome {
            revision: outcome.as_ref().map_or(self.overrides().0, |outcome| outcome.revision),
            difference: outcome.map(|outcome| outcome.difference).unwrap_or_default(),
            n_errors,
            unconfirmed: looked.reason.filter(|_| n_errors == 0),
        })
    }

    /// Remembers since when the store has its set.
    fn note_store_set(&self) {
        let store = self.store_set();
        let mut own = self.shared().own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.store.as_ref().is_none_or(|(known, _)| *known != store) {
            // What is there at the start was there before anything was read.
            own.store = Some((store, Instant::now()));
        }
    }

    /// The set of the store; `None` if it never had one.
    fn store_set(&self) -> Option<String> {
        let store = &*self.shared().env.parts.store;
        let has_one = store.state().1.contains_key(FILES_HASH) && !others::has_partial_files(store);
        has_one.then(|| self.shared_set()).flatten()
    }

    /// Looks at the files, and proposes them if they are due or confirmed.
    async fn look_at_files(&self, own: &Watched, asked: Asked) -> Looked {
        let looked = match errors(&own.load).next() {
            Some(_) => Looked::new(OwnState::Broken),
            None => self.decide(own, asked).await,
        };
        self.show(own, &looked);
        looked
    }

    async fn decide(&self, own: &Watched, asked: Asked) -> Looked {
        let set = own.sum.hash();
        for _ in 0..MAX_ATTEMPTS {
            let (store, tag) = (self.store_set(), self.shared().accepted().contents.hash());
            let found = {
                let memory = self.shared().own.lock().unwrap_or_else(PoisonError::into_inner);
                let is_late = memory.store.as_ref().is_some_and(|(_, since)| own.read_at < *since);
                let is_over = |set: &str| is_late || push::was_applied(&*self.shared().env.parts.store, set);
                standing(&set, memory.settled.as_deref(), store.as_deref(), is_over)
            };
            let is_confirmed = asked == Asked::Confirmed;
            let due = own.read_at + PATIENCE;
            match found {
                Standing::Same => {
                    self.settle(&set);
                    return Looked::new(OwnState::Applied);
                }
                Standing::Older if !is_confirmed => {
                    self.settle(&set);
                    let reason = "the servers have newer files than this server watches, or files that were given in their place";
                    return Looked { reason: Some(confirm(reason)), ..Looked::new(OwnState::Behind) };
                }
                Standing::Unheard if !is_confirmed && Instant::now() < due => {
                    let reason = format!(
                        "other servers may have newer files than this one, so it waits {} s before it proposes these",
                        PATIENCE.as_secs()
                    );
                    let (reason, again) = (Some(confirm(&reason)), Some(due));
                    return Looked { reason, again, ..Looked::new(OwnState::Ahead) };
                }
                Standing::Newer | Standing::Unheard | Standing::Older => {}
            }
            let write = Write::ReplaceFiles { load: Box::new((*own.load).clone()), is_confirmed };
            let if_match = Some(EntityTags::OneOf(vec![tag]));
            // Without files, nobody is served anything that could change in waves.
            let is_loaded = self.shared().accepted().is_loaded;
            let waves = if is_loaded { WaveChoice::default() } else { WaveChoice::AtOnce };
            let options =
                WriteOptions { actor: "files".to_owned(), if_match, waves, ..WriteOptions::default() };
            match self.write(write, options).await {
                Ok(outcome) => {
                    self.settle(&set);
                    return Looked { outcome: Some(outcome), ..Looked::new(OwnState::Applied) };
                }
                // Another server was faster.
                Err(WriteError::PreconditionFailed { .. }) => {}
                Err(error @ (WriteError::Store(_) | WriteError::Busy | WriteError::Closed)) => {
                    let (reason, again) = (Some(chain(&error)), Some(Instant::now() + RETRY));
                    return Looked { reason, again, failure: Some(error), ..Looked::new(OwnState::Ahead) };
                }
                Err(WriteError::Unconfirmed(reason)) => {
                    let reason = Some(confirm(&reason));
                    let again = Some(Instant::now() + LATER);
                    return Looked { reason, again, ..Looked::new(OwnState::Differs) };
                }
                Err(error) => {
                    let (reason, again) = (Some(refusal(&error)), Some(Instant::now() + LATER));
                    return Looked { reason, again, ..Looked::new(OwnState::Differs) };
                }
            }
        }
        Looked { again: Some(Instant::now() + RETRY), ..Looked::new(OwnState::Ahead) }
    }

    /// Remembers what the files are now.
    fn settle(&self, set: &str) {
        let mut own = self.shared().own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.settled.as_deref() != Some(set) {
            own.settled = Some(set.to_owned());
            if let Some(save) = &own.save {
                save(set);
            }
        }
    }

    fn show(&self, own: &Watched, looked: &Looked) {
        let (set, state) = (own.sum.hash(), looked.state);
        let mut memory = self.shared().own.lock().unwrap_or_else(PoisonError::into_inner);
        let known = memory.shown.as_ref().filter(|known| known.set == set && known.state == state);
        let since = known.map_or_else(SystemTime::now, |known| known.since);
        if known.is_none() {
            let (state, reason) = (state.as_str(), looked.reason.as_deref().unwrap_or_default());
            tracing::info!(set, state, reason, "the watched files");
        }
        let errors = errors(&own.load).take(OwnFiles::MAX_ERRORS).cloned().collect();
        memory.shown = Some(OwnFiles { set, state, since, reason: looked.reason.clone(), errors });
    }
}

fn errors(load: &FileLoad) -> impl Iterator<Item = &Diagnostic> {
    load.files.values().flat_map(|file| &file.diagnostics).filter(|one| one.is_error())
}

fn confirm(reason: &str) -> String {
    format!("{reason}; POST /v1/reload?confirm=true proposes what is there")
}

/// An error with what it is about.
fn refusal(error: &WriteError) -> String {
    let WriteError::Invalid(faults) = error else { return chain(error) };
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    match faults.len().saturating_sub(1) {
        0 => first,
        n_more => format!("{first}, and {n_more} more errors"),
    }
}

/// How long a set waits that no server has had, though the store has moved on meanwhile: for pulls of other servers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long after a failure of the store files are proposed again.
const RETRY: Duration = Duration::from_secs(5);
/// How long after a refusal, which a change of the API's objects may end.
const LATER: Duration = Duration::from_secs(60);
/// Sets of other servers that come in between.
const MAX_ATTEMPTS: usize = 4;
