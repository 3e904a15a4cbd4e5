//! Finds the groups of a node: literal node ids by hash, other selectors one by one.

use std::collections::{BTreeSet, HashMap};

use crate::group::{GroupName, NodeGroup};
use crate::layer::Groups;
use crate::node::{Node, Profile};
use crate::view::ViewKey;

/// The nodes whose groups may have changed with a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Moved {
    /// Nobody's.
    #[default]
    Nobody,
    /// Those of the nodes with these ids.
    Ids(BTreeSet<String>),
    /// Everyone's.
    Everyone,
}

impl Moved {
    /// Returns `true` if it may be those of this node.
    #[must_use]
    pub fn may_be(&self, node: &Node) -> bool {
        match self {
            Self::Nobody => false,
            Self::Ids(ids) => ids.contains(&node.id),
            Self::Everyone => true,
        }
    }
}

/// Finds the groups of a node.
#[derive(Debug, Default)]
pub(super) struct NodeIndex {
    by_id: HashMap<String, BTreeSet<GroupName>>,
    by_selector: BTreeSet<GroupName>,
}

impl NodeIndex {
    /// Updates the definition of a group, and returns the nodes whose groups that may change.
    pub(super) fn redefine(&mut self, old: Option<&NodeGroup>, new: Option<&NodeGroup>) -> Moved {
        if old == new {
            return Moved::Nobody;
        }
        let mut ids = Some(BTreeSet::new());
        for (group, is_new) in [(old, false), (new, true)] {
            let Some(group) = group else { continue };
            let literal = if group.name.is_default() { None } else { group.selector.literal_node_ids() };
            for id in literal.iter().flatten() {
                let of_id = self.by_id.entry((*id).to_owned()).or_default();
                set(of_id, &group.name, is_new);
                if of_id.is_empty() {
                    self.by_id.remove(*id);
                }
            }
            match (&mut ids, literal) {
                (Some(ids), Some(literal)) => ids.extend(literal.into_iter().map(str::to_owned)),
                (ids, None) => {
                    *ids = None;
                    if !group.name.is_default() {
                        set(&mut self.by_selector, &group.name, is_new);
                    }
                }
                (None, Some(_)) => {}
            }
        }
        ids.map_or(Moved::Everyone, Moved::Ids)
    }

    /// The groups that select this node id alone.
    pub(super) fn of_id(&self, id: &str) -> impl Iterator<Item = &GroupName> {
        self.by_id.get(id).into_iter().flatten()
    }

    /// The groups that select `node`, the winner first: by priority, then by name, the default group last.
    pub(super) fn key_of(&self, node: &Node, groups: &Groups) -> ViewKey {
        let selects = |name: &&GroupName| {
            groups.get(*name).is_some_and(|group| group.definition.selector.selects(node))
        };
        let by_selector = self.by_selector.iter().filter(selects);
        let mut names: Vec<&GroupName> = self.of_id(&node.id).chain(by_selector).collect();
        let priority = |name: &GroupName| groups.get(name).map_or(0, |group| group.definition.priority);
        names.sort_by(|a, b| priority(b).cmp(&priority(a)).then_with(|| a.cmp(b)));
        let default = GroupName::default_group();
        names.push(&default);
        let profile = names
            .iter()
            .find_map(|name| groups.get(*name).and_then(|group| group.definition.client))
            .unwrap_or_else(|| Profile::of_user_agent(&node.user_agent_name));
        ViewKey { groups: names.into_iter().cloned().collect(), profile, cohort: 0 }
    }
}

fn set(names: &mut BTreeSet<GroupName>, name: &GroupName, is_in: bool) {
    if is_in {
        names.insert(name.clone());
    } else {
        names.remove(name);
    }
}
