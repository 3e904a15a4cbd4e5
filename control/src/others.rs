//! Proposals for commits of other servers to the same store, and for the contents of the store at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup, Revision};
use xds_routes::DocumentKey;
use xds_store::{State, Store, StoreError};

use crate::accepted::{Accepted, Recorded};
use crate::differing::differing;
use crate::documents::{self, Said, Terms};
use crate::env::{At, Env, revision_of, stored_revision};
use crate::key::{CONTENTS, ENDED, FILE_SETS, below};
use crate::model::document::{DocumentState, GroupedDocument};
use crate::model::{ChangeSource, WriteError};
use crate::plan::Patch;
use crate::shared_files::{self, SharedFiles};
use crate::stored_overrides::{self, Known};
use crate::stored_statuses::StoredStatuses;
use crate::transition::{Label, Note, Outcome, ProblemSubject, Transition};
use crate::wave::ended::Ended;
use crate::wave::{former, record};
use crate::withhold::Secrets;

/// Reads what the store holds. A store that servers share holds the files' part too, and no other does.
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
    let shared = match env.shares_store() {
        true => shared_files::read(codec, store, &keys)?,
        false => SharedFiles::default(),
    };
    for problem in shared.unreadable.values() {
        tracing::error!(problem, "stored record left out");
    }
    let SharedFiles { base, files, unreadable } = shared;
    stored.unreadable.extend(unreadable);
    let options = Arc::new(env.options.routes.clone());
    let nothing = DocumentState { options, ..DocumentState::default() };
    let said = Said {
        files: Arc::clone(&base.documents),
        owned: Arc::new(std::mem::take(&mut stored.documents)),
        weights: Arc::new(std::mem::take(&mut stored.weights)),
    };
    let stored_statuses = Arc::new(StoredStatuses::read(store, &keys)?);
    let layers = [Arc::clone(&base.layer), Arc::new(stored.overrides.clone())];
    let defines =
        |name: &GroupName| layers.iter().find_map(|layer| layer.groups.get(name)?.definition.as_ref());
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
        (base, files),
        documents,
        Arc::clone(&stored_statuses),
    );
    let (mut accepted, note) = with_wave(env, accepted, &keys, at)?;
    if env.shares_store() {
        accepted.recorded = Recorded::Yes;
    }
    accepted.ended = Arc::new(Ended::read(store, &keys, &Ended::default())?);
    accepted.former = former::former(&accepted, terms).unwrap_or_default();
    Ok((accepted, note))
}

/// Returns `true` if a server that shared nothing recorded the files in the store. It left out what is secret, so they cannot be served.
pub(crate) fn has_partial_files(store: &dyn Store) -> bool {
    let keys = store.state().1;
    !keys.contains_key(FILE_SETS) && CONTENTS.into_iter().any(|prefix| below(&keys, prefix).next().is_some())
}

/// Returns `true` if the store has files, whole; also none, if there ever were some.
pub(crate) fn has_files(store: &dyn Store) -> bool {
    store.state().1.contains_key(FILE_SETS)
}

/// The stored state is served.
pub(crate) fn first(accepted: &Accepted) -> Transition {
    let next = Accepted { is_loaded: true, stored_statuses: Arc::default(), ..accepted.clone() };
    let label = Label::new("", ChangeSource::Store, "the stored state".to_owned());
    Transition { is_published: true, label, ..Transition::quiet(next, Outcome::Done) }
}

/// The proposal from the present contents of the store. It costs what the commits since the accepted revision changed, unless these are
/// no longer kept.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) fn propose(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    let failed = |error: StoreError| WriteError::Store(Arc::new(error.into()));
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    let (revision, keys) = store.state();
    let changed = Changed::since(store, accepted.revision, revision_of(revision), &keys).map_err(failed)?;
    let known = Known {
        overrides: &accepted.overrides,
        documents: &accepted.documents.owned,
        weights: &accepted.documents.weights,
        rollouts: &accepted.rollouts,
        unreadable: &accepted.unreadable,
    };
    let stored = match &changed {
        Changed::Keys(changed) => stored_overrides::read_changed(codec, store, &keys, known, changed),
        Changed::All => stored_overrides::read(codec, store, &keys, Some(known)),
    };
    let mut stored = stored.map_err(failed)?;
    let shared = shared_of(env, accepted, &changed, &keys).map_err(failed)?;
    stored.unreadable.extend(shared.unreadable);
    let (base, files) = (shared.base, shared.files);
    let (before, after) = (&accepted.overrides.groups, &stored.overrides.groups);
    let patch: Patch =
        differing(before, after).map(|(name, _, group)| (name.clone(), group.cloned())).collect();
    let source = |one: &GroupedDocument| Arc::clone(&one.document.source);
    let news: BTreeSet<&DocumentKey> = differing(&accepted.documents.owned, &stored.documents)
        .chain(differing(&accepted.documents.files, &base.documents))
        .filter(|(_, before, after)| before.map(source) != after.map(source))
        .map(|(key, _, _)| key)
        .collect();
    let stored_statuses = StoredStatuses::of(store, &keys, news).map_err(failed)?;
    let said = Said {
        files: Arc::clone(&base.documents),
        owned: Arc::new(stored.documents),
        weights: accepted.same_weights(stored.weights),
    };
    let withholds = accepted.withholds(&base.layer, &patch);
    let terms = Terms::awaited((codec, &stored_statuses), at.wall, &withholds);
    let documents = documents::next(&accepted.documents, said, terms)?;
    let groups = accepted.rebased(codec, &base.layer, &patch, &documents);
    let contents = accepted.contents.changed(accepted.files_say().parts(), base.parts());
    let next = Accepted {
        revision: revision_of(revision),
        base: Arc::clone(&base.layer),
        contents,
        files,
        overrides: Arc::new(stored.overrides),
        documents,
        rollouts: Arc::new(stored.rollouts),
        unreadable: Arc::new(stored.unreadable),
        groups,
        ..accepted.clone()
    };
    let (mut next, notes) = match changed.concerns_waves(store, accepted.revision, &keys) {
        true => {
            let (next, note) = with_wave(env, next, &keys, at).map_err(failed)?;
            (next, vec![note])
        }
        false => (next, vec![]),
    };
    if changed.concerns_ended() {
        next.ended = Arc::new(Ended::read(store, &keys, &accepted.ended).map_err(failed)?);
    }
    next.former = former::former(&next, terms)?;
    let label = Label::new("", ChangeSource::Store, "what another server committed".to_owned());
    // Another server may have given whole files to a store that had none.
    next.is_loaded |= env.shares_store() && !has_partial_files(store);
    let is_published = next.is_loaded;
    Ok(Transition { is_published, label, notes, ..Transition::quiet(next, Outcome::Done) })
}

/// The files' part of the store after a change.
fn shared_of(
    env: &Env,
    accepted: &Accepted,
    changed: &Changed,
    keys: &State,
) -> Result<SharedFiles, StoreError> {
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    let known = SharedFiles { unreadable: BTreeMap::new(), ..SharedFiles::of(accepted) };
    match changed {
        Changed::Keys(_) | Changed::All if !env.shares_store() => Ok(known),
        Changed::Keys(changed) => shared_files::read_changed((codec, store), keys, known, changed),
        Changed::All => shared_files::read(codec, store, keys),
    }
}

/// The state with the stored wave deployment. One that cannot be read is a problem, and its change reaches everyone.
fn with_wave(env: &Env, accepted: Accepted, keys: &State, at: At) -> Result<(Accepted, Note), StoreError> {
    let (codec, store, is_shared) = (&env.parts.codec, &*env.parts.store, env.shares_store());
    let (stored, note) = match record::read(codec, store, keys, is_shared, at)? {
        Ok(stored) => (stored, Note::solved(ProblemSubject::WaveRecord)),
        Err(reason) => {
            let problem = format!("the stored wave deployment cannot be read: {reason}");
            (None, Note::problem(ProblemSubject::WaveRecord, problem))
        }
    };
    Ok((Accepted { wave: stored.map(Arc::new), ..accepted }, note))
}

/// This server begins to drive the wave deployment that is under way: it is read anew, so that no time passed that nobody watched.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) fn take_over(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    let failed = |error: StoreError| WriteError::Store(Arc::new(error.into()));
    let (next, note) = with_wave(env, accepted.clone(), &env.parts.store.state().1, at).map_err(failed)?;
    Ok(Transition { notes: vec![note], ..Transition::quiet(next, Outcome::Done) })
}

/// What commits of other servers have changed in the store.
#[derive(Debug)]
enum Changed {
    /// The values of these keys.
    Keys(BTreeSet<String>),
    /// Nobody knows, or about everything.
    All,
}

impl Changed {
    /// What the commits after a revision have changed, up to a state.
    fn since(store: &dyn Store, known: Revision, head: Revision, keys: &State) -> Result<Self, StoreError> {
        let mut changed = BTreeSet::new();
        if head <= known {
            return Ok(Self::All);
        }
        for revision in known.0 + 1..=head.0 {
            let Some(record) = store.record(stored_revision(Revision(revision)))? else {
                return Ok(Self::All);
            };
            changed.extend(record.commit.changes.into_iter().map(|change| change.key));
            if changed.len() > keys.len() {
                return Ok(Self::All);
            }
        }
        Ok(Self::Keys(changed))
    }

    /// Returns `true` if the stored wave deployment may differ from that of the accepted revision. While it does not, what is known of
    /// its progress stays.
    fn concerns_waves(&self, store: &dyn Store, known: Revision, keys: &State) -> bool {
        match self {
            Self::Keys(changed) => changed.iter().any(|text| record::is_part(text)),
            Self::All => {
                let before = store.state_at(stored_revision(known));
                before.map_or(true, |before| record::parts(&before).ne(record::parts(keys)))
            }
        }
    }

    fn concerns_ended(&self) -> bool {
        match self {
            Self::Keys(changed) => changed.iter().any(|text| text.starts_with(ENDED)),
            Self::All => true,
        }
    }
}

/// Returns `true` if the accepted state is that of the store.
pub(crate) fn is_current(env: &Env, revision: Revision) -> bool {
    revision_of(env.parts.store.head()) == revision
}
