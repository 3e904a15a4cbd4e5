//! YAML 1.2 as trees, from the parser's events.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::{Entry, Limits, Position, SyntaxProblem, Tree, TreeValue, check_duplicates, scalar, to_u32};

/// Reads all documents of a text.
pub(super) fn parse(text: &str, limits: &Limits) -> Result<Vec<Tree>, Vec<SyntaxProblem>> {
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.max_depth,
        block_nesting_limit: limits.max_depth,
    };
    options.set_emit_comments(false);
    let mut builder = Builder::new(limits);
    for next in Parser::new_from_str_with_options(text, options) {
        let outcome = match next {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => Err(syntax_problem(&error)),
        };
        if let Err(problem) = outcome {
            builder.problems.push(problem);
            return Err(builder.problems);
        }
    }
    if builder.problems.is_empty() { Ok(builder.documents) } else { Err(builder.problems) }
}

fn syntax_problem(error: &granit_parser::ScanError) -> SyntaxProblem {
    let info = error.info();
    let code = if info.contains("nesting") || info.contains("recursion") { "too-deep" } else { "syntax" };
    SyntaxProblem::new(code, position(error.marker()), info)
}

fn position(marker: &Marker) -> Position {
    Position { line: to_u32(marker.line()), column: to_u32(marker.col() + 1) }
}

/// A list or object that is not closed yet.
struct Frame {
    position: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Tree>),
    Object {
        entries: Vec<Entry>,
        /// The key that waits for its value.
        key: Option<Key>,
        /// What `<<` names, in order.
        merged: Vec<Tree>,
    },
}

struct Key {
    text: String,
    position: Position,
    /// Whether it is `<<` without quotes.
    is_merge: bool,
}

/// An anchored value and what a copy of it costs.
struct Anchored {
    tree: Tree,
    cost: usize,
    depth: usize,
}

struct Builder<'a> {
    limits: &'a Limits,
    documents: Vec<Tree>,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    /// What may still be copied.
    budget: usize,
    problems: Vec<SyntaxProblem>,
}

impl<'a> Builder<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            documents: Vec::new(),
            frames: Vec::new(),
            anchors: HashMap::new(),
            budget: limits.max_alias_cost,
            problems: Vec::new(),
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxProblem> {
        let position = position(&span.start);
        if let Event::Scalar(text, style, anchor, tag) = event {
            let value = resolve(&text, style, tag.as_deref(), position)?;
            if self.take_key(&text, style, position) {
                return Ok(());
            }
            return self.take_value(Tree { position, value }, anchor);
        }
        if let Event::Alias(anchor) = event {
            return self.take_alias(anchor, position);
        }
        if let Event::SequenceStart(_, anchor, tag) = event {
            check_collection_tag(tag.as_deref(), position)?;
            return self.open(Frame { position, anchor, content: Content::List(Vec::new()) });
        }
        if let Event::MappingStart(_, anchor, tag) = event {
            check_collection_tag(tag.as_deref(), position)?;
            let content = Content::Object { entries: Vec::new(), key: None, merged: Vec::new() };
            return self.open(Frame { position, anchor, content });
        }
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            return self.close();
        }
        if matches!(event, Event::DocumentEnd) {
            self.anchors.clear();
        }
        Ok(())
    }

    /// Takes a scalar as the key of the innermost object, if one is expected there.
    fn take_key(&mut self, text: &str, style: ScalarStyle, position: Position) -> bool {
        let Some(Frame { content: Content::Object { key: key @ None, .. }, .. }) = self.frames.last_mut()
        else {
            return false;
        };
        let is_merge = text == "<<" && style == ScalarStyle::Plain;
        *key = Some(Key { text: text.to_owned(), position, is_merge });
        true
    }

    fn take_value(&mut self, tree: Tree, anchor: usize) -> Result<(), SyntaxProblem> {
        if anchor != 0 {
            let (cost, depth) = measure(&tree);
            self.spend(cost, tree.position)?;
            self.anchors.insert(anchor, Anchored { tree: tree.clone(), cost, depth });
        }
        match self.frames.last_mut().map(|frame| &mut frame.content) {
            None => self.documents.push(tree),
            Some(Content::List(items)) => items.push(tree),
            Some(Content::Object { entries, key, merged }) => match key.take() {
                None => {
                    let message = "a key must be a scalar";
                    return Err(SyntaxProblem::new("syntax", tree.position, message));
                }
                Some(key) if key.is_merge => merge_into(merged, tree, key.position)?,
                Some(key) => entries.push(Entry { key: key.text, position: key.position, value: tree }),
            },
        }
        Ok(())
    }

    fn take_alias(&mut self, anchor: usize, position: Position) -> Result<(), SyntaxProblem> {
        let Some(Anchored { tree, cost, depth }) = self.anchors.get(&anchor) else {
            return Err(SyntaxProblem::new("syntax", position, "the alias stands inside of what it names"));
        };
        if self.frames.len() + depth > self.limits.max_depth {
            return Err(too_deep(position));
        }
        let (tree, cost) = (tree.clone(), *cost);
        self.spend(cost, position)?;
        self.take_value(tree, 0)
    }

    fn spend(&mut self, cost: usize, position: Position) -> Result<(), SyntaxProblem> {
        let problem = || SyntaxProblem::new("alias-budget", position, "aliases make the document too large");
        self.budget = self.budget.checked_sub(cost).ok_or_else(problem)?;
        Ok(())
    }

    fn open(&mut self, frame: Frame) -> Result<(), SyntaxProblem> {
        if self.frames.len() >= self.limits.max_depth {
            return Err(too_deep(frame.position));
        }
        if let Some(Frame { content: Content::Object { key: None, .. }, .. }) = self.frames.last() {
            return Err(SyntaxProblem::new("syntax", frame.position, "a key must be a scalar"));
        }
        self.frames.push(frame);
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxProblem> {
        let Some(Frame { position, anchor, content }) = self.frames.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => TreeValue::List(items),
            Content::Object { mut entries, merged, .. } => {
                check_duplicates(&entries, &mut self.problems);
                let mut seen: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
                let merged = merged.into_iter().flat_map(into_entries);
                entries.extend(merged.filter(|entry| seen.insert(entry.key.clone())));
                TreeValue::Object(entries)
            }
        };
        self.take_value(Tree { position, value }, anchor)
    }
}

fn too_deep(position: Position) -> SyntaxProblem {
    SyntaxProblem::new("too-deep", position, "lists and objects nest too deep")
}

fn into_entries(tree: Tree) -> Vec<Entry> {
    if let TreeValue::Object(entries) = tree.value { entries } else { Vec::new() }
}

/// Adds what `<<` names: an object, or a list of them of which the first wins.
fn merge_into(merged: &mut Vec<Tree>, tree: Tree, position: Position) -> Result<(), SyntaxProblem> {
    let problem = || SyntaxProblem::new("syntax", position, "`<<` takes an object or a list of objects");
    let trees = match tree.value {
        TreeValue::Object(_) => vec![tree],
        TreeValue::List(items) => items,
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {
            return Err(problem());
        }
    };
    if trees.iter().any(|tree| !matches!(tree.value, TreeValue::Object(_))) {
        return Err(problem());
    }
    merged.extend(trees);
    Ok(())
}

/// What a copy costs (see [`Limits::max_alias_cost`]), and how deep it nests.
fn measure(tree: &Tree) -> (usize, usize) {
    let add = |(cost, depth): (usize, usize), child: (usize, usize)| (cost + child.0, depth.max(child.1));
    match &tree.value {
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) => (1, 0),
        TreeValue::String(text) => (1 + text.len() / 32, 0),
        TreeValue::List(items) => {
            let (cost, depth) = items.iter().map(measure).fold((1, 0), add);
            (cost, depth + 1)
        }
        TreeValue::Object(entries) => {
            let cost_of = |entry: &Entry| add((1 + entry.key.len() / 32, 0), measure(&entry.value));
            let (cost, depth) = entries.iter().map(cost_of).fold((1, 0), add);
            (cost, depth + 1)
        }
    }
}

fn resolve(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    position: Position,
) -> Result<TreeValue, SyntaxProblem> {
    let string = || TreeValue::String(text.to_owned());
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { scalar::resolve(text) } else { string() });
    };
    if tag.core_suffix() == Some("str")
        || (tag.handle().is_empty() || tag.handle() == "!") && tag.suffix().is_empty()
    {
        return Ok(string());
    }
    let value = scalar::resolve(text);
    let fits = match (tag.core_suffix(), &value) {
        (Some("null"), TreeValue::Null) | (Some("bool"), TreeValue::Bool(_)) => true,
        (Some("int" | "float"), TreeValue::Number(_)) => true,
        (_, _) => false,
    };
    if fits {
        Ok(value)
    } else {
        Err(SyntaxProblem::new("syntax", position, "the tag is not supported here"))
    }
}

fn check_collection_tag(tag: Option<&Tag>, position: Position) -> Result<(), SyntaxProblem> {
    match tag.map(Tag::core_suffix) {
        None | Some(Some("map" | "seq")) => Ok(()),
        Some(_) => Err(SyntaxProblem::new("syntax", position, "the tag is not supported here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> serde_json::Value {
        parse(text, &Limits::default()).unwrap().iter().map(Tree::to_json).collect()
    }

    fn fail(text: &str) -> Vec<(&'static str, u32, u32)> {
        let problems = parse(text, &Limits::default()).unwrap_err();
        problems.iter().map(|p| (p.code, p.position.line, p.position.column)).collect()
    }

    #[test]
    fn documents_aliases_and_merge_keys() {
        let text =
            "a: &x {p: 1, q: 2}\nb: *x\nc:\n  <<: *x\n  q: 3\n---\n- yes\n- 'true'\n- true\n- ~\n- !!str 5\n";
        let expected = serde_json::json!([
            {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 2}, "c": {"q": 3, "p": 1}},
            ["yes", "true", true, null, "5"]
        ]);
        assert_eq!(read(text), expected);
    }

    #[test]
    fn keys_and_values_know_their_places() {
        let trees = parse("# c\r\na:\r\n  - bü: [x, 7]\r\n", &Limits::default()).unwrap();
        let item = &trees[0].get("a").unwrap().as_list().unwrap()[0];
        let entry = item.entry("bü").unwrap();
        assert_eq!(entry.position, Position { line: 3, column: 5 });
        assert_eq!(entry.value.as_list().unwrap()[1].position, Position { line: 3, column: 13 });
    }

    #[test]
    fn what_is_ambiguous_or_dangerous_is_refused() {
        assert_eq!(fail("a: 1\nb: 2\na: 3\n"), [("duplicate-key", 3, 1)]);
        assert_eq!(fail("a: *nope\n")[0].0, "syntax");
        assert_eq!(fail("? [a]\n: b\n")[0].0, "syntax");
        assert_eq!(fail("a: !!binary aGk=\n")[0].0, "syntax");
        assert_eq!(fail("a: &a [*a]\n")[0].0, "syntax");
        assert_eq!(fail(&"[".repeat(200))[0].0, "too-deep");
        let levels = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1));
        let bomb = format!("a0: &a0 x\n{}", levels.collect::<String>());
        assert_eq!(fail(&bomb)[0].0, "alias-budget");
    }
}
