//! Backends of the native form.

use xds_cache::DrainPolicy;
use xds_codec::document::TreeValue;
use xds_codec::echo;

use super::target::{one_or_list, read_target};
use crate::model::{
    Backend, BackendLimits, BackendMember, BackendSource, Kind, LbPolicy, NativeTls, ObjectRef, Spec,
    StaticEndpoint,
};
use crate::read::address::{EndpointHost, read_dns_name, read_host_port};
use crate::read::backend::{Endpoints, read_unix_path, single_host};
use crate::read::context::Context;
use crate::read::fields::{Object, Reader, Value};
use crate::read::meta::read_drain_time;

/// Reads a backend: one endpoint, a list of endpoints, or an object.
///
/// The object has at least one of `endpoints`, `dns` and `unix`, or only `fallback`; and `protocol`, `tls`, `lb`, `drain` and
/// limits.
pub(super) fn read_backend(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Spec> {
    let mut endpoints = Endpoints::default();
    if !value.is_object() {
        read_endpoints(value, &mut endpoints, reader);
        let source = BackendSource::Endpoints(endpoints.list);
        return Some(Spec::Backend(Box::new(Backend {
            is_http2: false,
            source,
            tls: None,
            lb_policy: LbPolicy::default(),
            limits: BackendLimits::default(),
            drain: DrainPolicy::default(),
        })));
    }
    let mut fields = value.object(reader)?;
    let is_http2 = match fields.take("protocol") {
        Some(protocol) => protocol.choice(&["grpc", "http2", "http"], reader) != Some("http"),
        None => false,
    };
    if let Some(list) = fields.take("endpoints") {
        read_endpoints(&list, &mut endpoints, reader);
    }
    if let Some(names) = fields.take("dns") {
        read_dns(&names, &mut endpoints, reader);
    }
    if let Some(paths) = fields.take("unix") {
        for value in one_or_list(&paths, MAX_ENDPOINTS, reader) {
            if let Some(path) = read_unix_path(&value, reader) {
                endpoints.add(StaticEndpoint::Unix { path }, &value, reader);
            }
        }
    }
    let fallback = fields.take("fallback").map(|list| read_fallback(&list, context, reader));
    let tls = match fields.take("tls") {
        Some(tls) => read_tls(&tls, &endpoints.list, reader),
        None => None,
    };
    let lb_policy =
        match fields.take("lb").and_then(|lb| lb.choice(&["round_robin", "least_request"], reader)) {
            Some("least_request") => LbPolicy::LeastRequest,
            Some(_) | None => LbPolicy::RoundRobin,
        };
    let limits = read_limits(&mut fields, reader);
    let source = match fallback {
        Some(members) => {
            check_fallback(&fields, reader);
            BackendSource::Fallback(members)
        }
        None => {
            let has_any = fields.has("endpoints") || fields.has("dns") || fields.has("unix");
            if !has_any {
                let message = "a backend needs `endpoints`, `dns`, `unix` or `fallback`";
                reader.error("missing-field", &value.spot, message);
            }
            BackendSource::Endpoints(endpoints.list)
        }
    };
    let drain = match fields.take("drain") {
        Some(drain) => read_drain(&drain, reader)?,
        None => DrainPolicy::default(),
    };
    fields.finish(reader);
    Some(Spec::Backend(Box::new(Backend { is_http2, source, tls, lb_policy, limits, drain })))
}

/// Reads `max_requests`, `max_connections` and `max_pending`.
fn read_limits(fields: &mut Object<'_>, reader: &mut Reader) -> BackendLimits {
    let mut limit = |field| {
        let limit = fields.take(field)?.integer(1, i64::from(u32::MAX), reader)?;
        u32::try_from(limit).ok()
    };
    let (requests, connections, pending) =
        (limit("max_requests"), limit("max_connections"), limit("max_pending"));
    BackendLimits { requests, connections, pending }
}

/// Reads `{ endpoints: 30s, cluster: 1m }`; each field is optional.
fn read_drain(value: &Value<'_>, reader: &mut Reader) -> Option<DrainPolicy> {
    let mut fields = value.object(reader)?;
    let endpoints = fields.take("endpoints").and_then(|time| read_drain_time(&time, reader));
    let clusters = fields.take("cluster").and_then(|time| read_drain_time(&time, reader));
    fields.finish(reader);
    Some(DrainPolicy { endpoints, clusters })
}

fn read_endpoints(value: &Value<'_>, endpoints: &mut Endpoints, reader: &mut Reader) {
    let items = one_or_list(value, MAX_ENDPOINTS, reader);
    endpoints.list.reserve_exact(items.len());
    for item in items {
        let endpoint = if item.is_object() {
            read_endpoint_object(&item, reader)
        } else {
            read_host_port(&item, reader).map(|(host, port)| endpoint_of(host, port, String::new(), None))
        };
        if let Some(endpoint) = endpoint {
            endpoints.add(endpoint, &item, reader);
        }
    }
}

/// Reads `{ addr: "10.0.0.4:50051", zone: b, weight: 2 }`.
fn read_endpoint_object(value: &Value<'_>, reader: &mut Reader) -> Option<StaticEndpoint> {
    let mut fields = value.object(reader)?;
    let address = fields.need("addr", reader).and_then(|address| read_host_port(&address, reader));
    let zone = match fields.take("zone") {
        Some(zone) => zone.bounded_text(0, 253, reader)?.to_owned(),
        None => String::new(),
    };
    let weight = match fields.take("weight") {
        Some(weight) => u32::try_from(weight.integer(1, MAX_WEIGHT, reader)?).ok(),
        None => None,
    };
    fields.finish(reader);
    let (host, port) = address?;
    if matches!(host, EndpointHost::Dns(_)) && (!zone.is_empty() || weight.is_some()) {
        let message = "only endpoints with an address have a zone and a weight";
        reader.warn("unsupported", &value.spot, message);
    }
    Some(endpoint_of(host, port, zone, weight))
}

fn endpoint_of(host: EndpointHost, port: u16, zone: String, weight: Option<u32>) -> StaticEndpoint {
    match host {
        EndpointHost::Ip(address) => StaticEndpoint::Ip { address, port, zone, weight },
        EndpointHost::Dns(host) => StaticEndpoint::Dns { host, port },
    }
}

/// Reads names with ports, which clients resolve. An address is refused.
fn read_dns(value: &Value<'_>, endpoints: &mut Endpoints, reader: &mut Reader) {
    let items = one_or_list(value, MAX_ENDPOINTS, reader);
    endpoints.list.reserve_exact(items.len());
    for item in items {
        match read_host_port(&item, reader) {
            Some((EndpointHost::Dns(host), port)) => {
                endpoints.add(StaticEndpoint::Dns { host, port }, &item, reader);
            }
            Some((EndpointHost::Ip(address), _)) => {
                let message = format!("{address} is not a host name; write addresses under `endpoints`");
                reader.error("bad-address", &item.spot, message);
            }
            None => {}
        }
    }
}

/// Reads the members. A duplicate is dropped: the first one counts, as in gRFC A37.
fn read_fallback(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<BackendMember> {
    let items = one_or_list(value, MAX_MEMBERS, reader);
    let mut members: Vec<BackendMember> = Vec::with_capacity(items.len());
    for item in items {
        let object = item.text(reader).and_then(|text| read_target(text, &item.spot, context, reader));
        let Some(object) = object else { continue };
        if object.kind == Kind::Backend.as_str()
            && *object.namespace == *context.key.namespace
            && *object.name == *context.key.name
        {
            reader.error("fallback-cycle", &item.spot, "a backend cannot be its own fallback");
        }
        if members.iter().any(|member| is_same(&member.object, &object)) {
            reader.warn("duplicate-name", &item.spot, "the backend appears twice; the first one is used");
            continue;
        }
        members.push(BackendMember { object });
    }
    members
}

/// Reports an error if an object is one of `others`, in whatever spelling.
pub(super) fn refuse_twice<'a>(
    object: &ObjectRef,
    mut others: impl Iterator<Item = &'a ObjectRef>,
    reader: &mut Reader,
) {
    if others.any(|other| is_same(other, object)) {
        reader.error("duplicate-name", &object.spot, "the backend appears twice");
    }
}

/// Returns `true` if two references mean the same object and port.
fn is_same(one: &ObjectRef, other: &ObjectRef) -> bool {
    let ObjectRef { spot: _, group, kind, namespace, name, port } = one;
    (group, kind, namespace, name, port)
        == (&other.group, &other.kind, &other.namespace, &other.name, &other.port)
}

/// Refuses fields that a backend with `fallback` cannot have.
fn check_fallback(fields: &Object<'_>, reader: &mut Reader) {
    for field in ["endpoints", "dns", "unix", "tls", "max_requests", "max_connections", "max_pending"] {
        if fields.has(field) {
            let message = format!("a backend with `fallback` cannot have `{field}`; set it on the members");
            reader.error("misplaced-field", fields.spot(), message);
        }
    }
    if fields.has("lb") {
        reader.warn("misplaced-field", fields.spot(), "the members of a `fallback` have their own `lb`");
    }
}

/// Reads `tls: true`, or an object with `sni` and `ca`.
fn read_tls(value: &Value<'_>, endpoints: &[StaticEndpoint], reader: &mut Reader) -> Option<NativeTls> {
    let (mut sni, mut ca_pem) = (single_host(endpoints), None);
    if let TreeValue::Bool(is_on) = value.tree.value() {
        if !is_on {
            return None;
        }
    } else {
        let mut fields = value.object(reader)?;
        if let Some(own) = fields.take("sni") {
            sni = Some(read_dns_name(&own, reader)?);
        }
        let (ca, pem) = (fields.take("ca"), fields.take("ca_pem"));
        if let (Some(_), Some(pem)) = (&ca, &pem) {
            reader.error("duplicate-field", &pem.spot, "`ca` and `ca_pem` are the same; set only one");
        }
        if let Some(ca) = ca.or(pem) {
            ca_pem = Some(read_certificates(&ca, reader)?);
        }
        fields.finish(reader);
    }
    let Some(sni) = sni else {
        let message = "the certificate cannot be verified without a name; set `sni`";
        reader.error("missing-field", &value.spot, message);
        return None;
    };
    Some(NativeTls { spot: value.spot.clone(), sni, ca_pem })
}

/// Reads certificates in PEM. A private key or the name of a file is refused.
fn read_certificates(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.text(reader)?;
    if text.contains("PRIVATE KEY-----") {
        let since = reader.n_findings();
        reader.error("private-key", &value.spot, "this is a private key; only certificates belong here");
        reader.make_sensitive(since);
        return None;
    }
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        let message = format!(
            "{} is not a certificate in PEM; write the certificate itself, not the name of a file, or put it into a ConfigMap that a BackendTLSPolicy names",
            echo(text)
        );
        reader.error("bad-certificate", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

/// The limit of a Kubernetes EndpointSlice.
const MAX_ENDPOINTS: usize = 1_000;

/// The depth to which clients follow fallbacks (gRFC A37).
const MAX_MEMBERS: usize = 16;

/// The same limit as for weights of routes.
const MAX_WEIGHT: i64 = 1_000_000;
