//! Servers that share a store in a real etcd.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, CLUSTER};
use xds_tests::envoy::Envoy;
use xds_tests::etcd::Etcd;
use xds_tests::http::{Answer, Connection};
use xds_tests::names::Names;
use xds_tests::process::Signal;
use xds_tests::raw::{self, path};
use xds_tests::seen::{plain_cluster, resources, served};
use xds_tests::server::{Server, Setup, cli, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library, Worker};

#[tokio::test]
async fn all_serve_what_one_accepted_and_a_change_builds_on_the_last_one() -> Result<()> {
    let Some(world) = World::start(3).await? else { return Ok(()) };
    let [one, two, three] = world.servers.as_slice() else { anyhow::bail!("three servers") };
    let written = one.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    for server in [two, three] {
        wait_revision(server, &written["revision"]).await?;
        assert_eq!(served(server).await?, served(one).await?, "the same versions");
    }
    // All write at once, each to an object of its own.
    let path = |name: &str| format!("/v1/groups/default/resources/clusters/{name}");
    let mut writers = tokio::task::JoinSet::new();
    for (n, server) in world.servers.iter().enumerate() {
        let urls: Vec<_> = (0..5).map(|i| (server.url(&path(&format!("c{n}-{i}"))), i)).collect();
        writers.spawn(async move {
            let http = xds_tests::http::Http::new();
            for (n, (url, i)) in urls.into_iter().enumerate() {
                let body = plain_cluster(&format!("c{}", url.rsplit('c').next().unwrap_or_default()), i + 1);
                let request = http::Request::put(&url).header("content-type", "application/json");
                http.send(request.body(body.to_string().into())?)
                    .await?
                    .success()
                    .with_context(|| format!("write {n}"))?;
            }
            Ok::<(), anyhow::Error>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    let history = wait_history(one, 16).await?;
    for server in [two, three] {
        assert_eq!(wait_history(server, 16).await?, history);
        assert_eq!(served(server).await?, served(one).await?);
    }
    // Whoever has not seen the newest state does not overwrite it.
    let stale = one.get(&path("c0-0")).await?;
    let tag = stale.header("etag").to_owned();
    let changed = two.put(&path("c0-0"), &plain_cluster("c0-0", 9)).await?;
    wait_revision(one, &changed["revision"]).await?;
    let body = plain_cluster("c0-0", 8).to_string();
    let refused = one.request("PUT", &path("c0-0"), &[JSON, ("if-match", &tag)], body).await?;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.text());
    Ok(())
}

#[tokio::test]
async fn what_needs_the_clients_of_all_servers_is_refused_or_told() -> Result<()> {
    let Some(world) = World::start(2).await? else { return Ok(()) };
    let one = &world.servers[0];
    let answer =
        one.put("/v1/groups/default/resources?wait=acked", &resources(&[plain_cluster("api", 1)])).await?;
    assert!(
        answer["warnings"][0]["detail"].as_str().unwrap_or_default().contains("other servers"),
        "{answer:#}"
    );
    let body = resources(&[plain_cluster("api", 2)]).to_string();
    let refused =
        one.request("PUT", "/v1/groups/default/resources?waves=50%25,100%25", &[JSON], body).await?;
    assert_problem(&refused, StatusCode::CONFLICT, "shared-store")?;
    Ok(())
}

#[tokio::test]
async fn clients_are_served_without_the_etcd_and_writes_say_so() -> Result<()> {
    let Some(mut world) = World::start(2).await? else { return Ok(()) };
    let written =
        world.servers[0].put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    wait_revision(&world.servers[1], &written["revision"]).await?;
    let before = served(&world.servers[0]).await?;
    world.etcd.kill(0).await?;
    for server in &mut world.servers {
        server.restart().await?;
        server.wait_ready().await?;
        assert_eq!(served(server).await?, before);
        let body = resources(&[plain_cluster("api", 2)]).to_string();
        let refused = server.request("PUT", "/v1/groups/default/resources", &[JSON], body).await?;
        assert_problem(&refused, StatusCode::SERVICE_UNAVAILABLE, "store-unreachable")?;
        let status = server.get_json("/readyz").await?;
        assert!(status["problems"].to_string().contains("shared store"), "{status:#}");
    }
    world.etcd.run(0)?;
    for (n, server) in world.servers.iter().enumerate() {
        server
            .wait_json("/readyz", |status| !status["problems"].to_string().contains("shared store"))
            .await?;
        server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 3 + n as u64)])).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_single_server_moves_to_a_shared_store_and_back() -> Result<()> {
    let Some(world) = World::start(0).await? else { return Ok(()) };
    let alone = Setup::new()?;
    let mut server = Server::start_with(alone.clone()).await?;
    for n in 1..=3 {
        server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", n)])).await?;
    }
    let (before, history) = (served(&server).await?, wait_history(&server, 3).await?);
    server.stop().await?;
    let dir = alone.data_dir().display().to_string();
    let (url, key) = (world.etcd.url(), world.key());
    let push = ["store", "push", "--data-dir", &dir, "--store", &url, "--store-key-file", &key];
    let pushed = cli(&push).await?;
    assert!(pushed.contains("has the history from revision 0 to 3"), "{pushed}");
    let again = format!("{:#}", cli(&push).await.err().context("it is not empty")?);
    assert!(again.contains("history up to revision 3"), "{again}");

    let mut first = Server::start_with(world.sharing(alone.clone())).await?;
    let second = Server::start_with(world.sharing(Setup::new()?)).await?;
    for server in [&first, &second] {
        server.wait_ready().await?;
        assert_eq!(
            (served(server).await?, wait_history(server, 3).await?),
            (before.clone(), history.clone())
        );
    }
    let written = second.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 9)])).await?;
    wait_revision(&first, &written["revision"]).await?;
    // Its directory is free when it has ended.
    first.kill().await?;
    let detached = cli(&["store", "detach", "--data-dir", &dir]).await?;
    assert!(detached.contains("a store of its own now"), "{detached}");
    let server = Server::start_with(alone).await?;
    server.wait_ready().await?;
    assert_eq!(served(&server).await?, served(&second).await?);
    Ok(())
}

#[tokio::test]
async fn an_etcd_that_was_restored_on_purpose_is_adopted_by_servers_that_go_on() -> Result<()> {
    let Some(mut world) = World::start(2).await? else { return Ok(()) };
    let write = async |server: &Server, n| {
        server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", n)])).await
    };
    write(&world.servers[0], 1).await?;
    let then = served(&world.servers[0]).await?;
    let dir = TempDir::new()?;
    let snapshot = dir.path().join("snapshot");
    world.etcd.save_snapshot(&snapshot).await?;
    for n in 2..=4 {
        let written = write(&world.servers[0], n).await?;
        wait_revision(&world.servers[1], &written["revision"]).await?;
    }
    let (url, key) = (world.etcd.url(), world.key());
    let adopt = ["store", "adopt", "--store", &url, "--store-key-file", &key];
    let nothing = format!("{:#}", cli(&adopt).await.err().context("all follow it")?);
    assert!(nothing.contains("no server has another history"), "{nothing}");

    let before = served(&world.servers[1]).await?;
    world.etcd.restore_snapshot(&snapshot).await?;
    for server in &world.servers {
        let differs = |status: &Value| status["problems"].to_string().contains("it ends at revision 1");
        server.wait_json("/readyz", differs).await?;
        assert_eq!(served(server).await?, before, "it serves what it had");
    }
    let body = resources(&[plain_cluster("api", 5)]).to_string();
    let refused = world.servers[0].request("PUT", "/v1/groups/default/resources", &[JSON], body).await?;
    assert_problem(&refused, StatusCode::SERVICE_UNAVAILABLE, "store-diverged")?;
    let adopted = wait_for("the ends of both servers", PATIENCE, async || {
        let ends = world.etcd.ctl(&["get", "--prefix", "--keys-only", "/test/end/"]).await?;
        ensure!(ends.matches("/test/end/").count() == 2, "{ends}");
        cli(&adopt).await
    });
    let adopted = adopted.await?;
    assert!(adopted.contains("has the state of its revision 1 as revision 5"), "{adopted}");
    assert_eq!(adopted.matches("had another history, up to revision 4").count(), 2, "{adopted}");
    for server in &world.servers {
        wait_for("the state that was adopted", PATIENCE, async || {
            ensure!(served(server).await? == then, "not yet");
            Ok(())
        })
        .await?;
    }
    let written = write(&world.servers[1], 6).await?;
    assert_eq!(written["revision"], 6);
    wait_revision(&world.servers[0], &written["revision"]).await?;
    assert_eq!(served(&world.servers[0]).await?, served(&world.servers[1]).await?);

    let compact = ["store", "compact", "--keep=0", "--etcd-history", "--store", &url];
    let compacted = cli(&[&compact[..], &["--store-key-file", &key]].concat()).await?;
    assert!(compacted.contains("etcd has dropped the old values"), "{compacted}");
    assert!(compacted.contains("has the history from revision 6 to 6"), "{compacted}");
    let written = write(&world.servers[0], 7).await?;
    wait_revision(&world.servers[1], &written["revision"]).await
}

/// A directory that is pushed to one server is what all serve, also after a start without the etcd.
#[tokio::test]
async fn what_one_server_is_pushed_all_serve_and_a_broken_push_is_refused() -> Result<()> {
    let Some(mut world) = World::start(2).await? else { return Ok(()) };
    let routes = TempDir::new()?;
    let dir = routes.path().display().to_string();
    let write = |name: &str, text: &str| fs::write(routes.path().join(name), text);
    write("shop.yaml", SHOP)?;
    let clusters = [plain_cluster("api", 1), plain_cluster("other", 1)];
    write("cluster.yaml", &json!({"clusters": clusters}).to_string())?;
    let push = async |server: &Server, more: &[&str]| {
        let admin = server.url("");
        let args = [&["push", &dir, "--output", "table", "--admin", &admin], more].concat();
        cli(&args).await
    };
    let [one, two] = world.servers.as_slice() else { anyhow::bail!("two servers") };
    // Servers that do not ask each other do not know who has it.
    let unknown = format!("{:#}", push(one, &["--wait"]).await.err().context("it is not known who has it")?);
    ensure!(unknown.contains("exit status: 4") && unknown.contains("counted alone"), "{unknown}");
    let pushed = unknown;
    ensure!(pushed.contains("+ default/clusters/api") && pushed.contains("revision 1"), "{pushed}");
    wait_revision(two, &json!(1)).await?;
    let before = served(one).await?;
    ensure!(before.contains_key("Cluster/api") && before.len() > 4, "{before:?}");
    assert_eq!(served(two).await?, before);
    let files = async |server: &Server| {
        let files = server.get_json("/v1/status/files").await?;
        anyhow::Ok((files["set"].clone(), files["files"][1]["objects"][0]["line"].clone()))
    };
    assert_eq!(files(one).await?, files(two).await?);
    ensure!(push(two, &[]).await?.contains("nothing changes"));

    write("broken.yaml", "clusters:\n- name: b\n  conect_timeout: 1s\n")?;
    let refused = format!("{:#}", push(two, &[]).await.err().context("it is refused")?);
    let place = format!("{dir}/broken.yaml:3:3: ");
    ensure!(refused.contains(&place) && refused.contains("connect_timeout"), "{refused}");
    fs::remove_file(routes.path().join("broken.yaml"))?;
    fs::remove_file(routes.path().join("cluster.yaml"))?;
    let held = format!("{:#}", push(two, &[]).await.err().context("it is held back")?);
    ensure!(held.contains("--confirm"), "{held}");
    assert_eq!(served(two).await?, before);

    world.etcd.kill(0).await?;
    for server in &mut world.servers {
        server.restart().await?;
        server.wait_ready().await?;
        assert_eq!(served(server).await?, before);
        let xds = server.xds().to_string();
        let clusters =
            cli(&["get", "--node-id", "edge-1", "--type", "clusters", "--xds-address", &xds]).await?;
        ensure!(clusters.contains("\"api\""), "{clusters}");
    }
    Ok(())
}

/// Three servers ask each other over TLS, and a client of the last one is slow. Then that server is stopped, and then killed.
#[tokio::test]
async fn a_write_waits_for_the_clients_of_all_servers_and_names_a_server_that_does_not_answer() -> Result<()>
{
    let Some(mut world) = World::start_linked().await? else { return Ok(()) };
    let [one, two, three] = world.servers.as_slice() else { anyhow::bail!("three servers") };
    let listed = cli(&["replicas", "--output", "table", "--admin", &one.url("")]).await?;
    assert_eq!(listed.matches(" yes ").count(), 4, "three are reached, and one leads: {listed}");
    let last_id = own_id(three).await?;

    let mut clients = Vec::new();
    for (n, server) in [one, two, three].into_iter().enumerate() {
        let channel = raw::connect(server.xds()).await?;
        let mut client = raw::SotwStream::open(channel, path::ADS, raw::node(&format!("n{n}"), ""));
        client.subscribe(CLUSTER, &[]).await?;
        clients.push(client);
    }
    let first = one.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    for (server, client) in [one, two, three].into_iter().zip(&mut clients) {
        wait_revision(server, &first["revision"]).await?;
        accept(client, "api").await?;
    }
    let nodes =
        two.wait_json("/v1/nodes", |nodes| nodes["nodes"].as_array().is_some_and(|all| all.len() == 3));
    assert_eq!(nodes.await?["nodes"][2]["streams"][0]["replica"], json!(last_id));
    let fleet = one.wait_json("/v1/fleet?sort=id", |fleet| fleet["states"]["acknowledged"] == 3).await?;
    ensure!(fleet["total"] == 3 && fleet["nodes"][2]["replica"] == last_id, "{fleet:#}");

    // The write waits for the client of the last server.
    let write = tokio::spawn(waiting_write(one, "second", "60s"));
    let [fast, also_fast, slow] = clients.as_mut_slice() else { anyhow::bail!("three clients") };
    accept(fast, "second").await?;
    accept(also_fast, "second").await?;
    let two_of_three = |acks: &Value| acks["acked"] == 2 && acks["replicas"]["answered"] == 3;
    let acks = two.wait_json("/v1/acks", two_of_three).await?;
    assert_eq!(acks["pending"], json!(["n2"]));
    assert!(!write.is_finished());
    accept(slow, "second").await?;
    let answer = write.await??;
    let told = answer.json()?;
    assert_eq!(
        (answer.status, &told["acked"], &told["replicas"]["known"]),
        (StatusCode::OK, &json!(3), &json!(3))
    );

    three.signal(Signal::STOP)?;
    let write = tokio::spawn(waiting_write(one, "third", "6s"));
    accept(fast, "third").await?;
    accept(also_fast, "third").await?;
    let answer = write.await??;
    let told = answer.json()?;
    assert_eq!((answer.status, &told["acked"]), (StatusCode::ACCEPTED, &json!(2)), "{told:#}");
    assert_eq!(told["replicas"]["missing"][0]["id"], json!(last_id), "{told:#}");
    assert!(told["warnings"].to_string().contains(&last_id), "{told:#}");

    // Its lease ends, and so does the grace.
    world.servers[2].kill().await?;
    let [one, ..] = world.servers.as_slice() else { anyhow::bail!("three servers") };
    one.wait_json("/v1/replicas", |list| list["replicas"].to_string().contains("\"forgiven\":true")).await?;
    let write = tokio::spawn(waiting_write(one, "fourth", "60s"));
    accept(fast, "fourth").await?;
    accept(also_fast, "fourth").await?;
    let answer = write.await??;
    let told = answer.json()?;
    assert_eq!((answer.status, &told["replicas"]["answered"]), (StatusCode::OK, &json!(2)), "{told:#}");
    cli(&["replicas", "forget", &last_id, "--admin", &one.url("")]).await?;
    assert_eq!(reached(&one.get_json("/v1/replicas").await?), ["yes", "yes"]);
    Ok(())
}

/// A wave deployment, whose server is killed, and a rollout, whose server is stopped. The clients are at the others.
#[tokio::test]
async fn another_server_goes_on_when_the_one_that_leads_is_killed_or_stopped() -> Result<()> {
    let Some(mut world) = World::start_linked().await? else { return Ok(()) };
    let others = world.leader_last().await?;
    let [one, two] = [&world.servers[0], &world.servers[1]];
    let documents = format!(
        "{}---\n{CANARY}",
        SHOP.split("---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute")
            .next()
            .unwrap_or_default()
    );
    let yaml = [("content-type", "application/yaml")];
    let applied = one.request("POST", "/v1/apply", &yaml, documents).await?;
    ensure!(applied.status == StatusCode::OK, "{}", applied.text());
    let first = one.put("/v1/groups/default/resources/clusters/api", &plain_cluster("api", 1)).await?;
    wait_revision(two, &first["revision"]).await?;
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..6 {
        let channel = raw::connect(world.servers[n % 2].xds()).await?;
        let mut client = raw::SotwStream::open(channel, path::ADS, raw::node(&format!("n{n}"), ""));
        let (of_type, names) = if n < 4 { (CLUSTER, vec![]) } else { (ROUTES, vec!["prod/edge/8080"]) };
        client.subscribe(of_type, &names).await?;
        clients.spawn(async move {
            loop {
                // Ends with the server.
                let Ok(response) = client.expect_response_within(20 * PATIENCE).await else { return Ok(()) };
                client.ack(&response, &names).await?;
            }
            #[expect(unreachable_code, reason = "it says what a client gives")]
            Ok::<(), anyhow::Error>(())
        });
    }
    let six = |nodes: &Value| nodes["nodes"].as_array().is_some_and(|all| all.len() == 6);
    one.wait_json("/v1/nodes", six).await?;

    let waves = "/v1/groups/default/resources/clusters/api?waves=50%25,100%25&hold=4s&allowEmpty=true";
    let begun = two.put(waves, &plain_cluster("api", 2)).await?;
    let wave = format!("/v1/waves/{}", begun["waveDeployment"]);
    wait_long(one, &wave, |wave| wave["phase"] == "holding").await?;
    world.servers[2].kill().await?;
    let [one, two] = [&world.servers[0], &world.servers[1]];
    for server in [one, two] {
        wait_long(server, &wave, |wave| wave["phase"] == "completed").await?;
    }
    world.servers[2].restart().await?;
    world.servers[2].wait_ready().await?;

    // The next one that leads is stopped in the middle of a rollout.
    let leader = leader(&world.servers[0]).await?;
    let stopped = usize::from(leader != others[0]);
    let other = &world.servers[1 - stopped];
    let rollout = json!({
        "route": {"kind": "HTTPRoute", "namespace": "prod", "name": "web", "rule": "0"},
        "stable": "v1:80", "canary": "v2:80", "steps": [{"setWeight": 20}, {"pause": {"duration": "2s"}}, {"setWeight": 60}],
    });
    let started = other.post("/v1/rollouts", &rollout).await?;
    let rollout = format!("/v1/rollouts/{}", started["id"].as_str().context("its id")?);
    wait_long(other, &rollout, |rollout| rollout["phase"] == "Paused" || rollout["step"] != 1).await?;
    world.servers[stopped].signal(Signal::STOP)?;
    wait_long(other, &rollout, |rollout| rollout["phase"] == "Succeeded").await?;
    world.servers[stopped].signal(Signal::CONT)?;
    let history = other.get_json("/v1/history?limit=100").await?;
    let steps = history["revisions"].as_array().into_iter().flatten();
    let steps: Vec<&str> = steps.filter_map(|one| one["summary"].as_str()).collect();
    let different: BTreeSet<&str> =
        steps.iter().copied().filter(|step| step.starts_with("rollout ")).collect();
    let n_steps = steps.iter().filter(|step| step.starts_with("rollout ")).count();
    ensure!(n_steps == different.len() && n_steps >= 3, "each step once: {steps:#?}");
    // Who was stopped finds what happened, and all serve the same.
    for server in &world.servers {
        wait_long(server, &rollout, |rollout| rollout["phase"] == "Succeeded").await?;
        assert_eq!(served(server).await?, served(other).await?);
    }
    Ok(())
}

/// Waits for an answer that comes once another server leads, and clients had time to come back.
async fn wait_long(server: &Server, path: &str, is_good: impl Fn(&Value) -> bool) -> Result<()> {
    wait_for(path, 5 * PATIENCE, async || {
        let found = server.get_json(path).await?;
        ensure!(is_good(&found), "{found:#}");
        Ok(())
    })
    .await
}

/// The id of the server that leads.
async fn leader(server: &Server) -> Result<String> {
    let is_leader = |replica: &&Value| replica["leads"] == true && replica["reached"] == "yes";
    let all = |list: &Value| list["replicas"].as_array().cloned().unwrap_or_default();
    let found = server.wait_json("/v1/replicas", |list| all(list).iter().any(|one| is_leader(&one))).await?;
    let found = all(&found).into_iter().find(|one| is_leader(&one));
    found.and_then(|leader| Some(leader["id"].as_str()?.to_owned())).context("its id")
}

/// Whether each server is reached.
fn reached(list: &Value) -> Vec<String> {
    let all = list["replicas"].as_array().into_iter().flatten();
    all.map(|replica| replica["reached"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn own_id(server: &Server) -> Result<String> {
    let list = server.get_json("/v1/replicas").await?;
    let own = list["replicas"].as_array().into_iter().flatten().find(|replica| replica["own"] == true);
    Ok(own.and_then(|own| own["id"].as_str()).context("its own id")?.to_owned())
}

/// Takes responses of clusters until one has `name`, and accepts them all.
async fn accept(client: &mut raw::SotwStream, name: &str) -> Result<()> {
    loop {
        let response = client.expect_type(CLUSTER).await?;
        client.ack(&response, &[]).await?;
        let has_name =
            response.resources.iter().any(|one| String::from_utf8_lossy(&one.value).contains(name));
        if has_name {
            return Ok(());
        }
    }
}

/// Adds a cluster, and waits for the clients.
fn waiting_write(server: &Server, name: &str, timeout: &str) -> impl Future<Output = Result<Answer>> + use<> {
    let path = format!("/v1/groups/default/resources/clusters/{name}?wait=acked&timeout={timeout}");
    let (url, body) = (server.url(&path), plain_cluster(name, 1).to_string());
    async move {
        let request = http::Request::put(&url).header("content-type", "application/json");
        xds_tests::http::Http::new().send(request.body(body.into())?).await
    }
}

/// The Envoy's server is killed in the middle of changes that take the present cluster away.
#[tokio::test]
async fn an_envoy_goes_to_another_server_in_the_middle_of_a_change_and_no_request_fails() -> Result<()> {
    let Some(mut world) = World::start_fixed(2).await? else { return Ok(()) };
    let backends = [Backend::start("even").await?, Backend::start("odd").await?];
    let addresses: Vec<_> = world.servers.iter().map(|server| server.xds().to_string()).collect();
    let put = async |server: &Server, round: usize| {
        let cluster = format!("c{round}");
        let resources = resources(&[
            config::listener("edge", 0, "web"),
            config::route_config("web", &[("/", config::to(&cluster))]),
            config::cluster(&cluster),
            config::endpoints(&cluster, &[backends[round % 2].addr()]),
        ]);
        server.put("/v1/groups/default/resources", &resources).await
    };
    put(&world.servers[0], 0).await?;
    let bootstrap = ["bootstrap", "envoy", "--node-id", "edge-1", "--xds-address", &addresses.join(",")];
    let envoy = Envoy::start(&cli(&bootstrap).await?).await?;
    let edge = envoy.wait_listener("edge").await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let requests = tokio::spawn(ask(edge, Arc::clone(&is_over)));
    for round in 1..=N_ROUNDS {
        let at = connected(&world.servers).await?;
        let other = 1 - at;
        // The change is under way when the server of the Envoy ends.
        let written = put(&world.servers[other], round).await?;
        wait_revision(&world.servers[at], &written["revision"]).await?;
        world.servers[at].kill().await?;
        let wanted = ["even", "odd"][round % 2];
        wait_for("the new backend", PATIENCE, async || {
            let answer = Connection::open(edge).await?.get("/").await?;
            ensure!(answer.header("x-backend") == wanted, "it is {}", answer.header("x-backend"));
            Ok(())
        })
        .await?;
        world.servers[at].restart().await?;
        world.servers[at].wait_ready().await?;
    }
    is_over.store(true, Ordering::SeqCst);
    let (n_asked, failed) = requests.await??;
    println!("{n_asked} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// An Envoy acknowledges an extension that it refused when it comes again, also from another server.
#[tokio::test]
async fn what_an_envoy_refused_is_known_where_it_goes() -> Result<()> {
    let Some(mut world) = World::start_linked().await? else { return Ok(()) };
    let addresses: Vec<_> = world.servers.iter().map(|server| server.xds().to_string()).collect();
    let extension = |script: &str| {
        let lua = json!({"@type": LUA, "default_source_code": {"inline_string": script}});
        json!({"@type": EXTENSION, "name": "script", "typed_config": lua})
    };
    let mut listener = config::listener("edge", 0, "web");
    let filters = &mut listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
    let source = json!({"ads": {}, "resource_api_version": "V3"});
    let discovered =
        json!({"name": "script", "config_discovery": {"config_source": source, "type_urls": [LUA]}});
    filters.as_array_mut().context("filters")?.insert(0, discovered);
    let put = async |script: &str| {
        let routes = config::route_config("web", &[("/", config::to("c"))]);
        let all = resources(&[listener.clone(), routes, config::cluster("c"), extension(script)]);
        world.servers[0].put("/v1/groups/default/resources", &all).await
    };
    put("function envoy_on_response(h) end").await?;
    let bootstrap = ["bootstrap", "envoy", "--node-id", "edge-1", "--xds-address", &addresses.join(",")];
    let envoy = Envoy::start(&cli(&bootstrap).await?).await?;
    envoy.wait_listener("edge").await?;
    let replica = |node: &Value| node["streams"][0]["replica"].as_str().unwrap_or_default().to_owned();
    put("function x(").await?;
    let is_rejected = |node: &Value| {
        let of_type = &node["types"][EXTENSION];
        of_type["status"] == "ERROR" && of_type["rejected"][0]["name"] == "script"
    };
    let first = replica(&world.servers[0].wait_json("/v1/nodes/edge-1", is_rejected).await?);
    let mut at = None;
    for (n, server) in world.servers.iter().enumerate() {
        let file = server.data_dir().join("culprits.json");
        wait_for("the news", PATIENCE, async || {
            ensure!(fs::read_to_string(&file)?.contains("\"script\""), "it is not there");
            Ok(())
        })
        .await?;
        at = at.or((own_id(server).await? == first).then_some(n));
    }
    world.servers.remove(at.context("the server of the Envoy")?).kill().await?;
    let is_elsewhere = |node: &Value| is_rejected(node) && replica(node) != first;
    let node = world.servers[0].wait_json("/v1/nodes/edge-1", is_elsewhere).await?;
    let words = node["types"][EXTENSION]["rejected"][0]["message"].as_str().unwrap_or_default();
    ensure!(words.contains("said before this connection"), "{node:#}");
    Ok(())
}

/// gRPC clients find all servers under one name. Each server is killed in the middle of a change that takes the present cluster away.
#[tokio::test]
async fn grpc_clients_go_to_another_server_of_the_name_and_no_call_fails() -> Result<()> {
    let (hosts, port) = ([Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)], free_addr()?.port());
    let mut addresses = hosts.iter().map(|host| SocketAddr::from((*host, port)));
    let Some(mut world) =
        World::with(2, |setup| Ok(setup.xds_at(addresses.next().context("an address")?))).await?
    else {
        return Ok(());
    };
    let names = Names::start(&hosts).await?;
    let backends = [Backend::start("even").await?, Backend::start("odd").await?];
    let put = async |server: &Server, round: usize| {
        let cluster = format!("c{round}");
        let resources = resources(&[
            config::api_listener("greeter", "greeter"),
            config::route_config("greeter", &[("/", config::to(&cluster))]),
            config::cluster(&cluster),
            config::endpoints(&cluster, &[backends[round % 2].addr()]),
        ]);
        server.put("/v1/groups/default/resources", &resources).await
    };
    put(&world.servers[0], 0).await?;
    let mut workers = Vec::new();
    for library in Library::ALL {
        let id = format!("app-{library}");
        let name = format!("xds.example.com:{port}");
        let bootstrap = cli(&["bootstrap", "grpc", "--node-id", &id, "--xds-address", &name]).await?;
        let target = match library {
            // It asks no name server but that of the machine.
            Library::GrpcJs => format!("ipv4:{}", hosts.map(|host| format!("{host}:{port}")).join(",")),
            Library::Grpcio | Library::GrpcGo | Library::GrpcJava => names.target(port),
        };
        let asked_here = bootstrap.replace(&name, &target);
        ensure!(asked_here != bootstrap, "{bootstrap}");
        workers.extend(Worker::start(library, &asked_here).await?.map(|worker| (library, worker)));
    }
    let mut channels = Vec::new();
    for (library, worker) in &workers {
        let channel = worker.open("xds:///greeter").await?;
        channel.who().await.with_context(|| library.to_string())?;
        let hold = channel.hold(&Calls::new(0), 50).await?;
        channels.push((library, channel, hold));
    }
    // At the second round all clients are at the one server that the first one left.
    for round in 1..=3 {
        let (killed, other) = (round % 2, 1 - round % 2);
        let written = put(&world.servers[other], round).await?;
        wait_revision(&world.servers[killed], &written["revision"]).await?;
        world.servers[killed].kill().await?;
        for (library, channel, _) in &channels {
            wait_for("the new backend", PATIENCE, async || {
                let who = channel.who().await?;
                ensure!(who == ["even", "odd"][round % 2], "{library} is at {who}");
                Ok(())
            })
            .await?;
        }
        world.servers[killed].restart().await?;
        world.servers[killed].wait_ready().await?;
    }
    for (library, _, hold) in channels {
        let counts = hold.stop().await?;
        println!("{library}: {counts:?}");
        let first = counts.first_error.as_deref().unwrap_or_default();
        let is_excused = match library {
            // It uses new routes a moment before its load balancer knows their clusters, whatever the server does.
            Library::GrpcGo => first.contains("unknown cluster selected for RPC"),
            // Calls to a cluster that it does not know yet fail if a stream ends before its first response.
            Library::GrpcJs => counts.errors.keys().all(|status| status == "UNAVAILABLE"),
            Library::Grpcio | Library::GrpcJava => false,
        };
        assert!(is_excused || counts.errors.is_empty(), "{library}: {counts:?}");
    }
    Ok(())
}

/// Asks again and again. Returns how many requests there were, and what became of those that failed.
async fn ask(edge: SocketAddr, is_over: Arc<AtomicBool>) -> Result<(usize, Vec<String>)> {
    let (mut n_asked, mut failed) = (0, Vec::new());
    let mut connection = Connection::open(edge).await?;
    while !is_over.load(Ordering::SeqCst) {
        n_asked += 1;
        match connection.get("/").await {
            Ok(answer) if answer.status == StatusCode::OK => {}
            Ok(answer) => failed.push(format!("{}: {}", answer.status, answer.text())),
            Err(error) => {
                failed.push(format!("{error:#}"));
                connection = Connection::open(edge).await?;
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
    Ok((n_asked, failed))
}

/// The index of the server that the Envoy is connected to.
async fn connected(servers: &[Server]) -> Result<usize> {
    wait_for("the Envoy", PATIENCE, async || {
        for (n, server) in servers.iter().enumerate() {
            let nodes = server.get_json("/v1/nodes").await?;
            if nodes["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()) {
                return Ok(n);
            }
        }
        anyhow::bail!("it is nowhere")
    })
    .await
}

/// An etcd, and servers that share a store in it.
struct World {
    etcd: Etcd,
    dir: TempDir,
    servers: Vec<Server>,
    /// Those of the servers, which read them for each connection.
    _certificates: Option<CertificateFiles>,
}

impl World {
    async fn start(n_servers: usize) -> Result<Option<Self>> {
        Self::with(n_servers, Ok).await
    }

    /// With servers that keep their xDS ports.
    async fn start_fixed(n_servers: usize) -> Result<Option<Self>> {
        Self::with(n_servers, Setup::fixed_xds_port).await
    }

    async fn with(n_servers: usize, mut change: impl FnMut(Setup) -> Result<Setup>) -> Result<Option<Self>> {
        let Some(etcd) = Etcd::start(1, &[]).await? else { return Ok(None) };
        let dir = TempDir::new()?;
        fs::write(dir.path().join("key"), "5a".repeat(32))?;
        let mut world = Self { etcd, dir, servers: Vec::new(), _certificates: None };
        for _ in 0..n_servers {
            let server = Server::start_with(world.sharing(change(Setup::new()?)?)).await?;
            server.wait_ready().await?;
            world.servers.push(server);
        }
        Ok(Some(world))
    }

    /// Three servers that ask each other over TLS.
    async fn start_linked() -> Result<Option<Self>> {
        let certificates = CertificateFiles::new().await?;
        let linked = |setup: Setup| {
            let file = |flag: &str, name: &str| format!("--peer-{flag}={}", certificates.path(name));
            let setup = setup.arg("--peer-listen=127.0.0.1:0").arg(file("cert", "server.crt"));
            Ok(setup.arg(file("key", "server.key")).arg(file("ca", "ca.crt")).arg("--replica-grace=1s"))
        };
        let Some(mut world) = Self::with(3, linked).await? else { return Ok(None) };
        for server in &world.servers {
            let all_reached = |list: &Value| reached(list) == ["yes", "yes", "yes"];
            server.wait_json("/v1/replicas", all_reached).await?;
        }
        world._certificates = Some(certificates);
        Ok(Some(world))
    }

    /// Puts the server that leads last. Returns the ids of the others.
    async fn leader_last(&mut self) -> Result<Vec<String>> {
        let leader = leader(&self.servers[0]).await?;
        let mut ids = Vec::new();
        for at in 0..self.servers.len() {
            ids.push(own_id(&self.servers[at]).await?);
        }
        let at = ids.iter().position(|id| *id == leader).context("one leads")?;
        let last = self.servers.remove(at);
        self.servers.push(last);
        ids.remove(at);
        Ok(ids)
    }

    /// A server with this setup that shares the store. Its data directory gives it its name.
    fn sharing(&self, setup: Setup) -> Setup {
        let id = setup.data_dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let setup = setup.arg("--store").arg(self.etcd.url()).arg("--store-key-file").arg(self.key());
        setup.arg("--store-timeout=2s").arg(format!("--instance-id={id}"))
    }

    fn key(&self) -> String {
        self.dir.path().join("key").display().to_string()
    }
}

/// Waits until a revision is the newest one, and served.
async fn wait_revision(server: &Server, revision: &Value) -> Result<()> {
    let newest = |history: &Value| history["revisions"][0]["revision"] == *revision;
    server.wait_json(&format!("/v1/history?limit=1&minRevision={revision}"), newest).await.map(drop)
}

/// The history, as soon as it has `n` revisions.
async fn wait_history(server: &Server, n: usize) -> Result<Value> {
    let has_all = |history: &Value| history["revisions"].as_array().is_some_and(|all| all.len() == n);
    Ok(server.wait_json("/v1/history", has_all).await?["revisions"].clone())
}

fn assert_problem(answer: &Answer, status: StatusCode, kind: &str) -> Result<()> {
    let problem = answer.json()?;
    ensure!(answer.status == status, "{problem:#}");
    ensure!(problem["type"] == json!(format!("https://xds-server.io/problems/{kind}")), "{problem:#}");
    Ok(())
}

const SHOP: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: prod}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: v1, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: prod}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: v1, port: 80}]}]
";

/// The route of the shop with a second backend.
const CANARY: &str = "apiVersion: v1
kind: Service
metadata: {name: v2, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: v2-0, namespace: prod, labels: {kubernetes.io/service-name: v2}}
addressType: IPv4
ports: [{port: 9}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: prod}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: v1, port: 80, weight: 1}, {name: v2, port: 80, weight: 0}]}]
";

const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";

const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";

const JSON: (&str, &str) = ("content-type", "application/json");

const N_ROUNDS: usize = 6;
