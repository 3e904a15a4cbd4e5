//! HTTP connection managers (row D117).

use std::collections::{BTreeMap, HashMap};

use super::super::rule::{Scope, has, number_at};
use super::chains;
use super::shared::{MANAGER_ROW as ROW, is_true, refuse};
use crate::diagnostic::echo;
use crate::message::{Message, child, list, text};
use crate::path::Path;

pub(super) fn manager(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    chains::http_filters(&list(message, "http_filters"), &path.field("http_filters"), scope);
    let list_path = path.field("upgrade_configs");
    let mut names = HashMap::new();
    for (index, upgrade) in list(message, "upgrade_configs").iter().enumerate() {
        let path = list_path.index(index);
        chains::http_filters(&list(upgrade, "filters"), &path.field("filters"), scope);
        let name = text(upgrade, "upgrade_type").unwrap_or_default();
        if let Some(first) = names.insert(name.to_ascii_lowercase(), index) {
            let text =
                format!("Envoy rejects the upgrade {} twice; upgrade {first} is the same one", echo(&name));
            refuse(ROW, &path, "upgrade_type", text, scope);
        }
    }
    if has(message, "original_ip_detection_extensions") {
        for field in ["use_remote_address", "xff_num_trusted_hops"] {
            if is_true(message, field) || number_at(message, field).is_some_and(|n| n > 0) {
                let text = format!("Envoy rejects `{field}` beside `original_ip_detection_extensions`");
                refuse(ROW, path, field, text, scope);
            }
        }
    }
    const MOST: &str = "common_http_protocol_options.max_response_headers_kb";
    if has(message, MOST) {
        refuse(ROW, path, MOST, "Envoy takes `max_response_headers_kb` in clusters alone", scope);
    }
    if is_true(message, "strip_matching_host_port") && is_true(message, "strip_any_host_port") {
        let text = "Envoy rejects `strip_any_host_port` beside `strip_matching_host_port`";
        refuse(ROW, path, "strip_any_host_port", text, scope);
    }
}

/// Settings of HTTP/2 by number must not repeat those with a name.
pub(super) fn http2(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("custom_settings_parameters");
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for (index, setting) in list(message, "custom_settings_parameters").iter().enumerate() {
        let path = list_path.index(index);
        let number = number_at(setting, "identifier").unwrap_or_default();
        let value = number_at(setting, "value").unwrap_or_default();
        let named = NAMED.iter().find(|(known, _)| *known == number).map(|(_, field)| *field);
        let text = match named {
            Some("allow_connect") => "Envoy accepts this setting only as `allow_connect`".to_owned(),
            Some(field) if has(message, field) => {
                format!("Envoy rejects this setting beside `{field}`, which is the same one")
            }
            _ if number == PUSH && value != 0 => "Envoy rejects server push".to_owned(),
            _ if seen.insert(number, value).is_some_and(|before| before != value) => {
                "Envoy rejects two values of one setting".to_owned()
            }
            _ => continue,
        };
        refuse(ROW, &path, "identifier", text, scope);
    }
}

/// Addresses of trusted proxies and their number exclude each other.
pub(super) fn forwarded_for(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "xff_trusted_cidrs") && number_at(message, "xff_num_trusted_hops").is_some_and(|n| n > 0)
    {
        let text = "Envoy rejects `xff_trusted_cidrs` beside `xff_num_trusted_hops`";
        refuse(ROW, path, "xff_trusted_cidrs", text, scope);
    }
}

/// Scopes in the manager itself have their routes inline.
pub(super) fn scoped_routes(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(found) = child(message, "scoped_route_configurations_list") else { return };
    let path = path.field("scoped_route_configurations_list");
    let list_path = path.field("scoped_route_configurations");
    for (index, one) in list(&found, "scoped_route_configurations").iter().enumerate() {
        if has(one, "route_configuration_name") {
            let text = "Envoy rejects routes by name in an inline scope";
            refuse(ROW, &list_path.index(index), "route_configuration_name", text, scope);
        }
    }
}

const PUSH: u64 = 2;

/// Settings that have a field of their own.
const NAMED: [(u64, &str); 4] = [
    (1, "hpack_table_size"),
    (3, "max_concurrent_streams"),
    (4, "initial_stream_window_size"),
    (8, "allow_connect"),
];
