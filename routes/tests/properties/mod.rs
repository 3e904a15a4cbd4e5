//! Properties of every set of documents, from text to resources.

mod documents;
mod hostile;
mod incremental;
mod order;
mod sessions;
mod weights;

use proptest::test_runner::Config;
use serde_json::Value as Json;
use xds_routes::{Options, Translation};

use crate::support::{Reading, conditions_text, lint, versions_text};

/// As many cases as the others have; a failure prints the smallest documents that it is found with.
fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// The documents, read from one file.
fn reading(documents: &[Json]) -> Reading {
    let text: String = documents.iter().map(|document| format!("---\n{document}\n")).collect();
    match documents {
        [] => Reading::default(),
        _ => Reading::of("f.yaml", &text),
    }
}

fn translated(documents: &[Json]) -> Translation {
    reading(documents).translate(&Options::default())
}

/// The outcome, without the places: resources for both profiles, conditions, and what is said of the documents.
fn outcome(reading: &Reading) -> String {
    let translation = reading.translate(&Options::default());
    let all = reading.diagnostics.iter().chain(&translation.diagnostics);
    let mut told: Vec<String> =
        all.map(|one| format!("{}[{}] {}: {}", one.severity, one.code, one.path, one.message)).collect();
    told.sort();
    format!(
        "{}\n=====\n{}\n=====\n{}",
        versions_text(&translation),
        conditions_text(&translation),
        told.join("\n")
    )
}

/// The faults that clients would refuse, and resources that our own codec refuses.
fn faults(translation: &Translation) -> Vec<String> {
    let ours = translation.diagnostics.iter().filter(|one| one.code == "generated-resource");
    ours.map(ToString::to_string).chain(lint(translation)).collect()
}
