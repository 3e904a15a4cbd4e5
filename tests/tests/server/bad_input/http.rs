//! Garbage at the ports, and requests of the admin API that are wrong.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use xds_tests::config::CLUSTER;
use xds_tests::random::Random;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{names, plain_cluster, resources, served};
use xds_tests::server::{Server, Setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_garbage_requests_at_both_ports_change_nothing() -> Result<()> {
    const N_TASKS: u64 = 8;
    const N_REQUESTS: u64 = 400;
    let mut random = Random::from_env()?;
    let server = serving().await?;
    let before = served(&server).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..N_TASKS {
        let mut random = Random::new(random.number());
        let addrs = [server.admin(), server.xds()];
        tasks.spawn(async move {
            let mut n_answered = 0;
            for i in 0..N_REQUESTS {
                let request = if i % 4 == 0 { noise(&mut random) } else { almost_http(&mut random) };
                let addr = addrs[usize::from(i % 8 >= 4)];
                n_answered += exchange(addr, &request).await?;
            }
            anyhow::Ok(n_answered)
        });
    }
    let answered = tasks.join_all().await.into_iter().collect::<Result<Vec<u64>>>()?;
    println!("{} requests, {} answers", N_TASKS * N_REQUESTS, answered.iter().sum::<u64>());
    assert!(answered.iter().sum::<u64>() > N_REQUESTS, "hardly anything was read as HTTP");
    assert_eq!(served(&server).await?, before);
    assert!(server.log().containing("panicked").is_empty(), "{}", server.log());
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("n", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["a"]);
    Ok(())
}

/// Method, path, headers and body; the status, and words of the answer.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str);

#[tokio::test]
async fn a_wrong_request_has_its_status_and_a_problem_and_changes_nothing() -> Result<()> {
    let server = serving().await?;
    let before = served(&server).await?;
    let all = "/v1/groups/default/resources";
    let one = "/v1/groups/default/resources/clusters/a";
    let json = ("content-type", "application/json");
    let good = plain_cluster("a", 7).to_string();
    let twice = format!("{{\"@type\":\"{CLUSTER}\",\"name\":\"a\",\"name\":\"a\"}}");
    let deep = "[".repeat(100_000);
    let cases: [Case<'_>; 26] = [
        ("PUT", one, &[("content-type", "text/plain")], &good, 415, "text/plain"),
        ("PUT", one, &[], &good, 415, "application/json or application/yaml"),
        ("PUT", one, &[json], "{", 400, "the body cannot be read"),
        ("PUT", one, &[json], "", 400, "the body cannot be read"),
        ("PUT", one, &[json], "null", 422, ""),
        ("PUT", one, &[json], "[]", 422, ""),
        ("PUT", one, &[json], &twice, 400, "appears twice"),
        ("PUT", one, &[json], &deep, 400, "the body cannot be read"),
        ("PUT", one, &[("content-type", "application/yaml")], "a: [", 400, "the body cannot be read"),
        ("PUT", one, &[json], "\u{0}", 400, "the body cannot be read"),
        ("PUT", all, &[json], "{\"resources\":{}}", 422, "#/resources"),
        ("PUT", all, &[json], "{\"resource\":[]}", 422, "resource"),
        ("PUT", "/v1/groups/default/resources/clusters/b", &[json], &good, 422, "the path Cluster"),
        ("PUT", "/v1/groups/default/resources/cluster/a", &[json], &good, 404, "clusters"),
        ("PUT", "/v1/groups/g", &[json], "{\"name\":\"g\",\"selector\":{}}", 422, "all"),
        ("PUT", "/v1/groups/default/resources/clusters/%ff", &[json], &good, 400, "cannot be read"),
        ("GET", "/v1/nope", &[], "", 404, "no such path"),
        ("GET", "/v1/groups/nope", &[], "", 404, "nope"),
        ("POST", one, &[json], &good, 405, "method"),
        ("PATCH", all, &[json], &good, 405, "method"),
        ("PUT", "/v1/groups/default/resources?dryrun=true", &[json], "{\"resources\":[]}", 400, "dryrun"),
        ("PUT", "/v1/groups/default/resources?wait=yes", &[json], "{\"resources\":[]}", 400, "wait"),
        (
            "PUT",
            "/v1/groups/default/resources?wait=acked&timeout=1h",
            &[json],
            "{\"resources\":[]}",
            400,
            "1h",
        ),
        ("GET", "/v1/history/x", &[], "", 400, "x"),
        ("POST", "/v1/rollback", &[json], "{\"revision\":99999}", 404, "99999"),
        ("DELETE", "/v1/groups/default", &[], "", 409, "default"),
    ];
    let mut wrong = Vec::new();
    for (method, path, headers, body, status, words) in cases {
        let answer = server.request(method, path, headers, body.to_owned()).await?;
        let problem = answer.json().unwrap_or_default();
        let is_right = answer.status.as_u16() == status
            && answer.header("content-type") == "application/problem+json"
            && answer.text().contains(words)
            && problem["status"] == status
            && ["type", "title", "detail", "instance"].iter().all(|member| problem[member].is_string());
        if !is_right {
            wrong.push(format!("{method} {path} {body:.60}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(served(&server).await?, before);
    assert_eq!(server.get_json("/v1/history").await?["revisions"].as_array().map(Vec::len), Some(1));
    Ok(())
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_before_it_is_kept() -> Result<()> {
    let server = serving().await?;
    let json = ("content-type", "application/json");
    let large = format!("\"{}\"", "x".repeat(2_000_000));
    let answer = server.request("PUT", "/v1/groups/g", &[json], large).await?;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.text());
    assert!(answer.text().contains("1048576"), "{}", answer.text());
    // An announced length reserves nothing until the body comes.
    let lie = "PUT /v1/groups/default/resources HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
               content-length: 99999999999\r\nconnection: close\r\n\r\n{";
    let mut socket = TcpStream::connect(server.admin()).await?;
    socket.write_all(lie.as_bytes()).await?;
    drop(socket);
    server.wait_ready().await?;
    assert_eq!(served(&server).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_on_reads_and_writes() -> Result<()> {
    let server = serving().await?;
    let before = served(&server).await?;
    let own = server.admin().to_string();
    let json = ("content-type", "application/json");
    let path = "/v1/groups/default/resources";
    let empty = "{\"resources\":[]}";
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let host = [json, ("host", "evil.example")];
        let answer = server.request(method, path, &host, empty).await?;
        assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST, "{method} {}", answer.text());
        assert!(answer.text().contains("evil.example"), "{}", answer.text());
        for origin in ["http://evil.example", "null", "file://"] {
            let answer = server.request(method, path, &[json, ("origin", origin)], empty).await?;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {origin} {}", answer.text());
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
    }
    assert_eq!(served(&server).await?, before);
    let origin = format!("http://{own}");
    for headers in [[("host", own.as_str()), ("origin", origin.as_str())], [("host", "localhost"), json]] {
        assert_eq!(server.request("GET", path, &headers, "").await?.status, StatusCode::OK, "{headers:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_admin_port_with_a_token_answers_nobody_else() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    std::fs::write(&token, "RECOGNISABLE-token-0123456789\n")?;
    let setup = Setup::new()?.arg("--admin-token-file").arg(token.to_string_lossy());
    let server = Server::start_with(setup.arg("--log-level").arg("debug")).await?;
    server.wait_ready().await?;
    for path in ["/v1/groups", "/metrics", "/openapi.json", "/v1/events", "/nope"] {
        for headers in [vec![], vec![("authorization", "Bearer RECOGNISABLE-token-012345678")]] {
            let answer = server.request("GET", path, &headers, "").await?;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}: {}", answer.text());
        }
    }
    let headers = [("authorization", "Bearer RECOGNISABLE-token-0123456789")];
    assert_eq!(server.request("GET", "/v1/groups", &headers, "").await?.status, StatusCode::OK);
    assert!(server.log().containing("RECOGNISABLE").is_empty(), "the token is in the log");
    Ok(())
}

async fn serving() -> Result<Server> {
    let server = Server::start_with(Setup::new()?).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    Ok(server)
}

/// Bytes that are no HTTP, some after the words with which HTTP/2 begins.
fn noise(random: &mut Random) -> Vec<u8> {
    let n = random.within(1..600);
    let mut bytes = random.bytes(usize::try_from(n).unwrap_or_default());
    if n.is_multiple_of(2) {
        bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    bytes
}

/// A request of words that the server knows, put together without sense.
fn almost_http(random: &mut Random) -> Vec<u8> {
    const METHODS: [&str; 8] = ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "CONNECT", "\u{1}"];
    const PARTS: [&str; 18] = [
        "/v1",
        "/groups",
        "/default",
        "/resources",
        "/clusters",
        "/a",
        "/%",
        "/%zz",
        "/%ff",
        "/..",
        "/%00",
        "/nodes",
        "/history",
        "/v3/discovery:clusters",
        "?dryRun=maybe",
        "&wait=acked&timeout=-1s",
        "/1...2",
        "\u{e9}",
    ];
    const HEADERS: [&str; 12] = [
        "content-type: application/json",
        "content-type: application/yaml",
        "content-type: application/grpc",
        "if-match: \"",
        "if-match: *",
        "x-actor: \u{7f}",
        "accept: \u{ff}",
        "last-event-id: -1",
        "te: trailers",
        "transfer-encoding: chunked",
        "content-length: 5",
        "no header",
    ];
    const BODIES: [&str; 9] = [
        "",
        "{",
        "[]",
        "null",
        "{\"resources\":[{\"@type\":\"\"}]}",
        "a: &a [*a]",
        "5\r\nhello\r\n0\r\n\r\n",
        "\u{0}\u{0}\u{0}\u{0}\u{5}hello",
        "{\"node\":{\"id\":1}}",
    ];
    fn pick<'a>(random: &mut Random, list: &[&'a str]) -> &'a str {
        let n = u64::try_from(list.len()).unwrap_or_default();
        list[usize::try_from(random.within(0..n)).unwrap_or_default()]
    }
    let mut text = format!("{} ", pick(random, &METHODS));
    for _ in 0..random.within(1..7) {
        text += pick(random, &PARTS);
    }
    text += " HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    for _ in 0..random.within(0..4) {
        text += pick(random, &HEADERS);
        text += "\r\n";
    }
    let body = pick(random, &BODIES);
    if random.within(0..2) == 0 {
        text += &format!("content-length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body;
    text.into_bytes()
}

/// Sends bytes and reads what comes until the server closes; returns how many answers came. None may be a failure.
async fn exchange(addr: SocketAddr, request: &[u8]) -> Result<u64> {
    let mut socket = TcpStream::connect(addr).await?;
    // The server may have closed before everything is sent.
    let _ = socket.write_all(request).await;
    let _ = socket.shutdown().await;
    let mut answer = Vec::new();
    let mut part = vec![0; 4096];
    let read = async {
        while let Ok(n @ 1..) = socket.read(&mut part).await {
            answer.extend_from_slice(part.get(..n).unwrap_or_default());
            // The stream of events has no end.
            if answer.len() > 1_000_000 {
                break;
            }
        }
    };
    let shown = String::from_utf8_lossy(request).into_owned();
    timeout(Duration::from_secs(10), read).await.with_context(|| format!("no end of {shown:?}"))?;
    let Some(status) = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3)) else { return Ok(0) };
    let status: u16 = std::str::from_utf8(status)?.parse()?;
    let text = String::from_utf8_lossy(&answer);
    ensure!(status < 500, "{shown:?} is answered with {text}");
    if status == 0 {
        bail!("{text}");
    }
    Ok(1)
}
