//! The Dockerfile's promises, kept by the binary itself: there is no container runtime in a test.
//!
//! The server is started with the very arguments of `CMD` and asked with those of `HEALTHCHECK`; only its directory and its ports
//! are replaced by free ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use xds_tests::http::Http;
use xds_tests::process::Process;
use xds_tests::server::{free_addr, xds_server};
use xds_tests::wait::{PATIENCE, wait_for};

const WATCHED: &str = "/etc/xds-server";

/// The metadata of the image.
struct Image {
    text: String,
}

impl Image {
    fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Dockerfile");
        Ok(Self { text: fs::read_to_string(path)? })
    }

    /// The last instruction of a name, without the name.
    fn instruction(&self, name: &str) -> Result<&str> {
        let mut lines = self.text.lines().rev();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .with_context(|| format!("no {name}"))
    }

    /// The words of an instruction in its exec form.
    fn words(&self, name: &str) -> Result<Vec<String>> {
        let line = self.instruction(name)?;
        let list = line.find('[').with_context(|| format!("{name} {line} has no exec form"))?;
        Ok(serde_json::from_str(&line[list..])?)
    }

    fn exposed(&self) -> Result<BTreeSet<u16>> {
        self.instruction("EXPOSE")?.split_whitespace().map(|port| Ok(port.parse()?)).collect()
    }
}

/// The image's command in a world of its own.
struct World {
    _dir: TempDir,
    watched: String,
    data: String,
    admin: SocketAddr,
    /// The free port that stands for each one of the image.
    ports: BTreeMap<u16, u16>,
}

impl World {
    fn new(image: &Image) -> Result<Self> {
        let dir = TempDir::with_prefix("xds-image-")?;
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let (watched, data) = (path("watched"), path("data"));
        fs::create_dir(&watched)?;
        let ports = image.exposed()?.into_iter().map(|port| Ok((port, free_addr()?.port())));
        let ports = ports.collect::<Result<_>>()?;
        Ok(Self { watched, data, admin: free_addr()?, ports, _dir: dir })
    }

    /// Runs the binary with the words of an instruction.
    async fn command(&self, words: &[String]) -> Result<Command> {
        let mut command = xds_server().await?;
        for word in words {
            let mut word = word.replace(WATCHED, &self.watched);
            for (port, free) in &self.ports {
                word = word.replace(&format!(":{port}"), &format!(":{free}"));
            }
            command.arg(word);
        }
        // The command says nothing of these, so the environment decides, as it does in the image.
        command.env("XDS_SERVER_ADMIN_LISTEN", self.admin.to_string());
        command.env("XDS_SERVER_ADMIN", format!("http://{}", self.admin));
        command.env("XDS_SERVER_DATA_DIR", &self.data).env("XDS_SERVER_LOG_FORMAT", "json");
        Ok(command)
    }

    async fn check_health(&self, image: &Image) -> Result<Output> {
        let words = image.words("HEALTHCHECK")?;
        ensure!(words[..1] == image.words("ENTRYPOINT")?, "the health check runs the server's own binary");
        Ok(self.command(&words[1..]).await?.output().await?)
    }
}

fn addresses(process: &Process) -> BTreeMap<String, SocketAddr> {
    let mut found = BTreeMap::new();
    for line in process.log().containing("\"listening\"") {
        let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
        if let (Some(service), Some(addr)) = (fields["service"].as_str(), fields["addr"].as_str())
            && let Ok(addr) = addr.parse()
        {
            found.insert(service.to_owned(), addr);
        }
    }
    found
}

#[tokio::test]
async fn the_default_command_listens_on_every_exposed_port_and_keeps_the_admin_api_to_itself() -> Result<()> {
    let image = Image::read()?;
    let world = World::new(&image)?;
    let process = Process::spawn("image", &mut world.command(&image.words("CMD")?).await?)?;
    let found = wait_for("three ports", PATIENCE, async || {
        let found = addresses(&process);
        ensure!(found.len() == 3, "{found:?} {}", process.log());
        Ok(found)
    });
    let found = found.await?;
    let reachable: BTreeSet<u16> =
        found.values().filter(|addr| addr.ip().is_unspecified()).map(SocketAddr::port).collect();
    let exposed: BTreeSet<u16> = world.ports.values().copied().collect();
    ensure!(reachable == exposed, "{found:?}, but {:?} are exposed", world.ports);
    ensure!(found["admin"].ip().is_loopback(), "{found:?}");

    let probe = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), found["probe"].port());
    let http = Http::new();
    wait_for("readiness at the probe port", PATIENCE, async || {
        http.get(&format!("http://{probe}/readyz")).await?.success()
    })
    .await?;
    ensure!(http.get(&format!("http://{probe}/v1/groups")).await?.success().is_err(), "no admin API there");
    Ok(())
}

#[tokio::test]
async fn the_health_check_tells_a_ready_server_from_one_that_is_not() -> Result<()> {
    let image = Image::read()?;
    let world = World::new(&image)?;
    let output = world.check_health(&image).await?;
    ensure!(output.status.code() == Some(3), "no server yet: {output:?}");

    let broken = Path::new(&world.watched).join("a.yaml");
    fs::write(&broken, "version: xds-server/v1\nlisteners: 5\n")?;
    let _process = Process::spawn("image", &mut world.command(&image.words("CMD")?).await?)?;
    wait_for("an unhealthy server", PATIENCE, async || {
        let output = world.check_health(&image).await?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1) && told.contains("a.yaml"), "{output:?}");
        Ok(())
    })
    .await?;
    fs::write(&broken, "version: xds-server/v1\nlisteners: { edge: { port: 10000 } }\n")?;
    wait_for("a healthy server", PATIENCE, async || {
        let output = world.check_health(&image).await?;
        ensure!(output.status.success() && output.stdout == b"ready\n", "{output:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[test]
fn the_license_that_the_manifests_name_is_there() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("LICENSE"))?;
    ensure!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
    ensure!(fs::read_to_string(root.join("Cargo.toml"))?.contains("license = \"Apache-2.0\""));
    ensure!(fs::read_to_string(root.join("Dockerfile"))?.contains("/src/LICENSE"));
    Ok(())
}
