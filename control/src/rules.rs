//! The weights of rules in objects, and the effect of their changes on the overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::time::millis;
use xds_cache::{Layer, Resource};
use xds_codec::Codec;
use xds_codec::weights::RuleWeights;
use xds_routes::Document;

use crate::accepted::Accepted;
use crate::candidate::Candidate;
use crate::model::document::GroupedDocuments;
use crate::model::rollouts::{RolloutRecord, RolloutRecords};
use crate::model::weights::change::{ChangeFault, WeightChange};
use crate::model::weights::reconcile::{Dropped, Source, reconcile};
use crate::model::weights::{Overrides, RuleKey, WEIGHT_SOURCE, WeightedObject, effective, tag};
use crate::model::{ChangeSource, WriteError, WriteOptions};
use crate::plan::Patch;
use crate::weights::{Resting, WeightPatch, routes_key};

/// The objects after a change.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    pub(crate) codec: &'a Codec,
    pub(crate) files: &'a GroupedDocuments,
    pub(crate) owned: &'a GroupedDocuments,
    pub(crate) base: &'a Layer,
    pub(crate) overrides: &'a Layer,
    pub(crate) rollouts: &'a RolloutRecords,
    /// Laid over `overrides`.
    pub(crate) patch: &'a Patch,
}

impl<'a> Objects<'a> {
    /// The objects once the API's part is patched.
    pub(crate) fn of(codec: &'a Codec, accepted: &'a Accepted, patch: &'a Patch) -> Self {
        Self {
            codec,
            files: &accepted.documents.files,
            owned: &accepted.documents.owned,
            base: &accepted.base,
            overrides: &accepted.overrides,
            rollouts: &accepted.rollouts,
            patch,
        }
    }

    fn document(&self, object: &WeightedObject) -> Option<&'a Arc<Document>> {
        let WeightedObject::Document(key) = object else { return None };
        self.owned.get(key).or_else(|| self.files.get(key)).map(|grouped| &grouped.document)
    }

    fn resource(&self, object: &WeightedObject) -> Option<&'a Arc<Resource>> {
        let WeightedObject::Routes(group, name) = object else { return None };
        let key = routes_key(name);
        let owned = match self.patch.get(group) {
            Some(patched) => patched.as_ref().map(|group| &group.resources),
            None => self.overrides.resources(group),
        };
        owned.and_then(|owned| owned.get(&key)).or_else(|| self.base.resources(group)?.get(&key))
    }

    /// The rules of an object; `None` if it is not there.
    pub(crate) fn rules(&self, object: &WeightedObject) -> Option<Vec<RuleWeights>> {
        match object {
            WeightedObject::Document(_) => xds_routes::weights::rules(self.document(object)?),
            WeightedObject::Routes(..) => Some(xds_codec::weights::rules(self.codec, self.resource(object)?)),
        }
    }

    /// The overrides for these objects, and the parts that were dropped. Overrides of `resting` objects also apply to the previous
    /// contents, so they are not judged by the present ones.
    pub(crate) fn reconcile(
        &self,
        overrides: &Overrides,
        resting: &Resting,
        now: SystemTime,
    ) -> (Overrides, Vec<Dropped>) {
        let objects: BTreeSet<&WeightedObject> = overrides.keys().map(|key| &key.object).collect();
        let rules: BTreeMap<&WeightedObject, Option<Vec<RuleWeights>>> =
            objects.into_iter().map(|object| (object, self.rules(object))).collect();
        let owned: BTreeSet<RuleKey> =
            self.rollouts.values().filter_map(|record| RolloutRecord::owned_rule(record)).collect();
        let source = |key: &RuleKey| {
            if resting.contains(&key.object) {
                let backends = overrides.get(key)?.base.clone().into_iter().collect();
                let rule = RuleWeights { id: key.rule.to_string(), backends };
                return Some(Source { rule, wins: false, is_owned: owned.contains(key) });
            }
            let rule = rules.get(&key.object)?.as_ref()?.iter().find(|rule| *rule.id == *key.rule)?.clone();
            let document = self.document(&key.object);
            let wins = document.is_some_and(|one| one.meta.annotation(WEIGHT_SOURCE) == Some("file"));
            Some(Source { rule, wins, is_owned: owned.contains(key) })
        };
        reconcile(overrides, source, millis(now))
    }
}

/// The rule, as its object has it.
pub(crate) fn rule(codec: &Codec, accepted: &Accepted, key: &RuleKey) -> Result<RuleWeights, WriteError> {
    let rules = Objects::of(codec, accepted, &Patch::new()).rules(&key.object);
    let rules = rules.ok_or_else(|| WriteError::NotFound { what: key.object.to_string() })?;
    if let Some(rule) = rules.iter().find(|rule| *rule.id == *key.rule) {
        return Ok(rule.clone());
    }
    let (object, rule) = (key.object.to_string(), key.rule.to_string());
    let rules = rules.into_iter().map(|rule| rule.id).collect();
    Err(WriteError::NoRule { object, rule, rules })
}

/// Builds the candidate of a change of one rule's weights.
pub(crate) fn change(
    codec: &Codec,
    accepted: &Accepted,
    key: &RuleKey,
    change: &WeightChange,
    options: &WriteOptions,
) -> Result<Candidate, WriteError> {
    let rule = &rule(codec, accepted, key)?;
    let present = accepted.documents.weights.get(key);
    let current = tag(rule, present);
    let holds = options.if_match.as_ref().is_none_or(|tags| tags.matches(Some(&current)))
        && options.if_none_match.as_ref().is_none_or(|tags| !tags.matches(Some(&current)));
    if !holds {
        let overlay = present.map(|present| present.overlay.clone()).unwrap_or_default();
        return Err(WriteError::StaleWeights { current, weights: effective(rule, &overlay) });
    }
    let has_header_routes = change.header_routes.as_ref().is_some_and(|list| !list.is_empty());
    if let WeightedObject::Document(document) = &key.object
        && has_header_routes
        && !xds_routes::weights::takes_header_routes(document.kind)
    {
        return Err(ChangeFault::NoHeaderRoutes.into());
    }
    let after = change.apply(rule, present)?;
    let weights = match &after {
        Some(after) => effective(rule, &after.overlay),
        None => rule.backends.clone(),
    };
    let weights: Vec<String> = weights.iter().map(|(key, weight)| format!("{key}={weight}")).collect();
    let verb = if after.is_some() { "set" } else { "take back" };
    let summary = format!("{verb} the weights of {key}: {}", weights.join(" "));
    let weights = WeightPatch::from([(key.clone(), after)]);
    Ok(Candidate { weights, source: ChangeSource::Api, summary, ..Candidate::default() })
}

/// The candidate that drops ended overrides; reconciling finds out which.
pub(crate) fn end() -> Candidate {
    let summary = "drop expired overrides of weights".to_owned();
    Candidate { source: ChangeSource::Expiry, summary, ..Candidate::default() }
}
