//! How fast changes spread: the time until shares of the clients that a publication concerns have accepted it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use xds_cache::{Revision, StatusBoard};

use crate::acks::{Acks, Progress};
use crate::env::Observer;

/// The shares of the clients whose time is told, in percent and ascending.
pub const SHARES: [u8; 3] = [50, 99, 100];

/// The publications that clients have still to answer.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    /// The oldest first.
    open: VecDeque<Open>,
    /// The newest publication that was looked at.
    newest: Option<Revision>,
}

#[derive(Debug)]
struct Open {
    revision: Revision,
    at: Instant,
    /// How many of [`SHARES`] have accepted it.
    n_reached: usize,
}

impl Spread {
    /// Follows publications for ever, and tells `observer` how they spread.
    ///
    /// Looks at the clients when one has answered, and for a small share of the time: a look costs as much as there are clients.
    pub(crate) async fn follow(
        mut self,
        acks: Arc<Acks>,
        board: Arc<StatusBoard>,
        observer: Arc<dyn Observer>,
    ) {
        let (mut published, mut ticks) = (acks.published(), board.ticks());
        loop {
            published.mark_unchanged();
            ticks.mark_unchanged();
            let began = Instant::now();
            self.look(&acks, &*observer, began);
            sleep((began.elapsed() * MAX_LOAD).max(LOOK_INTERVAL)).await;
            tokio::select! {
                changed = published.changed() => if changed.is_err() {
                    return;
                },
                changed = ticks.changed(), if !self.open.is_empty() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Reads what clients have answered until `now`.
    pub(crate) fn look(&mut self, acks: &Acks, observer: &dyn Observer, now: Instant) {
        for (revision, at) in acks.concerning_after(self.newest) {
            self.newest = Some(revision);
            // The oldest stays, because its age is told; the newest are the ones that spread now.
            if self.open.len() >= MAX_OPEN {
                self.open.remove(1);
            }
            self.open.push_back(Open { revision, at, n_reached: 0 });
        }
        self.open.retain_mut(|open| {
            let Some(progress) = acks.progress(open.revision) else { return false };
            for share in SHARES.iter().skip(open.n_reached).take_while(|share| has(progress, **share)) {
                observer.spread(*share, now.duration_since(open.at));
                open.n_reached += 1;
            }
            progress.pending > 0
        });
        observer.waits_since(self.open.front().map(|open| open.at.into_std()));
    }
}

/// Returns `true` if a share of the clients, in percent, has accepted the publication.
fn has(Progress { total, acked, .. }: Progress, share: u8) -> bool {
    total > 0 && acked.saturating_mul(100) >= total.saturating_mul(usize::from(share))
}

/// The shortest time between two looks: a push to thousands ends in thousands of answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// After a look, so many times as long as it took passes before the next one.
const MAX_LOAD: u32 = 20;
/// How many publications are followed at a time. A client that never answers keeps one open for ever.
const MAX_OPEN: usize = 64;
