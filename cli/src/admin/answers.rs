//! The answers of clients to a revision, one a line.

use serde_json::Value;

use crate::output::{cell, items, one_line};

/// The clients that have not acknowledged a revision, and why: they reject something of it, it is pending or unknown, or there are too
/// few clients.
pub(super) fn who_has_not(acks: &Value) -> String {
    let mut text = String::new();
    // Those of which it is unknown are pending, too.
    let unknown: Vec<&Value> = items(&acks["unknown"]).collect();
    let pending = items(&acks["pending"]).filter(|node| !unknown.contains(node)).collect();
    let n_unknown = acks["nUnknown"].as_u64().unwrap_or_default();
    let n_pending = acks["nPending"].as_u64().unwrap_or_default().saturating_sub(n_unknown);
    for (word, nodes, n) in [("pending", pending, n_pending), ("unknown", unknown, n_unknown)] {
        for node in nodes.into_iter().take(MAX_SHOWN) {
            text.push_str(&format!("{word}: {}\n", one_line(&cell(node))));
        }
        text.push_str(&more(word, n));
    }
    for (list, n, said) in
        [("nacked", "nNacked", "rejected"), ("alreadyFailing", "nAlreadyFailing", "rejected, as before,")]
    {
        for nack in items(&acks[list]).take(MAX_SHOWN) {
            let (node, message) = (one_line(&cell(&nack["node"])), one_line(&cell(&nack["message"])));
            text.push_str(&format!("{said} by {node}: {}{message}\n", rejected(nack)));
        }
        text.push_str(&more(said, acks[n].as_u64().unwrap_or_default()));
    }
    if let Some(short) = acks["short"].as_u64() {
        text.push_str(&format!("short: {short} more clients must acknowledge it\n"));
    }
    text
}

/// What a client rejects, before its words: the type and name of a resource, as far as they are known.
fn rejected(nack: &Value) -> String {
    let type_url = nack["typeUrl"].as_str().unwrap_or_default();
    let of_type = type_url.rsplit('.').next().unwrap_or_default();
    let text = match nack["resource"].as_str() {
        Some(name) => format!("{of_type} {name}: "),
        None if of_type.is_empty() => String::new(),
        None => format!("a {of_type}: "),
    };
    one_line(&text)
}

/// A line that says how many are not shown, if some are not.
fn more(said: &str, n: u64) -> String {
    match n.saturating_sub(MAX_SHOWN as u64) {
        0 => String::new(),
        n_more => format!("{said}: {n_more} more\n"),
    }
}

/// How many clients of each list are shown; JSON has more.
pub(super) const MAX_SHOWN: usize = 20;
