//! Other states than the present one: what was accepted at an older revision, what other files would lead to, and both sides of a
//! wave deployment.
//!
//! An older revision is rebuilt from what the store keeps. The present state is taken back key by key, so the cost follows the
//! difference between the two revisions. The store keeps objects of files that hold secrets without their contents, and no contents of
//! a load that was too large for the history. Both are said.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Groups, Layer, Resource, Revision};
use xds_codec::Codec;
use xds_routes::{Bounds, Purpose};
use xds_store::{BlobHash, State, Store};

use crate::accepted::{Accepted, Base, Recorded};
use crate::differing::differing;
use crate::documents::{self, DocumentPatch, Said, Terms};
use crate::env::{At, Env};
use crate::key::{StoreKey, Subject};
use crate::model::WriteError;
use crate::model::document::{DocumentState, GroupedDocument, content_hash};
use crate::plan::Patch;
use crate::stored_files::{has_contents, version_of_content};
use crate::wave::former;
use crate::{history, load, requests, resource_record, stored_overrides, weights};

/// Everything that is accepted, was, or would be.
#[derive(Clone, Debug)]
pub struct WholeState {
    /// The revision that it is of, or that it would follow.
    pub revision: Revision,
    /// The groups.
    pub groups: Groups,
    /// The documents, and the resources generated from them.
    pub documents: DocumentState,
    /// Objects whose contents at that revision are not kept, with the reason: at most [`MAX_GAPS`](Self::MAX_GAPS).
    pub gaps: Vec<String>,
}

impl<'a> From<&'a WholeState> for requests::State<'a> {
    fn from(whole: &'a WholeState) -> Self {
        Self { groups: &whole.groups, documents: &whole.documents.translated.documents }
    }
}

impl WholeState {
    /// How many objects whose contents are not kept are named.
    pub const MAX_GAPS: usize = 20;
}

/// The API's part and the files, on the way from one revision to another.
struct Rewound<'a> {
    env: &'a Env,
    base: Base,
    overrides: Layer,
    documents: DocumentState,
    gaps: BTreeSet<String>,
}

/// The state that was accepted at `revision`, with everything that a wave deployment had not given to all nodes yet. `goes_on` returns `true` while a caller waits.
///
/// # Errors
///
/// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision, [`WriteError::Incomplete`] if the contents of its
/// files are not kept, and [`WriteError::Stopped`].
pub(crate) fn at(
    env: &Env,
    accepted: &Accepted,
    revision: Revision,
    goes_on: &dyn Fn() -> bool,
) -> Result<WholeState, WriteError> {
    let Accepted { groups, documents, .. } = accepted;
    if revision == accepted.revision {
        let (groups, documents) = (groups.clone(), documents.clone());
        return Ok(WholeState { revision, groups, documents, gaps: Vec::new() });
    }
    let store = &*env.parts.store;
    let (past, mut present) =
        (history::state_at(store, revision)?, history::state_at(store, accepted.revision)?);
    if !has_contents(store, &past) {
        return Err(WriteError::Incomplete { revision });
    }
    let mut base = accepted.files_say();
    if accepted.recorded != Recorded::Yes || !has_contents(store, &present) {
        base = Base::default();
        let is_of_api =
            |(key, _): &(Arc<str>, BlobHash)| StoreKey::parse(key).is_none_or(|key| !key.is_of_file());
        present = present.into_iter().filter(is_of_api).collect();
    }
    let (overrides, documents) = (Layer::clone(&accepted.overrides), documents.clone());
    let mut rewound = Rewound { env, base, overrides, documents, gaps: BTreeSet::new() };
    rewound.rewind(store, accepted, &present, &past)?;
    let Rewound { base, overrides, documents, gaps, .. } = rewound;
    let changed = differing(&accepted.overrides.groups, &overrides.groups);
    let patch: Patch = changed.map(|(name, _, group)| (name.clone(), group.cloned())).collect();
    let withholds = accepted.withholds(&base.layer, &patch);
    let terms = Terms {
        bounds: Bounds { goes_on, purpose: Purpose::Trial },
        ..Terms::awaited((&env.parts.codec, &accepted.stored_statuses), At::now().wall, &withholds)
    };
    let DocumentState { owned, weights, .. } = documents;
    let said = Said { files: base.documents, owned, weights };
    let documents = documents::next(&accepted.documents, said, terms)?;
    let groups = accepted.rebased(&env.parts.codec, &base.layer, &patch, &documents);
    let n_more = gaps.len().saturating_sub(WholeState::MAX_GAPS);
    let mut gaps: Vec<String> = gaps.into_iter().take(WholeState::MAX_GAPS).collect();
    gaps.extend((n_more > 0).then(|| format!("and {n_more} more objects")));
    Ok(WholeState { revision, groups, documents, gaps })
}

/// The state that the watched files would lead to if they had these contents: below the API's part, and with the change of a wave
/// deployment. `goes_on` returns `true` while a caller waits.
///
/// # Errors
///
/// [`WriteError::Stopped`].
pub(crate) fn with_files(
    env: &Env,
    accepted: &Accepted,
    base: &Base,
    goes_on: &dyn Fn() -> bool,
) -> Result<WholeState, WriteError> {
    let (nothing, no_documents) = (Patch::new(), DocumentPatch::new());
    let withholds = accepted.withholds(&base.layer, &nothing);
    let terms = Terms {
        bounds: Bounds { goes_on, purpose: Purpose::Trial },
        ..Terms::awaited((&env.parts.codec, &accepted.stored_statuses), At::now().wall, &withholds)
    };
    let (documents, groups, _) =
        load::given(accepted, base, (&nothing, &no_documents), &accepted.resting(), terms)?;
    Ok(WholeState { revision: accepted.revision, groups, documents, gaps: Vec::new() })
}

/// The states without and with the change of the wave deployment that is under way; `None` if there is none with this id.
pub(crate) fn sides(codec: &Codec, accepted: &Accepted, deployment: u64) -> Option<[WholeState; 2]> {
    accepted.wave.as_ref().filter(|wave| wave.id == deployment)?;
    let mut ahead = accepted.groups.clone();
    let behind = former::behind(codec, accepted, &mut ahead)?;
    let side = |groups: Groups, documents: &DocumentState| WholeState {
        revision: accepted.revision,
        groups,
        documents: documents.clone(),
        gaps: Vec::new(),
    };
    Some([side(behind.groups, accepted.former_documents()), side(ahead, &accepted.documents)])
}

impl Rewound<'_> {
    fn rewind(
        &mut self,
        store: &dyn Store,
        accepted: &Accepted,
        present: &State,
        past: &State,
    ) -> Result<(), WriteError> {
        for (text, _, hash) in differing(present, past) {
            let Some(key) = StoreKey::parse(text) else { continue };
            let value = hash.map(|hash| value(store, *hash)).transpose()?;
            let done = match value {
                Some(None) => Err("its contents are no longer kept".to_owned()),
                Some(Some(value)) => self.put(&key, &value),
                None => {
                    self.remove(&key);
                    Ok(())
                }
            };
            if let Err(reason) = done {
                self.leave(accepted, &key, &reason);
            }
        }
        Ok(())
    }

    /// Gives a key its former value.
    fn put(&mut self, key: &StoreKey, value: &Bytes) -> Result<(), String> {
        let codec = &self.env.parts.codec;
        let secret = || match version_of_content(value) {
            Some(_) => "it holds a secret, so its contents are not kept".to_owned(),
            None => "its contents cannot be read".to_owned(),
        };
        match key {
            StoreKey::Document(name) => {
                let document = documents::read_record(name, value)?;
                Arc::make_mut(&mut self.documents.owned).insert(name.clone(), document);
            }
            StoreKey::Weights(rule) => {
                let over = weights::read_record(value)?;
                Arc::make_mut(&mut self.documents.weights).insert(rule.clone(), over);
            }
            StoreKey::FileDocument(name) => {
                let is_present = |document: &&GroupedDocument| {
                    version_of_content(value) == Some(content_hash(&document.document, &document.group))
                };
                if self.base.documents.get(name).filter(is_present).is_none() {
                    let document = documents::read_record(name, value).map_err(|_| secret())?;
                    Arc::make_mut(&mut self.base.documents).insert(name.clone(), document);
                }
            }
            StoreKey::File(group, name) => {
                let present = self.base.layer.resources(group).and_then(|resources| resources.get(name));
                let is_present = |resource: &&Arc<Resource>| {
                    version_of_content(value) == Some(resource.version().to_string())
                };
                if present.filter(is_present).is_none() {
                    let resource = resource_record::read(value).map_err(|_| secret())?;
                    self.group(key, group).resources.insert(Arc::new(resource));
                }
            }
            StoreKey::FileGroup(name) => {
                stored_overrides::take_in(
                    codec,
                    self.group(key, name),
                    &StoreKey::Group(name.clone()),
                    value,
                )?;
            }
            StoreKey::Group(name) | StoreKey::Label(name) | StoreKey::Resource(name, _) => {
                stored_overrides::take_in(codec, self.group(key, name), key, value)?;
            }
            StoreKey::Rollout(_)
            | StoreKey::FilePath(_)
            | StoreKey::DocumentStatus(_)
            | StoreKey::FilesHash
            | StoreKey::FileSets
            | StoreKey::Request(..)
            | StoreKey::Wave
            | StoreKey::EndedWave(_)
            | StoreKey::Previous(_) => {}
        }
        Ok(())
    }

    /// Takes away what was not there yet, or what was there again.
    fn remove(&mut self, key: &StoreKey) {
        match key.subject() {
            Subject::Document(name) => {
                let of = if key.is_of_file() { &mut self.base.documents } else { &mut self.documents.owned };
                Arc::make_mut(of).remove(name);
            }
            Subject::Weights(rule) => _ = Arc::make_mut(&mut self.documents.weights).remove(rule),
            Subject::Group(name) | Subject::Label(name) | Subject::Resource(name, _) => {
                let group = self.group(key, name);
                take_out(group, key);
                if stored_overrides::is_empty(group) {
                    self.layer(key).groups.remove(name);
                }
            }
            Subject::Other => {}
        }
    }

    /// Notes an object that stays as it is now.
    fn leave(&mut self, accepted: &Accepted, key: &StoreKey, reason: &str) {
        let is_there = match (key.subject(), key.is_of_file()) {
            (Subject::Document(name), true) => accepted.documents.files.contains_key(name),
            (Subject::Document(name), false) => accepted.documents.owned.contains_key(name),
            (Subject::Resource(group, name), true) => {
                accepted.base.resources(group).is_some_and(|resources| resources.contains_key(name))
            }
            (Subject::Resource(group, name), false) => {
                accepted.overrides.resources(group).is_some_and(|resources| resources.contains_key(name))
            }
            (Subject::Group(_) | Subject::Label(_) | Subject::Weights(_), _) => true,
            (Subject::Other, _) => return,
        };
        let instead = if is_there { "the present ones are used" } else { "it is left out" };
        self.gaps.insert(format!("{}: {reason}; {instead}", key.what()));
    }

    /// The layer of a key.
    fn layer(&mut self, key: &StoreKey) -> &mut Layer {
        if key.is_of_file() { Arc::make_mut(&mut self.base.layer) } else { &mut self.overrides }
    }

    fn group(&mut self, key: &StoreKey, name: &GroupName) -> &mut LayerGroup {
        self.layer(key).groups.entry(name.clone()).or_default()
    }
}

fn take_out(group: &mut LayerGroup, key: &StoreKey) {
    match key.subject() {
        Subject::Group(_) => group.definition = None,
        Subject::Label(_) => group.label = None,
        Subject::Resource(_, key) => _ = group.resources.remove(key),
        Subject::Document(_) | Subject::Weights(_) | Subject::Other => {}
    }
}

fn value(store: &dyn Store, hash: BlobHash) -> Result<Option<Bytes>, WriteError> {
    store.blob(hash).map_err(history::failed)
}
