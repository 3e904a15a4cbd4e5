//! `tests`: the outcome of RouteTests on what is served, and the change that they hold.

use serde_json::{Value, json};
use xds_units::escape::clean_lines;

use super::connection::AdminArgs;
use super::waves;
use crate::failure::Failure;
use crate::output::{Table, cell, items, print_list};

/// The flags of `tests`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TestsArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The verbs for the change that RouteTests hold.
#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Publish the change that RouteTests hold
    Release(ReleaseArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ReleaseArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Exit code 0 if no test fails and no change is held, else 1.
pub(crate) fn tests(args: &TestsArgs) -> Result<(), Failure> {
    if let Some(Verb::Release(ReleaseArgs { admin })) = &args.verb {
        let answer = admin.connect()?.post("/v1/tests:release", &json!({}))?;
        return waves::show(&answer, admin.output);
    }
    let tests = args.admin.connect()?.get("/v1/tests")?;
    print_list(args.admin.output, &tests, || table(&tests))?;
    if tests["failed"].as_u64() == Some(0) && tests["held"].is_null() { Ok(()) } else { Err(Failure::Silent) }
}

fn table(tests: &Value) -> Table {
    let mut table = Table::new(&["ROUTE TEST", "TEST", "CLIENT", "POLICY", "PASSED"]).named_by(2);
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
    let mut held = String::new();
    if let Some(one) = tests["held"].as_object() {
        let id = cell(&tests["held"]["waveDeployment"]);
        held.push_str(&format!("held: {}\n", cell(&tests["held"]["reason"])));
        for object in items(one.get("objects").unwrap_or(&Value::Null)) {
            held.push_str(&format!("  {} is served as it was before\n", cell(object)));
        }
        held.push_str(&format!(
            "`xds-server tests release` publishes it, `xds-server waves abort {id}` puts it back\n"
        ));
        for failure in items(one.get("failures").unwrap_or(&Value::Null)) {
            held.push('\n');
            held.push_str(&clean_lines(failure.as_str().unwrap_or_default()));
            held.push('\n');
        }
    }
    let notes = [failures, held, coverage].into_iter().filter(|part| !part.is_empty());
    table.noted(notes.map(|part| format!("\n{part}")).collect())
}
