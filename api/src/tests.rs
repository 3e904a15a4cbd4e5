//! Tests of the OpenAPI document that is made from the table of endpoints. `xds-server` tests that the router serves the same.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::endpoints::{ENDPOINTS, Endpoint, Input, Method};
use crate::openapi::document;

fn json() -> Value {
    serde_json::to_value(document(ENDPOINTS)).unwrap()
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Put => "put",
        Method::Post => "post",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}

/// The paths of the document that a row makes: one, or one for each verb.
fn paths(endpoint: &Endpoint) -> Vec<String> {
    match endpoint.verbs {
        [] => vec![endpoint.path.to_owned()],
        verbs => verbs.iter().map(|verb| format!("{}:{}", endpoint.path, verb.0)).collect(),
    }
}

#[test]
fn every_verb_is_a_path_with_its_own_body() {
    let document = json();
    let of = |path: &str| document["paths"][path]["post"].clone();
    assert!(document["paths"]["/v1/rollouts/{rollout}"]["post"].is_null());
    for verb in ["pause", "resume", "promote", "abort", "retry"] {
        let operation = of(&format!("/v1/rollouts/{{rollout}}:{verb}"));
        assert_eq!(operation["requestBody"].is_object(), verb == "promote", "{operation:#}");
    }
    let promote = of("/v1/rollouts/{rollout}:promote");
    assert_eq!(promote["requestBody"]["required"], false);
    assert_eq!(promote["operationId"], "postRolloutsByRolloutPromote");
    for verb in ["pause", "resume", "promote", "abort"] {
        assert!(of(&format!("/v1/waves/{{deployment}}:{verb}")).is_object());
    }
}

#[test]
fn every_kind_of_event_is_an_object_that_is_known_by_its_name() {
    let document = json();
    let schema = &document["components"]["schemas"]["ServerEvent"];
    assert_eq!(schema["discriminator"]["propertyName"], "event");
    let kinds = schema["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(schema["oneOf"].as_array().unwrap().len(), kinds.len());
    for (name, reference) in kinds {
        let event = document.pointer(reference.as_str().unwrap().trim_start_matches('#')).unwrap();
        assert_eq!(event["properties"]["event"]["enum"], serde_json::json!([name]));
        let data = event["properties"]["data"]["$ref"].as_str().unwrap();
        assert!(document.pointer(data.trim_start_matches('#')).is_some_and(Value::is_object), "{data}");
    }
}

#[test]
fn the_document_is_whole() {
    let document = json();
    let mut ids = BTreeSet::new();
    for (endpoint, path) in
        ENDPOINTS.iter().flat_map(|row| paths(row).into_iter().map(move |path| (row, path)))
    {
        let operation = &document["paths"][&*path][method_name(endpoint.method)];
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let named = |name: &str| parameters.iter().any(|parameter| parameter["name"] == *name);
        for name in endpoint.path.split('{').skip(1).filter_map(|part| part.split('}').next()) {
            assert!(named(name), "{}: {name}", endpoint.path);
        }
        assert_eq!(endpoint.is_write(), named("dryRun") && named("wait") && named("If-Match"));
        if endpoint.verbs.is_empty() {
            assert_eq!(endpoint.input == Input::None, operation["requestBody"].is_null());
        }
        assert!(operation["responses"]["200"].is_object());
        for status in ["202", "424"] {
            let is_told = operation["responses"][status].is_object();
            let is_begun = status == "202" && endpoint.input == Input::Rollout;
            assert_eq!(endpoint.waits() || is_begun, is_told, "{}: {status}", endpoint.path);
        }
    }
    let mut references = BTreeSet::new();
    find_references(&document, &mut references);
    for reference in references {
        let schema = document.pointer(reference.trim_start_matches('#'));
        assert!(schema.is_some_and(Value::is_object), "{reference} leads nowhere");
    }
}

fn find_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| find_references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| find_references(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
