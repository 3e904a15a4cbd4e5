//! Requests, freed of their wire form.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::status::Variant;
use xds_cache::{Node, TypeTable, Version, xdstp};

use crate::wants::WILDCARD;

/// `response_nonce` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonce {
    /// Not set: the request answers nothing.
    #[default]
    None,
    /// One that this stream may have sent.
    Ours(u64),
    /// Any other text, such as a nonce of an earlier stream.
    Foreign,
}

impl Nonce {
    /// Reads the field of a request.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.is_empty() {
            return Self::None;
        }
        match u64::from_str_radix(text, 16) {
            Ok(nonce) if Self::text(nonce) == text => Self::Ours(nonce),
            Ok(_) | Err(_) => Self::Foreign,
        }
    }

    /// How a response carries the nonce.
    #[must_use]
    pub fn text(nonce: u64) -> String {
        format!("{nonce:x}")
    }
}

/// A `DiscoveryRequest`.
#[derive(Clone, Debug, Default)]
pub struct SotwRequest {
    /// The client's identity; required in the first request of a stream, ignored later (row A15).
    pub node: Option<Arc<Node>>,
    /// Empty means the type of the service, on a per-type stream.
    pub type_url: String,
    /// The version that the client applied last.
    pub version_info: String,
    /// All names that the client wants, also those of its resource locators.
    pub resource_names: Vec<String>,
    /// The response that this answers.
    pub response_nonce: Nonce,
    /// The message of `error_detail`, if that is present: then the request is a NACK, whatever else it says (R5).
    pub error_detail: Option<String>,
}

/// A `DeltaDiscoveryRequest`.
#[derive(Clone, Debug, Default)]
pub struct DeltaRequest {
    /// The client's identity; required in the first request of a stream, ignored later (row A15).
    pub node: Option<Arc<Node>>,
    /// Empty means the type of the service, on a per-type stream.
    pub type_url: String,
    /// Names to add, also those of resource locators.
    pub resource_names_subscribe: Vec<String>,
    /// Names to take away.
    pub resource_names_unsubscribe: Vec<String>,
    /// Versions that the client holds from an earlier stream; they count only in the first request of a type (row A92).
    pub initial_resource_versions: BTreeMap<String, String>,
    /// The response that this answers.
    pub response_nonce: Nonce,
    /// The message of `error_detail`, if that is present: then the request is a NACK (R5).
    pub error_detail: Option<String>,
}

/// A request of either variant.
#[derive(Clone, Debug)]
pub enum Request {
    /// State of the World.
    Sotw(SotwRequest),
    /// Incremental.
    Delta(DeltaRequest),
}

impl Request {
    /// The type asked for; empty means the type of the service.
    #[must_use]
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// How many names are in it.
    #[must_use]
    pub fn n_names(&self) -> usize {
        match self {
            Self::Sotw(request) => request.resource_names.len(),
            Self::Delta(request) => {
                request.resource_names_subscribe.len()
                    + request.resource_names_unsubscribe.len()
                    + request.initial_resource_versions.len()
            }
        }
    }

    /// Returns `true` if it concerns more than the names in it: SotW lists are compared with what was asked for before, and a wildcard or a
    /// glob stands for all that it covers.
    pub(crate) fn is_wide(&self) -> bool {
        match self {
            Self::Sotw(_) => true,
            Self::Delta(request) => {
                let names =
                    request.resource_names_subscribe.iter().chain(&request.resource_names_unsubscribe);
                names.into_iter().any(|name| name == WILDCARD || xdstp::is_glob(&xdstp::canonical(name)))
            }
        }
    }

    /// Returns `true` if it is of that variant of the protocol.
    pub(crate) fn is_of(&self, variant: Variant) -> bool {
        match self {
            Self::Sotw(_) => variant == Variant::Sotw,
            Self::Delta(_) => variant == Variant::Delta,
        }
    }

    /// Returns `true` if it may show versions that a client has from another stream, or another server.
    #[must_use]
    pub fn may_claim(&self) -> bool {
        self.shows_configuration() && !self.is_answer()
    }

    /// Returns `true` if `tables` have every version that the client shows: those of a type that are or were served. Versions that no server of
    /// this program gives are left out.
    #[must_use]
    pub fn is_known(&self, tables: &[Arc<TypeTable>]) -> bool {
        match self {
            Self::Sotw(request) => {
                let shown: Option<Version> = request.version_info.parse().ok();
                shown.is_none_or(|shown| tables.iter().any(|table| table.version() == shown))
            }
            Self::Delta(request) => request.initial_resource_versions.iter().all(|(name, version)| {
                let Ok(shown) = version.parse::<Version>() else { return true };
                let name = xdstp::canonical(name);
                let mut found = tables.iter().filter_map(|table| table.resolve(&name));
                found.any(|resource| resource.version() == shown)
            }),
        }
    }

    /// Returns `true` if it answers a response.
    pub(crate) fn is_answer(&self) -> bool {
        let nonce = match self {
            Self::Sotw(request) => request.response_nonce,
            Self::Delta(request) => request.response_nonce,
        };
        matches!(nonce, Nonce::Ours(_))
    }

    /// Returns `true` if the client tells that it holds configuration, from whichever server.
    pub(crate) fn shows_configuration(&self) -> bool {
        match self {
            Self::Sotw(request) => !request.version_info.is_empty(),
            Self::Delta(request) => !request.initial_resource_versions.is_empty(),
        }
    }

    /// The client's identity, if the request carries it.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }
}

impl From<SotwRequest> for Request {
    fn from(request: SotwRequest) -> Self {
        Self::Sotw(request)
    }
}

impl From<DeltaRequest> for Request {
    fn from(request: DeltaRequest) -> Self {
        Self::Delta(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_reads_back_and_foreign_ones_are_told_apart() {
        assert_eq!(Nonce::parse(&Nonce::text(0xabc)), Nonce::Ours(0xabc));
        assert_eq!(Nonce::parse(""), Nonce::None);
        for foreign in ["zombie", "0abc", "ABC", "+1", "10000000000000000"] {
            assert_eq!(Nonce::parse(foreign), Nonce::Foreign, "{foreign}");
        }
    }
}
