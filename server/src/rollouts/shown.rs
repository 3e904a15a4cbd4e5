//! The loads of the backends of rollouts, as they are shown. They are added up once a second for all readers together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use xds_api::rollouts::{LOADS_SHOWN_MS, RolloutLoads};
use xds_cache::Groups;
use xds_cache::layer::differing;
use xds_rollout::Rollout;

use super::concern::{ClustersBehind, loads_of};
use super::parts::DriverParts;

/// The loads that were shown last. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownLoads {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The served groups, and their clusters. The revision does not identify them: files that cannot be recorded are served too.
    clusters: Option<(Groups, ClustersBehind)>,
    second: u64,
    /// The loads of this second, by the id of the rollout.
    loads: BTreeMap<String, RolloutLoads>,
}

impl ShownLoads {
    /// The loads of a rollout, at most a second old.
    pub(super) fn of(&self, parts: &DriverParts, rollout: &Rollout) -> RolloutLoads {
        let now_ms = (parts.clock)();
        let (_, groups) = parts.publisher.groups();
        // A caller that comes while they are added up waits, and takes the result.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { clusters, second, loads } = &mut *kept;
        let is_current = clusters.as_ref().is_some_and(|(known, _)| differing(known, &groups).is_empty());
        if !is_current {
            let behind = ClustersBehind::new(&groups);
            *clusters = Some((groups, behind));
        }
        if !is_current || *second != now_ms / REFRESH_MS {
            *second = now_ms / REFRESH_MS;
            loads.clear();
        }
        if let Some(known) = loads.get(rollout.id()) {
            return *known;
        }
        let Some((_, behind)) = clusters else { return RolloutLoads::default() };
        // What was before is another rollout's.
        let since_ms = now_ms.saturating_sub(LOADS_SHOWN_MS).max(rollout.began_ms());
        let new = loads_of(parts, rollout.spec(), since_ms, behind);
        loads.insert(rollout.id().to_owned(), new);
        new
    }
}

/// How long loads are shown as they are. Reports come no faster.
const REFRESH_MS: u64 = 1_000;
