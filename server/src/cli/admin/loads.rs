//! `loads`: what clients report of the requests that they send.

use serde_json::Value;

use super::{AdminArgs, segment};
use crate::cli::Failure;
use crate::cli::output::{Form, Table, cell, print, print_json};

/// The flags of `loads`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadsArgs {
    /// Only this cluster, with its localities and the nodes that report it
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Only what this node reports
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Only reports of the time since: how long ago, such as 90s or 5m, or an RFC 3339 time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn loads(args: &LoadsArgs) -> Result<(), Failure> {
    let filters = [("cluster", &args.cluster), ("node", &args.node), ("since", &args.since)];
    let filters =
        filters.iter().filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))));
    let filters = filters.collect::<Vec<_>>().join("&");
    let loads = args.admin.connect()?.get(&format!("/v1/loads?{filters}"))?;
    match Form::or_default(args.admin.output) {
        Form::Json => print_json(&loads),
        Form::Table if args.cluster.is_some() => print(&in_full(&loads)),
        Form::Table => print(&list(&loads)),
    }
}

fn list(loads: &Value) -> String {
    let mut table =
        Table::new(&["CLUSTER", "NODES", "ISSUED", "ERRORS", "ERROR RATE", "RATE", "DROPPED", "LAST REPORT"]);
    for cluster in entries(loads, "clusters") {
        let [issued, errors, error_rate, rate] = numbers(cluster);
        let (nodes, dropped) = (cell(&cluster["nodes"]), cell(&cluster["dropped"]));
        let (name, last_report) = (cell(&cluster["name"]), cell(&cluster["lastReport"]));
        table.push(vec![name, nodes, issued, errors, error_rate, rate, dropped, last_report]);
    }
    table.render()
}

fn in_full(loads: &Value) -> String {
    let mut localities = Table::new(&[
        "CLUSTER",
        "PRIORITY",
        "LOCALITY",
        "ISSUED",
        "ERRORS",
        "ERROR RATE",
        "RATE",
        "IN PROGRESS",
    ]);
    let mut nodes = Table::new(&["CLUSTER", "NODE", "GROUPS", "ISSUED", "ERRORS", "LAST REPORT"]);
    for cluster in entries(loads, "clusters") {
        for locality in entries(cluster, "localities") {
            let [issued, errors, error_rate, rate] = numbers(locality);
            let parts = ["region", "zone", "subZone"].map(|part| cell(&locality[part]));
            let parts = parts.join("/").trim_end_matches('/').to_owned();
            let place = if parts.is_empty() { "-".to_owned() } else { parts };
            let (priority, in_progress) = (cell(&locality["priority"]), cell(&locality["inProgress"]));
            localities.push(vec![
                cell(&cluster["name"]),
                priority,
                place,
                issued,
                errors,
                error_rate,
                rate,
                in_progress,
            ]);
        }
        for node in entries(cluster, "reporters") {
            let columns =
                ["node", "groups", "issued", "errors", "lastReport"].map(|column| cell(&node[column]));
            nodes.push([cell(&cluster["name"])].into_iter().chain(columns).collect());
        }
    }
    format!("{}\n{}", localities.render(), nodes.render())
}

/// Issued, errors, error rate and requests per second.
fn numbers(load: &Value) -> [String; 4] {
    let error_rate =
        load["errorRate"].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{:.2}%", rate * 100.0));
    let rate = load["rate"].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"));
    [cell(&load["issued"]), cell(&load["errors"]), error_rate, rate]
}

fn entries<'v>(value: &'v Value, list: &str) -> &'v [Value] {
    value[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({"clusters": [{
            "name": "default/v1", "nodes": 2, "issued": 80, "errors": 20, "errorRate": 0.25, "rate": 8.04, "dropped": 1,
            "lastReport": "2026-11-20T12:20:44.123Z",
            "localities": [
                {"region": "here", "zone": "a", "subZone": "", "priority": 0, "issued": 80, "errors": 20, "errorRate": 0.25,
                 "rate": 8.04, "inProgress": 3},
                {"region": "", "zone": "", "subZone": "", "priority": 1, "issued": 0, "errors": 0, "errorRate": null,
                 "rate": 0.0, "inProgress": 0},
            ],
            "reporters": [{"node": "edge-1", "groups": ["edge", "default"], "issued": 80, "errors": 20,
                           "lastReport": "2026-11-20T12:20:44.123Z"}],
        }]})
    }

    #[test]
    fn a_cluster_is_one_row() {
        assert_eq!(
            list(&answer()),
            "CLUSTER     NODES  ISSUED  ERRORS  ERROR RATE  RATE   DROPPED  LAST REPORT\n\
             default/v1  2      80      20      25.00%      8.0/s  1        2026-11-20T12:20:44.123Z\n"
        );
    }

    #[test]
    fn one_cluster_is_shown_with_its_localities_and_nodes() {
        assert_eq!(
            in_full(&answer()),
            "CLUSTER     PRIORITY  LOCALITY  ISSUED  ERRORS  ERROR RATE  RATE   IN PROGRESS\n\
             default/v1  0         here/a    80      20      25.00%      8.0/s  3\n\
             default/v1  1         -         0       0       -           0.0/s  0\n\
             \n\
             CLUSTER     NODE    GROUPS        ISSUED  ERRORS  LAST REPORT\n\
             default/v1  edge-1  edge,default  80      20      2026-11-20T12:20:44.123Z\n"
        );
    }
}
