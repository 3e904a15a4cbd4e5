//! A server that speaks TLS, and real clients of it that send requests while something is done to their credentials.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::time::{MissedTickBehavior, interval};

use crate::backend::Backend;
use crate::certificate_files::CertificateFiles;
use crate::config::{self, ConfigDir};
use crate::envoy::Envoy;
use crate::http::Connection;
use crate::server::{Server, Setup, cli};
use crate::wait::{PATIENCE, wait_for};
use crate::worker::{Calls, Channel, Library, Worker};

/// A server, its certificates and those of its clients, and two backends. The clients are `edge-1`.
#[derive(Debug)]
pub struct Secured {
    /// The authority and what it issued.
    pub certificates: CertificateFiles,
    /// The directory that the server watches.
    pub dir: ConfigDir,
    /// The server.
    pub server: Server,
    /// The backend that is served first.
    pub first: Backend,
    /// Another backend.
    pub second: Backend,
    resources: &'static str,
}

/// A kind of client.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An Envoy, with these flags of `bootstrap`.
    Envoy(&'static [&'static str]),
    /// A proxyless client, which looks for changed files every second.
    Grpc(Library),
}

/// A client.
#[derive(Debug)]
pub enum Client {
    /// An Envoy.
    Envoy(Box<Envoy>),
    /// A proxyless client.
    Grpc(Box<Worker>),
}

/// The requests of a client.
#[derive(Debug)]
pub enum Requests<'c> {
    /// Through the listener of an Envoy.
    Http(SocketAddr),
    /// On one channel.
    Grpc(Channel<'c>),
}

impl Secured {
    /// Starts a server whose resources are in the file `resources` and lead to the first backend. `prepare` makes the other files, and
    /// gives the server its flags.
    ///
    /// # Errors
    ///
    /// If the server does not become ready.
    pub async fn start(
        resources: &'static str,
        prepare: impl AsyncFnOnce(&CertificateFiles, &ConfigDir, Setup) -> Result<Setup>,
    ) -> Result<Self> {
        let secured = Self::begin(resources, prepare).await?;
        secured.server.wait_ready().await?;
        Ok(secured)
    }

    /// The same with a server that may have to wait for something before it is ready.
    ///
    /// # Errors
    ///
    /// If the server does not listen.
    pub async fn begin(
        resources: &'static str,
        prepare: impl AsyncFnOnce(&CertificateFiles, &ConfigDir, Setup) -> Result<Setup>,
    ) -> Result<Self> {
        let certificates = CertificateFiles::new().await?;
        let (first, second) = (Backend::start("first").await?, Backend::start("second").await?);
        let dir = ConfigDir::new()?;
        dir.write_resources(resources, &config::one_backend(first.addr()))?;
        let setup = prepare(&certificates, &dir, Setup::new()?.watch(dir.path())).await?;
        let server = Server::start_with(setup).await?;
        Ok(Self { certificates, dir, server, first, second, resources })
    }

    /// Has all requests go to a backend.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn serve(&self, backend: &Backend) -> Result<()> {
        self.dir.write_resources(self.resources, &config::one_backend(backend.addr())).map(drop)
    }

    /// Has all requests go to the second backend.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn switch(&self) -> Result<()> {
        self.serve(&self.second)
    }

    /// The answer of `get` for the clusters of a node `raw` with these flags.
    ///
    /// # Errors
    ///
    /// If it is refused.
    pub async fn get(&self, flags: &[String]) -> Result<String> {
        let xds = self.server.xds().to_string();
        let mut args = vec!["get", "--node-id", "raw", "--type", "clusters", "--xds-address", &xds];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    }

    /// Waits until the certificate of the xDS port has been replaced so often that it is this one; the first is 1.
    ///
    /// # Errors
    ///
    /// If it is not in the end.
    pub async fn wait_generation(&self, generation: u64) -> Result<()> {
        self.wait_metric(GENERATION, generation).await
    }

    /// A client with the certificate `client`, and with these flags of `bootstrap`; `None` if its toolchain is missing.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn client(&self, kind: Kind, flags: &[&str]) -> Result<Option<Client>> {
        match kind {
            Kind::Envoy(more) => {
                let flags = [flags, more].concat();
                let (envoy, _) = self.certificates.envoy(&self.server, &flags).await?;
                Ok(Some(Client::Envoy(Box::new(envoy))))
            }
            Kind::Grpc(library) => {
                let mut all = self.certificates.bootstrap_flags();
                all.extend(flags.iter().map(|flag| (*flag).to_owned()));
                let bootstrap = self.certificates.bootstrap(&self.server, "grpc", &all).await?;
                let worker = Worker::start(library, &bootstrap.replace("\"60s\"", "\"1s\"")).await?;
                Ok(worker.map(|worker| Client::Grpc(Box::new(worker))))
            }
        }
    }

    /// Waits until a metric of the server is at least so much.
    ///
    /// # Errors
    ///
    /// If it is not in the end.
    pub async fn wait_metric(&self, name: &str, least: u64) -> Result<()> {
        let found = wait_for(name, LONG, async || {
            let found = self.server.metric(name).await?;
            ensure!(found >= least, "{found}");
            Ok(())
        });
        found.await.with_context(|| self.server.log().to_string())
    }

    /// Waits until streams were refused or ended for this reason.
    ///
    /// # Errors
    ///
    /// If fewer were in the end.
    pub async fn wait_refused(&self, reason: &str, least: u64) -> Result<()> {
        self.wait_metric(&format!("xds_refused_total{{reason=\"{reason}\"}}"), least).await
    }

    /// Waits until handshakes failed for this reason.
    ///
    /// # Errors
    ///
    /// If none did in the end.
    pub async fn wait_handshake_failure(&self, reason: &str) -> Result<()> {
        let name = format!("xds_tls_handshake_failures_total{{listener=\"xds\",reason=\"{reason}\"}}");
        self.wait_metric(&name, 1).await
    }
}

impl Client {
    /// Sends requests until one is answered by this backend, which shows that the client has its configuration.
    ///
    /// # Errors
    ///
    /// If none is in the end. A client that the server has refused needs [more time](Self::requests_after_refusal).
    pub async fn requests(&self, world: &Secured, backend: &Backend) -> Result<Requests<'_>> {
        self.requests_within(PATIENCE, world, backend).await
    }

    /// The same for a client that the server has refused, which waits before it tries again.
    ///
    /// # Errors
    ///
    /// As for `requests`.
    pub async fn requests_after_refusal(&self, world: &Secured, backend: &Backend) -> Result<Requests<'_>> {
        self.requests_within(LONG, world, backend).await
    }

    async fn requests_within(
        &self,
        limit: Duration,
        world: &Secured,
        backend: &Backend,
    ) -> Result<Requests<'_>> {
        let requests = match self {
            Self::Envoy(envoy) => {
                let address =
                    wait_for("the listener", limit, async || envoy.wait_listener("web").await).await;
                Requests::Http(address.with_context(|| world.server.log().to_string())?)
            }
            Self::Grpc(worker) => Requests::Grpc(worker.open("xds:///greeter").await?),
        };
        let answered = requests.wait_backend_within(limit, backend).await;
        answered.with_context(|| world.server.log().to_string())?;
        Ok(requests)
    }

    /// Waits until the log of an Envoy has this text. Libraries of gRPC do not log it.
    ///
    /// # Errors
    ///
    /// If it does not come.
    pub async fn wait_logged(&self, text: &str) -> Result<()> {
        let Self::Envoy(envoy) = self else { return Ok(()) };
        let found = wait_for("a line of the log of Envoy", LONG, async || {
            ensure!(envoy.log().to_string().contains(text));
            Ok(())
        });
        found.await.with_context(|| envoy.log().to_string())
    }
}

impl Requests<'_> {
    /// Sends one request, and says who answered.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub async fn send(&self) -> Result<String> {
        match self {
            Self::Http(address) => Ok(Connection::open(*address).await?.get("/").await?.success()?.text()),
            Self::Grpc(channel) => {
                let counts = channel.call(&Calls::new(1)).await?;
                counts.ensure_no_errors()?;
                counts.names.into_keys().next().context("no answer")
            }
        }
    }

    /// Waits until all requests go to a backend: the client has the configuration that was published last.
    ///
    /// # Errors
    ///
    /// If they do not.
    pub async fn wait_backend(&self, backend: &Backend) -> Result<()> {
        self.wait_backend_within(LONG, backend).await
    }

    async fn wait_backend_within(&self, limit: Duration, backend: &Backend) -> Result<()> {
        wait_for("the backend", limit, async || {
            let answer = self.send().await?;
            ensure!(answer.contains(backend.name()), "{answer}");
            Ok(())
        })
        .await
    }

    /// Sends a request every 50 ms while `work` is done, and 20 more.
    ///
    /// # Errors
    ///
    /// If a request fails.
    pub async fn none_fails<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let sending = async |n_max: u32| {
            let mut ticks = interval(Duration::from_millis(50));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for n in 1..=n_max {
                ticks.tick().await;
                self.send().await.with_context(|| format!("request {n}"))?;
            }
            Ok(())
        };
        let done = tokio::select! {
            failed = sending(u32::MAX) => match failed {
                Err(error) => return Err(error),
                Ok(()) => bail!("the work took too long"),
            },
            done = work => done?,
        };
        sending(20).await?;
        Ok(done)
    }
}

/// How often the files of the xDS port have been read anew.
pub const GENERATION: &str = "xds_tls_generation{listener=\"xds\"}";

/// A client that was refused waits before it tries again: an Envoy up to 30 s, gRPC up to 120 s. Every other client is given
/// [`PATIENCE`], so that one that can never connect fails its test soon.
const LONG: Duration = Duration::from_secs(150);
