//! The resources in the configuration dump of an Envoy.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::output::{cell, items};

/// The configuration dump of an Envoy, with endpoints.
#[derive(Debug)]
pub(super) struct Dump(Value);

/// The types that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Listener,
    Route,
    Cluster,
    Endpoints,
}

/// A resource that came from a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) name: String,
    /// In use.
    pub(super) active: Option<Version>,
    /// Not in use yet.
    pub(super) warming: Option<Version>,
    /// Why the last one was rejected.
    pub(super) rejection: Option<String>,
}

/// A resource in one version.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Version {
    /// Empty if the dump does not say.
    pub(super) version: String,
    pub(super) resource: Value,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Listener, Self::Route, Self::Cluster, Self::Endpoints];

    pub(super) const fn type_url(self) -> &'static str {
        match self {
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    pub(super) const fn slug(self) -> &'static str {
        match self {
            Self::Listener => "listeners",
            Self::Route => "routes",
            Self::Cluster => "clusters",
            Self::Endpoints => "endpoints",
        }
    }
}

impl Dump {
    pub(super) fn new(dump: Value) -> Self {
        Self(dump)
    }

    /// The id in the bootstrap.
    pub(super) fn node_id(&self) -> Option<String> {
        let bootstrap = self.part("BootstrapConfigDump")?;
        bootstrap["bootstrap"]["node"]["id"].as_str().filter(|id| !id.is_empty()).map(ToOwned::to_owned)
    }

    /// The resources of a type that came from a server, not those of the bootstrap.
    pub(super) fn held(&self, kind: Kind) -> Vec<Held> {
        match kind {
            Kind::Listener => {
                self.entries("ListenersConfigDump", "dynamic_listeners").map(listener).collect()
            }
            Kind::Route => {
                let entries = self.entries("RoutesConfigDump", "dynamic_route_configs");
                entries.map(|entry| active(entry, "route_config", "name")).collect()
            }
            Kind::Cluster => self.clusters(),
            Kind::Endpoints => {
                // Of clusters with other discovery than EDS there are endpoints as well, which no server sent.
                let wanted = self.wanted(kind);
                let entries = self.entries("EndpointsConfigDump", "dynamic_endpoint_configs");
                let all = entries.map(|entry| active(entry, "endpoint_config", "cluster_name"));
                all.filter(|held| wanted.contains(&held.name)).collect()
            }
        }
    }

    /// The names of the routes and endpoints that resources from a server refer to: an Envoy asks for no others.
    pub(super) fn wanted(&self, kind: Kind) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        match kind {
            Kind::Listener | Kind::Cluster => {}
            Kind::Route => {
                for held in self.held(Kind::Listener) {
                    let versions = [held.active, held.warming];
                    versions.iter().flatten().for_each(|version| route_names(&version.resource, &mut names));
                }
            }
            Kind::Endpoints => {
                for held in self.held(Kind::Cluster) {
                    for version in [held.active, held.warming].into_iter().flatten() {
                        if version.resource["type"] == "EDS" {
                            let service = version.resource["eds_cluster_config"]["service_name"].as_str();
                            let service = service.filter(|name| !name.is_empty());
                            names.insert(service.unwrap_or(&held.name).to_owned());
                        }
                    }
                }
            }
        }
        names
    }

    fn clusters(&self) -> Vec<Held> {
        let mut all: Vec<Held> = self
            .entries("ClustersConfigDump", "dynamic_active_clusters")
            .map(|entry| active(entry, "cluster", "name"))
            .collect();
        for entry in self.entries("ClustersConfigDump", "dynamic_warming_clusters") {
            let Held { name, active: warming, rejection, .. } = active(entry, "cluster", "name");
            match all.iter_mut().find(|held| held.name == name) {
                Some(held) => held.warming = warming,
                None => all.push(Held { name, active: None, warming, rejection }),
            }
        }
        all
    }

    fn part(&self, name: &str) -> Option<&Value> {
        let is_it =
            |part: &&Value| part["@type"].as_str().is_some_and(|url| url.rsplit('.').next() == Some(name));
        items(&self.0["configs"]).find(is_it)
    }

    fn entries(&self, part: &str, list: &str) -> impl Iterator<Item = &Value> {
        self.part(part).into_iter().flat_map(move |part| items(&part[list]).collect::<Vec<_>>())
    }
}

fn listener(entry: &Value) -> Held {
    let version = |state: &str| {
        let state = &entry[state];
        (!state.is_null())
            .then(|| Version { version: cell(&state["version_info"]), resource: state["listener"].clone() })
    };
    Held {
        name: cell(&entry["name"]),
        active: version("active_state"),
        warming: version("warming_state"),
        rejection: rejection(entry),
    }
}

fn active(entry: &Value, resource: &str, name: &str) -> Held {
    let resource = &entry[resource];
    let version = cell(&entry["version_info"]);
    let name = cell(&resource[name]);
    let active = Some(Version { version, resource: resource.clone() });
    Held { name, active, warming: None, rejection: rejection(entry) }
}

fn rejection(entry: &Value) -> Option<String> {
    entry["error_state"]["details"].as_str().map(ToOwned::to_owned)
}

/// The names of route configurations that a listener refers to, however deep.
fn route_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("route_config_name").and_then(Value::as_str) {
                names.insert(name.to_owned());
            }
            fields.values().for_each(|value| route_names(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| route_names(value, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
