//! The alert rules and recording rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Result, anyhow};
use serde::Deserialize;

use super::exported::{Exported, Metric};
use super::expressions::check;
use super::files::root;
use super::templates::names_in_templates;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    pub(crate) groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
}

/// A rule of either kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) alert: Option<String>,
    record: Option<String>,
    pub(crate) expr: String,
    r#for: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

pub(crate) fn read() -> Result<Rules> {
    let text = fs::read_to_string(root().join("monitoring/prometheus/alerts.yml"))?;
    serde_saphyr::from_str(&text).map_err(|error| anyhow!("alerts.yml: {error}"))
}

impl Rules {
    pub(crate) fn alerts(&self) -> impl Iterator<Item = (&str, &Rule)> {
        let rules = self.groups.iter().flat_map(|group| &group.rules);
        rules.filter_map(|rule| Some((rule.alert.as_deref()?, rule)))
    }

    /// Checks all rules, in the order in which Prometheus evaluates them. Returns what they record.
    pub(crate) fn check(&self, exported: &Exported, wrong: &mut Vec<String>) -> Exported {
        let mut known = Exported::default();
        known.0.extend(exported.0.iter().map(|(name, metric)| (name.clone(), metric.clone())));
        let mut names = BTreeSet::new();
        for (group, rule) in
            self.groups.iter().flat_map(|group| group.rules.iter().map(move |rule| (group, rule)))
        {
            let name = rule.alert.as_ref().or(rule.record.as_ref()).cloned().unwrap_or_default();
            if name.is_empty() || rule.alert.is_some() == rule.record.is_some() || !names.insert(name.clone())
            {
                wrong.push(format!("{}: a rule must have one name, its own: {rule:?}", group.name));
            }
            let labels = match check(&rule.expr, &known) {
                Ok(labels) => labels,
                Err(error) => {
                    wrong.push(format!("{name}: {error:#}: {}", rule.expr));
                    continue;
                }
            };
            if rule.alert.is_some() {
                rule.check_alert(&name, &labels, wrong);
            } else {
                let labels = labels.into_iter().map(|label| (label, BTreeSet::new())).collect();
                let metric = Metric { kind: "gauge".to_owned(), is_seen: true, labels, ..Metric::default() };
                known.0.insert(name, metric);
            }
        }
        known
    }
}

impl Rule {
    fn check_alert(&self, name: &str, labels: &BTreeSet<String>, wrong: &mut Vec<String>) {
        let severity = self.labels.get("severity").map(String::as_str).unwrap_or_default();
        if !["info", "warning", "critical"].contains(&severity) {
            wrong.push(format!("{name}: the severity is {severity:?}"));
        }
        let runbook = format!("docs/monitoring.md#{}", name.to_lowercase());
        if self.annotations.get("runbook_url") != Some(&runbook) {
            wrong.push(format!("{name}: its runbook_url is not {runbook}"));
        }
        for text in ["summary", "description"] {
            let Some(text) = self.annotations.get(text) else {
                wrong.push(format!("{name}: no {text}"));
                continue;
            };
            let unknown =
                names_in_templates(text, "$labels.").into_iter().find(|label| !labels.contains(label));
            if let Some(unknown) = unknown {
                wrong.push(format!("{name}: its result has no label {unknown}, but {labels:?}"));
            }
        }
        let is_duration = |text: &String| text.strip_suffix('m').is_some_and(|n| n.parse::<u32>().is_ok());
        if !self.r#for.iter().all(is_duration) {
            wrong.push(format!("{name}: `for` is not in minutes"));
        }
    }
}
