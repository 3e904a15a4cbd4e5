//! `tests`: the outcome of RouteTests on what is served.

use serde_json::Value;

use super::connection::AdminArgs;
use crate::cli::failure::Failure;
use crate::cli::output::{Form, Table, cell, items, print, print_json};
use crate::escape::clean_lines;

/// The flags of `tests`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TestsArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Exit code 0 if no test fails, 1 if one does.
pub(crate) fn tests(args: &TestsArgs) -> Result<(), Failure> {
    let tests = args.admin.connect()?.get("/v1/tests")?;
    match Form::or_default(args.admin.output) {
        Form::Json => print_json(&tests)?,
        Form::Table => print(&table(&tests))?,
    }
    if tests["failed"].as_u64() == Some(0) { Ok(()) } else { Err(Failure::Silent) }
}

fn table(tests: &Value) -> String {
    let mut table = Table::new(&["ROUTE TEST", "TEST", "CLIENT", "POLICY", "PASSED"]);
    let mut failures = String::new();
    for test in items(&tests["tests"]) {
        let row = ["document", "test", "client", "policy", "passed"].map(|key| cell(&test[key]));
        table.push(row.to_vec());
        for failure in items(&test["failures"]) {
            failures.push_str(&format!(
                "{}: {}: {}\n",
                cell(&test["document"]),
                cell(&test["test"]),
                cell(failure)
            ));
        }
        failures.push_str(&clean_lines(test["text"].as_str().unwrap_or_default()));
    }
    let mut coverage = String::new();
    for one in items(&tests["coverage"]) {
        coverage.push_str(&format!("coverage of {}: {}\n", cell(&one["of"]), cell(&one["text"])));
    }
    [table.render(), failures, coverage]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}
