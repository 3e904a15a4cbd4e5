//! Compares where a request goes with what a test of `router_check_tool` expects.

use xds_explain::{Checked, Client, Explanation, HeaderCheck, Headers, Known};

use super::expect::RouterExpect;

/// Why a test fails, one sentence each; nothing if it passes.
pub(super) fn mismatches(expect: &RouterExpect, explanation: &Explanation, client: Client) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        let found = match &outcome.checked {
            _ if !outcome.when.is_empty() => vec![format!("depends on {}", outcome.when.join(" and "))],
            Some(checked) => compare(expect, checked, client),
            None => vec![format!("cannot be decided: {}", outcome.what)],
        };
        wrong.extend(found);
    }
    if explanation.outcomes.is_empty() {
        wrong.push("no outcome".to_owned());
    }
    wrong.dedup();
    wrong
}

fn compare(expect: &RouterExpect, checked: &Checked, client: Client) -> Vec<String> {
    let mut wrong = Vec::new();
    let virtual_host = Ok(checked.virtual_host.clone());
    let texts = [
        ("cluster_name", &expect.cluster_name, &checked.cluster),
        ("virtual_cluster_name", &expect.virtual_cluster_name, &checked.virtual_cluster),
        ("virtual_host_name", &expect.virtual_host_name, &virtual_host),
        ("host_rewrite", &expect.host_rewrite, &checked.host),
        ("path_rewrite", &expect.path_rewrite, &checked.path),
        ("path_redirect", &expect.path_redirect, &checked.redirect),
    ];
    for (field, wanted, got) in texts {
        wrong.extend(wanted.as_ref().and_then(|wanted| differs(field, wanted, got)));
    }
    if let Some(code) = expect.code_redirect.filter(|code| *code != u64::from(checked.code)) {
        wrong.push(format!("code_redirect: expected {code}, got {}", checked.code));
    }
    let matches = [
        ("request_header_matches", &expect.request_headers, &checked.request),
        ("response_header_matches", &expect.response_headers, &checked.response),
    ];
    for (field, checks, headers) in matches {
        wrong.extend(checks.iter().filter_map(|check| unmatched(field, check, headers, client)));
    }
    let fields = [
        ("request_header_fields", &expect.request_fields, &checked.request),
        ("response_header_fields", &expect.response_fields, &checked.response),
    ];
    for (field, pairs, headers) in fields {
        for (name, wanted) in pairs {
            match headers.first(name) {
                Ok(got) if got == *wanted => {}
                Ok(_) => {
                    let shown = headers.shown(name);
                    wrong.push(format!("{field}: expected {name:?} to be {wanted:?}, got {shown}"));
                }
                Err(why) => wrong.push(undecided(field, &why)),
            }
        }
    }
    wrong
}

fn differs(field: &str, wanted: &str, got: &Known) -> Option<String> {
    match got {
        Ok(got) if got == wanted => None,
        Ok(got) => Some(format!("{field}: expected {wanted:?}, got {got:?}")),
        Err(why) => Some(undecided(field, why)),
    }
}

fn unmatched(field: &str, check: &HeaderCheck, headers: &Headers, client: Client) -> Option<String> {
    match headers.matches(check, client) {
        Ok(true) => None,
        Ok(false) => {
            let (name, wanted) = (&check.name, check.wanted(client));
            Some(format!("{field}: expected {name:?} to be {wanted}, got {}", headers.shown(name)))
        }
        Err(why) => Some(undecided(field, &why)),
    }
}

fn undecided(field: &str, why: &str) -> String {
    format!("{field}: cannot be decided: {why}")
}
