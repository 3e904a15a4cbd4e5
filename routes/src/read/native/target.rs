//! Targets of routes and fallbacks: backends of the native form, and services with their ports.

use std::sync::Arc;

use xds_codec::{Tree, echo};

use crate::model::{Kind, ObjectRef, Spot};
use crate::read::address::parse_port;
use crate::read::context::Context;
use crate::read::fields::{Reader, Value};
use crate::read::meta::read_name;

/// Reads `backend` or `service:port`, either with a leading `namespace/`. Only a service has a port here: those of a backend are in
/// its endpoints.
pub(super) fn read_target(
    text: &str,
    spot: &Spot,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    let (namespace, rest) = match text.split_once('/') {
        Some((namespace, rest)) => (check_part(namespace, spot, reader)?, rest),
        None => (Arc::clone(&context.key.namespace), text),
    };
    let (kind, name, port) = match rest.rsplit_once(':') {
        Some((service, port)) => match parse_port(port) {
            Ok(port) => (Kind::Service, service, Some(port)),
            Err(message) => {
                reader.error("bad-port", spot, format!("{}: {message}", echo(text)));
                return None;
            }
        },
        None => (Kind::Backend, rest, None),
    };
    if name.contains(':') {
        let message = format!("{} is neither a backend nor a service with its port", echo(text));
        reader.error("bad-name", spot, message);
        return None;
    }
    let name = check_part(name, spot, reader)?;
    let (group, kind) = (kind.api_group().into(), kind.as_str().into());
    Some(ObjectRef { spot: spot.clone(), group, kind, namespace, name, port })
}

/// Reads `name` or `namespace/name`.
pub(super) fn read_qualified(
    value: &Value<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<(Arc<str>, Arc<str>)> {
    let text = value.text(reader)?;
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (check_part(namespace, &value.spot, reader)?, name),
        None => (Arc::clone(&context.key.namespace), text),
    };
    Some((namespace, check_part(name, &value.spot, reader)?))
}

/// Reads a list, which may be written without brackets if it has one item.
pub(super) fn one_or_list<'t>(value: &Value<'t>, max: usize, reader: &mut Reader) -> Vec<Value<'t>> {
    if !value.is_list() {
        return vec![value.clone()];
    }
    let items = value.list(max, reader);
    if items.is_empty() {
        reader.error("missing-field", &value.spot, "the list needs at least one item");
    }
    items
}

fn check_part(text: &str, spot: &Spot, reader: &mut Reader) -> Option<Arc<str>> {
    let tree = Tree::of_text(text);
    read_name(&Value { tree: tree.root(), spot: spot.clone() }, reader)
}
