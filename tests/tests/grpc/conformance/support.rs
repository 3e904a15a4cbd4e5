//! The common parts of the cases.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::rpc::{Ask, UNIMPLEMENTED};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library, Worker};

/// The service of the cases.
pub(crate) const ECHO: &str = "gateway_api_conformance.echo_basic.grpcecho.GrpcEcho";

/// The expected answer to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// The answer of this backend.
    From(&'static str),
    /// A status, of no backend.
    Code(u16),
}

/// A backend must answer.
pub(crate) fn from(backend: &'static str) -> Expected {
    Expected::From(backend)
}

/// No route must take it: 404, `UNIMPLEMENTED`.
pub(crate) fn no_route(ask: &Ask) -> Expected {
    Expected::Code(if ask.method.is_some() { 404 } else { UNIMPLEMENTED })
}

/// A Gateway of the class `xds-server` in the namespace `default`.
pub(crate) fn gateway(name: &str, listeners: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec:\n  \
         gatewayClassName: xds-server\n  listeners:\n{listeners}\n---\n"
    )
}

/// A Gateway with one HTTP listener, for every host, on the port named `web`.
pub(crate) fn web_gateway() -> String {
    gateway("web", "  - {name: http, protocol: HTTP, port: {web}}")
}

/// A world with the documents of a case and an Envoy that follows them.
pub(crate) struct Case {
    pub(crate) world: World,
    pub(crate) envoy: Envoy,
}

impl Case {
    /// Starts everything. `ports` are names for free ports.
    pub(crate) async fn start(services: &[&str], ports: &[&str], documents: &str) -> Result<Self> {
        let mut world = World::start(services).await?;
        world.ports(ports)?;
        world.write("case.yaml", documents)?;
        let envoy = world.envoy(Variant::Delta).await?;
        Ok(Self { world, envoy })
    }

    /// Sends every request through the Envoy until it has the expected outcome.
    pub(crate) async fn check(&self, port: &str, requests: &[(Ask, Expected)]) -> Result<()> {
        for (ask, expected) in requests {
            match expected {
                Expected::From(backend) => self.world.expect_from(port, ask, backend).await?,
                Expected::Code(code) => self.world.expect_code(port, ask, *code).await?,
            };
        }
        // The first answers may have been true only for a moment.
        for (ask, expected) in requests {
            let told = self.world.ask(port, ask).await?;
            match expected {
                Expected::From(backend) => told.ensure_from(backend)?,
                Expected::Code(code) => told.ensure_code(*code)?,
            }
        }
        Ok(())
    }

    /// Makes the same calls with a proxyless client of each library that dials `host:port`. There, a call that no route takes
    /// is `UNAVAILABLE`.
    pub(crate) async fn check_proxyless(&self, port: &str, requests: &[(Ask, Expected)]) -> Result<()> {
        for library in Library::ALL {
            let Some(worker) = self.world.worker(library).await? else { continue };
            for (ask, expected) in requests {
                self.check_call(&worker, port, ask, *expected).await?;
            }
        }
        Ok(())
    }

    async fn check_call(&self, worker: &Worker, port: &str, ask: &Ask, expected: Expected) -> Result<()> {
        let target = format!("xds:///{}:{}", ask.host, self.world.port(port)?);
        let channel = worker.open(&target).await?;
        let mut calls = Calls::new(1);
        calls.method.clone_from(&ask.path);
        calls.metadata = ask.headers.iter().cloned().collect::<BTreeMap<_, _>>();
        wait_for("the call", PATIENCE, async || {
            let counts = channel.call(&calls).await?;
            match expected {
                Expected::From(backend) => ensure!(counts.n_of(backend) == 1, "{ask:?}: {counts:?}"),
                Expected::Code(_) => {
                    ensure!(counts.errors.contains_key("UNAVAILABLE"), "{ask:?}: {counts:?}");
                }
            }
            Ok(())
        })
        .await?;
        channel.close().await
    }

    /// How many of `n` requests each backend answers; an answer of no backend counts under its status.
    pub(crate) async fn shares(&self, port: &str, ask: &Ask, n: usize) -> Result<BTreeMap<String, usize>> {
        let mut shares = BTreeMap::new();
        for _ in 0..n {
            let told = self.world.ask(port, ask).await?;
            let who = if told.backend.is_empty() { told.code.to_string() } else { told.backend };
            *shares.entry(who).or_default() += 1;
        }
        Ok(shares)
    }
}

/// Fails unless the shares are as expected, in percent, within five points.
pub(crate) fn ensure_shares(shares: &BTreeMap<String, usize>, expected: &[(&str, usize)]) -> Result<()> {
    let total: usize = shares.values().sum();
    for (who, percent) in expected {
        let n = shares.get(*who).copied().unwrap_or(0);
        let is_near = (n * 100).abs_diff(percent * total) <= 5 * total;
        ensure!(is_near && (*percent > 0 || n == 0), "{who} must have {percent} %: {shares:?}");
    }
    Ok(())
}
