//! JSON as RFC 8259 has it, with positions.

use super::{Entry, Limits, Position, SyntaxProblem, Tree, TreeValue, check_duplicates, scalar};

/// Reads one value and nothing after it.
pub(super) fn parse(text: &str, limits: &Limits) -> Result<Tree, Vec<SyntaxProblem>> {
    let mut reader = Reader {
        rest: text,
        position: Position { line: 1, column: 1 },
        depth: limits.max_depth,
        duplicates: vec![],
    };
    let tree = reader.read_document().map_err(|problem| vec![problem])?;
    if reader.duplicates.is_empty() { Ok(tree) } else { Err(reader.duplicates) }
}

struct Reader<'a> {
    rest: &'a str,
    position: Position,
    /// How many more levels may be opened.
    depth: usize,
    duplicates: Vec<SyntaxProblem>,
}

type Outcome<T> = Result<T, SyntaxProblem>;

impl Reader<'_> {
    fn read_document(&mut self) -> Outcome<Tree> {
        let tree = self.read_value()?;
        self.skip_space();
        if self.peek().is_some() { Err(self.unexpected("the end of the file")) } else { Ok(tree) }
    }

    fn read_value(&mut self) -> Outcome<Tree> {
        self.skip_space();
        let position = self.position;
        let value = match self.peek() {
            Some('{') => self.read_nested(Self::read_object)?,
            Some('[') => self.read_nested(Self::read_list)?,
            Some('"') => TreeValue::String(self.read_string()?),
            Some('-' | '0'..='9') => self.read_number()?,
            Some('t') => self.read_word("true", TreeValue::Bool(true))?,
            Some('f') => self.read_word("false", TreeValue::Bool(false))?,
            Some('n') => self.read_word("null", TreeValue::Null)?,
            Some(_) | None => return Err(self.unexpected("a value")),
        };
        Ok(Tree { position, value })
    }

    fn read_nested(&mut self, read: fn(&mut Self) -> Outcome<TreeValue>) -> Outcome<TreeValue> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(SyntaxProblem::new("too-deep", self.position, "lists and objects nest too deep"));
        };
        self.depth = depth;
        self.advance();
        let value = read(self);
        self.depth += 1;
        value
    }

    fn read_object(&mut self) -> Outcome<TreeValue> {
        let mut entries = Vec::new();
        self.skip_space();
        if self.skip_if('}') {
            return Ok(TreeValue::Object(entries));
        }
        loop {
            self.skip_space();
            let position = self.position;
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.read_string()?;
            self.skip_space();
            if !self.skip_if(':') {
                return Err(self.unexpected("`:`"));
            }
            let value = self.read_value()?;
            entries.push(Entry { key, position, value });
            self.skip_space();
            if self.skip_if('}') {
                check_duplicates(&entries, &mut self.duplicates);
                return Ok(TreeValue::Object(entries));
            }
            if !self.skip_if(',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn read_list(&mut self) -> Outcome<TreeValue> {
        let mut items = Vec::new();
        self.skip_space();
        if self.skip_if(']') {
            return Ok(TreeValue::List(items));
        }
        loop {
            items.push(self.read_value()?);
            self.skip_space();
            if self.skip_if(']') {
                return Ok(TreeValue::List(items));
            }
            if !self.skip_if(',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn read_word(&mut self, word: &str, value: TreeValue) -> Outcome<TreeValue> {
        if !self.rest.starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        for _ in word.chars() {
            self.advance();
        }
        Ok(value)
    }

    fn read_number(&mut self) -> Outcome<TreeValue> {
        let position = self.position;
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_');
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (text, _) = self.rest.split_at(end);
        let number = scalar::parse_number(text);
        for _ in text.chars() {
            self.advance();
        }
        let problem = || SyntaxProblem::new("syntax", position, "expected a number in JSON's notation");
        number.map(TreeValue::Number).ok_or_else(problem)
    }

    fn read_string(&mut self) -> Outcome<String> {
        self.advance();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return Err(self.unexpected("`\"` at the end of the string")),
                Some('"') => {
                    self.advance();
                    return Ok(text);
                }
                Some('\\') => {
                    self.advance();
                    text.push(self.read_escape()?);
                }
                Some(character) if character < ' ' => {
                    return Err(self.unexpected("`\"` at the end of the string"));
                }
                Some(character) => {
                    self.advance();
                    text.push(character);
                }
            }
        }
    }

    fn read_escape(&mut self) -> Outcome<char> {
        let problem = self.unexpected("an escape that JSON knows");
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

    /// The message shows one character at most, because a string may be a secret.
    fn unexpected(&self, expected: &str) -> SyntaxProblem {
        let message = match self.peek() {
            None => format!("the file ends where {expected} is expected"),
            Some(found) => format!("expected {expected}, found {found:?}"),
        };
        SyntaxProblem::new("syntax", self.position, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = parse(text, &Limits::default()).ok().map(|tree| tree.to_json());
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            if text != "-0" {
                assert_eq!(found, expected, "{text}");
            }
        }
    }
}
