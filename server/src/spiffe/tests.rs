//! What agents send, and what operators read of it.

use std::time::SystemTime;

use prost::Message as _;
use rcgen::{CertificateParams, KeyPair, SanType};

use super::client::{X509Svid, X509SvidResponse};
use super::*;

const ID: &str = "spiffe://example.org/xds";

/// A certificate with these URIs and DNS names, in DER.
fn certificate(uris: &[&str], dns: &[&str]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
    let dns = dns.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
    params.subject_alt_names = uris.chain(dns).collect();
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn response(id: &str, chain: Vec<u8>) -> X509SvidResponse {
    let svid = X509Svid {
        spiffe_id: id.to_owned(),
        x509_svid: chain,
        x509_svid_key: b"SECRET".to_vec(),
        bundle: b"own".to_vec(),
    };
    X509SvidResponse { svids: vec![svid], ..X509SvidResponse::default() }
}

#[test]
fn an_endpoint_is_a_unix_socket_with_an_absolute_path() {
    for good in ["unix:/run/agent.sock", "unix:///run/agent.sock"] {
        assert_eq!(good.parse::<SpiffeEndpoint>().unwrap().to_string(), "unix:/run/agent.sock");
    }
    for (bad, wrong) in [
        ("/run/agent.sock", InvalidEndpoint::NotUnix),
        ("tcp://127.0.0.1:8081", InvalidEndpoint::NotUnix),
        ("", InvalidEndpoint::NotUnix),
        ("unix:", InvalidEndpoint::NotAbsolute),
        ("unix://", InvalidEndpoint::NotAbsolute),
        ("unix:agent.sock", InvalidEndpoint::NotAbsolute),
        ("unix://host/agent.sock", InvalidEndpoint::NotAbsolute),
    ] {
        assert_eq!(bad.parse::<SpiffeEndpoint>(), Err(wrong), "{bad}");
    }
}

#[test]
fn the_first_certificate_counts_with_all_trust_domains() {
    let chain = certificate(&[ID], &["xds"]);
    let mut response = response(ID, chain.clone());
    response
        .svids
        .push(X509Svid { spiffe_id: "spiffe://example.org/other".to_owned(), ..X509Svid::default() });
    for name in ["spiffe://partner.org", "other.org", "example.org"] {
        response.federated_bundles.insert(name.to_owned(), name.as_bytes().to_vec());
    }
    let svid = Svid::try_from(response).unwrap();
    assert_eq!((svid.id.as_str(), &svid.chain, svid.has_dns_name), (ID, &chain, true));
    let bundles = svid.bundles.iter().map(|(name, bundle)| (name.as_str(), bundle.as_slice()));
    let expected: [(&str, &[u8]); 3] =
        [("example.org", b"own"), ("other.org", b"other.org"), ("partner.org", b"spiffe://partner.org")];
    assert_eq!(bundles.collect::<Vec<_>>(), expected);
    let without = Svid::try_from(self::response(ID, certificate(&[ID], &[]))).unwrap();
    assert!(!without.has_dns_name);
}

#[test]
fn an_answer_that_makes_no_sense_is_refused_with_the_reason() {
    let mut bad_domain = response(ID, certificate(&[ID], &[]));
    bad_domain.federated_bundles.insert("Not A Domain\u{202e}".to_owned(), vec![]);
    for (response, wrong) in [
        (X509SvidResponse::default(), "it has no certificate"),
        (response("https://example.org", certificate(&[ID], &[])), "not a SPIFFE ID"),
        (response(ID, vec![]), "not a valid certificate"),
        (response(ID, b"garbage".to_vec()), "not a valid certificate"),
        (response(ID, certificate(&[], &["xds"])), "its certificate is not one of spiffe://example.org/xds"),
        (response(ID, certificate(&["spiffe://example.org/other"], &[])), "its certificate is not one of"),
        (bad_domain, "the trust domain Not A Domain\\u{202e}: not a SPIFFE ID"),
    ] {
        let error = Svid::try_from(response).unwrap_err();
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn no_text_shows_a_key() {
    let response = response(ID, certificate(&[ID], &[]));
    let key = format!("{:?}", b"SECRET".to_vec());
    assert!(format!("{:?}", response.encode_to_vec()).contains(&key[1..key.len() - 1]));
    let svid = Svid::try_from(response.clone()).unwrap();
    for text in [format!("{response:?}"), format!("{svid:?}")] {
        assert!(text.contains(ID) && !text.contains(&key) && !text.contains("SECRET"), "{text}");
    }
}

#[test]
fn an_agent_that_refuses_is_not_ready_and_one_that_is_away_is_until_the_certificate_ends() {
    let agent = Agent::new("unix:/agent".parse().unwrap());
    let health = || {
        let AgentHealth { problem, unready } = agent.health();
        (problem.unwrap_or_default(), unready.is_some())
    };
    let fail = |fault| agent.fail(fault, "why".to_owned(), SystemTime::UNIX_EPOCH);
    assert_eq!(health(), (String::new(), true));
    fail(Fault::Away);
    let away = "the SPIFFE agent at unix:/agent does not answer since 1970-01-01T00:00:00.000Z: why; ";
    assert_eq!(health(), (format!("{away}there is no certificate yet"), true));
    agent.take(Svid::try_from(response(ID, certificate(&[ID], &[]))).unwrap());
    assert_eq!(health(), (String::new(), false));
    fail(Fault::Away);
    // The time is that of the first failure.
    agent.fail(Fault::Away, "why".to_owned(), SystemTime::now());
    assert_eq!(health(), (format!("{away}the last certificate is used until it ends"), false));
    fail(Fault::Unusable);
    assert!(!health().1);
    fail(Fault::Denied);
    let (problem, is_unready) = health();
    assert!(is_unready && problem.contains("has no identity for this server"), "{problem}");
    assert!(agent.state().svid.is_some());
    let counts: Vec<u64> = agent.state().n_failures.into_values().collect();
    assert_eq!(counts, [3, 1, 1]);
}
