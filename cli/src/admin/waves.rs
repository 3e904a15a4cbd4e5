//! `waves`: lists and steers wave deployments.

use serde_json::{Value, json};

use super::advice::for_shell;
use super::connection::{Admin, AdminArgs};
use super::watch::{self, View, WatchFlags, Watched, bar};
use crate::failure::Failure;
use crate::output::{Form, Table, cell, clean, items, one_line, print_in, print_list};

/// The flags of `waves`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct WavesArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only this wave deployment, in full
    #[arg(value_name = "ID")]
    id: Option<u64>,
    /// Show it again whenever it changes; a single wave deployment until it ends; in a pipe, one JSON object per line
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    limit: WatchFlags,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The verbs for a wave deployment.
#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Pause a wave deployment
    Pause(VerbArgs),
    /// Continue after a pause, or restart a change that was put back
    #[command(visible_alias = "retry")]
    Resume(VerbArgs),
    /// Send the change to everyone now
    Promote(VerbArgs),
    /// Put the change back now
    Abort(VerbArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct VerbArgs {
    /// The wave deployment
    #[arg(value_name = "ID")]
    id: u64,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn waves(args: &WavesArgs) -> Result<(), Failure> {
    match &args.verb {
        None => {}
        Some(Verb::Pause(args)) => return ask(args, "pause"),
        Some(Verb::Resume(args)) => return ask(args, "resume"),
        Some(Verb::Promote(args)) => return ask(args, "promote"),
        Some(Verb::Abort(args)) => return ask(args, "abort"),
    }
    let admin = args.admin.connect()?;
    if args.watch {
        let path = args.id.map_or("/v1/waves".to_owned(), |id| format!("/v1/waves/{id}"));
        let view = if args.id.is_some() { View::Text(in_full) } else { View::List(list) };
        let look = |admin: &Admin| watch::look(admin, &path);
        let limit = args.limit.timeout;
        let watched = Watched { look: &look, view, essence: Value::clone, carry: |_, _| {}, end, limit };
        return watch::follow(&admin, &watched, args.admin.output);
    }
    let Some(id) = args.id else {
        let waves = admin.get("/v1/waves")?;
        return print_list(args.admin.output, &waves, || list(&waves));
    };
    show(&admin.get(&format!("/v1/waves/{id}"))?, args.admin.output)
}

fn ask(args: &VerbArgs, verb: &str) -> Result<(), Failure> {
    let answer = args.admin.connect()?.post(&format!("/v1/waves/{}:{verb}", args.id), &json!({}))?;
    show(&answer, args.admin.output)
}

/// Prints a wave deployment.
pub(super) fn show(one: &Value, output: Option<Form>) -> Result<(), Failure> {
    print_in(output, one, || in_full(one))
}

/// How a wave deployment ended; `None` as long as it is on its way.
fn end(one: &Value) -> Option<Result<(), Failure>> {
    let phase = one["phase"].as_str().filter(|phase| ENDED.contains(phase))?;
    if ["completed", "promoted"].contains(&phase) {
        return Some(Ok(()));
    }
    let (id, reason) = (cell(&one["id"]), clean(&cell(&one["reason"])));
    Some(Err(Failure::Failed(format!("the wave deployment {id} is {phase}: {reason}"))))
}

fn list(waves: &Value) -> Table {
    let head = ["ID", "PHASE", "SHARE", "AHEAD", "ACKED", "NACKED", "LOST", "BEHIND", "SUMMARY"];
    let mut table = Table::new_wide(&head, &["REASON", "ACTOR", "BEGAN", "SINCE", "NEXT WAVE"]);
    let keys = ["id", "phase", "share", "nAhead", "nAcked", "nNacked", "nLost", "nBehind", "summary"];
    let keys = [&keys[..], &["reason", "actor", "beganAt", "since", "nextAt"]].concat();
    for one in items(&waves["waveDeployments"]) {
        table.push(keys.iter().map(|key| cell(&one[*key])).collect());
    }
    table
}

fn in_full(one: &Value) -> String {
    let mut table = Table::new(&["DEPLOYMENT", &cell(&one["id"])]);
    let percent = one["share"].as_str().and_then(|share| share.trim_end_matches('%').parse().ok());
    let share = format!("{} {}", bar(percent.unwrap_or_default()), one["share"].as_str().unwrap_or("0%"));
    table.push(vec!["SHARE".to_owned(), share]);
    let steps = items(&one["waves"]);
    let steps = steps.map(|step| format!("{} (revision {})", cell(&step["share"]), cell(&step["revision"])));
    table.push(vec!["WAVES".to_owned(), steps.collect::<Vec<_>>().join(", ")]);
    if let Some(by) = one["policy"]["by"].as_str() {
        table.push(vec!["BY".to_owned(), one_line(by)]);
    }
    let rows = [
        ("PHASE", "phase"),
        ("REASON", "reason"),
        ("SUMMARY", "summary"),
        ("ACTOR", "actor"),
        ("BEGAN", "beganAt"),
        ("SINCE", "since"),
        ("NEXT WAVE", "nextAt"),
        ("AHEAD", "nAhead"),
        ("ACKED", "nAcked"),
        ("PENDING", "nPending"),
        ("AWAY", "nAway"),
        ("LOST", "nLost"),
    ];
    for (label, key) in rows {
        if let Some(value) = one.get(key).filter(|value| !value.is_null()) {
            table.push(vec![label.to_owned(), for_shell(&cell(value))]);
        }
    }
    table.push(vec!["BEHIND".to_owned(), behind(one)]);
    if let Some(objects) = one.get("objects") {
        table.push(vec!["OBJECTS".to_owned(), cell(objects)]);
    }
    let mut text = table.render();
    text.push_str(&values(one));
    for node in items(&one["pending"]).take(MAX_PENDING) {
        text.push_str(&format!("pending: {}\n", one_line(&cell(node))));
    }
    for lost in items(&one["lost"]).take(MAX_PENDING) {
        text.push_str(&format!(
            "lost: {}: {}\n",
            one_line(&cell(&lost["node"])),
            one_line(&cell(&lost["reason"]))
        ));
    }
    for nack in items(&one["nacked"]).take(MAX_PENDING) {
        text.push_str(&format!(
            "rejected by {}: {}\n",
            one_line(&cell(&nack["node"])),
            one_line(&cell(&nack["message"]))
        ));
    }
    text
}

/// The values by which the waves go, one a line: which are ahead, and how many connected nodes of each.
fn values(one: &Value) -> String {
    let by = one_line(one["policy"]["by"].as_str().unwrap_or_default());
    let (mut text, all) = (String::new(), one["values"].as_array().map_or(&[][..], Vec::as_slice));
    for value in all.iter().take(MAX_VALUES) {
        let name = value["value"].as_str().map_or("unknown".to_owned(), one_line);
        let count = |key: &str| value[key].as_u64().unwrap_or_default();
        let (n_ahead, n_behind) = (count("nAhead"), count("nBehind"));
        let n_all = n_ahead.saturating_add(n_behind);
        let state = one_line(&cell(&value["state"]));
        text.push_str(&format!("{by} {name}: {state}, {n_ahead} of {n_all} nodes are ahead\n"));
    }
    if let Some(n_more) = all.len().checked_sub(MAX_VALUES).filter(|n_more| *n_more > 0) {
        text.push_str(&format!("{by}: {n_more} more values\n"));
    }
    text
}

/// How many nodes are behind, and the last revision that they have whole.
fn behind(one: &Value) -> String {
    let n_behind = cell(&one["nBehind"]);
    let is_under_way = !ENDED.iter().any(|phase| one["phase"] == *phase);
    match one["id"].as_u64().filter(|_| is_under_way && one["nBehind"] != 0) {
        Some(id) => format!("{n_behind} (at revision {})", id.saturating_sub(1)),
        None => n_behind,
    }
}

/// How many nodes that have not answered, are lost or have rejected the change are shown.
const MAX_PENDING: usize = 20;

/// How many of the values by which waves go are shown.
const MAX_VALUES: usize = 50;

const EXIT_CODES: &str = "Exit codes with --watch: 0 completed or promoted, 1 held, reverted or superseded, 2 wrong command line, \
3 cannot reach the server, 4 not ended in time";

/// The phases that last until an operator acts.
const ENDED: [&str; 5] = ["held", "completed", "promoted", "reverted", "superseded"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_deployment_is_shown_with_who_rejected_it() {
        let one = json!({"id": 7, "phase": "reverted", "reason": "rejected", "nextAt": null, "share": null, "nAhead": 3,
            "nacked": [{"node": "edge-1", "message": "no such\nfilter"}]});
        let text = in_full(&one);
        assert!(text.contains("reverted") && !text.contains("NEXT WAVE"), "{text}");
        assert!(text.ends_with("rejected by edge-1: no such\\nfilter\n"), "{text}");
        let one_ahead = json!({"id": 7, "share": "10%", "waves": [{"share": "1%", "revision": 7}, {"share": "10%", "revision": 8}],
            "pending": ["edge-2"], "nBehind": 90, "nLost": 1, "lost": [{"node": "edge-3", "reason": "gone"}]});
        let ahead = in_full(&one_ahead);
        assert!(ahead.contains("SHARE       [###...........................] 10%\n"), "{ahead}");
        assert!(
            ahead.contains(
                "1% (revision 7), 10% (revision 8)\nLOST        1\nBEHIND      90 (at revision 6)\npending: edge-2\nlost: edge-3: gone\n"
            ),
            "{ahead}"
        );
        let value = |value, state, n_ahead, n_behind| json!({"value": value, "state": state, "share": "50%", "nAhead": n_ahead, "nBehind": n_behind});
        let by_zone = json!({"id": 7, "policy": {"by": "zone"}, "values": [value(json!("b"), "ahead", 2, 0),
            value(json!("a"), "partly", 1, 9), value(json!(null), "behind", 0, 1)]});
        let by_zone = in_full(&by_zone);
        assert!(by_zone.contains("BY          zone\n"), "{by_zone}");
        assert!(
            by_zone.ends_with(
                "zone b: ahead, 2 of 2 nodes are ahead\nzone a: partly, 1 of 10 nodes are ahead\n\
                 zone unknown: behind, 0 of 1 nodes are ahead\n"
            ),
            "{by_zone}"
        );
        assert_eq!(
            end(&one).unwrap().unwrap_err().to_string(),
            "the wave deployment 7 is reverted: rejected",
            "which is no success"
        );
        assert!(end(&one_ahead).is_none() && end(&json!({"phase": "promoted"})).unwrap().is_ok());
        let table = list(&json!({"waveDeployments": [one]})).render();
        assert_eq!(table.lines().count(), 2, "{table}");
    }
}
