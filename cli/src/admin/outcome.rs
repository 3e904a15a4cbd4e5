//! The outcome of a change, as the commands that make one print it.

use serde_json::{Value, json};

use super::advice::for_shell;
use super::answers::who_has_not;
use super::connection::Answer;
use super::phases::phases;
use super::requests::requests;
use crate::failure::Failure;
use crate::output::{Colour, Ink, cell, clean, items, one_line};

/// Prints the outcome of a write or a dry run after `heading`. Objects that files own and keep are among the warnings.
pub(super) fn outcome(answer: &Value, heading: &str, ink: Ink) -> String {
    let mut text = match (answer["committed"] == json!(true), answer["changed"] == json!(true)) {
        (_, false) => "nothing changes\n".to_owned(),
        (false, true) => {
            format!("{heading}{}{}{}", difference(answer, ink), requests(answer), phases(answer))
        }
        (true, true) => format!("{}revision {}\n", difference(answer, ink), cell(&answer["revision"])),
    };
    if !answer["waveDeployment"].is_null() {
        text.push_str(&format!("wave deployment: xds-server waves {}\n", cell(&answer["waveDeployment"])));
    }
    for warning in items(&answer["warnings"]) {
        text.push_str(&format!("warning: {}\n", one_line(&for_shell(&cell(&warning["detail"])))));
    }
    text.push_str(&acknowledged(answer));
    text
}

/// How many clients have acknowledged it, if they were waited for.
pub(super) fn acknowledged(answer: &Value) -> String {
    let Some(acked) = answer["acked"].as_u64() else { return String::new() };
    format!("{acked} of {} clients have acknowledged it\n", cell(&answer["total"]))
}

/// The end of a command that waits for clients: shows the answer, and says by its exit code what they make of it. `not_yet` says what
/// it means that they do not all have it in time.
pub(super) fn finish(
    answer: Answer,
    not_yet: &str,
    show: impl FnOnce(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let is_pending = answer.is_pending();
    let answer = answer.success()?;
    show(&answer)?;
    if !is_pending {
        return Ok(());
    }
    let mut text = not_yet.to_owned();
    for line in who_has_not(&answer).lines() {
        text.push_str(&format!("\n  {line}"));
    }
    Err(Failure::NotYet(text))
}

/// The objects that differ, each with the lines that do.
pub(super) fn difference(answer: &Value, ink: Ink) -> String {
    let mut text = String::new();
    for change in items(&answer["difference"]) {
        let sign = match (change["before"].is_null(), change["after"].is_null()) {
            (true, _) => "+",
            (_, true) => "-",
            (false, false) => "~",
        };
        let heading = format!("{sign} {}", clean(&cell(&change["what"])));
        text.push_str(&format!("{}\n", ink.paint(&heading, Colour::Heading)));
        if let Some(diff) = change["diff"].as_str() {
            // The names in its first two lines stand above.
            let n_names = if diff.starts_with("--- ") { 2 } else { 0 };
            for line in diff.lines().skip(n_names) {
                text.push_str(&format!("{}\n", ink.paint(&clean(line), Colour::of_line(line))));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_says_what_became_of_it() {
        let answer = json!({"committed": true, "changed": true, "revision": 7, "warnings": [], "acked": 1, "total": 2, "pending": ["a"]});
        assert_eq!(outcome(&answer, "", Ink::PLAIN), "revision 7\n1 of 2 clients have acknowledged it\n");
        let shown = |status, body: &Value| {
            let answer = Answer { status, body: body.clone() };
            finish(answer, "not yet", |_| Ok(())).map_err(|failure| (failure.to_string(), failure))
        };
        assert!(shown(200, &answer).is_ok());
        let (text, failure) = shown(202, &answer).unwrap_err();
        assert!(matches!(failure, Failure::NotYet(_)) && text == "not yet\n  pending: a", "{text}");
        let rejected = json!({"title": "a client rejected the change", "nNacked": 1,
            "nacked": [{"node": "a", "typeUrl": "x.Listener", "resource": "l", "message": "no"}]});
        let (text, failure) = shown(424, &rejected).unwrap_err();
        assert!(
            matches!(failure, Failure::Failed(_)) && text.ends_with("\n  rejected by a: Listener l: no"),
            "{text}"
        );
        assert_eq!(
            outcome(&json!({"committed": true, "changed": false}), "", Ink::PLAIN),
            "nothing changes\n"
        );
        let dry_run = json!({"committed": false, "changed": true, "difference": [{"what": "x", "before": 1, "after": 2}]});
        assert_eq!(outcome(&dry_run, "would change:\n", Ink::PLAIN), "would change:\n~ x\n");
    }

    #[test]
    fn a_rollback_says_what_files_keep() {
        let mut answer = json!({"committed": true, "changed": true, "revision": 7, "waveDeployment": 7,
            "warnings": [{"code": "owned-by-file", "detail": "default/clusters/a is owned by a file"}]});
        assert_eq!(
            outcome(&answer, "", Ink::PLAIN),
            "revision 7\nwave deployment: xds-server waves 7\nwarning: default/clusters/a is owned by a file\n"
        );
        answer["changed"] = json!(false);
        answer["waveDeployment"] = Value::Null;
        assert_eq!(
            outcome(&answer, "", Ink::PLAIN),
            "nothing changes\nwarning: default/clusters/a is owned by a file\n"
        );
    }

    #[test]
    fn a_difference_says_what_comes_goes_and_changes() {
        let answer = json!({"difference": [
            {"what": "edge/clusters/a", "before": null, "after": {}},
            {"what": "edge/clusters/b", "before": {}, "after": null},
            {"what": "edge/clusters/c", "before": {}, "after": {},
                "diff": "--- edge/clusters/c\n+++ edge/clusters/c\n@@ -1,2 +1,2 @@\n name: c\n-ttl: 1\n+ttl: 2\u{1b}\n"},
        ]});
        assert_eq!(
            difference(&answer, Ink::PLAIN),
            "+ edge/clusters/a\n- edge/clusters/b\n~ edge/clusters/c\n@@ -1,2 +1,2 @@\n name: c\n-ttl: 1\n+ttl: 2\\u{1b}\n"
        );
    }
}
