//! Transitional tables: what a client is served on its way from one table to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::resource::Resource;
use crate::resource_key::Name;
use crate::table::{Edit, Goal, TypeTable};
use crate::version::{Version, VersionHasher};

/// Deviations of a transitional table from the final one.
pub type Deviations = BTreeMap<Name, Deviation>;

/// The entry of a transitional table for one name.
#[derive(Clone, Debug)]
pub enum Deviation {
    /// This resource, instead of the final one or in addition to the final ones.
    Kept(Arc<Resource>),
    /// The version that the client may have, if any. A client that waits for an answer continues to wait, because neither
    /// possible answer is ready: the resource, or its absence.
    Withheld(Option<Arc<Resource>>),
    /// Nothing, as if there were none.
    Absent,
}

impl TypeTable {
    /// This table with `deviations`. Its version follows from its contents, as with any table. Equal deviations give the same
    /// shared table while somebody holds it, so clients in the same situation share one.
    #[must_use]
    pub fn deviating(self: &Arc<Self>, deviations: &Deviations) -> Arc<Self> {
        if deviations.is_empty() {
            return Arc::clone(self);
        }
        let hash = hash_of(deviations);
        let mut known = self.transitions.leading_here.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, table)| table.strong_count() > 0);
        if let Some(table) = known.iter().find(|(of, _)| *of == hash).and_then(|(_, table)| table.upgrade()) {
            return table;
        }
        let mut withheld = Vec::new();
        let edits = deviations.iter().map(|(name, deviation)| {
            if matches!(deviation, Deviation::Withheld(_)) {
                withheld.push(Arc::clone(name));
            }
            let edit = match deviation {
                Deviation::Kept(kept) | Deviation::Withheld(Some(kept)) => Edit::Own(Arc::clone(kept)),
                Deviation::Withheld(None) | Deviation::Absent => Edit::Hidden,
            };
            (Arc::clone(name), edit)
        });
        let mut table = self.with(edits);
        table.transitions.goal = Some(Goal { table: Arc::clone(self), withheld: withheld.into() });
        let table = Arc::new(table);
        known.push((hash, Arc::downgrade(&table)));
        table
    }

    /// Returns `true` if a client that asks for a name gets no answer yet.
    #[must_use]
    pub fn is_withheld(&self, asked: &str) -> bool {
        let Some(goal) = self.transitions.goal.as_ref().filter(|goal| !goal.withheld.is_empty()) else {
            return false;
        };
        let asked = Name::from(asked);
        // What is gone has its other names only here.
        let found = goal.table.look_up(&asked).or_else(|| self.look_up(&asked));
        let name = found.map_or(&asked, |found| found.name(&asked));
        goal.withheld.binary_search(name).is_ok()
    }
}

fn hash_of(deviations: &Deviations) -> Version {
    let mut hasher = VersionHasher::new();
    for (name, deviation) in deviations {
        hasher.update(name.as_bytes());
        let (kind, resource) = match deviation {
            Deviation::Kept(kept) => (b"kept", Some(kept)),
            Deviation::Withheld(kept) => (b"held", kept.as_ref()),
            Deviation::Absent => (b"gone", None),
        };
        hasher.update(kind);
        hasher.update(resource.map(|resource| resource.version().to_string()).unwrap_or_default().as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_type::ResourceType;

    fn cluster(name: &str, value: &'static str) -> Arc<Resource> {
        Arc::new(Resource::plain(ResourceType::Cluster, name, value.as_bytes()))
    }

    #[test]
    fn equal_deviations_are_one_table_as_long_as_it_is_held() {
        let table = Arc::new(TypeTable::new(vec![cluster("a", "1"), cluster("b", "2")]));
        let deviations = Deviations::from([
            ("a".into(), Deviation::Withheld(None)),
            ("b".into(), Deviation::Withheld(Some(cluster("b", "1")))),
            ("x".into(), Deviation::Kept(cluster("x", "1"))),
        ]);
        let first = table.deviating(&deviations);
        assert!(Arc::ptr_eq(&first, &table.deviating(&deviations)));
        let plain = TypeTable::new(vec![cluster("b", "1"), cluster("x", "1")]);
        assert_eq!(first.version(), plain.version());
        assert!(
            first.is_withheld("a")
                && first.is_withheld("b")
                && !first.is_withheld("x")
                && !first.is_withheld("c")
        );
        assert!(!table.is_withheld("a"));
        assert!(Arc::ptr_eq(&table, &table.deviating(&Deviations::new())));
    }
}
