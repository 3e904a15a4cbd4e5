//! `reload`: has the server read its files again.

use serde_json::{Value, json};

use super::connection::AdminArgs;
use super::outcome::difference;
use crate::failure::Failure;
use crate::output::{Ink, cell, one_line, print_in};
use crate::progress::Progress;

/// The flags of `reload`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ReloadArgs {
    /// Also publish a load that would be held back, such as a removal of everything
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

const EXIT_CODES: &str = "Exit codes: 0 published, or nothing to do, 1 held back or errors in the files, 2 wrong command line, \
3 cannot reach the server";

/// Fails with exit code 1 if what the files say is held back, or has errors.
pub(crate) fn reload(args: &ReloadArgs) -> Result<(), Failure> {
    let path = if args.confirm { "/v1/reload?confirm=true" } else { "/v1/reload" };
    let progress = Progress::of_wait("waiting for the server to read its files");
    let answer = args.admin.connect()?.post(path, &json!({}));
    drop(progress);
    let answer = answer?;
    print_in(args.admin.output, &answer, || render(&answer, Ink::of_stdout()))?;
    if let Some(held) = answer["held"].as_str() {
        let held = one_line(held);
        return Err(Failure::Failed(format!(
            "held back: {held}; run `xds-server reload --confirm` to let it pass"
        )));
    }
    match answer["errors"].as_u64() {
        None | Some(0) => Ok(()),
        Some(n) => Err(Failure::Failed(format!("the files have {n} errors; `xds-server status` lists them"))),
    }
}

fn render(answer: &Value, ink: Ink) -> String {
    let changed = difference(answer, ink);
    let changed = if changed.is_empty() { "nothing changes\n".to_owned() } else { changed };
    format!("{changed}revision {} for {} clients\n", cell(&answer["revision"]), cell(&answer["total"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_what_it_changed() {
        let answer = json!({"revision": 7, "total": 2, "difference": [{"what": "edge/clusters/a", "before": null, "after": {}}]});
        assert_eq!(render(&answer, Ink::PLAIN), "+ edge/clusters/a\nrevision 7 for 2 clients\n");
        assert_eq!(
            render(&json!({"revision": 7, "total": 0}), Ink::PLAIN),
            "nothing changes\nrevision 7 for 0 clients\n"
        );
    }
}
