//! References of a resource: the resources that it names, and where it names them.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Peekable;
use std::sync::Arc;

use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;

/// One resource that another one names, such as the cluster of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The target. References to one resource may share it with each other and with that.
    pub to: Arc<ResourceKey>,
    /// Where it is named, as a field path: `virtual_hosts[0].routes[1].route.cluster`; `virtual_hosts["NAME"]` where the
    /// virtual host was encoded separately.
    pub path: Arc<str>,
}

/// Everything that a resource names, sorted by target, then by path. Versions of a resource may share it.
#[derive(Clone, Default, Eq)]
pub struct References(Arc<[Reference]>);

impl References {
    /// Returns `true` if this is the same shared value, not only an equal one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The targets, sorted and unique.
    pub fn targets(&self) -> impl Iterator<Item = &ResourceKey> {
        targets(&self.0).map(|to| &**to)
    }

    /// Returns `true` if something is named. Costs the logarithm of their number.
    #[must_use]
    pub fn has(&self, to: &ResourceKey) -> bool {
        self.0.binary_search_by(|reference| (*reference.to).cmp(to)).is_ok()
    }

    /// The names of one type that are named, sorted and unique. Costs as much as it finds, and the logarithm of the rest.
    pub fn of_type(&self, resource_type: &ResourceType) -> impl Iterator<Item = &Name> {
        let start = self.0.partition_point(|reference| reference.to.resource_type < *resource_type);
        let from = self.0.get(start..).unwrap_or_default();
        let end = from.partition_point(|reference| reference.to.resource_type == *resource_type);
        targets(from.get(..end).unwrap_or_default()).map(|to| &to.name)
    }

    /// These without some of them, and with others; the same shared value if that makes no difference. It takes one walk over
    /// all of them, or none if all stay.
    #[must_use]
    pub fn changed<'r>(
        &self,
        gone: impl Iterator<Item = &'r Reference>,
        new: impl Iterator<Item = &'r Reference>,
    ) -> Self {
        let (gone, new): (BTreeSet<_>, BTreeSet<_>) = (gone.collect(), new.collect());
        if gone == new {
            return self.clone();
        }
        let mut new = new.into_iter().peekable();
        let mut changed = Vec::with_capacity(self.0.len() + new.size_hint().0);
        for here in self.0.iter().filter(|here| !gone.contains(here)) {
            while let Some(new) = new.next_if(|new| *new < here) {
                changed.push(new.clone());
            }
            new.next_if(|new| *new == here);
            changed.push(here.clone());
        }
        changed.extend(new.cloned());
        Self(changed.into())
    }

    /// The targets that are here and not in `other`, sorted and unique. One walk over both, and none if they are shared.
    pub fn missing_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<ResourceKey>> {
        let here = if self.is(other) { Default::default() } else { &*self.0 };
        Missing { here: targets(here), there: targets(&other.0).peekable() }
    }
}

impl PartialEq for References {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.0 == other.0
    }
}

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromIterator<Reference> for References {
    fn from_iter<I: IntoIterator<Item = Reference>>(references: I) -> Self {
        let mut references: Vec<Reference> = references.into_iter().collect();
        references.sort();
        references.dedup();
        // Those of nothing are shared.
        if references.is_empty() { Self::default() } else { Self(references.into()) }
    }
}

impl<'a> IntoIterator for &'a References {
    type Item = &'a Reference;
    type IntoIter = std::slice::Iter<'a, Reference>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

fn targets(references: &[Reference]) -> impl Iterator<Item = &Arc<ResourceKey>> {
    references.chunk_by(|a, b| a.to == b.to).filter_map(|same| same.first()).map(|first| &first.to)
}

/// The difference of two sorted iterators.
struct Missing<A, B: Iterator> {
    here: A,
    there: Peekable<B>,
}

impl<'a, A, B> Iterator for Missing<A, B>
where
    A: Iterator<Item = &'a Arc<ResourceKey>>,
    B: Iterator<Item = &'a Arc<ResourceKey>>,
{
    type Item = &'a Arc<ResourceKey>;

    fn next(&mut self) -> Option<&'a Arc<ResourceKey>> {
        let there = &mut self.there;
        self.here.find(|here| {
            while there.next_if(|there| there < here).is_some() {}
            there.peek() != Some(here)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(names: &[(ResourceType, &str, &str)]) -> References {
        let key = |of: &ResourceType, name: &str| {
            Arc::new(ResourceKey { resource_type: of.clone(), name: name.into() })
        };
        names.iter().map(|(of, name, path)| Reference { to: key(of, name), path: (*path).into() }).collect()
    }

    fn names<'a>(targets: impl Iterator<Item = &'a ResourceKey>) -> Vec<&'a str> {
        targets.map(|to| &*to.name).collect()
    }

    #[test]
    fn targets_are_sorted_and_unique_whatever_their_order() {
        let (cluster, secret) = (ResourceType::Cluster, ResourceType::Secret);
        let some = references(&[
            (cluster.clone(), "b", "y"),
            (cluster.clone(), "a", "z"),
            (secret.clone(), "c", "w"),
            (cluster.clone(), "b", "x"),
            (cluster.clone(), "b", "x"),
        ]);
        assert_eq!(names(some.targets()), ["c", "a", "b"]);
        assert_eq!((&some).into_iter().count(), 4);
        assert_eq!(some.of_type(&cluster).map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(some.of_type(&secret).count(), 1);
        assert_eq!(some.of_type(&ResourceType::Listener).count(), 0);
        assert!(some.has(&ResourceKey { resource_type: cluster, name: "a".into() }));
        assert!(!some.has(&ResourceKey { resource_type: secret, name: "a".into() }));
    }

    #[test]
    fn what_is_changed_is_as_if_it_were_made_anew() {
        let all = ["a", "b", "c", "d"];
        let of = |bits: usize| -> Vec<Reference> {
            let chosen = all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            let named: Vec<_> = chosen.map(|(_, name)| (ResourceType::Cluster, *name, "x")).collect();
            references(&named).into_iter().cloned().collect()
        };
        for (here, gone, new) in (0..16)
            .flat_map(|here| (0..16).flat_map(move |gone| (0..16).map(move |new| (here, gone & here, new))))
        {
            let before: References = of(here).into_iter().collect();
            let changed = before.changed(of(gone).iter(), of(new).iter());
            let expected: References = of(here & !gone | new).into_iter().collect();
            assert_eq!(changed, expected, "{here} without {gone} and with {new}");
            assert!(gone != new || changed.is(&before));
        }
    }

    #[test]
    fn what_is_missing_is_what_the_other_has_not() {
        let all = ["a", "b", "c", "d", "e"];
        let of = |bits: usize| -> References {
            let chosen = all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            let named: Vec<_> = chosen.map(|(_, name)| (ResourceType::Cluster, *name, "x")).collect();
            references(&named)
        };
        for (here, there) in (0..32).flat_map(|here| (0..32).map(move |there| (here, there))) {
            let (here, there) = (of(here), of(there));
            let expected: Vec<&str> = names(here.targets().filter(|to| !there.has(to)));
            assert_eq!(names(here.missing_in(&there).map(|to| &**to)), expected, "{here:?} {there:?}");
        }
        let shared = of(31);
        assert_eq!(shared.missing_in(&shared.clone()).count(), 0);
    }
}
