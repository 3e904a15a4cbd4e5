//! Parts that can never act, or act otherwise than they are written, by the model of what clients do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{GroupName, Profile, Publisher, Revision};
use xds_codec::{Diagnostic, Language as Judged, Place as FilePlace, Severity};
use xds_control::Places;
use xds_control::acks::view_key_of_group;
use xds_explain::{Client, Doubt, Language, Model, Part, Place, lint};

use crate::cli::offline::Offline;

/// The doubts about what the groups are served to clients of a profile, each once. Those about gRPC clients are told if all of these languages agree.
pub(super) fn findings(
    kinds: &[(Profile, GroupName)],
    judged: &[Judged],
    is_strict: bool,
    offline: &Offline,
) -> Vec<Diagnostic> {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), offline.groups());
    let texts = offline.all_texts(&[]);
    let mut found: BTreeMap<(Placed, &'static str), Diagnostic> = BTreeMap::new();
    for (profile, group) in kinds {
        let Some(view) = publisher.view_at(&view_key_of_group(group, *profile)) else { continue };
        let places = Places { view: &view, documents: &offline.translated.documents, texts: &texts };
        let doubts = agreed(
            languages(*profile, judged)
                .map(|language| lint(&Model::of_view(&view, Client::newest(language)))),
        );
        for (doubt, own, hiding) in located(&places, doubts) {
            let one = diagnostic(&doubt, &own, hiding, is_strict);
            found.entry((placed(&one.place), doubt.code.name())).or_insert(one);
        }
    }
    found.into_values().collect()
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

/// The doubts that all have.
fn agreed(mut all: impl Iterator<Item = Vec<Doubt>>) -> Vec<Doubt> {
    let mut doubts = all.next().unwrap_or_default();
    for others in all {
        doubts.retain(|doubt| {
            others.iter().any(|other| (other.code, &other.part) == (doubt.code, &doubt.part))
        });
    }
    doubts
}

/// The doubts with their places and the places of what hides them. Of a rule that became several routes, nothing is told as long as one of
/// them acts.
fn located(places: &Places<'_>, doubts: Vec<Doubt>) -> Vec<(Doubt, Place, Vec<Place>)> {
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
        all.extend(own.filter(|own| !acting.contains(own)).map(|own| (doubt, own, hiding)));
    }
    all
}

fn diagnostic(doubt: &Doubt, own: &Place, hiding: Vec<Place>, is_strict: bool) -> Diagnostic {
    let place = |place: &Place| FilePlace { file: place.file.as_str().into(), line: place.line, column: 1 };
    let related: BTreeSet<Placed> = hiding.iter().map(place).map(|place| placed(&place)).collect();
    let related = related.into_iter().map(|(file, line)| FilePlace { file, line, column: 1 });
    Diagnostic {
        severity: if is_strict { Severity::Error } else { Severity::Warning },
        code: doubt.code.name(),
        place: place(own),
        path: String::new(),
        message: doubt.message.clone(),
        suggestion: None,
        related: related.collect(),
        is_sensitive: false,
    }
}
