//! `audit`: the newest lines of the audit log.

use serde_json::Value;

use super::connection::AdminArgs;
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_list};

/// The flags of `audit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// How many lines to show, up to 1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let found = args.admin.connect()?.get(&format!("/v1/audit?limit={}", args.limit))?;
    print_list(args.admin.output, &found, || list(&found))
}

/// One row a line of the log, the newest first.
fn list(found: &Value) -> Table {
    let mut table =
        Table::new(&["TIME", "EVENT", "OUTCOME", "REASON", "PRINCIPAL", "VIA", "METHOD", "ROUTE", "STATUS"]);
    let keys = ["ts", "event", "outcome", "reason", "principal", "via", "method", "route", "status"];
    for entry in items(&found["entries"]) {
        table.push(keys.iter().map(|key| cell(&entry[*key])).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_row() {
        let entry = json!({"ts": "2026-11-22T15:04:05.123Z", "event": "api.denied", "outcome": "denied",
            "reason": "role", "principal": "ci\u{1b}", "method": "PUT", "status": 403});
        let text = list(&json!({"entries": [entry]})).render();
        let lines: Vec<&str> = text.lines().collect();
        let [head, row] = lines.as_slice() else { panic!("{text}") };
        assert!(head.starts_with("TIME") && row.contains("api.denied") && row.contains("role"), "{text}");
        assert!(row.contains("403") && !row.contains('\u{1b}'), "{text}");
    }
}
