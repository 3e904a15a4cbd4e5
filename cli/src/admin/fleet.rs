//! `fleet`: how the clients are as a whole, and which are worst off.

use serde_json::{Value, json};

use super::connection::{Admin, AdminArgs, segment};
use super::watch::{self, View, Watched};
use crate::failure::Failure;
use crate::output::{Table, cell, items, one_line, print_list};

/// The flags of `fleet`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FleetArgs {
    /// Only nodes in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<State>,
    /// Only nodes whose id contains this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only nodes of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only nodes with this software and version, such as "envoy 1.36.0"
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Only nodes that say they belong to this cluster
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Only nodes that say they run there: region, zone and sub-zone, separated by slashes
    #[arg(long, value_name = "LOCALITY")]
    locality: Option<String>,
    /// The order of the nodes
    #[arg(long, value_enum, value_name = "ORDER", default_value = "worst")]
    sort: Order,
    /// The page, from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    page: usize,
    /// How many nodes a page has, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Show it again whenever something changes; in a pipe, one JSON object per line, or the rows that changed
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// How a node is.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "camelCase")]
enum State {
    Rejected,
    HeldBack,
    Pending,
    Unmatched,
    Absent,
    Acknowledged,
}

/// The order of nodes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Order {
    Worst,
    Id,
    Revision,
    Reconnects,
}

pub(crate) fn fleet(args: &FleetArgs) -> Result<(), Failure> {
    let (admin, path) = (args.admin.connect()?, path(args));
    if args.watch {
        let look = |admin: &Admin| watch::look(admin, &path);
        let essence = |fleet: &Value| json!([summary(fleet), list(fleet).cells(), of_all(fleet)]);
        let (view, carry) = (View::List(list), |_: &Value, _: &mut Value| {});
        let watched = Watched { look: &look, view, essence, carry, end: |_| None, limit: None };
        return watch::follow(&admin, &watched, args.admin.output);
    }
    let found = admin.get(&path)?;
    print_list(args.admin.output, &found, || list(&found))
}

fn path(args: &FleetArgs) -> String {
    let sort = match args.sort {
        Order::Worst => "worst",
        Order::Id => "id",
        Order::Revision => "revision",
        Order::Reconnects => "reconnects",
    };
    let filters = [
        ("search", args.search.as_deref()),
        ("state", args.state.map(State::as_str)),
        ("group", args.group.as_deref()),
        ("client", args.client.as_deref()),
        ("cluster", args.cluster.as_deref()),
        ("locality", args.locality.as_deref()),
    ];
    let filters = filters.iter().filter_map(|(key, value)| Some(format!("&{key}={}", segment((*value)?))));
    let filters = filters.collect::<String>();
    format!("/v1/fleet?sort={sort}&page={}&limit={}{filters}", args.page, args.limit)
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::HeldBack => "heldBack",
            Self::Pending => "pending",
            Self::Unmatched => "unmatched",
            Self::Absent => "absent",
            Self::Acknowledged => "acknowledged",
        }
    }
}

/// The words of all states, the worst first.
pub(super) fn states() -> impl Iterator<Item = &'static str> {
    STATES.iter().map(|state| state.as_str())
}

fn list(fleet: &Value) -> Table {
    let head = ["ID", "STATE", "SINCE", "CLIENT", "GROUPS", "REVISION", "REJECTION"];
    let further = ["CLUSTER", "LOCALITY", "STREAMS", "HELD BACK", "CAME BACK", "SERVER"];
    let mut table = Table::new_wide(&head, &further).headed(&summary(fleet)).noted(of_all(fleet));
    let keys = ["id", "state", "since", "client", "groups", "revision", "rejection"];
    let keys = keys.iter().chain(&["cluster", "locality", "streams", "heldBack", "reconnects", "replica"]);
    for node in items(&fleet["nodes"]) {
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        table.push(keys.clone().map(|key| dash(cell(&node[*key]))).collect());
    }
    table
}

/// How many nodes are in which state, the worst first.
fn summary(fleet: &Value) -> String {
    let states = STATES.iter().filter_map(|state| {
        let n = fleet["states"][state.as_str()].as_u64()?;
        Some(format!("{n} {}", state.as_str()))
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let states = if states.is_empty() { states } else { format!(": {states}") };
    let [total, revision] = ["total", "revision"].map(|key| cell(&fleet[key]));
    let nodes = if fleet["total"] == 1 { "node" } else { "nodes" };
    format!("{total} {nodes} at revision {revision}{states}")
}

/// Which part of the nodes this is, and which servers are not counted.
fn of_all(fleet: &Value) -> String {
    let (n, found) = (items(&fleet["nodes"]).count(), fleet["found"].as_u64().unwrap_or_default());
    let mut text = String::new();
    if found > n as u64 {
        text.push_str(&format!("{n} of {found} nodes; --page, --limit or a filter shows others\n"));
    }
    for replica in items(&fleet["replicas"]["missing"]) {
        let [id, why, since] = ["id", "why", "since"].map(|key| one_line(&cell(&replica[key])));
        text.push_str(&format!("not counted: the clients of the server {id}: {why}, since {since}\n"));
    }
    text
}

/// All states, the worst first.
const STATES: [State; 6] =
    [State::Rejected, State::HeldBack, State::Pending, State::Unmatched, State::Absent, State::Acknowledged];

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum as _};

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: FleetArgs,
    }

    #[test]
    fn the_fleet_is_counted_before_its_worst_nodes() {
        let fleet = json!({"revision": 7, "total": 1200, "found": 2, "states": {"acknowledged": 1199, "rejected": 1}, "nodes": [
            {"id": "edge-1", "state": "rejected", "since": "T", "client": "envoy 1.36.0", "groups": ["edge", "default"],
                "revision": null, "rejection": "no\nfilter"},
        ], "replicas": {"missing": [{"id": "b", "why": "it is silent", "since": "T"}]}});
        assert_eq!(
            list(&fleet).render(),
            "1200 nodes at revision 7: 1 rejected, 1199 acknowledged\n\
             ID      STATE     SINCE  CLIENT        GROUPS        REVISION  REJECTION\n\
             edge-1  rejected  T      envoy 1.36.0  edge,default  -         no\\nfilter\n\
             1 of 2 nodes; --page, --limit or a filter shows others\n\
             not counted: the clients of the server b: it is silent, since T\n"
        );
        for (total, said) in [(0, "0 nodes at revision 1\nID"), (1, "1 node at revision 1\nID")] {
            assert!(list(&json!({"total": total, "revision": 1})).render().starts_with(said));
        }
    }

    #[test]
    fn every_filter_is_a_parameter() {
        let words = "fleet --state heldBack --search e/1 --group g --client c --cluster k --locality l --sort id --page 2";
        let words = Words::try_parse_from(words.split(' ')).unwrap();
        assert_eq!(
            path(&words.args),
            "/v1/fleet?sort=id&page=2&limit=100&search=e%2F1&state=heldBack&group=g&client=c&cluster=k&locality=l"
        );
        for state in State::value_variants() {
            assert_eq!(state.to_possible_value().unwrap().get_name(), state.as_str());
        }
    }
}
