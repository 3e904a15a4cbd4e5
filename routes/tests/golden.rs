//! Documents and what becomes of them, one directory for each feature: `golden/FEATURE/input.yaml`, and beside it, as
//! snapshots, the resources for each profile and what is said of the objects.
//!
//! `INSTA_UPDATE=always cargo test -p xds-routes --test golden` rewrites them, to be read before they are committed.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Reading, conditions_text, diagnostics_text, resources_text};
use xds_cache::Profile;
use xds_routes::Options;

#[test]
fn documents_become_what_is_written_beside_them() {
    let mut features: Vec<PathBuf> = fs::read_dir(root())
        .expect("the directory of golden files")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    features.sort();
    assert!(features.len() > 0, "only {features:?}");
    for feature in features {
        check(&feature);
    }
}

fn check(feature: &Path) {
    let text = fs::read_to_string(feature.join("input.yaml")).expect("input.yaml");
    let reading = Reading::of("input.yaml", &text);
    let translation = reading.translate(&Options::default());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(feature);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        insta::assert_snapshot!("envoy", resources_text(&translation, Profile::Envoy));
        insta::assert_snapshot!("grpc", resources_text(&translation, Profile::Grpc));
        let diagnostics = diagnostics_text(&reading, &translation);
        insta::assert_snapshot!("status", conditions_text(&translation) + &diagnostics);
    });
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
