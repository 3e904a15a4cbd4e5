//! What the screen shows, read from the server about once a second.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::connection::{Admin, segment};
use crate::failure::Failure;

/// The answers of the server. What it does not tell is null.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Feed {
    pub(super) fleet: Value,
    pub(super) history: Value,
    pub(super) acks: Value,
    pub(super) rollouts: Value,
    pub(super) waves: Value,
    /// Why something is missing.
    pub(super) failure: Option<String>,
}

/// Reads in the background.
#[derive(Debug)]
pub(super) struct Feeder {
    feeds: Receiver<Feed>,
    filters: Sender<String>,
}

impl Feeder {
    /// Reads until it is dropped.
    pub(super) fn start(admin: Admin) -> Self {
        let (send, feeds) = mpsc::channel();
        let (filters, wanted) = mpsc::channel();
        thread::spawn(move || run(&admin, &send, &wanted));
        Self { feeds, filters }
    }

    /// The newest feed, if there is one that was not given yet.
    pub(super) fn poll_feed(&self) -> Option<Feed> {
        self.feeds.try_iter().last()
    }

    /// Sets the text that ids of nodes must contain.
    pub(super) fn set_filter(&self, filter: &str) {
        // The thread ends only with the receiver of its feeds, which is here.
        let _ = self.filters.send(filter.to_owned());
    }
}

fn run(admin: &Admin, feeds: &Sender<Feed>, filters: &Receiver<String>) {
    let mut filter = String::new();
    let mut last = Feed::default();
    loop {
        let next = Instant::now() + INTERVAL;
        last = read(admin, &filter, last);
        if feeds.send(last.clone()).is_err() {
            return;
        }
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            match filters.recv_timeout(left) {
                Ok(wanted) => filter = wanted,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Asks for everything. While the server cannot be reached, what it said last stays.
fn read(admin: &Admin, filter: &str, mut last: Feed) -> Feed {
    let mut feed = Feed::default();
    let nodes = format!("/v1/fleet?limit=200&search={}", segment(filter));
    for (path, place) in [
        (nodes.as_str(), &mut feed.fleet),
        ("/v1/history?limit=100", &mut feed.history),
        ("/v1/acks", &mut feed.acks),
        ("/v1/rollouts", &mut feed.rollouts),
        ("/v1/waves", &mut feed.waves),
    ] {
        match admin.get(path) {
            Ok(answer) => *place = answer,
            Err(failure @ Failure::Unreachable(_)) => {
                last.failure = Some(failure.to_string());
                return last;
            }
            Err(failure) => feed.failure = Some(failure.to_string()),
        }
    }
    feed
}

/// People do not read faster.
const INTERVAL: Duration = Duration::from_secs(1);
