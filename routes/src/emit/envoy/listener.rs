//! Listeners.

use serde_json::{Value as Json, json};

use super::filters;
use super::parts::Listener;
use crate::emit::shared::{ads, socket_address, type_of, with};
use crate::plan::TlsTermination;

/// A Listener with a filter chain for each table.
pub(super) fn listener(served: &Listener) -> Json {
    let chains: Vec<Json> =
        served.chains.iter().map(|(name, tls)| filter_chain(served, name, tls.as_ref())).collect();
    let listener = json!({
        "@type": type_of("config.listener.v3.Listener"),
        "name": served.name,
        "address": socket_address(&served.address.to_string(), served.port),
        "filter_chains": chains,
    });
    if served.chains.iter().all(|(_, tls)| tls.is_none()) {
        return listener;
    }
    // Without the inspector, Envoy chooses a chain before it knows the server name.
    let inspector = json!({
        "name": "envoy.filters.listener.tls_inspector",
        "typed_config": {"@type": type_of("extensions.filters.listener.tls_inspector.v3.TlsInspector")},
    });
    with(listener, "listener_filters", vec![inspector])
}

fn filter_chain(served: &Listener, name: &str, tls: Option<&TlsTermination>) -> Json {
    let chain = json!({
        "name": name,
        "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": connection_manager(served, name),
        }],
    });
    let Some(tls) = tls else { return chain };
    let chain = with(chain, "transport_socket", transport_socket(tls));
    match &tls.server_name {
        Some(name) => with(chain, "filter_chain_match", json!({"server_names": [name.as_str()]})),
        None => chain,
    }
}

fn connection_manager(served: &Listener, name: &str) -> Json {
    let manager = json!({
        "@type": type_of("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": name,
        // HTTP/1.1, and HTTP/2 by ALPN or with prior knowledge, which GRPCRoutes need.
        "codec_type": "AUTO",
        "rds": {"route_config_name": name, "config_source": ads()},
        "normalize_path": true,
        "http_filters": filters::http_filters(served.is_on_demand),
        // Any backend of an HTTPRoute may support WebSocket. Others refuse the upgrade themselves.
        "upgrade_configs": [{"upgrade_type": "websocket"}],
    });
    match served.is_edge {
        // Otherwise anybody could set `x-envoy-` headers, which change time limits and retries.
        true => with(manager, "use_remote_address", true),
        false => manager,
    }
}

fn transport_socket(tls: &TlsTermination) -> Json {
    let certificates = tls.certificates.iter().map(|name| json!({"name": name, "sds_config": ads()}));
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": type_of("extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificate_sds_secret_configs": certificates.collect::<Vec<_>>(),
            },
        },
    })
}
