//! Finds resources and their fields again in the documents of their file.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::document::{Node, Position, Tree, TreeValue};
use crate::finding::json_name;
use crate::path;

/// Moves each diagnostic at the beginning of a resource to the field of its path. `documents` are those of the file or body.
/// An object of the native form begins at its key.
///
/// A diagnostic stays where it is if it has no path, or if the documents do not have the whole path at this place. All diagnostics
/// together take one pass over the documents.
pub fn move_to_fields<'d>(documents: &[Tree], diagnostics: impl IntoIterator<Item = &'d mut Diagnostic>) {
    let mut wanted: HashMap<Position, Vec<&mut Diagnostic>> = HashMap::new();
    for diagnostic in diagnostics {
        let position = Position { line: diagnostic.place.line, column: diagnostic.place.column };
        if position.line > 0 && !diagnostic.path.is_empty() {
            wanted.entry(position).or_default().push(diagnostic);
        }
    }
    each_object(documents, |tree| {
        move_at(&mut wanted, tree.position(), tree);
        // The first key of an object stands where the object begins, so that a path may not be the object's.
        for entry in tree.entries() {
            move_at(&mut wanted, entry.position, entry.value);
        }
        !wanted.is_empty()
    });
}

/// Moves the diagnostics at a position whose path `tree` has.
fn move_at(wanted: &mut HashMap<Position, Vec<&mut Diagnostic>>, position: Position, tree: Node<'_>) {
    let Some(diagnostics) = wanted.get_mut(&position) else { return };
    diagnostics.retain_mut(|diagnostic| {
        let Some(found) = follow(tree, &diagnostic.path) else { return true };
        let Position { line, column } = found.position();
        (diagnostic.place.line, diagnostic.place.column) = (line, column);
        false
    });
    if diagnostics.is_empty() {
        wanted.remove(&position);
    }
}

/// The object that begins at this position. An [`Origin`](xds_cache::Origin) identifies a resource in this way.
pub(crate) fn resource_at(documents: &[Tree], line: u32, column: u32) -> Option<Node<'_>> {
    let wanted = Position { line, column };
    let mut found = None;
    if line > 0 {
        each_object(documents, |tree| {
            found = (tree.position() == wanted).then_some(tree);
            found.is_none()
        });
    }
    found
}

/// Visits all objects, outer ones before inner ones, as long as `goes_on` returns `true`.
fn each_object<'t>(documents: &'t [Tree], mut goes_on: impl FnMut(Node<'t>) -> bool) {
    let mut left: Vec<Node<'t>> = documents.iter().rev().map(Tree::root).collect();
    while let Some(tree) = left.pop() {
        match tree.value() {
            TreeValue::Object(entries) => {
                if !goes_on(tree) {
                    return;
                }
                extend_reversed(&mut left, entries.map(|entry| entry.value));
            }
            TreeValue::List(items) => extend_reversed(&mut left, items),
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {}
        }
    }
}

/// The value at a path in the form of [`path::format_steps`], if the whole path exists.
fn follow<'t>(tree: Node<'t>, path: &str) -> Option<Node<'t>> {
    let (mut found, mut rest) = (tree, path);
    while !rest.is_empty() {
        if rest.starts_with("[\"") {
            let value = |key: &str| rest.strip_prefix(&*format!("[{:?}]", path::cut(key)));
            (found, rest) = found.entries().find_map(|entry| Some((entry.value, value(entry.key)?)))?;
        } else if let Some(item) = rest.strip_prefix('[') {
            let (index, after) = item.split_once(']')?;
            (found, rest) = (found.as_list()?.nth(index.parse().ok()?)?, after);
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = field.split_at(field.find(['.', '[']).unwrap_or(field.len()));
            let entry = found.entry(name).or_else(|| found.entry(&json_name(name)))?;
            (found, rest) = (entry.value, after);
        }
    }
    Some(found)
}

/// Pushes values so that the first one is popped first.
fn extend_reversed<'t>(left: &mut Vec<Node<'t>>, more: impl Iterator<Item = Node<'t>>) {
    let start = left.len();
    left.extend(more);
    if let Some(added) = left.get_mut(start..) {
        added.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Place, Severity};
    use crate::document::{self, Limits, Syntax};

    const TEXT: &str = r#"
resources:
- name: a
  routes: [{}, {route: {cluster: x}}]
- name: b
  perFilterConfig:
    "a\"].b": {cluster: y}
"#;

    /// Where a diagnostic of that place and path comes to stand.
    fn moved(line: u32, column: u32, path: &str) -> (u32, u32) {
        let documents = document::parse(TEXT.as_bytes(), Syntax::Yaml, &Limits::default()).unwrap();
        let mut diagnostic = Diagnostic {
            severity: Severity::Warning,
            code: "test",
            place: Place { file: "a.yaml".into(), line, column },
            path: path.to_owned(),
            message: String::new(),
            suggestion: None,
            related: vec![],
            is_sensitive: false,
        };
        move_to_fields(&documents, [&mut diagnostic]);
        (diagnostic.place.line, diagnostic.place.column)
    }

    #[test]
    fn a_diagnostic_moves_to_the_field_of_its_own_resource() {
        assert_eq!(moved(3, 3, "name"), (3, 9));
        assert_eq!(moved(5, 3, "name"), (5, 9));
        assert_eq!(moved(3, 3, "routes[1].route.cluster"), (4, 34));
        // By its key, also where that is the first of its object.
        assert_eq!(moved(6, 3, r#"["a\"].b"].cluster"#), (7, 25));
        assert_eq!(moved(2, 1, "[1].name"), (5, 9));
        assert_eq!(moved(5, 3, r#"per_filter_config["a\"].b"].cluster"#), (7, 25));
    }

    #[test]
    fn a_diagnostic_stays_if_the_text_does_not_have_its_field() {
        for path in
            ["", "nothing", "routes[2]", "routes[0].route", "name.x", "routes[", "routes[\"a\"]", "[", "."]
        {
            assert_eq!(moved(3, 3, path), (3, 3), "{path}");
        }
        assert_eq!(moved(3, 4, "name"), (3, 4));
        assert_eq!(moved(0, 0, "name"), (0, 0));
    }
}
