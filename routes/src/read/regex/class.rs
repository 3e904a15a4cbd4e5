//! Character classes and single characters of regular expressions.

use xds_codec::echo;

/// Walks over a class, or over the text after a backslash.
#[derive(Default)]
pub(super) struct ClassScanner<'t> {
    /// The text that is not read yet.
    pub(super) rest: &'t str,
    /// The text that was read, in the grammar of the `regex` crate.
    pub(super) rust: String,
}

/// One item of a class.
enum Item {
    /// A character, which may begin or end a range.
    Character(char),
    /// A set of characters, in the grammar of the `regex` crate, and its size in instructions.
    Set(String, u64),
}

impl ClassScanner<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = self.rest.get(next.len_utf8()..).unwrap_or_default();
        Some(next)
    }

    /// Reads from after `[` up to the `]`. Returns the size in instructions.
    pub(super) fn scan(&mut self) -> Result<u64, String> {
        self.rust.push('[');
        let is_negated = self.rest.starts_with('^');
        if is_negated {
            self.next();
            self.rust.push('^');
        }
        let mut size = 0;
        let mut is_first = true;
        loop {
            if self.rest.is_empty() {
                return Err("a class is not closed by `]`".to_owned());
            }
            if self.rest.starts_with(']') && !is_first {
                self.next();
                self.rust.push(']');
                return Ok(if is_negated { size + NEGATED_SIZE } else { size });
            }
            is_first = false;
            size += self.scan_item()?;
        }
    }

    /// Reads the item after a backslash outside of a class. Returns the size in instructions.
    pub(super) fn scan_single(&mut self) -> Result<u64, String> {
        match self.escaped()? {
            Item::Character(character) => {
                self.rust.push_str(&rust_literal(character));
                Ok(u64::try_from(character.len_utf8()).unwrap_or(4))
            }
            Item::Set(rust, size) => {
                self.rust.push_str(&format!("[{rust}]"));
                Ok(size)
            }
        }
    }

    fn scan_item(&mut self) -> Result<u64, String> {
        let low = match self.item()? {
            Item::Character(low) => low,
            Item::Set(rust, size) => {
                self.rust.push_str(&rust);
                return Ok(size);
            }
        };
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
        if !is_range {
            self.rust.push_str(&rust_literal(low));
            return Ok(u64::try_from(low.len_utf8()).unwrap_or(4));
        }
        self.next();
        let Item::Character(high) = self.item()? else {
            return Err("a range of a class ends with a set of characters".to_owned());
        };
        if low > high {
            return Err(format!("the range {} is in the wrong order", echo(&format!("{low}-{high}"))));
        }
        self.rust.push_str(&format!("{}-{}", rust_literal(low), rust_literal(high)));
        Ok(if high.is_ascii() { 1 } else { NEGATED_SIZE })
    }

    fn item(&mut self) -> Result<Item, String> {
        if let Some((name, rest)) = self.rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
            let known = name.strip_prefix('^').unwrap_or(name);
            if !NAMED_CLASSES.contains(&known) {
                return Err(format!("there is no class {}", echo(&format!("[:{name}:]"))));
            }
            self.rest = rest;
            return Ok(Item::Set(format!("[:{name}:]"), 4));
        }
        match self.next() {
            Some('\\') => self.escaped(),
            Some(character) => Ok(Item::Character(character)),
            None => Err("a class is not closed by `]`".to_owned()),
        }
    }

    /// Reads the item after a backslash.
    fn escaped(&mut self) -> Result<Item, String> {
        let Some(next) = self.next() else { return Err("it ends with a backslash".to_owned()) };
        let set = |rust: &str, size| Ok(Item::Set(rust.to_owned(), size));
        match next {
            'd' => set("0-9", 1),
            'D' => set("\\x00-/:-\\x{10FFFF}", NEGATED_SIZE),
            's' => set("\\t\\n\\f\\r\\x20", 3),
            'S' => set("\\x00-\\x08\\x0B\\x0E-\\x1F!-\\x{10FFFF}", NEGATED_SIZE),
            'w' => set("0-9A-Za-z_", 4),
            'W' => set("\\x00-/:-@\\[-\\^`\\{-\\x{10FFFF}", NEGATED_SIZE),
            'p' | 'P' => self.property(next),
            'a' => Ok(Item::Character('\x07')),
            'f' => Ok(Item::Character('\x0C')),
            'n' => Ok(Item::Character('\n')),
            'r' => Ok(Item::Character('\r')),
            't' => Ok(Item::Character('\t')),
            'v' => Ok(Item::Character('\x0B')),
            'x' => self.hexadecimal(),
            '0'..='7' => self.octal(next),
            'k' => Err("RE2 has no back-references such as `\\k<name>`".to_owned()),
            '8' | '9' => Err(format!("RE2 has no back-references such as `\\{next}`")),
            character if character.is_ascii() && !character.is_ascii_alphanumeric() => {
                Ok(Item::Character(character))
            }
            other => Err(format!("RE2 has no `\\{}`", other.escape_debug())),
        }
    }

    /// Reads `\0`, `\017` or `\123`. A single digit other than 0 would be a back-reference.
    fn octal(&mut self, first: char) -> Result<Item, String> {
        let n_digits = self.rest.bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if first != '0' && n_digits == 0 {
            return Err(format!("RE2 has no back-references such as `\\{first}`"));
        }
        let (digits, rest) = self.rest.split_at_checked(n_digits).unwrap_or_default();
        let number = u32::from_str_radix(&format!("{first}{digits}"), 8).unwrap_or_default();
        self.rest = rest;
        char::from_u32(number).map(Item::Character).ok_or_else(|| "an octal number is too large".to_owned())
    }

    /// Reads `\x7F` or `\x{10FFFF}`.
    fn hexadecimal(&mut self) -> Result<Item, String> {
        let (digits, rest) = match self.rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or("`\\x{` is not closed by `}`")?,
            None => self.rest.split_at_checked(2).ok_or("`\\x` needs two digits or braces")?,
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_number.then(|| u32::from_str_radix(digits, 16).ok()).flatten();
        let character = number.and_then(char::from_u32);
        let character =
            character.ok_or_else(|| format!("{} is not a character", echo(&format!("\\x{digits}"))))?;
        self.rest = rest;
        Ok(Item::Character(character))
    }

    /// Reads `\pL`, `\p{Lu}` or `\p{^Greek}`: the short form of a general category, or the long form of a script.
    fn property(&mut self, letter: char) -> Result<Item, String> {
        let (name, rest) = match self.rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or("`\\p{` is not closed by `}`")?,
            None => {
                let n_bytes = self.rest.chars().next().map_or(0, char::len_utf8);
                self.rest.split_at_checked(n_bytes).unwrap_or_default()
            }
        };
        let (is_inverted, known) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let property = if CATEGORIES.contains(&known) {
            known.to_owned()
        } else if known == "Any" {
            "any".to_owned()
        } else if is_script(known) {
            format!("Script={known}")
        } else {
            return Err(format!("there is no property {}", echo(&format!("\\{letter}{{{name}}}"))));
        };
        self.rest = rest;
        let letter = if is_inverted == (letter == 'P') { 'p' } else { 'P' };
        Ok(Item::Set(format!("\\{letter}{{{property}}}"), PROPERTY_SIZE))
    }
}

/// Returns `true` if this is the long name of a script, such as `Greek` or `Old_Persian`.
fn is_script(name: &str) -> bool {
    let is_word = |word: &str| {
        let mut letters = word.bytes();
        letters.next().is_some_and(|first| first.is_ascii_uppercase())
            && letters.all(|letter| letter.is_ascii_lowercase())
    };
    // Names of four letters are short names of scripts, which RE2 does not have, except for scripts with such a short name.
    (name.len() != 4 || SHORT_SCRIPTS.contains(&name))
        && name.split('_').all(is_word)
        && regex::Regex::new(&format!("\\p{{Script={name}}}")).is_ok()
}

/// The classes of POSIX, and `word`.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The general categories of Unicode that RE2 and Go both have.
const CATEGORIES: [&str; 36] = [
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl",
    "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
];

const SHORT_SCRIPTS: [&str; 8] = ["Ahom", "Cham", "Kawi", "Lisu", "Modi", "Newa", "Thai", "Toto"];

/// Two or three ranges for ASCII, and six for the rest of UTF-8.
const NEGATED_SIZE: u64 = 8;

/// An estimate: large properties have hundreds of ranges, small ones have fewer.
const PROPERTY_SIZE: u64 = 100;

/// A literal character in the grammar of the `regex` crate, also within a class.
pub(super) fn rust_literal(literal: char) -> String {
    if literal.is_alphanumeric() {
        return literal.to_string();
    }
    format!("\\x{{{:X}}}", u32::from(literal))
}
