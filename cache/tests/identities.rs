//! Whatever groups, identities and claims there are: no client is given a group that its identity does not grant.
//!
//! The model works on lists of letters and knows nothing of patterns, proofs and selectors as the crate writes them.

use std::sync::Arc;

use proptest::prelude::*;
use xds_cache::group::Glob;
use xds_cache::identity::{NodeIdPattern, SpiffeId, SpiffePattern, Subject, SubjectPattern};
use xds_cache::layer::{Generated, Layer, merge};
use xds_cache::{
    GroupName, Identity, Node, NodeGroup, Proof, Publisher, Resource, ResourceType, Revision, Selector,
};

/// A letter, or any one.
type Letter = Option<u8>;

#[derive(Clone, Debug)]
struct Entry {
    path: Vec<Letter>,
    has_any_rest: bool,
    /// Node ids: a letter, or what the first open letter of the path stood for. Empty for any.
    ids: Vec<Option<u8>>,
}

#[derive(Clone, Debug)]
struct Group {
    /// The node ids that it selects; `None` for every node.
    selects: Option<Vec<u8>>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Client {
    node: u8,
    /// The paths of its identities.
    proofs: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Refused,
    Given(Vec<usize>),
}

fn letter() -> impl Strategy<Value = u8> {
    b'a'..=b'c'
}

fn entry() -> impl Strategy<Value = Entry> {
    let path = prop::collection::vec(prop::option::of(letter()), 1..3);
    (path, any::<bool>(), prop::collection::vec(prop::option::of(letter()), 0..3)).prop_map(
        |(path, has_any_rest, mut ids)| {
            if path.iter().all(Option::is_some) {
                ids.retain(Option::is_some);
            }
            Entry { path, has_any_rest, ids }
        },
    )
}

fn group() -> impl Strategy<Value = Group> {
    let selects = prop::option::of(prop::collection::vec(letter(), 1..3));
    (selects, prop::collection::vec(entry(), 0..3)).prop_map(|(selects, entries)| Group { selects, entries })
}

fn client() -> impl Strategy<Value = Client> {
    (letter(), prop::collection::vec(prop::collection::vec(letter(), 1..4), 0..3))
        .prop_map(|(node, proofs)| Client { node, proofs })
}

/// What the first open letter stood for, if the path is one of the entry's; `0` if it has none.
fn stands_for(entry: &Entry, path: &[u8]) -> Option<u8> {
    let is_long_enough =
        if entry.has_any_rest { path.len() > entry.path.len() } else { path.len() == entry.path.len() };
    let fits = entry.path.iter().zip(path).all(|(expected, found)| expected.is_none_or(|e| e == *found));
    let first = entry.path.iter().position(Option::is_none);
    (is_long_enough && fits).then(|| first.map_or(0, |index| path[index]))
}

fn model(groups: &[Group], client: &Client) -> Verdict {
    let mut given = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        if group.selects.as_ref().is_some_and(|ids| !ids.contains(&client.node)) {
            continue;
        }
        let mut is_known = false;
        let mut is_granted = group.entries.is_empty();
        for entry in &group.entries {
            for found in client.proofs.iter().filter_map(|path| stands_for(entry, path)) {
                is_known = true;
                let ids: Vec<u8> = entry.ids.iter().map(|id| id.unwrap_or(found)).collect();
                is_granted |= ids.is_empty() || ids.contains(&client.node);
            }
        }
        match (is_granted, is_known, group.selects.is_some()) {
            (true, _, _) => given.push(index),
            (false, false, false) => {}
            (false, _, _) => return Verdict::Refused,
        }
    }
    Verdict::Given(given)
}

fn good<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

fn definition(index: usize, group: &Group) -> NodeGroup {
    let identity = |entry: &Entry| {
        let segments =
            entry.path.iter().map(|letter| letter.map_or("*".to_owned(), |l| char::from(l).to_string()));
        let mut text = format!("spiffe://example.org/{}", segments.collect::<Vec<_>>().join("/"));
        if entry.has_any_rest {
            text.push_str("/**");
        }
        let ids = entry.ids.iter().map(|id| id.map_or("{1}".to_owned(), |id| char::from(id).to_string()));
        let ids = ids.map(|id| good(NodeIdPattern::new(&id))).collect();
        good(Identity::new(vec![SubjectPattern::Spiffe(good(SpiffePattern::new(&text)))], ids))
    };
    let selector = match &group.selects {
        None => Selector::everyone(),
        Some(ids) => Selector {
            node_ids: ids.iter().map(|id| Glob::new(&char::from(*id).to_string())).collect(),
            ..Selector::nothing()
        },
    };
    let name = good(GroupName::new(&format!("g{index}")));
    let identities = group.entries.iter().map(identity).collect();
    NodeGroup { selector, identities, ..NodeGroup::for_node_id(name) }
}

fn publish(publisher: &Publisher, revision: u64, groups: &[Group]) {
    let mut base = Layer::default();
    for (index, group) in groups.iter().enumerate() {
        let definition = definition(index, group);
        let entry = base.groups.entry(definition.name.clone()).or_default();
        let resource = Resource::plain(ResourceType::Cluster, &format!("c{index}"), vec![]);
        entry.resources = [Arc::new(resource)].into_iter().collect();
        entry.definition = Some(definition);
    }
    publisher.publish(Revision(revision), merge(&base, &Layer::default(), &Generated::new()));
}

fn proofs(client: &Client) -> Vec<Proof> {
    let id = |path: &Vec<u8>| {
        let segments: Vec<String> = path.iter().map(|letter| char::from(*letter).to_string()).collect();
        good(SpiffeId::new(&format!("spiffe://example.org/{}", segments.join("/"))))
    };
    let proof = |path| Proof { subject: Subject::Spiffe(id(path)), expires: None, certificate: None };
    client.proofs.iter().map(proof).collect()
}

fn verdict(names: impl Iterator<Item = String>) -> Verdict {
    let mut given: Vec<usize> = names.map(|name| good(name[1..].parse())).collect();
    given.sort_unstable();
    Verdict::Given(given)
}

proptest! {

    /// A client is served what the model gives it, also when the groups change while it is connected.
    #[test]
    fn a_client_gets_what_its_identity_grants(
        first in prop::collection::vec(group(), 0..4),
        second in prop::collection::vec(group(), 0..4),
        client in client(),
    ) {
        let publisher = Publisher::new();
        let (node, proofs) = (Node::with_id(&char::from(client.node).to_string()), proofs(&client));
        publish(&publisher, 1, &first);
        let mut following = None;
        match publisher.follow_as(&node, &proofs) {
            Err(_) => prop_assert_eq!(model(&first, &client), Verdict::Refused),
            Ok(mut receiver) => {
                let view = receiver.take().unwrap();
                let names = view.table(&ResourceType::Cluster).resources().map(|r| r.name().to_string());
                prop_assert_eq!(verdict(names.collect::<Vec<_>>().into_iter()), model(&first, &client));
                following = Some((receiver, view));
            }
        }
        publish(&publisher, 2, &second);
        // A client that is refused now is never given the new contents of the view that it followed: it is told to look again.
        if let Some((mut receiver, before)) = following {
            let view = receiver.take().unwrap();
            if !receiver.is_outdated_by(&view) {
                let given = model(&second, &client);
                prop_assert_eq!(model(&first, &client), given, "{:?}", before.key());
            }
        }
        let after = publisher.view_as(&node, &proofs);
        match (model(&second, &client), after) {
            (Verdict::Refused, after) => prop_assert!(after.is_err()),
            (given, after) => {
                let view = after.unwrap().unwrap();
                let names = view.table(&ResourceType::Cluster).resources().map(|r| r.name().to_string());
                prop_assert_eq!(verdict(names.collect::<Vec<_>>().into_iter()), given);
            }
        }
        // Whoever proved nothing is given nothing that is guarded, not even by the way that refuses nobody.
        let open = publisher.follow(&node).take().unwrap();
        for resource in open.table(&ResourceType::Cluster).resources() {
            let index: usize = resource.name()[1..].parse().unwrap();
            prop_assert!(second[index].entries.is_empty());
        }
    }
}
