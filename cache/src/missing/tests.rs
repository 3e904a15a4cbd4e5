//! The missing references against a model of them, and what a change costs.

use std::collections::BTreeMap;

use super::*;
use crate::glob::Glob;
use crate::group::Selector;
use crate::resource::ResourceDraft;

fn key(of: &ResourceType, name: &str) -> Arc<ResourceKey> {
    Arc::new(ResourceKey { resource_type: of.clone(), name: name.into() })
}

/// A resource that names others, each at its own path.
fn resource(of: &ResourceType, name: &str, to: &[(&ResourceType, &str)], aliases: &[&str]) -> Arc<Resource> {
    let reference = |(at, (of, name)): (usize, &(&ResourceType, &str))| Reference {
        to: key(of, name),
        path: format!("at[{at}]").into(),
    };
    Arc::new(Resource::new(ResourceDraft {
        references: to.iter().enumerate().map(reference).collect(),
        aliases: aliases.iter().map(|alias| Name::from(*alias)).collect(),
        ..Resource::plain(of.clone(), name, format!("{to:?}")).to_draft()
    }))
}

fn route(name: &str, to: &[&str]) -> Arc<Resource> {
    let to: Vec<_> = to.iter().map(|to| (&ResourceType::Cluster, *to)).collect();
    resource(&ResourceType::RouteConfiguration, name, &to, &[])
}

fn cluster(name: &str) -> Arc<Resource> {
    resource(&ResourceType::Cluster, name, &[], &[])
}

fn group(ids: &[&str], resources: &[Arc<Resource>]) -> EffectiveGroup {
    let name = GroupName::new(ids.first().copied().unwrap_or("default")).unwrap();
    let selector = match ids.is_empty() {
        true => Selector::everyone(),
        false => Selector { node_ids: ids.iter().map(|id| Glob::new(id)).collect(), ..Selector::nothing() },
    };
    let definition = NodeGroup { selector, ..NodeGroup::for_node_id(name) };
    EffectiveGroup::new(definition, resources.iter().cloned().collect())
}

fn groups(all: impl IntoIterator<Item = EffectiveGroup>) -> Groups {
    all.into_iter().map(|group| (group.definition.name.clone(), Arc::new(group))).collect()
}

fn told(missing: &MissingReferences) -> Vec<String> {
    missing.iter().map(|one| format!("{}: {} -> {}", one.group, one.from.name, one.to.name)).collect()
}

fn of(groups: &Groups) -> MissingReferences {
    MissingReferences::default().changed(&Groups::new(), groups)
}

#[test]
fn a_reference_leads_to_its_own_group_the_default_group_and_groups_of_the_same_nodes() {
    let edge = group(
        &["edge-1", "edge-2"],
        &[route("r", &["own", "of-all", "of-edges", "of-others", "none"]), cluster("own")],
    );
    let all = groups([
        group(&[], &[cluster("of-all")]),
        edge,
        group(&["edge-*"], &[cluster("of-edges")]),
        group(&["mesh-*"], &[cluster("of-others")]),
    ]);
    assert_eq!(told(&of(&all)), ["edge-1: r -> none", "edge-1: r -> of-others"]);
}

#[test]
fn a_target_is_found_by_its_other_names() {
    let scoped = &ResourceType::ScopedRouteConfiguration;
    let listener = resource(&ResourceType::Listener, "l", &[(scoped, "*")], &[]);
    let hosts = resource(&ResourceType::RouteConfiguration, "r", &[(&ResourceType::VirtualHost, "r/*")], &[]);
    let spelled = "xdstp://a/envoy.config.cluster.v3.Cluster/c?b=1&a=2";
    let spellings = route("x", &[spelled, "alias"]);
    let all = groups([group(&[], &[listener.clone(), hosts, spellings.clone()])]);
    let canonical = "xdstp://a/envoy.config.cluster.v3.Cluster/c?a=2&b=1";
    let expected =
        ["default: l -> *".to_owned(), "default: x -> alias".into(), format!("default: x -> {canonical}")];
    let missing = of(&all);
    assert_eq!(told(&missing), expected);
    let paths = missing.iter().filter(|one| one.from.name == *spellings.name());
    let paths: Vec<&str> = paths.flat_map(|one| one.paths(&spellings)).map(|path| &**path).collect();
    assert_eq!(paths, ["at[1]", "at[0]"], "where each is named");
    let targets = [
        resource(scoped, "s", &[], &[]),
        resource(&ResourceType::Cluster, "d", &[], &["alias"]),
        cluster(canonical),
    ];
    let resources = [listener, spellings].into_iter().chain(targets);
    assert!(MissingReferences::among(resources.collect()).is_empty());
}

#[test]
fn one_kind_of_client_must_have_the_target_and_what_is_generated_is_not_judged() {
    let mut default = group(&[], &[route("raw", &["of-grpc"])]);
    let of_grpc = [cluster("of-grpc"), route("generated", &["of-nobody"])];
    default.generated.insert(Profile::Grpc, of_grpc.into_iter().collect());
    let before = groups([default.clone()]);
    assert_eq!(told(&of(&before)), Vec::<String>::new());
    default.definition.client = Some(Profile::Envoy);
    let after = groups([default]);
    let missing = of(&before).changed(&before, &after);
    assert_eq!(told(&missing), ["default: raw -> of-grpc"]);
    assert_eq!(missing.news(&of(&before)).count(), 1);
    assert_eq!(of(&before).news(&missing).count(), 0);
}

/// The groups as a model: names of clusters, and what each route names, under the patterns of node IDs.
fn modelled(groups: &Groups) -> Vec<String> {
    let mut told = Vec::new();
    for (name, one) in groups {
        let reaches = |other: &EffectiveGroup| {
            let selector = &other.definition.selector;
            NODES.iter().any(|node| {
                let node = crate::node::Node::with_id(node);
                selector.selects(&node) && one.definition.selector.selects(&node)
            })
        };
        for route in one.resources.values() {
            for to in route.references().targets() {
                let has = |other: &EffectiveGroup| {
                    let is_hidden = |one: &Arc<Resource>| other.resources.contains_key(one.key());
                    let generated = other.generated.values().flat_map(|all| all.values());
                    let here = generated.filter(|one| !is_hidden(one)).chain(other.resources.values());
                    let mut here = here.filter(|one| *one.resource_type() == to.resource_type);
                    here.any(|one| *one.name() == to.name || one.aliases().contains(&to.name))
                };
                if !groups.values().any(|other| reaches(other) && has(other)) {
                    told.push(format!("{name}: {} -> {}", route.name(), to.name));
                }
            }
        }
    }
    told
}

const NODES: [&str; 4] = ["a1", "a2", "b1", "c"];

#[test]
fn what_is_updated_is_as_if_it_were_made_anew() {
    for seed in 0..64_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % n).unwrap()
        };
        let selectors: [&[&str]; 5] = [&[], &["a1"], &["a*"], &["b1", "c"], &["*1"]];
        let names = ["x", "y", "z"];
        let mut present: BTreeMap<usize, EffectiveGroup> = BTreeMap::new();
        let (mut before, mut missing) = (Groups::new(), MissingReferences::default());
        for _ in 0..40 {
            let at = below(5);
            if below(12) == 0 {
                present.remove(&at);
            }
            let of_selector = group(selectors[at], &[]);
            let changed = present.entry(at).or_insert(of_selector);
            if below(8) == 0 && at > 0 {
                changed.definition.selector = group(selectors[1 + below(4)], &[]).definition.selector;
            }
            let name = names[below(3)];
            let new = match below(4) {
                0 => cluster(name),
                1 => resource(&ResourceType::Cluster, "other", &[], &[name]),
                2 => route(name, &[names[below(3)], names[below(3)]]),
                _ => route("r", &names[below(3)..]),
            };
            let generated = changed.generated.entry(Profile::Envoy).or_default();
            let both = (generated, &mut changed.resources);
            match (below(6), new.resource_type() == &ResourceType::Cluster) {
                (0 | 1, _) => _ = both.1.remove(new.key()),
                (2, true) => _ = both.0.insert(new),
                (3, true) => _ = both.0.remove(new.key()),
                (_, _) => _ = both.1.insert(new),
            }
            let after = groups(present.values().cloned());
            missing = missing.changed(&before, &after);
            assert_eq!(missing, of(&after), "seed {seed}");
            assert_eq!(told(&missing), modelled(&after), "seed {seed}: {after:#?}");
            before = after;
        }
    }
}

#[test]
fn a_change_of_one_resource_costs_what_it_is_among_five_thousand_groups() {
    let own =
        |at: usize| group(&[&format!("node-{at}")], &[route("r", &["c", "d"]), cluster("c"), cluster("d")]);
    let mut before = groups((0..5_000).map(own).chain([group(&[], &[route("r", &["missing"])])]));
    let mut missing = of(&before);
    work::take();
    for (resources, expected, judged) in [
        // Of 5,000 groups that name a cluster of this name, one does without.
        (vec![route("r", &["c", "d"]), cluster("c")], vec!["default: r -> missing", "node-7: r -> d"], 1),
        (vec![route("r", &["c", "d"]), cluster("c"), cluster("d")], vec!["default: r -> missing"], 2),
        (vec![route("r", &["c"]), cluster("c"), cluster("d")], vec!["default: r -> missing"], 0),
        (vec![route("r", &["c", "e"]), cluster("c")], vec!["default: r -> missing", "node-7: r -> e"], 1),
        (vec![cluster("c")], vec!["default: r -> missing"], 0),
    ] {
        let mut after = before.clone();
        let changed = Arc::new(group(&["node-7"], &resources));
        after.insert(changed.definition.name.clone(), changed);
        missing = missing.changed(&before, &after);
        assert_eq!(told(&missing), expected);
        let [.., references] = work::take();
        assert!(references <= judged, "{references} instead of {judged}: {expected:?}");
        before = after;
    }
}
