//! Renders a diagnostic for a terminal: the line of the file, with a caret under the place.

use crate::diagnostic::{Diagnostic, Severity};

/// Renders a diagnostic with its line of `source_text`. The result has several lines and ends with a line break.
///
/// A line of a secret field, or one that looks like a secret, is not shown.
#[must_use]
pub fn render(diagnostic: &Diagnostic, source_text: &str, colour: bool) -> String {
    let paint = |code: &'static str, text: &str| {
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    let severity_colour = match diagnostic.severity {
        Severity::Error => "1;31",
        Severity::Warning => "1;33",
        Severity::Info => "1;36",
    };
    let head = paint(severity_colour, &format!("{}[{}]", diagnostic.severity, diagnostic.code));
    let path = if diagnostic.path.is_empty() { String::new() } else { format!("{}: ", diagnostic.path) };
    let mut text = format!("{head} {path}{}\n", diagnostic.message);
    let number = diagnostic.place.line;
    let margin = " ".repeat(number.to_string().len());
    if number > 0 || !diagnostic.place.file.is_empty() {
        text.push_str(&format!("{margin}{} {}\n", paint("34", "-->"), diagnostic.place));
    }
    let bar = paint("34", "|");
    if let Some(line) = source_text.lines().nth((number as usize).wrapping_sub(1)) {
        let column = (diagnostic.place.column as usize).saturating_sub(1);
        if diagnostic.is_sensitive || looks_secret(line) || is_after_secret(diagnostic, source_text) {
            text.push_str(&format!("{margin} {bar} (the line is not shown: it may contain a secret)\n"));
        } else {
            let (excerpt, caret) = excerpt(line.trim_start_matches('\u{feff}'), column);
            text.push_str(&format!("{} {bar} {excerpt}\n", paint("34", &number.to_string())));
            text.push_str(&format!("{margin} {bar} {}{}\n", " ".repeat(caret), paint(severity_colour, "^")));
        }
    }
    if let Some(suggestion) = &diagnostic.suggestion {
        text.push_str(&format!("{margin} {} did you mean `{suggestion}`?\n", paint("32", "=")));
    }
    for place in &diagnostic.related {
        text.push_str(&format!("{margin} {} see {place}\n", paint("34", "=")));
    }
    text
}

/// Returns `true` if a character neither moves the cursor nor changes the writing direction.
const fn is_visible(c: char) -> bool {
    !matches!(
        c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// At most [`MAX_WIDTH`] characters around the column, and the position of the caret below them.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let start = column.saturating_sub(MAX_WIDTH / 2);
    let shown = line.chars().skip(start).take(MAX_WIDTH);
    let shown: String = shown.map(|c| if is_visible(c) { c } else { ' ' }).collect();
    let caret = (column - start).min(shown.chars().count());
    (shown.trim_end().to_owned(), caret)
}

/// Returns `true` if a line could belong to a secret that begins further up. Without a path, the end of the value is unknown.
fn is_after_secret(diagnostic: &Diagnostic, source_text: &str) -> bool {
    let number = diagnostic.place.line as usize;
    let before = source_text.lines().take(number).skip(number.saturating_sub(LONGEST_SECRET));
    diagnostic.path.is_empty() && before.into_iter().any(looks_secret)
}

/// Guesses from the text, because after a syntax error nothing else is known. Looks for words that name secrets, PEM, and long runs of
/// base64.
fn looks_secret(line: &str) -> bool {
    let lower = line.to_lowercase();
    let names = [
        "private",
        "password",
        "passwd",
        "secret",
        "token",
        "credential",
        "authorization",
        "-----",
        "inline_",
    ];
    let base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let has_long_run = line.split(|c| !base64(c)).any(|run| {
        run.len() >= 32
            && run.contains(|c: char| c.is_ascii_digit())
            && run.contains(|c: char| c.is_ascii_uppercase())
    });
    has_long_run || names.iter().any(|name| lower.contains(name))
}

/// In lines. An RSA key of 8192 bits has 100 in PEM.
const LONGEST_SECRET: usize = 110;

/// Fits a terminal of 100 columns with its margin.
const MAX_WIDTH: usize = 90;
