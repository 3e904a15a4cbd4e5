//! Checks part B of `docs/design/protocol-rules.md` on decoded messages, without code of the emitter.
//!
//! It checks a message as the JSON that the codec makes of its bytes, where defaults are absent and wrappers are open. The checker is
//! stricter than the clients: fields that they ignore are faults too, because the server should not send anything that is ignored. It checks
//! what the emitter may write, by the strictest of C-core, Java and Go. Anything that it does not know is a fault.

mod clusters;
mod endpoints;
mod listeners;
mod routes;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

/// Everything that is wrong with the resources, each fault as `row resource: what`.
pub(super) fn faults(resources: &[Json]) -> Vec<String> {
    let mut all = All::default();
    for resource in resources {
        all.resource(resource);
    }
    all.together();
    all.faults
}

/// The resources that were seen.
#[derive(Default)]
struct All {
    faults: Vec<String>,
    /// Names by type.
    names: BTreeMap<&'static str, BTreeSet<String>>,
    /// The resources of a type that others ask for: (type, name) and by whom.
    wanted: BTreeMap<(&'static str, String), String>,
    /// Members by aggregate.
    members: BTreeMap<String, Vec<String>>,
    /// Route configurations whose routes override the session filter, and listeners that have it with their configuration.
    with_sessions: BTreeSet<String>,
    session_listeners: BTreeMap<String, bool>,
}

/// A message and where it is, for faults.
#[derive(Clone, Copy)]
struct At<'a> {
    resource: &'a str,
    value: &'a Json,
}

impl<'a> At<'a> {
    fn get(self, field: &str) -> Option<Self> {
        self.value.get(field).map(|value| At { value, ..self })
    }

    fn text(self, field: &str) -> &'a str {
        self.value.get(field).and_then(Json::as_str).unwrap_or_default()
    }

    fn list(self, field: &str) -> Vec<Self> {
        let items = self.value.get(field).and_then(Json::as_array);
        items.into_iter().flatten().map(|value| At { value, ..self }).collect()
    }

    /// The full name behind `@type`.
    fn type_name(self) -> &'a str {
        self.text("@type").rsplit('/').next().unwrap_or_default()
    }

    fn is_true(self, field: &str) -> bool {
        self.value.get(field) == Some(&Json::Bool(true))
    }

    fn number(self, field: &str) -> Option<u64> {
        self.value.get(field).and_then(Json::as_u64)
    }
}

impl All {
    fn fault(&mut self, row: &str, at: At<'_>, text: &str) {
        self.faults.push(format!("{row} {}: {text}", at.resource));
    }

    /// Faults every field that is not in the list.
    fn only(&mut self, row: &str, at: At<'_>, fields: &[&str]) {
        let keys: Vec<&String> = at.value.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
        for key in keys.into_iter().filter(|key| *key != "@type" && !fields.contains(&key.as_str())) {
            self.fault(row, at, &format!("field {key}"));
        }
    }

    fn wants(&mut self, kind: &'static str, name: &str, at: At<'_>) {
        self.wanted.insert((kind, name.to_owned()), at.resource.to_owned());
    }

    /// Row B15: the server that was asked for this.
    fn config_source(&mut self, row: &str, at: Option<At<'_>>, parent: At<'_>) {
        if at.and_then(|at| at.get("ads").or_else(|| at.get("self"))).is_none() {
            self.fault(row, parent, "config source");
        }
    }

    /// Row B16, and what more a duration must be.
    fn duration(&mut self, row: &str, parent: At<'_>, field: &str, is_fine: impl Fn(f64) -> bool) {
        let Some(value) = parent.get(field) else { return };
        let seconds = value.value.as_str().and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
        let is_valid = seconds.is_some_and(|it| (0.0..=315_576_000_000.0).contains(&it) && is_fine(it));
        if !is_valid {
            self.fault(row, parent, field);
        }
    }

    /// Rows B90, B103: full RE2.
    fn regex(&mut self, row: &str, at: At<'_>) {
        self.only(row, at, &["regex"]);
        if at.text("regex").is_empty() || xds_re2::check_shared_regex(at.text("regex")).is_err() {
            self.fault(row, at, "regex");
        }
    }

    fn resource(&mut self, resource: &Json) {
        let whole = At { resource: "", value: resource };
        let (kind, field) = match whole.type_name() {
            "envoy.config.listener.v3.Listener" => ("listener", "name"),
            "envoy.config.route.v3.RouteConfiguration" => ("routes", "name"),
            "envoy.config.cluster.v3.Cluster" => ("cluster", "name"),
            "envoy.config.endpoint.v3.ClusterLoadAssignment" => ("endpoints", "cluster_name"),
            _ => return self.fault("B6", whole, "type"),
        };
        let name = whole.text(field);
        let label = format!("{kind} {name}");
        let at = At { resource: &label, value: resource };
        if name.is_empty() {
            self.fault("B8", at, "no name");
        }
        if name.starts_with("xdstp:") {
            self.fault("B10", at, "name");
        }
        if !self.names.entry(kind).or_default().insert(name.to_owned()) {
            self.fault("B9", at, "twice");
        }
        match kind {
            "listener" => self.listener(at),
            "routes" => self.configuration(at),
            "cluster" => self.cluster(at),
            _ => self.assignment(at),
        }
    }

    /// Checks the resources against each other.
    fn together(&mut self) {
        for ((kind, name), by) in std::mem::take(&mut self.wanted) {
            if !self.names.entry(kind).or_default().remove(&name) {
                self.faults.push(format!("C48 {by}: no {kind} {name}"));
            }
        }
        for (kind, left) in std::mem::take(&mut self.names) {
            for name in left.into_iter().filter(|_| kind != "listener") {
                self.faults.push(format!("unused {kind} {name}: nobody asks for it"));
            }
        }
        for (configuration, has_filter) in std::mem::take(&mut self.session_listeners) {
            if has_filter != self.with_sessions.contains(&configuration) {
                self.faults.push(format!("C89 routes {configuration}: session filter and overrides differ"));
            }
        }
        for name in self.members.keys() {
            if let Some(depth) = self.depth(name, 1) {
                let text = if depth > 16 { "B178" } else { continue };
                self.faults.push(format!("{text} cluster {name}: aggregate of depth {depth}"));
            }
        }
    }

    /// How many clusters are on the longest path from here, stopping once it is too long: cycles are too long as well.
    fn depth(&self, name: &str, so_far: usize) -> Option<usize> {
        let members = self.members.get(name).filter(|_| so_far <= 16);
        let deepest = members.into_iter().flatten().filter_map(|member| self.depth(member, so_far + 1)).max();
        Some(deepest.unwrap_or(so_far))
    }
}
