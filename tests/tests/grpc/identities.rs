//! Real clients and their identities: what they prove gives them their groups and secrets, and nobody else.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, ConfigDir};
use xds_tests::random::Random;
use xds_tests::secured::{Kind, Secured};
use xds_tests::server::{Server, Setup, cli};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::Library;

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Found in every key below, and nowhere else.
const MARK: &str = "RECOGNISABLEPRIVATEKEY";

fn secret(name: &str) -> Value {
    json!({"@type": SECRET, "name": name, "tls_certificate": {
        "certificate_chain": {"inline_string": "public"}, "private_key": {"inline_string": MARK},
    }})
}

/// A Secret without a secret, which everybody may have.
fn public() -> Value {
    json!({"@type": SECRET, "name": "ca", "validation_context": {"trusted_ca": {"inline_string": "public"}}})
}

fn group(identities: &Value) -> String {
    let spec = json!({"selector": {"nodeIds": ["edge-*"]}, "identities": identities});
    json!({"apiVersion": "xds-server.io/v1", "kind": "NodeGroup", "metadata": {"name": "edge"}, "spec": spec})
        .to_string()
}

/// The identities of the group in the tests: a client is the node that its certificate names.
fn own_name() -> Value {
    json!([{"dns": "*", "nodeIds": ["{1}"]}])
}

/// Everything that a client with these flags gets as this node: an answer or the reason why there is none.
async fn get(server: &Server, node: &str, flags: &[String]) -> String {
    let xds = server.xds().to_string();
    let mut args = vec![
        "get",
        "--node-id",
        node,
        "--type",
        "secrets",
        "--xds-address",
        &xds,
        "--show-secrets",
        "--delta",
    ];
    args.extend(flags.iter().map(String::as_str));
    cli(&args).await.unwrap_or_else(|error| format!("{error:#}"))
}

const UNGUARD: u64 = 1;
const GUARD: u64 = 2;
const RESTART: u64 = 9;

/// A step of the history below; whether it succeeds does not matter.
async fn take(n: u64, server: &mut Server, dir: &ConfigDir) -> Result<()> {
    let put = async |path: &str, body: &Value| {
        let body = serde_json::to_vec(body)?;
        let answer = server.request("PUT", path, &[("content-type", "application/json")], body).await?;
        ensure!(!answer.text().contains(MARK), "the answer to PUT {path}: {}", answer.text());
        anyhow::Ok(())
    };
    match n {
        0 => drop(dir.write_resources("for-all.yaml", &[secret("s")])?),
        UNGUARD => drop(dir.write("edge/group.yaml", &group(&json!([])))?),
        GUARD => drop(dir.write("edge/group.yaml", &group(&own_name()))?),
        3 => put("/v1/groups/default/resources/secrets/s", &secret("s")).await?,
        4 => put("/v1/groups/edge/resources/secrets/t", &secret("t")).await?,
        5 => put("/v1/groups/other", &json!({"selector": {"all": true}})).await?,
        6 => put("/v1/groups/other/resources/secrets/u", &secret("u")).await?,
        7 => drop(dir.write("edge/group.yaml", "kind: NodeGroup\n broken")?),
        8 => drop(dir.write_resources("for-all.yaml", &[config::cluster("c")])?),
        _ => {
            server.restart().await?;
            server.wait_ready().await?;
        }
    }
    // Without a wait for the file: each moment on the way counts too.
    let _ = server.post("/v1/reload", &json!({})).await;
    Ok(())
}

#[tokio::test]
async fn no_answer_and_no_log_has_a_key_for_a_client_without_its_identity() -> Result<()> {
    let mut random = Random::from_env()?;
    let certificates = CertificateFiles::new().await?;
    certificates.issue("other", &["edge-2"]).await?;
    let dir = ConfigDir::new()?;
    dir.write("edge/group.yaml", &group(&own_name()))?;
    dir.write_resources("edge/secret.yaml", &[secret("own")])?;
    dir.write_resources("ca.yaml", &[public()])?;
    let setup = Setup::new()?.watch(dir.path()).arg("--log-level=trace").arg("--partial-start");
    let setup = certificates.protect(setup.arg("--allow-anonymous-xds"), "xds");
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let (own, other) = (certificates.client_flags(), certificates.flags_of("other"));
    let anonymous = &own[..1];
    // What the last good file says about the group, and what counts.
    let (mut is_guarded, mut is_served) = (true, true);
    let mut steps = Vec::new();
    for _ in 0..12 {
        let step = random.within(0..10);
        steps.push(step);
        take(step, &mut server, &dir).await?;
        is_guarded = (is_guarded || step == GUARD) && step != UNGUARD;
        // A group that loses its identities goes on with them, but not in another process.
        is_served = if step == RESTART { is_guarded } else { is_served || step == GUARD };
        for (node, flags) in [("edge-1", &*other), ("edge-1", anonymous), ("x", anonymous), ("x", &*other)] {
            let got = get(&server, node, flags).await;
            ensure!(!got.contains(MARK), "after the steps {steps:?}, {node} with {flags:?} gets {got}");
        }
        for path in ["/v1/status/files", "/v1/status", "/readyz", "/v1/groups/default/resources", "/metrics"]
        {
            let answer = server.get(path).await?.text();
            ensure!(!answer.contains(MARK), "{path} after the steps {steps:?}: {answer}");
        }
        let poll = serde_json::to_vec(&json!({"node": {"id": "edge-1"}}))?;
        let json = [("content-type", "application/json")];
        let polled = server.request("POST", "/v3/discovery:secrets", &json, poll).await?.text();
        ensure!(!polled.contains(MARK), "polled after the steps {steps:?}: {polled}");
        if is_served {
            wait_for("the key", PATIENCE, async || {
                let got = get(&server, "edge-1", &own).await;
                ensure!(got.contains(MARK), "after the steps {steps:?}, the client itself gets {got}");
                Ok(())
            })
            .await?;
        }
    }
    ensure!(server.log().containing(MARK).is_empty(), "{}", server.log());
    Ok(())
}

#[tokio::test]
async fn a_file_with_a_secret_for_everybody_is_an_error_with_its_place() -> Result<()> {
    let certificates = CertificateFiles::new().await?;
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[config::cluster("c")])?;
    let setup = certificates.protect(Setup::new()?.watch(dir.path()), "xds");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let path = dir.write_resources("s.yaml", &[secret("s")])?;
    let text = fs::read_to_string(&path)?;
    let line = text.lines().position(|line| line.contains(MARK)).context("the key")? + 1;
    let is_told = |status: &Value| status.to_string().contains("secret-without-identities");
    let status = server.wait_json("/v1/status/files", is_told).await?;
    ensure!(status.to_string().contains(&format!("\"line\":{line}")), "line {line} of {status:#}");
    let answer = server
        .request(
            "PUT",
            "/v1/groups/default/resources/secrets/s",
            &[("content-type", "application/json")],
            serde_json::to_vec(&secret("s"))?,
        )
        .await?;
    let told = answer.text();
    ensure!(answer.status == 422 && told.contains("secret-without-identities"), "{told}");
    ensure!(told.contains("tls_certificate.private_key.inline_string") && !told.contains(MARK), "{told}");
    // A server that says `any` serves it to everybody whom it serves at all.
    drop(server);
    let setup = certificates.protect(Setup::new()?.watch(dir.path()).arg("--secrets=any"), "xds");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let got = get(&server, "x", &certificates.client_flags()).await;
    ensure!(got.contains(MARK), "{got}");
    Ok(())
}

/// What a client goes through: the grant is taken away and given back, while it sends requests.
async fn loses_and_regains(kind: Kind) -> Result<()> {
    let world = Secured::start("edge/resources.yaml", async |certificates, dir, setup| {
        dir.write("edge/group.yaml", &group(&own_name()))?;
        Ok(certificates.protect(setup, "xds"))
    })
    .await?;
    let Some(client) = world.client(kind, &[]).await? else { return Ok(()) };
    let requests = client.requests(&world, &world.first).await?;
    requests
        .none_fails(async {
            // It is refused also when it comes back.
            world.dir.write("edge/group.yaml", &group(&json!([{"dns": "someone-else"}])))?;
            world.wait_refused("identity-not-allowed", 2).await?;
            world.dir.write("edge/group.yaml", &group(&own_name()))?;
            world.switch()?;
            requests.wait_backend(&world.second).await
        })
        .await
}

#[tokio::test]
async fn an_envoy_that_loses_its_grant_goes_on_and_comes_back() -> Result<()> {
    loses_and_regains(Kind::Envoy(&[])).await
}

#[tokio::test]
async fn an_envoy_with_delta_that_loses_its_grant_goes_on_and_comes_back() -> Result<()> {
    loses_and_regains(Kind::Envoy(&["--delta"])).await
}

#[tokio::test]
async fn grpcio_that_loses_its_grant_goes_on_and_comes_back() -> Result<()> {
    loses_and_regains(Kind::Grpc(Library::Grpcio)).await
}

#[tokio::test]
async fn grpc_go_that_loses_its_grant_goes_on_and_comes_back() -> Result<()> {
    loses_and_regains(Kind::Grpc(Library::GrpcGo)).await
}

/// Broken files open nothing and close nothing: neither while the server runs, nor after a restart, for which it has last good copies
/// of the groups. It has none of the policy, and does not start without one.
#[tokio::test]
async fn broken_groups_and_policies_grant_and_deny_as_before() -> Result<()> {
    let certificates = CertificateFiles::new().await?;
    certificates.issue("other", &["edge-2"]).await?;
    certificates.issue("denied", &["edge-3"]).await?;
    let dir = ConfigDir::new()?;
    dir.write("edge/group.yaml", &group(&own_name()))?;
    dir.write_resources("edge/secret.yaml", &[secret("own")])?;
    let policy = certificates.path("access.yaml");
    let good = "denied: [{ dns: edge-3, reason: INC-42 }]\n";
    fs::write(&policy, good)?;
    let setup = Setup::new()?.watch(dir.path()).arg(format!("--access-policy={policy}"));
    let setup = certificates.protect(setup.arg("--allow-anonymous-xds"), "xds");
    let mut server = Server::start_with(setup.clone()).await?;
    server.wait_ready().await?;
    let check = async |server: &Server, when: &str| {
        for (node, name, expected) in [
            ("edge-1", "client", MARK),
            ("edge-2", "client", "node-id-mismatch: "),
            ("edge-1", "other", "node-id-mismatch: "),
            ("edge-3", "denied", "denied: "),
            ("x", "denied", "denied: "),
        ] {
            let got = get(server, node, &certificates.flags_of(name)).await;
            ensure!(got.contains(expected), "{when}: {node} as {name} gets {got}");
            ensure!(expected == MARK || !got.contains(MARK), "{when}: {node} as {name} gets {got}");
        }
        let anonymous = get(server, "edge-1", &certificates.client_flags()[..1]).await;
        ensure!(anonymous.contains("no-credential: ") && !anonymous.contains(MARK), "{when}: {anonymous}");
        Ok(())
    };
    check(&server, "at first").await?;

    dir.write("edge/group.yaml", "kind: NodeGroup\n broken")?;
    fs::write(&policy, "denied: [")?;
    let is_told = |ready: &Value| {
        let text = ready["problems"].to_string();
        text.contains("access.yaml") && text.contains("last good contents are served")
    };
    server.wait_json("/readyz", is_told).await?;
    check(&server, "with broken files").await?;

    // A server that would not know whom to deny does not run.
    server.kill().await?;
    let mut process = setup.spawn().await?;
    let status = process.wait_exit(PATIENCE).await?;
    ensure!(!status.success(), "{status}");
    wait_for("the reason", PATIENCE, async || {
        let log = process.log().to_string();
        ensure!(log.contains("access.yaml:1:") && log.contains("xds-server validate"), "{log}");
        Ok(())
    })
    .await?;

    fs::write(&policy, good)?;
    server.restart().await?;
    server.wait_json("/readyz", |ready| ready["problems"].to_string().contains("last good")).await?;
    check(&server, "after a restart").await?;
    // A broken file beside its copy is not the end of it: what is written now counts.
    dir.write("edge/group.yaml", &group(&json!([{"dns": "someone-else"}])))?;
    wait_for("the repaired group", PATIENCE, async || {
        let got = get(&server, "edge-1", &certificates.client_flags()).await;
        ensure!(got.contains("identity-not-allowed: "), "{got}");
        Ok(())
    })
    .await
}
