//! The body that begins a rollout, in the words of JSON Schema.
//!
//! The body is read field by field (`xds_rollout::RolloutSpec`), so that every fault has its place. So there is no type from which the
//! schema could be derived. `tests/tests/server/openapi.rs` compares the two.

use serde_json::{Map, Value, json};
use xds_rollout::HookKind;

/// The name of the schema of the body.
pub(super) const NAME: &str = "RolloutBody";

/// The schema of the body and those that it refers to, by name.
pub(super) fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for (name, schema) in [
        (NAME, body()),
        ("RolloutRule", rule()),
        ("RolloutStep", step()),
        ("RolloutHeaderMatch", header_match()),
        ("RolloutAnalysis", analysis()),
        ("RolloutPrometheus", prometheus()),
        ("RolloutWebhook", webhook()),
        ("RolloutPercent", percent()),
        ("RolloutDuration", duration()),
    ] {
        schemas.insert(name.to_owned(), schema);
    }
    schemas
}

fn reference(name: &str, help: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}"), "description": help})
}

fn list_of(name: &str, most: u32, help: &str) -> Value {
    json!({"type": "array", "maxItems": most, "items": {"$ref": format!("#/components/schemas/{name}")}, "description": help})
}

fn text(most: u32, help: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": most, "description": help})
}

fn integer(least: u32, most: Option<u32>, help: &str) -> Value {
    let mut schema = json!({"type": "integer", "minimum": least, "description": help});
    if let Some(most) = most {
        schema["maximum"] = json!(most);
    }
    schema
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// Steps, or one of the two fields that stand for them as in Flagger.
fn body() -> Value {
    let mut schema = object(
        &["route", "stable", "canary"],
        &json!({
            "route": reference("RolloutRule", "The rule whose weights change"),
            "stable": text(1024, "The backend that has the traffic at the start, as /v1/weights names it"),
            "canary": text(1024, "The backend that has the traffic at the end; not the stable one"),
            "steps": list_of("RolloutStep", 100, "The steps before promotion; at most 100 together with promotionSteps"),
            "promotionSteps": list_of("RolloutStep", 100, "The steps between promotion and all traffic; only with steps"),
            "stepWeight": reference("RolloutPercent", "Replaces steps: how much more the canary gets each interval"),
            "stepWeights": {
                "type": "array", "minItems": 1, "maxItems": 50, "items": {"$ref": "#/components/schemas/RolloutPercent"},
                "description": "Replaces steps: the rising shares of the canary",
            },
            "stepWeightPromotion": reference("RolloutPercent", "The same after promotion; only without steps"),
            "threshold": integer(1, Some(10_000), "How many bad measurements abort; only without steps"),
            "autoPromote": {"type": "boolean", "default": true, "description": "Promote after the last step"},
            "maxWeight": reference("RolloutPercent", "The largest share of the canary before promotion; 100 if absent"),
            "onNack": {"type": "string", "enum": ["pause", "abort"], "default": "pause",
                "description": "The reaction to a client that rejects a step"},
            "nackTolerance": reference("RolloutPercent", "The share of clients that may reject a step; 0 by default"),
            "waitAck": reference("RolloutDuration", "How long a step waits for its ACKs; 5m if absent"),
            "onAckTimeout": {"type": "string", "enum": ["pause", "abort", "continue"], "default": "pause",
                "description": "The reaction when they do not arrive in that time"},
            "onInconclusive": {"type": "string", "enum": ["pause", "abort"], "default": "pause",
                "description": "The reaction when more measurements in a row are inconclusive than inconclusiveLimit; a pause leaves the weights as they are"},
            "deadline": reference("RolloutDuration", "How long the rollout may take, pauses included; no limit by default"),
            "interval": reference("RolloutDuration", "How often webhooks are called and, without steps, measurements are taken; 1m by default"),
            "analysis": reference("RolloutAnalysis", "Measures in the background while the canary has traffic"),
            "webhooks": list_of("RolloutWebhook", 20, "Webhooks to call; their names are unique"),
        }),
    );
    schema["properties"]["steps"]["minItems"] = json!(1);
    schema["oneOf"] = json!([
        {"required": ["steps"], "properties": {"threshold": false, "stepWeightPromotion": false}},
        {"required": ["stepWeight"], "properties": {"promotionSteps": false}},
        {"required": ["stepWeights"], "properties": {"promotionSteps": false}},
    ]);
    schema
}

fn rule() -> Value {
    let index = json!({"type": "integer", "minimum": 0});
    object(
        &["kind", "namespace", "name"],
        &json!({
            "kind": text(1024, "The kind of route, such as HTTPRoute"),
            "namespace": text(1024, "Its namespace; the group of a RouteConfiguration"),
            "name": text(1024, "Its name"),
            "rule": {"anyOf": [text(1024, "A name or index"), index], "default": "0", "description": "The rule: its name or index"},
        }),
    )
}

fn step() -> Value {
    let mut schema = object(
        &[],
        &json!({
            "setWeight": reference("RolloutPercent", "The share of the canary; done when the concerned clients have ACKed"),
            "waitAck": reference("RolloutDuration", "How long to wait for the ACKs of this weight, or of the last change"),
            "pause": {
                "type": "object", "additionalProperties": false,
                "properties": {"duration": reference("RolloutDuration", "Until someone resumes if absent")},
                "description": "Wait",
            },
            "analysis": reference("RolloutAnalysis", "Measure; done after enough good measurements"),
            "setHeaderRoute": {
                "type": "object", "additionalProperties": false, "required": ["name"],
                "properties": {
                    "name": text(253, "The name by which a later step removes it"),
                    "match": list_of("RolloutHeaderMatch", 16, "Headers that requests must have, all of them; removes the header route if absent"),
                },
                "description": "Send requests with these headers to the canary",
            },
        }),
    );
    schema["oneOf"] = json!([
        {"required": ["setWeight"]},
        {"required": ["pause"]},
        {"required": ["analysis"]},
        {"required": ["setHeaderRoute"]},
        {"required": ["waitAck"], "properties": {"setWeight": false}},
    ]);
    schema
}

fn header_match() -> Value {
    let value = json!({
        "type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
        "properties": {
            "exact": text(4096, "Equal"),
            "prefix": text(4096, "How it begins"),
            "regex": text(1024, "An expression for the whole value"),
        },
        "description": "What the value must be",
    });
    object(
        &["headerName", "headerValue"],
        &json!({"headerName": text(253, "The name of the header"), "headerValue": value}),
    )
}

fn analysis() -> Value {
    object(
        &[],
        &json!({
            "interval": reference("RolloutDuration", "How long a measurement collects; 1m if absent"),
            "count": integer(1, Some(10_000), "How many good measurements a step needs; 1 by default"),
            "minRequests": integer(0, None, "A measurement with fewer is inconclusive; 1 by default"),
            "failureLimit": integer(0, Some(10_000), "How many bad measurements are allowed in total; 0 by default"),
            "inconclusiveLimit": integer(0, Some(10_000), "How many in a row may be inconclusive; 10 by default"),
            "maxErrorRate": reference("RolloutPercent", "The share of the canary's requests that may fail; 1 without another bound"),
            "maxErrorRateOverStable": reference("RolloutPercent", "How much larger it may be than that of the stable backend"),
            "prometheus": reference("RolloutPrometheus", "A query that is checked as well"),
        }),
    )
}

fn prometheus() -> Value {
    let mut schema = object(
        &["address", "query"],
        &json!({
            "address": url("The server"),
            "query": text(8192, "Returns one number"),
            "min": {"type": "number", "description": "The smallest good value"},
            "max": {"type": "number", "description": "The largest good value"},
        }),
    );
    schema["anyOf"] = json!([{"required": ["min"]}, {"required": ["max"]}]);
    schema
}

fn webhook() -> Value {
    let kinds: Vec<&str> = HookKind::names().collect();
    object(
        &["name", "type", "url"],
        &json!({
            "name": text(253, "Unique in a rollout"),
            "type": {"type": "string", "enum": kinds, "description": "When it is called, and the effect of its answer"},
            "url": url("The URL to call"),
            "timeout": reference("RolloutDuration", "How long a call may take, at most 10m; 10s if absent"),
            "retries": integer(0, Some(100), "How often a call that failed is repeated; 0 if absent"),
            "metadata": {
                "type": "object", "maxProperties": 32, "additionalProperties": text(4096, "Any text"),
                "description": "Additional fields of the call",
            },
        }),
    )
}

fn url(help: &str) -> Value {
    let mut schema = text(2048, help);
    schema["pattern"] = json!("^https?://[^/?#@\\s]+([/?#]\\S*)?$");
    schema
}

fn percent() -> Value {
    json!({
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 100},
            {"type": "string", "pattern": "^(100(\\.0{1,2})?|[0-9]{1,2}(\\.[0-9]{1,2})?)%$"},
        ],
        "description": "A share from 0 to 100 percent with at most two decimals: 12.5 or \"12.5%\"",
    })
}

fn duration() -> Value {
    json!({
        "anyOf": [
            {"type": "string", "minLength": 1, "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"},
            {"type": "integer", "minimum": 0, "maximum": 2_592_000},
        ],
        "description": "A time of at most 30 days: 1h30m, 10s or 500ms, or whole seconds",
    })
}
