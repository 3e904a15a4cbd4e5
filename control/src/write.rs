//! Writes of the API: build, check, commit, publish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use xds_cache::time::millis;
use xds_cache::{Groups, Layer, Origin, Publication, Resource, Revision};
use xds_store::{Change, Commit, CommitError};

use super::candidate::{self, Candidate};
use super::documents::Said;
use super::key::StoreKey;
use super::phases::ClientPreview;
use super::plan::{Plan, difference, plan};
use super::state::{Patch, World};
use super::wave::{self, Wave};
use super::weights::{Objects, Resting};
use super::{
    Shared, check, documents, observed, past, phases, revision_of, rollouts, stored, stored_revision, weights,
};
use crate::affected::affected_nodes;
use crate::model::GroupPhases;
use crate::model::document::DocumentState;
use crate::model::wave::WavePhase;
use crate::model::weights::reconcile::Dropped;
use crate::model::{ChangedObject, Write, WriteError, WriteOptions, WriteOutcome};

/// How often a change is built anew because another server committed first.
pub(crate) const MAX_ATTEMPTS: usize = 16;

/// Who made a commit and why.
pub(crate) struct Label<'a> {
    pub(crate) actor: &'a str,
    pub(crate) source: &'a str,
    pub(crate) summary: &'a str,
}

impl Shared {
    /// Does a write, one at a time. A dry run is played when others are let in again, because that may take seconds; but no two of
    /// them are under way at once.
    pub(crate) async fn write(
        self: &Arc<Self>,
        write: Write,
        options: WriteOptions,
    ) -> Result<WriteOutcome, WriteError> {
        let _dry_running = if options.dry_run { Some(self.dry_running.lock().await) } else { None };
        let (mut outcome, clients) = self.write_alone(write, options).await?;
        if !clients.is_empty() {
            outcome.phases = self.play(clients).await?;
        }
        Ok(outcome)
    }

    /// Does a write while no other is done; of a dry run, what is left to play.
    async fn write_alone(
        self: &Arc<Self>,
        write: Write,
        options: WriteOptions,
    ) -> Result<(WriteOutcome, Vec<ClientPreview>), WriteError> {
        // A dry run changes nothing, and writes need not wait for it.
        let _changing = if options.dry_run { None } else { Some(self.changing.lock().await) };
        if !options.dry_run {
            // What is served already comes first in the history.
            self.record_late().await;
        }
        for _ in 0..MAX_ATTEMPTS {
            if !self.state().is_loaded {
                return Err(WriteError::NotReady);
            }
            let world = self.state().world();
            candidate::check_tags(&world, &write, &options)?;
            let candidate = self.candidate(&world, write.clone(), &options)?;
            match self.try_write(&world, candidate, &options).await {
                Err(WriteError::WaveActive { .. }) if options.force && !options.dry_run => {
                    self.abort_for(&options.actor).await?;
                }
                Err(WriteError::Store(error)) if matches!(*error, CommitError::Conflict { .. }) => {
                    self.catch_up().await.map_err(|error| WriteError::Store(Arc::new(error.into())))?;
                }
                done => {
                    // Of many documents, what was is large: whoever waits need not wait for the end of it.
                    drop(tokio::task::spawn_blocking(move || drop(world)));
                    return done;
                }
            }
        }
        let head = self.parts.store.head();
        Err(WriteError::Store(Arc::new(CommitError::Conflict { head })))
    }

    fn candidate(
        &self,
        world: &World,
        write: Write,
        options: &WriteOptions,
    ) -> Result<Candidate, WriteError> {
        match write {
            Write::PutGroup(definition) => candidate::put_group(world, definition),
            Write::DeleteGroup(name) => candidate::delete_group(world, &name),
            Write::ReplaceResources { group, label, resources } => {
                Ok(candidate::replace_resources(world, &group, label, resources))
            }
            Write::PutResource { group, resource } => Ok(candidate::put_resource(world, &group, resource)),
            Write::DeleteResource { group, key } => candidate::delete_resource(world, &group, &key),
            Write::ApplyDocuments { group, documents, warnings } => {
                Ok(candidate::apply_documents(world, documents, group.as_ref(), warnings))
            }
            Write::DeleteDocument { key } => candidate::delete_document(world, &key),
            Write::ChangeWeights { key, change } => weights::change_by_hand(world, &key, &change, options),
            Write::StepRollouts { rollouts, change, is_by_hand, summary } => {
                let source = if is_by_hand { "api" } else { "rollout" };
                rollouts::step(world, rollouts, change.as_ref(), (source, summary), options)
            }
            Write::EndOverrides => Ok(weights::end()),
            Write::Rollback { to } => past::rollback(&self.parts.codec, &*self.parts.store, world, to),
            Write::Revert { of } => past::revert(&self.parts.codec, &*self.parts.store, world, of),
        }
    }

    async fn try_write(
        self: &Arc<Self>,
        world: &World,
        candidate: Candidate,
        options: &WriteOptions,
    ) -> Result<(WriteOutcome, Vec<ClientPreview>), WriteError> {
        let (documents, dropped) =
            self.translate_aside(world, &candidate, self.resting(), options.until).await?;
        let Candidate { patch, documents: document_patch, weights: named, rollouts, .. } = candidate;
        let Candidate { mut warnings, source, summary, is_whole, .. } = candidate;
        let groups = world.patched(&world.base, &patch, &documents);
        let touched: BTreeSet<_> = patch.keys().collect();
        let doubts =
            check::doubts(&world.groups, &groups, &touched, &BTreeSet::new(), &self.parts.board, is_of_api);
        if self.options.strict && !doubts.is_empty() {
            return Err(WriteError::Invalid(check::as_errors(doubts)));
        }
        warnings.extend(doubts);
        let (before, after) = (&world.documents.translated, &documents.translated);
        if !Arc::ptr_eq(before, after) {
            warnings.extend(documents::doubts_of_write(before, after));
        }
        let nodeless = check::nodeless(&world.groups, &groups, &touched, &self.parts.board);
        warnings.extend(nodeless.into_iter().chain(weights::warnings(&dropped)));
        let mut plan = plan(&world.overrides, &patch);
        plan.extend(documents::plan(&world.documents.owned, &document_patch));
        plan.extend(weights::plan(&world.documents.weights, &documents.weights));
        plan.extend(rollouts::plan(&world.rollouts, &rollouts));
        if is_whole {
            plan.extend(self.unreadable_of(&patch, &plan));
        }
        let mut outcome = WriteOutcome {
            revision: world.revision,
            changed: !plan.is_empty(),
            publication: Publication { revision: world.revision, views: vec![] },
            warnings,
            ..WriteOutcome::default()
        };
        let label = Label { actor: &options.actor, source, summary: &summary };
        let wave = match outcome.changed {
            true => self.begin_wave(world, (&plan, &named), &groups, options, &label)?,
            false => None,
        };
        if options.dry_run {
            outcome.difference = self.difference_of_write(world, &patch, &documents, &groups);
            outcome.affected_nodes = affected_nodes(&self.parts.board, &world.groups, &groups);
            let clients = phases::previews(&self.parts.publisher, &groups, wave::now());
            return Ok((outcome, clients));
        }
        if !outcome.changed {
            return Ok((outcome, vec![]));
        }
        if let Some(wave) = &wave {
            plan.extend(wave::record::plan(Some(wave), &self.parts.store.state().1));
        }
        plan.extend(observed::plan(before, after));
        let keys: Vec<String> = plan.iter().map(|(key, _)| key.to_string()).collect();
        outcome.revision = self.commit(world.revision, plan, label).await?;
        self.apply(outcome.revision, patch, documents, groups.clone());
        self.state().rollouts = rollouts::patched(&world.rollouts, &rollouts);
        self.state().unreadable.retain(|key, _| !keys.contains(key));
        if let Some(wave) = &wave {
            outcome.wave = Some(wave.id);
            self.state().wave = Some(wave.clone());
        }
        self.prepare().await;
        outcome.publication = self.publish(outcome.revision, groups, source, &summary);
        if let Some(wave) = &wave {
            self.tell_wave(wave, WavePhase::Progressing, format!("began: {summary}"));
            self.wave_told.notify_one();
        }
        self.tell_dropped(&dropped);
        Ok((outcome, vec![]))
    }

    /// What a write would change, for its dry run.
    fn difference_of_write(
        &self,
        world: &World,
        patch: &Patch,
        documents: &DocumentState,
        groups: &Groups,
    ) -> Vec<ChangedObject> {
        let compared =
            patch.iter().map(|(name, after)| (name, world.overrides.groups.get(name), after.as_ref()));
        let codec = &self.parts.codec;
        let mut found = difference(codec, compared);
        documents::difference(&world.documents.owned, &documents.owned, &mut found);
        let overrides = (&*world.documents.weights, &*documents.weights);
        weights::difference(codec, overrides, (&world.groups, groups), &mut found);
        let (before, after) =
            (&world.documents.translated.translation.groups, &documents.translated.translation.groups);
        documents::generated_difference(codec, before, after, &mut found);
        found
    }

    /// In which phases clients would get a write, for its dry run; found out on a thread of its own.
    async fn play(self: &Arc<Self>, clients: Vec<ClientPreview>) -> Result<Vec<GroupPhases>, WriteError> {
        let limits = self.options.session;
        let playing = tokio::task::spawn_blocking(move || phases::play(clients, &limits, wave::now()));
        playing.await.map_err(|_| WriteError::Closed)
    }

    /// Stores a plan as the revision after `expected`.
    pub(crate) async fn commit(
        &self,
        expected: Revision,
        plan: Plan,
        label: Label<'_>,
    ) -> Result<Revision, WriteError> {
        let failed = |error: CommitError| WriteError::Store(Arc::new(error));
        let store = &self.parts.store;
        let values = plan.iter().filter_map(|(_, value)| value.clone()).collect();
        let mut hashes = store.put_blobs(values).await.map_err(|error| failed(error.into()))?.into_iter();
        let change = |(key, value): (StoreKey, Option<Bytes>)| Change {
            key: key.to_string(),
            value: value.and_then(|_| hashes.next()),
        };
        let changes = plan.into_iter().map(change).collect();
        let commit = Commit {
            actor: label.actor.to_owned(),
            at_ms: millis(SystemTime::now()),
            source: label.source.to_owned(),
            summary: label.summary.to_owned(),
            changes,
        };
        let committed = store.commit(stored_revision(expected), commit).await;
        match &committed {
            Ok(_) => self.note_disk(Ok(())),
            Err(CommitError::Store(error)) => self.note_disk(Err(error)),
            // Whoever made the commit was at fault, or somebody was faster.
            Err(_) => {}
        }
        committed.map(revision_of).map_err(failed)
    }

    /// All documents and overrides of weights once a candidate is laid over those of the API, and what was dropped of the
    /// latter; computed on a thread of its own. `resting` is what a wave deployment holds once it is done.
    pub(crate) async fn translate_aside(
        self: &Arc<Self>,
        world: &World,
        candidate: &Candidate,
        resting: Resting,
        until: Option<Instant>,
    ) -> Result<(DocumentState, Vec<Dropped>), WriteError> {
        let now = SystemTime::now();
        let present = &world.documents.weights;
        let changes_none = candidate.documents.is_empty() && candidate.weights.is_empty();
        let touches_none =
            weights::groups_of(present).iter().all(|name| !candidate.patch.contains_key(*name));
        let is_same = present.is_empty() || resting == self.resting();
        if changes_none && touches_none && is_same && !weights::is_due(present, now) {
            return Ok((world.documents.clone(), vec![]));
        }
        let (shared, world, patch) = (Arc::clone(self), world.clone(), candidate.patch.clone());
        let owned = documents::patched(&world.documents.owned, &candidate.documents);
        let laid = weights::patched(present, &candidate.weights);
        let rollouts = rollouts::patched(&world.rollouts, &candidate.rollouts);
        let translating = tokio::task::spawn_blocking(move || {
            let objects = Objects { owned: &owned, rollouts: &rollouts, ..world.objects(&patch) };
            let (laid, dropped) = objects.reconcile(&laid, &resting, now);
            let files = Arc::clone(&world.documents.files);
            let said = Said { files, owned: Arc::clone(&owned), weights: world.same_weights(laid) };
            let goes_on = || until.is_none_or(|until| Instant::now() < until);
            shared.translate_while(&world, said, &goes_on).map(|documents| (documents, dropped))
        });
        translating.await.map_err(|_| WriteError::Closed)?.ok_or(WriteError::Stopped)
    }

    /// What the wave deployment that is under way holds.
    pub(crate) fn resting(&self) -> Resting {
        self.state().wave.as_ref().map(Wave::resting).unwrap_or_default()
    }

    /// Makes a committed patch part of the state.
    pub(crate) fn apply(&self, revision: Revision, patch: Patch, documents: DocumentState, groups: Groups) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.documents, documents.clone());
        state.revision = revision;
        state.groups = groups;
        let state = &mut *state;
        let overrides: &mut Layer = Arc::make_mut(&mut state.overrides);
        for (name, group) in patch {
            match group.filter(|group| !stored::is_empty(group)) {
                Some(group) => _ = overrides.groups.insert(name, group),
                None => _ = overrides.groups.remove(&name),
            }
        }
        if !Arc::ptr_eq(&before.weights, &documents.weights) {
            self.weights_changed.notify_one();
        }
        if !Arc::ptr_eq(&before.translated, &documents.translated) {
            documents::log_news(&before.translated, &documents.translated);
        }
    }

    /// Deletions of what could not be read in the groups of a patch, which takes the place of all of it.
    fn unreadable_of(&self, patch: &Patch, plan: &Plan) -> Plan {
        let state = self.state();
        state
            .unreadable
            .keys()
            .filter_map(|text| StoreKey::parse(text))
            .filter(|key| key.owned_group().is_some_and(|name| patch.contains_key(name)))
            .filter(|key| plan.iter().all(|(planned, _)| planned != key))
            .map(|key| (key, None))
            .collect()
    }
}

fn is_of_api(resource: &Resource) -> bool {
    *resource.origin() == Origin::Api
}
