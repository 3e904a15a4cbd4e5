//! Rollouts: one task drives all of them.
//!
//! A rollout is a value of [`xds_rollout`], which returns the effects that it needs. The [`driver`] gives it inputs, and has its new
//! state stored together with its weights, in one commit of the [`control`](xds_control). Then it runs the effects: it looks at ACKs
//! and load reports ([`concern`]), and [`calls`] webhooks and Prometheus. If a state cannot be stored, the old one stays, and the
//! input is tried again. So effects always follow from a stored state, and after a restart every rollout continues from there.
//!
//! Several servers may share a store, each with a driver. A step is stored only in place of the state that it was computed from. A driver
//! that finds another state stored takes that one in, drops what it was about to do, and continues from there.
//!
//! If the servers ask each other, only the one that leads goes on with rollouts by itself: it looks at clocks, ACKs and load reports, and calls
//! webhooks. ACKs and reports are then those of the clients of all servers ([`others`]). The other drivers take in what is stored, and carry out
//! requests. A server that begins to lead reads everything anew, and goes on as after a restart.
//!
//! [`Rollouts`] is the handle for the API. It sends requests to the driver, and shows the rollouts as the driver left them.

mod backends;
mod calls;
mod channel;
mod concern;
mod driver;
mod fetch;
mod gone;
mod keys;
mod others;
mod parts;
mod reach;
mod requests;
mod served;
mod shown;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use channel::{Request, Shown};
use concern::{Concern, failing_before};
pub use driver::Driver;
pub use fetch::Caller;
pub use parts::{Clock, DriverParts, Observer, wall_clock};
pub use reach::{Reach, ReachError};
use shown::ShownLoads;
use tokio::sync::{mpsc, oneshot, watch};
pub use trust::Trust;
use xds_api::rollouts::{LoadSeries, RolloutError, RolloutEvidence, RolloutLoads, StartOptions, Started};
use xds_cache::Revision;
use xds_control::BoxFuture;
use xds_control::connected::{NodesAsked, NodesTold, released};
use xds_control::model::weights::RuleKey;
use xds_control::model::weights::change::WeightChange;
use xds_control::model::{EntityTags, WriteError, WriteOptions, WriteOutcome};
use xds_control::peers::RolloutClients;
use xds_rollout::{Rollout, RolloutSpec, Verb};

/// The handle. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Rollouts {
    parts: DriverParts,
    requests: mpsc::Sender<Request>,
    shown: Arc<Shown>,
    loads: ShownLoads,
    /// What other servers asked about last, by the specification of the rollout.
    concerns: Arc<Mutex<BTreeMap<String, Concern>>>,
}

/// How many requests wait before those who ask do: each takes milliseconds.
const MAX_REQUESTS: usize = 256;

/// Rollouts of which other servers asked something; as many as there may be at once, and a few.
const MAX_CONCERNS: usize = 128;

/// The rollouts of a control: a handle, and the driver that must be [run](Driver::run) for anything to happen.
#[must_use]
pub fn new(parts: DriverParts) -> (Rollouts, Driver) {
    let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
    let (changes, _) = watch::channel(0);
    let (_, stored) = parts.control.rollouts();
    let rollouts = stored.iter().map(|(id, record)| (id.clone(), Arc::new(record.rollout.clone()))).collect();
    let shown = Arc::new(Shown { rollouts: Mutex::new(Arc::new(rollouts)), changes });
    let driver = Driver::new(parts.clone(), receiver, requests.clone(), Arc::clone(&shown));
    (Rollouts { parts, requests, shown, loads: ShownLoads::default(), concerns: Arc::default() }, driver)
}

impl Rollouts {
    /// Sends a request, and waits for its answer.
    async fn send<T, E: From<WriteError>>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Request,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(request(reply)).await.is_err() {
            return Err(WriteError::Closed.into());
        }
        answer.await.unwrap_or_else(|_| Err(WriteError::Closed.into()))
    }
}

impl xds_api::rollouts::Rollouts for Rollouts {
    fn start(
        &self,
        spec: RolloutSpec,
        options: StartOptions,
    ) -> BoxFuture<'_, Result<Started, RolloutError>> {
        Box::pin(self.send(|reply| Request::Start(Box::new(spec), options, reply)))
    }

    fn ask(
        &self,
        id: String,
        verb: Verb,
        if_match: Option<EntityTags>,
        actor: String,
    ) -> BoxFuture<'_, Result<Arc<Rollout>, RolloutError>> {
        Box::pin(self.send(move |reply| Request::Ask { id, verb, if_match, actor, reply }))
    }

    fn forget(
        &self,
        id: String,
        if_match: Option<EntityTags>,
        actor: String,
    ) -> BoxFuture<'_, Result<(), RolloutError>> {
        Box::pin(self.send(move |reply| Request::Forget { id, if_match, actor, reply }))
    }

    fn take_rule(
        &self,
        key: RuleKey,
        change: WeightChange,
        options: WriteOptions,
    ) -> BoxFuture<'_, Result<WriteOutcome, WriteError>> {
        Box::pin(self.send(move |reply| Request::Take { key, change, options: Box::new(options), reply }))
    }

    fn list(&self) -> BTreeMap<String, Arc<Rollout>> {
        (*self.shown.rollouts()).clone()
    }

    fn loads(&self, rollout: &Rollout) -> RolloutLoads {
        self.loads.of(&self.parts, rollout)
    }

    fn series(&self, rollout: &Rollout) -> LoadSeries {
        concern::series(&self.parts, rollout.spec())
    }

    fn acks_here(
        &self,
        spec: &RolloutSpec,
        change: u64,
        revision: Revision,
        nodes: &NodesAsked,
    ) -> Option<RolloutClients> {
        let DriverParts { publisher, board, .. } = &self.parts;
        let (served, _) = publisher.groups();
        if served < revision {
            return None;
        }
        let mut concerns = self.concerns.lock().unwrap_or_else(PoisonError::into_inner);
        if concerns.len() >= MAX_CONCERNS {
            concerns.clear();
        }
        let concern = concerns.entry(spec.checksum()).or_default();
        if concern.revision != served {
            *concern = Concern::new(&self.parts, spec);
        }
        let failing = failing_before(board, revision);
        let (acks, present) = concern.acks(publisher, board, (change, revision), &failing);
        // A node that is connected and does not use the rule has not gone.
        let released = released(board, &nodes.absent, |_| true);
        Some(RolloutClients { acks, nodes: NodesTold::new(present, released, nodes) })
    }

    fn evidence_here(&self, spec: &RolloutSpec, starts_ms: &[u64]) -> Option<RolloutEvidence> {
        let behind = concern::ClustersBehind::new(&self.parts.publisher.groups().1);
        concern::evidence(&self.parts, &behind.backends(&self.parts, spec), starts_ms)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shown.changes.subscribe()
    }
}

impl fmt::Debug for Rollouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rollouts({})", self.shown.rollouts().len())
    }
}
