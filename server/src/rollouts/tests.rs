//! Tests of the calls that rollouts make; what the driver does is tested with the control, over REST.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::{Caller, Reach, Trust, calls};

/// A server that answers every connection with the same bytes, and counts them; `None` never answers.
async fn answering(bytes: Option<&'static [u8]>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let n = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            match bytes {
                Some(bytes) => {
                    let _ = socket.write_all(bytes).await;
                }
                None => kept.push(socket),
            }
        }
    });
    (addr, n)
}

fn payload() -> xds_rollout::HookPayload {
    xds_rollout::HookPayload {
        name: "web".to_owned(),
        namespace: "prod".to_owned(),
        phase: xds_rollout::Phase::Progressing,
        checksum: "1".to_owned(),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
    }
}

async fn call(url: &str, limit: Duration) -> Result<(), String> {
    calls::call(&Caller::default(), url, &payload(), limit).await
}

#[tokio::test]
async fn only_a_status_2xx_is_a_go() {
    for (answer, said) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok", None),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope", Some("404 Not Found after ")),
        // Where it points to is not asked.
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            Some("302 Found"),
        ),
        ("HTTP/1.1 500 Internal Server Error\r\n\r\n", Some("500")),
        ("garbage\r\n\r\n", Some("not an HTTP answer")),
        ("", Some("not an HTTP answer")),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", Some("cannot be read")),
    ] {
        let (addr, _) = answering(Some(answer.as_bytes())).await;
        let told = call(&format!("http://{addr}/hook?x=1"), Duration::from_secs(5)).await;
        match said {
            None => assert_eq!(told, Ok(()), "{answer}"),
            Some(said) => assert!(told.as_ref().unwrap_err().contains(said), "{answer}: {told:?}"),
        }
        assert!(!format!("{told:?}").contains("nope"), "an answer's text is told: {told:?}");
    }
}

/// The hosts of `--webhook-allow`.
fn reaching(values: &[&str]) -> Caller {
    let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
    Caller { reach: Reach::new(&values).unwrap(), ..Caller::default() }
}

#[tokio::test]
async fn a_host_is_refused_by_the_address_that_it_has_when_it_is_called() {
    let (addr, n) = answering(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")).await;
    let port = addr.port();
    let limit = Duration::from_secs(5);
    for (allowed, host, said) in [
        (&[][..], "localhost", None),
        (&["localhost"], "localhost", None),
        (&["127.0.0.0/8", "::1"], "localhost", None),
        (&["127.0.0.0/8"], "127.0.0.1", None),
        (&["10.0.0.0/8"], "localhost", Some("neither is in --webhook-allow")),
        (&["hooks.example.com"], "127.0.0.1", Some("127.0.0.1 is not in --webhook-allow")),
        // Forms of addresses that only the resolver reads.
        (&[], "0", Some("not the address of a host, which is never called")),
        (&[], "2852039166", Some("resolves to 169.254.169.254, a link-local address, which is never called")),
        (
            &[],
            "0xa9.0xfe.0xa9.0xfe",
            Some("resolves to 169.254.169.254, a link-local address, which is never called"),
        ),
        (&[], "[::ffff:169.254.169.254]", Some("a link-local address, which is never called")),
    ] {
        let (caller, before) = (reaching(allowed), n.load(Ordering::Relaxed));
        let told = calls::call(&caller, &format!("http://{host}:{port}/"), &payload(), limit).await;
        let n_refused = caller.refusals.counts()[&xds_cache::refusals::Reason::CallTarget];
        match said {
            None => assert_eq!((told, n_refused), (Ok(()), 0), "{host}"),
            Some(said) => {
                assert!(told.as_ref().unwrap_err().contains(said), "{host}: {told:?}");
                assert_eq!((n_refused, n.load(Ordering::Relaxed)), (1, before), "{host}");
            }
        }
    }
    // Queries go the same way.
    let address = format!("http://127.0.0.1:{port}");
    let prometheus = xds_rollout::Prometheus { address, query: "up".to_owned(), min: None, max: None };
    let told = calls::query(&reaching(&["a"]), &prometheus).await.unwrap_err();
    assert_eq!(told, "127.0.0.1 is not in --webhook-allow");
}

#[tokio::test]
async fn nothing_of_what_prometheus_says_is_told() {
    for answer in [
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 18\r\n\r\n{\"error\":\"secret\"}",
        "HTTP/1.1 200 OK\r\ncontent-length: 47\r\n\r\n{\"data\":{\"resultType\":\"secret\",\"result\":[1,1]}}",
        "HTTP/1.1 200 OK\r\ncontent-length: 54\r\n\r\n{\"data\":{\"resultType\":\"scalar\",\"result\":[1,\"secret\"]}}",
    ] {
        let (addr, _) = answering(Some(answer.as_bytes())).await;
        let address = format!("http://{addr}");
        let prometheus = xds_rollout::Prometheus { address, query: "up".to_owned(), min: None, max: None };
        let told = calls::query(&Caller::default(), &prometheus).await.unwrap_err();
        assert!(!told.contains("secret"), "{told}");
    }
}

#[tokio::test]
async fn a_body_and_a_head_without_end_are_not_read_to_it() {
    let long = Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(2 << 20)).into_boxed_str());
    let head = Box::leak(format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(1 << 20)).into_boxed_str());
    for answer in [&*long, &*head] {
        let (addr, _) = answering(Some(answer.as_bytes())).await;
        let told = call(&format!("http://{addr}/"), Duration::from_secs(5)).await;
        assert!(told.is_err(), "{told:?}");
    }
}

#[tokio::test]
async fn who_does_not_answer_is_given_up_in_time() {
    let (addr, n) = answering(None).await;
    let began = Instant::now();
    let told = call(&format!("http://{addr}/"), Duration::from_millis(50)).await;
    assert_eq!((told, n.load(Ordering::Relaxed)), (Err("no answer within 50ms".to_owned()), 1));
    assert!(began.elapsed() < Duration::from_secs(5));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let told = call(&format!("http://{closed}/"), Duration::from_secs(5)).await;
    assert!(told.as_ref().unwrap_err().contains("cannot connect"), "{told:?}");
}

#[tokio::test]
async fn the_payload_is_the_one_of_flagger() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/gate", listener.local_addr().unwrap());
    let calling = tokio::spawn(async move { call(&url, Duration::from_secs(5)).await });
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    while !text.ends_with('}') {
        let mut bytes = vec![0; 4096];
        let n = timeout(Duration::from_secs(5), socket.read(&mut bytes)).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    assert_eq!(calling.await.unwrap(), Ok(()));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /gate HTTP/1.1\r\n") && head.contains("content-type: application/json"));
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "name": "web", "namespace": "prod", "phase": "Progressing", "checksum": "1", "metadata": {"a": "b"},
    });
    assert_eq!(body, expected);
}

#[test]
fn what_cannot_be_called_is_refused() {
    for url in ["http://a", "http://127.0.0.1:9090/x?y", "http://[::1]:1/", "https://a/", "https://[::1]:1"] {
        assert_eq!(Caller::default().refusal(url), None, "{url}");
    }
    for url in [
        "ftp://a/",
        "http://",
        "https://",
        "http://a b/",
        "https://a:99999/",
        "a",
        "http://me:you@a:1/",
        "http://169.254.169.254/",
    ] {
        assert!(Caller::default().refusal(url).is_some(), "{url}");
    }
}

/// An authority: its certificate as a file, and what it signs with.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: tempfile::NamedTempFile,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), issuer.pem()).unwrap();
        Self { issuer, file }
    }

    fn caller(&self) -> Caller {
        Caller { trust: Trust::read(self.file.path()).unwrap(), ..Caller::default() }
    }

    /// A server with a certificate for `name` that says go to everyone. Gives its port.
    async fn serve(&self, name: &str) -> u16 {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(mut socket) = acceptor.accept(socket).await else { continue };
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                let _ = socket.shutdown().await;
            }
        });
        port
    }
}

#[tokio::test]
async fn over_https_only_those_are_believed_whose_authority_is_known() {
    let (known, other) = (Authority::new("known"), Authority::new("other"));
    let (good, misnamed) = (known.serve("127.0.0.1").await, known.serve("elsewhere.example.com").await);
    let limit = Duration::from_secs(5);
    for (port, caller, said) in [
        (good, known.caller(), None),
        (
            good,
            other.caller(),
            Some("the certificate of 127.0.0.1 is not trusted: UnknownIssuer; give the certificate"),
        ),
        (misnamed, known.caller(), Some("the certificate of 127.0.0.1 is not trusted: ")),
    ] {
        let url = format!("https://127.0.0.1:{port}/hook?token=hunter2");
        let told = calls::call(&caller, &url, &payload(), limit).await;
        let Some(said) = said else {
            assert_eq!(told, Ok(()));
            continue;
        };
        let told = told.unwrap_err();
        assert!(told.contains(said) && !told.contains("hunter2"), "{told}");
    }
    // A query to Prometheus goes the same way; that one says nothing useful.
    let address = format!("https://127.0.0.1:{good}/prometheus");
    let prometheus = xds_rollout::Prometheus { address, query: "up".to_owned(), min: None, max: None };
    assert_eq!(calls::query(&known.caller(), &prometheus).await, Err("the answer is not JSON".to_owned()));
    let told = calls::query(&other.caller(), &prometheus).await.unwrap_err();
    assert!(told.contains("is not trusted"), "{told}");
}

#[tokio::test]
async fn time_is_bounded_in_a_handshake_too_and_what_is_no_tls_is_said() {
    let caller = Authority::new("known").caller();
    let (silent, n) = answering(None).await;
    let (plain, _) = answering(Some(b"HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let (began, limit) = (Instant::now(), Duration::from_millis(100));
    let told = calls::call(&caller, &format!("https://{silent}/?token=hunter2"), &payload(), limit).await;
    assert_eq!((told, n.load(Ordering::Relaxed)), (Err("no answer within 100ms".to_owned()), 1));
    assert!(began.elapsed() < Duration::from_secs(5));
    let limit = Duration::from_secs(5);
    let told = calls::call(&caller, &format!("https://{plain}/?token=hunter2"), &payload(), limit)
        .await
        .unwrap_err();
    assert!(told.starts_with("TLS with 127.0.0.1 failed: ") && !told.contains("hunter2"), "{told}");
}

#[test]
fn a_file_without_authorities_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    assert!(Trust::read(&path).unwrap_err().contains("No such file"));
    let block = |inner: &str| format!("-----BEGIN CERTIFICATE-----\n{inner}\n-----END CERTIFICATE-----\n");
    for (text, said) in [
        (String::new(), "it contains no certificate"),
        ("hello".to_owned(), "it contains no certificate"),
        (block("AAAA"), "certificate 1: "),
        (block("!"), ""),
    ] {
        std::fs::write(&path, &text).unwrap();
        let told = Trust::read(&path).unwrap_err();
        assert!(told.contains(said), "{text}: {told}");
    }
}
