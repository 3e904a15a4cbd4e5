//! `/v1/acks`: the clients that have applied a publication, or use what is current.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::{Glob, GroupName, Profile, ResourceKey, Revision};
use xds_control::acks::{AcksQuery, AcksReport, Applied, Whose};
use xds_control::model::document;
use xds_control::peers::ReplicasReport;
use xds_routes::{DocumentKey, Kind};

use crate::answer::{Answer, fields};
use crate::caller::Caller;
use crate::endpoint::filter::document_key;
use crate::endpoint::resources::resource_key;
use crate::everyone::{self, Everyone, Servers};
use crate::input::{Params, wait_of};
use crate::problem::{ApiError, Fault};
use crate::seen::Seen;
use crate::state::{ApiState, aside, group_name};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AckParams {
    revision: Option<u64>,
    version: Option<String>,
    object: Option<String>,
    uses: Option<String>,
    nodes: Option<String>,
    replica: Option<String>,
    wait: Option<String>,
    timeout: Option<String>,
    min_clients: Option<String>,
}

/// The clients that have applied a publication, of this server or of all.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcksAnswer {
    /// The clients.
    #[serde(flatten)]
    pub report: AcksReport,
    /// How many more clients than have acknowledged it `minClients` demands; missing if that is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<usize>,
    /// Doubts about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Fault>,
    /// The servers whose clients these are, if several share the store and ask each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

/// An object whose current version clients use.
enum Object {
    Document(DocumentKey),
    Resource(GroupName, ResourceKey),
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<AckParams>,
) -> Result<Answer, ApiError> {
    let wait = wait_of(params.wait.as_deref(), params.timeout.as_deref(), params.min_clients.as_deref())?;
    let nodes = params.nodes.as_deref().map(Glob::new);
    let replica = params.replica.clone();
    let query = AcksQuery { nodes, ..query(&state, &caller, params).await? };
    if let Some((timeout, min_clients)) = wait {
        if replica.is_some() {
            return Err(ApiError::BadRequest("wait=acked is for the clients of all servers".to_owned()));
        }
        return wait_for(&state, &caller, &query, (timeout, min_clients)).await;
    }
    let (revision, head) = (query.revision, state.control.head());
    if revision > head {
        return Err(ApiError::NotFound(format!("there is no revision {revision}; the last one is {head}")));
    }
    let own = || state.acks.report_of(&query, |groups| caller.sight_of_node(groups));
    let answer = |report, replicas| AcksAnswer { report, short: None, warnings: vec![], replicas };
    let Some(all) = Everyone::new(&state, replica.as_deref())? else {
        return Answer::ok(&answer(known(own(), revision)?, None));
    };
    if all.has_own() {
        known(own(), revision)?;
    }
    let (report, union) = all.acks(&query, caller.scope(), own()).await;
    Answer::ok(&answer(report, Some(union.report())))
}

/// The revision that is asked about, and whose clients.
async fn query(state: &ApiState, caller: &Caller, params: AckParams) -> Result<AcksQuery, ApiError> {
    let concerned = |revision| AcksQuery::concerned(Revision(revision));
    let AckParams { revision, version, object, uses, .. } = params;
    match (revision, version, object, uses) {
        (Some(revision), None, None, None) => Ok(concerned(revision)),
        (None, Some(version), None, None) => {
            let revision = state.acks.revision_of(&version);
            revision.map(AcksQuery::concerned).ok_or_else(|| {
                ApiError::NotFound(format!("no remembered publication gave a type the version {version:?}"))
            })
        }
        (None, None, Some(object), None) => of_object(state, caller, &object).await,
        (None, None, None, Some(uses)) => {
            let revision = if uses == "current" { None } else { Some(uses.parse()) };
            match revision.transpose() {
                Ok(revision) => everyone_at(state, revision.map(Revision)),
                Err(_) => {
                    Err(ApiError::BadRequest(format!("uses={uses:?} is neither a revision nor current")))
                }
            }
        }
        (None, None, None, None) => Ok(concerned(state.publisher.groups().0.0)),
        (_, _, _, _) => {
            Err(ApiError::BadRequest("give only one of revision, version, object and uses".to_owned()))
        }
    }
}

/// All connected clients, and whether they use a revision; by default what is served now.
fn everyone_at(state: &ApiState, revision: Option<Revision>) -> Result<AcksQuery, ApiError> {
    state.check_loaded()?;
    let revision = revision.unwrap_or_else(|| state.publisher.groups().0);
    Ok(AcksQuery { of: Whose::Everyone, ..AcksQuery::concerned(revision) })
}

/// The clients that the last change of an object concerns; if that is not known any more, all clients have to use what is served.
async fn of_object(state: &ApiState, caller: &Caller, text: &str) -> Result<AcksQuery, ApiError> {
    state.check_loaded()?;
    let object = Object::read(text)?;
    let what = object.what();
    if !object.is_served(state) || !Seen::new(state, caller).object(&what) {
        return Err(ApiError::NotFound(format!("there is no {text}")));
    }
    let control = state.control.clone();
    let changed = aside(move || control.last_change(&[what])).await??.map(AcksQuery::concerned);
    match changed.filter(|query| state.acks.report(query.revision) != Applied::Forgotten) {
        Some(query) => Ok(query),
        None => everyone_at(state, None),
    }
}

async fn wait_for(
    state: &ApiState,
    caller: &Caller,
    query: &AcksQuery,
    (timeout, min_clients): (Duration, usize),
) -> Result<Answer, ApiError> {
    let revision = query.revision;
    if state.acks.report(revision) == Applied::Forgotten && query.of == Whose::Concerned {
        known(Applied::Forgotten, revision)?;
    }
    let waited = everyone::wait(state, caller, (query, min_clients), timeout).await;
    if state.acks.report(revision) == Applied::Behind {
        known(Applied::Behind, revision)?;
    }
    let (report, Servers { is_whole, warnings, replicas }) = waited.servers(state);
    let short = min_clients.saturating_sub(report.acked);
    let is_complete = report.n_pending == 0 && short == 0 && is_whole;
    let is_rejected = report.n_nacked + report.n_already_failing > 0;
    let answer = AcksAnswer { report, short: (short > 0).then_some(short), warnings, replicas };
    if is_rejected {
        return Err(ApiError::Rejected(fields(&answer)));
    }
    let status = if is_complete { StatusCode::OK } else { StatusCode::ACCEPTED };
    Answer::ok(&answer).map(|answer| answer.with_status(status))
}

impl Object {
    /// Reads `KIND/NAMESPACE/NAME` or `GROUP/TYPE/NAME`.
    fn read(text: &str) -> Result<Self, ApiError> {
        let mut parts = text.splitn(3, '/');
        let (Some(first), Some(second), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ApiError::BadRequest(format!(
                "object={text:?} is neither KIND/NAMESPACE/NAME, such as HTTPRoute/prod/shop, nor GROUP/TYPE/NAME, such as edge/clusters/a"
            )));
        };
        let read = match Kind::of_name(first) {
            Some(_) => document_key(first, second, name).map(Self::Document),
            None => resource_key(second, name).and_then(|key| Ok(Self::Resource(group_name(first)?, key))),
        };
        // In a path, a kind or a type that does not exist is not found.
        read.map_err(
            |error| {
                if let ApiError::NotFound(why) = error { ApiError::BadRequest(why) } else { error }
            },
        )
    }

    /// Its name in the history.
    fn what(&self) -> String {
        match self {
            Self::Document(key) => document::what(key),
            Self::Resource(group, key) => format!("{group}/{}/{}", key.resource_type.slug(), key.name),
        }
    }

    fn is_served(&self, state: &ApiState) -> bool {
        match self {
            Self::Document(key) => state.control.documents().translated.documents.get(key).is_some(),
            Self::Resource(group, key) => {
                let (_, groups) = state.publisher.groups();
                let group = groups.get(group);
                group.is_some_and(|group| Profile::ALL.into_iter().any(|profile| group.has(profile, key)))
            }
        }
    }
}

fn known(applied: Applied, revision: Revision) -> Result<AcksReport, ApiError> {
    match applied {
        Applied::Known(report) => Ok(report),
        Applied::Behind => {
            let why = format!("revision {revision} is not served by this server yet; ask again in a moment");
            Err(ApiError::NotReady(vec![why]))
        }
        Applied::Forgotten => {
            let why = format!("the server no longer knows which clients revision {revision} concerned");
            Err(ApiError::Gone(why))
        }
    }
}
