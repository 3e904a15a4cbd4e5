//! Metrics of the store that servers share, and of these servers, read at each scrape.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use xds_api::Relay;
use xds_control::peers::{Peers, Reached};
use xds_store::{Health, Store};

/// What is known of other servers.
#[derive(Debug)]
pub(crate) struct Servers {
    store: Arc<dyn Store>,
    /// True if the store is a copy of one that others write too.
    is_copy: bool,
    peers: OnceLock<Arc<dyn Peers>>,
    relay: OnceLock<Arc<dyn Relay>>,
}

impl Servers {
    /// The store of this server; `is_copy` if others write to it too.
    pub(crate) fn new(store: Arc<dyn Store>, is_copy: bool) -> Arc<Self> {
        Arc::new(Self { store, is_copy, peers: OnceLock::new(), relay: OnceLock::new() })
    }

    /// Sets whose clients count too.
    pub(crate) fn set(&self, peers: Arc<dyn Peers>) {
        // Nobody does it twice.
        let _ = self.peers.set(peers);
    }

    /// Sets the server that is relayed.
    pub(crate) fn set_relay(&self, relay: Arc<dyn Relay>) {
        // Nobody does it twice.
        let _ = self.relay.set(relay);
    }
}

/// Shows them.
#[derive(Debug)]
pub(super) struct ServerCounts(pub(super) Arc<Servers>);

impl Collector for ServerCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Servers { store, is_copy, peers, relay } = &*self.0;
        let own = store.head().0;
        let mut gauge = |name: &str, help: &str, value: u64| {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        gauge("xds_store_revision", "Newest revision in the store", own)?;
        if *is_copy {
            let is_followed = *store.health().borrow() == Health::Current;
            let help = "1 if the shared store, or the server of --upstream, is followed";
            gauge("xds_store_followed", help, u64::from(is_followed))?;
        }
        if let Some(peers) = peers.get() {
            of_peers(&**peers, own, &mut encoder)?;
        }
        relay.get().map_or(Ok(()), |relay| of_relay(&**relay, &mut encoder))
    }
}

fn of_peers(peers: &dyn Peers, own: u64, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let (mut counts, mut behind) = ([0_u64; 3], 0);
    for replica in peers.replicas().iter().filter(|replica| !replica.is_own) {
        let [yes, no, gone] = &mut counts;
        match &replica.reached {
            Reached::Yes(status) => {
                *yes += 1;
                behind = behind.max(own.saturating_sub(status.revision));
            }
            Reached::No { .. } => *no += 1,
            Reached::Gone { .. } => *gone += 1,
        }
    }
    let help = "Revisions by which the slowest other server that answers is behind this one";
    let name = "xds_servers_behind_revisions";
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&behind)?;
    let help = "Other servers with the same history, by whether they answer";
    let mut servers = encoder.encode_descriptor("xds_servers", help, None, MetricType::Gauge)?;
    for (reached, n) in ["yes", "no", "gone"].into_iter().zip(counts) {
        servers.encode_family(&[("reached", reached)])?.encode_gauge(&n)?;
    }
    Ok(())
}

fn of_relay(relay: &dyn Relay, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let nodes = relay.nodes();
    let n_connected = nodes.iter().filter(|node| node.problem.is_none()).count() as u64;
    let counts = [("yes", n_connected), ("no", nodes.len() as u64 - n_connected)];
    let help = "Nodes as which the relayed server is asked, by whether they are connected";
    let mut family = encoder.encode_descriptor("xds_relay_nodes", help, None, MetricType::Gauge)?;
    for (connected, n) in counts {
        family.encode_family(&[("connected", connected)])?.encode_gauge(&n)?;
    }
    let n_refused: usize = nodes.iter().map(|node| node.n_refused).sum();
    let help = "Resources of the relayed server that cannot be used";
    let mut gauge =
        encoder.encode_descriptor("xds_relay_refused_resources", help, None, MetricType::Gauge)?;
    gauge.encode_gauge(&(n_refused as u64))
}
