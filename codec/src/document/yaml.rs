//! Writes YAML 1.2 to a tape, from the parser's events.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::limits::MIN_ALIAS_COST;
use super::position::to_u32;
use super::problem::{check_duplicates, too_deep, too_many_values};
use super::tape::{Cursor, Open, Scalar, Token, Writer};
use super::{Limits, Position, Problems, SyntaxProblem, scalar};

/// Writes all documents of a text to the tape.
pub(super) fn parse(text: &str, limits: &Limits, tape: &mut Writer) -> Result<(), Problems> {
    let mut options = granit_parser::options! {
        flow_nesting_limit: limits.max_depth,
        block_nesting_limit: limits.max_depth,
    };
    options.set_emit_comments(false);
    let mut builder = Builder::new(text.len(), limits, tape);
    for next in Parser::new_from_str_with_options(text, options) {
        let outcome = match next {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => Err(syntax_problem(&error)),
        };
        if let Err(problem) = outcome {
            builder.problems.list.push(problem);
            return Err(builder.problems);
        }
    }
    if builder.problems.is_empty() { Ok(()) } else { Err(builder.problems) }
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
    /// Its offset on the tape, and the number of values before it.
    start: (usize, usize),
    open: Open,
    /// The depth of its values so far.
    depth: usize,
    content: Content,
}

enum Content {
    List {
        n_items: usize,
    },
    Object {
        /// The first of its keys among [`Builder::keys`].
        first_key: usize,
        wants: Wants,
        /// The offsets of the values of `<<`, in order.
        merged: Vec<u32>,
    },
}

/// The next item in an object.
#[derive(Clone, Copy)]
enum Wants {
    Key,
    Value,
    /// The object or list for the `<<` at this position.
    Merged(Position, Open),
}

/// An anchored value: its range on the tape, and the cost of a copy.
#[derive(Clone, Copy)]
struct Anchored {
    start: usize,
    end: usize,
    n_values: usize,
    cost: usize,
    depth: usize,
}

struct Builder<'a> {
    limits: &'a Limits,
    tape: &'a mut Writer,
    frames: Vec<Frame>,
    /// The offsets on the tape of the keys of all open objects, from the outermost to the innermost.
    keys: Vec<u32>,
    anchors: HashMap<usize, Anchored>,
    /// The remaining cost for copies.
    budget: usize,
    /// The number of values before the document.
    n_before: usize,
    problems: Problems,
}

impl<'a> Builder<'a> {
    fn new(n_bytes: usize, limits: &'a Limits, tape: &'a mut Writer) -> Self {
        Self {
            limits,
            tape,
            frames: Vec::new(),
            keys: Vec::new(),
            anchors: HashMap::new(),
            budget: limits.max_alias_cost.min(MIN_ALIAS_COST.max(n_bytes / 16)),
            n_before: 0,
            problems: Problems::new(limits),
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxProblem> {
        let position = position(&span.start);
        if let Event::Scalar(text, style, anchor, tag) = event {
            let value = resolve(&text, style, tag.as_deref(), position)?;
            let is_written = !span.is_empty();
            if self.take_key(&text, style, position, is_written)? {
                return Ok(());
            }
            let start = (self.tape.len(), self.tape.n_values);
            self.count(position)?;
            self.tape.scalar(position, value);
            return self.took_value(start, anchor, position, 0);
        }
        if let Event::Alias(anchor) = event {
            return self.take_alias(anchor, position);
        }
        if let Event::SequenceStart(_, anchor, tag) = event {
            check_collection_tag(tag.as_deref(), position)?;
            return self.open(position, anchor, true);
        }
        if let Event::MappingStart(_, anchor, tag) = event {
            check_collection_tag(tag.as_deref(), position)?;
            return self.open(position, anchor, false);
        }
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            return self.close();
        }
        if matches!(event, Event::DocumentEnd) {
            self.anchors.clear();
            self.n_before = self.tape.n_values;
        }
        Ok(())
    }

    /// Takes a scalar as the key of the innermost object, if one is expected there.
    fn take_key(
        &mut self,
        text: &str,
        style: ScalarStyle,
        position: Position,
        is_written: bool,
    ) -> Result<bool, SyntaxProblem> {
        let Some(Frame { content: Content::Object { wants: wants @ Wants::Key, .. }, .. }) =
            self.frames.last_mut()
        else {
            return Ok(false);
        };
        // Otherwise, two characters of text would be an object with an entry.
        if !is_written && style == ScalarStyle::Plain {
            let message = "the key is missing; write an empty key as `\"\"`";
            return Err(SyntaxProblem::new("syntax", position, message));
        }
        if text == "<<" && style == ScalarStyle::Plain {
            *wants = Wants::Merged(position, self.tape.open_hidden());
            return Ok(true);
        }
        *wants = Wants::Value;
        self.keys.push(to_u32(self.tape.len()));
        self.tape.key(text, position);
        Ok(true)
    }

    /// Counts a value of the document.
    fn count(&self, position: Position) -> Result<(), SyntaxProblem> {
        if self.tape.n_values - self.n_before >= self.limits.max_document_values {
            return Err(too_many_values(position, self.limits));
        }
        Ok(())
    }

    /// Records that a whole value is on the tape, from `start` on.
    fn took_value(
        &mut self,
        start: (usize, usize),
        anchor: usize,
        position: Position,
        depth: usize,
    ) -> Result<(), SyntaxProblem> {
        if anchor != 0 {
            if self.anchors.len() >= MAX_ANCHORS {
                let message = format!("the document has more than {MAX_ANCHORS} anchors");
                return Err(SyntaxProblem::new("too-many-anchors", position, message));
            }
            let ((start, n_before), end) = (start, self.tape.len());
            let n_values = self.tape.n_values.saturating_sub(n_before);
            let cost = n_values + (end - start) / 32;
            self.anchors.insert(anchor, Anchored { start, end, n_values, cost, depth });
        }
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        frame.depth = frame.depth.max(depth);
        match &mut frame.content {
            Content::List { n_items } => *n_items += 1,
            Content::Object { wants, merged, .. } => match std::mem::replace(wants, Wants::Key) {
                Wants::Key => return Err(key_is_no_scalar(position)),
                Wants::Value => {}
                Wants::Merged(position, open) => {
                    self.tape.close_hidden(open);
                    let at = Writer::hidden_start(open);
                    check_merged(self.tape.written(), at, position)?;
                    merged.push(to_u32(at));
                }
            },
        }
        Ok(())
    }

    fn take_alias(&mut self, anchor: usize, position: Position) -> Result<(), SyntaxProblem> {
        let Some(anchored) = self.anchors.get(&anchor).copied() else {
            return Err(SyntaxProblem::new(
                "syntax",
                position,
                "the alias is inside the value that it names",
            ));
        };
        if self.frames.len() + anchored.depth > self.limits.max_depth {
            return Err(too_deep(position));
        }
        if let Some(Frame { content: Content::Object { wants: Wants::Key, .. }, .. }) = self.frames.last() {
            return Err(key_is_no_scalar(position));
        }
        let problem = || SyntaxProblem::new("alias-budget", position, "aliases make the document too large");
        self.budget = self.budget.checked_sub(anchored.cost).ok_or_else(problem)?;
        let start = (self.tape.len(), self.tape.n_values);
        self.tape.n_values += anchored.n_values - 1;
        self.count(position)?;
        self.tape.n_values += 1;
        self.tape.copy(anchored.start..anchored.end);
        self.took_value(start, 0, position, anchored.depth)
    }

    fn open(&mut self, position: Position, anchor: usize, is_list: bool) -> Result<(), SyntaxProblem> {
        if self.frames.len() >= self.limits.max_depth {
            return Err(too_deep(position));
        }
        if let Some(Frame { content: Content::Object { wants: Wants::Key, .. }, .. }) = self.frames.last() {
            return Err(key_is_no_scalar(position));
        }
        self.count(position)?;
        let start = (self.tape.len(), self.tape.n_values);
        let (open, content) = if is_list {
            (self.tape.open_list(position), Content::List { n_items: 0 })
        } else {
            let first_key = self.keys.len();
            let content = Content::Object { first_key, wants: Wants::Key, merged: Vec::new() };
            (self.tape.open_object(position), content)
        };
        self.frames.push(Frame { position, anchor, start, open, depth: 0, content });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxProblem> {
        let Some(Frame { position, anchor, start, open, depth, content }) = self.frames.pop() else {
            return Ok(());
        };
        let n_children = match content {
            Content::List { n_items } => n_items,
            Content::Object { first_key, merged, .. } => {
                let keys = self.keys.get_mut(first_key..).unwrap_or_default();
                check_duplicates(self.tape.written(), keys, &mut self.problems);
                let n_keys = keys.len();
                let more = merged_entries(self.tape.written(), keys, &merged);
                more.iter().for_each(|entry| self.tape.copy(entry.clone()));
                self.keys.truncate(first_key);
                n_keys + more.len()
            }
        };
        self.tape.close(open, n_children);
        self.took_value(start, anchor, position, depth + 1)
    }
}

fn key_is_no_scalar(position: Position) -> SyntaxProblem {
    SyntaxProblem::new("syntax", position, "a key must be a scalar")
}

/// Checks that the value of `<<` is an object or a list of objects.
fn check_merged(written: &[u8], at: usize, position: Position) -> Result<(), SyntaxProblem> {
    let mut cursor = Cursor { tape: written, at };
    let is_right = match cursor.token().1 {
        Token::Object(..) => true,
        Token::List(n_items, _) => (0..n_items).all(|_| {
            let mut item = cursor;
            let is_object = matches!(item.token().1, Token::Object(..));
            cursor.skip();
            is_object
        }),
        Token::Null | Token::Bool(_) | Token::Number(_) | Token::String(_) => false,
    };
    let problem = || SyntaxProblem::new("syntax", position, "`<<` needs an object or a list of objects");
    if is_right { Ok(()) } else { Err(problem()) }
}

/// The ranges of the entries that an object gets by `<<`: the first entry for each key that the object does not have.
fn merged_entries(written: &[u8], keys: &[u32], merged: &[u32]) -> Vec<std::ops::Range<usize>> {
    if merged.is_empty() {
        return Vec::new();
    }
    let key = |at: &u32| Cursor { tape: written, at: *at as usize }.key(written.len()).unwrap_or_default().0;
    let mut seen: HashSet<&str> = keys.iter().map(key).collect();
    let mut found = Vec::new();
    for at in merged {
        let mut cursor = Cursor { tape: written, at: *at as usize };
        let mut first = cursor;
        let n_objects = match first.token().1 {
            Token::List(n_items, _) => {
                cursor.token();
                n_items
            }
            Token::Null | Token::Bool(_) | Token::Number(_) | Token::String(_) | Token::Object(..) => 1,
        };
        for _ in 0..n_objects {
            let (_, Token::Object(_, end)) = cursor.token() else { break };
            loop {
                let start = cursor.at;
                let Some((key, _)) = cursor.key(end) else { break };
                // A hidden entry stays hidden in the copy.
                cursor.skip();
                if seen.insert(key) {
                    found.push(start..cursor.at);
                }
            }
            cursor.at = end;
        }
    }
    found
}

fn resolve<'t>(
    text: &'t str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    position: Position,
) -> Result<Scalar<'t>, SyntaxProblem> {
    let string = || Scalar::String(text);
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
        (Some("null"), Scalar::Null) | (Some("bool"), Scalar::Bool(_)) => true,
        (Some("int" | "float"), Scalar::Number(_)) => true,
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

/// Real files do not have a tenth of this. The parser keeps a hundred bytes for each.
const MAX_ANCHORS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;

    fn read_all(text: &str) -> Vec<Tree> {
        let mut tape = Writer::default();
        parse(text, &Limits::default(), &mut tape).unwrap();
        Tree::all(tape)
    }

    fn read(text: &str) -> serde_json::Value {
        read_all(text).iter().map(Tree::to_json).collect()
    }

    fn fail(text: &str) -> Vec<(&'static str, u32, u32)> {
        let problems = parse(text, &Limits::default(), &mut Writer::default()).unwrap_err();
        problems.list.iter().map(|p| (p.code, p.position.line, p.position.column)).collect()
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
        let trees = read_all("# c\r\na:\r\n  - bü: [x, 7]\r\n");
        let item = trees[0].root().get("a").unwrap().as_list().unwrap().next().unwrap();
        let entry = item.entry("bü").unwrap();
        assert_eq!(entry.position, Position { line: 3, column: 5 });
        assert_eq!(
            entry.value.as_list().unwrap().nth(1).unwrap().position(),
            Position { line: 3, column: 13 }
        );
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
