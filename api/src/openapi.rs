//! The table of endpoints as an OpenAPI document.

mod rollout_body;

use http::StatusCode;
use serde_json::Value;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{Discriminator, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, ContentBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema};
use utoipa::{OpenApi, ToSchema};
use xds_control::model::group::Group;

use crate::endpoint::access_check::AccessVerdict;
use crate::endpoint::acks::AcksAnswer;
use crate::endpoint::audit::AuditList;
use crate::endpoint::certificates::CertificateList;
use crate::endpoint::conditions::ConditionList;
use crate::endpoint::diff::{DiffAnswer, DiffBody};
use crate::endpoint::documents::{DocumentDetail, DocumentList};
use crate::endpoint::explain::{ExplainAnswer, ExplainBody};
use crate::endpoint::files::{FileList, ReloadAnswer};
use crate::endpoint::groups::GroupList;
use crate::endpoint::health::Health;
use crate::endpoint::history::{Comparison, RevisionEntry, RevisionList, RollbackBody};
use crate::endpoint::loads::LoadList;
use crate::endpoint::nodes::NodeList;
use crate::endpoint::push::FilesBody;
use crate::endpoint::relay::RelayStatus;
use crate::endpoint::replicas::ReplicaList;
use crate::endpoint::resources::{self, ResourceList};
use crate::endpoint::rollouts::{
    PromoteBody, RolloutList, RolloutPlan, RolloutSeries, RolloutView, WATCH_KINDS, WatchedDeletion,
};
use crate::endpoint::route_tests::TestList;
use crate::endpoint::routes::RouteList;
use crate::endpoint::snapshot::Snapshot;
use crate::endpoint::validate::ValidationAnswer;
use crate::endpoint::waves::{WaveEntry, WaveList};
use crate::endpoint::weights::{ObjectWeights, RuleEntry, WeightsList};
use crate::endpoint::weights_change::WeightsBody;
use crate::endpoints::{Endpoint, Input, Method, Needs, Output, Query, QueryType, Reach, Verb};
use crate::events::body::{self as event, KINDS};
use crate::fleet::Fleet;
use crate::problem::{Fault, Problem};
use crate::write::WriteAnswer;

/// The body that replaces everything that the API owns in a group.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
struct Publication {
    /// A label to show as version.
    version: Option<String>,
    /// The resources: each an object with `@type` and the type's own fields.
    resources: Vec<Value>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "xds-server admin API",
        description = "Groups, resources, clients and history of an xDS management server. Bodies and answers are JSON; \
                       with Content-Type or Accept application/yaml they are YAML. Errors are RFC 9457 problem details."
    ),
    components(schemas(
        AccessVerdict,
        AcksAnswer,
        AuditList,
        event::Answered,
        event::Deployment,
        event::Dropped,
        event::Held,
        event::Lagged,
        event::Problem,
        event::Published,
        event::Rejected,
        event::RolloutEvent,
        event::Stream,
        event::TestFailed,
        Comparison,
        DiffAnswer,
        DiffBody,
        FilesBody,
        ExplainAnswer,
        ExplainBody,
        ConditionList,
        Fault,
        DocumentDetail,
        DocumentList,
        FileList,
        Group,
        GroupList,
        Health,
        LoadList,
        CertificateList,
        Fleet,
        RouteList,
        RolloutSeries,
        NodeList,
        Problem,
        PromoteBody,
        Publication,
        ReloadAnswer,
        RelayStatus,
        ReplicaList,
        ResourceList,
        RevisionEntry,
        RevisionList,
        RollbackBody,
        RolloutList,
        RolloutPlan,
        RolloutView,
        Snapshot,
        TestList,
        ValidationAnswer,
        WatchedDeletion,
        WaveEntry,
        WaveList,
        ObjectWeights,
        RuleEntry,
        WeightsBody,
        WeightsList,
        WriteAnswer,
    ))
)]
struct Document;

/// The whole document of these endpoints.
pub(crate) fn document(endpoints: &[Endpoint]) -> Value {
    let mut document = serde_json::to_value(described(endpoints)).unwrap_or_default();
    for (name, schema) in rollout_body::schemas() {
        document["components"]["schemas"][name] = schema;
    }
    document
}

/// All of the document that is made of types and tables.
fn described(endpoints: &[Endpoint]) -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    if let Some(components) = &mut document.components {
        components.schemas.extend(event_schemas("ServerEvent", "", KINDS));
        components.schemas.extend(event_schemas("WatchEvent", "Watched", WATCH_KINDS));
    }
    for endpoint in endpoints {
        let method = match endpoint.method {
            Method::Get => HttpMethod::Get,
            Method::Put => HttpMethod::Put,
            Method::Post => HttpMethod::Post,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        };
        if endpoint.verbs.is_empty() {
            document.paths.add_path_operation(endpoint.path, vec![method], operation(endpoint, None));
            continue;
        }
        for verb in endpoint.verbs {
            let path = format!("{}:{}", endpoint.path, verb.0);
            document.paths.add_path_operation(path, vec![method.clone()], operation(endpoint, Some(verb)));
        }
    }
    if let Some(components) = &mut document.components {
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.security_schemes.insert("token".to_owned(), bearer.into());
    }
    document
}

/// Who may use an endpoint, in words.
fn needs(endpoint: &Endpoint) -> Option<String> {
    let Needs::Role(role, reach) = endpoint.needs else { return None };
    let scope = match reach {
        Reach::Nothing => "",
        Reach::Group | Reach::Object => " Its scope must have the object.",
        Reach::Objects => " It is limited to its scope.",
        Reach::Everything => " The principal must have no scope.",
    };
    Some(format!("If there are principals: needs the role `{role}`.{scope}"))
}

fn operation(endpoint: &Endpoint, verb: Option<&Verb>) -> Operation {
    let summary = verb.map_or(endpoint.summary, |verb| verb.2);
    let input = verb.map_or(endpoint.input, |verb| verb.1);
    let mut operation = OperationBuilder::new()
        .summary(Some(summary))
        .description(needs(endpoint))
        .operation_id(Some(operation_id(endpoint, verb)))
        .tag(tag(endpoint.path))
        .security(SecurityRequirement::new("token", Vec::<String>::new()))
        .security(SecurityRequirement::default());
    for name in endpoint.path.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
        operation =
            operation.parameter(parameter(name.0, ParameterIn::Path, Type::String, path_help(name.0)));
    }
    for Query(name, kind, help) in endpoint.query {
        let kind = match kind {
            QueryType::Text => Type::String,
            QueryType::Integer => Type::Integer,
            QueryType::Bool => Type::Boolean,
        };
        operation = operation.parameter(parameter(name, ParameterIn::Query, kind, help));
    }
    if endpoint.method == Method::Get && endpoint.path.starts_with("/v1/") {
        let help = "Answer once this server serves this revision, or a later one; 503 after 10 s";
        operation = operation.parameter(parameter("minRevision", ParameterIn::Query, Type::Integer, help));
    }
    if endpoint.is_write() {
        for (name, place, kind, help) in WRITE_PARAMETERS {
            operation = operation.parameter(parameter(name, place, kind, help));
        }
    }
    if endpoint.is_write() {
        let help =
            "Another call with the same key does not do it again, and answers with the revision that did it";
        operation =
            operation.parameter(parameter("Idempotency-Key", ParameterIn::Header, Type::String, help));
    }
    if endpoint.input == Input::Rollout {
        let help = "For a day, another call with the same key returns the same rollout";
        operation =
            operation.parameter(parameter("Idempotency-Key", ParameterIn::Header, Type::String, help));
        operation = operation.response("202", answer("Begun", endpoint.output));
    }
    if endpoint.output == Output::Events || endpoint.is_watched() {
        let help = "Continue after the event with this id";
        operation = operation.parameter(parameter("Last-Event-ID", ParameterIn::Header, Type::String, help));
    }
    operation = operation.request_body(body(input));
    operation = operation.response("200", done(endpoint));
    if endpoint.waits() {
        let help = "Done, but not every client has acknowledged it in time";
        operation = operation.response("202", answer(help, endpoint.output));
    }
    if endpoint.is_write() {
        operation = operation.response("409", problem(StatusCode::CONFLICT));
    }
    for status in endpoint.errors.iter().chain(EVERYWHERE) {
        operation = operation.response(status.as_str(), problem(*status));
    }
    operation.build()
}

/// The answer to what was done, or read.
fn done(endpoint: &Endpoint) -> Response {
    let mut response = answer("Done", endpoint.output);
    if endpoint.is_watched() {
        response.content.insert(EVENT_STREAM.to_owned(), RefOr::T(reference("WatchEvent")));
    }
    if endpoint.input == Input::Rollout {
        // A rollout that was begun before with the same key, or the result of a dry run.
        let either = OneOfBuilder::new()
            .item(Ref::from_schema_name("RolloutView"))
            .item(Ref::from_schema_name("RolloutPlan"));
        let content = Content::new(Some(RefOr::<Schema>::T(Schema::OneOf(either.build()))));
        response.content.extend(FORMS.map(|kind| (kind.to_owned(), RefOr::T(content.clone()))));
    }
    response
}

/// Each kind of event as an object of its own, as a reader of server-sent events assembles it; `event` identifies the kind. `all` is
/// the union of them; the name of each begins with `prefix`.
fn event_schemas(all: &str, prefix: &str, kinds: &[(&str, &str)]) -> Vec<(String, RefOr<Schema>)> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let mut discriminator = Discriminator::new("event");
    let mut one_of = OneOfBuilder::new();
    let mut schemas = Vec::new();
    for (name, data) in kinds {
        let mut characters = name.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        let schema = prefix.chars().chain(first).chain(characters).chain("Event".chars());
        let schema: String = schema.collect();
        let id = "To miss nothing after a pause, send the last one as Last-Event-ID";
        let object = ObjectBuilder::new()
            .property("id", text().description(Some(id)))
            .property("event", text().enum_values(Some([*name])))
            .property("data", Ref::from_schema_name(*data))
            .required("event")
            .required("data");
        let reference = Ref::from_schema_name(&schema);
        discriminator.mapping.insert((*name).to_owned(), reference.ref_location.clone());
        one_of = one_of.item(reference);
        schemas.push((schema, object.build().into()));
    }
    let any = one_of.discriminator(Some(discriminator)).description(Some("What happens")).build();
    schemas.push((all.to_owned(), Schema::OneOf(any).into()));
    schemas
}

/// The codes that every endpoint can answer with.
const EVERYWHERE: &[StatusCode] = &[
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
];

const WRITE_PARAMETERS: [(&str, ParameterIn, Type, &str); 19] = [
    ("dryRun", ParameterIn::Query, Type::Boolean, "Validate and report the difference, but change nothing"),
    (
        "wait",
        ParameterIn::Query,
        Type::String,
        "acked: answer when every concerned client has acknowledged the change",
    ),
    (
        "timeout",
        ParameterIn::Query,
        Type::String,
        "How long to wait: 500ms, 10s, 5m; 10s if absent, at most 300s",
    ),
    (
        "onNack",
        ParameterIn::Query,
        Type::String,
        "revert: undo the change if a client rejects it; keep by default",
    ),
    (
        "minClients",
        ParameterIn::Query,
        Type::Integer,
        "With wait=acked: how many clients must acknowledge the change at least, those that connect later included; 0 if absent",
    ),
    (
        "waves",
        ParameterIn::Query,
        Type::String,
        "Deploy to these shares of the nodes, one after the other: 1%,10%,100%; each: one value of `by` after the other; none: everyone at once; by default as the groups define",
    ),
    (
        "by",
        ParameterIn::Query,
        Type::String,
        "What decides which nodes come first: region, zone or subZone of their locality, metadata.KEY, or hash, their ids alone; \
         hash if absent",
    ),
    (
        "order",
        ParameterIn::Query,
        Type::String,
        "The values of `by` that come first: eu-west-1b,eu-west-1a; the others follow, those with fewer nodes first",
    ),
    (
        "hold",
        ParameterIn::Query,
        Type::String,
        "How long to wait after all clients of a wave have ACKed: 30s, 5m; 0s if absent",
    ),
    (
        "maxNacks",
        ParameterIn::Query,
        Type::String,
        "How many members may reject it: a number, or a share such as 5%; 0 if absent",
    ),
    (
        "ackTimeout",
        ParameterIn::Query,
        Type::String,
        "How long a wave waits for its ACKs before it pauses; for ever if absent",
    ),
    (
        "maxLost",
        ParameterIn::Query,
        Type::String,
        "How many members may be gone or have restarted: a number, or a share such as 5%; by default 0 in the first wave, then 5%",
    ),
    (
        "allowEmpty",
        ParameterIn::Query,
        Type::Boolean,
        "Let a wave without a connected node pass; by default it waits for one",
    ),
    (
        "maxErrorRate",
        ParameterIn::Query,
        Type::String,
        "How much larger the share of failed requests may be with the change than without it while a wave is held, by load reports: 5%; not checked by default",
    ),
    (
        "force",
        ParameterIn::Query,
        Type::Boolean,
        "End a conflicting change: a wave deployment is put back, a rollout that moves the weights of the rule stops",
    ),
    (
        "If-Match",
        ParameterIn::Header,
        Type::String,
        "Only if the entity tag is one of these, or * if it exists",
    ),
    (
        "If-None-Match",
        ParameterIn::Header,
        Type::String,
        "Only if the entity tag is not one of these; * if it does not exist",
    ),
    ("X-Actor", ParameterIn::Header, Type::String, "The actor, for the history"),
    (
        "traceparent",
        ParameterIn::Header,
        Type::String,
        "The span of the caller whose trace the change joins, as the W3C Trace Context defines it",
    ),
];

fn path_help(name: &str) -> &'static str {
    match name {
        "group" => "The group's name, percent-encoded",
        "type" => {
            "listeners, routes, clusters, endpoints, secrets, runtimes, scoped-routes, virtual-hosts, extension-configs, \
             locality-endpoints, or a percent-encoded type URL"
        }
        "name" => "The name of the resource or document, percent-encoded",
        "kind" => "The kind of a route document, such as HTTPRoute; of weights also RouteConfiguration",
        "namespace" => {
            "The namespace, percent-encoded; - for a kind that has none, the group of a RouteConfiguration"
        }
        "rule" => {
            "The name or index of the rule; of a RouteConfiguration {virtual host}/{route}, percent-encoded"
        }
        "id" => "The node id, percent-encoded",
        "deployment" => "The id of the wave deployment",
        "rollout" => "The rollout's id",
        _ => "A revision, or two with three dots between them",
    }
}

fn parameter(name: &str, place: ParameterIn, kind: Type, help: &str) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(help))
        .schema(Some(ObjectBuilder::new().schema_type(kind)))
        .build()
}

fn body(input: Input) -> Option<RequestBody> {
    let (help, content) = match input {
        Input::None => return None,
        Input::Group => ("A node group", reference("Group")),
        Input::Publication => {
            let content = ContentBuilder::from(reference("Publication")).example(Some(resources::example()));
            ("Everything that the API will own", content.build())
        }
        Input::Resource => ("A resource; @type may be left out", any()),
        Input::Documents => ("A route document, a list of them, or YAML with several documents", any()),
        Input::Weights | Input::WeightsPatch => ("New weights", reference("WeightsBody")),
        Input::Question => ("The request, and for whom it is asked", reference("ExplainBody")),
        Input::Comparison => ("The two states, and for whom they are compared", reference("DiffBody")),
        Input::Files => ("The texts of all files, by their paths", reference("FilesBody")),
        Input::Rollout => ("The rollout, in steps or in Flagger's short form", reference(rollout_body::NAME)),
        Input::Promote => ("May be left out", reference("PromoteBody")),
        Input::Rollback => ("The revision to go back to", reference("RollbackBody")),
        Input::Text => ("The contents of a file", any()),
    };
    let required = if input == Input::Promote { Required::False } else { Required::True };
    let mut body = RequestBodyBuilder::new().description(Some(help)).required(Some(required));
    let merge_patch = (input == Input::WeightsPatch).then_some("application/merge-patch+json");
    for kind in merge_patch.into_iter().chain(FORMS) {
        body = body.content(kind, content.clone());
    }
    Some(body.build())
}

fn answer(help: &str, output: Output) -> Response {
    let response = ResponseBuilder::new().description(help);
    let content = match output {
        Output::Object(name) => reference(name),
        Output::Write => reference("WriteAnswer"),
        Output::Any => any(),
        Output::Events => return response.content(EVENT_STREAM, reference("ServerEvent")).build(),
        Output::Text(kind) => {
            let text =
                Content::new(Some(Schema::Object(ObjectBuilder::new().schema_type(Type::String).build())));
            return response.content(kind, text).build();
        }
    };
    FORMS.into_iter().fold(response, |response, kind| response.content(kind, content.clone())).build()
}

fn problem(status: StatusCode) -> Response {
    let help = status.canonical_reason().unwrap_or_default();
    ResponseBuilder::new().description(help).content("application/problem+json", reference("Problem")).build()
}

const EVENT_STREAM: &str = "text/event-stream";

const FORMS: [&str; 2] = ["application/json", "application/yaml"];

fn reference(name: &str) -> Content {
    Content::new(Some(RefOr::<Schema>::Ref(Ref::from_schema_name(name))))
}

fn any() -> Content {
    Content::new(Some(Schema::Object(ObjectBuilder::new().schema_type(Type::Object).build())))
}

/// `getGroupsByGroup`: unique, because method and path are.
fn operation_id(endpoint: &Endpoint, verb: Option<&Verb>) -> String {
    let mut id = match endpoint.method {
        Method::Get => "get",
        Method::Put => "put",
        Method::Post => "post",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
    .to_owned();
    let parts = endpoint.path.split('/').filter(|part| !part.is_empty() && *part != "v1");
    for part in parts.chain(verb.map(|verb| verb.0)) {
        let (word, joint) = match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(parameter) => (parameter, "By"),
            None => (part, ""),
        };
        id.push_str(joint);
        let mut characters = word.chars().filter(char::is_ascii_alphanumeric);
        id.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        id.extend(characters);
    }
    id
}

/// The part of the API that a path belongs to.
fn tag(path: &str) -> &str {
    path.trim_start_matches("/v1").split('/').find(|part| !part.is_empty()).unwrap_or("server")
}
