//! The documents to translate, and the options.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use xds_cache::{GroupName, OrdMap};

use crate::model::{Document, DocumentKey, Kind};
use crate::read::UnknownFields;

/// All documents by key: of the files and the API, one for each key.
pub type Documents = OrdMap<DocumentKey, Placed>;

/// A document and the node group that its place gives it.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The document.
    pub document: Arc<Document>,
    /// The group of its directory, or that of the API call. A gateway and what is attached to it belongs to the gateway's
    /// group; a route of the mesh and a split to their own.
    pub group: GroupName,
    /// How often its content has changed, from 1.
    pub generation: u64,
    /// The past of a Service: whether a TrafficSplit names it as its root, or once did. Envoys that listen for it continue to
    /// do so.
    pub was_split: bool,
    /// True if it is a Gateway of a group that must have no secrets, because clients that have proved nothing are in it.
    pub withholds_secrets: bool,
}

impl Placed {
    /// A new document, of a group that may have secrets.
    #[must_use]
    pub fn new(document: Arc<Document>, group: GroupName) -> Self {
        Self { document, group, generation: 1, was_split: false, withholds_secrets: false }
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.group == other.group
            && self.generation == other.generation
            && self.was_split == other.was_split
            && self.withholds_secrets == other.withholds_secrets
            && (Arc::ptr_eq(&self.document, &other.document) || self.document == other.document)
    }
}

/// How documents are translated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Only Gateways of a class with this `controllerName` are served; `None` means all.
    pub controller_name: Option<String>,
    /// The port of the implicit gateway, to which routes attach if there is no Gateway at all; `None` for none.
    pub implicit_port: Option<u16>,
    /// Where Envoys of the mesh listen for the ports of services; `None` for no such listeners.
    pub mesh_address: Option<IpAddr>,
    /// True if a GRPCRoute and an HTTPRoute may share a host of a listener, against the letter of the Gateway API.
    pub merges_route_kinds: bool,
    /// True if a route that uses a filter which gRPC clients ignore is left out for them.
    pub is_grpc_strict: bool,
    /// True if `pathRegex` of an HTTPRouteGroup must match the whole path, not its beginning.
    pub matches_whole_paths: bool,
    /// True if gRPC clients report the load of their clusters to the server that serves them (row A218).
    pub reports_loads: bool,
    /// The limits of the resources that one group's routes may generate.
    pub limits: GenerationLimits,
    /// The treatment of documents with unknown fields, where they are read.
    pub unknown_fields: UnknownFields,
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
            reports_loads: true,
            limits: GenerationLimits::default(),
            unknown_fields: UnknownFields::Refuse,
        }
    }
}

/// Bounds on the resources that the routes of one node group generate, those of Gateways and of the mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationLimits {
    /// Routes in virtual hosts. Each takes a client and this server some kilobytes.
    pub max_routes: usize,
    /// Virtual hosts. gRPC clients get two resources for each, a Listener and a RouteConfiguration.
    pub max_hosts: usize,
    /// Bytes: the text of a route document, once for each of its virtual hosts.
    pub max_bytes: usize,
}

impl Default for GenerationLimits {
    /// 10,000 routes with two listeners each, one of them for TLS, and three matches are 60,000 in 20,000 virtual hosts, of a text
    /// of some 20 MB.
    fn default() -> Self {
        Self { max_routes: 100_000, max_hosts: 100_000, max_bytes: 256 << 20 }
    }
}

/// Returns `true` while somebody still waits for the result. Once it has returned `false`, it never returns `true` again, and
/// the result is dropped.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// The documents of some kinds, in order. The others are not even looked at: they may be many, and each is far away in memory.
pub(crate) fn of_kinds(
    documents: &Documents,
    kinds: RangeInclusive<Kind>,
) -> impl Iterator<Item = (&DocumentKey, &Placed)> {
    let (first, last) = kinds.into_inner();
    let begin = DocumentKey::before(first);
    documents.range(begin..).take_while(move |(key, _)| key.kind <= last)
}
