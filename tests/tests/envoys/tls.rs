//! TLS with real clients: certificates of `xds-server ca`, bootstraps of `xds-server bootstrap`, and files that change.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use http_body_util::Empty;
use serde_json::{Value, json};
use tokio::time::timeout;
use xds_tests::certificate_files::CertificateFiles as Certificates;
use xds_tests::config::{self, ConfigDir};
use xds_tests::dial::Dial;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::secured::{GENERATION, Kind, Requests, Secured};
use xds_tests::server::{Server, Setup, cli};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::Library;

/// A server that speaks TLS, with a listener, a route and a cluster.
async fn start() -> Result<Secured> {
    let prepare = async |certificates: &Certificates, _: &ConfigDir, setup: Setup| {
        Ok(certificates.protect(setup.fixed_xds_port()?, "xds"))
    };
    Secured::start("all.yaml", prepare).await
}

/// The numbers of the streams of the node.
async fn streams(world: &Secured) -> Result<Vec<Value>> {
    let node = world.server.get_json(&format!("/v1/nodes/{NODE}")).await?;
    Ok(node["streams"].as_array().into_iter().flatten().map(|stream| stream["id"].clone()).collect())
}

async fn is_served(kind: Kind) -> Result<()> {
    let world = start().await?;
    let Some(client) = world.client(kind, &[]).await? else { return Ok(()) };
    let requests = client.requests(&world, &world.first).await?;
    world.switch()?;
    requests.wait_backend(&world.second).await?;
    ensure!(world.server.metric("xds_tls_handshakes_total{listener=\"xds\",version=\"1.3\"}").await? >= 1);
    Ok(())
}

#[tokio::test]
async fn an_envoy_with_a_certificate_is_served() -> Result<()> {
    is_served(Kind::Envoy(&[])).await
}

#[tokio::test]
async fn an_envoy_with_delta_and_a_certificate_is_served() -> Result<()> {
    is_served(Kind::Envoy(&["--delta"])).await
}

#[tokio::test]
async fn an_envoy_with_streams_per_type_and_a_certificate_is_served() -> Result<()> {
    is_served(Kind::Envoy(&["--per-type"])).await
}

/// For an Envoy, `localhost` also has an IPv6 address, where this server does not listen.
#[tokio::test]
async fn an_envoy_that_knows_the_server_by_its_host_name_is_served() -> Result<()> {
    let world = start().await?;
    let address = format!("localhost:{}", world.server.xds().port());
    let flags = world.certificates.bootstrap_flags();
    let mut args = vec!["bootstrap", "envoy", "--node-id", NODE, "--xds-address", &address];
    args.extend(flags.iter().map(String::as_str));
    Envoy::start(&cli(&args).await?).await?.wait_live().await
}

#[tokio::test]
async fn an_envoy_goes_from_one_server_to_another_that_has_a_certificate_of_its_own() -> Result<()> {
    let certificates = Certificates::new().await?;
    let (mut servers, mut addresses) = (Vec::new(), Vec::new());
    for (name, host) in [("one", "localhost"), ("other", "127.0.0.1")] {
        certificates.issue(name, &[host]).await?;
        let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
        let flags = [("cert", certificate.as_str()), ("key", key.as_str())];
        let setup = flags.iter().fold(Setup::new()?, |setup, (flag, file)| {
            setup.arg(format!("--xds-tls-{flag}={}", certificates.path(file)))
        });
        let setup = setup.arg(format!("--xds-client-ca={}", certificates.path("ca.crt")));
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        addresses.push(format!("{host}:{}", server.xds().port()));
        servers.push(server);
    }
    let (addresses, flags) = (addresses.join(","), certificates.bootstrap_flags());
    let mut args = vec!["bootstrap", "envoy", "--node-id", NODE, "--xds-address", &addresses];
    args.extend(flags.iter().map(String::as_str));
    let _envoy = Envoy::start(&cli(&args).await?).await?;
    while !servers.is_empty() {
        let at = wait_for("a stream of the Envoy", PATIENCE, async || {
            for (n, server) in servers.iter().enumerate() {
                if server.get(&format!("/v1/nodes/{NODE}")).await?.status == StatusCode::OK {
                    return Ok(n);
                }
            }
            anyhow::bail!("no server has it")
        });
        // The Envoy has to find the next one.
        drop(servers.swap_remove(at.await?));
    }
    Ok(())
}

/// A connection with many streams stays open while the certificates of both sides change, and the next one uses the new ones.
#[tokio::test]
async fn certificates_change_under_load_and_no_request_fails() -> Result<()> {
    let mut world = start().await?;
    let (envoy, out) = world.certificates.envoy(&world.server, &[]).await?;
    envoy.wait_live().await?;
    let addr = envoy.wait_listener("web").await?;
    let mut connection = Connection::open(addr).await?;
    connection.get("/").await?.success()?;
    let at_first = streams(&world).await?;

    world.certificates.issue("server", &["localhost", "127.0.0.1"]).await?;
    let new = timeout(PATIENCE, async {
        while world.server.metric(GENERATION).await? < 2 {
            connection.get("/").await?.success()?;
        }
        anyhow::Ok(())
    });
    new.await.context("no new certificate")??;
    world.switch()?;
    wait_for("the change", PATIENCE, async || {
        let answer = connection.get("/").await?.success()?.text();
        ensure!(answer.contains("second"), "{answer}");
        Ok(())
    })
    .await?;
    assert_eq!(streams(&world).await?, at_first, "a stream ended");

    let updates = "cluster.xds_cluster.client_ssl_socket_factory.ssl_context_update_by_sds";
    let before = envoy.stat(updates).await?;
    world.certificates.issue("client", &["edge-1"]).await?;
    wait_for("the new client certificate", PATIENCE, async || {
        connection.get("/").await?.success()?;
        ensure!(envoy.stat(updates).await? > before, "{}", out.display());
        Ok(())
    })
    .await?;
    assert_eq!(streams(&world).await?, at_first, "a stream ended");
    // A server that is new shows that the connection is: both sides have only the new files.
    world.server.restart().await?;
    world.server.wait_ready().await?;
    world.serve(&world.first)?;
    Requests::Http(addr).wait_backend(&world.first).await
}

#[tokio::test]
async fn grpcio_with_a_certificate_is_served() -> Result<()> {
    is_served(Kind::Grpc(Library::Grpcio)).await
}

#[tokio::test]
async fn grpc_go_with_a_certificate_is_served() -> Result<()> {
    is_served(Kind::Grpc(Library::GrpcGo)).await
}

#[tokio::test]
async fn clients_without_a_good_certificate_are_told_and_get_nothing() -> Result<()> {
    let world = start().await?;
    let certificates = &world.certificates;
    let served = world.get(&certificates.client_flags()).await?;
    ensure!(served.contains("\"all\""), "{served}");

    let ca = format!("--ca={}", certificates.path("ca.crt"));
    let error =
        world.get(std::slice::from_ref(&ca)).await.expect_err("served without a certificate").to_string();
    ensure!(error.contains("no-credential") && error.contains("Unauthenticated"), "{error}");
    ensure!(world.server.metric("xds_refused_total{reason=\"no-credential\"}").await? >= 1);

    let others = Certificates::new().await?;
    let mut flags = others.client_flags();
    flags[0] = ca;
    let error = world.get(&flags).await.expect_err("served with a foreign certificate").to_string();
    ensure!(!error.contains("\"all\""), "{error}");
    wait_for("the count", PATIENCE, async || {
        let name = "xds_tls_handshake_failures_total{listener=\"xds\",reason=\"unknown-issuer\"}";
        ensure!(world.server.metric(name).await? >= 1);
        Ok(())
    })
    .await?;
    let error = world.get(&others.client_flags()).await.expect_err("a foreign server is trusted").to_string();
    ensure!(error.contains("cannot reach"), "{error}");
    let error = world.get(&[]).await.expect_err("served in plaintext").to_string();
    ensure!(!error.contains("\"all\""), "{error}");

    let without = vec![format!("--tls-ca={}", certificates.path("ca.crt"))];
    let bootstrap = world.certificates.bootstrap(&world.server, "envoy", &without).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    wait_for("the reason in the log of Envoy", PATIENCE, async || {
        ensure!(envoy.log().to_string().contains("no-credential"));
        Ok(())
    })
    .await?;
    ensure!(world.server.get(&format!("/v1/nodes/{NODE}")).await?.status == 404);
    Ok(())
}

/// Two authorities, each trusted for its own trust domain: neither can issue certificates of the other.
#[tokio::test]
async fn a_trust_domain_has_its_own_authorities() -> Result<()> {
    let (ours, partner) = (Certificates::new().await?, Certificates::new().await?);
    let config = ConfigDir::new()?;
    config.write_resources("all.yaml", &[config::cluster("all")])?;
    let setup = ours
        .protect(Setup::new()?.watch(config.path()), "xds")
        .arg(format!("--xds-trust-domain=example.org={}", ours.path("ca.crt")))
        .arg(format!("--xds-trust-domain=partner.org={}", partner.path("ca.crt")));
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let get = async |certificates: &Certificates, id: &str| {
        certificates.issue("client", &[id]).await?;
        let mut flags = certificates.client_flags();
        flags[0] = format!("--ca={}", ours.path("ca.crt"));
        let xds = server.xds().to_string();
        let mut args = vec!["get", "--node-id", "raw", "--type", "clusters", "--xds-address", &xds];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    };
    for (certificates, id) in [
        (&ours, "spiffe://example.org/edge"),
        (&partner, "spiffe://partner.org/edge"),
        (&ours, "edge.example.org"),
    ] {
        let served = get(certificates, id).await.with_context(|| id.to_owned())?;
        ensure!(served.contains("\"all\""), "{id}: {served}");
    }
    for (certificates, id) in [
        (&partner, "spiffe://example.org/edge"),
        (&ours, "spiffe://partner.org/edge"),
        (&ours, "spiffe://other.org/edge"),
        (&partner, "edge.example.org"),
    ] {
        ensure!(get(certificates, id).await.is_err(), "{id}");
    }
    let metrics = server.get("/metrics").await?.text();
    // How many there are depends on how often clients try.
    let failures = "xds_tls_handshake_failures_total{listener=\"xds\",reason=\"unknown-issuer\"}";
    ensure!(metrics.contains(failures), "{metrics}");
    ensure!(metrics.contains("{listener=\"xds\",part=\"trust_domain\"}"), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn bad_files_keep_the_last_good_ones_and_are_a_problem() -> Result<()> {
    let world = start().await?;
    let path = world.certificates.path("server.crt");
    let good = fs::read_to_string(&path)?;
    fs::write(&path, "no certificate")?;
    let has_problem =
        |ready: &Value| ready["problems"].to_string().contains("TLS files of the xds port are not used");
    world.server.wait_json("/readyz", has_problem).await?;
    world.get(&world.certificates.client_flags()).await?;
    ensure!(world.server.metric("xds_tls_reloads_total{listener=\"xds\",outcome=\"kept\"}").await? == 1);
    fs::write(&path, good)?;
    world.server.wait_json("/readyz", |ready| ready["problems"] == json!([])).await?;
    // An authority of both is how one is replaced.
    let others = Certificates::new().await?;
    let both =
        fs::read_to_string(world.certificates.path("ca.crt"))? + &fs::read_to_string(others.path("ca.crt"))?;
    replace(Path::new(&world.certificates.path("ca.crt")), &both)?;
    world.wait_generation(2).await?;
    let mut flags = others.client_flags();
    flags[0] = format!("--ca={}", world.certificates.path("ca.crt"));
    world.get(&flags).await.map(drop)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

#[tokio::test]
async fn the_admin_api_takes_a_certificate_or_nobody() -> Result<()> {
    let certificates = Certificates::new().await?;
    let config = ConfigDir::new()?;
    config.write_resources("all.yaml", &[config::cluster("all")])?;
    let setup = certificates.protect(Setup::new()?.watch(config.path()), "admin");
    let server = Server::start_with(setup).await?;
    let admin = format!("--admin=https://localhost:{}", server.admin().port());
    let status = async |flags: &[String]| {
        let mut args = vec!["status", &admin, "--output=json"];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    };
    wait_for("a ready server", PATIENCE, async || {
        let status = status(&certificates.client_flags()).await?;
        ensure!(status.contains("\"ready\": true"), "{status}");
        Ok(())
    })
    .await?;
    let ca = format!("--ca={}", certificates.path("ca.crt"));
    let error = status(&[ca]).await.expect_err("asked without a certificate").to_string();
    ensure!(error.contains("401"), "{error}");
    let error = status(&Certificates::new().await?.client_flags()).await.expect_err("a foreign server");
    ensure!(!error.to_string().contains("\"ready\""), "{error}");
    Ok(())
}

const PRINCIPALS: &str = "principals:
- { name: ada, role: admin, certificates: [{ dns: ada }] }
- { name: ci, role: operator, namespaces: [shop], certificates: [{ dns: ci }] }
";

/// A route of which the weights can be changed.
fn route(namespace: &str, port: u16) -> String {
    format!(
        "version: xds-server/v1\nnamespace: {namespace}\nlisteners: {{ l: {{ port: {port} }} }}\n\
         routes: {{ r: {{ rules: [{{ to: {{ one: 1, two: 1 }} }}] }} }}\n\
         backends: {{ one: {{ endpoints: '127.0.0.1:1' }}, two: {{ endpoints: '127.0.0.1:2' }} }}\n"
    )
}

#[tokio::test]
async fn an_operator_acts_in_its_scope_by_its_certificate_until_that_is_distrusted() -> Result<()> {
    let certificates = Certificates::new().await?;
    for name in ["ada", "ci", "nobody"] {
        certificates.issue(name, &[name]).await?;
    }
    let (authorities, policy, audit) =
        (certificates.path("clients.crt"), certificates.path("access.yaml"), certificates.path("audit.log"));
    fs::copy(certificates.path("ca.crt"), &authorities)?;
    fs::write(&policy, PRINCIPALS)?;
    let config = ConfigDir::new()?;
    for (namespace, port) in [("shop", 1), ("core", 2)] {
        fs::write(config.path().join(format!("{namespace}.yaml")), route(namespace, port))?;
    }
    let setup = certificates.protect_from(Setup::new()?.watch(config.path()), "admin", "clients.crt");
    let setup = setup.arg(format!("--access-policy={policy}")).arg(format!("--audit-log={audit}"));
    let server = Server::start_with(setup).await?;
    let admin = format!("--admin=https://localhost:{}", server.admin().port());
    let run = async |name: &str, command: &str| {
        let mut args: Vec<&str> = command.split(' ').chain([&*admin]).collect();
        let flags = certificates.flags_of(name);
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    };
    wait_for("a ready server", PATIENCE, async || {
        let status = run("ada", "status --output=json").await?;
        ensure!(status.contains("\"ready\": true"), "{status}");
        Ok(())
    })
    .await?;

    run("ci", "weights set Route shop/r 0 one=3").await?;
    for (name, command, expected) in [
        ("ci", "weights set Route core/r 0 one=3", ["404", "403"]),
        ("ci", "groups delete default", ["role", "role"]),
        ("nobody", "weights", ["401", "401"]),
    ] {
        let error = run(name, command).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(expected.iter().any(|expected| error.contains(expected)), "{name}: {command}: {error:?}");
    }
    let line = |is_good: &dyn Fn(&Value) -> bool| audit_line(&audit, is_good);
    let written = line(&|line| line["event"] == "api.write" && line["principal"] == "ci")?;
    ensure!(written["identity"] == "dns:ci" && written["status"] == 200, "{written}");
    ensure!(written["via"].as_str().is_some_and(|via| via.starts_with("certificate:")), "{written}");
    let denied = line(&|line| line["event"] == "api.denied" && line["principal"] == "ci")?;
    ensure!(denied["identity"] == "dns:ci", "{denied}");

    loses_trust(&server, &certificates, &authorities, &audit).await
}

/// The first line of an audit log that is as it should be.
fn audit_line(audit: &str, is_good: &dyn Fn(&Value) -> bool) -> Result<Value> {
    let text = fs::read_to_string(audit)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.into_iter().find(is_good).with_context(|| format!("there is only {text}"))
}

/// Takes the authority of the principal `ci` out of its file while a connection of it is open.
async fn loses_trust(
    server: &Server,
    certificates: &Certificates,
    authorities: &str,
    audit: &str,
) -> Result<()> {
    let dial = Dial::tls(server.admin(), certificates.directory(), Some("ci"))?;
    let mut connection = dial.open().await?;
    let mut ask = async || -> Result<u16> {
        let request = http::Request::get("https://localhost/v1/weights").body(Empty::new())?;
        Ok(connection.send_request(request).await?.status().as_u16())
    };
    ensure!(ask().await? == 200, "the certificate is good");
    fs::copy(Certificates::new().await?.path("ca.crt"), authorities)?;
    wait_for("the end of the trust", PATIENCE, async || {
        // An end of the connection is one of the trust, too.
        let status = ask().await.unwrap_or(401);
        ensure!(status == 401, "{status}");
        Ok(())
    })
    .await?;
    let distrusted = wait_for("the audit line", PATIENCE, async || {
        audit_line(audit, &|line| line["event"] == "tls.untrusted" && line["listener"] == "admin")
    });
    ensure!(distrusted.await?["identity"] == "dns:ci", "it says whose certificate it was");
    let again = async {
        let request = http::Request::get("https://localhost/v1/weights").body(Empty::new())?;
        anyhow::Ok(dial.open().await?.send_request(request).await?.status())
    };
    ensure!(again.await.is_err(), "no new connection is taken");
    Ok(())
}

#[tokio::test]
async fn a_server_with_bad_files_does_not_start_and_says_why() -> Result<()> {
    let certificates = Certificates::new().await?;
    let other = Certificates::new().await?;
    let setup = Setup::new()?
        .arg(format!("--xds-tls-cert={}", certificates.path("server.crt")))
        .arg(format!("--xds-tls-key={}", other.path("server.key")));
    let mut process = setup.spawn().await?;
    let status = process.wait_exit(PATIENCE).await?;
    ensure!(!status.success(), "{status}");
    // Its last words may come after its end.
    let log = wait_for("the reason", PATIENCE, async || {
        let log = process.log().to_string();
        ensure!(log.contains("does not belong to the first certificate"), "{log}");
        Ok(log)
    })
    .await?;
    ensure!(!log.contains("PRIVATE"), "{log}");
    Ok(())
}

const NODE: &str = "edge-1";
