//! A client that has a RouteConfiguration and accepts each version of it, so that rollouts have somebody to wait for.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::raw::{self, SotwStream, path};
use crate::wait::PATIENCE;

/// It comes back when the server has been away. Dropping it ends it.
#[derive(Debug)]
pub struct RouteClient(JoinHandle<()>);

impl RouteClient {
    /// Connects with a node id, and asks for one RouteConfiguration.
    #[must_use]
    pub fn start(xds: SocketAddr, node_id: &str, routes: &str) -> Self {
        let (node_id, routes) = (node_id.to_owned(), routes.to_owned());
        Self(tokio::spawn(async move {
            loop {
                if let Ok(channel) = raw::connect(xds).await {
                    let stream = SotwStream::open(channel, path::ADS, raw::node(&node_id, ""));
                    // It ends with the server.
                    let _ = accept_all(stream, &routes).await;
                }
                sleep(RETRY).await;
            }
        }))
    }
}

impl Drop for RouteClient {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept_all(mut stream: SotwStream, routes: &str) -> Result<()> {
    stream.subscribe(ROUTE_TYPE, &[routes]).await?;
    loop {
        let response = stream.expect_response_within(20 * PATIENCE).await?;
        stream.ack(&response, &[routes]).await?;
    }
}

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(50);

const ROUTE_TYPE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
