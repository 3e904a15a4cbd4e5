//! The tables that a client is brought up to now: the view's, or others while something waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{ResourceKey, ResourceType, TypeTable, View};

/// A client is served this instead of the view's table of a type.
#[derive(Clone, Debug)]
pub(crate) struct Transitional {
    pub(crate) table: Arc<TypeTable>,
    pub(crate) version_info: Arc<str>,
    /// The client is sent everything nevertheless, because nothing tells it that something is gone.
    pub(crate) is_final: bool,
}

/// How the view and what a client is sent differ while something waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detour {
    /// These stand in for the view's tables.
    pub(crate) transitional: BTreeMap<ResourceType, Transitional>,
    /// A client that came back and wants one of these is sent nothing of its type.
    pub(crate) put_off: BTreeSet<ResourceKey>,
}

/// The tables that a client is to be brought up to now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) view: &'a View,
    detour: Option<&'a Detour>,
}

impl<'a> Target<'a> {
    pub(crate) fn new(view: &'a View, detour: Option<&'a Detour>) -> Self {
        Self { view, detour }
    }

    /// The table of a type.
    pub(crate) fn table(&self, resource_type: &ResourceType) -> &'a Arc<TypeTable> {
        let transitional = self.transitional(resource_type);
        transitional.map_or_else(|| self.view.table(resource_type), |transitional| &transitional.table)
    }

    /// The version that responses of the type carry: a transitional table has one of its own (D8).
    pub(crate) fn version_info(&self, resource_type: &ResourceType) -> &'a Arc<str> {
        let transitional = self.transitional(resource_type);
        transitional
            .map_or_else(|| self.view.version_info(resource_type), |transitional| &transitional.version_info)
    }

    /// The resources that put off everything of their types.
    pub(crate) fn put_off(&self) -> impl Iterator<Item = &'a ResourceKey> {
        self.detour.into_iter().flat_map(|detour| &detour.put_off)
    }

    /// Returns `true` if the client has everything that the view owes it of the type, once it has this table.
    pub(crate) fn is_final(&self, resource_type: &ResourceType) -> bool {
        self.transitional(resource_type).is_none_or(|transitional| transitional.is_final)
    }

    fn transitional(&self, resource_type: &ResourceType) -> Option<&'a Transitional> {
        self.detour?.transitional.get(resource_type)
    }
}
