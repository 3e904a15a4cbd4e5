//! The table of endpoints, sent through the router: it serves exactly the described endpoints.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::Service as _;

use super::rest::Rest;
use super::*;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// The status, and if it is an error, what kind of one. The body of anything else may never end.
async fn send(rest: &Rest, method: &str, path: &str) -> (u16, Option<String>) {
    let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
    let request = request.header("content-type", "application/json").body(Body::from("{}")).unwrap();
    let response = rest.router.clone().call(request).await.unwrap();
    let status = response.status();
    if status.is_success() {
        return (status.as_u16(), None);
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status.as_u16(), Some(String::from_utf8(body.to_vec()).unwrap()))
}

/// A path that a template stands for.
pub(super) fn filled(template: &str) -> String {
    let values = [("{group}", "default"), ("{type}", "clusters"), ("{kind}", "HTTPRoute")];
    let path = values.iter().fold(template.to_owned(), |path, (name, value)| path.replace(name, value));
    let parts = path.split('{').enumerate().map(|(index, part)| match part.split_once('}') {
        Some((_, rest)) if index > 0 => format!("1{rest}"),
        Some(_) | None => part.to_owned(),
    });
    parts.collect()
}

#[tokio::test]
async fn every_row_is_served_by_its_method_and_by_no_other() {
    let server = Server::without_files(&MemoryStore::new());
    let rest = Rest::new(server);
    let document = rest.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 30, "{}", paths.len());
    for (template, operations) in paths {
        let path = filled(template);
        let has_verbs = paths.keys().any(|other| other.starts_with(&format!("{template}:")));
        for method in METHODS {
            let (status, error) = send(&rest, method, &path).await;
            let is_of_verbs = template.contains(':') || (has_verbs && method == "post");
            let is_kind = |kind: &str| error.as_deref().is_some_and(|error| error.contains(kind));
            let is_unknown = is_kind("no-such-path") || is_kind("no-such-method");
            if operations.get(method).is_some_and(Value::is_object) {
                assert!(!is_unknown, "{method} {template}: {status} {error:?}");
            } else if !is_of_verbs {
                assert!(
                    status == 405 && is_kind("no-such-method"),
                    "{method} {template}: {status} {error:?}"
                );
            }
        }
    }
}
