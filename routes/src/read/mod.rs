//! Reads one document, and reports its own faults.
//!
//! [`read()`] finds the kind and passes the document to the function for that kind. This takes field by field from an [`Object`], and
//! reports faults to a [`Reader`]. Documents of the native form have their own functions.

mod address;
mod backend;
mod backend_ref;
mod context;
mod fields;
mod filters;
mod foreign_policy;
mod gateway;
mod grpc_route;
mod http_filters;
mod http_route;
mod kinds;
mod matches;
mod meta;
mod native;
mod outcome;
mod policy;
mod regex;
mod route;
mod secret;
mod service;
mod session;
mod slice;
mod smi;
mod stand_in;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use xds_codec::document::Node;
use xds_codec::{Tree, echo_name};

use crate::model::{Document, Kind, Namespace, Source, Spec, Spot};
use context::Context;
use fields::{Object, Reader, Value};
use kinds::{Age, KindLookup};
pub use outcome::{ReadObject, ReadOutcome, UnknownFields};
use outcome::{one, place_of};
pub use stand_in::stand_in;

/// Reads a document.
///
/// `file` is shown in diagnostics; it is empty for a body. `tree` is the whole document: with `apiVersion` and `kind`, or in the
/// native form with `version: xds-server/v1`.
#[must_use]
pub fn read(file: &Arc<str>, tree: &Tree, unknown: UnknownFields) -> ReadOutcome {
    let (whole, tree) = (tree, tree.root());
    let has_kind = tree.get("apiVersion").is_some() || tree.get("kind").is_some();
    let version = tree.get("version").and_then(Node::as_str).unwrap_or_default();
    if !has_kind && version == native::VERSION {
        return native::read(file, whole, unknown != UnknownFields::Accepted);
    }
    if !has_kind && version.starts_with("xds-server/") {
        return refuse_native(file, tree, version);
    }
    if !has_kind {
        return ReadOutcome::NotOurs;
    }
    let mut reader = Reader::new(file, unknown == UnknownFields::Refuse);
    let Some(mut object) = Value::root(tree).object(&mut reader) else {
        return ReadOutcome::Unreadable(reader.into_diagnostics());
    };
    let api_version = object.take("apiVersion");
    let version_spot = api_version.as_ref().map_or_else(|| object.spot().clone(), |value| value.spot.clone());
    let api_version = api_version.and_then(|value| value.text(&mut reader)).unwrap_or_default();
    let kind = object.need("kind", &mut reader);
    let kind_spot = kind.as_ref().map_or_else(Spot::default, |value| value.spot.clone());
    let Some(kind) = kind.and_then(|value| value.text(&mut reader)) else {
        return ReadOutcome::Unreadable(reader.into_diagnostics());
    };
    match kinds::look_up(api_version, kind) {
        _ if reader.has_errors() => {}
        KindLookup::Ours(kind, age) => {
            if age == Age::Removed {
                let newest = kinds::newest(kind);
                let message =
                    format!("{} is deprecated; the API replaced it with {newest}", echo_name(api_version));
                reader.warn("deprecated-version", &version_spot, message);
            }
            return read_object(file, tree, kind, api_version, object, reader);
        }
        KindLookup::BadVersion(kind, message) => {
            reader.error("unknown-version", &version_spot, message);
            return refuse(file, tree, kind, &mut object, reader);
        }
        KindLookup::MisspeltKind(near) => {
            let message = format!("the kind {} is unknown", echo_name(kind));
            reader.suggest("unknown-kind", &kind_spot, message, Some(near.as_str()));
            return refuse(file, tree, near, &mut object, reader);
        }
        KindLookup::WrongGroup(kind) => {
            let message = format!("{kind} is not a kind of {}", echo_name(api_version));
            reader.suggest("unknown-version", &version_spot, message, Some(&kinds::newest(kind)));
            return refuse(file, tree, kind, &mut object, reader);
        }
        KindLookup::NotOurs if api_version.is_empty() => {
            reader.error("missing-kind", &version_spot, "the document has no `apiVersion`");
        }
        KindLookup::NotOurs => {
            return foreign_policy::read(file, tree, api_version, kind).unwrap_or(ReadOutcome::NotOurs);
        }
    }
    ReadOutcome::Unreadable(reader.into_diagnostics())
}

/// The one message for all documents of a kind that is not served.
#[must_use]
pub fn left_out(kind: &str, n_documents: usize) -> String {
    match n_documents {
        1 => format!("the kind {kind:?} is not served; the document is left out"),
        n => format!("the kind {kind:?} is not served; {n} documents are left out"),
    }
}

/// Refuses a document of a supported kind; its faults are already reported. Its object keeps its last good version.
fn refuse(
    file: &Arc<str>,
    tree: Node<'_>,
    kind: Kind,
    object: &mut Object<'_>,
    mut reader: Reader,
) -> ReadOutcome {
    let Some((key, _)) = meta::read_meta(kind, object, &mut reader) else {
        return ReadOutcome::Unreadable(reader.into_diagnostics());
    };
    let stand_in = stand_in::of_broken(file, tree, &key);
    one(file, tree, key, Err(reader.into_diagnostics()), stand_in)
}

/// Refuses a document in an unknown version of the native form.
fn refuse_native(file: &Arc<str>, tree: Node<'_>, version: &str) -> ReadOutcome {
    let mut reader = Reader::new(file, true);
    let root = Value::root(tree).spot;
    let spot = Spot { path: root.path.field("version"), ..root };
    let message = format!("version {} of the native form does not exist", echo_name(version));
    reader.suggest("unknown-version", &spot, message, Some(native::VERSION));
    ReadOutcome::Unreadable(reader.into_diagnostics())
}

/// Reads a document of a known kind and version.
fn read_object(
    file: &Arc<str>,
    tree: Node<'_>,
    kind: Kind,
    api_version: &str,
    mut object: Object<'_>,
    mut reader: Reader,
) -> ReadOutcome {
    object.ignore(&["status"]);
    let Some((key, meta)) = meta::read_meta(kind, &mut object, &mut reader) else {
        return ReadOutcome::Unreadable(reader.into_diagnostics());
    };
    let spec = read_spec(&mut object, &Context { kind, api_version, key: &key }, &mut reader);
    object.finish(&mut reader);
    if kind == Kind::Secret {
        // A misspelt `data` contains secrets too, so no line of the document may be shown.
        reader.make_sensitive(0);
    }
    if spec.is_none() && !reader.has_errors() {
        reader.error("unreadable", &Value::root(tree).spot, format!("the {kind} cannot be read"));
    }
    let has_errors = reader.has_errors();
    let diagnostics = reader.into_diagnostics();
    let Some(spec) = spec.filter(|_| !has_errors) else {
        let stand_in = stand_in::of_broken(file, tree, &key);
        return one(file, tree, key, Err(diagnostics), stand_in);
    };
    let source = Arc::new(Source::of_document(tree));
    let (meta, place) = (meta.kept(), place_of(file, tree));
    let document = Document { key: key.clone(), place, meta, spec, source };
    one(file, tree, key, Ok((Arc::new(document), diagnostics)), None)
}

/// Reads what a change has to know of a RouteTest or RouterCheck. Those who run it report its faults.
fn read_route_test(object: &mut Object<'_>) -> Spec {
    let mut silent = Reader::new(&"".into(), false);
    let policy = object.take("spec").and_then(|spec| spec.object(&mut silent)?.take("policy"));
    let policy = policy.and_then(|policy| policy.text(&mut silent));
    Spec::RouteTest { policy: policy.map(Box::from) }
}

/// Reads everything except the metadata; `None` only with an error.
fn read_spec(object: &mut Object<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Spec> {
    match context.kind {
        Kind::GatewayClass => policy::read_gateway_class(object, context, reader),
        Kind::Gateway => gateway::read_gateway(object, context, reader),
        Kind::GrpcRoute => grpc_route::read_grpc_route(object, context, reader),
        Kind::HttpRoute => http_route::read_http_route(object, context, reader),
        Kind::ReferenceGrant => policy::read_reference_grant(object, context, reader),
        Kind::BackendTlsPolicy => policy::read_backend_tls_policy(object, context, reader),
        Kind::Backend => backend::read_backend(object, context, reader),
        Kind::Service => service::read_service(object, context, reader),
        Kind::EndpointSlice => slice::read_endpoint_slice(object, context, reader),
        Kind::Endpoints => slice::read_endpoints(object, context, reader),
        Kind::Secret => secret::read_secret(object, context, reader),
        Kind::ConfigMap => secret::read_config_map(object, context, reader),
        Kind::TrafficSplit => smi::read_traffic_split(object, context, reader),
        Kind::HttpRouteGroup => smi::read_http_route_group(object, context, reader),
        Kind::Route | Kind::Policy => None,
        Kind::Namespace => {
            object.ignore(&["spec"]);
            Some(Spec::Namespace(Namespace))
        }
        Kind::RouteTest | Kind::RouterCheck => Some(read_route_test(object)),
    }
}
