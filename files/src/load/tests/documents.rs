//! Route documents in files: owners, last good versions, removals, restarts.

use xds_routes::UnknownFields;
use xds_routes::model::{BackendTlsPolicy, Spec};

use super::*;

/// Documents in their own language: `name=value` is a ConfigMap, `name!` a bad one, `Kind name` a document of that kind; each
/// begins on a line of its own, two lines after the one before. A word with `·` for its spaces is itself.
fn text(words: &str) -> String {
    let one = |word: &str| {
        let kind = |kind: &str, name: &str, rest: &str| {
            format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}, namespace: n}}{rest}}}")
        };
        if word.contains('\u{b7}') {
            return word.replace('\u{b7}', " ");
        }
        match (word.split_once('='), word.strip_suffix('!'), word.split_once(':')) {
            (Some((name, value)), _, _) => kind("ConfigMap", name, &format!(", data: {{key: '{value}'}}")),
            (_, Some(name), _) => kind("ConfigMap", name, ", data: 7"),
            (_, _, Some((of, name))) => kind(of, name, ""),
            (None, None, None) => word.to_owned(),
        }
    };
    words.split_whitespace().map(one).collect::<Vec<_>>().join("\n---\n")
}

fn scan_of(files: &[(&str, &str)]) -> Scan {
    let texts: Vec<(&str, String)> = files.iter().map(|(path, words)| (*path, text(words))).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (*path, text.as_str())).collect();
    scan(&texts)
}

/// Loads real files one after the other.
#[derive(Default)]
struct Real {
    state: FilesState,
    last: Option<Loaded>,
}

impl Real {
    fn loaded(files: &[(&str, &str)]) -> Self {
        let mut real = Self::default();
        real.due(files);
        real
    }

    fn load(&mut self, files: &[(&str, &str)], removals: Removals) -> &Loaded {
        let options = Options { removals, is_partial_start: false, unknown_fields: UnknownFields::Refuse };
        let loaded = load(&self.state, &scan_of(files), options, UNIX_EPOCH, |path, content| {
            codec().decode_file(path, &content.bytes, &Limits::default())
        });
        self.state = loaded.state.clone();
        self.last.insert(loaded)
    }

    fn due(&mut self, files: &[(&str, &str)]) -> &Loaded {
        self.load(files, Removals::Due)
    }

    fn last(&self) -> &FileLoad {
        &self.last.as_ref().unwrap().load
    }

    /// `group/name=value`, in order.
    fn served(&self) -> Vec<String> {
        let shown = |document: &xds_control::model::document::GroupedDocument| {
            let source = document.document.source.json();
            let value = source.pointer("/data/key").and_then(|value| value.as_str());
            format!("{}/{}={}", document.group, document.document.key.name, value.unwrap_or_default())
        };
        self.last().documents.values().map(shown).collect()
    }

    /// `path:line code`, in order.
    fn found(&self) -> Vec<String> {
        let found = self.last().files.values().flat_map(|file| &file.diagnostics);
        found.map(|one| format!("{}:{} {}", one.place.file, one.place.line, one.code)).collect()
    }

    fn restarted(&self) -> Self {
        let copies = persist::changed_copies(&FilesState::default(), &self.state);
        let copies =
            copies.into_iter().filter_map(|(path, copy)| Some((path.to_string(), copy?.into()))).collect();
        let (state, damaged) = persist::restore(&copies, UNIX_EPOCH);
        assert!(damaged.is_empty());
        Self { state, last: None }
    }
}

#[test]
fn a_bad_document_keeps_its_last_good_version_and_the_rest_goes_on() {
    let mut real = Real::loaded(&[("a.yaml", "x=1 y=1")]);
    assert_eq!((real.served(), real.found()), (vec!["default/x=1".into(), "default/y=1".into()], vec![]));
    real.due(&[("a.yaml", "x! y=2 new! z=1")]);
    assert_eq!(real.served(), ["default/x=1", "default/y=2", "default/z=1"]);
    assert_eq!(real.found(), ["a.yaml:1 wrong-type", "a.yaml:5 wrong-type"]);
    let objects = &real.last().files["a.yaml"].objects;
    let objects: Vec<_> = objects.iter().map(|o| (o.kind(), o.name(), o.line, o.is_last_good)).collect();
    let map = "ConfigMap";
    assert_eq!(
        objects,
        [(map, "n/x".into(), 1, true), (map, "n/y".into(), 3, false), (map, "n/z".into(), 7, false)]
    );
    // A syntax error keeps all of its file.
    real.due(&[("a.yaml", "{")]);
    assert_eq!(real.served(), ["default/x=1", "default/y=2", "default/z=1"]);
    real.due(&[("a.yaml", "y=3")]);
    assert_eq!((real.served(), real.found()), (vec!["default/y=3".into()], vec![]));
}

#[test]
fn a_document_has_one_owner_in_all_directories() {
    let mut real = Real::loaded(&[("d/a.yaml", "x=1")]);
    real.due(&[("d/a.yaml", "x=1"), ("e/b.yaml", "x=2 y=2")]);
    assert_eq!(real.served(), ["default/x=1", "default/y=2"]);
    assert_eq!(real.found(), ["d/a.yaml:1 duplicate-document", "e/b.yaml:1 duplicate-document"]);
    let diagnostic = &real.last().files["e/b.yaml"].diagnostics[0];
    assert!(
        diagnostic.message.contains("ConfigMap n/x") && diagnostic.message.contains("d/a.yaml"),
        "{diagnostic}"
    );
    assert_eq!(diagnostic.related[0].to_string(), "d/a.yaml:1:1");
    // The owner goes, the other one takes over.
    real.due(&[("e/b.yaml", "x=2 y=2")]);
    assert_eq!((real.served(), real.found()), (vec!["default/x=2".into(), "default/y=2".into()], vec![]));
    let fresh = Real::loaded(&[("d/a.yaml", "x=1"), ("e/b.yaml", "x=2")]);
    assert_eq!(fresh.served(), Vec::<String>::new(), "of two new ones none is more right");
    assert!(!fresh.last().is_complete);
}

#[test]
fn a_document_that_a_file_has_twice_is_refused_and_keeps_its_last_good_version() {
    let mut real = Real::loaded(&[("a.yaml", "x=1")]);
    real.due(&[("a.yaml", "x=2 x=3 y=1")]);
    assert_eq!(real.served(), ["default/x=1", "default/y=1"]);
    assert_eq!(real.found(), ["a.yaml:1 duplicate-document", "a.yaml:3 duplicate-document"]);
    assert_eq!(real.last().files["a.yaml"].diagnostics[0].related[0].line, 3);
}

#[test]
fn documents_are_of_the_group_of_their_directory_and_move_with_it() {
    let node_group =
        "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: g}\nspec: {selector: {all: true}}\n";
    let with_group = |files: &[(&str, &str)]| {
        let mut scan = scan_of(files);
        scan.files.insert("d/group.yaml".into(), Ok(FileContent::new(node_group.as_bytes())));
        scan
    };
    let options = Options {
        removals: Removals::Postponed,
        is_partial_start: false,
        unknown_fields: UnknownFields::Refuse,
    };
    let step = |state: &FilesState, scan: &Scan, removals| {
        load(state, scan, Options { removals, ..options }, UNIX_EPOCH, |path, content| {
            codec().decode_file(path, &content.bytes, &Limits::default())
        })
    };
    let groups = |loaded: &Loaded| -> Vec<String> {
        loaded.load.documents.values().map(|document| document.group.to_string()).collect()
    };
    let first = step(&FilesState::default(), &with_group(&[("d/a.yaml", "x=1")]), Removals::Due);
    assert_eq!(groups(&first), ["g"]);
    // A document that moves is never missing, also while removals are postponed.
    let moved = step(&first.state, &with_group(&[("b.yaml", "x=1")]), Removals::Postponed);
    assert_eq!((moved.load.documents.len(), moved.postpones_removals), (1, true));
    let settled = step(&moved.state, &with_group(&[("b.yaml", "x=1")]), Removals::Due);
    assert_eq!((groups(&settled), settled.postpones_removals), (vec!["default".to_owned()], false));
    // A node group that goes is held as long as everything else.
    let gone = step(&first.state, &scan_of(&[("d/a.yaml", "x=1")]), Removals::Postponed);
    assert_eq!((groups(&gone), gone.postpones_removals), (vec!["g".to_owned()], true));
    let gone = step(&gone.state, &scan_of(&[("d/a.yaml", "x=1")]), Removals::Due);
    assert_eq!((groups(&gone), gone.postpones_removals), (vec!["default".to_owned()], false));
}

#[test]
fn a_document_goes_once_that_is_due() {
    let mut real = Real::loaded(&[("a.yaml", "x=1 y=1")]);
    assert!(real.load(&[("a.yaml", "x=1")], Removals::Postponed).postpones_removals);
    assert_eq!(real.served(), ["default/x=1", "default/y=1"]);
    assert!(!real.due(&[("a.yaml", "x=1")]).postpones_removals);
    assert_eq!(real.served(), ["default/x=1"]);
}

#[test]
fn other_kinds_are_a_note_and_unreadable_documents_hide_nothing() {
    let mut real = Real::loaded(&[("a.yaml", "x=1")]);
    real.due(&[("a.yaml", "Pod:p x=2")]);
    assert_eq!(
        (real.served(), real.found()),
        (vec!["default/x=2".into()], vec!["a.yaml:1 unsupported-kind".into()])
    );
    assert_eq!(real.last().files["a.yaml"].diagnostics[0].severity, Severity::Info);
    assert!(real.last().is_complete);
    real.due(&[("a.yaml", "{apiVersion:1}"), ("b.yaml", "{apiVersion: v1, kind: ConfigMap}")]);
    assert_eq!(real.served(), ["default/x=2"], "it may be the one that cannot be read");
}

#[test]
fn last_good_documents_survive_a_restart() {
    let mut real = Real::loaded(&[("a.yaml", "x=1 y=1"), ("b.yaml", "z=1")]);
    real.due(&[("a.yaml", "x! y=2"), ("b.yaml", "z=1")]);
    let mut after = real.restarted();
    after.due(&[("a.yaml", "{"), ("b.yaml", "{"), ("c.yaml", "z=9")]);
    assert_eq!(after.served(), ["default/x=1", "default/y=2", "default/z=1"]);
    let status = &after.last().files["a.yaml"];
    assert!(status.is_last_good && after.last().is_complete);
    let y = after.last().documents.values().find(|document| &*document.document.key.name == "y").unwrap();
    assert_eq!(y.document.place.to_string(), "a.yaml:3:1", "where it stood is known");
    assert_eq!(y.document, real.last().documents[&y.document.key].document);
    let mut same = real.restarted();
    same.due(&[("a.yaml", "x! y=2"), ("b.yaml", "z=1")]);
    assert_eq!(same.last().documents, real.last().documents);
}

#[test]
fn only_so_much_is_said_of_one_file() {
    let words: Vec<String> = (0..300).map(|n| format!("x{n}!")).collect();
    let real = Real::loaded(&[("a.yaml", &words.join(" "))]);
    assert_eq!(real.found().len(), 300, "one error of each bad document");
    let words: Vec<String> = (0..300).map(|n| format!("Pod{n}:p")).collect();
    let real = Real::loaded(&[("a.yaml", &words.join(" "))]);
    assert_eq!(real.found().len(), 101);
    assert!(real.last().files["a.yaml"].diagnostics.iter().any(|one| one.message == "and 200 more"));
    let words: Vec<String> = (0..300).map(|n| format!("Pod:p{n}")).collect();
    let real = Real::loaded(&[("a.yaml", &words.join(" "))]);
    assert_eq!(real.found().len(), 1);
    let message = "the kind \"Pod\" is not served; 300 documents are left out";
    assert_eq!(real.last().files["a.yaml"].diagnostics[0].message, message);
}

/// The targets of every policy that is served, and whether it trusts anybody.
fn policies(loaded: &Loaded) -> Vec<(Vec<String>, bool)> {
    let policies = loaded.load.documents.values().filter_map(|document| {
        let Spec::BackendTlsPolicy(policy) = &document.document.spec else { return None };
        Some(&**policy)
    });
    let told = |policy: &BackendTlsPolicy| {
        let targets = policy.targets.iter().map(|(target, section)| {
            format!("{}{}", target.name, section.as_ref().map(|port| format!(":{port}")).unwrap_or_default())
        });
        (targets.collect(), policy.uses_system_certificates || !policy.ca_certificates.is_empty())
    };
    policies.map(told).collect()
}

#[test]
fn a_tls_policy_that_never_was_good_makes_its_targets_fail_and_is_no_last_good_version() {
    let policy = |targets: &str, rest: &str| {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {{name: p, namespace: n}}, \
             spec: {{targetRefs: [{targets}], {rest}}}}}"
        )
        .replace(' ', "\u{b7}")
    };
    let target = |name: &str| format!("{{group: '', kind: Service, name: {name}}}");
    let good = "validation: {wellKnownCACertificates: System, hostname: a.com}";
    let fails = |targets: &[&str]| vec![(targets.iter().map(|name| (*name).to_owned()).collect(), false)];
    let trusts = |targets: &[&str]| vec![(targets.iter().map(|name| (*name).to_owned()).collect(), true)];
    let sectioned = "{group: '', kind: Service, name: b, sectionName: web}";
    let both = format!("{}, {sectioned}, {{name: c}}", target("a"));
    let old = policy("", "targetRef: {group: '', kind: Service, name: a}, tls: {}")
        .replace("io/v1,", "io/v1alpha2,");
    let table: [(&[&str], _); 7] = [
        (&[&policy(&both, "validation: 7")], fails(&["a", "b:web"])),
        (&[&policy(&both, good)], fails(&["a", "b:web"])),
        (&[&policy(&target("a"), "validation: {hostname: a.com}")], fails(&["a"])),
        (&[&old], fails(&["a"])),
        (&[&policy("7", good)], vec![]),
        (&[&policy(&target("a"), good), &policy(&target("b"), good)], fails(&["a", "b"])),
        (&[&policy(&target("a"), good)], trusts(&["a"])),
    ];
    for (documents, expected) in table {
        let mut real = Real::loaded(&[("a.yaml", "x=1")]);
        let text = documents.join(" ");
        assert_eq!(policies(real.due(&[("a.yaml", &format!("x=1 {text}"))])), expected, "{text}");
        // A document that cannot be read may be hidden in a broken text.
        assert_eq!(policies(real.due(&[("a.yaml", "{")])), expected, "{text}");
        let mut restarted = real.restarted();
        let after = restarted.due(&[("a.yaml", &format!("x=1 {text}"))]);
        assert_eq!((policies(after), after.load.is_complete), (expected, true), "{text}");
        assert_eq!(policies(real.due(&[("a.yaml", "x=1")])), vec![], "{text}");
    }
    let (a, b, bad) = (policy(&target("a"), good), policy(&target("b"), good), policy(&target("c"), ""));
    let mut real = Real::loaded(&[("a.yaml", "x=1")]);
    let two: [(&str, &str); 3] = [("a.yaml", &a), ("b.yaml", &b), ("c.yaml", "x=1")];
    assert_eq!(policies(real.due(&two)), fails(&["a", "b"]), "of two files none is more right");
    let mut real = Real::loaded(&[("a.yaml", "x=1")]);
    assert_eq!(policies(real.due(&[("a.yaml", &format!("x=1 {bad}"))])), fails(&["c"]));
    assert_eq!(policies(real.due(&[("a.yaml", &format!("x=1 {a}"))])), trusts(&["a"]));
    assert_eq!(
        policies(real.due(&[("a.yaml", &format!("x=1 {bad}"))])),
        trusts(&["a"]),
        "the last good version"
    );
}
