//! Advice of the server, translated for the shell: its texts name endpoints and parameters, but the user typed a command.

use std::sync::LazyLock;

use regex::Regex;

/// A text of the server with the commands and flags in place of the requests and parameters that it advises.
pub(super) fn for_shell(text: &str) -> String {
    let mut text = text.to_owned();
    for (wanted, command) in &*RULES {
        if let std::borrow::Cow::Owned(replaced) = wanted.replace_all(&text, *command) {
            text = replaced;
        }
    }
    text
}

/// The replacements, in this order.
static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rules = [
        (r"(?:POST )?/v1/waves/(\d+):(pause|resume|promote|abort)\b", "`xds-server waves $2 $1`"),
        (r"(?:GET )?/v1/waves/(\d+)", "`xds-server waves $1`"),
        (r"([ (]):(pause|resume|promote|abort)\b", "$1`$2`"),
        (r"(?:POST )?/v1/reload\?confirm=true", "`xds-server reload --confirm`"),
        (r"\bconfirm=true\b", "--confirm"),
        (
            r"write resources to /v1/groups/\{group\}/resources",
            "write resources with `xds-server resources put`",
        ),
        (r"write node groups to /v1/groups/\{group\}", "write node groups with `xds-server groups put`"),
        (r"\?force=true|\bforce=true", "--force"),
        (r"\bwaves=none", "--waves none"),
        (r"\ballowEmpty would", "--allow-empty would"),
    ];
    rules.into_iter().filter_map(|(wanted, command)| Some((Regex::new(wanted).ok()?, command))).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_advised_in_place_of_requests() {
        assert_eq!(RULES.len(), 10, "every pattern is one");
        for (said, shown) in [
            (
                "wait, end it with /v1/waves/7:promote or :abort, write to everyone with waves=none, or force=true to abort it first",
                "wait, end it with `xds-server waves promote 7` or `abort`, write to everyone with --waves none, or --force to abort it first",
            ),
            (
                "POST /v1/waves/7:resume continues, :promote gives it to everyone, :abort puts it back",
                "`xds-server waves resume 7` continues, `promote` gives it to everyone, `abort` puts it back",
            ),
            ("wait; GET /v1/waves/7 shows who has it", "wait; `xds-server waves 7` shows who has it"),
            ("change it again, or see /v1/waves/7", "change it again, or see `xds-server waves 7`"),
            (
                "it waits for one, or for :promote; allowEmpty would let it pass",
                "it waits for one, or for `promote`; --allow-empty would let it pass",
            ),
            (
                "abort it, or change them with ?force=true, which ends it",
                "abort it, or change them with --force, which ends it",
            ),
            ("write node groups to /v1/groups/{group}", "write node groups with `xds-server groups put`"),
            ("POST /v1/reload?confirm=true", "`xds-server reload --confirm`"),
            (
                "if this is intended, confirm it with confirm=true",
                "if this is intended, confirm it with --confirm",
            ),
            ("a route to http://a:80/v1/x :promoted stays", "a route to http://a:80/v1/x :promoted stays"),
        ] {
            assert_eq!(for_shell(said), shown);
        }
    }
}
