//! `snapshot`: the resources that a group or a node is served, with their sources.

use serde_json::Value;

use super::connection::{Admin, AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_list};

/// The flags of `snapshot`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Resources that this node is served, or would be if it connected
    #[arg(long, value_name = "ID", required_unless_present = "group", conflicts_with = "group")]
    node: Option<String>,
    /// Resources that a client of exactly this group is served
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// envoy or grpc [default: the group's own, else envoy]
    #[arg(long, value_name = "PROFILE", requires = "group")]
    profile: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn snapshot(args: &SnapshotArgs) -> Result<(), Failure> {
    let profile = args.profile.as_ref().map(|profile| format!("?profile={}", segment(profile)));
    let path = match (&args.node, &args.group) {
        (Some(node), _) => format!("/v1/nodes/{}/snapshot", segment(node)),
        (None, group) => {
            let group = group.as_deref().unwrap_or_default();
            format!("/v1/groups/{}/snapshot{}", segment(group), profile.unwrap_or_default())
        }
    };
    let found = whole(&args.admin.connect()?, &path)?;
    print_list(args.admin.output, &found, || list(&found))
}

/// All pages of a snapshot, which are of one revision.
pub(super) fn whole(admin: &Admin, path: &str) -> Result<Value, Failure> {
    let joint = if path.contains('?') { '&' } else { '?' };
    for _ in 0..MAX_ATTEMPTS {
        let mut whole = admin.get(path)?;
        loop {
            let Some(next) = whole["next"].as_str() else { return Ok(whole) };
            let mut page = admin.get(&format!("{path}{joint}after={}", segment(next)))?;
            if page["revision"] != whole["revision"] || page["groups"] != whole["groups"] {
                break;
            }
            whole["next"] = page["next"].take();
            append(&mut whole["types"], page["types"].take());
        }
    }
    Err(Failure::Failed("the snapshot changed while its pages were read; try again".to_owned()))
}

/// Adds the resources of a page, by type.
fn append(types: &mut Value, page: Value) {
    let Value::Object(page) = page else { return };
    for (url, mut of_type) in page {
        match types[&url]["resources"].as_array_mut() {
            Some(all) => {
                all.extend(of_type["resources"].as_array_mut().map(std::mem::take).unwrap_or_default());
            }
            None => types[&url] = of_type,
        }
    }
}

fn list(found: &Value) -> Table {
    let [revision, groups, profile] = ["revision", "groups", "profile"].map(|key| cell(&found[key]));
    let heading = format!("revision {revision}, groups {groups}, profile {profile}");
    let mut table = Table::new(&["TYPE", "NAME", "VERSION", "GROUP", "SOURCE", "FILE"]).headed(&heading);
    for (url, of_type) in found["types"].as_object().into_iter().flatten() {
        for resource in items(&of_type["resources"]) {
            let generated = if resource["generated"] == true { " (generated)" } else { "" };
            let file = &resource["file"];
            let slug = xds_cache::ResourceType::from_type_url(url).slug().to_owned();
            let row = vec![
                url.rsplit('.').next().unwrap_or(url).to_owned(),
                cell(&resource["name"]),
                cell(&resource["version"]),
                cell(&resource["group"]),
                format!("{}{generated}", cell(&resource["source"])),
                file["path"]
                    .as_str()
                    .map_or_else(|| "-".to_owned(), |path| format!("{path}:{}", cell(&file["line"]))),
            ];
            table.push_named(format!("{slug} {}", cell(&resource["name"])), row);
        }
    }
    table
}

/// A server that publishes several times within the time that it takes to read its pages has no whole to show.
const MAX_ATTEMPTS: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_are_put_together_by_type() {
        let mut types = json!({"a": {"version": "1", "resources": ["x"]}});
        append(
            &mut types,
            json!({"a": {"version": "1", "resources": ["y"]}, "b": {"version": "2", "resources": ["z"]}}),
        );
        let whole = json!({"a": {"version": "1", "resources": ["x", "y"]}, "b": {"version": "2", "resources": ["z"]}});
        assert_eq!(types, whole);
    }

    #[test]
    fn a_resource_is_one_row_with_its_place() {
        let resource = json!({"name": "a", "version": "0f", "group": "edge", "source": "file", "generated": true,
            "file": {"path": "a.yaml", "line": 3, "column": 1}});
        let found = json!({"revision": 7, "groups": ["edge", "default"], "profile": "envoy",
            "types": {"type.googleapis.com/envoy.config.cluster.v3.Cluster": {"resources": [resource]}}});
        assert_eq!(
            list(&found).render(),
            "revision 7, groups edge,default, profile envoy\n\
             TYPE     NAME  VERSION  GROUP  SOURCE            FILE\n\
             Cluster  a     0f       edge   file (generated)  a.yaml:3\n"
        );
    }
}
