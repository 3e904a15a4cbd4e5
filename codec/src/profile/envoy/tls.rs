//! TLS contexts (row D116). Files are on the client's machine, so only what is inline is read.

use bytes::Bytes;
use xds_cache::ResourceType;

use super::super::rule::{Scope, enum_at, has, value_at, values_at};
use super::shared::{is_true, refuse};
use crate::diagnostic::echo;
use crate::message::{Message, child, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D116", "envoy-tls");

pub(super) fn downstream(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let common = child(message, "common_tls_context");
    let has_any =
        |fields: &[&str]| common.as_ref().is_some_and(|common| fields.iter().any(|field| has(common, field)));
    let path = path.field("common_tls_context");
    let is_mixed = has_any(&["tls_certificates"]) && has_any(&["tls_certificate_sds_secret_configs"]);
    if is_mixed {
        let text = "Envoy rejects certificates by SDS beside others in a listener";
        refuse(ROW, &path, "tls_certificate_sds_secret_configs", text, scope);
    }
    if !has_any(&IDENTITIES) {
        refuse(
            ROW,
            &path,
            "tls_certificates",
            "Envoy rejects TLS in a listener without a certificate",
            scope,
        );
    }
}

pub(super) fn upstream(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let common = child(message, "common_tls_context");
    let common_path = path.field("common_tls_context");
    for field in ["tls_certificates", "tls_certificate_sds_secret_configs"] {
        let n = common.as_ref().map_or(0, |common| list(common, field).len());
        if n > 1 {
            let list_path = common_path.field(field);
            refuse(
                ROW,
                &list_path.index(1),
                "",
                "Envoy rejects more than one certificate of a client",
                scope,
            );
        }
    }
    // System roots do not count here.
    let has_ca = common.as_ref().is_some_and(|common| TRUSTS.iter().any(|field| has(common, field)));
    if is_true(message, "auto_sni_san_validation") && !has_ca {
        let text = "Envoy rejects `auto_sni_san_validation` without `trusted_ca`";
        refuse(ROW, path, "auto_sni_san_validation", text, scope);
    }
}

/// A certificate has a chain and a key.
pub(super) fn certificate(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let has_key = has(message, "private_key") || has(message, "private_key_provider");
    let has_chain = has(message, "certificate_chain");
    if has(message, "pkcs12") {
        for field in ["certificate_chain", "private_key", "private_key_provider"] {
            if has(message, field) {
                refuse(ROW, path, field, format!("Envoy rejects `{field}` beside `pkcs12`"), scope);
            }
        }
        return;
    }
    // An upstream context may have an empty certificate.
    if has_chain && !has_key {
        refuse(ROW, path, "private_key", "Envoy rejects a certificate without a private key", scope);
    }
    if has_key && !has_chain {
        refuse(ROW, path, "certificate_chain", "Envoy rejects a private key without a certificate", scope);
    }
    pem(message, "certificate_chain", "CERTIFICATE", path, scope);
    pem(message, "private_key", "PRIVATE KEY", path, scope);
}

/// A context that another one completes (a default, or a secret) may lack the CA.
pub(super) fn validation(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let is_default = matches!(path, Path::Field(_, "default_validation_context"));
    let is_part = is_default || *scope.resource.resource_type() == ResourceType::Secret;
    // System roots and those of a provider do not count here.
    let trusts = ["trusted_ca", "custom_validator_config"];
    if !is_part && !trusts.iter().any(|field| has(message, field)) {
        let needs_ca = ["match_typed_subject_alt_names", "match_subject_alt_names", "crl"];
        for field in needs_ca.into_iter().filter(|field| has(message, field)) {
            refuse(ROW, path, field, format!("Envoy rejects `{field}` without `trusted_ca`"), scope);
        }
        if is_true(message, "allow_expired_certificate") {
            let text = "Envoy rejects `allow_expired_certificate` without `trusted_ca`";
            refuse(ROW, path, "allow_expired_certificate", text, scope);
        }
    }
    pem(message, "trusted_ca", "CERTIFICATE", path, scope);
}

/// Row D116: a name of another kind says which.
pub(super) fn name(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if enum_at(message, "san_type") == OTHER_NAME && !has(message, "oid") {
        refuse(ROW, path, "oid", "Envoy rejects a matcher for OTHER_NAME without `oid`", scope);
    }
}

/// Checks that an inline text is a PEM with a part of this kind. Values of variables of the client's environment are not known.
fn pem(message: &Message, field: &str, kind: &str, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(source) = child(message, field) else { return };
    let bytes =
        || bytes_at(&source, "inline_bytes").map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let inline = text(&source, "inline_string").or_else(bytes);
    let is_empty =
        inline.is_none() && !["filename", "environment_variable"].iter().any(|it| has(&source, it));
    let is_pem = inline.is_none_or(|text| {
        text.contains("-----BEGIN ")
            && text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(kind))
    });
    if is_empty || !is_pem {
        let text = format!("Envoy rejects this: it is no PEM with a part `{kind}`");
        refuse(ROW, path, field, text, scope);
    }
}

fn bytes_at(message: &Message, field: &str) -> Option<Bytes> {
    value_at(message, field)?.as_bytes().cloned()
}

/// Checks ciphers and curves against those of BoringSSL.
pub(super) fn parameters(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("cipher_suites");
    for (index, value) in values_at(message, "cipher_suites").iter().enumerate() {
        let names = value.as_str().unwrap_or_default();
        // Words such as `ALL` and rules such as `-RC4` select ciphers too.
        let is_name =
            |name: &&str| name.contains('-') && !name.starts_with(['-', '!', '+']) || name.contains('_');
        let names = names.split(['[', ']', '|', ':']).filter(|name| !name.is_empty());
        let unknown = names
            .filter(is_name)
            .find(|name| !CIPHERS.split(' ').any(|known| known == *name) && !is_standard(name));
        if let Some(name) = unknown {
            let text = format!("Envoy does not know the cipher {}, and rejects the resource", echo(name));
            refuse(ROW, &list_path.index(index), "", text, scope);
        }
    }
    let list_path = path.field("signature_algorithms");
    for (index, value) in values_at(message, "signature_algorithms").iter().enumerate() {
        let name = value.as_str().unwrap_or_default();
        if !SIGNATURES.contains(&name) {
            let text = format!("Envoy does not know the signature {}, and rejects the resource", echo(name));
            refuse(ROW, &list_path.index(index), "", text, scope);
        }
    }
    let list_path = path.field("ecdh_curves");
    for (index, value) in values_at(message, "ecdh_curves").iter().enumerate() {
        let names = value.as_str().unwrap_or_default();
        if let Some(name) =
            names.split(':').find(|name| !CURVES.iter().any(|known| known.eq_ignore_ascii_case(name)))
        {
            let text = format!("Envoy does not know the curve {}, and rejects the resource", echo(name));
            refuse(ROW, &list_path.index(index), "", text, scope);
        }
    }
}

/// Names of the standard are read too, but not those of TLS 1.3, which cannot be chosen.
fn is_standard(name: &str) -> bool {
    name.starts_with("TLS_") && name.contains("_WITH_")
}

const IDENTITIES: [&str; 5] = [
    "tls_certificates",
    "tls_certificate_sds_secret_configs",
    "tls_certificate_provider_instance",
    "custom_tls_certificate_selector",
    "tls_certificate_certificate_provider_instance",
];

const TRUSTS: [&str; 3] =
    ["validation_context.trusted_ca", "validation_context_sds_secret_config", "combined_validation_context"];

const OTHER_NAME: i32 = 5;

const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 \
    ECDHE-RSA-AES256-GCM-SHA384 ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-RSA-CHACHA20-POLY1305 ECDHE-PSK-CHACHA20-POLY1305 \
    ECDHE-ECDSA-AES128-SHA ECDHE-RSA-AES128-SHA ECDHE-PSK-AES128-CBC-SHA ECDHE-ECDSA-AES256-SHA ECDHE-RSA-AES256-SHA \
    ECDHE-PSK-AES256-CBC-SHA AES128-GCM-SHA256 AES256-GCM-SHA384 AES128-SHA AES256-SHA PSK-AES128-CBC-SHA \
    PSK-AES256-CBC-SHA DES-CBC3-SHA ECDHE-RSA-AES128-SHA256 ECDHE-ECDSA-AES128-SHA256";

/// Those of BoringSSL.
const SIGNATURES: [&str; 12] = [
    "rsa_pkcs1_md5_sha1",
    "rsa_pkcs1_sha1",
    "rsa_pkcs1_sha256",
    "rsa_pkcs1_sha384",
    "rsa_pkcs1_sha512",
    "ecdsa_sha1",
    "ecdsa_secp256r1_sha256",
    "ecdsa_secp384r1_sha384",
    "ecdsa_secp521r1_sha512",
    "rsa_pss_rsae_sha256",
    "rsa_pss_rsae_sha384",
    "rsa_pss_rsae_sha512",
];

const CURVES: [&str; 10] = [
    "X25519",
    "P-256",
    "P-384",
    "P-521",
    "prime256v1",
    "secp384r1",
    "secp521r1",
    "X25519MLKEM768",
    "MLKEM1024",
    "SecP256r1MLKEM768",
];
