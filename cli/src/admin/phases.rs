//! The phases of a change, as a dry run reports them.

use serde_json::Value;

use crate::output::{cell, clean, items};

/// A paragraph for each group and kind of client; empty if there are none.
///
/// ```text
/// envoy clients of default:
///   1. + clusters/b
///   2. + endpoints/b
///   3. after ack of endpoints/b: + routes/r
///   4. after 30s: - clusters/a
/// ```
pub(super) fn phases(answer: &Value) -> String {
    let mut text = String::new();
    for of_group in items(&answer["phases"]) {
        text.push_str(&format!("{} clients of {}:\n", shown(&of_group["client"]), shown(&of_group["group"])));
        for (number, phase) in (1..).zip(items(&of_group["phases"])) {
            let time = phase["after"].as_str().map(clean);
            let awaited =
                items(&phase["waitsFor"]).map(|one| format!("{} of {}", shown(&one["what"]), object(one)));
            let conditions: Vec<String> = time.into_iter().chain(awaited).collect();
            let conditions = match conditions.is_empty() {
                true => String::new(),
                false => format!("after {}: ", conditions.join(", ")),
            };
            let sent = listed("+", &phase["send"], &phase["sendCount"]);
            let removed = listed("-", &phase["remove"], &phase["removeCount"]);
            let changes: Vec<String> = sent.into_iter().chain(removed).collect();
            text.push_str(&format!("  {number}. {conditions}{}\n", changes.join(" ")));
        }
    }
    text
}

fn listed(sign: &str, list: &Value, count: &Value) -> Vec<String> {
    let mut all: Vec<String> =
        items(list).take(MAX_NAMED).map(|one| format!("{sign} {}", object(one))).collect();
    let n_more = count.as_u64().unwrap_or(0).saturating_sub(all.len() as u64);
    if n_more > 0 {
        all.push(format!("{sign} {n_more} more"));
    }
    all
}

fn object(one: &Value) -> String {
    let of_type = one["type"].as_str().unwrap_or_default();
    format!("{}/{}", clean(xds_cache::ResourceType::from_type_url(of_type).slug()), shown(&one["name"]))
}

fn shown(value: &Value) -> String {
    clean(&cell(value))
}

/// How many resources one line names.
const MAX_NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_phase_is_a_line() {
        let clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let one = |name: &str| json!({"type": clusters, "name": name});
        let many: Vec<Value> = (0..10).map(|number| one(&number.to_string())).collect();
        let answer = json!({"phases": [{"group": "edge", "client": "envoy", "phases": [
            {"waitsFor": [], "send": [one("b")], "sendCount": 1, "remove": [], "removeCount": 0},
            {"waitsFor": [{"what": "ack", "type": clusters, "name": "b"}], "after": "5s",
                "send": many, "sendCount": 200, "remove": [one("a")], "removeCount": 1},
        ]}]});
        let sent = (0..8).map(|number| format!("+ clusters/{number} ")).collect::<String>();
        let expected = format!(
            "envoy clients of edge:\n  1. + clusters/b\n  2. after 5s, ack of clusters/b: {sent}+ 192 more - clusters/a\n"
        );
        assert_eq!(phases(&answer), expected);
        assert_eq!(phases(&json!({})), "");
    }
}
