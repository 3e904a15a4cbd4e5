//! Loads: what the files give becomes the base, and a revision (D5, D6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use xds_api::group;
use xds_api::handle::{Event, FileStatus, ReloadOutcome, WriteError};
use xds_cache::layer::Resources;
use xds_cache::{GroupName, Groups, Layer, Origin, VersionHasher};
use xds_codec::Diagnostic;
use xds_store::{BlobHash, CommitError, StoreError};

use super::key::{StoreKey, resource_name};
use super::plan::{Plan, difference, plan};
use super::state::{Patch, World};
use super::write::{Label, MAX_ATTEMPTS};
use super::{Shared, check, revision_of};
use crate::source::FileLoad;

/// The watched files by path.
type Files = BTreeMap<Arc<str>, FileStatus>;

/// A load that is ready to be committed.
struct Step {
    base: Arc<Layer>,
    /// What of the overrides goes, because it is what the files say by now.
    patch: Patch,
    dropped: Vec<String>,
    groups: Groups,
    plan: Plan,
    summary: String,
}

impl Shared {
    /// Takes in a load; `is_confirmed` if it may remove whatever it wants.
    pub(crate) async fn load(
        self: &Arc<Self>,
        load: FileLoad,
        is_confirmed: bool,
    ) -> Result<ReloadOutcome, WriteError> {
        let _changing = self.changing.lock().await;
        let FileLoad { layer, documents: _, files, is_complete } = load;
        let n_errors = files.values().flat_map(|file| &file.diagnostics).filter(|d| d.is_error()).count();
        let before = self.state().world();
        let mut outcome =
            ReloadOutcome { revision: before.revision, difference: vec![], n_errors, held: None };
        if !is_complete {
            let held = self.state().held.clone();
            self.show(&files, vec![], held);
            return Ok(outcome);
        }
        outcome.held = if is_confirmed { None } else { self.mass_removal(&before.base, &layer) };
        if outcome.held.is_some() {
            self.show(&files, vec![], outcome.held.clone());
            return Ok(outcome);
        }
        let served = self.serve(&before, Arc::new(layer), &files, &mut outcome).await;
        if served.is_err() {
            self.show(&files, vec![], None);
        }
        served.map(|()| outcome)
    }

    /// Makes a load the base and publishes it, unless it is refused, and shows the files as they are then.
    async fn serve(
        self: &Arc<Self>,
        before: &World,
        base: Arc<Layer>,
        files: &Files,
        outcome: &mut ReloadOutcome,
    ) -> Result<(), WriteError> {
        for _ in 0..MAX_ATTEMPTS {
            let caught_up = self.catch_up();
            let world = self.state().world();
            let (head, keys) = self.parts.store.state();
            match caught_up {
                // Another server committed in between: what is stored is not what the world is of.
                Ok(()) if revision_of(head) != world.revision => continue,
                Ok(()) => {}
                Err(error) => self.problem("store", format!("the store cannot be read: {error}")),
            }
            let step = self.step_aside(&world, &base, keys).await?;
            let doubts = self.doubts(&world, &step);
            if self.options.strict && !doubts.is_empty() {
                outcome.n_errors += doubts.len();
                self.refuse(files, doubts);
                return Ok(());
            }
            let show = || self.show(files, doubts.clone(), None);
            if self.try_load(&world, step, show).await {
                self.solved("files");
                self.note(files, &doubts);
                outcome.revision = self.state().revision;
                let groups = before.base.groups.keys().chain(base.groups.keys()).collect::<BTreeSet<_>>();
                let compared = groups.into_iter().map(|g| (g, before.base.groups.get(g), base.groups.get(g)));
                outcome.difference = difference(&self.parts.codec, compared);
                return Ok(());
            }
        }
        Err(WriteError::Store(Arc::new(CommitError::Conflict { head: self.parts.store.head() })))
    }

    /// What a reload says if there are no files.
    pub(crate) fn nothing_loaded(&self) -> ReloadOutcome {
        let revision = self.state().revision;
        ReloadOutcome { revision, difference: vec![], n_errors: 0, held: None }
    }

    /// Makes up for a load that was served without being recorded. If that fails again, the problem stays.
    pub(crate) async fn record_late(self: &Arc<Self>) {
        if !self.state().is_record_due || self.catch_up().is_err() {
            return;
        }
        let world = self.state().world();
        let base = Arc::clone(&world.base);
        let (_, keys) = self.parts.store.state();
        if let Ok(step) = self.step_aside(&world, &base, keys).await {
            // If another server was faster, the next write tries again.
            self.try_load(&world, step, || {}).await;
        }
    }

    /// Commits and publishes a step; false if another server was faster and it has to be built anew.
    ///
    /// `show` makes the status of the load visible: once it is published, and before that is told.
    async fn try_load(&self, world: &World, step: Step, show: impl FnOnce()) -> bool {
        let Step { base, patch, dropped, groups, plan, summary } = step;
        let has_revision = !plan.is_empty();
        let mut is_record_due = false;
        let (revision, patch, groups) = if has_revision {
            let label = Label { actor: "files", source: "file", summary: &summary };
            match self.commit_load(world, plan, label).await {
                Ok(revision) => (revision, patch, groups),
                Err(WriteError::Store(error)) if matches!(*error, CommitError::Conflict { .. }) => {
                    return false;
                }
                Err(error) => {
                    // What the files say does not depend on the store: they are served as they are.
                    self.problem(
                        "record",
                        format!("a load of the files could not be recorded: {}", chain(&error)),
                    );
                    is_record_due = may_pass(&error);
                    (world.revision, Patch::new(), world.rebased(&base, &Patch::new(), &world.generated))
                }
            }
        } else {
            (world.revision, patch, groups)
        };
        let is_recorded = !has_revision || revision != world.revision;
        if is_recorded {
            self.solved("record");
        }
        let is_first = {
            let mut state = self.state();
            state.base = base;
            state.is_recorded = is_recorded;
            state.is_record_due = is_record_due;
            !std::mem::replace(&mut state.is_loaded, true)
        };
        let changes = is_first || revision != world.revision || !is_same(&world.groups, &groups);
        self.apply(revision, patch, groups.clone());
        if changes {
            self.publish_and(revision, groups, "file", &summary, show);
        } else {
            show();
        }
        if is_recorded {
            for what in dropped {
                tracing::info!(what, "override dropped: it is what the file says by now");
                self.tell(Event::OverrideDropped { what });
            }
        }
        true
    }

    async fn commit_load(
        &self,
        world: &World,
        plan: Plan,
        label: Label<'_>,
    ) -> Result<xds_cache::Revision, WriteError> {
        let small: Plan = plan.iter().filter(|(key, _)| !is_content(key)).cloned().collect();
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
        base: &Arc<Layer>,
        keys: BTreeMap<String, BlobHash>,
    ) -> Result<Step, WriteError> {
        let (shared, world, base) = (Arc::clone(self), world.clone(), Arc::clone(base));
        let step = tokio::task::spawn_blocking(move || shared.step(&world, &base, &keys)).await;
        step.map_err(|_| WriteError::Closed)
    }

    fn step(&self, world: &World, base: &Arc<Layer>, keys: &BTreeMap<String, BlobHash>) -> Step {
        let hash = content_hash(base);
        let is_known = keys.get(super::key::FILES_HASH) == Some(&BlobHash::of(hash.as_bytes()));
        let contents = if is_known { Plan::new() } else { self.contents(world, base, keys) };
        let (patch, dropped) = equal_overrides(world, base, &contents);
        let groups = world.rebased(base, &patch, &world.generated);
        let summary = summary(&contents);
        let mut plan = plan(&world.overrides, &patch);
        if !is_known {
            plan.extend(contents);
            plan.push((StoreKey::FilesHash, Some(Bytes::from(hash))));
        }
        Step { base: Arc::clone(base), patch, dropped, groups, plan, summary }
    }

    /// What the files say, as it is kept for differences: only what is not stored so already.
    fn contents(&self, world: &World, base: &Layer, stored: &BTreeMap<String, BlobHash>) -> Plan {
        let is_recorded = self.state().is_recorded;
        let mut gone: BTreeSet<&str> = stored.keys().map(String::as_str).collect();
        let mut plan = Plan::new();
        let mut put = |key: StoreKey, value: Bytes| {
            if stored.get(&key.to_string()) != Some(&BlobHash::of(&value)) {
                plan.push((key, Some(value)));
            }
        };
        for (name, group) in &base.groups {
            if let Some(definition) = &group.definition {
                let key = StoreKey::FileGroup(name.clone());
                gone.remove(key.to_string().as_str());
                put(key, group::to_json(definition).to_string().into());
            }
            for (resource_key, resource) in &group.resources {
                let key = StoreKey::File(name.clone(), resource_key.clone());
                gone.remove(key.to_string().as_str());
                let recorded = world.base.resources(name).and_then(|resources| resources.get(resource_key));
                if !is_recorded || recorded != Some(resource) {
                    let content = json!({
                        "version": resource.version().to_string(),
                        "resource": self.parts.codec.to_json(resource),
                    });
                    put(key, content.to_string().into());
                }
            }
        }
        plan.extend(gone.into_iter().filter_map(StoreKey::parse).filter(is_content).map(|key| (key, None)));
        plan
    }

    fn doubts(&self, world: &World, step: &Step) -> Vec<Diagnostic> {
        let touched: BTreeSet<&GroupName> = step.base.groups.keys().chain(world.base.groups.keys()).collect();
        let is_of_file = |resource: &xds_cache::Resource| *resource.origin() != Origin::Api;
        check::doubts(&world.groups, &step.groups, &touched, &self.parts.board, is_of_file)
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
            "files",
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
            tracing::warn!(reason, "a load of the files is held back until it is confirmed");
            self.tell(Event::Held { reason });
        }
    }

    /// Why the load has to be confirmed, if it has to.
    fn mass_removal(&self, before: &Layer, after: &Layer) -> Option<String> {
        let limit = self.options.hold_mass_removal?;
        let nothing = Resources::new();
        before.groups.iter().find_map(|(name, group)| {
            let left = after.resources(name).unwrap_or(&nothing);
            let n_removed = group.resources.keys().filter(|key| !left.contains_key(*key)).count();
            let n_before = group.resources.len();
            let share = n_removed as f64 / n_before.max(1) as f64;
            (n_removed >= MIN_MASS && share > limit).then(|| {
                format!(
                    "the files would remove {n_removed} of {n_before} resources of the group {name}, more than {:.0} %",
                    limit * 100.0
                )
            })
        })
    }
}

/// One resource that goes is an edit, not a mass.
const MIN_MASS: usize = 2;

/// The overrides that the changed files have caught up with: `contents` is what changed in them (D6).
fn equal_overrides(world: &World, base: &Layer, contents: &Plan) -> (Patch, Vec<String>) {
    let mut patch = Patch::new();
    let mut dropped = Vec::new();
    for (key, value) in contents {
        let (StoreKey::File(name, key), Some(_)) = (key, value) else { continue };
        let of_file = base.resources(name).and_then(|resources| resources.get(key));
        let of_api = world.overrides.resources(name).and_then(|resources| resources.get(key));
        if of_api.is_none() || of_api != of_file {
            continue;
        }
        let group = patch.entry(name.clone()).or_insert_with(|| Some(world.owned(name)));
        group.get_or_insert_default().resources.remove(key);
        dropped.push(resource_name(name, key));
    }
    (patch, dropped)
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

fn is_content(key: &StoreKey) -> bool {
    matches!(key, StoreKey::File(..) | StoreKey::FileGroup(_))
}

/// The hash over everything that the files give; where in the files it is does not count.
fn content_hash(layer: &Layer) -> String {
    let mut hasher = VersionHasher::new();
    for (name, group) in &layer.groups {
        hasher.update(name.as_str().as_bytes());
        let definition = group.definition.as_ref().map(|definition| group::to_json(definition).to_string());
        hasher.update(definition.unwrap_or_default().as_bytes());
        hasher.update(&group.resources.len().to_le_bytes());
        for (key, resource) in &group.resources {
            hasher.update(key.resource_type.type_url().as_bytes());
            hasher.update(key.name.as_bytes());
            hasher.update(resource.version().to_string().as_bytes());
        }
    }
    hasher.finish().to_string()
}

fn summary(contents: &Plan) -> String {
    let names: Vec<String> = contents.iter().take(MAX_NAMED).map(|(key, _)| key.what()).collect();
    let n_removed = contents.iter().filter(|(_, value)| value.is_none()).count();
    let n_changed = contents.len() - n_removed;
    let more = if contents.len() > MAX_NAMED { ", …" } else { "" };
    format!("{n_changed} added or changed, {n_removed} removed in files: {}{more}", names.join(", "))
}

/// How many objects a summary names.
const MAX_NAMED: usize = 3;

fn is_same(a: &Groups, b: &Groups) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
