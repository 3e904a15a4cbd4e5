//! The real `xds-server`, as a process.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, ExitStatus};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::spawn_blocking;

use crate::certificates::Authority;
use crate::http::{Answer, Http};
use crate::process::{Log, Process, Signal};
use crate::tls_tunnel::TlsTunnel;
use crate::tools;
use crate::wait::{PATIENCE, wait_for};

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Setup {
    args: Vec<String>,
    env: Vec<(String, String)>,
    data_dir: Arc<TempDir>,
    xds: SocketAddr,
    admin: SocketAddr,
    has_probe: bool,
    /// The authority of the certificate of the xDS port, and its files; `None` in plaintext.
    encryption: Option<Arc<(Authority, TempDir)>>,
    /// The limit of open files of the process; `None` for that of the test.
    max_files: Option<u32>,
    /// The program of another release; `None` for the server under test.
    other_release: Option<PathBuf>,
}

impl Setup {
    /// A server without files, with an empty data directory, on free loopback ports. It compares each translation with one from
    /// nothing.
    ///
    /// # Errors
    ///
    /// If there is no room for the data directory.
    pub fn new() -> Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let data_dir = Arc::new(TempDir::with_prefix("xds-data-")?);
        let env = vec![("XDS_SERVER_VERIFY".to_owned(), "always".to_owned())];
        Ok(Self {
            args: Vec::new(),
            env,
            data_dir,
            xds: any,
            admin: any,
            has_probe: false,
            encryption: None,
            max_files: None,
            other_release: None,
        })
    }

    /// Watches one more directory.
    #[must_use]
    pub fn watch(self, dir: &Path) -> Self {
        self.arg("--watch").arg(dir.to_string_lossy())
    }

    /// Adds an argument to the command line.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// As [`Setup::new`], for a server that is measured: its allocator gives back at once what is freed, and nothing is done twice.
    ///
    /// # Errors
    ///
    /// As for `new`.
    pub fn metered() -> Result<Self> {
        Ok(Self::new()?.env("MIMALLOC_PURGE_DELAY", "0").env("XDS_SERVER_VERIFY", "off"))
    }

    /// Limits the open files of the process, including its connections.
    #[must_use]
    pub fn max_files(mut self, n: u32) -> Self {
        self.max_files = Some(n);
        self
    }

    /// Sets a variable of the process's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Chooses the xDS port beforehand, so that clients find it again after a restart.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn fixed_xds_port(mut self) -> Result<Self> {
        self.xds = free_addr()?;
        Ok(self)
    }

    /// Has the server listen for clients at this address.
    #[must_use]
    pub fn xds_at(mut self, addr: SocketAddr) -> Self {
        self.xds = addr;
        self
    }

    /// Has the server listen for the admin API at the same port after every restart too.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn fixed_admin_port(mut self) -> Result<Self> {
        self.admin = free_addr()?;
        Ok(self)
    }

    /// Has a port for probes, which is asked for health and metrics from then on: the admin port may speak TLS.
    #[must_use]
    pub fn probe(mut self) -> Self {
        self.has_probe = true;
        self.arg("--probe-listen=127.0.0.1:0")
    }

    /// Has the xDS port speak TLS. [`Server::xds`] is then the near end of a tunnel, and clients go on in plaintext: what they do to the
    /// server, they do to it over TLS.
    ///
    /// # Errors
    ///
    /// If there is no room for the certificate.
    pub fn encrypted(mut self) -> Result<Self> {
        let (authority, dir) = (Authority::new()?, TempDir::with_prefix("xds-wire-")?);
        let issued = authority.issue(&["localhost"])?;
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        fs::write(&certificate, issued.chain_pem())?;
        fs::write(&key, issued.key_pem())?;
        self.encryption = Some(Arc::new((authority, dir)));
        let flag = |name: &str, path: &Path| format!("--xds-tls-{name}={}", path.display());
        Ok(self.arg(flag("cert", &certificate)).arg(flag("key", &key)))
    }

    /// Where the server keeps its data. The directory lives as long as the setup or a server made of it.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// Starts the process without waiting; [`Server::start_with`] waits until it listens.
    ///
    /// # Errors
    ///
    /// If there is no binary.
    pub async fn spawn(&self) -> Result<Process> {
        let mut command = match &self.other_release {
            Some(program) => clean(Command::new(program)),
            None => xds_server().await?,
        };
        if let Some(n) = self.max_files {
            command = with_max_files(&command, n);
        }
        // Most tests wait for what they remove to be gone; those of draining set the flag.
        command.env("XDS_SERVER_DRAIN_CLUSTERS", "0s");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("serve").args(&self.args);
        command.args(["--xds-listen", &self.xds.to_string(), "--admin-listen", &self.admin.to_string()]);
        command.args(["--log-format", "json", "--data-dir"]).arg(self.data_dir.path());
        Process::spawn("xds-server", &mut command)
    }
}

/// The variant that a client speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variant {
    /// State of the World.
    Sotw,
    /// Incremental.
    Delta,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        })
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    process: Process,
    xds: SocketAddr,
    admin: SocketAddr,
    probe: Option<SocketAddr>,
    tunnel: Option<TlsTunnel>,
    http: Http,
}

impl Server {
    /// Starts a server that watches one directory, and waits until it listens.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub async fn start(watched: &Path) -> Result<Self> {
        Self::start_with(Setup::new()?.watch(watched)).await
    }

    /// Starts a server and waits until it listens on both ports. It may not be [ready](Self::wait_ready) yet.
    ///
    /// # Errors
    ///
    /// If it cannot be built, or ends, or does not listen; the error holds the end of its log.
    pub async fn start_with(setup: Setup) -> Result<Self> {
        let mut process = setup.spawn().await?;
        let xds = process.wait_line("the xDS port", PATIENCE, |line| listening(line, "xds")).await?;
        let admin = process.wait_line("the admin port", PATIENCE, |line| listening(line, "admin")).await?;
        let probe = match setup.has_probe {
            true => {
                Some(process.wait_line("the probe port", PATIENCE, |line| listening(line, "probe")).await?)
            }
            false => None,
        };
        let tunnel = match &setup.encryption {
            Some(encryption) => Some(TlsTunnel::start(encryption.0.client_config()?, xds).await?),
            None => None,
        };
        Ok(Self { setup, process, xds, admin, probe, tunnel, http: Http::new() })
    }

    /// Starts the server anew with the same data, and kills it first if it runs; its xDS port is the same if it
    /// was [fixed](Setup::fixed_xds_port).
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.try_exit().await?.is_none() {
            self.kill().await?;
        }
        *self = Self::start_with(self.setup.clone()).await?;
        Ok(())
    }

    /// As [`restart`](Self::restart), with another value of an environment variable from then on.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub async fn restart_with_env(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        for (name, value) in variables {
            self.setup = self.setup.clone().env(name, value);
        }
        self.restart().await
    }

    /// As [`restart`](Self::restart), with the program of another release from then on; `None` for the server under test.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub async fn restart_as(&mut self, other_release: Option<PathBuf>) -> Result<()> {
        self.setup.other_release = other_release;
        self.restart().await
    }

    /// Where the server keeps its data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.setup.data_dir()
    }

    /// Kills the server at once (`SIGKILL`).
    ///
    /// # Errors
    ///
    /// If it had ended before.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait_exit(PATIENCE).await?;
        Ok(())
    }

    /// Asks the server to end (`SIGTERM`) and waits for that.
    ///
    /// # Errors
    ///
    /// If it goes on.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.wait_exit(PATIENCE).await
    }

    /// Sends a signal: `STOP` and `CONT` make it pause, `HUP` makes it read its files.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Waits until `GET /readyz` says 200.
    ///
    /// # Errors
    ///
    /// If that takes too long; the error holds what it says.
    pub async fn wait_ready(&self) -> Result<()> {
        let ready = wait_for("readiness", PATIENCE, async || self.get("/readyz").await?.success());
        ready.await.map(drop).with_context(|| self.log().to_string())
    }

    /// Makes a request to the admin port; any status is an answer.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.http.get(&self.url(path)).await
    }

    /// The value of a metric, written as it is exposed: its name and labels. 0 if it is not there.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub async fn metric(&self, name: &str) -> Result<u64> {
        let metrics = self.get("/metrics").await?.text();
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// Returns what `GET` of a path answers, as JSON.
    ///
    /// # Errors
    ///
    /// If the status is not 2xx, or the body no JSON.
    pub async fn get_json(&self, path: &str) -> Result<Value> {
        self.get(path).await?.success().and_then(|answer| answer.json()).context(path.to_owned())
    }

    /// Writes JSON with `PUT` and returns the answer, as JSON.
    ///
    /// # Errors
    ///
    /// If the status is not 2xx.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.write(Method::PUT, path, body).await
    }

    /// Writes JSON with `PATCH` and returns the answer, as JSON.
    ///
    /// # Errors
    ///
    /// If the status is not 2xx.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.write(Method::PATCH, path, body).await
    }

    /// Writes JSON with `POST` and returns the answer, as JSON.
    ///
    /// # Errors
    ///
    /// If the status is not 2xx.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.write(Method::POST, path, body).await
    }

    /// Deletes and returns the answer.
    ///
    /// # Errors
    ///
    /// If the status is not 2xx.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        let request = Request::delete(self.url(path)).body(Full::default())?;
        self.http.send(request).await?.success().with_context(|| format!("DELETE {path}"))
    }

    /// Makes any request to the admin port: `request("PUT", path, &[("if-match", tag)], body)`.
    ///
    /// # Errors
    ///
    /// If there is no answer; any status is one.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.http.send(request.body(Full::new(body.into()))?).await
    }

    /// Waits until the JSON at a path is as it should be, and returns it.
    ///
    /// # Errors
    ///
    /// If that takes too long; the error holds what was there in the end.
    pub async fn wait_json(&self, path: &str, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = wait_for(path, PATIENCE, async || {
            let value = self.get_json(path).await?;
            anyhow::ensure!(is_good(&value), "it is {value:#}");
            Ok(value)
        });
        found.await.with_context(|| self.log().to_string())
    }

    /// Returns what `xds-server bootstrap envoy` prints.
    ///
    /// # Errors
    ///
    /// If the command fails.
    pub async fn bootstrap_envoy(&self, node_id: &str, variant: Variant) -> Result<String> {
        let xds = self.xds().to_string();
        let mut args = vec!["bootstrap", "envoy", "--node-id", node_id, "--xds-address", &xds];
        if variant == Variant::Delta {
            args.push("--delta");
        }
        cli(&args).await
    }

    /// Returns what `xds-server bootstrap grpc` prints.
    ///
    /// # Errors
    ///
    /// If the command fails.
    pub async fn bootstrap_grpc(&self, node_id: &str) -> Result<String> {
        cli(&["bootstrap", "grpc", "--node-id", node_id, "--xds-address", &self.xds().to_string()]).await
    }

    /// The process id, or `None` once it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Where clients connect.
    #[must_use]
    pub fn xds(&self) -> SocketAddr {
        self.tunnel.as_ref().map_or(self.xds, |tunnel| tunnel.addr)
    }

    /// Where the REST API is.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The URL of a path of the REST API, or of the port for probes if there is one and it has the path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let is_probe = matches!(path, "/healthz" | "/readyz" | "/metrics");
        format!("http://{}{path}", self.probe.filter(|_| is_probe).unwrap_or(self.admin))
    }

    /// The log of the server, one JSON object a line.
    #[must_use]
    pub fn log(&self) -> Log {
        self.process.log()
    }

    async fn write(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let what = format!("{method} {path}");
        let request = Request::builder().method(method).uri(self.url(path));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let answer = self.http.send(request.body(Full::from(body.to_string()))?).await?;
        answer.success().and_then(|answer| answer.json()).context(what)
    }
}

/// Runs `xds-server` with arguments to its end and returns what it prints.
///
/// # Errors
///
/// If it fails; the error holds everything it wrote.
pub async fn cli(args: &[&str]) -> Result<String> {
    let mut command = xds_server().await?;
    command.args(args);
    spawn_blocking(move || tools::run(command.as_std_mut())).await?
}

/// A command that runs the server under test, without what the environment says to it.
///
/// # Errors
///
/// If it cannot be built.
pub async fn xds_server() -> Result<Command> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || BINARY.get_or_init(|| binary().map_err(|error| format!("{error:#}")));
    let binary = spawn_blocking(build).await?.as_ref().map_err(|error| anyhow!(error.clone()))?;
    Ok(clean(Command::new(binary)))
}

/// The command without the variables by which its caller would configure a server.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XDS_SERVER_") {
            command.env_remove(name);
        }
    }
    command.env("RUST_BACKTRACE", "1");
    command
}

/// The command with a hard limit of open files.
fn with_max_files(command: &Command, n: u32) -> Command {
    let command = command.as_std();
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {n} && exec \"$0\" \"$@\"")]).arg(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Builds the server and returns its path; `XDS_TESTS_SERVER` names one that is built already.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("XDS_TESTS_SERVER") {
        return Ok(path.into());
    }
    let profile_dir = tools::profile_dir()?;
    let profile = profile_dir.file_name().and_then(|name| name.to_str()).context("profile")?;
    let mut cargo = Blocking::new(env!("CARGO"));
    // The tests of the command line need the program. Built with the tests of the workspace, its dependencies have the features that
    // `cargo test --workspace` has built them with.
    cargo.args(["test", "--workspace", "--no-run", "--test", "cli"]);
    if profile != "debug" {
        cargo.args(["--profile", profile]);
    }
    // Cargo tells a test which package it is of. To the build scripts of some dependencies that would be a change, and everything would be
    // built anew, here and by whoever builds next.
    let of_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| of_test(name))
    {
        cargo.env_remove(name);
    }
    tools::run(cargo.current_dir(env!("CARGO_MANIFEST_DIR")))?;
    Ok(profile_dir.join("xds-server"))
}

/// Returns the address in a log line that says that a service listens.
fn listening(line: &str, service: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
    let is_it = fields["message"] == "listening" && fields["service"] == service;
    is_it.then(|| fields["addr"].as_str()?.parse().ok()).flatten()
}

/// Returns a free loopback address, for programs that must know their port beforehand.
///
/// The port is outside the ephemeral range, from which the kernel takes ports for connections and for port 0: a client that keeps
/// connecting to a dead port of that range may connect to itself.
///
/// # Errors
///
/// If there is none.
pub fn free_addr() -> Result<SocketAddr> {
    // Processes start at different ports, so that they seldom want the same.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 500)? * 20;
    for _ in 0..N_FIXED_PORTS {
        let port = FIRST_FIXED_PORT + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % N_FIXED_PORTS;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(addr).is_ok() {
            return Ok(addr);
        }
    }
    Err(anyhow!("no free port"))
}

/// The ephemeral range of Linux begins at 32768.
const FIRST_FIXED_PORT: u16 = 22_000;
const N_FIXED_PORTS: u16 = 10_000;

/// A token for a principal of this role and name, and the lines of the policy for it, as `xds-server token new` prints them.
///
/// # Errors
///
/// If it prints something else.
pub async fn principal(role: &str) -> Result<(String, String)> {
    let printed = cli(&["token", "new"]).await?;
    let token = printed.lines().next().context("no token")?.to_owned();
    ensure!(token.starts_with("xds_") && !printed[token.len()..].contains(&token), "{printed}");
    let lines = printed.lines().filter(|line| !line.starts_with('#')).skip(2);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    Ok((token, lines.replace("NAME", role).replace("role: viewer", &format!("role: {role}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listening_event_is_found_at_the_top_and_under_fields() {
        let addr = Some(SocketAddr::from(([127, 0, 0, 1], 7)));
        let flat = r#"{"message":"listening","service":"xds","addr":"127.0.0.1:7"}"#;
        let nested =
            r#"{"level":"INFO","fields":{"message":"listening","service":"xds","addr":"127.0.0.1:7"}}"#;
        assert_eq!(listening(flat, "xds"), addr);
        assert_eq!(listening(nested, "xds"), addr);
        assert_eq!(listening(nested, "admin"), None);
        assert_eq!(listening("no JSON", "xds"), None);
    }
}
