//! The guard of the admin port: it decides which requests are let in (D9).
//!
//! A page of another site must not reach this port through a browser. So a foreign `Origin` is refused, and so is a `Host` that is no
//! name of this server, which is the sign of DNS rebinding. An IP address cannot be rebound, so it always counts as a name of this
//! server.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

use crate::problem::ApiError;

/// The clients that may use the admin API.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The bearer token that every request but health and readiness must carry.
    pub token: Option<Token>,
    /// True if a [`VerifiedClient`] needs no token. If there is neither this nor a token, everybody may ask.
    pub accepts_certificates: bool,
    /// Names of this server besides `localhost` and IP addresses: `xds.example.com`, or with a port, `xds.example.com:8443`.
    pub allowed_hosts: Vec<String>,
}

/// An extension of requests whose client showed a certificate that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedClient;

/// A secret token. Never printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Takes a token; surrounding white space is left out.
    ///
    /// # Errors
    ///
    /// [`InvalidToken`] if it is empty or has a character that a header cannot carry.
    pub fn new(token: &str) -> Result<Self, InvalidToken> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken);
        }
        Ok(Self(token.into()))
    }

    /// Compares in a time that depends on the length alone.
    fn is(&self, offered: &str) -> bool {
        let (own, offered) = (self.0.as_bytes(), offered.as_bytes());
        let difference = own.iter().zip(offered).fold(0, |difference, (a, b)| difference | (a ^ b));
        own.len() == offered.len() && difference == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A text that cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token consists of visible ASCII characters, at least one")]
pub struct InvalidToken;

/// Refuses requests that may not be made.
pub(crate) async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) if is_grpc(request.headers()) => grpc_refusal(&error),
        Err(error) => error.into_response(),
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

/// An error as gRPC clients, which are served client status here, can read it: a response that is nothing but trailers.
fn grpc_refusal(error: &ApiError) -> Response {
    let status = if matches!(error, ApiError::Unauthorized) { UNAUTHENTICATED } else { PERMISSION_DENIED };
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

impl Access {
    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let host = host(request.uri(), request.headers());
        if let Some(host) = &host
            && !self.is_own(host)
        {
            return Err(ApiError::ForeignHost(host.clone()));
        }
        if let Some(origin) = request.headers().get(ORIGIN) {
            let origin = origin.to_str().unwrap_or("?");
            if !self.is_same_site(origin, host.as_deref()) {
                return Err(ApiError::ForeignOrigin(origin.to_owned()));
            }
        }
        let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
        let is_open = self.token.is_none() && !self.accepts_certificates;
        let is_verified = self.accepts_certificates && request.extensions().get::<VerifiedClient>().is_some();
        if is_probe || is_open || is_verified || self.knows(bearer(request.headers())) {
            Ok(())
        } else {
            Err(ApiError::Unauthorized)
        }
    }

    fn knows(&self, offered: Option<&str>) -> bool {
        self.token.as_ref().zip(offered).is_some_and(|(token, offered)| token.is(offered))
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

    fn check(access: &Access, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::get("/v1/groups");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access.check(&request.body(Body::empty()).unwrap()).map_or_else(|e| e.status().as_u16(), |()| 200)
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
        let access = Access { token: Some(Token::new(" secret\n").unwrap()), ..Access::default() };
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
            access.check(&request).map_or_else(|error| error.status().as_u16(), |()| 200)
        };
        let token = Some(Token::new("secret").unwrap());
        let only_token = Access { token: token.clone(), ..Access::default() };
        let only_certificates = Access { accepts_certificates: true, ..Access::default() };
        let both = Access { token, accepts_certificates: true, ..Access::default() };
        assert_eq!((status(&only_token, true), status(&only_token, false)), (401, 401));
        assert_eq!((status(&only_certificates, true), status(&only_certificates, false)), (200, 401));
        assert_eq!((status(&both, true), status(&both, false)), (200, 401));
        assert_eq!(check(&both, &[("authorization", "Bearer secret")]), 200);
    }
}
