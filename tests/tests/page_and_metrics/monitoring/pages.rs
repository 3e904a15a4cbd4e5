//! The dashboards, and the page about monitoring.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::exported::Exported;
use super::expressions::check;
use super::rules::Rules;
use super::templates::names_in_templates;

/// Checks the expressions of a dashboard, the labels of its legends, and the queries of its variables.
pub(crate) fn check_dashboard(
    name: &str,
    dashboard: &Value,
    (exported, recorded): (&Exported, &Exported),
    wrong: &mut Vec<String>,
) {
    let mut targets = Vec::new();
    collect(dashboard, "expr", &mut targets);
    if targets.len() < 10 {
        wrong.push(format!("{name}: only {} expressions", targets.len()));
    }
    for target in targets {
        let expression = target["expr"].as_str().unwrap_or_default();
        match check(expression, recorded) {
            Err(error) => wrong.push(format!("{name}: {error:#}: {expression}")),
            Ok(labels) => {
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                let unknown =
                    names_in_templates(legend, "").into_iter().find(|label| !labels.contains(label));
                if let Some(unknown) = unknown {
                    wrong.push(format!("{name}: {expression} has no label {unknown} for its legend"));
                }
            }
        }
    }
    let variables = dashboard["templating"]["list"].as_array().into_iter().flatten();
    for variable in variables.filter(|variable| variable["type"] == "query") {
        let query = variable["definition"].as_str().unwrap_or_default();
        let parts = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let known = parts
            .and_then(|parts| parts.rsplit_once(", "))
            .map(|(selector, label)| check(selector, exported).is_ok_and(|labels| labels.contains(label)));
        if known != Some(true) || variable["query"]["query"] != query {
            wrong.push(format!("{name}: the query {query}"));
        }
    }
}

/// All objects in a value that have this field.
pub(crate) fn collect<'a>(value: &'a Value, field: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(field) {
                found.push(value);
            }
            fields.values().for_each(|value| collect(value, field, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Checks that the table of metrics of the page is what servers export: names, types and labels.
pub(crate) fn check_reference(page: &str, exported: &Exported, wrong: &mut Vec<String>) {
    let documented: BTreeMap<&str, [&str; 2]> = page.lines().filter_map(row).collect();
    for (name, metric) in &exported.0 {
        let Some([kind, labels]) = documented.get(name.as_str()) else {
            wrong.push(format!("docs/monitoring.md does not name {name}"));
            continue;
        };
        let labels: BTreeSet<&str> = labels.split(", ").filter(|label| !label.is_empty()).collect();
        let has: BTreeSet<&str> = metric.labels.keys().map(String::as_str).collect();
        if *kind != metric.kind {
            wrong.push(format!("docs/monitoring.md: {name} is a {}", metric.kind));
        }
        if !metric.is_seen {
            wrong.push(format!("no server shows a sample of {name}"));
        }
        if metric.kind == "histogram" && !metric.bounds.contains("+Inf") {
            wrong.push(format!("{name} has no bucket for everything: {:?}", metric.bounds));
        }
        if labels != has {
            wrong.push(format!("docs/monitoring.md: {name} has the labels {has:?}"));
        }
    }
    let unknown = documented.keys().filter(|name| !exported.0.contains_key(**name));
    wrong.extend(unknown.map(|name| format!("docs/monitoring.md: there is no metric {name}")));
}

/// A row of a table of metrics: name, type and labels.
fn row(line: &str) -> Option<(&str, [&str; 2])> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let name = cells.next()?.strip_suffix('`')?;
    let (kind, labels) = (cells.next()?, cells.next()?.trim_matches('`'));
    ["counter", "gauge", "histogram"].contains(&kind).then_some((name, [kind, labels]))
}

/// Checks that each alert has a section in the page, and each such section an alert.
pub(crate) fn check_alerts(page: &str, rules: &Rules, wrong: &mut Vec<String>) {
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### Xds")).collect();
    let alerts: BTreeSet<&str> = rules.alerts().filter_map(|(name, _)| name.strip_prefix("Xds")).collect();
    for one in sections.symmetric_difference(&alerts) {
        wrong.push(format!("Xds{one} is only one of a section of docs/monitoring.md and an alert"));
    }
    if alerts.len() != rules.alerts().count() {
        wrong.push("an alert without the prefix Xds".to_owned());
    }
}
