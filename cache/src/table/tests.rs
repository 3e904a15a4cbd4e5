//! Tests of one table, and of the differences between two.

use super::*;
use crate::resource::ResourceDraft;
use crate::resource_type::ResourceType;

fn table(content: &[(&str, &'static str)]) -> TypeTable {
    TypeTable::new(resources(content))
}

fn resources(content: &[(&str, &'static str)]) -> Vec<Arc<Resource>> {
    content
        .iter()
        .map(|(name, value)| Arc::new(Resource::plain(ResourceType::Cluster, name, value.as_bytes())))
        .collect()
}

fn names(changes: &Changes) -> (Vec<&str>, Vec<&str>) {
    (changes.changed.iter().map(|r| &**r.name()).collect(), changes.removed.iter().map(|n| &**n).collect())
}

#[test]
fn the_difference_is_what_was_added_changed_and_removed() {
    let older = table(&[("a", "1"), ("b", "1"), ("d", "1"), ("e", "1")]);
    let newer = table(&[("a", "1"), ("b", "2"), ("c", "1"), ("e", "1")]);
    assert_eq!(names(&newer.changes_since(&older)), (vec!["b", "c"], vec!["d"]));
    assert_eq!(names(&older.changes_since(&newer)), (vec!["b", "d"], vec!["c"]));
    assert!(newer.changes_since(&table(&[("a", "1"), ("b", "2"), ("c", "1"), ("e", "1")])).is_empty());
}

#[test]
fn the_remembered_difference_equals_the_computed_one() {
    let older = Arc::new(table(&[("a", "1"), ("b", "1")]));
    let content = resources(&[("b", "2"), ("c", "1")]);
    let edits = content.iter().map(|one| (Arc::clone(one.name()), Some(Arc::clone(one))));
    let edits: Vec<_> = edits.chain([("a".into(), None)]).collect();
    let successor = TypeTable::edited(Some(&older), &edits).expect("not empty");
    let flat = TypeTable::new(content);
    assert_eq!(successor.version(), flat.version());
    assert!(successor.remembered_changes_since(&older).is_some());
    assert_eq!(successor.changes_since(&older), flat.changes_since(&older));
}

fn listener(name: &str, content: &'static str, host_pattern: bool) -> Arc<Resource> {
    let draft = Resource::plain(ResourceType::Listener, name, content).to_draft();
    let in_wildcard = !name.starts_with('*');
    Arc::new(Resource::new(ResourceDraft { host_pattern, in_wildcard, ..draft }))
}

#[test]
fn a_host_is_served_by_the_pattern_that_matches_best() {
    let patterns = ["*", "*.b.io", "*.io", "A.b.io", "a.b.io:80", "raw.io", "x.b.io"];
    let listeners = patterns.map(|name| listener(name, "1", name != "raw.io"));
    let table = TypeTable::new(listeners.to_vec());
    let urn = |rest: &str| format!("xdstp://any/envoy.config.listener.v3.Listener/{rest}");
    let rows = [
        ("a.b.io:80", Some("a.b.io:80")),
        ("a.b.io:81", Some("A.b.io")),
        ("a.b.io", Some("A.b.io")),
        ("A.b.io", Some("A.b.io")),
        ("x.B.io:80", Some("x.b.io")),
        ("y.b.io", Some("*.b.io")),
        ("z.y.b.io:80", Some("*.b.io")),
        ("b.io", Some("*.io")),
        ("io", Some("*")),
        ("[::1]:80", Some("*")),
        ("raw.io", Some("raw.io")),
        ("raw.io:80", Some("*.io")),
        ("*.io", Some("*.io")),
        ("*.b.org", None),
        ("a/b", None),
        (&urn("y.b.io"), Some("*.b.io")),
        (&urn("a.b.io:80?k=v"), Some("a.b.io:80")),
        (&urn("raw.io"), Some("raw.io")),
        (&urn("%5B::1%5D"), Some("*")),
        (&urn("*"), None),
        ("xdstp://any/envoy.config.cluster.v3.Cluster/y.b.io", None),
    ];
    let may_derive =
        |pattern: &str, asked: &str| table.may_derive(&[Name::from(pattern)].iter().collect(), asked);
    for (asked, expected) in rows {
        let found = table.look_up(asked);
        let source = found.map(|found| match found {
            Found::AsItIs(resource) | Found::Template(resource) => &**resource.name(),
        });
        assert_eq!(source, expected, "{asked}");
        let is_itself = expected == Some(asked);
        assert_eq!(matches!(found, Some(Found::AsItIs(_))), is_itself, "{asked}");
        if let Some(expected) = expected.filter(|_| !is_itself) {
            assert!(may_derive(expected, asked), "{asked} by {expected}");
            assert!(expected == "*" || !may_derive("*", asked), "{asked} by *");
        }
    }
    assert!(may_derive("*.y.b.io", "z.y.b.io:80"), "it would match better than what there is");
    assert!(!may_derive("*.y.b.io", "y.b.io"), "it would not match");
}

#[test]
fn what_is_made_of_a_pattern_has_the_name_that_was_asked_for() {
    let table = |content| TypeTable::new(vec![listener("*.io", content, true)]);
    let (first, second) = (table("\x0a\x04*.io\x1a\x01x"), table("\x0a\x04*.io\x1a\x01y"));
    let derived = first.resolve("a.io:80").expect("derived");
    assert_eq!((&**derived.name(), &**derived.value()), ("a.io:80", &b"\x0a\x07a.io:80\x1a\x01x"[..]));
    assert!(!derived.in_wildcard() && !derived.is_host_pattern());
    assert_eq!(first.resolve("a.io:80").as_ref(), Some(&derived), "every time the same");
    assert_ne!(second.resolve("a.io:80").as_ref(), Some(&derived), "it follows the template");
    assert_ne!(first.resolve("b.io").map(|other| other.version()), Some(derived.version()));
}

#[test]
fn without_patterns_and_for_other_types_names_are_what_they_are() {
    let table = |resource| TypeTable::new(vec![resource]);
    let raw = table(listener("a.io", "1", false));
    let urn = "xdstp://any/envoy.config.listener.v3.Listener/a.io";
    assert!(raw.resolve("a.io:80").is_none() && raw.resolve(urn).is_none() && !raw.has_host_patterns());
    let draft = Resource::plain(ResourceType::Cluster, "*", "1").to_draft();
    let cluster = table(Arc::new(Resource::new(ResourceDraft { host_pattern: true, ..draft })));
    assert!(cluster.resolve("a.io").is_none() && !cluster.has_host_patterns());
}

#[test]
fn names_are_found_exactly() {
    let table = table(&[("a", "1"), ("ab", "1"), ("b", "1")]);
    assert_eq!(table.find("ab").map(|r| &**r.name()), Some("ab"));
    assert!(table.find("aa").is_none() && table.find("").is_none() && table.find("AB").is_none());
}

#[test]
fn a_table_keeps_nothing_of_what_is_replaced_or_gone() {
    let content = |content: &'static str| -> Vec<_> {
        let names: Vec<String> = (0..1_000).map(|name| format!("{name:04}")).collect();
        resources(&names.iter().map(|name| (&**name, content)).collect::<Vec<_>>())
    };
    let first = content("1");
    let weak: Vec<_> = first.iter().map(Arc::downgrade).collect();
    let mut index = Index::default();
    first.into_iter().for_each(|resource| index.insert(resource));
    for (at, new) in content("2").into_iter().enumerate() {
        if at % 3 == 0 { index.remove(new.name()) } else { index.insert(new) }
    }
    assert_eq!(weak.iter().filter(|one| one.strong_count() > 0).count(), 0);
}
