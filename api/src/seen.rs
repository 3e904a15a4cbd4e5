//! What a caller with a scope sees of answers that are about many groups and documents: nodes, revisions, rollouts, wave
//! deployments, events.
//!
//! Lists are filtered by this before they are cut into pages, and counts are those of the filtered list.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{GroupName, ResourceType};
use xds_control::acks::MAX_LISTED;
use xds_control::model::document::DocumentState;
use xds_control::model::wave::WaveReport;
use xds_control::model::weights::WeightedObject;
use xds_rollout::Rollout;
use xds_routes::{DocumentKey, Kind};

use crate::caller::Caller;
use crate::state::ApiState;

/// The objects that a caller sees, as of one moment.
pub(crate) struct Seen {
    caller: Caller,
    documents: DocumentState,
    rollouts: BTreeMap<String, Arc<Rollout>>,
}

/// One thing that the text of an object may stand for.
enum Reading<'t> {
    Group(String),
    Document(DocumentKey),
    Weights(WeightedObject),
    Rollout(&'t str),
}

impl Seen {
    pub(crate) fn new(state: &ApiState, caller: &Caller) -> Self {
        Self {
            caller: caller.clone(),
            documents: state.control.documents(),
            // Without a scope nobody asks for them.
            rollouts: caller.scope().map(|_| state.rollouts.list()).unwrap_or_default(),
        }
    }

    /// Returns `true` if the caller sees everything.
    pub(crate) fn is_all(&self) -> bool {
        self.caller.scope().is_none()
    }

    /// Returns `true` if a rollout moves the weights of an object in scope.
    pub(crate) fn rollout(&self, rollout: &Rollout) -> bool {
        let route = &rollout.spec().route;
        self.is_all()
            || WeightedObject::parse(&route.kind, &route.namespace, &route.name)
                .is_ok_and(|object| self.weighted(&object))
    }

    /// Returns `true` if a document is in scope, by its namespace and its present group.
    pub(crate) fn document(&self, key: &DocumentKey) -> bool {
        self.caller.sees_document(key, self.documents.translated.documents.get(key))
    }

    /// Returns `true` if all objects of a wave deployment are in scope. Its counts are about all of them together, so it is shown
    /// whole or not at all.
    pub(crate) fn deployment(&self, report: &WaveReport) -> bool {
        // A list that is cut may have left out anything.
        let is_whole = !report.objects.is_empty() && report.objects.len() < MAX_LISTED;
        self.is_all() || (is_whole && report.objects.iter().all(|what| self.object(what)))
    }

    /// Returns `true` if an object of the history is in scope, by its text as in
    /// [`ChangedObject::what`](xds_control::model::ChangedObject::what).
    ///
    /// A text that could stand for several objects is in scope only if all of them are, and one that stands for none is not.
    pub(crate) fn object(&self, what: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let readings = readings(what);
        !readings.is_empty() && readings.iter().all(|reading| self.reading(reading))
    }

    fn reading(&self, reading: &Reading<'_>) -> bool {
        match reading {
            Reading::Group(group) => self.caller.scope().is_none_or(|scope| scope.has_group(group)),
            Reading::Document(key) => self.document(key),
            Reading::Weights(object) => self.weighted(object),
            Reading::Rollout(id) => self.rollouts.get(*id).is_some_and(|rollout| self.rollout(rollout)),
        }
    }

    fn weighted(&self, object: &WeightedObject) -> bool {
        let placed = match object {
            WeightedObject::Document(key) => self.documents.translated.documents.get(key),
            WeightedObject::Routes(..) => None,
        };
        self.caller.sees_weighted(object, placed)
    }
}

/// Everything that the text of an object may stand for. Names of groups and resources may have slashes.
fn readings(what: &str) -> Vec<Reading<'_>> {
    let parts: Vec<&str> = what.split('/').collect();
    let mut readings = Vec::new();
    match *parts {
        ["group" | "label", _, ..] => {
            let group = what.split_once('/').map_or("", |(_, group)| group);
            readings.push(Reading::Group(group.to_owned()));
        }
        ["document", kind, namespace, _, ..] => {
            let name = parts.get(3..).unwrap_or_default().join("/");
            let kind = Kind::of_name(kind);
            readings.extend(kind.map(|kind| Reading::Document(DocumentKey::new(kind, namespace, &name))));
        }
        ["weights", kind, ref object @ .., _] => {
            // The group and the name of a RouteConfiguration may have slashes; those of documents have none.
            readings.extend((1..object.len()).filter_map(|at| {
                let (namespace, name) = object.split_at(at);
                WeightedObject::parse(kind, &namespace.join("/"), &name.join("/")).ok().map(Reading::Weights)
            }));
        }
        ["rollout", ..] => readings.extend(what.split_once('/').map(|(_, id)| Reading::Rollout(id))),
        _ => {}
    }
    let is_type = |at: &usize| {
        let part = parts.get(*at).copied().unwrap_or_default();
        part == TYPE_URL || ResourceType::KNOWN.iter().any(|known| known.slug() == part)
    };
    for at in (1..parts.len()).filter(is_type) {
        let group = parts.get(..at).unwrap_or_default();
        let group = match *group {
            ["generated", _, ref group @ ..] if !group.is_empty() => group,
            _ => group,
        };
        readings.push(Reading::Group(group.join("/")));
    }
    readings
}

/// The first part of types without a short name.
const TYPE_URL: &str = "type.googleapis.com";

/// The groups of a list that are in scope, as a list.
pub(crate) fn seen_groups(caller: &Caller, groups: &[GroupName]) -> Vec<String> {
    groups.iter().filter(|group| caller.sees_group(group)).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_for_all_that_it_may_mean() {
        for (what, expected) in [
            ("group/edge", vec!["group edge"]),
            ("label/b/c", vec!["group b/c"]),
            ("edge/clusters/a", vec!["group edge"]),
            ("b/c/clusters/a", vec!["group b/c"]),
            ("edge/clusters/x/routes/y", vec!["group edge", "group edge/clusters/x"]),
            ("edge/type.googleapis.com/foo.Bar/a", vec!["group edge"]),
            ("generated/grpc/edge/listeners/a", vec!["group edge"]),
            ("document/Route/shop/r", vec!["Route shop/r"]),
            ("document/Strange/shop/r", vec![]),
            // A group may be called like that.
            ("document/clusters/x", vec!["group document"]),
            ("weights/Route/shop/r/0", vec!["weights Route shop/r"]),
            (
                "weights/RouteConfiguration/edge/a/b/0",
                vec!["weights RouteConfiguration edge/a/b", "weights RouteConfiguration edge/a/b"],
            ),
            ("rollout/r-1", vec!["rollout r-1"]),
            ("files/hash", vec![]),
            ("", vec![]),
        ] {
            let told = |reading: &Reading<'_>| match reading {
                Reading::Group(group) => format!("group {group}"),
                Reading::Document(key) => key.to_string(),
                Reading::Weights(object) => {
                    format!("weights {} {}/{}", object.kind(), object.namespace(), object.name())
                }
                Reading::Rollout(id) => format!("rollout {id}"),
            };
            let mut found: Vec<String> = readings(what).iter().map(told).collect();
            found.sort();
            assert_eq!(found, expected, "{what}");
        }
    }
}
