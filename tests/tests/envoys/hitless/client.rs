//! The clients, and what they have in common: requests all the time, and answers to be judged.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::time::timeout;
use xds_tests::config;
use xds_tests::envoy::Envoy;
use xds_tests::load::{HttpLoad, Tally, hold_all};
use xds_tests::server::{Variant, cli};
use xds_tests::transitions::{
    LISTENERS, N_CLUSTER_NAMES_OF_ENVOY, N_CLUSTER_NAMES_OF_GRPC, Outside, State, Target, Transition,
};
use xds_tests::wait::wait_for;
use xds_tests::worker::{Calls, Channel, Hold, Library};

use crate::hitless::scoped::scoped;
use crate::hitless::vhds::on_demand;

/// A kind of client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// An Envoy.
    Envoy {
        /// How it gets routes.
        routes: Routes,
        /// True if it has a stream for each type, cluster of endpoints and route configuration, instead of one for everything.
        is_per_type: bool,
        /// The variant that it speaks.
        variant: Variant,
    },
    /// A gRPC client.
    Grpc(Library),
}

/// How an Envoy gets routes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Routes {
    /// A route configuration for each listener.
    Whole,
    /// By scopes, each with a route configuration of its own.
    Scoped,
    /// Virtual hosts one by one, when the first request for each comes; there is that in incremental only.
    OnDemand,
}

impl Kind {
    /// The clients of the whole matrix.
    pub(crate) const ALL: [Self; 13] = [
        Self::ads(Routes::Whole, Variant::Sotw),
        Self::ads(Routes::Whole, Variant::Delta),
        Self::per_type(Routes::Whole, Variant::Sotw),
        Self::per_type(Routes::Whole, Variant::Delta),
        Self::ads(Routes::Scoped, Variant::Sotw),
        Self::ads(Routes::Scoped, Variant::Delta),
        Self::per_type(Routes::Scoped, Variant::Sotw),
        Self::per_type(Routes::Scoped, Variant::Delta),
        Self::ads(Routes::OnDemand, Variant::Delta),
        Self::per_type(Routes::OnDemand, Variant::Delta),
        Self::Grpc(Library::Grpcio),
        Self::Grpc(Library::GrpcJs),
        Self::Grpc(Library::GrpcGo),
    ];

    /// An Envoy with one stream for everything.
    pub(crate) const fn ads(routes: Routes, variant: Variant) -> Self {
        Self::Envoy { routes, is_per_type: false, variant }
    }

    /// An Envoy with a stream for each type.
    pub(crate) const fn per_type(routes: Routes, variant: Variant) -> Self {
        Self::Envoy { routes, is_per_type: true, variant }
    }

    /// Returns `true` if the client is an Envoy with a stream for each type.
    pub(crate) fn is_per_type(self) -> bool {
        matches!(self, Self::Envoy { is_per_type: true, .. })
    }

    fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc(_))
    }

    /// The configuration as this kind of client takes it.
    pub(crate) fn resources(self, state: &State, outside: &Outside) -> Vec<Value> {
        let Self::Envoy { routes, is_per_type, variant } = self else { return state.for_grpc(outside) };
        let mut resources = match routes {
            Routes::Whole => state.for_envoy(outside),
            Routes::Scoped => scoped(state, outside),
            Routes::OnDemand => on_demand(state.for_envoy(outside)),
        };
        if is_per_type {
            let source = source(variant);
            resources.iter_mut().for_each(|resource| config::replace_ads(resource, &source));
        }
        resources
    }

    /// A bootstrap for an Envoy of this kind.
    pub(crate) async fn bootstrap(self, xds: SocketAddr) -> Result<String> {
        let xds = xds.to_string();
        let mut args = vec!["bootstrap", "envoy", "--node-id", NODE, "--xds-address", &xds];
        let Self::Envoy { is_per_type, variant, .. } = self else { bail!("{self} is no Envoy") };
        if !is_per_type && variant == Variant::Delta {
            args.push("--delta");
        }
        let bootstrap = cli(&args).await?;
        if !is_per_type {
            return Ok(bootstrap);
        }
        let mut bootstrap = serde_json::from_str(&bootstrap)?;
        config::without_ads(&mut bootstrap, &source(variant));
        Ok(bootstrap.to_string())
    }

    /// The kinds of changes that make a difference to the client.
    pub(crate) fn transitions(self) -> &'static [Transition] {
        match self {
            Self::Envoy { routes: Routes::Scoped, .. } => Transition::of_scoped(),
            Self::Envoy { routes: Routes::Whole | Routes::OnDemand, .. } => Transition::of_envoy(),
            Self::Grpc(_) => Transition::of_grpc(),
        }
    }

    /// Returns `true` if the server cannot prevent this error of a call: grpc-go 1.85 uses new routes a moment before its load balancing
    /// knows their clusters.
    pub(crate) fn fails_by_itself(self, error: &str) -> bool {
        let by_itself = match self {
            Self::Grpc(Library::GrpcGo) => "unknown cluster selected for RPC",
            // Calls to a cluster that is new to it, if two connections in a row end before it hears of that.
            Self::Grpc(Library::Grpcio) => "xDS call failed with no responses received",
            Self::Grpc(_) | Self::Envoy { .. } => return false,
        };
        error.contains(by_itself)
    }

    /// How many names there are for clusters.
    pub(crate) fn n_cluster_names(self) -> u64 {
        match self {
            Self::Envoy { .. } => N_CLUSTER_NAMES_OF_ENVOY,
            Self::Grpc(_) => N_CLUSTER_NAMES_OF_GRPC,
        }
    }

    /// The phases of a change: how many times the server has to hear from the client, at most, until it has accepted everything.
    pub(crate) fn n_phases(self, transition: Transition) -> u32 {
        let (is_grpc, asks_anew) = (self.is_grpc(), self.is_per_type());
        // An incremental client confirms removals.
        let is_delta = matches!(self, Self::Envoy { variant: Variant::Delta, .. });
        match transition {
            Transition::ShiftWeights
            | Transition::MoveHost
            | Transition::MoveListener
            | Transition::SwapEndpoints
            | Transition::ChangeCertificate
            | Transition::ChangeFilter => 1,
            Transition::RenameScopes | Transition::ToggleScope => 2,
            // A changed cluster asks for its endpoints on a new stream.
            Transition::ChangeSettings => 1 + u32::from(asks_anew),
            // The route first; the clusters are learned from it.
            Transition::AddCluster if is_grpc => 1,
            // The routes may move to a cluster that the client does not use yet. It drops the previous one when it has the endpoints of the
            // next, but may say so only after it has accepted them. Then the server reports that the cluster is gone.
            Transition::RemoveCluster | Transition::RenameCluster | Transition::RenameAllClusters
                if is_grpc =>
            {
                4
            }
            Transition::RemoveCluster | Transition::RenameFilter => 2,
            Transition::RenameRoutes | Transition::RenameCertificate | Transition::RenameTrust => {
                2 + u32::from(is_delta)
            }
            // The cluster, its endpoints, the route …
            Transition::AddCluster => 3,
            // … and what is gone.
            Transition::RenameCluster | Transition::RenameAllClusters => 4,
            // The listener, the route, the cluster, its endpoints, and what is gone.
            Transition::ReplaceEverything if is_grpc => 5,
            // Clusters leave after the routes, and their secret after them if the client does not drop it in the same moment.
            Transition::ReplaceEverything => 6,
        }
    }

    /// Returns `true` if a change is over only when the client has drained connections that go by what was before.
    pub(crate) fn drains(self, transition: Transition) -> bool {
        !self.is_grpc() && transition == Transition::ReplaceEverything
    }

    /// The targets that a client can ask for.
    pub(crate) fn targets(self) -> Vec<Target> {
        match self {
            Self::Envoy { .. } => Target::all().collect(),
            Self::Grpc(_) => Target::all_of_grpc().collect(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Envoy { routes, is_per_type, variant } => {
                let routes = match routes {
                    Routes::Whole => "",
                    Routes::Scoped => "scoped routes, ",
                    Routes::OnDemand => "virtual hosts on demand, ",
                };
                let streams = if *is_per_type { "per type" } else { "ADS" };
                write!(f, "Envoy, {routes}{streams}, {variant}")
            }
            Self::Grpc(library) => write!(f, "{library}"),
        }
    }
}

fn source(variant: Variant) -> Value {
    config::api_source(if variant == Variant::Delta { "DELTA_GRPC" } else { "GRPC" }, &[])
}

/// A running client. Calls of a worker end with each transition and begin with the next; requests through Envoy never end.
pub(crate) enum Client<'w> {
    Envoy { envoy: Box<Envoy>, load: HttpLoad },
    Grpc { channels: [Channel<'w>; LISTENERS.len()], holds: Vec<(Target, Hold<'w>)> },
}

impl Client<'_> {
    /// Sees to it that requests are made.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        if let Self::Grpc { channels, holds } = self {
            *holds = hold_all(channels, PER_SECOND).await?;
        }
        Ok(())
    }

    /// Returns what became of the requests since [`begin`](Self::begin).
    pub(crate) async fn end(&mut self) -> Result<Tally> {
        match self {
            Self::Envoy { load, .. } => Ok(load.take()),
            Self::Grpc { holds, .. } => {
                let mut tally = Tally::new();
                for (target, hold) in holds.drain(..) {
                    tally.insert(target, hold.stop().await?);
                }
                Ok(tally)
            }
        }
    }

    /// Waits until the client uses nothing but this configuration, for as long as it takes to connect and to drain.
    pub(crate) async fn wait_uses(&self, kind: Kind, state: &State, backends: &[String]) -> Result<()> {
        wait_for("the answers of the new configuration", WARMING, async || {
            if let Self::Envoy { envoy, .. } = self {
                // Connections of listeners that were replaced have the routes of those until they are closed.
                for stat in ["total_filter_chains_draining", "total_listeners_draining"] {
                    let name = format!("listener_manager.{stat}");
                    let n = timeout(ADMIN_LIMIT, envoy.stat(&name))
                        .await
                        .context("no answer of the admin interface")??;
                    ensure!(n == 0, "{stat} is {n}");
                }
            }
            for target in kind.targets() {
                let answer = self.who(target).await?;
                let expected = state.answers(target);
                let is_good = expected.iter().any(|backend| backends[*backend] == answer);
                ensure!(is_good, "{target} is answered by {answer} instead of {expected:?}");
            }
            Ok(())
        })
        .await
    }

    async fn who(&self, target: Target) -> Result<String> {
        match self {
            Self::Envoy { load, .. } => load.who(target).await,
            Self::Grpc { channels, .. } => {
                let calls = Calls { method: target.path(), ..Calls::new(1) };
                let counts = channels[target.listener].call(&calls).await?;
                counts.ensure_no_errors()?;
                counts.names.into_keys().next().context("no answer")
            }
        }
    }

    /// The end of the client's log.
    pub(crate) fn log(&self) -> String {
        match self {
            Self::Envoy { envoy, .. } => envoy.log().to_string(),
            Self::Grpc { .. } => String::new(),
        }
    }
}

/// The node id of the client.
pub(crate) const NODE: &str = "hitless";
/// Requests each second.
pub(crate) const PER_SECOND: u32 = 300;
/// Longer than Envoy's admin interface ever took, on a busy machine.
const ADMIN_LIMIT: Duration = Duration::from_secs(5);
/// Several times what Envoy takes to drain in these tests.
const WARMING: Duration = Duration::from_secs(15);
