//! Disks that do not take what is to be stored: said until they do.

use std::time::Duration;

use tokio::time::sleep;
use xds_store::StoreError;

use super::{Control, Shared};
use crate::chain;

impl Control {
    /// Looks, as long as changes could not be stored, whether they can be by now; for ever.
    pub async fn watch_disk(self) {
        loop {
            sleep(PROBE_INTERVAL).await;
            if self.shared.state().problems.contains_key(STORE) {
                let probed = self.shared.parts.store.probe().await;
                self.shared.note_disk(probed.as_ref().map(|&()| ()));
            }
        }
    }

    /// Says that last good copies of files cannot be saved, and why; or that all are.
    pub fn note_copies(&self, failure: Option<&str>) {
        match failure {
            Some(failure) => {
                let problem =
                    format!("last good copies of files cannot be saved: {failure}; it is tried again");
                self.shared.problem_once(COPIES, problem);
            }
            None => self.shared.solved(COPIES),
        }
    }
}

impl Shared {
    /// Notes whether something could be stored.
    pub(super) fn note_disk(&self, stored: Result<(), &StoreError>) {
        match stored {
            Ok(()) => self.solved(STORE),
            Err(error) if error.is_of_disk() => {
                let problem = format!(
                    "changes cannot be stored and are refused: {}; what is served goes on",
                    chain(error)
                );
                self.problem_once(STORE, problem);
            }
            // The change was at fault, or the server ends.
            Err(_) => {}
        }
    }

    /// Notes a problem that is met again and again; it is logged when it is new.
    pub(super) fn problem_once(&self, subject: &'static str, message: String) {
        if self.state().problems.get(subject) != Some(&message) {
            self.problem(subject, message);
        }
    }
}

/// The subjects of these problems.
const STORE: &str = "disk";
const COPIES: &str = "last-good";
/// Soon after there is room again, and seldom enough to cost a full disk nothing.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
