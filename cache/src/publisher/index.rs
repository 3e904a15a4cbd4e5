//! Finds the groups of a node: literal node ids by hash, other selectors one by one.

use std::collections::{BTreeSet, HashMap};

use crate::admission::{Denial, admit, waived};
use crate::group::{GroupName, NodeGroup};
use crate::identity::Proof;
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

    /// The view of a client: the groups that select it and that it may have, the winner first: by priority, then by name, the
    /// default group last.
    ///
    /// # Errors
    ///
    /// [`Denial`] if it claims a group that is not granted to it.
    pub(super) fn admitted(&self, node: &Node, proofs: &[Proof], groups: &Groups) -> Result<ViewKey, Denial> {
        let selected = self.selected(node, groups);
        let given = admit(node, proofs, selected)?;
        Ok(key(given, node, groups))
    }

    /// The groups that a client is given only because they try their identities.
    pub(super) fn waived(&self, node: &Node, proofs: &[Proof], groups: &Groups) -> Vec<Denial> {
        waived(node, proofs, self.selected(node, groups))
    }

    /// The view of all groups that select `node`, as if it had proved whatever they ask for.
    pub(super) fn claimed(&self, node: &Node, groups: &Groups) -> ViewKey {
        key(self.selected(node, groups).map(|group| &group.name).collect(), node, groups)
    }

    /// The view of the groups that select `node` and ask for no proof.
    pub(super) fn unguarded(&self, node: &Node, groups: &Groups) -> ViewKey {
        let open = self.selected(node, groups).filter(|group| !group.is_guarded());
        key(open.map(|group| &group.name).collect(), node, groups)
    }

    /// The groups that select `node`, the winner first, without the default group.
    fn selected<'g>(&self, node: &Node, groups: &'g Groups) -> impl Iterator<Item = &'g NodeGroup> {
        let definition = |name: &GroupName| groups.get(name).map(|group| &group.definition);
        let by_selector = self.by_selector.iter().filter_map(definition);
        let by_selector = by_selector.filter(|group| group.selector.selects(node));
        let mut selected: Vec<&NodeGroup> =
            self.of_id(&node.id).filter_map(definition).chain(by_selector).collect();
        selected.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
        selected.into_iter()
    }
}

/// The view of a client that has these groups, and the default group behind them.
fn key(names: Vec<&GroupName>, node: &Node, groups: &Groups) -> ViewKey {
    let default = GroupName::default_group();
    let names = || names.iter().copied().chain([&default]);
    let profile = names()
        .find_map(|name| groups.get(name).and_then(|group| group.definition.client))
        .unwrap_or_else(|| Profile::of_user_agent(&node.user_agent_name));
    ViewKey { groups: names().cloned().collect(), profile, cohort: 0 }
}

fn set(names: &mut BTreeSet<GroupName>, name: &GroupName, is_in: bool) {
    if is_in {
        names.insert(name.clone());
    } else {
        names.remove(name);
    }
}
