//! `history` and `rollback`: lists changes, and undoes them.

use http::Method;
use serde_json::{Value, json};

use super::connection::{AdminArgs, segment};
use super::outcome::difference;
use super::phases::phases;
use super::requests::requests;
use super::writes::{Change, WriteFlags};
use crate::failure::Failure;
use crate::output::{Ink, Table, cell, items, print_in, print_list};

/// The flags of `history`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    command: Option<HistoryCommand>,
    /// The same as `show REV`
    #[arg(value_name = "REV")]
    revision: Option<String>,
    /// Also show which requests the revision moved
    #[arg(long, requires = "revision")]
    requests: bool,
    /// Also show in which steps clients got the revision
    #[arg(long, requires = "revision")]
    phases: bool,
    /// How many revisions to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Only changes by this actor, such as files, api, rollout, waves or an X-Actor
    #[arg(long, value_name = "ACTOR", conflicts_with = "revision")]
    actor: Option<String>,
    /// Only changes from this source: api, file, rollback, revert, rollout, waves or expiry
    #[arg(long, value_name = "SOURCE", conflicts_with = "revision")]
    source: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum HistoryCommand {
    /// Show one revision, with its difference
    Show(ShowArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ShowArgs {
    /// The revision; `A...B` shows the difference between two
    #[arg(value_name = "REV")]
    revision: String,
    /// Also show which requests the revision moved
    #[arg(long)]
    requests: bool,
    /// Also show in which steps clients got the revision
    #[arg(long)]
    phases: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The flags of `rollback`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RollbackArgs {
    /// The revision to restore
    #[arg(value_name = "REV")]
    revision: u64,
    #[command(flatten)]
    write: WriteFlags,
}

pub(crate) fn history(args: &HistoryArgs) -> Result<(), Failure> {
    if let Some(HistoryCommand::Show(args)) = &args.command {
        return show(&args.admin, &args.revision, [args.requests, args.phases]);
    }
    if let Some(revision) = &args.revision {
        return show(&args.admin, revision, [args.requests, args.phases]);
    }
    let admin = args.admin.connect()?;
    let mut path = "/v1/history?".to_owned();
    for (name, value) in [("actor", &args.actor), ("source", &args.source)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    let mut history = json!({"revisions": [], "next": null});
    let mut left = args.limit;
    let mut after = String::new();
    loop {
        let mut page = admin.get(&format!("{path}&limit={}{after}", left.min(PAGE)))?;
        let found = page["revisions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if let Some(all) = history["revisions"].as_array_mut() {
            all.extend(found);
        }
        history["next"] = page["next"].take();
        match history["next"].as_str() {
            Some(next) if left > 0 => after = format!("&after={}", segment(next)),
            Some(_) | None => break,
        }
    }
    print_list(args.admin.output, &history, || list(&history))
}

fn show(args: &AdminArgs, revision: &str, wanted: [bool; 2]) -> Result<(), Failure> {
    let [requests, phases] = wanted;
    let query = format!("?requests={requests}&phases={phases}");
    let revision = args.connect()?.get(&format!("/v1/history/{}{query}", segment(revision)))?;
    print_in(args.output, &revision, || in_full(&revision, Ink::of_stdout()))
}

pub(crate) fn rollback(args: &RollbackArgs) -> Result<(), Failure> {
    let body = json!({"revision": args.revision}).to_string().into_bytes();
    let body = Some(("application/json", body));
    args.write.send(Change { method: Method::POST, path: "/v1/rollback", headers: &[], body })
}

/// As many as the server gives at once.
const PAGE: u32 = 1_000;

fn list(history: &Value) -> Table {
    let mut table = Table::new_wide(&["REVISION", "TIME", "ACTOR", "SUMMARY"], &["SOURCE", "FOR", "CHANGES"]);
    let revisions = history.get("revisions").or_else(|| history.get("history")).unwrap_or(history);
    for revision in items(revisions) {
        let time = revision.get("at").or_else(|| revision.get("time")).map(cell).unwrap_or_default();
        table.push(vec![
            cell(&revision["revision"]),
            time,
            cell(&revision["actor"]),
            cell(&revision["summary"]),
            cell(&revision["source"]),
            cell(&revision["onBehalfOf"]),
            items(&revision["changes"]).map(|change| cell(&change["what"])).collect::<Vec<_>>().join(" "),
        ]);
    }
    table
}

fn in_full(revision: &Value, ink: Ink) -> String {
    let number = match (&revision["from"], &revision["to"]) {
        (Value::Null, _) => cell(&revision["revision"]),
        (from, to) => format!("{}...{}", cell(from), cell(to)),
    };
    let mut table = Table::new(&["REVISION", &number]);
    for (label, key) in [("TIME", "at"), ("ACTOR", "actor"), ("FOR", "onBehalfOf"), ("SUMMARY", "summary")] {
        if let Some(value) = revision.get(key) {
            table.push(vec![label.to_owned(), cell(value)]);
        }
    }
    let (difference, requests, phases) = (difference(revision, ink), requests(revision), phases(revision));
    format!("{}\n{difference}{requests}{phases}", table.render())
}
