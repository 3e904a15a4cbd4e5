//! `routes`: the routes that clients are served, in the order in which they are tried.

use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::get::ClientKind;
use crate::output::{Table, cell, items, print_list};

/// The flags of `routes`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RoutesArgs {
    /// Only routes of domains that contain this text
    #[arg(long, value_name = "TEXT")]
    host: Option<String>,
    /// Only routes whose path contains this text
    #[arg(long, value_name = "TEXT")]
    path: Option<String>,
    /// As clients of this group are served [default: default]
    #[arg(long, value_name = "GROUP", conflicts_with = "node")]
    group: Option<String>,
    /// As this node is served
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Kind of clients [default: that of the node or group, else envoy]
    #[arg(long, value_enum, value_name = "CLIENT")]
    profile: Option<ClientKind>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn routes(args: &RoutesArgs) -> Result<(), Failure> {
    let profile = args.profile.map(|kind| xds_cache::Profile::from(kind).to_string());
    let filters = [
        ("host", &args.host),
        ("path", &args.path),
        ("group", &args.group),
        ("node", &args.node),
        ("profile", &profile),
    ];
    let filters =
        filters.iter().filter_map(|(key, value)| Some(format!("&{key}={}", segment(value.as_ref()?))));
    let path = format!("/v1/routes?limit={PAGE}{}", filters.collect::<String>());
    let found = args.admin.connect()?.get_pages(&path, "routes")?;
    print_list(args.admin.output, &found, || list(&found))
}

fn list(found: &Value) -> Table {
    let [revision, client] = ["revision", "client"].map(|key| cell(&found[key]));
    let head = ["LISTENER", "HOST", "PATH", "ONLY IF", "TO", "ROUTE", "PLACE"];
    let table = Table::new_wide(&head, &["ENDPOINTS"]);
    let mut table = table.headed(&format!("revision {revision}, client {client}"));
    for route in items(&found["routes"]) {
        let domains: Vec<String> = items(&route["domains"]).map(cell).collect();
        let row = vec![
            listener(route),
            if domains.is_empty() { cell(&route["host"]) } else { domains.join(",") },
            cell(&route["path"]),
            items(&route["conditions"]).map(cell).collect::<Vec<_>>().join("; "),
            target(route),
            cell(&route["name"]),
            place(&route["place"]),
            endpoints(route),
        ];
        table.push_named(cell(&route["name"]), row);
    }
    table
}

fn listener(route: &Value) -> String {
    match route["port"].as_u64() {
        Some(port) => format!("{} :{port}", cell(&route["listener"])),
        None => cell(&route["listener"]),
    }
}

/// Where the requests go, with shares if there are several backends.
fn target(route: &Value) -> String {
    let n = items(&route["backends"]).count();
    if n == 0 {
        return cell(&route["action"]);
    }
    let backends = items(&route["backends"]).map(|backend| {
        let absent = if backend["isServed"] == false { " (not served)" } else { "" };
        let share = if n > 1 { format!("{} ", percent(&backend["share"])) } else { String::new() };
        format!("{share}{}{absent}", cell(&backend["name"]))
    });
    backends.collect::<Vec<_>>().join(", ")
}

/// How many endpoints each backend has.
fn endpoints(route: &Value) -> String {
    items(&route["backends"]).map(|backend| cell(&backend["nEndpoints"])).collect::<Vec<_>>().join(",")
}

/// A fraction, such as `[1,10]`, in percent.
fn percent(share: &Value) -> String {
    let part = |index: usize| match share[index].as_str() {
        Some(text) => text.parse::<f64>().ok(),
        None => share[index].as_f64(),
    };
    match (part(0), part(1)) {
        (Some(n), Some(of)) if of > 0.0 => {
            let percent = (n / of * 10_000.0).round() / 100.0;
            format!("{percent} %")
        }
        (_, _) => "-".to_owned(),
    }
}

fn place(place: &Value) -> String {
    match (place["file"].as_str(), place["line"].as_u64()) {
        (None | Some(""), _) => place["document"].as_str().unwrap_or("-").to_owned(),
        (Some(file), None | Some(0)) => file.to_owned(),
        (Some(file), Some(line)) => format!("{file}:{line}"),
    }
}

/// The longest page that the server gives.
const PAGE: usize = 1_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_route_is_one_row_with_the_shares_of_its_backends() {
        let found = json!({"revision": 7, "client": "envoy@1.40", "routes": [
            {"listener": "edge", "port": 10000, "host": "shop", "domains": ["shop.test"], "path": "prefix /cart",
                "conditions": ["header x: 1", "GET"], "action": "forward", "name": "shop/0",
                "place": {"file": "a.yaml", "line": 3}, "backends": [
                    {"name": "v1", "share": [2, 3], "isServed": true}, {"name": "v2", "share": [1, 3], "isServed": false}]},
            {"listener": "xds:///a", "port": null, "host": "h", "domains": [], "path": "any", "conditions": [],
                "action": "redirect", "name": "r", "backends": [], "place": {"file": "", "line": 0, "document": "Route default/r"}},
        ]});
        assert_eq!(
            list(&found).render(),
            "revision 7, client envoy@1.40\n\
             LISTENER     HOST       PATH          ONLY IF           TO                                   ROUTE   PLACE\n\
             edge :10000  shop.test  prefix /cart  header x: 1; GET  66.67 % v1, 33.33 % v2 (not served)  shop/0  a.yaml:3\n\
             xds:///a     h          any                             redirect                             r       Route default/r\n"
        );
        assert_eq!(percent(&json!(["18446744073709551616", "36893488147419103232"])), "50 %");
    }
}
