//! The changes of an object, line by line: a unified difference of its YAML.

use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use crate::answer::to_yaml;

/// The lines that an answer may still have for all of its objects.
#[derive(Debug)]
pub(crate) struct Lines {
    n_bytes: usize,
}

impl Lines {
    /// As many as an answer may have: [`MAX_BYTES`].
    pub(crate) fn new() -> Self {
        Self { n_bytes: MAX_BYTES }
    }

    /// The difference of an object that was `before` and is `after`, as `diff -u` writes it. What is too long for the answer is
    /// left out, and the last line says so.
    pub(crate) fn of(&mut self, what: &str, before: Option<&Value>, after: Option<&Value>) -> String {
        let text = |value: Option<&Value>| value.map(to_yaml).unwrap_or_default();
        let (old, new) = (text(before), text(after));
        let name = |value: Option<&Value>| value.map_or("/dev/null", |_| what);
        // After that long the rest counts as replaced: right, and longer than it could be.
        let compared = TextDiff::configure().timeout(PATIENCE).diff_lines(&old, &new);
        let mut unified = compared.unified_diff();
        let whole = unified.context_radius(3).header(name(before), name(after)).to_string();
        if whole.len() <= self.n_bytes {
            self.n_bytes -= whole.len();
            return whole;
        }
        let mut shown = String::new();
        for line in whole.split_inclusive('\n') {
            if shown.len() + line.len() > self.n_bytes {
                break;
            }
            shown.push_str(line);
        }
        self.n_bytes = 0;
        let n_more = whole.lines().count() - shown.lines().count();
        format!("{shown}… and {n_more} more lines\n")
    }
}

/// How much of differences an answer has: some ten thousand lines.
const MAX_BYTES: usize = 512 * 1024;
/// How long the shortest difference of an object is looked for.
const PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_shown_line_by_line() {
        let (before, after) = (json!({"a": 1, "b": [1, 2]}), json!({"a": 1, "b": [1, 3]}));
        assert_eq!(
            Lines::new().of("x", Some(&before), Some(&after)),
            "--- x\n+++ x\n@@ -1,4 +1,4 @@\n a: 1\n b:\n - 1\n-- 2\n+- 3\n"
        );
        assert_eq!(
            Lines::new().of("x", None, Some(&json!({"a": 1}))),
            "--- /dev/null\n+++ x\n@@ -0,0 +1 @@\n+a: 1\n"
        );
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let long =
            |first: usize| Value::from((first..first + 200_000).map(|n| n.to_string()).collect::<Vec<_>>());
        let mut lines = Lines::new();
        let shown = lines.of("x", Some(&long(0)), Some(&long(500_000)));
        assert!(shown.len() < MAX_BYTES + 100 && shown.ends_with(" more lines\n"), "{}", shown.len());
        let rest = lines.of("y", None, Some(&json!({"a": 1})));
        assert_eq!(rest, "… and 4 more lines\n");
    }
}
