//! Filters with rules of their own (row D125).

use std::net::IpAddr;

use super::super::rule::{Scope, duration_at, has, value_at};
use super::shared::refuse;
use crate::diagnostic::{echo, echo_name};
use crate::message::{Message, child, entries, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D125", "envoy-filter");

/// Checks that requirements name providers that exist, and that inline keys are JSON.
pub(super) fn jwt(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let providers: Vec<_> = entries(message, "providers").collect();
    let known: Vec<&str> = providers.iter().map(|(name, _)| name.as_str()).collect();
    let providers_path = path.field("providers");
    for (name, provider) in &providers {
        for field in ["local_jwks.inline_string", "local_jwks.inline_bytes"] {
            let keys = value_at(provider, field);
            let bytes = keys.as_ref().and_then(|keys| keys.as_bytes());
            let bytes = bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let keys = bytes.or_else(|| Some(keys?.as_str()?.to_owned()));
            if let Some(wrong) = keys.and_then(|keys| wrong_keys(&keys)) {
                let text = format!("Envoy rejects a provider whose keys {wrong}");
                refuse(ROW, &providers_path.key(name), field, text, scope);
            }
        }
    }
    let map: Vec<_> = entries(message, "requirement_map").collect();
    let map_path = path.field("requirement_map");
    for (name, requirement) in &map {
        require(requirement, &known, &map_path.key(name), 0, scope);
    }
    let rules_path = path.field("rules");
    for (index, rule) in list(message, "rules").iter().enumerate() {
        let path = rules_path.index(index);
        if let Some(requirement) = child(rule, "requires") {
            require(&requirement, &known, &path.field("requires"), 0, scope);
        }
        if let Some(name) =
            text(rule, "requirement_name").filter(|name| !map.iter().any(|(known, _)| known == name))
        {
            let text = format!(
                "Envoy rejects the requirement {}, which `requirement_map` does not have",
                echo_name(&name)
            );
            refuse(ROW, &path, "requirement_name", text, scope);
        }
    }
    let Some(states) = child(message, "filter_state_rules") else { return };
    let states_path = path.field("filter_state_rules");
    let path = states_path.field("requires");
    for (name, requirement) in entries(&states, "requires") {
        require(&requirement, &known, &path.key(&name), 0, scope);
    }
}

fn require(requirement: &Message, known: &[&str], path: &Path<'_>, depth: usize, scope: &mut Scope<'_>) {
    let audiences = child(requirement, "provider_and_audiences");
    let named = [
        ("provider_name", text(requirement, "provider_name")),
        (
            "provider_and_audiences.provider_name",
            audiences.map(|it| text(&it, "provider_name").unwrap_or_default()),
        ),
    ];
    for (field, name) in named {
        let Some(name) = name.filter(|name| !known.contains(&name.as_str())) else { continue };
        let text =
            format!("Envoy rejects the provider {}, which `providers` does not have", echo_name(&name));
        refuse(ROW, path, field, text, scope);
    }
    if depth >= MAX_NESTING {
        return;
    }
    for field in ["requires_any", "requires_all"] {
        let Some(nested) = child(requirement, field) else { continue };
        let nested_path = path.field(field);
        let list_path = nested_path.field("requirements");
        for (index, one) in list(&nested, "requirements").iter().enumerate() {
            require(one, known, &list_path.index(index), depth + 1, scope);
        }
    }
}

/// The fault of a JWKS, if it has one.
fn wrong_keys(keys: &str) -> Option<&'static str> {
    let Ok(json) = serde_json::from_str::<serde_json::Value>(keys) else {
        // Keys by certificates are PEM.
        return (!keys.contains("-----BEGIN")).then_some("are no JSON");
    };
    match json.get("keys").and_then(|keys| keys.as_array()) {
        None => Some("have no list `keys`"),
        Some(keys) if keys.is_empty() => Some("are none"),
        Some(_) => None,
    }
}

/// The shortest interval of a token bucket is 50 ms.
pub(super) fn local_rate_limit(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let too_short = |bucket: &Message| {
        duration_at(bucket, "fill_interval").is_some_and(|it| (MILLISECOND..MIN_INTERVAL).contains(&it))
    };
    if child(message, "token_bucket").is_some_and(|bucket| too_short(&bucket)) {
        let text = "Envoy rejects a token bucket that is filled more often than every 50 ms";
        refuse(ROW, path, "token_bucket.fill_interval", text, scope);
    }
    let list_path = path.field("descriptors");
    let mut seen: Vec<Vec<(Option<String>, Option<String>)>> = Vec::new();
    for (index, descriptor) in list(message, "descriptors").iter().enumerate().take(MAX_DESCRIPTORS) {
        let pairs: Vec<_> =
            list(descriptor, "entries").iter().map(|one| (text(one, "key"), text(one, "value"))).collect();
        if seen.contains(&pairs) {
            refuse(
                ROW,
                &list_path.index(index),
                "entries",
                "Envoy rejects a descriptor that is there twice",
                scope,
            );
        }
        seen.push(pairs);
    }
}

/// Only one field has the default code.
pub(super) fn lua(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "inline_code") && has(message, "default_source_code") {
        refuse(ROW, path, "inline_code", "Envoy rejects `inline_code` beside `default_source_code`", scope);
    }
}

/// A range of ports ends after it begins.
pub(super) fn permission(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(range) = child(message, "destination_port_range") else { return };
    let bound = |field| value_at(&range, field).and_then(|value| value.as_i32()).unwrap_or_default();
    if bound("start") >= bound("end") {
        let text = "Envoy rejects a range of ports whose end is not above its start; the end is one more than the last port";
        refuse(ROW, path, "destination_port_range", text, scope);
    }
}

/// A range of addresses has an address.
pub(super) fn cidr_range(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let address = text(message, "address_prefix").unwrap_or_default();
    if address.parse::<IpAddr>().is_err() {
        let text =
            format!("Envoy rejects a range of addresses at {}, which is no IP address", echo(&address));
        refuse(ROW, path, "address_prefix", text, scope);
    }
}

/// In nanoseconds. Less counts as none, and is taken.
const MILLISECOND: i128 = 1_000_000;
const MIN_INTERVAL: i128 = 50 * MILLISECOND;

/// The limit of compared descriptors.
const MAX_DESCRIPTORS: usize = 256;

/// The limit of requirements in each other. Nobody writes more.
const MAX_NESTING: usize = 32;
