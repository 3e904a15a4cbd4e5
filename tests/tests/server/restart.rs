//! Starts, restarts and ends: equal content has equal versions, and nothing is answered before everything is loaded.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryRequest};
use http::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Code;
use xds_tests::config::{
    CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE, cluster, endpoints, listener, route_config, to, yaml,
};
use xds_tests::process::Signal;
use xds_tests::random::Random;
use xds_tests::raw::{self, DeltaStream, SotwStream, path};
use xds_tests::seen::{delta_names, names, plain_cluster, resources, served, timeout_of};
use xds_tests::server::{Server, Setup, cli, xds_server};
use xds_tests::wait::{PATIENCE, wait_for};

#[tokio::test]
async fn pitfall_45_after_kill_9_equal_files_have_equal_versions_and_other_files_others() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &everything(1))?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    let (before, infos) = (served(&server).await?, version_infos(&server).await?);
    server.restart().await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?, before);
    assert_eq!(version_infos(&server).await?, infos);

    // A client that comes back with the version of other content is answered.
    server.kill().await?;
    dir.write_resources("a.yaml", &everything(2))?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("n", "c"));
    let request = raw::sotw_request(CLUSTER, &[]);
    let old = infos[0].clone();
    stream.send(raw_request(request, &old)).await?;
    let response = stream.expect_type(CLUSTER).await?;
    assert_eq!(timeout_of(&response, "c1")?, 2);
    assert_ne!(response.version_info, old);
    Ok(())
}

/// A load of more than 1,000 values is served before it is recorded.
/// A backup of a server that goes on with writing has everything that was acknowledged before it was begun, and is one state of it.
#[tokio::test]
async fn a_backup_that_is_made_while_the_server_writes_can_be_restored() -> Result<()> {
    let server = Arc::new(Server::start_with(Setup::new()?).await?);
    server.wait_ready().await?;
    let written = Arc::new(AtomicU64::new(0));
    let (writer, count) = (Arc::clone(&server), Arc::clone(&written));
    let writes = tokio::spawn(async move {
        for n in 1.. {
            for name in ["a", "b"] {
                writer
                    .put(&format!("/v1/groups/default/resources/clusters/{name}"), &plain_cluster(name, n))
                    .await?;
            }
            count.store(n, Ordering::Release);
        }
        Ok::<(), anyhow::Error>(())
    });
    wait_for("some writes", PATIENCE, async || {
        ensure!(written.load(Ordering::Acquire) >= 20);
        Ok(())
    })
    .await?;
    let before = written.load(Ordering::Acquire);
    let directory = server.data_dir().display().to_string();
    let backup = cli(&["store", "export", "--data-dir", &directory]).await?;
    writes.abort();
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), &backup)?;

    let setup = Setup::new()?;
    let (directory, text) = (setup.data_dir().display().to_string(), file.path().display().to_string());
    cli(&["store", "import", "--data-dir", &directory, &text]).await?;
    let restored = Server::start_with(setup).await?;
    restored.wait_ready().await?;
    let ends = async |name: &str| -> Result<u64> {
        let shown = restored.get_json(&format!("/v1/groups/default/resources/clusters/{name}")).await?;
        let timeout = shown["connect_timeout"].as_str().context("a timeout")?;
        Ok(timeout.trim_end_matches('s').parse()?)
    };
    let (a, b) = (ends("a").await?, ends("b").await?);
    ensure!(b >= before && (a == b || a == b + 1), "a {a}, b {b}, acknowledged before {before}");
    let history = restored.get_json("/v1/history?limit=1").await?;
    ensure!(history["revisions"][0]["revision"].as_u64() == Some(a + b), "{history:#}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_killed_while_it_records_its_first_load_goes_on_as_if_it_had_not_begun() -> Result<()>
{
    let dir = ConfigDir::new()?;
    let setup = Setup::new()?.watch(dir.path());
    let mut random = Random::from_env()?;
    for life in 1..=LIVES {
        let clusters: Vec<Value> = (0..1_010).map(|n| plain_cluster(&format!("c{n}"), life)).collect();
        dir.write_resources("clusters.yaml", &clusters)?;
        let mut process = setup.spawn().await?;
        let is_served = |line: &str| line.contains("not recorded yet").then_some(());
        process.wait_line("a load that is served", PATIENCE, is_served).await?;
        sleep(Duration::from_micros(random.within(0..20_000))).await;
        process.signal(Signal::KILL)?;
        process.wait_exit(PATIENCE).await?;
    }
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    server.put("/v1/groups/default/resources/clusters/api", &plain_cluster("api", 1)).await?;
    let history = server.get_json("/v1/history").await?;
    let entries = history["revisions"].as_array().context("revisions")?;
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let sources: Vec<String> = entries.iter().map(|entry| text(entry, "source")).collect();
    println!("{} of {LIVES} first loads were recorded", sources.len() - 1);
    // The newest load is recorded before the write, in its life or in the last one, and none twice.
    assert_eq!(sources[..2], ["api", "file"], "{sources:?}");
    assert!(sources.len() <= 1 + usize::try_from(LIVES)?, "{sources:?}");
    let before = (served(&server).await?, history);
    assert_eq!(before.0.len(), 1_011);
    server.restart().await?;
    server.wait_ready().await?;
    assert_eq!((served(&server).await?, server.get_json("/v1/history").await?), before);
    Ok(())
}

/// How often that server is killed.
const LIVES: u64 = 8;

#[tokio::test]
async fn pitfall_46_two_servers_with_the_same_files_in_another_order_have_equal_versions() -> Result<()> {
    let (one, other) = (ConfigDir::new()?, ConfigDir::new()?);
    one.write_resources("a.yaml", &everything(1))?;
    // Each resource in a file of its own, in the opposite order, as JSON with sorted keys, with comments and a directory.
    for (i, resource) in everything(1).iter().rev().enumerate() {
        let text = serde_json::to_string_pretty(&json!({ "resources": [resource] }))?;
        let name = if i % 2 == 0 { format!("{i}.json") } else { format!("sub/{i}.yaml") };
        let comment = if i % 2 == 0 { "" } else { "# a comment\n" };
        other.write(&name, &format!("{comment}{text}\n"))?;
    }
    let (one, other) = (Server::start(one.path()).await?, Server::start(other.path()).await?);
    one.wait_ready().await?;
    other.wait_ready().await?;
    let versions = served(&one).await?;
    assert_eq!(versions.len(), everything(1).len());
    assert_eq!(served(&other).await?, versions);
    assert_eq!(version_infos(&other).await?, version_infos(&one).await?);
    Ok(())
}

#[tokio::test]
async fn a_delta_client_that_comes_back_after_a_restart_is_sent_only_what_differs() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 1), plain_cluster("b", 1), plain_cluster("gone", 1)])?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let channel = raw::connect(server.xds()).await?;
    let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("n", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    let held = stream.expect_type(CLUSTER).await?;
    server.kill().await?;
    dir.write_resources("a.yaml", &[plain_cluster("a", 1), plain_cluster("b", 2), plain_cluster("new", 1)])?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;

    let channel = raw::connect(server.xds()).await?;
    let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("n", "c"));
    let versions = held.resources.iter().map(|r| (r.name.clone(), r.version.clone())).collect();
    let mut request = raw::delta_request(CLUSTER, &[], &[]);
    request.node = Some(raw::node("n", "c"));
    request.initial_resource_versions = versions;
    stream.send(request).await?;
    let response = stream.expect_type(CLUSTER).await?;
    let mut sent = delta_names(&response);
    sent.sort();
    assert_eq!((sent, response.removed_resources), (vec!["b".into(), "new".into()], vec!["gone".to_owned()]));
    Ok(())
}

#[tokio::test]
async fn what_drained_is_over_after_a_restart_and_a_client_that_holds_it_is_told() -> Result<()> {
    let dir = ConfigDir::new()?;
    let addr = |port: u16| ([127, 0, 0, 1], port).into();
    let shop = |addrs: &[SocketAddr]| [cluster("shop"), endpoints("shop", addrs)];
    let old = [cluster("old"), endpoints("old", &[addr(3)])];
    dir.write_resources("all.yaml", &[&shop(&[addr(1), addr(2)])[..], &old].concat())?;
    let setup = Setup::new()?.watch(dir.path());
    let setup = setup.arg("--drain-endpoints").arg("1h").arg("--drain-clusters").arg("1h");
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let channel = raw::connect(server.xds()).await?;
    let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("n", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    let clusters = stream.expect_type(CLUSTER).await?;
    stream.subscribe(ENDPOINTS, &["shop"]).await?;
    stream.expect_type(ENDPOINTS).await?;
    dir.write_resources("all.yaml", &shop(&[addr(1)]))?;
    // The cluster, its endpoints, and one endpoint of the other.
    server.wait_json("/v1/nodes/n", |node| node["drainingCount"] == 3).await?;
    let with_drained = stream.expect_type(ENDPOINTS).await?;
    assert_eq!(health(&with_drained)?, [HealthStatus::Unknown, HealthStatus::Draining]);

    server.restart().await?;
    server.wait_ready().await?;
    assert_eq!(
        served(&server).await?.into_keys().collect::<Vec<_>>(),
        ["Cluster/shop", "ClusterLoadAssignment/shop"]
    );
    let channel = raw::connect(server.xds()).await?;
    let mut stream = DeltaStream::open(channel, path::ADS_DELTA, raw::node("n", "c"));
    for (held, names) in [(&clusters, &[][..]), (&with_drained, &["shop"])] {
        let mut request = raw::delta_request(&held.type_url, names, &[]);
        request.node = Some(raw::node("n", "c"));
        request.initial_resource_versions =
            held.resources.iter().map(|r| (r.name.clone(), r.version.clone())).collect();
        stream.send(request).await?;
    }
    let (mut left, mut removed) = (None, vec![]);
    while left.is_none() || removed.is_empty() {
        let told = stream.expect_response().await?;
        match &*told.type_url {
            ENDPOINTS => left = Some(health(&told)?),
            _ => removed.extend(told.removed_resources),
        }
    }
    assert_eq!((left, removed), (Some(vec![HealthStatus::Unknown]), vec!["old".to_owned()]));
    let node = server.get_json("/v1/nodes/n").await?;
    assert_eq!(node["drainingCount"], 0, "nothing begins to drain anew: {node:#}");
    Ok(())
}

#[tokio::test]
async fn pitfall_66_sigterm_with_open_streams_ends_in_time_with_a_goaway_and_exit_code_0() -> Result<()> {
    let setup = Setup::new()?.arg("--drain-timeout").arg("2s");
    let mut server = Server::start_with(setup).await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("a", 1)])).await?;
    let mut streams = Vec::new();
    for i in 0..20 {
        let channel = raw::connect(server.xds()).await?;
        let mut stream = SotwStream::open(channel, path::ADS, raw::node(&format!("n{i}"), "c"));
        stream.subscribe(CLUSTER, &[]).await?;
        stream.expect_type(CLUSTER).await?;
        streams.push(stream);
    }
    // The first speaks HTTP/2 by hand, to see the GOAWAY. The second never reads. The third holds the admin port.
    let mut by_hand = TcpStream::connect(server.xds()).await?;
    by_hand.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await?;
    let _events = xds_tests::events::Events::open(server.admin()).await?;

    let started = Instant::now();
    let status = server.stop().await?;
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(started.elapsed() < Duration::from_secs(6), "it took {:?}", started.elapsed());
    for stream in &mut streams {
        let status = stream.expect_end().await?;
        assert!(matches!(status.code(), Code::Ok | Code::Unavailable), "{status:?}");
    }
    let mut bytes = Vec::new();
    timeout(PATIENCE, by_hand.read_to_end(&mut bytes)).await??;
    assert!(frame_types(&bytes).contains(&0x7), "no GOAWAY in {bytes:?}");
    assert!(!server.log().containing("shutting down").is_empty());
    Ok(())
}

#[tokio::test]
async fn sigint_ends_it_too() -> Result<()> {
    let setup = Setup::new()?;
    let mut process = setup.spawn().await?;
    process.wait_line("a start", PATIENCE, |line| line.contains("listening").then_some(())).await?;
    process.signal(Signal::INT)?;
    assert_eq!(process.wait_exit(PATIENCE).await?.code(), Some(0), "{}", process.log());
    Ok(())
}

#[tokio::test]
async fn sighup_and_post_reload_find_what_the_kernel_does_not_tell() -> Result<()> {
    let (dir, elsewhere) = (ConfigDir::new()?, ConfigDir::new()?);
    // The kernel reports a change under the name by which it is made.
    let file = elsewhere.write_resources("a.yaml", &[plain_cluster("a", 1)])?;
    fs::hard_link(&file, dir.path().join("a.yaml"))?;
    let setup = Setup::new()?.watch(dir.path()).arg("--poll-interval").arg("1h");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("n", "c"));
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;

    fs::write(&file, yaml(&[plain_cluster("a", 2)])?)?;
    server.signal(Signal::HUP)?;
    let response = stream.expect_type(CLUSTER).await?;
    assert_eq!(timeout_of(&response, "a")?, 2);

    fs::write(&file, yaml(&[plain_cluster("a", 3)])?)?;
    let answer = server.post("/v1/reload", &Value::Null).await?;
    assert_eq!((&answer["errors"], &answer["committed"]), (&0.into(), &true.into()), "{answer}");
    let snapshot = server.get_json("/v1/groups/default/snapshot").await?;
    assert!(snapshot.to_string().contains("\"3s\""), "the answer came before the load: {snapshot}");
    Ok(())
}

#[tokio::test]
async fn pitfall_48_nothing_is_answered_before_the_first_load_and_readiness_says_why() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("good.yaml", &[plain_cluster("good", 1)])?;
    dir.write("bad.yaml", "resources:\n- name: [\n")?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_json("/v1/status/files", |status| status.to_string().contains("unclosed")).await?;
    let answer = server.get("/readyz").await?;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let reasons = answer.json()?["reasons"].to_string();
    for said in ["nothing is served yet", "bad.yaml:2:9", "--partial-start"] {
        assert!(reasons.contains(said), "{reasons}");
    }
    assert!(!server.log().containing("nothing is served yet").is_empty());
    let status = status_of(&server).await?;
    assert!(status.contains("ready: no") && status.contains("nothing is served yet"), "{status}");
    let good = status.lines().find(|line| line.contains("good.yaml")).context("no line of it")?;
    assert!(good.ends_with("nothing"), "{status}");
    assert_eq!(server.get("/healthz").await?.status, StatusCode::OK);
    assert!(server.get("/metrics").await?.text().contains("\nxds_ready 0\n"));

    // Clients wait, a fetch is refused, a write as well; and the first answer is that of the good load.
    let channel = raw::connect(server.xds()).await?;
    let mut sotw = SotwStream::open(channel.clone(), path::ADS, raw::node("sotw", "c"));
    sotw.subscribe(CLUSTER, &[]).await?;
    let mut delta = DeltaStream::open(channel, path::ADS_DELTA, raw::node("delta", "c"));
    delta.subscribe(CLUSTER, &[]).await?;
    server.wait_json("/v1/nodes", |nodes| nodes["nodes"].as_array().is_some_and(|n| n.len() == 2)).await?;
    let json = ("content-type", "application/json");
    let body = resources(&[plain_cluster("api", 1)]).to_string();
    let write = server.request("PUT", "/v1/groups/default/resources", &[json], body).await?;
    assert_eq!(write.status, StatusCode::SERVICE_UNAVAILABLE, "{}", write.text());
    // Also across a restart: the good half alone was never good.
    server.restart().await?;
    assert_eq!(server.get("/readyz").await?.status, StatusCode::SERVICE_UNAVAILABLE);
    let channel = raw::connect(server.xds()).await?;
    let mut sotw = SotwStream::open(channel.clone(), path::ADS, raw::node("sotw", "c"));
    sotw.subscribe(CLUSTER, &[]).await?;
    let mut delta = DeltaStream::open(channel, path::ADS_DELTA, raw::node("delta", "c"));
    delta.subscribe(CLUSTER, &[]).await?;
    server.wait_json("/v1/nodes", |nodes| nodes["nodes"].as_array().is_some_and(|n| n.len() == 2)).await?;

    dir.write_resources("bad.yaml", &[plain_cluster("healed", 1)])?;
    assert_eq!(names(&sotw.expect_type(CLUSTER).await?)?, ["good", "healed"]);
    assert_eq!(delta.expect_type(CLUSTER).await?.resources.len(), 2);
    server.wait_ready().await?;
    assert!(server.get("/metrics").await?.text().contains("\nxds_ready 1\n"));
    Ok(())
}

/// A table as `status` prints it, whether the server is ready or not.
async fn status_of(server: &Server) -> Result<String> {
    let admin = server.url("");
    let args = ["status", "--output", "table", "--admin", &admin];
    let output = xds_server().await?.args(args).output().await?;
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn an_emptied_directory_is_held_until_somebody_confirms_it_or_it_is_full_again() -> Result<()> {
    let dir = ConfigDir::new()?;
    let all: Vec<_> = (0..5).map(|n| plain_cluster(&format!("c{n}"), 1)).collect();
    let [first, second] = ["a.yaml", "b.yaml"];
    let fill = || -> Result<()> {
        dir.write_resources(first, &all[..3])?;
        dir.write_resources(second, &all[3..])?;
        Ok(())
    };
    fill()?;
    let mut server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    dir.remove(first)?;
    dir.remove(second)?;
    let is_held = |status: &Value| status["held"].is_string();
    let status = server.wait_json("/v1/status/files", is_held).await?;
    assert_eq!(status["served"], "earlier", "{status}");
    assert_eq!(served(&server).await?.len(), 5);
    let problems = server.get_json("/readyz").await?["problems"].to_string();
    assert!(problems.contains("would remove all 5 objects of the group default"), "{problems}");
    assert!(status_of(&server).await?.contains("held back: the files would remove all 5 objects"));
    assert!(!server.log().containing("a load of the files is held back").is_empty());

    fill()?;
    server.wait_json("/v1/status/files", |status| status["held"].is_null()).await?;
    dir.remove(first)?;
    dir.remove(second)?;
    server.wait_json("/v1/status/files", is_held).await?;
    // A restart does not confirm it.
    server.restart().await?;
    let status = server.wait_json("/v1/status/files", is_held).await?;
    assert_eq!(status["served"], "none", "{status}");
    let answer = server.get("/readyz").await?;
    assert!(
        answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.text().contains("they contained 5 when")
    );
    let answer = server.post("/v1/reload?confirm=true", &Value::Null).await?;
    assert_eq!(answer["held"], Value::Null, "{answer}");
    server.wait_ready().await?;
    assert_eq!(served(&server).await?.len(), 0);

    let without = Setup::new()?.watch(dir.path()).arg("--hold-mass-removal=off");
    fill()?;
    let server = Server::start_with(without).await?;
    server.wait_ready().await?;
    dir.remove(first)?;
    dir.remove(second)?;
    server.wait_json("/v1/groups/default/snapshot", |view| !view.to_string().contains("c0")).await?;
    Ok(())
}

#[tokio::test]
async fn with_partial_start_the_good_part_is_served() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("good.yaml", &[plain_cluster("good", 1)])?;
    dir.write("bad.yaml", "resources:\n- name: [\n")?;
    let server = Server::start_with(Setup::new()?.watch(dir.path()).arg("--partial-start")).await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?.into_keys().collect::<Vec<_>>(), ["Cluster/good"]);
    let problems = server.get_json("/readyz").await?["problems"].to_string();
    assert!(problems.contains("bad.yaml:2:9"), "{problems}");
    Ok(())
}

#[tokio::test]
async fn a_first_start_without_files_or_with_an_empty_directory_answers_with_nothing() -> Result<()> {
    let dir = ConfigDir::new()?;
    for setup in [Setup::new()?, Setup::new()?.watch(dir.path())] {
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("n", "c"));
        stream.subscribe(CLUSTER, &[]).await?;
        assert_eq!(stream.expect_type(CLUSTER).await?.resources, []);
    }
    // A directory that is not there is none that is empty.
    fs::create_dir(dir.path().join("x"))?;
    let server = Server::start(&dir.path().join("missing")).await?;
    server.wait_json("/v1/status/files", |status| status.to_string().contains("no such")).await?;
    let answer = server.get("/readyz").await?;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
    assert!(answer.text().contains("missing"), "{}", answer.text());
    Ok(())
}

/// Some of every type that tests know.
fn everything(n: u64) -> Vec<Value> {
    let mut all: Vec<_> = (0..5).map(|i| plain_cluster(&format!("c{i}"), n)).collect();
    let mut rich = plain_cluster("rich", n);
    // Maps within maps, whose order is the serialiser's.
    rich["metadata"] = json!({"filter_metadata": {
        "z": {"b": 1, "a": [1, {"y": true, "x": null}]},
        "a": {"k": "v", "j": {"2": 2, "1": 1}},
        "m": {},
    }});
    all.push(rich);
    all.push(listener("l", 0, "r"));
    all.push(route_config("r", &[("/", to("c1"))]));
    all.push(endpoints("c1", &[([127, 0, 0, 1], 80).into()]));
    all
}

/// The versions that clients see for each type, in SotW and by polling.
async fn version_infos(server: &Server) -> Result<Vec<String>> {
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, raw::node("v", "c"));
    let mut versions = Vec::new();
    for (type_url, names) in [(CLUSTER, &[][..]), (LISTENER, &[]), (ROUTE, &["r"]), (ENDPOINTS, &["c1"])] {
        stream.subscribe(type_url, names).await?;
        versions.push(stream.expect_type(type_url).await?.version_info);
    }
    Ok(versions)
}

fn raw_request(request: DiscoveryRequest, version: &str) -> DiscoveryRequest {
    let node = Some(raw::node("n", "c"));
    DiscoveryRequest { node, version_info: version.to_owned(), ..request }
}

/// The health of the endpoints of the only assignment of a response.
fn health(response: &DeltaDiscoveryResponse) -> Result<Vec<HealthStatus>> {
    let assignment =
        response.resources.first().and_then(|first| first.resource.as_ref()).context("nothing")?;
    let assignment = ClusterLoadAssignment::decode(assignment.value.as_slice())?;
    let endpoints = assignment.endpoints.iter().flat_map(|locality| &locality.lb_endpoints);
    Ok(endpoints.map(LbEndpoint::health_status).collect())
}

/// The types of the HTTP/2 frames in what a server sent.
fn frame_types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        types.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]);
        bytes = rest.get(usize::try_from(length).unwrap_or_default()..).unwrap_or_default();
    }
    types
}
