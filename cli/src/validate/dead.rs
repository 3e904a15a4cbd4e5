//! Parts that can never act, or act otherwise than they are written, by the model of what clients do.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use xds_cache::{GroupName, Profile, Publisher, Revision, View};
use xds_codec::{Diagnostic, Language as Judged, Place as FilePlace, Severity};
use xds_control::Places;
use xds_control::acks::view_key_of_group;
use xds_explain::{Client, Depth, Doubt, DoubtCode, Doubts, Language, Model, Part, Place, differences, lint};

use crate::offline::Offline;

/// What is looked for.
pub(super) struct Check<'c> {
    /// The node groups with the profiles of their clients.
    pub(super) kinds: Vec<(Profile, GroupName)>,
    /// The languages of gRPC.
    pub(super) languages: &'c [Judged],
    pub(super) depth: Depth,
}

impl Check<'_> {
    /// The doubts about what the groups are served, each once. Those about gRPC clients are told if all of these languages agree.
    ///
    /// What is often meant is a note, whether or not the check is strict.
    pub(super) fn findings(&self, is_strict: bool, offline: &Offline) -> Vec<Diagnostic> {
        let publisher = Publisher::new();
        publisher.publish(Revision(1), offline.groups());
        let texts = offline.all_texts(&[]);
        let mut found: BTreeMap<(Placed, &'static str, String), Diagnostic> = BTreeMap::new();
        let mut acting: BTreeSet<Placed> = BTreeSet::new();
        for (profile, group) in &self.kinds {
            let Some(view) = publisher.view_at(&view_key_of_group(group, *profile)) else { continue };
            let places = Places { view: &view, documents: &offline.translated.documents, texts: &texts };
            let models = self.models(*profile, &view);
            let mut doubts = agreed(models.iter().map(|model| lint(model, self.depth)));
            if self.depth == Depth::All && *profile == Profile::Grpc {
                doubts.all.extend(self.differences(&publisher, group, &models));
            }
            // Of an override that acts for some clients, nothing is told to others.
            let of_overrides = places.of_parts(&doubts.acting);
            acting.extend(of_overrides.iter().flatten().map(file_place).map(|place| placed(&place)));
            for (doubt, own, hiding) in located(&places, doubts.all, self.depth) {
                let one = diagnostic(&doubt, &own, hiding, is_strict);
                found.entry(key(&doubt, &one)).or_insert(one);
            }
        }
        let unused = DoubtCode::UnusedOverride.name();
        found.retain(|(place, code, _), _| *code != unused || !acting.contains(place));
        found.into_values().collect()
    }

    fn models(&self, profile: Profile, view: &View) -> Vec<Model> {
        languages(profile, self.languages)
            .map(|language| Model::of_view(view, Client::newest(language)))
            .collect()
    }

    /// Calls that the Envoys of a group and its gRPC clients answer differently, for each place the first.
    fn differences(&self, publisher: &Publisher, group: &GroupName, of_grpc: &[Model]) -> Vec<Doubt> {
        let has_envoys = self.kinds.iter().any(|(profile, own)| (*profile, own) == (Profile::Envoy, group));
        let view = publisher.view_at(&view_key_of_group(group, Profile::Envoy)).filter(|_| has_envoys);
        let Some(view) = view else { return Vec::new() };
        let envoy = Model::of_view(&view, Client::newest(Language::Envoy));
        of_grpc.iter().flat_map(|model| differences(&envoy, model)).collect()
    }
}

/// What tells findings apart: for most kinds, one at a place is enough.
fn key(doubt: &Doubt, diagnostic: &Diagnostic) -> (Placed, &'static str, String) {
    let words = match doubt.code {
        DoubtCode::UnusedOverride => doubt.message.clone(),
        DoubtCode::ShadowedRoute
        | DoubtCode::NeverMatches
        | DoubtCode::UnreachableDomain
        | DoubtCode::UnreachableChain
        | DoubtCode::WeightNeverApplies
        | DoubtCode::TimeoutOff
        | DoubtCode::PartlyShadowed
        | DoubtCode::OnlyWhenUnhealthy
        | DoubtCode::DiffersBetweenClients => String::new(),
    };
    (placed(&diagnostic.place), doubt.code.name(), words)
}

/// A place that can be compared.
type Placed = (Arc<str>, u32);

fn placed(place: &FilePlace) -> Placed {
    (Arc::clone(&place.file), place.line)
}

fn languages(profile: Profile, judged: &[Judged]) -> impl Iterator<Item = Language> {
    let of_grpc = judged.iter().map(|language| match language {
        Judged::Core => Language::CCore,
        Judged::Go => Language::Go,
        Judged::Js => Language::Js,
        Judged::Java => Language::Java,
    });
    let all: Vec<Language> = match profile {
        Profile::Envoy => vec![Language::Envoy],
        Profile::Grpc => of_grpc.collect(),
    };
    all.into_iter()
}

/// The doubts that all have, and the overrides that act for any.
fn agreed(mut all: impl Iterator<Item = Doubts>) -> Doubts {
    let mut doubts = all.next().unwrap_or_default();
    for others in all {
        let same: HashSet<(DoubtCode, &Part)> =
            others.all.iter().map(|other| (other.code, &other.part)).collect();
        doubts.all.retain(|doubt| same.contains(&(doubt.code, &doubt.part)));
        doubts.acting.extend(others.acting);
    }
    doubts
}

/// The doubts with their places and the places of what hides them. A rule that became several routes is at most partly shadowed, as long
/// as one of them acts.
fn located(places: &Places<'_>, doubts: Vec<Doubt>, depth: Depth) -> Vec<(Doubt, Place, Vec<Place>)> {
    let parts: Vec<Part> = doubts
        .iter()
        .flat_map(|doubt| [&doubt.part].into_iter().chain(&doubt.hidden_by).chain(&doubt.namesakes))
        .cloned()
        .collect();
    let mut found = places.of_parts(&parts).into_iter();
    let mut all = Vec::new();
    for doubt in doubts {
        let own = found.next().flatten();
        let hiding: Vec<Place> = found.by_ref().take(doubt.hidden_by.len()).flatten().collect();
        let acting: Vec<Place> = found.by_ref().take(doubt.namesakes.len()).flatten().collect();
        let Some(own) = own else { continue };
        if !acting.contains(&own) {
            all.push((doubt, own, hiding));
        } else if let Some(message) = doubt.partly.clone().filter(|_| depth == Depth::All) {
            all.push((Doubt { code: DoubtCode::PartlyShadowed, message, ..doubt }, own, hiding));
        }
    }
    all
}

fn file_place(place: &Place) -> FilePlace {
    FilePlace { file: place.file.as_str().into(), line: place.line, column: 1 }
}

fn diagnostic(doubt: &Doubt, own: &Place, hiding: Vec<Place>, is_strict: bool) -> Diagnostic {
    let related: BTreeSet<Placed> = hiding.iter().map(file_place).map(|place| placed(&place)).collect();
    let severity = match (doubt.code.is_often_meant(), is_strict) {
        (true, _) => Severity::Info,
        (false, true) => Severity::Error,
        (false, false) => Severity::Warning,
    };
    let related = related.into_iter().map(|(file, line)| FilePlace { file, line, column: 1 });
    Diagnostic {
        severity,
        code: doubt.code.name(),
        place: file_place(own),
        path: String::new(),
        message: doubt.message.clone(),
        suggestion: None,
        related: related.collect(),
        is_sensitive: false,
    }
}
