//! The table of all endpoints: what the router serves and the OpenAPI document describes.
//!
//! An endpoint is one row, so that nothing can be served that is not described.

mod errors;

use axum::routing::{MethodRouter, delete, get, patch, post, put};
use http::StatusCode;

use crate::endpoint::{
    acks, conditions, documents, events, files, groups, health, history, loads, nodes, resources, snapshot,
    validate, weights,
};
use crate::openapi;
use crate::state::ApiState;

use self::errors::{DELETE_ERRORS, NOT_FOUND, NOT_READY, PUT_ERRORS, WEIGHTS_ERRORS};

/// One endpoint.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The path as axum and OpenAPI write it.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// The query parameters besides those of every write.
    pub(crate) query: &'static [Query],
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// The errors that it can answer with, besides those of every request.
    pub(crate) errors: &'static [StatusCode],
    pub(crate) handler: fn() -> MethodRouter<ApiState>,
}

/// The methods that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

/// One query parameter: its name, its JSON type and what it means.
pub(crate) struct Query(pub(crate) &'static str, pub(crate) QueryType, pub(crate) &'static str);

/// The type of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryType {
    Text,
    Integer,
    Bool,
}

/// The body that an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    None,
    Group,
    Publication,
    Resource,
    Documents,
    Rollback,
    Weights,
    /// The same as a merge patch.
    WeightsPatch,
    Text,
}

/// What an endpoint answers with: the name of a schema, or another kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// An object of a schema.
    Object(&'static str),
    /// The answer of a write: it takes the parameters of every write and can answer 202 and 424.
    Write,
    /// Any JSON object.
    Any,
    /// Text of another media type.
    Text(&'static str),
}

impl Endpoint {
    /// Whether it changes what the API owns.
    pub(crate) fn is_write(&self) -> bool {
        self.output == Output::Write
    }
}

/// The query parameters that choose documents.
const FILTER: &[Query] = &[
    Query("kind", QueryType::Text, "Only this kind, such as HTTPRoute"),
    Query("namespace", QueryType::Text, "Only this namespace; - for kinds that have none"),
    Query("name", QueryType::Text, "Only this name"),
];

/// All endpoints, as the contract lists them.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: Method::Get,
        path: "/healthz",
        summary: "Whether the process is alive",
        query: &[],
        input: Input::None,
        output: Output::Object("Health"),
        errors: &[],
        handler: || get(health::alive),
    },
    Endpoint {
        method: Method::Get,
        path: "/readyz",
        summary: "Whether the first complete load is published",
        query: &[],
        input: Input::None,
        output: Output::Object("Health"),
        errors: NOT_READY,
        handler: || get(health::ready),
    },
    Endpoint {
        method: Method::Get,
        path: "/metrics",
        summary: "The metrics as OpenMetrics text",
        query: &[],
        input: Input::None,
        output: Output::Text("application/openmetrics-text"),
        errors: &[],
        handler: || get(health::metrics),
    },
    Endpoint {
        method: Method::Get,
        path: "/openapi.json",
        summary: "This document",
        query: &[],
        input: Input::None,
        output: Output::Any,
        errors: &[],
        handler: || get(openapi::read),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/groups",
        summary: "All node groups",
        query: &[],
        input: Input::None,
        output: Output::Object("GroupList"),
        errors: NOT_READY,
        handler: || get(groups::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/groups/{group}",
        summary: "One node group",
        query: &[],
        input: Input::None,
        output: Output::Object("Group"),
        errors: NOT_FOUND,
        handler: || get(groups::read),
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}",
        summary: "Create or replace a node group",
        query: &[],
        input: Input::Group,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: || put(groups::put),
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/groups/{group}",
        summary: "Delete a node group and what the API owns in it",
        query: &[],
        input: Input::None,
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: || delete(groups::delete),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/groups/{group}/resources",
        summary: "What the API owns in a group",
        query: &[],
        input: Input::None,
        output: Output::Object("ResourceList"),
        errors: NOT_FOUND,
        handler: || get(resources::list),
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}/resources",
        summary: "Replace, in one publication, everything that the API owns in a group",
        query: &[],
        input: Input::Publication,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: || put(resources::replace),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "One resource that the API owns",
        query: &[],
        input: Input::None,
        output: Output::Any,
        errors: NOT_FOUND,
        handler: || get(resources::read),
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "Create or replace one resource",
        query: &[],
        input: Input::Resource,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: || put(resources::put),
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "Delete one resource; a file's of that name shows again",
        query: &[],
        input: Input::None,
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: || delete(resources::delete),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/groups/{group}/snapshot",
        summary: "What a client of exactly this group is served",
        query: &[Query("profile", QueryType::Text, "envoy or grpc; else the group's own, else envoy")],
        input: Input::None,
        output: Output::Object("Snapshot"),
        errors: NOT_FOUND,
        handler: || get(snapshot::of_group),
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/apply",
        summary: "Create or replace route documents, all or none; the API owns them, over those of files",
        query: &[Query(
            "group",
            QueryType::Text,
            "The group of the documents; if absent, the one that each is in, or default",
        )],
        input: Input::Documents,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: || post(documents::apply),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/documents",
        summary: "The route documents of files and API",
        query: FILTER,
        input: Input::None,
        output: Output::Object("DocumentList"),
        errors: NOT_READY,
        handler: || get(documents::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/documents/{kind}/{namespace}/{name}",
        summary: "One route document, where it comes from and what became of it",
        query: &[],
        input: Input::None,
        output: Output::Object("DocumentDetail"),
        errors: NOT_FOUND,
        handler: || get(documents::read_one),
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/documents/{kind}/{namespace}/{name}",
        summary: "Delete a route document that the API owns; a file's of that name shows again",
        query: &[],
        input: Input::None,
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: || delete(documents::delete),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/conditions",
        summary: "What became of every object, as conditions of the Gateway API",
        query: FILTER,
        input: Input::None,
        output: Output::Object("ConditionList"),
        errors: NOT_READY,
        handler: || get(conditions::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/weights",
        summary: "The weights of the rules of all objects that have any",
        query: FILTER,
        input: Input::None,
        output: Output::Object("WeightsList"),
        errors: NOT_READY,
        handler: || get(weights::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/weights/{kind}/{namespace}/{name}",
        summary: "The weights of the rules of one object",
        query: &[],
        input: Input::None,
        output: Output::Object("ObjectWeights"),
        errors: NOT_FOUND,
        handler: || get(weights::read_object),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "The weights of one rule",
        query: &[],
        input: Input::None,
        output: Output::Object("RuleEntry"),
        errors: NOT_FOUND,
        handler: || get(weights::read_rule),
    },
    Endpoint {
        method: Method::Patch,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Change some weights of a rule; only the backends that are named change",
        query: &[],
        input: Input::WeightsPatch,
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: || patch(weights::patch),
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Replace what is laid over the weights of a rule",
        query: &[],
        input: Input::Weights,
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: || put(weights::put),
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Give a rule its own weights back",
        query: &[],
        input: Input::None,
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: || delete(weights::delete),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/nodes",
        summary: "The connected nodes",
        query: &[
            Query("limit", QueryType::Integer, "At most so many nodes; 1000 if absent"),
            Query("after", QueryType::Text, "Begin after this id"),
            Query(
                "status",
                QueryType::Text,
                "Only nodes whose worst type is SYNCED, STALE, NOT_SENT or ERROR",
            ),
            Query("group", QueryType::Text, "Only nodes of this group"),
        ],
        input: Input::None,
        output: Output::Object("NodeList"),
        errors: &[],
        handler: || get(nodes::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/nodes/{id}",
        summary: "One connected node",
        query: &[],
        input: Input::None,
        output: Output::Object("NodeEntry"),
        errors: &[StatusCode::NOT_FOUND],
        handler: || get(nodes::read),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/nodes/{id}/snapshot",
        summary: "What a node is served, or would be if it connected",
        query: &[],
        input: Input::None,
        output: Output::Object("Snapshot"),
        errors: NOT_READY,
        handler: || get(snapshot::of_node),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/acks",
        summary: "Who has applied a publication; the last one if none is named",
        query: &[
            Query("revision", QueryType::Integer, "The revision"),
            Query("version", QueryType::Text, "A version or label that the revision gave to a type"),
        ],
        input: Input::None,
        output: Output::Object("AcksReport"),
        errors: &[StatusCode::NOT_FOUND, StatusCode::GONE],
        handler: || get(acks::read),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/status/files",
        summary: "The watched files, what they give and what is wrong with them",
        query: &[],
        input: Input::None,
        output: Output::Object("FileList"),
        errors: &[],
        handler: || get(files::status),
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/reload",
        summary: "Read the files again now",
        query: &[Query("confirm", QueryType::Bool, "Publish also what would be held back")],
        input: Input::None,
        output: Output::Object("ReloadAnswer"),
        errors: NOT_READY,
        handler: || post(files::reload),
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/validate",
        summary: "Validate a body as if it were a file",
        query: &[],
        input: Input::Text,
        output: Output::Object("ValidationAnswer"),
        errors: &[StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNSUPPORTED_MEDIA_TYPE],
        handler: || post(validate::validate),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/history",
        summary: "What was changed, newest first",
        query: &[
            Query("limit", QueryType::Integer, "At most so many revisions; 100 if absent"),
            Query("before", QueryType::Integer, "Only revisions below this one"),
        ],
        input: Input::None,
        output: Output::Object("RevisionList"),
        errors: &[],
        handler: || get(history::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/history/{revision}",
        summary: "One revision with its difference (7), or what differs between two (3...7)",
        query: &[],
        input: Input::None,
        output: Output::Any,
        errors: &[StatusCode::NOT_FOUND, StatusCode::GONE],
        handler: || get(history::read),
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/rollback",
        summary: "Make what the API owns what it was at a revision; a new revision itself",
        query: &[],
        input: Input::Rollback,
        output: Output::Write,
        errors: &[
            StatusCode::NOT_FOUND,
            StatusCode::GONE,
            StatusCode::PRECONDITION_FAILED,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::FAILED_DEPENDENCY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::INSUFFICIENT_STORAGE,
        ],
        handler: || post(history::rollback),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/loads",
        summary: "What clients report of their requests, by cluster and locality",
        query: &[
            Query("cluster", QueryType::Text, "Only this cluster, by its name or that of its endpoints"),
            Query("node", QueryType::Text, "Only what this node reports"),
            Query(
                "since",
                QueryType::Text,
                "Only reports of the time since: 90s or 5m ago, or an RFC 3339 time",
            ),
        ],
        input: Input::None,
        output: Output::Object("LoadList"),
        errors: &[],
        handler: || get(loads::list),
    },
    Endpoint {
        method: Method::Get,
        path: "/v1/events",
        summary: "What happens, as server-sent events; Last-Event-ID resumes",
        query: &[],
        input: Input::None,
        output: Output::Text("text/event-stream"),
        errors: &[StatusCode::TOO_MANY_REQUESTS],
        handler: || get(events::read),
    },
];
