//! All documents together: plans, resources, conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use xds_cache::{GroupName, Profile};
use xds_codec::{Codec, Diagnostic, Place, Severity};

pub use xds_cache::layer::{Generated, GeneratedGroup};

pub use crate::plan::GenerationLimits;

use crate::conditions::{Condition, Conditions, GrpcFeature, ParentStatus, Truth};
use crate::emit::{self, GrpcLoss};
use crate::encode::{Encoded, Encoder, Refused};
use crate::model::{Document, DocumentKey, Kind, Spot};
use crate::plan::{Planned, PlannedGroup, Statuses, plan_while};
use crate::read::UnknownFields;

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
    /// Of a Service: whether a TrafficSplit names it as its root, or once did. Envoys that listen for it go on to do so.
    pub was_split: bool,
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
    /// Whether gRPC clients report the load of their clusters to the server that they have them from (row A218).
    pub reports_loads: bool,
    /// What the routes of one group may give.
    pub limits: GenerationLimits,
    /// What becomes of documents with unknown fields, where they are read.
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
    /// How many rules have something that gRPC clients cannot have, by what it is; only what there is.
    pub grpc_unsupported: BTreeMap<GrpcFeature, usize>,
    encoded: Encoded,
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
    translate_while(codec, documents, options, previous, &|| true).unwrap_or_default()
}

/// Like [`translate`], as long as `goes_on` says so: it is asked for each document and each resource, must be cheap, and must not
/// say yes again once it said no. `None` if it said no.
#[must_use]
pub fn translate_while(
    codec: &Codec,
    documents: &Documents,
    options: &Options,
    previous: Option<&Translation>,
    goes_on: &dyn Fn() -> bool,
) -> Option<Translation> {
    let Planned { groups: planned, mut statuses, mut diagnostics } = plan_while(documents, options, goes_on);
    let mut encoder = Encoder::new(codec, previous.map(|previous| &previous.encoded), goes_on);
    let mut groups = Generated::new();
    let mut losses = BTreeSet::new();
    for (name, PlannedGroup { definition, plan }) in planned {
        if !goes_on() {
            return None;
        }
        let last = previous.and_then(|previous| previous.groups.get(&name));
        let last = |profile| last.and_then(|group: &GeneratedGroup| group.profiles.get(&profile));
        let envoy = encoder.resources(last(Profile::Envoy), |emit| emit::envoy(&plan, options, emit));
        let mut lost = Vec::new();
        let grpc = encoder.resources(last(Profile::Grpc), |emit| lost = emit::grpc(&plan, options, emit));
        losses.extend(lost);
        let profiles = BTreeMap::from([(Profile::Envoy, envoy), (Profile::Grpc, grpc)]);
        groups.insert(name, GeneratedGroup { definition, profiles });
    }
    let rules: BTreeSet<_> = losses.iter().map(|loss| (loss.feature, &loss.document, loss.rule)).collect();
    let mut grpc_unsupported: BTreeMap<GrpcFeature, usize> = BTreeMap::new();
    rules.into_iter().for_each(|(feature, ..)| *grpc_unsupported.entry(feature).or_default() += 1);
    tell_losses(documents, &losses, &mut statuses, &mut diagnostics);
    diagnostics.extend(encoder.refused.iter().map(refused));
    let key =
        |one: &Diagnostic| (one.place.clone(), one.path.clone(), one.severity, one.code, one.message.clone());
    diagnostics.sort_by_cached_key(key);
    diagnostics.dedup();
    let (conditions, encoded) = (statuses.finish(documents), encoder.finish());
    goes_on().then_some(Translation { groups, conditions, diagnostics, grpc_unsupported, encoded })
}

/// What gRPC clients cannot have shows as a parent of its own (section 1.11 of the inputs paper), so that a route that is fine
/// for Envoys stays fine; and as a note at what is written for gRPC, or for every client of a Service.
fn tell_losses(
    documents: &Documents,
    losses: &BTreeSet<GrpcLoss>,
    statuses: &mut Statuses,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut by_document: BTreeMap<&DocumentKey, Vec<&GrpcLoss>> = BTreeMap::new();
    for loss in losses {
        by_document.entry(&loss.document).or_default().push(loss);
    }
    for (key, losses) in by_document {
        let listed = |is_dropped| {
            let texts: BTreeSet<String> = losses
                .iter()
                .filter(|loss| loss.is_dropped == is_dropped)
                .map(|loss| format!("rules[{}]: {}", loss.rule, loss.reason))
                .collect();
            texts.into_iter().collect::<Vec<_>>().join("; ")
        };
        let message = match (listed(true), listed(false)) {
            (dropped, ignored) if ignored.is_empty() => format!("Dropped Rule: {dropped}"),
            (dropped, ignored) if dropped.is_empty() => format!("Fall Back: {ignored}"),
            (dropped, ignored) => format!("Dropped Rule: {dropped}. Fall Back: {ignored}"),
        };
        let is_for_grpc = matches!(key.kind, Kind::GrpcRoute | Kind::Route | Kind::TrafficSplit);
        if let Some(placed) = documents.get(key).filter(|_| is_for_grpc) {
            let text = format!("not all of the route is served to gRPC clients: {message}");
            let spot = Spot::default();
            diagnostics.push(placed.document.diagnostic(Severity::Info, "not-for-grpc", &spot, text));
        }
        let condition =
            Condition { kind: "PartiallyInvalid", status: Truth::True, reason: "UnsupportedValue", message };
        let parent = "gRPC clients".to_owned();
        let status = ParentStatus { parent, section: None, port: None, conditions: vec![condition] };
        statuses.parent(key, usize::MAX, status);
    }
}

/// A resource that our own codec refuses is our fault; the text must lead to it.
fn refused(refused: &Refused) -> Diagnostic {
    let faults: Vec<String> = refused.diagnostics.iter().map(ToString::to_string).collect();
    Diagnostic {
        severity: Severity::Warning,
        code: "generated-resource",
        place: Place { file: "".into(), line: 0, column: 0 },
        path: String::new(),
        message: format!(
            "{} cannot be made of the documents and is left out: {}",
            refused.what,
            faults.join("; ")
        ),
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}
