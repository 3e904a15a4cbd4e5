//! The kinds of load balancing that gRPC supports (B182 to B184, B186 to B189).

use super::super::Effect::Rejected;
use super::super::Language;
use super::super::any::{short, type_of};
use super::super::rule::{Fault, Scope, enum_at, has, number_at};
use crate::encode::decode_any;
use crate::message::{Message, child, list};
use crate::path::Path;

/// The support of gRPC for a policy.
enum Kind {
    /// Every language has it.
    Leaf,
    /// Every language has it. It distributes requests within a locality by the policy in this field.
    Parent(&'static str),
    /// Only go and java support it. The others try the next one.
    GoAndJava,
}

/// Checks `lb_policy` and its settings.
pub(super) fn balancing(cluster: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let has_list = has(cluster, "load_balancing_policy");
    lb_policy(cluster, has_list, path, scope);
    if !has_list {
        return;
    }
    if let Some(policy) = child(cluster, "load_balancing_policy") {
        policies(&policy, &path.field("load_balancing_policy"), 0, scope);
    }
}

fn lb_policy(cluster: &Message, has_list: bool, path: &Path<'_>, scope: &mut Scope<'_>) {
    let number = enum_at(cluster, "lb_policy");
    let name = LB_POLICIES.iter().find(|(known, _)| *known == number).map_or("this", |(_, name)| *name);
    let is_aggregate = has(cluster, "cluster_type");
    let suggestion = Some("ROUND_ROBIN".to_owned());
    match number {
        ROUND_ROBIN => {}
        RING_HASH if !has_list => ring_hash(cluster, path, scope),
        RING_HASH => {}
        // Only C-core and js do not support it, and they read the list first.
        LEAST_REQUEST if has_list => {}
        LEAST_REQUEST => {
            let fault = Fault::new("B182", Rejected, "grpc-lb-policy").by(&[Language::Core, Language::Js]);
            let text = "gRPC (C-core, js) rejects LEAST_REQUEST; go and java accept it".to_owned();
            scope.report_with(fault, path, "lb_policy", text, suggestion);
        }
        CLUSTER_PROVIDED if is_aggregate => {
            let fault = Fault::new("B189", Rejected, "grpc-aggregate-lb-policy").by(&[
                Language::Go,
                Language::Java,
                Language::Core,
                Language::Js,
            ]);
            let text =
                "gRPC (go, java, C-core, js) rejects an aggregate cluster with CLUSTER_PROVIDED, and Envoy requires it: give each kind of client its own cluster"
                    .to_owned();
            scope.report_with(fault, path, "lb_policy", text, suggestion);
        }
        _ if has_list => {
            let fault = Fault::new("B188", Rejected, "grpc-lb-policy").by(&[Language::Go]);
            let text = format!("gRPC (go) rejects {name} although `load_balancing_policy` is set");
            scope.report_with(fault, path, "lb_policy", text, suggestion);
        }
        _ => {
            let fault = Fault::new("B182", Rejected, "grpc-lb-policy");
            let text = format!("gRPC rejects {name}; it accepts ROUND_ROBIN and RING_HASH");
            scope.report_with(fault, path, "lb_policy", text, suggestion);
        }
    }
}

/// Rows B183 and B184.
fn ring_hash(cluster: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(config) = child(cluster, "ring_hash_lb_config") else { return };
    if enum_at(&config, "hash_function") != XX_HASH {
        let fault = Fault::new("B183", Rejected, "grpc-ring-hash");
        let text = "gRPC rejects every hash function but XX_HASH".to_owned();
        scope.report_with(fault, path, "ring_hash_lb_config.hash_function", text, Some("XX_HASH".to_owned()));
    }
    let minimum = number_at(&config, "minimum_ring_size").unwrap_or(DEFAULT_RING_SIZE);
    let maximum = number_at(&config, "maximum_ring_size").unwrap_or(MAX_RING_SIZE);
    if minimum > maximum || minimum == 0 {
        let fault = Fault::new("B184", Rejected, "grpc-ring-hash").by(&[Language::Core]);
        let text = "gRPC (C-core) rejects a minimum of 0 and one above the maximum";
        scope.report(fault, path, "ring_hash_lb_config.minimum_ring_size", text);
    }
}

/// Rows B186 and B187: gRPC uses the first policy that it supports, even if its configuration is bad.
fn policies(policy: &Message, path: &Path<'_>, depth: usize, scope: &mut Scope<'_>) {
    let fault = Fault::new("B186", Rejected, "grpc-load-balancing-policy");
    if depth >= MAX_NESTING {
        let text = format!("gRPC rejects policies that nest more than {MAX_NESTING} deep");
        return scope.report(fault, path, "", text);
    }
    let list_path = path.field("policies");
    let mut n_partly = 0;
    for (index, entry) in list(policy, "policies").iter().enumerate() {
        let Some(any) = child(entry, "typed_extension_config").and_then(|it| child(&it, "typed_config"))
        else {
            continue;
        };
        let name = type_of(scope.inner, &any);
        // A policy that an application registers itself.
        let is_custom = !name.starts_with("envoy.");
        let kind = POLICIES.iter().find(|(known, _)| name.strip_prefix(PACKAGE) == Some(known));
        let at = list_path.index(index);
        match kind.map(|(_, kind)| kind) {
            _ if is_custom => return,
            None => {}
            Some(Kind::GoAndJava) => n_partly += 1,
            Some(Kind::Leaf) => return leaf(&name, &any, &at, scope),
            Some(Kind::Parent(field)) => {
                let Some(content) = decode_any(scope.inner, &any) else { return };
                let config_path = at.field("typed_extension_config");
                let config_path = config_path.field("typed_config");
                let Some(below) = child(&content, field) else {
                    let fault = Fault::new("B187", Rejected, "grpc-load-balancing-policy");
                    let text = format!("gRPC rejects {} without `{field}`", short(&name));
                    return scope.report(fault, &config_path, field, text);
                };
                if number_at(&content, "subset_size") == Some(0) {
                    let fault = Fault::new("B187", Rejected, "grpc-load-balancing-policy");
                    scope.report(fault, &config_path, "subset_size", "gRPC rejects subsets of size 0");
                }
                return policies(&below, &config_path.field(field), depth + 1, scope);
            }
        }
    }
    let (fault, text) = match n_partly {
        0 => (
            fault,
            "gRPC supports none of these policies and rejects the cluster; it accepts RoundRobin, RingHash, WrrLocality, PickFirst",
        ),
        _ => (
            fault.by(&[Language::Core, Language::Js]),
            "gRPC (C-core, js) supports none of these policies and rejects the cluster; go and java support LeastRequest",
        ),
    };
    scope.report(fault, path, "policies", text);
}

/// Row B186: gRPC does not skip a policy that it supports because of a bad configuration.
fn leaf(name: &str, any: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(config) = decode_any(scope.inner, any) else { return };
    // XX_HASH is 1 here, and 0 is the default, which means the same.
    if name.ends_with(".RingHash") && enum_at(&config, "hash_function") == MURMUR_HASH {
        let fault = Fault::new("B183", Rejected, "grpc-ring-hash");
        let text = "gRPC rejects every hash function but XX_HASH".to_owned();
        let path_of = "typed_extension_config.typed_config.hash_function";
        scope.report_with(fault, path, path_of, text, Some("XX_HASH".to_owned()));
    }
}

const ROUND_ROBIN: i32 = 0;
const LEAST_REQUEST: i32 = 1;
const RING_HASH: i32 = 2;
const CLUSTER_PROVIDED: i32 = 6;

const LB_POLICIES: [(i32, &str); 4] = [
    (3, "RANDOM"),
    (5, "MAGLEV"),
    (CLUSTER_PROVIDED, "CLUSTER_PROVIDED"),
    (7, "LOAD_BALANCING_POLICY_CONFIG"),
];

const XX_HASH: i32 = 0;
const MURMUR_HASH: i32 = 2;

const DEFAULT_RING_SIZE: u64 = 1024;

/// The same limit as in `validate.rules`.
const MAX_RING_SIZE: u64 = 8 << 20;

/// gRFC A52.
const MAX_NESTING: usize = 16;

const PACKAGE: &str = "envoy.extensions.load_balancing_policies.";

const POLICIES: [(&str, Kind); 7] = [
    ("round_robin.v3.RoundRobin", Kind::Leaf),
    ("ring_hash.v3.RingHash", Kind::Leaf),
    ("pick_first.v3.PickFirst", Kind::Leaf),
    ("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", Kind::Leaf),
    ("wrr_locality.v3.WrrLocality", Kind::Parent("endpoint_picking_policy")),
    ("random_subsetting.v3.RandomSubsetting", Kind::Parent("child_policy")),
    ("least_request.v3.LeastRequest", Kind::GoAndJava),
];
