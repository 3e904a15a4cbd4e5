//! The native form, `version: xds-server/v1`: listeners, routes and backends of one document, by name.
//!
//! ```yaml
//! version: xds-server/v1
//! listeners:
//!   edge: { port: 8080 }
//! routes:
//!   greeter:
//!     hosts: [greeter.example.com]
//!     rules:
//!     - match: { grpc: helloworld.Greeter/SayHello }
//!       to: { greeter-v1: 90, greeter-v2: 10 }
//!     - to: greeter-v1
//! backends:
//!   greeter-v1: [10.0.0.4:50051]
//!   greeter-v2: { dns: greeter-v2.internal:50051, tls: true }
//! ```
//!
//! Every listener becomes a Gateway, every route a Route, every backend a Backend. Each has its own faults: a bad one does not affect the
//! others. A fault of the document as a whole affects all of it, because its objects are not known then. Rules mean the same as in the
//! Gateway API, including the order of precedence: the first rule does not win just because it is first.

mod backend;
mod edits;
mod filters;
mod listener;
mod matches;
mod route;
mod rule;
mod share;
mod target;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use xds_codec::{Diagnostic, Tree, echo_name};

use super::context::Context;
use super::fields::{Reader, Value};
use super::meta::read_name;
use super::outcome::{ReadObject, ReadOutcome};
use crate::model::{Document, DocumentKey, Kind, Meta, Source, Spec, Spot};

/// Reads a document of the native form into its objects, in the order of the text.
pub(crate) fn read(file: &Arc<str>, tree: &Tree, refuses_unknown: bool) -> ReadOutcome {
    let mut reader = Reader::new(file, refuses_unknown);
    let Some(mut document) = Value::root(tree.root()).object(&mut reader) else {
        return ReadOutcome::Unreadable(reader.into_diagnostics());
    };
    let spot = document.spot().clone();
    document.ignore(&["version"]);
    let namespace = document.take("namespace").and_then(|namespace| read_name(&namespace, &mut reader));
    if let Some(nodes) = document.take("nodes") {
        let message = "clients are selected by the NodeGroup document of the directory";
        reader.error("unsupported", &nodes.spot, message);
    }
    let mut objects = Vec::new();
    for section in &SECTIONS {
        let map = document.take(section.field).and_then(|map| map.object(&mut reader));
        for (name, value) in map.map(|map| map.entries(&mut reader)).unwrap_or_default() {
            if name.is_empty() {
                reader.error("bad-name", &value.spot, "a name needs at least one character");
                continue;
            }
            objects.push(read_object(
                section,
                namespace.as_deref(),
                name,
                &value,
                Reader::new(file, refuses_unknown),
            ));
        }
    }
    document.finish(&mut reader);
    if objects.is_empty() && !reader.has_errors() {
        let message =
            "the document has no listeners, routes or backends; delete it to remove those that it had";
        reader.error("empty-document", &spot, message);
    }
    let is_broken = reader.has_errors();
    let of_document = reader.into_diagnostics();
    if is_broken {
        let of_objects = objects.into_iter().filter_map(|object| object.outcome.err()).flatten();
        return ReadOutcome::Unreadable(of_document.into_iter().chain(of_objects).collect());
    }
    add_warnings(&mut objects, of_document);
    objects.sort_by_key(|object| (object.place.line, object.place.column));
    ReadOutcome::Objects(objects)
}

fn read_object(
    section: &Section,
    namespace: Option<&str>,
    name: &str,
    value: &Value<'_>,
    mut reader: Reader,
) -> ReadObject {
    let key = DocumentKey::new(section.kind, namespace.unwrap_or_default(), name);
    check_name(section, name, &value.spot, &mut reader);
    let context = Context { kind: section.kind, api_version: VERSION, key: &key };
    let spec = (section.read)(value, &context, &mut reader);
    if spec.is_none() && !reader.has_errors() {
        reader.error("unreadable", &value.spot, format!("the {} cannot be read", section.kind));
    }
    let place = reader.place(&value.spot);
    let has_errors = reader.has_errors();
    let diagnostics = reader.into_diagnostics();
    let Some(spec) = spec.filter(|_| !has_errors) else {
        return ReadObject { key, place, outcome: Err(diagnostics), stand_in: None };
    };
    let source = Source::of_native(VERSION, namespace, section.field, name, value.tree);
    let document = Document {
        key: key.clone(),
        place: place.clone(),
        meta: Meta::none(),
        spec,
        source: Arc::new(source),
    };
    ReadObject { key, place, outcome: Ok((Arc::new(document), diagnostics)), stand_in: None }
}

/// Checks the name of an object: references to it must be unambiguous.
fn check_name(section: &Section, name: &str, spot: &Spot, reader: &mut Reader) {
    let (tree, spot) = (Tree::of_text(name), spot.clone());
    read_name(&Value { tree: tree.root(), spot: spot.clone() }, reader);
    if section.kind == Kind::Backend && name.contains(':') {
        let message = format!("{} contains `:`, which separates a service from its port", echo_name(name));
        reader.error("bad-name", &spot, message);
    }
    if section.kind == Kind::Gateway && name == route::ALL_GRPC {
        reader.error("bad-name", &spot, "`grpc` is reserved and cannot be the name of a listener");
    }
}

/// Adds the warnings about the document as a whole to its first object.
fn add_warnings(objects: &mut [ReadObject], warnings: Vec<Diagnostic>) {
    let Some(first) = objects.iter_mut().min_by_key(|object| (object.place.line, object.place.column)) else {
        return;
    };
    match &mut first.outcome {
        Ok((_, diagnostics)) | Err(diagnostics) => {
            diagnostics.extend(warnings);
            diagnostics.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
        }
    }
}

/// One of the maps of a document.
struct Section {
    field: &'static str,
    kind: Kind,
    read: fn(&Value<'_>, &Context<'_>, &mut Reader) -> Option<Spec>,
}

const SECTIONS: [Section; 3] = [
    Section { field: "listeners", kind: Kind::Gateway, read: listener::read_listener },
    Section { field: "routes", kind: Kind::Route, read: route::read_route },
    Section { field: "backends", kind: Kind::Backend, read: backend::read_backend },
];

/// The only version.
pub(super) const VERSION: &str = "xds-server/v1";
