//! The reader against the library, on random messages; and its limits.

use std::fmt;

use envoy_types::pb::envoy::config::core::v3::{Locality as ProtoLocality, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamEndpointStats,
    UpstreamLocalityStats, cluster_stats::DroppedRequests,
};
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;

use super::*;

/// The reports that the board gets from a message that the library has decoded.
fn model(request: LoadStatsRequest) -> Vec<ClusterReport> {
    let cluster = |stats: ClusterStats| {
        let interval = stats.load_report_interval.unwrap_or_default();
        let is_good = interval.seconds >= 0 && (0..1_000_000_000).contains(&interval.nanos);
        let nanos = |interval: ProtoDuration| (interval.seconds as u64, interval.nanos as u32);
        ClusterReport {
            cluster: stats.cluster_name,
            service: stats.cluster_service_name,
            interval: Some(nanos(interval))
                .filter(|_| is_good)
                .map_or_else(Duration::default, |(s, n)| Duration::new(s, n)),
            dropped: stats.total_dropped_requests,
            dropped_by: stats.dropped_requests.into_iter().map(|d| (d.category, d.dropped_count)).collect(),
            localities: stats.upstream_locality_stats.into_iter().map(model_of_locality).collect(),
        }
    };
    request.cluster_stats.into_iter().map(cluster).collect()
}

fn model_of_locality(stats: UpstreamLocalityStats) -> LocalityReport {
    let ProtoLocality { region, zone, sub_zone } = stats.locality.unwrap_or_default();
    let mut metrics = Vec::new();
    for (name, metric) in [
        ("cpu_utilization", stats.cpu_utilization),
        ("mem_utilization", stats.mem_utilization),
        ("application_utilization", stats.application_utilization),
    ] {
        let Some(UnnamedEndpointLoadMetricStats {
            num_requests_finished_with_metric: n_requests,
            total_metric_value: sum,
        }) = metric
        else {
            continue;
        };
        metrics.push((name.to_owned(), Metric { n_requests, sum }));
    }
    let mut n_named = 0;
    for metric in stats.load_metric_stats {
        let sum = metric.total_metric_value;
        let n_requests = metric.num_requests_finished_with_metric;
        if n_requests > 0 && sum.is_finite() && metric.metric_name.len() <= 128 && n_named < 16 {
            n_named += 1;
            metrics.push((metric.metric_name, Metric { n_requests, sum }));
        }
    }
    LocalityReport {
        place: PriorityLocality { priority: stats.priority, locality: Locality { region, zone, sub_zone } },
        counts: Counts {
            issued: stats.total_issued_requests,
            successful: stats.total_successful_requests,
            errors: stats.total_error_requests,
        },
        in_progress: stats.total_requests_in_progress,
        metrics,
    }
}

/// A number that may not be set, small, or of any size.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..300_u64, any::<u64>()]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-c/ä]{1,3}", Just("x".repeat(129))]
}

fn sum() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), -1e3..1e3, Just(f64::MAX), Just(f64::INFINITY), Just(f64::NEG_INFINITY)]
}

fn utilization() -> impl Strategy<Value = Option<UnnamedEndpointLoadMetricStats>> {
    let metric = (number(), sum()).prop_map(|(n, sum)| UnnamedEndpointLoadMetricStats {
        num_requests_finished_with_metric: n,
        total_metric_value: sum,
    });
    option::of(metric)
}

fn named_metric() -> impl Strategy<Value = EndpointLoadMetricStats> {
    (name(), number(), sum()).prop_map(|(metric_name, n, sum)| EndpointLoadMetricStats {
        metric_name,
        num_requests_finished_with_metric: n,
        total_metric_value: sum,
    })
}

prop_compose! {
    fn locality()(
        names in option::of((name(), name(), name())),
        numbers in (number(), number(), number(), number()),
        [cpu, memory, application] in [utilization(), utilization(), utilization()],
        load_metric_stats in prop_oneof![vec(named_metric(), 0..3), vec(named_metric(), 20..30)],
        n_endpoints in 0..3_usize,
        others in number(),
        priority in prop_oneof![Just(0), any::<u32>()],
    ) -> UpstreamLocalityStats {
        let endpoint = UpstreamEndpointStats { total_error_requests: others, ..Default::default() };
        UpstreamLocalityStats {
            locality: names.map(|(region, zone, sub_zone)| ProtoLocality { region, zone, sub_zone }),
            total_successful_requests: numbers.0,
            total_requests_in_progress: numbers.1,
            total_error_requests: numbers.2,
            total_issued_requests: numbers.3,
            total_active_connections: others,
            total_new_connections: others,
            total_fail_connections: others,
            cpu_utilization: cpu,
            mem_utilization: memory,
            application_utilization: application,
            load_metric_stats,
            upstream_endpoint_stats: vec![endpoint; n_endpoints],
            priority,
        }
    }
}

prop_compose! {
    fn cluster()(
        names in (name(), name()),
        upstream_locality_stats in vec(locality(), 0..4),
        total_dropped_requests in number(),
        dropped in vec((name(), number()), 0..4),
        interval in option::of((any::<i64>(), prop_oneof![0..2_000_000_000_i32, any::<i32>()])),
    ) -> ClusterStats {
        let drops = |(category, dropped_count)| DroppedRequests { category, dropped_count };
        ClusterStats {
            cluster_name: names.0,
            cluster_service_name: names.1,
            upstream_locality_stats,
            total_dropped_requests,
            dropped_requests: dropped.into_iter().map(drops).collect(),
            load_report_interval: interval.map(|(seconds, nanos)| ProtoDuration { seconds, nanos }),
        }
    }
}

prop_compose! {
    fn report()(id in option::of(name()), cluster_stats in vec(cluster(), 0..4)) -> LoadStatsRequest {
        LoadStatsRequest { node: id.map(|id| Node { id, ..Default::default() }), cluster_stats }
    }
}

/// Whatever the library takes is taken, with the same meaning. Tells whether the library takes it.
fn check_against_the_library(message: &[u8]) -> Result<bool, TestCaseError> {
    let ours = LoadReport::read(message);
    let Ok(theirs) = LoadStatsRequest::decode(message) else { return Ok(false) };
    let Ok(ours) = ours else {
        return Err(TestCaseError::fail(format!("{ours:?}, but it is {theirs:?}")));
    };
    prop_assert_eq!(ours.n_clusters, theirs.cluster_stats.len());
    let n_nodes = Fields::of(message).flatten().filter(|field| field.number == NODE).count();
    if n_nodes < 2 {
        let node = ours.node.map(|node| Node::decode(node).unwrap());
        prop_assert!(is_same(&node, &theirs.node), "{node:?}, but it is {:?}", theirs.node);
    }
    let (ours, theirs) = (ours.clusters().collect::<Vec<_>>(), model(theirs));
    prop_assert!(is_same(&ours, &theirs), "{ours:?}, but it is {theirs:?}");
    Ok(true)
}

/// Numbers that are none are the same.
fn is_same<T: PartialEq + fmt::Debug>(ours: &T, theirs: &T) -> bool {
    ours == theirs || format!("{ours:?}") == format!("{theirs:?}")
}

proptest! {
    #[test]
    fn a_report_means_what_the_library_says(report in report()) {
        prop_assert!(check_against_the_library(&report.encode_to_vec())?);
    }

    /// Parts of a message add up to one, also within other messages: later numbers and texts replace, lists grow.
    #[test]
    fn parts_add_up_as_the_library_says(stats in vec(cluster(), 2..4), places in vec(locality(), 2..3)) {
        let localities: Vec<u8> = places.iter().flat_map(Message::encode_to_vec).collect();
        let mut cluster: Vec<u8> = stats.iter().flat_map(Message::encode_to_vec).collect();
        crate::grpc::wire::put_field(&mut cluster, 2, &localities);
        prop_assert!(check_against_the_library(&crate::grpc::wire::message(CLUSTER_STATS, &cluster))?);
    }

    /// Nothing makes it panic, and what is refused the library refuses too.
    #[test]
    fn damaged_bytes_mean_what_the_library_says(
        report in report(),
        bytes in vec(any::<u8>(), 0..8),
        at in any::<prop::sample::Index>(),
        n_replaced in 0..8_usize,
    ) {
        let mut message = report.encode_to_vec();
        let at = at.index(message.len() + 1);
        message.splice(at..(at + n_replaced).min(message.len()), bytes.iter().copied());
        check_against_the_library(&message)?;
        check_against_the_library(&bytes)?;
    }
}

fn refused(cluster_stats: Vec<ClusterStats>) -> String {
    let message = LoadStatsRequest { node: None, cluster_stats }.encode_to_vec();
    LoadReport::read(&message).unwrap_err().to_string()
}

fn in_second_cluster(stats: ClusterStats) -> Vec<ClusterStats> {
    vec![ClusterStats::default(), stats]
}

fn in_third_locality(stats: UpstreamLocalityStats) -> Vec<ClusterStats> {
    let localities = vec![UpstreamLocalityStats::default(), UpstreamLocalityStats::default(), stats];
    in_second_cluster(ClusterStats { upstream_locality_stats: localities, ..Default::default() })
}

#[test]
fn every_list_has_a_limit_and_the_error_says_which_and_where() {
    let localities =
        |n| ClusterStats { upstream_locality_stats: vec![Default::default(); n], ..Default::default() };
    let drops = |n| ClusterStats { dropped_requests: vec![Default::default(); n], ..Default::default() };
    let metrics =
        |n| UpstreamLocalityStats { load_metric_stats: vec![Default::default(); n], ..Default::default() };
    let endpoints = |n| UpstreamLocalityStats {
        upstream_endpoint_stats: vec![Default::default(); n],
        ..Default::default()
    };
    let clusters = |n| vec![ClusterStats::default(); n];
    let within = "cluster_stats[1].upstream_locality_stats";
    for (path, limit, of) in [
        ("cluster_stats", MAX_CLUSTERS, &clusters as &dyn Fn(usize) -> _),
        (within, MAX_LOCALITIES, &|n| in_second_cluster(localities(n))),
        ("cluster_stats[1].dropped_requests", MAX_DROP_CATEGORIES, &|n| in_second_cluster(drops(n))),
        (&format!("{within}[2].load_metric_stats"), MAX_NAMED_METRICS, &|n| in_third_locality(metrics(n))),
        (&format!("{within}[2].upstream_endpoint_stats"), MAX_ENDPOINTS, &|n| {
            in_third_locality(endpoints(n))
        }),
    ] {
        let message = LoadStatsRequest { node: None, cluster_stats: of(limit) }.encode_to_vec();
        assert!(LoadReport::read(&message).is_ok(), "{limit} of {path}");
        assert_eq!(refused(of(limit + 1)), format!("`{path}` has more than {limit} entries"));
    }
}

#[test]
fn every_text_has_a_limit_and_the_error_says_which_and_where() {
    let long = || "x".repeat(4097);
    let cluster = |stats: ClusterStats| refused(in_second_cluster(stats));
    let locality = |stats: UpstreamLocalityStats| refused(in_third_locality(stats));
    let place = |place: ProtoLocality| {
        locality(UpstreamLocalityStats { locality: Some(place), ..Default::default() })
    };
    let drops = DroppedRequests { category: long(), ..Default::default() };
    let metric = EndpointLoadMetricStats { metric_name: long(), ..Default::default() };
    for (field, error) in [
        ("cluster_name", cluster(ClusterStats { cluster_name: long(), ..Default::default() })),
        (
            "cluster_service_name",
            cluster(ClusterStats { cluster_service_name: long(), ..Default::default() }),
        ),
        (
            "dropped_requests[0].category",
            cluster(ClusterStats { dropped_requests: vec![drops], ..Default::default() }),
        ),
        (
            "upstream_locality_stats[2].locality.region",
            place(ProtoLocality { region: long(), ..Default::default() }),
        ),
        (
            "upstream_locality_stats[2].locality.zone",
            place(ProtoLocality { zone: long(), ..Default::default() }),
        ),
        (
            "upstream_locality_stats[2].locality.sub_zone",
            place(ProtoLocality { sub_zone: long(), ..Default::default() }),
        ),
        (
            "upstream_locality_stats[2].load_metric_stats[0].metric_name",
            locality(UpstreamLocalityStats { load_metric_stats: vec![metric], ..Default::default() }),
        ),
    ] {
        assert_eq!(error, format!("`cluster_stats[1].{field}` has 4097 bytes; at most 4096 are allowed"));
    }
    let message = crate::grpc::wire::message(CLUSTER_STATS, &[0x0a, 0x05]);
    assert_eq!(
        LoadReport::read(&message).unwrap_err().to_string(),
        "malformed LoadStatsRequest: a field cannot be read"
    );
}
