//! Progress on standard error, for people who wait longer than a second.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Something that may take a while. It is shown from the second second on, if standard error is a terminal, until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Shows the bar when it is time; `None` without a terminal.
    shower: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// A number of steps, shown as a bar.
    pub(crate) fn of_steps(what: &'static str, n: u64) -> Self {
        Self::new(ProgressBar::with_draw_target(Some(n), ProgressDrawTarget::hidden()), STEPS, what)
    }

    /// Something of which nobody knows how far it is.
    pub(crate) fn of_wait(what: &'static str) -> Self {
        Self::new(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), WAIT, what)
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    fn new(bar: ProgressBar, template: &str, what: &'static str) -> Self {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style.progress_chars("##.")).with_message(what);
        let shower = io::stderr().is_terminal().then(|| {
            let (ended, end) = mpsc::channel::<()>();
            let shown = bar.clone();
            let show = move || {
                if end.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(TICK);
                }
            };
            (ended, thread::spawn(show))
        });
        Self { bar, shower }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((ended, shower)) = self.shower.take() {
            drop(ended);
            // It does not panic; and nothing may be drawn after this.
            let _ = shower.join();
        }
        self.bar.finish_and_clear();
    }
}

const STEPS: &str = "{msg} [{bar:30}] {pos} of {len}, {elapsed}";
const WAIT: &str = "{spinner} {msg}, {elapsed}";
/// What is done sooner needs no progress.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);
