//! `acks`: the clients that have acknowledged a publication.

use serde_json::Value;

use super::answers::{MAX_SHOWN, who_has_not};
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
    let mut text = format!(
        "revision {revision}: {acked} of {total} clients have acknowledged it\n{}",
        who_has_not(found)
    );
    for replica in items(&found["replicas"]["missing"]).take(MAX_SHOWN) {
        let [id, why, since] = ["id", "why", "since"].map(|key| one_line(&cell(&replica[key])));
        text.push_str(&format!("not counted: the clients of the server {id}: {why}, since {since}\n"));
    }
    text
}

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
                "revision 7: 1 of 33 clients have acknowledged it\n{}pending: 11 more\nrejected by c\\u{{1b}}: no\\nfilter\n\
                 not counted: the clients of the server x: it is silent, since T\n",
                "pending: b\n".repeat(20)
            )
        );
    }
}
