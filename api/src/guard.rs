//! The guard of the admin port: it decides which requests are let in (D9).
//!
//! A page of another site must not reach this port through a browser. So a foreign `Origin` is refused, and so is a `Host` that is no
//! name of this server, which is the sign of DNS rebinding. An IP address cannot be rebound, so it always counts as a name of this
//! server.

mod stream;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, MutexGuard, PoisonError};
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tokio::time::Instant;
use xds_access::Role;
use xds_cache::Proofs;
use xds_cache::identity::shown;

use crate::access::{Access, Limits, SignIn, VerifiedClient};
use crate::caller::{Caller, Connection};
use crate::endpoints::{ENDPOINTS, Endpoint, Method, Needs, Reach};
use crate::problem::ApiError;
use crate::reach::check_scope;
use crate::record::Record;

/// Refuses requests that may not be made. Those that may get their [`Caller`].
pub(crate) async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let segments = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let mut request = Request::from_parts(parts, body);
    let row = row_of(&request);
    let record = Record::new(&access.trail, &access.counts, &request, verb_of(row, request.uri().path()));
    let is_write = row.is_some_and(Endpoint::changes);
    let event = event_of(&request, is_write);
    let needs = row.map_or_else(|| needs_of_other(&request), |row| row.needs);
    let (caller, allowed) = match access.recognise(&request, needs) {
        Ok(caller) => {
            let allowed = access.allow(&caller, needs, segments.as_ref(), is_write);
            (Some(caller), allowed)
        }
        Err(error) => (None, Err(error)),
    };
    if let Err(error) = allowed {
        record.refused(&error, caller.as_ref());
        return if is_grpc(request.headers()) { grpc_refusal(&error) } else { error.into_response() };
    }
    let caller = caller.unwrap_or_default();
    request.extensions_mut().insert(caller.clone());
    let credential = Credential::of(&request);
    let response = next.run(request).await;
    record.done(&caller, event, response.status());
    match needs {
        Needs::Nothing => response,
        Needs::Role(..) => {
            let identify = move |access: &Access| access.caller_with(&credential, SystemTime::now());
            stream::end_with_rights(response, access, identify, caller)
        }
    }
}

/// Everything by which a request says who asks. It stays with an answer that goes on.
pub(crate) struct Credential {
    bearer: Option<String>,
    proofs: Proofs,
    /// True if it came with a certificate that was verified.
    is_verified: bool,
}

impl Credential {
    fn of(request: &Request) -> Self {
        let from = request.extensions().get::<Connection>();
        Self {
            bearer: bearer(request.headers()).map(str::to_owned),
            proofs: from.map(|from| Arc::clone(&from.proofs)).unwrap_or_default(),
            is_verified: request.extensions().get::<VerifiedClient>().is_some(),
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

/// An error as gRPC clients, which are served client status here, can read it: a response that is nothing but trailers.
fn grpc_refusal(error: &ApiError) -> Response {
    let status = match error.status() {
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        _ => PERMISSION_DENIED,
    };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert("grpc-status", HeaderValue::from_static(status));
    // A text that no header can hold is left out; the code says enough.
    if let Ok(message) = HeaderValue::try_from(error.to_string()) {
        headers.insert("grpc-message", message);
    }
    response
}

const GRPC: &str = "application/grpc";
/// `google.rpc.Code`.
const UNAUTHENTICATED: &str = "16";
const PERMISSION_DENIED: &str = "7";
const RESOURCE_EXHAUSTED: &str = "8";

impl Access {
    /// Finds out who asks, if the endpoint needs to know.
    fn recognise(&self, request: &Request, needs: Needs) -> Result<Caller, ApiError> {
        self.check_site(request.uri(), request.headers())?;
        match needs {
            Needs::Nothing => Ok(self.identify(request).unwrap_or_else(|_| Caller::nobody())),
            Needs::Role(..) => self.identify(request),
        }
    }

    /// Refuses what the caller may not do.
    fn allow(
        &self,
        caller: &Caller,
        needs: Needs,
        segments: Option<&RawPathParams>,
        is_write: bool,
    ) -> Result<(), ApiError> {
        let Needs::Role(role, reach) = needs else { return Ok(()) };
        if let Some(identified) = &caller.identified {
            let principal = &identified.principal;
            if principal.role < role {
                let (name, has) = (Arc::clone(&principal.name), principal.role);
                return Err(ApiError::Role { name, has, needs: role });
            }
            if !principal.scope.is_all() {
                let segment = |name: &str| {
                    let found = segments?.iter().find(|(key, _)| *key == name);
                    found.map(|(_, value)| value.to_owned())
                };
                check_scope(&principal.scope, reach, &segment, is_write)?;
            }
            if let Some(per_minute) = principal.writes_per_minute.filter(|_| is_write) {
                let taken = self.limits().writes.take(&principal.name, per_minute, Instant::now().into_std());
                taken.map_err(|wait| ApiError::TooManyWrites(Arc::clone(&principal.name), wait))?;
            }
        }
        match self.trail.stops_writes().filter(|_| is_write) {
            Some(problem) => Err(ApiError::NotAudited(problem)),
            None => Ok(()),
        }
    }

    /// Refuses requests that a browser makes for a page of another site.
    fn check_site(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = host(uri, headers);
        if let Some(host) = &host
            && !self.is_own(host)
        {
            return Err(ApiError::ForeignHost(host.clone()));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().unwrap_or("?");
            if !self.is_same_site(origin, host.as_deref()) {
                return Err(ApiError::ForeignOrigin(origin.to_owned()));
            }
        }
        match headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or("?")) {
            None | Some("same-origin" | "none") => Ok(()),
            Some(site) => Err(ApiError::CrossSite(shown(site))),
        }
    }

    /// Finds out who asks.
    fn identify(&self, request: &Request) -> Result<Caller, ApiError> {
        let credential = Credential::of(request);
        let address = request.extensions().get::<Connection>().and_then(|from| from.address);
        let caller = self.caller_with(&credential, SystemTime::now());
        if caller.is_err() && request.headers().contains_key(AUTHORIZATION) {
            // Whoever has a good credential is never locked out by what others send from the same address: only failures wait.
            let now = Instant::now().into_std();
            let mut limits = self.limits();
            if let Some(wait) = limits.failures.wait(address, now) {
                return Err(ApiError::TooManyFailures(wait));
            }
            limits.failures.record(address, now);
        }
        caller
    }

    /// The caller who has a credential, by the policy as it is now.
    fn caller_with(&self, credential: &Credential, now: SystemTime) -> Result<Caller, ApiError> {
        let Credential { bearer, proofs, is_verified } = credential;
        let bearer = bearer.as_deref();
        let policy = Arc::clone(&self.policy.borrow());
        let token = self.token.borrow().clone();
        let is_admin = token.as_ref().is_some_and(|token| token.is(bearer.unwrap_or_default()));
        if policy.principals().is_empty() {
            let is_open = token.is_none() && !self.accepts_certificates;
            let is_denied = proofs.iter().any(|proof| policy.is_denied(proof));
            return match is_open || is_admin || (self.accepts_certificates && *is_verified && !is_denied) {
                true => Ok(Caller::default()),
                false => Err(ApiError::Unauthorized),
            };
        }
        let identified = match token.filter(|_| is_admin) {
            // The same rules hold for the token of the file.
            Some(token) => policy.with_token(token.secret()).identify(proofs, bearer, now),
            None => policy.identify(proofs, bearer, now),
        };
        identified.map(Caller::of).map_err(ApiError::from)
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if a `Host` is a name of this server.
    fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
        let is_named =
            |allowed: &String| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host);
        is_local || self.allowed_hosts.iter().any(is_named)
    }

    /// Returns `true` if a page of this origin belongs to this server: it has the same host, or one that is allowed by name.
    fn is_same_site(&self, origin: &str, host: Option<&str>) -> bool {
        let Some((_, site)) = origin.split_once("://") else { return false };
        let name = site.rsplit_once(':').map_or(site, |(name, _)| name);
        let is_named =
            |allowed: &String| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(site);
        host.is_some_and(|host| host.eq_ignore_ascii_case(site)) || self.allowed_hosts.iter().any(is_named)
    }
}

/// The row of the table that a request is for.
fn row_of(request: &Request) -> Option<&'static Endpoint> {
    static ROWS: LazyLock<HashMap<(Method, &str), &Endpoint>> =
        LazyLock::new(|| ENDPOINTS.iter().map(|row| ((row.method, row.path), row)).collect());
    let path = request.extensions().get::<MatchedPath>()?;
    ROWS.get(&(Method::of(request.method())?, path.as_str())).copied()
}

/// The verb at the end of a path, if the endpoint has it. Others are not named: their number has no bound.
fn verb_of(row: Option<&Endpoint>, path: &str) -> Option<&'static str> {
    let (_, written) = path.rsplit_once(':')?;
    row?.verbs.iter().map(|verb| verb.0).find(|verb| *verb == written)
}

/// Returns `true` for xDS over HTTP, which gives everything away that a client is served: keys stand in secrets, and inline in listeners
/// and clusters.
fn gives_keys(path: &str) -> bool {
    path.starts_with("/v3/discovery:") && path != "/v3/discovery:client_status"
}

/// The event of the audit log that a request is; `None` for reads that leave no line.
fn event_of(request: &Request, is_write: bool) -> Option<&'static str> {
    match is_write {
        true => Some("api.write"),
        false if gives_keys(request.uri().path()) => Some("secret.read"),
        false => request.extensions().get::<SignIn>().map(|_| "page.sign-in"),
    }
}

/// The needs of a request that no row of the table is for.
fn needs_of_other(request: &Request) -> Needs {
    match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some(path) if gives_keys(path) => Needs::Role(Role::Admin, Reach::Everything),
        // Another method of a path, which is refused later.
        Some(path) if ENDPOINTS.iter().any(|row| row.path == path) => {
            Needs::Role(Role::Viewer, Reach::Nothing)
        }
        // The status of clients, and reflection.
        Some(_) => Needs::Role(Role::Viewer, Reach::Everything),
        // There is no such path.
        None => Needs::Role(Role::Viewer, Reach::Nothing),
    }
}

/// The host that the request is for: of the request line or HTTP/2's `:authority`, else the header.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let of_uri = uri.authority().map(ToString::to_string);
    of_uri.or_else(|| headers.get(HOST).map(|host| host.to_str().unwrap_or("?").to_owned()))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Token;

    const NEEDS: Needs = Needs::Role(Role::Viewer, Reach::Nothing);

    fn check(access: &Access, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::get("/v1/groups");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access
            .recognise(&request.body(Body::empty()).unwrap(), NEEDS)
            .map_or_else(|e| e.status().as_u16(), |_| 200)
    }

    #[test]
    fn only_names_of_this_server_are_served() {
        let access = Access { allowed_hosts: vec!["xds.example".to_owned()], ..Access::default() };
        for (host, status) in [
            ("localhost:18001", 200),
            ("LOCALHOST", 200),
            ("127.0.0.1:1", 200),
            ("[::1]:1", 200),
            ("10.1.2.3", 200),
            ("xds.example:80", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example", 421),
            ("a b", 421),
        ] {
            assert_eq!(check(&access, &[("host", host)]), status, "{host}");
        }
        assert_eq!(check(&access, &[]), 200, "HTTP/1.0 has no Host");
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let access = Access { allowed_hosts: vec!["xds.example".to_owned()], ..Access::default() };
        for (origin, status) in [
            ("http://localhost:18001", 200),
            ("https://xds.example", 200),
            ("https://xds.example:8443", 200),
            ("http://localhost:3000", 403),
            ("https://evil.example", 403),
            ("null", 403),
        ] {
            assert_eq!(
                check(&access, &[("host", "localhost:18001"), ("origin", origin)]),
                status,
                "{origin}"
            );
        }
    }

    #[test]
    fn a_token_must_be_exact() {
        let access = Access { token: Token::new(" secret\n").unwrap().fixed(), ..Access::default() };
        for (offered, status) in [
            ("Bearer secret", 200),
            ("bearer secret", 200),
            ("Bearer secre", 401),
            ("Bearer secrets", 401),
            ("Basic secret", 401),
            ("secret", 401),
        ] {
            assert_eq!(check(&access, &[("authorization", offered)]), status, "{offered}");
        }
        assert_eq!(check(&access, &[]), 401);
        assert!(Token::new(" ").is_err() && Token::new("a b").is_err());
        assert_eq!(format!("{access:?}").matches("secret").count(), 0);
    }

    #[test]
    fn a_certificate_counts_where_it_is_accepted() {
        let status = |access: &Access, is_verified: bool| {
            let mut request = Request::get("/v1/groups").body(Body::empty()).unwrap();
            if is_verified {
                request.extensions_mut().insert(VerifiedClient);
            }
            access.recognise(&request, NEEDS).map_or_else(|error| error.status().as_u16(), |_| 200)
        };
        let token = Token::new("secret").unwrap().fixed();
        let only_token = Access { token: token.clone(), ..Access::default() };
        let only_certificates = Access { accepts_certificates: true, ..Access::default() };
        let both = Access { token, accepts_certificates: true, ..Access::default() };
        assert_eq!((status(&only_token, true), status(&only_token, false)), (401, 401));
        assert_eq!((status(&only_certificates, true), status(&only_certificates, false)), (200, 401));
        assert_eq!((status(&both, true), status(&both, false)), (200, 401));
        assert_eq!(check(&both, &[("authorization", "Bearer secret")]), 200);
    }
}
