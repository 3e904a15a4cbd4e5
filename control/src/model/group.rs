//! Node groups as JSON: in answers and in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::group::Glob;
use xds_cache::identity::{ClaimPattern, SubjectPattern, TokenPattern};
use xds_cache::wave::By;
use xds_cache::{DrainPolicy, Identity, NodeGroup, Profile, Scalar, WavePolicy};
use xds_units::Span;

/// A node group: whom it selects and how it stands to other groups.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The name; in a request it may be left out, and else must be the one in the path.
    pub name: String,
    /// Whom it selects.
    pub selector: GroupSelector,
    /// The verified identities that are granted the group: one entry must match. Absent if everyone is whom the selector selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<GroupIdentity>,
    /// Where two groups have a resource of the same type and name, the higher priority wins.
    pub priority: i64,
    /// The profile of the group's nodes; else the user agent decides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// The waves of changes of the group; else `--waves` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waves: Option<GroupWaves>,
    /// How long what leaves the group drains; else `--drain-endpoints` and `--drain-clusters` say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<GroupDrain>,
}

/// An entry of `identities`. Its fields are ANDed, and at least one of `spiffe`, `dns`, `cn` and `jwt` is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupIdentity {
    /// The SPIFFE ID of the client's certificate. `*` is one segment of the path, `/**` at the end any rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spiffe: Option<String>,
    /// A DNS name of the client's certificate. `*` is one label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    /// The common name of a client certificate that has no other name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cn: Option<String>,
    /// A verified token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<GroupToken>,
    /// The node ids that such a client may have; any if absent. Globs; `{1}` is the text that the first `*` stood for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<String>,
}

/// The token of an entry of `identities`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupToken {
    /// The name of an issuer of the access policy.
    pub issuer: String,
    /// The subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Claims by JSON pointer. `{node}` is the id that the node claims.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, MetadataValue>,
}

/// How long things drain, such as `30s`; `0s` is not at all.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupDrain {
    /// How long endpoints are sent as `DRAINING` that left a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<String>,
    /// How long clusters are kept that left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<String>,
}

/// The waves of changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupWaves {
    /// The share of each wave.
    pub shares: GroupShares,
    /// The property by which nodes are ranked: `region`, `zone`, `subZone` or `metadata.KEY`; absent for the hash of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The values that come first; the others follow, of which those with fewer nodes come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// How long a wave that every member has ACKed is left alone, such as `30s`.
    pub hold: String,
    /// How many members may reject the change: a number of nodes as text, or a share such as `5%`.
    pub max_nacks: String,
    /// How long a wave waits for its ACKs before it pauses; for ever if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timeout: Option<String>,
    /// How many members may be lost, as `maxNacks`; nobody in the first wave and 5% after if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lost: Option<String>,
    /// True if a wave passes that no connected node is in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_empty: bool,
    /// By how much the share of requests that fail may be larger ahead than behind, such as `5%`; nobody looks if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_error_rate: Option<String>,
}

/// The share of each wave, or one wave for each value of `by`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum GroupShares {
    /// Shares such as `1%`; ascending, the last one is `100%`.
    Listed(Vec<String>),
    /// One wave for each value.
    Each(EachValue),
}

/// The word for one wave for each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EachValue {
    /// `each`.
    Each,
}

/// Fields are ANDed, the values within a field ORed, an absent field is no condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSelector {
    /// Selects every node; stands alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Globs of node ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<String>,
    /// Globs of the node's cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Dotted path into the node's metadata, and the value or values of which one must be there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, OneOrMany>,
    /// Globs of user agent names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_agents: Vec<String>,
}

/// A value, or a list of which one must be there.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One value.
    One(MetadataValue),
    /// Several.
    Many(Vec<MetadataValue>),
}

/// A scalar of the node's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum MetadataValue {
    /// A bool.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
}

/// The profile of a group's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Envoy.
    Envoy,
    /// Proxyless gRPC.
    Grpc,
}

/// Writes a group; `Codec::node_group_from_json` reads it back.
#[must_use]
pub fn to_json(group: &NodeGroup) -> Value {
    serde_json::to_value(Group::from(group)).unwrap_or_default()
}

impl From<&NodeGroup> for Group {
    fn from(group: &NodeGroup) -> Self {
        let globs = |globs: &[Glob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect();
        let selector = &group.selector;
        Self {
            name: group.name.as_str().to_owned(),
            selector: GroupSelector {
                all: selector.all,
                node_ids: globs(&selector.node_ids),
                clusters: globs(&selector.clusters),
                metadata: selector
                    .metadata
                    .iter()
                    .map(|(path, values)| (path.clone(), OneOrMany::from(&**values)))
                    .collect(),
                user_agents: globs(&selector.user_agents),
            },
            identities: group.identities.iter().map(GroupIdentity::from).collect(),
            priority: group.priority,
            client: group.client.map(|client| match client {
                Profile::Envoy => Client::Envoy,
                Profile::Grpc => Client::Grpc,
            }),
            waves: group.waves.as_ref().map(GroupWaves::from),
            drain: (!group.drain.is_empty()).then(|| GroupDrain::from(group.drain)),
        }
    }
}

/// Writes `identities`; `xds_codec::identities_from_json` reads them back.
#[must_use]
pub fn identities_to_json(identities: &[Identity]) -> Vec<Value> {
    let entries = identities.iter().map(GroupIdentity::from);
    entries.map(|entry| serde_json::to_value(entry).unwrap_or_default()).collect()
}

impl From<&Identity> for GroupIdentity {
    fn from(identity: &Identity) -> Self {
        let node_ids = identity.node_ids().iter().map(|pattern| pattern.as_str().to_owned()).collect();
        let mut entry = Self { node_ids, ..Self::default() };
        for subject in identity.subjects() {
            match subject {
                SubjectPattern::Spiffe(pattern) => entry.spiffe = Some(pattern.as_str().to_owned()),
                SubjectPattern::Dns(pattern) => entry.dns = Some(pattern.as_str().to_owned()),
                SubjectPattern::CommonName(name) => entry.cn = Some(name.to_string()),
                SubjectPattern::Token(pattern) => entry.jwt = Some(GroupToken::from(pattern)),
            }
        }
        entry
    }
}

impl From<&TokenPattern> for GroupToken {
    fn from(pattern: &TokenPattern) -> Self {
        let value = |claim: &ClaimPattern| match claim {
            ClaimPattern::Exactly(value) => MetadataValue::from(value),
            ClaimPattern::NodeId => MetadataValue::String("{node}".to_owned()),
        };
        let claims = pattern.claims.iter().map(|(pointer, claim)| (pointer.to_string(), value(claim)));
        Self {
            issuer: pattern.issuer.to_string(),
            subject: pattern.subject.as_ref().map(ToString::to_string),
            claims: claims.collect(),
        }
    }
}

impl From<&Scalar> for MetadataValue {
    fn from(value: &Scalar) -> Self {
        match value {
            Scalar::Bool(truth) => Self::Bool(*truth),
            Scalar::Number(number) => Self::Number(*number),
            Scalar::String(text) => Self::String(text.clone()),
        }
    }
}

impl From<DrainPolicy> for GroupDrain {
    fn from(policy: DrainPolicy) -> Self {
        let text = |time: Option<Duration>| time.map(|time| Span::from(time).in_seconds());
        Self { endpoints: text(policy.endpoints), clusters: text(policy.clusters) }
    }
}

impl From<&WavePolicy> for GroupWaves {
    fn from(policy: &WavePolicy) -> Self {
        let shares = || policy.shares().iter().map(ToString::to_string).collect();
        Self {
            shares: match policy.is_each() {
                true => GroupShares::Each(EachValue::Each),
                false => GroupShares::Listed(shares()),
            },
            by: (policy.by != By::Hash).then(|| policy.by.to_string()),
            order: policy.order.iter().map(ToString::to_string).collect(),
            hold: Span::from(policy.hold).in_seconds(),
            max_nacks: policy.max_nacks.to_string(),
            ack_timeout: policy.ack_timeout.map(|timeout| Span::from(timeout).in_seconds()),
            max_lost: policy.max_lost.map(|lost| lost.to_string()),
            allow_empty: policy.allow_empty,
            max_error_rate: policy.max_error_rate.map(|rate| rate.to_string()),
        }
    }
}

impl From<&[Scalar]> for OneOrMany {
    fn from(values: &[Scalar]) -> Self {
        let mut values: Vec<_> = values.iter().map(MetadataValue::from).collect();
        match (values.pop(), values.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => {
                values.extend(last);
                Self::Many(values)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use xds_codec::Codec;

    use super::*;

    #[test]
    fn a_group_reads_back_what_it_writes() {
        let codec = Codec::new().unwrap();
        for body in [
            json!({"name": "edge", "selector": {"all": true}, "priority": 0}),
            json!({"name": "edge", "selector": {"nodeIds": ["edge-*"], "clusters": ["c"], "userAgents": ["gRPC Go"]},
                "priority": -3, "client": "grpc"}),
            json!({"name": "edge", "selector": {"metadata": {"a.b": "x", "n": [1.5, true, "z"]}}, "priority": 7,
                "client": "envoy"}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "waves": {"shares": ["0.5%", "10%", "100%"],
                "hold": "30s", "maxNacks": "5%", "ackTimeout": "1500ms", "maxLost": "2", "allowEmpty": true}}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "waves": {"shares": "each", "by": "zone",
                "order": ["b", "a"], "hold": "30s", "maxNacks": "0"}}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "waves": {"shares": ["10%", "100%"],
                "by": "metadata.tier", "hold": "0s", "maxNacks": "0"}}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "drain": {"endpoints": "30s", "clusters": "0s"}}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "drain": {"clusters": "5s"}}),
            json!({"name": "edge", "selector": {"all": true}, "priority": 0, "identities": [
                {"spiffe": "spiffe://example.org/ns/edge/sa/*"},
                {"spiffe": "spiffe://example.org/node/*", "dns": "*.*.example.com", "nodeIds": ["{1}", "edge-{3}-*"]},
                {"cn": "edge-legacy"},
                {"jwt": {"issuer": "cluster", "subject": "system:serviceaccount:edge:envoy",
                    "claims": {"/kubernetes.io/pod/name": "{node}", "/level": 3.5, "/ok": true}}},
            ]}),
        ] {
            let group = codec.node_group_from_json(&body).unwrap();
            assert_eq!(to_json(&group), body);
        }
    }

    #[test]
    fn a_drain_that_is_wrong_is_told_what_would_be_right() {
        let codec = Codec::new().unwrap();
        for (drain, wrong) in [
            (json!([]), "an object with `endpoints`"),
            (json!("30s"), "an object with `endpoints`"),
            (json!({"endpoints": 30}), "is not a duration: write 500ms, 30s"),
            (json!({"clusters": "-1s"}), "is not a duration: write 500ms, 30s"),
            (json!({"cluster": "1s"}), "unknown field"),
        ] {
            let body = json!({"name": "edge", "selector": {"all": true}, "drain": drain});
            let found = codec.node_group_from_json(&body).unwrap_err();
            assert!(found.iter().any(|found| found.message.contains(wrong)), "{drain}: {found:?}");
        }
    }

    #[test]
    fn identities_that_are_wrong_are_told_what_would_be_right() {
        let codec = Codec::new().unwrap();
        for (identities, path, wrong) in [
            (json!({}), "identities", "expected a list of entries"),
            (json!([]), "identities", "grants the group to nobody; leave it out"),
            (json!(["a"]), "identities[0]", "expected an entry such as {spiffe:"),
            (json!([{}]), "identities[0]", "needs at least one of `spiffe`, `dns`, `cn` and `jwt`"),
            (json!([{"nodeIds": ["a"]}]), "identities[0]", "needs at least one of"),
            (
                json!([{"spiffe": "*"}]),
                "identities[0].spiffe",
                "does not begin with `spiffe://`; write such as",
            ),
            (json!([{"spiffe": "spiffe://a.org/x*"}]), "identities[0].spiffe", "must be a whole segment"),
            (json!([{"spiffe": 1}]), "identities[0].spiffe", "expected a string"),
            (json!([{"dns": "*"}, {"dns": "a*.b"}]), "identities[1].dns", "where * is one label"),
            (json!([{"cn": "edge-*"}]), "identities[0].cn", "without `*`"),
            (json!([{"cn": ""}]), "identities[0].cn", "expected 1 to"),
            (json!([{"uri": "a"}]), "identities[0].uri", "unknown field"),
            (json!([{"cn": "a", "nodeIds": []}]), "identities[0].nodeIds", "allows no node id; leave it out"),
            (json!([{"cn": "a", "nodeIds": ["{1}"]}]), "identities[0]", "refers to `*` number 1"),
            (json!([{"cn": "a", "nodeIds": ["{x}"]}]), "identities[0].nodeIds[0]", "such as {1}"),
            (json!([{"cn": "a", "nodeIds": "a"}]), "identities[0].nodeIds", "expected a list of node ids"),
            (json!([{"jwt": "a"}]), "identities[0].jwt", "expected an object with `issuer`"),
            (json!([{"jwt": {"subject": "a"}}]), "identities[0].jwt", "needs `issuer`"),
            (json!([{"jwt": {"issuer": "a", "claims": {"sub": "a"}}}]), "sub", "JSON pointer, such as /sub"),
            (
                json!([{"jwt": {"issuer": "a", "claims": {"/sub": "{nodes}"}}}]),
                "/sub",
                "only {node} can be in braces",
            ),
            (
                json!([{"jwt": {"issuer": "a", "claims": {"/sub": ["a"]}}}]),
                "/sub",
                "expected a string, a number",
            ),
        ] {
            let body = json!({"name": "edge", "selector": {"all": true}, "identities": identities});
            let found = codec.node_group_from_json(&body).unwrap_err();
            let is_it =
                |found: &xds_codec::Diagnostic| found.message.contains(wrong) && found.path.contains(path);
            assert!(found.iter().any(is_it), "{identities}: {found:?}");
        }
        let default = json!({"name": "default", "selector": {"all": true}, "identities": [{"cn": "a"}]});
        let found = codec.node_group_from_json(&default).unwrap_err();
        assert!(found[0].message.contains("the group default is for every client"), "{found:?}");
    }

    #[test]
    fn waves_that_are_wrong_are_told_what_would_be_right() {
        let codec = Codec::new().unwrap();
        for (waves, wrong) in [
            (json!({}), "an object with `shares`"),
            (json!([]), "an object with `shares`"),
            (json!({"shares": "1%"}), "a list of shares"),
            (json!({"shares": []}), "write a list of shares"),
            (json!({"shares": ["10%", "1%"]}), "10% comes before 1%"),
            (json!({"shares": [0]}), "is not a share"),
            (json!({"shares": [10], "hold": 5}), "is not a duration"),
            (json!({"shares": [10], "ackTimeout": "x"}), "is not a duration"),
            (json!({"shares": [10], "maxNacks": -1}), "is not a number of nodes"),
            (json!({"shares": [10], "maxLost": "few"}), "is not a number of nodes"),
            (json!({"shares": [10], "allowEmpty": "perhaps"}), "true or false"),
            (json!({"shares": [10], "holt": "5s"}), "unknown field"),
            (json!({"shares": "every"}), "a list of shares"),
            (json!({"shares": [10], "by": "zones"}), "write hash, region, zone, subZone, or metadata.KEY"),
            (json!({"shares": [10], "by": ["zone"]}), "write hash, region, zone, subZone, or metadata.KEY"),
            (json!({"shares": "each"}), "`by` is missing: set it to region, zone"),
            (json!({"shares": [10], "order": ["a"]}), "`by` is missing: set it to region, zone"),
            (json!({"shares": [10], "by": "zone", "order": "a"}), "a list of values"),
            (json!({"shares": [10], "by": "zone", "order": ["a", 1, "a"]}), "twice"),
        ] {
            let body = json!({"name": "edge", "selector": {"all": true}, "waves": waves});
            let found = codec.node_group_from_json(&body).unwrap_err();
            assert!(found.iter().any(|found| found.message.contains(wrong)), "{waves}: {found:?}");
        }
        let short = json!({"name": "edge", "selector": {"all": true}, "waves": {"shares": [1, "10%"], "maxNacks": 2}});
        let policy = codec.node_group_from_json(&short).unwrap().waves.unwrap();
        let shares = ["1%", "10%", "100%"].map(str::to_owned).to_vec();
        assert_eq!(GroupWaves::from(&policy).shares, GroupShares::Listed(shares));
        assert_eq!(policy.max_nacks.to_string(), "2");
    }
}
