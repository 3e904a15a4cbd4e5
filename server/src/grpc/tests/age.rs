//! The end of old connections.

use std::sync::Arc;
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

#[tokio::test]
async fn a_server_with_far_more_clients_than_another_one_shares_them() {
    let (day, shed_after) = (Duration::from_secs(86_400), Duration::from_millis(100));
    let config = || GrpcConfig { max_connection_age: Some(day), shed_after, ..GrpcConfig::default() };
    let (full, empty) = (Server::with(config()).await, Server::with(config()).await);
    for (server, other) in [(&full, &empty), (&empty, &full)] {
        server.world.publish([cluster("a", "1")]);
        let board = Arc::clone(&other.world.board);
        server.world.grpc.share_with(move || vec![board.n_streams() as u64]);
    }
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..24 {
        let (channel, other) = (full.channel().await, empty.channel().await);
        let open = async move |channel| {
            let mut stream = Sotw::open(&channel, ADS).await.unwrap();
            stream.send(all_clusters(&format!("n{n}")));
            let response = stream.next().await;
            assert_eq!(texts(&response), ["1"]);
            stream.ack(&response, &[]);
            stream
        };
        let mut stream = open(channel).await;
        clients.spawn(async move {
            let status = stream.end().await;
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().contains("more clients than others"), "{status}");
            open(other).await.end().await
        });
    }
    let n_streams = |server: &Server| server.world.board.n_streams();
    let (mut ticks, mut other_ticks) = (full.world.board.ticks(), empty.world.board.ticks());
    let shared = async {
        // One whose client has left and not come back yet may count for either.
        while n_streams(&full) + n_streams(&empty) != 24 || !(11..=13).contains(&n_streams(&full)) {
            tokio::select! {
                changed = ticks.changed() => changed.unwrap(),
                changed = other_ticks.changed() => changed.unwrap(),
            }
        }
    };
    within("both to have the same number", shared).await;
    assert!(!full.world.metrics.render().contains("xds_connections_shed_total 0"));
    assert!(empty.world.metrics.render().contains("xds_connections_shed_total 0"));
}
