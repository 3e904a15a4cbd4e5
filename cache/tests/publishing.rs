//! The publisher: equal input makes equal views, and a publication wakes whom it concerns and nobody else.

use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xds_cache::group::Glob;
use xds_cache::layer::{Generated, GeneratedGroup, Groups, Layer, LayerGroup, Resources, merge};
use xds_cache::{
    DrainPolicy, GroupName, Node, NodeGroup, Origin, Profile, Publisher, Resource, ResourceDraft,
    ResourceKey, ResourceType, Revision, Selector, View, ViewReceiver,
};

fn name(name: &str) -> GroupName {
    GroupName::new(name).expect("a name")
}

fn cluster(name: &str, content: &str) -> Arc<Resource> {
    Arc::new(Resource::plain(ResourceType::Cluster, name, content.to_owned()))
}

fn layer(groups: &[(&str, &[(&str, &str)])]) -> Layer {
    let mut layer = Layer::default();
    for (group, resources) in groups {
        let of_group = layer.groups.entry(name(group)).or_default();
        for (name, content) in *resources {
            let resource = cluster(name, content);
            of_group.resources.insert(resource);
        }
    }
    layer
}

fn served(groups: &[(&str, &[(&str, &str)])]) -> Groups {
    merge(&layer(groups), &Layer::default(), &Generated::new())
}

/// The groups of `before` with those of `changes` put in their places; the others stay the very same.
fn replaced(before: &Groups, changes: &[(&str, &[(&str, &str)])]) -> Groups {
    let mut groups = before.clone();
    for (changed, group) in served(changes) {
        if changes.iter().any(|(name, _)| *name == changed.as_str()) {
            groups.insert(changed, group);
        }
    }
    groups
}

fn node(id: &str) -> Node {
    Node::with_id(id)
}

fn contents(view: &View) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    view.resources().map(|resource| (resource.name().to_string(), text(&resource.value()))).collect()
}

fn followed(publisher: &Publisher, id: &str) -> ViewReceiver {
    let mut receiver = publisher.follow(&node(id));
    receiver.take();
    receiver
}

fn is_woken(receiver: ViewReceiver) -> bool {
    receiver.into_inner().has_changed().expect("the publisher lives")
}

#[test]
fn a_publication_wakes_only_the_views_in_which_something_changed() {
    let publisher = Publisher::new();
    let first = served(&[("a", &[("x", "1")]), ("b", &[("x", "1")]), ("default", &[("d", "1")])]);
    publisher.publish(Revision(1), first.clone());
    let (a, b, other) = (followed(&publisher, "a"), followed(&publisher, "b"), followed(&publisher, "c"));
    let publication = publisher.publish(Revision(2), replaced(&first, &[("a", &[("x", "2")])]));
    assert_eq!(publication.views.len(), 1);
    assert!(is_woken(a));
    assert!(!is_woken(b) && !is_woken(other));
}

#[test]
fn equal_content_wakes_nobody_and_the_view_stays_though_it_is_published_anew() {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), served(&[("a", &[("x", "1")])]));
    let a = followed(&publisher, "a");
    let before = publisher.view_of(&node("a")).expect("loaded");
    let publication = publisher.publish(Revision(2), served(&[("a", &[("x", "1")])]));
    assert!(publication.views.is_empty());
    assert!(!is_woken(a));
    assert!(Arc::ptr_eq(&before, &publisher.view_of(&node("a")).expect("loaded")));
}

#[test]
fn who_follows_before_the_first_load_gets_it_and_resolves_anew() {
    let publisher = Publisher::new();
    let mut early = publisher.follow(&node("a"));
    assert!(early.take().is_none() && !publisher.is_loaded());
    publisher.publish(Revision(1), served(&[("a", &[("x", "1")])]));
    let view = early.take().expect("loaded");
    assert!(early.is_outdated_by(&view), "its groups were not known when it followed");
    let view = publisher.follow(&node("a")).take().expect("loaded");
    assert_eq!(contents(&view), [("x".to_owned(), "1".to_owned())]);
}

#[test]
fn another_selection_of_groups_makes_every_client_resolve_anew() {
    let publisher = Publisher::new();
    let first = served(&[("default", &[("d", "1")])]);
    publisher.publish(Revision(1), first.clone());
    let mut receiver = publisher.follow(&node("a"));
    let view = receiver.take().expect("loaded");
    assert!(!receiver.is_outdated_by(&view));
    publisher.publish(Revision(2), replaced(&first, &[("a", &[("x", "1")])]));
    let view = receiver.take().expect("loaded");
    assert!(receiver.is_outdated_by(&view));
    // A change of content alone does not.
    let mut receiver = publisher.follow(&node("a"));
    receiver.take();
    publisher.publish(Revision(3), replaced(&publisher.groups().1, &[("a", &[("x", "2")])]));
    let view = receiver.take().expect("loaded");
    assert!(!receiver.is_outdated_by(&view));
}

#[test]
fn a_view_that_nobody_follows_is_dropped_at_the_second_call() {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), served(&[("a", &[("x", "1")]), ("b", &[("x", "1")])]));
    let kept = publisher.follow(&node("a"));
    drop(publisher.follow(&node("b")));
    assert_eq!(publisher.n_views(), 2);
    publisher.retire_unused(Instant::now());
    assert_eq!(publisher.n_views(), 2);
    drop(publisher.follow(&node("c")));
    publisher.retire_unused(Instant::now());
    assert_eq!(publisher.n_views(), 2, "the one of `c` was followed since");
    publisher.retire_unused(Instant::now());
    assert_eq!(publisher.n_views(), 1);
    drop(kept);
}

/// Pitfall 55: a publication for one node must not hide the one for another.
#[tokio::test]
async fn pitfall_55_back_to_back_publications_reach_both_nodes() {
    let publisher = Publisher::new();
    let mut groups = served(&[("a", &[]), ("b", &[])]);
    publisher.publish(Revision(1), groups.clone());
    let (mut a, mut b) = (followed(&publisher, "a"), followed(&publisher, "b"));
    for round in 0..1000_u64 {
        let content = round.to_string();
        groups = replaced(&groups, &[("a", &[("x", &content)])]);
        publisher.publish(Revision(2 * round + 2), groups.clone());
        groups = replaced(&groups, &[("b", &[("x", &content)])]);
        publisher.publish(Revision(2 * round + 3), groups.clone());
        for receiver in [&mut a, &mut b] {
            receiver.changed().await.expect("the publisher lives");
            let view = receiver.take().expect("loaded");
            assert_eq!(contents(&view), [("x".to_owned(), content.clone())]);
        }
    }
}

#[test]
fn the_higher_priority_wins_then_the_name_and_the_default_group_is_below_all() {
    let with_priority = |group: &str, priority: i64, content: &str| {
        let mut layer = layer(&[(group, &[("x", content)])]);
        let selector = Selector { node_ids: vec![Glob::new("n*")], ..Selector::nothing() };
        let definition = NodeGroup {
            name: name(group),
            selector,
            priority,
            client: None,
            waves: None,
            drain: DrainPolicy::default(),
            identities: Arc::default(),
            tries_identities: false,
        };
        layer.groups.entry(name(group)).or_default().definition = Some(definition);
        layer
    };
    let winner = |layers: &[Layer]| {
        let mut base = layer(&[("default", &[("x", "default"), ("only-default", "1")])]);
        layers.iter().for_each(|layer| base.groups.extend(layer.groups.clone()));
        let publisher = Publisher::new();
        publisher.publish(Revision(1), merge(&base, &Layer::default(), &Generated::new()));
        let view = publisher.view_of(&node("n1")).expect("loaded");
        let conflicts: Vec<String> = view.conflicts().map(|conflict| conflict.loser.to_string()).collect();
        (contents(&view).iter().find(|(name, _)| name == "x").expect("served").1.clone(), conflicts)
    };
    let (low, high) = (with_priority("a", -5, "low"), with_priority("z", 5, "high"));
    assert_eq!(winner(&[low.clone(), high]), ("high".to_owned(), vec![]));
    assert_eq!(winner(std::slice::from_ref(&low)), ("low".to_owned(), vec![]));
    let same = with_priority("b", -5, "same");
    assert_eq!(winner(&[low, same]), ("low".to_owned(), vec!["b".to_owned()]));
}

#[test]
fn overrides_lie_over_the_base_and_a_definition_of_the_base_wins() {
    let mut base = layer(&[("g", &[("x", "file"), ("y", "file")])]);
    let mut overrides = layer(&[("g", &[("x", "api")]), ("n", &[("z", "api")])]);
    let definition = |priority| Some(NodeGroup { priority, ..NodeGroup::for_node_id(name("g")) });
    base.groups.entry(name("g")).or_default().definition = definition(1);
    overrides.groups.entry(name("g")).or_default().definition = definition(2);
    let groups = merge(&base, &overrides, &Generated::new());
    let group = groups.get(&name("g")).expect("merged");
    let texts: Vec<_> = group.resources.values().map(|resource| resource.value().to_vec()).collect();
    assert_eq!(texts, [b"api".as_slice(), b"file"]);
    assert_eq!(group.definition.priority, 1);
    let undefined = groups.get(&name("n")).expect("merged");
    assert!(
        undefined.definition.selector.selects(&node("n"))
            && !undefined.definition.selector.selects(&node("m"))
    );
    assert!(groups.contains_key(&GroupName::default_group()), "always there");
}

#[test]
fn a_label_shows_only_where_everything_of_a_type_comes_from_it() {
    let mut overrides = layer(&[("n", &[("x", "1")])]);
    overrides.groups.entry(name("n")).or_default().label = Some("v7".into());
    let label = |base: &Layer| {
        let publisher = Publisher::new();
        publisher.publish(Revision(1), merge(base, &overrides, &Generated::new()));
        let view = publisher.view_of(&node("n")).expect("loaded");
        (
            view.version_info(&ResourceType::Cluster).to_string(),
            view.table(&ResourceType::Cluster).version().to_string(),
        )
    };
    assert_eq!(label(&Layer::default()).0, "v7");
    let (shown, hash) = label(&layer(&[("default", &[("d", "1")])]));
    assert_eq!(shown, hash, "another group's cluster is among them");
}

/// Names and contents.
type Clusters<'a> = &'a [(&'a str, &'a str)];

/// The resources that documents give the groups, by profile.
fn generated(groups: &[(&str, Profile, Clusters<'_>)]) -> Generated {
    let mut generated = Generated::new();
    for (group, profile, resources) in groups {
        let of_profile = generated.entry(name(group)).or_default().profiles.entry(*profile).or_default();
        let resources = resources.iter().map(|(name, content)| cluster(name, content));
        of_profile.extend(resources);
    }
    generated
}

/// The resources that a node and a gRPC client of the same id are served.
fn both(publisher: &Publisher, id: &str) -> [Vec<(String, String)>; 2] {
    let grpc = Node { user_agent_name: "gRPC Go".to_owned(), ..node(id) };
    [node(id), grpc].map(|node| contents(&publisher.view_of(&node).expect("loaded")))
}

fn owned(contents: &[(&str, &str)]) -> Vec<(String, String)> {
    contents.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

#[test]
fn what_documents_give_lies_below_everything_else_of_its_group_and_differs_by_profile() {
    let base = layer(&[("default", &[("file", "f"), ("both", "f")])]);
    let overrides = layer(&[("default", &[("both", "a"), ("api", "a")])]);
    let generated = generated(&[
        ("default", Profile::Envoy, &[("both", "e"), ("file", "e"), ("api", "e"), ("own", "e"), ("up", "e")]),
        ("default", Profile::Grpc, &[("own", "g")]),
        ("n", Profile::Envoy, &[("up", "n"), ("api", "n")]),
    ]);
    let groups = merge(&base, &overrides, &generated);
    let default = groups.get(&name("default")).expect("always there");
    assert!(default.has(Profile::Grpc, cluster("own", "").key()));
    assert!(!default.has(Profile::Grpc, cluster("up", "").key()));
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups);
    let [envoy, grpc] = both(&publisher, "m");
    assert_eq!(envoy, owned(&[("api", "a"), ("both", "a"), ("file", "f"), ("own", "e"), ("up", "e")]));
    assert_eq!(grpc, owned(&[("api", "a"), ("both", "a"), ("file", "f"), ("own", "g")]));
    // A group that only documents call for is a group like any other.
    let [envoy, grpc] = both(&publisher, "n");
    assert_eq!(envoy, owned(&[("api", "n"), ("both", "a"), ("file", "f"), ("own", "e"), ("up", "n")]));
    assert_eq!(grpc, owned(&[("api", "a"), ("both", "a"), ("file", "f"), ("own", "g")]));
}

#[test]
fn a_definition_comes_from_the_files_then_the_api_then_documents() {
    let defined = |priority| Some(NodeGroup { priority, ..NodeGroup::for_node_id(name("g")) });
    let of = |priority| {
        let group = LayerGroup { definition: defined(priority), ..LayerGroup::default() };
        Layer { groups: [(name("g"), group)].into_iter().collect() }
    };
    let generated = Generated::from_iter([(
        name("g"),
        GeneratedGroup { definition: defined(3), ..GeneratedGroup::default() },
    )]);
    let nothing = Layer::default();
    for (base, overrides, expected) in
        [(of(1), of(2), 1), (nothing.clone(), of(2), 2), (nothing.clone(), nothing, 3)]
    {
        let groups = merge(&base, &overrides, &generated);
        assert_eq!(groups.get(&name("g")).expect("defined").definition.priority, expected);
    }
}

#[test]
fn a_label_does_not_show_where_documents_gave_a_resource() {
    let mut overrides = layer(&[("n", &[("x", "1")])]);
    overrides.groups.entry(name("n")).or_default().label = Some("v7".into());
    let publisher = Publisher::new();
    publisher.publish(
        Revision(1),
        merge(&Layer::default(), &overrides, &generated(&[("n", Profile::Grpc, &[("y", "1")])])),
    );
    let label = |user_agent_name: &str| {
        let node = Node { user_agent_name: user_agent_name.to_owned(), ..node("n") };
        let view = publisher.view_of(&node).expect("loaded");
        (view.version_info(&ResourceType::Cluster).to_string(), view.table(&ResourceType::Cluster).version())
    };
    assert_eq!(label("envoy").0, "v7");
    let (shown, hash) = label("gRPC Go");
    assert_eq!(shown, hash.to_string(), "one of its clusters is no part of the publication");
}

#[test]
fn what_leaves_the_wildcard_or_becomes_a_pattern_changes_its_version() {
    let draft = Resource::plain(ResourceType::Listener, "a", "1").to_draft();
    let outside = Resource::new(ResourceDraft { in_wildcard: false, ..draft.clone() });
    let pattern = Resource::new(ResourceDraft { host_pattern: true, ..draft.clone() });
    let plain = Resource::new(draft);
    assert!(plain != outside && plain != pattern && outside != pattern);
}

#[test]
fn names_are_looked_up_by_alias_domain_and_spelling() {
    let virtual_host = |name: &str, aliases: &[&str]| {
        let mut draft = Resource::plain(ResourceType::VirtualHost, name, "1").to_draft();
        draft.aliases = aliases.iter().map(|alias| (*alias).into()).collect();
        Arc::new(Resource::new(draft))
    };
    let endpoints = |name: &str| Arc::new(Resource::plain(ResourceType::ClusterLoadAssignment, name, "1"));
    let mut group = LayerGroup::default();
    let resources = [
        virtual_host("r/exact", &["r/a.io"]),
        virtual_host("r/suffix", &["r/*.io"]),
        virtual_host("r/long", &["r/*.b.io", "r/c.*"]),
        virtual_host("q/all", &["q/*"]),
        endpoints("xdstp://u/T/x?b=2&a=1"),
    ];
    group.resources.extend(resources);
    let base = Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), merge(&base, &Layer::default(), &Generated::new()));
    let view = publisher.view_of(&node("n")).expect("loaded");
    let table = [
        ("r/exact", Some("r/exact")),
        ("r/a.io", Some("r/exact")),
        ("r/A.IO", Some("r/exact")),
        ("r/x.io", Some("r/suffix")),
        ("r/x.b.io", Some("r/long")),
        ("r/c.org", Some("r/long")),
        ("r/c.io", Some("r/suffix")),
        ("r/.io", None),
        ("r/x.org", None),
        ("q/x.org", Some("q/all")),
        ("a.io", None),
    ];
    for (asked, expected) in table {
        let found =
            view.resolve(&ResourceType::VirtualHost, asked).map(|resource| resource.name().to_string());
        assert_eq!(found.as_deref(), expected, "{asked}");
    }
    assert!(view.resolve(&ResourceType::ClusterLoadAssignment, "xdstp://u/T/x?a=1&b=2").is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The order in which groups, resources and publications come leaves no trace in any version.
    #[test]
    fn versions_do_not_depend_on_any_order(
        items in prop::collection::vec((0..3_usize, 0..6_usize, 0..3_u8, any::<bool>()), 0..20),
        keys in prop::collection::vec(any::<u32>(), 20),
    ) {
        let build = |order: &[usize]| {
            let (mut base, mut overrides) = (Layer::default(), Layer::default());
            for position in order {
                let (group, resource, _, is_override) = items[*position];
                // An item's content depends on its key only, so overwriting cannot make the order matter.
                let content = items.iter().rev().find(|item| (item.0, item.1, item.3) == (group, resource, is_override));
                let resource = cluster(&format!("c{resource}"), &content.map(|item| item.2).unwrap_or(0).to_string());
                let layer = if is_override { &mut overrides } else { &mut base };
                let group = layer.groups.entry(name(["default", "n", "m"][group])).or_default();
                group.resources.insert(resource);
            }
            merge(&base, &overrides, &Generated::new())
        };
        let mut shuffled: Vec<usize> = (0..items.len()).collect();
        shuffled.sort_by_key(|position| keys[*position]);
        let straight: Vec<usize> = (0..items.len()).collect();
        let (once, stepwise) = (Publisher::new(), Publisher::new());
        once.publish(Revision(1), build(&straight));
        let _follower = stepwise.follow(&node("n"));
        for n in 0..=shuffled.len() {
            stepwise.publish(Revision(n as u64 + 1), build(&shuffled[..n]));
        }
        for id in ["n", "m", "x"] {
            let views = [&once, &stepwise].map(|publisher| publisher.view_of(&node(id)).expect("loaded"));
            let versions = views.map(|view| {
                let table = view.table(&ResourceType::Cluster);
                let of_resources: Vec<_> = table.resources().map(|resource| resource.version()).collect();
                (table.version(), of_resources, view.version_info(&ResourceType::Cluster).clone())
            });
            prop_assert_eq!(&versions[0], &versions[1]);
        }
    }
}

/// Everything about a view except for when it was published.
fn told(view: &View) -> Vec<String> {
    let mut told: Vec<String> = view
        .resources()
        .map(|one| format!("{one:?} {:?} from {}", one.value(), one.origin()))
        .chain(view.conflicts().map(|conflict| format!("{conflict:?}")))
        .collect();
    for of_type in ResourceType::KNOWN {
        told.push(format!("{of_type} {} {}", view.version_info(&of_type), view.table(&of_type).version()));
    }
    told.push(format!("{} {:?}", view.is_unmatched(), view.key()));
    told
}

/// Puts resources into some groups, or takes them out, or defines groups otherwise.
#[derive(Clone, Debug)]
enum Edit {
    Put { group: usize, of: Layers, kind: bool, name: usize, content: u8 },
    Remove { group: usize, of: Layers, kind: bool, name: usize },
    Define { group: usize, priority: i64, is_for_all: bool },
    Label { group: usize, label: u8 },
    Drop { group: usize },
}

/// Where a resource comes from.
#[derive(Clone, Copy, Debug)]
enum Layers {
    Files,
    Api,
    Documents(Profile),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let of = prop::sample::select(vec![
        Layers::Files,
        Layers::Api,
        Layers::Documents(Profile::Envoy),
        Layers::Documents(Profile::Grpc),
    ]);
    let put = (0..4_usize, of.clone(), any::<bool>(), 0..4_usize, 0..3_u8)
        .prop_map(|(group, of, kind, name, content)| Edit::Put { group, of, kind, name, content });
    let remove = (0..4_usize, of, any::<bool>(), 0..4_usize)
        .prop_map(|(group, of, kind, name)| Edit::Remove { group, of, kind, name });
    let define = (1..4_usize, 0..2_i64, any::<bool>())
        .prop_map(|(group, priority, is_for_all)| Edit::Define { group, priority, is_for_all });
    let label = (0..4_usize, 0..3_u8).prop_map(|(group, label)| Edit::Label { group, label });
    let drop = (1..4_usize).prop_map(|group| Edit::Drop { group });
    prop::collection::vec(prop_oneof![8 => put, 4 => remove, 1 => define, 2 => label, 1 => drop], 1..40)
}

#[derive(Default)]
struct Sources {
    files: Layer,
    api: Layer,
    documents: Generated,
}

impl Sources {
    fn resources(&mut self, group: usize, of: Layers) -> &mut Resources {
        let group = name(GROUPS[group]);
        match of {
            Layers::Files => &mut self.files.groups.entry(group).or_default().resources,
            Layers::Api => &mut self.api.groups.entry(group).or_default().resources,
            Layers::Documents(profile) => {
                self.documents.entry(group).or_default().profiles.entry(profile).or_default()
            }
        }
    }

    fn apply(&mut self, edit: &Edit) {
        let key = |kind: bool, name: usize| ResourceKey {
            resource_type: if kind { ResourceType::Cluster } else { ResourceType::Listener },
            name: format!("c{name}").into(),
        };
        match *edit {
            Edit::Put { group, of, kind, name, content } => {
                let origin = match of {
                    Layers::Api => Origin::Api,
                    Layers::Files | Layers::Documents(_) => {
                        Origin::File { path: "f".into(), line: u32::from(content), column: 1 }
                    }
                };
                // The contents of files and of the API may be equal.
                let key = key(kind, name);
                let draft =
                    Resource::plain(key.resource_type.clone(), &key.name, vec![content / 2]).to_draft();
                let resource = Resource::new(ResourceDraft { origin, ..draft });
                self.resources(group, of).insert(Arc::new(resource));
            }
            Edit::Remove { group, of, kind, name } => {
                drop(self.resources(group, of).remove(&key(kind, name)));
            }
            Edit::Define { group, priority, is_for_all } => {
                let group = name(GROUPS[group]);
                let selector = if is_for_all {
                    Selector::everyone()
                } else {
                    NodeGroup::for_node_id(group.clone()).selector
                };
                let definition = NodeGroup { priority, selector, ..NodeGroup::for_node_id(group.clone()) };
                self.files.groups.entry(group).or_default().definition = Some(definition);
            }
            Edit::Label { group, label } => {
                let label = (label > 0).then(|| format!("v{label}").into());
                self.api.groups.entry(name(GROUPS[group])).or_default().label = label;
            }
            Edit::Drop { group } => {
                let group = name(GROUPS[group]);
                self.files.groups.remove(&group);
                self.api.groups.remove(&group);
                self.documents.remove(&group);
            }
        }
    }
}

const GROUPS: [&str; 4] = ["default", "a", "b", "n"];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(12),
        ..ProptestConfig::default()
    })]

    /// A publisher that saw every step serves what one serves that saw only the last, and its clients follow where they belong.
    #[test]
    fn views_are_those_of_the_groups_however_they_came_about(edits in edits()) {
        let publisher = Publisher::new();
        let mut sources = Sources::default();
        publisher.publish(Revision(0), Groups::from_iter(merge(&sources.files, &sources.api, &sources.documents)));
        let nodes = GROUPS.iter().flat_map(|id| {
            let grpc = Node { user_agent_name: "gRPC Go".to_owned(), ..node(id) };
            [node(id), grpc]
        });
        let mut clients: Vec<(Node, ViewReceiver)> =
            nodes.map(|node| (node.clone(), publisher.follow(&node))).collect();
        for (revision, edit) in edits.iter().enumerate() {
            let before: Vec<_> = clients.iter_mut().map(|(_, client)| client.take().expect("loaded")).collect();
            sources.apply(edit);
            let merged = merge(&sources.files, &sources.api, &sources.documents);
            // Equal values are the very same, as in the server.
            let served = publisher.groups().1;
            let mut groups = served.clone();
            for (name, group) in &merged {
                if served.get(name).is_none_or(|old| old != group) {
                    groups.insert(name.clone(), Arc::clone(group));
                }
            }
            let gone: Vec<GroupName> = served.keys().filter(|name| !merged.contains_key(*name)).cloned().collect();
            gone.iter().for_each(|name| drop(groups.remove(name)));
            let publication = publisher.publish(Revision(revision as u64 + 1), groups);
            let fresh = Publisher::new();
            fresh.publish(Revision(1), merged);
            for ((node, client), before) in clients.iter_mut().zip(before) {
                let mut view = client.take().expect("loaded");
                if client.is_outdated_by(&view) {
                    *client = publisher.follow(node);
                    view = client.take().expect("loaded");
                }
                prop_assert!(view.revision() >= before.revision());
                prop_assert!(view.key() == before.key() || publication.moved.may_be(node));
                prop_assert_eq!(told(&view), told(&fresh.view_of(node).expect("loaded")));
                let is_told = publication.views.iter().find(|change| change.key == *view.key());
                for of_type in ResourceType::KNOWN {
                    let changes = view.table(&of_type).changes_since(before.table(&of_type));
                    let told = is_told.and_then(|change| change.changes.get(&of_type));
                    if before.key() == view.key() {
                        prop_assert_eq!(told.cloned().unwrap_or_default(), changes);
                    }
                }
            }
        }
    }
}
