//! `resources`: the API's resources in a node group.

use std::path::PathBuf;

use http::Method;
use serde_json::Value;

use super::connection::{AdminArgs, segment};
use super::writes::{Change, WriteFlags, read_file};
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_in, print_list};

/// The arguments of `resources`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResourcesArgs {
    #[command(subcommand)]
    command: ResourcesCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum ResourcesCommand {
    /// List the API's resources in a group
    List(ListArgs),
    /// Show one resource of the API
    Get(GetArgs),
    /// Create or replace one resource; without TYPE and NAME, replace all resources of the API in the group
    Put(PutArgs),
    /// Delete one resource; if a file has a resource of that name, it is served again
    Delete(DeleteArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ListArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct GetArgs {
    #[command(flatten)]
    resource: ResourceArgs,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct ResourceArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// The type, such as clusters or listeners
    #[arg(value_name = "TYPE")]
    resource_type: String,
    /// The name
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Clone, Debug, clap::Args)]
struct PutArgs {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// The type, such as clusters or listeners
    #[arg(value_name = "TYPE", requires = "name")]
    resource_type: Option<String>,
    /// The name
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The resource, or `{resources: […]}`, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    write: WriteFlags,
}

#[derive(Clone, Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    resource: ResourceArgs,
    #[command(flatten)]
    write: WriteFlags,
}

pub(crate) fn resources(args: &ResourcesArgs) -> Result<(), Failure> {
    match &args.command {
        ResourcesCommand::List(ListArgs { group, admin }) => {
            let found = admin.connect()?.get_pages(&of_group(group), "resources")?;
            print_list(admin.output, &found, || list(&found))
        }
        ResourcesCommand::Get(GetArgs { resource, admin }) => {
            let found = admin.connect()?.get(&path_of(resource))?;
            print_in(admin.output, &found, || format!("{found:#}\n"))
        }
        ResourcesCommand::Put(args) => {
            let path = match (&args.resource_type, &args.name) {
                (Some(resource_type), Some(name)) => {
                    format!("{}/{}/{}", of_group(&args.group), segment(resource_type), segment(name))
                }
                (_, _) => of_group(&args.group),
            };
            let body = Some(read_file(&args.file)?);
            args.write.send(Change { method: Method::PUT, path: &path, headers: &[], body })
        }
        ResourcesCommand::Delete(DeleteArgs { resource, write }) => {
            let path = path_of(resource);
            write.send(Change { method: Method::DELETE, path: &path, headers: &[], body: None })
        }
    }
}

fn of_group(group: &str) -> String {
    format!("/v1/groups/{}/resources", segment(group))
}

fn path_of(resource: &ResourceArgs) -> String {
    let ResourceArgs { group, resource_type, name } = resource;
    format!("{}/{}/{}", of_group(group), segment(resource_type), segment(name))
}

fn list(found: &Value) -> Table {
    let heading = format!("revision {}", cell(&found["revision"]));
    let mut table = Table::new(&["TYPE", "NAME"]).headed(&heading);
    for resource in items(&found["resources"]) {
        let url = cell(&resource["@type"]);
        let name = ["name", "cluster_name", "clusterName"].iter().find_map(|key| resource[*key].as_str());
        let name = name.unwrap_or_default();
        let slug = xds_cache::ResourceType::from_type_url(&url).slug().to_owned();
        let kind = url.rsplit('.').next().unwrap_or_default().to_owned();
        table.push_named(format!("{slug} {name}"), vec![kind, name.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_one_row() {
        let found = json!({"revision": 7, "resources": [
            {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a\nb"},
            {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "c"},
        ]});
        assert_eq!(
            list(&found).render(),
            "revision 7\nTYPE                   NAME\nCluster                a\\nb\nClusterLoadAssignment  c\n"
        );
    }
}
