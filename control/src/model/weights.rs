//! Overrides of weights between the server and the API: their rules, their contents, and how they change.
//!
//! Effective weights are those of an object, from a file or the API, with an override of the rule applied to them (D6).
//! [`change`] applies a write to an override. [`reconcile`] updates overrides when the objects below them change.
//! Both are pure; time is passed in, in milliseconds since 1970.

pub mod change;
pub mod reconcile;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xds_cache::{GroupName, VersionHasher};
use xds_codec::weights::{Overlay, RuleWeights};
use xds_routes::{DocumentKey, Kind};

/// All overrides, by rule.
pub type Overrides = BTreeMap<RuleKey, RuleOverride>;

/// An object whose rules have weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightedObject {
    /// A route document: see [`xds_routes::weights::KINDS`].
    Document(DocumentKey),
    /// A RouteConfiguration as it is written, by group and name.
    Routes(GroupName, Arc<str>),
}

/// A rule with weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleKey {
    /// The object that it is of.
    pub object: WeightedObject,
    /// The rule's id, as [`RuleWeights::id`].
    pub rule: Arc<str>,
}

/// The override of one rule's weights by the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleOverride {
    /// The weights that are laid over the rule.
    #[serde(flatten)]
    pub overlay: Overlay,
    /// The object's own weights when they were last compared: by it a change of the object is known, of its weights and of its set
    /// of backends.
    pub base: BTreeMap<String, u64>,
    /// When the override ends by itself.
    #[serde(default, rename = "expiresMs", skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Since when the object, or the rule of it, is not there. The override comes back with it, for [`GONE_KEPT_MS`].
    #[serde(default, rename = "goneSinceMs", skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<u64>,
}

/// How long the override of a rule that is gone is kept, in milliseconds: as long as a deployment takes that deletes and makes
/// anew.
pub const GONE_KEPT_MS: u64 = 60 * 60 * 1_000;

/// The kind by which paths name a RouteConfiguration as it is written.
pub const ROUTE_CONFIGURATION: &str = "RouteConfiguration";

/// The annotation of a document by which its own weights, once they change, take the place of an override.
pub const WEIGHT_SOURCE: &str = "xds-server.io/weight-source";

impl WeightedObject {
    /// Reads what paths write.
    ///
    /// # Errors
    ///
    /// Explains why there is no such object.
    pub fn parse(kind: &str, namespace: &str, name: &str) -> Result<Self, String> {
        if kind == ROUTE_CONFIGURATION {
            let group = GroupName::new(namespace).map_err(|error| error.to_string())?;
            return Ok(Self::Routes(group, name.into()));
        }
        let kinds = xds_routes::weights::KINDS;
        let Some(kind) = Kind::of_name(kind).filter(|kind| kinds.contains(kind)) else {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            let kinds = kinds.join(", ");
            return Err(format!(
                "{kind:?} is not a kind with weights: use one of {kinds}, {ROUTE_CONFIGURATION}"
            ));
        };
        Ok(Self::Document(DocumentKey::new(kind, namespace, name)))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Document(key) => key.kind.as_str(),
            Self::Routes(..) => ROUTE_CONFIGURATION,
        }
    }

    /// Its namespace, or its group.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Document(key) => &key.namespace,
            Self::Routes(group, _) => group.as_str(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Document(key) => &key.name,
            Self::Routes(_, name) => name,
        }
    }
}

impl fmt::Display for WeightedObject {
    /// `GRPCRoute prod/greeter`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind(), self.namespace(), self.name())
    }
}

impl RuleKey {
    /// How the override is called in answers and in the history: `weights/{kind}/{namespace}/{name}/{rule}`.
    #[must_use]
    pub fn what(&self) -> String {
        let object = &self.object;
        format!("weights/{}/{}/{}/{}", object.kind(), object.namespace(), object.name(), self.rule)
    }
}

impl fmt::Display for RuleKey {
    /// `the rule 0 of GRPCRoute prod/greeter`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {} of {}", self.rule, self.object)
    }
}

impl RuleOverride {
    /// The hash of the set of backends that it was made for.
    #[must_use]
    pub fn base_hash(&self) -> String {
        let mut hasher = VersionHasher::new();
        for key in self.base.keys() {
            hasher.update(key.as_bytes());
            hasher.update(b"\0");
        }
        hasher.finish().to_string()
    }
}

/// The weights that are laid over the rules of an object, by rule.
#[must_use]
pub fn overlays<'o>(overrides: &'o Overrides, object: &WeightedObject) -> BTreeMap<&'o str, &'o Overlay> {
    let first = RuleKey { object: object.clone(), rule: "".into() };
    let rules = overrides.range(first..).take_while(|(key, _)| key.object == *object);
    rules.map(|(key, one)| (&*key.rule, &one.overlay)).collect()
}

/// The weights that count, in the order of the rule.
#[must_use]
pub fn effective(rule: &RuleWeights, overlay: &Overlay) -> Vec<(String, u64)> {
    let weight = |(key, weight): &(String, u64)| {
        let over = overlay.backends.get(key).copied().map(u64::from);
        (key.clone(), over.unwrap_or(*weight))
    };
    rule.backends.iter().map(weight).collect()
}

/// The entity tag of a rule's weights: it differs with everything that they are made of.
#[must_use]
pub fn tag(rule: &RuleWeights, over: Option<&RuleOverride>) -> String {
    let mut hasher = VersionHasher::new();
    for (key, weight) in &rule.backends {
        hasher.update(key.as_bytes());
        hasher.update(format!("\0{weight}\0").as_bytes());
    }
    if let Some(over) = over {
        let text = serde_json::to_string(&(&over.overlay, over.expires)).unwrap_or_default();
        hasher.update(text.as_bytes());
    }
    hasher.finish().to_string()
}
