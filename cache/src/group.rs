//! Node groups: which nodes get which resources (D3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::drain::DrainPolicy;
use crate::identity::Identity;
use crate::node::{Node, Profile, Scalar};
use crate::wave::WavePolicy;

pub use crate::glob::Glob;

/// The name of a node group: 1 to 512 bytes of UTF-8 without control characters, so that every usual node id is one. A copy is one
/// pointer, because there are many.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<Box<str>>);

/// The group that selects every node and lies below every other.
pub const DEFAULT: &str = "default";

impl GroupName {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// [`InvalidGroupName`] if it is empty, too long or has a control character.
    pub fn new(name: &str) -> Result<Self, InvalidGroupName> {
        if name.is_empty() || name.len() > 512 || name.chars().any(char::is_control) {
            return Err(InvalidGroupName { name: name.chars().take(64).collect() });
        }
        Ok(Self(Arc::new(name.into())))
    }

    /// The name of the default group.
    #[must_use]
    pub fn default_group() -> Self {
        Self(Arc::new(DEFAULT.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if it is the default group.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.as_str() == DEFAULT
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not the name of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a group name: use 1 to 512 bytes without control characters")]
pub struct InvalidGroupName {
    /// The text, at most its first 64 characters.
    pub name: String,
}

/// A node group: the nodes that it selects, and its rank among other groups.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeGroup {
    /// Its name.
    pub name: GroupName,
    /// The nodes that it selects.
    pub selector: Selector,
    /// Where two groups have a resource of the same type and name, the higher priority wins, then the lower name.
    pub priority: i64,
    /// The profile of its nodes, if the group decides it.
    pub client: Option<Profile>,
    /// The waves of its changes, if the group decides it.
    pub waves: Option<WavePolicy>,
    /// How long removed resources drain, as far as the group decides it.
    pub drain: DrainPolicy,
    /// The verified identities that are granted the group. If there are none, everyone whom it selects is.
    pub identities: Arc<[Identity]>,
    /// True if the identities are only tried: the group is given without them too, and that is told ([`Publisher::waived`]).
    ///
    /// [`Publisher::waived`]: crate::Publisher::waived
    pub tries_identities: bool,
}

impl NodeGroup {
    /// The group that selects exactly the node whose id is the group's name; a PUT of a new group's resources makes such a
    /// group.
    #[must_use]
    pub fn for_node_id(name: GroupName) -> Self {
        let selector = Selector { node_ids: vec![Glob::literal(name.as_str())], ..Selector::nothing() };
        Self {
            name,
            selector,
            priority: 0,
            client: None,
            waves: None,
            drain: DrainPolicy::default(),
            identities: Arc::default(),
            tries_identities: false,
        }
    }

    /// Returns `true` if only verified identities are granted the group.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !self.identities.is_empty()
    }

    /// The default group: every node.
    #[must_use]
    pub fn default_group() -> Self {
        Self {
            name: GroupName::default_group(),
            selector: Selector::everyone(),
            priority: 0,
            client: None,
            waves: None,
            drain: DrainPolicy::default(),
            identities: Arc::default(),
            tries_identities: false,
        }
    }
}

/// The nodes that a group selects. Fields are ANDed, the values within a field are ORed, and an absent (empty) field is not a
/// condition. In `metadata`, every key is a separate condition. A selector without conditions selects no node unless `all` is
/// set.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// Selects every node; the other fields must then be empty.
    pub all: bool,
    /// Globs of node ids.
    pub node_ids: Vec<Glob>,
    /// Globs of the node's cluster.
    pub clusters: Vec<Glob>,
    /// Dotted path into the node's metadata, and the values of which one must be there.
    pub metadata: BTreeMap<String, Vec<Scalar>>,
    /// Globs of user agent names.
    pub user_agents: Vec<Glob>,
}

impl Selector {
    /// Without conditions and without `all`: selects no node. The start for building a selector.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            all: false,
            node_ids: vec![],
            clusters: vec![],
            metadata: BTreeMap::new(),
            user_agents: vec![],
        }
    }

    /// Every node.
    #[must_use]
    pub fn everyone() -> Self {
        Self { all: true, ..Self::nothing() }
    }

    /// Returns `true` if there is no condition and `all` is not set. Such a selector is refused as input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && !self.has_conditions()
    }

    /// Returns `true` if any condition is set.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        !(self.node_ids.is_empty()
            && self.clusters.is_empty()
            && self.metadata.is_empty()
            && self.user_agents.is_empty())
    }

    /// The node ids, if the selector is nothing but literal node ids, so that nodes can be found by hash.
    #[must_use]
    pub fn literal_node_ids(&self) -> Option<Vec<&str>> {
        let only_ids =
            !self.all && self.clusters.is_empty() && self.metadata.is_empty() && self.user_agents.is_empty();
        if !only_ids || self.node_ids.is_empty() {
            return None;
        }
        self.node_ids.iter().map(Glob::as_literal).collect()
    }

    /// The same selector for each of its patterns of node IDs alone. Together they select the same nodes.
    #[must_use]
    pub fn by_node_id(&self) -> Vec<Self> {
        let of_id = |id: &Glob| Self { node_ids: vec![id.clone()], ..self.clone() };
        if self.node_ids.is_empty() { vec![self.clone()] } else { self.node_ids.iter().map(of_id).collect() }
    }

    /// Returns `true` if `other` selects every node that this one selects. `false` may also mean that this is not decided.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        if self.is_empty() || other.all {
            return true;
        }
        let within = |own: &[Glob], other: &[Glob]| {
            let is_covered = |own: &Glob| other.iter().any(|other| other.covers(own));
            other.is_empty() || (!own.is_empty() && own.iter().all(is_covered))
        };
        let has_metadata = |(path, values): (&String, &Vec<Scalar>)| {
            self.metadata.get(path).is_some_and(|own| own.iter().all(|value| values.contains(value)))
        };
        !self.all
            && !other.is_empty()
            && within(&self.node_ids, &other.node_ids)
            && within(&self.clusters, &other.clusters)
            && within(&self.user_agents, &other.user_agents)
            && other.metadata.iter().all(has_metadata)
    }

    /// Returns `true` if a node may exist that both select.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        if self.is_empty() || other.is_empty() {
            return false;
        }
        let meet = |own: &[Glob], other: &[Glob]| {
            own.is_empty()
                || other.is_empty()
                || own.iter().any(|own| other.iter().any(|other| own.meets(other)))
        };
        let is_common = |(path, values): (&String, &Vec<Scalar>)| {
            self.metadata.get(path).is_none_or(|own| own.iter().any(|value| values.contains(value)))
        };
        self.all
            || other.all
            || (meet(&self.node_ids, &other.node_ids)
                && meet(&self.clusters, &other.clusters)
                && meet(&self.user_agents, &other.user_agents)
                && other.metadata.iter().all(is_common))
    }

    /// Returns `true` if `node` is selected.
    #[must_use]
    pub fn selects(&self, node: &Node) -> bool {
        if self.all {
            return true;
        }
        let one_of =
            |globs: &[Glob], text: &str| globs.is_empty() || globs.iter().any(|glob| glob.matches(text));
        self.has_conditions()
            && one_of(&self.node_ids, &node.id)
            && one_of(&self.clusters, &node.cluster)
            && one_of(&self.user_agents, &node.user_agent_name)
            && self
                .metadata
                .iter()
                .all(|(path, values)| node.metadata.get(path).is_some_and(|value| values.contains(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_fields_are_anded_and_values_ored() {
        let node = Node {
            cluster: "edge".to_owned(),
            metadata: BTreeMap::from([("a.b".to_owned(), Scalar::Number(1.0))]),
            ..Node::with_id("n1")
        };
        let ids = |ids: &[&str]| Selector {
            node_ids: ids.iter().map(|id| Glob::new(id)).collect(),
            ..Selector::nothing()
        };
        assert!(ids(&["x", "n*"]).selects(&node));
        assert!(!ids(&["x"]).selects(&node));
        assert!(!Selector { clusters: vec![Glob::new("other")], ..ids(&["n1"]) }.selects(&node));
        let metadata = |value: Scalar| Selector {
            metadata: BTreeMap::from([("a.b".to_owned(), vec![Scalar::Bool(true), value])]),
            ..Selector::nothing()
        };
        assert!(metadata(Scalar::Number(1.0)).selects(&node));
        assert!(!metadata(Scalar::String("1".to_owned())).selects(&node));
        assert!(!Selector::nothing().selects(&node));
        assert!(Selector::everyone().selects(&node));
    }

    #[test]
    fn selectors_are_compared_by_the_nodes_that_they_select() {
        let ids = ["", "a-*", "a-1", "b-*", "*-1"];
        let selectors: Vec<Selector> = (0..ids.len() * 3 * 3 * 2)
            .map(|seed| {
                let (id, cluster, value, agent) = (seed % 5, seed / 5 % 3, seed / 15 % 3, seed / 45);
                let globs = |texts: &[&str]| texts.iter().map(|text| Glob::new(text)).collect();
                let clusters: &[&str] = [&[][..], &["x"], &["x", "y"]][cluster];
                let scalar = |text: &str| Scalar::String(text.to_owned());
                let values = [vec![], vec![scalar("1")], vec![scalar("1"), scalar("2")]][value].clone();
                let metadata = (!values.is_empty()).then(|| ("m".to_owned(), values));
                Selector {
                    node_ids: if id == 0 { vec![] } else { globs(&[ids[id]]) },
                    clusters: globs(clusters),
                    metadata: metadata.into_iter().collect(),
                    user_agents: if agent == 0 { vec![] } else { globs(&["envoy"]) },
                    ..Selector::nothing()
                }
            })
            .chain([Selector::everyone()])
            .collect();
        let mut nodes = Vec::new();
        for id in ["a-1", "a-2", "b-1", "b-2", "c-1", "c"] {
            for cluster in ["x", "y", "z"] {
                for value in ["1", "2", "3"] {
                    let metadata = BTreeMap::from([("m".to_owned(), Scalar::String(value.to_owned()))]);
                    let node = Node { cluster: cluster.to_owned(), metadata, ..Node::with_id(id) };
                    nodes.extend(
                        ["envoy", "grpc"]
                            .map(|agent| Node { user_agent_name: agent.to_owned(), ..node.clone() }),
                    );
                }
            }
        }
        for one in &selectors {
            for other in &selectors {
                let is_within = nodes.iter().all(|node| !one.selects(node) || other.selects(node));
                let meets = nodes.iter().any(|node| one.selects(node) && other.selects(node));
                assert_eq!(one.is_within(other), is_within, "{one:?} within {other:?}");
                assert_eq!(one.meets(other), meets, "{one:?} meets {other:?}");
            }
        }
    }

    #[test]
    fn group_names_are_checked() {
        assert!(GroupName::new("sidecar~10.0.0.1~a b").is_ok());
        for name in ["", "a\nb", &"x".repeat(513)] {
            assert!(GroupName::new(name).is_err(), "{name}");
        }
    }
}
