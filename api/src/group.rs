//! Node groups as JSON, in both directions; also how the store keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::group::Glob;
use xds_cache::{GroupName, NodeGroup, Profile, Scalar, Selector};

/// A node group: whom it selects and how it stands to other groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    /// The name; in a request it may be left out, and else must be the one in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whom it selects.
    pub selector: GroupSelector,
    /// Where two groups have a resource of the same type and name, the higher priority wins.
    #[serde(default)]
    pub priority: i64,
    /// The profile of the group's nodes; else the user agent decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
}

/// Fields are ANDed, the values within a field ORed, an absent field is no condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupSelector {
    /// Selects every node; stands alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Globs of node ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_ids: Vec<String>,
    /// Globs of the node's cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Dotted path into the node's metadata, and the value or values of which one must be there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, OneOrMany>,
    /// Globs of user agent names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_agents: Vec<String>,
}

/// A value, or a list of which one must be there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One value.
    One(MetadataValue),
    /// Several.
    Many(Vec<MetadataValue>),
}

/// A scalar of the node's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Envoy.
    Envoy,
    /// Proxyless gRPC.
    Grpc,
}

/// Why a JSON value is not a node group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The shape is wrong.
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    /// The name in the body is not the one in the path.
    #[error("the body names the group {found:?}, the path {expected:?}")]
    Name {
        /// The name in the body.
        found: String,
        /// The name in the path.
        expected: GroupName,
    },
    /// `selector` has no condition.
    #[error("an empty selector selects nobody; write {{\"all\": true}} to select every node")]
    EmptySelector,
    /// `all` stands beside other conditions.
    #[error("\"all\": true selects every node, so no other condition can stand beside it")]
    AllWithConditions,
    /// A metadata list is empty.
    #[error("the list of values of {path:?} is empty, so no node can have one of them")]
    EmptyValues {
        /// The metadata path.
        path: String,
    },
}

impl GroupError {
    /// Where in the body the fault is, as a JSON pointer.
    #[must_use]
    pub fn pointer(&self) -> String {
        match self {
            Self::Shape(_) => String::new(),
            Self::Name { .. } => "/name".to_owned(),
            Self::EmptySelector | Self::AllWithConditions => "/selector".to_owned(),
            Self::EmptyValues { path } => {
                format!("/selector/metadata/{}", path.replace('~', "~0").replace('/', "~1"))
            }
        }
    }
}

/// Reads a group.
///
/// # Errors
///
/// [`GroupError`] if the shape is wrong, the name differs or the selector can select nobody.
pub fn from_json(name: &GroupName, body: Value) -> Result<NodeGroup, GroupError> {
    let group: Group = serde_json::from_value(body)?;
    if let Some(found) = group.name.filter(|found| found != name.as_str()) {
        return Err(GroupError::Name { found, expected: name.clone() });
    }
    let selector = Selector::try_from(group.selector)?;
    let client = group.client.map(|client| match client {
        Client::Envoy => Profile::Envoy,
        Client::Grpc => Profile::Grpc,
    });
    Ok(NodeGroup { name: name.clone(), selector, priority: group.priority, client })
}

/// Writes a group; [`from_json`] reads it back.
#[must_use]
pub fn to_json(group: &NodeGroup) -> Value {
    serde_json::to_value(Group::from(group)).unwrap_or_default()
}

impl TryFrom<GroupSelector> for Selector {
    type Error = GroupError;

    fn try_from(selector: GroupSelector) -> Result<Self, Self::Error> {
        let globs = |texts: Vec<String>| texts.iter().map(|text| Glob::new(text)).collect();
        if let Some((path, _)) = selector.metadata.iter().find(|(_, values)| values.is_empty()) {
            return Err(GroupError::EmptyValues { path: path.clone() });
        }
        let parsed = Self {
            all: selector.all,
            node_ids: globs(selector.node_ids),
            clusters: globs(selector.clusters),
            metadata: selector.metadata.into_iter().map(|(path, values)| (path, values.into())).collect(),
            user_agents: globs(selector.user_agents),
        };
        if parsed.is_empty() {
            return Err(GroupError::EmptySelector);
        }
        if parsed.all && parsed.has_conditions() {
            return Err(GroupError::AllWithConditions);
        }
        Ok(parsed)
    }
}

impl From<&NodeGroup> for Group {
    fn from(group: &NodeGroup) -> Self {
        let globs = |globs: &[Glob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect();
        let selector = &group.selector;
        Self {
            name: Some(group.name.as_str().to_owned()),
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
            priority: group.priority,
            client: group.client.map(|client| match client {
                Profile::Envoy => Client::Envoy,
                Profile::Grpc => Client::Grpc,
            }),
        }
    }
}

impl OneOrMany {
    fn is_empty(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Many(values) => values.is_empty(),
        }
    }
}

impl From<OneOrMany> for Vec<Scalar> {
    fn from(values: OneOrMany) -> Self {
        let values = match values {
            OneOrMany::One(value) => vec![value],
            OneOrMany::Many(values) => values,
        };
        values
            .into_iter()
            .map(|value| match value {
                MetadataValue::Bool(truth) => Scalar::Bool(truth),
                MetadataValue::Number(number) => Scalar::Number(number),
                MetadataValue::String(text) => Scalar::String(text),
            })
            .collect()
    }
}

impl From<&[Scalar]> for OneOrMany {
    fn from(values: &[Scalar]) -> Self {
        let mut values: Vec<_> = values
            .iter()
            .map(|value| match value {
                Scalar::Bool(truth) => MetadataValue::Bool(*truth),
                Scalar::Number(number) => MetadataValue::Number(*number),
                Scalar::String(text) => MetadataValue::String(text.clone()),
            })
            .collect();
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

    use super::*;

    fn name() -> GroupName {
        GroupName::new("edge").unwrap()
    }

    #[test]
    fn a_group_reads_back_what_it_writes() {
        for body in [
            json!({"selector": {"all": true}}),
            json!({"name": "edge", "selector": {"nodeIds": ["edge-*"], "clusters": ["c"], "userAgents": ["gRPC Go"]},
                "priority": -3, "client": "grpc"}),
            json!({"selector": {"metadata": {"a.b": "x", "n": [1.5, true, "z"]}}, "client": "envoy"}),
        ] {
            let group = from_json(&name(), body).unwrap();
            assert_eq!(from_json(&name(), to_json(&group)).unwrap(), group);
        }
    }

    #[test]
    fn what_selects_nobody_or_has_another_shape_is_refused() {
        for (body, pointer) in [
            (json!({"selector": {}}), "/selector"),
            (json!({"selector": {"all": true, "nodeIds": ["a"]}}), "/selector"),
            (json!({"selector": {"metadata": {"a/b": []}}}), "/selector/metadata/a~1b"),
            (json!({"name": "other", "selector": {"all": true}}), "/name"),
            (json!({"selector": {"nodeIDs": ["a"]}}), ""),
            (json!({"selector": {"nodeIds": "a"}}), ""),
            (json!({}), ""),
            (json!([]), ""),
        ] {
            let error = from_json(&name(), body.clone()).unwrap_err();
            assert_eq!(error.pointer(), pointer, "{body}: {error}");
        }
    }
}
