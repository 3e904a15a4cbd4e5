//! JUnit XML as CI systems read it: a test case for each file, which fails if there is an error in it; and a suite for each RouteTest and
//! client, with a test case for each of its tests.
//!
//! Warnings and notes of a file are its output. The elements and attributes are those that Jenkins, GitLab and the reporters for
//! GitHub agree on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use xds_codec::Diagnostic;
use xds_control::route_tests::{Case, Totals};
use xds_units::escape::clean_lines;

use super::report::Report;
use super::route_tests::Tested;
use crate::offline::cleaned;
use crate::output::{clean, plain_path};

/// The whole file.
pub(super) fn write(report: &Report) -> String {
    let mut cases: BTreeMap<Arc<str>, Vec<Diagnostic>> =
        report.files.iter().map(|file| (Arc::clone(file), Vec::new())).collect();
    // Failures of RouteTests have test cases of their own.
    for one in report.findings().into_iter().filter(|one| one.code != TEST_FAILED) {
        cases.entry(Arc::clone(&one.place.file)).or_default().push(one);
    }
    let n_failures = cases.values().filter(|found| found.iter().any(Diagnostic::is_error)).count();
    let Totals { passed, failed } = report.tested.as_ref().map(Tested::totals).unwrap_or_default();
    let all = counts(cases.len() + passed + failed, n_failures + failed);
    let counts = counts(cases.len(), n_failures);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "<testsuites name=\"{SUITE}\" {all}>");
    let _ = writeln!(text, "  <testsuite name=\"{SUITE}\" {counts} skipped=\"0\">");
    for (file, found) in &cases {
        write_case(file, found, &mut text);
    }
    text.push_str("  </testsuite>\n");
    if let Some(tested) = &report.tested {
        write_route_tests(tested, &mut text);
    }
    text.push_str("</testsuites>\n");
    text
}

fn counts(n: usize, n_failures: usize) -> String {
    format!("tests=\"{n}\" failures=\"{n_failures}\" errors=\"0\" time=\"0\"")
}

/// A suite for each RouteTest and client.
fn write_route_tests(tested: &Tested, text: &mut String) {
    let mut suites: BTreeMap<(String, String), Vec<&Case>> = BTreeMap::new();
    for case in &tested.report.cases {
        let client = case.client.map(|client| client.to_string()).unwrap_or_default();
        suites.entry((case.document.to_string(), client)).or_default().push(case);
    }
    for ((document, client), cases) in &suites {
        let n_failures = cases.iter().filter(|case| !case.is_passed()).count();
        let name = escape(&clean(&format!("{document} {client}")));
        let counts = counts(cases.len(), n_failures);
        let _ = writeln!(text, "  <testsuite name=\"{}\" {counts} skipped=\"0\">", name.trim_end());
        text.push_str("    <properties>\n");
        for one in &tested.coverage {
            let _ = writeln!(
                text,
                "      <property name=\"coverage of {}\" value=\"{}\"/>",
                escape(&clean(&one.of)),
                one.coverage
            );
        }
        text.push_str("    </properties>\n");
        for case in cases {
            write_route_test(case, name.trim_end(), text);
        }
        text.push_str("  </testsuite>\n");
    }
}

fn write_route_test(case: &Case, suite: &str, text: &mut String) {
    let test = escape(&clean(&case.name));
    let file = escape(&clean(plain_path(&case.place.file)));
    let _ = write!(text, "    <testcase classname=\"{suite}\" name=\"{test}\" file=\"{file}\" time=\"0\"");
    if case.is_passed() {
        text.push_str("/>\n");
        return;
    }
    let message = escape(&clean(&case.outcome.wrong.join("; ")));
    let explanation = xds_explain::to_text(&case.outcome.explanations, false);
    let explanation = escape(&clean_lines(&explanation));
    let _ = writeln!(text, ">");
    let _ =
        writeln!(text, "      <failure type=\"{TEST_FAILED}\" message=\"{message}\">{explanation}</failure>");
    text.push_str("    </testcase>\n");
}

/// The code of failures of RouteTests.
const TEST_FAILED: &str = "route-test-failed";

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
