//! Output that is printed anew whenever it changes.

use std::io::{self, IsTerminal as _};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use xds_units::Span;

use super::connection::Admin;
use crate::failure::Failure;
use crate::output::{Form, Table, clean, in_turn, print};

/// The thing to follow, and how to show it.
pub(super) struct Watched<'a> {
    /// Reads it.
    pub(super) look: &'a dyn Fn(&Admin) -> Result<Value, Failure>,
    pub(super) view: View,
    /// Without what differs at every look.
    pub(super) essence: fn(&Value) -> Value,
    /// Puts into a look what the one before had and it does not.
    pub(super) carry: fn(&Value, &mut Value),
    /// How it ended; `None` as long as something follows.
    pub(super) end: fn(&Value) -> Option<Result<(), Failure>>,
    /// How long it is followed at most.
    pub(super) limit: Option<Span>,
}

/// How long something is followed that ends.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct WatchFlags {
    /// Time limit for --watch, such as 10m; if it has not ended by then, the exit code is 4 [default: none]
    #[arg(long, value_name = "TIME", requires = "watch")]
    pub(super) timeout: Option<Span>,
}

/// How it is shown to people.
pub(super) enum View {
    /// As a whole.
    Text(fn(&Value) -> String),
    /// A list: where it cannot be drawn in place, only the rows that are new.
    List(fn(&Value) -> Table),
}

impl View {
    fn whole(&self, found: &Value) -> String {
        match self {
            Self::Text(render) => render(found),
            Self::List(table) => table(found).render(),
        }
    }

    /// What is new since the last look.
    fn news(&self, last: &Value, found: &Value) -> String {
        match self {
            Self::Text(render) => render(found),
            Self::List(table) => table(found).news_since(&table(last)),
        }
    }
}

/// Shows it until it ends; a server that is away for a while, because it is restarted, is waited for. On a terminal each view takes
/// the place of the last one; in a pipe each is a line of JSON.
pub(super) fn follow(admin: &Admin, watched: &Watched<'_>, output: Option<Form>) -> Result<(), Failure> {
    let form = Form::or_default(output);
    let clears = form.is_for_people() && io::stdout().is_terminal();
    // One thing says for how long it has been on its way.
    let is_ticking = clears && matches!(watched.view, View::Text(_));
    let mut told: Option<(Value, Value)> = None;
    let mut n_failed = 0;
    let deadline = watched.limit.and_then(|limit| Instant::now().checked_add(limit.duration()));
    let pause = || {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        sleep(left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL)));
        left.is_none_or(|left| !left.is_zero())
    };
    loop {
        let mut found = match (watched.look)(admin) {
            Ok(found) => found,
            Err(Failure::Unreachable(_)) if told.is_some() && n_failed < MAX_FAILED_LOOKS && pause() => {
                n_failed += 1;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        n_failed = 0;
        if let (Some((last, _)), true) = (&told, form.is_for_people()) {
            (watched.carry)(last, &mut found);
        }
        let essence = (watched.essence)(&found);
        if is_ticking || told.as_ref().is_none_or(|(_, told)| *told != essence) {
            let shown = in_turn(form, &found, || match &told {
                Some((last, _)) if !clears => watched.view.news(last, &found),
                Some(_) | None => watched.view.whole(&found),
            })?;
            print(&format!("{}{shown}", if clears { CLEAR } else { "" }))?;
        }
        if let Some(end) = (watched.end)(&found) {
            return end;
        }
        if !pause() {
            return Err(Failure::NotYet(not_ended(&found)));
        }
        told = Some((found, essence));
    }
}

/// How something is that has not ended in time.
fn not_ended(found: &Value) -> String {
    let text = |key: &str| found.get(key).and_then(Value::as_str).map(clean);
    let why = text("message").or_else(|| text("reason")).map(|why| format!(", {why}")).unwrap_or_default();
    format!(
        "it has not ended in time: it is {}{why}",
        text("phase").unwrap_or_else(|| "on its way".to_owned())
    )
}

/// Reads something. A server that does not serve yet is as good as away.
pub(super) fn look(admin: &Admin, path: &str) -> Result<Value, Failure> {
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

/// Numbers over time, each as a block as high as its part of the largest one.
pub(super) fn spark(numbers: &[u64]) -> String {
    let largest = numbers.iter().copied().max().unwrap_or_default().max(1);
    let block = |number: &u64| {
        // What is not nothing can be seen.
        let height = number.saturating_mul(BLOCKS.len() as u64 - 1).div_ceil(largest);
        usize::try_from(height).ok().and_then(|height| BLOCKS.get(height)).copied().unwrap_or(' ')
    };
    numbers.iter().map(block).collect()
}

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BAR_WIDTH: usize = 30;
/// Moves the cursor to the top left corner and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A restart takes less than half a minute.
const MAX_FAILED_LOOKS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_over_time_are_as_high_as_their_part_of_the_largest() {
        assert_eq!(spark(&[0, 1, 50, 100]), " ▁▄█");
        assert_eq!(spark(&[0, 0]), "  ");
        assert_eq!(spark(&[u64::MAX]).chars().count(), 1);
    }
}
