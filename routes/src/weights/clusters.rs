//! The names of the clusters of a backend.

use super::keys::{Weighted, ids, keys, split_keys, weighted};
use crate::model::{Document, Kind};

/// The clusters of one backend, in every group and for every kind of client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNames {
    /// `namespace/name` of the Service or Backend.
    object: String,
    /// True if it is a Service, whose clusters have a port in their names.
    is_service: bool,
    /// The port, if the backend names one.
    port: Option<u16>,
}

/// The clusters of the backend with this key in the rule with this ID; `None` if there is no such backend.
#[must_use]
pub fn clusters(document: &Document, rule: &str, backend: &str) -> Option<ClusterNames> {
    match weighted(document)? {
        Weighted::Route(route) => {
            let index = ids(route).iter().position(|id| id == rule)?;
            let rule = route.rules.get(index)?;
            let index = keys(&document.key, route.kind, rule).iter().position(|key| key == backend)?;
            let object = &rule.backends.get(index)?.object;
            let is_service = Kind::Service.is_named(&object.group, &object.kind);
            let name = format!("{}/{}", object.namespace, object.name);
            Some(ClusterNames { object: name, is_service, port: object.port })
        }
        Weighted::Split(split) => {
            let index = split_keys(split).iter().position(|key| key == backend)?;
            let service = &split.backends.get(index)?.service;
            let object = format!("{}/{service}", document.key.namespace);
            Some(ClusterNames { object, is_service: true, port: None })
        }
    }
}

impl ClusterNames {
    /// Returns `true` if a cluster with this name is one of them.
    #[must_use]
    pub fn matches(&self, cluster: &str) -> bool {
        // For Envoys, HTTP/2 has a separate cluster.
        let name = cluster.strip_suffix("/h2").unwrap_or(cluster);
        let Some(rest) = name.strip_prefix(&self.object) else { return false };
        if !self.is_service {
            return rest.is_empty();
        }
        let Some(port) = rest.strip_prefix('/').and_then(|port| port.parse::<u16>().ok()) else {
            return false;
        };
        self.port.is_none_or(|wanted| wanted == port)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use xds_codec::Tree;

    use super::*;
    use crate::ReadOutcome;

    fn clusters_of(source: &serde_json::Value, backend: &str) -> Option<ClusterNames> {
        let ReadOutcome::Objects(objects) =
            crate::read(&"".into(), &Tree::from_json(source), crate::UnknownFields::Accepted)
        else {
            panic!("{source} is no document")
        };
        clusters(&objects.into_iter().next().unwrap().outcome.unwrap().0, "0", backend)
    }

    #[test]
    fn clusters_go_by_object_and_port_for_both_protocols() {
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
            "metadata": {"name": "greeter", "namespace": "prod"},
            "spec": {"rules": [{"backendRefs": [{"name": "v1", "port": 80},
                {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "b"}]}]},
        });
        let service = clusters_of(&route, "v1:80").unwrap();
        let backend = clusters_of(&route, "Backend/b").unwrap();
        for (cluster, of_service, of_backend) in [
            ("prod/v1/80", true, false),
            ("prod/v1/80/h2", true, false),
            ("prod/v1/81", false, false),
            ("prod/v1", false, false),
            ("prod/v11/80", false, false),
            ("dev/v1/80", false, false),
            ("prod/b", false, true),
            ("prod/b/h2", false, true),
            ("prod/b/80", false, false),
        ] {
            assert_eq!(
                (service.matches(cluster), backend.matches(cluster)),
                (of_service, of_backend),
                "{cluster}"
            );
        }
        assert_eq!(clusters_of(&route, "v2:80"), None);
        let split = json!({
            "apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": {"name": "s"},
            "spec": {"service": "web", "backends": [{"service": "web-v1", "weight": 90}, {"service": "web-v2", "weight": 10}]},
        });
        let split = clusters_of(&split, "web-v2").unwrap();
        assert!(split.matches("default/web-v2/80") && !split.matches("default/web-v1/80"), "{split:?}");
    }
}
