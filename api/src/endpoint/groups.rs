//! `/v1/groups`: node groups.

use axum::body::Body;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::GroupName;
use xds_control::model::Write;
use xds_control::model::group::Group;

use crate::answer::Answer;
use crate::caller::{Asked, Caller};
use crate::input::{MAX_BODY_BYTES, NoParams, Params, Path, add_first, read_tree};
use crate::page;
use crate::problem::{ApiError, Fault};
use crate::state::{ApiState, group_name};
use crate::tag;
use crate::write::{self, WriteParams};

/// All groups.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupList {
    /// By name.
    pub groups: Vec<Group>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<page::PageParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let limit = page::limit(params.limit)?;
    let after = params.after.as_deref().map(group_name).transpose()?;
    let (_, groups) = state.publisher.groups();
    let seen = groups.range(page::behind(after.as_ref())).filter(|(name, _)| caller.sees_group(name));
    let (taken, next) = page::cut(seen, limit, |(name, _)| name.to_string());
    let groups = taken.into_iter().map(|(_, group)| Group::from(&group.definition)).collect();
    Ok(Answer::ok(&GroupList { groups, next })?.tagged_by_content())
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let name = group_name(&name)?;
    let (_, groups) = state.publisher.groups();
    let group = groups.get(&name).ok_or_else(|| no_group(&name))?;
    Ok(Answer::ok(&Group::from(&group.definition))?.tagged(tag::of_group(&group.definition)))
}

pub(crate) async fn put(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let name = group_name(&name)?;
    let mut body = read_tree(&state, &asked.headers, body, MAX_BODY_BYTES).await?;
    add_first(&mut body, "name", name.as_str());
    let definition = state
        .codec
        .node_group_from_tree(&body)
        .map_err(|faults| ApiError::Invalid(faults.iter().map(|fault| Fault::of(fault, "")).collect()))?;
    if definition.name != name {
        let detail = format!("the body names the group {}, the path {name}", definition.name);
        return Err(ApiError::Invalid(vec![Fault::at_tree(
            body.root().get("name").unwrap_or(body.root()),
            "/name",
            detail,
        )]));
    }
    write::run(&state, &asked, params, Write::PutGroup(definition)).await
}

pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Params(params): Params<WriteParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    write::run(&state, &asked, params, Write::DeleteGroup(group_name(&name)?)).await
}

pub(crate) fn no_group(name: &GroupName) -> ApiError {
    ApiError::NotFound(format!("there is no group {name}"))
}
