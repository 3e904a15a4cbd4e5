//! Clients with certificates: what their names grant, and how their streams end.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, string::Ia5String,
};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Status};
use xds_cache::{Layer, NodeGroup, Reason, ResourceType};
use xds_codec::Codec;

use super::support::*;
use crate::grpc::{GrpcConfig, discovery};
use crate::listen::{Tls, TlsFiles, TlsTiming, TlsVersion, TrustFiles};

type Lrs = ClientStream<LoadStatsRequest, LoadStatsResponse>;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

struct Ca(CertifiedIssuer<'static, KeyPair>);

/// The names of a certificate.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    uris: &'static [&'static str],
    dns: &'static [&'static str],
    cn: Option<&'static str>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, names: Names, not_after: SystemTime) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        let text = |text: &&str| Ia5String::try_from(*text).unwrap();
        params.subject_alt_names.extend(names.uris.iter().map(|uri| SanType::URI(text(uri))));
        params.subject_alt_names.extend(names.dns.iter().map(|name| SanType::DnsName(text(name))));
        params.distinguished_name.remove(DnType::CommonName);
        if let Some(name) = names.cn {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.not_before = (SystemTime::now() - DAY).into();
        params.not_after = not_after.into();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A server that asks clients for certificates, and an authority.
struct Rig {
    server: Server,
    ca: Ca,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        let names = Names { dns: &["localhost"], ..Names::default() };
        let (certificate, key) = ca.issue(names, SystemTime::now() + DAY);
        let path = |name: &str| dir.path().join(name);
        fs::write(path("tls.crt"), certificate).unwrap();
        fs::write(path("tls.key"), key).unwrap();
        fs::write(path("ca.crt"), ca.0.pem()).unwrap();
        let files = TlsFiles {
            certificate: path("tls.crt"),
            key: path("tls.key"),
            trust: TrustFiles { authorities: Some(path("ca.crt")), ..TrustFiles::default() },
            needs_client_certificate: false,
            min_version: TlsVersion::Tls12,
        };
        let timing = TlsTiming {
            poll_interval: Duration::from_secs(60),
            handshake: Duration::from_secs(60),
            max_handshakes: 4096,
            expiry_warning: DAY,
        };
        let tls = Tls::open("test", files, timing).unwrap();
        let config = GrpcConfig {
            needs_certificate: true,
            load_report_interval: Some(Duration::from_secs(5)),
            first_request_timeout: Duration::from_secs(2),
            ..GrpcConfig::default()
        };
        let server = Server::on(config, Some(tls)).await;
        Self { server, ca, _dir: dir }
    }

    fn publish(&self, groups: &[(&str, serde_json::Value)]) {
        let mut layer = Layer::default();
        for (name, fields) in groups {
            let definition = group(name, fields.clone());
            let entry = layer.groups.entry(definition.name.clone()).or_default();
            entry.resources = [Arc::new(cluster(name, name))].into_iter().collect();
            entry.definition = Some(definition);
        }
        self.server.world.publish_layer(&layer);
    }

    async fn channel_until(
        &self,
        names: Names,
        not_after: SystemTime,
    ) -> Result<Channel, tonic::transport::Error> {
        let (certificate, key) = self.ca.issue(names, not_after);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.ca.0.pem()))
            .identity(Identity::from_pem(certificate, key));
        let uri = format!("https://localhost:{}", self.server.address.port());
        let endpoint = tonic::transport::Endpoint::from_shared(uri).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await
    }

    async fn channel(&self, names: Names) -> Channel {
        self.channel_until(names, SystemTime::now() + DAY).await.unwrap()
    }
}

fn group(name: &str, mut fields: serde_json::Value) -> NodeGroup {
    fields["name"] = name.into();
    Codec::new().unwrap().node_group_from_json(&fields).unwrap()
}

fn edge() -> serde_json::Value {
    serde_json::json!({"selector": {"nodeIds": ["edge-*"]}, "identities": [
        {"spiffe": "spiffe://example.org/node/*", "nodeIds": ["{1}"]},
        {"dns": "*.edge.example.com", "nodeIds": ["{1}"]},
        {"cn": "edge-legacy"},
    ]})
}

fn open() -> serde_json::Value {
    serde_json::json!({"selector": {"all": true}})
}

const EDGE_1: Names =
    Names { uris: &["spiffe://example.org/node/edge-1"], dns: &[], cn: Some("edge-legacy") };

/// The clusters that each way of asking gives, or the status.
async fn asked(channel: &Channel, node: &str) -> Vec<Result<Vec<String>, Status>> {
    let mut answers = Vec::new();
    for path in [ADS, STREAM_CLUSTERS] {
        let mut stream = Sotw::open(channel, path).await.unwrap();
        stream.send(all_clusters(node));
        let answer = within("an answer", stream.responses.message()).await;
        answers.push(answer.map(|response| texts(&response.unwrap())));
    }
    let mut stream = Delta::open(channel, DELTA_ADS).await.unwrap();
    let type_url = ResourceType::Cluster.type_url().to_owned();
    stream.send(DeltaDiscoveryRequest { node: super::support::node(node), type_url, ..Default::default() });
    let answer = within("an answer", stream.responses.message()).await;
    let names = |response: Option<envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse>| {
        response.unwrap().resources.into_iter().map(|resource| resource.name).collect()
    };
    answers.push(answer.map(names));
    let fetched =
        unary::<DiscoveryRequest, DiscoveryResponse>(channel, FETCH_CLUSTERS, all_clusters(node)).await;
    answers.push(fetched.map(|response| texts(&response)));
    let mut reports = Lrs::open(channel, LRS).await.unwrap();
    reports.send(LoadStatsRequest { node: super::support::node(node), ..Default::default() });
    let answer = within("an answer", reports.responses.message()).await;
    answers.push(answer.map(|response| response.unwrap().clusters));
    for names in answers.iter_mut().flatten() {
        names.sort();
    }
    answers
}

#[tokio::test]
async fn a_client_is_given_what_its_names_grant_or_is_refused() {
    let rig = Rig::start().await;
    let core = serde_json::json!({"selector": {"nodeIds": ["core-*"]}, "identities": [{"cn": "core"}]});
    rig.publish(&[("edge", edge()), ("core", core), ("open", open())]);
    let uris = |uris| Names { uris, ..Names::default() };
    let dns = |dns| Names { dns, ..Names::default() };
    let cn = |cn| Names { cn: Some(cn), ..Names::default() };
    let granted = Ok(vec!["edge", "open"]);
    let (denied, mismatch) = (Err("identity-not-allowed: "), Err("node-id-mismatch: "));
    for (names, node, expected) in [
        (EDGE_1, "edge-1", granted.clone()),
        (dns(&["x.example.com", "edge-2.edge.example.com"]), "edge-2", granted.clone()),
        (cn("edge-legacy"), "edge-9", granted),
        (EDGE_1, "other", Ok(vec!["open"])),
        // The names of another, and claims of another.
        (EDGE_1, "edge-2", mismatch.clone()),
        (dns(&["edge-2.edge.example.com"]), "edge-1", mismatch),
        (EDGE_1, "core-1", denied.clone()),
        (uris(&["spiffe://example.com/node/edge-1"]), "edge-1", denied.clone()),
        (uris(&["spiffe://example.org/node/edge-1/x"]), "edge-1", denied.clone()),
        (cn("edge"), "edge-1", denied.clone()),
        // A common name beside other names, a wildcard, and another kind of URI prove nothing.
        (Names { dns: &["x.example.com"], ..cn("edge-legacy") }, "edge-1", denied),
        (dns(&["*.edge.example.com"]), "edge-1", Err("no-credential: ")),
        (uris(&["https://example.org/node/edge-1"]), "edge-1", Err("no-credential: ")),
    ] {
        let channel = rig.channel(names).await;
        for (way, answer) in asked(&channel, node).await.into_iter().enumerate() {
            match (&expected, answer) {
                (Ok(expected), answer) => assert_eq!(&answer.unwrap(), expected, "{names:?} {node} {way}"),
                (Err(slug), answer) => {
                    let status = answer.expect_err(&format!("{names:?} {node} {way}"));
                    assert!(status.message().starts_with(slug), "{names:?} {node} {way}: {status}");
                    let code =
                        if slug.starts_with("no-") { Code::Unauthenticated } else { Code::PermissionDenied };
                    assert_eq!(status.code(), code, "{status}");
                    assert!(status.message().is_ascii(), "{status}");
                }
            }
        }
    }
    let counts = rig.server.world.refusals.counts();
    assert_eq!((counts[&Reason::NodeIdMismatch], counts[&Reason::NoCredential]), (10, 10));
    assert_eq!(counts[&Reason::IdentityNotAllowed], 25);
}

#[tokio::test]
async fn every_method_refuses_who_claims_the_group_of_another() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    let channel = rig.channel(Names { cn: Some("other"), ..Names::default() }).await;
    for path in discovery::paths() {
        let status = if path.contains("/Fetch") {
            let fetched =
                unary::<DiscoveryRequest, DiscoveryResponse>(&channel, path, all_clusters("edge-1"));
            fetched.await.unwrap_err()
        } else if path.contains("/Delta") {
            let mut stream = Delta::open(&channel, path).await.unwrap();
            stream.send(DeltaDiscoveryRequest { node: node("edge-1"), ..Default::default() });
            stream.end().await
        } else {
            let mut stream = Sotw::open(&channel, path).await.unwrap();
            stream.send(DiscoveryRequest { node: node("edge-1"), ..Default::default() });
            stream.end().await
        };
        assert_eq!(status.code(), Code::PermissionDenied, "{path}: {status}");
        assert!(status.message().starts_with("identity-not-allowed: "), "{path}: {status}");
    }
    assert_eq!(rig.server.world.board.n_streams(), 0);
}

#[tokio::test]
async fn a_stream_that_loses_its_grant_ends_and_nothing_is_withdrawn() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    let channel = rig.channel(EDGE_1).await;
    let mut streams = Vec::new();
    for path in [ADS, STREAM_CLUSTERS] {
        let mut stream = Sotw::open(&channel, path).await.unwrap();
        stream.send(all_clusters("edge-1"));
        let first = stream.next().await;
        assert_eq!(texts(&first), ["edge"]);
        stream.ack(&first, &[]);
        streams.push(stream);
    }
    let mut reports = Lrs::open(&channel, LRS).await.unwrap();
    reports.send(LoadStatsRequest { node: node("edge-1"), ..Default::default() });
    assert_eq!(reports.next().await.clusters, ["edge"]);
    let mut taken = edge();
    taken["identities"] = serde_json::json!([{"cn": "somebody-else"}]);
    rig.publish(&[("edge", taken), ("open", open())]);
    for stream in &mut streams {
        let status = stream.end().await;
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().starts_with("identity-not-allowed: "), "{status}");
    }
    assert_eq!(reports.end().await.code(), Code::PermissionDenied);
    // The connection goes on: with the grant back, so does everything.
    rig.publish(&[("edge", edge())]);
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("edge-1"));
    assert_eq!(texts(&stream.next().await), ["edge"]);
    let shown = &rig.server.world.board.streams()[0];
    let identity = shown.with(|status| status.info.proofs[0].subject.to_string());
    assert_eq!(identity, "spiffe://example.org/node/edge-1");
}

#[tokio::test]
async fn a_stream_ends_with_its_certificate_and_the_connection_soon_after() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    let not_after = SystemTime::now() + Duration::from_secs(4);
    let channel = rig.channel_until(EDGE_1, not_after).await.unwrap();
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("edge-1"));
    let first = stream.next().await;
    stream.ack(&first, &[]);
    let status = stream.end().await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().starts_with("expired: the client certificate ended at "), "{status}");
    assert!(SystemTime::now() + Duration::from_secs(1) > not_after);
    // The channel connects again by itself, if it can: with this certificate it cannot.
    let refused =
        unary::<DiscoveryRequest, DiscoveryResponse>(&channel, FETCH_CLUSTERS, all_clusters("edge-1")).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    rig.server.world.wait("the end of the connection", |world| world.board.n_streams() == 0).await;
    assert_eq!(rig.server.world.refusals.counts()[&Reason::Expired], 2);
}

#[tokio::test]
async fn certificates_with_ambiguous_names_are_refused() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    for uris in [
        &["spiffe://example.org/node/edge-1", "spiffe://example.org/node/edge-2"][..],
        &["spiffe://example.org/node/edge-1", "https://example.org"],
        &["SPIFFE://example.org/node/edge-1"],
        &["spiffe://example.org/node/edge-1?x"],
        &["spiffe://Example.org/node/edge-1"],
        &["spiffe://example.org/node/../edge-1"],
    ] {
        let uris: &'static [&'static str] = Box::leak(uris.to_vec().into());
        let refused = match rig
            .channel_until(Names { uris, ..Names::default() }, SystemTime::now() + DAY)
            .await
        {
            Err(_) => true,
            Ok(channel) => {
                let fetched =
                    unary::<DiscoveryRequest, DiscoveryResponse>(&channel, FETCH_CLUSTERS, all_clusters("x"));
                fetched.await.is_err()
            }
        };
        assert!(refused, "{uris:?}");
    }
    let last = rig.server.world.refusals.recent(SystemTime::now());
    let detail = &last.iter().find(|refused| refused.reason == Reason::Handshake).unwrap().last_detail;
    assert!(
        detail.contains("bad-name: the URI name of the client certificate is not a SPIFFE ID"),
        "{detail}"
    );
}
