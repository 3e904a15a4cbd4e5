//! `rollout`: traffic that moves by steps, begun, watched and steered.

use std::io::Read as _;
use std::path::PathBuf;
use std::{fs, io};

use serde_json::{Value, json};
use xds_codec::Syntax;

use super::watch::{self, Watched, bar};
use super::{AdminArgs, segment};
use crate::cli::Failure;
use crate::cli::output::{Form, Table, cell, clean, items, print, print_json};

/// The arguments of `rollout`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum RolloutCommand {
    /// Begin a rollout
    Start(StartArgs),
    /// Show a rollout, or all of them
    Status(StatusArgs),
    /// List all rollouts that are kept
    List(ListArgs),
    /// Stay at this step
    Pause(VerbArgs),
    /// Go on
    Resume(VerbArgs),
    /// Do not wait for what this step waits for
    Promote(PromoteArgs),
    /// Give everything back to stable, now
    Abort(VerbArgs),
    /// Begin a rollout anew that was aborted or has failed
    Retry(VerbArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct StartArgs {
    /// The rollout, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct StatusArgs {
    /// The rollout [default: all]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Show it anew whenever it changes, until it ends; one JSON object a line in a pipe
    #[arg(long, requires = "id")]
    watch: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct VerbArgs {
    /// The rollout
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct PromoteArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Skip all steps: everything to the canary, now
    #[arg(long)]
    full: bool,
}

pub(crate) fn rollout(args: &RolloutArgs) -> Result<(), Failure> {
    match &args.command {
        RolloutCommand::Start(args) => start(args),
        RolloutCommand::Status(StatusArgs { id: Some(id), watch, admin }) => status(id, *watch, admin),
        RolloutCommand::Status(StatusArgs { id: None, admin, .. })
        | RolloutCommand::List(ListArgs { admin }) => list(admin),
        RolloutCommand::Pause(args) => ask(args, "pause", &json!({})),
        RolloutCommand::Resume(args) => ask(args, "resume", &json!({})),
        RolloutCommand::Promote(PromoteArgs { verb, full }) => ask(verb, "promote", &json!({"full": full})),
        RolloutCommand::Abort(args) => ask(args, "abort", &json!({})),
        RolloutCommand::Retry(args) => ask(args, "retry", &json!({})),
    }
}

fn start(args: &StartArgs) -> Result<(), Failure> {
    let name = args.file.display();
    let mut bytes = Vec::new();
    let read = match args.file.to_str() {
        Some("-") => io::stdin().lock().read_to_end(&mut bytes).map(drop),
        _ => fs::read(&args.file).map(|read| bytes = read),
    };
    read.map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    // JSON is YAML, too.
    let documents = xds_codec::parse(&name.to_string(), &bytes, Syntax::Yaml, &xds_codec::Limits::default());
    let documents = documents.map_err(|found| {
        Failure::Usage(found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    let [document] = documents.as_slice() else {
        return Err(Failure::Usage(format!("{name} has {} documents; a rollout is one", documents.len())));
    };
    let path = if args.dry_run { "/v1/rollouts?dryRun=true" } else { "/v1/rollouts" };
    let answer = args.admin.connect()?.post(path, &document.to_json())?;
    match Form::or_default(args.admin.output) {
        Form::Json => print_json(&answer),
        Form::Table if args.dry_run => {
            print(&format!("would go {} % of the way\n", list_of(&answer["plan"])))
        }
        Form::Table => print(&in_full(&answer)),
    }
}

fn list(admin: &AdminArgs) -> Result<(), Failure> {
    let found = admin.connect()?.get("/v1/rollouts")?;
    match Form::or_default(admin.output) {
        Form::Json => print_json(&found),
        Form::Table => print(&table(&found).render()),
    }
}

fn ask(args: &VerbArgs, verb: &str, body: &Value) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    let answer = admin.post(&format!("/v1/rollouts/{}:{verb}", segment(&args.id)), body)?;
    show(&answer, args.admin.output)
}

fn status(id: &str, is_watched: bool, args: &AdminArgs) -> Result<(), Failure> {
    let admin = args.connect()?;
    let path = format!("/v1/rollouts/{}", segment(id));
    if !is_watched {
        return show(&admin.get(&path)?, args.output);
    }
    let is_end = |rollout: &Value| TERMINAL.iter().any(|phase| rollout["phase"] == *phase);
    let watched = Watched { path: &path, render: in_full, essence: without_time, is_end };
    watch::follow(&admin, &watched, args.output)
}

fn show(rollout: &Value, output: Option<Form>) -> Result<(), Failure> {
    match Form::or_default(output) {
        Form::Json => print_json(rollout),
        Form::Table => print(&in_full(rollout)),
    }
}

/// A rollout without what differs at every look.
fn without_time(rollout: &Value) -> Value {
    let mut rollout = rollout.clone();
    if let Value::Object(fields) = &mut rollout {
        fields.remove("elapsedMs");
    }
    rollout
}

fn table(found: &Value) -> Table {
    let mut table = Table::new(&["ID", "ROUTE", "PHASE", "STEP", "CANARY", "ACKED", "MESSAGE"]);
    for rollout in items(&found["rollouts"]) {
        table.push(vec![
            cell(&rollout["id"]),
            route(rollout),
            cell(&rollout["phase"]),
            step(rollout),
            format!("{} %", cell(&rollout["weights"]["canary"])),
            acked(rollout),
            cell(&rollout["message"]),
        ]);
    }
    table
}

/// Everything of one rollout, with a bar of how far it has come.
fn in_full(rollout: &Value) -> String {
    let share = rollout["weights"]["canary"].as_f64().unwrap_or_default();
    let mut table = Table::new(&["ROLLOUT", &cell(&rollout["id"])]);
    let verified = if rollout["verified"] == true { "" } else { " (not yet)" };
    let nacked = match rollout["acked"]["nacked"].as_u64().unwrap_or_default() {
        0 => String::new(),
        n => format!(", {n} NACKed"),
    };
    for (label, text) in [
        ("ROUTE", route(rollout)),
        ("PHASE", cell(&rollout["phase"])),
        ("STEP", step(rollout)),
        ("CANARY", format!("{} {share} %", bar(share))),
        ("ACKED", format!("{}{nacked}{verified}", acked(rollout))),
        ("FAILED MEASUREMENTS", cell(&rollout["failedMeasurements"])),
        ("MESSAGE", cell(&rollout["message"])),
    ] {
        table.push(vec![label.to_owned(), text]);
    }
    let mut text = table.render();
    let mut backends = Table::new(&["", "BACKEND", "WEIGHT", "REQUESTS", "FAILURES", "ERROR RATE"]);
    for role in ["stable", "canary"] {
        let load = &rollout["loads"][role];
        let rate = load["errorRate"].as_f64().map_or("-".to_owned(), |rate| format!("{:.2} %", rate * 100.0));
        backends.push(vec![
            role.to_owned(),
            cell(&rollout[role]),
            format!("{} %", cell(&rollout["weights"][role])),
            cell(&load["requests"]),
            cell(&load["failures"]),
            rate,
        ]);
    }
    text.push('\n');
    text.push_str(&backends.render());
    if let Some(patch) = rollout["filePatch"].as_str() {
        text.push_str("\ncommit this to the file:\n");
        text.extend(patch.lines().map(|line| format!("{}\n", clean(line))));
    }
    text
}

fn route(rollout: &Value) -> String {
    let [kind, namespace, name, rule] =
        ["kind", "namespace", "name", "rule"].map(|field| cell(&rollout["route"][field]));
    format!("{kind} {namespace}/{name}, rule {rule}")
}

fn step(rollout: &Value) -> String {
    let (step, of) =
        (rollout["step"].as_u64().unwrap_or_default(), rollout["nSteps"].as_u64().unwrap_or_default());
    // The last one gives the canary everything.
    format!("{} of {}", step.saturating_add(1), of.saturating_add(1))
}

fn acked(rollout: &Value) -> String {
    format!("{} of {}", cell(&rollout["acked"]["n"]), cell(&rollout["acked"]["of"]))
}

fn list_of(values: &Value) -> String {
    items(values).map(cell).collect::<Vec<_>>().join(", ")
}

const TERMINAL: [&str; 3] = ["Succeeded", "Aborted", "Failed"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_shown_with_all_that_people_wait_for() {
        let mut rollout = json!({
            "id": "greeter-1", "route": {"kind": "GRPCRoute", "namespace": "prod", "name": "greeter", "rule": "0"},
            "stable": "v1:80", "canary": "v2:80", "phase": "Progressing", "step": 1, "nSteps": 4,
            "weights": {"stable": 90, "canary": 10}, "acked": {"n": 1, "of": 2, "nacked": 0}, "verified": false,
            "failedMeasurements": 0, "message": "step 1: 10 % to the canary",
            "loads": {"stable": {"requests": 90, "failures": 0, "errorRate": 0.0},
                "canary": {"requests": 10, "failures": 1, "errorRate": 0.1}},
        });
        assert_eq!(
            in_full(&rollout),
            "ROLLOUT              greeter-1\n\
             ROUTE                GRPCRoute prod/greeter, rule 0\n\
             PHASE                Progressing\n\
             STEP                 2 of 5\n\
             CANARY               [###...........................] 10 %\n\
             ACKED                1 of 2 (not yet)\n\
             FAILED MEASUREMENTS  0\n\
             MESSAGE              step 1: 10 % to the canary\n\
             \n\x20       BACKEND  WEIGHT  REQUESTS  FAILURES  ERROR RATE\n\
             stable  v1:80    90 %    90        0         0.00 %\n\
             canary  v2:80    10 %    10        1         10.00 %\n"
        );
        rollout["filePatch"] = json!("backends:\n- \u{1b}[2J\n");
        assert!(in_full(&rollout).ends_with("\ncommit this to the file:\nbackends:\n- \\u{1b}[2J\n"));
    }

    #[test]
    fn an_answer_of_another_shape_is_shown_without_a_panic() {
        for value in [json!(null), json!([]), json!({"weights": {"canary": 1e300}, "step": u64::MAX})] {
            let _ = (in_full(&value), table(&value).render());
        }
    }
}
