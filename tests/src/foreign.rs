//! An xDS server that is not ours, on go-control-plane.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::process::{Log, Process};
use crate::server::free_addr;
use crate::tools;
use crate::wait::PATIENCE;

/// A server that sends everyone the same snapshot. Dropping it kills it.
#[derive(Debug)]
pub struct ForeignServer {
    addr: SocketAddr,
    running: Option<(Process, ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

impl ForeignServer {
    /// A server that does not run yet; `None` without Go.
    ///
    /// # Errors
    ///
    /// If it cannot be built, or there is no Go and [every client is required](tools::require_all).
    pub async fn new() -> Result<Option<Self>> {
        let is_there = tools::go_control_plane().await?.is_some();
        Ok(if is_there { Some(Self { addr: free_addr()?, running: None }) } else { None })
    }

    /// Where it listens, whenever it runs.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Starts it with a snapshot.
    ///
    /// # Errors
    ///
    /// If it does not start, or does not take the snapshot.
    pub async fn start(&mut self, version: &str, resources: &[Value]) -> Result<()> {
        let program = tools::go_control_plane().await?.context("no Go")?;
        let mut command = Command::new(program);
        command.arg(self.addr.to_string());
        let (process, stdin, stdout) = Process::spawn_talking("go-control-plane", &mut command)?;
        self.running = Some((process, stdin, BufReader::new(stdout).lines()));
        self.hear("ready").await?;
        self.set(version, resources).await
    }

    /// Gives it another snapshot.
    ///
    /// # Errors
    ///
    /// If it does not take it.
    pub async fn set(&mut self, version: &str, resources: &[Value]) -> Result<()> {
        let (_, stdin, _) = self.running.as_mut().context("it does not run")?;
        let line = format!("{}\n", json!({"version": version, "resources": resources}));
        stdin.write_all(line.as_bytes()).await?;
        self.hear("ok").await
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub async fn kill(&mut self) -> Result<()> {
        let Some((process, stdin, _)) = &mut self.running else { return Ok(()) };
        process.signal(crate::process::Signal::KILL)?;
        process.wait_exit(PATIENCE).await?;
        stdin.shutdown().await.ok();
        self.running = None;
        Ok(())
    }

    /// What it says, such as what clients reject.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn log(&self) -> Result<Log> {
        self.running.as_ref().map(|(process, ..)| process.log()).context("it does not run")
    }

    async fn hear(&mut self, expected: &str) -> Result<()> {
        let (process, _, lines) = self.running.as_mut().context("it does not run")?;
        let line = timeout(PATIENCE, lines.next_line()).await.context("it says nothing")??;
        ensure!(line.as_deref() == Some(expected), "{line:?}\n{}", process.log());
        Ok(())
    }
}
