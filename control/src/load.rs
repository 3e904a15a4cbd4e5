//! Proposals of loads: the contents of the files become the base, and a revision (D5, D6).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups, Origin, Resource, ResourceKey, Revision};
use xds_codec::{Diagnostic, Place};
use xds_routes::DocumentKey;
use xds_store::{CommitError, State, StoreError};

use crate::accepted::{Accepted, Base, ContentSum, Files, Recorded};
use crate::causes::chain;
use crate::differing::differing as differing_keys;
use crate::documents::{self, DocumentPatch, Said, Terms};
use crate::env::{At, Env};
use crate::hold::{self, Change, Freed, Verdict};
use crate::judged::{self, Refused};
use crate::key::StoreKey;
use crate::mass_removal::{mass_removal, nothing_left};
use crate::model::document::{DocumentState, what};
use crate::model::weights::reconcile::Dropped;
use crate::model::{
    Asked, ChangeSource, ChangedObject, Event, FileLoad, FileObject, FileObjectKey, ReloadOutcome, Texts,
    WriteError,
};
use crate::plan::{Patch, Plan, difference, plan};
use crate::route_gate::told;
use crate::rules::Objects;
use crate::stored_files::{
    self, Kept, equal_documents, equal_overrides, has_contents, hash_alone, is_recorded, summary,
};
use crate::transition::{Label, Note, Outcome, ProblemSubject, Transition};
use crate::wave::begin::{self, AfterLoad};
use crate::wave::ended::{Ended, EndedWave};
use crate::wave::value::Wave;
use crate::wave::{close, former};
use crate::weights::{self, Resting};
use crate::{check, secrets, stored_statuses, write};

/// The contents of the files, and the request that they come with.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    base: Base,
    files: Arc<Files>,
    unusable: Arc<BTreeSet<ResourceKey>>,
    texts: Texts,
    /// The contents of the files when their copies were saved, before the first load.
    copies: Option<Arc<Base>>,
    is_complete: bool,
    asked: Asked,
}

impl Load {
    pub(crate) fn new(load: FileLoad, asked: Asked, copies: Option<Arc<Base>>) -> Self {
        let FileLoad { layer, documents, files, unusable, texts, is_complete } = load;
        let base = Base { layer: Arc::new(layer), documents };
        Self { base, files: Arc::new(files), unusable: Arc::new(unusable), texts, copies, is_complete, asked }
    }

    /// Returns `true` if a first load with errors is not served: there are no last good contents, and no part is served alone.
    fn must_be_clean(&self, env: &Env) -> bool {
        let has_copies = |copies: &Arc<Base>| !copies.layer.groups.is_empty() || !copies.documents.is_empty();
        !env.options.is_partial_start && !self.copies.as_ref().is_some_and(has_copies)
    }

    /// Returns `true` if it has the file of this place.
    fn has(&self, place: &Place) -> bool {
        self.files.contains_key(&place.file)
    }

    /// The load with the last good versions of objects, so that it does not have what the oracle refuses: a resource of a file itself, or
    /// the documents that it is generated from. `None` if it has none of them, or has them as they were.
    ///
    /// A resource names one document. With [`Blame::Wide`], every document of its group that the load changes goes back, because it may
    /// be any of them.
    pub(crate) fn without(&self, accepted: &Accepted, refused: &[Refused], blame: Blame) -> Option<Self> {
        let mut load = self.clone();
        let mut is_other = false;
        for one in refused.iter().filter(|one| one.fault.is_error()) {
            is_other |=
                load.put_back_resource(accepted, one) || load.put_back_documents(accepted, one, blame);
        }
        is_other.then_some(load)
    }

    fn put_back_resource(&mut self, accepted: &Accepted, refused: &Refused) -> bool {
        let Refused { group, resource, fault } = refused;
        let key = resource.key();
        let own = self.base.layer.resources(group).and_then(|resources| resources.get(key));
        if own.is_none_or(|own| own.origin() != resource.origin()) {
            return false;
        }
        let before = accepted.base.resources(group).and_then(|resources| resources.get(key)).cloned();
        if own.map(|own| own.version()) == before.as_ref().map(|before| before.version()) {
            return false;
        }
        let is_last_good = before.is_some();
        if let Some(group) = Arc::make_mut(&mut self.base.layer).groups.get_mut(group) {
            match before {
                Some(before) => _ = group.resources.insert(before),
                None => _ = group.resources.remove(key),
            }
        }
        if !is_last_good {
            Arc::make_mut(&mut self.unusable).insert(key.clone());
        }
        let is_it = |object: &FileObject| {
            object.group == *group && matches!(&object.key, FileObjectKey::Resource(own) if **own == *key)
        };
        self.report(fault.clone(), is_last_good, is_it);
        true
    }

    fn put_back_documents(&mut self, accepted: &Accepted, refused: &Refused, blame: Blame) -> bool {
        let Refused { group, fault, .. } = refused;
        let before = Arc::clone(&accepted.documents.files);
        let changed: Vec<(DocumentKey, Place)> = differing_keys(&before, &self.base.documents)
            .filter_map(|(key, _, new)| Some((key.clone(), new.filter(|new| new.group == *group)?)))
            .map(|(key, new)| (key, new.document.place.clone()))
            .collect();
        let is_named = changed.iter().any(|(_, place)| *place == fault.place);
        let is_blamed = |place: &Place| match blame {
            Blame::Named if is_named => *place == fault.place,
            Blame::Named | Blame::Wide => true,
        };
        for (key, place) in changed.iter().filter(|(_, place)| is_blamed(place)) {
            let documents = Arc::make_mut(&mut self.base.documents);
            match before.get(key) {
                Some(before) => _ = documents.insert(key.clone(), before.clone()),
                None => _ = documents.remove(key),
            }
            let is_it = |object: &FileObject| object.key == FileObjectKey::Document(key.clone());
            let fault = Diagnostic { place: place.clone(), ..fault.clone() };
            self.report(fault, before.contains_key(key), is_it);
        }
        !changed.is_empty()
    }

    /// Shows a fault at its file, and that the object's last good version is served.
    fn report(&mut self, fault: Diagnostic, is_last_good: bool, is_it: impl Fn(&FileObject) -> bool) {
        let Some(file) = Arc::make_mut(&mut self.files).get_mut(&fault.place.file) else { return };
        let mut objects = file.objects.to_vec();
        objects
            .iter_mut()
            .filter(|object| is_it(object))
            .for_each(|object| object.is_last_good |= is_last_good);
        file.objects = objects.into();
        if !file.diagnostics.contains(&fault) {
            file.diagnostics.push(fault);
            file.diagnostics.sort_by_key(|one| (one.place.line, one.place.column));
        }
    }

    /// The faults that the oracle has found, and that are not known from an earlier load.
    pub(crate) fn new_refusals<'l>(&'l self, accepted: &'l Accepted) -> impl Iterator<Item = &'l Diagnostic> {
        let all =
            self.files.values().flat_map(|file| file.diagnostics.iter().map(move |one| (&file.path, one)));
        all.filter(|(path, fault)| {
            let known = accepted.files.get(*path).map(|file| file.diagnostics.as_slice()).unwrap_or_default();
            fault.code == judged::CODE && !known.contains(fault)
        })
        .map(|(_, fault)| fault)
    }

    fn n_errors(&self) -> usize {
        let diagnostics = self.files.values().flat_map(|file| &file.diagnostics);
        diagnostics.filter(|diagnostic| diagnostic.is_error()).count()
    }
}

/// The documents that a refused resource is blamed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The one that it names, if that has changed.
    Named,
    /// All that have changed in its group.
    Wide,
}

/// The proposal of a load. A load that is incomplete, refused or waiting for confirmation changes only the reports about the files.
///
/// # Errors
///
/// If the store cannot be read where it must be.
pub(crate) fn propose(env: &Env, accepted: &Accepted, load: &Load, at: At) -> Result<Transition, WriteError> {
    let n_errors = load.n_errors();
    let mut outcome =
        ReloadOutcome { revision: accepted.revision, difference: vec![], n_errors, unconfirmed: None };
    if !load.is_complete {
        let unconfirmed = accepted.unconfirmed.clone();
        return Ok(shown(accepted, load, (vec![], unconfirmed), outcome));
    }
    if load.asked != Asked::Confirmed {
        outcome.unconfirmed = reason_to_confirm(env, accepted, &load.base);
    }
    if outcome.unconfirmed.is_some() {
        let unconfirmed = outcome.unconfirmed.clone();
        return Ok(shown(accepted, load, (vec![], unconfirmed), outcome));
    }
    let step = step(env, accepted, (&load.base, load.copies.as_deref()), Some(&load.texts), at)?;
    let mut withheld = secrets::faults(&step.groups, &load.files);
    load.texts.move_to_fields(&mut withheld);
    outcome.n_errors += withheld.len();
    if !accepted.is_loaded && load.must_be_clean(env) && withheld.iter().any(|fault| load.has(&fault.place)) {
        return Ok(shown(accepted, load, (withheld, None), outcome));
    }
    let mut doubts = doubts_of(env, accepted, load, &step);
    load.texts.move_to_fields(&mut doubts);
    if env.options.strict && !doubts.is_empty() {
        outcome.n_errors += doubts.len();
        return Ok(refused(accepted, load, ("--strict", doubts), outcome));
    }
    if !step.refused.is_empty() {
        outcome.n_errors += step.refused.len();
        return Ok(refused(accepted, load, ("because of RouteTests", step.refused), outcome));
    }
    if let AfterLoad::Becomes(Some(wave)) = &step.wave {
        outcome.n_errors += wave.broken().len();
    }
    if load.asked != Asked::ByNobody {
        outcome.difference = difference_of(env, accepted, &load.base, &step.documents);
    }
    let mut transition = step.transition(accepted, at, env)?;
    transition.notes.extend([Note::solved(ProblemSubject::Files), Note::solved(ProblemSubject::Start)]);
    transition.notes.push(note(&load.files, &doubts));
    doubts.extend(withheld);
    transition.next.unusable = Arc::clone(&load.unusable);
    show(&mut transition, accepted, &load.files, (doubts, None));
    transition.outcome = Outcome::Loaded(outcome);
    Ok(transition)
}

/// Records a load that was served without being recorded.
///
/// # Errors
///
/// If the store cannot be read where it must be.
pub(crate) fn record_late(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    step(env, accepted, (&accepted.files_say(), None), None, at)?.transition(accepted, at, env)
}

/// A load that could not be recorded because of `error`. Files do not depend on the store: they are served as they are, below the
/// API's present overrides.
///
/// # Errors
///
/// Those of the proposal.
pub(crate) fn unrecorded(
    env: &Env,
    accepted: &Accepted,
    proposed: Transition,
    error: &WriteError,
    at: At,
) -> Result<Transition, WriteError> {
    let Transition { next, label, outcome, mut notes, told, refused, is_unjudged, .. } = proposed;
    let DocumentState { owned, weights, .. } = accepted.documents.clone();
    let codec = &env.parts.codec;
    let patch = Patch::new();
    let base = Arc::clone(&next.base);
    let withholds = accepted.withholds(&base, &patch);
    let terms = Terms::awaited((codec, &accepted.stored_statuses), at.wall, &withholds);
    let said = Said { files: Arc::clone(&next.documents.files), owned, weights };
    let documents = documents::next(&next.documents, said, terms)?;
    let groups = accepted.rebased(codec, &next.base, &Patch::new(), &documents);
    let stopped = |wave: &Arc<Wave>| {
        let is_known = accepted.wave.as_ref().is_some_and(|known| Arc::ptr_eq(known, wave));
        // ACKs of the new one would look like those of an earlier one.
        let reason = (!is_known).then(|| "the change could not be recorded".into());
        Arc::new(Wave { stopped: reason.or_else(|| wave.stopped.clone()), ..(**wave).clone() })
    };
    let wave = next.wave.as_ref().map(stopped);
    let is_published = !accepted.is_loaded || !differing(&accepted.groups, &groups).is_empty();
    let overrides = Arc::clone(&accepted.overrides);
    let recorded = if may_pass(error) { Recorded::Due } else { Recorded::No };
    let mut next = Accepted { overrides, documents, groups, wave, recorded, ..next };
    next.former = former::former(&next, terms)?;
    notes.retain(|note| note.subject != ProblemSubject::Record);
    let problem = format!("a load of the files could not be recorded: {}", chain(error));
    notes.push(Note::problem(ProblemSubject::Record, problem));
    let told = told.into_iter().filter(|event| !matches!(event, Event::OverrideDropped { .. })).collect();
    Ok(Transition {
        is_published,
        label,
        told,
        notes,
        refused,
        is_unjudged,
        ..Transition::quiet(next, outcome)
    })
}

/// A load that the oracle refuses as a whole, because of these faults.
pub(crate) fn refused_by_oracle(accepted: &Accepted, load: &Load, faults: Vec<Diagnostic>) -> Transition {
    let n_errors = load.n_errors() + faults.len();
    let outcome =
        ReloadOutcome { revision: accepted.revision, difference: vec![], n_errors, unconfirmed: None };
    refused(accepted, load, ("by the oracle", faults), outcome)
}

/// A load that was refused: only the state of its files is shown.
pub(crate) fn failed(accepted: &Accepted, load: &Load) -> Transition {
    let mut transition = Transition::quiet(accepted.clone(), Outcome::Done);
    show(&mut transition, accepted, &load.files, (vec![], None));
    transition
}

/// A load that only shows the state of the files.
fn shown(
    accepted: &Accepted,
    load: &Load,
    (doubts, unconfirmed): (Vec<Diagnostic>, Option<String>),
    outcome: ReloadOutcome,
) -> Transition {
    let mut transition = Transition::quiet(accepted.clone(), Outcome::Loaded(outcome));
    show(&mut transition, accepted, &load.files, (doubts, unconfirmed));
    if !accepted.is_loaded {
        let reason = transition.next.nothing_served();
        transition.notes.push(Note::problem(ProblemSubject::Start, reason));
    }
    transition
}

fn refused(
    accepted: &Accepted,
    load: &Load,
    (why, doubts): (&str, Vec<Diagnostic>),
    outcome: ReloadOutcome,
) -> Transition {
    let n_more = doubts.len().saturating_sub(1);
    let first = doubts.first().map(ToString::to_string).unwrap_or_default();
    let problem = format!("the load of the files is refused ({why}): {first}, and {n_more} more");
    let errors = check::as_errors(doubts);
    let general = note(&load.files, &errors);
    let mut transition = Transition::quiet(accepted.clone(), Outcome::Loaded(outcome));
    transition.next.unusable = Arc::clone(&load.unusable);
    transition.notes.extend([Note::problem(ProblemSubject::Files, problem), general]);
    show(&mut transition, accepted, &load.files, (errors, None));
    transition
}

/// Shows the files as a load left them, with its warnings at the files they concern. Reports new errors, and a load that waits for
/// confirmation.
fn show(
    transition: &mut Transition,
    accepted: &Accepted,
    files: &Arc<Files>,
    (doubts, unconfirmed): (Vec<Diagnostic>, Option<String>),
) {
    for (path, file) in &**files {
        let known = accepted.files.get(path).map(|file| file.diagnostics.as_slice()).unwrap_or_default();
        let withheld = doubts.iter().filter(|doubt| doubt.code == secrets::CODE && doubt.place.file == *path);
        let errors = file.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).chain(withheld);
        let news = errors.filter(|error| !known.contains(error));
        transition.told.extend(news.cloned().map(Event::FileError));
    }
    if let Some(reason) = unconfirmed.clone().filter(|_| accepted.unconfirmed != unconfirmed) {
        transition.told.push(Event::Unconfirmed { reason });
    }
    let mut files = Arc::clone(files);
    for doubt in doubts {
        if files.contains_key(&doubt.place.file)
            && let Some(file) = Arc::make_mut(&mut files).get_mut(&doubt.place.file)
        {
            file.diagnostics.push(doubt);
        }
    }
    (transition.next.files, transition.next.unconfirmed) = (files, unconfirmed);
}

/// The warnings of a load that concern no particular file.
fn note(files: &Files, doubts: &[Diagnostic]) -> Note {
    let general = doubts.iter().filter(|doubt| !files.contains_key(&doubt.place.file));
    let general: Vec<String> = general.map(ToString::to_string).collect();
    let problem = (!general.is_empty()).then(|| general.join("; "));
    Note { subject: ProblemSubject::Groups, problem }
}

/// Why the load needs confirmation; `None` if it needs none.
fn reason_to_confirm(env: &Env, accepted: &Accepted, after: &Base) -> Option<String> {
    let limit = env.options.hold_mass_removal?;
    if accepted.is_loaded {
        return mass_removal(&accepted.base, &accepted.documents.files, after, limit);
    }
    let (_, stored) = env.parts.store.state();
    nothing_left(&stored, after)
}

/// The changes of a load: those of the files, and those of generated resources.
fn difference_of(
    env: &Env,
    accepted: &Accepted,
    base: &Base,
    documents: &DocumentState,
) -> Vec<ChangedObject> {
    let (codec, before) = (&env.parts.codec, &accepted.documents);
    let mut changed = difference(codec, differing_keys(&accepted.base.groups, &base.layer.groups));
    documents::difference(&before.files, &base.documents, &mut changed);
    let (old, new) = (&before.translated.translation.groups, &documents.translated.translation.groups);
    documents::generated_difference(codec, old, new, &mut changed);
    changed
}

/// The warnings of a load. With `--strict`, an object that refers to a broken one must not be served.
fn doubts_of(env: &Env, accepted: &Accepted, load: &Load, step: &Step) -> Vec<Diagnostic> {
    let touched: BTreeSet<&GroupName> = step.base.groups.keys().chain(accepted.base.groups.keys()).collect();
    let is_of_file = |resource: &Resource| *resource.origin() != Origin::Api;
    let nothing = BTreeSet::new();
    let unusable = if env.options.strict { &nothing } else { &*load.unusable };
    let before = (&accepted.groups, &accepted.missing.references);
    check::doubts(before, &step.groups, &touched, unusable, &env.parts.board, is_of_file)
}

/// The effect of a complete load on the accepted state.
struct Step {
    base: Arc<xds_cache::Layer>,
    /// The sum of hashes over the base and the documents of the files.
    sum: ContentSum,
    /// All documents after the load, and the resources that they generate.
    documents: DocumentState,
    /// The overrides that are dropped, because the files are equal to them now.
    patch: Patch,
    /// The names of objects whose overrides are dropped for that reason.
    equal: Vec<String>,
    /// The overrides of weights that are dropped.
    dropped: Vec<Dropped>,
    groups: Groups,
    plan: Plan,
    summary: String,
    /// The effect on the wave deployment.
    wave: AfterLoad,
    /// The RouteTests that it breaks, if nothing of it can be held.
    refused: Vec<Diagnostic>,
    /// The wave deployment that ends with it.
    ended: Option<EndedWave>,
}

/// `texts` are those of the files if RouteTests count.
fn step(
    env: &Env,
    accepted: &Accepted,
    (base, copies): (&Base, Option<&Base>),
    texts: Option<&Texts>,
    at: At,
) -> Result<Step, WriteError> {
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    let keys = &store.state().1;
    let no_patch = Patch::new();
    let withholds = accepted.withholds(&base.layer, &no_patch);
    let terms = Terms::awaited((codec, &accepted.stored_statuses), at.wall, &withholds);
    let files_said = accepted.files_say();
    let sum = accepted.contents.changed(files_said.parts(), base.parts());
    let hash = sum.hash();
    let is_known = is_recorded(keys, &hash);
    let is_whole = accepted.recorded == Recorded::Yes && has_contents(store, keys);
    let recorded_last = is_whole.then_some(&files_said);
    let record = || stored_files::plan(codec, Kept::WithoutSecrets, recorded_last, base, keys);
    let contents = if is_known { Plan::new() } else { record() };
    let is_first = !accepted.is_loaded;
    let before = if is_first && !is_known {
        stored_files::accepted_as_recorded(env, accepted, (base, copies), keys, terms)?
    } else {
        None
    };
    let is_change = !is_first || before.is_some();
    let before = before.as_ref().unwrap_or(accepted);
    let (patch, mut equal) = equal_overrides(before, &base.layer, &contents);
    let document_patch = equal_documents(before, &base.documents, &contents);
    equal.extend(document_patch.keys().map(what));
    let give = |resting: &Resting| given(before, base, (&patch, &document_patch), resting, terms);
    let resting = accepted.resting();
    let (mut documents, mut groups, mut dropped) = give(&resting)?;
    let label = Label::new("files", ChangeSource::File, summary(&contents));
    // Only the objects that a wave deployment holds are known from before; the store knows what is new.
    let held = || begin::still_previous(accepted, &contents);
    let touched = if is_change { begin::previous_of_load(before, base) } else { held() };
    let (wave, refused) = match texts.filter(|_| accepted.is_loaded) {
        Some(texts) => {
            let next = &with_base(accepted, base, &documents, &groups);
            let change = Change { env, accepted, next, touched: &touched, terms };
            judged(change, base, texts, &label, at)?
        }
        // Tests are never in the way of the first load: without it nothing would be served.
        None => (begin::wave_after_load(env, before, base, &groups, touched, &label, at), vec![]),
    };
    if let AfterLoad::Becomes(wave) = &wave {
        let then = wave.as_deref().map(Wave::resting).unwrap_or_default();
        if then != resting && !before.documents.weights.is_empty() {
            (documents, groups, dropped) = give(&then)?;
        }
    }
    let mut plan = plan(&before.overrides, &patch);
    plan.extend(documents::plan(&before.documents.owned, &document_patch));
    plan.extend(weights::plan(&before.documents.weights, &documents.weights));
    if !is_known {
        plan.extend(contents);
        // The kept contents are incomplete if others were too large. The first load brings all.
        let hash = if is_first || has_contents(store, keys) { hash } else { hash_alone(&hash) };
        plan.push((StoreKey::FilesHash, Some(Bytes::from(hash))));
    }
    let ended = close::plan_waves(env, accepted, &wave, base, keys, &mut plan, at);
    // It makes no revision of its own.
    if !plan.is_empty() {
        plan.extend(statuses(accepted.recorded, keys, (before, &documents)));
    }
    Ok(Step {
        base: Arc::clone(&base.layer),
        sum,
        documents,
        patch,
        equal,
        dropped,
        groups,
        plan,
        summary: label.summary,
        wave,
        refused,
        ended,
    })
}

/// What is stored of the statuses of documents with a load.
fn statuses(recorded: Recorded, keys: &State, (before, after): (&Accepted, &DocumentState)) -> Plan {
    let (before, after) = (&before.documents.translated, &after.translated);
    match recorded {
        Recorded::Yes => stored_statuses::plan(before, after),
        Recorded::No | Recorded::Due => stored_statuses::whole_plan(keys, after),
    }
}

/// The accepted state with other files, and what follows from them.
fn with_base(accepted: &Accepted, base: &Base, documents: &DocumentState, groups: &Groups) -> Accepted {
    let base = Arc::clone(&base.layer);
    Accepted { base, documents: documents.clone(), groups: groups.clone(), ..accepted.clone() }
}

/// Lets RouteTests judge a load. Gives the wave deployment after it, and the tests that it breaks if nothing of it can be held.
fn judged(
    change: Change<'_>,
    base: &Base,
    texts: &Texts,
    label: &Label,
    at: At,
) -> Result<(AfterLoad, Vec<Diagnostic>), WriteError> {
    let Change { env, accepted, next, touched, .. } = change;
    let groups = &next.groups;
    let held = || begin::held(env, accepted, groups, (touched.clone(), None), label, at);
    let wave = match change.of_load()? {
        Verdict::Goes => begin::wave_after_load(env, accepted, base, groups, touched.clone(), label, at),
        Verdict::Holds(broken) if touched.is_empty() => {
            return Ok((AfterLoad::Unchanged, told(&broken, None)));
        }
        Verdict::Holds(broken) => {
            let mut broken = told(&broken, None);
            texts.move_to_fields(&mut broken);
            AfterLoad::Becomes(Some(Box::new(hold::stopped(held(), broken))))
        }
        Verdict::Frees => AfterLoad::Becomes(match hold::freed(env, accepted, &held(), at) {
            Freed::Begins(wave) => Some(wave),
            Freed::Ends(_) => None,
        }),
    };
    Ok((wave, vec![]))
}

/// The documents and groups with another base, and with the patches applied to the API's part.
pub(crate) fn given(
    before: &Accepted,
    base: &Base,
    (patch, document_patch): (&Patch, &DocumentPatch),
    resting: &Resting,
    terms: Terms<'_>,
) -> Result<(DocumentState, Groups, Vec<Dropped>), WriteError> {
    let owned = documents::patched(&before.documents.owned, document_patch);
    let objects = Objects::of(terms.codec, before, patch);
    let objects = Objects { files: &base.documents, owned: &owned, base: &base.layer, ..objects };
    let (laid, dropped) = objects.reconcile(&before.documents.weights, resting, terms.now);
    let weights = before.same_weights(laid);
    let said = Said { files: Arc::clone(&base.documents), owned: Arc::clone(&owned), weights };
    let documents = documents::next(&before.documents, said, terms)?;
    let groups = before.rebased(terms.codec, &base.layer, patch, &documents);
    Ok((documents, groups, dropped))
}

impl Step {
    fn transition(self, accepted: &Accepted, at: At, env: &Env) -> Result<Transition, WriteError> {
        let Self { base, sum, documents, patch, equal, dropped, groups, plan, summary, wave, ended, .. } =
            self;
        let is_first = !accepted.is_loaded;
        let is_published = is_first || !differing(&accepted.groups, &groups).is_empty();
        let overrides = accepted.patched_overrides(&patch);
        let mut next = Accepted {
            base,
            contents: sum,
            overrides,
            documents,
            groups,
            stored_statuses: Arc::default(),
            recorded: Recorded::Yes,
            is_loaded: true,
            ..accepted.clone()
        };
        let mut told = Vec::new();
        if let Some(ended) = ended {
            told.push(close::event_of_end(&ended));
            next.ended = Arc::new(Ended::clone(&accepted.ended).with(ended));
        }
        if let AfterLoad::Becomes(wave) = wave {
            next.wave = wave.map(|wave| Arc::new(*wave));
            told.extend(write::begun(next.wave.as_deref(), &summary));
        }
        let reason = || "the file says the same now".to_owned();
        told.extend(equal.into_iter().map(|what| Event::OverrideDropped { what, reason: reason() }));
        told.extend(weights::events(&dropped));
        let (base, no_patch) = (Arc::clone(&next.base), Patch::new());
        let withholds = accepted.withholds(&base, &no_patch);
        let terms = Terms::awaited((&env.parts.codec, &accepted.stored_statuses), at.wall, &withholds);
        next.former = former::former(&next, terms)?;
        let is_served_first = is_first && is_served_first(&plan);
        let smaller = Some(without_contents(&plan));
        let label = Label::new("files", ChangeSource::File, summary);
        let notes = vec![Note::solved(ProblemSubject::Record)];
        let quiet = Transition::quiet(next, Outcome::Done);
        Ok(Transition { plan, smaller, is_served_first, is_published, label, told, notes, ..quiet })
    }
}

/// The plan for a load that is too large for the history, which records only that there was one.
fn without_contents(plan: &Plan) -> Plan {
    let alone = |(key, value): &(StoreKey, Option<Bytes>)| match (key, value) {
        (StoreKey::DocumentStatus(_), _) => None,
        (key, _) if key.is_of_file() => None,
        (StoreKey::FilesHash, Some(hash)) => {
            let hash = hash_alone(&String::from_utf8_lossy(hash));
            Some((StoreKey::FilesHash, Some(Bytes::from(hash))))
        }
        (key, value) => Some((key.clone(), value.clone())),
    };
    plan.iter().filter_map(alone).collect()
}

/// The state that is served of a first load before it is recorded.
///
/// No caller can see that it is not recorded. It changes only the store's record of the files, and writes and commits of other
/// servers wait until it is recorded. After a kill before that, the next start finds the same difference to the store.
pub(crate) fn served_first(proposed: &Transition, revision: Revision) -> (Accepted, Label) {
    let Label { actor, source, summary } = proposed.label.clone();
    let label = Label { actor, source, summary: format!("{summary}; not recorded yet") };
    (Accepted { revision, recorded: Recorded::Due, ..proposed.next.clone() }, label)
}

/// Returns `true` if a first load is served before it is recorded: if recording takes long, and the load changes only files. A load
/// that drops an override, or begins or ends a wave deployment, must be recorded first.
fn is_served_first(plan: &Plan) -> bool {
    let is_of_files =
        |key: &StoreKey| key.is_of_file() || matches!(key, StoreKey::FilesHash | StoreKey::DocumentStatus(_));
    plan.len() > MAX_RECORDED_FIRST && plan.iter().all(|(key, _)| is_of_files(key))
}

/// Returns `true` if a failed record may succeed later, without a restart and without changes.
fn may_pass(error: &WriteError) -> bool {
    let WriteError::Store(error) = error else { return false };
    !matches!(
        **error,
        CommitError::TooLarge { .. }
            | CommitError::Store(StoreError::BlobTooLarge { .. } | StoreError::ReadOnly(_))
    )
}

/// The most values of a first load that is recorded before it is served: some ten milliseconds.
const MAX_RECORDED_FIRST: usize = 1_000;
