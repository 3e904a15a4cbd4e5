//! Model clients: they take what a server sends, go to another server when a stream ends or now and then, and check what they are sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout};
use xds_tests::config::CLUSTER;
use xds_tests::random::Random;
use xds_tests::raw::{self, path};
use xds_tests::seen;

use crate::faults::writers::{Board, N_OBJECTS, name};

/// The values of an object in the order in which one stream brought them.
pub(crate) type Sequences = Vec<BTreeMap<String, Vec<u64>>>;

/// A client of the incremental variant, until the run is over.
///
/// # Errors
///
/// If an object vanishes, or something is sent again that the client has.
pub(crate) async fn delta(board: Arc<Board>, id: String, mut random: Random) -> Result<Sequences> {
    let (mut known, mut sequences) = (BTreeMap::<String, String>::new(), Vec::new());
    while !board.is_over() {
        let Ok(channel) = connect(&board, &mut random).await else { continue };
        let mut stream = raw::DeltaStream::open(channel, path::ADS_DELTA, raw::node(&id, ""));
        let request = DeltaDiscoveryRequest {
            node: Some(raw::node(&id, "")),
            initial_resource_versions: known.clone().into_iter().collect(),
            ..raw::delta_request(CLUSTER, &[], &[])
        };
        let (mut sequence, leaves) = (BTreeMap::<_, Vec<u64>>::new(), leaves(&mut random));
        let mut is_open = stream.send(request).await.is_ok();
        while is_open && !board.is_over() && Instant::now() < leaves {
            let Ok(response) = timeout(LOOK, stream.expect_response_within(STALL)).await else { continue };
            let Ok(response) = response else { break };
            let objects = (0..N_OBJECTS).map(name).collect::<Vec<_>>();
            let gone = response.removed_resources.iter().find(|gone| objects.contains(gone));
            ensure!(gone.is_none(), "{id}: {gone:?} was removed");
            for resource in &response.resources {
                let before = known.insert(resource.name.clone(), resource.version.clone());
                ensure!(
                    before.as_ref() != Some(&resource.version),
                    "{id}: {} was sent again in the version that the client has",
                    resource.name
                );
                let value = seen::seconds(resource.resource.as_ref().context("no resource")?)?;
                sequence.entry(resource.name.clone()).or_default().push(value);
            }
            for gone in &response.removed_resources {
                known.remove(gone);
            }
            is_open = stream.ack(&response).await.is_ok();
        }
        board.count("streams of model clients");
        sequences.push(sequence);
    }
    Ok(sequences)
}

/// A client of the state-of-the-world variant, until the run is over.
///
/// # Errors
///
/// If an object is missing.
pub(crate) async fn sotw(board: Arc<Board>, id: String, mut random: Random) -> Result<Sequences> {
    let mut sequences = Vec::new();
    while !board.is_over() {
        let Ok(channel) = connect(&board, &mut random).await else { continue };
        let mut stream = raw::SotwStream::open(channel, path::ADS, raw::node(&id, ""));
        let (mut sequence, leaves) = (BTreeMap::<_, Vec<u64>>::new(), leaves(&mut random));
        let mut is_open = stream.subscribe(CLUSTER, &[]).await.is_ok();
        while is_open && !board.is_over() && Instant::now() < leaves {
            let Ok(response) = timeout(LOOK, stream.expect_response_within(STALL)).await else { continue };
            let Ok(response) = response else { break };
            let found = values(&response.resources)?;
            for object in (0..N_OBJECTS).map(name) {
                let value = found.get(&object).with_context(|| format!("{id}: {object} has vanished"))?;
                let values = sequence.entry(object).or_default();
                if values.last() != Some(value) {
                    values.push(*value);
                }
            }
            is_open = stream.ack(&response, &[]).await.is_ok();
        }
        board.count("streams of model clients");
        sequences.push(sequence);
    }
    Ok(sequences)
}

/// Goes from each server to the next one with what it has, when all serve the same.
///
/// # Errors
///
/// If it is sent anything but at the first one.
pub(crate) async fn moves_for_nothing(board: &Board) -> Result<()> {
    let mut known = BTreeMap::new();
    for (round, address) in board.addresses.iter().chain(&board.addresses).enumerate() {
        let mut stream =
            raw::DeltaStream::open(raw::connect(address.xds).await?, path::ADS_DELTA, raw::node("mover", ""));
        stream
            .send(DeltaDiscoveryRequest {
                node: Some(raw::node("mover", "")),
                initial_resource_versions: known.clone().into_iter().collect(),
                ..raw::delta_request(CLUSTER, &[], &[])
            })
            .await?;
        if round == 0 {
            let response = stream.expect_type(CLUSTER).await?;
            known =
                response.resources.into_iter().map(|one| (one.name, one.version)).collect::<BTreeMap<_, _>>();
            ensure!(known.len() >= N_OBJECTS, "{known:?}");
            continue;
        }
        // A type of which the client has nothing is always answered.
        stream.send(raw::delta_request(MARKER, &[], &[])).await?;
        loop {
            let response = stream.expect_response().await?;
            if response.type_url == MARKER {
                break;
            }
            let sent = (seen::delta_names(&response), response.removed_resources);
            ensure!(
                sent.0.is_empty() && sent.1.is_empty(),
                "server {round} sends {sent:?} to who has everything"
            );
        }
    }
    Ok(())
}

async fn connect(board: &Board, random: &mut Random) -> Result<tonic::transport::Channel> {
    let n = board.addresses.len() as u64;
    let address = board.addresses[usize::try_from(random.within(0..n))?];
    match timeout(STALL, raw::connect(address.xds)).await.context("no connection").flatten() {
        Ok(channel) => Ok(channel),
        Err(error) => {
            sleep(Duration::from_millis(random.within(50..300))).await;
            Err(error)
        }
    }
}

fn leaves(random: &mut Random) -> Instant {
    Instant::now() + Duration::from_millis(random.within(2_000..20_000))
}

fn values(resources: &[Any]) -> Result<BTreeMap<String, u64>> {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    let one = |any: &Any| Ok((Cluster::decode(any.value.as_slice())?.name, seen::seconds(any)?));
    resources.iter().map(one).collect()
}

/// How long a stream is listened to before the client looks whether it is time to go.
const LOOK: Duration = Duration::from_millis(300);
/// Longer than any look.
const STALL: Duration = Duration::from_secs(3);
const MARKER: &str = xds_tests::config::LISTENER;
