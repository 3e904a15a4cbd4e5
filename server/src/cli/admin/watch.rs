//! What is shown anew whenever it changes.

use std::io::{self, IsTerminal as _};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::Admin;
use crate::cli::Failure;
use crate::cli::output::{Form, print};

/// What is followed, and how it is shown.
pub(super) struct Watched<'a> {
    pub(super) path: &'a str,
    /// For people.
    pub(super) render: fn(&Value) -> String,
    /// Without what differs at every look.
    pub(super) essence: fn(&Value) -> Value,
    /// Whether nothing follows any more.
    pub(super) is_end: fn(&Value) -> bool,
}

/// Shows it until it ends; a server that is away for a while, because it is restarted, is waited for. On a terminal each view takes
/// the place of the last one; in a pipe each is a line of JSON.
pub(super) fn follow(admin: &Admin, watched: &Watched<'_>, output: Option<Form>) -> Result<(), Failure> {
    let form = Form::or_default(output);
    let clears = form == Form::Table && io::stdout().is_terminal();
    let mut told = String::new();
    let mut n_failed = 0;
    loop {
        let found = match look(admin, watched.path) {
            Ok(found) => found,
            Err(Failure::Unreachable(_)) if !told.is_empty() && n_failed < MAX_FAILED_LOOKS => {
                n_failed += 1;
                sleep(LOOK_INTERVAL);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        n_failed = 0;
        let text = match form {
            Form::Json => format!("{}\n", (watched.essence)(&found)),
            Form::Table => (watched.render)(&found),
        };
        if text != told {
            let shown = match form {
                Form::Json => format!("{found}\n"),
                Form::Table => text.clone(),
            };
            print(if clears { CLEAR } else { "" })?;
            print(&shown)?;
            told = text;
        }
        if (watched.is_end)(&found) {
            return Ok(());
        }
        sleep(LOOK_INTERVAL);
    }
}

/// Reads something. A server that does not serve yet is as good as away.
fn look(admin: &Admin, path: &str) -> Result<Value, Failure> {
    let answer = admin.get_any(path)?;
    let is_starting = answer.status == 503;
    answer
        .success()
        .map_err(|failure| if is_starting { Failure::Unreachable(failure.to_string()) } else { failure })
}

/// How far something has come, as a bar.
pub(super) fn bar(percent: f64) -> String {
    // It is within the bar's width.
    let n_full = (percent.clamp(0.0, 100.0) / 100.0 * BAR_WIDTH as f64).round() as usize;
    let n_full = n_full.min(BAR_WIDTH);
    format!("[{}{}]", "#".repeat(n_full), ".".repeat(BAR_WIDTH - n_full))
}

const BAR_WIDTH: usize = 30;
/// Moves the cursor to the top left corner and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A restart takes less than half a minute.
const MAX_FAILED_LOOKS: u32 = 30;
