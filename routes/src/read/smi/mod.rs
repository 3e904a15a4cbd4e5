//! SMI: TrafficSplit and HTTPRouteGroup, in all their versions.
//!
//! The examples of the specification have no `apiVersion` and several forms. All of them are read.

mod group;
mod weight;

#[cfg(test)]
mod tests;

use xds_codec::echo;

use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::meta::read_name;
use crate::model::{Spec, SplitBackend, TrafficSplit};

pub(crate) use group::{read_header_key, read_http_route_group};
use weight::{read_quantity, read_whole};

/// Reads a TrafficSplit.
///
/// A service that is listed twice stays listed twice. Only other documents tell whether two names are the same service, and only the
/// sum counts.
pub(crate) fn read_traffic_split(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    context.warn_of_version(document, "split.smi-spec.io/v1alpha4", reader);
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let service = spec.need("service", reader);
    let service_spot = service.as_ref().map(|service| service.spot.clone()).unwrap_or_default();
    let service = service.and_then(|service| read_service_name(&service, reader));
    let backends = spec.need("backends", reader);
    let is_list = backends.as_ref().is_some_and(Value::is_list);
    let items = backends.as_ref().map(|list| list.list(MAX_BACKENDS, reader)).unwrap_or_default();
    if let Some(list) = backends
        && is_list
        && items.is_empty()
    {
        reader.error("missing-field", &list.spot, "a split needs at least one backend");
    }
    let mut backends = Vec::with_capacity(items.len());
    backends.extend(items.iter().filter_map(|item| read_backend(item, context, reader)));
    let mut matches = Vec::new();
    if let Some(list) = spec.take("matches") {
        let items = list.list(MAX_MATCHES, reader);
        matches.reserve_exact(items.len());
        for item in items {
            let Some(name) = read_match(&item, reader) else { continue };
            if matches.iter().any(|(_, other)| *other == name) {
                let message = format!("the group {} is named twice", echo(&name));
                reader.warn("duplicate-name", &item.spot, message);
            } else {
                matches.push((item.spot, name));
            }
        }
    }
    spec.finish(reader);
    Some(Spec::TrafficSplit(TrafficSplit { service: service?, service_spot, backends, matches }))
}

/// Reads the name of a service, or its FQDN. The service is always in the split's own namespace.
fn read_service_name(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let name = read_name(value, reader)?;
    if name.contains(':') {
        let message =
            format!("{} has a port; write only the name, because a split applies to every port", echo(&name));
        reader.error("bad-name", &value.spot, message);
        return None;
    }
    Some(name.to_string())
}

fn read_backend(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<SplitBackend> {
    let mut fields = value.object(reader)?;
    let service = fields.need("service", reader).and_then(|service| read_service_name(&service, reader));
    let weight = fields.need("weight", reader).and_then(|weight| match context.version() {
        "v1alpha1" => read_quantity(&weight, reader),
        _ => read_whole(&weight, reader),
    });
    fields.finish(reader);
    Some(SplitBackend { spot: value.spot.clone(), service: service?, weight: weight? })
}

/// Reads the name of an HTTPRouteGroup. No other kind can restrict a split.
fn read_match(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let mut fields = value.object(reader)?;
    let kind = fields.need("kind", reader)?.choice(&["HTTPRouteGroup"], reader);
    let group = match fields.take("apiGroup") {
        Some(group) => group.choice(&["specs.smi-spec.io"], reader).map(Some),
        None => Some(None),
    };
    let name = fields.need("name", reader).and_then(|name| read_name(&name, reader));
    fields.finish(reader);
    let (_, _) = (kind?, group?);
    Some(name?.to_string())
}

/// SMI has no limit. Nobody rolls out more versions at once.
const MAX_BACKENDS: usize = 256;

/// SMI has no limit. This is the limit of matches in a rule of a GRPCRoute.
const MAX_MATCHES: usize = 64;
