//! SARIF 2.1.0, as code scanning of GitHub, GitLab and Azure DevOps takes it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use xds_codec::{Diagnostic, Place, Severity};

use super::report::{Report, sentence};
use crate::output::plain_path;

/// A run with a result for each finding; each code is a rule.
pub(super) fn write(report: &Report) -> Value {
    let findings = report.findings();
    let codes: BTreeSet<&str> = findings.iter().map(|one| one.code).collect();
    let codes: Vec<&str> = codes.into_iter().collect();
    let rule = |code: &&str| json!({"id": code, "shortDescription": {"text": code.replace('-', " ")}});
    let results: Vec<Value> = findings.iter().map(|one| result(one, &codes)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "xds-server",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(one: &Diagnostic, codes: &[&str]) -> Value {
    let level = match one.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    };
    let mut result = json!({"ruleId": one.code, "level": level, "message": {"text": sentence(one)}});
    if let Ok(index) = codes.binary_search(&one.code) {
        result["ruleIndex"] = index.into();
    }
    if let Some(location) = location(&one.place) {
        result["locations"] = json!([location]);
    }
    let related: Vec<Value> = one.related.iter().filter_map(location).collect();
    if !related.is_empty() {
        result["relatedLocations"] = related.into();
    }
    result
}

/// `None` if it is in no file.
fn location(place: &Place) -> Option<Value> {
    if place.file.is_empty() {
        return None;
    }
    let mut location = json!({"artifactLocation": {"uri": uri(plain_path(&place.file))}});
    if place.line > 0 {
        location["region"] = json!({"startLine": place.line, "startColumn": place.column.max(1)});
    }
    Some(json!({"physicalLocation": location}))
}

/// A path as a URI, relative if the path is.
fn uri(path: &str) -> String {
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("a/b c:1.yaml"), "a/b%20c%3A1.yaml");
        assert_eq!(uri("/x/ä.yaml"), "file:///x/%C3%A4.yaml");
        assert_eq!(uri("<stdin>"), "%3Cstdin%3E");
    }
}
