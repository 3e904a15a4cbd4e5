//! Tests of reading assignments that are written by hand.

use std::time::Duration;

use super::assignment::{address_text, endpoints, with_draining};
use super::*;
use crate::node::Profile;
use crate::wire::{put_bytes, put_number};

fn message(parts: &[(u32, &[u8])]) -> Vec<u8> {
    let mut message = Vec::new();
    parts.iter().for_each(|(number, value)| put_bytes(&mut message, *number, value));
    message
}

fn socket(host: &str, port: u64) -> Vec<u8> {
    let mut socket = message(&[(2, host.as_bytes())]);
    put_number(&mut socket, 3, port);
    message(&[(1, &socket)])
}

/// An assignment of one locality without name, weight or priority.
fn assignment(lb_endpoints: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<(u32, &[u8])> = lb_endpoints.iter().map(|one| (2, &**one)).collect();
    message(&[(1, b"c"), (2, &message(&parts))])
}

fn lb_endpoint(addresses: &[&str]) -> Vec<u8> {
    let mut endpoint = Vec::new();
    for (position, host) in addresses.iter().enumerate() {
        match position {
            0 => put_bytes(&mut endpoint, 1, &socket(host, 80)),
            _ => put_bytes(&mut endpoint, 4, &message(&[(1, &socket(host, 80))])),
        }
    }
    message(&[(1, &endpoint)])
}

#[test]
fn addresses_are_told_as_people_write_them() {
    assert_eq!(address_text(&socket("10.0.0.1", 80)), "10.0.0.1:80");
    assert_eq!(address_text(&socket("::1", 443)), "[::1]:443");
    assert_eq!(address_text(&message(&[(2, &message(&[(1, b"/run/a")]))])), "/run/a");
    assert_eq!(address_text(&message(&[(3, b"")])), "an internal address");
}

#[test]
fn what_has_no_address_of_its_own_does_not_drain() {
    let named = message(&[(5, b"name")]);
    assert!(endpoints(&assignment(&[named])).is_empty());
    assert!(endpoints(b"junk").is_empty());
}

#[test]
fn localities_that_grpc_clients_skip_make_no_gap_before_what_drains() {
    let draining = endpoints(&message(&[(2, &message(&[(1, b""), (2, &lb_endpoint(&["a"]))]))]));
    let without_weight = assignment(&[lb_endpoint(&["b"])]);
    let priority = |profile| {
        let served = with_draining(&without_weight, draining.iter(), profile).unwrap();
        let localities = crate::wire::all_of(&served, 2);
        localities.map(|locality| crate::wire::number_of(locality, 5)).collect::<Vec<_>>()
    };
    assert_eq!(priority(Profile::Envoy), [0, 1]);
    assert_eq!(priority(Profile::Grpc), [0, 0], "the first one does not count for them");
    let mut last = Vec::new();
    put_number(&mut last, 5, 128);
    let full = message(&[(2, &last)]);
    assert!(with_draining(&full, draining.iter(), Profile::Envoy).is_none(), "there is no priority after it");
}

#[test]
fn grpc_clients_are_sent_no_locality_without_a_name() {
    let draining = endpoints(&assignment(&[lb_endpoint(&["a"])]));
    let left = assignment(&[]);
    let served = |profile| with_draining(&left, draining.iter(), profile).unwrap();
    assert_eq!(served(Profile::Grpc), left);
    assert_ne!(served(Profile::Envoy), left);
}

/// The endpoints that drain after `before` became `after`.
fn drained(before: &[Vec<u8>], after: &[Vec<u8>]) -> Vec<String> {
    let resource = |all: &[Vec<u8>]| {
        Arc::new(Resource::plain(ResourceType::ClusterLoadAssignment, "c", assignment(all)))
    };
    let group = |all| {
        let group = crate::layer::LayerGroup {
            resources: [resource(all)].into_iter().collect(),
            ..Default::default()
        };
        let layer =
            crate::Layer { groups: [(crate::GroupName::default_group(), group)].into_iter().collect() };
        crate::layer::merge(&layer, &crate::Layer::default(), &Default::default())
    };
    let policy = DrainPolicy { endpoints: Some(Duration::from_secs(1)), clusters: None };
    let publisher = crate::Publisher::draining(policy);
    let now = Instant::now();
    let node = crate::Node::with_id("n");
    publisher.publish_split(crate::Revision(1), group(before), None, now);
    let _followed = publisher.follow(&node);
    publisher.publish_split(crate::Revision(2), group(after), None, now);
    publisher.view_of(&node).unwrap().draining().filter_map(|one| one.endpoint).collect()
}

#[test]
fn an_address_that_another_endpoint_has_too_does_not_drain() {
    let two = lb_endpoint(&["a", "b"]);
    assert_eq!(drained(std::slice::from_ref(&two), &[lb_endpoint(&["c"])]), ["a:80"]);
    assert!(drained(&[two], &[lb_endpoint(&["b"])]).is_empty());
}

#[test]
fn no_more_drain_than_the_limit() {
    let many: Vec<Vec<u8>> =
        (0..=MAX_DRAINING_ENDPOINTS).map(|number| lb_endpoint(&[&number.to_string()])).collect();
    assert_eq!(drained(&many, &[]).len(), MAX_DRAINING_ENDPOINTS);
}
