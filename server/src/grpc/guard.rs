//! The guard of the xDS port: it refuses browsers, and clients whom the gate does not let in.
//!
//! A page of another site must not reach this port through a browser of someone who can: REST polling would give it
//! configuration, keys included. Two rules keep it out.
//!
//! * A request with `Origin` or `Sec-Fetch-Site` is refused: browsers send them, with every POST at least, and clients
//!   do not.
//! * The `Host` of a request must be `localhost`, an IP address, a name without a dot, or one that `--xds-host` gives. A
//!   page that has its own name resolve to this server (DNS rebinding) is of the same origin, and is told apart by that
//!   name alone. The names of Envoys' own clusters, which an Envoy that polls sends as `Host`, have no dot, unless
//!   somebody chose one; and no site of the Internet has a name without.
//!
//! gRPC over HTTP/2 may have any host: browsers speak HTTP/2 in plaintext to nobody, and no page can set the content type
//! of gRPC without asking first (CORS), which nobody answers here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use xds_cache::Reason;

use crate::grpc::Grpc;
use crate::grpc::call::is_grpc;
use crate::grpc::gate::{Admitted, GateRefusal};
use crate::listen::{Peer, Untaken};

/// Why a request is refused before anything is read of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    /// A browser sent it.
    #[error(
        "requests from web pages are refused, and this one has the header {header:?}: only xDS clients are served here"
    )]
    Browser { header: &'static str },
    /// The gate does not let the client in.
    #[error(transparent)]
    Gate(#[from] GateRefusal),
    /// It is meant for another host.
    #[error(
        "this server does not answer to the host name {host:?} on the xDS port; use an IP address, localhost or a name without a \
         dot, or start it with --xds-host and that name"
    )]
    Host { host: String },
}

/// Refuses requests that a browser could have been made to send. Of every answer it is known whether the client takes it.
pub(crate) async fn guard(State(grpc): State<Arc<Grpc>>, request: Request, next: Next) -> Response {
    let peer = Peer::of(request.extensions());
    let answer = answer(grpc, &peer, request, next).await;
    answer.map(|body| Body::new(Untaken::new(body, peer)))
}

async fn answer(grpc: Arc<Grpc>, peer: &Peer, mut request: Request, next: Next) -> Response {
    let refusal = match check(&request, &grpc.config.hosts) {
        Ok(()) if request.uri().path().starts_with(HEALTH) => return next.run(request).await,
        Ok(()) => match grpc.gate.admit(peer, request.headers(), SystemTime::now()) {
            Ok(Admitted { caller, waived }) => {
                if let Some(refusal) = waived {
                    grpc.clients.waive_refusal(peer, &refusal);
                }
                request.extensions_mut().insert(caller);
                return next.run(request).await;
            }
            Err(refusal) => Refusal::from(refusal),
        },
        Err(refusal) => refusal,
    };
    let (status, reason) = match &refusal {
        Refusal::Gate(refusal) => (StatusCode::UNAUTHORIZED, refusal.reason()),
        Refusal::Browser { .. } => (StatusCode::FORBIDDEN, Reason::Browser),
        Refusal::Host { .. } => (StatusCode::MISDIRECTED_REQUEST, Reason::Host),
    };
    grpc.refuse(reason, peer, &refusal);
    if let Refusal::Gate(refusal) = &refusal {
        grpc.clients.record_refusal(peer, refusal);
    }
    if is_grpc(request.headers()) {
        let code = match refusal {
            Refusal::Gate(_) => tonic::Code::Unauthenticated,
            Refusal::Browser { .. } | Refusal::Host { .. } => tonic::Code::PermissionDenied,
        };
        return tonic::Status::new(code, refusal.to_string()).into_http::<Body>();
    }
    (status, format!("{refusal}\n")).into_response()
}

fn check<B>(request: &http::Request<B>, hosts: &[String]) -> Result<(), Refusal> {
    let headers = request.headers();
    for header in [ORIGIN.as_str(), SEC_FETCH_SITE] {
        if headers.contains_key(header) {
            return Err(Refusal::Browser { header });
        }
    }
    if request.version() == Version::HTTP_2 && is_grpc(headers) {
        return Ok(());
    }
    match host(request.uri(), headers) {
        Some(host) if !is_own(host, hosts) => {
            Err(Refusal::Host { host: host[..host.floor_char_boundary(MAX_SHOWN)].to_owned() })
        }
        // HTTP/1.0 has none, and no browser speaks it.
        Some(_) | None => Ok(()),
    }
}

/// The host that the request is for: of the request line or HTTP/2's `:authority`, else the header.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let of_uri = uri.authority().map(Authority::as_str);
    of_uri.or_else(|| headers.get(HOST).map(|host| host.to_str().unwrap_or("?.?")))
}

/// Returns `true` if a `Host` is a name of this server. It may be the name of an Envoy's cluster, and so anything without a dot.
fn is_own(host: &str, hosts: &[String]) -> bool {
    let is_listed = |name: &str| hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if !host.contains('.') && !host.contains('[') || is_listed(host) {
        return true;
    }
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    !name.contains('.') && !name.contains('[') || name.parse::<IpAddr>().is_ok() || is_listed(name)
}

/// Whoever asks for the health needs no credential.
const HEALTH: &str = "/grpc.health.v1.Health/";
const SEC_FETCH_SITE: &str = "sec-fetch-site";
/// How much of a host is shown.
const MAX_SHOWN: usize = 128;

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(version: Version, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::post("/v3/discovery:secrets").version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let hosts = ["xds.example".to_owned(), "other.example:18000".to_owned()];
        match check(&request.body(()).unwrap(), &hosts) {
            Ok(()) => 200,
            Err(Refusal::Browser { .. }) => 403,
            Err(Refusal::Host { .. }) => 421,
            Err(Refusal::Gate(_)) => 401,
        }
    }

    #[test]
    fn only_names_of_this_server_and_of_clusters_are_served() {
        for (host, expected) in [
            ("localhost:18000", 200),
            ("127.0.0.1:1", 200),
            ("[::1]:1", 200),
            ("10.1.2.3", 200),
            ("xds_cluster", 200),
            ("outbound|18000||xds", 200),
            ("xds.example", 200),
            ("XDS.example:80", 200),
            ("other.example:18000", 200),
            ("other.example:80", 421),
            ("evil.example", 421),
            ("evil.example:18000", 421),
            ("evil.", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example", 421),
            ("user@evil.example", 421),
            ("a.b c", 421),
            ("[::1", 421),
        ] {
            assert_eq!(status(Version::HTTP_11, &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(Version::HTTP_10, &[]), 200);
    }

    #[test]
    fn whatever_a_browser_sends_is_refused() {
        for headers in [
            [("host", "localhost"), ("origin", "https://evil.example")],
            [("host", "localhost:18000"), ("origin", "http://localhost:18000")],
            [("host", "localhost"), ("origin", "null")],
            [("host", "localhost"), ("sec-fetch-site", "none")],
            [("content-type", "application/grpc"), ("origin", "https://evil.example")],
        ] {
            assert_eq!(status(Version::HTTP_11, &headers), 403, "{headers:?}");
            assert_eq!(status(Version::HTTP_2, &headers), 403, "{headers:?}");
        }
    }

    #[test]
    fn grpc_has_any_host_over_http_2_alone() {
        let headers = [("host", "xds.prod.example.com"), ("content-type", "application/grpc")];
        assert_eq!(status(Version::HTTP_2, &headers), 200);
        assert_eq!(status(Version::HTTP_11, &headers), 421);
        assert_eq!(status(Version::HTTP_2, &headers[..1]), 421);
    }
}
