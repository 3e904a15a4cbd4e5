//! A limit of log lines of one kind for each second, with a summary of the rest.

use std::time::{Duration, Instant};

/// The present second, in which lines are counted. `T` is a summary of the lines that are left out.
#[derive(Debug, Default)]
pub(crate) struct Window<T> {
    began: Option<Instant>,
    n_lines: usize,
    left_out: T,
}

impl<T: Default> Window<T> {
    /// Begins another second if this one is over, and returns what it left out.
    pub(crate) fn turn(&mut self, now: Instant) -> T {
        if self.began.is_some_and(|began| now.saturating_duration_since(began) < SECOND) {
            return T::default();
        }
        std::mem::replace(self, Self { began: Some(now), ..Self::default() }).left_out
    }

    /// Takes a line if one is left; else returns the summary, to which its content is to be added.
    pub(crate) fn admit(&mut self) -> Result<(), &mut T> {
        if self.n_lines < MAX_LINES_A_SECOND {
            self.n_lines += 1;
            return Ok(());
        }
        Err(&mut self.left_out)
    }
}

/// A person can follow this many. A fleet that reconnects, or that rejects a response, would write a thousand times more.
pub(crate) const MAX_LINES_A_SECOND: usize = 20;
pub(crate) const SECOND: Duration = Duration::from_secs(1);
