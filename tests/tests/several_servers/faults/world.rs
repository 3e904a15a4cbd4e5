//! The processes of the run: three members of an etcd, three servers that ask each other, and one that follows them, with links that can be
//! cut between all of them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::etcd::Etcd;
use xds_tests::names::Names;
use xds_tests::proxy::{Link, Proxy};
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

/// All processes, and the links between them. Dropping it kills the processes.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) etcd: Etcd,
    /// The servers that share the store, and last the one that follows them.
    pub(crate) servers: Vec<Server>,
    /// Of each server that shares the store: its links to the members of the etcd.
    to_etcd: Vec<Vec<Proxy>>,
    /// The links by which other servers reach each server.
    to_peer: Vec<Proxy>,
    /// The links by which the follower reaches each server.
    to_upstream: Vec<Proxy>,
    /// One name for all servers.
    names: Names,
    /// The program of another release, if `XDS_FAULTS_OTHER_RELEASE` has its path.
    pub(crate) other_release: Option<PathBuf>,
    /// Whether all servers run that, outside of a rolling restart.
    pub(crate) is_other_release: bool,
    /// The key of the store, and files of tests.
    pub(crate) dir: TempDir,
    _certificates: CertificateFiles,
}

/// The addresses of a server, which stay when it starts again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) admin: SocketAddr,
    pub(crate) xds: SocketAddr,
}

impl World {
    /// Starts everything; `None` without an etcd.
    pub(crate) async fn start() -> Result<Option<Self>> {
        let Some(etcd) = Etcd::start_linked(N_MEMBERS, &[QUOTA]).await? else { return Ok(None) };
        let (dir, certificates) = (TempDir::new()?, CertificateFiles::new().await?);
        fs::write(dir.path().join("key"), "5a".repeat(32))?;
        // A clock that goes wrong by an hour is no reason to refuse a certificate.
        certificates.issue_for("server", &["localhost", "127.0.0.1"], "24h").await?;
        let (mut to_etcd, mut to_peer, mut to_upstream) = (Vec::new(), Vec::new(), Vec::new());
        let mut setups = Vec::new();
        let port = free_addr()?.port();
        let setup = |host: Ipv4Addr| {
            anyhow::Ok(
                Setup::new()?.xds_at((host, port).into()).fixed_admin_port()?.arg("--drain-timeout=3s"),
            )
        };
        for (n, host) in HOSTS[..N_SERVERS].iter().enumerate() {
            let peer = free_addr()?;
            let mut links = Vec::new();
            for member in etcd.client_addrs()? {
                links.push(Proxy::start(member).await?);
            }
            let members = links.iter().map(|link| link.addr().to_string()).collect::<Vec<_>>().join(",");
            let (for_peers, for_follower) = (Proxy::start(peer).await?, Proxy::start(peer).await?);
            setups.push(
                linked(setup(*host)?, &certificates)
                    .arg(format!("--store=etcd://{members}/test"))
                    .arg(format!("--store-key-file={}", dir.path().join("key").display()))
                    .arg("--store-timeout=3s")
                    .arg(format!("--instance-id=server-{n}"))
                    .arg(format!("--peer-listen={peer}"))
                    .arg(format!("--peer-advertise={}", for_peers.addr())),
            );
            to_etcd.push(links);
            to_peer.push(for_peers);
            to_upstream.push(for_follower);
        }
        let upstream = to_upstream.iter().map(|link: &Proxy| link.addr().to_string()).collect::<Vec<_>>();
        let follower = linked(setup(HOSTS[N_SERVERS])?, &certificates);
        setups.push(follower.arg(format!("--upstream={}", upstream.join(","))).arg("--instance-id=follower"));
        let mut servers = Vec::new();
        for setup in setups {
            let server = Server::start_with(setup).await?;
            server.wait_ready().await?;
            servers.push(server);
        }
        Ok(Some(Self {
            etcd,
            servers,
            to_etcd,
            to_peer,
            to_upstream,
            names: Names::start(&HOSTS).await?,
            other_release: std::env::var_os("XDS_FAULTS_OTHER_RELEASE").map(PathBuf::from),
            is_other_release: false,
            dir,
            _certificates: certificates,
        }))
    }

    /// All servers, as gRPC clients are told of them: a name that has the addresses of all.
    pub(crate) fn target(&self) -> String {
        self.names.target(self.servers[0].xds().port())
    }

    /// The addresses of all servers, the follower last.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.servers.iter().map(|server| Address { admin: server.admin(), xds: server.xds() }).collect()
    }

    /// Changes the links of a server to all members of the etcd.
    pub(crate) fn link_to_etcd(&self, server: usize, link: Link) {
        self.to_etcd[server].iter().for_each(|proxy| proxy.set(link));
    }

    /// Changes the links by which the other servers reach a server.
    pub(crate) fn link_to_peer(&self, server: usize, link: Link) {
        self.to_peer[server].set(link);
    }

    /// Changes the links of the follower to all servers.
    pub(crate) fn link_to_upstream(&self, link: Link) {
        self.to_upstream.iter().for_each(|proxy| proxy.set(link));
    }

    /// The number of the server that leads; `None` if none does now.
    pub(crate) async fn leader(&self) -> Option<usize> {
        for server in &self.servers[..N_SERVERS] {
            let Ok(list) = server.get_json("/v1/replicas").await else { continue };
            let mut all = list["replicas"].as_array().into_iter().flatten();
            if let Some(leader) = all.find(|one| one["leads"] == true) {
                return leader["id"].as_str()?.strip_prefix("server-")?.parse().ok();
            }
        }
        None
    }

    /// The number of the member that leads the etcd.
    pub(crate) async fn etcd_leader(&self) -> Result<usize> {
        // After some faults the members need a moment to choose one.
        wait_for("a member that leads", PATIENCE, async || {
            let status = self.etcd.ctl(&["endpoint", "status", "--write-out=json"]).await?;
            let line = status.lines().find(|line| line.starts_with('[')).context("no status")?;
            let members: Value = serde_json::from_str(line)?;
            let members = members.as_array().context("members")?;
            ensure!(members.len() == N_MEMBERS, "{members:?}");
            let leads = |one: &Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
            members.iter().position(leads).context("no member leads")
        })
        .await
    }
}

fn linked(setup: Setup, certificates: &CertificateFiles) -> Setup {
    let file = |flag: &str, name: &str| format!("--peer-{flag}={}", certificates.path(name));
    setup.arg(file("cert", "server.crt")).arg(file("key", "server.key")).arg(file("ca", "ca.crt"))
}

/// The servers that share the store.
pub(crate) const N_SERVERS: usize = 3;
pub(crate) const N_MEMBERS: usize = 3;
/// Where each server listens for clients, the follower last: gRPC clients look up addresses, not ports.
const HOSTS: [Ipv4Addr; N_SERVERS + 1] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];
/// So small that a test fills it within seconds.
const QUOTA: &str = "--quota-backend-bytes=33554432";
