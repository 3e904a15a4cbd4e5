//! The phases of a change, as a dry run tells them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::layer::{Generated, Groups, Layer, LayerGroup, merge};
use xds_cache::{
    AHEAD, DrainPolicy, GroupName, Phase, Profile, Publisher, Reference, Resource, ResourceDraft,
    ResourceKey, ResourceType, Revision, ViewKey,
};
use xds_session::{Limits, MAX_PHASES, phases};

const CLUSTER: ResourceType = ResourceType::Cluster;
const ENDPOINTS: ResourceType = ResourceType::ClusterLoadAssignment;
const LISTENER: ResourceType = ResourceType::Listener;
const ROUTES: ResourceType = ResourceType::RouteConfiguration;

fn key(resource_type: &ResourceType, name: &str) -> ResourceKey {
    ResourceKey { resource_type: resource_type.clone(), name: name.into() }
}

/// A listener `l` with the routes `r` to some clusters, each with its endpoints. A cluster whose name begins with `dns` resolves
/// names instead.
fn groups(clusters: &[&str]) -> Groups {
    let mut group = LayerGroup::default();
    let mut add = |resource_type: &ResourceType, name: &str, content: &[u8], to: &[(&ResourceType, &str)]| {
        let references =
            to.iter().map(|(of_type, name)| Reference { to: key(of_type, name).into(), path: "p".into() });
        let draft = Resource::plain(resource_type.clone(), name, content.to_vec()).to_draft();
        let draft = ResourceDraft { references: references.collect(), ..draft };
        group.resources.insert(Arc::new(Resource::new(draft)));
    };
    add(&LISTENER, "l", b"", &[(&ROUTES, "r")]);
    let to: Vec<_> = clusters.iter().map(|name| (&CLUSTER, *name)).collect();
    add(&ROUTES, "r", clusters.join(" ").as_bytes(), &to);
    for name in clusters {
        if name.starts_with("dns") {
            // `Cluster.type` is `STRICT_DNS`.
            add(&CLUSTER, name, b"\x10\x01", &[]);
        } else {
            add(&CLUSTER, name, b"", &[(&ENDPOINTS, name)]);
            add(&ENDPOINTS, name, b"", &[]);
        }
    }
    let layer = Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() };
    merge(&layer, &Layer::default(), &Generated::new())
}

/// A phase as text: `after 5s; ack of Cluster "b": +RouteConfiguration "r" -Cluster "a"`.
fn text(phase: &Phase) -> String {
    let after = phase.after.map(|after| format!("after {after:?}"));
    let conditions: Vec<_> =
        after.into_iter().chain(phase.waits_for.iter().map(ToString::to_string)).collect();
    let sent = phase.sent.iter().map(|key| format!("+{key}"));
    let changes: Vec<_> = sent.chain(phase.removed.iter().map(|key| format!("-{key}"))).collect();
    let conditions = if conditions.is_empty() { String::new() } else { conditions.join("; ") + ": " };
    conditions + &changes.join(" ")
}

fn told(profile: Profile, before: &[&str], after: &[&str]) -> Vec<String> {
    told_of(profile, groups(before), &groups(after))
}

fn told_of(profile: Profile, before: Groups, after: &Groups) -> Vec<String> {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), before);
    let key = ViewKey { groups: [GroupName::default_group()].into(), profile, cohort: AHEAD };
    let now = Instant::now();
    let preview = publisher.preview(&key, after, now).expect("loaded");
    assert!(preview.drained.is_none());
    phases(&preview.before, &preview.after, &Limits::default(), now).iter().map(text).collect()
}

#[test]
fn an_envoy_gets_a_route_when_the_cluster_is_ready_and_loses_the_old_one_last() {
    let expected = [
        "+Cluster \"b\"",
        "+ClusterLoadAssignment \"b\"",
        "ack of ClusterLoadAssignment \"b\": +RouteConfiguration \"r\"",
        "disuse of RouteConfiguration \"r\": -Cluster \"a\"",
    ];
    assert_eq!(told(Profile::Envoy, &["a"], &["b"]), expected);
}

#[test]
fn a_grpc_client_gets_the_route_at_once_and_asks_for_the_rest() {
    let expected = ["+RouteConfiguration \"r\"", "+Cluster \"b\"", "+ClusterLoadAssignment \"b\""];
    assert_eq!(told(Profile::Grpc, &["a"], &["b"]), expected);
}

#[test]
fn a_cluster_that_resolves_names_gets_its_time() {
    let told = told(Profile::Envoy, &["a"], &["a", "dns"]);
    let expected = ["+Cluster \"dns\"", "after 5s; settling of Cluster \"dns\": +RouteConfiguration \"r\""];
    assert_eq!(told, expected);
}

#[test]
fn what_comes_first_waits_for_nothing() {
    let told = told(Profile::Envoy, &[], &["a"]);
    let sent: Vec<_> = told.iter().map(|phase| phase.starts_with('+')).collect();
    assert!(sent.iter().filter(|at_once| **at_once).count() >= 2, "{told:?}");
}

/// A listener that leads to the first of `n` clusters, each of which refers to the next, and the last to endpoints.
fn chain(n: usize, endpoints: &[u8]) -> Groups {
    let mut group = LayerGroup::default();
    let mut add = |of: ResourceKey, content: &[u8], to: Option<ResourceKey>| {
        let draft = Resource::plain(of.resource_type, &of.name, content.to_vec()).to_draft();
        let references = to.into_iter().map(|to| Reference { to: to.into(), path: "p".into() });
        let draft = ResourceDraft { references: references.collect(), ..draft };
        group.resources.insert(Arc::new(Resource::new(draft)));
    };
    add(key(&LISTENER, "l"), b"", Some(key(&CLUSTER, "0")));
    for i in 1..n {
        add(key(&CLUSTER, &(i - 1).to_string()), b"", Some(key(&CLUSTER, &i.to_string())));
    }
    add(key(&CLUSTER, &(n - 1).to_string()), b"", Some(key(&ENDPOINTS, "e")));
    add(key(&ENDPOINTS, "e"), endpoints, None);
    let layer = Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() };
    merge(&layer, &Layer::default(), &Generated::new())
}

#[test]
fn the_client_that_is_played_has_everything_before_the_change_however_many_rounds_that_takes() {
    for n in [1, MAX_PHASES, 3 * MAX_PHASES] {
        let told = told_of(Profile::Grpc, chain(n, b"1"), &chain(n, b"2"));
        assert_eq!(told, ["+ClusterLoadAssignment \"e\""], "{n} clusters in a row");
    }
}

#[test]
fn of_a_client_that_never_has_everything_nothing_is_told() {
    assert!(told_of(Profile::Grpc, chain(1_000, b"1"), &chain(1_000, b"2")).is_empty());
}

#[test]
fn a_change_of_nothing_has_no_phases() {
    for profile in Profile::ALL {
        assert!(told(profile, &["a"], &["a"]).is_empty());
    }
}

#[test]
fn a_preview_tells_when_what_left_has_drained_and_publishes_nothing() {
    let drain = DrainPolicy { clusters: Some(Duration::from_secs(30)), ..DrainPolicy::default() };
    let publisher = Publisher::draining(drain);
    let now = Instant::now();
    publisher.publish_split(Revision(1), groups(&["a"]), None, now);
    let key = ViewKey { groups: [GroupName::default_group()].into(), profile: Profile::Envoy, cohort: AHEAD };
    let preview = publisher.preview(&key, &groups(&["b"]), now).expect("loaded");
    let (after, drained) = preview.drained.expect("something drains");
    assert_eq!(after, Duration::from_secs(30));
    let limits = Limits::default();
    let first: Vec<_> = phases(&preview.before, &preview.after, &limits, now).iter().map(text).collect();
    assert!(!first.iter().any(|phase| phase.contains('-')), "{first:?}");
    let then: Vec<_> = phases(&preview.after, &drained, &limits, now).iter().map(text).collect();
    assert_eq!(then, ["-Cluster \"a\""]);
    let names: BTreeMap<_, _> = publisher
        .view_at(&key)
        .into_iter()
        .flat_map(|view| {
            view.table(&CLUSTER)
                .resources()
                .map(|one| (one.name().to_string(), view.revision()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(names, BTreeMap::from([("a".to_owned(), Revision(1))]));
}
