//! Waves: a change reaches a share of the nodes first, then more of them (D14).
//!
//! During a wave deployment, the groups have two states: *ahead* with the change, *behind* without it. A [`Split`] says which nodes
//! are ahead, and the publisher compiles views of both. A [`Deployment`] decides how far the wave deployment is.

use crate::layer::Groups;
use crate::node::Node;
use crate::version::VersionHasher;

mod deployment;
mod members;
mod order;
mod policy;
mod share;

pub use deployment::{AlreadyPaused, Decision, Deployment, Fault, NotPaused, Obstacle, Seen, Stage};
pub use members::{AWAY_TIME, ClientId, Loss, Losses, Members, Present};
pub use order::{By, Census, MAX_VALUE_BYTES, MAX_VALUES, Order, RankedValue, Ranking, order};
pub use policy::{LATER_MAX_LOST, MAX_WAVES, PolicyTexts, Tolerance, WavePolicy};
pub use share::{InvalidWaves, Share};

/// The set of nodes that are ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The wave deployment's number: each wave deployment starts with different nodes.
    pub deployment: u64,
    /// The part of the nodes that is ahead; `None` if none is.
    pub share: Option<Share>,
    /// The order in which they come.
    pub ranking: Ranking,
}

/// The state for nodes that are not ahead.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The nodes that are ahead.
    pub split: Split,
    /// The groups of the others. They must select the same nodes as those that are ahead.
    pub groups: Groups,
}

impl Split {
    /// Returns `true` if a node is ahead. This depends only on the wave deployment, the node's id and the value that it
    /// reports, so all replicas agree, also after a restart. A node that is ahead at one share is ahead at every larger one. No
    /// node of a value is ahead before all nodes of the previous values are.
    #[must_use]
    pub fn is_ahead(&self, node: &Node) -> bool {
        let Some(share) = self.share else { return false };
        let (start, end) = match &self.ranking {
            Ranking::Hash => (0, Share::ALL.hundredths()),
            Ranking::Awaited => return false,
            Ranking::Ordered(order) => order.part(order.index_of(node)),
        };
        let mut hasher = VersionHasher::new();
        hasher.update(&self.deployment.to_le_bytes());
        hasher.update(node.id.as_bytes());
        let position = u64::from(start) + hasher.finish().bits() % u64::from(end - start).max(1);
        position < u64::from(share.hundredths())
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use super::*;

    /// Another one each time; a test that uses it tells it if it fails.
    pub(super) fn any_seed() -> u64 {
        RandomState::new().hash_one(0)
    }

    #[test]
    fn a_larger_share_has_all_members_of_a_smaller_one_and_about_as_many_as_it_says() {
        let ahead = |deployment, share: &str| -> Vec<usize> {
            let split = Split { deployment, share: Some(share.parse().unwrap()), ranking: Ranking::Hash };
            (0..10_000).filter(|n| split.is_ahead(&Node::with_id(&format!("node-{n}")))).collect()
        };
        let (one, ten, all) = (ahead(7, "1%"), ahead(7, "10%"), ahead(7, "100%"));
        assert!(one.iter().all(|n| ten.contains(n)));
        assert_eq!(all.len(), 10_000);
        assert!(
            (60..140).contains(&one.len()) && (900..1_100).contains(&ten.len()),
            "{}, {}",
            one.len(),
            ten.len()
        );
        assert_ne!(one, ahead(8, "1%"), "another deployment begins with others");
        let nobody = Split { deployment: 7, share: None, ranking: Ranking::Hash };
        assert!(!nobody.is_ahead(&Node::with_id("node-1")));
    }
}
