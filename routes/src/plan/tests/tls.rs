//! Certificates, and BackendTLSPolicies.

use super::backends_support::{backend, config_map, default_plan, fallback, object, service, to};
use super::support::{created, document, documents, gateway, grpc, http, reference, secret};
use crate::input::{Documents, Options};
use crate::model::{BackendTlsPolicy, Document, Kind, NativeTls, Secret, Spec, Spot};
use crate::plan::{Lookup, TlsSecret, UpstreamTls, namespace_labels};

const PEM: &str = "# ours\n-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n";

/// A policy; targets and authorities are written as for [`object`], targets with `#port-name` behind.
fn policy(name: &str, targets: &str, authorities: &str) -> Document {
    let targets = targets.split_whitespace().map(|text| {
        let (text, section) =
            text.split_once('#').map_or((text, None), |(text, name)| (text, Some(name.to_owned())));
        (object(text), section)
    });
    let spec = BackendTlsPolicy {
        targets: targets.collect(),
        ca_certificates: authorities.split_whitespace().map(object).collect(),
        uses_system_certificates: authorities.is_empty(),
        hostname: "sni.example".to_owned(),
        alt_names: Vec::new(),
        spot: Spot::default(),
    };
    document(Kind::BackendTlsPolicy, name, Spec::BackendTlsPolicy(Box::new(spec)))
}

fn base() -> Vec<Document> {
    vec![
        service("a/s", "http:80 other:81"),
        config_map("a/ca", PEM),
        config_map("a/ca2", PEM),
        config_map("a/bad", "hello"),
        document(Kind::Secret, "a/ca", Spec::Secret(Secret { data: vec![("ca.crt".into(), PEM.into())] })),
        gateway("a/gw", vec![http("http", 8080, "")]),
        grpc("a/r", "a/gw", "", vec![to("a/s:80 a/s:81")]),
    ]
}

fn with(more: impl IntoIterator<Item = Document>) -> Documents {
    documents(base().into_iter().chain(more))
}

fn tls(documents: &Documents, cluster: &str) -> Option<UpstreamTls> {
    default_plan(documents).0.clusters[cluster].tls.clone()
}

fn verified(trusted: Option<&str>) -> Option<UpstreamTls> {
    let sni = "sni.example".to_owned();
    let alt_names = vec![sni.clone()];
    Some(UpstreamTls::Verified { sni, alt_names, trusted: trusted.map(str::to_owned) })
}

/// The conditions of a policy for each ancestor: `ancestor: Type=Status/Reason …`; for itself if there is none.
fn told(documents: &Documents, name: &str) -> Vec<String> {
    let planned = crate::memo::plan(documents, &Options::default());
    let conditions = planned.conditions;
    let (_, status) = conditions.objects.iter().find(|(key, _)| key.to_string() == name).unwrap();
    let show = |one: &crate::conditions::Condition| format!(" {}={}/{}", one.kind, one.status, one.reason);
    let own = status.conditions.iter().map(show).collect::<String>();
    let parents = status.parents.iter().map(|parent| {
        format!("{}:{}", parent.parent, parent.conditions.iter().map(show).collect::<String>())
    });
    (!own.is_empty()).then_some(own).into_iter().chain(parents).collect()
}

#[test]
fn a_policy_says_whom_to_trust_and_fails_closed() {
    let table = [
        ("", verified(None)),
        ("ConfigMap=a/ca", verified(Some("a/ca/ca"))),
        ("Secret=a/ca", verified(Some("a/ca/secret-ca"))),
        ("ConfigMap=a/ca ConfigMap=a/ca2", verified(Some("a/p/policy-ca"))),
        ("ConfigMap=a/bad ConfigMap=a/ca2", verified(Some("a/ca2/ca"))),
        ("ConfigMap=a/none", Some(UpstreamTls::Invalid)),
        ("ConfigMap=a/bad", Some(UpstreamTls::Invalid)),
        ("Other=a/ca", Some(UpstreamTls::Invalid)),
    ];
    for (authorities, expected) in table {
        let documents = with([policy("a/p", "Service=a/s", authorities)]);
        let (plan, planned) = default_plan(&documents);
        let found = plan.clusters["a/s/80"].tls.clone();
        assert_eq!(found, expected, "{authorities}");
        let warned = planned.diagnostics.iter().any(|one| one.code == "invalid-tls");
        assert_eq!(warned, expected == Some(UpstreamTls::Invalid), "{authorities}");
        if let Some(UpstreamTls::Verified { trusted: Some(name), .. }) = found {
            let TlsSecret::Trusted { ca_pem, .. } = &plan.secrets[&name] else { panic!("{name}") };
            let n_certificates = ca_pem.matches("BEGIN").count();
            assert_eq!(n_certificates, if name == "a/p/policy-ca" { 2 } else { 1 });
        }
    }
}

#[test]
fn a_policy_of_a_port_goes_before_that_of_the_service() {
    let documents =
        with([policy("a/p", "Service=a/s#other", "ConfigMap=a/ca"), policy("a/q", "Service=a/s", "")]);
    assert_eq!(tls(&documents, "a/s/81"), verified(Some("a/ca/ca")));
    assert_eq!(tls(&documents, "a/s/80"), verified(None));
    let accepted = ["Gateway a/gw: Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"];
    assert_eq!(told(&documents, "BackendTLSPolicy a/p"), accepted);
    assert_eq!(told(&documents, "BackendTLSPolicy a/q"), accepted);
    assert_eq!(tls(&with([policy("a/p", "Service=a/s#other", "")]), "a/s/80"), None);
}

#[test]
fn of_two_policies_of_a_target_the_older_holds() {
    let one = || policy("a/p", "Service=a/s", "");
    let other = || policy("a/q", "Service=a/s", "ConfigMap=a/ca");
    let documents = with([one(), other()]);
    assert_eq!(tls(&documents, "a/s/80"), verified(None));
    let lost = ["Gateway a/gw: Accepted=False/Conflicted ResolvedRefs=True/ResolvedRefs"];
    assert_eq!(told(&documents, "BackendTLSPolicy a/q"), lost);
    let documents = with([one(), created(1, other())]);
    assert_eq!(tls(&documents, "a/s/80"), verified(Some("a/ca/ca")));
    assert_eq!(told(&documents, "BackendTLSPolicy a/p"), lost);
}

#[test]
fn policies_are_told_what_became_of_them() {
    let table = [
        (
            "Service=a/s",
            "ConfigMap=a/none",
            "Accepted=False/NoValidCACertificate ResolvedRefs=False/InvalidCACertificateRef",
        ),
        (
            "Service=a/s",
            "ConfigMap=a/bad",
            "Accepted=False/NoValidCACertificate ResolvedRefs=False/InvalidCACertificateRef",
        ),
        ("Service=a/s", "Other=a/ca", "Accepted=False/NoValidCACertificate ResolvedRefs=False/InvalidKind"),
        (
            "Service=a/s",
            "ConfigMap=a/bad ConfigMap=a/ca",
            "Accepted=True/Accepted ResolvedRefs=False/InvalidCACertificateRef",
        ),
        ("Service=a/s#none", "", "Accepted=False/TargetNotFound ResolvedRefs=True/ResolvedRefs"),
    ];
    for (targets, authorities, expected) in table {
        let found = told(&with([policy("a/p", targets, authorities)]), "BackendTLSPolicy a/p");
        assert_eq!(found, [format!("Gateway a/gw: {expected}")], "{targets} {authorities}");
    }
    let found = told(&with([policy("a/p", "Service=a/none", "")]), "BackendTLSPolicy a/p");
    assert_eq!(found, [" Accepted=False/TargetNotFound ResolvedRefs=True/ResolvedRefs"]);
}

/// Its members are spoken to as they say, and must not be without TLS because the policy is of something that has no connections.
#[test]
fn a_policy_of_a_fallback_fails_closed() {
    let documents = with([
        fallback("a/main", "a/s:80"),
        policy("a/p", "a/main", "ConfigMap=a/ca"),
        grpc("a/x", "a/gw", "", vec![to("a/main")]),
    ]);
    assert_eq!(tls(&documents, "a/main"), Some(UpstreamTls::Invalid));
    assert_eq!(tls(&documents, "a/s/80"), None);
    let expected = ["Gateway a/gw: Accepted=False/Invalid ResolvedRefs=True/ResolvedRefs"];
    assert_eq!(told(&documents, "BackendTLSPolicy a/p"), expected);
    assert_eq!(told(&documents, "Backend a/main"), [" Accepted=False/Invalid"]);
}

#[test]
fn every_way_to_a_target_is_an_ancestor() {
    let documents = with([
        policy("a/p", "Service=a/t", ""),
        service("a/t", "x:80"),
        service("a/root", "x:80"),
        fallback("a/main", "a/s:80 a/t:80"),
        grpc("a/mesh", "Service=a/root", "", vec![to("a/t:80")]),
        gateway("a/second", vec![http("http", 8081, "")]),
        grpc("a/x", "a/second", "", vec![to("a/main")]),
    ]);
    let accepted = "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs";
    let expected = [format!("Gateway a/second: {accepted}"), format!("Service a/root: {accepted}")];
    assert_eq!(told(&documents, "BackendTLSPolicy a/p"), expected);
}

#[test]
fn a_backend_may_ask_for_tls_itself() {
    let with_tls = |name: &str, pem: Option<&str>| {
        let mut backend = backend(name, "10.0.0.1:80");
        if let Spec::Backend(backend) = &mut backend.spec {
            let ca_pem = pem.map(str::to_owned);
            backend.tls = Some(NativeTls { spot: Spot::default(), sni: "sni.example".to_owned(), ca_pem });
        }
        backend
    };
    let documents = with([
        with_tls("a/own", Some(PEM)),
        with_tls("a/system", None),
        with_tls("a/wrong", Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----")),
        with_tls("a/policed", None),
        policy("a/p", "a/policed", "ConfigMap=a/ca"),
        grpc("a/x", "a/gw", "", vec![to("a/own a/system a/wrong a/policed")]),
    ]);
    assert_eq!(tls(&documents, "a/own"), verified(Some("a/own/backend-ca")));
    assert_eq!(tls(&documents, "a/system"), verified(None));
    assert_eq!(tls(&documents, "a/wrong"), Some(UpstreamTls::Invalid));
    assert_eq!(tls(&documents, "a/policed"), verified(Some("a/ca/ca")));
    assert_eq!(told(&documents, "Backend a/wrong"), [" Accepted=False/Invalid"]);
}

#[test]
fn a_certificate_is_a_secret_with_both_parts_in_pem() {
    let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let make = |name: &str, chain: &str, key: &str| {
        let data = vec![("tls.crt".to_owned(), chain.into()), ("tls.key".to_owned(), key.into())];
        document(Kind::Secret, name, Spec::Secret(Secret { data }))
    };
    let documents = documents([
        gateway("a/gw", vec![]),
        secret("a/fine"),
        make("a/commented", PEM, key),
        make("a/swapped", key, PEM),
        make("a/text", "hello", key),
        make("a/cut", "-----BEGIN CERTIFICATE-----\nAAAA\n", key),
        make("a/base64", "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n", key),
        make(
            "a/encrypted",
            PEM,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        ),
        make("b/far", PEM, key),
    ]);
    let lookup = Lookup::new(&documents, &Options::default());
    let (_, gateway) = documents.iter().find(|(key, _)| key.kind == Kind::Gateway).unwrap();
    let table = [
        ("Secret=a/fine", "a/fine"),
        ("Secret=a/commented", "a/commented"),
        ("Secret=a/swapped", "InvalidCertificateRef"),
        ("Secret=a/text", "InvalidCertificateRef"),
        ("Secret=a/cut", "InvalidCertificateRef"),
        ("Secret=a/base64", "InvalidCertificateRef"),
        ("Secret=a/encrypted", "InvalidCertificateRef"),
        ("Secret=a/none", "InvalidCertificateRef"),
        ("ConfigMap=a/fine", "InvalidCertificateRef"),
        ("Secret=b/far", "RefNotPermitted"),
        ("Secret=b/none", "RefNotPermitted"),
    ];
    for (text, expected) in table {
        let found = lookup.certificate(&gateway.document, &object(text));
        let found = found.map_or_else(|problem| problem.reason.to_string(), |(name, _)| name);
        assert_eq!(found, expected, "{text}");
    }
    let labels = namespace_labels(None, "a");
    assert_eq!(labels, [("kubernetes.io/metadata.name".to_owned(), "a".to_owned())]);
    assert!(lookup.is_granted(Kind::Gateway, "a", &reference(Kind::Secret, "a/x")));
}
