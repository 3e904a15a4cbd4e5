//! `replicas`: the servers that share the store.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{Table, cell, items, one_line, print_list};

/// The flags of `replicas`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ReplicasArgs {
    #[command(subcommand)]
    command: Option<ReplicasCommand>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum ReplicasCommand {
    /// Stop to wait for the clients of a server that vanished
    Forget {
        /// Its instance id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

pub(crate) fn replicas(args: &ReplicasArgs) -> Result<(), Failure> {
    match &args.command {
        None => {
            let found = args.admin.connect()?.get("/v1/replicas")?;
            print_list(args.admin.output, &found, || list(&found))
        }
        Some(ReplicasCommand::Forget { id, admin }) => {
            let path = format!("/v1/replicas/{}", segment(id));
            let left = admin.connect()?.send(Method::DELETE, &path, &[], None)?.success()?;
            print_list(admin.output, &left, || list(&left))
        }
    }
}

fn list(found: &Value) -> Table {
    let mut table =
        Table::new(&["ID", "LEADS", "RELEASE", "STARTED", "PEER", "REACHED", "REVISION", "STREAMS", "WHY"]);
    if items(&found["replicas"]).next().is_none() {
        return table.noted("this server has a store of its own (serve --store)\n".to_owned());
    }
    for replica in items(&found["replicas"]) {
        let shown = |key: &str| {
            replica.get(key).filter(|value| !value.is_null()).map_or_else(|| "-".to_owned(), cell)
        };
        let id = if replica["own"] == true { format!("{} *", shown("id")) } else { shown("id") };
        let leads = if replica["leads"] == true { "yes" } else { "" };
        let why = match replica["since"].as_str() {
            Some(since) => format!("{}, since {since}", one_line(&shown("why"))),
            None => String::new(),
        };
        let rest = ["release", "started", "peer", "reached", "revision", "streams"].map(shown);
        table.push_named(shown("id"), [id, leads.to_owned()].into_iter().chain(rest).chain([why]).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_server_that_was_asked_has_a_star_and_silence_has_a_reason() {
        let found = json!({"linked": true, "replicas": [
            {"id": "a", "own": true, "leads": true, "peer": "10.0.0.1:18003", "release": "1.2.3", "started": "T1", "reached": "yes",
             "since": null, "why": null, "forgiven": false, "revision": 7, "streams": 3},
            {"id": "b", "own": false, "peer": null, "release": "1.2.3", "started": "T2", "reached": "no",
             "since": "T3", "why": "it is\nsilent", "forgiven": false, "revision": null, "streams": null},
        ]});
        assert_eq!(
            list(&found).render(),
            "ID   LEADS  RELEASE  STARTED  PEER            REACHED  REVISION  STREAMS  WHY\n\
             a *  yes    1.2.3    T1       10.0.0.1:18003  yes      7         3\n\
             b           1.2.3    T2       -               no       -         -        it is\\nsilent, since T3\n"
        );
        assert!(list(&json!({"replicas": []})).render().contains("a store of its own"));
    }
}
