//! Tests of the table of endpoints against the document that is made of it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::endpoints::{ENDPOINTS, Input, Method};
use crate::openapi::document;

fn json() -> Value {
    serde_json::to_value(document()).unwrap()
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

#[test]
fn the_document_describes_every_endpoint_and_nothing_else() {
    let document = json();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
        })
        .collect();
    let served: BTreeSet<(String, String)> = ENDPOINTS
        .iter()
        .map(|endpoint| (endpoint.path.to_owned(), method_name(endpoint.method).to_owned()))
        .collect();
    assert_eq!(served.len(), ENDPOINTS.len(), "no row is there twice");
    assert_eq!(described, served);
}

#[test]
fn every_row_of_the_contract_is_served() {
    let served: BTreeSet<String> = ENDPOINTS
        .iter()
        .map(|endpoint| format!("{} {}", method_name(endpoint.method), endpoint.path))
        .collect();
    for row in [
        "get /healthz",
        "get /readyz",
        "get /metrics",
        "get /openapi.json",
        "get /v1/groups",
        "get /v1/groups/{group}",
        "put /v1/groups/{group}",
        "delete /v1/groups/{group}",
        "get /v1/groups/{group}/resources",
        "put /v1/groups/{group}/resources",
        "get /v1/groups/{group}/resources/{type}/{name}",
        "put /v1/groups/{group}/resources/{type}/{name}",
        "delete /v1/groups/{group}/resources/{type}/{name}",
        "get /v1/groups/{group}/snapshot",
        "post /v1/apply",
        "get /v1/documents",
        "get /v1/documents/{kind}/{namespace}/{name}",
        "delete /v1/documents/{kind}/{namespace}/{name}",
        "get /v1/conditions",
        "get /v1/nodes",
        "get /v1/nodes/{id}",
        "get /v1/nodes/{id}/snapshot",
        "get /v1/acks",
        "get /v1/status/files",
        "post /v1/reload",
        "post /v1/validate",
        "get /v1/history",
        "get /v1/history/{revision}",
        "post /v1/rollback",
        "get /v1/loads",
        "get /v1/events",
    ] {
        assert!(served.contains(row), "{row}");
    }
}

#[test]
fn the_document_is_whole() {
    let document = json();
    let mut ids = BTreeSet::new();
    for endpoint in ENDPOINTS {
        let operation = &document["paths"][endpoint.path][method_name(endpoint.method)];
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let named = |name: &str| parameters.iter().any(|parameter| parameter["name"] == *name);
        for name in endpoint.path.split('{').skip(1).filter_map(|part| part.split('}').next()) {
            assert!(named(name), "{}: {name}", endpoint.path);
        }
        assert_eq!(endpoint.is_write(), named("dryRun") && named("wait") && named("If-Match"));
        assert_eq!(endpoint.input == Input::None, operation["requestBody"].is_null());
        assert!(operation["responses"]["200"].is_object());
        assert_eq!(endpoint.is_write(), operation["responses"]["424"].is_object(), "{}", endpoint.path);
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
