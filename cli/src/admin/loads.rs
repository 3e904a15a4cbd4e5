//! `loads`: the load reports of clients.

use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{Table, cell, print_in, print_list};

/// The flags of `loads`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadsArgs {
    /// Only this cluster, with its localities and the nodes that report it
    #[arg(value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Only reports of this node
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Only reports since this time: a duration such as 90s or 5m, or an RFC 3339 time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only clients of this server, where several share a store and ask each other
    #[arg(long, value_name = "ID")]
    replica: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn loads(args: &LoadsArgs) -> Result<(), Failure> {
    let filters = [
        ("cluster", &args.cluster),
        ("node", &args.node),
        ("since", &args.since),
        ("replica", &args.replica),
    ];
    let filters =
        filters.iter().filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))));
    let filters = filters.collect::<Vec<_>>().join("&");
    let loads = args.admin.connect()?.get_pages(&format!("/v1/loads?{filters}"), "clusters")?;
    match &args.cluster {
        Some(_) => print_in(args.admin.output, &loads, || in_full(&loads)),
        None => print_list(args.admin.output, &loads, || list(&loads)),
    }
}

fn list(loads: &Value) -> Table {
    let head = [&["CLUSTER", "NODES"], &NUMBERS[..], &["DROPPED", "LAST REPORT"]].concat();
    let mut table = Table::new_wide(&head, &["ISSUED", "LOCALITIES"]).noted(LEGEND.to_owned());
    for cluster in entries(loads, "clusters") {
        let (nodes, dropped) = (cell(&cluster["nodes"]), cell(&cluster["dropped"]));
        let (name, last_report) = (cell(&cluster["name"]), cell(&cluster["lastReport"]));
        let issued = vec![cell(&cluster["issued"]), entries(cluster, "localities").len().to_string()];
        table.push([vec![name, nodes], numbers(cluster), vec![dropped, last_report], issued].concat());
    }
    table
}

fn in_full(loads: &Value) -> String {
    let mut localities = Table::new(&[&["CLUSTER", "PRIORITY", "LOCALITY"], &NUMBERS[..]].concat());
    let mut nodes = Table::new(&["CLUSTER", "NODE", "GROUPS", "REQUESTS", "OK", "FAILED", "LAST REPORT"]);
    for cluster in entries(loads, "clusters") {
        for locality in entries(cluster, "localities") {
            let parts = ["region", "zone", "subZone"].map(|part| cell(&locality[part]));
            let parts = parts.join("/").trim_end_matches('/').to_owned();
            let place = if parts.is_empty() { "-".to_owned() } else { parts };
            let row = vec![cell(&cluster["name"]), cell(&locality["priority"]), place];
            localities.push([row, numbers(locality)].concat());
        }
        for node in entries(cluster, "reporters") {
            let [name, id, groups] = [&cluster["name"], &node["node"], &node["groups"]].map(cell);
            let [ok, failed, last_report] =
                ["successful", "errors", "lastReport"].map(|key| cell(&node[key]));
            nodes.push(vec![name, id, groups, ended(node), ok, failed, last_report]);
        }
    }
    format!("{}\n{}{LEGEND}", localities.render(), nodes.render())
}

/// The cells below [`NUMBERS`].
fn numbers(load: &Value) -> Vec<String> {
    let error_rate =
        load["errorRate"].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{:.2}%", rate * 100.0));
    let rate = load["rate"].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"));
    let [ok, failed, in_flight] = ["successful", "errors", "inProgress"].map(|key| cell(&load[key]));
    vec![ended(load), ok, failed, error_rate, in_flight, rate]
}

/// The requests that have ended: what clients say they have issued includes some that have not, and excludes others.
fn ended(load: &Value) -> String {
    let of = |key: &str| load[key].as_u64().unwrap_or_default();
    of("successful").saturating_add(of("errors")).to_string()
}

/// The columns of requests.
const NUMBERS: [&str; 6] = ["REQUESTS", "OK", "FAILED", "FAILED %", "IN FLIGHT", "RATE"];
/// The meaning of the columns.
const LEGEND: &str = "REQUESTS counts finished requests, OK and FAILED together. It does not include IN FLIGHT, as of the last reports, or DROPPED.\n";

fn entries<'v>(value: &'v Value, list: &str) -> &'v [Value] {
    value[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({"clusters": [{
            "name": "default/v1", "nodes": 2, "issued": 83, "successful": 60, "errors": 20, "inProgress": 3, "errorRate": 0.25, "rate": 8.04, "dropped": 1,
            "lastReport": "2026-11-20T12:20:44.123Z",
            "localities": [
                {"region": "here", "zone": "a", "subZone": "", "priority": 0, "issued": 83, "successful": 60, "errors": 20, "errorRate": 0.25,
                 "rate": 8.04, "inProgress": 3},
                {"region": "", "zone": "", "subZone": "", "priority": 1, "issued": 0, "successful": 0, "errors": 0, "errorRate": null,
                 "rate": 0.0, "inProgress": 0},
            ],
            "reporters": [{"node": "edge-1", "groups": ["edge", "default"], "issued": 83, "successful": 60, "errors": 20,
                           "lastReport": "2026-11-20T12:20:44.123Z"}],
        }]})
    }

    #[test]
    fn a_cluster_is_one_row() {
        assert_eq!(
            list(&answer()).render(),
            "CLUSTER     NODES  REQUESTS  OK  FAILED  FAILED %  IN FLIGHT  RATE   DROPPED  LAST REPORT\n\
             default/v1  2      80        60  20      25.00%    3          8.0/s  1        2026-11-20T12:20:44.123Z\n\
             REQUESTS counts finished requests, OK and FAILED together. It does not include IN FLIGHT, as of the last reports, or DROPPED.\n"
        );
    }

    #[test]
    fn one_cluster_is_shown_with_its_localities_and_nodes() {
        assert_eq!(
            in_full(&answer()),
            "CLUSTER     PRIORITY  LOCALITY  REQUESTS  OK  FAILED  FAILED %  IN FLIGHT  RATE\n\
             default/v1  0         here/a    80        60  20      25.00%    3          8.0/s\n\
             default/v1  1         -         0         0   0       -         0          0.0/s\n\
             \n\
             CLUSTER     NODE    GROUPS        REQUESTS  OK  FAILED  LAST REPORT\n\
             default/v1  edge-1  edge,default  80        60  20      2026-11-20T12:20:44.123Z\n\
             REQUESTS counts finished requests, OK and FAILED together. It does not include IN FLIGHT, as of the last reports, or DROPPED.\n"
        );
    }
}
