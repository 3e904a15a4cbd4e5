//! `GET /v1/weights`: the weights of each rule, and the API's overrides.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use xds_cache::layer::Resources;
use xds_cache::time::from_millis;
use xds_cache::{GroupName, Layer, ResourceKey, ResourceType};
use xds_codec::Codec;
use xds_codec::weights::{HeaderRoute, RuleWeights};
use xds_control::model::WriteError;
use xds_control::model::document::DocumentState;
use xds_control::model::weights::{self, RuleKey, RuleOverride, WeightedObject, effective};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::{NoParams, Params, Path};
use crate::page;
use crate::problem::ApiError;
use crate::state::{ApiState, aside};
use crate::tag;

/// The weights of the rules of objects.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WeightsList {
    /// The objects.
    pub objects: Vec<ObjectWeights>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// The weights of the rules of one object.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectWeights {
    /// Its kind.
    pub kind: String,
    /// Its namespace; of a RouteConfiguration its group.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its rules.
    pub rules: Vec<RuleEntry>,
    /// The hash of all weights.
    pub resource_version: String,
}

/// The weights of one rule.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleEntry {
    /// The rule's id in paths: its name, else its index.
    pub id: String,
    /// The weights that count, by key of the backend.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub backends: Map<String, Value>,
    /// The resulting shares, in percent.
    #[schema(value_type = BTreeMap<String, f64>)]
    pub effective: Map<String, Value>,
    /// `override` if the API lays something over the rule; else `file` or `api`, whose the object is.
    pub source: &'static str,
    /// True if the API lays something over the rule.
    pub overridden: bool,
    /// The object's own weights, if others are laid over them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    pub file_weights: Option<Map<String, Value>>,
    /// The hash of the set of backends that the override was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
    /// When the override expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Requests that go wholly to one backend, by their headers; read-only here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub header_routes: Vec<HeaderRoute>,
    /// The entity tag that a change of the rule has to name.
    pub etag: String,
}

/// The objects that are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightsFilter {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

impl WeightsFilter {
    fn takes(&self, object: &WeightedObject) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.kind, object.kind())
            && is(&self.namespace, object.namespace())
            && is(&self.name, object.name())
    }
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(filter): Params<WeightsFilter>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    if let Some(kind) = &filter.kind {
        WeightedObject::parse(kind, "default", "-").map_err(ApiError::BadRequest)?;
    }
    let limit = page::limit(filter.limit)?;
    let after = filter.after.as_deref().map(|after| {
        let [kind, namespace, name] = page::parts(after)?;
        WeightedObject::parse(&kind, &namespace, &name).map_err(|_| page::no_place(after))
    });
    let after = after.transpose()?;
    let found = Found::new(&state, caller);
    let list = aside(move || {
        let objects = found.objects_after(after.as_ref()).filter(|object| filter.takes(object));
        let shown = objects.filter_map(|object| found.show(&object)).filter(|shown| !shown.rules.is_empty());
        let place = |shown: &ObjectWeights| page::place(&[&shown.kind, &shown.namespace, &shown.name]);
        let (objects, next) = page::cut(shown, limit, place);
        WeightsList { objects, next }
    });
    Ok(Answer::ok(&list.await?)?.tagged_by_content())
}

pub(crate) async fn read_object(
    State(state): State<ApiState>,
    caller: Caller,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    let shown = show(&state, caller, object(&kind, &namespace, &name)?).await?;
    let tag = shown.resource_version.clone();
    Ok(Answer::ok(&shown)?.tagged(tag))
}

pub(crate) async fn read_rule(
    State(state): State<ApiState>,
    caller: Caller,
    Path((kind, namespace, name, rule)): Path<(String, String, String, String)>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    let object = object(&kind, &namespace, &name)?;
    let mut shown = show(&state, caller, object.clone()).await?;
    let Some(index) = shown.rules.iter().position(|one| one.id == rule) else {
        let rules = shown.rules.into_iter().map(|rule| rule.id).collect();
        return Err(WriteError::NoRule { object: object.to_string(), rule, rules }.into());
    };
    let entry = shown.rules.swap_remove(index);
    let tag = entry.etag.clone();
    Ok(Answer::ok(&entry)?.tagged(tag))
}

fn object(kind: &str, namespace: &str, name: &str) -> Result<WeightedObject, ApiError> {
    WeightedObject::parse(kind, namespace, name).map_err(ApiError::NotFound)
}

async fn show(state: &ApiState, caller: Caller, object: WeightedObject) -> Result<ObjectWeights, ApiError> {
    state.check_loaded()?;
    let found = Found::new(state, caller);
    let none = format!("there is no {object}{}", found.advice(&object));
    let shown = aside(move || found.show(&object)).await?;
    shown.ok_or(ApiError::NotFound(none))
}

/// The object that weights are read from.
struct Found {
    caller: Caller,
    codec: Codec,
    documents: DocumentState,
    overrides: Arc<Layer>,
    base: Arc<Layer>,
}

impl Found {
    fn new(state: &ApiState, caller: Caller) -> Self {
        Self {
            caller,
            codec: state.codec.clone(),
            documents: state.control.documents(),
            overrides: state.control.overrides().1,
            base: state.control.base(),
        }
    }

    /// Everything that may have weights and comes after an object, in order: what comes before is not looked at.
    fn objects_after(&self, after: Option<&WeightedObject>) -> impl Iterator<Item = WeightedObject> {
        let document = match after {
            None => Some(None),
            Some(WeightedObject::Document(key)) => Some(Some(key)),
            // Documents come first.
            Some(WeightedObject::Routes(..)) => None,
        };
        let documents = document.into_iter().flat_map(|after| {
            let (files, owned) = (
                self.documents.files.range(page::behind(after)),
                self.documents.owned.range(page::behind(after)),
            );
            merged(files.map(|(key, _)| key), owned.map(|(key, _)| key))
        });
        let documents = documents.filter(|key| xds_routes::weights::KINDS.contains(&key.kind));
        let documents = documents.cloned().map(WeightedObject::Document);
        documents.chain(self.routes_after(after))
    }

    fn routes_after<'a>(
        &'a self,
        after: Option<&WeightedObject>,
    ) -> impl Iterator<Item = WeightedObject> + use<'a> {
        let after = after.and_then(|after| match after {
            WeightedObject::Routes(group, name) => Some((group.clone(), name.clone())),
            WeightedObject::Document(_) => None,
        });
        let groups: BTreeSet<&GroupName> =
            self.base.groups.keys().chain(self.overrides.groups.keys()).collect();
        groups.into_iter().flat_map(move |group| {
            let key = |name: &Arc<str>| ResourceKey {
                resource_type: ResourceType::RouteConfiguration,
                name: name.clone(),
            };
            let first = match &after {
                Some((at, _)) if group < at => {
                    return Box::new(std::iter::empty()) as Box<dyn Iterator<Item = _>>;
                }
                Some((at, name)) if group == at => Bound::Excluded(key(name)),
                Some(_) | None => Bound::Included(key(&"".into())),
            };
            let of = |resources: Option<&'a Resources>| {
                let behind = resources.map(|all| all.range((first.clone(), Bound::Unbounded)));
                let keys = behind.into_iter().flatten().map(|(key, _)| key);
                keys.take_while(|key| key.resource_type == ResourceType::RouteConfiguration)
            };
            let keys = merged(of(self.base.resources(group)), of(self.overrides.resources(group)));
            Box::new(keys.map(move |key| WeightedObject::Routes(group.clone(), key.name.clone())))
        })
    }

    /// Its rules, and whose it is.
    fn rules(&self, object: &WeightedObject) -> Option<(Vec<RuleWeights>, &'static str)> {
        match object {
            WeightedObject::Document(key) => {
                let source = if self.documents.owned.contains_key(key) { "api" } else { "file" };
                Some((xds_routes::weights::rules(&self.documents.written(key)?.document)?, source))
            }
            WeightedObject::Routes(group, name) => {
                let key = ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.clone() };
                let owned = self.overrides.resources(group).and_then(|resources| resources.get(&key));
                let source = if owned.is_some() { "api" } else { "file" };
                let resource = owned.or_else(|| self.base.resources(group)?.get(&key))?;
                Some((xds_codec::weights::rules(&self.codec, resource), source))
            }
        }
    }

    /// Returns `true` if the object is in the caller's scope.
    fn is_seen(&self, object: &WeightedObject) -> bool {
        let placed = match object {
            WeightedObject::Document(key) => self.documents.translated.documents.get(key),
            WeightedObject::Routes(..) => None,
        };
        self.caller.sees_weighted(object, placed)
    }

    fn show(&self, object: &WeightedObject) -> Option<ObjectWeights> {
        if !self.is_seen(object) {
            return None;
        }
        let (rules, source) = self.rules(object)?;
        let entry = |rule: RuleWeights| {
            let key = RuleKey { object: object.clone(), rule: rule.id.as_str().into() };
            entry(&rule, self.documents.weights.get(&key), source)
        };
        let rules: Vec<RuleEntry> = rules.into_iter().map(entry).collect();
        let tags: Vec<&str> = rules.iter().map(|rule| rule.etag.as_str()).collect();
        Some(ObjectWeights {
            kind: object.kind().to_owned(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            resource_version: tag::of_text(&tags.join(" ")),
            rules,
        })
    }

    /// Advice about a RouteConfiguration that documents give.
    fn advice(&self, object: &WeightedObject) -> &'static str {
        let WeightedObject::Routes(group, name) = object else { return "" };
        if !self.is_seen(object) {
            return "";
        }
        let key = ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.clone() };
        let generated = self.documents.translated.translation.groups.get(group);
        let is_generated = generated
            .is_some_and(|group| group.profiles.values().any(|resources| resources.contains_key(&key)));
        if is_generated {
            " that is written; it is generated, so change the weights of its documents"
        } else {
            ""
        }
    }
}

/// Two sequences in order as one, in which nothing appears twice.
fn merged<'a, T: Ord + 'a>(
    one: impl Iterator<Item = &'a T>,
    other: impl Iterator<Item = &'a T>,
) -> impl Iterator<Item = &'a T> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if a == b => {
            other.next();
            one.next()
        }
        (Some(a), Some(b)) if a > b => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

fn entry(rule: &RuleWeights, over: Option<&RuleOverride>, source: &'static str) -> RuleEntry {
    let weights = over.map_or_else(|| rule.backends.clone(), |over| effective(rule, &over.overlay));
    let sum: u64 = weights.iter().fold(0, |sum, (_, weight)| sum.saturating_add(*weight));
    let percent = |weight: u64| if sum == 0 { 0.0 } else { round(weight as f64 * 100.0 / sum as f64) };
    let numbers = |weights: &[(String, u64)]| {
        weights.iter().map(|(key, weight)| (key.clone(), Value::from(*weight))).collect::<Map<_, _>>()
    };
    RuleEntry {
        id: rule.id.clone(),
        backends: numbers(&weights),
        effective: weights.iter().map(|(key, weight)| (key.clone(), Value::from(percent(*weight)))).collect(),
        source: if over.is_some() { "override" } else { source },
        overridden: over.is_some(),
        file_weights: over.map(|_| numbers(&rule.backends)),
        base_hash: over.map(RuleOverride::base_hash),
        expires: over.and_then(|over| over.expires).map(|end| rfc3339(from_millis(end))),
        header_routes: over.map(|over| over.overlay.header_routes.clone()).unwrap_or_default(),
        etag: weights::tag(rule, over),
    }
}

/// Percents are for people: four decimals show one in a million.
fn round(percent: f64) -> f64 {
    (percent * 10_000.0).round() / 10_000.0
}
