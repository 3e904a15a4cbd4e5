//! The REST API, as this page calls it.

use std::fmt;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use tower::ServiceExt as _;

/// Calls the API. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rest(pub(crate) Router);

/// Who looks at the page, as the API knows them.
#[derive(Clone)]
pub(crate) struct Visitor {
    host: Option<HeaderValue>,
    /// What a browser says of the page that a form is on.
    site: HeaderMap,
    /// The token that they signed in with.
    pub(crate) authorization: Option<HeaderValue>,
    /// What is known of the connection: its address and its certificate.
    connection: Extensions,
    /// What the connection proves, in words.
    identity: String,
}

/// What the API knows visitors by: those with the same may see the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rights {
    identity: String,
    host: Option<HeaderValue>,
    authorization: Option<HeaderValue>,
}

/// Why the API did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    /// Single faults, each with its place.
    pub(crate) faults: Vec<String>,
}

impl Visitor {
    /// Whoever makes a request with these headers. Of their connection there is what the API needs, and what it proves.
    pub(crate) fn of(
        parts: &Parts,
        authorization: Option<HeaderValue>,
        (connection, identity): (Extensions, String),
    ) -> Self {
        let mut site = HeaderMap::new();
        for name in [ORIGIN, SEC_FETCH_SITE] {
            if let Some(value) = parts.headers.get(&name) {
                site.insert(name, value.clone());
            }
        }
        let host = host(parts).and_then(|host| HeaderValue::try_from(host.as_str()).ok());
        Self { host, site, authorization, connection, identity }
    }

    pub(crate) fn rights(&self) -> Rights {
        let Self { identity, host, authorization, .. } = self;
        Rights { identity: identity.clone(), host: host.clone(), authorization: authorization.clone() }
    }
}

/// The host that a request is for.
pub(crate) fn host(parts: &Parts) -> Option<Authority> {
    // HTTP/2 has it in the address alone.
    let in_header = || parts.headers.get(HOST)?.to_str().ok()?.parse().ok();
    parts.uri.authority().cloned().or_else(in_header)
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Rest {
    /// What the API answers at a path.
    ///
    /// # Errors
    ///
    /// The problem that the API tells.
    pub(crate) async fn get(&self, visitor: &Visitor, path: &str) -> Result<Value, Failure> {
        self.send(visitor, Method::GET, path, None, &[]).await.map(|(answer, _)| answer)
    }

    /// The entity tag of what is at a path; empty if it has none.
    pub(crate) async fn tag(&self, visitor: &Visitor, path: &str) -> Result<String, Failure> {
        self.send(visitor, Method::GET, path, None, &[]).await.map(|(_, tag)| tag.unwrap_or_default())
    }

    /// Asks a question that has a body, and changes nothing: a link on another site may lead to it.
    pub(crate) async fn ask(&self, visitor: &Visitor, path: &str, question: Value) -> Result<Value, Failure> {
        let kind = [(CONTENT_TYPE, "application/json".to_owned())];
        self.send(visitor, Method::POST, path, Some(question), &kind).await.map(|(answer, _)| answer)
    }

    /// Finds out whether the visitor may use the API at all, from the site that their form is on.
    ///
    /// # Errors
    ///
    /// The problem that the API tells.
    pub(crate) async fn check(&self, visitor: &Visitor) -> Result<(), Failure> {
        let site = visitor.site.iter().map(|(name, value)| (name.clone(), shown(value)));
        let site: Vec<_> = site.collect();
        self.send(visitor, Method::GET, "/v1/groups?limit=1", None, &site).await.map(|_| ())
    }

    /// The same, or nothing if there is no such thing (any more).
    pub(crate) async fn find(&self, visitor: &Visitor, path: &str) -> Result<Option<Value>, Failure> {
        match self.get(visitor, path).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&failure.status) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Asks for something that may change something.
    ///
    /// # Errors
    ///
    /// The problem that the API tells.
    pub(crate) async fn call(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(HeaderName, String)],
    ) -> Result<Value, Failure> {
        // A form on another site may not change anything through this page.
        let site = visitor.site.iter().map(|(name, value)| (name.clone(), shown(value)));
        let kind = (CONTENT_TYPE, "application/json".to_owned());
        let headers: Vec<_> = [kind].into_iter().chain(site).chain(headers.iter().cloned()).collect();
        self.send(visitor, method, path, body, &headers).await.map(|(answer, _)| answer)
    }

    async fn send(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(HeaderName, String)],
    ) -> Result<(Value, Option<String>), Failure> {
        let mut request = Request::new(body.map_or_else(Body::empty, |body| Body::from(body.to_string())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| Failure::internal(format!("{path}: {error}")))?;
        *request.extensions_mut() = visitor.connection.clone();
        let sent = request.headers_mut();
        for (name, value) in [(HOST, &visitor.host), (AUTHORIZATION, &visitor.authorization)] {
            if let Some(value) = value {
                sent.insert(name, value.clone());
            }
        }
        for (name, value) in headers {
            let value = HeaderValue::try_from(value);
            sent.insert(name, value.map_err(|error| Failure::internal(error.to_string()))?);
        }
        let response = self.0.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status();
        let tag = response.headers().get(ETAG).map(shown);
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| Failure::internal(format!("the answer of {path}: {error}")))?;
        answer(status, &body.to_bytes()).map(|answer| (answer, tag))
    }
}

fn answer(status: StatusCode, body: &Bytes) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    // Some clients have rejected the change that was made: that is an answer, too.
    if status.is_success() || status == StatusCode::FAILED_DEPENDENCY {
        return Ok(value);
    }
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let detail =
        text(&value["detail"]).or_else(|| text(&value["title"])).unwrap_or_else(|| status.to_string());
    let faults = value["errors"].as_array().into_iter().flatten();
    let faults = faults.map(|fault| {
        let place = fault["pointer"].as_str().unwrap_or_default();
        format!("{place} {}", fault["detail"].as_str().unwrap_or_default()).trim().to_owned()
    });
    Err(Failure { status, detail, faults: faults.collect() })
}

fn shown(value: &HeaderValue) -> String {
    value.to_str().unwrap_or("?").to_owned()
}

impl Failure {
    fn internal(detail: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, detail, faults: vec![] }
    }

    /// Something that the page itself cannot do with what it was given.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: detail.into(), faults: vec![] }
    }

    /// A screen that does not exist.
    pub(crate) fn no_screen() -> Self {
        let detail = "There is no such page.".to_owned();
        Self { status: StatusCode::NOT_FOUND, detail, faults: vec![] }
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The largest answer that is shown.
const MAX_BYTES: usize = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(request: http::request::Builder) -> Option<HeaderValue> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Visitor::of(&parts, None, (Extensions::new(), String::new())).host
    }

    #[test]
    fn the_host_is_in_the_address_with_http_2_and_in_a_header_with_http_1() {
        let of_2 = Request::builder().uri("https://admin.test:18001/ui/sign-in");
        assert_eq!(host(of_2).unwrap(), "admin.test:18001");
        let of_1 = Request::builder().uri("/ui/sign-in").header(HOST, "admin.test");
        assert_eq!(host(of_1).unwrap(), "admin.test");
        assert_eq!(host(Request::builder().uri("/")), None);
    }
}
