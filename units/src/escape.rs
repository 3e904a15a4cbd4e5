//! Texts from outside, made fit for a line of a log or a table.
//!
//! Node ids, names, NACKs, file names and parts of documents can hold any text. A line feed in one would begin a line that looks
//! like ours, and an escape sequence would move the reader's cursor.

use std::fmt::{self, Write};

/// The text with everything escaped that cannot be seen or could move the cursor: control characters, separators of lines,
/// marks that change the direction of writing. Quotes and backslashes are shown as they are.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|character| push_clean(&mut shown, character));
    shown
}

/// The text with every line [`clean`]ed, for messages that have several of their own.
#[must_use]
pub fn clean_lines(text: &str) -> String {
    text.split('\n').map(clean).collect::<Vec<_>>().join("\n")
}

/// Writes what is given to it cleaned, and up to a limit; [`finish`](Self::finish) says how much there was.
#[expect(missing_debug_implementations, reason = "it borrows a writer, which may have none")]
pub struct Limited<'a> {
    out: &'a mut dyn Write,
    limit: usize,
    n_bytes: usize,
}

impl<'a> Limited<'a> {
    /// Writes to `out` about `limit` bytes of what it is given.
    pub fn new(out: &'a mut dyn Write, limit: usize) -> Self {
        Self { out, limit, n_bytes: 0 }
    }

    /// Says how long the text was, if it was cut.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> fmt::Result {
        if self.n_bytes > self.limit { write!(self.out, "…({} bytes)", self.n_bytes) } else { Ok(()) }
    }
}

impl Write for Limited<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.limit.saturating_sub(self.n_bytes).min(text.len());
        self.n_bytes += text.len();
        let mut clean = String::with_capacity(left);
        let shown = text.char_indices().take_while(|(index, _)| *index < left);
        shown.for_each(|(_, character)| push_clean(&mut clean, character));
        self.out.write_str(&clean)
    }
}

fn push_clean(out: &mut String, character: char) {
    match character {
        '"' | '\'' | '\\' | ' '..='~' => out.push(character),
        _ => out.extend(character.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_shown_and_what_could_move_the_cursor_is_escaped() {
        for (text, shown) in [
            ("gr\u{fc}n \"it's\" a\\b", "gr\u{fc}n \"it's\" a\\b"),
            ("\u{1b}[31m\r\n\t\0\u{7f}", "\\u{1b}[31m\\r\\n\\t\\0\\u{7f}"),
            ("\u{85}\u{9b}2J", "\\u{85}\\u{9b}2J"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            (
                "\u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}",
                "\\u{202a}\\u{202e}\\u{2066}\\u{2069}\\u{200e}\\u{200f}\\u{61c}",
            ),
        ] {
            assert_eq!(clean(text), shown);
        }
        assert_eq!(clean_lines("a\n  b\u{1b}\n"), "a\n  b\\u{1b}\n");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_its_length_said() {
        for (text, limit, shown) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc…(4 bytes)"),
            ("aéé", 2, "aé…(5 bytes)"),
            ("ab\nc", 3, "ab\\n…(4 bytes)"),
        ] {
            let mut out = String::new();
            let mut limited = Limited::new(&mut out, limit);
            // In pieces, as a formatter does.
            for piece in text.split_inclusive('b') {
                limited.write_str(piece).unwrap();
            }
            limited.finish().unwrap();
            assert_eq!(out, shown);
        }
    }
}
