//! Secrets.

use serde_json::json;

use super::{Emitted, resource};
use crate::emit::shared::type_of;
use crate::plan::{Plan, TlsSecret};

/// Every secret of the plan.
pub(super) fn secrets(plan: &Plan) -> Vec<Emitted> {
    let secrets = plan.secrets.iter().map(|(name, secret)| {
        let inline = |pem: &str| json!({"inline_string": pem});
        let type_url = type_of("extensions.transport_sockets.tls.v3.Secret");
        match secret {
            TlsSecret::Certificate { chain_pem, key_pem, origin } => {
                let certificate =
                    json!({"certificate_chain": inline(chain_pem), "private_key": inline(key_pem)});
                resource(json!({"@type": type_url, "name": name, "tls_certificate": certificate}), origin)
            }
            TlsSecret::Trusted { ca_pem, origin } => {
                let trusted = json!({"trusted_ca": inline(ca_pem)});
                resource(json!({"@type": type_url, "name": name, "validation_context": trusted}), origin)
            }
        }
    });
    secrets.collect()
}
