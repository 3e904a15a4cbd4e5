//! Cluster load assignments: addresses and drops (rows D50 and D124).

use std::net::IpAddr;

use super::super::Effect::Rejected;
use super::super::rule::{Fault, Scope, enum_at, has, number_at};
use super::shared::refuse;
use crate::diagnostic::echo_name;
use crate::message::{Message, child, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D124", "envoy-load-assignment");

pub(super) fn load_assignment(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(policy) = child(message, "policy") else { return };
    let policy_path = path.field("policy");
    let list_path = policy_path.field("drop_overloads");
    for (index, drop) in list(&policy, "drop_overloads").iter().enumerate() {
        let path = list_path.index(index);
        if index == 1 {
            refuse(ROW, &path, "", "Envoy rejects more than one category of dropped requests", scope);
        }
        let Some(share) = child(drop, "drop_percentage") else { continue };
        let denominator = match enum_at(&share, "denominator") {
            1 => 10_000,
            2 => 1_000_000,
            _ => 100,
        };
        if number_at(&share, "numerator").is_some_and(|numerator| numerator > denominator) {
            refuse(
                ROW,
                &path,
                "drop_percentage",
                "Envoy rejects a share of dropped requests above 100 %",
                scope,
            );
        }
    }
}

/// Row D50: only DNS clusters accept host names. Other clusters need an address with a port for each endpoint.
pub(super) fn addresses(assignment: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let localities_path = path.field("endpoints");
    for (index, locality) in list(assignment, "endpoints").iter().enumerate() {
        let locality_path = localities_path.index(index);
        let list_path = locality_path.field("lb_endpoints");
        for (at, endpoint) in list(locality, "lb_endpoints").iter().enumerate() {
            let path = list_path.index(at);
            let host = child(endpoint, "endpoint");
            let Some(address) = host.as_ref().and_then(|host| child(host, "address")) else {
                let text = "Envoy rejects an endpoint without an address";
                refuse(ROW, &path, "endpoint.address", text, scope);
                continue;
            };
            let endpoint_path = path.field("endpoint");
            self::address(&address, &endpoint_path.field("address"), scope);
            let more_path = endpoint_path.field("additional_addresses");
            let more = host.map(|host| list(&host, "additional_addresses")).unwrap_or_default();
            for (index, more) in more.iter().enumerate() {
                let path = more_path.index(index);
                let Some(address) = child(more, "address") else {
                    let text = "Envoy rejects an additional address that is none";
                    refuse(ROW, &path, "address", text, scope);
                    continue;
                };
                self::address(&address, &path.field("address"), scope);
            }
        }
    }
}

/// Row D50: a DNS cluster resolves names itself.
pub(super) fn no_resolver(assignment: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let localities_path = path.field("endpoints");
    for (index, locality) in list(assignment, "endpoints").iter().enumerate() {
        let locality_path = localities_path.index(index);
        let list_path = locality_path.field("lb_endpoints");
        for (at, endpoint) in list(locality, "lb_endpoints").iter().enumerate() {
            if has(endpoint, "endpoint.address.socket_address.resolver_name") {
                let text = "Envoy rejects a resolver in a cluster that resolves names by DNS";
                let field = "endpoint.address.socket_address.resolver_name";
                refuse(ROW, &list_path.index(at), field, text, scope);
            }
        }
    }
}

fn address(address: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(socket) = child(address, "socket_address") else { return };
    if has(&socket, "network_namespace_filepath") {
        let text = "Envoy rejects an endpoint in a network namespace";
        refuse(ROW, path, "socket_address.network_namespace_filepath", text, scope);
    }
    if let Some(name) = text(&socket, "resolver_name") {
        if name != "envoy.ip" {
            let text = format!("Envoy rejects the resolver {}, which it does not know", echo_name(&name));
            refuse(ROW, path, "socket_address.resolver_name", text, scope);
        }
        return;
    }
    if text(&socket, "address").is_none_or(|text| text.parse::<IpAddr>().is_err()) {
        let fault = Fault::new("D50", Rejected, "envoy-address");
        let text = "Envoy accepts host names only in clusters of type STRICT_DNS and LOGICAL_DNS";
        scope.report(fault, path, "socket_address.address", text);
    } else if has(&socket, "named_port") {
        refuse(ROW, path, "socket_address.named_port", "Envoy rejects a port by name", scope);
    }
}
