//! Regular expressions as each client reads them (XR3).
//!
//! All of them have RE2's grammar. [`Translator`] writes a text of RE2 as one of the `regex` crates that matches the same.

use std::sync::OnceLock;

use regex_automata::hybrid::dfa;
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Class, HirKind};

use crate::semantics::{Difference, Semantics};
use crate::truth::Truth;

/// A regular expression, built when it is first needed.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    reads_bytes: bool,
    is_half_anchored: bool,
    whole_engine: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(crate) fn new(text: &str, semantics: Semantics) -> Self {
        Self {
            text: text.to_owned(),
            reads_bytes: semantics.has(Difference::RegexReadsBytes),
            is_half_anchored: semantics.has(Difference::RegexIsHalfAnchored),
            whole_engine: OnceLock::new(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Unknown if the regular expression cannot be read, or is too large.
    pub(crate) fn matches(&self, text: &[u8]) -> Truth {
        match self.whole_engine.get_or_init(|| self.build()) {
            Some(engine) => engine.is_match(Input::new(text).anchored(Anchored::No)).into(),
            None => Truth::Unknown,
        }
    }

    /// The text with each match replaced, as RE2 does it: `\\1` is the first group, `\\0` the match.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(crate) fn replace_all(&self, text: &str, substitution: &str) -> Result<String, String> {
        let unread = || format!("the regular expression {:?} is not modelled", self.text);
        let inner = Translator::translate(&self.text, self.reads_bytes).ok_or_else(unread)?;
        let engine = self.engine(&inner).ok_or_else(unread)?;
        let text = text.as_bytes();
        let (mut out, mut at) = (Vec::new(), 0);
        for found in engine.captures_iter(text) {
            let Some(whole) = found.get_match() else { continue };
            out.extend_from_slice(text.get(at..whole.start()).unwrap_or_default());
            at = whole.end();
            let mut rest = substitution.chars();
            while let Some(next) = rest.next() {
                let group = match (next, (next == '\\').then(|| rest.next()).flatten()) {
                    ('\\', Some('\\')) => None,
                    ('\\', Some(digit)) if digit.is_ascii_digit() => {
                        digit.to_digit(10).and_then(|n| usize::try_from(n).ok())
                    }
                    ('\\', _) => return Err(format!("the substitution {substitution:?} is not valid")),
                    (_, _) => None,
                };
                match group {
                    Some(group) => {
                        let span = found.get_group(group);
                        let part = span.and_then(|span| text.get(span.range()));
                        out.extend_from_slice(part.unwrap_or_default());
                    }
                    None => out.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        String::from_utf8(out).map_err(|_| "the rewritten text is not UTF-8".to_owned())
    }

    /// A deterministic automaton of the whole text; `None` where [`Pattern::matches`] says unknown.
    pub(crate) fn automaton(&self) -> Option<dfa::DFA> {
        let whole = self.whole()?;
        let whole = match self.is_half_anchored {
            true => format!(r"\A(?s-u:.)*(?:{whole})(?s-u:.)*\z"),
            false => whole,
        };
        automaton(&whole, !self.reads_bytes)
    }

    fn whole(&self) -> Option<String> {
        let inner = Translator::translate(&self.text, self.reads_bytes)?;
        // grpc-js writes `^` before and `$` behind the text itself, which an alternation splits. What is outside may be anything.
        Some(match self.is_half_anchored {
            true => format!(r"\A{inner}\z"),
            false => format!(r"\A(?:{inner})\z"),
        })
    }

    fn build(&self) -> Option<Regex> {
        self.engine(&self.whole()?)
    }

    fn engine(&self, translated: &str) -> Option<Regex> {
        let syntax = syntax::Config::new().utf8(false).unicode(!self.reads_bytes);
        let config = Config::new().utf8_empty(false).nfa_size_limit(Some(MAX_REGEX_BYTES));
        Regex::builder().syntax(syntax).configure(config).build(translated).ok()
    }
}

/// A deterministic automaton, made as it is read, which searches from the beginning of a text. It gives up in place of forgetting states.
pub(crate) fn automaton(expression: &str, is_unicode: bool) -> Option<dfa::DFA> {
    let syntax = syntax::Config::new().utf8(false).unicode(is_unicode);
    let thompson = thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_REGEX_BYTES));
    let config = dfa::Config::new()
        .cache_capacity(MAX_REGEX_BYTES)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(Some(0))
        .minimum_bytes_per_state(None);
    dfa::DFA::builder().syntax(syntax).thompson(thompson).configure(config).build(expression).ok()
}

/// Memory of one compiled regular expression. Envoy's own limit, a program of 100 instructions, is far below.
const MAX_REGEX_BYTES: usize = 4 << 20;

/// Reads a regular expression of RE2 and writes it for the `regex` crates.
struct Translator<'t> {
    rest: &'t str,
    out: String,
    reads_bytes: bool,
}

impl<'t> Translator<'t> {
    /// `None` if it has something that neither reads.
    fn translate(text: &'t str, reads_bytes: bool) -> Option<String> {
        let mut translator = Self { rest: text, out: String::with_capacity(text.len() + 16), reads_bytes };
        while let Some(next) = translator.rest.chars().next() {
            match next {
                '\\' => translator.escape(false)?,
                '[' => translator.class()?,
                '{' => match repetition(translator.rest) {
                    Some(length) => {
                        let taken = translator.take(length);
                        translator.out.push_str(taken);
                    }
                    None => {
                        translator.take(1);
                        translator.out.push_str(r"\{");
                    }
                },
                '#' | '&' | '~' | '-' | '}' | ']' => {
                    translator.take(1);
                    translator.literal(next);
                }
                _ if next.is_ascii() => {
                    translator.take(1);
                    translator.out.push(next);
                }
                _ => {
                    translator.take(next.len_utf8());
                    translator.literal(next);
                }
            }
        }
        Some(translator.out)
    }

    fn take(&mut self, n: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A character that stands for itself; where bytes are read, each byte of it does.
    fn literal(&mut self, character: char) {
        let mut buffer = [0; 4];
        if self.reads_bytes && !character.is_ascii() {
            for byte in character.encode_utf8(&mut buffer).bytes() {
                self.out.push_str(&format!(r"\x{byte:02X}"));
            }
        } else {
            self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(character)));
        }
    }

    /// An escape, in a class or outside.
    fn escape(&mut self, in_class: bool) -> Option<()> {
        let mut characters = self.rest.chars();
        characters.next();
        let kind = characters.next()?;
        let perl = |inside: &'static str, negated: bool| match (in_class, negated) {
            (true, false) => inside.to_owned(),
            (false, false) => format!("[{inside}]"),
            (_, true) => format!("[^{inside}]"),
        };
        match kind {
            'd' | 'D' => self.out.push_str(&perl("0-9", kind == 'D')),
            'w' | 'W' => self.out.push_str(&perl("0-9A-Za-z_", kind == 'W')),
            's' | 'S' => self.out.push_str(&perl(r"\t\n\f\r ", kind == 'S')),
            'b' | 'B' if !in_class => self.out.push_str(&format!(r"(?-u:\{kind})")),
            'C' if !in_class => self.out.push_str("(?s-u:.)"),
            'Q' => return self.quoted(),
            'E' => {}
            'A' | 'z' if !in_class => self.out.push_str(&format!(r"\{kind}")),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => self.out.push_str(&format!(r"\{kind}")),
            'p' | 'P' => return self.property(),
            'x' | '0'..='7' => {
                let value = self.number()?;
                self.code(value)?;
                return Some(());
            }
            _ if kind.is_ascii_punctuation() => self.literal(kind),
            _ => return None,
        }
        self.take(1 + kind.len_utf8());
        Some(())
    }

    /// `\x41`, `\x{41}` or `\101`. A single digit from 1 would be a back reference, which RE2 has not.
    fn number(&mut self) -> Option<u32> {
        let rest = self.rest;
        if let Some(braced) = rest.strip_prefix(r"\x{") {
            let (digits, _) = braced.split_once('}')?;
            self.take(digits.len() + 4);
            return u32::from_str_radix(digits, 16).ok();
        }
        if let Some(plain) = rest.strip_prefix(r"\x") {
            let digits = plain.get(..2)?;
            self.take(4);
            return u32::from_str_radix(digits, 16).ok();
        }
        let digits = rest.get(1..)?.bytes().take(3).take_while(|byte| (b'0'..b'8').contains(byte)).count();
        let text = rest.get(1..=digits)?;
        if digits == 1 && text != "0" {
            return None;
        }
        self.take(digits + 1);
        u32::from_str_radix(text, 8).ok()
    }

    /// A character by its number. A byte cannot be greater than 255.
    fn code(&mut self, value: u32) -> Option<()> {
        if self.reads_bytes {
            let byte = u8::try_from(value).ok()?;
            self.out.push_str(&format!(r"\x{byte:02X}"));
        } else {
            self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(char::from_u32(value)?)));
        }
        Some(())
    }

    /// `\Q…\E`, or to the end.
    fn quoted(&mut self) -> Option<()> {
        self.take(2);
        let text = self.rest.split(r"\E").next()?;
        self.take(text.len());
        self.take(2);
        for character in text.chars() {
            self.literal(character);
        }
        Some(())
    }

    /// `\pN`, `\p{Greek}`, `\p{^Greek}`. Where bytes are read, those of the characters up to 255 are left.
    fn property(&mut self) -> Option<()> {
        let mut is_negated = self.rest.starts_with(r"\P");
        let after = self.rest.get(2..)?;
        let name = match after.strip_prefix('{') {
            Some(braced) => {
                let (name, _) = braced.split_once('}')?;
                self.take(name.len() + 4);
                name
            }
            None => {
                let name = after.get(..1)?;
                self.take(3);
                name
            }
        };
        let name = name.strip_prefix('^').inspect(|_| is_negated = !is_negated).unwrap_or(name);
        let wanted = if is_negated { format!(r"\P{{{name}}}") } else { format!(r"\p{{{name}}}") };
        let parsed = regex_syntax::parse(&wanted).ok()?;
        if !self.reads_bytes {
            self.out.push_str(&wanted);
            return Some(());
        }
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else { return None };
        self.out.push('[');
        // An empty class would be a mistake; one that excludes everything matches nothing.
        let mut ranges = class.ranges().iter().filter(|range| u32::from(range.start()) <= 0xff).peekable();
        if ranges.peek().is_none() {
            self.out.push_str(r"^\x00-\xFF");
        }
        for range in ranges {
            let end = u32::from(range.end()).min(0xff);
            self.out.push_str(&format!(r"\x{:02X}-\x{end:02X}", u32::from(range.start())));
        }
        self.out.push(']');
        Some(())
    }

    /// `[…]`. The `regex` crates know nested classes and set operations in it, which RE2 does not.
    fn class(&mut self) -> Option<()> {
        self.take(1);
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.take(1);
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let next = self.rest.chars().next()?;
            match next {
                ']' if !is_first => {
                    self.take(1);
                    self.out.push(']');
                    return Some(());
                }
                '[' if self.rest.starts_with("[:") => {
                    let (name, _) = self.rest.split_once(":]")?;
                    let name = self.take(name.len() + 2);
                    self.out.push_str(name);
                }
                '-' if !is_first && !self.rest.starts_with("-]") => {
                    self.take(1);
                    self.out.push('-');
                }
                '\\' => self.escape(true)?,
                _ => {
                    self.take(next.len_utf8());
                    self.literal(next);
                }
            }
            is_first = false;
        }
    }
}

/// The length of `{2}`, `{2,}` or `{2,3}`. RE2 takes any other brace for the character.
fn repetition(rest: &str) -> Option<usize> {
    let (inside, _) = rest.strip_prefix('{')?.split_once('}')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_repetition = match inside.split_once(',') {
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
        None => is_number(inside),
    };
    is_repetition.then_some(inside.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Language};

    fn matches(language: Language, pattern: &str, text: &str) -> Truth {
        Pattern::new(pattern, Semantics::of(Client::newest(language))).matches(text.as_bytes())
    }

    #[test]
    fn r3_the_same_text_means_other_things_to_other_clients() {
        use Language::{CCore, Envoy, Go, Js};
        use Truth::{No, Yes};
        for (language, pattern, text, expected) in [
            (Envoy, "a.c", "aéc", No),
            (Envoy, "a..c", "aéc", Yes),
            (CCore, "a.c", "aéc", Yes),
            (Go, "a.c", "aéc", Yes),
            (Envoy, r"\p{Greek}+", "αβ", No),
            (CCore, r"\p{Greek}+", "αβ", Yes),
            (Envoy, r"\p{L}+", "ab", Yes),
            (Envoy, "[é]", "é", No),
            (Envoy, "[é][é]", "é", Yes),
            (Envoy, "é", "é", Yes),
            (CCore, "[é]", "é", Yes),
            (Envoy, "a|b", "ax", No),
            (Js, "a|b", "ax", Yes),
            (Js, "a|b", "xb", Yes),
            (Js, "a|b", "xbx", No),
            (Go, "a|b", "ax", No),
        ] {
            assert_eq!(matches(language, pattern, text), expected, "{language:?} {pattern} {text}");
        }
    }

    #[test]
    fn texts_of_re2_keep_their_meaning() {
        for (pattern, yes, no) in [
            (r"/v\d+", "/v12", "/v٣"),
            (r"\w+", "a_1", "é"),
            (r"[\d.]+", "1.2", "a"),
            (r"[^\d]", "a", "1"),
            (r"[\D]", "a", "1"),
            (r"\Qa.b\E+", "a.bb", "axb"),
            (r"\101", "A", "1"),
            (r"\x41\x{42}", "AB", "ab"),
            (r"[[]a[&&]~~", "[a&~~", "a"),
            (r"[]a]+", "]a", "b"),
            (r"[a-]+", "a-", "b"),
            (r"[[:alpha:]]+", "ab", "1"),
            ("a{,2}", "a{,2}", "aa"),
            ("a{2}", "aa", "a{2}"),
            (r"(?i)ABC", "abc", "abd"),
            (r"a\.b", "a.b", "axb"),
            (r"\p{^Lu}", "a", "A"),
            (r"(?P<x>a)|b", "b", "c"),
            (r"a#b", "a#b", "a"),
        ] {
            for language in [Language::Envoy, Language::CCore, Language::Go] {
                assert_eq!(matches(language, pattern, yes), Truth::Yes, "{language:?} {pattern} {yes}");
                assert_eq!(matches(language, pattern, no), Truth::No, "{language:?} {pattern} {no}");
            }
        }
        for bad in [r"\1", "(", "a{1001}{1001}{1001}", r"\", "[a", r"\p{Nothing}"] {
            assert_eq!(matches(Language::Envoy, bad, "a"), Truth::Unknown, "{bad}");
        }
    }
}
