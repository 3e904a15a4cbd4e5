//! Proposals of the API's writes: build, translate, check.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::{Groups, Origin, Resource, WavePolicy};
use xds_codec::Diagnostic;
use xds_routes::{Bounds, Purpose};

use crate::accepted::{Accepted, Base};
use crate::candidate::{self, Candidate, NewFiles};
use crate::differing::differing;
use crate::documents::{self, Said, Terms};
use crate::env::{At, Env, Sharing};
use crate::hold::{self, Change, Freed, Verdict};
use crate::key::StoreKey;
use crate::model::document::DocumentState;
use crate::model::wave::WavePhase;
use crate::model::weights::reconcile::Dropped;
use crate::model::{
    ChangeSource, ChangedObject, Event, StepKind, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome,
};
use crate::plan::{MAX_DIFFERENCE, Patch, Plan, difference, plan};
use crate::route_gate::told;
use crate::rules::{self, Objects};
use crate::transition::{Label, Outcome, Transition};
use crate::wave::begin::AfterLoad;
use crate::wave::ended::{Ended, EndedWave};
use crate::wave::value::Wave;
use crate::wave::{begin, close, former, record};
use crate::weights::{self, Resting, WeightPatch};
use crate::{check, dry_run, push, request, rollouts, scope, secrets, stored_statuses, undo};

/// The proposal of a write.
///
/// # Errors
///
/// Why it is not done.
pub(crate) fn propose(
    env: &Env,
    accepted: &Accepted,
    write: &Write,
    options: &WriteOptions,
    at: At,
) -> Result<Transition, WriteError> {
    let is_first = !accepted.is_loaded && env.shares_store() && matches!(write, Write::ReplaceFiles { .. });
    if !accepted.is_loaded && !is_first {
        return Err(WriteError::NotReady);
    }
    if let Some(scope) = &options.scope {
        scope::check_named(scope, write, accepted)?;
    }
    if let Some(request) = options.request.as_ref().filter(|_| !options.dry_run)
        && let Some(done) = request::done(env, request)?
    {
        return Ok(Transition::quiet(accepted.clone(), Outcome::Written(Box::new(done), vec![])));
    }
    candidate::check_tags(accepted, write, options)?;
    let Write::ReplaceFiles { load, .. } = write else {
        return propose_candidate(
            env,
            accepted,
            (write, candidate_of(env, accepted, write, options)?),
            options,
            at,
        );
    };
    let candidate = candidate_of(env, accepted, write, options)?;
    let mut proposed = propose_candidate(env, accepted, (write, candidate), options, at);
    let faults = match &mut proposed {
        Ok(Transition { outcome: Outcome::Written(outcome, _), next, .. }) => {
            next.is_loaded |= !options.dry_run;
            &mut outcome.warnings
        }
        Err(WriteError::Invalid(faults)) => faults,
        Ok(_) | Err(_) => return proposed,
    };
    load.texts.move_to_fields(faults);
    proposed
}

fn propose_candidate(
    env: &Env,
    accepted: &Accepted,
    (write, candidate): (&Write, Candidate),
    options: &WriteOptions,
    at: At,
) -> Result<Transition, WriteError> {
    let goes_on = || options.until.is_none_or(|until| Instant::now() < until);
    let purpose = if options.dry_run { Purpose::Trial } else { Purpose::Serving };
    let base = base_of(accepted, &candidate);
    let withholds = accepted.withholds(&base.layer, &candidate.patch);
    let terms = Terms {
        codec: &env.parts.codec,
        stored_statuses: &accepted.stored_statuses,
        now: at.wall,
        bounds: Bounds { goes_on: &goes_on, purpose },
        withholds: &withholds,
    };
    let (mut next, dropped) = apply(accepted, &candidate, &accepted.resting(), terms)?;
    match &candidate.files {
        Some(_) => secrets::refuse_files(&accepted.groups, &next.groups, &next.files)?,
        None => secrets::refuse(&accepted.groups, &next.groups)?,
    }
    let warnings = warnings(env, accepted, (&candidate, &next, &dropped))?;
    documents::refuse_own_faults(write, &warnings)?;
    let mut plan = plan_of(accepted, &candidate, &next);
    if candidate.is_whole {
        plan.extend(unreadable_of(accepted, &candidate.patch, &plan));
    }
    if let Some(scope) = &options.scope {
        let groups = (&accepted.groups, &next.groups);
        scope::check_touched(scope, &plan, groups, [&accepted.documents, &next.documents])?;
    }
    let label = Label::new(&options.actor, candidate.source, candidate.summary);
    let mut outcome = outcome_of(accepted, &plan, warnings);
    let waves = match outcome.changed {
        true => {
            let mut touched = begin::previous_of_write(accepted, &plan);
            touched.extend(candidate.files.iter().flat_map(|_| begin::previous_of_load(accepted, &base)));
            let change = Change { env, accepted, next: &next, touched: &touched, terms };
            waves_of(change, (write, options, &label), (&plan, &candidate.weights), at)?
        }
        false => Waves::default(),
    };
    waves.refuse_for_others(env)?;
    outcome.held.clone_from(&waves.held);
    if options.dry_run || candidate.files.is_some() {
        outcome.difference = difference_of(env, accepted, &candidate.patch, &next);
    }
    if options.dry_run {
        let [before, after] = [accepted, &next].map(|state| &state.documents.translated.translation.groups);
        documents::generated_difference(&env.parts.codec, before, after, &mut outcome.difference);
        outcome.affected_nodes = dry_run::affected_nodes(&env.parts.board, &accepted.groups, &next.groups);
        let clients = dry_run::previews(&env.parts.publisher, &next.groups, at.clock, |_| true);
        return Ok(Transition::quiet(next, Outcome::Written(Box::new(outcome), clients)));
    }
    if !outcome.changed {
        let outcome = Outcome::Written(Box::new(outcome), vec![]);
        return Ok(Transition::quiet(accepted.clone(), outcome));
    }
    outcome.wave = waves.next.as_ref().map(|wave| wave.id);
    let equal = candidate.files.into_iter().flat_map(|files| files.equal);
    let reason = || "the file says the same now".to_owned();
    let equal = equal.map(|what| Event::OverrideDropped { what, reason: reason() });
    let told = waves.events(&label.summary).chain(equal).chain(weights::events(&dropped)).collect();
    waves.carry_out(&mut next, &mut plan, env);
    plan.extend(stored_statuses::plan(&accepted.documents.translated, &next.documents.translated));
    let is_planned = |key: &String| plan.iter().any(|(planned, _)| planned.to_string() == *key);
    if accepted.unreadable.keys().any(is_planned) {
        Arc::make_mut(&mut next.unreadable).retain(|key, _| !is_planned(key));
    }
    if let Some(request) = &options.request {
        request::remember(env, accepted, request, &mut plan);
    }
    next.former = former::former(&next, terms)?;
    let outcome = Outcome::Written(Box::new(outcome), vec![]);
    Ok(Transition { plan, label, told, ..Transition::quiet(next, outcome) })
}

/// The outcome of a write that stores this, as far as it is known before it is judged.
fn outcome_of(accepted: &Accepted, plan: &Plan, warnings: Vec<Diagnostic>) -> WriteOutcome {
    let names = plan.iter().filter(|(key, _)| !key.is_internal()).map(|(key, _)| key.what());
    WriteOutcome {
        revision: accepted.revision,
        changed: !plan.is_empty(),
        warnings,
        objects: names.take(WriteOutcome::MAX_TOUCHED).collect(),
        ..WriteOutcome::default()
    }
}

/// The effect of a write on wave deployments.
#[derive(Default)]
struct Waves {
    /// The one that it begins, or joins.
    next: Option<Wave>,
    /// The one that it ends.
    ended: Option<EndedWave>,
    /// Why RouteTests hold it.
    held: Option<String>,
}

impl Waves {
    fn events(&self, summary: &str) -> impl Iterator<Item = Event> {
        begun(self.next.as_ref(), summary).into_iter().chain(self.ended.as_ref().map(close::event_of_end))
    }

    /// Refuses what needs the answers of clients that other servers with the same store have.
    fn refuse_for_others(&self, env: &Env) -> Result<(), WriteError> {
        if env.options.sharing != Sharing::Apart || self.next.is_none() {
            return Ok(());
        }
        let what = if self.held.is_some() { "a change that is held" } else { "a wave deployment" };
        let instead = "give each server --peer-listen, so that they ask each other; or write to everyone with waves=none, and give no \
                       RouteTest the policy `hold`";
        Err(WriteError::SharedStore { what, instead })
    }

    fn carry_out(self, next: &mut Accepted, plan: &mut Plan, env: &Env) {
        let Self { next: wave, ended, .. } = self;
        if wave.is_none() && ended.is_none() {
            return;
        }
        let keys = env.parts.store.state().1;
        plan.extend(record::plan(wave.as_ref(), &keys));
        if let Some(ended) = ended {
            next.ended = Arc::new(Ended::clone(&next.ended).with(ended));
            plan.extend(next.ended.plan(&keys));
        }
        next.wave = wave.map(Arc::new);
    }
}

/// Lets RouteTests judge a write, and decides whom it reaches first.
///
/// # Errors
///
/// Why it is not done.
fn waves_of(
    change: Change<'_>,
    (write, options, label): (&Write, &WriteOptions, &Label),
    (plan, named): (&Plan, &WeightPatch),
    at: At,
) -> Result<Waves, WriteError> {
    let Change { env, accepted, next, touched, .. } = change;
    let scope = options.scope.as_deref();
    match change.of_write(write, &options.waves, scope)? {
        Verdict::Goes if matches!(write, Write::ReplaceFiles { .. }) => {
            let (base, touched) = (next.files_say(), (touched.clone(), &options.waves));
            let after = begin::wave_after_push(env, accepted, &base, &next.groups, touched, label, at);
            let AfterLoad::Becomes(next) = after else { return Ok(Waves::default()) };
            let ended = close::superseded(env, accepted, next.as_deref(), &base, at);
            Ok(Waves { next: next.map(|next| *next), ended, held: None })
        }
        Verdict::Goes => {
            let change = (plan, named, touched.clone());
            let next = begin::begin_wave(env, accepted, change, &next.groups, options, label, at)?;
            Ok(Waves { next, ..Waves::default() })
        }
        Verdict::Holds(broken) => {
            let policy = match &options.waves {
                WaveChoice::AtOnce => Some(WavePolicy::at_once()),
                WaveChoice::By(policy) => Some(policy.clone()),
                WaveChoice::ByPolicy => None,
            };
            let held = begin::held(env, accepted, &next.groups, (touched.clone(), policy), label, at);
            let reason = hold::reason(&told(&broken, scope));
            Ok(Waves {
                next: Some(hold::stopped(held, told(&broken, None))),
                ended: None,
                held: Some(reason),
            })
        }
        Verdict::Frees => {
            let held = begin::held(env, accepted, &next.groups, (touched.clone(), None), label, at);
            Ok(match hold::freed(env, accepted, &held, at) {
                Freed::Begins(wave) => Waves { next: Some(*wave), ..Waves::default() },
                Freed::Ends(ended) => Waves { ended: Some(*ended), ..Waves::default() },
            })
        }
    }
}

fn candidate_of(
    env: &Env,
    accepted: &Accepted,
    write: &Write,
    options: &WriteOptions,
) -> Result<Candidate, WriteError> {
    let (codec, store) = (&env.parts.codec, &*env.parts.store);
    match write.clone() {
        Write::PutGroup(definition) => candidate::put_group(accepted, definition),
        Write::DeleteGroup(name) => candidate::delete_group(accepted, &name),
        Write::ReplaceResources { group, label, resources } => {
            Ok(candidate::replace_resources(accepted, &group, label, resources))
        }
        Write::PutResource { group, resource } => Ok(candidate::put_resource(accepted, &group, resource)),
        Write::DeleteResource { group, key } => candidate::delete_resource(accepted, &group, &key),
        Write::ApplyDocuments { group, documents, warnings } => Ok(candidate::apply_documents(
            accepted,
            documents,
            group.as_ref(),
            warnings,
            options.scope.as_ref(),
        )),
        Write::DeleteDocument { key } => candidate::delete_document(accepted, &key),
        Write::ChangeWeights { key, change } => {
            rollouts::refuse_owned(&accepted.rollouts, &key)?;
            rules::change(codec, accepted, &key, &change, options)
        }
        Write::StepRollouts { kind: StepKind::Onward, .. } if env.options.sharing == Sharing::Apart => {
            let instead = "give each server --peer-listen, so that they ask each other; or change the weights by `xds-server weights`";
            Err(WriteError::SharedStore { what: "a rollout", instead })
        }
        Write::StepRollouts { steps, change, kind, summary } => {
            let rollouts = rollouts::patch_of(&accepted.rollouts, steps)?;
            let candidate = match change {
                Some((key, change)) => rules::change(codec, accepted, &key, &change, options)?,
                None => Candidate::default(),
            };
            let source = match kind {
                StepKind::ByHand => ChangeSource::Api,
                StepKind::Onward | StepKind::Back => ChangeSource::Rollout,
            };
            Ok(Candidate { rollouts, source, summary, ..candidate })
        }
        Write::ReplaceFiles { load, is_confirmed } => push::candidate(env, accepted, &load, is_confirmed),
        Write::EndOverrides => Ok(rules::end()),
        Write::Rollback { to } => undo::rollback(codec, store, accepted, to),
        Write::Revert { of } => undo::revert(codec, store, accepted, of),
    }
}

/// The state with a candidate applied, and the overrides of weights that were dropped. `resting` are the objects that a wave
/// deployment holds then.
///
/// # Errors
///
/// [`WriteError::Stopped`] at a bound.
pub(crate) fn apply(
    accepted: &Accepted,
    candidate: &Candidate,
    resting: &Resting,
    terms: Terms<'_>,
) -> Result<(Accepted, Vec<Dropped>), WriteError> {
    let present = &accepted.documents.weights;
    let base = base_of(accepted, candidate);
    let changes_none =
        candidate.documents.is_empty() && candidate.weights.is_empty() && candidate.files.is_none();
    let touches_none = weights::groups_of(present).iter().all(|name| !candidate.patch.contains_key(*name));
    let is_same = present.is_empty() || *resting == accepted.resting();
    let rollouts = rollouts::patched(&accepted.rollouts, &candidate.rollouts);
    let (documents, dropped) =
        if changes_none && touches_none && is_same && !weights::is_due(present, terms.now) {
            (accepted.documents.clone(), vec![])
        } else {
            let owned = documents::patched(&accepted.documents.owned, &candidate.documents);
            let laid = weights::patched(present, &candidate.weights);
            let objects = Objects::of(terms.codec, accepted, &candidate.patch);
            let (files, layer) = (&base.documents, &base.layer);
            let objects = Objects { owned: &owned, rollouts: &rollouts, files, base: layer, ..objects };
            let (laid, dropped) = objects.reconcile(&laid, resting, terms.now);
            let files = Arc::clone(files);
            let weights = accepted.same_weights(laid);
            let said = Said { files, owned: Arc::clone(&owned), weights };
            (documents::next(&accepted.documents, said, terms)?, dropped)
        };
    let groups = accepted.rebased(terms.codec, &base.layer, &candidate.patch, &documents);
    let overrides = accepted.patched_overrides(&candidate.patch);
    let mut next = Accepted { overrides, documents, rollouts, groups, ..accepted.clone() };
    if let Some(NewFiles { contents, files, .. }) = &candidate.files {
        (next.base, next.contents, next.files) = (base.layer, *contents, Arc::clone(files));
    }
    Ok((next, dropped))
}

/// The contents of the files after a write.
fn base_of(accepted: &Accepted, candidate: &Candidate) -> Base {
    candidate.files.as_ref().map_or_else(|| accepted.files_say(), |files| files.base.clone())
}

/// The plan that makes `next` the accepted state, except for waves and remembered statuses of documents.
pub(crate) fn plan_of(accepted: &Accepted, candidate: &Candidate, next: &Accepted) -> Plan {
    let mut plan = plan(&accepted.overrides, &candidate.patch);
    plan.extend(documents::plan(&accepted.documents.owned, &candidate.documents));
    plan.extend(weights::plan(&accepted.documents.weights, &next.documents.weights));
    plan.extend(rollouts::plan(&accepted.rollouts, &candidate.rollouts));
    plan.extend(candidate.files.iter().flat_map(|files| files.plan.iter().cloned()));
    plan
}

/// The warnings of a write.
///
/// # Errors
///
/// [`WriteError::Invalid`] if warnings are errors (`--strict`).
fn warnings(
    env: &Env,
    accepted: &Accepted,
    (candidate, next, dropped): (&Candidate, &Accepted, &[Dropped]),
) -> Result<Vec<Diagnostic>, WriteError> {
    let (before, after, board) = (&accepted.groups, &next.groups, &env.parts.board);
    let mut touched: BTreeSet<_> = candidate.patch.keys().collect();
    let mut counts: fn(&Resource) -> bool = is_of_api;
    if let Some(files) = &candidate.files {
        counts = |resource| !is_of_api(resource);
        touched.extend(differing(&accepted.base.groups, &files.base.layer.groups).map(|(name, _, _)| name));
    }
    // Nobody reads doubts about what is relayed, and the whole group would be looked at for each change.
    let is_told = env.options.strict || !env.options.is_relay || candidate.files.is_none();
    let doubts = match is_told {
        true => {
            let before = (before, &accepted.missing.references);
            check::doubts(before, after, &touched, &BTreeSet::new(), board, counts)
        }
        false => vec![],
    };
    if env.options.strict && !doubts.is_empty() {
        return Err(WriteError::Invalid(check::as_errors(doubts)));
    }
    let mut warnings = candidate.warnings.clone();
    warnings.extend(doubts);
    let translated = (&accepted.documents.translated, &next.documents.translated);
    if !Arc::ptr_eq(translated.0, translated.1) {
        warnings.extend(documents::doubts_of_write(translated.0, translated.1));
    }
    warnings.extend(check::nodeless(before, after, &touched, board));
    warnings.extend(weights::warnings(dropped));
    Ok(warnings)
}

/// The event of a wave deployment that begins.
pub(crate) fn begun(wave: Option<&Wave>, summary: &str) -> Option<Event> {
    wave.map(|wave| match &wave.stopped {
        Some(reason) => close::event(wave, WavePhase::Held, format!("held: {summary}: {reason}")),
        None => close::event(wave, WavePhase::Progressing, format!("began: {summary}")),
    })
}

/// The changes that a write makes, without those of generated resources.
fn difference_of(env: &Env, accepted: &Accepted, patch: &Patch, next: &Accepted) -> Vec<ChangedObject> {
    let codec = &env.parts.codec;
    let compared =
        patch.iter().map(|(name, after)| (name, accepted.overrides.groups.get(name), after.as_ref()));
    let mut found = difference(codec, compared);
    found.extend(difference(codec, differing(&accepted.base.groups, &next.base.groups)));
    found.truncate(MAX_DIFFERENCE);
    let (before, after): (&DocumentState, &DocumentState) = (&accepted.documents, &next.documents);
    documents::difference(&before.files, &after.files, &mut found);
    documents::difference(&before.owned, &after.owned, &mut found);
    let groups: (&Groups, &Groups) = (&accepted.groups, &next.groups);
    weights::difference(codec, (&before.weights, &after.weights), groups, &mut found);
    found
}

/// Deletions of the records that could not be read in the groups of a patch, which replaces whole groups.
fn unreadable_of(accepted: &Accepted, patch: &Patch, plan: &Plan) -> Plan {
    let keys = accepted.unreadable.keys().filter_map(|text| StoreKey::parse(text));
    keys.filter(|key| key.owned_group().is_some_and(|name| patch.contains_key(name)))
        .filter(|key| plan.iter().all(|(planned, _)| planned != key))
        .map(|key| (key, None))
        .collect()
}

fn is_of_api(resource: &Resource) -> bool {
    *resource.origin() == Origin::Api
}
