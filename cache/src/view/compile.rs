//! Compiles a view from the previous one, its groups, and what everyone gets. The cost is that of the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::View;
use super::key::ViewKey;
use super::members::{Base, Edits, Members};
use super::own::Own;
use crate::drain::next::{Former, Terms};
use crate::drain::{Drain, DrainPolicy};
use crate::layer::Groups;
use crate::partial::Partials;
use crate::resource_key::ResourceKey;
use crate::resource_type::ResourceType;
use crate::table::{Edit, TypeTable};
use crate::version::Revision;
use crate::work::{self, Work};

/// The sources of a view besides its groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    pub(crate) revision: Revision,
    pub(crate) epoch: u64,
    /// The tables of the default group.
    pub(crate) base: &'a Arc<Base>,
    /// The previous view; unchanged parts are taken from it.
    pub(crate) previous: Option<&'a View>,
    /// Another view from which clients come to this one.
    pub(crate) sibling: Option<&'a View>,
    /// How long resources drain if no group says so.
    pub(crate) drain: DrainPolicy,
    /// The time; without one nothing drains.
    pub(crate) now: Option<Instant>,
}

/// Compiles the view of `key`.
pub(crate) fn compile(key: ViewKey, groups: &Groups, circumstances: Circumstances<'_>) -> View {
    work::count(Work::View, 1);
    let Circumstances { revision, epoch, base, .. } = circumstances;
    let nothing = View::nothing(&key);
    let before = circumstances.previous.unwrap_or(&nothing);
    let past = circumstances.previous.or(circumstances.sibling).map(|view| Arc::clone(&view.past));
    let members = Members::new(&key, groups);
    let (own, changed) = own(before, &members);
    let drain = drain(&members, &changed, circumstances);
    let mut edits: Edits<Edit> = Edits::new();
    let drained = before.drain.keys().chain(drain.keys()).map(Arc::new);
    let touched: BTreeSet<Arc<ResourceKey>> = changed.into_iter().chain(drained).collect();
    for key in touched {
        let served = drain.served(&key).or_else(|| members.find_own(&key).map(|(_, resource)| resource));
        let edit = served.map_or(Edit::Below, |served| Edit::Own(Arc::clone(served)));
        edits.entry(key.resource_type.clone()).or_default().push((Arc::clone(&key.name), edit));
    }
    let tables = if edits.is_empty() && Arc::ptr_eq(base, &before.base) {
        before.tables.clone()
    } else {
        tables(before, base, &edits)
    };
    let labels = labels(&members, &own, base, &tables, &drain);
    let base = Arc::clone(base);
    View {
        key,
        revision,
        epoch,
        members,
        base,
        own,
        tables,
        labels,
        drain,
        past: past.unwrap_or_default(),
        partial: Partials::default(),
    }
}

/// The resources of all groups except the default one, and the keys under which they may have changed.
fn own(before: &View, members: &Members) -> (Own, BTreeSet<Arc<ResourceKey>>) {
    let mut changed = members.changed_since(&before.members);
    let mut own = before.own.clone();
    let mut older = before.members.clone();
    if !members.has_priorities_of(&older) {
        // Groups may conflict under any key now.
        let none = Members::none(&before.key);
        changed.extend(older.changed_since(&none));
        changed.extend(members.changed_since(&none));
        (own, older) = (Own::default(), none);
    }
    for key in &changed {
        work::count(Work::Resource, 1);
        own.note(key, &older, members);
    }
    (own, changed)
}

/// Computes the draining resources. `changed` are the keys under which the view's own groups differ from the previous view.
fn drain(members: &Members, changed: &BTreeSet<Arc<ResourceKey>>, circumstances: Circumstances<'_>) -> Drain {
    let Circumstances { previous, sibling, base, now: Some(now), .. } = circumstances else {
        return Drain::default();
    };
    let previous = previous.map(|view| Former::new(view, changed, base));
    let sibling = sibling.map(|view| Former::new(view, &members.changed_since(&view.members), base));
    let before: Vec<Former<'_>> = previous.into_iter().chain(sibling).collect();
    let policy = members.drain_policy().or(circumstances.drain);
    Drain::next(&before, members, Terms { policy, profile: members.profile(), now })
}

fn tables(before: &View, base: &Base, edits: &Edits<Edit>) -> BTreeMap<ResourceType, Arc<TypeTable>> {
    let known = before.tables.keys().chain(base.tables().keys()).chain(before.base.tables().keys());
    let types: BTreeSet<&ResourceType> = known.chain(edits.keys()).collect();
    let table = |of_type: &ResourceType| {
        let former = (before.base.tables().get(of_type), before.tables.get(of_type));
        let edits = edits.get(of_type).map(|edits| &edits[..]).unwrap_or_default();
        TypeTable::laid_over(base.tables().get(of_type), former, edits)
    };
    types.into_iter().filter_map(|of_type| Some((of_type.clone(), table(of_type)?))).collect()
}

/// The labels to show for types: those that all resources of a type have from one group (D4). A type with draining resources
/// has none: a label names a publication, not the publication plus something else.
fn labels(
    members: &Members,
    own: &Own,
    base: &Base,
    tables: &BTreeMap<ResourceType, Arc<TypeTable>>,
    drain: &Drain,
) -> BTreeMap<ResourceType, Arc<str>> {
    if members.iter().all(|group| group.label.is_none()) {
        return BTreeMap::new();
    }
    let drained = drain.types();
    let label = |of_type: &ResourceType, table: &TypeTable| {
        let mut of_groups = own.tallies.iter().filter(|((of, _), _)| of == of_type);
        let group = match of_groups.next() {
            None => members.default_group().filter(|_| base.is_published(of_type)),
            Some(((_, position), tally)) if tally.n_published == table.len() => members.get(*position),
            Some(_) => None,
        };
        group?.label.clone()
    };
    let tables = tables.iter().filter(|(of_type, _)| !drained.contains(of_type));
    tables.filter_map(|(of_type, table)| Some((of_type.clone(), label(of_type, table)?))).collect()
}
