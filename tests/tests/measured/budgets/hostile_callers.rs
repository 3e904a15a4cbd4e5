//! Callers without a credential that take every place of a port, or guess tokens: an honest caller of the same address is answered.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use xds_tests::http::{Answer, Http};
use xds_tests::server::{Server, Setup};
use xds_tests::tokens::{self, TokenIssuer};

/// More than the admin port has places.
const N_CALLERS: usize = 300;
/// Requests of the honest caller, one after the other.
const N_HONEST: usize = 40;
/// How long the honest caller asks for an answer. Whoever does not move makes room after 2 s.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two bytes of a slow body: far less than the limit on requests without progress.
const PACE: Duration = Duration::from_millis(300);

/// SETTINGS with `INITIAL_WINDOW_SIZE` 0, and HEADERS of `GET /`.
const WITHOUT_WINDOW: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";

/// A form of the page, of which every byte comes late.
const SLOW_FORM: &[u8] = b"POST /ui/sign-in HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 4000\r\n\r\n";

/// Callers that begin like this, go on with a byte now and then, and come again when they are cut off.
struct Attack {
    callers: JoinSet<()>,
    n_connected: Arc<AtomicUsize>,
}

impl Attack {
    fn begin(address: SocketAddr, first: &'static [u8], further: &'static [u8]) -> Self {
        let n_connected = Arc::<AtomicUsize>::default();
        let mut callers = JoinSet::new();
        for _ in 0..N_CALLERS {
            callers.spawn(call(address, first, further, Arc::clone(&n_connected)));
        }
        Self { callers, n_connected }
    }

    /// Waits until every caller had a connection.
    async fn wait_all(&self) -> Result<()> {
        xds_tests::wait::wait_for("every caller", LIMIT, async || {
            let n = self.n_connected.load(Ordering::Relaxed);
            ensure!(n >= N_CALLERS, "{n} connected");
            Ok(())
        })
        .await
    }

    async fn end(mut self) {
        self.callers.shutdown().await;
    }
}

async fn call(address: SocketAddr, first: &[u8], further: &[u8], n_connected: Arc<AtomicUsize>) {
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        if stream.write_all(first).await.is_err() {
            continue;
        }
        n_connected.fetch_add(1, Ordering::Relaxed);
        let (mut reader, mut writer) = stream.split();
        let mut taken = [0; 4096];
        loop {
            tokio::select! {
                read = reader.read(&mut taken) => if !matches!(read, Ok(1..)) { break },
                _ = pace.tick() => if writer.write_all(further).await.is_err() { break },
            }
        }
    }
}

/// Asks until there is an answer. A port without room closes the connection at once.
async fn answered(http: &Http, url: &str) -> Result<Answer> {
    let asking = async {
        loop {
            if let Ok(Ok(answer)) = timeout(LIMIT, http.get(url)).await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, asking).await.with_context(|| format!("{url} is not answered"))
}

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn honest(what: &str, url: &str) -> Result<()> {
    let (http, mut worst) = (Http::new(), Duration::ZERO);
    for n in 0..N_HONEST {
        let began = Instant::now();
        let answer = answered(&http, url).await.with_context(|| format!("{what}, request {n}"))?;
        ensure!(answer.status == StatusCode::OK, "{what}: {} {}", answer.status, answer.text());
        worst = worst.max(began.elapsed());
    }
    println!("{what}: the slowest of {N_HONEST} answers took {worst:?}");
    Ok(())
}

#[tokio::test]
async fn callers_that_take_no_answer_or_send_slowly_keep_nobody_out() -> Result<()> {
    let server = Server::start_with(Setup::new()?.probe()).await?;
    server.wait_ready().await?;
    let admin = format!("http://{}/v1/groups", server.admin());
    let probe = server.url("/readyz");
    let probe_address: SocketAddr =
        probe.trim_start_matches("http://").trim_end_matches("/readyz").parse().context("the probe port")?;
    for (what, address, first, further, url) in [
        ("no window on the admin port", server.admin(), WITHOUT_WINDOW, &b""[..], &admin),
        ("no window on the probe port", probe_address, WITHOUT_WINDOW, b"", &probe),
        ("slow sign-in", server.admin(), SLOW_FORM, b"a", &admin),
        ("slow request on the probe port", probe_address, SLOW_FORM, b"a", &probe),
    ] {
        let attack = Attack::begin(address, first, further);
        attack.wait_all().await.context(what)?;
        honest(what, url).await?;
        attack.end().await;
        honest(&format!("after {what}"), url).await?;
    }
    Ok(())
}

#[tokio::test]
async fn bad_tokens_of_the_same_address_lock_out_no_good_one() -> Result<()> {
    let dir = TempDir::with_prefix("xds-guess-")?;
    let issuer = TokenIssuer::new()?;
    std::fs::write(dir.path().join("keys.json"), issuer.key_set())?;
    let policy = tokens::policy(Path::new("keys.json"))
        + "principals:\n- { name: ops, role: admin, jwt: [{ issuer: cluster, subject: edge }] }\n";
    let path = dir.path().join("access.yaml");
    std::fs::write(&path, policy)?;
    let setup = Setup::new()?.probe().arg(format!("--access-policy={}", path.display()));
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let claims = tokens::claims("edge-1", Duration::from_secs(3600))?;
    let (good, forged) = (issuer.token(&claims)?, TokenIssuer::new()?.token(&claims)?);
    let ask = async |token: &str| -> Result<StatusCode> {
        let bearer = format!("Bearer {token}");
        Ok(server.request("GET", "/v1/groups", &[("authorization", &*bearer)], "").await?.status)
    };
    let mut n_refused = 0;
    for n in 0..N_HONEST {
        for bad in ["guessed-token-of-somebody", &*forged] {
            let status = ask(bad).await?;
            ensure!([401, 429].contains(&status.as_u16()), "{status}");
            n_refused += usize::from(status == StatusCode::TOO_MANY_REQUESTS);
        }
        let status = ask(&good).await?;
        ensure!(status == StatusCode::OK, "{status} after {n} pairs of bad tokens");
    }
    ensure!(n_refused > 0, "the guesses are limited");
    Ok(())
}
