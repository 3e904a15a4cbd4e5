//! `nodes`: the connected clients, and their state of every type.

use serde_json::Value;

use super::connection::{Admin, AdminArgs, segment};
use super::watch::{self, View, Watched};
use crate::failure::Failure;
use crate::output::{Table, cell, items, one_line, print_in, print_list};

/// The flags of `nodes`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// Only this node, in full
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Only nodes whose worst type has this status
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only nodes of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only clients of this server, where several share a store and ask each other
    #[arg(long, value_name = "ID")]
    replica: Option<String>,
    /// Show them again whenever something changes; in a pipe, one JSON object per line, or the rows that changed
    #[arg(long, conflicts_with = "id")]
    watch: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn nodes(args: &NodesArgs) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    if let Some(id) = &args.id {
        let of = args.replica.as_ref().map(|replica| format!("?replica={}", segment(replica)));
        let node = admin.get(&format!("/v1/nodes/{}{}", segment(id), of.unwrap_or_default()))?;
        return print_in(args.admin.output, &node, || node_in_full(&node));
    }
    let filters = [("status", &args.status), ("group", &args.group), ("replica", &args.replica)];
    let filters =
        filters.iter().filter_map(|(key, value)| Some(format!("&{key}={}", segment(value.as_ref()?))));
    let filters = filters.collect::<String>();
    if args.watch {
        let look = |admin: &Admin| {
            let path = format!("/v1/nodes?limit={PAGE}{filters}");
            let first = watch::look(admin, &path)?;
            if first["next"].is_null() { Ok(first) } else { admin.get_pages(&path, "nodes") }
        };
        let essence = |nodes: &Value| list(nodes).cells();
        let (view, carry) = (View::List(list), |_: &Value, _: &mut Value| {});
        let watched = Watched { look: &look, view, essence, carry, end: |_| None, limit: None };
        return watch::follow(&admin, &watched, args.admin.output);
    }
    let nodes = all_nodes(&admin, &filters)?;
    let nodes = serde_json::json!({"nodes": nodes});
    print_list(args.admin.output, &nodes, || list(&nodes))
}

/// The nodes of all pages. `filters` are further parameters of the query, each with its `&`.
pub(super) fn all_nodes(admin: &Admin, filters: &str) -> Result<Vec<Value>, Failure> {
    let mut nodes = admin.get_pages(&format!("/v1/nodes?limit={PAGE}{filters}"), "nodes")?;
    Ok(nodes["nodes"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn list(nodes: &Value) -> Table {
    let columns =
        ["ID", "CLIENT", "GROUPS", "REVISION", "WAVE", "STREAMS", "CDS", "EDS", "LDS", "RDS", "OTHER"];
    let mut table =
        Table::new_wide(&columns, &["PROFILE", "CLUSTER", "FROM", "HELD BACK", "DRAINING", "LAST NACK"]);
    for node in items(&nodes["nodes"]) {
        let client = format!("{} {}", cell(&node["client"]["name"]), cell(&node["client"]["version"]));
        let groups = if node["unmatched"] == true { "none".to_owned() } else { cell(&node["groups"]) };
        let n_streams = node["streams"].as_array().map_or(0, Vec::len);
        let (revision, wave) = (of_publication(node, "revision"), of_publication(node, "wave"));
        let id = cell(&node["id"]);
        let mut row = vec![id, client.trim().to_owned(), groups, revision, wave, n_streams.to_string()];
        let types = node["types"].as_object();
        let status = |suffix: &str| {
            let found = types.into_iter().flatten().find(|(url, _)| url.ends_with(suffix));
            found.map_or_else(|| "-".to_owned(), |(_, status)| cell(&status["status"]))
        };
        row.extend(COLUMNS.iter().map(|suffix| status(suffix)));
        let others = types
            .into_iter()
            .flatten()
            .filter(|(url, _)| !COLUMNS.iter().any(|suffix| url.ends_with(suffix)));
        let worst = others.map(|(_, status)| cell(&status["status"])).min_by_key(|status| badness(status));
        row.push(worst.unwrap_or_else(|| "-".to_owned()));
        row.extend(further(node));
        table.push(row);
    }
    table
}

/// The cells of a wide screen.
fn further(node: &Value) -> [String; 6] {
    let of_streams = |key: &str| items(&node["streams"]).map(|stream| cell(&stream[key])).collect::<Vec<_>>();
    let n_held_back = items(&node["streams"])
        .filter_map(|stream| stream["heldBackCount"].as_u64())
        .max()
        .unwrap_or_default();
    let nacks = node["types"].as_object().into_iter().flatten().map(|(_, status)| &status["lastNack"]);
    let last = nacks.filter(|nack| nack.is_object()).max_by_key(|nack| cell(&nack["at"]));
    let last = last.map(|nack| format!("{} {}", cell(&nack["at"]), cell(&nack["message"])));
    [
        cell(&node["profile"]),
        cell(&node["cluster"]),
        of_streams("address").join(","),
        n_held_back.to_string(),
        cell(&node["drainingCount"]),
        last.unwrap_or_else(|| "-".to_owned()),
    ]
}

fn node_in_full(node: &Value) -> String {
    let mut text = Table::new(&["ID", &cell(&node["id"])]);
    text.push(vec![
        "CLIENT".to_owned(),
        format!("{} {}", cell(&node["client"]["name"]), cell(&node["client"]["version"])),
    ]);
    text.push(vec!["PROFILE".to_owned(), cell(&node["profile"])]);
    text.push(vec!["GROUPS".to_owned(), cell(&node["groups"])]);
    text.push(vec!["REVISION".to_owned(), of_publication(node, "revision")]);
    text.push(vec!["WAVE".to_owned(), of_publication(node, "wave")]);
    for stream in items(&node["streams"]) {
        let (address, variant) = (cell(&stream["address"]), cell(&stream["variant"]));
        let at = stream["replica"].as_str().map(|_| format!(" at {}", cell(&stream["replica"])));
        let shown = format!("{address} {variant} since {}{}", cell(&stream["since"]), at.unwrap_or_default());
        text.push(vec!["STREAM".to_owned(), shown]);
        for proof in items(&stream["identities"]) {
            let (identity, method) = (cell(&proof["identity"]), cell(&proof["method"]));
            let until = proof["expiresAt"].as_str().map(|_| format!(" until {}", cell(&proof["expiresAt"])));
            let shown = format!("{identity} by {method}{}", until.unwrap_or_default());
            text.push(vec!["IDENTITY".to_owned(), shown]);
        }
    }
    let mut types = Table::new(&["TYPE", "STATUS", "SENT", "ACKED", "LAST NACK"]);
    for (url, status) in node["types"].as_object().into_iter().flatten() {
        let name = url.rsplit('.').next().unwrap_or(url);
        let nack = &status["lastNack"];
        let nack = if nack.is_null() {
            String::new()
        } else {
            format!("{} {}", cell(&nack["at"]), cell(&nack["message"]))
        };
        let cells = [
            name.to_owned(),
            cell(&status["status"]),
            cell(&status["versionSent"]),
            cell(&status["versionAcked"]),
        ];
        types.push(cells.into_iter().chain([nack]).collect());
    }
    format!("{}\n{}{}", text.render(), types.render(), rejected(node))
}

/// A line for each resource that the node rejects, and for each type of which it is not known what the node uses.
fn rejected(node: &Value) -> String {
    let mut text = String::new();
    for (url, status) in node["types"].as_object().into_iter().flatten() {
        let of = url.rsplit('.').next().unwrap_or(url);
        for one in items(&status["rejected"]) {
            let [name, message] = ["name", "message"].map(|key| one_line(&cell(&one[key])));
            text.push_str(&format!("rejected: {of} {name}: {message}\n"));
        }
        if let Some(n) = status["unknownCount"].as_u64() {
            text.push_str(&format!(
                "unknown: {n} resources of {of} came in a rejected response and are offered again\n"
            ));
        }
    }
    text
}

/// Up to which publication the node has accepted everything, or on which side of a wave deployment it is; `-` if there is none.
fn of_publication(node: &Value, field: &str) -> String {
    node.get(field).filter(|value| !value.is_null()).map_or_else(|| "-".to_owned(), cell)
}

fn badness(status: &str) -> usize {
    ["ERROR", "STALE", "NOT_SENT", "SYNCED"].iter().position(|known| *known == status).unwrap_or(usize::MAX)
}

/// The types that have a column of their own.
const COLUMNS: [&str; 4] = [".Cluster", ".ClusterLoadAssignment", ".Listener", ".RouteConfiguration"];
/// The longest page that the server gives.
const PAGE: usize = 1000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejected_resources_of_a_node_are_told_one_by_one() {
        let node = json!({"types": {
            "type.googleapis.com/envoy.config.route.v3.RouteConfiguration": {
                "status": "ERROR", "rejected": [{"name": "r1", "message": "bad\nscript"}], "unknownCount": 2},
            "type.googleapis.com/envoy.config.cluster.v3.Cluster": {"status": "SYNCED"},
        }});
        assert_eq!(
            rejected(&node),
            "rejected: RouteConfiguration r1: bad\\nscript\n\
             unknown: 2 resources of RouteConfiguration came in a rejected response and are offered again\n"
        );
    }

    #[test]
    fn a_node_is_one_row() {
        let url = |name: &str| format!("type.googleapis.com/envoy.config.{name}");
        let node = json!({
            "id": "edge-1", "groups": ["edge"], "client": {"name": "envoy", "version": "1.36.0"},
            "streams": [{}], "unmatched": false, "revision": 7, "wave": "ahead",
            "types": {
                url("cluster.v3.Cluster"): {"status": "SYNCED"},
                url("listener.v3.Listener"): {"status": "ERROR"},
                url("core.v3.TypedExtensionConfig"): {"status": "STALE"},
            },
        });
        assert_eq!(
            list(&json!({"nodes": [node]})).render(),
            "ID      CLIENT        GROUPS  REVISION  WAVE   STREAMS  CDS     EDS  LDS    RDS  OTHER\n\
             edge-1  envoy 1.36.0  edge    7         ahead  1        SYNCED  -    ERROR  -    STALE\n"
        );
    }
}
