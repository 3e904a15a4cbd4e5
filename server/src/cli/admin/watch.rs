//! Output that is printed anew whenever it changes.

use std::io::{self, IsTerminal as _};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::connection::Admin;
use crate::cli::failure::Failure;
use crate::cli::output::{Form, print};

/// The thing to follow, and how to show it.
pub(super) struct Watched<'a> {
    pub(super) path: &'a str,
    /// For people.
    pub(super) render: fn(&Value) -> String,
    /// Without what differs at every look.
    pub(super) essence: fn(&Value) -> Value,
    /// Puts into a look what the one before had and it does not.
    pub(super) carry: fn(&Value, &mut Value),
    /// How it ended; `None` as long as something follows.
    pub(super) end: fn(&Value) -> Option<Result<(), Failure>>,
}

/// Shows it until it ends; a server that is away for a while, because it is restarted, is waited for. On a terminal each view takes
/// the place of the last one; in a pipe each is a line of JSON.
pub(super) fn follow(admin: &Admin, watched: &Watched<'_>, output: Option<Form>) -> Result<(), Failure> {
    let form = Form::or_default(output);
    let clears = form == Form::Table && io::stdout().is_terminal();
    let mut told: Option<(Value, Value)> = None;
    let mut n_failed = 0;
    loop {
        let mut found = match look(admin, watched.path) {
            Ok(found) => found,
            Err(Failure::Unreachable(_)) if told.is_some() && n_failed < MAX_FAILED_LOOKS => {
                n_failed += 1;
                sleep(LOOK_INTERVAL);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        n_failed = 0;
        if let (Some((last, _)), Form::Table) = (&told, form) {
            (watched.carry)(last, &mut found);
        }
        let essence = (watched.essence)(&found);
        if clears || told.as_ref().is_none_or(|(_, told)| *told != essence) {
            let shown = match form {
                Form::Json => format!("{found}\n"),
                Form::Table => (watched.render)(&found),
            };
            print(&format!("{}{shown}", if clears { CLEAR } else { "" }))?;
        }
        if let Some(end) = (watched.end)(&found) {
            return end;
        }
        told = Some((found, essence));
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
