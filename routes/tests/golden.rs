//! Documents and what becomes of them, one directory for each feature: `golden/FEATURE/input.yaml`, and beside it, as
//! snapshots, the resources for each profile and what is said of the objects. `golden/seed-NAME` has no input of its own: it is
//! `fixtures/seeds/NAME`, an example of a gRFC, GEP-1016 or SMI as it stands.
//!
//! `INSTA_UPDATE=always cargo test -p xds-routes --test routes golden` rewrites them, to be read before they are committed.

use std::fs;
use std::path::{Path, PathBuf};

use xds_cache::Profile;
use xds_routes::Options;

use crate::support::{
    Reading, conditions_text, diagnostics_text, fixtures, readable_resources_text, yaml_files,
};

#[test]
fn documents_become_what_is_written_beside_them() {
    let features = directories(&root());
    assert!(features.len() > 30, "only {features:?}");
    for feature in features.iter().filter(|feature| feature.join("input.yaml").is_file()) {
        check(feature, &yaml_files(feature));
    }
}

#[test]
fn the_examples_of_the_papers_become_what_is_written_here() {
    for seed in directories(&fixtures().join("seeds")) {
        let name = seed.file_name().expect("a name").to_string_lossy().into_owned();
        let files = yaml_files(&seed);
        // Envoy resources are served as they are.
        if files.iter().all(|(_, text)| text.contains("\nresources:")) {
            continue;
        }
        check(&root().join(format!("seed-{name}")), &files);
    }
}

fn check(feature: &Path, files: &[(String, String)]) {
    let reading = Reading::of_files(files);
    let translation = reading.translate(&Options::default());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(feature);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        insta::assert_snapshot!("envoy", readable_resources_text(&translation, Profile::Envoy));
        insta::assert_snapshot!("grpc", readable_resources_text(&translation, Profile::Grpc));
        let diagnostics = diagnostics_text(&reading, &translation);
        insta::assert_snapshot!("status", conditions_text(&translation) + &diagnostics);
    });
}

fn directories(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut directories: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    directories.sort();
    directories
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
