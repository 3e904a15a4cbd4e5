//! `groups`: the node groups.

use std::path::PathBuf;

use http::Method;
use serde_json::Value;

use super::connection::{AdminArgs, segment};
use super::writes::{Change, WriteFlags, read_file};
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_in, print_list};

/// The arguments of `groups`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GroupsArgs {
    #[command(subcommand)]
    command: GroupsCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum GroupsCommand {
    /// List all node groups
    List(ListArgs),
    /// Show one node group
    Get(GetArgs),
    /// Create or replace a node group
    Put(PutArgs),
    /// Delete a node group and the API's resources in it
    Delete(DeleteArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct GetArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct PutArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// Its definition as YAML or JSON, such as `{selector: {nodeIds: [edge-1]}}`; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    write: WriteFlags,
}

#[derive(Clone, Debug, clap::Args)]
struct DeleteArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    #[command(flatten)]
    write: WriteFlags,
}

pub(crate) fn groups(args: &GroupsArgs) -> Result<(), Failure> {
    let path = |group: &str| format!("/v1/groups/{}", segment(group));
    match &args.command {
        GroupsCommand::List(ListArgs { admin }) => {
            let found = admin.connect()?.get_pages("/v1/groups", "groups")?;
            print_list(admin.output, &found, || list(&found))
        }
        GroupsCommand::Get(GetArgs { group, admin }) => {
            let found = admin.connect()?.get(&path(group))?;
            print_in(admin.output, &found, || format!("{found:#}\n"))
        }
        GroupsCommand::Put(PutArgs { group, file, write }) => {
            let body = Some(read_file(file)?);
            write.send(Change { method: Method::PUT, path: &path(group), headers: &[], body })
        }
        GroupsCommand::Delete(DeleteArgs { group, write }) => {
            write.send(Change { method: Method::DELETE, path: &path(group), headers: &[], body: None })
        }
    }
}

fn list(found: &Value) -> Table {
    let mut table = Table::new(&["GROUP", "PRIORITY", "CLIENT", "WAVES", "SELECTOR"]);
    for group in items(&found["groups"]) {
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        table.push(vec![
            cell(&group["name"]),
            cell(&group["priority"]),
            dash(cell(&group["client"])),
            dash(waves(&group["waves"])),
            cell(&group["selector"]),
        ]);
    }
    table
}

/// `1%,10%`, or `each by zone`.
fn waves(waves: &Value) -> String {
    let by = waves["by"].as_str().map(|by| format!(" by {by}"));
    format!("{}{}", cell(&waves["shares"]), by.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_is_one_row() {
        let found = json!({"groups": [{"name": "edge", "priority": 3, "selector": {"nodeIds": ["a"]},
            "waves": {"shares": ["1%", "10%"]}}]});
        assert_eq!(
            list(&found).render(),
            "GROUP  PRIORITY  CLIENT  WAVES   SELECTOR\nedge   3         -       1%,10%  {\"nodeIds\":[\"a\"]}\n"
        );
        assert_eq!(waves(&json!({"shares": "each", "by": "zone"})), "each by zone");
    }
}
