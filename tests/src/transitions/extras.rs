//! Other references of an Envoy's listeners and clusters: secrets and extensions.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::config;

/// The part that no change concerns: where the listeners and backends are, and who vouches for them.
#[derive(Debug)]
pub struct Outside {
    /// The ports of the listeners.
    pub ports: [u16; LISTENERS.len()],
    /// Where the backends are.
    pub backends: Vec<SocketAddr>,
    /// Where the same backends are over TLS.
    pub secure_backends: Vec<SocketAddr>,
    /// The certificate of the authority that everything with TLS trusts, in PEM.
    pub authority_pem: String,
    /// Certificates for [`SERVER_NAME`], with their keys, in PEM.
    pub certificates_pem: [(String, String); 2],
}

/// The listeners; also the names that gRPC clients dial.
pub const LISTENERS: [&str; 2] = ["front", "side"];
/// The listener that speaks TLS, an index into [`LISTENERS`]. Clusters of even numbers do so too.
pub const SECURE_LISTENER: usize = 1;
/// The name for which certificates are issued.
pub const SERVER_NAME: &str = "hitless.example.com";

/// The secrets and extensions of a configuration.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Extras {
    /// The certificate of the listener that speaks TLS.
    pub(super) certificate: Named,
    /// Whom clusters trust; it says always the same.
    pub(super) trust: Named,
    /// The filter of each listener.
    pub(super) filters: [Named; LISTENERS.len()],
}

/// Something that may get another name or other contents.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) name: u64,
    pub(super) content: usize,
}

impl Extras {
    /// Lets a listener refer to its filter, and to its certificate if it has one.
    pub(super) fn add_to_listener(&self, index: usize, listener: &mut Value) {
        let chain = &mut listener["filter_chains"][0];
        let filter = json!({
            "name": self.filter_name(index),
            "config_discovery": {"config_source": config::ads(), "type_urls": [FILTER]},
        });
        let filters = chain["filters"][0]["typed_config"]["http_filters"].as_array_mut();
        filters.into_iter().for_each(|filters| filters.insert(0, filter.clone()));
        if index == SECURE_LISTENER {
            let secret = json!({"name": self.certificate_name(), "sds_config": config::ads()});
            chain["transport_socket"] =
                tls("Downstream", json!({"tls_certificate_sds_secret_configs": [secret]}));
        }
    }

    /// Lets a cluster speak TLS.
    pub(super) fn secure_cluster(&self, cluster: &mut Value) {
        let secret = json!({"name": self.trust_name(), "sds_config": config::ads()});
        let mut socket = tls("Upstream", json!({"validation_context_sds_secret_config": secret}));
        socket["typed_config"]["sni"] = json!(SERVER_NAME);
        cluster["transport_socket"] = socket;
    }

    /// The secrets and extensions.
    pub(super) fn resources(&self, outside: &Outside) -> Vec<Value> {
        let inline = |pem: &str| json!({"inline_string": pem});
        let (chain, key) = &outside.certificates_pem[self.certificate.content % 2];
        let certificate = json!({
            "@type": SECRET,
            "name": self.certificate_name(),
            "tls_certificate": {"certificate_chain": inline(chain), "private_key": inline(key)},
        });
        let trust = json!({
            "@type": SECRET,
            "name": self.trust_name(),
            "validation_context": {"trusted_ca": inline(&outside.authority_pem)},
        });
        let filter = |index: usize| {
            let header = json!({"key": "x-filter", "value": self.filters[index].content.to_string()});
            let mutation = json!({"append": {"header": header}});
            json!({
                "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
                "name": self.filter_name(index),
                "typed_config": {
                    "@type": format!("type.googleapis.com/{FILTER}"),
                    "mutations": {"response_mutations": [mutation]},
                },
            })
        };
        (0..LISTENERS.len()).map(filter).chain([certificate, trust]).collect()
    }

    fn certificate_name(&self) -> String {
        format!("certificate-{}", self.certificate.name)
    }

    fn trust_name(&self) -> String {
        format!("trust-{}", self.trust.name)
    }

    fn filter_name(&self, index: usize) -> String {
        format!("filter-{}-{}", LISTENERS[index], self.filters[index].name)
    }
}

fn tls(side: &str, common: Value) -> Value {
    let context = format!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{side}TlsContext");
    let context = json!({"@type": context, "common_tls_context": common});
    json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
}

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const FILTER: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
