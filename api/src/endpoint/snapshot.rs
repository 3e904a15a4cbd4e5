//! Snapshots: the resources that a group or a node is served, with versions and sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::{Groups, Layer, Node, Origin, Profile, Resource, ResourceKey, View};
use xds_control::acks::view_key_of_group;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::endpoint::groups::no_group;
use crate::endpoint::resources::after_resource;
use crate::input::{Params, Path};
use crate::page;
use crate::problem::ApiError;
use crate::state::{ApiState, aside, group_name};

/// The resources that are served.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    /// The revision that this is of.
    pub revision: u64,
    /// The groups that it is made of, the one that wins first.
    pub groups: Vec<String>,
    /// `envoy` or `grpc`.
    pub profile: String,
    /// True if the node is connected; for snapshots of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// By type URL; of a page, only the types of its resources.
    pub types: BTreeMap<String, TypeSnapshot>,
    /// The value of `after` for the next resources; null on the last page.
    pub next: Option<String>,
    /// Where groups of equal priority met, and whose resource is served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictEntry>,
}

/// The resources of one type.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TypeSnapshot {
    /// The version that responses carry.
    pub version: String,
    /// The resources by name.
    pub resources: Vec<ResourceEntry>,
}

/// A resource.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SnapshotResource)]
pub(crate) struct ResourceEntry {
    /// Its name.
    pub name: String,
    /// Its content version.
    pub version: String,
    /// The group that it comes from.
    pub group: String,
    /// `file`, `api`, or `override` if the API's hides a file's.
    pub source: &'static str,
    /// True if it is generated from a route document; then the source and the place are those of the document.
    pub generated: bool,
    /// Where in the files it is, or what it hides is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePlace>,
    /// The resource, without secrets.
    pub resource: Value,
    /// The file's resource, if the API's hides it; without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_resource: Option<Value>,
}

/// A place in a file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilePlace {
    /// The path.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// Two groups of equal priority with one resource.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConflictEntry {
    /// The type URL.
    #[serde(rename = "type")]
    pub type_url: String,
    /// The name.
    pub name: String,
    /// The group whose resource is served.
    pub winner: String,
    /// The other one.
    pub loser: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotParams {
    profile: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// The part of a snapshot that is asked for.
struct Page {
    limit: usize,
    after: Option<ResourceKey>,
}

impl Page {
    fn new(limit: Option<usize>, after: Option<&str>) -> Result<Self, ApiError> {
        Ok(Self { limit: page::limit(limit)?, after: after.map(after_resource).transpose()? })
    }
}

pub(crate) async fn of_group(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Params(params): Params<SnapshotParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let page = Page::new(params.limit, params.after.as_deref())?;
    let name = group_name(&name)?;
    let (_, groups) = state.publisher.groups();
    let group = groups.get(&name).ok_or_else(|| no_group(&name))?;
    let profile = match params.profile.as_deref() {
        None => group.definition.client.unwrap_or(Profile::Envoy),
        Some("envoy") => Profile::Envoy,
        Some("grpc") => Profile::Grpc,
        Some(other) => {
            return Err(ApiError::BadRequest(format!("profile={other:?} is neither envoy nor grpc")));
        }
    };
    let view = state.publisher.view_at(&view_key_of_group(&name, profile));
    let view = view.ok_or_else(|| ApiError::NotReady(state.control.not_ready()))?;
    let snapshot = aside(move || snapshot(&state, &view, &groups, None, &page));
    Ok(Answer::ok(&snapshot.await?)?.tagged_by_content())
}

pub(crate) async fn of_node(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<page::PageParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let page = Page::new(params.limit, params.after.as_deref())?;
    let client = state.board.streams().iter().find_map(|stream| {
        stream.with(|status| (status.info.node.id == id).then(|| (status.info.clone(), status.view.clone())))
    });
    let (_, groups) = state.publisher.groups();
    let connected = client.is_some();
    let missing = || ApiError::NotFound(format!("there is no snapshot of the node {id:?}"));
    let view = match client {
        // The view that it was granted. A client that has none any more is about to be told so.
        Some((info, key)) => match state.publisher.view_as(&info.node, &info.proofs) {
            Ok(view) => view,
            Err(_) => key.and_then(|key| state.publisher.view_at(&key)),
        },
        // A node that is not connected is known by its id alone, and is shown all that it could claim.
        None => state.publisher.view_of(&Node::with_id(&id)),
    };
    let view = view.ok_or_else(|| ApiError::NotReady(state.control.not_ready()))?;
    if !caller.sees_all_of_node(&view.key().groups) {
        return Err(missing());
    }
    let snapshot = aside(move || snapshot(&state, &view, &groups, Some(connected), &page));
    Ok(Answer::ok(&snapshot.await?)?.tagged_by_content())
}

fn snapshot(
    state: &ApiState,
    view: &View,
    groups: &Groups,
    connected: Option<bool>,
    page: &Page,
) -> Snapshot {
    let base = state.control.base();
    let behind =
        view.resources().filter(|resource| page.after.as_ref().is_none_or(|after| resource.key() > after));
    let place = |resource: &&Arc<Resource>| page::place(&[resource.resource_type().slug(), resource.name()]);
    let (taken, next) = page::cut(behind, page.limit, place);
    let mut types: BTreeMap<String, TypeSnapshot> = BTreeMap::new();
    for resource in taken {
        let served = resource.resource_type();
        let of_type = types.entry(served.type_url().to_owned());
        let version = || view.version_info(served).to_string();
        let of_type = of_type.or_insert_with(|| TypeSnapshot { version: version(), resources: vec![] });
        of_type.resources.push(entry(state, view, (groups, &base), resource));
    }
    let conflicts = view.conflicts().map(|conflict| ConflictEntry {
        type_url: conflict.key.resource_type.type_url().to_owned(),
        name: conflict.key.name.to_string(),
        winner: conflict.winner.to_string(),
        loser: conflict.loser.to_string(),
    });
    Snapshot {
        revision: view.revision().0,
        groups: view.key().groups.iter().map(ToString::to_string).collect(),
        profile: view.key().profile.to_string(),
        connected,
        types,
        next,
        conflicts: conflicts.collect(),
    }
}

fn entry(
    state: &ApiState,
    view: &View,
    (groups, base): (&Groups, &Layer),
    resource: &Resource,
) -> ResourceEntry {
    let owns = |name: &&xds_cache::GroupName| {
        groups.get(*name).is_some_and(|group| group.has(view.key().profile, resource.key()))
    };
    let group =
        view.key().groups.iter().find(owns).cloned().unwrap_or_else(xds_cache::GroupName::default_group);
    let hidden = match resource.origin() {
        Origin::Api => base.resources(&group).and_then(|resources| resources.get(resource.key())).cloned(),
        Origin::File { .. } => None,
    };
    let (source, file) = match (resource.origin(), &hidden) {
        (Origin::File { .. }, _) => ("file", place(resource.origin())),
        (Origin::Api, None) => ("api", None),
        (Origin::Api, Some(hidden)) => ("override", place(hidden.origin())),
    };
    ResourceEntry {
        name: resource.name().to_string(),
        version: resource.version().to_string(),
        group: group.to_string(),
        source,
        generated: groups.get(&group).is_some_and(|group| !group.resources.contains_key(resource.key())),
        file,
        resource: state.codec.to_json(resource),
        file_resource: hidden.map(|hidden| state.codec.to_json(&hidden)),
    }
}

/// Where in the files something is; `None` if it is the API's.
pub(crate) fn place(origin: &Origin) -> Option<FilePlace> {
    match origin {
        Origin::File { path, line, column } => {
            Some(FilePlace { path: path.to_string(), line: *line, column: *column })
        }
        Origin::Api => None,
    }
}
