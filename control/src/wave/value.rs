//! A wave deployment as a value: the objects that it holds, the nodes that are ahead, and its progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use xds_cache::wave::{Deployment, Members, Ranking, Share, Split};
use xds_cache::{Node, NodeGroup, Resource, ResourceType, Revision};
use xds_codec::Diagnostic;

use super::failing::Failing;
use crate::elsewhere::WaveId;
use crate::key::{StoreKey, Subject};
use crate::model::document::GroupedDocument;
use crate::model::weights::{RuleOverride, WeightedObject};
use crate::weights::Resting;

/// The values of a change's objects before it; `None` for objects that did not exist. Keys are those of the layer that changed: of
/// the API `Resource`, `Label`, `Group`, `Document` and `Weights`, of the files `File`, `FileGroup` and `FileDocument`. A group is
/// among them only if its definition goes.
pub(crate) type PreviousValues = BTreeMap<StoreKey, Option<PreviousValue>>;

/// The value of an object before.
#[derive(Clone, Debug)]
pub(crate) enum PreviousValue {
    Resource(Arc<Resource>),
    Label(Arc<str>),
    Definition(NodeGroup),
    Document(GroupedDocument),
    Weights(RuleOverride),
}

/// A wave deployment that is under way, or whose change files still say after it was put back.
#[derive(Clone, Debug)]
pub(crate) struct Wave {
    /// The revision that began it; also what membership is computed from.
    pub(crate) id: u64,
    /// The user or program that asked for the change.
    pub(crate) actor: String,
    /// Where it came from, as in the history.
    pub(crate) source: String,
    /// The change in one line.
    pub(crate) summary: String,
    pub(crate) began_at: SystemTime,
    /// When it last changed.
    pub(crate) since: SystemTime,
    pub(crate) previous: Arc<PreviousValues>,
    /// The revision that each wave so far was published as; one at least.
    pub(crate) reached: Vec<Revision>,
    /// The order of nodes.
    pub(crate) ranking: Ranking,
    /// Before that, nodes are not ranked if they are not yet: others are still to come back.
    pub(crate) rank_from: Instant,
    /// Why nobody is ahead, if nobody is.
    pub(crate) stopped: Option<Arc<str>>,
    /// How it stands with RouteTests.
    pub(crate) tests: Tests,
    /// Why it does not go on, if it is paused.
    pub(crate) paused: Option<Arc<str>>,
    pub(crate) deployment: Deployment,
    /// What nodes rejected when their wave began, which does not count.
    pub(crate) failing: Arc<Failing>,
    /// The nodes that it has reached, as last seen.
    pub(crate) members: Arc<Members>,
    /// The members as they are stored: as of the begin of the wave, or of the last pause or resumption.
    pub(crate) recorded: Arc<[Arc<str>]>,
}

/// How a wave deployment stands with RouteTests.
#[derive(Clone, Debug, Default)]
pub(crate) enum Tests {
    /// Each wave is published only if it breaks none.
    #[default]
    Asked,
    /// It is stopped because the change breaks some, until they pass or an operator releases it. Their failures are not stored.
    Broken(Arc<[Diagnostic]>),
    /// An operator has released it all the same.
    Waived,
}

impl Wave {
    /// Its number, and the revision of its last wave.
    pub(crate) fn place(&self) -> WaveId {
        (self.id, self.reached.last().map_or(self.id, |revision| revision.0))
    }

    /// Returns `true` if RouteTests keep it from everyone.
    pub(crate) fn awaits_tests(&self) -> bool {
        matches!(self.tests, Tests::Broken(_)) && self.stopped.is_some()
    }

    /// The failures of RouteTests that keep it from everyone, as far as they are known since the start.
    pub(crate) fn broken(&self) -> &[Diagnostic] {
        match &self.tests {
            Tests::Broken(broken) if self.stopped.is_some() => broken,
            Tests::Broken(_) | Tests::Asked | Tests::Waived => &[],
        }
    }

    /// Returns `true` if it reaches everyone at once when nothing stops it.
    pub(crate) fn is_at_once(&self) -> bool {
        let policy = self.deployment.policy();
        policy.shares() == [Share::ALL] && !policy.is_each()
    }

    /// The nodes that are ahead.
    pub(crate) fn split(&self) -> Split {
        let share = if self.stopped.is_some() { None } else { Some(self.deployment.share()) };
        self.split_at(share)
    }

    fn split_at(&self, share: Option<Share>) -> Split {
        Split { deployment: self.id, share, ranking: self.ranking.clone() }
    }

    /// The share of the nodes that are ahead; `None` if none is.
    pub(crate) fn share(&self) -> Option<Share> {
        self.split().share.filter(|_| !self.ranking.is_awaited())
    }

    /// The waves so far; none before nodes are ranked.
    pub(crate) fn waves(&self) -> impl Iterator<Item = (Share, Revision)> {
        let n_waves = if self.ranking.is_awaited() { 0 } else { self.reached.len() };
        self.deployment.policy().shares().iter().copied().zip(self.reached.iter().copied()).take(n_waves)
    }

    /// The revision of the first wave that a node is in; `None` if none has reached it.
    pub(crate) fn reached_by(&self, node: &Node) -> Option<Revision> {
        let is_in = |share| self.split_at(Some(share)).is_ahead(node);
        self.waves().find(|(share, _)| is_in(*share)).map(|(_, revision)| revision)
    }

    /// The value with the present members as the stored ones.
    pub(crate) fn with_members_recorded(mut self) -> Self {
        self.recorded = self.members.nodes().cloned().collect();
        self
    }

    /// The objects that it holds as a whole, as far as they can have weights.
    pub(crate) fn resting(&self) -> Resting {
        let object = |key: &StoreKey| match key.subject() {
            Subject::Document(key) => Some(WeightedObject::Document(key.clone())),
            Subject::Resource(group, key) => {
                let is_routes = key.resource_type == ResourceType::RouteConfiguration;
                is_routes.then(|| WeightedObject::Routes(group.clone(), Arc::clone(&key.name)))
            }
            Subject::Group(_) | Subject::Label(_) | Subject::Weights(_) | Subject::Other => None,
        };
        self.previous.keys().filter_map(object).collect()
    }

    /// The objects of the change that are the API's.
    pub(crate) fn has_overrides(&self) -> bool {
        self.previous.keys().any(|key| !key.is_of_file())
    }
}

impl Wave {
    /// The problem to report: files have contents that are not served.
    pub(crate) fn problem(&self) -> Option<String> {
        let reason = self.stopped.as_deref()?;
        let objects: Vec<String> = self.previous.keys().take(MAX_NAMED).map(StoreKey::what).collect();
        let more = if self.previous.len() > MAX_NAMED { ", …" } else { "" };
        let what_to_do = if self.awaits_tests() {
            "change it again, or run `xds-server tests release`; see /v1/waves/"
        } else {
            "change it again, or see /v1/waves/"
        };
        Some(format!(
            "a change is held back, {reason}: {}{more} are served as before; {what_to_do}{}",
            objects.join(", "),
            self.id
        ))
    }
}

/// How many objects the problem of a change that is held back names.
const MAX_NAMED: usize = 3;
