//! `acks`: the clients that have applied a publication.

use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::cli::failure::Failure;
use crate::cli::output::{cell, items, one_line, print_in};

/// The flags of `acks`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AcksArgs {
    /// The revision [default: the last one]
    #[arg(value_name = "REV", conflicts_with = "version")]
    revision: Option<u64>,
    /// Show the publication that gave a type this version or label
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn acks(args: &AcksArgs) -> Result<(), Failure> {
    let query = match (args.revision, &args.version) {
        (Some(revision), _) => format!("?revision={revision}"),
        (None, Some(version)) => format!("?version={}", segment(version)),
        (None, None) => String::new(),
    };
    let found = args.admin.connect()?.get(&format!("/v1/acks{query}"))?;
    print_in(args.admin.output, &found, || render(&found))
}

fn render(found: &Value) -> String {
    let [revision, acked, total] = ["revision", "acked", "total"].map(|key| cell(&found[key]));
    let mut text = format!("revision {revision}: {acked} of {total} clients have accepted it\n");
    for node in items(&found["pending"]).take(MAX_SHOWN) {
        text.push_str(&format!("not yet: {}\n", one_line(&cell(node))));
    }
    for (list, said) in [("nacked", "rejected by"), ("already_failing", "rejected, as before, by")] {
        for nack in items(&found[list]).take(MAX_SHOWN) {
            let (node, message) = (one_line(&cell(&nack["node"])), one_line(&cell(&nack["message"])));
            text.push_str(&format!("{said} {node}: {message}\n"));
        }
    }
    text
}

/// How many clients of each list are shown; JSON has more.
const MAX_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_rejected_is_told_in_one_line_each() {
        let found = json!({"revision": 7, "acked": 1, "total": 3, "pending": ["b"],
            "nacked": [{"node": "c\u{1b}", "message": "no\nfilter"}]});
        assert_eq!(
            render(&found),
            "revision 7: 1 of 3 clients have accepted it\nnot yet: b\nrejected by c\\u{1b}: no\\nfilter\n"
        );
    }
}
