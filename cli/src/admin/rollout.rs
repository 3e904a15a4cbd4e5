//! `rollout`: starts, watches and steers rollouts.

use std::io::Read as _;
use std::path::PathBuf;
use std::{fs, io};

use http::Method;
use serde_json::{Value, json};
use xds_codec::Syntax;

use super::connection::{Admin, AdminArgs, segment};
use super::watch::{self, View, WatchFlags, Watched, bar, spark};
use crate::failure::Failure;
use crate::output::{Form, Table, cell, clean, items, print_in, print_list};

/// The arguments of `rollout`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum RolloutCommand {
    /// Start a rollout
    #[command(after_help = EXIT_CODES)]
    Start(StartArgs),
    /// Show a rollout, or all of them
    #[command(after_help = EXIT_CODES)]
    Status(StatusArgs),
    /// List all rollouts
    List(ListArgs),
    /// Stop at the current step
    Pause(VerbArgs),
    /// Continue
    Resume(VerbArgs),
    /// Continue without waiting for the current step
    Promote(PromoteArgs),
    /// Move all traffic back to stable now
    Abort(VerbArgs),
    /// Restart a rollout that was aborted or has failed
    Retry(VerbArgs),
    /// Delete a rollout that has ended
    Delete(DeleteArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct StartArgs {
    /// The rollout, as YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Show the rollout whenever it changes, until it ends; in a pipe, one JSON object per line
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    limit: WatchFlags,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct StatusArgs {
    /// The rollout [default: all]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Show the rollout whenever it changes, until it ends; in a pipe, one JSON object per line
    #[arg(long, requires = "id")]
    watch: bool,
    #[command(flatten)]
    limit: WatchFlags,
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

#[derive(Clone, Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Abort it first if it is in progress
    #[arg(long)]
    abort: bool,
}

pub(crate) fn rollout(args: &RolloutArgs) -> Result<(), Failure> {
    match &args.command {
        RolloutCommand::Start(args) => start(args),
        RolloutCommand::Status(StatusArgs { id: Some(id), watch, limit, admin }) => {
            status(id, watch.then_some(limit), admin)
        }
        RolloutCommand::Status(StatusArgs { id: None, admin, .. })
        | RolloutCommand::List(ListArgs { admin }) => list(admin),
        RolloutCommand::Pause(args) => ask(args, "pause", &json!({})),
        RolloutCommand::Resume(args) => ask(args, "resume", &json!({})),
        RolloutCommand::Promote(PromoteArgs { verb, full }) => ask(verb, "promote", &json!({"full": full})),
        RolloutCommand::Abort(args) => ask(args, "abort", &json!({})),
        RolloutCommand::Retry(args) => ask(args, "retry", &json!({})),
        RolloutCommand::Delete(DeleteArgs { verb, abort }) => {
            let query = if *abort { "?abort=true" } else { "" };
            let path = format!("/v1/rollouts/{}{query}", segment(&verb.id));
            verb.admin.connect()?.send(Method::DELETE, &path, &[], None)?.success().map(drop)
        }
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
    let admin = args.admin.connect()?;
    let answer = admin.post(path, &document.to_json())?;
    if args.watch {
        return watch(&admin, &cell(&answer["id"]), &args.limit, args.admin.output);
    }
    print_in(args.admin.output, &answer, || match args.dry_run {
        true => format!("would progress to {} %\n", list_of(&answer["plan"])),
        false if answer["inconclusive"].is_null() => in_full(&answer),
        false => format!("{}\n{}\n", in_full(&answer), cell(&answer["inconclusive"])),
    })
}

fn list(admin: &AdminArgs) -> Result<(), Failure> {
    let found = admin.connect()?.get("/v1/rollouts")?;
    print_list(admin.output, &found, || table(&found))
}

fn ask(args: &VerbArgs, verb: &str, body: &Value) -> Result<(), Failure> {
    let admin = args.admin.connect()?;
    let answer = admin.post(&format!("/v1/rollouts/{}:{verb}", segment(&args.id)), body)?;
    show(&answer, args.admin.output)
}

fn status(id: &str, watched: Option<&WatchFlags>, args: &AdminArgs) -> Result<(), Failure> {
    let admin = args.connect()?;
    if let Some(limit) = watched {
        return watch(&admin, id, limit, args.output);
    }
    show(&read(&admin, id, Form::or_default(args.output))?, args.output)
}

/// Reads a rollout; for people with its requests over time, which its answer does not have.
fn read(admin: &Admin, id: &str, form: Form) -> Result<Value, Failure> {
    let path = format!("/v1/rollouts/{}", segment(id));
    let mut rollout = watch::look(admin, &path)?;
    if form.is_for_people() {
        // It is only drawn, and a rollout can be looked at without.
        rollout["series"] = admin.get(&format!("{path}/loads")).unwrap_or_default();
    }
    Ok(rollout)
}

/// Shows a rollout until it ends, which is a failure unless it succeeds.
fn watch(admin: &Admin, id: &str, limit: &WatchFlags, output: Option<Form>) -> Result<(), Failure> {
    let form = Form::or_default(output);
    let look = |admin: &Admin| read(admin, id, form);
    let view = View::Text(in_full);
    let watched =
        Watched { look: &look, view, essence: without_time, carry: keep_loads, end, limit: limit.timeout };
    watch::follow(admin, &watched, output)
}

/// How a rollout ended; `None` as long as it is on its way.
fn end(rollout: &Value) -> Option<Result<(), Failure>> {
    let phase = rollout["phase"].as_str().filter(|phase| TERMINAL.contains(phase))?;
    if phase == "Succeeded" {
        return Some(Ok(()));
    }
    // A server of an earlier version gives no reason.
    let why = rollout.get("reason").filter(|reason| reason.is_string()).unwrap_or(&rollout["message"]);
    let (id, after, why) = (clean(&cell(&rollout["id"])), elapsed(rollout), clean(&cell(why)));
    Some(Err(Failure::Failed(format!("the rollout {id} is {phase} after {after}: {why}"))))
}

/// Shows the figures of the last look where there are none any more: after the end nothing is reported for a rollout.
fn keep_loads(last: &Value, rollout: &mut Value) {
    if rollout["loads"].is_null() && rollout["lastMeasurement"].is_null() && !last["loads"].is_null() {
        rollout["loads"] = last["loads"].clone();
    }
}

fn show(rollout: &Value, output: Option<Form>) -> Result<(), Failure> {
    print_in(output, rollout, || in_full(rollout))
}

/// A rollout without what differs at every look.
fn without_time(rollout: &Value) -> Value {
    let mut rollout = rollout.clone();
    if let Value::Object(fields) = &mut rollout {
        fields.remove("elapsedMs");
        fields.remove("series");
    }
    rollout
}

fn table(found: &Value) -> Table {
    let head = ["ID", "ROUTE", "PHASE", "STEP", "CANARY", "ACKED", "MESSAGE"];
    let mut table = Table::new_wide(&head, &["FROM", "TO", "ELAPSED", "FAILED MEASUREMENTS", "REASON"]);
    for rollout in items(&found["rollouts"]) {
        table.push(vec![
            cell(&rollout["id"]),
            route(rollout),
            cell(&rollout["phase"]),
            step(rollout),
            format!("{} %", cell(&rollout["weights"]["canary"])),
            acked(rollout),
            cell(&rollout["message"]),
            cell(&rollout["stable"]),
            cell(&rollout["canary"]),
            elapsed(rollout),
            cell(&rollout["failedMeasurements"]),
            cell(&rollout["reason"]),
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
        ("ACKED", format!("{} {}{nacked}{verified}", bar(acked_percent(rollout)), acked(rollout))),
        ("FAILED MEASUREMENTS", cell(&rollout["failedMeasurements"])),
        ("ELAPSED", elapsed(rollout)),
        ("MESSAGE", cell(&rollout["message"])),
    ] {
        table.push(vec![label.to_owned(), text]);
    }
    if !rollout["reason"].is_null() {
        table.push(vec!["REASON".to_owned(), cell(&rollout["reason"])]);
    }
    let mut text = table.render();
    // After the end there are those of the last measurement.
    let loads = if rollout["loads"].is_null() { &rollout["lastMeasurement"] } else { &rollout["loads"] };
    let mut backends = Table::new(&["", "BACKEND", "WEIGHT", "REQUESTS", "FAILURES", "ERROR RATE"]);
    for role in ["stable", "canary"] {
        let load = &loads[role];
        let rate = match (load["failures"].as_f64(), load["requests"].as_f64()) {
            (Some(failures), Some(requests)) if requests > 0.0 => {
                format!("{:.2} %", failures / requests * 100.0)
            }
            _ => "-".to_owned(),
        };
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
    text.push_str(&plots(&rollout["series"]));
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
    format!("{} of {}", cell(&rollout["step"]), cell(&rollout["nSteps"]))
}

/// For how long it has been on its way, such as `2h 5m 13s`.
fn elapsed(rollout: &Value) -> String {
    let seconds = rollout["elapsedMs"].as_u64().unwrap_or_default() / 1_000;
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m {rest}s"),
        (_, _) => format!("{hours}h {minutes}m {rest}s"),
    }
}

fn acked(rollout: &Value) -> String {
    format!("{} of {}", cell(&rollout["acked"]["n"]), cell(&rollout["acked"]["of"]))
}

/// Which part of the clients has accepted it, in percent.
fn acked_percent(rollout: &Value) -> f64 {
    let [n, of] = ["n", "of"].map(|key| rollout["acked"][key].as_f64().unwrap_or_default());
    if of > 0.0 { n / of * 100.0 } else { 0.0 }
}

/// The requests and failures of both backends over time, one line each; empty if there were none.
fn plots(series: &Value) -> String {
    let seconds = cell(&series["bucketSeconds"]);
    let mut table = Table::new(&["", "", &format!("OVER TIME, {seconds} s EACH"), "MOST"]);
    let mut is_empty = true;
    for role in ["stable", "canary"] {
        for what in ["requests", "failures"] {
            let numbers =
                items(&series["points"]).map(|point| point[role][what].as_u64().unwrap_or_default());
            let numbers: Vec<u64> = numbers.collect();
            let last = &numbers[numbers.len().saturating_sub(MAX_POINTS)..];
            let most = last.iter().copied().max().unwrap_or_default();
            if most > 0 {
                is_empty = false;
                table.push(vec![role.to_owned(), what.to_owned(), spark(last), most.to_string()]);
            }
        }
    }
    let weights: Vec<u64> = items(&series["points"]).filter_map(hundredths).collect();
    let last = &weights[weights.len().saturating_sub(MAX_POINTS)..];
    if let Some(most) = last.iter().max().filter(|_| !is_empty) {
        let most = format!("{} %", *most as f64 / 100.0);
        table.push(vec!["canary".to_owned(), "weight".to_owned(), spark(last), most]);
    }
    if is_empty { String::new() } else { format!("\n{}", table.render()) }
}

/// The weight of the canary at a point, in hundredths of a percent.
fn hundredths(point: &Value) -> Option<u64> {
    point["weight"].as_f64().map(|percent| (percent * 100.0).round() as u64)
}

/// The newest points, as many as fit in a line.
const MAX_POINTS: usize = 60;

fn list_of(values: &Value) -> String {
    items(values).map(cell).collect::<Vec<_>>().join(", ")
}

const EXIT_CODES: &str = "Exit codes with --watch: 0 Succeeded, 1 Aborted or Failed, 2 wrong command line, \
3 cannot reach the server, 4 not ended in time";

const TERMINAL: [&str; 3] = ["Succeeded", "Aborted", "Failed"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_shown_with_all_that_people_wait_for() {
        let mut rollout = json!({
            "id": "greeter-1", "route": {"kind": "GRPCRoute", "namespace": "prod", "name": "greeter", "rule": "0"},
            "stable": "v1:80", "canary": "v2:80", "phase": "Progressing", "step": 2, "nSteps": 5, "elapsedMs": 3_725_999,
            "weights": {"stable": 90, "canary": 10}, "acked": {"n": 1, "of": 2, "nacked": 0}, "verified": false,
            "failedMeasurements": 0, "message": "step 2: 10 % to the canary",
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
             ACKED                [###############...............] 1 of 2 (not yet)\n\
             FAILED MEASUREMENTS  0\n\
             ELAPSED              1h 2m 5s\n\
             MESSAGE              step 2: 10 % to the canary\n\
             \n\x20       BACKEND  WEIGHT  REQUESTS  FAILURES  ERROR RATE\n\
             stable  v1:80    90 %    90        0         0.00 %\n\
             canary  v2:80    10 %    10        1         10.00 %\n"
        );
        let point = |requests, failures| json!({"canary": {"requests": requests, "failures": failures}, "stable": {"requests": 0}, "weight": requests * 5});
        rollout["series"] = json!({"bucketSeconds": 10, "points": [point(1, 0), point(8, 4)]});
        assert!(
            in_full(&rollout).ends_with(
                "\n                  OVER TIME, 10 s EACH  MOST\n\
                 canary  requests  ▁█                    8\n\
                 canary  failures   █                    4\n\
                 canary  weight    ▁█                    40 %\n"
            ),
            "{}",
            in_full(&rollout)
        );
        rollout["series"] = Value::Null;
        rollout["filePatch"] = json!("backends:\n- \u{1b}[2J\n");
        assert!(in_full(&rollout).ends_with("\ncommit this to the file:\nbackends:\n- \\u{1b}[2J\n"));
    }

    #[test]
    fn the_last_screen_says_why_with_the_last_figures() {
        let message = "failed: 42 of 42 requests of the canary failed; stable has all traffic";
        let rollout = json!({
            "id": "greeter-1", "phase": "Failed", "step": 3, "nSteps": 5, "elapsedMs": 133_000, "message": message,
            "reason": "42 of 42 requests of the canary failed", "weights": {"stable": 100, "canary": 0},
            "lastMeasurement": {"stable": {"requests": 90, "failures": 0}, "canary": {"requests": 42, "failures": 42}},
        });
        let text = in_full(&rollout);
        for line in [
            "STEP                 3 of 5\n",
            "ELAPSED              2m 13s\n",
            "REASON               42 of 42 requests of the canary failed\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains(" 42        42        100.00 %\n"), "{text}");
        let failure = end(&rollout).unwrap().unwrap_err();
        assert!(matches!(failure, Failure::Failed(_)), "exit code 1");
        let said = "the rollout greeter-1 is Failed after 2m 13s: 42 of 42 requests of the canary failed";
        assert_eq!(failure.to_string(), said);
        assert!(end(&json!({"phase": "Paused"})).is_none());
        assert!(end(&json!({"phase": "Succeeded"})).unwrap().is_ok());
        // Without an analysis there are the figures of the look before.
        let (before, mut after) = (json!({"loads": {"canary": {"requests": 7}}}), json!({"phase": "Failed"}));
        keep_loads(&before, &mut after);
        assert_eq!(after["loads"], before["loads"]);
    }

    #[test]
    fn an_answer_of_another_shape_is_shown_without_a_panic() {
        for value in [json!(null), json!([]), json!({"weights": {"canary": 1e300}, "step": u64::MAX})] {
            let _ = (in_full(&value), table(&value).render());
        }
    }
}
