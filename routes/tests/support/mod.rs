//! From text to a translation, and back to text.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use xds_cache::{GroupName, MissingReferences, Profile, Resource, ResourceType};
use xds_codec::{Codec, Diagnostic, Effect, Limits, ProfileFinding, Syntax};
use xds_routes::{Documents, Options, Placed, ReadOutcome, Translation, read, translate};

pub(crate) static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("a codec"));

/// The result of reading a text.
#[derive(Clone, Default)]
pub(crate) struct Reading {
    pub(crate) documents: Documents,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Reading {
    /// Reads the documents of a text, all into the group `default`. Of equal keys the last counts.
    pub(crate) fn of(file: &str, text: &str) -> Self {
        Self::of_files(&[(file.to_owned(), text.to_owned())])
    }

    /// Reads the documents of files, in their order.
    pub(crate) fn of_files(files: &[(String, String)]) -> Self {
        let mut reading = Self::default();
        for (file, text) in files {
            let trees = xds_codec::parse(file, text.as_bytes(), Syntax::Yaml, &Limits::default());
            for tree in &trees.expect("YAML") {
                match read(&file.as_str().into(), tree, xds_routes::UnknownFields::Refuse) {
                    ReadOutcome::NotOurs => panic!("not ours: {}", tree.to_json()),
                    outcome @ (ReadOutcome::Unreadable(_) | ReadOutcome::Objects(_)) => reading.take(outcome),
                }
            }
        }
        reading
    }

    /// Takes in what a document was read to.
    pub(crate) fn take(&mut self, outcome: ReadOutcome) {
        match outcome {
            ReadOutcome::NotOurs => {}
            ReadOutcome::Unreadable(diagnostics) => self.diagnostics.extend(diagnostics),
            ReadOutcome::Objects(objects) => {
                for object in objects {
                    match object.outcome {
                        Ok((document, warnings)) => {
                            self.diagnostics.extend(warnings);
                            let group = GroupName::default_group();
                            let placed = Placed::new(document, group);
                            self.documents.insert(object.key, placed);
                        }
                        Err(diagnostics) => self.diagnostics.extend(diagnostics),
                    }
                }
            }
        }
    }

    pub(crate) fn translate(&self, options: &Options) -> Translation {
        translate(&CODEC, &self.documents, options, None)
    }
}

/// The resources of a profile, as YAML documents in order of groups, types and names. Listeners that differ in their names
/// only, as a gRPC client's do, are written once, with all the names in front.
pub(crate) fn resources_text(translation: &Translation, profile: Profile) -> String {
    let mut text = String::new();
    for (name, group) in &translation.groups {
        if !name.is_default() {
            let _ = writeln!(text, "# group {name}");
        }
        let resources = group.profiles.get(&profile).into_iter().flat_map(|all| all.values());
        let texts: Vec<(String, &str, String)> = resources
            .map(|resource| {
                let text = CODEC.to_yaml(resource);
                (nameless(resource, &text), &**resource.name(), text)
            })
            .collect();
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (nameless, name, _) in &texts {
            names.entry(nameless).or_default().push(name);
        }
        for (nameless, _, yaml) in &texts {
            let Some(names) = names.remove(nameless.as_str()) else { continue };
            text.push_str("---\n");
            if names.len() > 1 {
                let _ = writeln!(text, "# {}", names.join(", "));
            }
            text.push_str(yaml);
        }
    }
    text
}

/// The text of a listener without its name; that of every other resource as it is.
fn nameless(resource: &Resource, text: &str) -> String {
    match resource.key().resource_type == ResourceType::Listener {
        true => text.replacen(&format!("name: {}\n", resource.name()), "", 1),
        false => text.to_owned(),
    }
}

/// The same without what every Service gives gRPC clients, that it can be dialled as it is: its listeners and routes. In place
/// of these there is one line with the names of their RouteConfigurations.
pub(crate) fn readable_resources_text(translation: &Translation, profile: Profile) -> String {
    let all = resources_text(translation, profile);
    let documents: Vec<&str> = all.split("---\n").collect();
    let implicit: BTreeSet<&str> = documents
        .iter()
        .filter(|text| text.contains("\n    name: Service/"))
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("name: ")))
        .filter(|name| name.starts_with("grpc/mesh/"))
        .collect();
    let is_implicit = |text: &&&str| {
        text.lines().any(|line| {
            let name = line.strip_prefix("name: ");
            let name = name.or_else(|| line.trim_start().strip_prefix("route_config_name: "));
            name.is_some_and(|name| implicit.contains(name))
        })
    };
    let rest: Vec<&str> = documents.iter().filter(|text| !is_implicit(text)).copied().collect();
    let mut text = rest.join("---\n");
    if !implicit.is_empty() {
        let names: Vec<&str> = implicit.into_iter().collect();
        let _ = writeln!(text, "---\n# services as they are: {}", names.join(", "));
    }
    text
}

/// One line for each condition, one for each diagnostic.
pub(crate) fn conditions_text(translation: &Translation) -> String {
    let mut text = String::new();
    for (key, object) in &translation.conditions.objects {
        let mut line = |of: &str, conditions: &[xds_routes::Condition]| {
            for one in conditions {
                let of = if of.is_empty() { String::new() } else { format!(" [{of}]") };
                let _ = write!(text, "{key}{of}: {}={} {}", one.kind, one.status, one.reason);
                let _ =
                    if one.message.is_empty() { writeln!(text) } else { writeln!(text, ": {}", one.message) };
            }
        };
        line("", &object.conditions);
        for listener in &object.listeners {
            line(
                &format!("listener {}, {} routes", listener.name, listener.attached_routes),
                &listener.conditions,
            );
        }
        for parent in &object.parents {
            let section = parent.section.as_ref().map(|section| format!("#{section}")).unwrap_or_default();
            let port = parent.port.map(|port| format!(":{port}")).unwrap_or_default();
            line(&format!("{}{section}{port}", parent.parent), &parent.conditions);
        }
    }
    text
}

/// The diagnostics of the documents by themselves and together.
pub(crate) fn diagnostics_text(reading: &Reading, translation: &Translation) -> String {
    let mut text = String::new();
    for diagnostic in reading.diagnostics.iter().chain(&translation.diagnostics) {
        let _ = writeln!(text, "{diagnostic}");
    }
    text
}

/// The faults that clients of each profile would find in their group's resources, and names that lead nowhere. Four things are
/// meant: fractions that are too fine to be independent of each other (C10), though never of weights; an entry of weight 0 stays
/// so that clusters stay the same (C15), which gRPC clients ignore; one cluster is missing, so that a share of HTTP requests fails
/// with 500; and one has no endpoints, so no sessions with any either (C87).
pub(crate) fn lint(translation: &Translation) -> Vec<String> {
    let mut found = Vec::new();
    for (name, group) in &translation.groups {
        for (profile, resources) in &group.profiles {
            let missing = MissingReferences::among(resources.clone());
            let resources = || resources.values().map(|resource| &**resource);
            let findings = CODEC.lint_profile(resources(), *profile);
            let is_meant = |one: &ProfileFinding| match one.row {
                "B114" => one.effect == Effect::Ignored,
                "C10" => !one.path.ends_with("weighted_clusters"),
                "C87" => &*one.resource.name == "xds-server/unavailable",
                _ => false,
            };
            let told = findings.iter().filter(|one| !is_meant(one));
            found.extend(told.map(|one| format!("{name} {profile:?}: {one:?}")));
            let lost = missing.iter().filter(|one| &*one.to.name != "xds-server/error");
            found.extend(lost.map(|one| format!("{name} {profile:?}: {one:?}")));
        }
    }
    found
}

/// A line for each resource. Equal versions are equal contents, and are written much faster.
pub(crate) fn versions_text(translation: &Translation) -> String {
    let mut text = String::new();
    for (name, group) in &translation.groups {
        for (profile, resources) in &group.profiles {
            for (key, resource) in resources {
                let _ = writeln!(text, "{name} {profile} {key} {}", resource.version());
            }
        }
    }
    text
}

/// A shared codec for tests that need their own resources.
pub(crate) fn codec() -> &'static Codec {
    &CODEC
}

/// The files of a directory whose names end with `.yaml`, by name.
pub(crate) fn yaml_files(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).expect("a file"))).collect()
}

/// `fixtures/`.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The same value behind another pointer, so that nothing can depend on identity.
pub(crate) fn copied(documents: &Documents) -> Documents {
    documents
        .iter()
        .map(|(key, placed)| {
            let document = Arc::new((*placed.document).clone());
            (key.clone(), Placed { document, ..placed.clone() })
        })
        .collect()
}
