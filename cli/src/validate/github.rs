//! Workflow commands of GitHub Actions: `::error file=a.yaml,line=1,col=2,title=code::message`.
//!
//! See [Workflow commands][commands]. A percent sign and ends of lines are percent-encoded everywhere, `:` and `,` in properties
//! too, so that no text ends its command or begins another one.
//!
//! [commands]: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands

use std::fmt::Write as _;

use xds_codec::Severity;

use super::report::{Report, sentence};
use crate::offline::cleaned;
use crate::output::{clean, plain_path};

/// A command for each finding, and a line of the log with the sums.
pub(super) fn write(report: &Report) -> String {
    let mut text = String::new();
    for one in report.findings() {
        let command = match one.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let mut properties = Vec::new();
        if !one.place.file.is_empty() {
            properties.push(format!("file={}", property(&clean(plain_path(&one.place.file)))));
        }
        if one.place.line > 0 {
            properties.push(format!("line={},col={}", one.place.line, one.place.column));
        }
        properties.push(format!("title={}", property(one.code)));
        let message = data(&sentence(&cleaned(&one)));
        // Writing to a string does not fail.
        let _ = writeln!(text, "::{command} {}::{message}", properties.join(","));
    }
    let _ = writeln!(text, "{}", report.sums());
    text
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_command() {
        assert_eq!(data("50%: a,\r\nb"), "50%25: a,%0D%0Ab");
        assert_eq!(property("a:b,c%3A\n"), "a%3Ab%2Cc%253A%0A");
    }
}
