//! The board as a whole: sums, bounds, and hostile input.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::*;
use crate::loads::*;
use crate::node::Locality;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn since(from: u64, now: u64) -> Since {
    Since { from: Some(at(from)), now: at(now) }
}

fn reporter(node: &str) -> Reporter {
    Reporter { node: node.into(), groups: [GroupName::default_group()].into() }
}

fn place(zone: &str) -> PriorityLocality {
    PriorityLocality { priority: 0, locality: Locality { zone: zone.into(), ..Locality::default() } }
}

fn counts(issued: u64, successful: u64, errors: u64) -> Counts {
    Counts { issued, successful, errors }
}

/// A report of ten seconds about one zone.
fn report(cluster: &str, zone: &str, counts: Counts) -> ClusterReport {
    ClusterReport {
        cluster: cluster.into(),
        interval: Duration::from_secs(10),
        localities: vec![LocalityReport { place: place(zone), counts, ..LocalityReport::default() }],
        ..ClusterReport::default()
    }
}

fn board() -> LoadBoard {
    LoadBoard::new(LoadLimits::default())
}

fn record(board: &LoadBoard, node: &str, report: ClusterReport, now: u64) {
    let recorded = board.record(&reporter(node), &[report], |_| true, at(now));
    assert_eq!(recorded, Recorded { n_kept: 1, ..Recorded::default() });
}

fn only(loads: Vec<ClusterLoad>) -> ClusterLoad {
    let [load] = <[ClusterLoad; 1]>::try_from(loads).expect("one cluster");
    load
}

#[test]
fn clusters_come_in_pages_by_name() {
    let board = board();
    for cluster in ["a", "b", "c", "d"] {
        record(&board, if cluster == "c" { "n2" } else { "n1" }, report(cluster, "z", counts(1, 1, 0)), 10);
    }
    let page = |node, after, at_most| -> String {
        let loads = board.query_after((&[], node), |_| true, since(0, 20), (after, at_most));
        loads.iter().map(|load| &*load.name).collect()
    };
    assert_eq!(page(None, None, 3), "abc");
    assert_eq!(page(None, Some("b"), 3), "cd");
    assert_eq!(page(None, Some("bb"), 1), "c");
    assert_eq!(page(Some("n1"), Some("a"), 2), "bd");
    assert_eq!(page(None, Some("d"), 1), "");
}

#[test]
fn row_a213_counters_add_and_requests_in_progress_are_replaced() {
    let board = board();
    for (n, in_progress, now) in [(10, 7, 10), (20, 3, 20)] {
        let mut one = report("c", "a", counts(n, n - 2, 2));
        one.localities[0].in_progress = in_progress;
        record(&board, "n1", one.clone(), now);
        record(&board, "n2", one, now);
    }
    let load = only(board.query(&["c"], None, since(0, 20)));
    assert_eq!(load.total.counts, counts(60, 52, 8));
    assert_eq!((load.total.in_progress, load.nodes.len()), (6, 2));
    assert_eq!(load.total.rate, 3.0, "30 requests in 20 s, twice");
    assert_eq!(load.nodes["n1"].counts, counts(30, 26, 4));
    assert_eq!(load.last_report, Some(at(20)));
    let of_one = only(board.query(&[], Some("n2"), since(0, 20)));
    assert_eq!((of_one.total.counts, of_one.nodes.len()), (counts(30, 26, 4), 1));
    let later = only(board.query(&["c"], None, since(0, 100)));
    assert_eq!(later.total.in_progress, 0, "nodes that report no more have none under way");
}

#[test]
fn row_a213_the_rate_goes_by_the_time_that_a_report_covers() {
    let board = board();
    let mut late = report("c", "a", counts(100, 100, 0));
    late.interval = Duration::from_secs(40);
    record(&board, "n", late, 100);
    assert_eq!(only(board.query(&[], None, since(0, 100))).total.rate, 2.5);
}

#[test]
fn only_reports_of_the_time_after_count_for_a_decision() {
    let board = board();
    record(&board, "n", report("c", "a", counts(100, 0, 100)), 15);
    record(&board, "n", report("c", "a", counts(7, 7, 0)), 25);
    let totals = board.totals(&["c"], since(10, 30));
    assert_eq!(totals.counts, counts(7, 7, 0), "the first one began at 5, before the change");
    assert_eq!((totals.n_nodes, totals.newest_report), (1, Some(at(25))));
    assert_eq!(board.totals(&["c"], since(16, 30)), LoadTotals { is_complete: true, ..Default::default() });
    assert_eq!(board.totals(&["d"], since(0, 30)).n_nodes, 0);
}

#[test]
fn a_node_that_falls_silent_shows_in_the_oldest_report() {
    let board = board();
    record(&board, "silent", report("c", "a", counts(1, 1, 0)), 10);
    record(&board, "n", report("c", "a", counts(1, 1, 0)), 10);
    record(&board, "n", report("c", "a", counts(1, 1, 0)), 60);
    let totals = board.totals(&["c"], since(0, 60));
    assert_eq!((totals.oldest_report, totals.newest_report), (Some(at(10)), Some(at(60))));
}

#[test]
fn row_a212_clusters_with_the_same_endpoints_count_together() {
    let board = board();
    for cluster in ["v1", "v1/h2"] {
        let mut one = report(cluster, "a", counts(5, 4, 1));
        one.service = "v1".into();
        record(&board, "n", one, 10);
    }
    let load = only(board.query(&["v1"], None, since(0, 10)));
    assert_eq!((load.total.counts, load.total.rate), (counts(10, 8, 2), 1.0));
    assert_eq!(load.clusters, ["v1", "v1/h2"].map(Arc::from).into());
    assert_eq!(only(board.query(&["v1/h2"], None, since(0, 10))).total.counts, counts(5, 4, 1));
    let both = board.totals(&["v1", "v1/h2"], since(0, 10));
    assert_eq!((both.counts, both.n_nodes), (counts(10, 8, 2), 1), "each report once, each node once");
}

#[test]
fn rows_a214_a215_drops_alone_are_a_report_and_have_reasons_or_not() {
    let board = board();
    let drops = ClusterReport {
        cluster: "c".into(),
        dropped: 10,
        dropped_by: vec![("lb".into(), 4), ("throttle".into(), 2)],
        ..ClusterReport::default()
    };
    record(&board, "n", drops, 10);
    let load = only(board.query(&[], None, since(0, 10)));
    assert_eq!((load.dropped, load.dropped_otherwise()), (10, 4));
    assert_eq!(load.dropped_by, BTreeMap::from([("lb".into(), 4), ("throttle".into(), 2)]));
    assert_eq!((load.localities.len(), load.nodes.len()), (0, 1));
    assert_eq!(load.total.counts.error_rate(), None);
}

#[test]
fn row_a216_metrics_of_backends_are_kept_under_their_names() {
    let board = board();
    let metric = |sum| Metric { n_requests: 2, sum };
    for node in ["n1", "n2"] {
        let mut one = report("c", "a", counts(2, 2, 0));
        one.localities[0].metrics =
            vec![("cpu_utilization".into(), metric(1.5)), ("named_metrics.x".into(), metric(f64::NAN))];
        record(&board, node, one, 10);
    }
    let load = only(board.query(&[], None, since(0, 10)));
    let expected = BTreeMap::from([("cpu_utilization".into(), Metric { n_requests: 4, sum: 3.0 })]);
    assert_eq!(load.localities[&place("a")].metrics, expected, "what is no number is left out");
}

#[test]
fn what_cannot_be_true_is_left_out_and_changes_nothing() {
    let board = board();
    record(&board, "n", report("c", "a", counts(5, 5, 0)), 10);
    let before = board.query(&[], None, since(0, 20));
    // A negative number comes as an enormous one.
    let negative = u64::MAX;
    let mut dropped = report("c", "a", counts(0, 0, 0));
    dropped.dropped = negative;
    let mut in_progress = report("c", "a", counts(0, 0, 0));
    in_progress.localities[0].in_progress = negative;
    let mut zone = report("c", "a", counts(0, 0, 0));
    zone.localities[0].place.locality.zone = "z".repeat(MAX_LOCALITY_BYTES + 1);
    let bad = [
        report("c", "a", counts(negative, 0, 0)),
        report("c", "a", counts(0, 0, MAX_REQUESTS_PER_REPORT + 1)),
        dropped,
        in_progress,
        report("", "a", counts(1, 1, 0)),
        report(&"c".repeat(MAX_NAME_BYTES + 1), "a", counts(1, 1, 0)),
        zone,
    ];
    let recorded = board.record(&reporter("n"), &bad, |_| true, at(20));
    assert_eq!(recorded, Recorded { n_implausible: 4, n_bad_names: 3, ..Recorded::default() });
    assert_eq!(board.query(&[], None, since(0, 20)), before);
}

#[test]
fn clusters_that_nodes_are_not_served_take_no_room_of_others() {
    let board = board();
    let made_up: Vec<_> = (0..MAX_UNKNOWN_CLUSTERS + 5)
        .map(|i| report(&format!("made up {i}"), "a", counts(1, 1, 0)))
        .collect();
    let recorded = board.record(&reporter("n"), &made_up, |_| false, at(10));
    assert_eq!((recorded.n_kept, recorded.n_unknown), (MAX_UNKNOWN_CLUSTERS, 5));
    record(&board, "n", report("c", "a", counts(1, 1, 0)), 10);
    let load = only(board.query(&["c"], None, since(0, 10)));
    assert!(load.is_known);
    assert!(!only(board.query(&["made up 0"], None, since(0, 10))).is_known);
    // One that turns out to be served no longer counts among them.
    record(&board, "n", report("made up 0", "a", counts(1, 1, 0)), 10);
    let recorded = board.record(&reporter("n"), &made_up[MAX_UNKNOWN_CLUSTERS..], |_| false, at(10));
    assert_eq!((recorded.n_kept, recorded.n_unknown), (1, 4));
    let later = 10 + LoadLimits::default().kept_for.as_secs() + 1;
    record(&board, "n", report("c", "a", counts(1, 1, 0)), later);
    assert_eq!(board.n_series(), 2, "what is old is forgotten, and its room is free");
    assert_eq!(board.lock().n_unknown, 0);
}

#[test]
fn what_has_no_room_is_told_as_incomplete() {
    let board = LoadBoard::new(LoadLimits { max_series: 3, ..LoadLimits::default() });
    record(&board, "n1", report("c", "a", counts(1, 1, 0)), 10);
    assert!(board.totals(&["c"], since(0, 10)).is_complete);
    // A node takes a series for itself and one for its locality; there is room for one.
    let recorded = board.record(&reporter("n2"), &[report("c", "a", counts(1, 1, 0))], |_| true, at(20));
    assert_eq!((recorded.n_kept, recorded.n_over_limit, board.n_series()), (0, 1, 3));
    assert!(!board.totals(&["c"], since(0, 20)).is_complete);
    assert!(board.totals(&["c"], since(21, 30)).is_complete, "what came later is complete");
}

#[test]
fn localities_of_a_cluster_are_bounded() {
    let board = board();
    let mut many = report("c", "a", counts(0, 0, 0));
    many.localities = (0..MAX_LOCALITIES_PER_CLUSTER + 1)
        .map(|i| LocalityReport {
            place: place(&i.to_string()),
            counts: counts(1, 1, 0),
            ..Default::default()
        })
        .collect();
    let recorded = board.record(&reporter("n"), &[many], |_| true, at(10));
    assert_eq!(recorded.n_over_limit, 1);
    let totals = board.totals(&["c"], since(0, 10));
    assert_eq!((totals.counts.issued, totals.is_complete), (MAX_LOCALITIES_PER_CLUSTER as u64, false));
}

#[test]
fn clock_jumps_lose_reports_but_nothing_else() {
    let board = board();
    record(&board, "n", report("c", "a", counts(1, 1, 0)), 100);
    record(&board, "n", report("c", "a", counts(2, 2, 0)), 1_000_000);
    record(&board, "n", report("c", "a", counts(4, 4, 0)), 110);
    assert_eq!(board.totals(&["c"], since(0, 110)).counts.issued, 4);
    record(&board, "n", report("c", "a", counts(8, 8, 0)), 0);
    let before_1970 = UNIX_EPOCH - Duration::from_secs(5);
    board.record(&reporter("n"), &[report("c", "a", counts(1, 1, 0))], |_| true, before_1970);
    assert!(board.n_series() <= 2);
}

/// One report of the model: when, by whom, of which cluster and zone, and how many.
#[derive(Clone, Debug)]
struct Told {
    now: u64,
    node: u8,
    cluster: u8,
    zone: u8,
    n: u64,
    errors: u64,
}

fn told() -> impl Strategy<Value = Told> {
    (0_u64..600, 0_u8..4, 0_u8..3, 0_u8..3, 0_u64..100, 0_u64..100)
        .prop_map(|(now, node, cluster, zone, n, errors)| Told { now, node, cluster, zone, n, errors })
}

proptest! {

    /// At the edges of cells the board may know only sums, of which it leaves out those that began before; so the model takes
    /// the beginnings of cells.
    #[test]
    fn sums_are_those_of_a_naive_model(mut reports in prop::collection::vec(told(), 0..60), from in 0_u64..60) {
        reports.sort_by_key(|told| told.now);
        let board = board();
        for told in &reports {
            // The end of a cell, so that every cell covers just what its reports do.
            let now = told.now * 10;
            let one = report(&told.cluster.to_string(), &told.zone.to_string(), counts(told.n + told.errors, told.n, told.errors));
            record(&board, &told.node.to_string(), one, now);
        }
        let now = reports.last().map_or(0, |told| told.now * 10);
        let counted = |told: &&Told| told.now * 10 >= from * 100 + 10 && told.now * 10 + 900 >= now - now % 10;
        for cluster in 0..3_u8 {
            let model = reports.iter().filter(counted).filter(|told| told.cluster == cluster).fold(
                Counts::default(),
                |mut sum, told| { sum += counts(told.n + told.errors, told.n, told.errors); sum },
            );
            let name = cluster.to_string();
            prop_assert_eq!(board.totals(&[&name], since(from * 100, now)).counts, model);
        }
    }

    #[test]
    fn bounds_hold_whatever_comes(
        reports in prop::collection::vec((any::<u64>(), 0_u8..20, 0_u8..20, 0_u8..80, any::<[u64; 4]>(), any::<bool>()), 0..80),
    ) {
        let limits = LoadLimits { max_series: 20, ..LoadLimits::default() };
        let board = LoadBoard::new(limits);
        for (seconds, node, cluster, zone, [a, b, c, d], is_served) in reports {
            let now = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
            let mut one = report(&cluster.to_string(), &zone.to_string(), counts(a, b % 1_000, c));
            one.interval = Duration::from_millis(d);
            one.dropped_by = vec![(a.to_string(), b % 7)];
            one.localities[0].counts = if is_served { counts(a % 9, b % 9, c % 9) } else { one.localities[0].counts };
            board.record(&reporter(&node.to_string()), &[one], |_| is_served, now);
            let state = board.lock();
            let nodes = state.clusters.values().flat_map(|cluster| cluster.nodes.values());
            let n_series: usize = nodes.map(|node| 1 + node.localities.len()).sum();
            prop_assert_eq!(n_series, state.n_series);
            prop_assert!(n_series <= limits.max_series);
            let n_unknown = state.clusters.values().filter(|cluster| !cluster.is_known).count();
            prop_assert_eq!(n_unknown, state.n_unknown);
            drop(state);
            let loads = board.query(&[], None, Since { from: None, now });
            prop_assert!(loads.iter().all(|load| load.total.rate.is_finite()));
        }
    }
}
