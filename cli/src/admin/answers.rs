//! The answers of clients to a revision, one a line.

use serde_json::Value;

use crate::output::{cell, items, one_line};

/// The clients that have not accepted a revision.
pub(super) fn who_has_not(acks: &Value) -> String {
    let mut text = String::new();
    for node in items(&acks["pending"]).take(MAX_SHOWN) {
        text.push_str(&format!("not yet: {}\n", one_line(&cell(node))));
    }
    text.push_str(&more("not yet", &acks["nPending"]));
    for (list, n, said) in
        [("nacked", "nNacked", "rejected"), ("alreadyFailing", "nAlreadyFailing", "rejected, as before,")]
    {
        for nack in items(&acks[list]).take(MAX_SHOWN) {
            let (node, message) = (one_line(&cell(&nack["node"])), one_line(&cell(&nack["message"])));
            text.push_str(&format!("{said} by {node}: {}{message}\n", rejected(nack)));
        }
        text.push_str(&more(said, &acks[n]));
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
fn more(said: &str, n: &Value) -> String {
    match n.as_u64().unwrap_or_default().saturating_sub(MAX_SHOWN as u64) {
        0 => String::new(),
        n_more => format!("{said}: {n_more} more\n"),
    }
}

/// How many clients of each list are shown; JSON has more.
pub(super) const MAX_SHOWN: usize = 20;
