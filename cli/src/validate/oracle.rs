//! What a local Envoy says about the resources of the files (`--oracle`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use xds_cache::{Profile, Publisher, Resource, Revision};
use xds_codec::{Diagnostic, Place, Severity};
use xds_control::Places;
use xds_control::acks::view_key_of_group;
use xds_explain::Part;
use xds_oracle::{Oracle, Refusal, Verdict};

use super::target::{Target, diagnostic, names_for, origin_of, reached_by};
use crate::offline::{Offline, nowhere};

/// What it was asked, and what it refuses.
pub(super) struct Judged {
    pub(super) version: String,
    pub(super) n_asked: usize,
    pub(super) n_refused: usize,
}

/// Asks about what the Envoys of each group would be served. A resource that gRPC clients reach too is no error if both are checked for.
pub(super) fn judge(path: &Path, target: Target, offline: &Offline) -> (Option<Judged>, Vec<Diagnostic>) {
    let failed = |why: &str| {
        let message = format!("--oracle {}: {why}", path.display());
        diagnostic(Severity::Error, "oracle-failed", nowhere(), message)
    };
    let mut oracle = match Oracle::new(path) {
        Ok(oracle) => oracle,
        Err(why) => return (None, vec![failed(&why)]),
    };
    let groups = offline.groups();
    let is_shared = match target {
        Target::All => reached_by(&offline.codec, &groups, Profile::Grpc),
        Target::Envoy | Target::Grpc => Default::default(),
    };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups.clone());
    let texts = offline.all_texts(&[]);
    let mut judged = Judged { version: oracle.version().to_owned(), n_asked: 0, n_refused: 0 };
    let mut found = Vec::new();
    let mut asked: BTreeSet<Vec<*const Resource>> = BTreeSet::new();
    let mut told: BTreeSet<(Place, String)> = BTreeSet::new();
    for group in names_for(&groups, Profile::Envoy) {
        let Some(view) = publisher.view_at(&view_key_of_group(group, Profile::Envoy)) else { continue };
        let resources: Vec<Arc<Resource>> =
            view.types().flat_map(|of_type| view.table(of_type).resources()).cloned().collect();
        if !asked.insert(resources.iter().map(Arc::as_ptr).collect()) {
            continue;
        }
        let places = Places { view: &view, documents: &offline.translated.documents, texts: &texts };
        let Verdict { n_asked, refused, undecided, .. } = oracle.judge(&resources);
        judged.n_asked += n_asked;
        for Refusal { resource, why, .. } in refused {
            let place = place(&resource, &places);
            let others = is_shared.contains(&(resource.key().clone(), origin_of(resource.origin())));
            if !told.insert((place.clone(), resource.key().to_string())) {
                continue;
            }
            judged.n_refused += 1;
            // An Envoy's words may have any part of the message.
            let why = match offline.codec.has_secrets(&resource) {
                true => "its words are not shown, because the resource has a secret",
                false => &*why,
            };
            let note = if others { " (ignore this if only gRPC clients use it)" } else { "" };
            let severity = if others { Severity::Warning } else { Severity::Error };
            let message = format!("Envoy {} refuses {}: {why}{note}", judged.version, resource.key());
            found.push(diagnostic(severity, "refused-by-oracle", place, message));
        }
        if let Some(why) = undecided {
            found.push(failed(&format!("it was not asked about all resources of the group {group}: {why}")));
            break;
        }
    }
    (Some(judged), found)
}

/// Where a resource is written, or the document that it is generated from.
fn place(resource: &Resource, places: &Places<'_>) -> Place {
    let part = Part { resource: resource.key().clone(), path: String::new(), route: None };
    let found = places.of_parts(&[part]).into_iter().next().flatten();
    let place =
        |place: &xds_explain::Place| Place { file: place.file.as_str().into(), line: place.line, column: 1 };
    match origin_of(resource.origin()) {
        own if own.line > 0 => own,
        _ => found.as_ref().map_or_else(nowhere, place),
    }
}

impl Judged {
    pub(super) fn to_json(&self) -> Value {
        json!({"version": self.version, "asked": self.n_asked, "refused": self.n_refused})
    }

    /// `Envoy 1.40.0 takes 12 of 13 resources`.
    pub(super) fn to_text(&self) -> String {
        let n_taken = self.n_asked.saturating_sub(self.n_refused);
        format!("Envoy {} takes {n_taken} of {} resources", self.version, self.n_asked)
    }
}
