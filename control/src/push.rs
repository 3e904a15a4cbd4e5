//! Candidates of pushes: other files for a store that several servers share.

use std::sync::Arc;

use bytes::Bytes;
use xds_codec::Diagnostic;
use xds_store::Store;

use crate::accepted::{Accepted, Base, Files};
use crate::candidate::{Candidate, NewFiles};
use crate::env::Env;
use crate::key::{FILE_SETS, StoreKey};
use crate::mass_removal::mass_removal;
use crate::model::document::what;
use crate::model::{ChangeSource, FileLoad, WriteError};
use crate::plan::Plan;
use crate::shared_files;
use crate::stored_files::{equal_documents, equal_overrides, summary};

/// The candidate that puts a set of files in place of that of the store; it changes nothing if both say the same.
///
/// # Errors
///
/// [`WriteError::Invalid`] with the errors of the files, [`WriteError::Unconfirmed`], and [`WriteError::OwnFiles`] if the store is this
/// server's alone.
pub(crate) fn candidate(
    env: &Env,
    accepted: &Accepted,
    load: &FileLoad,
    is_confirmed: bool,
) -> Result<Candidate, WriteError> {
    if !env.shares_store() {
        return Err(WriteError::OwnFiles);
    }
    let found = load.files.values().flat_map(|file| &file.diagnostics);
    let (errors, warnings): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        found.partition(|diagnostic| diagnostic.is_error());
    if !errors.is_empty() {
        return Err(WriteError::Invalid(errors.into_iter().take(MAX_FOUND).cloned().collect()));
    }
    let warnings = warnings.into_iter().take(MAX_FOUND).cloned().collect();
    let candidate = Candidate { warnings, source: ChangeSource::File, ..Candidate::default() };
    let after = Base { layer: Arc::new(load.layer.clone()), documents: Arc::clone(&load.documents) };
    let plan =
        shared_files::plan(&env.parts.codec, accepted, (&after, &load.files), &env.parts.store.state().1);
    if plan.is_empty() {
        return Ok(candidate);
    }
    let removed = |limit| mass_removal(&accepted.base, &accepted.documents.files, &after, limit);
    if let Some(reason) = env.options.hold_mass_removal.filter(|_| !is_confirmed).and_then(removed) {
        return Err(WriteError::Unconfirmed(reason));
    }
    Ok(with_files(env, candidate, accepted, (&after, &load.files), plan))
}

/// Returns `true` for a set of files that the store had before, by its hash. The last [`MAX_SETS`] are known.
pub(crate) fn was_applied(store: &dyn Store, set: &str) -> bool {
    sets(store).iter().any(|known| known == set)
}

/// The sets that the store had, the oldest first; none if they cannot be read.
fn sets(store: &dyn Store) -> Vec<String> {
    let stored = store.state().1.get(FILE_SETS).and_then(|hash| store.blob(*hash).ok()?);
    stored.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default()
}

fn with_files(
    env: &Env,
    candidate: Candidate,
    accepted: &Accepted,
    (after, files): (&Base, &Files),
    mut plan: Plan,
) -> Candidate {
    let before = accepted.files_say();
    let base = match env.options.is_relay {
        // It is the one before, with what changed.
        true => after.clone(),
        false => shared_files::onto(&before, after),
    };
    let contents = accepted.contents.changed(before.parts(), base.parts());
    let objects: Plan = plan.iter().filter(|(key, _)| key.is_of_file()).cloned().collect();
    let (patch, mut equal) = equal_overrides(accepted, &base.layer, &objects);
    let documents = equal_documents(accepted, &base.documents, &objects);
    equal.extend(documents.keys().map(what));
    let hash = contents.hash();
    let mut sets = sets(&*env.parts.store);
    sets.retain(|known| *known != hash);
    sets.push(hash.clone());
    sets.drain(..sets.len().saturating_sub(MAX_SETS));
    // Texts always have a JSON form.
    plan.push((StoreKey::FileSets, Some(serde_json::to_vec(&sets).unwrap_or_default().into())));
    plan.push((StoreKey::FilesHash, Some(Bytes::from(hash))));
    let files = Arc::new(shared_files::as_stored(accepted, files));
    let files = NewFiles { base, contents, files, plan, equal };
    Candidate { patch, documents, files: Some(files), summary: summary(&objects), ..candidate }
}

/// The sets that are remembered: months of changes, in 20 KB.
const MAX_SETS: usize = 1_000;

/// Errors, or warnings, that an answer tells.
const MAX_FOUND: usize = 1_000;
