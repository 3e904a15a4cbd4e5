//! Messages that are announced and never come whole.

use anyhow::{Result, ensure};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use futures_util::future::join_all;
use prost::Message as _;
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::server::{Server, Setup};

use crate::budgets::http2::{Call, Http2, beginning};
use crate::budgets::{Wire, metrics};

on_both_wires!(
    row_5_unknown_clients_do_not_make_the_server_keep_more_than_a_mebibyte_a_stream,
    row_5_a_connection_has_one_large_message_at_a_time_under_way
);

const DELTA_ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const N_STREAMS: usize = 60;
const ANNOUNCED: u32 = 60 << 20;
/// The bytes of a message that each stream tries to send; the whole message in a run by hand.
const SENT: usize = 8 << 20;

/// Opens streams that send `first` and then zeros, as far as they are let.
async fn attack(http2: &mut Http2, first: &[u8]) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for _ in 0..N_STREAMS {
        let mut call = http2.call(DELTA_ADS).await?;
        call.body.send_data(beginning(ANNOUNCED, first), false)?;
        calls.push(call);
    }
    let sending = calls.into_iter().map(|mut call| async move {
        // A stream that waits for its turn gets no more room.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), call.send_zeros(SENT)).await;
        call
    });
    Ok(join_all(sending).await)
}

async fn measured(wire: Wire, first: &[u8], limit_mib: u64) -> Result<(String, Vec<(String, String)>)> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let healthy = Healthy::start(&server).await?;
    healthy.check().await?;
    let measurement = Meter::of(&server)?.begin()?;
    let mut http2 = Http2::connect(server.xds()).await?;
    let calls = attack(&mut http2, first).await?;
    let cost = measurement.cost()?;
    let seen = healthy.check().await?;
    let figures = format!("{cost}; the Envoy's slowest of {} changes took {:?}", seen.n_acked, seen.worst);
    ensure!(cost.peak < limit_mib << 20, "{cost}");
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.status().await?);
    }
    let metrics = metrics(&server).await?;
    ensure!(metrics.contains("xds_refused_total{reason=\""), "{metrics}");
    Ok((figures, statuses))
}

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn row_5_unknown_clients_do_not_make_the_server_keep_more_than_a_mebibyte_a_stream(
    wire: Wire,
) -> Result<()> {
    let (figures, statuses) = measured(wire, &[], 160).await?;
    println!("{figures}");
    for (status, message) in statuses {
        ensure!(
            status == "8" && message.contains("names%20no%20node") || message.contains("names no node"),
            "{status} {message}"
        );
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn row_5_a_connection_has_one_large_message_at_a_time_under_way(wire: Wire) -> Result<()> {
    let node = Node { id: "large".into(), ..Node::default() };
    let request = DeltaDiscoveryRequest { node: Some(node), ..DeltaDiscoveryRequest::default() };
    let (figures, statuses) = measured(wire, &request.encode_to_vec(), 160).await?;
    println!("{figures}");
    let n_of = |code: &str| statuses.iter().filter(|(status, _)| status == code).count();
    // The one that has room ends because it does not go on; two wait for it in vain; the others are refused at once.
    ensure!((n_of("4"), n_of("8")) == (1, N_STREAMS - 1), "{statuses:?}");
    Ok(())
}
