//! Streams that are opened and say nothing.

use anyhow::{Result, ensure};
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::server::{Server, Setup};

use crate::budgets::http2::Http2;
use crate::budgets::{Wire, metrics};

on_both_wires!(row_6_silent_streams_take_no_place_that_a_client_needs);

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const MAX_STREAMS: usize = 200;

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn row_6_silent_streams_take_no_place_that_a_client_needs(wire: Wire) -> Result<()> {
    let setup = Setup::metered()?.arg("--max-streams").arg(MAX_STREAMS.to_string());
    let server = Server::start_with(wire(setup.arg("--first-request-timeout").arg("2s"))?).await?;
    let measurement = Meter::of(&server)?.begin()?;
    let mut http2 = Http2::connect(server.xds()).await?;
    let mut calls = Vec::new();
    for _ in 0..2 * MAX_STREAMS {
        calls.push(http2.call(ADS).await?);
    }
    // A new client comes while every place is taken.
    let healthy = Healthy::start(&server).await?;
    for call in calls {
        let (status, message) = call.status().await?;
        ensure!(["4", "8"].contains(&status.as_str()), "{status} {message}");
    }
    let seen = healthy.check().await?;
    println!(
        "{}; the Envoy's slowest of {} changes took {:?}",
        measurement.cost()?,
        seen.n_acked,
        seen.worst
    );
    let metrics = metrics(&server).await?;
    for reason in ["streams", "first-request"] {
        ensure!(!metrics.contains(&format!("xds_refused_total{{reason=\"{reason}\"}} 0\n")), "{metrics}");
    }
    let ready = server.get_json("/readyz").await?;
    ensure!(ready["refused"].to_string().contains("--first-request-timeout"), "{ready}");
    Ok(())
}
