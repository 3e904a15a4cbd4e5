//! The views: the rows of each, and what is told of the selected one.

use serde_json::Value;

use super::feed::Feed;
use crate::admin::watch::bar;
use crate::output::{cell, items, one_line};

/// A part of the screen that is shown at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Nodes,
    Changes,
    Canaries,
}

/// How a row looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Well,
    Waiting,
    Bad,
}

/// A row of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) tone: Tone,
    /// What is told of it below.
    pub(super) details: Vec<String>,
}

impl View {
    pub(super) const ALL: [Self; 3] = [Self::Nodes, Self::Changes, Self::Canaries];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Nodes => "1 nodes",
            Self::Changes => "2 changes",
            Self::Canaries => "3 canaries",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Nodes => 0,
            Self::Changes => 1,
            Self::Canaries => 2,
        }
    }

    /// The one that is so many further, round and round.
    pub(super) fn after(self, n: usize) -> Self {
        Self::ALL[(self.index() + n) % Self::ALL.len()]
    }
}

impl Row {
    /// Returns `true` if one of the first cells contains a text.
    pub(super) fn contains(&self, text: &str, n_columns: usize) -> bool {
        self.cells.iter().take(n_columns).any(|cell| cell.contains(text))
    }
}

/// The heads of the columns of a view.
pub(super) const fn head(view: View) -> &'static [&'static str] {
    match view {
        View::Nodes => &["NODE", "STATE", "REVISION", "CLIENT", "GROUPS", "LOCALITY"],
        View::Changes => &["REVISION", "TIME", "ACTOR", "SOURCE", "ACKED", "SUMMARY"],
        View::Canaries => &["ID", "KIND", "PHASE", "SHARE", "ACKED", "OF"],
    }
}

/// All rows of a view.
pub(super) fn rows(view: View, feed: &Feed) -> Vec<Row> {
    match view {
        View::Nodes => items(&feed.fleet["nodes"]).map(node).collect(),
        View::Changes => items(&feed.history["revisions"]).map(|one| change(one, &feed.acks)).collect(),
        View::Canaries => {
            let waves = items(&feed.waves["waveDeployments"]).map(wave);
            items(&feed.rollouts["rollouts"]).map(rollout).chain(waves).collect()
        }
    }
}

/// How nodes of a state look.
pub(super) fn tone_of(state: &str) -> Tone {
    match state {
        "acknowledged" => Tone::Well,
        "rejected" | "unmatched" => Tone::Bad,
        _ => Tone::Waiting,
    }
}

fn node(node: &Value) -> Row {
    let state = line(&node["state"]);
    let tone = tone_of(&state);
    let mut details =
        vec![format!("{state} since {}, cluster {}", line(&node["since"]), or_dash(&node["cluster"]))];
    if let Some(words) = node["rejection"].as_str() {
        let of_type = node["rejectedType"].as_str().unwrap_or_default();
        let of_type = of_type.rsplit('.').next().unwrap_or_default();
        details.push(format!("rejects {}: {}", one_line(of_type), one_line(words)));
    }
    if let Some(n) = node["heldBack"].as_u64().filter(|n| *n > 0) {
        details.push(format!("{n} changes are held back; `xds-server nodes {}` says why", line(&node["id"])));
    }
    let keys = ["id", "state", "revision", "client", "groups", "locality"];
    Row { cells: keys.map(|key| or_dash(&node[key])).to_vec(), tone, details }
}

fn change(revision: &Value, acks: &Value) -> Row {
    let is_of_acks = !acks["revision"].is_null() && acks["revision"] == revision["revision"];
    let mut details = vec![line(&revision["summary"])];
    let (mut acked, mut tone) = ("-".to_owned(), Tone::Well);
    if is_of_acks {
        let (n, total) =
            (acks["acked"].as_u64().unwrap_or_default(), acks["total"].as_u64().unwrap_or_default());
        acked = format!("{n} of {total}");
        tone = match acks["nNacked"].as_u64().unwrap_or_default() {
            0 if n >= total => Tone::Well,
            0 => Tone::Waiting,
            _ => Tone::Bad,
        };
        details.push(format!("acknowledged {} {acked}", bar(percent(n, total))));
        for nack in items(&acks["nacked"]).take(MAX_NAMED) {
            details.push(format!("rejected by {}: {}", line(&nack["node"]), line(&nack["message"])));
        }
        let pending: Vec<String> = items(&acks["pending"]).take(MAX_NAMED).map(line).collect();
        if !pending.is_empty() {
            details.push(format!("pending: {}", pending.join(", ")));
        }
    }
    let [number, at, actor, source, summary] =
        ["revision", "at", "actor", "source", "summary"].map(|key| or_dash(&revision[key]));
    Row { cells: vec![number, at, actor, source, acked, summary], tone, details }
}

fn rollout(rollout: &Value) -> Row {
    let share = rollout["weights"]["canary"].as_f64().unwrap_or_default();
    let [n, of] = ["n", "of"].map(|key| rollout["acked"][key].as_u64().unwrap_or_default());
    let phase = line(&rollout["phase"]);
    let tone = match phase.as_str() {
        "Succeeded" => Tone::Well,
        "Failed" | "Aborted" => Tone::Bad,
        _ => Tone::Waiting,
    };
    let [kind, namespace, name] = ["kind", "namespace", "name"].map(|key| line(&rollout["route"][key]));
    let mut details = vec![format!(
        "step {} of {}: {} acknowledged by {n} of {of} clients",
        line(&rollout["step"]),
        line(&rollout["nSteps"]),
        bar(percent(n, of))
    )];
    let loads = if rollout["loads"].is_null() { &rollout["lastMeasurement"] } else { &rollout["loads"] };
    for role in ["stable", "canary"] {
        let load = &loads[role];
        let figures = match (load["requests"].as_u64(), load["failures"].as_u64()) {
            (Some(requests), Some(failures)) => format!("{requests} requests, {failures} failed"),
            (_, _) => "no reports".to_owned(),
        };
        let weight = rollout["weights"][role].as_f64().unwrap_or_default();
        details.push(format!("{role:6} {} {weight:>5} %  {figures}  {}", bar(weight), line(&rollout[role])));
    }
    let why = if rollout["reason"].is_null() { &rollout["message"] } else { &rollout["reason"] };
    details.push(line(why));
    let cells = vec![
        line(&rollout["id"]),
        "rollout".to_owned(),
        phase,
        format!("{} {share} %", bar(share)),
        format!("{n} of {of}"),
        format!("{kind} {namespace}/{name}"),
    ];
    Row { cells, tone, details }
}

fn wave(wave: &Value) -> Row {
    let share = wave["share"].as_str().unwrap_or("0%");
    let phase = line(&wave["phase"]);
    let tone = match phase.as_str() {
        "completed" | "promoted" => Tone::Well,
        "held" | "reverted" => Tone::Bad,
        _ => Tone::Waiting,
    };
    let [n_ahead, n_acked, n_behind] = ["nAhead", "nAcked", "nBehind"].map(|key| line(&wave[key]));
    let mut details = vec![format!("{n_ahead} nodes are ahead, {n_behind} behind")];
    if let Some(reason) = wave["reason"].as_str() {
        details.push(one_line(reason));
    }
    let percent = share.trim_end_matches('%').parse().unwrap_or_default();
    let cells = vec![
        line(&wave["id"]),
        "wave".to_owned(),
        phase,
        format!("{} {}", bar(percent), one_line(share)),
        format!("{n_acked} of {n_ahead}"),
        line(&wave["summary"]),
    ];
    Row { cells, tone, details }
}

fn percent(n: u64, of: u64) -> f64 {
    // Numbers of clients are far below where this is not exact.
    if of == 0 { 0.0 } else { n as f64 / of as f64 * 100.0 }
}

fn line(value: &Value) -> String {
    one_line(&cell(value))
}

fn or_dash(value: &Value) -> String {
    let text = line(value);
    if text.is_empty() { "-".to_owned() } else { text }
}

/// How many nodes are named below.
const MAX_NAMED: usize = 3;
