//! Changes that go in waves, and changes that conflict with a wave deployment.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::layer::{LayerGroup, Resources, differing};
use xds_cache::wave::{AWAY_TIME, Deployment, Members, Split, Stage};
use xds_cache::{GroupName, Groups, WavePolicy};
use xds_codec::{Diagnostic, Severity};

use super::failing::Failing;
use super::rank;
use super::report::connected;
use super::value::{PreviousValue, PreviousValues, Tests, Wave};
use crate::accepted::{Accepted, Base};
use crate::differing::differing as differing_keys;
use crate::env::{At, Env};
use crate::key::{Owner, StoreKey, Subject};
use crate::model::weights::{RuleKey, WeightedObject};
use crate::model::{WaveChoice, WriteError, WriteOptions};
use crate::plan::Plan;
use crate::transition::Label;
use crate::warning::warning;
use crate::weights::WeightPatch;

/// The effect of a load on the current wave deployment.
#[derive(Debug)]
pub(crate) enum AfterLoad {
    /// Nothing.
    Unchanged,
    /// It is replaced by another one, or by none.
    Becomes(Option<Box<Wave>>),
}

/// The wave deployment that a write begins; `None` if it reaches everyone at once. `named` are the overrides of weights that it
/// requests; other ones in the plan are consequences of the change, or of the time. `previous` has what it changes, as it is now.
///
/// # Errors
///
/// [`WriteError::WaveActive`] if it changes an object that a wave deployment holds, or would begin a second one.
pub(crate) fn begin_wave(
    env: &Env,
    accepted: &Accepted,
    (plan, named, previous): (&Plan, &WeightPatch, PreviousValues),
    after: &Groups,
    options: &WriteOptions,
    label: &Label,
    at: At,
) -> Result<Option<Wave>, WriteError> {
    let active = accepted.wave.as_deref();
    // A change that was put back is not served, so a forced write may replace it.
    if let Some(active) = active.filter(|active| active.stopped.is_none() || !options.force) {
        refuse_touched(active, plan, named)?;
    }
    let policy = chosen(env, accepted, after, &previous, &options.waves);
    let Some(policy) = policy else { return Ok(None) };
    if previous.is_empty() {
        return match options.waves {
            WaveChoice::By(_) => Err(not_for_definitions()),
            WaveChoice::AtOnce | WaveChoice::ByPolicy => Ok(None),
        };
    }
    if let Some(active) = active {
        let id = active.id;
        return Err(WriteError::WaveActive {
            deployment: id,
            message: format!(
                "the wave deployment {id} ({}) has not finished, and there can be only one at a time: wait, end it with \
                 /v1/waves/{id}:promote or :abort, write to everyone with waves=none, or force=true to abort it first",
                active.summary
            ),
        });
    }
    let changed = differing(&accepted.groups, after);
    Ok(Some(wave(env, accepted, policy, (previous, &changed), label, at)))
}

/// A wave deployment that begins with the next revision; `changed` are the groups that it changes.
fn wave(
    env: &Env,
    accepted: &Accepted,
    policy: WavePolicy,
    (previous, changed): (PreviousValues, &BTreeSet<&GroupName>),
    label: &Label,
    at: At,
) -> Wave {
    let (first, now) = (accepted.next_revision(), at.clock);
    let ranking = rank::ranking_of(env, &policy, changed);
    let policy = ranking.order().map_or_else(|| policy.clone(), |order| policy.in_order(order));
    let (deployment, rank_from) = match !accepted.is_loaded {
        true => (Deployment::restored(policy, 0, Stage::Progressing, now), now + AWAY_TIME),
        false => (Deployment::new(policy, 0, now), now),
    };
    let split = Split { deployment: first.0, share: Some(deployment.share()), ranking: ranking.clone() };
    let members = connected(env, &split, changed);
    let recorded = members.keys().cloned().collect();
    let mut known = Members::default();
    known.look(members, |_| false, now);
    Wave {
        id: first.0,
        actor: label.actor.clone(),
        source: label.source.as_str().to_owned(),
        summary: label.summary.clone(),
        began_at: at.wall,
        since: at.wall,
        previous: Arc::new(previous),
        reached: vec![first],
        ranking,
        rank_from,
        stopped: None,
        paused: None,
        tests: Tests::Asked,
        deployment,
        failing: Arc::new(Failing::of(&env.parts.board, |_| true)),
        members: Arc::new(known),
        recorded,
    }
}

/// A change that RouteTests keep from everyone, together with what they keep already. Without a policy of its own, that of its groups is for
/// when it goes out.
pub(crate) fn held(
    env: &Env,
    accepted: &Accepted,
    after: &Groups,
    (touched, policy): (PreviousValues, Option<WavePolicy>),
    label: &Label,
    at: At,
) -> Wave {
    let active = accepted.wave.as_deref();
    let mut previous = active.map(|active| (*active.previous).clone()).unwrap_or_default();
    for (key, value) in touched {
        previous.entry(key).or_insert(value);
    }
    if let Some(active) = active.filter(|active| active.awaits_tests()) {
        return Wave { previous: Arc::new(previous), since: at.wall, ..active.clone() };
    }
    let policy = policy.or_else(|| policy_of(env, accepted, after, &previous));
    let policy = policy.unwrap_or_else(WavePolicy::at_once);
    wave(env, accepted, policy, (previous, &differing(&accepted.groups, after)), label, at)
}

/// A stopped wave deployment that begins again with the next revision.
pub(crate) fn again(env: &Env, accepted: &Accepted, wave: &Wave, at: At) -> Wave {
    Wave {
        since: at.wall,
        reached: vec![accepted.next_revision()],
        stopped: None,
        paused: None,
        tests: Tests::Asked,
        deployment: Deployment::new(wave.deployment.policy().clone(), 0, at.clock),
        failing: Arc::new(Failing::of(&env.parts.board, |_| true)),
        members: Arc::default(),
        recorded: Arc::default(),
        ..wave.clone()
    }
}

/// The objects that a first load changes and a wave deployment holds.
pub(crate) fn still_previous(accepted: &Accepted, contents: &Plan) -> PreviousValues {
    let previous = |key: &StoreKey| accepted.wave.as_ref()?.previous.get(key).cloned();
    contents.iter().filter_map(|(key, _)| Some((key.clone(), previous(key)?))).collect()
}

/// The effect of a load on the current wave deployment; `touched` has the former values of the objects that it changes. If a file
/// changes while its last change is held back, nodes keep the contents that they are served, and the wave deployment starts again. An
/// object that is as it was before is no longer held.
pub(crate) fn wave_after_load(
    env: &Env,
    accepted: &Accepted,
    base: &Base,
    after: &Groups,
    touched: PreviousValues,
    label: &Label,
    at: At,
) -> AfterLoad {
    wave_after_push(env, accepted, base, after, (touched, &WaveChoice::ByPolicy), label, at)
}

/// The same of a push, which may choose its waves.
pub(crate) fn wave_after_push(
    env: &Env,
    accepted: &Accepted,
    base: &Base,
    after: &Groups,
    (touched, choice): (PreviousValues, &WaveChoice),
    label: &Label,
    at: At,
) -> AfterLoad {
    if touched.is_empty() {
        return AfterLoad::Unchanged;
    }
    let active = accepted.wave.as_deref();
    let policy = chosen(env, accepted, after, &touched, choice);
    let changed = differing(&accepted.groups, after);
    let Some(active) = active else {
        return match policy {
            Some(policy) => {
                let wave = wave(env, accepted, policy, (touched, &changed), label, at);
                AfterLoad::Becomes(Some(Box::new(wave)))
            }
            None => AfterLoad::Unchanged,
        };
    };
    let is_new = |key: &StoreKey| touched.contains_key(key);
    let mut previous: PreviousValues = (*active.previous).clone();
    let Some(policy) = policy else {
        previous.retain(|key, _| !is_new(key));
        if previous.len() == active.previous.len() {
            return AfterLoad::Unchanged;
        }
        let rest = Wave { previous: Arc::new(previous), ..active.clone() };
        return AfterLoad::Becomes((!rest.previous.is_empty()).then(|| Box::new(rest)));
    };
    for (key, value) in touched {
        previous.entry(key).or_insert(value);
    }
    previous.retain(|key, value| !key.is_of_file() || !says(base, key, value.as_ref()));
    if previous.is_empty() {
        return AfterLoad::Becomes(None);
    }
    AfterLoad::Becomes(Some(Box::new(wave(env, accepted, policy, (previous, &changed), label, at))))
}

/// The waves that a change of these objects is to have.
fn chosen(
    env: &Env,
    accepted: &Accepted,
    after: &Groups,
    touched: &PreviousValues,
    choice: &WaveChoice,
) -> Option<WavePolicy> {
    match choice {
        WaveChoice::AtOnce => None,
        WaveChoice::By(policy) => Some(policy.clone()),
        WaveChoice::ByPolicy => policy_of(env, accepted, after, touched),
    }
}

/// The waves of a change of these objects: the policy of the most careful of their groups, which has the smallest first wave. One wave
/// for each value counts as more careful than all shares. A group without a policy uses that of the flags.
fn policy_of(env: &Env, accepted: &Accepted, after: &Groups, touched: &PreviousValues) -> Option<WavePolicy> {
    let mut names: BTreeSet<&GroupName> = BTreeSet::new();
    for (key, value) in touched {
        match (key, value) {
            (StoreKey::Document(document), _) | (StoreKey::FileDocument(document), _) => {
                let placed = accepted.documents.translated.documents.get(document);
                names.extend(placed.map(|placed| &placed.group));
                if let Some(PreviousValue::Document(document)) = value {
                    names.insert(&document.group);
                }
            }
            (StoreKey::Weights(RuleKey { object: WeightedObject::Document(document), .. }), _) => {
                let placed = accepted.documents.translated.documents.get(document);
                names.extend(placed.map(|placed| &placed.group));
            }
            (key, _) => names.extend(group_of(key)),
        }
    }
    // A document that is new has its group after the change only; it is among those whose resources differ.
    names.extend(differing(&accepted.groups, after).into_iter().filter(|name| after.contains_key(*name)));
    let policy = |name: &&GroupName| {
        let group = after.get(*name).or_else(|| accepted.groups.get(*name))?;
        group.definition.waves.clone().or_else(|| env.options.waves.clone())
    };
    names.iter().filter_map(policy).min_by_key(WavePolicy::first_share)
}

fn group_of(key: &StoreKey) -> Option<&GroupName> {
    match key.subject() {
        Subject::Group(name)
        | Subject::Label(name)
        | Subject::Resource(name, _)
        | Subject::Weights(RuleKey { object: WeightedObject::Routes(name, _), .. }) => Some(name),
        Subject::Weights(_) | Subject::Document(_) | Subject::Other => None,
    }
}

/// Refuses a change of an object that a wave deployment holds, in either layer.
fn refuse_touched(active: &Wave, plan: &Plan, named: &WeightPatch) -> Result<(), WriteError> {
    let previous: BTreeSet<String> = active.previous.keys().map(StoreKey::what).collect();
    let is_asked_for = |key: &&StoreKey| !matches!(key, StoreKey::Weights(rule) if !named.contains_key(rule));
    let asked_for = plan.iter().map(|(key, _)| key).filter(is_asked_for);
    let Some(what) = asked_for.map(StoreKey::what).find(|what| previous.contains(what)) else {
        return Ok(());
    };
    let id = active.id;
    Err(WriteError::WaveActive {
        deployment: id,
        message: format!(
            "{what} is part of the wave deployment {id} ({}): wait until it has finished, end it with /v1/waves/{id}:promote or :abort, \
             or write with force=true, which aborts it first",
            active.summary
        ),
    })
}

fn not_for_definitions() -> WriteError {
    let message = "waves are for resources and documents; what a node group selects changes for all nodes at once: omit waves, or write waves=none";
    let fault = warning("waves", "", message.to_owned());
    WriteError::Invalid(vec![Diagnostic { severity: Severity::Error, ..fault }])
}

/// The present values of the objects that a write changes.
pub(crate) fn previous_of_write(accepted: &Accepted, plan: &Plan) -> PreviousValues {
    let mut previous = PreviousValues::new();
    for (key, after) in plan {
        let (Owner::Api, subject) = key.parts() else { continue };
        let value = match subject {
            Subject::Resource(name, resource) => {
                let owned = accepted.overrides.resources(name).and_then(|resources| resources.get(resource));
                owned.cloned().map(PreviousValue::Resource)
            }
            Subject::Label(name) => {
                let group = accepted.overrides.groups.get(name);
                group.and_then(|group| group.label.clone()).map(PreviousValue::Label)
            }
            Subject::Document(document) => {
                accepted.documents.owned.get(document).cloned().map(PreviousValue::Document)
            }
            Subject::Weights(rule) => {
                accepted.documents.weights.get(rule).cloned().map(PreviousValue::Weights)
            }
            Subject::Group(name) if after.is_none() => {
                let group = accepted.overrides.groups.get(name);
                group.and_then(|group| group.definition.clone()).map(PreviousValue::Definition)
            }
            Subject::Group(_) | Subject::Other => continue,
        };
        previous.insert(key.clone(), value);
    }
    previous
}

/// The present values of the objects that a load changes. Objects that the API overrides are left out, because the file's are not
/// served.
pub(crate) fn previous_of_load(accepted: &Accepted, base: &Base) -> PreviousValues {
    let mut previous = PreviousValues::new();
    let nothing = Resources::new();
    for (name, old, new) in differing_keys(&accepted.base.groups, &base.layer.groups) {
        let definition = |group: Option<&LayerGroup>| group.and_then(|group| group.definition.clone());
        if let (Some(definition), None) = (definition(old), definition(new)) {
            previous.insert(StoreKey::FileGroup(name.clone()), Some(PreviousValue::Definition(definition)));
        }
        let [old, new] = [old, new].map(|group| group.map_or(&nothing, |group| &group.resources));
        for (key, old, new) in differing_keys(old, new) {
            let is_covered =
                accepted.overrides.resources(name).is_some_and(|resources| resources.contains_key(key));
            let is_same = old.zip(new).is_some_and(|(old, new)| old.says_the_same(new));
            if !is_same && !is_covered {
                let value = old.cloned().map(PreviousValue::Resource);
                previous.insert(StoreKey::File(name.clone(), (**key).clone()), value);
            }
        }
    }
    for (key, old, new) in differing_keys(&accepted.documents.files, &base.documents) {
        let is_same = old.zip(new).is_some_and(|(old, new)| old.says_the_same(new));
        if !is_same && !accepted.documents.owned.contains_key(key) {
            let value = old.cloned().map(PreviousValue::Document);
            previous.insert(StoreKey::FileDocument(key.clone()), value);
        }
    }
    previous
}

/// Returns `true` if the files have the previous value of an object.
pub(crate) fn says(base: &Base, key: &StoreKey, value: Option<&PreviousValue>) -> bool {
    match (key, value) {
        (StoreKey::File(name, key), value) => {
            let present = base.layer.resources(name).and_then(|resources| resources.get(key));
            match (present, value) {
                (Some(present), Some(PreviousValue::Resource(previous))) => present.says_the_same(previous),
                (present, value) => present.is_none() && value.is_none(),
            }
        }
        (StoreKey::FileDocument(key), value) => match (base.documents.get(key), value) {
            (Some(present), Some(PreviousValue::Document(previous))) => present.says_the_same(previous),
            (present, value) => present.is_none() && value.is_none(),
        },
        (StoreKey::FileGroup(name), _) => {
            base.layer.groups.get(name).is_some_and(|group| group.definition.is_some())
        }
        (_, _) => false,
    }
}
