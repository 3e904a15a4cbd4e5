//! The names for which it is not true that a client has what it was brought up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{Name, Version, xdstp};

use crate::pairs::Pairs;
use crate::steps::{counted, step};

/// The client's copy under a name that is an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It says that it holds this version.
    Version(Version),
    /// Something that is out of date.
    Stale,
    /// Anything; it waits for an answer.
    Unknown,
    /// Nothing; it waits for an answer.
    Nothing,
    /// It was told that there is nothing.
    Gone,
}

/// The exceptions, found by name and by glob.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions {
    by_name: BTreeMap<Name, Held>,
    /// Names by the glob that they are members of, if that is any.
    members: Option<Box<Pairs>>,
}

impl Exceptions {
    /// Notes what is held under a name, whatever was before.
    pub(crate) fn insert(&mut self, name: Name, held: Held) {
        step();
        if let Some(before) = self.by_name.get_mut(&name) {
            *before = held;
            return;
        }
        if let Some(glob) = xdstp::glob_of(&name) {
            self.members.get_or_insert_default().insert(glob.into(), Arc::clone(&name));
        }
        self.by_name.insert(name, held);
    }

    /// Notes what is held under a name, unless it is one already.
    pub(crate) fn insert_new(&mut self, name: Name, held: Held) {
        if !self.contains(&name) {
            self.insert(name, held);
        }
    }

    /// The name is none any more.
    pub(crate) fn remove(&mut self, name: &str) {
        step();
        if let Some((name, _)) = self.by_name.remove_entry(name) {
            self.forget_member(&name);
        }
    }

    /// Only those stay that pass.
    pub(crate) fn retain(&mut self, mut passes: impl FnMut(&Name) -> bool) {
        let mut gone = Vec::new();
        let is_indexed = self.members.is_some();
        self.by_name.retain(|name, _| {
            step();
            let stays = passes(name);
            if !stays && is_indexed {
                gone.push(Arc::clone(name));
            }
            stays
        });
        if self.by_name.is_empty() {
            self.members = None;
            return;
        }
        gone.iter().for_each(|name| self.forget_member(name));
    }

    /// Changes what is held under those for which there is something else.
    pub(crate) fn update(&mut self, mut change: impl FnMut(Held) -> Option<Held>) {
        for held in counted(self.by_name.values_mut()) {
            *held = change(*held).unwrap_or(*held);
        }
    }

    /// The exception of a name.
    pub(crate) fn get(&self, name: &str) -> Option<Held> {
        step();
        self.by_name.get(name).copied()
    }

    /// Returns `true` if a name is one.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All of them, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, Held)> {
        counted(self.by_name.iter()).map(|(name, held)| (name, *held))
    }

    /// Those that are members of a glob.
    pub(crate) fn members<'a>(&'a self, glob: &'a str) -> impl Iterator<Item = &'a Name> {
        self.members.iter().flat_map(move |members| members.of(glob))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns `true` if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn forget_member(&mut self, name: &Name) {
        let Some(members) = &mut self.members else { return };
        if let Some(glob) = xdstp::glob_of(name) {
            members.remove(&glob.into(), name);
        }
    }
}
