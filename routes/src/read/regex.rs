//! Regular expressions: checks whether RE2 accepts a text. Envoy (C++), grpc-go (Go) and C-core each have their own implementation of it.
//!
//! The text is parsed by RE2's grammar. Syntax that only one of the implementations accepts is refused, because a single bad expression makes
//! clients reject a whole RouteConfiguration. At the same time, the expression is rewritten in the grammar of the `regex` crate, which differs in
//! character classes, octal numbers and braces, and compiled there. That finds expressions that are too large.

mod class;
#[cfg(test)]
mod tests;

use xds_codec::echo;

use super::fields::{Reader, Value};
use crate::model::Spot;
use class::ClassScanner;

/// Reads a regular expression of `least` to `most` characters; an error if RE2 does not accept it.
pub(crate) fn read_regex(
    value: &Value<'_>,
    least: usize,
    most: usize,
    reader: &mut Reader,
) -> Option<String> {
    let text = value.bounded_text(least, most, reader)?;
    check(text, &value.spot, reader).then(|| text.to_owned())
}

/// Returns `true` if RE2 accepts the text, and reports why not. Warns if the expression is too large for Envoy.
pub(crate) fn check(text: &str, spot: &Spot, reader: &mut Reader) -> bool {
    match size_of(text) {
        Ok(size) => {
            if size > MAX_PROGRAM_SIZE {
                reader.warn("large-regex", spot, format!(
                    "the size of {} is about {size}; Envoy refuses all routes of a configuration with an expression larger \
                     than 100, unless its runtime has a higher `re2.max_program_size.error_level`",
                    echo(text)
                ));
            }
            true
        }
        Err(reason) => {
            reader.error("bad-regex", spot, format!("{} is not valid RE2: {reason}", echo(text)));
            false
        }
    }
}

/// Estimates the number of instructions of RE2's program.
///
/// # Errors
///
/// The reason why RE2 does not accept the text.
fn size_of(text: &str) -> Result<u64, String> {
    let mut scanner = Scanner { rest: text, ..Scanner::default() };
    while let Some(next) = scanner.next() {
        scanner.scan(next)?;
    }
    let (n_open, Scanner { group, rust, .. }) = (scanner.outer.len(), scanner);
    if n_open > 0 {
        return Err("a group is not closed by `)`".to_owned());
    }
    match regex::Regex::new(&rust) {
        Ok(_) => Ok(group.size.saturating_add(PROGRAM_OVERHEAD)),
        Err(regex::Error::CompiledTooBig(_)) => Err("it is too large when compiled".to_owned()),
        Err(_) => Err("clients disagree about its meaning".to_owned()),
    }
}

/// Walks over an expression.
#[derive(Default)]
struct Scanner<'t> {
    /// The text that is not read yet.
    rest: &'t str,
    /// The text that was read, in the grammar of the `regex` crate.
    rust: String,
    /// The groups around the current one.
    outer: Vec<Group>,
    /// The current group, or the whole expression.
    group: Group,
    names: Vec<&'t str>,
}

/// The state of a group, whose last part may still be repeated.
#[derive(Default)]
struct Group {
    last: Last,
    /// Instructions of all parts but the last.
    size: u64,
    /// The highest number of repetitions in it.
    n_repeats: u64,
    captures: bool,
}

/// The item before a repetition operator.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    /// Nothing that could be repeated.
    #[default]
    Nothing,
    /// A part that can be repeated, with its instructions and the highest number of repetitions in it.
    Part { size: u64, n_repeats: u64 },
    /// A part that is repeated already.
    Repeated,
}

impl<'t> Scanner<'t> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    fn scan(&mut self, next: char) -> Result<(), String> {
        match next {
            '\\' => self.scan_escape(),
            '[' => self.scan_class(),
            '(' => self.open_group(),
            ')' => self.close_group(),
            '|' => {
                self.end_part();
                self.group.size += 1;
                self.rust.push('|');
                Ok(())
            }
            '*' | '+' | '?' => self.repeat(1, &next.to_string()),
            '{' => match self.take_count() {
                Some((least, most)) => self.scan_count(least, most),
                None => self.literal('{'),
            },
            '.' => self.part(".", ANY_CHARACTER_SIZE),
            '^' => self.part("^", 1),
            '$' => self.part("$", 1),
            literal => self.literal(literal),
        }
    }

    /// Ends the last part, so it can no longer be repeated.
    fn end_part(&mut self) {
        if let Last::Part { size, .. } = self.group.last {
            self.group.size = self.group.size.saturating_add(size);
        }
        self.group.last = Last::Nothing;
    }

    fn part(&mut self, rust: &str, size: u64) -> Result<(), String> {
        self.end_part();
        self.rust.push_str(rust);
        self.group.last = Last::Part { size, n_repeats: 1 };
        Ok(())
    }

    fn literal(&mut self, literal: char) -> Result<(), String> {
        let size = u64::try_from(literal.len_utf8()).unwrap_or(4);
        self.part(&class::rust_literal(literal), size)
    }

    fn scan_class(&mut self) -> Result<(), String> {
        let mut class = ClassScanner { rest: self.rest, ..ClassScanner::default() };
        let size = class.scan()?;
        self.rest = class.rest;
        self.part(&class.rust, size)
    }

    fn scan_escape(&mut self) -> Result<(), String> {
        match self.rest.chars().next() {
            Some('Q') => {
                let text = self.rest.get(1..).unwrap_or_default();
                let (quoted, rest) = text.split_once("\\E").unwrap_or((text, ""));
                self.rest = rest;
                return quoted.chars().try_for_each(|literal| self.literal(literal));
            }
            Some(anchor @ ('A' | 'z' | 'b' | 'B')) => {
                self.next();
                return self.part(&format!("\\{anchor}"), 1);
            }
            Some('C') => return Err("`\\C` is not supported by every client".to_owned()),
            _ => {}
        }
        let mut class = ClassScanner { rest: self.rest, ..ClassScanner::default() };
        let size = class.scan_single()?;
        self.rest = class.rest;
        self.part(&class.rust, size)
    }

    fn open_group(&mut self) -> Result<(), String> {
        self.end_part();
        let mut captures = true;
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
            captures = false;
            if let Some(rest) = rest.strip_prefix("P<") {
                self.name_group(rest)?;
                captures = true;
                self.rust.push('(');
            } else if self.scan_flags()? {
                return Ok(());
            }
        } else {
            self.rust.push('(');
        }
        if self.outer.len() >= MAX_DEPTH {
            return Err("its groups are nested too deeply".to_owned());
        }
        let group = Group { n_repeats: 1, captures, ..Group::default() };
        self.outer.push(std::mem::replace(&mut self.group, group));
        Ok(())
    }

    fn name_group(&mut self, rest: &'t str) -> Result<(), String> {
        let (name, rest) = rest.split_once('>').ok_or("the name of a group is not closed by `>`")?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_word) {
            return Err(format!("{} is not the name of a group", echo(name)));
        }
        if self.names.contains(&name) {
            return Err(format!("two groups are named {}", echo(name)));
        }
        self.names.push(name);
        self.rest = rest;
        Ok(())
    }

    /// Reads the text after `(?`. Returns `true` if that was the whole group, as in `(?i)`.
    fn scan_flags(&mut self) -> Result<bool, String> {
        const LOOK_AROUND: [&str; 4] = ["=", "!", "<=", "<!"];
        if let Some(look) = LOOK_AROUND.iter().find(|look| self.rest.starts_with(**look)) {
            return Err(format!("RE2 has no look-around such as `(?{look}`"));
        }
        if self.rest.starts_with('<') {
            return Err("a named group is written `(?P<name>…)`".to_owned());
        }
        let end = self.rest.find([':', ')']).unwrap_or(self.rest.len());
        let (flags, rest) = self.rest.split_at_checked(end).unwrap_or_default();
        let (on, off) = flags.split_once('-').unwrap_or((flags, "i"));
        let are_known = |flags: &str| flags.chars().all(|flag| "imsU".contains(flag));
        let is_empty = off.is_empty() || (on.is_empty() && !flags.is_empty() && !flags.starts_with('-'));
        let mut rest = rest.chars();
        let end = rest.next();
        if is_empty || !are_known(on) || !are_known(off) || (flags.is_empty() && end != Some(':')) {
            return Err(format!("RE2 has no group that begins with {}", echo(&format!("(?{flags}"))));
        }
        let end = end.ok_or("a group is not closed by `)`")?;
        self.rest = rest.as_str();
        self.rust.push_str(&format!("(?{flags}{end}"));
        Ok(end == ')')
    }

    fn close_group(&mut self) -> Result<(), String> {
        let outer = self.outer.pop().ok_or("a `)` closes nothing")?;
        self.end_part();
        let Group { size, n_repeats, captures, .. } = std::mem::replace(&mut self.group, outer);
        self.rust.push(')');
        let size = size.saturating_add(if captures { 2 } else { 0 });
        self.group.last = Last::Part { size, n_repeats };
        Ok(())
    }

    /// Takes `n}`, `n,}` or `n,m}`; everything else is literal text.
    fn take_count(&mut self) -> Option<(u64, Option<u64>)> {
        let (count, rest) = self.rest.split_once('}')?;
        let number = |text: &str| -> Option<u64> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let counts = match count.split_once(',') {
            None => number(count).map(|exact| (exact, Some(exact)))?,
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        self.rest = rest;
        Some(counts)
    }

    fn scan_count(&mut self, least: u64, most: Option<u64>) -> Result<(), String> {
        let n_repeats = most.unwrap_or(least);
        if least > MAX_REPEATS || n_repeats > MAX_REPEATS {
            return Err(format!("nothing can be repeated more than {MAX_REPEATS} times"));
        }
        if least > n_repeats {
            return Err("the bounds of a repetition are in the wrong order".to_owned());
        }
        let rust = match most {
            Some(most) => format!("{{{least},{most}}}"),
            None => format!("{{{least},}}"),
        };
        self.repeat(n_repeats.max(1), &rust)
    }

    fn repeat(&mut self, times: u64, rust: &str) -> Result<(), String> {
        let (size, n_repeats) = match self.group.last {
            Last::Nothing => return Err(format!("`{rust}` repeats nothing")),
            Last::Repeated => {
                return Err(format!("`{rust}` repeats a repetition; put the inner one into a group"));
            }
            Last::Part { size, n_repeats } => (size, n_repeats.saturating_mul(times)),
        };
        if n_repeats > MAX_REPEATS {
            return Err(format!(
                "nothing can be repeated more than {MAX_REPEATS} times, in all repetitions together"
            ));
        }
        let size = size.saturating_mul(times).saturating_add(1);
        self.group.size = self.group.size.saturating_add(size);
        self.group.n_repeats = self.group.n_repeats.max(n_repeats);
        self.group.last = Last::Repeated;
        self.rust.push_str(rust);
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
            self.rust.push('?');
        }
        Ok(())
    }
}

/// The limit of repetitions in RE2 and Go.
const MAX_REPEATS: u64 = 1_000;

/// The `regex` crate allows 250, RE2 and Go allow 1,000.
const MAX_DEPTH: usize = 200;

/// The size of `.` in RE2: two ranges of ASCII, and six more for the rest of UTF-8.
const ANY_CHARACTER_SIZE: u64 = 8;

/// The size of the rest of every RE2 program.
const PROGRAM_OVERHEAD: u64 = 4;

/// Envoy's default is 100. The text around an expression in a matcher takes some of it.
const MAX_PROGRAM_SIZE: u64 = 90;
