//! Common beginnings of alternatives are taken out, as RE2 does it: `abc|abd` becomes `ab[cd]`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function concerns a few of the many kinds of nodes"
)]

use super::class::Class;
use super::node::{Node, Times};

/// Rewrites a list of alternatives. May return fewer.
pub(super) fn factor(parts: Vec<Node>) -> Vec<Node> {
    let parts = by_text(parts);
    let parts = by_first(parts);
    merged(parts)
}

/// Takes out texts at the beginning.
fn by_text(parts: Vec<Node>) -> Vec<Node> {
    let mut factored = Vec::new();
    let mut run: Vec<Node> = Vec::new();
    let mut common: (Vec<u32>, bool) = (Vec::new(), false);
    for part in parts {
        let (text, folds_case) = leading_text(&part);
        let n_same = common.0.iter().zip(text).take_while(|(a, b)| a == b).count();
        if folds_case == common.1 && n_same > 0 {
            common.0.truncate(n_same);
        } else {
            let next = (text.to_vec(), folds_case);
            let (prefix, folds_case) = std::mem::replace(&mut common, next);
            let n = prefix.len();
            let prefix = Node::Text { text: prefix, folds_case };
            end_run(&mut run, prefix, |part| without_text(part, n), &mut factored);
        }
        run.push(part);
    }
    let (prefix, folds_case) = common;
    let n = prefix.len();
    end_run(&mut run, Node::Text { text: prefix, folds_case }, |part| without_text(part, n), &mut factored);
    factored
}

/// Takes out simple parts at the beginning, such as classes and anchors.
fn by_first(parts: Vec<Node>) -> Vec<Node> {
    let mut factored = Vec::new();
    let mut run: Vec<Node> = Vec::new();
    let mut common: Option<Node> = None;
    for part in parts {
        let first = leading_part(&part).cloned();
        let is_same = common.as_ref().is_some_and(is_simple) && common == first;
        if !is_same {
            let prefix = std::mem::replace(&mut common, first).unwrap_or(Node::Empty);
            end_run(&mut run, prefix, without_first, &mut factored);
        }
        run.push(part);
    }
    end_run(&mut run, common.unwrap_or(Node::Empty), without_first, &mut factored);
    factored
}

/// Merges single characters and classes that follow each other.
fn merged(parts: Vec<Node>) -> Vec<Node> {
    let mut merged: Vec<Node> = Vec::new();
    for part in parts {
        match (merged.last().and_then(class_of), class_of(&part)) {
            (Some(mut class), Some(more)) => {
                class.union(more);
                merged.pop();
                merged.push(Node::Class(class));
            }
            _ => merged.push(part),
        }
    }
    merged
}

/// Appends alternatives with the same beginning as one, if there are several.
fn end_run(run: &mut Vec<Node>, prefix: Node, rest: impl Fn(Node) -> Node, factored: &mut Vec<Node>) {
    if run.len() < 2 {
        factored.append(run);
        return;
    }
    let rests: Vec<Node> = run.drain(..).map(rest).collect();
    factored.push(Node::Concat(vec![prefix, Node::alternate(factor(rests))]));
}

fn leading_text(part: &Node) -> (&[u32], bool) {
    match part {
        Node::Concat(parts) => parts.first().map_or((&[], false), leading_text),
        Node::Text { text, folds_case } => (text, *folds_case),
        Node::Nothing
        | Node::Empty
        | Node::Class(_)
        | Node::Any
        | Node::Byte
        | Node::At(_)
        | Node::Alternate(_)
        | Node::Repeat { .. }
        | Node::Capture(_) => (&[], false),
    }
}

fn without_text(part: Node, n: usize) -> Node {
    match part {
        Node::Text { text, .. } if n >= text.len() => Node::Empty,
        Node::Text { mut text, folds_case } => {
            text.drain(..n);
            Node::Text { text, folds_case }
        }
        Node::Concat(mut parts) => {
            if let Some(first) = parts.first_mut() {
                *first = without_text(std::mem::replace(first, Node::Empty), n);
            }
            if parts.first() == Some(&Node::Empty) {
                parts.remove(0);
            }
            Node::concat(parts)
        }
        other => other,
    }
}

fn leading_part(part: &Node) -> Option<&Node> {
    match part {
        Node::Concat(parts) => parts.first().filter(|first| **first != Node::Empty),
        Node::Empty => None,
        other => Some(other),
    }
}

fn without_first(part: Node) -> Node {
    match part {
        Node::Concat(mut parts) => {
            parts.remove(0);
            Node::concat(parts)
        }
        _ => Node::Empty,
    }
}

/// Returns `true` for a part that may be taken out: an anchor, a class, or a fixed number of one character.
fn is_simple(part: &Node) -> bool {
    match part {
        Node::At(_) | Node::Class(_) | Node::Any | Node::Byte => true,
        Node::Repeat { times: Times::Counted { least, most }, of, .. } => {
            *most == Some(*least) && of.is_one_character()
        }
        Node::Nothing
        | Node::Empty
        | Node::Text { .. }
        | Node::Concat(_)
        | Node::Alternate(_)
        | Node::Repeat { .. }
        | Node::Capture(_) => false,
    }
}

fn class_of(part: &Node) -> Option<Class> {
    match part {
        Node::Class(class) => Some(*class),
        Node::Text { text, folds_case } => {
            let [rune] = text[..] else { return None };
            let mut class = Class::default();
            if *folds_case {
                class.add_folded(rune, rune);
            } else {
                class.add(rune, rune);
            }
            Some(class)
        }
        Node::Nothing
        | Node::Empty
        | Node::Any
        | Node::Byte
        | Node::At(_)
        | Node::Concat(_)
        | Node::Alternate(_)
        | Node::Repeat { .. }
        | Node::Capture(_) => None,
    }
}
