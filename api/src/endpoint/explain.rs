//! `/v1/explain`: where a request goes, and why, by what a group or a node is served now.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::{GroupName, Node, Profile, Proofs, View, ViewKey};
use xds_codec::{Limits, Tree};
use xds_control::Places;
use xds_control::acks::view_key_of_group;
use xds_control::model::Texts;
use xds_control::question::{Fields, Part, REQUEST_FIELDS};
use xds_explain::{Client, Explanation, Model, Request};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::endpoint::groups::no_group;
use crate::input::{Params, read_tree};
use crate::problem::{ApiError, Fault};
use crate::state::{ApiState, aside};
use crate::trials::stopped;

/// A question about a request.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase", as = ExplainBody)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
pub(crate) struct ExplainBody {
    /// The node whose resources count; without it and without `group`, the group `default`.
    node: Option<String>,
    /// The group whose resources count, as for a client of this group alone.
    group: Option<String>,
    /// `envoy` or `grpc`; by default that of `target`, of the connected node or of the group, or `envoy`.
    profile: Option<String>,
    /// Clients to ask for, such as `envoy@1.38`, `grpc-go` or `grpc`, which means all languages: at most 8. By default the connected
    /// node's own, or the newest of the profile.
    clients: Option<Vec<String>>,
    /// The request: `host` or `target`, `path`, `method`, `headers`, `scheme`, or `call`, or `curl`; `random`, `runtime`, `metadata`, `filterState`, `healthy`,
    /// `routeConfig`;
    /// and of the connection `listener`, `port`, `to`, `from`, `sni`, `alpn`, `tls`, `clientCert`.
    #[schema(value_type = Object)]
    request: Value,
}

/// Where a request goes, and why.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainAnswer {
    /// The revision that this is of.
    pub revision: u64,
    /// The groups whose resources count, the one that wins first.
    pub groups: Vec<String>,
    /// One for each client and each listener that may accept the request. Values of credentials are shown as `…`.
    #[schema(value_type = Vec<Object>)]
    pub explanations: Vec<Value>,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainParams {
    #[serde(default)]
    text: bool,
    #[serde(default)]
    all: bool,
}

/// A question, read.
struct Question {
    node: Option<String>,
    group: Option<GroupName>,
    profile: Option<Profile>,
    clients: Vec<Client>,
    request: Request,
    is_of_target: bool,
}

pub(crate) async fn explain(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<ExplainParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let question = question(&read_tree(&state, &headers, body, MAX_QUESTION_BYTES).await?)?;
    let trial = state.trials.enter(&state.refusals)?.run().await?;
    let refusals = Arc::clone(&state.refusals);
    // The trial goes along, so that its place is taken for as long as the work goes on.
    let answer = aside(move || {
        let goes_on = || if trial.goes_on() { Ok(()) } else { Err(stopped(&refusals)) };
        answer(&state, &caller, &question, &params, &goes_on)
    });
    Answer::ok(&answer.await??)
}

fn question(body: &Tree) -> Result<Question, ApiError> {
    let mut fields = Fields::new("".into());
    let body = Part { node: body.root(), path: String::new() };
    fields.check(&body, &["node", "group", "profile", "clients", "request"]);
    let node = body.field("node").and_then(|at| fields.text(&at));
    let group = body.field("group").and_then(|at| {
        let name = fields.text(&at)?;
        let name = GroupName::new(&name);
        name.map_err(|error| fields.fault("invalid-value", &at, error.to_string())).ok()
    });
    if let Some(at) = body.field("group").filter(|_| node.is_some()) {
        fields.fault("invalid-value", &at, "a question is about a `node` or a `group`, not about both");
    }
    let profile = body.field("profile").and_then(|at| match &*fields.text(&at)? {
        "envoy" => Some(Profile::Envoy),
        "grpc" => Some(Profile::Grpc),
        _ => {
            fields.fault("invalid-value", &at, "must be envoy or grpc");
            None
        }
    });
    let clients = body.field("clients").map(|at| fields.clients(&at)).unwrap_or_default();
    let mut is_of_target = false;
    let request = match body.field("request") {
        Some(part) => {
            fields.check(&part, &REQUEST_FIELDS);
            is_of_target = part.field("target").is_some();
            fields.request(&[part])
        }
        None => {
            fields.fault("missing-field", &body, "a question needs a `request`");
            None
        }
    };
    match request {
        Some(request) if fields.faults.is_empty() => {
            Ok(Question { node, group, profile, clients, request, is_of_target })
        }
        _ => Err(ApiError::Invalid(fields.faults.iter().map(|fault| Fault::of(fault, "")).collect())),
    }
}

/// Whose resources count.
enum Whose {
    Group(GroupName),
    Node(Arc<Node>, Option<(Proofs, Option<ViewKey>)>),
}

impl Whose {
    fn of(state: &ApiState, caller: &Caller, question: &Question) -> Result<Self, ApiError> {
        let Some(id) = &question.node else {
            let name = question.group.clone().unwrap_or_else(GroupName::default_group);
            // A group that is out of scope is as if it did not exist.
            let is_there = state.publisher.groups().1.contains_key(&name) || name.is_default();
            return if is_there && caller.sees_group(&name) {
                Ok(Self::Group(name))
            } else {
                Err(no_group(&name))
            };
        };
        let connected = state.board.streams().iter().find_map(|stream| {
            stream.with(|status| {
                (status.info.node.id == *id).then(|| (status.info.clone(), status.view.clone()))
            })
        });
        Ok(match connected {
            Some((info, key)) => Self::Node(Arc::clone(&info.node), Some((info.proofs.clone(), key))),
            None => Self::Node(Arc::new(Node::with_id(id)), None),
        })
    }

    /// The clients that are asked for.
    fn clients(&self, state: &ApiState, question: &Question) -> Vec<Client> {
        if !question.clients.is_empty() {
            return question.clients.clone();
        }
        let of_target = question.is_of_target.then_some(Profile::Grpc);
        match (question.profile.or(of_target), self) {
            (Some(profile), _) => Client::newest_of(profile),
            (None, Self::Node(node, _)) => {
                let own = Client::of_user_agent(&node.user_agent_name, &node.user_agent_version);
                own.map_or_else(|| Client::newest_of(Profile::Envoy), |own| vec![own])
            }
            (None, Self::Group(name)) => {
                let groups = state.publisher.groups().1;
                let own = groups.get(name).and_then(|group| group.definition.client);
                Client::newest_of(own.unwrap_or(Profile::Envoy))
            }
        }
    }

    /// What a client is served.
    fn view(&self, state: &ApiState, client: Client) -> Option<Arc<View>> {
        let profile = client.language.profile();
        match self {
            Self::Group(name) => state.publisher.view_at(&view_key_of_group(name, profile)),
            Self::Node(node, Some((proofs, key))) => {
                let view = match state.publisher.view_as(node, proofs) {
                    Ok(view) => view,
                    // A client that has no view any more is about to be told so.
                    Err(_) => key.as_ref().and_then(|key| state.publisher.view_at(key)),
                };
                let view = view?;
                if view.key().profile == profile {
                    return Some(view);
                }
                state.publisher.view_at(&ViewKey { profile, ..view.key().clone() })
            }
            Self::Node(node, None) => {
                let user_agent_name = client.language.user_agent().to_owned();
                let node = Node { user_agent_name, ..(**node).clone() };
                state.publisher.view_of(&node)
            }
        }
    }
}

fn answer(
    state: &ApiState,
    caller: &Caller,
    question: &Question,
    params: &ExplainParams,
    goes_on: &dyn Fn() -> Result<(), ApiError>,
) -> Result<ExplainAnswer, ApiError> {
    let whose = Whose::of(state, caller, question)?;
    let documents = state.control.documents();
    let mut answer = ExplainAnswer { revision: 0, groups: Vec::new(), explanations: Vec::new(), text: None };
    let mut all: Vec<Explanation> = Vec::new();
    let mut n_bytes = 0;
    for client in whose.clients(state, question) {
        goes_on()?;
        let view = whose.view(state, client);
        let view = view.ok_or_else(|| ApiError::NotReady(state.control.not_ready()))?;
        if let Some(id) = question.node.as_ref().filter(|_| !caller.sees_all_of_node(&view.key().groups)) {
            return Err(ApiError::NotFound(format!("there is no node {id:?}")));
        }
        answer.revision = answer.revision.max(view.revision().0);
        answer.groups = view.key().groups.iter().map(ToString::to_string).collect();
        let mut explained = Model::of_view(&view, client).explain(&question.request);
        goes_on()?;
        let nothing = Texts::default();
        let places = Places { view: &view, documents: &documents.translated.documents, texts: &nothing };
        let texts = texts(state, &places, &explained);
        Places { texts: &texts, ..places }.locate(&mut explained);
        for one in &explained {
            let value = serde_json::to_value(one).map_err(|error| ApiError::Internal(error.to_string()))?;
            n_bytes += value.to_string().len();
            if n_bytes > MAX_ANSWER_BYTES {
                let text = "the answer is too long; ask about one listener, or fewer clients";
                return Err(ApiError::BadRequest(text.to_owned()));
            }
            answer.explanations.push(value);
        }
        all.extend(explained);
    }
    answer.text = params.text.then(|| xds_explain::to_text(&all, params.all));
    Ok(answer)
}

/// The texts of the files that the answer is about, as far as they are still what is served.
fn texts(state: &ApiState, places: &Places<'_>, explained: &[Explanation]) -> Texts {
    let mut texts = BTreeMap::new();
    let mut n_left = MAX_TEXT_BYTES;
    for path in places.files(explained) {
        let Some(hash) = state.control.served_hash(&path) else { continue };
        let Some(text) = state.texts.read(&path, n_left, &hash) else { continue };
        n_left -= text.len().min(n_left);
        texts.insert(path, text);
    }
    let limits = Limits {
        max_bytes: MAX_TEXT_BYTES,
        max_document_values: state.max_document_values,
        ..Limits::default()
    };
    Texts::new(texts, &limits)
}

/// Larger than all headers that clients take by default, 60 KiB.
const MAX_QUESTION_BYTES: usize = 128 << 10;

/// Eight clients with a listener each take a hundredth of this.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Texts of files that are read for the lines of one answer. Parsing that much takes half a second; lines in further files are those
/// where an object begins.
const MAX_TEXT_BYTES: usize = 16 << 20;
