//! `monitoring/` and docs/monitoring.md against what real servers export: a metric or a label that is renamed fails here.

mod exported;
mod expressions;
mod files;
mod fleet;
mod pages;
mod promtool;
mod rules;
mod scraped;
mod templates;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use exported::Exported;
use files::root;
use tempfile::TempDir;
use xds_tests::tools;

/// Checks everything at once, because it takes six servers to have every metric.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_rules_and_documentation_name_what_servers_export() -> Result<()> {
    let Some(exported) = exported::all().await? else { return Ok(()) };
    let mut wrong = Vec::new();
    let rules = rules::read()?;
    let recorded = rules.check(&exported, &mut wrong);
    for path in dashboards()? {
        let dashboard = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        pages::check_dashboard(&name, &dashboard, (&exported, &recorded), &mut wrong);
    }
    let page = fs::read_to_string(root().join("docs/monitoring.md"))?;
    pages::check_reference(&page, &exported, &mut wrong);
    pages::check_alerts(&page, &rules, &mut wrong);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Grafana drops what it does not know, without a word.
#[tokio::test]
async fn dashboards_fit_the_schemas_of_grafana() -> Result<()> {
    let Some(program) = tools::grafana_check().await? else { return Ok(()) };
    let dashboards = dashboards()?;
    tools::run(Command::new(&program).args(&dashboards))?;
    let dir = TempDir::new()?;
    for (field, other, why) in [
        ("\"showLegend\":", "\"showsLegend\":", "unexpected field 'showsLegend'"),
        ("\"schemaVersion\": 39", "\"schemaVersion\": \"x\"", "schemaVersion"),
        ("\"legendFormat\":", "\"legend\":", "unexpected field 'legend'"),
    ] {
        let wrong = dir.path().join("wrong.json");
        fs::write(
            &wrong,
            fs::read_to_string(root().join("monitoring/grafana/fleet.json"))?.replace(field, other),
        )?;
        let refused = tools::run(Command::new(&program).arg(&wrong)).err().context(why)?.to_string();
        ensure!(refused.contains(why), "{refused}");
    }
    Ok(())
}

/// The checks themselves, against an export that is written down: they must find what is wrong.
#[test]
fn a_metric_a_label_and_a_value_that_do_not_exist_are_found() -> Result<()> {
    let exported = Exported::read(
        "# TYPE xds_nacks counter\nxds_nacks_total{type=\"clusters\"} 0\n\
         # TYPE lag_seconds histogram\nlag_seconds_bucket{le=\"1\",share=\"50\"} 0\nlag_seconds_count{share=\"50\"} 0\n",
    )?;
    for good in [
        "sum by (type) (rate(xds_nacks_total{type=\"clusters\"}[5m]))",
        "histogram_quantile(0.9, sum by (le, share) (rate(lag_seconds_bucket[5m]))) > 3",
        "sum by (job) (xds_nacks_total) / sum by (job) (xds_nacks_total offset 5m)",
        "xds_nacks_total unless on (job, instance) lag_seconds_count",
    ] {
        expressions::check(good, &exported).with_context(|| good.to_owned())?;
    }
    for (bad, why) in [
        ("rate(xds_nacked_total[5m])", "no metric"),
        ("xds_nacks", "no metric"),
        ("lag_seconds", "no metric"),
        ("xds_nacks_total{kind=\"x\"}", "no label kind"),
        ("xds_nacks_total{type=\"cluster\"}", "no value"),
        ("xds_nacks_total{type=~\"clusters|route\"}", "no value"),
        ("sum by (kind) (xds_nacks_total)", "no label kind"),
        ("sum by (job) (xds_nacks_total) / xds_nacks_total", "different labels"),
        ("histogram_quantile(0.9, sum by (share) (rate(lag_seconds_bucket[5m])))", "no label le"),
        ("sum(", "not PromQL"),
    ] {
        let found = expressions::check(bad, &exported).map(|labels| format!("{labels:?}"));
        let error = found.err().with_context(|| format!("{bad} passes"))?;
        ensure!(format!("{error:#}").contains(why), "{bad}: {error:#}");
    }
    Ok(())
}

pub(crate) fn dashboards() -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(root().join("monitoring/grafana"))?;
    let mut paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    ensure!(paths.len() > 2, "{paths:?}");
    Ok(paths)
}
