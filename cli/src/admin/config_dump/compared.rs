//! How what an Envoy has differs from what it is served.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::dump::{Dump, Held, Kind, Version};
use crate::output::{cell, items};

/// A resource, compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Compared {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) verdict: Verdict,
    /// The version that the Envoy has, if its dump says so.
    pub(super) there: Option<String>,
    /// The version that it is served.
    pub(super) served: Option<String>,
    /// The Envoy's words for a rejection; else empty.
    pub(super) why: String,
}

/// What a comparison finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The Envoy has what it is served.
    Same,
    /// It has another version.
    OtherVersion,
    /// It does not have it.
    MissingThere,
    /// It has it from elsewhere, or still.
    NotServed,
    /// It has it, and does not use it yet.
    Warming,
    /// It does not have it, because nothing that it has refers to it.
    Unused,
}

impl Verdict {
    pub(super) const fn is_difference(self) -> bool {
        match self {
            Self::Same | Self::Unused => false,
            Self::OtherVersion | Self::MissingThere | Self::NotServed | Self::Warming => true,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::OtherVersion => "other version",
            Self::MissingThere => "missing there",
            Self::NotServed => "not served",
            Self::Warming => "warming",
            Self::Unused => "unused there",
        }
    }
}

impl Compared {
    pub(super) fn to_json(&self) -> Value {
        json!({"type": self.kind.type_url(), "name": self.name, "is": self.verdict.as_str(), "isDifference": self.verdict.is_difference(),
            "there": self.there, "served": self.served, "why": self.why})
    }
}

/// Compares all resources of a dump and of a snapshot. `canonical` gives equal resources one form.
///
/// An Envoy keeps the version with which it took a resource in, and with State of the World that is the type's: another version
/// with the same contents is the same. Of endpoints it tells neither the version nor all that was sent, so their addresses count.
pub(super) fn compare(
    dump: &Dump,
    snapshot: &Value,
    canonical: &dyn Fn(&str, &Value) -> Option<Value>,
) -> Vec<Compared> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let of_type = &snapshot["types"][kind.type_url()];
        let served: BTreeMap<String, &Value> =
            items(&of_type["resources"]).map(|resource| (cell(&resource["name"]), resource)).collect();
        let held: BTreeMap<String, Held> =
            dump.held(kind).into_iter().map(|held| (held.name.clone(), held)).collect();
        let wanted = match kind {
            Kind::Listener | Kind::Cluster => served.keys().cloned().collect(),
            Kind::Route | Kind::Endpoints => dump.wanted(kind),
        };
        let names: BTreeSet<&String> = served.keys().chain(held.keys()).collect();
        for name in names {
            let is_same = |version: &Version, resource: &Value| {
                let told = [&resource["version"], &of_type["version"]].map(cell);
                told.contains(&version.version)
                    || is_equal(kind, &version.resource, &resource["resource"], canonical)
            };
            let (held, resource) = (held.get(name), served.get(name).copied());
            let verdict = match (held, resource) {
                (_, None) => Verdict::NotServed,
                (None, Some(resource)) if wanted.contains(name) && !is_for_grpc(resource) => {
                    Verdict::MissingThere
                }
                (None, Some(_)) => Verdict::Unused,
                (Some(held), Some(resource)) => verdict(held, |version| is_same(version, resource)),
            };
            let version = held.and_then(|held| held.active.as_ref().or(held.warming.as_ref()));
            all.push(Compared {
                kind,
                name: name.clone(),
                verdict,
                there: version.map(|version| version.version.clone()).filter(|text| !text.is_empty()),
                served: resource.map(|resource| cell(&resource["version"])),
                why: held.and_then(|held| held.rejection.clone()).unwrap_or_default(),
            });
        }
    }
    all
}

/// Returns `true` for a listener of gRPC clients: an Envoy takes it and shows it nowhere.
fn is_for_grpc(resource: &Value) -> bool {
    resource["resource"]["api_listener"].is_object()
}

fn verdict(held: &Held, is_same: impl Fn(&Version) -> bool) -> Verdict {
    match (&held.active, &held.warming) {
        (Some(active), _) if is_same(active) => Verdict::Same,
        (_, Some(warming)) if is_same(warming) => Verdict::Warming,
        (None, None) => Verdict::MissingThere,
        (_, _) => Verdict::OtherVersion,
    }
}

fn is_equal(
    kind: Kind,
    there: &Value,
    served: &Value,
    canonical: &dyn Fn(&str, &Value) -> Option<Value>,
) -> bool {
    if kind == Kind::Endpoints {
        return addresses(there) == addresses(served);
    }
    let [there, served] = [there, served].map(|resource| canonical(kind.type_url(), resource));
    there.is_some() && there == served
}

/// The addresses of an assignment, each with its priority.
fn addresses(assignment: &Value) -> BTreeSet<(u64, String)> {
    let mut all = BTreeSet::new();
    for locality in items(&assignment["endpoints"]) {
        let priority = locality["priority"].as_u64().unwrap_or_default();
        for endpoint in items(&locality["lb_endpoints"]) {
            let address = &endpoint["endpoint"]["address"];
            let socket = &address["socket_address"];
            let shown = match socket.is_null() {
                true => address.to_string(),
                false => format!("{}:{}", cell(&socket["address"]), cell(&socket["port_value"])),
            };
            all.insert((priority, shown));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, fields: Value) -> Value {
        let mut part = fields;
        part["@type"] = json!(format!("type.googleapis.com/envoy.admin.v3.{name}"));
        part
    }

    fn assignment(name: &str, port: u16) -> Value {
        let address = json!({"socket_address": {"address": "10.0.0.1", "port_value": port}});
        json!({"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]})
    }

    fn dump() -> Dump {
        let cluster = |name: &str, version: &str, timeout: &str| json!({"version_info": version, "cluster": {"name": name, "type": "EDS", "connect_timeout": timeout}});
        let listener = |version: &str| json!({"version_info": version, "listener": {"name": "edge", "rds": {"route_config_name": "r"}}});
        Dump::new(json!({"configs": [
            part("BootstrapConfigDump", json!({"bootstrap": {"node": {"id": "edge-1"}}})),
            part("ClustersConfigDump", json!({
                "static_clusters": [{"cluster": {"name": "xds"}}],
                "dynamic_active_clusters": [cluster("a", "1", "1s"), cluster("b", "0", "2s"), cluster("c", "0", "3s"), cluster("gone", "0", "1s")],
                "dynamic_warming_clusters": [cluster("c", "1", "1s"), cluster("d", "1", "1s")],
            })),
            part("ListenersConfigDump", json!({"dynamic_listeners": [
                {"name": "edge", "active_state": listener("0"), "error_state": {"details": "no filter"}}]})),
            part("ScopedRoutesConfigDump", json!({})),
            part("RoutesConfigDump", json!({"dynamic_route_configs": [
                {"version_info": "1", "route_config": {"name": "known"}}]})),
            part("EndpointsConfigDump", json!({"dynamic_endpoint_configs": [
                {"endpoint_config": assignment("a", 80)}, {"endpoint_config": assignment("b", 81)}, {"endpoint_config": assignment("dns", 80)}]})),
        ]}))
    }

    fn snapshot() -> Value {
        let one = |name: &str, resource: Value| json!({"name": name, "version": "1", "resource": resource});
        let cluster = |name: &str, timeout: &str| {
            one(name, json!({"name": name, "type": "EDS", "connect_timeout": timeout}))
        };
        let of = |resources: Value| json!({"version": "t", "resources": resources});
        let mut types = json!({});
        types[Kind::Cluster.type_url()] = of(json!([
            cluster("a", "9s"),
            cluster("b", "2s"),
            cluster("c", "1s"),
            cluster("d", "1s"),
            cluster("new", "1s")
        ]));
        types[Kind::Listener.type_url()] = of(json!([one("edge", json!({"name": "edge"}))]));
        types[Kind::Route.type_url()] =
            of(json!([one("known", json!({})), one("r", json!({})), one("unused", json!({}))]));
        types[Kind::Endpoints.type_url()] =
            of(json!([one("a", assignment("a", 80)), one("b", assignment("b", 80))]));
        json!({"types": types})
    }

    #[test]
    fn every_resource_has_its_verdict() {
        let dump = dump();
        assert_eq!(dump.node_id().as_deref(), Some("edge-1"));
        let found = compare(&dump, &snapshot(), &|_, resource| Some(resource.clone()));
        let found: Vec<(&str, &str, &str)> =
            found.iter().map(|one| (one.kind.slug(), one.name.as_str(), one.verdict.as_str())).collect();
        assert_eq!(
            found,
            [
                ("listeners", "edge", "other version"),
                ("routes", "known", "same"),
                ("routes", "r", "missing there"),
                ("routes", "unused", "unused there"),
                ("clusters", "a", "same"),
                ("clusters", "b", "same"),
                ("clusters", "c", "warming"),
                ("clusters", "d", "warming"),
                ("clusters", "gone", "not served"),
                ("clusters", "new", "missing there"),
                ("endpoints", "a", "same"),
                ("endpoints", "b", "other version"),
            ]
        );
    }

    #[test]
    fn a_rejection_is_told_in_the_words_of_the_envoy() {
        let found = compare(&dump(), &snapshot(), &|_, _| None);
        assert_eq!(found[0].why, "no filter");
        assert_eq!((found[0].there.as_deref(), found[0].served.as_deref()), (Some("0"), Some("1")));
        // What no type is known of is the same by its version only.
        let of = |name: &str| found.iter().find(|one| one.kind == Kind::Cluster && one.name == name).unwrap();
        assert_eq!((of("a").verdict, of("b").verdict), (Verdict::Same, Verdict::OtherVersion));
    }
}
