//! Patterns of identities in node groups and access policies.

use xds_cache::Scalar;
use xds_cache::identity::{
    ClaimPattern, DnsPattern, InvalidPattern, MAX_PATTERN_BYTES, SpiffePattern, SubjectPattern, TokenPattern,
};

use crate::diagnostic::nearest;
use crate::document::{Entry, Node, Number, TreeValue};
use crate::finding::{Finding, Findings};
use crate::path::Path;

/// Reads the patterns of an entry: `spiffe`, `dns`, `cn` and `jwt`, in this order. Fields in `others` are left to the caller.
pub(crate) fn subjects(
    findings: &mut Findings,
    tree: Node<'_>,
    path: &Path<'_>,
    others: &[&'static str],
) -> Vec<SubjectPattern> {
    if !tree.is_object() {
        wrong(findings, "an entry such as {spiffe: \"spiffe://example.org/ns/edge/sa/*\"}", tree, path);
        return Vec::new();
    }
    let known: Vec<&'static str> = SUBJECTS.iter().chain(others).copied().collect();
    for entry in tree.entries().filter(|entry| !known.contains(&entry.key)) {
        unknown(findings, entry, path, &known);
    }
    let mut subjects = Vec::new();
    for field in SUBJECTS {
        let Some(value) = tree.get(field).filter(|value| !value.is_null()) else { continue };
        subjects.extend(subject(findings, field, value, &path.field(field)));
    }
    subjects
}

fn subject(findings: &mut Findings, field: &str, tree: Node<'_>, path: &Path<'_>) -> Option<SubjectPattern> {
    if field == "jwt" {
        return token(findings, tree, path).map(SubjectPattern::Token);
    }
    let Some(text) = tree.as_str() else {
        wrong(findings, "a string", tree, path);
        return None;
    };
    let pattern = match field {
        "spiffe" => SpiffePattern::new(text).map(SubjectPattern::Spiffe),
        "dns" => DnsPattern::new(text).map(SubjectPattern::Dns),
        _ => return name(findings, tree, path).map(SubjectPattern::CommonName),
    };
    pattern.map_err(|error: InvalidPattern| bad(findings, error.to_string(), tree, path)).ok()
}

/// Reads `{issuer: cluster, subject: …, claims: {"/kubernetes.io/pod/name": "{node}"}}`.
fn token(findings: &mut Findings, tree: Node<'_>, path: &Path<'_>) -> Option<TokenPattern> {
    if !tree.is_object() {
        wrong(findings, "an object with `issuer`, such as {issuer: cluster, subject: edge}", tree, path);
        return None;
    }
    let (mut issuer, mut subject, mut claims) = (None, None, Vec::new());
    for entry in tree.entries().filter(|entry| !entry.value.is_null()) {
        let path_here = path.field(entry.key);
        match entry.key {
            "issuer" => issuer = name(findings, entry.value, &path_here),
            "subject" => subject = name(findings, entry.value, &path_here),
            "claims" => claims = self::claims(findings, entry.value, &path_here),
            _ => unknown(findings, entry, path, &["issuer", "subject", "claims"]),
        }
    }
    if tree.get("issuer").is_none() {
        let text = "a token needs `issuer`, the name of an issuer of the access policy";
        findings.push(Finding::error("missing-field", path, text).at(tree.position()));
    }
    Some(TokenPattern { issuer: issuer?, subject, claims })
}

fn claims(findings: &mut Findings, tree: Node<'_>, path: &Path<'_>) -> Vec<(Box<str>, ClaimPattern)> {
    let TreeValue::Object(entries) = tree.value() else {
        wrong(findings, "an object of JSON pointers and values", tree, path);
        return Vec::new();
    };
    if entries.len() > MAX_CLAIMS {
        let text = format!("{} claims, at most {MAX_CLAIMS} are allowed", entries.len());
        bad(findings, text, tree, path);
        return Vec::new();
    }
    let mut claims = Vec::new();
    for entry in entries {
        let path = path.key(entry.key);
        if !entry.key.starts_with('/') || entry.key.len() > MAX_PATTERN_BYTES {
            let text = "a claim is named by a JSON pointer, such as /sub or /kubernetes.io/pod/name";
            bad(findings, text.to_owned(), entry.value, &path);
            continue;
        }
        match entry.value.value() {
            TreeValue::String("{node}") => claims.push((entry.key.into(), ClaimPattern::NodeId)),
            TreeValue::String(text) if text.contains(['{', '}']) => {
                let text = "only {node} can be in braces, for the id that the node claims, and it must be the whole value";
                bad(findings, text.to_owned(), entry.value, &path);
            }
            TreeValue::Null
            | TreeValue::Bool(_)
            | TreeValue::Number(_)
            | TreeValue::String(_)
            | TreeValue::List(_)
            | TreeValue::Object(_) => match scalar(entry.value) {
                Some(value) => claims.push((entry.key.into(), ClaimPattern::Exactly(value))),
                None => wrong(findings, "a string, a number or a bool", entry.value, &path),
            },
        }
    }
    claims
}

/// Reads a value that can be compared: a string, a number or a bool; `None` for anything else.
pub(crate) fn scalar(tree: Node<'_>) -> Option<Scalar> {
    match tree.value() {
        TreeValue::String(text) => Some(Scalar::String(text.to_owned())),
        TreeValue::Bool(truth) => Some(Scalar::Bool(truth)),
        TreeValue::Number(Number::Integer(integer)) => Some(Scalar::Number(integer as f64)),
        TreeValue::Number(Number::Float(float)) => Some(Scalar::Number(float)),
        TreeValue::Null | TreeValue::List(_) | TreeValue::Object(_) => None,
    }
}

/// Reads a name that is compared literally.
fn name(findings: &mut Findings, tree: Node<'_>, path: &Path<'_>) -> Option<Box<str>> {
    let Some(text) = tree.as_str() else {
        wrong(findings, "a string", tree, path);
        return None;
    };
    if text.is_empty() || text.len() > MAX_PATTERN_BYTES || text.contains('*') {
        let text = format!(
            "expected 1 to {MAX_PATTERN_BYTES} bytes without `*`, because this name is not a pattern"
        );
        bad(findings, text, tree, path);
        return None;
    }
    Some(text.into())
}

fn bad(findings: &mut Findings, message: String, tree: Node<'_>, path: &Path<'_>) {
    findings.push(Finding::error("bad-identity", path, message).at(tree.position()));
}

fn wrong(findings: &mut Findings, expected: &str, tree: Node<'_>, path: &Path<'_>) {
    let text = format!("expected {expected}, found {}", tree.kind());
    findings.push(Finding::error("wrong-type", path, text).at(tree.position()));
}

fn unknown(findings: &mut Findings, entry: Entry<'_>, path: &Path<'_>, known: &[&'static str]) {
    let key: String = entry.key.chars().take(80).collect();
    let finding = Finding::error("unknown-field", &path.field(&key), "unknown field of an identity");
    findings.push(finding.at(entry.position).suggest(nearest(&key, known.iter().copied())));
}

const SUBJECTS: [&str; 4] = ["spiffe", "dns", "cn", "jwt"];

/// The limit of claims in one entry. A token has few.
const MAX_CLAIMS: usize = 32;
