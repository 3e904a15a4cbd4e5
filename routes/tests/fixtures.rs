//! The examples of `fixtures/` are read without a word, serve both kinds of clients, and hold nothing that one would refuse.

use std::fs;
use std::path::Path;

use xds_cache::{Profile, Resource};
use xds_codec::{Limits, ObjectContent, Severity, Syntax};
use xds_routes::{Options, ReadOutcome, read};

use crate::support::{CODEC, Reading, diagnostics_text, fixtures, lint, yaml_files};

/// The warnings of an example: the codes of its warnings, in their order.
fn warnings(directory: &Path) -> Vec<&'static str> {
    let name = directory.display();
    let mut reading = Reading::default();
    let mut raw: Vec<Resource> = Vec::new();
    for (file, text) in yaml_files(directory) {
        let trees = xds_codec::parse(&file, text.as_bytes(), Syntax::Yaml, &Limits::default());
        let outcomes: Vec<ReadOutcome> = trees
            .expect("YAML")
            .iter()
            .map(|tree| read(&file.as_str().into(), tree, xds_routes::UnknownFields::Refuse))
            .collect();
        if outcomes.iter().all(|outcome| matches!(outcome, ReadOutcome::NotOurs)) {
            let decoded = CODEC.decode_file(&file, text.as_bytes(), &Limits::default());
            assert!(decoded.all_diagnostics().is_empty(), "{name}/{file}: {:?}", decoded.all_diagnostics());
            raw.extend(decoded.objects.into_iter().filter_map(|object| match object.content {
                ObjectContent::Resource { outcome, .. } => outcome.ok(),
                ObjectContent::Unreadable(_)
                | ObjectContent::NodeGroup { .. }
                | ObjectContent::Other { .. } => None,
            }));
        }
        outcomes.into_iter().for_each(|outcome| reading.take(outcome));
    }
    let translation = reading.translate(&Options::default());
    let text = diagnostics_text(&reading, &translation);
    let all = || reading.diagnostics.iter().chain(&translation.diagnostics);
    assert!(all().all(|found| found.severity != Severity::Error), "{name}: {text}");
    assert!(all().all(|found| found.code != "generated-resource"), "{name}: {text}");
    for profile in [Profile::Envoy, Profile::Grpc] {
        let served: usize = translation
            .groups
            .values()
            .filter_map(|group| group.profiles.get(&profile))
            .map(|all| all.len())
            .sum();
        assert!(served + raw.len() >= 2, "{name} has {served} resources for {profile:?}");
    }
    assert_eq!(lint(&translation), Vec::<String>::new(), "{name}");
    all().filter(|found| found.severity == Severity::Warning).map(|found| found.code).collect()
}

#[test]
fn examples_are_served_without_a_warning() {
    let mut names: Vec<String> = fs::read_dir(fixtures())
        .expect("fixtures")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !["basic", "compose", "scenarios", "seeds", "tools"].contains(&name.as_str()))
        .collect();
    names.sort();
    let expected = [
        "backend-tls",
        "fallback",
        "grpc-route",
        "http-route",
        "https",
        "mesh",
        "native",
        "on-demand",
        "reference-grant",
        "rollout",
        "sessions",
        "traffic-split",
    ];
    assert_eq!(names, expected);
    for name in names {
        let directory = fixtures().join(&name);
        // Its page tells how to make the Secret.
        let expected: &[&str] = if name == "https" { &["invalid-certificate-ref"] } else { &[] };
        assert_eq!(warnings(&directory), expected, "{name}");
        assert!(directory.join("README.md").is_file(), "{name} has no page");
    }
}

#[test]
fn seeds_are_served_with_warnings_for_what_is_old_in_them() {
    let old_route = [
        "deprecated-version",
        "old-form",
        "old-form",
        "old-form",
        "missing-port",
        "missing-port",
        "missing-port",
    ];
    let table: [(&str, &[&str]); 13] = [
        ("a28", &[]),
        ("a37", &[]),
        ("a60", &[]),
        ("gep-1016", &old_route),
        ("smi-ab-test", &["missing-version", "missing-version"]),
        ("smi-birds", &[]),
        ("smi-birds-mismatch", &["split-port-mismatch"]),
        ("smi-canary", &["missing-version"]),
        ("smi-implementation", &["missing-version"]),
        ("smi-rollout-begin", &["missing-version"]),
        ("smi-rollout-end", &["missing-version"]),
        ("smi-rollout-third", &["missing-version"]),
        ("smi-self-reference", &["missing-version", "self-referential-split"]),
    ];
    let seeds = fixtures().join("seeds");
    let n_seeds = fs::read_dir(&seeds)
        .expect("seeds")
        .filter(|entry| entry.as_ref().is_ok_and(|it| it.path().is_dir()));
    assert_eq!(n_seeds.count(), table.len());
    for (name, expected) in table {
        assert_eq!(warnings(&seeds.join(name)), expected, "{name}");
    }
}
