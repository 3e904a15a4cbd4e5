//! Listeners: their addresses, alone and together (rows D112 and D113).

use std::collections::HashMap;
use std::net::IpAddr;

use super::super::Effect::{Crashes, Differs, Rejected};
use super::super::rule::{Fault, Scope, Side, enum_at, has, number_at};
use super::super::{ProfileFinding, reach};
use super::chains;
use super::shared::{is_true, refuse};
use crate::diagnostic::{echo, echo_name};
use crate::inner::Inner;
use crate::message::{Message, child, list, text};
use crate::path::Path;
use xds_cache::{Profile, Resource};

const ROW: (&str, &str) = ("D113", "envoy-listener-address");

pub(super) fn listener(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "api_listener") {
        return;
    }
    if has(message, "internal_listener") {
        if has(message, "address") {
            let text = "Envoy rejects an internal listener that has an address";
            refuse(ROW, path, "address", text, scope);
        }
        let fault = Fault::new(ROW.0, Differs, ROW.1);
        let text =
            "Envoy rejects an internal listener unless its bootstrap has the extension `InternalListener`";
        scope.report(fault, path, "internal_listener", text);
    } else if !has(message, "address") {
        refuse(ROW, path, "address", "Envoy rejects a listener without an address", scope);
    }
    let mut is_udp = false;
    if let Some(found) = child(message, "address") {
        is_udp = address(&found, &path.field("address"), scope);
    }
    let list_path = path.field("additional_addresses");
    for (index, more) in list(message, "additional_addresses").iter().enumerate() {
        let path = list_path.index(index);
        match child(more, "address") {
            Some(found) => _ = address(&found, &path.field("address"), scope),
            None => {
                let text = "Envoy 1.40 crashes at an additional address of a listener that is empty";
                scope.report(Fault::new(ROW.0, Crashes, ROW.1), &path, "address", text);
            }
        }
    }
    let is_quic = has(message, "udp_listener_config.quic_options");
    let has_chains = has(message, "filter_chains") || has(message, "default_filter_chain");
    if is_udp && !is_quic && has(message, "filter_chains") {
        let text = "Envoy rejects filter chains in a UDP listener without `udp_listener_config.quic_options`";
        refuse(ROW, path, "filter_chains", text, scope);
    }
    if !is_udp && !has_chains {
        refuse(
            ("D114", "envoy-filter-chains"),
            path,
            "filter_chains",
            "Envoy rejects a listener without filter chains",
            scope,
        );
    }
    if let Some(keepalive) = child(message, "tcp_keepalive") {
        let path = path.field("tcp_keepalive");
        for (field, most) in
            [("keepalive_probes", 127), ("keepalive_time", 32_767), ("keepalive_interval", 32_767)]
        {
            if number_at(&keepalive, field).is_some_and(|n| n > most) {
                let text = format!("Linux takes at most {most} here, and Envoy rejects the listener");
                refuse(ROW, &path, field, text, scope);
            }
        }
    }
    chains::filter_chains(message, is_quic, path, scope);
}

/// Checks an address of a listener, and returns `true` for UDP.
fn address(address: &Message, path: &Path<'_>, scope: &mut Scope<'_>) -> bool {
    if let Some(socket) = child(address, "socket_address") {
        let path = path.field("socket_address");
        let ip = text(&socket, "address").unwrap_or_default();
        let parsed = ip.parse::<IpAddr>();
        if has(&socket, "named_port") {
            let text = "Envoy rejects a port by name in a listener";
            refuse(ROW, &path, "named_port", text, scope);
        }
        if has(&socket, "resolver_name") {
            let text = "Envoy rejects a resolver that it does not know; it needs none for an IP address";
            refuse(ROW, &path, "resolver_name", text, scope);
        } else if parsed.is_err() && !ip.is_empty() {
            let text = format!("Envoy rejects a listener at {}, which is no IP address", echo(&ip));
            refuse(ROW, &path, "address", text, scope);
        }
        let is_mapped = match parsed {
            Ok(IpAddr::V6(ip)) => ip.is_unspecified() || ip.to_ipv4_mapped().is_some(),
            Ok(IpAddr::V4(_)) | Err(_) => false,
        };
        if is_true(&socket, "ipv4_compat") && !is_mapped {
            let text =
                "Envoy rejects `ipv4_compat` for every address but `::` and IPv4 addresses written as IPv6";
            refuse(ROW, &path, "ipv4_compat", text, scope);
        }
        return enum_at(&socket, "protocol") == UDP;
    }
    if let Some(pipe) = child(address, "pipe") {
        let path = path.field("pipe");
        let socket = text(&pipe, "path").unwrap_or_default();
        if socket.len() > MAX_SOCKET_PATH {
            let text =
                format!("Envoy rejects a path of {} bytes; the limit is {MAX_SOCKET_PATH}", socket.len());
            refuse(ROW, &path, "path", text, scope);
        }
        if socket.starts_with('@') && number_at(&pipe, "mode").is_some_and(|mode| mode != 0) {
            refuse(ROW, &path, "mode", "Envoy rejects a mode for an abstract socket", scope);
        }
    }
    if has(address, "envoy_internal_address") {
        let text = "Envoy rejects an internal address here; the listener needs `internal_listener` instead"
            .to_owned();
        let suggestion = Some("internal_listener: {}".to_owned());
        let fault = Fault::new(ROW.0, Rejected, ROW.1);
        scope.report_with(fault, path, "envoy_internal_address", text, suggestion);
    }
    false
}

/// Two listeners must not have an address in common (row D112).
pub(super) fn together(inner: &Inner, listeners: &[&Resource]) -> Vec<ProfileFinding> {
    let mut first: HashMap<(String, String), &Resource> = HashMap::new();
    let mut findings = Vec::new();
    let mut sorted = listeners.to_vec();
    sorted.sort_by(|a, b| a.key().cmp(b.key()));
    for resource in sorted {
        let Some(message) = reach::decode(inner, resource) else { continue };
        let mut scope = Scope::new(inner, Profile::Envoy, Side::Client, resource);
        let more = list(&message, "additional_addresses");
        let addresses =
            [child(&message, "address")].into_iter().chain(more.iter().map(|one| child(one, "address")));
        for (index, address) in addresses.enumerate() {
            let Some(address) = address.as_ref().and_then(identity) else { continue };
            let shown = address.0.clone();
            let other = *first.entry(address).or_insert(resource);
            if std::ptr::eq(other, resource) {
                continue;
            }
            let fault = Fault::new("D112", Rejected, "envoy-duplicate-address");
            let text = format!(
                "Envoy rejects a second listener at {shown}; the listener {} has the same address",
                echo_name(other.name())
            );
            match index {
                0 => scope.report(fault, &Path::Root, "address", text),
                _ => {
                    let list_path = Path::Root.field("additional_addresses");
                    scope.report(fault, &list_path.index(index - 1), "address", text);
                }
            }
        }
        findings.append(&mut scope.findings);
    }
    findings
}

/// An address as Envoy compares it, with its protocol. Port 0 is a new port each time.
fn identity(address: &Message) -> Option<(String, String)> {
    if let Some(pipe) = child(address, "pipe") {
        return Some((text(&pipe, "path")?, "pipe".to_owned()));
    }
    let socket = child(address, "socket_address")?;
    let ip: IpAddr = text(&socket, "address")?.parse().ok()?;
    let port = number_at(&socket, "port_value").filter(|port| *port != 0)?;
    let ip = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let namespace = text(&socket, "network_namespace_filepath").unwrap_or_default();
    Some((format!("{ip}:{port}"), format!("{} {namespace}", enum_at(&socket, "protocol"))))
}

const UDP: i32 = 1;

/// The size of `sun_path` without its end.
const MAX_SOCKET_PATH: usize = 107;
