//! The phases in which clients would get a change, as JSON: for dry runs.

use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::{Phase, ResourceKey, WaitsFor};
use xds_control::model::GroupPhases;
use xds_units::Span;

/// The phases in which the clients of exactly one group would get a change, if they have everything and accept everything.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct GroupPhasesEntry {
    /// The group.
    pub group: String,
    /// `envoy` or `grpc`.
    pub client: String,
    /// In order.
    pub phases: Vec<PhaseEntry>,
}

/// Changes that a client is sent in one step, before it has to answer or time has to pass.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhaseEntry {
    /// Events that must come first, besides that the client takes the previous step and asks for the resources that it refers to.
    pub waits_for: Vec<AwaitedEntry>,
    /// How long it takes until then, such as `30s`, if time has to pass: for clusters that get ready by themselves, or for what
    /// drains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// New and changed resources in the order in which they are sent: the first hundred.
    pub send: Vec<ResourceEntry>,
    /// How many these are in all.
    pub send_count: usize,
    /// Resources that are removed from the client: the first hundred.
    pub remove: Vec<ResourceEntry>,
    /// How many these are in all.
    pub remove_count: usize,
}

/// An event that must come before a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AwaitedEntry {
    /// The event, about the resource below: its `ack`; `settling`, the time to resolve names or check health; `disuse`, because it
    /// refers to what is removed.
    pub what: &'static str,
    /// The type URL of the resource.
    pub r#type: String,
    /// Its name.
    pub name: String,
}

/// A resource by its type and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ResourceEntry {
    /// The type URL.
    pub r#type: String,
    /// The name.
    pub name: String,
}

impl From<&GroupPhases> for GroupPhasesEntry {
    fn from(of_group: &GroupPhases) -> Self {
        Self {
            group: of_group.group.to_string(),
            client: of_group.profile.to_string(),
            phases: of_group.phases.iter().map(PhaseEntry::from).collect(),
        }
    }
}

impl From<&Phase> for PhaseEntry {
    fn from(phase: &Phase) -> Self {
        let listed = |keys: &[ResourceKey]| keys.iter().take(MAX_SHOWN).map(ResourceEntry::from).collect();
        Self {
            waits_for: phase.waits_for.iter().take(MAX_SHOWN).map(AwaitedEntry::from).collect(),
            after: phase.after.map(|after| Span::from(after).in_seconds()),
            send: listed(&phase.sent),
            send_count: phase.sent.len(),
            remove: listed(&phase.removed),
            remove_count: phase.removed.len(),
        }
    }
}

impl From<&WaitsFor> for AwaitedEntry {
    fn from(waits_for: &WaitsFor) -> Self {
        let ResourceEntry { r#type, name } = waits_for.resource().into();
        Self { what: waits_for.as_str(), r#type, name }
    }
}

impl From<&ResourceKey> for ResourceEntry {
    fn from(key: &ResourceKey) -> Self {
        Self { r#type: key.resource_type.type_url().to_owned(), name: key.name.to_string() }
    }
}

/// How many resources are shown of one phase.
const MAX_SHOWN: usize = 100;
