//! `acks`: the clients that have applied a publication.

use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{cell, items, one_line, print_in};

/// The flags of `acks`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AcksArgs {
    /// The revision [default: the last one]
    #[arg(value_name = "REV", conflicts_with = "version")]
    revision: Option<u64>,
    /// Show the publication that gave a type this version or label
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Only clients of this server, where several share a store and ask each other
    #[arg(long, value_name = "ID")]
    replica: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn acks(args: &AcksArgs) -> Result<(), Failure> {
    let revision = args.revision.map(|revision| revision.to_string());
    let filters = [("revision", &revision), ("version", &args.version), ("replica", &args.replica)];
    let filters =
        filters.iter().filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))));
    let query = format!("?{}", filters.collect::<Vec<_>>().join("&"));
    let found = args.admin.connect()?.get(&format!("/v1/acks{query}"))?;
    print_in(args.admin.output, &found, || render(&found))
}

fn render(found: &Value) -> String {
    let [revision, acked, total] = ["revision", "acked", "total"].map(|key| cell(&found[key]));
    let mut text =
        format!("revision {revision}: {acked} of {total} clients have accepted it\n{}", who_has_not(found));
    for replica in items(&found["replicas"]["missing"]).take(MAX_SHOWN) {
        let [id, why, since] = ["id", "why", "since"].map(|key| one_line(&cell(&replica[key])));
        text.push_str(&format!("not counted: the clients of the server {id}: {why}, since {since}\n"));
    }
    text
}

/// The clients that have not accepted a revision, one a line.
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
const MAX_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_rejected_is_told_in_one_line_each() {
        let found = json!({"revision": 7, "acked": 1, "total": 33, "nPending": 31, "pending": vec!["b"; 31],
            "nNacked": 1, "nacked": [{"node": "c\u{1b}", "message": "no\nfilter"}],
            "replicas": {"missing": [{"id": "x", "why": "it is silent", "since": "T"}]}});
        assert_eq!(
            render(&found),
            format!(
                "revision 7: 1 of 33 clients have accepted it\n{}not yet: 11 more\nrejected by c\\u{{1b}}: no\\nfilter\n\
                 not counted: the clients of the server x: it is silent, since T\n",
                "not yet: b\n".repeat(20)
            )
        );
    }
}
