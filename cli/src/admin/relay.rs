//! `relay`: the xDS server that this one relays.

use serde_json::Value;

use super::connection::AdminArgs;
use crate::failure::Failure;
use crate::output::{Table, cell, items, one_line, print_in};

/// The flags of `relay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn relay(args: &RelayArgs) -> Result<(), Failure> {
    let found = args.admin.connect()?.get("/v1/relay")?;
    print_in(args.admin.output, &found, || render(&found))
}

fn render(found: &Value) -> String {
    if items(&found["nodes"]).next().is_none() {
        return "this server relays no other one (serve --relay)\n".to_owned();
    }
    let mut table =
        Table::new(&["GROUP", "NODE", "SERVER", "CONNECTED", "SINCE", "RESOURCES", "AWAITS", "WHY"]);
    let mut refused = String::new();
    for node in items(&found["nodes"]) {
        let shown =
            |key: &str| node.get(key).filter(|value| !value.is_null()).map_or_else(|| "-".to_owned(), cell);
        let counts = node["resources"].as_object().into_iter().flatten();
        let counts: Vec<String> = counts.map(|(kind, n)| format!("{n} {kind}")).collect();
        let connected = if node["connected"] == true { "yes" } else { "no" };
        let awaits = match node["awaited"].as_u64() {
            None | Some(0) => String::new(),
            Some(1) => shown("awaits"),
            Some(n) => format!("{} and {} more", shown("awaits"), n - 1),
        };
        let why = if node["problem"].is_null() { String::new() } else { one_line(&shown("problem")) };
        table.push(vec![
            shown("group"),
            shown("nodeId"),
            shown("server"),
            connected.to_owned(),
            shown("since"),
            counts.join(", "),
            awaits,
            why,
        ]);
        for one in items(&node["refused"]) {
            refused.push_str(&format!("refused for {}: {}\n", shown("group"), one_line(&cell(&one["why"]))));
        }
        let n_more =
            node["nRefused"].as_u64().unwrap_or(0).saturating_sub(items(&node["refused"]).count() as u64);
        if n_more > 0 {
            refused.push_str(&format!("and {n_more} more\n"));
        }
    }
    table.render() + &refused
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_refused_and_waited_for_is_told() {
        let found = json!({"nodes": [
            {"group": "edge", "nodeId": "relay-1", "server": "core:18000", "connected": true, "since": "T1", "problem": null,
             "awaited": 2, "awaits": "Cluster \"a\"", "resources": {"clusters": 3, "routes": 1}, "nRefused": 3,
             "refused": [{"type": "clusters", "name": "b", "why": "Cluster \"b\": name:\nbad"}]},
            {"group": "default", "nodeId": "relay-2", "server": null, "connected": false, "since": "T2", "problem": "no connection",
             "awaited": 0, "awaits": null, "resources": {}, "nRefused": 0, "refused": []},
        ]});
        let rendered = render(&found);
        assert!(
            rendered.contains("edge     relay-1  core:18000  yes        T1     3 clusters, 1 routes"),
            "{rendered}"
        );
        assert!(rendered.contains("Cluster \"a\" and 1 more"), "{rendered}");
        assert!(rendered.contains("no connection"), "{rendered}");
        assert!(
            rendered.ends_with("refused for edge: Cluster \"b\": name:\\nbad\nand 2 more\n"),
            "{rendered}"
        );
        assert!(render(&json!({"nodes": []})).contains("--relay"));
    }
}
