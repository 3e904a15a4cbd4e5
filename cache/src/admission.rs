//! Admission: the groups that a client is given, by what it claims and what it has proved.

use std::fmt;

use crate::group::{GroupName, NodeGroup};
use crate::identity::{IdentityMatch, Proof, shown};
use crate::node::Node;

/// A client is refused as a whole: it is never served less than its claim instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Why.
    pub reason: DenialReason,
    /// What the client proved, for people; empty if nothing.
    pub identity: String,
    /// The id that the node claims, for people.
    pub node: String,
    /// The group that it is refused because of.
    pub group: GroupName,
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenialReason {
    /// It has proved nothing, and a group that selects it asks for a proof.
    NoCredential,
    /// Its identity is in no entry of a group that selects it.
    IdentityNotAllowed,
    /// Its identity is in an entry, and that entry is not for the id of the node.
    NodeIdMismatch,
}

impl DenialReason {
    /// The word that a status begins with.
    #[must_use]
    pub fn slug(self) -> &'static str {
        match self {
            Self::NoCredential => "no-credential",
            Self::IdentityNotAllowed => "identity-not-allowed",
            Self::NodeIdMismatch => "node-id-mismatch",
        }
    }
}

/// Printable ASCII.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, identity, node, .. } = self;
        let (slug, group) = (reason.slug(), shown(self.group.as_str()));
        match reason {
            DenialReason::NoCredential => write!(
                f,
                "{slug}: the node group {group} selects the node {node} and asks for a verified identity, and this client has \
                 shown none"
            ),
            DenialReason::IdentityNotAllowed => write!(
                f,
                "{slug}: the node group {group} selects the node {node} and is not granted to {identity}"
            ),
            DenialReason::NodeIdMismatch => write!(
                f,
                "{slug}: the node group {group} is granted to {identity} only with another node id than {node}"
            ),
        }
    }
}

impl std::error::Error for Denial {}

/// How a group stands to a client.
enum Standing {
    Given,
    /// It is for everyone who is granted it, and the client is not.
    LeftOut,
    /// The client claims it, and is not granted it.
    Refused(DenialReason),
}

/// The groups that are given to a client, of those that select its node.
///
/// A group without identities is given. A guarded one is given if an entry matches. If none does, a selector with conditions
/// refuses the client, because it claims the group. A guarded group for everyone is left out instead, unless an entry has the
/// client's identity and is for other node ids. A group that only [tries](NodeGroup::tries_identities) its identities is always given.
///
/// # Errors
///
/// [`Denial`] for the first group that refuses the client.
pub fn admit<'g>(
    node: &Node,
    proofs: &[Proof],
    selected: impl IntoIterator<Item = &'g NodeGroup>,
) -> Result<Vec<&'g GroupName>, Denial> {
    let mut given = Vec::new();
    for group in selected {
        match standing(node, proofs, group) {
            _ if group.tries_identities => given.push(&group.name),
            Standing::Given => given.push(&group.name),
            Standing::LeftOut => {}
            Standing::Refused(reason) => return Err(denial(node, proofs, group, reason)),
        }
    }
    Ok(given)
}

/// The groups that a client is given only because they [try](NodeGroup::tries_identities) their identities, each with the denial that it
/// would be.
pub fn waived<'g>(
    node: &Node,
    proofs: &[Proof],
    selected: impl IntoIterator<Item = &'g NodeGroup>,
) -> Vec<Denial> {
    let tried = selected.into_iter().filter(|group| group.tries_identities);
    let waived = |group: &'g NodeGroup| match standing(node, proofs, group) {
        Standing::Given => None,
        Standing::LeftOut => Some(denial(node, proofs, group, not_granted(proofs))),
        Standing::Refused(reason) => Some(denial(node, proofs, group, reason)),
    };
    tried.filter_map(waived).collect()
}

fn standing(node: &Node, proofs: &[Proof], group: &NodeGroup) -> Standing {
    match group.identities.iter().map(|entry| entry.judge(proofs, &node.id)).max() {
        None | Some(IdentityMatch::Granted) => Standing::Given,
        Some(IdentityMatch::OtherNodeId) => Standing::Refused(DenialReason::NodeIdMismatch),
        Some(IdentityMatch::Other) if !group.selector.has_conditions() => Standing::LeftOut,
        Some(IdentityMatch::Other) => Standing::Refused(not_granted(proofs)),
    }
}

fn not_granted(proofs: &[Proof]) -> DenialReason {
    if proofs.is_empty() { DenialReason::NoCredential } else { DenialReason::IdentityNotAllowed }
}

fn denial(node: &Node, proofs: &[Proof], group: &NodeGroup, reason: DenialReason) -> Denial {
    let identity = proofs.first().map(|proof| proof.subject.to_string()).unwrap_or_default();
    Denial { reason, identity, node: shown(&node.id), group: group.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Selector;
    use crate::identity::{Identity, NodeIdPattern, SpiffeId, SpiffePattern, Subject, SubjectPattern};

    fn group(name: &str, selector: Selector, entry: Option<(&str, &[&str])>) -> NodeGroup {
        let identity = entry.map(|(pattern, ids)| {
            let pattern = SubjectPattern::Spiffe(SpiffePattern::new(pattern).unwrap());
            let ids = ids.iter().map(|id| NodeIdPattern::new(id).unwrap()).collect();
            Identity::new(vec![pattern], ids).unwrap()
        });
        let name = GroupName::new(name).unwrap();
        NodeGroup { selector, identities: identity.into_iter().collect(), ..NodeGroup::for_node_id(name) }
    }

    fn outcome(groups: &[NodeGroup], node: &str, id: Option<&str>) -> String {
        let subject = |id| Subject::Spiffe(SpiffeId::new(id).unwrap());
        let proof = |id| Proof { subject: subject(id), expires: None, certificate: None };
        let proofs: Vec<Proof> = id.map(proof).into_iter().collect();
        let node = Node::with_id(node);
        let selected = groups.iter().filter(|group| group.selector.selects(&node));
        match admit(&node, &proofs, selected) {
            Ok(given) => given.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(denial) => denial.to_string(),
        }
    }

    #[test]
    fn an_identity_grants_and_claims_only_narrow() {
        let edge = Selector { node_ids: vec![crate::group::Glob::new("edge-*")], ..Selector::nothing() };
        let groups = [
            group("edge", edge, Some(("spiffe://a.org/node/*", &["{1}"]))),
            group("extra", Selector::everyone(), Some(("spiffe://a.org/node/edge-1", &[]))),
            group("open", Selector::everyone(), None),
        ];
        let id = |name: &str| format!("spiffe://a.org/node/{name}");
        assert_eq!(outcome(&groups, "edge-1", Some(&id("edge-1"))), "edge extra open");
        assert_eq!(outcome(&groups, "edge-2", Some(&id("edge-2"))), "edge open");
        assert_eq!(outcome(&groups, "other", Some(&id("edge-1"))), "extra open");
        assert_eq!(outcome(&groups, "other", None), "open");
        assert_eq!(
            outcome(&groups, "edge-2", Some(&id("edge-1"))),
            "node-id-mismatch: the node group edge is granted to spiffe://a.org/node/edge-1 only with another node id than edge-2"
        );
        assert_eq!(
            outcome(&groups, "edge-1", Some("spiffe://a.org/x")),
            "identity-not-allowed: the node group edge selects the node edge-1 and is not granted to spiffe://a.org/x"
        );
        assert_eq!(
            outcome(&groups, "edge-1", None),
            "no-credential: the node group edge selects the node edge-1 and asks for a verified identity, and this client has \
             shown none"
        );
    }

    #[test]
    fn a_group_that_tries_its_identities_is_given_and_told() {
        let edge = Selector { node_ids: vec![crate::group::Glob::new("edge-*")], ..Selector::nothing() };
        let mut groups = [
            group("edge", edge, Some(("spiffe://a.org/node/*", &["{1}"]))),
            group("extra", Selector::everyone(), Some(("spiffe://a.org/x", &[]))),
            group("open", Selector::everyone(), None),
        ];
        let told = |groups: &[NodeGroup], id: Option<&str>| -> Vec<String> {
            let subject = |id| Subject::Spiffe(SpiffeId::new(id).unwrap());
            let proof = |id| Proof { subject: subject(id), expires: None, certificate: None };
            let proofs: Vec<Proof> = id.map(proof).into_iter().collect();
            let denials = waived(&Node::with_id("edge-1"), &proofs, groups);
            denials.iter().map(|denial| format!("{} {}", denial.group, denial.reason.slug())).collect()
        };
        assert!(told(&groups, None).is_empty());
        groups.iter_mut().for_each(|group| group.tries_identities = true);
        assert_eq!(outcome(&groups, "edge-1", None), "edge extra open");
        assert_eq!(told(&groups, None), ["edge no-credential", "extra no-credential"]);
        assert_eq!(told(&groups, Some("spiffe://a.org/node/edge-1")), ["extra identity-not-allowed"]);
        assert_eq!(
            told(&groups, Some("spiffe://a.org/node/edge-2")),
            ["edge node-id-mismatch", "extra identity-not-allowed"]
        );
        groups[0].tries_identities = false;
        assert!(
            outcome(&groups, "edge-1", None).starts_with("no-credential"),
            "one that is in force refuses"
        );
    }

    #[test]
    fn a_group_for_everyone_still_binds_node_ids() {
        let groups = [group("extra", Selector::everyone(), Some(("spiffe://a.org/node/*", &["{1}"])))];
        let found = outcome(&groups, "edge-2", Some("spiffe://a.org/node/edge-1"));
        assert!(found.starts_with("node-id-mismatch"), "{found}");
    }
}
