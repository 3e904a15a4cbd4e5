//! Secrets.

use serde_json::{Value as Json, json};

use crate::emit::Emitted;
use crate::emit::shared::type_of;
use crate::plan::TlsSecret;

/// A secret.
pub(crate) fn secret<'p>(name: &'p str, secret: &'p TlsSecret) -> Emitted<'p> {
    let (TlsSecret::Certificate { origin, .. } | TlsSecret::Trusted { origin, .. }) = secret;
    Emitted::new("secret", (name, secret), |(name, secret)| message(name, secret), origin)
}

fn message(name: &str, secret: &TlsSecret) -> Json {
    let inline = |pem: &str| json!({"inline_string": pem});
    let type_url = type_of("extensions.transport_sockets.tls.v3.Secret");
    match secret {
        TlsSecret::Certificate { chain_pem, key_pem, origin: _ } => {
            let certificate = json!({"certificate_chain": inline(chain_pem), "private_key": inline(key_pem)});
            json!({"@type": type_url, "name": name, "tls_certificate": certificate})
        }
        TlsSecret::Trusted { ca_pem, origin: _ } => {
            json!({"@type": type_url, "name": name, "validation_context": {"trusted_ca": inline(ca_pem)}})
        }
    }
}
