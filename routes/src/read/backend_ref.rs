//! References to other objects, and the backends of rules.

use std::sync::Arc;

use super::context::Context;
use super::fields::{Object, Reader};
use super::meta::{read_group, read_kind, read_name};
use crate::model::{BackendRef, ObjectRef, Spot};

/// Warns if all weights are 0: that is allowed, but rarely intended.
pub(crate) fn warn_of_no_weight(backends: &[BackendRef], spot: &Spot, reader: &mut Reader) {
    if !backends.is_empty() && backends.iter().all(|backend| backend.weight == 0) {
        reader.warn("no-weight", spot, "all weights are 0, so every request of the rule fails");
    }
}

/// Reads the fields of a reference to a backend; the default kind is Service.
///
/// Only `v1alpha2` (GEP-1016) may omit the port of a Service, and then the Service decides.
pub(crate) fn read_backend_object(
    object: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    let port_value = object.take("port");
    let has_port = port_value.is_some();
    let port = port_value.and_then(|port| port.port(reader));
    let reference = read_with_defaults(object, ("", "Service"), context, reader)?;
    if !has_port && reference.group.is_empty() && reference.kind == "Service" {
        if context.version() == "v1alpha2" {
            let message = "the reference has no port; the port of the Service is used if it has only one";
            reader.warn("missing-port", object.spot(), message);
        } else {
            reader.error("missing-port", object.spot(), "Must have port for Service reference");
            return None;
        }
    }
    Some(ObjectRef { port, ..reference })
}

/// Reads the fields of a reference to an object with certificates; the default kind is Secret.
pub(crate) fn read_secret_object(
    object: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    read_with_defaults(object, ("", "Secret"), context, reader)
}

/// Reads the fields of a reference within the namespace; group and kind are required.
pub(crate) fn read_local_object(
    object: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    let group = object.need("group", reader).and_then(|group| read_group(&group, reader));
    let kind = object.need("kind", reader).and_then(|kind| read_kind(&kind, reader));
    let name = object.need("name", reader).and_then(|name| read_name(&name, reader));
    Some(ObjectRef {
        spot: object.spot().clone(),
        group: group?,
        kind: kind?,
        namespace: Arc::clone(&context.key.namespace),
        name: name?,
        port: None,
    })
}

fn read_with_defaults(
    object: &mut Object<'_>,
    (group, kind): (&'static str, &'static str),
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    let group = match object.take("group") {
        Some(group) => read_group(&group, reader),
        None => Some(group.into()),
    };
    let kind = match object.take("kind") {
        Some(kind) => read_kind(&kind, reader),
        None => Some(kind.into()),
    };
    let namespace = match object.take("namespace") {
        Some(namespace) => read_name(&namespace, reader),
        None => Some(Arc::clone(&context.key.namespace)),
    };
    let name = object.need("name", reader).and_then(|name| read_name(&name, reader));
    Some(ObjectRef {
        spot: object.spot().clone(),
        group: group?,
        kind: kind?,
        namespace: namespace?,
        name: name?,
        port: None,
    })
}
