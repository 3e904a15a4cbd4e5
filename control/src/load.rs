//! Loads: what the files give becomes the base, and a revision (D5, D6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups, Layer, Origin};
use xds_codec::Diagnostic;
use xds_store::{BlobHash, CommitError, StoreError};

use super::contents::{
    content_hash, equal_documents, equal_overrides, hash_alone, is_content, is_recorded, summary,
};
use super::documents::{DocumentPatch, Said};
use super::key::StoreKey;
use super::mass_removal::{mass_removal, nothing_left};
use super::plan::{Plan, difference, plan};
use super::state::{Patch, World};
use super::wave::begin::AfterLoad;
use super::wave::ended::EndedWave;
use super::wave::{self, Wave};
use super::weights::{Objects, Resting};
use super::write::{Label, MAX_ATTEMPTS};
use super::{Shared, chain, check, documents, observed, revision_of, weights};
use crate::model::document::{DocumentState, GroupedDocuments};
use crate::model::wave::WavePhase;
use crate::model::weights::reconcile::Dropped;
use crate::model::{Asked, ChangedObject, Event, FileLoad, FileStatus, ReloadOutcome, Texts, WriteError};

/// The subject of the problem that there was no complete load yet.
const NOTHING_SERVED: &str = "start";

/// The subject of the problem that the last load was refused.
pub(super) const REFUSED: &str = "files";

/// The watched files by path.
type Files = BTreeMap<Arc<str>, FileStatus>;

/// What the files say.
#[derive(Clone)]
pub(crate) struct Base {
    /// Groups and resources.
    pub(crate) layer: Arc<Layer>,
    /// Route documents.
    pub(crate) documents: Arc<GroupedDocuments>,
}

/// A load that is ready to be committed.
struct Step {
    base: Arc<Layer>,
    /// All documents as they are then, and what they give.
    documents: DocumentState,
    /// What of the overrides goes, because it is what the files say by now.
    patch: Patch,
    /// And what of the API's documents.
    document_patch: DocumentPatch,
    /// Of what is named here, the API's part goes, because it is what the files say by now.
    equal: Vec<String>,
    /// What goes of the overrides of weights.
    dropped: Vec<Dropped>,
    groups: Groups,
    plan: Plan,
    summary: String,
    /// What it makes of the wave deployment.
    wave: AfterLoad,
    /// The one that thereby ends.
    ended: Option<EndedWave>,
}

impl Shared {
    /// Takes in a load.
    pub(crate) async fn load(
        self: &Arc<Self>,
        load: FileLoad,
        asked: Asked,
    ) -> Result<ReloadOutcome, WriteError> {
        let _changing = self.changing.lock().await;
        let FileLoad { layer, documents, files, unusable, texts, is_complete } = load;
        let base = Base { layer: Arc::new(layer), documents };
        let n_errors = files.values().flat_map(|file| &file.diagnostics).filter(|d| d.is_error()).count();
        let before = self.state().world();
        let mut outcome =
            ReloadOutcome { revision: before.revision, difference: vec![], n_errors, held: None };
        if !is_complete {
            let held = self.state().held.clone();
            self.show(&files, vec![], held);
            self.tell_nothing_served();
            return Ok(outcome);
        }
        if asked != Asked::Confirmed {
            outcome.held = self.mass_removal_aside(before.clone(), base.clone()).await?;
        }
        if outcome.held.is_some() {
            self.show(&files, vec![], outcome.held.clone());
            self.tell_nothing_served();
            return Ok(outcome);
        }
        self.state().unusable = Arc::new(unusable);
        let served = self.serve(base.clone(), (&files, texts), &mut outcome).await;
        match served {
            Ok(true) if asked != Asked::ByNobody => {
                outcome.difference = self.difference_aside(before, base).await?;
            }
            Ok(_) => {}
            Err(_) => self.show(&files, vec![], None),
        }
        served.map(|_| outcome)
    }

    /// Makes a load the base and publishes it, unless it is refused, and shows the files as they are then. Returns whether it
    /// is served.
    async fn serve(
        self: &Arc<Self>,
        base: Base,
        (files, texts): (&Files, Texts),
        outcome: &mut ReloadOutcome,
    ) -> Result<bool, WriteError> {
        for _ in 0..MAX_ATTEMPTS {
            let caught_up = self.catch_up().await;
            let world = self.state().world();
            let (head, keys) = self.parts.store.state();
            match caught_up {
                // Another server committed in between: what is stored is not what the world is of.
                Ok(()) if revision_of(head) != world.revision => continue,
                Ok(()) => {}
                Err(error) => self.problem("store", format!("the store cannot be read: {error}")),
            }
            let step = self.step_aside(&world, &base, keys).await?;
            let doubts = at_their_fields(self.doubts(&world, &step), &texts).await;
            if self.options.strict && !doubts.is_empty() {
                outcome.n_errors += doubts.len();
                self.refuse(files, doubts);
                return Ok(false);
            }
            let show = || self.show(files, doubts.clone(), None);
            if self.try_load(&world, step, show).await {
                self.solved(REFUSED);
                self.solved(NOTHING_SERVED);
                self.note(files, &doubts);
                outcome.revision = self.state().revision;
                return Ok(true);
            }
        }
        Err(WriteError::Store(Arc::new(CommitError::Conflict { head: self.parts.store.head() })))
    }

    async fn difference_aside(
        self: &Arc<Self>,
        before: World,
        base: Base,
    ) -> Result<Vec<ChangedObject>, WriteError> {
        let shared = Arc::clone(self);
        let difference = tokio::task::spawn_blocking(move || shared.difference(&before, &base)).await;
        difference.map_err(|_| WriteError::Closed)
    }

    /// What a load has changed: what the files say, and what is generated from documents.
    fn difference(&self, before: &World, base: &Base) -> Vec<ChangedObject> {
        let (old, new) = (&before.base.groups, &base.layer.groups);
        let groups = old.keys().chain(new.keys()).collect::<BTreeSet<_>>();
        let compared = groups.into_iter().map(|name| (name, old.get(name), new.get(name)));
        let mut changed = difference(&self.parts.codec, compared);
        documents::difference(&before.documents.files, &base.documents, &mut changed);
        let after = Arc::clone(&self.state().documents.translated);
        let (old, new) = (&before.documents.translated.translation.groups, &after.translation.groups);
        documents::generated_difference(&self.parts.codec, old, new, &mut changed);
        changed
    }

    /// What a reload says if there are no files.
    pub(crate) fn nothing_loaded(&self) -> ReloadOutcome {
        let revision = self.state().revision;
        ReloadOutcome { revision, difference: vec![], n_errors: 0, held: None }
    }

    /// Makes up for a load that was served without being recorded. If that fails again, the problem stays.
    pub(crate) async fn record_late(self: &Arc<Self>) {
        if !self.state().is_record_due || self.catch_up().await.is_err() {
            return;
        }
        let world = self.state().world();
        let base = Base { layer: Arc::clone(&world.base), documents: Arc::clone(&world.documents.files) };
        let (_, keys) = self.parts.store.state();
        if let Ok(step) = self.step_aside(&world, &base, keys).await {
            // If another server was faster, the next write tries again.
            self.try_load(&world, step, || {}).await;
        }
    }

    /// Commits and publishes a step; false if another server was faster and it has to be built anew.
    ///
    /// `show` makes the status of the load visible: once it is published, and before that is told.
    async fn try_load(self: &Arc<Self>, world: &World, step: Step, show: impl Fn()) -> bool {
        if !self.state().is_loaded && is_served_first(&step.plan) {
            self.serve_first(&step, &show).await;
        }
        let Step { base, documents, patch, document_patch, equal, dropped, groups, plan, summary, .. } = step;
        let Step { wave, ended, .. } = step;
        let has_revision = !plan.is_empty();
        let mut is_record_due = false;
        let (revision, patch, documents, groups) = if has_revision {
            let label = Label { actor: "files", source: "file", summary: &summary };
            match self.commit_load(world, plan, label).await {
                Ok(revision) => (revision, patch, documents, groups),
                Err(WriteError::Store(error)) if matches!(*error, CommitError::Conflict { .. }) => {
                    return false;
                }
                Err(error) => {
                    // What the files say does not depend on the store: they are served as they are.
                    let problem = format!("a load of the files could not be recorded: {}", chain(&error));
                    self.problem("record", problem);
                    is_record_due = may_pass(&error);
                    let documents = self.unrecorded(world, documents, &document_patch);
                    let groups = world.rebased(&base, &Patch::new(), &documents);
                    (world.revision, Patch::new(), documents, groups)
                }
            }
        } else {
            (world.revision, patch, documents, groups)
        };
        let is_recorded = !has_revision || revision != world.revision;
        if is_recorded {
            self.solved("record");
        }
        if let Some(ended) = ended {
            self.take_ended(ended);
        }
        let is_first = {
            let mut state = self.state();
            state.base = base;
            state.is_recorded = is_recorded;
            state.is_record_due = is_record_due;
            if let AfterLoad::Becomes(wave) = &wave {
                state.wave = wave.as_deref().cloned();
                if let Some(wave) = state.wave.as_mut().filter(|_| !is_recorded) {
                    // Its ACKs could not be told from earlier ones.
                    wave.stopped = Some("the change could not be recorded".into());
                }
            }
            state.observed = Arc::default();
            !std::mem::replace(&mut state.is_loaded, true)
        };
        self.forget_recalled();
        let changes = is_first || revision != world.revision || !differing(&world.groups, &groups).is_empty();
        self.apply(revision, patch, documents, groups.clone());
        self.prepare().await;
        if changes {
            self.publish_and(revision, groups, "file", &summary, show);
        } else {
            show();
        }
        if let AfterLoad::Becomes(wave) = wave {
            self.wave_of_files(wave.as_deref());
        } else if is_first {
            // One that a restart found goes on.
            self.wave_told.notify_one();
        }
        if is_recorded {
            self.tell_equal(equal);
            self.tell_dropped(&dropped);
        }
        true
    }

    /// Publishes a first load whose recording takes long before it is recorded, as one that is due to be.
    ///
    /// Nobody can tell from it that it is not recorded: it changes nothing but what the store remembers of the files, and writes
    /// and what others commit wait for the change that is under way. After a kill before it is recorded, the next start
    /// finds the same difference to what is stored.
    async fn serve_first(self: &Arc<Self>, step: &Step, show: impl FnOnce()) {
        let revision = {
            let mut state = self.state();
            state.base = Arc::clone(&step.base);
            state.is_recorded = false;
            state.is_record_due = true;
            state.observed = Arc::default();
            state.is_loaded = true;
            state.revision
        };
        self.apply(revision, Patch::new(), step.documents.clone(), step.groups.clone());
        self.prepare().await;
        let summary = format!("{}; not recorded yet", step.summary);
        self.publish_and(revision, step.groups.clone(), "file", &summary, show);
        self.solved(NOTHING_SERVED);
        // A wave deployment that a restart found goes on.
        self.wave_told.notify_one();
    }

    /// The documents of a load that could not be recorded: what the API says stays as it is.
    fn unrecorded(&self, world: &World, documents: DocumentState, patch: &DocumentPatch) -> DocumentState {
        let DocumentState { owned, weights, .. } = world.documents.clone();
        if patch.is_empty() && Arc::ptr_eq(&documents.weights, &weights) {
            return documents;
        }
        self.translate(world, Said { files: documents.files, owned, weights })
    }

    /// Tells which overrides files have caught up with.
    fn tell_equal(&self, equal: Vec<String>) {
        for what in equal {
            tracing::info!(what, "override dropped: it is what the file says by now");
            let reason = "it is what the file says by now".to_owned();
            self.tell(Event::OverrideDropped { what, reason });
        }
    }

    /// Tells that a load began a wave deployment, or ended one.
    fn wave_of_files(&self, wave: Option<&Wave>) {
        if let Some(wave) = wave {
            self.tell_wave(wave, WavePhase::Progressing, format!("began: {}", wave.summary));
        }
        self.wave_told.notify_one();
    }

    async fn commit_load(
        &self,
        world: &World,
        plan: Plan,
        label: Label<'_>,
    ) -> Result<xds_cache::Revision, WriteError> {
        let alone = |(key, value): &(StoreKey, Option<Bytes>)| match (key, value) {
            (StoreKey::DocumentStatus(_), _) => None,
            (key, _) if is_content(key) => None,
            (StoreKey::FilesHash, Some(hash)) => {
                let hash = hash_alone(&String::from_utf8_lossy(hash));
                Some((StoreKey::FilesHash, Some(Bytes::from(hash))))
            }
            (key, value) => Some((key.clone(), value.clone())),
        };
        let small: Plan = plan.iter().filter_map(alone).collect();
        let again = Label { actor: label.actor, source: label.source, summary: label.summary };
        match self.commit(world.revision, plan, label).await {
            Err(WriteError::Store(error)) if matches!(*error, CommitError::TooLarge { .. }) => {
                tracing::warn!("the load is too large for the history; only that it was is recorded");
                self.commit(world.revision, small, again).await
            }
            done => done,
        }
    }

    /// Computes the step on a thread of its own: the JSON of a hundred thousand resources takes seconds.
    async fn step_aside(
        self: &Arc<Self>,
        world: &World,
        base: &Base,
        keys: BTreeMap<String, BlobHash>,
    ) -> Result<Step, WriteError> {
        let (shared, world, base) = (Arc::clone(self), world.clone(), base.clone());
        let step = tokio::task::spawn_blocking(move || shared.step(&world, &base, &keys)).await;
        step.map_err(|_| WriteError::Closed)
    }

    fn step(&self, world: &World, base: &Base, keys: &BTreeMap<String, BlobHash>) -> Step {
        let hash = content_hash(base);
        let is_known = is_recorded(keys, &hash);
        let contents = if is_known { Plan::new() } else { self.contents(world, base, keys) };
        let is_first = !self.state().is_loaded;
        let recorded = if is_first && !is_known { self.recorded_world(world, base, keys) } else { None };
        let is_change = !is_first || recorded.is_some();
        let world = recorded.as_ref().unwrap_or(world);
        let (patch, mut equal) = equal_overrides(world, &base.layer, &contents);
        let document_patch = equal_documents(world, &base.documents, &contents);
        equal.extend(document_patch.keys().map(crate::model::document::what));
        let owned = documents::patched(&world.documents.owned, &document_patch);
        let objects =
            Objects { files: &base.documents, owned: &owned, base: &base.layer, ..world.objects(&patch) };
        let now = SystemTime::now();
        let give = |resting: &Resting| {
            let (laid, dropped) = objects.reconcile(&world.documents.weights, resting, now);
            let weights = world.same_weights(laid);
            let said = Said { files: Arc::clone(&base.documents), owned: Arc::clone(&owned), weights };
            let documents = self.translate(world, said);
            let groups = world.rebased(&base.layer, &patch, &documents);
            (documents, groups, dropped)
        };
        let resting = self.resting();
        let (mut documents, mut groups, mut dropped) = give(&resting);
        let summary = summary(&contents);
        let label = Label { actor: "files", source: "file", summary: &summary };
        let touched = match is_change {
            true => wave::begin::held_of_load(world, base),
            // It is not known what was served, but for what a wave deployment holds; the store knows what is new.
            false => self.held_again(&contents),
        };
        let wave = self.wave_after_load(world, base, &groups, touched, &label);
        if let AfterLoad::Becomes(wave) = &wave {
            let then = wave.as_deref().map(Wave::resting).unwrap_or_default();
            if then != resting && !world.documents.weights.is_empty() {
                (documents, groups, dropped) = give(&then);
            }
        }
        let mut plan = plan(&world.overrides, &patch);
        plan.extend(documents::plan(&world.documents.owned, &document_patch));
        plan.extend(weights::plan(&world.documents.weights, &documents.weights));
        if !is_known {
            plan.extend(contents);
            // What is kept beside others that were too large is not all of it. The first load brings all.
            let hash = if is_first || self.has_contents(keys) { hash } else { hash_alone(&hash) };
            plan.push((StoreKey::FilesHash, Some(Bytes::from(hash))));
        }
        let ended = self.plan_waves(&wave, base, keys, &mut plan);
        // It makes no revision of its own.
        if !plan.is_empty() {
            let (before, after) = (&world.documents.translated, &documents.translated);
            plan.extend(match self.state().is_recorded {
                true => observed::plan(before, after),
                false => observed::whole_plan(keys, after),
            });
        }
        let base = Arc::clone(&base.layer);
        Step { base, documents, patch, document_patch, equal, dropped, groups, plan, summary, wave, ended }
    }

    /// What there is once that is said, as long as it goes on; `None` if it was stopped.
    pub(crate) fn translate_while(
        &self,
        world: &World,
        said: Said,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<DocumentState> {
        let (before, now) = (&world.documents, SystemTime::now());
        documents::next_while(&self.parts.codec, before, said, &world.observed, (now, goes_on))
    }

    /// What there is once that is said.
    pub(crate) fn translate(&self, world: &World, said: Said) -> DocumentState {
        documents::next(&self.parts.codec, &world.documents, said, &world.observed, SystemTime::now())
    }

    /// The doubts of a load. With `--strict`, nothing may be served that names what is broken.
    fn doubts(&self, world: &World, step: &Step) -> Vec<Diagnostic> {
        let touched: BTreeSet<&GroupName> = step.base.groups.keys().chain(world.base.groups.keys()).collect();
        let is_of_file = |resource: &xds_cache::Resource| *resource.origin() != Origin::Api;
        let unusable = match self.options.strict {
            true => Arc::default(),
            false => Arc::clone(&self.state().unusable),
        };
        check::doubts(&world.groups, &step.groups, &touched, &unusable, &self.parts.board, is_of_file)
    }

    /// Notes the doubts of a load that are about no file in particular.
    fn note(&self, files: &Files, doubts: &[Diagnostic]) {
        let general = doubts.iter().filter(|doubt| !files.contains_key(&doubt.place.file));
        let general: Vec<String> = general.map(ToString::to_string).collect();
        if general.is_empty() {
            self.solved("groups");
        } else {
            self.problem("groups", general.join("; "));
        }
    }

    fn refuse(&self, files: &Files, doubts: Vec<Diagnostic>) {
        let n_more = doubts.len().saturating_sub(1);
        let first = doubts.first().map(ToString::to_string).unwrap_or_default();
        self.problem(
            REFUSED,
            format!("the load of the files is refused (--strict): {first}, and {n_more} more"),
        );
        let errors = check::as_errors(doubts);
        self.note(files, &errors);
        self.show(files, errors, None);
    }

    /// Shows the files as a load left them, with its doubts beside what they are about, and tells of errors that were not
    /// there before, and of a load that is held back.
    ///
    /// What is served of the load has been published by then: whoever sees the status finds it in a snapshot.
    fn show(&self, files: &Files, doubts: Vec<Diagnostic>, held: Option<String>) {
        let mut shown = files.clone();
        for doubt in doubts {
            if let Some(file) = shown.get_mut(&doubt.place.file) {
                file.diagnostics.push(doubt);
            }
        }
        let (files_before, held_before) = {
            let mut state = self.state();
            let files_before = std::mem::replace(&mut state.files, Arc::new(shown));
            (files_before, std::mem::replace(&mut state.held, held.clone()))
        };
        for (path, file) in files {
            let known = files_before.get(path).map(|file| file.diagnostics.as_slice()).unwrap_or_default();
            for diagnostic in file.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()) {
                if !known.contains(diagnostic) {
                    self.tell(Event::FileError(diagnostic.clone()));
                }
            }
        }
        if let Some(reason) = held
            && held_before.as_ref() != Some(&reason)
        {
            tracing::warn!(reason, "a load of the files is held back until `xds-server reload --confirm`");
            self.tell(Event::Held { reason });
        }
    }

    /// Says why the first load is not served.
    fn tell_nothing_served(&self) {
        let reason = {
            let state = self.state();
            (!state.is_loaded).then(|| state.nothing_served())
        };
        if let Some(reason) = reason {
            self.problem_once(NOTHING_SERVED, reason);
        }
    }

    /// Compares all objects on a thread of its own: of a hundred thousand, that takes a while.
    async fn mass_removal_aside(
        self: &Arc<Self>,
        before: World,
        after: Base,
    ) -> Result<Option<String>, WriteError> {
        let shared = Arc::clone(self);
        let held = tokio::task::spawn_blocking(move || shared.mass_removal(&before, &after)).await;
        held.map_err(|_| WriteError::Closed)
    }

    /// Why the load has to be confirmed, if it has to.
    fn mass_removal(&self, before: &World, after: &Base) -> Option<String> {
        let limit = self.options.hold_mass_removal?;
        if self.state().is_loaded {
            return mass_removal(&before.base, &before.documents.files, after, limit);
        }
        let (_, stored) = self.parts.store.state();
        nothing_left(&stored, after)
    }
}

/// Doubts at the fields that they are about; the texts are read again on a thread of its own.
async fn at_their_fields(doubts: Vec<Diagnostic>, texts: &Texts) -> Vec<Diagnostic> {
    if texts.is_empty() || doubts.is_empty() {
        return doubts;
    }
    let (texts, mut found) = (texts.clone(), doubts.clone());
    let finding = tokio::task::spawn_blocking(move || {
        texts.move_to_fields(&mut found);
        found
    });
    finding.await.unwrap_or(doubts)
}

/// Whether a first load is served before it is recorded: if that takes long, and says only what the files say. What takes an
/// override back, begins a wave deployment or ends one must be recorded first.
fn is_served_first(plan: &Plan) -> bool {
    let is_of_files =
        |key: &StoreKey| is_content(key) || matches!(key, StoreKey::FilesHash | StoreKey::DocumentStatus(_));
    plan.len() > MAX_RECORDED_FIRST && plan.iter().all(|(key, _)| is_of_files(key))
}

/// Whether what could not be stored may be stored later, without a restart and as it is.
fn may_pass(error: &WriteError) -> bool {
    let WriteError::Store(error) = error else { return false };
    !matches!(
        **error,
        CommitError::TooLarge { .. }
            | CommitError::Store(StoreError::BlobTooLarge { .. } | StoreError::ReadOnly(_))
    )
}

/// Values of a first load that are recorded before it is served: some ten milliseconds at most.
const MAX_RECORDED_FIRST: usize = 1_000;
