//! `/v1/conditions`: the state of every object, in the form of the Gateway API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::StatusBoard;
use xds_control::Tested;
use xds_control::model::document::{self, ConditionPart, DocumentState};
use xds_control::programmed::Programmed;
use xds_routes::conditions::{ConditionType, ObjectStatus, ParentStatus};
use xds_routes::{Condition, Conditions, DocumentKey, Kind};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::endpoint::filter::{Filter, place_of};
use crate::input::Params;
use crate::page;
use crate::problem::ApiError;
use crate::state::{ApiState, aside};

/// Conditions of objects.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConditionList {
    /// By kind, namespace and name.
    pub objects: Vec<ObjectConditions>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// Conditions of one object.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectConditions {
    /// Its kind.
    pub kind: String,
    /// Its namespace; `-` if the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `file` or `api`; absent in a validation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// The generation that was judged.
    pub observed_generation: u64,
    /// Conditions of the object itself.
    pub conditions: Vec<ConditionEntry>,
    /// Conditions for each of its parents: of a route or a policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ParentConditions>,
    /// Conditions of each listener: of a Gateway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerConditions>,
}

/// Conditions of a route or policy for one parent.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentConditions {
    /// The parent.
    pub parent_ref: ParentRef,
    /// The conditions.
    pub conditions: Vec<ConditionEntry>,
}

/// A parent.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentRef {
    /// Its API group; empty for core kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its kind; absent for what is no object, such as all gRPC clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Conditions of a listener.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenerConditions {
    /// Its name.
    pub name: String,
    /// How many routes it has accepted.
    pub attached_routes: usize,
    /// The kinds of routes that it takes.
    pub supported_kinds: Vec<String>,
    /// The conditions.
    pub conditions: Vec<ConditionEntry>,
}

/// A condition.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConditionEntry {
    /// Its type, such as `Accepted`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: &'static str,
    /// For people; may be empty.
    pub message: String,
    /// The generation that was judged.
    pub observed_generation: u64,
    /// Since when it has this status, as far as this server knows; absent in a validation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let filter = filter.check()?;
    let (documents, tested) = (state.control.documents(), state.control.tested());
    let board = Arc::clone(&state.board);
    let (limit, after) = filter.page()?;
    let list = aside(move || {
        let all = &documents.translated.translation.conditions.objects;
        let taken = all.range(page::behind(after.as_ref())).filter(|(key, _)| filter.takes(key));
        let placed = &documents.translated.documents;
        let taken = taken.filter(|(key, _)| caller.sees_document(key, placed.get(&**key)));
        let (taken, next) = page::cut(taken, limit, |(key, _)| place_of(key));
        let objects = taken
            .into_iter()
            .map(|(key, status)| of_object(&board, &documents, key, status, tested.as_deref()))
            .collect();
        ConditionList { objects, next }
    });
    Ok(Answer::ok(&list.await?)?.tagged_by_content())
}

/// Conditions of an object that is served, with what clients reject. One whose rules requests of failing RouteTests reach is
/// `Tested: False`.
pub(crate) fn of_object(
    board: &StatusBoard,
    documents: &DocumentState,
    key: &DocumentKey,
    status: &ObjectStatus,
    tested: Option<&Tested>,
) -> ObjectConditions {
    let source = Some(source(documents, key));
    let Programmed { status, rejected_since } = Programmed::of(board, &documents.translated, key, status);
    let aged = documents.translated.conditions(key);
    let mut since: Since = aged.map(|(part, condition, since)| ((part, condition.kind), since)).collect();
    since.extend(rejected_since.into_iter().map(|(part, at)| ((part, ConditionType::Programmed), at)));
    let mut object = ObjectConditions { source, ..entry(key, &status, &since) };
    if let Some(failed) = tested.and_then(|tested| tested.failing.get(key)) {
        object.conditions.push(ConditionEntry {
            kind: "Tested",
            status: "False".to_owned(),
            reason: "RouteTestFailed",
            message: format!("requests of failing RouteTests reach its rules: {failed}"),
            observed_generation: object.observed_generation,
            last_transition_time: None,
        });
    }
    object
}

/// `file` or `api`.
pub(crate) fn source(documents: &DocumentState, key: &DocumentKey) -> &'static str {
    if documents.owned.contains_key(key) { "api" } else { "file" }
}

/// Conditions that the objects of a body would have.
pub(crate) fn of_body(conditions: &Conditions) -> Vec<ObjectConditions> {
    conditions.objects.iter().map(|(key, status)| entry(key, status, &Since::new())).collect()
}

/// Since when each condition has its status, as far as it is known.
type Since = BTreeMap<(ConditionPart, ConditionType), SystemTime>;

fn entry(key: &DocumentKey, status: &ObjectStatus, since: &Since) -> ObjectConditions {
    let observed_generation = status.observed_generation;
    let list = |part: ConditionPart, conditions: &[Condition]| -> Vec<ConditionEntry> {
        let since = |kind| since.get(&(part.clone(), kind)).map(|at| rfc3339(*at));
        let entry = |condition: &Condition| ConditionEntry {
            kind: condition.kind.as_str(),
            status: condition.status.to_string(),
            reason: condition.reason.as_str(),
            message: condition.message.clone(),
            observed_generation,
            last_transition_time: since(condition.kind),
        };
        conditions.iter().map(entry).collect()
    };
    let parents = status.parents.iter().map(|parent| ParentConditions {
        parent_ref: parent_ref(parent),
        conditions: list(ConditionPart::of_parent(parent), &parent.conditions),
    });
    let listeners = status.listeners.iter().map(|listener| ListenerConditions {
        name: listener.name.clone(),
        attached_routes: listener.attached_routes,
        supported_kinds: listener.supported_kinds.clone(),
        conditions: list(ConditionPart::Listener(listener.name.clone()), &listener.conditions),
    });
    ObjectConditions {
        kind: key.kind.to_string(),
        namespace: document::namespace(key).to_owned(),
        name: key.name.to_string(),
        source: None,
        observed_generation,
        conditions: list(ConditionPart::Object, &status.conditions),
        parents: parents.collect(),
        listeners: listeners.collect(),
    }
}

/// Takes the text of a parent apart again: `Gateway prod/edge`.
fn parent_ref(status: &ParentStatus) -> ParentRef {
    let object = status.parent.split_once(' ').and_then(|(kind, rest)| {
        let (namespace, name) = rest.split_once('/')?;
        Some((kind, namespace, name))
    });
    let (section_name, port) = (status.section.clone(), status.port);
    let Some((kind, namespace, name)) = object else {
        let (group, kind, namespace) = (None, None, None);
        return ParentRef { group, kind, namespace, name: status.parent.clone(), section_name, port };
    };
    ParentRef {
        group: Kind::of_name(kind).map(|kind| kind.api_group().to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        section_name,
        port,
    }
}
