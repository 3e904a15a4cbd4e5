//! A translation that follows another is the one that is made from nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value as Json;
use xds_cache::GroupName;
use xds_routes::model::Spec;
use xds_routes::{DocumentKey, Documents, GenerationLimits, Options, Placed, Translation, translate};

use crate::support::{CODEC, conditions_text};

use super::documents::{world_documents, worlds};
use super::{config, reading};

/// A change of documents.
#[derive(Clone, Debug)]
enum Edit {
    /// A document comes, or takes the place of that with its name.
    Put(Vec<Json>),
    /// One goes.
    Remove(Index),
    /// One is moved to another group.
    Move(Index, bool),
    /// One is counted as changed, though it says the same.
    Count(Index),
    /// A Service counts as split once, or no longer.
    Split(Index),
    /// All backends of a route or split get another weight.
    Weigh(Index, u32),
}

fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => world_documents().prop_map(Edit::Put),
        3 => any::<Index>().prop_map(Edit::Remove),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(index, is_other)| Edit::Move(index, is_other)),
        1 => any::<Index>().prop_map(Edit::Count),
        1 => any::<Index>().prop_map(Edit::Split),
        4 => (any::<Index>(), 0..4_u32).prop_map(|(index, weight)| Edit::Weigh(index, weight)),
    ]
}

impl Edit {
    fn apply(&self, documents: &mut Documents) {
        let pick = |index: &Index, documents: &Documents| {
            let keys: Vec<_> = documents.keys().cloned().collect();
            (!keys.is_empty()).then(|| keys[index.index(keys.len())].clone())
        };
        let change = |index: &Index, documents: &mut Documents, change: &dyn Fn(&mut Placed)| {
            let Some(key) = pick(index, documents) else { return };
            let mut placed = documents[&key].clone();
            change(&mut placed);
            documents.insert(key, placed);
        };
        match self {
            Self::Put(new) => {
                for (key, placed) in reading(new).documents {
                    documents.insert(key, placed);
                }
            }
            Self::Remove(index) => {
                if let Some(key) = pick(index, documents) {
                    documents.remove(&key);
                }
            }
            Self::Move(index, is_other) => change(index, documents, &|placed| {
                let name = if *is_other { "other" } else { "default" };
                placed.group = GroupName::new(name).expect("a name");
            }),
            Self::Count(index) => change(index, documents, &|placed| placed.generation += 1),
            Self::Split(index) => change(index, documents, &|placed| placed.was_split = !placed.was_split),
            Self::Weigh(index, weight) => change(index, documents, &|placed| {
                placed.generation += 1;
                let spec = &mut Arc::make_mut(&mut placed.document).spec;
                if let Spec::Route(route) = spec {
                    let backends = route.rules.iter_mut().flat_map(|rule| &mut rule.backends);
                    backends.for_each(|backend| backend.weight = *weight);
                } else if let Spec::TrafficSplit(split) = spec {
                    split.backends.iter_mut().for_each(|backend| backend.weight = (*weight).into());
                }
            }),
        }
    }
}

/// All that anybody can see of a translation.
fn shown(translation: &Translation) -> String {
    let mut text = String::new();
    for (name, group) in &translation.groups {
        text.push_str(&format!("{name} {:?}\n", group.definition));
        for (profile, resources) in &group.profiles {
            for (key, resource) in resources {
                let draft = resource.to_draft();
                text.push_str(&format!("  {profile:?} {key} {} {draft:?}\n", resource.version()));
            }
        }
    }
    text.push_str(&conditions_text(translation));
    text.push_str(&format!("{:?}\n{:#?}", translation.grpc_unsupported, translation.diagnostics));
    text
}

/// The lines that only one of two texts has.
fn differing(one: &str, other: &str) -> String {
    let only = |of: &str, not: &str, mark: &str| -> String {
        let not: BTreeSet<&str> = not.lines().collect();
        let lines = of.lines().filter(|line| !not.contains(line));
        lines.map(|line| format!("{mark} {}\n", line.chars().take(300).collect::<String>())).collect()
    };
    only(one, other, "whole:") + &only(other, one, "followed:")
}

/// The objects whose status differs between two translations, found by looking at all of both.
fn changed_conditions(before: &Translation, after: &Translation) -> BTreeSet<DocumentKey> {
    let (old, new) = (&before.conditions.objects, &after.conditions.objects);
    let changed = old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key));
    changed.cloned().collect()
}

/// As many histories as `XDS_CASES` says.
fn cases() -> u32 {
    std::env::var("XDS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

proptest! {
    #![proptest_config(config(cases()))]

    #[test]
    fn what_follows_is_what_is_made_from_nothing(
        first in worlds(),
        edits in prop::collection::vec(edits(), 1..12),
        merges_route_kinds in any::<bool>(),
        // Some routes pass the smaller ones.
        max_bytes in prop::sample::select(&[2_000, 256 << 20][..]),
        max_routes in prop::sample::select(&[4, 100_000, 100_000][..]),
        implicit_port in prop::sample::select(&[Some(8080), Some(80), None][..]),
    ) {
        let limits = GenerationLimits { max_bytes, max_routes, ..GenerationLimits::default() };
        let options = Options { merges_route_kinds, limits, implicit_port, ..Options::default() };
        let mut documents = reading(&first).documents;
        let mut last = translate(&CODEC, &documents, &options, None);
        for edit in edits {
            edit.apply(&mut documents);
            let followed = translate(&CODEC, &documents, &options, Some(&last));
            let whole = translate(&CODEC, &documents, &options, None);
            let (whole, shown) = (shown(&whole), shown(&followed));
            prop_assert!(whole == shown, "after {:?}:\n{}", edit, differing(&whole, &shown));
            prop_assert!(changed_conditions(&last, &followed).is_subset(&followed.delta.conditions));
            last = followed;
        }
    }
}
