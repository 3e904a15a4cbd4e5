//! The faults.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use tokio::time::sleep;
use xds_replica::etcd::{Etcd as Remote, EtcdOptions};
use xds_replica::{Put, Remote as _, Transaction};
use xds_tests::process::Signal;
use xds_tests::proxy::Link;
use xds_tests::random::Random;
use xds_tests::wait::{PATIENCE, wait_for};

use crate::faults::world::{N_MEMBERS, N_SERVERS, World};

/// What goes wrong.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Fault {
    EtcdMemberKilled,
    EtcdLeaderKilled,
    EtcdMemberStopped,
    EtcdMajorityKilled,
    /// A member is cut off from the others, and clients reach it.
    EtcdMemberIsolated,
    /// The member that leads; its links are silent.
    EtcdLeaderIsolated,
    /// A member gets nothing from the others, and they get what it sends.
    EtcdMemberDeaf,
    EtcdFull,
    ServerKilled,
    ServerStopped,
    /// Longer than the lease of a server that leads.
    LeaderStoppedPastLease,
    EtcdLinkCut,
    EtcdLinkFrozen,
    EtcdLinkSlow,
    PeerLinkCut,
    PeerLinkFrozen,
    FollowerLinkCut,
    FollowerLinkFrozen,
    FollowerKilled,
    FollowerStopped,
    /// All servers and the follower end in order and start again, one after the other: with the other release if there is one, and the
    /// next time with this one.
    AllUpgraded,
    AllKilled,
    /// The clock of a server goes forward by an hour, and back. Not without Debian's `libfaketime`.
    ClockJumped,
}

impl Fault {
    /// Those that a short run has, once each.
    pub(crate) const SHORT: [Self; 18] = [
        Self::EtcdMemberKilled,
        Self::EtcdLeaderKilled,
        Self::EtcdMemberStopped,
        Self::EtcdMemberIsolated,
        Self::EtcdLeaderIsolated,
        Self::EtcdMemberDeaf,
        Self::EtcdFull,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::EtcdLinkCut,
        Self::EtcdLinkFrozen,
        Self::PeerLinkCut,
        Self::PeerLinkFrozen,
        Self::FollowerLinkCut,
        Self::FollowerLinkFrozen,
        Self::FollowerStopped,
        Self::AllUpgraded,
        Self::LeaderStoppedPastLease,
    ];
    /// Those of a long run.
    pub(crate) const ALL: [Self; 23] = [
        Self::EtcdMemberKilled,
        Self::EtcdLeaderKilled,
        Self::EtcdMemberStopped,
        Self::EtcdMemberIsolated,
        Self::EtcdLeaderIsolated,
        Self::EtcdMemberDeaf,
        Self::EtcdMajorityKilled,
        Self::EtcdFull,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::LeaderStoppedPastLease,
        Self::EtcdLinkCut,
        Self::EtcdLinkFrozen,
        Self::EtcdLinkSlow,
        Self::PeerLinkCut,
        Self::PeerLinkFrozen,
        Self::FollowerLinkCut,
        Self::FollowerLinkFrozen,
        Self::FollowerKilled,
        Self::FollowerStopped,
        Self::AllUpgraded,
        Self::AllKilled,
        Self::ClockJumped,
    ];

    /// Has the fault happen, and end. It lasts for a random time up to `at_most`.
    ///
    /// # Errors
    ///
    /// If a process cannot be ended or started again.
    pub(crate) async fn run(self, world: &mut World, random: &mut Random, at_most: Duration) -> Result<()> {
        let at_most = u64::try_from(at_most.as_millis())?;
        let lasts = Duration::from_millis(random.within(200..at_most));
        let member = usize::try_from(random.within(0..N_MEMBERS as u64))?;
        let server = usize::try_from(random.within(0..N_SERVERS as u64))?;
        match self {
            Self::EtcdMemberKilled => kill_members(world, &[member], lasts).await,
            Self::EtcdLeaderKilled => {
                let leader = world.etcd_leader().await?;
                kill_members(world, &[leader], lasts).await
            }
            Self::EtcdMajorityKilled => kill_members(world, &[member, (member + 1) % N_MEMBERS], lasts).await,
            Self::EtcdMemberStopped => {
                world.etcd.signal(member, Signal::STOP)?;
                sleep(lasts).await;
                world.etcd.signal(member, Signal::CONT)
            }
            Self::EtcdMemberIsolated => isolate(world, member, Link::Cut, lasts).await,
            Self::EtcdLeaderIsolated => isolate(world, world.etcd_leader().await?, Link::Frozen, lasts).await,
            Self::EtcdMemberDeaf => {
                world.etcd.deafen_member(member);
                sleep(lasts).await;
                world.etcd.link_member(member, Link::Open);
                Ok(())
            }
            Self::EtcdFull => fill(world, lasts).await,
            Self::ServerKilled => restart(world, &[server]).await,
            Self::FollowerKilled => restart(world, &[N_SERVERS]).await,
            Self::FollowerStopped => stop(world, N_SERVERS, lasts).await,
            Self::AllUpgraded => upgrade(world).await,
            Self::AllKilled => {
                kill_members(world, &[0, 1, 2], Duration::ZERO).await?;
                restart(world, &[0, 1, 2, N_SERVERS]).await
            }
            Self::ClockJumped => jump(world, server, lasts).await,
            Self::ServerStopped => stop(world, server, lasts).await,
            Self::LeaderStoppedPastLease => {
                let leader = world.leader().await.unwrap_or(server);
                stop(world, leader, PAST_LEASE).await
            }
            Self::EtcdLinkCut
            | Self::EtcdLinkFrozen
            | Self::EtcdLinkSlow
            | Self::PeerLinkCut
            | Self::PeerLinkFrozen
            | Self::FollowerLinkCut
            | Self::FollowerLinkFrozen => {
                self.links(world, server, false);
                sleep(lasts).await;
                self.links(world, server, true);
                Ok(())
            }
        }
    }

    /// Breaks the links that the fault is about, or opens them again.
    fn links(self, world: &World, server: usize, is_over: bool) {
        let link = |broken: Link| if is_over { Link::Open } else { broken };
        match self {
            Self::EtcdLinkCut => world.link_to_etcd(server, link(Link::Cut)),
            Self::EtcdLinkFrozen => world.link_to_etcd(server, link(Link::Frozen)),
            Self::EtcdLinkSlow => world.link_to_etcd(server, link(Link::Slow(SLOW))),
            Self::PeerLinkCut => world.link_to_peer(server, link(Link::Cut)),
            Self::PeerLinkFrozen => world.link_to_peer(server, link(Link::Frozen)),
            Self::FollowerLinkCut => world.link_to_upstream(link(Link::Cut)),
            Self::FollowerLinkFrozen => world.link_to_upstream(link(Link::Frozen)),
            Self::EtcdMemberKilled
            | Self::EtcdLeaderKilled
            | Self::EtcdMemberStopped
            | Self::EtcdMajorityKilled
            | Self::EtcdMemberIsolated
            | Self::EtcdLeaderIsolated
            | Self::EtcdMemberDeaf
            | Self::EtcdFull
            | Self::ServerKilled
            | Self::ServerStopped
            | Self::LeaderStoppedPastLease
            | Self::FollowerKilled
            | Self::FollowerStopped
            | Self::AllUpgraded
            | Self::AllKilled
            | Self::ClockJumped => {}
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

async fn kill_members(world: &mut World, members: &[usize], lasts: Duration) -> Result<()> {
    for member in members {
        world.etcd.kill(*member).await?;
    }
    sleep(lasts).await;
    members.iter().try_for_each(|member| world.etcd.run(*member))
}

async fn isolate(world: &World, member: usize, link: Link, lasts: Duration) -> Result<()> {
    world.etcd.link_member(member, link);
    sleep(lasts).await;
    world.etcd.link_member(member, Link::Open);
    Ok(())
}

async fn stop(world: &World, server: usize, lasts: Duration) -> Result<()> {
    world.servers[server].signal(Signal::STOP)?;
    sleep(lasts).await;
    world.servers[server].signal(Signal::CONT)
}

async fn restart(world: &mut World, servers: &[usize]) -> Result<()> {
    for server in servers {
        world.servers[*server].kill().await?;
    }
    for server in servers {
        world.servers[*server].restart().await?;
    }
    Ok(())
}

async fn upgrade(world: &mut World) -> Result<()> {
    world.is_other_release = !world.is_other_release;
    let program = world.other_release.clone().filter(|_| world.is_other_release);
    for server in &mut world.servers {
        let status = server.stop().await?;
        ensure!(status.success(), "{status}\n{}", server.log());
        server.restart_as(program.clone()).await?;
        server.wait_ready().await?;
    }
    Ok(())
}

/// The server starts again with a clock that can be set, which then jumps while it runs.
async fn jump(world: &mut World, server: usize, lasts: Duration) -> Result<()> {
    let offset = world.dir.path().join(format!("clock-{server}"));
    fs::write(&offset, "+0\n")?;
    let file = offset.display().to_string();
    let clock = [
        ("LD_PRELOAD", FAKETIME),
        ("FAKETIME_TIMESTAMP_FILE", &file),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    world.servers[server].restart_with_env(&clock).await?;
    for jumped in ["+3600\n", "+0\n"] {
        sleep(lasts / 2).await;
        fs::write(&offset, jumped)?;
    }
    sleep(lasts / 2).await;
    world.servers[server].restart_with_env(&[("LD_PRELOAD", "")]).await
}

/// Somebody else fills the etcd. Then its operator does what the documentation says.
async fn fill(world: &World, lasts: Duration) -> Result<()> {
    let other = Remote::new(world.etcd.url().replace("/test", "/other").parse()?, EtcdOptions::default());
    for n in 0.. {
        ensure!(n < 100, "the quota has no effect");
        let put = Put { key: format!("{n:03}"), value: Bytes::from(vec![7; 1_000_000]) };
        if other.write(Transaction { puts: vec![put], ..Transaction::default() }).await.is_err() {
            break;
        }
    }
    sleep(lasts).await;
    wait_for("an etcd with space", PATIENCE, async || {
        world.etcd.ctl(&["del", "--prefix", "/other"]).await?;
        // Its own compaction each second may be the one that is needed.
        drop(world.etcd.compact().await);
        world.etcd.ctl(&["defrag"]).await?;
        world.etcd.ctl(&["alarm", "disarm"]).await?;
        let alarms = world.etcd.ctl(&["alarm", "list"]).await?;
        ensure!(!alarms.contains("NOSPACE"), "{alarms}");
        Ok(())
    })
    .await
}

/// Where Debian's package `libfaketime` has the library for programs with threads.
pub(crate) const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// A lease lasts for 15 s.
const PAST_LEASE: Duration = Duration::from_secs(18);
/// Each way, for each piece of at most 16 KiB.
const SLOW: Duration = Duration::from_millis(150);
