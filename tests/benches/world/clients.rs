//! Clients that take what they are sent.

use anyhow::Result;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use xds_tests::raw::{DeltaStream, node, path};

/// An incremental client that asks for everything of some types and accepts it. Dropping it ends it.
pub(crate) struct Follower {
    /// The responses so far.
    n_responses: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Connects as a node and waits for the first response of each type.
    pub(crate) async fn start(channel: Channel, node: Node, asks: &[(&str, &[&str])]) -> Result<Self> {
        let mut stream = DeltaStream::open(channel, path::ADS_DELTA, node);
        for (type_url, names) in asks {
            stream.subscribe(type_url, names).await?;
            // A large response comes in parts, also after the next request.
            loop {
                let response = next(&mut stream).await?;
                stream.ack(&response).await?;
                if response.type_url == *type_url {
                    break;
                }
            }
        }
        let (sender, n_responses) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok(response) = next(&mut stream).await {
                if stream.ack(&response).await.is_err() {
                    return;
                }
                sender.send_modify(|n| *n += 1);
            }
        });
        Ok(Self { n_responses, task })
    }

    /// Waits for the next response after those that were seen.
    pub(crate) async fn next(&mut self) -> Result<()> {
        self.n_responses.changed().await?;
        Ok(())
    }

    /// Forgets the responses so far.
    pub(crate) fn mark(&mut self) {
        self.n_responses.mark_unchanged();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next response, however long it takes.
async fn next(stream: &mut DeltaStream) -> Result<DeltaDiscoveryResponse> {
    const FOREVER: std::time::Duration = std::time::Duration::from_secs(3600);
    stream.expect_response_within(FOREVER).await
}

/// An Envoy.
pub(crate) fn envoy(id: &str) -> Node {
    node(id, "bench")
}

/// A gRPC client.
pub(crate) fn grpc(id: &str) -> Node {
    Node { user_agent_name: "gRPC C-core".to_owned(), ..envoy(id) }
}

pub(crate) const LISTENERS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub(crate) const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub(crate) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
