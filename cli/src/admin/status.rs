//! `status`: the readiness of the server, and the state of its files, route documents and clients.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::advice::for_shell;
use super::conditions;
use super::connection::AdminArgs;
use super::nodes::all_nodes;
use crate::failure::Failure;
use crate::output::{Table, cell, clean, items, one_line, print_in};

/// The flags of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

const EXIT_CODES: &str = "Exit codes: 0 ready, 1 not ready, 2 wrong command line, 3 cannot reach the server";

/// Fails with exit code 1 if the server is not ready.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    let ready = admin.get_any("/readyz")?;
    let files = admin.get_pages("/v1/status/files", "files")?;
    // Before the first load there are none.
    let conditions = admin.get_pages("/v1/conditions", "objects").unwrap_or_default();
    let nodes = all_nodes(&admin, "")?;
    let is_ready = (200..300).contains(&ready.status);
    let status = json!({
        "ready": is_ready,
        "readiness": ready.body,
        "served": files["served"],
        "files": files["files"],
        "held": files["held"],
        "problems": files["problems"],
        "objects": conditions["objects"],
        "nodes": nodes,
    });
    print_in(args.admin.output, &status, || render(&status))?;
    if is_ready {
        Ok(())
    } else {
        Err(Failure::Failed(format!("the server is not ready{}", reasons(&status))))
    }
}

fn reasons(status: &Value) -> String {
    let errors = items(&status["readiness"]["errors"]);
    let reasons = errors.map(|error| clean(&cell(&error["detail"]))).collect::<Vec<_>>();
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}

fn render(status: &Value) -> String {
    let mut text = format!("ready: {}\n", if status["ready"] == true { "yes" } else { "no" });
    for problem in items(&status["problems"]) {
        text.push_str(&format!("problem: {}\n", one_line(&for_shell(&cell(problem)))));
    }
    for refused in items(&status["readiness"]["refused"]) {
        let [reason, count, last_at, limit] =
            ["reason", "count", "lastAt", "limit"].map(|key| clean(&cell(&refused[key])));
        text.push_str(&format!("refused: {reason}, {count} times, last at {last_at} (limit: {limit})\n"));
    }
    let mut files = Table::new(&["FILE", "OBJECTS", "ERRORS", "WARNINGS", "SERVED"]);
    let mut diagnostics = Vec::new();
    for file in items(&status["files"]) {
        let found = file["diagnostics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let count =
            |severity: &str| found.iter().filter(|one| one["severity"] == severity).count().to_string();
        let is_old =
            file["lastGood"] == true || items(&file["objects"]).any(|object| object["lastGood"] == true);
        let n_objects = file["objects"].as_array().map_or(0, Vec::len).to_string();
        let served = match (&status["served"], is_old) {
            (Value::String(load), _) if load == "none" => "nothing",
            (Value::String(load), _) if load == "earlier" => "earlier",
            (_, true) => "last good",
            (_, false) => "current",
        };
        files.push(vec![cell(&file["path"]), n_objects, count("error"), count("warning"), served.to_owned()]);
        // A change may be on its way to everyone too: who looks for it here should find it.
        let is_wave = |one: &Value| one["code"].as_str().is_some_and(|code| code.starts_with("wave-"));
        for one in found {
            // Errors first, whichever file they are in.
            let (rank, said) = match one["severity"].as_str() {
                Some("error") => (0, ""),
                Some("warning") => (1, "warning: "),
                _ if is_wave(one) => (1, ""),
                _ => continue,
            };
            let place = format!("{}:{}:{}", cell(&file["path"]), cell(&one["line"]), cell(&one["column"]));
            let message = for_shell(&one.get("detail").map(cell).unwrap_or_default());
            diagnostics.push((rank, format!("{}: {said}{}\n", one_line(&place), one_line(&message))));
        }
    }
    diagnostics.sort_by_key(|(rank, _)| *rank);
    let diagnostics = diagnostics.into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    text.push_str(&format!("\n{}{}", files.render(), bounded(&diagnostics)));
    text.push_str(&objects(status));
    text.push_str(&format!("\n{}{}", nodes_by_status(status), nacks(status)));
    text
}

/// The clients that reject what they are sent, and their words.
fn nacks(status: &Value) -> String {
    let mut lines = Vec::new();
    for node in items(&status["nodes"]) {
        let types = node["types"].as_object().into_iter().flatten();
        for (url, of_type) in types.filter(|(_, of_type)| of_type["status"] == "ERROR") {
            let name = url.rsplit('.').next().unwrap_or(url);
            let (id, said) = (one_line(&cell(&node["id"])), one_line(&cell(&of_type["lastNack"]["message"])));
            lines.push(format!("{id} rejects {}: {said}\n", one_line(name)));
        }
    }
    bounded(&lines)
}

/// The first lines, and how many there are besides.
fn bounded(lines: &[String]) -> String {
    let shown = lines.iter().take(MAX_LINES).map(String::as_str).collect::<String>();
    match lines.len().saturating_sub(MAX_LINES) {
        0 => shown,
        more => format!("{shown}… and {more} more, see --output json\n"),
    }
}

/// How many objects of route documents there are, and the conditions of those that are not fine; nothing without any.
fn objects(status: &Value) -> String {
    let n_objects = status["objects"].as_array().map_or(0, Vec::len);
    if n_objects == 0 {
        return String::new();
    }
    let rows = conditions::rows(&status["objects"]);
    let unmet: Vec<&conditions::Row> = rows.iter().filter(|row| !row.is_fine).collect();
    let n_unmet = unmet.iter().map(|row| row.object()).collect::<BTreeSet<_>>().len();
    let n_fine = n_objects.saturating_sub(n_unmet);
    let mut text = format!("\nobjects: {n_objects} ({n_fine} fine, {n_unmet} not)\n");
    if n_unmet > 0 {
        text.push_str(&conditions::table(unmet).render());
    }
    text
}

fn nodes_by_status(status: &Value) -> String {
    let nodes = status["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let types = node["types"].as_object().into_iter().flatten();
        let statuses: Vec<String> = types.map(|(_, status)| cell(&status["status"])).collect();
        let worst = ["ERROR", "STALE", "NOT_SENT", "SYNCED"]
            .into_iter()
            .find(|known| statuses.iter().any(|status| status == known));
        let kind = if node["unmatched"] == true { "unmatched" } else { worst.unwrap_or("no subscription") };
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
    format!("nodes: {}{counts}\n", nodes.len())
}

/// How many diagnostics, and how many NACKs, are shown.
const MAX_LINES: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nacks_and_warnings_are_lines_of_their_own_and_bounded() {
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        let types = json!({url: {"status": "ERROR", "lastNack": {"message": "no\n\u{1b}[2Jfilter"}}});
        let node = |n: usize| json!({"id": format!("edge-{n}\u{7}"), "types": types});
        let warning = json!({"severity": "warning", "line": 3, "column": 1, "detail": "deprecated"});
        let error = json!({"severity": "error", "line": 4, "column": 1, "detail": "x".repeat(1_000)});
        let mut status = json!({"nodes": [node(1)],
            "files": [{"path": "a.yaml", "diagnostics": [warning]}, {"path": "b.yaml", "diagnostics": [error]}]});
        let text = render(&status);
        assert!(
            text.ends_with("nodes: 1 (1 ERROR)\nedge-1\\u{7} rejects Listener: no\\n\\u{1b}[2Jfilter\n"),
            "{text}"
        );
        let long = "x".repeat(300);
        assert!(
            text.contains(&format!("\nb.yaml:4:1: {long}…\na.yaml:3:1: warning: deprecated\n")),
            "{text}"
        );
        status["nodes"] = (0..MAX_LINES + 7).map(node).collect();
        let text = render(&status);
        assert!(text.ends_with("… and 7 more, see --output json\n"), "{text}");
        assert_eq!(text.matches(" rejects ").count(), MAX_LINES);
    }

    #[test]
    fn objects_that_are_not_fine_are_shown_with_their_conditions() {
        assert_eq!(objects(&json!({"objects": []})), "");
        let object = |name: &str, status: &str| {
            let condition = json!({"type": "Accepted", "status": status, "reason": "R", "message": "m"});
            json!({"kind": "TrafficSplit", "namespace": "n", "name": name, "conditions": [condition]})
        };
        let status = json!({"objects": [object("a", "True"), object("b", "False")]});
        assert_eq!(
            objects(&status),
            "\nobjects: 2 (1 fine, 1 not)\n\
             OBJECT            OF  CONDITION  STATUS  REASON  MESSAGE\n\
             TrafficSplit n/b      Accepted   False   R       m\n"
        );
    }

    #[test]
    fn the_summary_names_every_error() {
        let status = json!({
            "ready": true,
            "readiness": {"refused": [{"reason": "names", "count": 2, "lastAt": "noon", "limit": "--max-names-per-type"}]},
            "problems": ["slow disk \"a\"", "b\u{1b}[31m\\n"],
            "files": [{"path": "a.yaml", "objects": [{"lastGood": true}], "diagnostics": [
                {"severity": "error", "line": 2, "column": 3, "detail": "unknown field \"it's\""},
                {"severity": "info", "code": "wave-under-way", "line": 4, "column": 1, "detail": "10% have it"},
                {"severity": "info", "code": "unsupported-kind", "line": 9, "column": 1, "detail": "left out"},
            ]}],
            "nodes": [{"types": {"x": {"status": "SYNCED"}}}, {"unmatched": true}],
        });
        assert_eq!(
            render(&status),
            "ready: yes\nproblem: slow disk \"a\"\n\
             problem: b\\u{1b}[31m\\n\nrefused: names, 2 times, last at noon (limit: --max-names-per-type)\n\nFILE    OBJECTS  ERRORS  WARNINGS  SERVED\na.yaml  1        1       0         last good\n\
             a.yaml:2:3: unknown field \"it's\"\na.yaml:4:1: 10% have it\n\nnodes: 2 (1 SYNCED, 1 unmatched)\n"
        );
    }
}
