//! Bad input, by name: what is said of it, with file, line, column and field, and that it takes nothing down. Beside each bad
//! document there is a good route with its Gateway, which both kinds of clients are served as if it were alone.
//!
//! Tests of directories with bad files, and of deleting and adding while clients are served, are in the tests of the
//! whole server (`tests/tests/envoys/documents/files.rs`), which also compares what it says of all of these with `validate`
//! (`tests/tests/server/bad_input/verdicts.rs`).

mod api;
mod grants;
mod policies;
mod references;
mod texts;
mod values;

use texts::{AROUND, GOOD, backend, filters, method, n_times, route};
use xds_cache::{GroupName, Profile};
use xds_routes::{Options, Translation};

use crate::support::{Reading, conditions_text};

/// The documents of a case read and translated beside the good ones: what is said of them, line by line.
fn said(name: &str, bad: &str) -> (Vec<String>, Translation) {
    let alone = Reading::of("good.yaml", GOOD);
    assert!(alone.diagnostics.is_empty(), "{:?}", alone.diagnostics);
    let expected = alone.translate(&Options::default());
    let files = [("bad.yaml".to_owned(), bad.to_owned()), ("good.yaml".to_owned(), GOOD.to_owned())];
    let reading = Reading::of_files(&files);
    let translation = reading.translate(&Options::default());
    for profile in [Profile::Envoy, Profile::Grpc] {
        let of = |translation: &Translation| {
            translation.groups[&GroupName::default_group()].profiles[&profile].clone()
        };
        let (served, expected) = (of(&translation), of(&expected));
        assert!(expected.len() >= 4, "{profile:?}: {}", expected.len());
        for (key, resource) in &expected {
            let found =
                served.get(key).unwrap_or_else(|| panic!("{name}: {key:?} is not served to {profile:?}"));
            assert_eq!(found.version(), resource.version(), "{name}: {key:?} for {profile:?}");
        }
    }
    let conditions = conditions_text(&translation);
    let good = "GRPCRoute default/good [Gateway default/good]: Accepted=True Accepted\n";
    assert!(conditions.contains(good), "{name}: {conditions}");
    let diagnostics = reading.diagnostics.iter().chain(&translation.diagnostics);
    (diagnostics.map(ToString::to_string).collect(), translation)
}

fn check(cases: &[(&str, String, &[&str])]) {
    let mut faults = String::new();
    for (name, bad, expected) in cases {
        let (found, _) = said(name, bad);
        if found != *expected {
            faults += &format!(
                "{name}\n{}\n",
                found.iter().map(|line| format!("  {line:?},\n")).collect::<String>()
            );
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
