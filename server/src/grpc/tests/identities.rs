//! Clients with certificates: what their names grant, and how their streams end.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest, ClientStatusResponse};
use http_body_util::{BodyExt as _, Full};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519,
    PublicKeyData as _, SanType, SigningKey as _, string::Ia5String,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Status};
use tower::ServiceExt as _;
use xds_access::Policy;
use xds_cache::{Layer, NodeGroup, Reason, ResourceType};
use xds_codec::Codec;

use super::support::*;
use crate::grpc::{GrpcConfig, discovery};
use crate::listen::{Own, Tls, TlsFiles, TlsTiming, TlsVersion, TrustFiles};

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
    tls: Arc<Tls>,
    dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    async fn start_with(change: impl FnOnce(GrpcConfig) -> GrpcConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        let names = Names { dns: &["localhost"], ..Names::default() };
        let (certificate, key) = ca.issue(names, SystemTime::now() + DAY);
        let path = |name: &str| dir.path().join(name);
        fs::write(path("tls.crt"), certificate).unwrap();
        fs::write(path("tls.key"), key).unwrap();
        fs::write(path("ca.crt"), ca.0.pem()).unwrap();
        let files = TlsFiles {
            own: Own::Files { certificate: path("tls.crt"), key: path("tls.key") },
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
        let tls = Tls::open("test", files, None, timing, Arc::default()).unwrap();
        let config = GrpcConfig {
            needs_credential: true,
            authenticates_clients: true,
            client_status: true,
            load_report_interval: Some(Duration::from_secs(5)),
            first_request_timeout: Duration::from_secs(2),
            ..GrpcConfig::default()
        };
        let server = Server::on(change(config), Some(Arc::clone(&tls))).await;
        Self { server, ca, tls, dir }
    }

    /// Has a policy count from now on.
    fn set_policy(&self, policy: Policy) {
        self.server.world.policy.send_replace(Arc::new(policy));
    }

    fn publish(&self, groups: &[(&str, Value)]) {
        self.publish_with(groups, |_| {});
    }

    fn publish_with(&self, groups: &[(&str, Value)], change: impl Fn(&mut NodeGroup)) {
        let mut layer = Layer::default();
        for (name, fields) in groups {
            let mut definition = group(name, fields.clone());
            change(&mut definition);
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
        self.connect(self.tls().identity(Identity::from_pem(certificate, key))).await
    }

    /// A connection without a certificate of the client.
    async fn anonymous(&self) -> Channel {
        self.connect(self.tls()).await.unwrap()
    }

    fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.ca.0.pem()))
    }

    async fn connect(&self, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
        let uri = format!("https://localhost:{}", self.server.address.port());
        let endpoint = tonic::transport::Endpoint::from_shared(uri).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await
    }

    async fn channel(&self, names: Names) -> Channel {
        self.channel_until(names, SystemTime::now() + DAY).await.unwrap()
    }
}

fn group(name: &str, mut fields: Value) -> NodeGroup {
    fields["name"] = name.into();
    Codec::new().unwrap().node_group_from_json(&fields).unwrap()
}

fn edge() -> Value {
    serde_json::json!({"selector": {"nodeIds": ["edge-*"]}, "identities": [
        {"spiffe": "spiffe://example.org/node/*", "nodeIds": ["{1}"]},
        {"dns": "*.edge.example.com", "nodeIds": ["{1}"]},
        {"cn": "edge-legacy"},
    ]})
}

fn open() -> Value {
    serde_json::json!({"selector": {"all": true}})
}

const EDGE_1: Names =
    Names { uris: &["spiffe://example.org/node/edge-1"], dns: &[], cn: Some("edge-legacy") };

/// The clusters that each way of asking gives, or the status.
async fn asked(channel: &Channel, node: &str) -> Vec<Result<Vec<String>, Status>> {
    asked_with(channel, node, &[]).await
}

/// The same with values of the header `authorization`.
async fn asked_with(
    channel: &Channel,
    node: &str,
    authorization: &[&str],
) -> Vec<Result<Vec<String>, Status>> {
    let mut answers = Vec::new();
    for path in [ADS, STREAM_CLUSTERS] {
        let answer = async {
            let mut stream = Sotw::open_with(channel, path, authorization).await?;
            stream.send(all_clusters(node));
            Ok(texts(&within("an answer", stream.responses.message()).await?.unwrap()))
        };
        answers.push(answer.await);
    }
    let answer = async {
        let mut stream = Delta::open_with(channel, DELTA_ADS, authorization).await?;
        let (node, type_url) = (super::support::node(node), ResourceType::Cluster.type_url().to_owned());
        stream.send(DeltaDiscoveryRequest { node, type_url, ..Default::default() });
        let response = within("an answer", stream.responses.message()).await?.unwrap();
        Ok(response.resources.into_iter().map(|resource| resource.name).collect())
    };
    answers.push(answer.await);
    let request = all_clusters(node);
    let fetched =
        unary_with::<DiscoveryRequest, DiscoveryResponse>(channel, FETCH_CLUSTERS, request, authorization);
    answers.push(fetched.await.map(|response| texts(&response)));
    let answer = async {
        let mut reports = Lrs::open_with(channel, LRS, authorization).await?;
        reports.send(LoadStatsRequest { node: super::support::node(node), ..Default::default() });
        Ok(within("an answer", reports.responses.message()).await?.unwrap().clusters)
    };
    answers.push(answer.await);
    answers.push(polled(channel, node, authorization).await);
    for names in answers.iter_mut().flatten() {
        names.sort();
    }
    answers
}

/// The clusters that REST polling gives. A refusal is shown as its status of gRPC, and must not say anything else.
async fn polled(channel: &Channel, node: &str, authorization: &[&str]) -> Result<Vec<String>, Status> {
    let body = json!({"node": {"id": node, "user_agent_name": "envoy"}}).to_string();
    let mut request =
        http::Request::post("/v3/discovery:clusters").header("content-type", "application/json");
    for value in authorization {
        request = request.header("authorization", *value);
    }
    let request = request.body(tonic::body::Body::new(Full::from(body))).unwrap();
    let response = within("an answer", channel.clone().oneshot(request)).await;
    let response = response.map_err(|error| Status::from_error(error.into()))?;
    let status = response.status();
    let text = within("the body", response.into_body().collect()).await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({"detail": text.trim_end()}));
    let code = match status.as_u16() {
        200 => {
            let resources = answer["resources"].as_array().into_iter().flatten();
            return Ok(resources.map(|resource| resource["name"].as_str().unwrap().to_owned()).collect());
        }
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        _ => panic!("{status}: {text}"),
    };
    assert!(answer.get("resources").is_none(), "{text}");
    Err(Status::new(code, answer["detail"].as_str().unwrap()))
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
    assert_eq!((counts[&Reason::NodeIdMismatch], counts[&Reason::NoCredential]), (12, 12));
    assert_eq!(counts[&Reason::IdentityNotAllowed], 30);
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

const FETCH_STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
const STREAM_STATUS: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";

/// The nodes that somebody is told of, each with the number of its resources.
async fn told(channel: &Channel) -> Result<Vec<(String, usize)>, Status> {
    let request = ClientStatusRequest::default();
    let response = unary::<ClientStatusRequest, ClientStatusResponse>(channel, FETCH_STATUS, request).await?;
    let entry = |client: ClientConfig| (client.node.unwrap().id, client.generic_xds_configs.len());
    let mut told: Vec<(String, usize)> = response.config.into_iter().map(entry).collect();
    told.sort();
    Ok(told)
}

#[tokio::test]
async fn a_dry_run_serves_and_records_who_would_be_denied() {
    let rig = Rig::start_with(|config| GrpcConfig { access_dry_run: true, ..config }).await;
    rig.publish_with(&[("edge", edge()), ("open", open())], |definition| definition.tries_identities = true);
    let named = |name: &'static str| Names { cn: Some(name), ..Names::default() };
    for (names, node) in [(named("other"), "edge-1"), (EDGE_1, "edge-2"), (EDGE_1, "edge-1")] {
        let channel = rig.channel(names).await;
        for (way, answer) in asked(&channel, node).await.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), ["edge", "open"], "{names:?} {node} {way}");
        }
    }
    let lines = rig.server.world.trail.newest(100);
    let told: Vec<(&str, &str, &str)> = lines
        .iter()
        .filter(|line| line["event"] == "xds.denied" && line["outcome"] == "would deny")
        .map(|line| ["reason", "identity", "node"].map(|key| line[key].as_str().unwrap_or_default()).into())
        .collect();
    // One line for each identity and reason, however often; the last one is granted what it claims.
    assert_eq!(
        told,
        [
            ("node-id-mismatch", "spiffe://example.org/node/edge-1", "edge-2"),
            ("identity-not-allowed", "cn:other", "edge-1"),
        ]
    );
    let counts = rig.server.world.refusals.counts();
    assert!(counts.get(&Reason::IdentityNotAllowed).is_none_or(|n| *n == 0), "{counts:?}");
    let text = "denied:\n- { spiffe: \"spiffe://example.org/node/edge-1\" }\n";
    rig.set_policy(Policy::read("a.yaml", text.as_bytes(), &mut |_| Err("none".to_owned())).unwrap());
    let denied = rig.channel(EDGE_1).await;
    for answer in asked(&denied, "edge-1").await {
        assert_eq!(answer.unwrap(), ["edge", "open"], "a dry run serves whom the policy denies");
    }
    // A group that holds a secret does not try its identities: a denied identity proves nothing there.
    rig.publish(&[("edge", edge()), ("open", open())]);
    for answer in asked(&denied, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("no-credential: "));
    }
    for answer in asked(&rig.channel(named("other")).await, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("identity-not-allowed: "));
    }
    let no_certificate = asked(&rig.anonymous().await, "edge-1").await;
    assert!(
        no_certificate.iter().all(Result::is_err),
        "the port asks for certificates, whatever the policy says"
    );
}

#[tokio::test]
async fn client_status_is_for_principals_and_their_scope() {
    let rig = Rig::start().await;
    let named = |name: &'static str| Names { cn: Some(name), ..Names::default() };
    let core = serde_json::json!({"selector": {"nodeIds": ["core-*"]}, "identities": [{"cn": "core"}]});
    let both = serde_json::json!({"selector": {"nodeIds": ["edge-9"]}});
    rig.publish(&[("edge", edge()), ("core", core), ("both", both)]);
    let mut streams = Vec::new();
    for (name, node) in [("edge-legacy", "edge-1"), ("edge-legacy", "edge-9"), ("core", "core-1")] {
        let mut stream = Sotw::open(&rig.channel(named(name)).await, ADS).await.unwrap();
        stream.send(all_clusters(node));
        stream.next().await;
        streams.push(stream);
    }
    let tool = rig.channel(named("tool")).await;
    let asked = told(&tool).await.unwrap_err();
    assert_eq!(
        asked.code(),
        Code::PermissionDenied,
        "without principals, everyone is an ordinary client: {asked}"
    );
    let policy = |more: &str| {
        let text = format!(
            "principals:\n- {{ name: all, role: viewer, certificates: [{{ cn: tool }}] }}\n\
             - {{ name: some, role: viewer, groups: [edge], certificates: [{{ cn: edge-tool }}] }}\n{more}"
        );
        Policy::read("access.yaml", text.as_bytes(), &mut |_| Err("none".to_owned())).unwrap()
    };
    rig.set_policy(policy(""));
    let all = [("core-1", 1), ("edge-1", 1), ("edge-9", 2)].map(|(node, n)| (node.to_owned(), n));
    assert_eq!(told(&tool).await.unwrap(), all);
    // The second node has a group out of scope, so its resources are not told.
    let of_edge = rig.channel(named("edge-tool")).await;
    let edge_only = [("edge-1", 1), ("edge-9", 0)].map(|(node, n)| (node.to_owned(), n));
    assert_eq!(told(&of_edge).await.unwrap(), edge_only);
    let mut status =
        ClientStream::<ClientStatusRequest, ClientStatusResponse>::open(&tool, STREAM_STATUS).await.unwrap();
    status.send(ClientStatusRequest::default());
    assert_eq!(status.next().await.config.len(), 3);
    for ordinary in ["core", "edge-legacy"] {
        let refused = told(&rig.channel(named(ordinary)).await).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().starts_with("identity-not-allowed: client status is for"), "{refused}");
    }
    assert_eq!(told(&rig.anonymous().await).await.unwrap_err().code(), Code::Unauthenticated);
    // A principal that goes loses the stream that is open, too.
    rig.set_policy(policy("denied:\n- { cn: tool }\n"));
    status.send(ClientStatusRequest::default());
    let ended = status.end().await;
    assert!([Code::PermissionDenied, Code::Unauthenticated].contains(&ended.code()), "{ended}");
    let counts = rig.server.world.refusals.counts();
    assert!(counts[&Reason::IdentityNotAllowed] >= 3, "{counts:?}");
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
async fn the_audit_log_has_who_was_denied_and_as_whom() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    let (known, anonymous) = (rig.channel(EDGE_1).await, rig.anonymous().await);
    for channel in [&known, &known, &anonymous] {
        for answer in asked(channel, "edge-2").await {
            answer.unwrap_err();
        }
    }
    let lines = rig.server.world.trail.newest(10);
    let [no_credential, mismatch] = &lines[..] else { panic!("{lines:?}") };
    for (line, reason, identity, node) in [
        (mismatch, "node-id-mismatch", json!("spiffe://example.org/node/edge-1"), json!("edge-2")),
        (no_credential, "no-credential", Value::Null, Value::Null),
    ] {
        assert_eq!(
            (&line["event"], &line["outcome"], &line["reason"]),
            (&"xds.denied".into(), &"denied".into(), &reason.into())
        );
        assert_eq!((&line["identity"], &line["node"], &line["count"]), (&identity, &node, &1.into()));
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
}

#[tokio::test]
async fn streams_end_when_the_authority_of_their_certificate_is_taken_out_and_nothing_is_withdrawn() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge()), ("open", open())]);
    let following = tokio::spawn(Arc::clone(&rig.tls).follow(|_| ()));
    let channel = rig.channel(EDGE_1).await;
    let mut stream = Sotw::open(&channel, ADS).await.unwrap();
    stream.send(all_clusters("edge-1"));
    let first = stream.next().await;
    stream.ack(&first, &[]);
    let mut reports = Lrs::open(&channel, LRS).await.unwrap();
    reports.send(LoadStatsRequest { node: node("edge-1"), ..Default::default() });
    reports.next().await;
    fs::write(rig.dir.path().join("ca.crt"), Ca::new().0.pem()).unwrap();
    rig.tls.look_soon();
    for status in [stream.end().await, ended(&mut reports).await] {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(
            status.message(),
            "untrusted: the server no longer accepts the client certificate (unknown-issuer); connect with another one"
        );
    }
    // It cannot go on over the same connection, nor over a new one.
    for answer in asked(&channel, "edge-1").await {
        answer.unwrap_err();
    }
    until(&rig, "the end of the connection", |rig| rig.server.port.n_open() == 0).await;
    // The connection and its two streams, besides calls that came before its end.
    let n = rig.server.world.refusals.counts()[&Reason::Untrusted];
    assert!((3..=9).contains(&n), "{n}");
    following.abort();
}

async fn until(rig: &Rig, what: &str, holds: impl Fn(&Rig) -> bool) {
    within(what, async {
        while !holds(rig) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
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

/// An issuer of tokens.
struct Issuer(KeyPair);

impl Issuer {
    fn new() -> Self {
        Self(KeyPair::generate_for(&PKCS_ED25519).unwrap())
    }

    /// The policy that trusts this issuer, with more lines.
    fn policy(&self, more: &str) -> Policy {
        let yaml = format!(
            "issuers: [{{ name: cluster, issuer: 'https://issuer.example', audiences: [xds], jwksFile: k, leeway: 1s }}]\n{more}"
        );
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.0.der_bytes());
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x}]}).to_string();
        Policy::read("access.yaml", yaml.as_bytes(), &mut |_| Ok(keys.clone().into_bytes())).unwrap()
    }

    /// The value of `authorization` for a token of a pod that is good for some seconds, and that long again.
    fn bearer(&self, pod: &str, seconds: u64) -> String {
        self.bearer_of(&Self::claims(pod, seconds))
    }

    fn claims(pod: &str, seconds: u64) -> Value {
        let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds;
        json!({"iss": "https://issuer.example", "aud": "xds", "sub": "edge", "exp": exp, "pod": {"name": pod}})
    }

    fn bearer_of(&self, claims: &Value) -> String {
        self.bearer_with(&json!({"alg": "EdDSA", "kid": "1"}), claims)
    }

    fn bearer_with(&self, header: &Value, claims: &Value) -> String {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", part(&header.to_string()), part(&claims.to_string()));
        let signature = self.0.sign(message.as_bytes()).unwrap();
        format!("Bearer {message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

/// How a stream ends, whatever comes before.
async fn ended(stream: &mut Lrs) -> Status {
    loop {
        match within("the end of the stream", stream.responses.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => return Status::ok(""),
            Err(status) => return status,
        }
    }
}

fn by_token() -> Value {
    json!({"selector": {"nodeIds": ["edge-*"]}, "identities": [
        {"jwt": {"issuer": "cluster", "subject": "edge", "claims": {"/pod/name": "{node}"}}},
        {"cn": "edge-legacy"},
    ]})
}

#[tokio::test]
async fn a_token_grants_as_a_certificate_does() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", by_token()), ("open", open())]);
    let (issuer, other) = (Issuer::new(), Issuer::new());
    rig.set_policy(issuer.policy(""));
    let (anonymous, legacy) =
        (rig.anonymous().await, rig.channel(Names { cn: Some("edge-legacy"), ..Names::default() }).await);
    let good = issuer.bearer("edge-1", 600);
    let old =
        issuer.bearer_of(&json!({"iss": "https://issuer.example", "aud": "xds", "sub": "edge", "exp": 1}));
    let forged = other.bearer("edge-1", 600);
    let claims = Issuer::claims("edge-1", 600);
    let mut claims_elsewhere = claims.clone();
    claims_elsewhere["aud"] = "somebody else".into();
    let elsewhere = issuer.bearer_of(&claims_elsewhere);
    let unsigned = issuer.bearer_with(&json!({"alg": "none", "kid": "1"}), &claims);
    let unknown = issuer.bearer_with(&json!({"alg": "EdDSA", "kid": "2"}), &claims);
    let (granted, only_open) = (Ok(vec!["edge", "open"]), Ok(vec!["open"]));
    for (channel, node, authorization, expected) in [
        (&anonymous, "edge-1", &[&*good][..], granted.clone()),
        (&anonymous, "other", &[&*good], only_open),
        (&anonymous, "edge-2", &[&*good], Err("node-id-mismatch: ")),
        (
            &anonymous,
            "edge-1",
            &[],
            Err("no-credential: this server serves clients that show a certificate or a bearer"),
        ),
        (&anonymous, "edge-1", &[&*old], Err("bad-token: the token ended at 1970-01-01T00:00:01")),
        (&anonymous, "edge-1", &[&*forged], Err("bad-token: the token's signature is wrong")),
        (&anonymous, "edge-1", &[&*elsewhere], Err("bad-token: ")),
        (&anonymous, "edge-1", &[&*unsigned], Err("bad-token: ")),
        (&anonymous, "edge-1", &[&*unknown], Err("bad-token: ")),
        (&anonymous, "edge-1", &["Bearer"], Err("bad-token: expected one header")),
        (&anonymous, "edge-1", &["Basic eDp5"], Err("bad-token: expected one header")),
        (&anonymous, "edge-1", &[&*good, &*good], Err("bad-token: expected one header")),
        // A bad token beside a good certificate, and a good one.
        (&legacy, "edge-1", &[], granted.clone()),
        (&legacy, "edge-1", &[&*forged], Err("bad-token: ")),
        (&legacy, "edge-1", &[&*good], granted),
    ] {
        for (way, answer) in asked_with(channel, node, authorization).await.into_iter().enumerate() {
            match &expected {
                Ok(expected) => assert_eq!(&answer.unwrap(), expected, "{node} {way}"),
                Err(beginning) => {
                    let status = answer.expect_err(&format!("{beginning} {way}"));
                    assert!(status.message().starts_with(beginning), "{beginning} {way}: {status}");
                    let is_known = beginning.starts_with("node-id");
                    let code = if is_known { Code::PermissionDenied } else { Code::Unauthenticated };
                    assert_eq!(status.code(), code, "{status}");
                    assert!(status.message().is_ascii(), "{status}");
                }
            }
        }
    }
    let counts = rig.server.world.refusals.counts();
    assert_eq!((counts[&Reason::BadToken], counts[&Reason::NoCredential]), (54, 6));
    // Without issuers, tokens are ignored: some clients send them always.
    rig.set_policy(Policy::default());
    for answer in asked_with(&legacy, "edge-1", &[&forged]).await {
        assert_eq!(answer.unwrap(), ["edge", "open"]);
    }
    for answer in asked_with(&anonymous, "edge-1", &[&good]).await {
        assert!(answer.unwrap_err().message().starts_with("no-credential: "));
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_the_connection_goes_on() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", by_token())]);
    let issuer = Issuer::new();
    rig.set_policy(issuer.policy(""));
    let channel = rig.anonymous().await;
    let mut stream = Sotw::open_with(&channel, ADS, &[&issuer.bearer("edge-1", 3)]).await.unwrap();
    stream.send(all_clusters("edge-1"));
    let first = stream.next().await;
    stream.ack(&first, &[]);
    let address = || {
        rig.server.world.board.streams()[0]
            .with(|status| (status.info.address.clone(), status.info.proofs[0].subject.to_string()))
    };
    let before = address();
    assert_eq!(before.1, "jwt:cluster:edge");
    let status = stream.end().await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().starts_with("expired: the token ended at "), "{status}");
    rig.server.world.wait("the end of the stream", |world| world.board.n_streams() == 0).await;
    let mut stream = Sotw::open_with(&channel, ADS, &[&issuer.bearer("edge-1", 600)]).await.unwrap();
    stream.send(all_clusters("edge-1"));
    assert_eq!(texts(&stream.next().await), ["edge"]);
    assert_eq!(address(), before, "the same connection");
}

#[tokio::test]
async fn a_changed_policy_ends_the_streams_of_those_whom_it_denies() {
    let rig = Rig::start().await;
    let mut both = by_token();
    both["identities"].as_array_mut().unwrap().push(json!({"spiffe": "spiffe://example.org/node/*"}));
    rig.publish(&[("edge", both)]);
    let issuer = Issuer::new();
    rig.set_policy(issuer.policy(""));
    let (mutual, anonymous) = (rig.channel(EDGE_1).await, rig.anonymous().await);
    let bearer = issuer.bearer("edge-1", 600);
    let open = async |channel, authorization: &[&str]| {
        let mut stream = Sotw::open_with(channel, ADS, authorization).await.unwrap();
        stream.send(all_clusters("edge-1"));
        assert_eq!(texts(&stream.next().await), ["edge"]);
        stream
    };
    let (mut by_certificate, mut by_token) = (open(&mutual, &[]).await, open(&anonymous, &[&bearer]).await);
    let mut reports = Lrs::open_with(&anonymous, LRS, &[&bearer]).await.unwrap();
    reports.send(LoadStatsRequest { node: node("edge-1"), ..Default::default() });
    assert_eq!(reports.next().await.clusters, ["edge"]);

    let denied = "denied: [{ spiffe: 'spiffe://example.org/node/edge-1', reason: INC-42 }]";
    rig.set_policy(issuer.policy(denied));
    let status = by_certificate.end().await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert_eq!(status.message(), "denied: the access policy denies the identity of this client certificate");
    for answer in asked(&mutual, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("denied: "));
    }
    // Others go on.
    rig.publish(&[("edge", self::by_token()), ("open", self::open())]);
    assert_eq!(texts(&by_token.next().await).len(), 2);

    rig.set_policy(issuer.policy("denied: [{ issuer: cluster, subject: edge }]"));
    for status in [by_token.end().await, ended(&mut reports).await] {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(status.message(), "denied: the access policy denies the identity of this token");
    }
    for answer in asked_with(&anonymous, "edge-1", &[&bearer]).await {
        assert!(answer.unwrap_err().message().starts_with("denied: "));
    }

    // Another key, and no issuer at all.
    for policy in [Issuer::new().policy(""), Policy::default()] {
        rig.set_policy(issuer.policy(""));
        let mut stream = Sotw::open_with(&anonymous, ADS, &[&bearer]).await.unwrap();
        stream.send(all_clusters("edge-1"));
        assert_eq!(texts(&stream.next().await).len(), 2);
        rig.set_policy(policy);
        let status = stream.end().await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().starts_with("bad-token: the access policy no longer trusts"), "{status}");
    }
    let counts = rig.server.world.refusals.counts();
    assert!(counts[&Reason::Denied] >= 3 + 5 + 5 && counts[&Reason::BadToken] == 2, "{counts:?}");
}
