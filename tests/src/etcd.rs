//! A real etcd of one or three members: Debian's packages `etcd-server` and `etcd-client`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Process, Signal};
use crate::server::free_addr;
use crate::tools;
use crate::wait::{PATIENCE, wait_for};

/// An etcd. Dropping it kills its members.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    /// Their data.
    dir: TempDir,
}

#[derive(Debug)]
struct Member {
    arguments: Vec<String>,
    client: String,
    process: Option<Process>,
}

impl Etcd {
    /// Starts `n_members` with more arguments for each, and waits until they answer; `None` without an etcd.
    ///
    /// # Errors
    ///
    /// If it does not start, or there is no etcd and [every client is required](tools::require_all).
    pub async fn start(n_members: usize, more: &[&str]) -> Result<Option<Self>> {
        if !tools::is_present("etcd", "etcd", "--version")?
            || !tools::is_present("etcd", "etcdctl", "version")?
        {
            return Ok(None);
        }
        let dir = TempDir::with_prefix("xds-etcd-")?;
        let addrs = (0..n_members).map(|_| Ok((free_addr()?, free_addr()?))).collect::<Result<Vec<_>>>()?;
        let all = addrs.iter().enumerate().map(|(n, (_, peer))| format!("m{n}=http://{peer}"));
        let all = all.collect::<Vec<_>>().join(",");
        let members = addrs.iter().enumerate().map(|(n, (client, peer))| {
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
            let data = dir.path().join(format!("m{n}"));
            let pairs = [
                ("name", format!("m{n}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", client_url.clone()),
                ("advertise-client-urls", client_url),
                ("listen-peer-urls", peer_url.clone()),
                ("initial-advertise-peer-urls", peer_url),
                ("initial-cluster", all.clone()),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
            ];
            let arguments = pairs.iter().map(|(name, value)| format!("--{name}={value}"));
            let arguments = arguments.chain(more.iter().map(|&word| word.to_owned())).collect();
            Member { arguments, client: client.to_string(), process: None }
        });
        let mut etcd = Self { members: members.collect(), dir };
        for n in 0..n_members {
            etcd.run(n)?;
        }
        wait_for("etcd", PATIENCE, async || {
            let health = etcd.ctl(&["endpoint", "health"]).await?;
            ensure!(!health.contains("unhealthy") && health.contains("healthy"), "{health}");
            Ok(())
        })
        .await?;
        Ok(Some(etcd))
    }

    /// Starts a member that is not running.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn run(&mut self, n: usize) -> Result<()> {
        let member = &mut self.members[n];
        let process = Process::spawn("etcd", Command::new("etcd").args(&member.arguments));
        member.process = Some(process?);
        Ok(())
    }

    /// Ends a member at once.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub async fn kill(&mut self, n: usize) -> Result<()> {
        if let Some(mut process) = self.members[n].process.take() {
            process.signal(Signal::KILL)?;
            process.wait_exit(PATIENCE).await?;
        }
        Ok(())
    }

    /// Stops a member without ending it, or lets it go on.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn signal(&self, n: usize, signal: Signal) -> Result<()> {
        self.members[n].process.as_ref().ok_or_else(|| anyhow!("member {n} does not run"))?.signal(signal)
    }

    /// The members and the prefix `/test`, as `--store` takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://{}/test", self.clients())
    }

    /// Where clients reach each member.
    ///
    /// # Errors
    ///
    /// Never: the addresses were made by [`start`](Self::start).
    pub fn client_addrs(&self) -> Result<Vec<SocketAddr>> {
        self.members.iter().map(|member| Ok(member.client.parse()?)).collect()
    }

    /// Runs `etcdctl` and returns what it prints.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub async fn ctl(&self, words: &[&str]) -> Result<String> {
        self.control(&self.clients(), words).await
    }

    /// Writes a snapshot of what the first member has to a file.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn save_snapshot(&self, file: &Path) -> Result<()> {
        let file = file.display().to_string();
        self.control(&self.members[0].client, &["snapshot", "save", &file]).await.map(drop)
    }

    /// Ends all members, and starts them with what a snapshot has.
    ///
    /// # Errors
    ///
    /// If it cannot be restored.
    pub async fn restore_snapshot(&mut self, file: &Path) -> Result<()> {
        let file = file.display().to_string();
        for n in 0..self.members.len() {
            self.kill(n).await?;
            let kept = ["--name=", "--initial-cluster=", "--initial-advertise-peer-urls=", "--data-dir="];
            let kept = |argument: &&String| kept.iter().any(|start| argument.starts_with(start));
            let arguments = self.members[n].arguments.iter().filter(kept).map(String::as_str);
            let words = ["snapshot", "restore", &file].into_iter().chain(arguments).collect::<Vec<_>>();
            fs::remove_dir_all(self.dir.path().join(format!("m{n}")))?;
            let output = self.control(&self.members[n].client, &words).await?;
            ensure!(self.dir.path().join(format!("m{n}")).exists(), "{output}");
        }
        (0..self.members.len()).try_for_each(|n| self.run(n))
    }

    /// Drops the history of all keys.
    ///
    /// # Errors
    ///
    /// If it is refused.
    pub async fn compact(&self) -> Result<()> {
        let status = self.ctl(&["endpoint", "status", "--write-out=json"]).await?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        let done = self.ctl(&["compact", &revision]).await?;
        ensure!(done.contains("compacted"), "{done}");
        Ok(())
    }

    async fn control(&self, endpoints: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]).args(words);
        let output = command.output();
        let output = tokio::time::timeout(CONTROL, output).await.context("etcdctl")?;
        let output = output?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    fn clients(&self) -> String {
        self.members.iter().map(|member| member.client.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// How long a command of `etcdctl` may take.
const CONTROL: Duration = Duration::from_secs(20);
