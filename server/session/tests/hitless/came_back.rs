//! Histories with lost connections that random search found once, as short as they get: each lost something that the client was using.

use crate::hitless::config::Edit;
use crate::hitless::found::{
    ADS, DELTA, ON_DEMAND, YES, cluster, listener, no_listener, no_scope, poll, publish, reject, route,
    scope, to_client, to_server,
};
use crate::hitless::world::Setup;
use crate::hitless::{OTHER_NAME, Step, history};

/// A request to a host by its alias.
const BY_OTHER_NAME: Step = Step::Request { route: 0, host: OTHER_NAME };

#[test]
fn a_listener_that_moves_while_a_grpc_client_is_away() {
    let steps = [
        publish([no_listener()]),
        Step::Reconnect,
        publish([route(0, 14), Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
        publish([route(0, 0)]),
    ];
    assert_eq!(history(Setup { is_grpc: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn clusters_that_a_route_gains_after_its_stream_was_lost() {
    let steps = [publish([route(0, 0)]), publish([route(0, 0)]), Step::Reconnect, publish([route(0, 14)])];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_route_that_is_rejected_after_a_reconnect() {
    let steps = [
        publish([route(0, 0)]),
        Step::Reconnect,
        to_server(1),
        poll(1),
        publish([route(1, 4), listener(0, 1)]),
        publish([route(1, 0)]),
        publish([Edit::Endpoints { cluster: 0 }]),
        to_server(3),
        poll(2),
        reject(3),
        to_server(2),
        poll(1),
        to_server(2),
        poll(1),
    ];
    assert_eq!(history(ADS, &steps), Ok(()));
}

#[test]
fn endpoints_that_are_asked_for_on_a_stream_that_comes_back_last() {
    let steps = [Step::Reconnect, publish([cluster(0, true)]), publish([route(0, 8)])];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_removal_that_was_sent_on_the_lost_stream() {
    let steps = [
        publish([no_listener()]),
        Step::Drain,
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Poll { pipe: 1, n: 1 },
        Step::ToClient { pipe: 1, n: 1, verdict: YES },
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_scope_that_is_replaced_while_other_streams_are_away() {
    let steps = [
        publish([route(0, 14)]),
        Step::Drain,
        publish([route(2, 0)]),
        Step::Reconnect,
        Step::ToServer { pipe: 2, n: 1 },
        poll(1),
        publish([route(0, 0), scope(1, 0), no_scope()]),
        publish([route(0, 0)]),
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_scope_that_is_replaced_right_after_a_reconnect() {
    let steps = [
        Step::Reconnect,
        publish([route(2, 8)]),
        publish([route(0, 0), scope(1, 0), no_scope()]),
        publish([route(2, 0)]),
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_cluster_that_lost_its_endpoints_before_the_reconnect() {
    let steps = [
        publish([cluster(0, false), no_scope()]),
        Step::Drain,
        Step::Reconnect,
        publish([route(0, 2), scope(1, 0)]),
        Step::Drain,
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn routes_that_were_never_received_before_the_reconnect() {
    let steps = [
        publish([route(1, 2)]),
        publish([route(1, 8)]),
        Step::Reconnect,
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        poll(1),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_scope_that_goes_when_only_its_own_stream_is_back() {
    let steps = [
        Step::Reconnect,
        publish([route(0, 0), scope(1, 1)]),
        Step::ToServer { pipe: 2, n: 1 },
        Step::Poll { pipe: 2, n: 1 },
        publish([route(0, 0), Edit::Scope { scope: 1, to: None }]),
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_cluster_that_needs_a_secret_since_the_connection_was_lost() {
    let steps = [
        publish([route(0, 4)]),
        publish([Edit::Cluster { cluster: 2, is_eds: false, secret: Some(1) }]),
        publish([route(0, 0)]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_listener_that_goes_and_comes_while_the_client_is_away() {
    let steps = [
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        publish([no_listener()]),
        publish([
            Edit::Listener { listener: 1, to: Some((false, 1)), secret: None },
            cluster(0, false),
            no_scope(),
        ]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn endpoints_that_are_asked_for_before_the_clusters_are() {
    let steps = [
        publish([cluster(0, false)]),
        Step::Drain,
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Reconnect,
        Step::ToServer { pipe: 4, n: 1 },
        Step::Poll { pipe: 4, n: 1 },
    ];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_scope_that_goes_after_its_route_changed_twice() {
    let steps = [
        publish([route(2, 4)]),
        publish([route(2, 8)]),
        publish([route(0, 0)]),
        publish([route(0, 0), no_scope()]),
        publish([route(0, 0)]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_secret_that_is_asked_for_before_the_clusters_are() {
    let steps = [
        publish([Edit::Cluster { cluster: 1, is_eds: false, secret: Some(1) }]),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        Step::Reconnect,
        Step::ToServer { pipe: 3, n: 1 },
        publish([route(1, 12)]),
        Step::Poll { pipe: 3, n: 1 },
    ];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_route_that_is_used_again_right_after_it_was_dropped() {
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }, scope(0, 0)]),
        Step::Poll { pipe: 4, n: 1 },
        Step::Poll { pipe: 2, n: 1 },
        publish([route(0, 15)]),
        publish([scope(0, 2)]),
        Step::ToClient { pipe: 4, n: 2, verdict: YES },
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_scoped: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_scope_that_passed_to_another_route_when_the_connection_was_lost() {
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }, scope(0, 0)]),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        Step::Reconnect,
        publish([route(1, 0)]),
    ];
    assert_eq!(history(Setup { is_scoped: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_listener_that_left_and_came_with_another_route_before_it_was_answered() {
    let steps = [
        Step::Reconnect,
        to_server(3),
        publish([no_listener()]),
        publish([listener(0, 3)]),
        to_server(2),
        poll(5),
        publish([Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
    ];
    assert_eq!(history(ADS, &steps), Ok(()));
}

#[test]
fn a_cluster_that_comes_to_need_a_secret_while_the_client_comes_back() {
    let secret = |cluster| publish([Edit::Cluster { cluster, is_eds: false, secret: Some(0) }]);
    let steps = [
        publish([
            Edit::Listener { listener: 0, to: Some((false, 2)), secret: None },
            Edit::Listener { listener: 1, to: None, secret: Some(1) },
        ]),
        poll(2),
        Step::ToClient { pipe: 0, n: 2, verdict: YES },
        Step::Reconnect,
        to_server(3),
        secret(0),
        poll(1),
        secret(2),
        poll(2),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_scope_that_came_back_with_another_route_and_asks_for_that_late() {
    let steps = [
        Step::Reconnect,
        publish([route(2, 8), no_scope()]),
        to_server(2),
        publish([listener(0, 2), scope(0, 0)]),
        to_server(2),
        poll(1),
        publish([no_listener()]),
        poll(2),
        Step::Drain,
    ];
    assert_eq!(history(Setup { is_scoped: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_gone_when_the_request_to_it_is_made_again() {
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }]),
        Step::Request { route: 0, host: 0 },
        Step::Reconnect,
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_that_is_gone_and_is_not_asked_for_yet() {
    let host = |clusters| Edit::Host { route: 0, clusters };
    let steps = [
        publish([host(Some(1))]),
        Step::Drain,
        Step::Request { route: 0, host: 1 },
        Step::Drain,
        publish([route(0, 2), host(None)]),
        Step::Reconnect,
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_of_before_that_the_first_request_comes_to_after_the_reconnect() {
    let steps = [
        publish([route(0, 4)]),
        Step::Drain,
        Step::Reconnect,
        publish([route(1, 0)]),
        publish([route(0, 0), Edit::Host { route: 0, clusters: None }]),
        Step::Request { route: 1, host: 0 },
        to_server(1),
        publish([listener(1, 2)]),
        to_server(6),
        publish([route(0, 14)]),
        poll(4),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn hosts_of_routes_that_are_not_in_use_any_more() {
    let steps = [
        publish([route(1, 0), Edit::Host { route: 1, clusters: Some(6) }]),
        Step::Request { route: 0, host: 0 },
        Step::Drain,
        publish([listener(1, 0)]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ON_DEMAND }, &steps), Ok(()));
}

#[test]
fn a_route_that_only_a_scope_led_to_before_the_reconnect() {
    let steps = [
        publish([no_scope()]),
        Step::Drain,
        publish([scope(0, 2)]),
        publish([route(2, 0)]),
        Step::Poll { pipe: 2, n: 1 },
        Step::ToClient { pipe: 2, n: 1, verdict: YES },
        publish([no_scope()]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_scoped: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_has_to_be_sent_again_right_after_the_reconnect() {
    let steps = [
        Step::Request { route: 0, host: 0 },
        to_server(1),
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Request { route: 1, host: 0 },
        to_server(1),
        poll(2),
        Step::ToClient { pipe: 0, n: 2, verdict: YES },
        publish([Edit::Host { route: 0, clusters: None }]),
        Step::Reconnect,
        to_server(1),
        publish([route(0, 2)]),
        poll(1),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_listener_that_comes_back_before_its_removal_was_sent() {
    let steps = [
        publish([route(1, 8)]),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        to_server(1),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        Step::Reconnect,
        publish([no_listener()]),
        to_server(5),
        poll(2),
        publish([Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_route_whose_hosts_were_not_heard_of_before_the_connection_was_lost() {
    let to_client = |n| Step::ToClient { pipe: 0, n, verdict: YES };
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((true, 2)), secret: Some(1) }]),
        poll(2),
        to_server(2),
        to_client(2),
        to_server(4),
        poll(3),
        to_client(3),
        Step::Reconnect,
        to_server(3),
        Step::Drain,
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_that_was_asked_for_by_its_other_name_and_goes_while_the_client_is_away() {
    let steps = [
        BY_OTHER_NAME,
        Step::Drain,
        publish([route(0, 0), Edit::Host { route: 0, clusters: None }]),
        Step::Reconnect,
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_by_its_other_name_while_its_route_goes() {
    let steps = [
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }]),
        Step::Reconnect,
        BY_OTHER_NAME,
        publish([route(0, 0)]),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn endpoints_of_a_cluster_that_changed_before_the_connection_was_lost() {
    let steps = [
        publish([cluster(0, true)]),
        poll(1),
        Step::ToClient { pipe: 0, n: 1, verdict: YES },
        Step::Reconnect,
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_scope_that_moves_twice_around_a_lost_connection() {
    let steps = [
        publish([scope(0, 0)]),
        poll(1),
        to_client(1),
        publish([scope(0, 2)]),
        poll(1),
        to_client(1),
        Step::Reconnect,
        to_server(3),
        poll(2),
        to_server(3),
        poll(3),
        publish([route(0, 12), no_scope()]),
    ];
    assert_eq!(history(Setup { is_scoped: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_by_both_names_when_it_is_gone() {
    let steps = [
        publish([route(0, 0), Edit::Host { route: 0, clusters: None }]),
        Step::Request { route: 0, host: 2 },
        Step::Request { route: 0, host: 1 },
    ];
    assert_eq!(history(Setup { is_on_demand: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_changes_while_a_client_is_away_that_asked_by_its_other_name() {
    let steps = [
        BY_OTHER_NAME,
        publish([route(0, 0), Edit::Host { route: 0, clusters: Some(8) }]),
        Step::Drain,
        publish([route(0, 0), Edit::Host { route: 0, clusters: Some(0) }]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_on_demand: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_by_its_other_name_and_leads_to_a_new_cluster() {
    let steps = [
        publish([
            Edit::Listener { listener: 1, to: None, secret: None },
            Edit::Host { route: 0, clusters: Some(4) },
        ]),
        publish([route(0, 0)]),
        BY_OTHER_NAME,
    ];
    assert_eq!(history(Setup { is_on_demand: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_goes_while_it_is_asked_for_by_a_second_name() {
    let steps = [
        BY_OTHER_NAME,
        publish([Edit::Endpoints { cluster: 0 }, route(0, 4), Edit::Table { route: 0 }]),
        to_server(1),
        poll(3),
        publish([route(0, 0)]),
        Step::Request { route: 0, host: 1 },
        publish([route(0, 0), Edit::Host { route: 0, clusters: None }]),
    ];
    assert_eq!(history(Setup { is_on_demand: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_by_its_other_name_for_the_first_time_after_the_reconnect_and_goes() {
    let steps = [
        BY_OTHER_NAME,
        Step::Reconnect,
        Step::Request { route: 1, host: 0 },
        publish([route(0, 0), Edit::Host { route: 0, clusters: Some(4) }]),
        publish([Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
    ];
    assert_eq!(history(Setup { is_on_demand: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_route_with_a_host_that_nobody_answered_for_goes_while_the_client_is_away() {
    let steps = [
        publish([no_listener()]),
        Step::Drain,
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(0) }]),
        Step::Request { route: 1, host: 2 },
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_on_demand: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_waits_under_its_other_name_when_the_connection_is_lost() {
    let steps = [
        publish([route(0, 0), Edit::Host { route: 0, clusters: Some(4) }]),
        publish([Edit::Listener { listener: 0, to: Some((false, 2)), secret: None }]),
        BY_OTHER_NAME,
        publish([route(0, 0)]),
        Step::Reconnect,
    ];
    assert_eq!(history(Setup { is_on_demand: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_by_its_other_name_after_its_route_left_the_listener() {
    let steps = [
        publish([route(0, 0)]),
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(4) }]),
        Step::Reconnect,
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        Step::Request { route: 1, host: 2 },
    ];
    assert_eq!(history(Setup { is_on_demand: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn endpoints_of_a_cluster_that_changed_and_left_and_came_back_with_the_client() {
    let steps = [
        publish([cluster(0, true)]),
        poll(1),
        to_client(1),
        Step::Reconnect,
        to_server(1),
        to_server(3),
        publish([no_listener()]),
        poll(2),
        publish([route(2, 0)]),
        publish([listener(0, 2)]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_route_that_was_kept_inline_and_left_while_the_client_came_back() {
    let steps = [
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        Step::Drain,
        publish([route(2, 4)]),
        Step::Reconnect,
        to_server(2),
        to_server(3),
        poll(1),
        poll(3),
        publish([Edit::Listener { listener: 1, to: None, secret: Some(1) }]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_route_whose_stream_comes_back_first_and_has_nothing_to_show() {
    let steps = [
        publish([no_listener()]),
        Step::Drain,
        publish([listener(0, 3)]),
        poll(1),
        to_client(1),
        Step::Reconnect,
        to_server(4),
        poll(4),
    ];
    for setup in [ADS, DELTA] {
        assert_eq!(history(Setup { is_per_type: true, ..setup }, &steps), Ok(()));
    }
}

#[test]
fn a_name_that_does_not_exist_and_comes_while_its_host_is_withheld() {
    let steps = [
        publish([no_listener()]),
        Step::Reconnect,
        Step::Request { route: 1, host: 2 },
        Step::Drain,
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(3) }]),
        publish([Edit::Secret { secret: 0 }]),
        Step::Request { route: 1, host: 1 },
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
    ];
    assert_eq!(history(Setup { is_on_demand: true, is_per_type: true, ..DELTA }, &steps), Ok(()));
}

#[test]
fn a_host_of_a_route_that_left_is_asked_for_by_its_other_name() {
    let steps = [
        Step::Request { route: 0, host: 0 },
        Step::Drain,
        publish([Edit::Listener { listener: 0, to: Some((false, 2)), secret: None }]),
        Step::Reconnect,
        publish([route(0, 0)]),
        BY_OTHER_NAME,
        publish([route(0, 0)]),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_of_a_route_that_left_is_asked_for_by_both_names() {
    let steps = [
        publish([route(0, 0), Edit::Host { route: 2, clusters: Some(4) }]),
        Step::Request { route: 1, host: 0 },
        publish([listener(0, 2)]),
        Step::Drain,
        publish([Edit::Listener { listener: 0, to: Some((false, 0)), secret: None }]),
        Step::Reconnect,
        Step::Request { route: 2, host: 1 },
        Step::Request { route: 2, host: 2 },
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_that_another_stream_seems_to_have_is_asked_for_before_its_clusters_are_ready() {
    let steps = [
        Step::Request { route: 1, host: 0 },
        Step::Drain,
        Step::Reconnect,
        publish([route(1, 3)]),
        Step::Request { route: 1, host: 1 },
        publish([route(0, 0), Edit::Host { route: 1, clusters: Some(4) }]),
        publish([
            Edit::Listener { listener: 1, to: Some((false, 2)), secret: None },
            Edit::Host { route: 0, clusters: Some(10) },
        ]),
    ];
    assert_eq!(history(Setup { is_per_type: true, ..ON_DEMAND }, &steps), Ok(()));
}

#[test]
fn a_host_that_is_gone_is_not_in_use_by_its_other_name() {
    let steps = [
        BY_OTHER_NAME,
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        Step::Reconnect,
        publish([route(0, 0), Edit::Host { route: 0, clusters: Some(4) }]),
        to_server(2),
        publish([no_listener()]),
        Step::Request { route: 1, host: 0 },
        poll(2),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_listener_that_the_client_shows_is_not_missing_beside_one_that_changed() {
    let steps = [
        Step::Request { route: 0, host: 0 },
        publish([route(1, 4)]),
        publish([
            Edit::Listener { listener: 0, to: Some((false, 0)), secret: None },
            Edit::Listener { listener: 1, to: Some((false, 1)), secret: None },
        ]),
        Step::Drain,
        publish([route(0, 0), Edit::Table { route: 1 }]),
        publish([no_listener()]),
        Step::Reconnect,
        to_server(2),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_listener_that_the_client_shows_is_not_missing_beside_one_that_left() {
    let steps = [
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        poll(2),
        to_server(1),
        to_client(2),
        publish([no_listener()]),
        Step::Reconnect,
        Step::Request { route: 0, host: 0 },
        to_server(2),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_change_that_was_taken_back_before_its_rest_was_sent() {
    let steps = [
        Step::Request { route: 0, host: 0 },
        publish([no_listener()]),
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: Some(1) }]),
        to_server(1),
        poll(2),
        publish([Edit::Listener { listener: 0, to: Some((false, 2)), secret: Some(0) }]),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_host_that_the_client_shows_is_not_missing_after_a_part_of_what_it_was_sent() {
    let steps = [
        publish([route(0, 8), Edit::Host { route: 2, clusters: Some(2) }]),
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        Step::Request { route: 1, host: 0 },
        Step::Drain,
        Step::Request { route: 0, host: 1 },
        publish([route(0, 8), Edit::Host { route: 0, clusters: Some(0) }]),
        publish([Edit::Spare { cluster: 0, is_there: false }]),
        to_server(1),
        to_server(1),
        poll(1),
        to_client(1),
        publish([route(0, 0)]),
        Step::Request { route: 0, host: 0 },
        Step::Reconnect,
        to_server(1),
        to_server(2),
        Step::Request { route: 2, host: 1 },
    ];
    assert_eq!(history(Setup { max_response_bytes: 300, ..ON_DEMAND }, &steps), Ok(()));
}

#[test]
fn a_host_that_was_never_there_by_its_other_name_is_not_in_use() {
    let steps = [
        Step::Request { route: 0, host: 0 },
        Step::Drain,
        Step::Reconnect,
        publish([route(0, 2), Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
        publish([route(0, 2)]),
        to_server(2),
        BY_OTHER_NAME,
        publish([
            Edit::Listener { listener: 1, to: None, secret: None },
            Edit::Host { route: 0, clusters: Some(2) },
        ]),
        to_server(2),
        poll(1),
        publish([Edit::Listener { listener: 1, to: Some((false, 1)), secret: None }]),
        poll(1),
        publish([Edit::Endpoints { cluster: 1 }]),
        poll(1),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_route_that_the_client_shows_is_not_missing_once_it_lacks_nothing() {
    let steps = [
        publish([route(0, 6), Edit::Listener { listener: 1, to: None, secret: None }, no_listener()]),
        publish([route(2, 13)]),
        Step::Drain,
        Step::Reconnect,
        to_server(1),
        to_server(3),
        publish([Edit::Listener { listener: 1, to: Some((false, 2)), secret: None }]),
        to_server(1),
        poll(2),
        poll(2),
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
    ];
    assert_eq!(history(DELTA, &steps), Ok(()));
}

#[test]
fn a_host_that_is_asked_for_after_the_client_came_with_everything() {
    let steps = [
        Step::Request { route: 1, host: 0 },
        Step::Request { route: 0, host: 0 },
        Step::Drain,
        Step::Reconnect,
        Step::Drain,
        publish([route(1, 0)]),
        BY_OTHER_NAME,
        publish([cluster(0, true), route(0, 4)]),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_cluster_that_was_listed_though_withheld_and_is_asked_for_again() {
    let steps = [
        publish([route(0, 10)]),
        poll(1),
        to_client(1),
        to_server(1),
        poll(1),
        to_client(1),
        publish([route(0, 12), Edit::Listener { listener: 1, to: None, secret: None }]),
        Step::Reconnect,
        to_server(2),
        poll(2),
        publish([Edit::Listener { listener: 0, to: Some((false, 1)), secret: None }]),
        poll(1),
        publish([route(0, 12)]),
        publish([no_listener()]),
    ];
    assert_eq!(history(Setup { is_grpc: true, ..ADS }, &steps), Ok(()));
}

#[test]
fn a_listener_that_is_replaced_before_its_hosts_were_heard_of() {
    let steps = [
        Step::Reconnect,
        to_server(2),
        publish([Edit::Secret { secret: 1 }]),
        to_server(2),
        publish([route(2, 0)]),
        poll(2),
        Step::Request { route: 0, host: 0 },
        publish([route(0, 0)]),
        publish([
            Edit::Listener { listener: 0, to: Some((false, 2)), secret: Some(1) },
            Edit::Listener { listener: 1, to: Some((false, 2)), secret: None },
            route(0, 8),
        ]),
        to_server(3),
        poll(1),
        to_client(3),
        to_server(2),
        to_server(2),
        Step::Request { route: 0, host: 1 },
        poll(3),
        to_server(1),
        poll(1),
        to_client(2),
        to_server(2),
        to_client(1),
        poll(2),
        to_server(2),
        publish([Edit::Listener { listener: 1, to: None, secret: None }]),
        to_client(1),
    ];
    assert_eq!(history(ON_DEMAND, &steps), Ok(()));
}

#[test]
fn a_route_that_was_withheld_at_first_and_is_on_its_way() {
    let steps = [
        publish([route(1, 4)]),
        poll(1),
        to_client(1),
        Step::Reconnect,
        to_server(3),
        to_server(2),
        poll(2),
        to_client(2),
        poll(3),
        to_client(1),
        to_client(2),
        to_server(2),
        to_server(3),
        poll(2),
        reject(1),
    ];
    assert_eq!(history(ADS, &steps), Ok(()));
}

#[test]
fn a_cluster_that_lost_its_secret_while_it_was_warming() {
    let direct = Edit::Listener { listener: 0, to: Some((false, 2)), secret: None };
    let steps = [
        publish([direct, Edit::Cluster { cluster: 2, is_eds: false, secret: Some(1) }]),
        poll(1),
        to_client(1),
        publish([cluster(2, true)]),
        Step::Reconnect,
        Step::ToServer { pipe: 1, n: 1 },
        Step::ToServer { pipe: 4, n: 1 },
    ];
    assert_eq!(history(Setup { is_per_type: true, ..DELTA }, &steps), Ok(()));
}
