//! Two RouteConfigurations: the pairs of virtual hosts that requests meet.

use std::collections::HashSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::config::route::v3::virtual_host::TlsRequirementType;

use crate::diff::report::{ClassKind, Findings, Found};
use crate::diff::routes::{self, Pair};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::semantics::Difference;
use crate::space::destination::differing;
use crate::space::flat::Flat;
use crate::space::host::witnesses;
use crate::space::universe::PathRules;
use crate::space::values::Arrival;
use crate::table::{RouteTable, VirtualHost};

/// Compares two tables for all hosts.
pub(super) fn compare(
    tables: [&Arc<RouteTable>; 2],
    arrival: &Arrival<'_>,
    rules: PathRules,
    findings: &mut Findings,
) {
    let about = tables[1].message.name.clone();
    if is_settled_as_a_whole(tables, arrival, &about, findings) {
        return;
    }
    let domains =
        tables.into_iter().flat_map(|table| table.hosts.iter().flat_map(|host| &host.message.domains));
    let (hosts, missing) = witnesses(domains.map(String::as_str), arrival.semantics);
    if let Some(missing) = missing {
        findings.leave(&about, missing);
    }
    let ignores = tables.map(|table| table.message.ignore_port_in_host_matching);
    let mut seen: HashSet<[Option<usize>; 2]> = HashSet::new();
    let with_port = hosts.iter().filter(|_| ignores[0] != ignores[1]).map(|host| format!("{host}:8080"));
    for host in hosts.iter().cloned().chain(with_port) {
        let found = tables.map(|table| arrival.taker(table, &host));
        if seen.insert(found) {
            let pair = [0, 1].map(|side: usize| found[side].and_then(|at| tables[side].hosts.get(at)));
            compare_hosts(pair, &host, arrival, rules, findings);
        }
    }
    on_demand_is_left(tables, &about, findings);
}

/// Compares the two tables for one host, that of a gRPC client's target.
pub(super) fn compare_for(
    tables: [&Arc<RouteTable>; 2],
    host: &str,
    arrival: &Arrival<'_>,
    findings: &mut Findings,
) {
    if is_settled_as_a_whole(tables, arrival, host, findings) {
        return;
    }
    let pair = tables.map(|table| arrival.taker(table, host).and_then(|at| table.hosts.get(at)));
    compare_hosts(pair, host, arrival, PathRules::default(), findings);
}

/// Everything that concerns all virtual hosts. Returns `true` if nothing is left to compare.
fn is_settled_as_a_whole(
    tables: [&Arc<RouteTable>; 2],
    arrival: &Arrival<'_>,
    about: &str,
    findings: &mut Findings,
) -> bool {
    let refused = tables.map(|table| table.refused.as_ref());
    match refused {
        [Some(_), Some(_)] => return true,
        [None, None] => {}
        [Some(reason), None] | [None, Some(reason)] => {
            let host = tables[1].hosts.iter().flat_map(|host| &host.message.domains).next();
            let host = host.map(|domain| domain.replace('*', "any")).unwrap_or_default();
            let what = vec![format!("the client refuses one of both: {}", reason.message)];
            findings.found.push(whole(ClassKind::Destination, what, &host, arrival, about));
            return true;
        }
    }
    if tables.iter().any(|table| !table.message.vhost_header.is_empty()) {
        findings.leave(about, "a header names the virtual host");
        return true;
    }
    let bare = |table: &RouteTable| RouteConfiguration {
        name: String::new(),
        typed_per_filter_config: Default::default(),
        ..table.message.clone()
    };
    let mut names = Vec::new();
    if tables[0].message != tables[1].message {
        names = differing(&bare(tables[0]), &bare(tables[1]));
        if tables[0].message.typed_per_filter_config != tables[1].message.typed_per_filter_config {
            names.push("typed_per_filter_config".to_owned());
        }
        names.retain(|name| !ROUTING.contains(&&**name));
    }
    if !names.is_empty() {
        let what = names.into_iter().map(|name| format!("route configuration: {name}")).collect();
        let host = tables[1].hosts.iter().flat_map(|host| &host.message.domains).next();
        let host = host.map(|domain| domain.replace('*', "any")).unwrap_or_default();
        findings.found.push(whole(ClassKind::Treatment, what, &host, arrival, about));
    }
    false
}

/// Fields of a RouteConfiguration that are compared by what they do.
const ROUTING: &[&str] =
    &["ignore_port_in_host_matching", "ignore_path_parameters_in_path_matching", "vhost_header"];

/// A class of all requests to a host.
fn whole(kind: ClassKind, what: Vec<String>, host: &str, arrival: &Arrival<'_>, about: &str) -> Found {
    Found {
        kind,
        what,
        cluster: None,
        example: Some(Request { authority: host.to_owned(), ..arrival.base.clone() }),
        shares: None,
        share: Ratio::ONE,
        when: Vec::new(),
        parts: 1,
        about: about.to_owned(),
        is_linked: false,
    }
}

fn compare_hosts(
    pair: [Option<&VirtualHost>; 2],
    host: &str,
    arrival: &Arrival<'_>,
    rules: PathRules,
    findings: &mut Findings,
) {
    let about = format!("host {host}");
    let messages = pair.map(|one| one.map(|one| &one.message));
    if let [Some(old), Some(new)] = pair
        && is_same(old, new)
    {
        findings.unchanged_hosts += 1;
        return;
    }
    let mut base = Request { authority: host.to_owned(), ..arrival.base.clone() };
    if let [Some(old), Some(new)] = messages {
        let names = settings(old, new);
        if !names.is_empty() {
            let what = names.into_iter().map(|name| format!("virtual host: {name}")).collect();
            findings.found.push(whole(ClassKind::Treatment, what, host, arrival, &about));
        }
    }
    let is_proxy = arrival.semantics.has(Difference::ActsAsProxy);
    let requires = messages.map(|message| {
        is_proxy && message.is_some_and(|message| message.require_tls() != TlsRequirementType::None)
    });
    if requires[0] != requires[1] {
        let what = vec!["requests in plaintext are redirected to https on one side".to_owned()];
        findings.found.push(whole(ClassKind::Destination, what, host, arrival, &about));
    }
    if requires[0] || requires[1] {
        base = base.with("x-forwarded-proto", "https");
    }
    let is_same_tree = |old: &VirtualHost, new: &VirtualHost| {
        old.tree.is_some() && old.message.matcher == new.message.matcher
    };
    if matches!(pair, [Some(old), Some(new)] if is_same_tree(old, new)) {
        return;
    }
    let arrival = Arrival { base, ..arrival.clone() };
    let flat = match pair.map(|one| Flat::of_host(one, arrival.semantics)) {
        [Ok(old), Ok(new)] => [old, new],
        [Err(why), _] | [_, Err(why)] => {
            findings.leave(&about, format!("a tree of matchers chooses the route: {why}"));
            return;
        }
    };
    let waits = arrival.semantics.has(Difference::NoHostWaits);
    let routes = [0, 1].map(|side: usize| match &flat[side] {
        Some(flat) => flat.routes.as_slice(),
        None => pair[side].map(|one| one.routes.as_slice()).unwrap_or_default(),
    });
    let ends = pair.map(|one| if one.is_none() && waits { "waits" } else { "nothing" });
    routes::compare(&Pair { routes, ends, about }, &arrival, rules, findings);
}

fn is_same(old: &VirtualHost, new: &VirtualHost) -> bool {
    old.message == new.message
        && old.routes.len() == new.routes.len()
        && old.routes.iter().zip(new.routes.iter()).all(|(old, new)| old.message == new.message)
}

/// The settings of a virtual host that differ.
fn settings(old: &proto::VirtualHost, new: &proto::VirtualHost) -> Vec<String> {
    let bare = |message: &proto::VirtualHost| proto::VirtualHost {
        name: String::new(),
        domains: Vec::new(),
        // What it chooses is compared.
        matcher: None,
        require_tls: 0,
        typed_per_filter_config: Default::default(),
        ..message.clone()
    };
    let (old_bare, new_bare) = (bare(old), bare(new));
    let mut names = if old_bare == new_bare { Vec::new() } else { differing(&old_bare, &new_bare) };
    if old.typed_per_filter_config != new.typed_per_filter_config {
        names.push("typed_per_filter_config".to_owned());
    }
    names
}

/// Virtual hosts on demand are compared one by one by the caller; here only the switch itself is told.
fn on_demand_is_left(tables: [&Arc<RouteTable>; 2], about: &str, findings: &mut Findings) {
    let asks = tables.map(|table| table.message.vhds.is_some());
    if asks[0] != asks[1] {
        findings.leave(about, "one of both asks for virtual hosts on demand");
    }
}
