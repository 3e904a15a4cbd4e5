//! Clients with certificates: what their names grant, and how their streams end.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig as ClientState, ClientStatusRequest, ClientStatusResponse,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519,
    PublicKeyData as _, SanType, SigningKey as _, string::Ia5String,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use xds_access::{Policy, Trail};
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

    fn issue(&self, names: Names, valid: Range<SystemTime>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        let text = |text: &&str| Ia5String::try_from(*text).unwrap();
        params.subject_alt_names.extend(names.uris.iter().map(|uri| SanType::URI(text(uri))));
        params.subject_alt_names.extend(names.dns.iter().map(|name| SanType::DnsName(text(name))));
        params.distinguished_name.remove(DnType::CommonName);
        if let Some(name) = names.cn {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        (params.not_before, params.not_after) = (valid.start.into(), valid.end.into());
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A server that asks clients for certificates, and an authority.
struct Rig {
    server: Server,
    ca: Ca,
    tls: Arc<Tls>,
    /// The audit log of the handshakes.
    handshakes: Arc<Trail>,
    dir: TempDir,
}

/// A client, and how it opens connections of HTTP/1.
struct Client {
    channel: Channel,
    http1: TlsConnector,
}

impl Deref for Client {
    type Target = Channel;

    fn deref(&self) -> &Channel {
        &self.channel
    }
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    async fn start_with(change: impl FnOnce(GrpcConfig) -> GrpcConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        let names = Names { dns: &["localhost"], ..Names::default() };
        let (certificate, key) = ca.issue(names, until(SystemTime::now() + DAY));
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
        let handshakes = Arc::<Trail>::default();
        let tls = Tls::open("test", files, None, timing, Arc::clone(&handshakes)).unwrap();
        let config = GrpcConfig {
            needs_credential: true,
            authenticates_clients: true,
            client_status: true,
            load_report_interval: Some(Duration::from_secs(5)),
            first_request_timeout: Duration::from_secs(2),
            ..GrpcConfig::default()
        };
        let server = Server::on(change(config), Some(Arc::clone(&tls))).await;
        Self { server, ca, tls, handshakes, dir }
    }

    /// Ends the minute in which refusals of a kind make one line: the next one makes another.
    fn close_minute(&self) {
        let later = SystemTime::now() + Duration::from_secs(61);
        self.server.world.trail.tick(later);
        self.handshakes.tick(later);
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

    async fn channel(&self, names: Names) -> Client {
        self.channel_until(names, SystemTime::now() + DAY).await
    }

    async fn channel_until(&self, names: Names, not_after: SystemTime) -> Client {
        self.connect(Some(self.ca.issue(names, until(not_after)))).await.unwrap()
    }

    /// A connection without a certificate of the client.
    async fn anonymous(&self) -> Client {
        self.connect(None).await.unwrap()
    }

    /// A connection with a certificate and its key, in PEM.
    async fn connect(&self, own: Option<(String, String)>) -> Result<Client, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.ca.0.pem()));
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.0.der().clone()).unwrap();
        let http1 = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let http1 = http1.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let http1 = match own {
            None => http1.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let its_key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                tls = tls.identity(Identity::from_pem(certificate, key));
                http1.with_client_auth_cert(chain, its_key).unwrap()
            }
        };
        let uri = format!("https://localhost:{}", self.server.address.port());
        let channel = Endpoint::from_shared(uri).unwrap().tls_config(tls).unwrap().connect().await?;
        Ok(Client { channel, http1: Arc::new(http1).into() })
    }
}

/// From yesterday on.
fn until(end: SystemTime) -> Range<SystemTime> {
    SystemTime::now() - DAY..end
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

const ID: &str = "spiffe://example.org/node/edge-1";
const EDGE_1: Names = Names { uris: &[ID], dns: &[], cn: Some("edge-legacy") };

/// The clusters that each way of asking gives, or the status.
async fn asked(rig: &Rig, client: &Client, node: &str) -> Vec<Result<Vec<String>, Status>> {
    asked_with(rig, client, node, &[]).await
}

/// The same with values of the header `authorization`.
async fn asked_with(
    rig: &Rig,
    client: &Client,
    node: &str,
    authorization: &[&str],
) -> Vec<Result<Vec<String>, Status>> {
    let mut answers = Vec::new();
    for path in [ADS, STREAM_CLUSTERS] {
        let answer = async {
            let mut stream = Sotw::open_with(client, path, authorization).await?;
            stream.send(all_clusters(node));
            Ok(texts(&within("an answer", stream.responses.message()).await?.unwrap()))
        };
        answers.push(answer.await);
    }
    let answer = async {
        let mut stream = Delta::open_with(client, DELTA_ADS, authorization).await?;
        let (node, type_url) = (super::support::node(node), ResourceType::Cluster.type_url().to_owned());
        stream.send(DeltaDiscoveryRequest { node, type_url, ..Default::default() });
        let response = within("an answer", stream.responses.message()).await?.unwrap();
        Ok(response.resources.into_iter().map(|resource| resource.name).collect())
    };
    answers.push(answer.await);
    let request = all_clusters(node);
    let fetched =
        unary_with::<DiscoveryRequest, DiscoveryResponse>(client, FETCH_CLUSTERS, request, authorization);
    answers.push(fetched.await.map(|response| texts(&response)));
    let answer = async {
        let mut reports = Lrs::open_with(client, LRS, authorization).await?;
        reports.send(LoadStatsRequest { node: super::support::node(node), ..Default::default() });
        Ok(within("an answer", reports.responses.message()).await?.unwrap().clusters)
    };
    answers.push(answer.await);
    answers.push(polled(rig, client, node, authorization).await);
    for names in answers.iter_mut().flatten() {
        names.sort();
    }
    answers
}

/// The clusters that polling over HTTP/1 gives. A refusal is shown as its status of gRPC, and must not say anything else.
async fn polled(
    rig: &Rig,
    client: &Client,
    node: &str,
    authorization: &[&str],
) -> Result<Vec<String>, Status> {
    let exchange = async {
        let stream = TcpStream::connect(rig.server.address).await?;
        let mut stream = client.http1.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
        let body = json!({"node": {"id": node, "user_agent_name": "envoy"}}).to_string();
        let credentials: String =
            authorization.iter().map(|value| format!("authorization: {value}\r\n")).collect();
        let request = format!(
            "POST /v3/discovery:clusters HTTP/1.1\r\nhost: xds_cluster\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {credentials}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    let response = within("an answer", exchange).await.map_err(|error| Status::from_error(error.into()))?;
    let (head, text) = response.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({"detail": text.trim_end()}));
    let code = match head.split(' ').nth(1).unwrap() {
        "200" => {
            let resources = answer["resources"].as_array().into_iter().flatten();
            return Ok(resources.map(|resource| resource["name"].as_str().unwrap().to_owned()).collect());
        }
        "401" => Code::Unauthenticated,
        "403" => Code::PermissionDenied,
        _ => panic!("{response}"),
    };
    assert!(answer.get("resources").is_none(), "{response}");
    Err(Status::new(code, answer["detail"].as_str().unwrap()))
}

/// The refusals that are on record since a moment.
struct Records<'r> {
    rig: &'r Rig,
    n_lines: usize,
    counts: BTreeMap<Reason, u64>,
}

impl<'r> Records<'r> {
    fn since_now(rig: &'r Rig) -> Self {
        rig.close_minute();
        let counts = rig.server.world.refusals.counts();
        Self { rig, n_lines: rig.server.world.trail.newest(usize::MAX).len(), counts }
    }

    /// Checks that exactly `n` refusals are on record, all for this reason: in the metric, and as counts of lines of the audit log with
    /// this identity. Lines about a node group have the node.
    fn check(&self, what: &str, reason: Reason, n: u64, identity: &Value, node: &str) {
        let world = &self.rig.server.world;
        self.rig.close_minute();
        let mut expected = self.counts.clone();
        *expected.entry(reason).or_default() += n;
        assert_eq!(world.refusals.counts(), expected, "{what}");
        let shown = format!("xds_refused_total{{reason=\"{}\"}} {}\n", reason.as_str(), expected[&reason]);
        assert!(world.metrics.render().contains(&shown), "{what}: there is no {shown}");
        let mut lines = world.trail.newest(usize::MAX);
        lines.truncate(lines.len() - self.n_lines);
        assert_eq!(
            lines.iter().map(|line| line["count"].as_u64().unwrap()).sum::<u64>(),
            n,
            "{what}: {lines:?}"
        );
        for line in &lines {
            let [event, outcome, why] =
                ["event", "outcome", "reason"].map(|field| line[field].as_str().unwrap());
            assert_eq!([event, outcome, why], ["xds.denied", "denied", reason.as_str()], "{what}");
            assert_eq!(&line["identity"], identity, "{what}: {line}");
            assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{what}: {line}");
            assert_eq!(line["node"].as_str(), line["group"].as_str().map(|_| node), "{what}: {line}");
        }
    }
}

/// A group of every kind, and the access policy of the table below.
fn publish_all(rig: &Rig, issuer: &Issuer) {
    let mut edge = edge();
    let by_token =
        json!({"jwt": {"issuer": "cluster", "subject": "edge", "claims": {"/pod/name": "{node}"}}});
    edge["identities"].as_array_mut().unwrap().push(by_token);
    let core = json!({"selector": {"nodeIds": ["core-*"]}, "identities": [{"cn": "keeper-of-the-core"}]});
    rig.publish(&[("edge", edge), ("core", core), ("open", open())]);
    rig.set_policy(issuer.policy(
        "denied: [{ spiffe: 'spiffe://example.org/node/edge-7', reason: INC-42 }, { issuer: cluster, subject: mallory }]",
    ));
}

/// Texts that nobody may be told who is refused: the entries of groups, the reasons of operators, and what was sent.
const UNTOLD: &[&str] =
    &["keeper", "core", "edge-legacy", "/*", "*.", "{", "INC-42", "mallory", "eyJ", "issuer.example"];

/// A client, what it says of itself, and what it is given or told.
struct Case {
    names: Option<Names>,
    node: &'static str,
    authorization: Vec<String>,
    expected: Result<&'static [&'static str], Told>,
}

/// The beginning of the text that a client is told who is refused, and the identity that is on record.
#[derive(Clone, Copy, Debug)]
struct Told(&'static str, Option<&'static str>);

const BOTH: &[&str] = &["edge", "open"];
const OPEN: &[&str] = &["open"];

fn cases_by_certificate() -> Vec<Case> {
    let uri = |uris| Names { uris, ..Names::default() };
    let dns = |dns| Names { dns, ..Names::default() };
    let cn = |cn| Names { cn: Some(cn), ..Names::default() };
    let (mismatch, denied) = ("node-id-mismatch: ", "identity-not-allowed: ");
    let cases = [
        (EDGE_1, "edge-1", Ok(BOTH)),
        (dns(&["x.example.com", "edge-2.edge.example.com"]), "edge-2", Ok(BOTH)),
        (cn("edge-legacy"), "edge-9", Ok(BOTH)),
        (EDGE_1, "other", Ok(OPEN)),
        // The names of another, and claims of another.
        (EDGE_1, "edge-2", Err(Told(mismatch, Some(ID)))),
        (
            dns(&["edge-2.edge.example.com"]),
            "edge-1",
            Err(Told(mismatch, Some("dns:edge-2.edge.example.com"))),
        ),
        (EDGE_1, "core-1", Err(Told(denied, Some(ID)))),
        (
            uri(&["spiffe://a.org/node/edge-1"]),
            "edge-1",
            Err(Told(denied, Some("spiffe://a.org/node/edge-1"))),
        ),
        (
            uri(&["spiffe://example.org/node/edge-1/x"]),
            "edge-1",
            Err(Told(denied, Some("spiffe://example.org/node/edge-1/x"))),
        ),
        (cn("edge"), "edge-1", Err(Told(denied, Some("cn:edge")))),
        // A common name beside other names, a wildcard, and another kind of URI prove nothing.
        (
            Names { dns: &["x.example.com"], ..cn("edge-legacy") },
            "edge-1",
            Err(Told(denied, Some("dns:x.example.com"))),
        ),
        (dns(&["*.edge.example.com"]), "edge-1", Err(Told("no-credential: ", None))),
        (uri(&["https://example.org/node/edge-1"]), "edge-1", Err(Told("no-credential: ", None))),
        // Denied by the policy, whatever the groups say.
        (
            uri(&["spiffe://example.org/node/edge-7"]),
            "edge-7",
            Err(Told(
                "denied: the access policy denies the identity of this client certificate",
                Some("spiffe://example.org/node/edge-7"),
            )),
        ),
    ];
    let case = |(names, node, expected)| Case { names: Some(names), node, authorization: vec![], expected };
    cases.into_iter().map(case).collect()
}

fn cases_by_token(issuer: &Issuer) -> Vec<Case> {
    let claims = |changes: Value| {
        let mut claims = Issuer::claims("edge-1", 600);
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        claims
    };
    let token = |changes: Value| vec![issuer.bearer_of(&claims(changes))];
    let with_header = |header: Value| vec![issuer.bearer_with(&header, &claims(json!({})))];
    let good = || token(json!({}));
    let forged = || vec![Issuer::new().bearer("edge-1", 600)];
    let text = |text: &str| vec![text.to_owned()];
    let legacy = Names { cn: Some("edge-legacy"), ..Names::default() };
    let bad = |beginning| Err(Told(beginning, None));
    let no_bearer = "bad-token: expected one header";
    let cases = [
        (None, "edge-1", good(), Ok(BOTH)),
        (None, "other", good(), Ok(OPEN)),
        (Some(legacy), "edge-1", good(), Ok(BOTH)),
        (None, "edge-2", good(), Err(Told("node-id-mismatch: ", Some("jwt:cluster:edge")))),
        (
            None,
            "edge-1",
            vec![],
            bad("no-credential: this server serves clients that show a certificate or a bearer"),
        ),
        (None, "edge-1", token(json!({"exp": 1})), bad("bad-token: the token ended at 1970-01-01T00:00:01")),
        (None, "edge-1", forged(), bad("bad-token: the token's signature is wrong")),
        (
            None,
            "edge-1",
            token(json!({"aud": "somebody else"})),
            bad("bad-token: the token is for another audience"),
        ),
        (
            None,
            "edge-1",
            with_header(json!({"alg": "none", "kid": "1"})),
            bad("bad-token: the token's header is not accepted"),
        ),
        (
            None,
            "edge-1",
            with_header(json!({"alg": "EdDSA", "kid": "2"})),
            bad("bad-token: the token is signed with a key that"),
        ),
        (None, "edge-1", text("Bearer"), bad(no_bearer)),
        (None, "edge-1", text("Basic eDp5"), bad(no_bearer)),
        (None, "edge-1", [good(), good()].concat(), bad(no_bearer)),
        // Beside a good certificate.
        (Some(legacy), "edge-1", forged(), Err(Told("bad-token: ", Some("cn:edge-legacy")))),
        (
            None,
            "other",
            token(json!({"sub": "mallory"})),
            Err(Told(
                "denied: the access policy denies the identity of this token",
                Some("jwt:cluster:mallory"),
            )),
        ),
    ];
    let case = |(names, node, authorization, expected)| Case { names, node, authorization, expected };
    cases.into_iter().map(case).collect()
}

/// Asks in every way, as a client that may have something, or as one that may not: it is told why, and no more than it may know, it is on
/// record, and it gets nothing.
async fn check(rig: &Rig, case: &Case) {
    let Case { names, node, authorization, expected } = case;
    let what = format!("{names:?} as {node}, {expected:?}");
    let client = match names {
        Some(names) => rig.channel(*names).await,
        None => rig.anonymous().await,
    };
    let records = Records::since_now(rig);
    let authorization: Vec<&str> = authorization.iter().map(String::as_str).collect();
    let answers = asked_with(rig, &client, node, &authorization).await;
    let n_ways = answers.len() as u64;
    let Told(beginning, identity) = match expected {
        Err(told) => told,
        Ok(groups) => {
            answers.into_iter().for_each(|answer| assert_eq!(&answer.unwrap(), groups, "{what}"));
            assert_eq!(rig.server.world.refusals.counts(), records.counts, "{what}");
            assert_eq!(rig.server.world.trail.newest(usize::MAX).len(), records.n_lines, "{what}");
            return;
        }
    };
    let slug = beginning.split(':').next().unwrap();
    let is_known = ["node-id-mismatch", "identity-not-allowed"].contains(&slug);
    let code = if is_known { Code::PermissionDenied } else { Code::Unauthenticated };
    for (way, answer) in answers.into_iter().enumerate() {
        let status = answer.expect_err(&format!("{what} {way}"));
        let told = status.message();
        assert!(told.starts_with(beginning) && told.is_ascii(), "{what} {way}: {status}");
        let untold = UNTOLD.iter().find(|text| told.contains(**text) && !node.contains(**text));
        assert_eq!((untold, status.code()), (None, code), "{what} {way}: {status}");
    }
    records.check(&what, reason(slug), n_ways, &json!(identity), node);
}

#[tokio::test]
async fn a_client_is_given_what_it_proves_or_is_refused_and_that_is_on_record() {
    let rig = Rig::start().await;
    let issuer = Issuer::new();
    publish_all(&rig, &issuer);
    for case in cases_by_certificate().iter().chain(&cases_by_token(&issuer)) {
        check(&rig, case).await;
    }
    wait_until(&rig, "the end of all streams", |rig| rig.server.world.board.n_streams() == 0).await;
}

#[tokio::test]
async fn without_issuers_tokens_are_ignored() {
    let rig = Rig::start().await;
    let issuer = Issuer::new();
    publish_all(&rig, &issuer);
    rig.set_policy(Policy::default());
    let legacy = rig.channel(Names { cn: Some("edge-legacy"), ..Names::default() }).await;
    for answer in asked_with(&rig, &legacy, "edge-1", &[&Issuer::new().bearer("edge-1", 600)]).await {
        assert_eq!(answer.unwrap(), BOTH, "some clients send them always");
    }
    for answer in asked_with(&rig, &rig.anonymous().await, "edge-1", &[&issuer.bearer("edge-1", 600)]).await {
        assert!(answer.unwrap_err().message().starts_with("no-credential: "));
    }
}

/// The reason with this name.
fn reason(name: &str) -> Reason {
    let all = [
        Reason::NoCredential,
        Reason::BadToken,
        Reason::Denied,
        Reason::IdentityNotAllowed,
        Reason::NodeIdMismatch,
    ];
    all.into_iter().find(|reason| reason.as_str() == name).unwrap()
}

/// Certificates that the handshake does not accept. Their clients are told nothing, because there is nobody yet who could be told.
#[tokio::test]
async fn a_certificate_that_is_no_good_ends_the_handshake_and_that_is_on_record() {
    let rig = Rig::start().await;
    rig.publish(&[("edge", edge())]);
    let now = SystemTime::now();
    let uris = |uris| Names { uris, ..Names::default() };
    let good = || until(now + DAY);
    for (names, valid, is_ours, why) in [
        (EDGE_1, good(), false, "unknown-issuer"),
        (EDGE_1, until(now - DAY / 2), true, "expired"),
        (EDGE_1, now + DAY..now + 2 * DAY, true, "not-yet-valid"),
        // Ambiguous or malformed names.
        (uris(&[ID, "spiffe://example.org/node/edge-2"]), good(), true, "bad-name"),
        (uris(&[ID, "https://example.org"]), good(), true, "bad-name"),
        (uris(&["SPIFFE://example.org/node/edge-1"]), good(), true, "bad-name"),
        (uris(&["spiffe://example.org/node/edge-1?x"]), good(), true, "bad-name"),
        (uris(&["spiffe://Example.org/node/edge-1"]), good(), true, "bad-name"),
        (uris(&["spiffe://example.org/node/../edge-1"]), good(), true, "bad-name"),
    ] {
        rig.close_minute();
        let n_lines = rig.handshakes.newest(usize::MAX).len();
        let count =
            || rig.server.world.refusals.counts().get(&Reason::Handshake).copied().unwrap_or_default();
        let before = count();
        let others;
        let own = if is_ours {
            rig.ca.issue(names, valid)
        } else {
            others = Ca::new();
            others.issue(names, valid)
        };
        if let Ok(client) = rig.connect(Some(own)).await {
            let polled = polled(&rig, &client, "edge-1", &[]).await;
            assert_eq!(polled.unwrap_err().code(), Code::Unknown, "{names:?} {why}: no answer at all");
            let fetched =
                unary::<DiscoveryRequest, DiscoveryResponse>(&client, FETCH_CLUSTERS, all_clusters("edge-1"));
            fetched.await.unwrap_err();
        }
        wait_until(&rig, "the count", |_| count() > before).await;
        let last = rig.server.world.refusals.recent(SystemTime::now());
        let detail = &last.iter().find(|refused| refused.reason == Reason::Handshake).unwrap().last_detail;
        assert!(detail.contains(&format!("handshake failed: {why}: ")), "{detail}");
        let lines = rig.handshakes.newest(usize::MAX);
        let line = &lines[lines.len() - 1 - n_lines];
        assert_eq!(
            (&line["event"], &line["outcome"], &line["listener"], &line["reason"], &line["identity"]),
            (&json!("tls.denied"), &json!("denied"), &json!("test"), &json!(why), &Value::Null),
            "{names:?}"
        );
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
    assert_eq!(rig.server.world.board.n_streams(), 0);
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
    let entry = |client: ClientState| (client.node.unwrap().id, client.generic_xds_configs.len());
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
        for (way, answer) in asked(&rig, &channel, node).await.into_iter().enumerate() {
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
    for answer in asked(&rig, &denied, "edge-1").await {
        assert_eq!(answer.unwrap(), ["edge", "open"], "a dry run serves whom the policy denies");
    }
    // A group that holds a secret does not try its identities: a denied identity proves nothing there.
    rig.publish(&[("edge", edge()), ("open", open())]);
    for answer in asked(&rig, &denied, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("no-credential: "));
    }
    for answer in asked(&rig, &rig.channel(named("other")).await, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("identity-not-allowed: "));
    }
    let no_certificate = asked(&rig, &rig.anonymous().await, "edge-1").await;
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
        let mut stream = Sotw::open(&rig.channel(named(name)).await.channel, ADS).await.unwrap();
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
        let refused = told(&rig.channel(named(ordinary)).await.channel).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().starts_with("identity-not-allowed: client status is for"), "{refused}");
    }
    assert_eq!(told(&rig.anonymous().await.channel).await.unwrap_err().code(), Code::Unauthenticated);
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
    let records = Records::since_now(&rig);
    rig.publish(&[("edge", taken), ("open", open())]);
    for stream in &mut streams {
        let status = stream.end().await;
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().starts_with("identity-not-allowed: "), "{status}");
    }
    assert_eq!(reports.end().await.code(), Code::PermissionDenied);
    let identity = json!("spiffe://example.org/node/edge-1");
    records.check("the lost grant", Reason::IdentityNotAllowed, 3, &identity, "edge-1");
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
    let channel = rig.channel_until(EDGE_1, not_after).await;
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
    for answer in asked(&rig, &channel, "edge-1").await {
        answer.unwrap_err();
    }
    wait_until(&rig, "the end of the connection", |rig| rig.server.port.peers().is_empty()).await;
    // The connection and its two streams, besides calls that came before its end.
    let n = rig.server.world.refusals.counts()[&Reason::Untrusted];
    assert!((3..=9).contains(&n), "{n}");
    following.abort();
}

async fn wait_until(rig: &Rig, what: &str, holds: impl Fn(&Rig) -> bool) {
    within(what, async {
        while !holds(rig) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
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
    let records = Records::since_now(&rig);
    rig.set_policy(issuer.policy(denied));
    let status = by_certificate.end().await;
    let identity = json!("spiffe://example.org/node/edge-1");
    records.check("the denied certificate", Reason::Denied, 1, &identity, "edge-1");
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert_eq!(status.message(), "denied: the access policy denies the identity of this client certificate");
    for answer in asked(&rig, &mutual, "edge-1").await {
        assert!(answer.unwrap_err().message().starts_with("denied: "));
    }
    // Others go on.
    rig.publish(&[("edge", self::by_token()), ("open", self::open())]);
    assert_eq!(texts(&by_token.next().await).len(), 2);

    let records = Records::since_now(&rig);
    rig.set_policy(issuer.policy("denied: [{ issuer: cluster, subject: edge }]"));
    for status in [by_token.end().await, ended(&mut reports).await] {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert_eq!(status.message(), "denied: the access policy denies the identity of this token");
    }
    records.check("the denied token", Reason::Denied, 2, &json!("jwt:cluster:edge"), "edge-1");
    for answer in asked_with(&rig, &anonymous, "edge-1", &[&bearer]).await {
        assert!(answer.unwrap_err().message().starts_with("denied: "));
    }

    // Another key, and no issuer at all.
    for policy in [Issuer::new().policy(""), Policy::default()] {
        rig.set_policy(issuer.policy(""));
        let mut stream = Sotw::open_with(&anonymous, ADS, &[&bearer]).await.unwrap();
        stream.send(all_clusters("edge-1"));
        assert_eq!(texts(&stream.next().await).len(), 2);
        let records = Records::since_now(&rig);
        rig.set_policy(policy);
        let status = stream.end().await;
        records.check("the token of nobody", Reason::BadToken, 1, &json!("jwt:cluster:edge"), "edge-1");
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().starts_with("bad-token: the access policy no longer trusts"), "{status}");
    }
}
