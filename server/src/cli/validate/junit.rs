//! JUnit XML as CI systems read it: a test case for each file, which fails if there is an error in it.
//!
//! Warnings and notes of a file are its output. The elements and attributes are those that Jenkins, GitLab and the reporters for
//! GitHub agree on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use xds_codec::Diagnostic;

use super::report::{Report, plain_path};
use crate::cli::offline::cleaned;
use crate::cli::output::clean;

/// The whole file.
pub(super) fn write(report: &Report) -> String {
    let mut cases: BTreeMap<Arc<str>, Vec<Diagnostic>> =
        report.files.iter().map(|file| (Arc::clone(file), Vec::new())).collect();
    for one in report.findings() {
        cases.entry(Arc::clone(&one.place.file)).or_default().push(one);
    }
    let n_failures = cases.values().filter(|found| found.iter().any(Diagnostic::is_error)).count();
    let counts = format!("tests=\"{}\" failures=\"{n_failures}\" errors=\"0\" time=\"0\"", cases.len());
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "<testsuites name=\"{SUITE}\" {counts}>");
    let _ = writeln!(text, "  <testsuite name=\"{SUITE}\" {counts} skipped=\"0\">");
    for (file, found) in &cases {
        write_case(file, found, &mut text);
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn write_case(file: &str, found: &[Diagnostic], text: &mut String) {
    let name = if file.is_empty() { "all files".to_owned() } else { escape(&clean(plain_path(file))) };
    let _ = write!(text, "    <testcase classname=\"{SUITE}\" name=\"{name}\"");
    if !file.is_empty() {
        let _ = write!(text, " file=\"{name}\"");
    }
    let _ = writeln!(text, " time=\"0\">");
    let (errors, others): (Vec<&Diagnostic>, Vec<&Diagnostic>) = found.iter().partition(|one| one.is_error());
    let lines = |found: &[&Diagnostic]| -> String {
        found.iter().map(|one| format!("{}\n", escape(&cleaned(one).to_string()))).collect()
    };
    if let Some(first) = errors.first() {
        let (code, message) = (escape(first.code), escape(&clean(&first.message)));
        let more = if errors.len() > 1 { format!(" (and {} more)", errors.len() - 1) } else { String::new() };
        let _ = writeln!(
            text,
            "      <failure type=\"{code}\" message=\"{message}{more}\">{}</failure>",
            lines(&errors)
        );
    }
    if !others.is_empty() {
        let _ = writeln!(text, "      <system-out>{}</system-out>", lines(&others));
    }
    text.push_str("    </testcase>\n");
}

/// The name of the suite and the class of its cases.
const SUITE: &str = "xds-server validate";

/// A text for an attribute or an element. What XML 1.0 has no characters for is escaped by [`clean`] before.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_becomes_one_that_xml_has() {
        let is_xml = |one: char| matches!(one, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        for character in '\0'..=char::MAX {
            let shown = escape(&clean(&character.to_string()));
            assert!(shown.chars().all(is_xml), "{:x}: {shown:?}", u32::from(character));
            assert!(!shown.contains(['<', '>', '"', '\'']), "{shown}");
        }
        assert_eq!(escape("a & <b>"), "a &amp; &lt;b&gt;");
    }
}
