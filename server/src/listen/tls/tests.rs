//! TLS with real handshakes, and files that change.

#[path = "../../../../tests/src/crl.rs"]
mod crl;

use std::fs;
use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, version};
use xds_api::VerifiedClient;
use xds_cache::identity::TrustDomain;
use xds_cache::{Reason, Refusals};

use super::trust::EndOf;
use super::*;
use crate::listen::{Port, PortRules, serve_http};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TIMING: TlsTiming = TlsTiming {
    poll_interval: Duration::from_millis(20),
    handshake: Duration::from_secs(60),
    max_handshakes: 4096,
    expiry_warning: DAY,
};

/// An authority.
struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// How a certificate differs from a good one of a client or a server.
#[derive(Clone, Copy, Default)]
struct Flaw {
    /// It ended a day ago.
    is_expired: bool,
    /// It begins in a day.
    is_early: bool,
    usage: Option<ExtendedKeyUsage>,
    serial: u64,
}

#[derive(Clone, Copy)]
enum ExtendedKeyUsage {
    Server,
    Client,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str, flaw: Flaw) -> Pair {
        self.issue_for(&[SanType::DnsName(name.try_into().unwrap())], flaw)
    }

    fn issue_spiffe(&self, ids: &[&str]) -> Pair {
        let ids: Vec<_> = ids.iter().map(|id| SanType::URI((*id).try_into().unwrap())).collect();
        self.issue_for(&ids, Flaw::default())
    }

    fn issue_for(&self, names: &[SanType], flaw: Flaw) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.serial_number = Some(flaw.serial.into());
        let now = SystemTime::now();
        params.not_before = (if flaw.is_early { now + DAY } else { now - 3 * DAY }).into();
        params.not_after = (if flaw.is_expired { now - DAY } else { now + 30 * DAY }).into();
        params.extended_key_usages = match flaw.usage {
            None => vec![],
            Some(ExtendedKeyUsage::Server) => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Some(ExtendedKeyUsage::Client) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A list of what it has revoked that is to be replaced at `end`.
    fn crl(&self, revoked: &[u64], end: SystemTime) -> String {
        crl::crl(&self.0, revoked, end).unwrap()
    }
}

/// A port with its files.
struct Rig {
    dir: TempDir,
    tls: Arc<Tls>,
    trail: Arc<Trail>,
    refusals: Arc<Refusals>,
    port: Arc<Port>,
    address: std::net::SocketAddr,
    server: Ca,
    clients: Ca,
}

fn files(dir: &Path) -> TlsFiles {
    TlsFiles {
        own: Own::Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key") },
        trust: TrustFiles { authorities: Some(dir.join("ca.crt")), ..TrustFiles::default() },
        needs_client_certificate: false,
        min_version: TlsVersion::Tls12,
    }
}

fn write(dir: &Path, pair: &Pair) {
    fs::write(dir.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(dir.join("tls.key"), &pair.key).unwrap();
}

impl Rig {
    async fn start(timing: TlsTiming, change: impl FnOnce(&mut TlsFiles)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, clients) = (Ca::new("servers"), Ca::new("clients"));
        write(dir.path(), &server.issue("localhost", Flaw::default()));
        fs::write(dir.path().join("ca.crt"), clients.pem()).unwrap();
        let mut files = files(dir.path());
        change(&mut files);
        let trail = Arc::<Trail>::default();
        let tls = Tls::open("test", files, None, timing, Arc::clone(&trail)).unwrap();
        let refusals = Arc::<Refusals>::default();
        let rules = PortRules {
            name: "test",
            max_connections: 1000,
            reason: Reason::AdminConnections,
            opening: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            stalled: Duration::from_secs(60),
            may_take_later: false,
            max_of_address: usize::MAX,
            is_http1_only: false,
        };
        let port = Port::new(rules, Some(Arc::clone(&tls)), Arc::clone(&refusals));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler = |request: Request| async move {
            let is_verified = request.extensions().get::<VerifiedClient>().is_some();
            if is_verified { "verified" } else { "anonymous" }
        };
        let router = Router::new().route("/", get(handler));
        let serving = Arc::clone(&port);
        tokio::spawn(serve_http(listener, serving, router, std::future::pending(), Duration::ZERO));
        Self { dir, tls, trail, refusals, port, address, server, clients }
    }

    fn client(&self, pair: Option<&Pair>) -> ClientConfig {
        self.client_of(&[&version::TLS12, &version::TLS13], pair)
    }

    fn client_of(&self, versions: &[&'static SupportedProtocolVersion], pair: Option<&Pair>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.server.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        match pair {
            None => builder.with_no_client_auth(),
            Some(Pair { certificate, key }) => {
                use tokio_rustls::rustls::pki_types::pem::PemObject as _;
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }

    async fn connect(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        self.shake_hands(TcpStream::connect(self.address).await?, config).await
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        config: ClientConfig,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// The answer of one request, or why there is none.
    async fn ask(&self, pair: Option<&Pair>) -> Result<String, String> {
        let mut stream = self.connect(self.client(pair)).await.map_err(|error| error.to_string())?;
        ask(&mut stream).await
    }

    /// Replaces the CRLs, and has them read.
    fn list(&self, text: &str) {
        self.replace("crl", text);
    }

    /// Replaces a file, and has it read.
    fn replace(&self, file: &str, text: &str) {
        fs::write(self.dir.path().join(file), text).unwrap();
        for _ in 0..2 {
            self.tls.look(SystemTime::now());
        }
    }

    /// Waits until the certificate of a connection is not trusted any more: it proves nothing from then on, and the connection ends.
    async fn ends(&self, mut stream: TlsStream<TcpStream>, reason: Reason, detail: &str) {
        until("the count", || self.refusals.counts()[&reason] > 0).await;
        let recent = self.refusals.recent(SystemTime::now());
        let found = &recent.iter().find(|refused| refused.reason == reason).unwrap().last_detail;
        assert!(found.contains(detail), "{found}");
        if let Ok(answer) = ask(&mut stream).await {
            assert_eq!(answer, "anonymous");
        }
        let n = within("the end of the connection", stream.read(&mut [0])).await.unwrap_or(0);
        assert_eq!((n, self.refusals.counts()[&reason]), (0, 1));
    }

    fn issue_early(&self) -> Pair {
        self.server.issue("localhost", Flaw { is_early: true, ..Flaw::default() })
    }

    fn n(&self, outcome: Outcome) -> u64 {
        self.tls.status().handshakes.get(&outcome).copied().unwrap_or_default()
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>) -> Result<String, String> {
    let asked = async {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        let mut found = String::new();
        while !found.ends_with("verified") && !found.ends_with("anonymous") {
            let mut buffer = [0; 1024];
            let n = stream.read(&mut buffer).await?;
            if n == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            found.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        }
        Ok::<_, std::io::Error>(found.rsplit('\n').next().unwrap_or_default().to_owned())
    };
    within("an answer", asked).await.map_err(|error| error.to_string())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(output) => output,
        Err(_) => panic!("waited too long for {what}"),
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_certificate_of_a_client_is_verified_or_the_handshake_fails() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let good = rig.clients.issue("edge-1", Flaw { usage: Some(ExtendedKeyUsage::Client), ..Flaw::default() });
    assert_eq!(rig.ask(Some(&good)).await.as_deref(), Ok("verified"));
    let without_usage = rig.clients.issue("edge-1", Flaw::default());
    assert_eq!(rig.ask(Some(&without_usage)).await.as_deref(), Ok("verified"));
    assert_eq!(rig.ask(None).await.as_deref(), Ok("anonymous"));
    assert_eq!(rig.n(Outcome::Completed("1.3")), 3);
    for (pair, reason) in [
        (Ca::new("others").issue("edge-1", Flaw::default()), "unknown-issuer"),
        (Ca::new("clients").issue("edge-1", Flaw::default()), "unknown-issuer"),
        (rig.clients.issue("edge-1", Flaw { is_expired: true, ..Flaw::default() }), "expired"),
        (rig.clients.issue("edge-1", Flaw { is_early: true, ..Flaw::default() }), "not-yet-valid"),
        (
            rig.clients.issue("edge-1", Flaw { usage: Some(ExtendedKeyUsage::Server), ..Flaw::default() }),
            "bad-usage",
        ),
    ] {
        let before = rig.n(Outcome::Failed(reason));
        assert!(rig.ask(Some(&pair)).await.is_err(), "{reason}");
        until(reason, || rig.n(Outcome::Failed(reason)) == before + 1).await;
    }
    assert_eq!(rig.refusals.counts()[&Reason::Handshake], 5);
}

fn domain(name: &str) -> TrustDomain {
    TrustDomain::new(name).unwrap()
}

#[tokio::test]
async fn a_spiffe_certificate_is_vouched_for_by_its_own_trust_domain_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (Ca::new("same name"), Ca::new("same name"));
    let mut domains = BTreeMap::new();
    for (name, ca) in [("a.org", &a), ("b.org", &b)] {
        let path = dir.path().join(name);
        fs::write(&path, ca.pem()).unwrap();
        domains.insert(domain(name), path);
    }
    let rig = Rig::start(TIMING, |files| files.trust.domains = Domains::Files(domains.clone())).await;
    let others = &rig.clients;
    let id = "spiffe://a.org/edge";
    let table: [(&str, Pair, Result<(), &str>); 10] = [
        ("a's own", a.issue_spiffe(&[id]), Ok(())),
        ("b's own", b.issue_spiffe(&["spiffe://b.org/edge"]), Ok(())),
        ("a's by b", b.issue_spiffe(&[id]), Err("unknown-issuer")),
        ("a's by the others", others.issue_spiffe(&[id]), Err("unknown-issuer")),
        ("of no domain that is known", others.issue_spiffe(&["spiffe://c.org/edge"]), Err("unknown-issuer")),
        ("without an id", others.issue("edge-1", Flaw::default()), Ok(())),
        ("without an id, by a", a.issue("edge-1", Flaw::default()), Err("unknown-issuer")),
        ("another URI", others.issue_spiffe(&["https://a.org/edge"]), Ok(())),
        ("two ids", a.issue_spiffe(&[id, "spiffe://a.org/core"]), Err("bad-name")),
        ("no id", a.issue_spiffe(&["SPIFFE://a.org/edge"]), Err("bad-name")),
    ];
    for (what, pair, expected) in table {
        let failed = |reason| rig.n(Outcome::Failed(reason));
        match expected {
            Ok(()) => assert_eq!(rig.ask(Some(&pair)).await.as_deref(), Ok("verified"), "{what}"),
            Err(reason) => {
                let before = failed(reason);
                assert!(rig.ask(Some(&pair)).await.is_err(), "{what}");
                until(what, || failed(reason) == before + 1).await;
            }
        }
    }
    // The file of a trust domain is read again as the others are.
    let pair = b.issue_spiffe(&[id]);
    fs::write(&domains[&domain("a.org")], format!("{}{}", a.pem(), b.pem())).unwrap();
    for _ in 0..2 {
        rig.tls.look(SystemTime::now());
    }
    assert_eq!(rig.ask(Some(&pair)).await.as_deref(), Ok("verified"));
    fs::write(&domains[&domain("a.org")], "").unwrap();
    for _ in 0..2 {
        rig.tls.look(SystemTime::now());
    }
    let fault = rig.tls.status().fault.unwrap_or_default();
    assert!(fault.contains("a.org: it contains no certificate"), "{fault}");
    assert_eq!(rig.ask(Some(&pair)).await.as_deref(), Ok("verified"));
}

#[tokio::test]
async fn with_trust_domains_alone_a_certificate_needs_a_spiffe_id() {
    let rig = Rig::start(TIMING, |files| {
        let file = files.trust.authorities.take().unwrap();
        files.trust.domains = Domains::Files(BTreeMap::from([(domain("a.org"), file)]));
    })
    .await;
    let pair = rig.clients.issue_spiffe(&["spiffe://a.org/edge"]);
    assert_eq!(rig.ask(Some(&pair)).await.as_deref(), Ok("verified"));
    assert!(rig.ask(Some(&rig.clients.issue("edge-1", Flaw::default()))).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("unknown-issuer")) == 1).await;
    let wrong = "no SPIFFE ID, and for others there is no --xds-client-ca";
    until(wrong, || {
        let recent = rig.refusals.recent(SystemTime::now());
        recent.first().is_some_and(|refused| refused.last_detail.contains(wrong))
    })
    .await;
}

#[tokio::test]
async fn a_trust_domain_is_a_problem_when_its_last_authority_ends() {
    let rig = Rig::start(TIMING, |files| {
        let file = files.trust.authorities.take().unwrap();
        files.trust.domains = Domains::Files(BTreeMap::from([(domain("a.org"), file)]));
    })
    .await;
    let (status, now) = (rig.tls.status(), SystemTime::now());
    let health = |ends: Vec<End>| {
        let material = Material { ends, ..(**status.material.as_ref().unwrap()).clone() };
        TlsStatus { material: Some(Arc::new(material)), ..status.clone() }.health(now, DAY)
    };
    assert_eq!(health(status.material.as_ref().unwrap().ends.clone()), TlsHealth::default());
    let end = |left, margin| End { of: EndOf::Domain(domain("a.org")), at: now + left, margin };
    // Authorities of a day are not a problem for all of it.
    assert_eq!(health(vec![end(DAY / 2, DAY / 4)]), TlsHealth::default());
    let problem = health(vec![end(DAY / 8, DAY / 4)]).problem.unwrap();
    assert!(problem.starts_with("the last authority of the trust domain a.org on the test port ends at "));
}

#[tokio::test]
async fn an_open_connection_ends_when_its_authority_is_taken_out_and_others_go_on() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let pair = rig.clients.issue("edge-1", Flaw::default());
    let mut verified = rig.connect(rig.client(Some(&pair))).await.unwrap();
    let mut anonymous = rig.connect(rig.client(None)).await.unwrap();
    // One more authority ends nothing, and neither does another certificate of the server.
    let others = Ca::new("others");
    rig.replace("ca.crt", &format!("{}{}", others.pem(), rig.clients.pem()));
    assert_eq!(rig.tls.trust_generation(), 1);
    let other = others.issue("edge-2", Flaw::default());
    let mut other = rig.connect(rig.client(Some(&other))).await.unwrap();
    write(rig.dir.path(), &rig.server.issue("localhost", Flaw::default()));
    for _ in 0..2 {
        rig.tls.look(SystemTime::now());
    }
    assert_eq!((rig.tls.status().generation, rig.tls.trust_generation()), (3, 1));
    assert_eq!(ask(&mut verified).await.as_deref(), Ok("verified"));

    rig.replace("ca.crt", &others.pem());
    rig.ends(verified, Reason::Untrusted, "no longer accepts the client certificate (unknown-issuer)").await;
    assert_eq!(ask(&mut anonymous).await.as_deref(), Ok("anonymous"));
    assert_eq!(ask(&mut other).await.as_deref(), Ok("verified"));
    assert!(rig.ask(Some(&pair)).await.is_err());
}

#[tokio::test]
async fn the_audit_log_has_what_was_taken_what_was_not_and_who_is_not_trusted_any_more() {
    let end = SystemTime::now() + 10 * DAY;
    let (rig, pair) = with_crl(false, &[], end).await;
    let revoked = rig.connect(rig.client(Some(&pair))).await.unwrap();
    let kept = rig.issue_early();
    write(rig.dir.path(), &kept);
    // Its error says what time it is, and that is no new fault.
    for seconds in 0..5 {
        rig.tls.look(SystemTime::now() + Duration::from_secs(seconds));
    }
    assert_eq!(rig.tls.status().n_kept, 1);
    write(rig.dir.path(), &rig.server.issue("localhost", Flaw::default()));
    rig.list(&rig.clients.crl(&[7], end));
    rig.ends(revoked, Reason::Revoked, "revoked").await;
    let lines = rig.trail.newest(10);
    let lines: Vec<_> =
        lines.iter().rev().map(|line| [&line["event"], &line["outcome"], &line["listener"]]).collect();
    let expected = [
        ("tls.loaded", "allowed"),
        // The issuer had no list at first.
        ("tls.denied", "denied"),
        ("tls.loaded", "allowed"),
        ("tls.kept", "error"),
        ("tls.loaded", "allowed"),
        ("tls.untrusted", "denied"),
    ];
    assert_eq!(lines, expected.map(|(event, outcome)| [event, outcome, "test"]));
    let [untrusted, loaded, kept, ..] = &rig.trail.newest(10)[..] else { panic!("no lines") };
    assert_eq!((&untrusted["reason"], &untrusted["identity"]), (&"revoked".into(), &"dns:edge-7".into()));
    assert_eq!((&loaded["names"], &loaded["generation"]), (&"localhost".into(), &3.into()));
    assert!(
        kept["error"].as_str().unwrap().contains("tls.crt: the certificate is not valid before"),
        "{kept}"
    );
}

#[tokio::test]
async fn a_handshake_that_is_under_way_when_trust_changes_does_not_slip_through() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let pair = rig.clients.issue("edge-1", Flaw::default());
    let stream = TcpStream::connect(rig.address).await.unwrap();
    until("the connection", || rig.port.peers().len() == 1).await;
    // From here on it has the old authority.
    rig.replace("ca.crt", &Ca::new("others").pem());
    let stream = rig.shake_hands(stream, rig.client(Some(&pair))).await.unwrap();
    rig.ends(stream, Reason::Untrusted, "unknown-issuer").await;
}

#[tokio::test]
async fn many_connections_are_verified_again_in_parts() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let pairs = ["edge-1", "edge-2"].map(|name| rig.clients.issue(name, Flaw::default()));
    let others = Ca::new("others");
    rig.replace("ca.crt", &format!("{}{}", others.pem(), rig.clients.pem()));
    let good = others.issue("edge-3", Flaw::default());
    let mut open = Vec::new();
    for n in 0..150 {
        let pair = if n % 3 == 0 { &good } else { &pairs[n % 2] };
        open.push(rig.connect(rig.client(Some(pair))).await.unwrap());
    }
    rig.replace("ca.crt", &others.pem());
    until("the count", || rig.refusals.counts()[&Reason::Untrusted] == 100).await;
    for (n, stream) in open.iter_mut().enumerate() {
        if n % 3 == 0 {
            assert_eq!(ask(stream).await.as_deref(), Ok("verified"), "{n}");
        } else {
            assert_ne!(ask(stream).await.as_deref(), Ok("verified"), "{n}");
        }
    }
    assert_eq!(rig.port.n_distrusted(), 100);
}

/// A rig whose clients must not be on the list `crl`, and a certificate with the serial number 7 of its authority.
async fn with_crl(is_strict: bool, revoked: &[u64], end: SystemTime) -> (Rig, Pair) {
    let rig = Rig::start(TIMING, |files| {
        let Own::Files { key, .. } = &files.own else { panic!("no files") };
        let directory = key.parent().unwrap();
        // The authority of the rig is made before, and its list after: the first list is of another one.
        fs::write(directory.join("crl"), Ca::new("another").crl(&[], end)).unwrap();
        files.trust.crl = Some(directory.join("crl"));
        files.trust.is_crl_strict = is_strict;
    })
    .await;
    let pair = rig.clients.issue("edge-7", Flaw { serial: 7, ..Flaw::default() });
    assert!(rig.ask(Some(&pair)).await.is_err());
    until("an issuer without a list", || rig.n(Outcome::Failed("unknown-revocation")) == 1).await;
    rig.list(&rig.clients.crl(revoked, end));
    (rig, pair)
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_and_others_are_not() {
    let (rig, revoked) = with_crl(false, &[3, 7], SystemTime::now() + 10 * DAY).await;
    assert!(rig.ask(Some(&revoked)).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("revoked")) == 1).await;
    let good = rig.clients.issue("edge-8", Flaw { serial: 8, ..Flaw::default() });
    assert_eq!(rig.ask(Some(&good)).await.as_deref(), Ok("verified"));
    // Taken off the list, it counts again.
    rig.list(&rig.clients.crl(&[3], SystemTime::now() + 10 * DAY));
    assert_eq!(rig.ask(Some(&revoked)).await.as_deref(), Ok("verified"));
    // A list that the authority did not sign helps nobody.
    let forged = Ca::new("clients").crl(&[], SystemTime::now() + DAY);
    rig.list(&forged);
    assert!(rig.ask(Some(&good)).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("bad-crl")) == 1).await;
}

#[tokio::test]
async fn a_list_that_is_out_of_date_is_a_problem_and_counts_no_more_when_strict() {
    let past = SystemTime::now() - DAY;
    let (rig, revoked) = with_crl(false, &[7], past).await;
    assert!(rig.ask(Some(&revoked)).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("revoked")) == 1).await;
    let good = rig.clients.issue("edge-8", Flaw { serial: 8, ..Flaw::default() });
    assert_eq!(rig.ask(Some(&good)).await.as_deref(), Ok("verified"));
    let health = rig.tls.status().health(SystemTime::now(), DAY);
    let problem = health.problem.unwrap();
    assert!(problem.starts_with("a CRL of the clients of the test port is to be replaced by"), "{problem}");
    assert!(problem.ends_with("it is used after that too") && health.unready.is_none(), "{problem}");

    let (rig, _) = with_crl(true, &[7], past).await;
    let good = rig.clients.issue("edge-8", Flaw { serial: 8, ..Flaw::default() });
    assert!(rig.ask(Some(&good)).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("crl-expired")) == 1).await;
    let problem = rig.tls.status().health(SystemTime::now(), DAY).problem.unwrap();
    assert!(problem.contains("clients of its issuer are refused (--xds-client-crl-strict)"), "{problem}");
    // With a new one, all is well.
    rig.list(&rig.clients.crl(&[7], SystemTime::now() + 30 * DAY));
    assert_eq!(rig.ask(Some(&good)).await.as_deref(), Ok("verified"));
    assert_eq!(rig.tls.status().health(SystemTime::now(), DAY), TlsHealth::default());
}

#[tokio::test]
async fn an_open_connection_ends_when_its_certificate_is_revoked_and_others_go_on() {
    let end = SystemTime::now() + 10 * DAY;
    let (rig, pair) = with_crl(false, &[], end).await;
    let revoked = rig.connect(rig.client(Some(&pair))).await.unwrap();
    let good = rig.clients.issue("edge-8", Flaw { serial: 8, ..Flaw::default() });
    let mut good = rig.connect(rig.client(Some(&good))).await.unwrap();
    rig.list(&rig.clients.crl(&[7], end));
    rig.ends(revoked, Reason::Revoked, "revoked: the issuer of the client certificate has revoked it").await;
    assert_eq!(ask(&mut good).await.as_deref(), Ok("verified"));
}

#[tokio::test]
async fn an_open_connection_ends_when_a_list_is_due_that_counts_only_in_time() {
    for is_strict in [false, true] {
        let (rig, pair) = with_crl(is_strict, &[], SystemTime::now() + 10 * DAY).await;
        let mut stream = rig.connect(rig.client(Some(&pair))).await.unwrap();
        let due = SystemTime::now() + Duration::from_secs(2);
        rig.list(&rig.clients.crl(&[], due));
        if is_strict {
            rig.ends(stream, Reason::Untrusted, "(crl-expired)").await;
            assert!(SystemTime::now() + Duration::from_secs(1) > due, "too early");
        } else {
            until("the time", || SystemTime::now() > due + Duration::from_secs(1)).await;
            assert_eq!(ask(&mut stream).await.as_deref(), Ok("verified"));
        }
    }
}

#[tokio::test]
async fn a_list_counts_for_the_authority_that_signed_it_and_not_for_another_of_its_name() {
    let end = SystemTime::now() + 10 * DAY;
    let (rig, _) = with_crl(false, &[], end).await;
    let (old, new) = (Ca::new("same name"), Ca::new("same name"));
    rig.replace("ca.crt", &format!("{}{}", old.pem(), new.pem()));
    let issue = |ca: &Ca, serial| ca.issue("edge-1", Flaw { serial, ..Flaw::default() });
    let (of_old, of_new) = (issue(&old, 7), issue(&new, 7));
    let table: [(&str, Vec<String>, bool, bool); 7] = [
        ("the old one", vec![old.crl(&[7], end), new.crl(&[], end)], false, true),
        ("the new one", vec![old.crl(&[], end), new.crl(&[7], end)], true, false),
        ("the other order", vec![new.crl(&[7], end), old.crl(&[], end)], true, false),
        ("both", vec![new.crl(&[7], end), old.crl(&[3, 7], end)], false, false),
        ("only one has a list", vec![new.crl(&[3], end)], false, true),
        (
            "an old list beside a new one",
            vec![old.crl(&[], end), new.crl(&[], end), old.crl(&[7], end)],
            false,
            true,
        ),
        (
            "a list of a third",
            vec![Ca::new("same name").crl(&[], end), rig.clients.crl(&[7], end)],
            false,
            false,
        ),
    ];
    for (what, lists, old_is_good, new_is_good) in table {
        rig.list(&lists.concat());
        assert_eq!(rig.tls.status().fault, None, "{what}");
        assert_eq!(rig.ask(Some(&of_old)).await.is_ok(), old_is_good, "{what}: of the old one");
        assert_eq!(rig.ask(Some(&of_new)).await.is_ok(), new_is_good, "{what}: of the new one");
    }
    rig.list(&vec![old.crl(&[], end); 17].concat());
    let fault = rig.tls.status().fault.unwrap_or_default();
    assert!(fault.contains("crl: it contains 17 CRLs of one issuer, and may contain 16"), "{fault}");
}

#[tokio::test]
async fn a_file_without_a_usable_list_changes_nothing() {
    let (rig, revoked) = with_crl(false, &[7], SystemTime::now() + 10 * DAY).await;
    let certificate = rig.clients.pem();
    for (text, wrong) in [
        ("", "crl: it contains no CRL: write it as PEM, -----BEGIN X509 CRL-----"),
        (&certificate, "it contains no CRL"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "CRL 1: not a valid CRL"),
        ("-----BEGIN X509 CRL-----\nAAAA", "crl: not valid PEM"),
    ] {
        rig.list(text);
        let fault = rig.tls.status().fault.unwrap_or_default();
        assert!(fault.contains(wrong), "{wrong}: {fault}");
    }
    assert!(rig.ask(Some(&revoked)).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("revoked")) == 1).await;
}

#[tokio::test]
async fn a_handshake_fails_without_a_certificate_where_one_is_required() {
    let rig = Rig::start(TIMING, |files| files.needs_client_certificate = true).await;
    assert!(rig.ask(None).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("no-certificate")) == 1).await;
    let good = rig.clients.issue("edge-1", Flaw::default());
    assert_eq!(rig.ask(Some(&good)).await.as_deref(), Ok("verified"));
}

#[tokio::test]
async fn versions_before_the_oldest_are_refused() {
    let rig = Rig::start(TIMING, |files| files.min_version = TlsVersion::Tls13).await;
    let roots = RootCertStore::empty();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&version::TLS12]).unwrap();
    let old = builder.with_root_certificates(roots).with_no_client_auth();
    assert!(rig.connect(old).await.is_err());
    until("the failure", || rig.n(Outcome::Failed("protocol")) == 1).await;
    assert_eq!(rig.ask(None).await.as_deref(), Ok("anonymous"));
}

#[tokio::test]
async fn no_session_is_resumed() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let pair = rig.clients.issue("edge-1", Flaw::default());
    let others = Ca::new("others");
    for versions in [&[&version::TLS12], &[&version::TLS13]] {
        for (pair, expected) in [(None, "anonymous"), (Some(&pair), "verified")] {
            // A client of rustls keeps what it could resume with.
            let client = rig.client_of(versions, pair);
            rig.replace("ca.crt", &rig.clients.pem());
            for _ in 0..3 {
                let mut stream = rig.connect(client.clone()).await.unwrap();
                assert_eq!(ask(&mut stream).await.as_deref(), Ok(expected));
                assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
            }
            // Nor does an earlier session help when its authority is gone.
            rig.replace("ca.crt", &others.pem());
            let again = async {
                let mut stream = rig.connect(client).await.map_err(|error| error.to_string())?;
                ask(&mut stream).await
            };
            assert_ne!(again.await.as_deref(), Ok("verified"), "{expected}");
        }
    }
}

#[tokio::test]
async fn plain_text_is_no_handshake() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = within("the end", stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    until("the failure", || rig.n(Outcome::Failed("protocol")) == 1).await;
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_ends() {
    let rig = Rig::start(TlsTiming { handshake: Duration::from_millis(200), ..TIMING }, |_| ()).await;
    let mut silent = TcpStream::connect(rig.address).await.unwrap();
    let mut half = TcpStream::connect(rig.address).await.unwrap();
    half.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    for stream in [&mut silent, &mut half] {
        let _ = within("the end", stream.read_to_end(&mut Vec::new())).await;
    }
    until("the count", || rig.n(Outcome::Failed("timeout")) == 2).await;
}

#[tokio::test]
async fn silent_connections_make_room_for_those_that_shake_hands() {
    let rig = Rig::start(TlsTiming { max_handshakes: 64, ..TIMING }, |_| ()).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(rig.address).await.unwrap());
    }
    assert_eq!(rig.ask(None).await.as_deref(), Ok("anonymous"));
    assert!(rig.n(Outcome::Failed("displaced")) >= 200 - 64);
    let mut buffer = [0];
    let n = within("the end of the oldest", silent[0].read(&mut buffer)).await.unwrap_or(0);
    assert_eq!(n, 0);
}

#[tokio::test]
async fn changed_files_are_for_new_connections_and_open_ones_go_on() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let following = tokio::spawn(Arc::clone(&rig.tls).follow(|_| ()));
    let mut old = rig.connect(rig.client(None)).await.unwrap();
    ask(&mut old).await.unwrap();
    let shown = |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    write(rig.dir.path(), &rig.server.issue("localhost", Flaw::default()));
    until("the new certificate", || rig.tls.status().generation == 2).await;
    let mut new = rig.connect(rig.client(None)).await.unwrap();
    assert_ne!(shown(&old), shown(&new));
    ask(&mut new).await.unwrap();
    ask(&mut old).await.unwrap();
    // Another authority of clients: the next connection is judged by it.
    let others = Ca::new("others");
    let client = others.issue("edge-1", Flaw::default());
    assert!(rig.ask(Some(&client)).await.is_err());
    fs::write(rig.dir.path().join("ca.crt"), format!("{}{}", rig.clients.pem(), others.pem())).unwrap();
    until("the new authority", || rig.tls.status().generation == 3).await;
    assert_eq!(rig.ask(Some(&client)).await.as_deref(), Ok("verified"));
    following.abort();
}

#[tokio::test]
async fn files_that_cannot_be_used_change_nothing_and_are_a_problem() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let (dir, now) = (rig.dir.path(), SystemTime::now());
    let good = fs::read_to_string(dir.join("tls.crt")).unwrap();
    let key = fs::read_to_string(dir.join("tls.key")).unwrap();
    let authorities = fs::read_to_string(dir.join("ca.crt")).unwrap();
    let issue = |flaw| rig.server.issue("localhost", flaw);
    let other = issue(Flaw::default());
    let expired = issue(Flaw { is_expired: true, ..Flaw::default() });
    let early = issue(Flaw { is_early: true, ..Flaw::default() });
    let for_clients = issue(Flaw { usage: Some(ExtendedKeyUsage::Client), ..Flaw::default() });
    let cut = &good[..good.len() / 2];
    let table: [(&str, &str, &str, &str); 9] = [
        (&other.certificate, &key, &authorities, "does not belong to the first certificate"),
        (&expired.certificate, &expired.key, &authorities, "the certificate expired at"),
        (&early.certificate, &early.key, &authorities, "the certificate is not valid before"),
        (&for_clients.certificate, &for_clients.key, &authorities, "lacks serverAuth"),
        (cut, &key, &authorities, "tls.crt: not valid PEM"),
        ("", &key, &authorities, "tls.crt: it contains no certificate"),
        (&good, &good, &authorities, "tls.key: it contains no key"),
        (&good, &key, "", "ca.crt: it contains no certificate"),
        (
            &good,
            &key,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "not a valid certificate",
        ),
    ];
    for (round, (certificate, key, authorities, wrong)) in table.into_iter().enumerate() {
        write(dir, &Pair { certificate: certificate.to_owned(), key: key.to_owned() });
        fs::write(dir.join("ca.crt"), authorities).unwrap();
        for _ in 0..3 {
            rig.tls.look(now);
        }
        let status = rig.tls.status();
        let fault = status.fault.clone().unwrap_or_default();
        assert!(fault.contains(wrong), "{wrong}: {fault}");
        let secret = other.key.lines().nth(1).unwrap();
        assert!(!fault.contains(&secret[..20]), "{fault}");
        assert_eq!((status.generation, status.n_kept), (1, round as u64 + 1), "{wrong}");
        let problem = status.health(now, DAY).problem.unwrap();
        assert!(problem.starts_with("the changed TLS files of the test port are not used: "), "{problem}");
        assert_eq!(rig.ask(None).await.as_deref(), Ok("anonymous"), "{wrong}");
    }
    fs::remove_file(dir.join("tls.key")).unwrap();
    for _ in 0..2 {
        rig.tls.look(now);
    }
    assert!(rig.tls.status().fault.unwrap().contains("No such file"));
    write(dir, &Pair { certificate: good, key });
    fs::write(dir.join("ca.crt"), authorities).unwrap();
    rig.tls.look(now);
    assert_eq!((rig.tls.status().fault, rig.tls.status().generation), (None, 1));
}

#[tokio::test]
async fn files_that_are_being_written_are_waited_for() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let (dir, now) = (rig.dir.path(), SystemTime::now());
    let new = rig.server.issue("localhost", Flaw::default());
    // An intermediate certificate is to follow: what lies there now would be valid.
    write(dir, &new);
    rig.tls.look(now);
    assert_eq!(rig.tls.status().generation, 1);
    let chain = format!("{}{}", new.certificate, rig.server.pem());
    fs::write(dir.join("tls.crt"), chain).unwrap();
    rig.tls.look(now);
    assert_eq!((rig.tls.status().generation, rig.tls.status().fault), (1, None));
    rig.tls.look(now);
    assert_eq!(rig.tls.status().generation, 2);
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_a_problem() {
    let rig = Rig::start(TIMING, |_| ()).await;
    let status = rig.tls.status();
    let end = status.material.as_ref().unwrap().not_after;
    let health = |before: Duration| status.health(end - before, DAY);
    assert_eq!(health(2 * DAY), TlsHealth::default());
    assert!(health(DAY / 2).problem.unwrap().contains("the certificate of the test port expires at"));
    let over = status.health(end + DAY, DAY);
    assert!(over.unready.is_some() && over.problem.unwrap().contains("expired at"));
    // One of an hour is not a problem for all of its life.
    let short = Material { not_before: end - DAY / 24, ..(**status.material.as_ref().unwrap()).clone() };
    let short = TlsStatus { material: Some(Arc::new(short)), ..status.clone() };
    assert_eq!(short.health(end - DAY / 24 / 2, DAY), TlsHealth::default());
    assert!(short.health(end - DAY / 24 / 5, DAY).problem.is_some());
}

#[test]
fn a_chain_is_read_and_the_names_are_those_of_its_first_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, intermediate) = (Ca::new("root"), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name.push(DnType::CommonName, "intermediate");
    let between = CertifiedIssuer::signed_by(params, intermediate, &ca.0).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["localhost".to_owned(), "10.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &between).unwrap();
    write(
        dir.path(),
        &Pair { certificate: format!("{}{}", leaf.pem(), between.pem()), key: key.serialize_pem() },
    );
    let files = TlsFiles { trust: TrustFiles::default(), ..files(dir.path()) };
    let tls = Tls::open("test", files, None, TIMING, Arc::default()).unwrap();
    assert_eq!(tls.status().material.unwrap().names, ["localhost", "10.0.0.1"]);
}
