//! A view remembers what it served a moment ago, as far as a client may still depend on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::layer::{Generated, Groups, Layer, merge};
use xds_cache::{GroupName, Node, Publisher, Resource, ResourceType, Revision};

fn groups(clusters: &[(&str, &str)]) -> Groups {
    let mut layer = Layer::default();
    let of_group = layer.groups.entry(GroupName::new("a").expect("a name")).or_default();
    for (name, content) in clusters {
        let resource = Resource::plain(ResourceType::Cluster, name, (*content).to_owned());
        of_group.resources.insert(Arc::new(resource));
    }
    merge(&layer, &Layer::default(), &Generated::new())
}

/// A publisher that published these, a second after each other, and when the last one was.
fn published(worlds: &[&[(&str, &str)]]) -> (Publisher, Instant) {
    let publisher = Publisher::new();
    let mut now = Instant::now();
    for (revision, clusters) in (1..).zip(worlds) {
        now += Duration::from_secs(1);
        publisher.publish_split(Revision(revision), groups(clusters), None, now);
        // There is no view without a client.
        drop(publisher.follow(&Node::with_id("a")));
    }
    (publisher, now)
}

/// The names in each of the recent tables.
fn recent(publisher: &Publisher, now: Instant) -> Vec<Vec<String>> {
    let view = publisher.view_of(&Node::with_id("a")).expect("loaded");
    let tables = view.recent_tables(&ResourceType::Cluster, now);
    tables.iter().map(|table| table.resources().map(|cluster| cluster.name().to_string()).collect()).collect()
}

#[test]
fn what_came_and_went_is_remembered_oldest_first() {
    let (publisher, now) = published(&[&[("x", "1")], &[("y", "1")], &[("y", "1"), ("z", "1")]]);
    assert_eq!(recent(&publisher, now), [vec!["x"], vec!["y"], vec!["y", "z"]]);
}

#[test]
fn a_view_that_nobody_followed_remembers_what_it_would_have_served() {
    let worlds: [&[(&str, &str)]; 4] =
        [&[("x", "1")], &[("x", "2")], &[("y", "1")], &[("y", "1"), ("z", "1")]];
    let late = Publisher::new();
    let mut now = Instant::now();
    for (revision, clusters) in (1..).zip(worlds) {
        now += Duration::from_secs(1);
        late.publish_split(Revision(revision), groups(clusters), None, now);
    }
    drop(late.follow(&Node::with_id("a")));
    assert_eq!(recent(&late, now), [vec!["x"], vec!["y"], vec!["y", "z"]]);
    assert_eq!(recent(&late, now + Duration::from_secs(60)), [["y", "z"]]);
}

#[test]
fn a_view_that_nobody_followed_for_a_minute_remembers_nothing() {
    let late = Publisher::new();
    let now = Instant::now();
    late.publish_split(Revision(1), groups(&[("x", "1")]), None, now);
    late.publish_split(Revision(2), groups(&[("y", "1")]), None, now);
    late.end_drains(now + Duration::from_secs(60));
    drop(late.follow(&Node::with_id("a")));
    assert_eq!(recent(&late, now), [["y"]]);
}

#[test]
fn large_resources_that_nobody_was_served_are_forgotten_sooner() {
    let large = "1".repeat(600_000);
    let worlds: [&[(&str, &str)]; 4] =
        [&[("x", &large)], &[("y", &large)], &[("z", &large)], &[("z", &large), ("small", "1")]];
    let late = Publisher::new();
    let now = Instant::now();
    for (revision, clusters) in (1..).zip(worlds) {
        late.publish_split(Revision(revision), groups(clusters), None, now);
    }
    drop(late.follow(&Node::with_id("a")));
    assert_eq!(recent(&late, now), [vec!["y"], vec!["z"], vec!["small", "z"]]);
}

#[test]
fn contents_that_changed_are_not_remembered() {
    let (publisher, now) = published(&[&[("x", "1")], &[("x", "2")], &[("x", "3")]]);
    assert_eq!(recent(&publisher, now), [["x"]]);
}

#[test]
fn after_a_minute_it_is_forgotten() {
    let (publisher, now) = published(&[&[("x", "1")], &[("y", "1")]]);
    assert_eq!(recent(&publisher, now + Duration::from_secs(59)).len(), 2);
    assert_eq!(recent(&publisher, now + Duration::from_secs(60)), [["y"]]);
    publisher.retire_unused(now + Duration::from_secs(60));
    assert_eq!(recent(&publisher, now), [["y"]], "nothing is kept that does not count any more");
}

#[test]
fn no_more_is_remembered_than_a_few_tables() {
    let names: Vec<String> = (0..200).map(|i| format!("x{i}")).collect();
    let worlds: Vec<[(&str, &str); 1]> = names.iter().map(|name| [(&**name, "1")]).collect();
    let worlds: Vec<&[(&str, &str)]> = worlds.iter().map(|world| &world[..]).collect();
    let (publisher, now) = published(&worlds);
    assert!(recent(&publisher, now - Duration::from_secs(150)).len() <= 65);
}

#[test]
fn large_resources_that_went_are_forgotten_sooner() {
    let large = "1".repeat(600_000);
    let (publisher, now) =
        published(&[&[("x", &large)], &[("y", &large)], &[("z", &large)], &[("z", &large), ("small", "1")]]);
    assert_eq!(recent(&publisher, now), [vec!["y"], vec!["z"], vec!["small", "z"]]);
}
