//! Histories that random search found once: what went wrong, as short as it gets.

use crate::hitless::config::Edit;
use crate::hitless::wire::Verdict;
use crate::hitless::world::Setup;
use crate::hitless::{Step, history};

pub(crate) const YES: Verdict = Verdict { is_nack: false, parts: 0 };

pub(crate) const ADS: Setup = Setup {
    is_delta: false,
    is_per_type: false,
    is_grpc: false,
    is_phased: true,
    is_scoped: false,
    is_on_demand: false,
    max_response_bytes: 3 << 20,
};

pub(crate) const DELTA: Setup = Setup { is_delta: true, ..ADS };

pub(crate) const ON_DEMAND: Setup = Setup { is_on_demand: true, ..DELTA };

pub(crate) fn poll(n: usize) -> Step {
    Step::Poll { pipe: 0, n }
}

pub(crate) fn to_server(n: usize) -> Step {
    Step::ToServer { pipe: 0, n }
}

pub(crate) fn to_client(n: usize) -> Step {
    Step::ToClient { pipe: 0, n, verdict: YES }
}

pub(crate) fn reject(n: usize) -> Step {
    Step::ToClient { pipe: 0, n, verdict: Verdict { is_nack: true, parts: 0 } }
}

pub(crate) fn publish(edits: impl IntoIterator<Item = Edit>) -> Step {
    Step::Publish(edits.into_iter().collect())
}

pub(crate) fn route(route: usize, clusters: u8) -> Edit {
    Edit::Route { route, clusters }
}

pub(crate) fn cluster(cluster: usize, is_eds: bool) -> Edit {
    Edit::Cluster { cluster, is_eds, secret: None }
}

/// The listener takes that route.
pub(crate) fn listener(listener: usize, route: usize) -> Edit {
    Edit::Listener { listener, to: Some((true, route)), secret: None }
}

pub(crate) fn no_listener() -> Edit {
    Edit::Listener { listener: 0, to: None, secret: None }
}

pub(crate) fn scope(scope: usize, route: usize) -> Edit {
    Edit::Scope { scope, to: Some(route) }
}

pub(crate) fn no_scope() -> Edit {
    Edit::Scope { scope: 0, to: None }
}

/// A route is dropped and asked for again while the response to the first time is on its way; meanwhile it changed. What was never
/// sent does not count as what the client has, so the cluster of the older version stays.
#[test]
fn a_route_that_was_asked_for_again_is_in_use_as_it_was_sent() {
    let steps = [
        publish([listener(1, 0)]),
        poll(1),
        publish([route(0, 9), route(1, 8), listener(1, 1), no_listener()]),
        poll(3),
        to_client(2),
        to_server(1),
        poll(1),
        to_server(2),
        publish([listener(1, 0)]),
    ];
    assert_eq!(history(ADS, &steps), Ok(()));
}

/// A gRPC client drops clusters, and asks for one of them again because of a route that was on its way. It has taken the cluster from
/// an older list by then, so the list for the request between must not delete it.
#[test]
fn a_cluster_that_may_be_asked_for_again_stays_on_the_list() {
    let steps = [
        publish([route(0, 14), cluster(3, false)]),
        poll(1),
        publish([listener(0, 2)]),
        publish([route(1, 13)]),
        poll(2),
        publish([route(2, 8)]),
        to_client(3),
        to_server(4),
        poll(2),
        publish([cluster(2, false)]),
        poll(1),
        publish([route(0, 0)]),
    ];
    assert_eq!(history(Setup { is_grpc: true, ..ADS }, &steps), Ok(()));
}

/// Of a cluster the first version is accepted and waits for a secret that is rejected, the second is rejected. That its endpoints are
/// asked for proves that the client has one of them, not that it needs no more.
#[test]
fn a_cluster_that_may_need_more_in_an_older_version_is_not_ready() {
    let secret = |secret| Edit::Cluster { cluster: 2, is_eds: true, secret };
    let steps = [
        publish([route(0, 4)]),
        publish([secret(Some(1))]),
        poll(1),
        to_client(1),
        to_server(1),
        publish([secret(None)]),
        publish([route(0, 4)]),
        to_server(1),
        poll(2),
        Step::ToClient { pipe: 0, n: 2, verdict: Verdict { is_nack: true, parts: 8 } },
        to_server(1),
        poll(1),
        to_client(1),
        to_server(3),
        poll(1),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// Without ADS the stream on which a route was accepted is closed when another one takes its place, whose first response is an update
/// nevertheless.
#[test]
fn what_was_accepted_on_a_closed_stream_was_accepted() {
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }]),
        to_server(1),
        Step::Reconnect,
        publish([listener(0, 2), Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Poll { pipe: 1, n: 1 },
        Step::ToClient { pipe: 1, n: 1, verdict: YES },
        Step::Drain,
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ADS }, &steps), Ok(()));
}

/// Without ADS a cluster is sent, removed and sent again while the client has seen none of it: only the stream of the second asks for
/// the endpoints that count.
#[test]
fn a_cluster_that_is_sent_again_waits_for_its_own_endpoints() {
    let steps = [
        publish([listener(0, 2)]),
        Step::Poll { pipe: 1, n: 1 },
        poll(1),
        publish([route(2, 0)]),
        poll(1),
        Step::ToClient { pipe: 1, n: 1, verdict: YES },
        publish([route(1, 4)]),
        publish([no_listener()]),
    ];
    assert_eq!(history(Setup { is_per_type: true, is_delta: true, ..ADS }, &steps), Ok(()));
}

/// A route that was dropped is asked for again when it is back and may not be sent yet: that holds up nothing else.
#[test]
fn a_route_that_is_asked_for_again_is_not_in_use_as_it_was_dropped() {
    let steps = [
        publish([no_listener()]),
        publish([route(1, 7)]),
        Step::Drain,
        publish([listener(0, 0)]),
        publish([cluster(0, true)]),
        poll(3),
        publish([route(1, 0)]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// Without ADS each route has a stream. What is gone is kept in the version of the stream that asks for it.
#[test]
fn a_route_that_is_kept_is_not_as_another_stream_knew_it() {
    let without_route = Edit::Listener { listener: 1, to: Some((false, 2)), secret: Some(1) };
    let pipe = 4;
    let steps = [
        publish([route(0, 11), without_route]),
        Step::Drain,
        publish([route(0, 0)]),
        Step::Poll { pipe, n: 1 },
        Step::ToClient { pipe, n: 1, verdict: YES },
        Step::ToServer { pipe, n: 1 },
        publish([listener(0, 1)]),
        to_server(1),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ADS }, &steps), Ok(()));
}

/// A gRPC client drops a route, accepts a response with it that was on its way, and asks for it again: of that response it has not
/// taken it up, so the clusters of the older version stay.
#[test]
fn a_route_that_came_when_it_was_not_asked_for_replaces_nothing() {
    let steps = [
        publish([listener(1, 0)]),
        publish([route(0, 7)]),
        Step::Drain,
        publish([listener(0, 1), route(0, 0)]),
        poll(2),
        publish([route(0, 8), listener(0, 0)]),
    ];
    assert_eq!(history(Setup { is_grpc: true, ..ADS }, &steps), Ok(()));
}

/// An incremental Envoy goes on with a route that it is told is gone, as long as it asks for it, but not when it has got it anew.
#[test]
fn a_route_that_was_gone_and_came_again_is_not_in_use_as_it_was() {
    let steps = [
        publish([route(1, 0)]),
        poll(1),
        publish([no_listener()]),
        poll(1),
        publish([listener(0, 1)]),
        to_client(2),
        publish([route(1, 2), route(0, 2)]),
        to_server(3),
        poll(2),
        publish([listener(0, 3)]),
        publish([route(2, 0)]),
        publish([cluster(0, false)]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// Of a change that takes several responses the first does not bring the rest: what is not sent yet the client has as it was.
#[test]
fn what_is_not_sent_yet_is_in_use_as_it_was() {
    let steps = [
        publish([route(0, 8)]),
        Step::Reconnect,
        publish([route(0, 13)]),
        publish([cluster(3, false)]),
        poll(1),
        publish([route(0, 0)]),
        to_server(1),
    ];
    let setup = Setup { is_delta: true, is_per_type: true, max_response_bytes: 300, ..ADS };
    assert_eq!(history(setup, &steps), Ok(()));
}

/// Nor are removals sent that wait for what other types have to send.
#[test]
fn a_removal_that_waits_for_updates_is_not_told_yet() {
    let steps = [
        publish([no_listener(), route(1, 0)]),
        publish([listener(1, 1)]),
        poll(1),
        publish([listener(0, 2)]),
        Step::Drain,
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// The removal of a listener is told apart from the change of another, and after the next change of that: it is taken nevertheless.
#[test]
fn a_removal_that_came_after_a_newer_change_is_taken() {
    let steps = [publish([route(0, 0), listener(1, 0), no_listener()]), poll(1)];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// What a client rejected did not bring the removal that came apart from it.
#[test]
fn a_removal_that_came_after_a_rejected_change_is_taken() {
    let steps = [publish([route(1, 2), listener(1, 1), no_listener()]), poll(3), reject(1)];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// The client rejects the first part, and the rest, a removal, is overtaken by a newer publication in which the listener is back. The
/// listener as it was stays in use until the client has a newer one.
#[test]
fn what_never_came_after_a_rejected_part_replaces_nothing() {
    let steps = [
        publish([no_listener(), listener(1, 1)]),
        publish([route(1, 0)]),
        poll(1),
        publish([Edit::Listener { listener: 0, to: Some((false, 2)), secret: None }]),
        reject(1),
        poll(1),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// A cluster as the client has it refers to a secret that has gone before the client asked for it: it is not ready, and a listener
/// waits for the newer version.
#[test]
fn a_cluster_whose_secret_has_gone_since_is_not_ready() {
    let steps = [
        publish([Edit::Cluster { cluster: 0, is_eds: false, secret: Some(1) }]),
        publish([route(0, 14)]),
        Step::Drain,
        publish([route(0, 0)]),
        poll(1),
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }, cluster(0, true)]),
        to_client(2),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ADS }, &steps), Ok(()));
}

/// That a later response is accepted does not mean that the client took the rejected version before it.
#[test]
fn a_rejected_version_is_not_accepted_by_what_comes_after_it() {
    let secret = |secret| publish([Edit::Listener { listener: 1, to: None, secret }]);
    let rejects = Verdict { is_nack: true, parts: 4 };
    let steps = [
        secret(Some(1)),
        poll(1),
        to_client(1),
        secret(None),
        poll(1),
        to_server(1),
        poll(1),
        Step::ToClient { pipe: 0, n: 2, verdict: rejects },
        publish([no_listener()]),
        Step::Drain,
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// A removal is taken though the response is rejected that tells it.
#[test]
fn a_rejected_removal_is_taken() {
    let steps =
        [publish([listener(0, 2)]), poll(2), to_client(2), publish([no_listener()]), poll(1), reject(1)];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// The same, when the removal came apart from a change that was accepted.
#[test]
fn a_rejected_removal_that_came_apart_is_taken() {
    let steps = [
        publish([listener(1, 0), no_listener()]),
        publish([Edit::Secret { secret: 0 }, route(0, 3)]),
        poll(4),
        publish([Edit::Spare { cluster: 2, is_there: true }]),
        poll(3),
        to_client(6),
        reject(1),
        publish([route(0, 4)]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// A gRPC client is led to another route, and the one that it goes by until that is complete is sent to it, twice, when it does not
/// ask for it any more: the first time as it has it, then in a newer version. It goes on with what it has.
#[test]
fn a_route_that_came_twice_when_it_was_not_asked_for_replaces_nothing() {
    let steps = [
        publish([route(1, 5)]),
        publish([route(0, 9)]),
        Step::Reconnect,
        publish([cluster(0, false)]),
        publish([listener(0, 1)]),
        poll(1),
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        poll(3),
        publish([route(0, 0)]),
    ];
    assert_eq!(history(Setup { is_grpc: true, ..ADS }, &steps), Ok(()));
}

/// The change and the removal that came apart are both rejected.
#[test]
fn a_rejected_removal_that_came_apart_from_a_rejected_change_is_taken() {
    let steps = [
        publish([route(0, 12)]),
        poll(2),
        publish([listener(1, 1), no_listener()]),
        to_client(1),
        to_server(1),
        poll(2),
        reject(2),
        publish([Edit::Secret { secret: 0 }]),
        poll(2),
        reject(2),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// A cluster in use is to have a secret, and leaves with it before its Envoy has asked for that. Told that there is none, the Envoy
/// would go on without it.
#[test]
fn what_is_gone_when_it_is_asked_for_is_not_told_to_be_missing() {
    let steps = [
        publish([Edit::Cluster { cluster: 0, is_eds: false, secret: Some(1) }]),
        poll(1),
        publish([route(0, 14)]),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}

/// A list without a listener is rejected, and the next list shows the listener in a newer version: it may never have been gone, so it is
/// in use as it was until the newer version is ready.
#[test]
fn what_a_rejected_list_did_not_show_may_never_have_been_gone() {
    let steps = [
        publish([route(2, 2)]),
        publish([listener(1, 0)]),
        publish([Edit::Listener { listener: 0, to: Some((false, 2)), secret: None }]),
        Step::Drain,
        publish([no_listener(), cluster(0, false)]),
        poll(2),
        reject(2),
        publish([Edit::Spare { cluster: 0, is_there: false }]),
        publish([listener(0, 1)]),
    ];
    assert_eq!(history(ADS, &steps), Ok(()));
}

/// The last part of a change is accepted after an earlier part was rejected; nothing is told of that, but the order goes on.
#[test]
fn an_accepted_part_after_a_rejected_one_frees_what_waits() {
    let listener = |secret| publish([Edit::Listener { listener: 1, to: None, secret }]);
    let steps = [
        listener(Some(1)),
        poll(1),
        publish([cluster(0, false)]),
        listener(None),
        to_client(1),
        to_server(1),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: Verdict { is_nack: true, parts: 10 } },
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

/// A scope is sent while routes of others are still to be sent, and is gone, with the routes that it leads to, before these are.
#[test]
fn a_scope_leads_to_what_there_was_when_it_was_sent() {
    let steps = [
        publish([route(0, 11), listener(1, 0)]),
        Step::Reconnect,
        publish([route(0, 0), scope(0, 1)]),
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }]),
        poll(2),
        publish([route(0, 0), no_scope()]),
    ];
    assert_eq!(history(Setup { is_scoped: true, ..ADS }, &steps), Ok(()));
}

/// A route changes while the scope that leads to it is on its way, and is gone before it is asked for.
#[test]
fn what_a_scope_leads_to_stays_as_it_was_until_it_is_asked_for() {
    let steps = [
        publish([no_listener(), no_scope()]),
        publish([route(1, 13)]),
        Step::Reconnect,
        publish([Edit::Cluster { cluster: 0, is_eds: false, secret: Some(0) }, scope(1, 2)]),
        Step::Poll { pipe: 2, n: 1 },
        Step::ToClient { pipe: 2, n: 1, verdict: YES },
        publish([route(2, 2)]),
        poll(1),
        publish([cluster(0, false), Edit::Scope { scope: 1, to: None }]),
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

/// A client that was sent a route goes on with that, whatever became of the route since then.
#[test]
fn a_route_that_comes_back_for_a_moment_keeps_its_clusters() {
    let steps = [
        publish([route(2, 6)]),
        Step::Reconnect,
        publish([no_scope()]),
        publish([route(2, 4), scope(1, 1)]),
        poll(1),
        publish([scope(0, 2)]),
        poll(1),
        publish([route(0, 4), no_scope()]),
        publish([listener(1, 0), route(1, 8)]),
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

/// A part of what did not fit into one response is rejected, and accepted when it is sent again, while the last part waits.
#[test]
fn a_part_that_is_sent_again_is_accepted_by_itself() {
    let steps = [
        publish([route(0, 10)]),
        poll(1),
        publish([cluster(3, true), route(1, 0), cluster(1, true)]),
        publish([cluster(0, true)]),
        to_client(1),
        to_server(1),
        poll(3),
        to_client(2),
        to_server(2),
        reject(1),
        to_server(2),
        Step::Drain,
    ];
    assert_eq!(history(Setup { max_response_bytes: 300, ..DELTA }, &steps), Ok(()));
}

/// A virtual host that is gone when the first request to it comes waits for its cluster, which is sent once more meanwhile.
#[test]
fn a_host_that_is_gone_is_sent_when_its_cluster_is_ready() {
    let steps = [
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(4) }]),
        Step::Request { route: 1, host: 1 },
        poll(1),
        publish([listener(1, 2)]),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ON_DEMAND }, &steps), Ok(()));
}

/// What is gone when the first request to it comes is told by the name that was asked for, so that the request does not wait for ever.
#[test]
fn a_request_to_a_host_that_has_gone_is_answered() {
    let steps = [
        publish([Edit::Host { route: 0, clusters: Some(1) }]),
        Step::Drain,
        Step::Request { route: 0, host: 1 },
        publish([route(0, 0), Edit::Host { route: 0, clusters: None }]),
        publish([route(0, 0)]),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ON_DEMAND }, &steps), Ok(()));
}

/// A route configuration comes back, and the virtual host of it that was asked for has to wait: the Envoy hears of the configuration
/// nevertheless, because it waits for that, and goes on with what is gone.
#[test]
fn a_route_that_comes_back_is_heard_of_before_its_host() {
    let steps = [
        publish([route(0, 0)]),
        publish([no_listener()]),
        Step::Request { route: 0, host: 0 },
        Step::Drain,
        publish([listener(0, 0)]),
        poll(2),
        publish([listener(1, 0)]),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

/// That there is nothing of a host is a removal, and replaces what the client never had.
#[test]
fn a_host_that_never_came_holds_nothing_up() {
    let steps = [
        Step::Request { route: 1, host: 1 },
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(12) }]),
        publish([listener(0, 2)]),
        Step::Request { route: 0, host: 0 },
        publish([listener(1, 2)]),
        Step::Reconnect,
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}
