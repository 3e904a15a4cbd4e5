//! The group that a file belongs to: the nearest node group at or above its directory (D5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{Diagnostic, Place};

use super::files::{DirectoryGroup, Files, directories_above, parent};
use super::findings::Findings;
use super::parsed::diagnostic;
use crate::timing::Removals;

/// The group of each directory that has, or ought to have, one of its own.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) directories: BTreeMap<Arc<str>, DirectoryGroup>,
    /// Directories whose node group cannot be used, although there is one. Nothing is known of whom their files are for.
    unknown: BTreeSet<Arc<str>>,
}

/// A node group document.
struct Candidate<'a> {
    path: &'a Arc<str>,
    place: Place,
    /// The definition, or the last good one.
    definition: Option<NodeGroup>,
}

impl Assignment {
    /// The group of a file; `None` if its directory has no usable group.
    pub(super) fn group_of(&self, path: &str) -> Option<GroupName> {
        for directory in directories_above(path) {
            if let Some(group) = self.directories.get(directory) {
                return Some(group.definition.name.clone());
            }
            if self.unknown.contains(directory) {
                return None;
            }
        }
        Some(GroupName::default_group())
    }
}

/// Gives every directory its group.
pub(super) fn assign(
    files: &Files,
    previous: &BTreeMap<Arc<str>, DirectoryGroup>,
    removals: Removals,
    findings: &mut Findings,
) -> Assignment {
    let mut directories = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for (directory, candidates) in candidates(files) {
        match choose(&candidates, previous.get(&directory), findings) {
            Some(group) => _ = directories.insert(directory, group),
            None => _ = unknown.insert(directory),
        }
    }
    refuse_equal_names(&mut directories, &mut unknown, previous, findings);
    if removals == Removals::Postponed {
        for (directory, group) in previous {
            if !unknown.contains(directory) {
                let leaving = || DirectoryGroup { is_leaving: true, ..group.clone() };
                directories.entry(Arc::clone(directory)).or_insert_with(leaving);
            }
        }
    }
    Assignment { directories, unknown }
}

/// The node group documents of each directory.
fn candidates(files: &Files) -> BTreeMap<Arc<str>, Vec<Candidate<'_>>> {
    let mut candidates: BTreeMap<Arc<str>, Vec<Candidate<'_>>> = BTreeMap::new();
    for (path, file) in files.iter().filter(|(_, file)| !file.is_missing) {
        let last_good = file.group.as_ref();
        let mut found: Vec<_> = file
            .parsed
            .groups
            .iter()
            .map(|(place, group)| {
                (place.clone(), group.as_ref().or(last_good.map(|group| &group.definition)).cloned())
            })
            .collect();
        if found.is_empty()
            && let Some(group) = last_good
        {
            found.push((group.place.clone(), Some(group.definition.clone())));
        }
        for (place, definition) in found {
            let directory = parent(path).into();
            candidates.entry(directory).or_default().push(Candidate { path, place, definition });
        }
    }
    candidates
}

/// The one that counts; the owner if there are several.
fn choose(
    candidates: &[Candidate<'_>],
    previous: Option<&DirectoryGroup>,
    findings: &mut Findings,
) -> Option<DirectoryGroup> {
    let previous = previous.map(|group| DirectoryGroup { is_leaving: false, ..group.clone() });
    for candidate in candidates {
        if candidates.len() > 1 {
            let others = candidates.iter().filter(|other| other.place != candidate.place);
            let error = diagnostic(
                "two-node-groups",
                candidate.place.clone(),
                format!("the directory has {} node groups; it can have one", candidates.len()),
            );
            let related = others.map(|other| other.place.clone()).collect();
            findings.add(candidate.path, Diagnostic { related, ..error });
        }
    }
    let of_owner = |candidate: &&Candidate<'_>| {
        candidates.len() == 1 || previous.as_ref().is_some_and(|owner| owner.path == *candidate.path)
    };
    let mut owned = candidates.iter().filter(of_owner);
    match (owned.next(), owned.next()) {
        (Some(Candidate { path, place, definition: Some(definition) }), None) => {
            let (path, definition, place) = (Arc::clone(path), definition.clone(), place.clone());
            Some(DirectoryGroup { path, definition, place, is_leaving: false })
        }
        _ => previous,
    }
}

/// Refuses a group of the same name in a second directory; the directory that had it keeps it.
fn refuse_equal_names(
    directories: &mut BTreeMap<Arc<str>, DirectoryGroup>,
    unknown: &mut BTreeSet<Arc<str>>,
    previous: &BTreeMap<Arc<str>, DirectoryGroup>,
    findings: &mut Findings,
) {
    let mut by_name: BTreeMap<GroupName, Vec<Arc<str>>> = BTreeMap::new();
    for (directory, group) in directories.iter().filter(|(_, group)| !group.definition.name.is_default()) {
        by_name.entry(group.definition.name.clone()).or_default().push(Arc::clone(directory));
    }
    for (name, claimants) in by_name.into_iter().filter(|(_, claimants)| claimants.len() > 1) {
        let had_it = |directory: &&Arc<str>| {
            previous.get(*directory).is_some_and(|group| !group.is_leaving && group.definition.name == name)
        };
        let owner = claimants.iter().find(had_it).cloned();
        let places: Vec<(Arc<str>, Place)> = claimants
            .iter()
            .filter_map(|directory| directories.get(directory))
            .map(|group| (Arc::clone(&group.path), group.place.clone()))
            .collect();
        for (path, place) in &places {
            let message = format!("the node group `{name}` is defined in {} directories", places.len());
            let others = places.iter().filter(|(_, other)| other != place);
            let related = others.map(|(_, other)| other.clone()).collect();
            let error = diagnostic("duplicate-node-group", place.clone(), message);
            findings.add(path, Diagnostic { related, ..error });
        }
        for directory in claimants.into_iter().filter(|directory| Some(directory) != owner.as_ref()) {
            directories.remove(&directory);
            // A directory keeps its previous name, unless another directory took it meanwhile.
            let is_free = |before: &&DirectoryGroup| {
                before.definition.name != name
                    && directories.values().all(|group| group.definition.name != before.definition.name)
            };
            match previous.get(&directory).filter(|before| !before.is_leaving).filter(is_free) {
                Some(before) => _ = directories.insert(directory, before.clone()),
                None => _ = unknown.insert(directory),
            }
        }
    }
}
