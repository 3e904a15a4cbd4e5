//! All documents together: plans, resources, conditions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use xds_cache::GroupName;
pub use xds_cache::layer::{Generated, GeneratedGroup};
use xds_codec::{Codec, Diagnostic};

use crate::conditions::Conditions;
use crate::model::{Document, DocumentKey};

/// All documents by key: of the files and the API, one for each key.
pub type Documents = BTreeMap<DocumentKey, Placed>;

/// A document and the node group that its place gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The document.
    pub document: Arc<Document>,
    /// The group of its directory, or that of the API call. A gateway and what is attached to it belongs to the gateway's
    /// group; a route of the mesh and a split to their own.
    pub group: GroupName,
    /// How often its content has changed, from 1.
    pub generation: u64,
}

/// How documents are translated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Only Gateways of a class with this `controllerName` are ours; `None` takes all.
    pub controller_name: Option<String>,
    /// The port of the implicit gateway, to which routes attach if there is no Gateway at all; `None` for none.
    pub implicit_port: Option<u16>,
    /// Where Envoys of the mesh listen for the ports of services; `None` for no such listeners.
    pub mesh_address: Option<IpAddr>,
    /// Whether a GRPCRoute and an HTTPRoute may share a host of a listener, against the letter of the Gateway API.
    pub merges_route_kinds: bool,
    /// Whether a route that uses a filter which gRPC clients ignore is left out for them.
    pub is_grpc_strict: bool,
    /// Whether `pathRegex` of an HTTPRouteGroup must match the whole path, not its beginning.
    pub matches_whole_paths: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_name: None,
            implicit_port: Some(8080),
            mesh_address: Some(IpAddr::from([127, 0, 0, 1])),
            merges_route_kinds: false,
            is_grpc_strict: false,
            matches_whole_paths: false,
        }
    }
}

/// What documents give.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// By group. A group is defined here if it exists only because of documents: consumer routes of a namespace.
    pub groups: Generated,
    /// What became of every object.
    pub conditions: Conditions,
    /// What is doubtful between documents, in the order of files and lines. None of it is an error: one bad object never
    /// takes down another.
    pub diagnostics: Vec<Diagnostic>,
}

/// Translates all documents.
///
/// Resources whose content did not change since `previous` are the very same values, so that views can tell at once.
#[must_use]
pub fn translate(
    codec: &Codec,
    documents: &Documents,
    options: &Options,
    previous: Option<&Translation>,
) -> Translation {
    let _ = (codec, documents, options, previous);
    Translation::default()
}
