//! The end of old connections.

use std::time::Duration;

use tonic::Code;

use super::support::*;
use crate::grpc::GrpcConfig;

#[tokio::test]
async fn an_old_connection_ends_and_its_client_goes_on_with_another_one() {
    let max_connection_age = Some(Duration::from_millis(400));
    let server = Server::with(GrpcConfig { max_connection_age, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut connections = Vec::new();
    for _ in 0..2 {
        let mut stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(all_clusters("n"));
        let response = stream.next().await;
        assert_eq!(texts(&response), ["1"]);
        stream.ack(&response, &[]);
        connections.extend(server.port.peers().iter().map(|peer| peer.connection()).max());
        let status = stream.end().await;
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("--max-connection-age"), "{status}");
    }
    // The client was told before its stream ended, so it did not try the old connection again.
    assert_ne!(connections[0], connections[1]);
    assert!(server.world.metrics.render().contains("xds_connections_aged_total 2"));
}
