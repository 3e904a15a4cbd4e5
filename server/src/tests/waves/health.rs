//! Two hundred clients that accept a change, and the outcomes of their requests.

use std::time::SystemTime;

use xds_cache::loads::{ClusterReport, Counts, LocalityReport, Reporter};
use xds_control::model::wave::{RequestCounts, WaveRequests};

use super::*;

/// Every client reports ten requests, so many of which failed, since a wave is held.
fn report(server: &Server, fleet: &Fleet, since: SystemTime, n_failed: impl Fn(&str) -> u64) {
    let interval = Duration::from_millis(1);
    // A period that began before does not count.
    while SystemTime::now() < since + 5 * interval {
        std::thread::yield_now();
    }
    for client in &fleet.clients {
        let errors = n_failed(&client.node.id);
        let counts = Counts { issued: 10, successful: 10 - errors, errors };
        let localities = vec![LocalityReport { counts, ..LocalityReport::default() }];
        let report =
            ClusterReport { cluster: "a".to_owned(), interval, localities, ..ClusterReport::default() };
        let reporter = Reporter { node: client.node.id.as_str().into(), groups: Arc::default() };
        server.loads.record(&reporter, &[report], |_| true, SystemTime::now());
    }
}

fn with_health(bound: &str) -> WavePolicy {
    let mut policy = policy("10%,50%", 20);
    policy.max_error_rate = Some(bound.parse().unwrap());
    policy
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_requests_fail_is_put_back() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    let id = begin(&server, "2", &with_health("5%")).await;
    let held = fleet.until_held_at(&server, "10%").await;
    let ahead = fleet.expected(id, "10%");
    report(&server, &fleet, held.since, |node| if ahead.iter().any(|one| one == node) { 4 } else { 1 });
    let report = fleet.until_phase(&server, WavePhase::Reverted).await;
    fleet.pump(&server);
    assert_eq!((report.deployment, fleet.with("a", "1").len()), (id, N_CLIENTS));
    let n = ahead.len() as u64;
    let counts = |n: u64, failed| RequestCounts { requests: 10 * n, failures: failed * n };
    let requests = WaveRequests { ahead: counts(n, 4), behind: counts(N_CLIENTS as u64 - n, 1) };
    assert_eq!(report.members.requests, Some(requests));
    let reason = report.reason.unwrap();
    assert!(reason.starts_with(&format!(
        "{} of {} requests of the nodes that have it failed",
        4 * n,
        10 * n
    )));
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_everywhere_or_that_nobody_asks_for_are_no_fault_of_the_change() {
    for (policy, of_ahead, of_behind) in
        [(with_health("5%"), 4, 4), (with_health("31%"), 4, 1), (policy("10%,50%", 20), 10, 0)]
    {
        let (server, mut fleet) = fleet(&MemoryStore::new()).await;
        let id = begin(&server, "2", &policy).await;
        let held = fleet.until_held_at(&server, "10%").await;
        let ahead = fleet.expected(id, "10%");
        report(&server, &fleet, held.since, |node| {
            if ahead.iter().any(|one| one == node) { of_ahead } else { of_behind }
        });
        let report = fleet.until_held_at(&server, "50%").await;
        assert_eq!(report.members.requests.is_some(), policy.max_error_rate.is_some());
        // The failures of the first wave are not those of the second one.
        assert_eq!(report.members.requests.unwrap_or_default(), WaveRequests::default());
        fleet.until_phase(&server, WavePhase::Completed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_reports_time_alone_passes() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    begin(&server, "2", &with_health("0.01%")).await;
    fleet.until_phase(&server, WavePhase::Completed).await;
    assert_eq!(fleet.with("a", "2").len(), N_CLIENTS);
}
