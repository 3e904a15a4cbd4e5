//! The requests that a change moves, as dry runs and the history report them.

use serde_json::Value;
use xds_units::escape::clean_lines;

use crate::output::{cell, clean, items};

/// A paragraph for each group and kind of client; empty if no request moves.
pub(super) fn requests(answer: &Value) -> String {
    let mut text = String::new();
    for of_group in items(&answer["requests"]) {
        let [client, group] = ["client", "group"].map(|key| clean(&cell(&of_group[key])));
        text.push_str(&format!("requests of {client} clients of {group}:\n"));
        let changes = clean_lines(of_group["text"].as_str().unwrap_or_default());
        changes.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    for gap in items(&answer["gaps"]) {
        text.push_str(&format!("not kept: {}\n", clean(&cell(gap))));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_group_has_a_paragraph_without_control_characters() {
        let answer = json!({
            "requests": [{"group": "edge", "client": "envoy", "text": "client  envoy@1.40\n1 moved \u{1b}\n"}],
            "gaps": ["revision 7: x"],
        });
        let expected = "requests of envoy clients of edge:\n  client  envoy@1.40\n  1 moved \\u{1b}\nnot kept: revision 7: x\n";
        assert_eq!(requests(&answer), expected);
        assert_eq!(requests(&json!({"committed": true})), "");
    }
}
