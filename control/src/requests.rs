//! The requests that a change of the groups moves, for clients of each group that it changes.
//!
//! All groups together share the steps that a comparison may take, and the classes that are shown, so the cost has a bound that does
//! not depend on the time.

use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups, Profile, Publisher, Revision, View};
use xds_explain::{Changes, Client, Effort, MAX_CLASSES, Model, diff_within};
use xds_routes::Documents;

use crate::acks::view_key_of_group;
use crate::model::{GroupRequests, Texts};
use crate::places::Places;

/// A state of the groups, and the documents where its parts are written.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The groups.
    pub groups: &'a Groups,
    /// The documents.
    pub documents: &'a Documents,
}

/// Comparisons that share their bounds.
pub(crate) struct Comparison<'a> {
    documents: [&'a Documents; 2],
    effort: Effort,
    /// How many classes may still be shown.
    n_classes: usize,
    found: Vec<GroupRequests>,
}

/// The requests that move between two states, of the groups that `sees` is `true` for: of each kind of client that such a group can have,
/// up to [`MAX_KINDS`].
#[must_use]
pub fn between(states: [State<'_>; 2], sees: impl Fn(&GroupName) -> bool) -> Vec<GroupRequests> {
    let [before, after] = states;
    let publishers = states.map(|state| {
        let publisher = Publisher::new();
        publisher.publish(Revision(1), state.groups.clone());
        publisher
    });
    let mut comparison = Comparison::new([before.documents, after.documents]);
    let names = differing(before.groups, after.groups).into_iter().filter(|name| sees(name));
    let kinds = names.flat_map(|name| {
        let group = after.groups.get(name).or_else(|| before.groups.get(name));
        group.map(|group| group.profiles()).unwrap_or_default().iter().map(move |profile| (name, *profile))
    });
    for (name, profile) in kinds.take(MAX_KINDS) {
        let key = view_key_of_group(name, profile);
        if let [Some(old), Some(new)] = [0, 1].map(|side: usize| publishers[side].view_at(&key)) {
            comparison.add(name, profile, [&old, &new]);
        }
    }
    comparison.into_found()
}

impl<'a> Comparison<'a> {
    /// `documents` are those before and after.
    pub(crate) fn new(documents: [&'a Documents; 2]) -> Self {
        Self { documents, effort: Effort::default(), n_classes: MAX_CLASSES, found: Vec::new() }
    }

    /// Compares what the clients of a group are served.
    pub(crate) fn add(&mut self, group: &GroupName, profile: Profile, views: [&View; 2]) {
        let mut all = Vec::new();
        for client in Client::newest_of(profile) {
            let [old, new] = views.map(|view| Model::of_view(view, client));
            all.push(diff_within(&old, &new, &mut self.effort));
        }
        let mut changes = Changes::together(all);
        changes.retain(|one| !one.is_empty());
        for one in &mut changes {
            one.classes.truncate(self.n_classes);
            self.n_classes -= one.classes.len();
            let texts = Texts::default();
            let places = [0, 1].map(|side: usize| Places {
                view: views[side],
                documents: self.documents[side],
                texts: &texts,
            });
            one.locate(|old| places[0].locate(old), |new| places[1].locate(new));
        }
        if !changes.is_empty() {
            self.found.push(GroupRequests { group: group.clone(), profile, changes });
        }
    }

    pub(crate) fn into_found(self) -> Vec<GroupRequests> {
        self.found
    }
}

/// The most kinds of clients of groups that are compared.
const MAX_KINDS: usize = 16;
