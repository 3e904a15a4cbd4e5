//! GatewayClass, ReferenceGrant and BackendTLSPolicy.

use std::borrow::Cow;

use xds_codec::echo;

use super::backend_ref::read_local_object;
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::meta::{
    read_group, read_hostname, read_kind, read_name, read_precise_hostname, read_section_name,
};
use crate::model::{BackendTlsPolicy, GrantFrom, GrantTo, ObjectRef, ReferenceGrant, Spec};

/// Reads a GatewayClass.
pub(crate) fn read_gateway_class(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let controller = spec.need("controllerName", reader).and_then(|controller| {
        let text = controller.bounded_text(1, 253, reader)?;
        if !text.split_once('/').is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty()) {
            let message = format!("{} is not a name such as `example.org/controller`", echo(text));
            reader.error("bad-name", &controller.spot, message);
            return None;
        }
        Some(text.to_owned())
    });
    if let Some(parameters) = spec.take("parametersRef") {
        reader.warn(
            "unsupported",
            &parameters.spot,
            "parameters of a class are not supported, and are ignored",
        );
    }
    spec.ignore(&["description"]);
    spec.finish(reader);
    Some(Spec::GatewayClass { controller: controller? })
}

/// Reads a ReferenceGrant: 1 to 16 of each side.
pub(crate) fn read_reference_grant(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let from = spec.need("from", reader).map_or_else(Vec::new, |list| list.list_of_some(16, reader));
    let to = spec.need("to", reader).map_or_else(Vec::new, |list| list.list_of_some(16, reader));
    spec.finish(reader);
    Some(Spec::ReferenceGrant(ReferenceGrant {
        from: from.iter().filter_map(|value| read_from(value, reader)).collect(),
        to: to.iter().filter_map(|value| read_to(value, reader)).collect(),
    }))
}

fn read_from(value: &Value<'_>, reader: &mut Reader) -> Option<GrantFrom> {
    let mut object = value.object(reader)?;
    let (group, kind) = read_group_and_kind(&mut object, reader);
    let namespace = object.need("namespace", reader).and_then(|namespace| read_name(&namespace, reader));
    object.finish(reader);
    Some(GrantFrom { group: group?, kind: kind?, namespace: namespace?.to_string() })
}

fn read_to(value: &Value<'_>, reader: &mut Reader) -> Option<GrantTo> {
    let mut object = value.object(reader)?;
    let (group, kind) = read_group_and_kind(&mut object, reader);
    // An empty name means every object of the kind, like no name.
    let name = object.take("name").filter(|name| name.tree.as_str() != Some(""));
    let name = match name {
        Some(name) => Some(read_name(&name, reader)?.to_string()),
        None => None,
    };
    object.finish(reader);
    Some(GrantTo { group: group?, kind: kind?, name })
}

fn read_group_and_kind(object: &mut Object<'_>, reader: &mut Reader) -> (Option<String>, Option<String>) {
    let group = object.need("group", reader).and_then(|group| read_group(&group, reader));
    let kind = object.need("kind", reader).and_then(|kind| read_kind(&kind, reader));
    (group.map(Cow::into_owned), kind.map(Cow::into_owned))
}

/// Reads a BackendTLSPolicy.
pub(crate) fn read_backend_tls_policy(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let targets =
        spec.need("targetRefs", reader).map_or_else(Vec::new, |list| read_targets(&list, context, reader));
    if let Some(options) = spec.take("options") {
        reader.warn("unsupported", &options.spot, "TLS options are not supported and are ignored");
    }
    let validation = spec.need("validation", reader);
    spec.finish(reader);
    let validation = validation?;
    let mut object = validation.object(reader)?;
    let (ca_certificates, uses_system_certificates) = read_trusted(&mut object, context, reader)?;
    let hostname = object.need("hostname", reader).and_then(|name| read_precise_hostname(&name, reader));
    let alt_names = object.take("subjectAltNames").map_or_else(Vec::new, |list| {
        list.list(5, reader).iter().filter_map(|value| read_alt_name(value, reader)).collect()
    });
    object.finish(reader);
    Some(Spec::BackendTlsPolicy(Box::new(BackendTlsPolicy {
        targets,
        ca_certificates,
        uses_system_certificates,
        hostname: hostname?,
        alt_names,
        spot: validation.spot,
    })))
}

/// Reads `targetRefs`, 1 to 16. Two references to the same object need different sections.
fn read_targets(
    list: &Value<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Vec<(ObjectRef, Option<String>)> {
    let items = list.list_of_some(16, reader);
    let mut targets: Vec<(ObjectRef, Option<String>)> = Vec::with_capacity(items.len());
    for value in items {
        let Some(mut object) = value.object(reader) else { continue };
        let target = read_local_object(&mut object, context, reader);
        let section = object.take("sectionName").and_then(|section| read_section_name(&section, reader));
        object.finish(reader);
        let Some(target) = target else { continue };
        let is_same = |other: &ObjectRef| {
            (&other.group, &other.kind, &other.name) == (&target.group, &target.kind, &target.name)
        };
        let problem = targets.iter().filter(|(other, _)| is_same(other)).find_map(|(_, other)| {
            if other.is_some() != section.is_some() {
                return Some("specified");
            }
            (*other == section).then_some("unique")
        });
        if let Some(problem) = problem {
            let message = format!(
                "sectionName must be {problem} when targetRefs includes 2 or more references to the same target"
            );
            reader.error("duplicate-target", &value.spot, message);
        }
        targets.push((target, section));
    }
    targets
}

/// Reads the trusted certificates: those of at most 8 objects, or those of the system.
///
/// An unknown set gives neither, so every request fails. If the whole document were refused instead, requests would go without TLS.
fn read_trusted(
    validation: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<(Vec<ObjectRef>, bool)> {
    let list = validation.take("caCertificateRefs");
    let items = list.map_or_else(Vec::new, |list| list.list(8, reader));
    let mut objects = Vec::with_capacity(items.len());
    for value in &items {
        let Some(mut object) = value.object(reader) else { continue };
        objects.extend(read_local_object(&mut object, context, reader));
        object.finish(reader);
    }
    let well_known = validation.take("wellKnownCACertificates");
    let well_known = match well_known.filter(|known| known.tree.as_str() != Some("")) {
        Some(known) => Some((known.bounded_text(1, 253, reader)?, known.spot)),
        None => None,
    };
    match (items.is_empty(), well_known) {
        (false, Some(_)) => {
            let message = "must not contain both CACertificateRefs and WellKnownCACertificates";
            reader.error("misplaced-field", validation.spot(), message);
            None
        }
        (true, None) => {
            let message = "must specify either CACertificateRefs or WellKnownCACertificates";
            reader.error("missing-field", validation.spot(), message);
            None
        }
        (false, None) => Some((objects, false)),
        (true, Some(("System", _))) => Some((objects, true)),
        (true, Some((other, spot))) => {
            let message = format!(
                "{} is unknown, so requests to the backend fail; only `System` is supported",
                echo(other)
            );
            reader.warn("unsupported", &spot, message);
            Some((objects, false))
        }
    }
}

fn read_alt_name(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let mut object = value.object(reader)?;
    let kind = object.need("type", reader).and_then(|kind| kind.choice(&["Hostname", "URI"], reader));
    let is_given = |part: &Value<'_>| part.tree.as_str() != Some("");
    let hostname = object.take("hostname").filter(is_given);
    let uri = object.take("uri").filter(is_given);
    object.finish(reader);
    let is_hostname = kind? == "Hostname";
    let (own, other, own_name, other_name) = match is_hostname {
        true => (hostname, uri, "Hostname", "URI"),
        false => (uri, hostname, "URI", "Hostname"),
    };
    if let Some(other) = other {
        let message = format!(
            "SubjectAltName element must not contain {other_name}, if Type is not set to {other_name}"
        );
        reader.error("misplaced-field", &other.spot, message);
    }
    let Some(own) = own else {
        let message = format!("SubjectAltName element must contain {own_name}, if Type is set to {own_name}");
        reader.error("missing-field", &value.spot, message);
        return None;
    };
    if is_hostname {
        return read_hostname(&own, reader).map(|name| name.as_str().to_owned());
    }
    let text = own.bounded_text(1, 253, reader)?;
    if !text.split_once("://").is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty()) {
        let message = format!("{} is not a URI such as `spiffe://example.org/service`", echo(text));
        reader.error("bad-uri", &own.spot, message);
        return None;
    }
    Some(text.to_owned())
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
