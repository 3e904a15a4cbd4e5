//! Proposals for commits of other servers to the same store, and for the contents of the store at the start.

use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup, Revision};
use xds_routes::DocumentKey;
use xds_store::{State, StoreError};

use crate::accepted::Accepted;
use crate::documents::{self, Said, Terms};
use crate::env::{At, Env, revision_of};
use crate::model::document::{DocumentState, GroupedDocuments};
use crate::model::{ChangeSource, WriteError};
use crate::plan::Patch;
use crate::stored_overrides;
use crate::stored_statuses::StoredStatuses;
use crate::transition::{Label, Note, Outcome, ProblemSubject, Transition};
use crate::wave::ended::Ended;
use crate::wave::{former, record};
use crate::withhold::Secrets;

/// Reads what the store holds, without any files.
///
/// # Errors
///
/// If the store cannot be read at all. A single bad record is reported in the accepted state.
pub(crate) fn open(env: &Env, at: At) -> Result<(Accepted, Note), StoreError> {
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    let (revision, keys) = store.state();
    let mut stored = stored_overrides::read(codec, store, &keys, None)?;
    for problem in stored.unreadable.values() {
        tracing::error!(problem, "stored record left out");
    }
    let options = Arc::new(env.options.routes.clone());
    let nothing = DocumentState { options, ..DocumentState::default() };
    let said = Said {
        files: Arc::default(),
        owned: Arc::new(std::mem::take(&mut stored.documents)),
        weights: Arc::new(std::mem::take(&mut stored.weights)),
    };
    let stored_statuses = Arc::new(StoredStatuses::read(store, &keys, |_| true)?);
    let overrides = stored.overrides.clone();
    let defines = |name: &GroupName| overrides.groups.get(name)?.definition.as_ref();
    let guarding = env.options.guarding;
    let withholds = |name: &GroupName| {
        guarding.secrets == Secrets::Identified && !defines(name).is_some_and(NodeGroup::is_guarded)
    };
    let terms = Terms::awaited((codec, &stored_statuses), at.wall, &withholds);
    // Nobody stops it.
    let documents = documents::next(&nothing, said, terms).unwrap_or(nothing);
    let accepted = Accepted::of_store(
        (codec, guarding),
        revision_of(revision),
        stored,
        documents,
        Arc::clone(&stored_statuses),
    );
    let (mut accepted, note) = with_wave(env, accepted, &keys, at)?;
    accepted.former = former::former(&accepted, terms).unwrap_or_default();
    Ok((accepted, note))
}

/// The accepted state without files is served.
pub(crate) fn first(accepted: &Accepted) -> Transition {
    let next = Accepted { is_loaded: true, stored_statuses: Arc::default(), ..accepted.clone() };
    let label = Label::new("", ChangeSource::Store, "the stored state".to_owned());
    Transition { is_published: true, label, ..Transition::quiet(next, Outcome::Done) }
}

/// The proposal from the present contents of the store.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) fn propose(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    let failed = |error: StoreError| WriteError::Store(Arc::new(error.into()));
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    let (revision, keys) = store.state();
    let last_good = Some((&*accepted.overrides, &*accepted.documents.owned));
    let stored = stored_overrides::read(codec, store, &keys, last_good).map_err(failed)?;
    let (before, after) = (&accepted.overrides.groups, &stored.overrides.groups);
    let changed = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
    let patch: Patch = changed.map(|name| (name.clone(), after.get(name).cloned())).collect();
    let owned = Arc::new(stored.documents);
    let is_news = |key: &DocumentKey| {
        let said =
            |documents: &GroupedDocuments| documents.get(key).map(|one| Arc::clone(&one.document.source));
        said(&owned) != said(&accepted.documents.owned)
    };
    let stored_statuses = StoredStatuses::read(store, &keys, is_news).map_err(failed)?;
    let said = Said {
        files: Arc::clone(&accepted.documents.files),
        owned: Arc::clone(&owned),
        weights: Arc::new(stored.weights),
    };
    let withholds = accepted.withholds(&accepted.base, &patch);
    let terms = Terms::awaited((codec, &stored_statuses), at.wall, &withholds);
    let documents = documents::next(&accepted.documents, said, terms)?;
    let groups = accepted.patched(codec, &accepted.base, &patch, &documents);
    let next = Accepted {
        revision: revision_of(revision),
        overrides: Arc::new(stored.overrides),
        documents,
        rollouts: Arc::new(stored.rollouts),
        unreadable: Arc::new(stored.unreadable),
        groups,
        ..accepted.clone()
    };
    let (mut next, note) = with_wave(env, next, &keys, at).map_err(failed)?;
    next.former = former::former(&next, terms)?;
    let label = Label::new("", ChangeSource::Store, "what another server committed".to_owned());
    let is_published = accepted.is_loaded;
    Ok(Transition { is_published, label, notes: vec![note], ..Transition::quiet(next, Outcome::Done) })
}

/// The state with the stored wave deployment, unless it is the known one, and with the ended ones. A wave deployment that cannot be
/// read is a problem, and its change reaches everyone.
fn with_wave(env: &Env, accepted: Accepted, keys: &State, at: At) -> Result<(Accepted, Note), StoreError> {
    let store = &*env.parts.store;
    let (stored, note) = match record::read(&env.parts.codec, store, keys, at)? {
        Ok(stored) => (stored, Note::solved(ProblemSubject::WaveRecord)),
        Err(reason) => {
            let problem = format!("the stored wave deployment cannot be read: {reason}");
            (None, Note::problem(ProblemSubject::WaveRecord, problem))
        }
    };
    let ended = Arc::new(Ended::read(store, keys)?);
    let known = accepted.wave.as_ref().zip(stored.as_ref());
    let is_known =
        known.is_some_and(|(known, stored)| stored.id == known.id && stored.reached == known.reached);
    let wave = if is_known { accepted.wave.clone() } else { stored.map(Arc::new) };
    Ok((Accepted { wave, ended, ..accepted }, note))
}

/// Returns `true` if the accepted state is that of the store.
pub(crate) fn is_current(env: &Env, revision: Revision) -> bool {
    revision_of(env.parts.store.head()) == revision
}
