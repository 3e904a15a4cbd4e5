//! The table of all endpoints, for the router and for the OpenAPI document.
//!
//! An endpoint is one row, so the router serves exactly the methods that the document describes.

mod errors;
pub(crate) mod row;

use std::sync::LazyLock;

use axum::extract::State;
use axum::routing::on;
use http::StatusCode;
use serde_json::Value;
use xds_access::Role;

use self::errors::{
    DELETE_ERRORS, EXPLAIN_ERRORS, NOT_FOUND, NOT_READY, PUT_ERRORS, ROLLOUT_ERRORS, WATCH_ERRORS,
    WEIGHTS_ERRORS,
};
pub(crate) use self::row::{Endpoint, Input, Method, Needs, Output, Query, QueryType, Reach, Verb};
use crate::answer::Answer;
use crate::endpoint::{
    access_check, acks, audit, certificates, conditions, diff, documents, events, explain, files, fleet,
    groups, health, history, loads, nodes, push, relay, replicas, resources, rollouts, route_tests, routes,
    snapshot, validate, waves, weights, weights_change,
};
use crate::input::{NoParams, Params};
use crate::openapi;
use crate::problem::ApiError;
use crate::state::ApiState;

/// The query parameter by which a read goes on.
const WATCH: &[Query] = &[Query("watch", QueryType::Bool, "Stream every change, as server-sent events")];

/// The query parameters that choose documents.
const FILTER: &[Query] = &[
    Query("kind", QueryType::Text, "Only this kind, such as HTTPRoute"),
    Query("namespace", QueryType::Text, "Only this namespace; - for kinds that have none"),
    Query("name", QueryType::Text, "Only this name"),
    LIMIT,
    AFTER,
];

/// The query parameters that choose clients, what they shall use, and how long to wait for that.
const ACKS: &[Query] = &[
    Query("revision", QueryType::Integer, "The revision, of the clients that it concerns"),
    Query(
        "version",
        QueryType::Text,
        "A version or label that the revision gave to a type, of the clients that it concerns",
    ),
    Query(
        "object",
        QueryType::Text,
        "The last revision that changed this object, of the clients that it concerns: KIND/NAMESPACE/NAME of a document, such as \
         HTTPRoute/prod/shop, or GROUP/TYPE/NAME of a resource, such as edge/clusters/a",
    ),
    Query(
        "uses",
        QueryType::Text,
        "A revision, or current: of all connected clients, whether they use everything of it that they ask for",
    ),
    Query("nodes", QueryType::Text, "Only clients whose node id matches this pattern, such as edge-*"),
    Query(
        "wait",
        QueryType::Text,
        "acked: answer when all of these clients use it, one rejects it, or the time is up",
    ),
    Query("timeout", QueryType::Text, "How long to wait: 500ms, 10s, 5m; 10s if absent, at most 300s"),
    Query(
        "minClients",
        QueryType::Integer,
        "With wait=acked: how many clients must use it at least, those that connect later included; 0 if absent",
    ),
    REPLICA,
];

/// The query parameters of every list that has pages.
const PAGE: &[Query] = &[LIMIT, AFTER];
const LIMIT: Query = Query(
    "limit",
    QueryType::Integer,
    "The largest number of items: at most 10000, which is also the default",
);
const REPLICA: Query = Query(
    "replica",
    QueryType::Text,
    "Only clients of this server, by its instance id, where several share a store and ask each other",
);
const AFTER: Query = Query("after", QueryType::Text, "Start after this place: `next` of the previous page");

/// A row that needs a role; the rest as for a read without parameters. There is no row without a role, nor one that says nothing of
/// how far it reaches.
const fn needs(role: Role, reach: Reach) -> Endpoint {
    Endpoint { needs: Needs::Role(role, reach), ..open() }
}

/// A row that everyone may use.
const fn open() -> Endpoint {
    Endpoint {
        method: Method::Get,
        path: "",
        summary: "",
        needs: Needs::Nothing,
        query: &[],
        verbs: &[],
        input: Input::None,
        output: Output::Any,
        errors: &[],
        handler: |method| on(method, health::alive),
    }
}

/// All endpoints, as the contract lists them.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/healthz",
        summary: "Check that the process is alive",
        output: Output::Object("Health"),
        handler: |method| on(method, health::alive),
        ..open()
    },
    Endpoint {
        path: "/readyz",
        summary: "Check that the first complete load is published",
        output: Output::Object("Health"),
        errors: NOT_READY,
        handler: |method| on(method, health::ready),
        ..open()
    },
    Endpoint {
        path: "/metrics",
        summary: "The metrics as OpenMetrics text",
        output: Output::Text("application/openmetrics-text"),
        handler: |method| on(method, health::metrics),
        ..needs(Role::Viewer, Reach::Everything)
    },
    Endpoint {
        path: "/openapi.json",
        summary: "This document",
        handler: |method| on(method, described),
        ..needs(Role::Viewer, Reach::Nothing)
    },
    Endpoint {
        path: "/v1/groups",
        summary: "All node groups",
        query: PAGE,
        output: Output::Object("GroupList"),
        errors: NOT_READY,
        handler: |method| on(method, groups::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/groups/{group}",
        summary: "One node group",
        output: Output::Object("Group"),
        errors: NOT_FOUND,
        handler: |method| on(method, groups::read),
        ..needs(Role::Viewer, Reach::Group)
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}",
        summary: "Create or replace a node group",
        input: Input::Group,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: |method| on(method, groups::put),
        ..needs(Role::Admin, Reach::Group)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/groups/{group}",
        summary: "Delete a node group and what the API owns in it",
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: |method| on(method, groups::delete),
        ..needs(Role::Admin, Reach::Group)
    },
    Endpoint {
        path: "/v1/groups/{group}/resources",
        summary: "The resources that the API owns in a group",
        query: PAGE,
        output: Output::Object("ResourceList"),
        errors: NOT_FOUND,
        handler: |method| on(method, resources::list),
        ..needs(Role::Viewer, Reach::Group)
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}/resources",
        summary: "Replace, in one publication, everything that the API owns in a group",
        input: Input::Publication,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: |method| on(method, resources::replace),
        ..needs(Role::Admin, Reach::Group)
    },
    Endpoint {
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "One resource that the API owns",
        errors: NOT_FOUND,
        handler: |method| on(method, resources::read),
        ..needs(Role::Viewer, Reach::Group)
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "Create or replace one resource",
        input: Input::Resource,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: |method| on(method, resources::put),
        ..needs(Role::Admin, Reach::Group)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/groups/{group}/resources/{type}/{name}",
        summary: "Delete one resource; a file's resource of that name is served again",
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: |method| on(method, resources::delete),
        ..needs(Role::Admin, Reach::Group)
    },
    Endpoint {
        path: "/v1/groups/{group}/snapshot",
        summary: "The snapshot for a client of this group alone",
        query: &[
            Query("profile", QueryType::Text, "envoy or grpc; by default that of the group, or envoy"),
            LIMIT,
            AFTER,
        ],
        output: Output::Object("Snapshot"),
        errors: NOT_FOUND,
        handler: |method| on(method, snapshot::of_group),
        ..needs(Role::Viewer, Reach::Group)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/apply",
        summary: "Create or replace route documents, all or none; they take precedence over those of files",
        query: &[Query(
            "group",
            QueryType::Text,
            "The group of the documents; if absent, the one that each is in, or default",
        )],
        input: Input::Documents,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: |method| on(method, documents::apply),
        ..needs(Role::Admin, Reach::Objects)
    },
    Endpoint {
        path: "/v1/documents",
        summary: "The route documents of files and API",
        query: FILTER,
        output: Output::Object("DocumentList"),
        errors: NOT_READY,
        handler: |method| on(method, documents::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/documents/{kind}/{namespace}/{name}",
        summary: "One route document, its origin and its conditions",
        output: Output::Object("DocumentDetail"),
        errors: NOT_FOUND,
        handler: |method| on(method, documents::read_one),
        ..needs(Role::Viewer, Reach::Object)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/documents/{kind}/{namespace}/{name}",
        summary: "Delete a route document that the API owns; a file's document of that name is used again",
        output: Output::Write,
        errors: DELETE_ERRORS,
        handler: |method| on(method, documents::delete),
        ..needs(Role::Admin, Reach::Object)
    },
    Endpoint {
        path: "/v1/conditions",
        summary: "The state of every object, as conditions of the Gateway API",
        query: FILTER,
        output: Output::Object("ConditionList"),
        errors: NOT_READY,
        handler: |method| on(method, conditions::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/weights",
        summary: "The weights of the rules of all objects that have any",
        query: FILTER,
        output: Output::Object("WeightsList"),
        errors: NOT_READY,
        handler: |method| on(method, weights::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/weights/{kind}/{namespace}/{name}",
        summary: "The weights of the rules of one object",
        output: Output::Object("ObjectWeights"),
        errors: NOT_FOUND,
        handler: |method| on(method, weights::read_object),
        ..needs(Role::Viewer, Reach::Object)
    },
    Endpoint {
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "The weights of one rule",
        output: Output::Object("RuleEntry"),
        errors: NOT_FOUND,
        handler: |method| on(method, weights::read_rule),
        ..needs(Role::Viewer, Reach::Object)
    },
    Endpoint {
        method: Method::Patch,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Change some weights of a rule; only the backends that are named change",
        input: Input::WeightsPatch,
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: |method| on(method, weights_change::patch),
        ..needs(Role::Operator, Reach::Object)
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Replace the override of the weights of a rule",
        input: Input::Weights,
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: |method| on(method, weights_change::put),
        ..needs(Role::Operator, Reach::Object)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/weights/{kind}/{namespace}/{name}/{rule}",
        summary: "Remove the override of the weights of a rule",
        output: Output::Write,
        errors: WEIGHTS_ERRORS,
        handler: |method| on(method, weights_change::delete),
        ..needs(Role::Operator, Reach::Object)
    },
    Endpoint {
        path: "/v1/routes",
        summary: "The routes that clients are served, in order, each with its way from a listener to endpoints",
        query: &[
            Query("node", QueryType::Text, "What this node is served"),
            Query(
                "group",
                QueryType::Text,
                "What a client of this group alone is served; default by default",
            ),
            Query("profile", QueryType::Text, "envoy or grpc; by default that of the node or group"),
            Query("host", QueryType::Text, "Only virtual hosts with this in their name or a domain"),
            Query("path", QueryType::Text, "Only routes with this in their path"),
            Query("limit", QueryType::Integer, "The largest number of routes: at most 1000; 100 by default"),
            AFTER,
        ],
        output: Output::Object("RouteList"),
        errors: NOT_READY,
        handler: |method| on(method, routes::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/certificates",
        summary: "When the certificates of this server end, and the authorities of its clients",
        output: Output::Object("CertificateList"),
        handler: |method| on(method, certificates::list),
        ..needs(Role::Viewer, Reach::Everything)
    },
    Endpoint {
        path: "/v1/fleet",
        summary: "How the connected nodes are as a whole, and a page of them, the worst first",
        query: &[
            Query("search", QueryType::Text, "Only nodes with this in their id"),
            Query(
                "state",
                QueryType::Text,
                "Only nodes in this state: rejected, heldBack, pending, unmatched, absent or acknowledged",
            ),
            Query("group", QueryType::Text, "Only nodes of this group"),
            Query("client", QueryType::Text, "Only nodes with this software and version"),
            Query("cluster", QueryType::Text, "Only nodes that say they belong to this cluster"),
            Query(
                "locality",
                QueryType::Text,
                "Only nodes of this region, zone and sub-zone, separated by /",
            ),
            Query("sort", QueryType::Text, "worst, which is the default, id, revision or reconnects"),
            Query("page", QueryType::Integer, "The page, from 1; the last one ends with the 1000th node"),
            Query("limit", QueryType::Integer, "The nodes of a page: at most 1000; 100 by default"),
        ],
        output: Output::Object("Fleet"),
        handler: |method| on(method, fleet::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/nodes",
        summary: "The connected nodes",
        query: &[
            Query("limit", QueryType::Integer, "The largest number of nodes; 1000 by default"),
            Query("after", QueryType::Text, "Start after this id"),
            Query(
                "status",
                QueryType::Text,
                "Only nodes whose worst type is SYNCED, STALE, NOT_SENT or ERROR",
            ),
            Query("group", QueryType::Text, "Only nodes of this group"),
            REPLICA,
        ],
        output: Output::Object("NodeList"),
        handler: |method| on(method, nodes::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/nodes/{id}",
        summary: "One connected node",
        query: &[REPLICA],
        output: Output::Object("NodeEntry"),
        errors: &[StatusCode::NOT_FOUND],
        handler: |method| on(method, nodes::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/nodes/{id}/snapshot",
        summary: "The snapshot for a node, connected or not",
        query: PAGE,
        output: Output::Object("Snapshot"),
        errors: NOT_READY,
        handler: |method| on(method, snapshot::of_node),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/acks",
        summary: "Which clients have applied a publication, by default the last one, or use what is served; waits for them, if asked to: \
                  then 202 says that they do not all use it in time, and 424 that one rejects it. Each list has at most 1,000 \
                  entries and no pages",
        query: ACKS,
        output: Output::Object("AcksAnswer"),
        errors: &[
            StatusCode::NOT_FOUND,
            StatusCode::GONE,
            StatusCode::FAILED_DEPENDENCY,
            StatusCode::SERVICE_UNAVAILABLE,
        ],
        handler: |method| on(method, acks::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/relay",
        summary: "The xDS server that this one relays",
        output: Output::Object("RelayStatus"),
        handler: |method| on(method, relay::status),
        ..needs(Role::Viewer, Reach::Everything)
    },
    Endpoint {
        path: "/v1/replicas",
        summary: "The servers that share the store",
        output: Output::Object("ReplicaList"),
        handler: |method| on(method, replicas::list),
        ..needs(Role::Viewer, Reach::Nothing)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/replicas/{replica}",
        summary: "Stop to count the clients of a server that vanished",
        output: Output::Object("ReplicaList"),
        errors: &[StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE],
        handler: |method| on(method, replicas::forget),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        path: "/v1/status/files",
        summary: "The watched files, their objects and their errors",
        query: PAGE,
        output: Output::Object("FileList"),
        handler: |method| on(method, files::status),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Put,
        path: "/v1/files",
        summary: "Replace the files of a store that several servers share, all or none; refused where the store is one server's",
        query: &[Query("confirm", QueryType::Bool, "Also if it removes so much that it would be held back")],
        input: Input::Files,
        output: Output::Write,
        errors: PUT_ERRORS,
        handler: |method| on(method, push::push),
        ..needs(Role::Admin, Reach::Everything)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/reload",
        summary: "Read the files again now",
        query: &[Query("confirm", QueryType::Bool, "Also publish a load that would be held back")],
        output: Output::Object("ReloadAnswer"),
        errors: NOT_READY,
        handler: |method| on(method, files::reload),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/validate",
        summary: "Validate a body as if it were a file",
        input: Input::Text,
        output: Output::Object("ValidationAnswer"),
        errors: &[StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNSUPPORTED_MEDIA_TYPE],
        handler: |method| on(method, validate::validate),
        ..needs(Role::Operator, Reach::Nothing)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/explain",
        summary: "Explain where a request goes, by what a group or a node is served",
        query: &[
            Query("text", QueryType::Bool, "Also as text, as the command `explain` prints it"),
            Query("all", QueryType::Bool, "In the text, also show routes whose path does not fit"),
        ],
        input: Input::Question,
        output: Output::Object("ExplainAnswer"),
        errors: EXPLAIN_ERRORS,
        handler: |method| on(method, explain::explain),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/diff",
        summary: "The requests that move between two revisions, or if the files were others, for a group or a node",
        query: &[Query("text", QueryType::Bool, "Also as text, as the command `diff` prints it")],
        input: Input::Comparison,
        output: Output::Object("DiffAnswer"),
        errors: EXPLAIN_ERRORS,
        handler: |method| on(method, diff::diff),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/tests",
        summary: "Which RouteTests pass and fail on what is served, and why",
        output: Output::Object("TestList"),
        errors: NOT_READY,
        handler: |method| on(method, route_tests::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/tests:release",
        summary: "Publish the change that RouteTests hold",
        output: Output::Object("WaveEntry"),
        errors: &[StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE, StatusCode::INSUFFICIENT_STORAGE],
        handler: |method| on(method, route_tests::release),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        path: "/v1/history",
        summary: "The revisions, newest first",
        query: &[
            Query("limit", QueryType::Integer, "The largest number of revisions; 100 by default"),
            Query(
                "after",
                QueryType::Integer,
                "Start after this revision, with the next older one: `next` of the previous page",
            ),
            Query("before", QueryType::Integer, "Only revisions below this one, the same as after"),
            Query(
                "actor",
                QueryType::Text,
                "Only revisions by this actor; rollouts act as rollout, waves as waves, files as files",
            ),
            Query(
                "source",
                QueryType::Text,
                "Only revisions from this source: api, file, rollback, revert, rollout, waves, expiry",
            ),
        ],
        output: Output::Object("RevisionList"),
        handler: |method| on(method, history::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/history/{revision}",
        summary: "One revision with its difference (7), or the difference between two (3...7)",
        query: &[
            Query("requests", QueryType::Bool, "Also the requests that moved, as /v1/diff answers them"),
            Query(
                "phases",
                QueryType::Bool,
                "Also the steps in which clients got it, as a dry run tells them",
            ),
        ],
        errors: &[StatusCode::NOT_FOUND, StatusCode::GONE, StatusCode::SERVICE_UNAVAILABLE],
        handler: |method| on(method, history::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/rollback",
        summary: "Restore everything that the API owns to its state at a revision; this makes a new revision",
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
        handler: |method| on(method, history::rollback),
        ..needs(Role::Admin, Reach::Everything)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/rollouts",
        summary: "Start to move traffic from one backend of a rule to another, in steps",
        query: &[Query("dryRun", QueryType::Bool, "Only report what would be done")],
        input: Input::Rollout,
        output: Output::Object("RolloutView"),
        errors: ROLLOUT_ERRORS,
        handler: |method| on(method, rollouts::start),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        path: "/v1/rollouts",
        summary: "All rollouts that are kept: at most 1,100, without pages",
        query: WATCH,
        output: Output::Object("RolloutList"),
        errors: &[StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE],
        handler: |method| on(method, rollouts::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/rollouts/{rollout}",
        summary: "One rollout: its specification and its progress",
        query: WATCH,
        output: Output::Object("RolloutView"),
        errors: WATCH_ERRORS,
        handler: |method| on(method, rollouts::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/rollouts/{rollout}/loads",
        summary: "The requests to the backends of a rollout over time, as clients of this server report them",
        output: Output::Object("RolloutSeries"),
        errors: NOT_FOUND,
        handler: |method| on(method, rollouts::series),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/rollouts/{rollout}",
        summary: "Control a rollout",
        verbs: &[
            Verb("pause", Input::None, "Pause a rollout"),
            Verb("resume", Input::None, "Resume a paused rollout"),
            Verb(
                "promote",
                Input::Promote,
                "Skip the rest of a step, or with `full` give the canary all traffic",
            ),
            Verb("abort", Input::None, "Give the stable backend all traffic, and end"),
            Verb("retry", Input::None, "Start a failed or aborted rollout again"),
        ],
        output: Output::Object("RolloutView"),
        errors: ROLLOUT_ERRORS,
        handler: |method| on(method, rollouts::ask),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        method: Method::Delete,
        path: "/v1/rollouts/{rollout}",
        summary: "Delete a rollout that has ended",
        query: &[Query("abort", QueryType::Bool, "Abort it first if it is in progress")],
        errors: ROLLOUT_ERRORS,
        handler: |method| on(method, rollouts::delete),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        path: "/v1/loads",
        summary: "Load reports of clients, by cluster and locality",
        query: &[
            Query("cluster", QueryType::Text, "Only this cluster, by its name or that of its endpoints"),
            Query("node", QueryType::Text, "Only reports of this node"),
            Query("since", QueryType::Text, "Only reports since then: 90s or 5m ago, or an RFC 3339 time"),
            LIMIT,
            AFTER,
            REPLICA,
        ],
        output: Output::Object("LoadList"),
        handler: |method| on(method, loads::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/waves",
        summary: "The wave deployment that is under way, and the last 20 that ended, newest first, without pages",
        output: Output::Object("WaveList"),
        handler: |method| on(method, waves::list),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        path: "/v1/waves/{deployment}",
        summary: "One wave deployment, and the state of its clients",
        query: &[Query(
            "movedRequests",
            QueryType::Bool,
            "Also the requests that it moves, as /v1/diff answers them, while it is under way",
        )],
        output: Output::Object("WaveEntry"),
        errors: EXPLAIN_ERRORS,
        handler: |method| on(method, waves::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
    Endpoint {
        method: Method::Post,
        path: "/v1/waves/{deployment}",
        summary: "Control a wave deployment",
        verbs: &[
            Verb("pause", Input::None, "Pause a wave deployment"),
            Verb("resume", Input::None, "Resume a paused wave deployment"),
            Verb("promote", Input::None, "Give everyone the change now"),
            Verb("abort", Input::None, "Put a wave deployment back"),
        ],
        output: Output::Object("WaveEntry"),
        errors: &[
            StatusCode::NOT_FOUND,
            StatusCode::CONFLICT,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::INSUFFICIENT_STORAGE,
        ],
        handler: |method| on(method, waves::act),
        ..needs(Role::Operator, Reach::Everything)
    },
    Endpoint {
        path: "/v1/access:check",
        summary: "What a client or a principal may get, the rule that decides, and what would be needed",
        query: &[
            Query("node", QueryType::Text, "The node ID of a client of the xDS port"),
            Query("cluster", QueryType::Text, "The cluster that the node claims"),
            Query("spiffe", QueryType::Text, "The SPIFFE ID of its certificate"),
            Query("dns", QueryType::Text, "The DNS names of its certificate, separated by commas"),
            Query("cn", QueryType::Text, "The common name of a certificate without any other name"),
            Query("issuer", QueryType::Text, "The issuer of its token, by its name in the access policy"),
            Query("subject", QueryType::Text, "The subject of the token"),
            Query("claims", QueryType::Text, "The claims of the token, as a JSON object"),
            Query("principal", QueryType::Text, "A principal by name, instead of an identity"),
            Query("group", QueryType::Text, "The node group that the client wants"),
            Query("endpoint", QueryType::Text, "The endpoint that the principal wants: PUT /v1/groups/edge"),
        ],
        output: Output::Object("AccessVerdict"),
        errors: NOT_FOUND,
        handler: |method| on(method, checked),
        ..needs(Role::Admin, Reach::Everything)
    },
    Endpoint {
        path: "/v1/audit",
        summary: "What was done and refused, the newest first: the last 1,000 lines of the audit log since the start",
        query: &[Query("limit", QueryType::Integer, "At most so many, up to 1000; 100 if absent")],
        output: Output::Object("AuditList"),
        handler: |method| on(method, audit::list),
        ..needs(Role::Admin, Reach::Everything)
    },
    Endpoint {
        path: "/v1/events",
        summary: "Events, as server-sent events; Last-Event-ID resumes",
        output: Output::Events,
        errors: &[StatusCode::TOO_MANY_REQUESTS],
        handler: |method| on(method, events::read),
        ..needs(Role::Viewer, Reach::Objects)
    },
];

/// A question about access knows the table from here.
async fn checked(
    State(state): State<ApiState>,
    Params(params): Params<access_check::CheckParams>,
) -> Result<Answer, ApiError> {
    access_check::check(ENDPOINTS, &state, &params)
}

/// The OpenAPI document of the table, which is made at the first request.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::document(ENDPOINTS));

async fn described(_: Params<NoParams>) -> Result<Answer, ApiError> {
    Ok(Answer::ok(&*DOCUMENT)?.tagged_by_content())
}
