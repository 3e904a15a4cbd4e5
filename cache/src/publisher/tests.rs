//! Costs of a publication: what changed, and nothing of what did not.

use bytes::{BufMut as _, Bytes};

use super::*;
use crate::encoded::{Encoded, RouteConfigParts};
use crate::group::NodeGroup;
use crate::host_sum::{HostHash, HostSum};
use crate::layer::Resources;
use crate::resource::{Resource, ResourceDraft};
use crate::resource_type::ResourceType;
use crate::status::{StatusBoard, StreamInfo, Subscriber, Variant};
use crate::work;

fn cluster(name: &str, content: usize) -> Arc<Resource> {
    Arc::new(Resource::plain(ResourceType::Cluster, name, content.to_string()))
}

fn put(groups: &mut Groups, name: &str, resources: impl IntoIterator<Item = Arc<Resource>>) {
    let name = GroupName::new(name).expect("a name");
    let definition =
        if name.is_default() { NodeGroup::default_group() } else { NodeGroup::for_node_id(name.clone()) };
    let known: Resources = groups.get(&name).map(|group| group.resources.clone()).unwrap_or_default();
    let resources = known.values().cloned().chain(resources).collect();
    let group = EffectiveGroup::new(definition, resources);
    groups.insert(name, Arc::new(group));
}

/// A publisher with `n_groups` groups of one cluster each, of which somebody follows each, over `n_shared` clusters.
fn world(n_groups: usize, n_shared: usize) -> (Publisher, Groups, Vec<ViewReceiver>) {
    let mut groups = Groups::new();
    put(&mut groups, "default", (0..n_shared).map(|i| cluster(&format!("shared-{i:06}"), 0)));
    (0..n_groups).for_each(|i| put(&mut groups, &format!("n{i}"), [cluster("own", 0)]));
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups.clone());
    let receivers = (0..n_groups).map(|i| publisher.follow(&Node::with_id(&format!("n{i}")))).collect();
    (publisher, groups, receivers)
}

/// How many views, resources and bytes a publication costs that puts one cluster into a group.
fn cost_of_one(n_groups: usize, n_shared: usize, group: &str, name: &str) -> [usize; 3] {
    let (publisher, mut groups, _receivers) = world(n_groups, n_shared);
    put(&mut groups, group, [cluster(name, 1)]);
    work::take();
    let publication = publisher.publish(Revision(2), groups);
    assert!(!publication.views.is_empty() && publication.moved == Moved::Nobody);
    let [views, resources, bytes, ..] = work::take();
    [views, resources, bytes]
}

#[test]
fn a_change_of_one_group_costs_the_same_however_many_groups_and_resources_there_are() {
    let [views, resources, bytes] = cost_of_one(10, 100, "n3", "own");
    assert_eq!(views, 1);
    // Among the bytes are those of the new cluster, whose version nobody asked for before.
    assert!(resources <= 8 && bytes <= 128, "{resources} resources, {bytes} bytes");
    for (n_groups, n_shared) in [(10, 10_000), (1_000, 100)] {
        assert_eq!(cost_of_one(n_groups, n_shared, "n3", "own"), [views, resources, bytes]);
    }
}

#[test]
fn a_change_of_the_default_group_costs_the_same_for_each_view_however_much_the_views_share() {
    let few = cost_of_one(10, 100, "default", "shared-000050");
    assert_eq!(few[0], 10);
    assert_eq!(cost_of_one(10, 10_000, "default", "shared-000050"), few);
    let many = cost_of_one(1_000, 100, "default", "shared-000050");
    assert_eq!(many[0], 1_000);
    let [_, resources, bytes] = few.map(|n| n * 100);
    assert!(many[1] <= resources && many[2] <= bytes, "{many:?} for 100 times the views of {few:?}");
}

#[test]
fn a_view_knows_the_publication_that_changed_it_last() {
    let (publisher, mut groups, receivers) = world(2, 10);
    let key = |n: usize| publisher.view_of(&Node::with_id(&format!("n{n}"))).expect("a view").key().clone();
    put(&mut groups, "n1", [cluster("own", 1)]);
    publisher.publish(Revision(2), groups.clone());
    // A resource of the default group that the group has its own version of changes nothing for its clients.
    put(&mut groups, "default", [cluster("own", 5)]);
    publisher.publish(Revision(3), groups.clone());
    assert_eq!([0, 1].map(|n| publisher.changed_at(&key(n))), [Revision(0), Revision(2)]);
    put(&mut groups, "default", [cluster("shared-000001", 5)]);
    publisher.publish(Revision(4), groups);
    assert_eq!([0, 1].map(|n| publisher.changed_at(&key(n))), [Revision(4), Revision(4)]);
    let keys = [0, 1].map(key);
    drop(receivers);
    (0..2).for_each(|_| publisher.retire_unused(Instant::now()));
    assert_eq!(keys.map(|key| publisher.changed_at(&key)), [Revision(0), Revision(0)], "nothing is kept");
}

#[test]
fn views_share_what_changed_below_them() {
    let (publisher, mut groups, _receivers) = world(3, 100);
    put(&mut groups, "n1", [cluster("shared-000050", 7)]);
    publisher.publish(Revision(2), groups.clone());
    put(&mut groups, "default", [cluster("shared-000050", 1), cluster("shared-000051", 1)]);
    let changed = publisher.publish(Revision(3), groups).views;
    let changes: Vec<_> = changed.iter().map(|view| &view.changes[&ResourceType::Cluster]).collect();
    assert!(Arc::ptr_eq(changes[0], changes[2]), "neither hides any of it");
    assert_eq!((changes[0].len(), changes[1].len()), (2, 1));
}

#[test]
fn a_new_group_is_looked_at_by_those_alone_whom_it_may_select() {
    let (publisher, mut groups, receivers) = world(100, 10);
    let unmatched = publisher.follow(&Node::with_id("new"));
    put(&mut groups, "new", [cluster("own", 1)]);
    work::take();
    let publication = publisher.publish(Revision(2), groups.clone());
    let [views, ..] = work::take();
    assert_eq!((views, publication.moved), (1, Moved::Ids(BTreeSet::from(["new".to_owned()]))));
    let is_outdated = |receiver: ViewReceiver| {
        let mut receiver = receiver;
        let view = receiver.take().expect("loaded");
        receiver.is_outdated_by(&view)
    };
    assert!(is_outdated(unmatched) && !receivers.into_iter().any(is_outdated));
    // The node is told when its group goes, too.
    let followed = publisher.follow(&Node::with_id("new"));
    groups.remove(&GroupName::new("new").expect("a name"));
    publisher.publish(Revision(3), groups);
    assert!(is_outdated(followed));
}

/// A RouteConfiguration that is put together of hosts.
struct Routes {
    hosts: imbl::OrdMap<usize, Vec<u8>>,
    sum: HostSum,
}

impl Routes {
    fn new(n_hosts: usize) -> Self {
        let mut routes = Self { hosts: imbl::OrdMap::new(), sum: HostSum::default() };
        (0..n_hosts).for_each(|at| routes.set(at, 0));
        routes
    }

    fn set(&mut self, at: usize, content: u8) {
        let mut field = Vec::new();
        crate::wire::put_bytes(&mut field, 2, format!("{at:099}{content}").as_bytes());
        let near = [at.checked_sub(1), Some(at + 1)];
        let near = near.map(|at| at.and_then(|at| self.hosts.get(&at)).map(|host| HostHash::of(host)));
        if let Some(old) = self.hosts.get(&at) {
            self.sum.remove(HostHash::of(old), near);
        }
        self.sum.insert(HostHash::of(&field), near);
        self.hosts.insert(at, field);
    }

    fn resource(&self) -> Arc<Resource> {
        let hosts = self.hosts.clone();
        let value = Encoded::assembled(RouteConfigParts {
            before: Bytes::from_static(b"\x0a\x01r"),
            after: Bytes::new(),
            hosts: self.sum,
            n_bytes: hosts.values().map(Vec::len).sum(),
            write: Box::new(move |bytes| hosts.values().for_each(|host| bytes.put_slice(host))),
        });
        let draft = Resource::plain(ResourceType::RouteConfiguration, "r", "").to_draft();
        Arc::new(Resource::new(ResourceDraft { value, ..draft }))
    }
}

/// How many bytes are hashed for the publication of one host of a RouteConfiguration that changed, and how many are copied; and how
/// many are copied when two clients ask for it.
fn cost_of_a_host(n_hosts: usize) -> [usize; 3] {
    let (publisher, mut groups, _receivers) = world(2, 1);
    let mut routes = Routes::new(n_hosts);
    put(&mut groups, "default", [routes.resource()]);
    publisher.publish(Revision(2), groups.clone());
    work::take();
    routes.set(n_hosts / 2, 1);
    put(&mut groups, "default", [routes.resource()]);
    let views = publisher.publish(Revision(3), groups).views;
    let [_, _, hashed, _, copied, _] = work::take();
    let changed = views.iter().flat_map(|view| &view.changes[&ResourceType::RouteConfiguration].changed);
    changed.for_each(|resource| assert!(resource.value().len() > 100 * n_hosts));
    let [_, _, _, _, copied_later, _] = work::take();
    assert_eq!(views.len(), 2);
    [hashed, copied, copied_later / n_hosts]
}

#[test]
fn a_host_of_a_route_configuration_costs_the_same_however_many_others_there_are() {
    let few @ [hashed, copied, copied_later] = cost_of_a_host(100);
    assert!(hashed < 2_000 && copied == 0, "{few:?}");
    assert_eq!(copied_later, 102, "put together once for both clients");
    assert_eq!(cost_of_a_host(3_000), few);
}

struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

#[test]
fn the_board_finds_the_streams_of_a_view_without_looking_at_others() {
    let (publisher, _, _receivers) = world(100, 1);
    let board = StatusBoard::new();
    let view = |id: &str| publisher.view_of(&Node::with_id(id)).expect("loaded").key().clone();
    let register = |id: usize| {
        let info = StreamInfo {
            id: crate::status::StreamId(id as u64),
            node: Arc::new(Node::with_id(&format!("n{id}"))),
            address: "here".into(),
            variant: Variant::Delta,
            service: None,
            since: std::time::SystemTime::UNIX_EPOCH,
            proofs: Arc::default(),
        };
        let nobody: std::sync::Weak<dyn Subscriber> = std::sync::Weak::<Nobody>::new();
        board.register(info, nobody)
    };
    let entries: Vec<_> = (0..100).map(register).collect();
    assert_eq!(board.streams_of(None).len(), 100);
    entries.iter().enumerate().for_each(|(id, entry)| entry.record_view(view(&format!("n{id}")), false));
    work::take();
    assert_eq!(board.streams_of(Some(&view("n7"))).len(), 1);
    let [_, _, _, streams, ..] = work::take();
    assert_eq!(streams, 1);
    assert_eq!(board.views_of(&GroupName::default_group()).len(), 100);
    entries[7].record_view(view("n8"), false);
    assert_eq!(board.views_of(&GroupName::new("n7").expect("a name")), []);
    let n8 = GroupName::new("n8").expect("a name");
    assert_eq!((board.views_of(&n8).len(), board.streams_of(Some(&view("n8"))).len()), (1, 2));
    drop(entries);
    assert!(board.views_of(&n8).is_empty() && board.streams_of(None).is_empty());
}
