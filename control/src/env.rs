//! The means by which changes are made and judged. They stay the same while the process runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use xds_cache::loads::LoadBoard;
use xds_cache::wave::Share;
use xds_cache::{Publisher, Revision, StatusBoard, WavePolicy};
use xds_codec::Codec;
use xds_routes::conditions::GrpcFeature;
use xds_store::Store;

use crate::acks::Acks;
use crate::boxed::BoxFuture;
use crate::elsewhere::Elsewhere;
use crate::model::wave::WavePhase;
use crate::model::{ChangeSource, ReloadOutcome, TraceParent, WriteError};
use crate::oracle::{Oracle, OraclePolicy};
use crate::route_tests::{Memo, TestPolicy};
use crate::stages::Changed;
use crate::withhold::Guarding;

/// How changes are judged.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if files are watched: then nothing is served before their first complete load.
    pub watches_files: bool,
    /// True if the files are what another xDS server sends.
    pub is_relay: bool,
    /// True if a dangling reference, or a conflict of groups of equal priority, is an error.
    pub strict: bool,
    /// The largest share of a group's resources, from 0 to 1, that a load may remove without confirmation.
    pub hold_mass_removal: Option<f64>,
    /// How route documents are translated.
    pub routes: xds_routes::Options,
    /// The waves of changes of groups that do not say it themselves; `None` for everyone at once.
    pub waves: Option<WavePolicy>,
    /// How often the translation is compared with a new one of all documents.
    pub verify: Verify,
    /// The limits of clients, by which the phases of a change are computed.
    pub session: xds_session::Limits,
    /// Which groups may have secrets, and how identities count.
    pub guarding: Guarding,
    /// True if the good part of a first load with errors is served.
    pub is_partial_start: bool,
    /// What happens to a change that breaks a RouteTest which does not say it itself.
    pub test_policy: TestPolicy,
    /// What happens to a change that the oracle refuses.
    pub oracle_policy: OraclePolicy,
    /// Whether other servers have the same store, whose clients count too.
    pub sharing: Sharing,
}

/// The other servers with the same store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// There are none.
    #[default]
    Alone,
    /// They are not asked about their clients. What one server has to drive by the answers of all clients is refused.
    Apart,
    /// They ask each other, and one of them drives that.
    Linked,
    /// This one follows another server, which alone makes changes.
    Follower,
}

/// How often translations are compared with what is made from nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Never.
    #[default]
    Off,
    /// After each 1,000 revisions, beside everything else. A difference is a problem, and is mended.
    Sampled,
    /// Before a change is made, which a difference refuses: for tests.
    Always,
}

/// Reports of the control about its work, for the metrics.
pub trait Observer: Send + Sync {
    /// A revision is about to be published, as a part of a caller's span if there is one.
    fn published(&self, source: ChangeSource, revision: Revision, parent: Option<TraceParent>);
    /// It was, and this is how it came about.
    fn changed(&self, changed: Changed<'_>);
    /// A wave deployment is in another phase, or has reached another share of the nodes.
    fn wave(&self, phase: WavePhase, share: Option<Share>);
    /// RouteTests were run: so many tests passed, and so many failed.
    fn tested(&self, passed: usize, failed: usize);
    /// A share of the clients that a publication concerns, one of [`SHARES`](crate::SHARES), has accepted it after this time.
    fn spread(&self, share: u8, took: Duration);
    /// The oldest publication that a connected client has not answered was made then; `None` if all are answered.
    fn waits_since(&self, at: Option<Instant>);
    /// All metrics in OpenMetrics text.
    fn render(&self, condition: Condition<'_>) -> String;
}

/// How the control is, for the metrics.
#[derive(Debug)]
pub struct Condition<'a> {
    /// How many rules have something that gRPC clients cannot have.
    pub unsupported: &'a BTreeMap<GrpcFeature, usize>,
    /// True if the server is ready.
    pub is_ready: bool,
    /// How many problems there are by subject, those without any included. The subjects are a closed list.
    pub problems: BTreeMap<&'static str, usize>,
}

/// Reads the files again and hands them to [`Control::take_files`](crate::Control::take_files), as confirmed if the argument is
/// true. The answer is `None` if no files are watched.
pub type Reload =
    Arc<dyn Fn(bool) -> BoxFuture<'static, Result<Option<ReloadOutcome>, WriteError>> + Send + Sync>;

/// The parts with which changes are made.
pub struct ControlParts {
    /// Reads and writes resources.
    pub codec: Codec,
    /// Where changes are committed.
    pub store: Arc<dyn Store>,
    /// Where they are published.
    pub publisher: Arc<Publisher>,
    /// The clients that are connected.
    pub board: Arc<StatusBoard>,
    /// Publishes, and remembers whom that concerned.
    pub acks: Arc<Acks>,
    /// The requests that clients report.
    pub loads: Arc<LoadBoard>,
    /// The receiver of the counts.
    pub observer: Option<Arc<dyn Observer>>,
    /// Judges resources before they are published.
    pub oracle: Option<Arc<dyn Oracle>>,
}

impl fmt::Debug for ControlParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlParts").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The surroundings of a change: what a proposal may ask besides what is accepted.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) parts: ControlParts,
    pub(crate) options: Options,
    /// What RouteTests say.
    pub(crate) route_tests: Memo,
    /// What other servers say of their clients.
    pub(crate) elsewhere: Elsewhere,
}

impl Env {
    /// Returns `true` if this server drives what one server alone should drive.
    pub(crate) fn leads(&self) -> bool {
        self.options.sharing != Sharing::Follower && self.elsewhere.leads()
    }

    /// Returns `true` if other servers have the same store.
    pub(crate) fn shares_store(&self) -> bool {
        self.options.sharing != Sharing::Alone
    }
}

/// A time, on the clock that people read and on the one that measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) wall: SystemTime,
    /// On the clock of the runtime, which tests stop.
    pub(crate) clock: Instant,
}

impl At {
    pub(crate) fn now() -> Self {
        Self { wall: SystemTime::now(), clock: tokio::time::Instant::now().into_std() }
    }
}

/// The store's and the cache's revisions are the same numbers.
pub(crate) fn revision_of(revision: xds_store::Revision) -> Revision {
    Revision(revision.0)
}

pub(crate) fn stored_revision(revision: Revision) -> xds_store::Revision {
    xds_store::Revision(revision.0)
}
