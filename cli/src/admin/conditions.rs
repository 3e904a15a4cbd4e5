//! `conditions`: the state of every object of the route documents.

use serde_json::Value;
use xds_control::model::document::is_fine;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{Form, Table, cell, items, print_list};

/// The flags of `conditions`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConditionsArgs {
    /// Only objects of this kind, such as HTTPRoute
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only objects of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only objects of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn conditions(args: &ConditionsArgs) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    let filters = [("kind", &args.kind), ("namespace", &args.namespace), ("name", &args.name)];
    let filters: Vec<String> = filters
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))))
        .collect();
    let found = admin.get_pages(&format!("/v1/conditions?{}", filters.join("&")), "objects")?;
    let asked = if args.json { Some(Form::Json) } else { args.admin.output };
    print_list(asked, &found, || table(&rows(&found["objects"])))
}

/// A condition of an object.
pub(super) struct Row {
    cells: Vec<String>,
    /// True if it is as it should be.
    pub(super) is_fine: bool,
}

impl Row {
    /// The object that it is about.
    pub(super) fn object(&self) -> &str {
        self.cells.first().map(String::as_str).unwrap_or_default()
    }
}

/// All conditions of all objects.
pub(super) fn rows(objects: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for object in items(objects) {
        let name = match object["namespace"].as_str() {
            None | Some("-") => format!("{} {}", cell(&object["kind"]), cell(&object["name"])),
            Some(namespace) => format!("{} {namespace}/{}", cell(&object["kind"]), cell(&object["name"])),
        };
        let mut add = |part: String, conditions: &Value| {
            for condition in items(conditions) {
                let (kind, status) = (cell(&condition["type"]), cell(&condition["status"]));
                let is_fine = is_fine(&kind, &status);
                let (reason, message) = (cell(&condition["reason"]), cell(&condition["message"]));
                rows.push(Row {
                    cells: vec![name.clone(), part.clone(), kind, status, reason, message],
                    is_fine,
                });
            }
        };
        add(String::new(), &object["conditions"]);
        for parent in items(&object["parents"]) {
            add(parent_name(&parent["parentRef"]), &parent["conditions"]);
        }
        for listener in items(&object["listeners"]) {
            add(format!("listener {}", cell(&listener["name"])), &listener["conditions"]);
        }
    }
    rows
}

pub(super) fn table<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Table {
    let mut table = Table::new(&["OBJECT", "OF", "CONDITION", "STATUS", "REASON", "MESSAGE"]);
    rows.into_iter().for_each(|row| table.push(row.cells.clone()));
    table
}

fn parent_name(parent: &Value) -> String {
    let mut name = match (parent["kind"].as_str(), parent["namespace"].as_str()) {
        (Some(kind), Some(namespace)) => format!("{kind} {namespace}/{}", cell(&parent["name"])),
        (_, _) => cell(&parent["name"]),
    };
    if let Some(section) = parent["sectionName"].as_str() {
        name.push_str(&format!(" ({section})"));
    }
    if let Some(port) = parent["port"].as_u64() {
        name.push_str(&format!(":{port}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_condition_is_a_row() {
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
        let objects = json!([
            {"kind": "GatewayClass", "namespace": "-", "name": "c", "conditions": [condition("Accepted", "True")]},
            {"kind": "Gateway", "namespace": "n", "name": "g", "conditions": [],
                "listeners": [{"name": "l", "conditions": [condition("Conflicted", "False")]}]},
            {"kind": "HTTPRoute", "namespace": "n", "name": "r", "conditions": [], "parents": [{
                "parentRef": {"kind": "Gateway", "namespace": "n", "name": "g", "sectionName": "l", "port": 80},
                "conditions": [condition("ResolvedRefs", "False")]}]},
        ]);
        let rows = rows(&objects);
        assert_eq!(rows.iter().map(|row| row.is_fine).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(
            table(&rows).render(),
            "OBJECT          OF                  CONDITION     STATUS  REASON  MESSAGE\n\
             GatewayClass c                      Accepted      True    R       m\n\
             Gateway n/g     listener l          Conflicted    False   R       m\n\
             HTTPRoute n/r   Gateway n/g (l):80  ResolvedRefs  False   R       m\n"
        );
    }
}
