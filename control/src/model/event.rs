//! Events for watchers.

use std::sync::Arc;

use xds_cache::wave::Share;
use xds_cache::{GroupName, Revision};
use xds_codec::Diagnostic;

use super::revision::ChangeSource;
use super::wave::WavePhase;

/// Events for those who watch the server, besides events on streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A revision was published.
    Published {
        /// The revision.
        revision: Revision,
        /// The kind of change.
        source: ChangeSource,
        /// One line for people.
        summary: String,
        /// The groups whose clients may be served something else since.
        groups: Arc<[GroupName]>,
    },
    /// A file has a new error.
    FileError(Diagnostic),
    /// A load waits for confirmation.
    Unconfirmed {
        /// Why.
        reason: String,
    },
    /// A test of a RouteTest fails on what is served, and did not fail so before.
    TestFailed {
        /// The RouteTest, the test, and the clients.
        test: String,
        /// Why.
        message: String,
    },
    /// An override, or what it says of one backend, was dropped, because the file says the same by now or for another reason.
    OverrideDropped {
        /// As [`ChangedObject::what`](super::ChangedObject::what).
        what: String,
        /// Why.
        reason: String,
    },
    /// A wave deployment began, went on or ended.
    Wave {
        /// Its number.
        deployment: u64,
        /// As in [`WaveReport::phase`](super::wave::WaveReport::phase).
        phase: WavePhase,
        /// The share of the nodes that have the change now.
        share: Option<Share>,
        /// One line for people.
        message: String,
    },
    /// Something happened in a rollout.
    Rollout {
        /// Its id.
        rollout: String,
        /// The event, as the rollout has it.
        event: xds_rollout::Event,
    },
    /// Something needs attention; also listed by [`Control::problems`](crate::Control::problems) while it lasts.
    Problem {
        /// What.
        message: String,
    },
}
