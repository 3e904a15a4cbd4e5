//! `/v1/groups/{group}/resources`: the API's resources in a group.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use xds_cache::layer::Resources;
use xds_cache::{Resource, ResourceKey, ResourceType};
use xds_codec::document::Node;
use xds_codec::{Codec, Diagnostic, Tree};
use xds_control::model::Write;

use crate::answer::Answer;
use crate::caller::Asked;
use crate::endpoint::groups::no_group;
use crate::input::{MAX_RESOURCES_BYTES, NoParams, Params, Path, add_first, read_tree};
use crate::page;
use crate::problem::{ApiError, Fault, pointer_part};
use crate::state::{ApiState, aside, group_name};
use crate::tag;
use crate::write::{self, WriteParams};

/// The API's resources in a group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResourceList {
    /// The revision that this was read at.
    pub revision: u64,
    /// The label of the publication.
    pub version: Option<String>,
    /// The resources, by type and name: each an object with `@type` and the type's own fields.
    pub resources: Vec<Value>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Params(params): Params<page::PageParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let limit = page::limit(params.limit)?;
    let after = params.after.as_deref().map(after_resource).transpose()?;
    let name = group_name(&name)?;
    let (revision, overrides) = state.control.overrides();
    if !overrides.groups.contains_key(&name) && !state.publisher.groups().1.contains_key(&name) {
        return Err(no_group(&name));
    }
    let (list, tag) = aside(move || {
        let group = overrides.groups.get(&name).cloned().unwrap_or_default();
        let taken = group.resources.range(page::behind(after.as_ref()));
        let place = |(key, _): &(&Arc<ResourceKey>, _)| page::place(&[key.resource_type.slug(), &key.name]);
        let (taken, next) = page::cut(taken, limit, place);
        // The answer has everything that a replacement of all changes.
        let is_whole = after.is_none() && next.is_none();
        let tag = is_whole.then(|| tag::of_resources(&group.resources));
        let resources = taken.into_iter().map(|(_, resource)| to_json(&state.codec, resource)).collect();
        let version = group.label.as_deref().map(str::to_owned);
        (ResourceList { revision: revision.0, version, resources, next }, tag)
    })
    .await?;
    let answer = Answer::ok(&list)?;
    Ok(match tag {
        Some(tag) => answer.tagged(tag),
        None => answer.tagged_by_content(),
    })
}

pub(crate) async fn replace(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let group = group_name(&name)?;
    let body = read_tree(&state, &asked.headers, body, MAX_RESOURCES_BYTES).await?;
    let codec = state.codec.clone();
    let (label, resources) = aside(move || read_publication(&codec, &body)).await??;
    write::run(&state, &asked, params, Write::ReplaceResources { group, label, resources }).await
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    Path((name, slug, resource)): Path<(String, String, String)>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let (name, key) = (group_name(&name)?, resource_key(&slug, &resource)?);
    let (_, overrides) = state.control.overrides();
    let Some(resource) = overrides.resources(&name).and_then(|resources| resources.get(&key)) else {
        let base = state.control.base();
        let of_file = base.resources(&name).and_then(|resources| resources.get(&key));
        return Err(ApiError::NotFound(match of_file {
            Some(of_file) => format!(
                "the API owns no {key} in the group {name}; the one that is served comes from {}, see the snapshot",
                of_file.origin()
            ),
            None => format!("there is no {key} in the group {name}"),
        }));
    };
    Ok(Answer::ok(&to_json(&state.codec, resource))?.tagged(tag::of_resource(resource)))
}

pub(crate) async fn put(
    State(state): State<ApiState>,
    Path((name, slug, resource)): Path<(String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let (group, key) = (group_name(&name)?, resource_key(&slug, &resource)?);
    let body = read_tree(&state, &asked.headers, body, MAX_RESOURCES_BYTES).await?;
    let codec = state.codec.clone();
    let resource = aside(move || read_resource(&codec, body, &key)).await??;
    write::run(&state, &asked, params, Write::PutResource { group, resource: Arc::new(resource) }).await
}

/// The resource that a body is, which has to be the one of the path.
fn read_resource(codec: &Codec, mut body: Tree, key: &ResourceKey) -> Result<Resource, ApiError> {
    if body.root().entry("resource").is_none() {
        // The type is in the path.
        add_first(&mut body, "@type", key.resource_type.type_url());
    }
    let (resource, _) =
        codec.resource_from_tree(&body).map_err(|found| ApiError::Invalid(faults(&found, "")))?;
    if resource.key() != key {
        let detail = format!("the body is {}, the path {key}", resource.key());
        return Err(ApiError::Invalid(vec![Fault::at_tree(body.root(), "", detail)]));
    }
    Ok(resource)
}

pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path((name, slug, resource)): Path<(String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let (group, key) = (group_name(&name)?, resource_key(&slug, &resource)?);
    write::run(&state, &asked, params, Write::DeleteResource { group, key }).await
}

/// A resource in the form in which it can be put again: alone, or in its wrapper if it has something that only that can say.
pub(crate) fn to_json(codec: &Codec, resource: &Resource) -> Value {
    let content = codec.to_json(resource);
    if resource.ttl().is_none() && resource.aliases().is_empty() {
        return content;
    }
    let mut wrapper = Map::new();
    wrapper.insert("@type".to_owned(), WRAPPER_TYPE.into());
    wrapper.insert("name".to_owned(), resource.name().to_string().into());
    if !resource.aliases().is_empty() {
        wrapper
            .insert("aliases".to_owned(), resource.aliases().iter().map(|alias| alias.to_string()).collect());
    }
    if let Some(ttl) = resource.ttl() {
        wrapper.insert("ttl".to_owned(), format!("{}s", ttl.as_secs_f64()).into());
    }
    wrapper.insert("resource".to_owned(), content);
    Value::Object(wrapper)
}

/// The message that may surround a resource, with a time to live and aliases.
const WRAPPER_TYPE: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Reads `{"version": label, "resources": […]}`, and reports all faults of all resources.
fn read_publication(codec: &Codec, body: &Tree) -> Result<(Option<Arc<str>>, Resources), ApiError> {
    let body = body.root();
    let refuse = |tree: Node<'_>, pointer: &str, detail: String| {
        Err(ApiError::Invalid(vec![Fault::at_tree(tree, pointer, detail)]))
    };
    if !body.is_object() {
        return refuse(body, "", "expected an object with \"resources\"".to_owned());
    }
    let label = match body.get("version") {
        None => None,
        Some(version) => match version.as_str() {
            Some(label) if !label.is_empty() && label.len() <= MAX_LABEL_BYTES => Some(label.into()),
            _ => {
                return refuse(
                    version,
                    "/version",
                    format!("a label is a text of 1 to {MAX_LABEL_BYTES} bytes"),
                );
            }
        },
    };
    let list = body.entry("resources").map_or(body, |entry| entry.value);
    let Some(list) = list.as_list() else {
        return refuse(list, "/resources", "expected a list of resources".to_owned());
    };
    // Other fields of an answer can be sent back with it; `revision` says nothing here.
    let is_known = |key: &str| matches!(key, "version" | "resources" | "revision" | "next");
    if let Some(next) = body.get("next").filter(|next| !next.is_null()) {
        let detail = "this is one page of several, and would delete the resources of the others";
        return refuse(next, "/next", detail.to_owned());
    }
    if let Some(other) = body.entries().find(|entry| !is_known(entry.key)) {
        let (key, place) = (other.key, Tree::null(other.position));
        return refuse(place.root(), &format!("/{}", pointer_part(key)), format!("unknown field {key:?}"));
    }
    let mut resources = Resources::new();
    let mut found = Vec::new();
    for (index, body) in list.enumerate() {
        let pointer = format!("/resources/{index}");
        match codec.resource_from_tree(&body.to_tree()) {
            Ok((resource, _)) if resources.contains_key(resource.key()) => {
                found.push(Fault::at_tree(body, &pointer, format!("{} appears twice", resource.key())));
            }
            Ok((resource, _)) => _ = resources.insert(Arc::new(resource)),
            Err(diagnostics) => found.extend(faults(&diagnostics, &pointer)),
        }
        if found.len() >= MAX_FAULTS {
            break;
        }
    }
    if found.is_empty() { Ok((label, resources)) } else { Err(ApiError::Invalid(found)) }
}

/// The longest label: it is in every response.
const MAX_LABEL_BYTES: usize = 256;

/// After how many faults a body is not read further.
const MAX_FAULTS: usize = 100;

fn faults(diagnostics: &[Diagnostic], pointer: &str) -> Vec<Fault> {
    diagnostics.iter().map(|diagnostic| Fault::of(diagnostic, pointer)).collect()
}

/// The resource that a page comes after.
pub(crate) fn after_resource(after: &str) -> Result<ResourceKey, ApiError> {
    let [slug, name] = page::parts(after)?;
    resource_key(&slug, &name).map_err(|_| page::no_place(after))
}

/// Reads the type and the name of a resource from a path.
pub(crate) fn resource_key(slug: &str, name: &str) -> Result<ResourceKey, ApiError> {
    let resource_type = ResourceType::from_slug(slug).ok_or_else(|| {
        let slugs: Vec<String> = ResourceType::KNOWN.iter().map(|known| known.slug().to_owned()).collect();
        let listed = slugs.join(", ");
        ApiError::NotFound(format!("{slug:?} is not a resource type: use one of {listed}, or a type URL"))
    })?;
    Ok(ResourceKey { resource_type, name: name.into() })
}

/// An example for the documentation.
pub(crate) fn example() -> Value {
    json!({
        "version": "2026-11-20.1",
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "greeter",
            "type": "EDS",
            "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
        }],
    })
}
