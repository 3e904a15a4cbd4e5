//! The real clients of the tests of rollouts, and requests that never stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Hold, Library, Worker};

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Client {
    Envoy,
    Grpc(Library),
}

impl Client {
    pub(crate) const ALL: [Self; 4] =
        [Self::Envoy, Self::Grpc(Library::Grpcio), Self::Grpc(Library::GrpcJs), Self::Grpc(Library::GrpcGo)];

    /// The kind of the routes that a client of this kind is given.
    pub(crate) fn route_kind(self) -> &'static str {
        match self {
            Self::Envoy => "HTTPRoute",
            Self::Grpc(_) => "GRPCRoute",
        }
    }

    /// Starts one that follows the server of a world; `None` if its toolchain is missing.
    pub(crate) async fn start(self, world: &World) -> Result<Option<Running>> {
        match self {
            Self::Envoy => Ok(Some(Running::Envoy(Box::new(world.envoy(Variant::Delta).await?)))),
            Self::Grpc(library) => Ok(world.worker(library).await?.map(Box::new).map(Running::Grpc)),
        }
    }
}

/// A host of a listener of a Gateway. gRPC clients do not need the listener's address.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    listener: SocketAddr,
    host: String,
}

impl Place {
    /// A host of the listener on the named port of a world.
    pub(crate) fn new(world: &World, port: &str, host: &str) -> Result<Self> {
        let listener = SocketAddr::from(([127, 0, 0, 1], world.port(port)?));
        Ok(Self { listener, host: host.to_owned() })
    }

    /// The target by which a gRPC client gets the routes of the host.
    fn target(&self) -> String {
        format!("xds:///{}", self.host)
    }

    /// The backend that answers a request by way of an Envoy, if it answers well.
    async fn who(&self) -> Result<String> {
        let answer = Connection::open(self.listener).await?.with_authority(&self.host).get("/").await?;
        ensure!(answer.status == 200, "{}", answer.status);
        Ok(answer.header("x-backend").to_owned())
    }
}

/// A client that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) enum Running {
    Envoy(Box<Envoy>),
    Grpc(Box<Worker>),
}

impl Running {
    /// Waits until all of many requests at a place are answered by this backend.
    pub(crate) async fn expect_all_from(&self, place: &Place, backend: &str) -> Result<()> {
        match self {
            Self::Envoy(_) => {
                wait_for("all answers of one backend", PATIENCE, async || {
                    for _ in 0..N_ASKED {
                        let name = place.who().await?;
                        ensure!(name == backend, "{name} instead of {backend}");
                    }
                    Ok(())
                })
                .await
            }
            Self::Grpc(worker) => {
                let channel = worker.open(&place.target()).await?;
                wait_for("all answers of one backend", PATIENCE, async || {
                    let counts = channel.call(&Calls::new(N_ASKED)).await?;
                    counts.ensure_no_errors()?;
                    ensure!(counts.n_of(backend) == counts.n_answered(), "{counts:?}, not all of {backend}");
                    Ok(())
                })
                .await?;
                channel.close().await
            }
        }
    }

    /// Makes one request at a place and has its routes from then on.
    pub(crate) async fn follow(&self, place: &Place) -> Result<()> {
        wait_for("a route", PATIENCE, async || match self {
            Self::Envoy(_) => place.who().await.map(drop),
            Self::Grpc(worker) => worker.open(&place.target()).await?.who().await.map(drop),
        })
        .await
    }

    /// Begins to make requests at a place, [`PER_SECOND`], as soon as one is answered well.
    pub(crate) async fn load(&self, place: &Place) -> Result<Load<'_>> {
        match self {
            Self::Envoy(_) => OpenLoad::start(place).await.map(Load::Envoy),
            Self::Grpc(worker) => {
                let channel = worker.open(&place.target()).await?;
                wait_for("a route", PATIENCE, async || channel.who().await).await?;
                Ok(Load::Grpc(channel.hold(&Calls::new(0), PER_SECOND).await?))
            }
        }
    }
}

/// Requests of a client that never stop.
pub(crate) enum Load<'c> {
    Envoy(OpenLoad),
    Grpc(Hold<'c>),
}

impl Load<'_> {
    /// How many were sent, and how many of them were not answered well.
    pub(crate) async fn stop(self) -> Result<(u64, u64)> {
        match self {
            Self::Envoy(load) => load.stop().await,
            Self::Grpc(hold) => {
                let counts = hold.stop().await?;
                let n_lost: u64 = counts.errors.values().sum();
                Ok((counts.n_answered() + n_lost, n_lost))
            }
        }
    }
}

/// Requests to an Envoy at a constant rate, whether or not others are answered.
#[derive(Debug)]
pub(crate) struct OpenLoad {
    is_stopped: Arc<AtomicBool>,
    sending: JoinHandle<(u64, u64)>,
}

impl OpenLoad {
    async fn start(place: &Place) -> Result<Self> {
        wait_for("a route", PATIENCE, async || place.who().await).await?;
        let is_stopped = Arc::<AtomicBool>::default();
        let sending = tokio::spawn(send(Arc::new(place.clone()), Arc::clone(&is_stopped)));
        Ok(Self { is_stopped, sending })
    }

    /// How many were sent, and how many of them were not answered well.
    async fn stop(self) -> Result<(u64, u64)> {
        self.is_stopped.store(true, Ordering::Relaxed);
        Ok(self.sending.await?)
    }
}

async fn send(place: Arc<Place>, is_stopped: Arc<AtomicBool>) -> (u64, u64) {
    let n_good = Arc::<AtomicU64>::default();
    let mut n = 0;
    let mut under_way = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !is_stopped.load(Ordering::Relaxed) {
        ticks.tick().await;
        n += 1;
        let (place, n_good) = (Arc::clone(&place), Arc::clone(&n_good));
        under_way.spawn(async move {
            let is_good = place.who().await.is_ok();
            n_good.fetch_add(u64::from(is_good), Ordering::Relaxed);
        });
        while under_way.try_join_next().is_some() {}
    }
    let _ = timeout(LAST_ANSWERS, under_way.join_all()).await;
    (n, n - n_good.load(Ordering::Relaxed))
}

/// How many requests are made each second.
const PER_SECOND: u32 = 50;
/// With a fifth of the requests at another backend, so many in a row miss it once in 70,000 times.
const N_ASKED: u32 = 50;
/// How long requests that are under way at the end may still take.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
