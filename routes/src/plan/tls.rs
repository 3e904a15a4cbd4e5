//! Certificates: those of listeners, and the CA certificates for backends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use xds_cache::Origin;

use super::backends::Referent;
use super::lookup::{Lookup, RefProblem};
use super::parts::{TlsSecret, UpstreamTls};
use crate::conditions::ConditionReason;
use crate::model::{
    BackendSource, BackendTlsPolicy, Document, DocumentName, Kind, NativeTls, ObjectRef, Secret, Spec,
};

/// TLS towards a backend, with the secret that it names.
pub(super) type Upstream = (UpstreamTls, Option<(String, TlsSecret)>);

/// Trusted certificates: the name of their secret, their text and their origin.
pub(super) struct Trusted {
    name: String,
    pem: String,
    origin: Origin,
}

impl Lookup<'_> {
    /// The secret for a `certificateRef` of a listener: its name in [`Plan::secrets`](super::Plan::secrets), and its content. The reason of
    /// a problem is `RefNotPermitted` or `InvalidCertificateRef`.
    pub(crate) fn certificate(
        &self,
        gateway: &Document,
        reference: &ObjectRef,
    ) -> Result<(String, TlsSecret), RefProblem> {
        let problem = |reason, message| RefProblem { reason, message, spot: reference.spot.clone() };
        let invalid = |message| problem(ConditionReason::InvalidCertificateRef, message);
        let ObjectRef { group, kind, namespace, name, .. } = reference;
        if (&**group, &**kind) != ("", "Secret") {
            return Err(invalid(format!(
                "{} is not a kind with a certificate; use a Secret",
                xds_codec::echo_name(kind)
            )));
        }
        if !self.is_granted(gateway.key.kind, &gateway.key.namespace, reference) {
            let message = format!(
                "the namespace {namespace} has no ReferenceGrant that lets a {} of {} refer to the Secret {name}",
                gateway.key.kind, gateway.key.namespace,
            );
            return Err(problem(ConditionReason::RefNotPermitted, message));
        }
        let Some((document, secret)) = self.secret(namespace, name) else {
            return Err(invalid(format!("there is no Secret {namespace}/{name}")));
        };
        let lacks =
            |key| invalid(format!("the Secret {namespace}/{name} has no PEM of the right kind as {key}"));
        pem(secret, "tls.crt", is_certificate).ok_or_else(|| lacks("tls.crt"))?;
        pem(secret, "tls.key", is_private_key).ok_or_else(|| lacks("tls.key"))?;
        let certificate = certificate(document).ok_or_else(|| lacks("tls.crt"))?;
        if let Some(placed) = self.documents.get(&gateway.key).filter(|placed| placed.withholds_secrets) {
            return Err(invalid(format!(
                "secret-without-identities: the node group {} has no `identities`, so that clients which have proved nothing \
                 would get the key in the Secret {namespace}/{name}; put the Gateway into a group with `identities`",
                placed.group
            )));
        }
        Ok((format!("{namespace}/{name}"), certificate))
    }

    /// TLS towards a backend, if a policy or the backend itself asks for it. If it cannot be set up as specified, it is
    /// [`UpstreamTls::Invalid`], never plaintext.
    pub(super) fn upstream_tls(&self, referent: &Referent<'_>) -> Option<Upstream> {
        let policy = self.policy(referent);
        if let Some((document, policy)) = policy.filter(|_| !is_fallback(referent)) {
            return Some(self.tls_of_policy(document, policy));
        }
        let Referent::Backend { document, backend } = referent else { return None };
        match (&backend.source, &backend.tls) {
            (BackendSource::Endpoints(_), Some(tls)) => Some(native_tls(document, tls)),
            // The members have their own connections, so the policy would not apply to them.
            (BackendSource::Fallback(_), _) if policy.is_some() => Some((UpstreamTls::Invalid, None)),
            (BackendSource::Endpoints(_), None) | (BackendSource::Fallback(_), _) => None,
        }
    }

    fn tls_of_policy(&self, document: &Document, policy: &BackendTlsPolicy) -> Upstream {
        let (trusted, _) = self.trusted(document, policy);
        if trusted.is_none() && !policy.uses_system_certificates {
            return (UpstreamTls::Invalid, None);
        }
        let sni = policy.hostname.clone();
        let alt_names = match policy.alt_names.is_empty() {
            true => vec![sni.clone()],
            false => policy.alt_names.clone(),
        };
        verified(sni, alt_names, trusted)
    }

    /// The certificates that a policy trusts, and the problems of references that cannot be used: `InvalidKind` or
    /// `InvalidCACertificateRef`.
    pub(super) fn trusted(
        &self,
        document: &Document,
        policy: &BackendTlsPolicy,
    ) -> (Option<Trusted>, Vec<RefProblem>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for reference in &policy.ca_certificates {
            match self.ca_certificate(reference) {
                Ok(trusted) => found.push(trusted),
                Err(problem) => problems.push(problem),
            }
        }
        let DocumentName { namespace, name, .. } = &*document.key;
        let trusted = match found.len() {
            0 | 1 => found.pop(),
            _ => {
                let pem: Vec<&str> = found.iter().map(|one| one.pem.trim_end()).collect();
                let pem = pem.join("\n") + "\n";
                Some(Trusted {
                    name: format!("{namespace}/{name}/policy-ca"),
                    pem,
                    origin: document.origin(),
                })
            }
        };
        (trusted, problems)
    }

    /// Trusted certificates of a ConfigMap or a Secret. The last part of the name distinguishes the two kinds.
    fn ca_certificate(&self, reference: &ObjectRef) -> Result<Trusted, RefProblem> {
        let ObjectRef { group, kind, namespace, name, spot, .. } = reference;
        let problem = |reason, message| RefProblem { reason, message, spot: spot.clone() };
        let (found, last) = match (&**group, &**kind) {
            ("", "ConfigMap") => {
                let document = self.document(Kind::ConfigMap, namespace, name);
                let text = document.and_then(|document| {
                    let Spec::ConfigMap(map) = &document.spec else { return None };
                    Some((document, map.value("ca.crt")?))
                });
                (text, "ca")
            }
            ("", "Secret") => {
                let text = self.secret(namespace, name).and_then(|(document, secret)| {
                    Some((document, str::from_utf8(secret.value("ca.crt")?).ok()?))
                });
                (text, "secret-ca")
            }
            (_, kind) => {
                let message = format!(
                    "{} is not a kind with a certificate; use a ConfigMap or a Secret",
                    xds_codec::echo_name(kind)
                );
                return Err(problem(ConditionReason::InvalidKind, message));
            }
        };
        match found {
            Some((document, text)) if has_pem(text, is_certificate) => Ok(Trusted {
                name: format!("{namespace}/{name}/{last}"),
                pem: text.to_owned(),
                origin: document.origin(),
            }),
            Some(_) | None => {
                let message =
                    format!("there is no {kind} {namespace}/{name} with a certificate in PEM as ca.crt");
                Err(problem(ConditionReason::InvalidCaCertificateRef, message))
            }
        }
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<(&Document, &Secret)> {
        let document = self.document(Kind::Secret, namespace, name)?;
        let Spec::Secret(secret) = &document.spec else { return None };
        Some((document, secret))
    }
}

/// The certificate in a Secret.
pub(crate) fn certificate(document: &Document) -> Option<TlsSecret> {
    let Spec::Secret(secret) = &document.spec else { return None };
    let chain_pem = pem(secret, "tls.crt", is_certificate)?.to_owned();
    let key_pem = pem(secret, "tls.key", is_private_key)?.to_owned();
    Some(TlsSecret::Certificate { chain_pem, key_pem, origin: document.origin() })
}

fn pem<'d>(secret: &'d Secret, key: &str, is_label: fn(&str) -> bool) -> Option<&'d str> {
    let text = secret.value(key).and_then(|value| str::from_utf8(value).ok());
    text.filter(|text| has_pem(text, is_label))
}

/// The reason why TLS towards a backend is [`UpstreamTls::Invalid`].
pub(super) fn invalid_tls(referent: &Referent<'_>) -> &'static str {
    match is_fallback(referent) {
        true => {
            "a fallback makes no connections itself, so a policy cannot apply to it, and every request to it fails"
        }
        false => "TLS has no usable CA certificate, so every request to it fails",
    }
}

fn is_fallback(referent: &Referent<'_>) -> bool {
    match referent {
        Referent::Port { .. } => false,
        Referent::Backend { backend, .. } => matches!(backend.source, BackendSource::Fallback(_)),
    }
}

/// The TLS of a backend of the native form.
fn native_tls(document: &Document, tls: &NativeTls) -> Upstream {
    let DocumentName { namespace, name, .. } = &*document.key;
    let trusted = match &tls.ca_pem {
        Some(pem) if !has_pem(pem, is_certificate) => return (UpstreamTls::Invalid, None),
        Some(pem) => Some(Trusted {
            name: format!("{namespace}/{name}/backend-ca"),
            pem: pem.clone(),
            origin: document.origin(),
        }),
        None => None,
    };
    verified(tls.sni.clone(), vec![tls.sni.clone()], trusted)
}

fn verified(sni: String, alt_names: Vec<String>, trusted: Option<Trusted>) -> Upstream {
    let name = trusted.as_ref().map(|trusted| trusted.name.clone());
    let secret =
        trusted.map(|Trusted { name, pem, origin }| (name, TlsSecret::Trusted { ca_pem: pem, origin }));
    (UpstreamTls::Verified { sni, alt_names, trusted: name }, secret)
}

/// Returns `true` if the first PEM block of a text is complete and has a matching label. Text before it is allowed, as in OpenSSL.
///
/// Only the form is checked. A client that cannot read the content reports that itself.
pub(super) fn has_pem(text: &str, is_label: fn(&str) -> bool) -> bool {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN "));
    let label = lines.next().and_then(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    let Some(label) = label.filter(|label| is_label(label)) else { return false };
    let end = format!("-----END {label}-----");
    let mut body = String::new();
    for line in lines {
        if line == end {
            return !body.is_empty() && STANDARD.decode(body).is_ok();
        }
        body.push_str(line);
    }
    false
}

pub(super) fn is_certificate(label: &str) -> bool {
    label == "CERTIFICATE"
}

/// Returns `true` for `PRIVATE KEY`, `RSA PRIVATE KEY` and `EC PRIVATE KEY`. An encrypted key cannot be used.
pub(super) fn is_private_key(label: &str) -> bool {
    label.ends_with("PRIVATE KEY") && !label.starts_with("ENCRYPTED")
}
