//! A real etcd of one or three members: Debian's packages `etcd-server` and `etcd-client`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::etcd_links::{PeerPort, UNKNOWN};
use crate::process::{Process, Signal};
use crate::proxy::Link;
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
    /// Where the others reach it; `None` if they do so without links.
    port: Option<PeerPort>,
    /// As etcd writes it; empty if there are no links.
    id: String,
    process: Option<Process>,
}

impl Etcd {
    /// Starts `n_members` with more arguments for each, and waits until they answer; `None` without an etcd.
    ///
    /// # Errors
    ///
    /// If it does not start, or there is no etcd and [every client is required](tools::require_all).
    pub async fn start(n_members: usize, more: &[&str]) -> Result<Option<Self>> {
        let peers = (0..n_members).map(|_| Ok((free_addr()?, None))).collect::<Result<Vec<_>>>()?;
        Self::start_at(peers, more).await
    }

    /// As [`start`](Self::start), with links between the members that can be broken.
    ///
    /// # Errors
    ///
    /// As for `start`.
    pub async fn start_linked(n_members: usize, more: &[&str]) -> Result<Option<Self>> {
        let mut peers = Vec::new();
        for _ in 0..n_members {
            let peer = free_addr()?;
            peers.push((peer, Some(PeerPort::start(peer).await?)));
        }
        let Some(mut etcd) = Self::start_at(peers, more).await? else { return Ok(None) };
        let list = etcd.ctl(&["member", "list"]).await?;
        for (n, member) in etcd.members.iter_mut().enumerate() {
            let name = format!("m{n}");
            let mut lines = list.lines().map(|line| line.split(", ").collect::<Vec<_>>());
            let line = lines.find(|words| words.get(2) == Some(&name.as_str()));
            member.id = line.with_context(|| format!("no {name} in {list}"))?[0].to_owned();
        }
        Ok(Some(etcd))
    }

    /// Starts members that listen for the others at these addresses.
    async fn start_at(peers: Vec<(SocketAddr, Option<PeerPort>)>, more: &[&str]) -> Result<Option<Self>> {
        if !tools::is_present("etcd", "etcd", "--version")?
            || !tools::is_present("etcd", "etcdctl", "version")?
        {
            return Ok(None);
        }
        let dir = TempDir::with_prefix("xds-etcd-")?;
        let url = |(peer, port): &(SocketAddr, Option<PeerPort>)| {
            format!("http://{}", port.as_ref().map_or(*peer, PeerPort::addr))
        };
        let all = peers.iter().enumerate().map(|(n, peer)| format!("m{n}={}", url(peer)));
        let all = all.collect::<Vec<_>>().join(",");
        let n_members = peers.len();
        let members = peers.into_iter().enumerate().map(|(n, peer)| {
            let (client, advertised) = (free_addr()?, url(&peer));
            let client_url = format!("http://{client}");
            let data = dir.path().join(format!("m{n}"));
            let pairs = [
                ("name", format!("m{n}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", client_url.clone()),
                ("advertise-client-urls", client_url),
                ("listen-peer-urls", format!("http://{}", peer.0)),
                ("initial-advertise-peer-urls", advertised),
                ("initial-cluster", all.clone()),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
            ];
            let arguments = pairs.iter().map(|(name, value)| format!("--{name}={value}"));
            let arguments = arguments.chain(more.iter().map(|&word| word.to_owned())).collect();
            let (client, port) = (client.to_string(), peer.1);
            Ok(Member { arguments, client, port, id: String::new(), process: None })
        });
        let mut etcd = Self { members: members.collect::<Result<_>>()?, dir };
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

    /// Breaks the links between a member and the others, both ways, or opens them again. Clients still reach it.
    pub fn link_member(&self, n: usize, link: Link) {
        self.set_links(n, link, link);
    }

    /// Has a member get nothing from the others, while they get what it sends. [`link_member`](Self::link_member) ends it.
    pub fn deafen_member(&self, n: usize) {
        // Each of two members sends in requests that it makes, and in answers to requests of the other one that do not end.
        self.set_links(n, Link::FrozenThere, Link::FrozenBack);
    }

    /// Sets the links that others open to a member, and those that it opens.
    fn set_links(&self, n: usize, to: Link, from: Link) {
        for (other, member) in self.members.iter().enumerate() {
            let Some(port) = &member.port else { continue };
            if other == n {
                self.members.iter().for_each(|sender| port.set(&sender.id, to));
                port.set(UNKNOWN, to);
            } else {
                port.set(&self.members[n].id, from);
                port.set(UNKNOWN, from);
            }
        }
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
