//! The kinds of streams and of requests.

use xds_cache::ResourceType;
use xds_cache::status::Variant;
use xds_session::{Nonce, Request};

use crate::metrics::RequestKind;

/// The kind of a stream, as its path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamKind {
    pub(crate) variant: Variant,
    /// The type of a per-type stream; `None` for ADS.
    pub(crate) service: Option<ResourceType>,
}

/// The kind of a request, for metrics and the log.
pub(crate) fn request_kind(request: &Request) -> RequestKind {
    let (nonce, error_detail) = match request {
        Request::Sotw(request) => (request.response_nonce, &request.error_detail),
        Request::Delta(request) => (request.response_nonce, &request.error_detail),
    };
    match (error_detail, nonce) {
        (Some(_), _) => RequestKind::Nack,
        (None, Nonce::None) => RequestKind::Subscribe,
        (None, Nonce::Ours(_) | Nonce::Foreign) => RequestKind::Ack,
    }
}
