//! Transport sockets and TLS (B.3, B.4).

use super::super::Effect::{Differs, Ignored, Rejected};
use super::super::Language;
use super::super::any::{short, type_of};
use super::super::rule::{Fault, Rule, Scope, Side, When, has};
use super::matches;
use crate::message::{Message, child, list, text};
use crate::path::Path;

pub(super) const DOWNSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
pub(super) const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
pub(super) const COMMON: &str = "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext";
pub(super) const COMBINED: &str =
    "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext";
pub(super) const VALIDATION: &str = "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext";
pub(super) const PROXY: &str =
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B66",
        (Rejected, "grpc-tls"),
        COMMON,
        (When::Set, &["tls_params"]),
        "gRPC rejects a TLS context with `{}`",
    ),
    Rule::new(
        "B67",
        (Rejected, "grpc-tls"),
        COMMON,
        (When::Set, &["custom_handshaker"]),
        "gRPC rejects a TLS context with `{}`",
    ),
    Rule::new(
        "B71",
        (Rejected, "grpc-tls"),
        COMMON,
        (When::Set, &["validation_context_sds_secret_config"]),
        "gRPC gets no secrets and rejects a TLS context with `{}`",
    )
    .suggest("validation_context"),
    Rule::new(
        "B71",
        (Ignored, "grpc-ignored-field"),
        COMBINED,
        (When::Set, &["validation_context_sds_secret_config"]),
        "gRPC gets no secrets and ignores `{}` beside a default context",
    ),
    Rule::new(
        "B77",
        (Differs, "grpc-tls-version"),
        COMMON,
        (
            When::Set,
            &[
                "tls_certificate_certificate_provider_instance",
                "validation_context_certificate_provider_instance",
            ],
        ),
        "only old gRPC clients read `{}`; newer ones read the fields that replace it",
    ),
    Rule::new(
        "B73",
        (Rejected, "grpc-tls"),
        VALIDATION,
        (
            When::Set,
            &["verify_certificate_spki", "verify_certificate_hash", "crl", "custom_validator_config"],
        ),
        "gRPC rejects a validation context with `{}`",
    ),
    Rule::new(
        "B74",
        (Rejected, "grpc-tls"),
        VALIDATION,
        (When::Set, &["require_signed_certificate_timestamp"]),
        "gRPC rejects a validation context with `{}`: java whenever it is set, go only if it is true",
    ),
    Rule::new(
        "B75",
        (Ignored, "grpc-ignored-field"),
        VALIDATION,
        (When::Set, &["trusted_ca", "allow_expired_certificate", "trust_chain_verification"]),
        "gRPC ignores `{}`",
    ),
    Rule::new(
        "B64",
        (Rejected, "grpc-tls"),
        VALIDATION,
        (When::Set, &["match_subject_alt_names"]),
        "a gRPC server (go, java, C-core) rejects `{}`",
    )
    .by(&[Language::Go, Language::Java, Language::Core])
    .on(Side::Server),
    Rule::new(
        "B65",
        (Rejected, "grpc-tls"),
        VALIDATION,
        (When::Set, &["system_root_certs"]),
        "a gRPC server rejects `{}`",
    )
    .on(Side::Server),
    Rule::new(
        "B61",
        (Rejected, "grpc-tls"),
        DOWNSTREAM,
        (When::Set, &["require_sni"]),
        "a gRPC server rejects `{}`: java whenever it is set, the others only if it is true",
    ),
    Rule::new(
        "B62",
        (Rejected, "grpc-tls"),
        DOWNSTREAM,
        (When::Is(&[1, 2]), &["ocsp_staple_policy"]),
        "a gRPC server rejects every `{}` but LENIENT_STAPLING",
    ),
    Rule::new(
        "B79",
        (Ignored, "grpc-tls-version"),
        UPSTREAM,
        (When::Set, &["auto_host_sni", "auto_sni_san_validation"]),
        "released gRPC clients ignore `{}` (gRFC A101)",
    ),
    Rule::new(
        "B78",
        (Ignored, "grpc-tls-version"),
        UPSTREAM,
        (When::Set, &["sni"]),
        "released gRPC clients ignore `{}` and use the name of the target (gRFC A101)",
    ),
];

/// Rows B58, B198 and B200.
pub(super) fn transport_socket(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let found = child(message, "typed_config").map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    let (row, wanted) = match scope.side {
        Side::Client => ("B198", UPSTREAM),
        Side::Server => ("B58", DOWNSTREAM),
    };
    if found == PROXY && scope.side == Side::Client {
        let fault = Fault::new("B200", Rejected, "grpc-transport-socket");
        let text = "gRPC before gRFC A86 rejects a transport socket of type Http11ProxyUpstreamTransport";
        return scope.report(fault, path, "typed_config", text);
    }
    let fault = Fault::new(row, Rejected, "grpc-transport-socket");
    if found != wanted {
        let text = format!("gRPC rejects a transport socket of type {}", short(&found));
        return scope.report_with(fault, path, "typed_config", text, Some(short(wanted).to_owned()));
    }
    if text(message, "name").as_deref() != Some(SOCKET_NAME) {
        let (fault, who) = match scope.side {
            Side::Client => (fault.by(&[Language::Go, Language::Java]), "gRPC (go, java)"),
            Side::Server => (fault, "gRPC"),
        };
        let text = format!("{who} rejects a TLS transport socket with another name");
        scope.report_with(fault, path, "name", text, Some(SOCKET_NAME.to_owned()));
    }
}

/// Rows B68 and B69.
pub(super) fn common_tls_context(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let nameless = |field| {
        child(message, field).is_some_and(|it| text(&it, "instance_name").is_none_or(|name| name.is_empty()))
    };
    if nameless("tls_certificate_provider_instance") {
        let fault =
            Fault::new("B69", Rejected, "grpc-tls").by(&[Language::Core, Language::Js, Language::Java]);
        let text = "gRPC (C-core, js, java) rejects a certificate provider without a name";
        scope.report(fault, path, "tls_certificate_provider_instance.instance_name", text);
    }
    if has(message, "tls_certificate_provider_instance") {
        return;
    }
    for field in ["tls_certificates", "tls_certificate_sds_secret_configs"] {
        if has(message, field) {
            let fault = Fault::new("B68", Rejected, "grpc-tls");
            let text = format!("gRPC rejects `{field}`: its certificates come from its bootstrap");
            let suggestion = Some("tls_certificate_provider_instance".to_owned());
            scope.report_with(fault, path, field, text, suggestion);
        }
    }
}

/// Row B72: a client needs a trusted CA.
pub(super) fn upstream_tls_context(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let context = child(message, "common_tls_context");
    let validation = context.as_ref().and_then(validation);
    let is_trusting = validation.is_some_and(|validation| {
        has(&validation, "ca_certificate_provider_instance") || has(&validation, "system_root_certs")
    });
    let is_told =
        context.as_ref().is_some_and(|context| has(context, "validation_context_sds_secret_config"));
    if !is_trusting && !is_told {
        let has_old = |field| context.as_ref().is_some_and(|context| has(context, field));
        let fault = Fault::new("B72", Rejected, "grpc-tls");
        // The deprecated fields, which go and java still read.
        let fault = if has_old(
            "combined_validation_context.validation_context_certificate_provider_instance.instance_name",
        ) {
            fault.by(&[Language::Core, Language::Js])
        } else if has_old("validation_context_certificate_provider_instance.instance_name") {
            fault.by(&[Language::Core, Language::Js, Language::Java])
        } else {
            fault
        };
        let text = "gRPC rejects a TLS context that names no trusted CA".to_owned();
        let suggestion = Some("ca_certificate_provider_instance".to_owned());
        scope.report_with(fault, path, "common_tls_context", text, suggestion);
    }
}

/// Rows B69, B72, B101 and B105.
pub(super) fn validation_context(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let provider = child(message, "ca_certificate_provider_instance");
    if scope.side == Side::Client && provider.is_none() && has(message, "system_root_certs") {
        let fault = Fault::new("B72", Rejected, "grpc-tls").by(&[Language::Go, Language::Js]);
        let text = "released gRPC clients (go, js) reject `system_root_certs`".to_owned();
        let suggestion = Some("ca_certificate_provider_instance".to_owned());
        scope.report_with(fault, path, "system_root_certs", text, suggestion);
    }
    if provider.is_some_and(|it| text(&it, "instance_name").is_none_or(|name| name.is_empty())) {
        let fault = Fault::new("B69", Rejected, "grpc-tls");
        let text = "gRPC rejects a certificate provider without a name";
        scope.report(fault, path, "ca_certificate_provider_instance.instance_name", text);
    }
    let names_path = path.field("match_subject_alt_names");
    for (index, name) in list(message, "match_subject_alt_names").iter().enumerate() {
        matches::name_matcher(name, &names_path.index(index), scope);
    }
}

/// Rows B59 and B60.
pub(super) fn downstream_tls_context(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let context = child(message, "common_tls_context");
    let has_identity =
        context.as_ref().is_some_and(|context| has(context, "tls_certificate_provider_instance"));
    if !has_identity {
        let fault = Fault::new("B59", Rejected, "grpc-tls");
        let text = "a gRPC server rejects a TLS context without an identity".to_owned();
        let suggestion = Some("tls_certificate_provider_instance".to_owned());
        scope.report_with(fault, path, "common_tls_context", text, suggestion);
    }
    let validation = context.as_ref().and_then(validation);
    let has_ca = validation.is_some_and(|validation| has(&validation, "ca_certificate_provider_instance"));
    let needs_certificate = super::super::rule::value_at(message, "require_client_certificate");
    if !has_ca && needs_certificate.is_some_and(|value| value.as_bool() == Some(true)) {
        let fault = Fault::new("B60", Rejected, "grpc-tls");
        let text = "a gRPC server that requires client certificates needs a trusted CA".to_owned();
        let suggestion = Some("ca_certificate_provider_instance".to_owned());
        scope.report_with(fault, path, "require_client_certificate", text, suggestion);
    }
}

fn validation(context: &Message) -> Option<Message> {
    child(context, "validation_context")
        .or_else(|| child(&child(context, "combined_validation_context")?, "default_validation_context"))
}

const SOCKET_NAME: &str = "envoy.transport_sockets.tls";
