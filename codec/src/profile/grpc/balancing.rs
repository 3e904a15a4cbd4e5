//! The kinds of load balancing that gRPC supports (B182 to B184, B186 to B189).

use super::super::Effect::Rejected;
use super::super::Language;
use super::super::any::{is_typed_struct, short, type_of};
use super::super::rule::{Fault, Scope, enum_at, has, number_at};
use crate::encode::decode_any;
use crate::message::{Message, child, list};
use crate::path::Path;

/// The support of gRPC for a policy. Languages that lack it try the next one.
struct Kind {
    languages: &'static [Language],
    /// It distributes requests by the policy in this field.
    below: Option<&'static str>,
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
    let minimum = number_at(&config, "minimum_ring_size");
    let maximum = number_at(&config, "maximum_ring_size");
    let fault = Fault::new("B184", Rejected, "grpc-ring-hash");
    let at = "ring_hash_lb_config.minimum_ring_size";
    let is_bad =
        minimum.unwrap_or(DEFAULT_RING_SIZE) > maximum.unwrap_or(MAX_RING_SIZE) || minimum == Some(0);
    if is_bad {
        let text = "gRPC (C-core, java) rejects a minimum of 0 and one above the maximum";
        scope.report(fault.by(&[Language::Core, Language::Java]), path, at, text);
    } else if is_bad_in_java(minimum, maximum) {
        let text = "gRPC (java) rejects a maximum below the minimum, which is 1024 unless it is set";
        scope.report(fault.by(&[Language::Java]), path, at, text);
    }
    if minimum.max(maximum).is_some_and(|size| size > MAX_RING_SIZE) {
        let text = "gRPC (js) rejects a ring of more than 8,388,608 entries";
        scope.report(fault.by(&[Language::Js]), path, at, text);
    }
}

/// Rows B186 and B187: each language uses the first policy that it supports, even if its configuration is bad.
fn policies(policy: &Message, path: &Path<'_>, depth: usize, scope: &mut Scope<'_>) {
    scope.by_language(|language, scope| first_policy(language, policy, path, depth, scope));
}

fn first_policy(language: Language, policy: &Message, path: &Path<'_>, depth: usize, scope: &mut Scope<'_>) {
    let fault = Fault::new("B186", Rejected, "grpc-load-balancing-policy");
    if depth >= MAX_NESTING {
        let text = format!("gRPC rejects policies that nest more than {MAX_NESTING} deep");
        return scope.report(fault, path, "", text);
    }
    let list_path = path.field("policies");
    for (index, entry) in list(policy, "policies").iter().enumerate() {
        let Some(any) = child(entry, "typed_extension_config").and_then(|it| child(&it, "typed_config"))
        else {
            if language == Language::Core {
                let text = "gRPC (C-core) rejects a policy without `typed_config`";
                return scope.report(fault, &list_path.index(index), "typed_extension_config", text);
            }
            continue;
        };
        // A policy that an application may have registered itself.
        if is_typed_struct(&any) {
            return;
        }
        let name = type_of(scope.inner, &any);
        let kind = POLICIES.iter().find(|(known, _)| name.strip_prefix(PACKAGE) == Some(known));
        let Some((_, kind)) = kind.filter(|(_, kind)| kind.languages.contains(&language)) else { continue };
        let at = list_path.index(index);
        let config_path = at.field("typed_extension_config");
        let config_path = config_path.field("typed_config");
        let Some(content) = decode_any(scope.inner, &any) else { return };
        let Some(field) = kind.below else { return leaf(&name, &content, &config_path, scope) };
        let fault = Fault::new("B187", Rejected, "grpc-load-balancing-policy");
        let Some(below) = child(&content, field) else {
            let text = format!("gRPC rejects {} without `{field}`", short(&name));
            return scope.report(fault, &config_path, field, text);
        };
        if number_at(&content, "subset_size") == Some(0) {
            scope.report(fault, &config_path, "subset_size", "gRPC rejects subsets of size 0");
        }
        return first_policy(language, &below, &config_path.field(field), depth + 1, scope);
    }
    let text = "gRPC supports none of these policies and rejects the cluster; every language accepts RoundRobin, RingHash and WrrLocality";
    scope.report(fault, path, "policies", text);
}

/// Rows B183, B184 and B186: gRPC does not skip a policy that it supports because of a bad configuration.
fn leaf(name: &str, config: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if name.ends_with(".LeastRequest") && number_at(config, "choice_count").is_some_and(|n| n < 2) {
        let fault = Fault::new("B186", Rejected, "grpc-load-balancing-policy");
        scope.report(fault, path, "choice_count", "gRPC rejects a choice between less than 2 endpoints");
    }
    if !name.ends_with(".RingHash") {
        return;
    }
    let fault = Fault::new("B183", Rejected, "grpc-ring-hash");
    // XX_HASH is 1 here. 0 is the default, which means the same to C-core alone.
    let (fault, text) = match enum_at(config, "hash_function") {
        MURMUR_HASH => (fault, "gRPC rejects every hash function but XX_HASH"),
        DEFAULT_HASH => (
            fault.by(&[Language::Go, Language::Js, Language::Java]),
            "gRPC (go, js, java) rejects a ring hash that does not name its function",
        ),
        _ => return ring_sizes(config, path, scope),
    };
    scope.report_with(fault, path, "hash_function", text.to_owned(), Some("XX_HASH".to_owned()));
    ring_sizes(config, path, scope);
}

fn ring_sizes(config: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let fault = Fault::new("B184", Rejected, "grpc-ring-hash");
    for field in ["minimum_ring_size", "maximum_ring_size"] {
        if has(config, field) {
            let text =
                "gRPC (js) cannot read a size of a ring here, and rejects it; `lb_policy: RING_HASH` works";
            scope.report(fault.by(&[Language::Js]), path, field, text);
        }
    }
    let minimum = number_at(config, "minimum_ring_size");
    let maximum = number_at(config, "maximum_ring_size");
    let or = |size: Option<u64>, default| size.unwrap_or(default);
    let text = "gRPC rejects a minimum of 0 and one above the maximum";
    if or(minimum, DEFAULT_RING_SIZE) > or(maximum, MAX_RING_SIZE) || minimum == Some(0) {
        scope.report(fault.by(&[Language::Core]), path, "minimum_ring_size", text);
    }
    if is_bad_in_java(minimum, maximum) {
        scope.report(fault.by(&[Language::Java]), path, "minimum_ring_size", text);
    }
    // go reads 0 as its default.
    let or = |size: Option<u64>, missing, zero| match size {
        None => missing,
        Some(0) => zero,
        Some(size) => size,
    };
    let (low, high) =
        (or(minimum, DEFAULT_RING_SIZE, DEFAULT_RING_SIZE), or(maximum, MAX_RING_SIZE, RING_CAP));
    if low > high || high > MAX_RING_SIZE {
        scope.report(fault.by(&[Language::Go]), path, "minimum_ring_size", text);
    }
}

/// java reads larger sizes as its cap, and takes the cap for a missing maximum.
fn is_bad_in_java(minimum: Option<u64>, maximum: Option<u64>) -> bool {
    let low = minimum.unwrap_or(DEFAULT_RING_SIZE).min(RING_CAP);
    let high = maximum.unwrap_or(RING_CAP).min(RING_CAP);
    low == 0 || low > high
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
const DEFAULT_HASH: i32 = 0;
const MURMUR_HASH: i32 = 2;

const DEFAULT_RING_SIZE: u64 = 1024;

/// The same limit as in `validate.rules`.
const MAX_RING_SIZE: u64 = 8 << 20;

/// The cap of java, and what go reads in place of a maximum of 0.
const RING_CAP: u64 = 4096;

/// gRFC A52.
const MAX_NESTING: usize = 16;

const PACKAGE: &str = "envoy.extensions.load_balancing_policies.";

const ALL: &[Language] = &Language::ALL;
const WITHOUT_JS: &[Language] = &[Language::Core, Language::Go, Language::Java];

const POLICIES: [(&str, Kind); 7] = [
    ("round_robin.v3.RoundRobin", Kind { languages: ALL, below: None }),
    ("ring_hash.v3.RingHash", Kind { languages: ALL, below: None }),
    ("pick_first.v3.PickFirst", Kind { languages: WITHOUT_JS, below: None }),
    (
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        Kind { languages: WITHOUT_JS, below: None },
    ),
    ("wrr_locality.v3.WrrLocality", Kind { languages: ALL, below: Some("endpoint_picking_policy") }),
    (
        "random_subsetting.v3.RandomSubsetting",
        Kind { languages: &[Language::Core], below: Some("child_policy") },
    ),
    ("least_request.v3.LeastRequest", Kind { languages: &[Language::Go, Language::Java], below: None }),
];
