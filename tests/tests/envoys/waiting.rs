//! `--wait` says what real Envoys have, by its exit code and its words.

use std::net::TcpListener;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::server::{Server, Variant, xds_server};

struct World {
    server: Server,
    config: ConfigDir,
}

impl World {
    async fn start() -> Result<Self> {
        let config = ConfigDir::new()?;
        let server = Server::start(config.path()).await?;
        Ok(Self { server, config })
    }

    async fn envoy(&self, node: &str, variant: Variant) -> Result<Envoy> {
        let envoy = Envoy::start(&self.server.bootstrap_envoy(node, variant).await?).await?;
        envoy.wait_live().await?;
        Ok(envoy)
    }

    /// Puts a listener that answers with its name, at a port, and waits.
    async fn put(&self, name: &str, port: u16, args: &[&str]) -> Result<Output> {
        let mut listener = config::listener(name, port, "unused");
        let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
        manager.as_object_mut().context("a manager")?.remove("rds");
        let answer = json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}});
        manager["route_config"] =
            json!({"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [answer]}]});
        let file = self.config.path().with_extension(format!("{name}.json"));
        std::fs::write(&file, Value::to_string(&listener))?;
        let mut command = xds_server().await?;
        command
            .args(["resources", "put", "default", "listeners", name, "--output", "table", "-f"])
            .arg(&file);
        command.args(["--wait", "--admin"]).arg(self.server.url("")).args(args);
        Ok(command.output().await?)
    }
}

fn expect(output: &Output, code: i32, words: &[&str]) -> Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    ensure!(output.status.code() == Some(code), "{:?} instead of {code}\n{all}", output.status);
    for word in words {
        ensure!(all.contains(word), "no {word:?} in\n{all}");
    }
    Ok(())
}

async fn the_exit_code_is_what_the_envoy_says(variant: Variant) -> Result<()> {
    let world = World::start().await?;
    // Nobody is there.
    expect(&world.put("first", 0, &[]).await?, 0, &["no connected client asks for"])?;
    let nobody = world.put("first", 0, &["--timeout", "100ms", "--expect", "1"]).await?;
    expect(&nobody, 4, &["1 more clients must acknowledge it"])?;

    let envoy = world.envoy("n", variant).await?;
    expect(&wait(&world, &[]).await?, 0, &["1 of 1 clients have acknowledged it"])?;
    expect(&wait(&world, &["--count", "2", "--timeout", "100ms"]).await?, 4, &["short: 1 more"])?;
    expect(&world.put("second", 0, &["--expect", "1"]).await?, 0, &["1 of 1 clients have acknowledged it"])?;

    // A port that is taken: the Envoy rejects the listener, every time.
    let held = TcpListener::bind("127.0.0.1:0")?;
    let port = held.local_addr()?.port();
    for _ in 0..2 {
        let rejected = world.put("third", port, &[]).await?;
        expect(&rejected, 1, &["rejected by n: Listener third: ", "cannot bind", &port.to_string()])?;
    }
    expect(&wait(&world, &[]).await?, 1, &["by n: Listener third: ", "cannot bind", &port.to_string()])?;
    // Others are not to blame for that.
    expect(&world.put("fourth", 0, &[]).await?, 0, &["1 of 1 clients have acknowledged it"])?;
    expect(&wait(&world, &["--object", "default/listeners/fourth"]).await?, 0, &["1 of 1 clients"])?;
    expect(&wait(&world, &["--object", "default/listeners/third"]).await?, 1, &["Listener third: "])?;
    expect(
        &world.put("second", 0, &[]).await?,
        0,
        &["nothing changes", "1 of 1 clients have acknowledged it"],
    )?;
    // The rejection is older than what comes with it now, so nothing is taken back.
    let older = world.put("third", port, &["--on-nack", "revert"]).await?;
    expect(&older, 1, &["cannot bind"])?;
    ensure!(!String::from_utf8_lossy(&older.stderr).contains("taken back"), "{older:?}");

    let other = TcpListener::bind("127.0.0.1:0")?;
    let taken_back = world.put("fifth", other.local_addr()?.port(), &["--on-nack", "revert"]).await?;
    expect(&taken_back, 1, &["rejected by n: Listener fifth: ", "taken back in revision"])?;
    drop(held);
    drop(other);
    stopped(&world, envoy).await
}

/// The command without a write.
async fn wait(world: &World, args: &[&str]) -> Result<Output> {
    let mut command = xds_server().await?;
    command
        .args(["wait", "--nodes", "n*", "--output", "table", "--admin"])
        .arg(world.server.url(""))
        .args(args);
    Ok(command.output().await?)
}

/// An Envoy that does not answer.
async fn stopped(world: &World, mut envoy: Envoy) -> Result<()> {
    envoy.process_mut().signal(Signal::STOP)?;
    let pending = world.put("sixth", 0, &["--timeout", "500ms"]).await?;
    expect(&pending, 4, &["0 of 1 clients have acknowledged it", "pending: n", "have acknowledged it yet"])?;
    let sixth = ["--object", "default/listeners/sixth", "--timeout", "300ms"];
    expect(&wait(world, &sixth).await?, 4, &["not all of these clients use it yet", "pending: n"])?;
    envoy.process_mut().signal(Signal::CONT)?;
    expect(&wait(world, &sixth[..2]).await?, 0, &[])?;
    expect(&world.put("sixth", 0, &[]).await?, 0, &["nothing changes", "1 of 1 clients have acknowledged it"])
}

#[tokio::test]
async fn the_exit_code_is_what_an_envoy_says() -> Result<()> {
    the_exit_code_is_what_the_envoy_says(Variant::Sotw).await
}

#[tokio::test]
async fn the_exit_code_is_what_an_incremental_envoy_says() -> Result<()> {
    the_exit_code_is_what_the_envoy_says(Variant::Delta).await
}
