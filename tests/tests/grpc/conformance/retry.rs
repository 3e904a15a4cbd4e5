//! HTTPRoute: retries on statuses, within time limits, and after lost connections (HTTPRouteRetry, …WithTimeouts,
//! …ConnectionError).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use xds_tests::documents::service_with;
use xds_tests::rpc::Ask;

use crate::conformance::support::{Case, web_gateway};

/// How often each path was asked for.
type Attempts = Arc<Mutex<BTreeMap<String, usize>>>;

/// A backend that does badly on the first attempts: of `/{rule}/{how}/{n}` the first `n` get a status, a connection that is `cut`, or
/// one that `hang`s; all others are answered.
async fn start_flaky() -> Result<(SocketAddr, Attempts)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let attempts = Attempts::default();
    let shared = Arc::clone(&attempts);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A connection that ends is no failure here.
            tokio::spawn(serve(stream, Arc::clone(&shared)));
        }
    });
    Ok((addr, attempts))
}

async fn serve(mut stream: TcpStream, attempts: Attempts) -> Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head)?;
        let path = head.split(' ').nth(1).context("a path")?.to_owned();
        let [how, n] = path.split('/').skip(2).take(2).collect::<Vec<_>>()[..] else {
            stream.write_all(&answer(200)).await?;
            continue;
        };
        let attempt = {
            let mut attempts = attempts.lock().unwrap_or_else(PoisonError::into_inner);
            let attempt = attempts.entry(path.clone()).or_default();
            *attempt += 1;
            *attempt
        };
        match how {
            _ if attempt > n.parse()? => stream.write_all(&answer(200)).await?,
            "cut" => return Ok(()),
            "hang" => std::future::pending().await,
            status => stream.write_all(&answer(status.parse()?)).await?,
        }
    }
}

fn answer(status: u16) -> Vec<u8> {
    format!("HTTP/1.1 {status} Told\r\nx-backend: flaky\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// A rule for what is below `/name/`.
fn rule(name: &str, fields: &str, backend: &str) -> String {
    format!(
        "  - matches: [{{path: {{type: PathPrefix, value: /{name}}}}}]\n{fields}    backendRefs: [{{name: {backend}, port: 80}}]\n"
    )
}

fn get(path: &str) -> Ask {
    Ask::get("a.com", path)
}

async fn start(rules: &str, services: &[(&str, &[SocketAddr])]) -> Result<Case> {
    let route = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n{rules}\n---\n"
    );
    let services: String =
        services.iter().map(|(name, addrs)| service_with("default", name, 80, addrs, "")).collect();
    Case::start(&[], &["web"], &(web_gateway() + &route + &services)).await
}

/// Sends requests for paths of [`start_flaky`], each once; checks status and number of attempts.
async fn check(case: &Case, attempts: &Attempts, table: &[(&str, u16, usize)]) -> Result<()> {
    for (path, code, n_attempts) in table {
        let told = case.world.ask("web", &get(path)).await?;
        let found = attempts.lock().unwrap_or_else(PoisonError::into_inner).get(*path).copied();
        ensure!(
            told.code == *code && found == Some(*n_attempts),
            "{path}: {told:?} after {found:?} attempts"
        );
    }
    Ok(())
}

const CODES: &str = "    retry: {codes: [500, 502, 503, 504], attempts: 2, backoff: 10ms}\n";

/// Conformance: HTTPRouteRetry.
#[tokio::test]
async fn statuses_that_are_listed_are_retried_as_often_as_is_said() -> Result<()> {
    let (addr, attempts) = start_flaky().await?;
    let rules = rule("again", CODES, "flaky") + &rule("once", "", "flaky");
    let case = start(&rules, &[("flaky", &[addr])]).await?;
    case.world.expect_from("web", &get("/again"), "flaky").await?;
    let table = [
        ("/again/500/1", 200, 2),
        ("/again/502/1", 200, 2),
        ("/again/503/1", 200, 2),
        ("/again/504/1", 200, 2),
        ("/again/500/2", 200, 3),
        ("/again/500/3", 500, 3),
        ("/again/501/1", 501, 1),
        ("/again/404/1", 404, 1),
        ("/once/500/1", 500, 1),
    ];
    check(&case, &attempts, &table).await
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_retried_while_the_request_has_time() -> Result<()> {
    let (addr, attempts) = start_flaky().await?;
    let limits = |request: &str, attempt: &str| {
        format!("{CODES}    timeouts: {{request: {request}, backendRequest: {attempt}}}\n")
    };
    let rules = rule("patient", &limits("20s", "300ms"), "flaky")
        + &rule("hasty", &limits("500ms", "400ms"), "flaky")
        + &rule("whole", &format!("{CODES}    timeouts: {{request: 300ms}}\n"), "flaky");
    let case = start(&rules, &[("flaky", &[addr])]).await?;
    case.world.expect_from("web", &get("/patient"), "flaky").await?;
    let begin = Instant::now();
    let table = [
        ("/patient/hang/1", 200, 2),
        ("/patient/hang/2", 200, 3),
        ("/patient/hang/3", 504, 3),
        ("/patient/503/2", 200, 3),
        // The limit of the request holds for all attempts together.
        ("/hasty/hang/9", 504, 2),
        ("/whole/hang/9", 504, 1),
    ];
    check(&case, &attempts, &table).await?;
    let took = begin.elapsed();
    ensure!(took < Duration::from_secs(15), "limits that end nothing: {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_lost_or_refused_connection_is_retried() -> Result<()> {
    let (addr, attempts) = start_flaky().await?;
    // Bound and closed again, so no program listens there.
    let dead = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let rules = rule("again", CODES, "flaky")
        + &rule("once", "", "flaky")
        + &rule("half", CODES, "half")
        + &rule("dead", CODES, "dead");
    let services: [(&str, &[SocketAddr]); 3] =
        [("flaky", &[addr]), ("half", &[addr, dead]), ("dead", &[dead])];
    let case = start(&rules, &services).await?;
    case.world.expect_from("web", &get("/again"), "flaky").await?;
    let table = [
        ("/again/cut/1", 200, 2),
        ("/again/cut/2", 200, 3),
        ("/again/cut/3", 503, 3),
        ("/once/cut/1", 503, 1),
    ];
    check(&case, &attempts, &table).await?;
    for _ in 0..20 {
        case.world.ask("web", &get("/half")).await?.ensure_from("flaky")?;
    }
    case.world.ask("web", &get("/dead")).await?.ensure_code(503)
}
