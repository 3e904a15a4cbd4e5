//! Load reporting (rows A206 to A219), as a client sees it.

use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamEndpointStats,
    UpstreamLocalityStats, cluster_stats,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use std::time::{Duration, SystemTime};
use tonic::Code;
use xds_cache::Reason;
use xds_cache::loads::{ClusterLoad, Counts, Since};

use super::support::*;
use crate::grpc::GrpcConfig;

const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

type Lrs = ClientStream<LoadStatsRequest, LoadStatsResponse>;

/// The first request of a node; one that can be asked for all clusters says so.
fn hello(id: &str, user_agent: &str, takes_all: bool) -> LoadStatsRequest {
    let features = if takes_all { vec!["envoy.lrs.supports_send_all_clusters".to_owned()] } else { vec![] };
    let node = Node {
        id: id.into(),
        user_agent_name: user_agent.into(),
        client_features: features,
        ..Default::default()
    };
    LoadStatsRequest { node: Some(node), cluster_stats: vec![] }
}

fn report(stats: Vec<ClusterStats>) -> LoadStatsRequest {
    LoadStatsRequest { node: None, cluster_stats: stats }
}

/// Ten seconds of requests in one zone.
fn stats(cluster: &str, successful: u64, errors: u64) -> ClusterStats {
    ClusterStats {
        cluster_name: cluster.into(),
        load_report_interval: Some(ProtoDuration { seconds: 10, nanos: 0 }),
        upstream_locality_stats: vec![UpstreamLocalityStats {
            locality: Some(Locality { zone: "a".into(), ..Default::default() }),
            total_successful_requests: successful,
            total_error_requests: errors,
            total_issued_requests: successful.saturating_add(errors),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn loads(world: &World) -> Vec<ClusterLoad> {
    world.loads.query(&[], None, Since { from: None, now: SystemTime::now() })
}

/// Waits until what was reported is as it should be.
async fn wait_loads(world: &World, is_good: impl Fn(&[ClusterLoad]) -> bool) -> Vec<ClusterLoad> {
    let waiting = async {
        loop {
            let loads = loads(world);
            if is_good(&loads) {
                return loads;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the load", waiting).await
}

/// Waits until the only cluster that was reported is as it should be.
async fn wait_load(world: &World, is_good: impl Fn(&ClusterLoad) -> bool) -> ClusterLoad {
    let is_good = |loads: &[ClusterLoad]| loads.first().is_some_and(|load| loads.len() == 1 && is_good(load));
    wait_loads(world, is_good).await.remove(0)
}

#[tokio::test]
async fn rows_a206_a207_the_first_request_is_answered_with_what_to_report_and_how_often() {
    let config =
        GrpcConfig { load_report_interval: Some(Duration::from_millis(1500)), ..GrpcConfig::default() };
    let server = Server::with(config).await;
    server.world.publish([cluster("a", ""), cluster("b", "")]);
    let channel = server.channel().await;
    let interval = Some(ProtoDuration { seconds: 1, nanos: 500_000_000 });
    let mut all = Lrs::open(&channel, LRS).await.unwrap();
    all.send(hello("n", "envoy", true));
    let expected = LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: interval,
        ..Default::default()
    };
    assert_eq!(all.next().await, expected);
    let mut named = Lrs::open(&channel, LRS).await.unwrap();
    named.send(hello("n", "envoy", false));
    let clusters = vec!["a".to_owned(), "b".to_owned()];
    let expected = LoadStatsResponse { clusters, load_reporting_interval: interval, ..Default::default() };
    assert_eq!(named.next().await, expected);
}

#[tokio::test]
async fn row_a208_a_client_is_never_asked_for_an_empty_list() {
    let server = Server::start().await;
    let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
    stream.send(hello("n", "envoy", false));
    server.world.publish([]);
    server.world.publish([cluster("a", "1")]);
    assert_eq!(stream.next().await.clusters, ["a"]);
    server.world.publish([cluster("a", "2")]);
    server.world.publish([]);
    server.world.publish([cluster("b", "1")]);
    assert_eq!(stream.next().await.clusters, ["b"], "neither the same list again nor an empty one");
}

#[tokio::test]
async fn row_a210_grpc_go_opens_another_stream_to_learn_of_other_clusters() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "")]);
    let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
    stream.send(hello("n", "gRPC Go", false));
    assert_eq!(stream.next().await.clusters, ["a"]);
    server.world.publish([cluster("b", "")]);
    assert_eq!(stream.end().await.code(), Code::Unavailable);
}

#[tokio::test]
async fn rows_a213_a217_reports_without_a_node_are_of_the_streams_and_a_reconnect_counts_nothing_twice() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "")]);
    for (n_before, n_after) in [(0, 10), (10, 20)] {
        let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
        stream.send(hello("n", "envoy", true));
        stream.next().await;
        assert_eq!(loads(&server.world).first().map_or(0, |load| load.total.counts.issued), n_before);
        stream.send(report(vec![stats("a", 8, 2)]));
        let load = wait_load(&server.world, |load| load.total.counts.issued == n_after).await;
        assert_eq!(load.nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["n"]);
        assert!(load.is_known);
        stream.requests = None;
        assert_eq!(stream.end().await.code(), Code::Ok);
    }
    // Another node in a later request does not change whose stream it is.
    let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
    stream.send(hello("m", "envoy", true));
    stream.next().await;
    stream.send(LoadStatsRequest { cluster_stats: vec![stats("a", 1, 0)], ..hello("other", "envoy", true) });
    let load = wait_load(&server.world, |load| load.total.counts.issued == 21).await;
    assert_eq!(load.nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["m", "n"]);
}

#[tokio::test]
async fn rows_a211_a212_a214_a215_a216_everything_that_a_report_may_say_is_read() {
    let server = Server::start().await;
    server.world.publish([cluster("a", ""), cluster("a/h2", "")]);
    let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
    stream.send(hello("n", "gRPC C-core", true));
    stream.next().await;
    let drops = |category: &str, dropped_count| cluster_stats::DroppedRequests {
        category: category.into(),
        dropped_count,
    };
    let cpu =
        UnnamedEndpointLoadMetricStats { num_requests_finished_with_metric: 2, total_metric_value: 1.5 };
    let mut with_endpoints = stats("a/h2", 3, 1);
    with_endpoints.cluster_service_name = "a".into();
    let locality = &mut with_endpoints.upstream_locality_stats[0];
    locality.locality = None;
    locality.total_requests_in_progress = 5;
    locality.cpu_utilization = Some(cpu);
    locality.load_metric_stats.push(EndpointLoadMetricStats {
        metric_name: "named_metrics.x".into(),
        num_requests_finished_with_metric: 1,
        total_metric_value: 7.0,
    });
    locality.upstream_endpoint_stats.push(UpstreamEndpointStats::default());
    let drops_only = ClusterStats {
        cluster_name: "a".into(),
        total_dropped_requests: 10,
        dropped_requests: vec![drops("lb", 4), drops("throttle", 2)],
        ..Default::default()
    };
    stream.send(report(vec![with_endpoints, drops_only]));
    let load = wait_load(&server.world, |load| load.dropped == 10).await;
    assert_eq!((&*load.name, load.clusters.len(), load.dropped_otherwise()), ("a", 2, 4));
    assert_eq!(load.total.counts, Counts { issued: 4, successful: 3, errors: 1 });
    let (_, place) = load.localities.first_key_value().unwrap();
    assert_eq!((place.in_progress, place.metrics.len()), (5, 2));
    assert_eq!(place.metrics["named_metrics.x"].sum, 7.0);
}

#[tokio::test]
async fn a_stream_without_a_node_is_refused() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "")]);
    let channel = server.channel().await;
    for first in [report(vec![stats("a", 1, 1)]), hello("", "envoy", true)] {
        let mut stream = Lrs::open(&channel, LRS).await.unwrap();
        stream.send(first);
        let status = stream.end().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("node"), "{status}");
    }
    assert_eq!(loads(&server.world), []);
}

#[tokio::test]
async fn bad_numbers_unknown_clusters_and_too_large_messages_harm_nobody() {
    let config = GrpcConfig { max_message_bytes: 1 << 20, ..GrpcConfig::default() };
    let server = Server::with(config).await;
    server.world.publish([cluster("a", "")]);
    let channel = server.channel().await;
    let mut stream = Lrs::open(&channel, LRS).await.unwrap();
    // Reports in the first request, as a client that reconnects may send them.
    stream
        .send(LoadStatsRequest { cluster_stats: vec![stats("made up", 1, 1)], ..hello("n", "envoy", true) });
    stream.next().await;
    let enormous = stats("a", u64::MAX, u64::MAX);
    let mut negative = stats("a", 1, 1);
    negative.load_report_interval = Some(ProtoDuration { seconds: -5, nanos: -1 });
    let mut long = stats("a", 1, 1);
    long.load_report_interval = Some(ProtoDuration { seconds: i64::MAX, nanos: i32::MAX });
    let unnamed = stats("", 1, 1);
    stream.send(report(vec![enormous, negative, long, unnamed]));
    wait_loads(&server.world, |loads| loads.len() == 2).await;
    let [known, unknown] = &loads(&server.world)[..] else { panic!("not two clusters") };
    assert_eq!((&*known.name, known.is_known, known.total.counts.issued), ("a", true, 4));
    assert_eq!((&*unknown.name, unknown.is_known), ("made up", false));
    let text = server.world.metrics.render();
    for line in [
        "xds_load_reports_total 3",
        "xds_load_reports_left_out_total{reason=\"implausible\"} 1",
        "xds_load_reports_left_out_total{reason=\"name\"} 1",
        "xds_load_streams 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    let too_large = (0..20_000).map(|i| stats(&format!("{i:0>100}"), 1, 1)).collect();
    stream.send(report(too_large));
    assert_eq!(stream.end().await.code(), Code::ResourceExhausted);
    let mut another = Lrs::open(&channel, LRS).await.unwrap();
    another.send(hello("n", "envoy", true));
    another.next().await;
}

#[tokio::test]
async fn a_large_report_is_taken_as_a_whole_and_one_over_a_limit_not_at_all() {
    let server = Server::start().await;
    server.world.publish((0..10_001).map(|i| cluster(&format!("{i:05}"), "")));
    let mut stream = Lrs::open(&server.channel().await, LRS).await.unwrap();
    stream.send(hello("n", "envoy", true));
    stream.next().await;
    let mut clusters: Vec<_> = (0..10_001).map(|i| stats(&format!("{i:05}"), 1, 0)).collect();
    stream.send(report(clusters.clone()));
    wait_loads(&server.world, |loads| loads.len() == 10_001).await;
    clusters[10_000].dropped_requests = vec![cluster_stats::DroppedRequests::default(); 101];
    stream.send(report(clusters));
    let status = stream.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "`cluster_stats[10000].dropped_requests` has more than 100 entries");
    assert_eq!(server.world.refusals.counts()[&Reason::LoadReport], 1);
    let loads = loads(&server.world);
    assert!(loads.iter().all(|load| load.total.counts.issued == 1), "nothing of the second one counts");
}

#[tokio::test]
async fn a_malformed_report_ends_its_stream_only() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "")]);
    let channel = server.channel().await;
    let mut good = Lrs::open(&channel, LRS).await.unwrap();
    good.send(hello("n", "envoy", true));
    good.next().await;
    let mut bad = ClientStream::<ProtoDuration, LoadStatsResponse>::open(&channel, LRS).await.unwrap();
    bad.send(ProtoDuration { seconds: 1, nanos: 0 });
    let status = bad.end().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "malformed LoadStatsRequest: field 1 has another type");
    assert_eq!(server.world.refusals.counts()[&Reason::LoadReport], 0, "no limit was passed");
    good.send(report(vec![stats("a", 1, 0)]));
    wait_load(&server.world, |load| load.total.counts.issued == 1).await;
}

#[tokio::test]
async fn row_a219_a_server_that_takes_no_reports_says_so_and_serves_on() {
    let server = Server::with(GrpcConfig { load_report_interval: None, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let Err(status) = Lrs::open(&channel, LRS).await else { panic!("the stream was opened") };
    assert_eq!(status.code(), Code::Unimplemented);
    let mut ads = Sotw::open(&channel, ADS).await.unwrap();
    ads.send(all_clusters("n"));
    assert_eq!(texts(&ads.next().await), ["1"]);
}

#[tokio::test]
async fn streams_of_reports_count_among_all_and_end_at_shutdown() {
    let mut server = Server::with(GrpcConfig { max_streams: 1, ..GrpcConfig::default() }).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let mut stream = Lrs::open(&channel, LRS).await.unwrap();
    stream.send(hello("n", "envoy", true));
    stream.next().await;
    let Err(status) = Lrs::open(&channel, LRS).await else { panic!("a second stream was opened") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.stop();
    assert_eq!(stream.end().await.code(), Code::Unavailable);
    server.stopped().await;
}
