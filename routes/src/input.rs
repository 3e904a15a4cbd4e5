//! The documents to translate, and the options.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use xds_cache::{GroupName, OrdMap};

use crate::model::{Document, DocumentKey, Kind};
use crate::read::UnknownFields;

/// All documents of files and the API, one for each key.
pub type Documents = OrdMap<DocumentKey, Placed>;

/// A document and its node group.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The document.
    pub document: Arc<Document>,
    /// The group of its directory, or that of the API call. A Gateway and the routes that attach to it belong to the Gateway's group; a route
    /// of the mesh and a split belong to their own.
    pub group: GroupName,
    /// 1 for a new document, and one more for each change of its content.
    pub generation: u64,
    /// True if a TrafficSplit names this Service as its root, or once did. Envoys continue to listen for it.
    pub was_split: bool,
    /// True for a Gateway of a group that must have no secrets, because its clients have not proved their identity.
    pub withholds_secrets: bool,
}

impl Placed {
    /// A new document of a group that may have secrets.
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
    /// The `controllerName` of the classes whose Gateways are served; `None` for all.
    pub controller_name: Option<String>,
    /// The port of the implicit gateway, to which routes attach if there is no Gateway at all; `None` for none.
    pub implicit_port: Option<u16>,
    /// The address on which Envoys of the mesh listen for ports of services; `None` for no such listeners.
    pub mesh_address: Option<IpAddr>,
    /// True if a GRPCRoute and an HTTPRoute may share a host of a listener, which the Gateway API forbids.
    pub merges_route_kinds: bool,
    /// True if a route with a filter that gRPC clients ignore is left out for them.
    pub is_grpc_strict: bool,
    /// True if `pathRegex` of an HTTPRouteGroup must match the whole path, not only its beginning.
    pub matches_whole_paths: bool,
    /// True if gRPC clients report the load of their clusters to the server that serves them (row A218).
    pub reports_loads: bool,
    /// The limits on the resources that the routes of a group generate.
    pub limits: GenerationLimits,
    /// How unknown fields of documents are treated.
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

/// Limits on the resources that the routes of one node group generate, for Gateways and the mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationLimits {
    /// Routes in virtual hosts. Each costs clients and this server some kilobytes.
    pub max_routes: usize,
    /// Virtual hosts. gRPC clients get two resources for each, a Listener and a RouteConfiguration.
    pub max_hosts: usize,
    /// Bytes: the text of a route document, once for each of its virtual hosts.
    pub max_bytes: usize,
    /// Bytes that a trial may take, besides 20 for each byte of its documents.
    pub trial_bytes: usize,
}

impl Default for GenerationLimits {
    /// For comparison: 10,000 routes with three matches each, on two listeners (one with TLS), are 60,000 routes in 20,000 virtual hosts, with
    /// some 20 MB of text.
    fn default() -> Self {
        Self { max_routes: 100_000, max_hosts: 100_000, max_bytes: 256 << 20, trial_bytes: 64 << 20 }
    }
}

/// Returns `true` while somebody waits for the result. After it has returned `false`, it never returns `true` again, and the result is
/// dropped.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// How far a translation goes.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Returns `true` while somebody waits for the result. It is called for each document and each resource, must be cheap, and must not
    /// return `true` after `false`.
    pub goes_on: &'a dyn Fn() -> bool,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a translation is for. If nothing of it is served, it takes no more memory than its documents justify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is served. The limits of each group hold.
    Serving,
    /// A server tries documents for a caller: 20 bytes for each byte of text.
    Trial,
    /// Somebody checks documents on a machine of their own: 16 KiB more for each document, which is more than ordinary ones take.
    Check,
}

impl Bounds<'_> {
    /// Those of a translation that is served, whoever waits for it.
    pub const SERVING: Self = Self { goes_on: &|| true, purpose: Purpose::Serving };
}

impl fmt::Debug for Bounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounds").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

/// Why a translation was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Nobody waits for it any more.
    #[error("the dry run took too long")]
    NobodyWaits,
    /// A trial takes more memory than its documents justify.
    #[error(
        "the documents generate more than may be tried: {n_bytes} bytes so far, and the limit for {n_documents} documents with {n_text} bytes of text is {most} (--max-trial-memory); attach the routes to fewer listeners, give them fewer host names, or try fewer documents at once"
    )]
    TooMuch {
        /// The bytes that it took until then.
        n_bytes: usize,
        /// The bytes that it may take.
        most: usize,
        /// How many documents there are.
        n_documents: usize,
        /// The bytes of all of them.
        n_text: usize,
    },
}

/// The memory that a translation may take, and an estimate of what it has taken.
pub(crate) struct Budget {
    most: usize,
    n_documents: usize,
    n_text: usize,
    n_bytes: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(purpose: Purpose, documents: &Documents, limits: &GenerationLimits) -> Self {
        let of_document = match purpose {
            Purpose::Serving => return Self::unlimited(),
            Purpose::Trial => 0,
            Purpose::Check => CHECKED_BYTES,
        };
        let n_documents = documents.len();
        let n_text = documents.values().map(|placed| placed.document.source.text().len()).sum::<usize>();
        let justified = n_text.saturating_mul(TRIAL_FACTOR).saturating_add(n_documents * of_document);
        let most = justified.saturating_add(limits.trial_bytes);
        Self { most, n_documents, n_text, n_bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn unlimited() -> Self {
        Self { most: usize::MAX, n_documents: 0, n_text: 0, n_bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn take(&self, n_bytes: usize) {
        self.n_bytes.fetch_add(n_bytes, Relaxed);
    }

    /// Returns `true` while no more was taken than there is.
    pub(crate) fn lasts(&self) -> bool {
        self.n_bytes.load(Relaxed) <= self.most
    }

    /// Why a translation within this budget was stopped.
    pub(crate) fn stopped(&self) -> Stopped {
        let Self { most, n_documents, n_text, .. } = *self;
        match self.lasts() {
            true => Stopped::NobodyWaits,
            false => Stopped::TooMuch { n_bytes: self.n_bytes.load(Relaxed), most, n_documents, n_text },
        }
    }
}

/// Bytes that a trial may take for each byte of its documents.
const TRIAL_FACTOR: usize = 20;

/// Bytes that a check on one's own machine may take for each document. A route with a Service and its endpoints takes 24,000, at three
/// listeners 34,000.
const CHECKED_BYTES: usize = 16 << 10;

/// The documents of some kinds, in order. Costs nothing for documents of other kinds.
pub(crate) fn of_kinds(
    documents: &Documents,
    kinds: RangeInclusive<Kind>,
) -> impl Iterator<Item = (&DocumentKey, &Placed)> {
    let (first, last) = kinds.into_inner();
    let begin = DocumentKey::before(first);
    documents.range(begin..).take_while(move |(key, _)| key.kind <= last)
}
