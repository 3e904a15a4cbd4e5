//! The alert rules and the documented configuration, as Prometheus's own tool reads them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tempfile::TempDir;
use xds_tests::prometheus::promtool;

use super::files::root;
use super::rules;

/// `alerts_test.yml`, as far as it is looked at here.
#[derive(Debug, Deserialize)]
struct Tests {
    group_eval_order: Vec<String>,
    tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
struct Test {
    name: String,
    input_series: Vec<Series>,
    alert_rule_test: Vec<Expected>,
}

#[derive(Debug, Deserialize)]
struct Series {
    series: String,
}

#[derive(Debug, Deserialize)]
struct Expected {
    alertname: String,
    exp_alerts: Vec<IgnoredAny>,
}

#[test]
fn the_alert_rules_have_no_faults() -> Result<()> {
    let dir = root().join("monitoring/prometheus");
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"], &dir).map(drop)
}

#[test]
fn each_alert_fires_for_what_is_ill_and_not_for_what_is_well() -> Result<()> {
    let dir = root().join("monitoring/prometheus");
    let text = fs::read_to_string(dir.join("alerts_test.yml"))?;
    let tests: Tests = serde_saphyr::from_str(&text).map_err(|error| anyhow!("alerts_test.yml: {error}"))?;
    let rules = rules::read()?;
    let groups: Vec<&str> = rules.groups.iter().map(|group| group.name.as_str()).collect();
    ensure!(tests.group_eval_order == groups, "groups that are not listed come at any time: {groups:?}");
    let tests: BTreeMap<&str, &Test> = tests.tests.iter().map(|test| (test.name.as_str(), test)).collect();
    for (alert, _) in rules.alerts() {
        let test = tests.get(alert).with_context(|| format!("alerts_test.yml has no test of {alert}"))?;
        let (firing, silent): (Vec<_>, Vec<_>) =
            test.alert_rule_test.iter().partition(|expected| !expected.exp_alerts.is_empty());
        ensure!(
            !firing.is_empty() && !silent.is_empty(),
            "{alert} must fire at one time, and not at another"
        );
        ensure!(test.alert_rule_test.iter().all(|expected| expected.alertname == alert), "{alert}: {test:?}");
        let is_well = |series: &Series| series.series.contains("=\"well");
        ensure!(test.input_series.iter().any(is_well), "{alert}: there are no series of what is well");
    }
    promtool(&["test", "rules", "alerts_test.yml"], &dir).map(drop)
}

#[test]
fn prometheus_takes_the_documented_configurations() -> Result<()> {
    let alerts = fs::read(root().join("monitoring/prometheus/alerts.yml"))?;
    for (page, rules) in [
        ("docs/monitoring.md", "alerts.yml"),
        ("docs/guides/from-a-fresh-machine-to-production.md", "xds-server.yml"),
    ] {
        let text = fs::read_to_string(root().join(page))?;
        let mut blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let config = blocks.find(|block| block.contains("scrape_configs:"));
        let dir = TempDir::new()?;
        fs::write(dir.path().join("prometheus.yml"), config.with_context(|| page.to_owned())?)?;
        fs::write(dir.path().join(rules), &alerts)?;
        promtool(&["check", "config", "prometheus.yml"], dir.path()).context(page)?;
    }
    Ok(())
}
