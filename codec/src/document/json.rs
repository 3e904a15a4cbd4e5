//! JSON by RFC 8259, with positions.

use super::position::to_u32;
use super::problem::{check_duplicates, too_deep, too_many_values};
use super::tape::{Scalar, Writer};
use super::{Limits, Position, Problems, SyntaxProblem, scalar};

/// Writes one value to the tape. Nothing may follow it.
pub(super) fn parse(text: &str, limits: &Limits, tape: &mut Writer) -> Result<(), Problems> {
    let mut duplicates = Problems::new(limits);
    let mut reader = Reader {
        rest: text,
        position: Position { line: 1, column: 1 },
        limits,
        depth: limits.max_depth,
        tape,
        keys: Vec::new(),
        duplicates: &mut duplicates,
    };
    match reader.read_document() {
        Err(problem) => Err(Problems::of(problem, limits)),
        Ok(()) if duplicates.is_empty() => Ok(()),
        Ok(()) => Err(duplicates),
    }
}

struct Reader<'a> {
    rest: &'a str,
    position: Position,
    limits: &'a Limits,
    /// The number of levels that may still be opened.
    depth: usize,
    tape: &'a mut Writer,
    /// The offsets on the tape of the keys of all open objects, from the outermost to the innermost.
    keys: Vec<u32>,
    duplicates: &'a mut Problems,
}

type Outcome<T> = Result<T, SyntaxProblem>;

impl Reader<'_> {
    fn read_document(&mut self) -> Outcome<()> {
        self.read_value()?;
        self.skip_space();
        if self.peek().is_some() { Err(self.unexpected("the end of the file")) } else { Ok(()) }
    }

    fn read_value(&mut self) -> Outcome<()> {
        self.skip_space();
        let position = self.position;
        if self.tape.n_values >= self.limits.max_document_values {
            return Err(too_many_values(position, self.limits));
        }
        let scalar = match self.peek() {
            Some('{') => return self.read_nested(Self::read_object),
            Some('[') => return self.read_nested(Self::read_list),
            Some('"') => {
                let open = self.tape.open_string(position);
                self.read_string()?;
                self.tape.close_string(open);
                return Ok(());
            }
            Some('-' | '0'..='9') => Scalar::Number(self.read_number()?),
            Some('t') => self.read_word("true", Scalar::Bool(true))?,
            Some('f') => self.read_word("false", Scalar::Bool(false))?,
            Some('n') => self.read_word("null", Scalar::Null)?,
            Some(_) | None => return Err(self.unexpected("a value")),
        };
        self.tape.scalar(position, scalar);
        Ok(())
    }

    fn read_nested(&mut self, read: fn(&mut Self) -> Outcome<()>) -> Outcome<()> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(too_deep(self.position));
        };
        self.depth = depth;
        read(self)?;
        self.depth += 1;
        Ok(())
    }

    fn read_object(&mut self) -> Outcome<()> {
        let open = self.tape.open_object(self.position);
        let first_key = self.keys.len();
        self.advance();
        self.skip_space();
        if self.skip_if('}') {
            self.tape.close(open, 0);
            return Ok(());
        }
        loop {
            self.skip_space();
            let position = self.position;
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            self.keys.push(to_u32(self.tape.len()));
            let key = self.tape.open_key();
            self.read_string()?;
            self.tape.close_key(key, position);
            self.skip_space();
            if !self.skip_if(':') {
                return Err(self.unexpected("`:`"));
            }
            self.read_value()?;
            self.skip_space();
            if self.skip_if('}') {
                let keys = self.keys.get_mut(first_key..).unwrap_or_default();
                self.tape.close(open, keys.len());
                check_duplicates(self.tape.written(), keys, self.duplicates);
                self.keys.truncate(first_key);
                return Ok(());
            }
            if !self.skip_if(',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn read_list(&mut self) -> Outcome<()> {
        let open = self.tape.open_list(self.position);
        let mut n_items = 0;
        self.advance();
        self.skip_space();
        if self.skip_if(']') {
            self.tape.close(open, n_items);
            return Ok(());
        }
        loop {
            self.read_value()?;
            n_items += 1;
            self.skip_space();
            if self.skip_if(']') {
                self.tape.close(open, n_items);
                return Ok(());
            }
            if !self.skip_if(',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn read_word(&mut self, word: &str, value: Scalar<'static>) -> Outcome<Scalar<'static>> {
        if !self.rest.starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        for _ in word.chars() {
            self.advance();
        }
        Ok(value)
    }

    fn read_number(&mut self) -> Outcome<super::Number> {
        let position = self.position;
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_');
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (text, _) = self.rest.split_at(end);
        let number = scalar::parse_number(text);
        for _ in text.chars() {
            self.advance();
        }
        let problem = || SyntaxProblem::new("syntax", position, "expected a number in JSON's notation");
        number.ok_or_else(problem)
    }

    /// Reads a string to the open string or key of the tape.
    fn read_string(&mut self) -> Outcome<()> {
        self.advance();
        loop {
            let plain =
                self.rest.find(|c: char| c < ' ' || matches!(c, '"' | '\\')).unwrap_or(self.rest.len());
            let (piece, rest) = self.rest.split_at(plain);
            self.tape.push(piece);
            self.position.column += to_u32(piece.chars().count());
            self.rest = rest;
            match self.peek() {
                Some('"') => {
                    self.advance();
                    return Ok(());
                }
                Some('\\') => {
                    self.advance();
                    let escaped = self.read_escape()?;
                    self.tape.push(escaped.encode_utf8(&mut [0; 4]));
                }
                Some(_) | None => return Err(self.unexpected("`\"` at the end of the string")),
            }
        }
    }

    fn read_escape(&mut self) -> Outcome<char> {
        let problem = self.unexpected("a JSON escape");
        let escaped = self.peek().ok_or_else(|| problem.clone())?;
        self.advance();
        let character = match escaped {
            '"' | '\\' | '/' => escaped,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.read_unicode().ok_or(problem),
            _ => return Err(problem),
        };
        Ok(character)
    }

    fn read_unicode(&mut self) -> Option<char> {
        let first = self.read_hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        if !(self.skip_if('\\') && self.skip_if('u')) {
            return None;
        }
        let second = self.read_hex().filter(|second| (0xdc00..0xe000).contains(second))?;
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }

    fn read_hex(&mut self) -> Option<u32> {
        let mut code = 0;
        for _ in 0..4 {
            code = code * 16 + self.peek()?.to_digit(16)?;
            self.advance();
        }
        Some(code)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r' | '\n')) {
            self.advance();
        }
    }

    fn skip_if(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.advance();
        }
        found
    }

    fn advance(&mut self) {
        let mut characters = self.rest.chars();
        match characters.next() {
            Some('\n') => self.position = Position { line: self.position.line + 1, column: 1 },
            Some(_) => self.position.column += 1,
            None => {}
        }
        self.rest = characters.as_str();
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Reports an unexpected character. The message shows at most one, because a string may be a secret.
    fn unexpected(&self, expected: &str) -> SyntaxProblem {
        let message = match self.peek() {
            None => format!("the file ends where {expected} is expected"),
            Some(found @ ('/' | '#')) => {
                format!(
                    "expected {expected}, found {found:?}; JSON has no comments; YAML has them, after `#`"
                )
            }
            Some(found) => format!("expected {expected}, found {found:?}"),
        };
        SyntaxProblem::new("syntax", self.position, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<serde_json::Value> {
        let mut tape = Writer::default();
        parse(text, &Limits::default(), &mut tape).ok()?;
        Some(super::super::Tree::first(tape).to_json())
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_json() {
        let texts = [
            "{}",
            "[]",
            "[1,2,]",
            "{\"a\":1,}",
            "[1 2]",
            "{a:1}",
            "'a'",
            "\"a\\u00e4\\ud83d\\ude00\"",
            "\"\\ud83d\"",
            "\"\\x\"",
            "01",
            "1.",
            "1e5",
            "-0",
            "-",
            "true",
            "tru",
            "truex",
            "null",
            "nullnull",
            "\"a\nb\"",
            "\"",
            "[",
            "{\"a\"",
            "// c\n1",
            "NaN",
            "1_0",
            "{\"a\":{\"b\":[null,{}]}} ",
            "\u{feff}1",
            "+1",
            ".5",
            "\"\\u12\"",
        ];
        for text in texts {
            let expected = serde_json::from_str::<serde_json::Value>(text).ok();
            let found = read(text);
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            if text != "-0" {
                assert_eq!(found, expected, "{text}");
            }
        }
    }
}
