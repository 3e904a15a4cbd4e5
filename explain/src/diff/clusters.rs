//! Clusters of the same name with other contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use prost::Message as _;
use xds_cache::{Resource, ResourceType};

use crate::diff::report::{ClassKind, Findings, Found};
use crate::model::Model;
use crate::ratio::Ratio;
use crate::space::destination::differing;

/// A class for each cluster that is on both sides and differs, or whose endpoints do.
pub(super) fn compare(models: [&Model; 2], findings: &mut Findings) {
    let mut by_name: BTreeMap<String, [Option<Arc<Resource>>; 2]> = BTreeMap::new();
    for (side, model) in models.into_iter().enumerate() {
        for resource in model.all(&ResourceType::Cluster) {
            if let Some(of_side) = by_name.entry(resource.name().to_string()).or_default().get_mut(side) {
                *of_side = Some(Arc::clone(resource));
            }
        }
    }
    for (name, both) in by_name {
        let what = match &both {
            [Some(old), Some(new)] => changes(models, &name, [old, new]),
            [Some(_), None] => vec!["is not served any more".to_owned()],
            [None, Some(_)] => vec!["is new".to_owned()],
            [None, None] => Vec::new(),
        };
        if !what.is_empty() {
            findings.found.push(Found {
                kind: ClassKind::Cluster,
                what,
                about: format!("cluster {name}"),
                cluster: Some(name),
                example: None,
                shares: None,
                share: Ratio::ONE,
                when: Vec::new(),
                parts: 1,
                is_linked: false,
            });
        }
    }
}

fn changes(models: [&Model; 2], name: &str, both: [&Arc<Resource>; 2]) -> Vec<String> {
    let read = |resource: &Resource| Cluster::decode(&**resource.value()).ok();
    let mut what = Vec::new();
    let mut services = [name.to_owned(), name.to_owned()];
    for (service, resource) in services.iter_mut().zip(both) {
        if let Some(own) = resource.references().of_type(&ResourceType::ClusterLoadAssignment).next() {
            *service = own.to_string();
        }
    }
    if !both[0].says_the_same(both[1])
        && let (Some(old), Some(new)) = (read(both[0]), read(both[1]))
    {
        let bare = |mut cluster: Cluster| {
            let options = std::mem::take(&mut cluster.typed_extension_protocol_options);
            cluster.metadata = None;
            (cluster, options)
        };
        let ((old, old_options), (new, new_options)) = (bare(old), bare(new));
        if old != new {
            what.extend(differing(&old, &new));
        }
        if old_options != new_options {
            what.push("typed_extension_protocol_options".to_owned());
        }
    }
    let of_type = ResourceType::ClusterLoadAssignment;
    let assignments = [0, 1].map(|side: usize| models[side].resource(&of_type, &services[side]));
    let is_same = match &assignments {
        [Some(old), Some(new)] => old.says_the_same(new),
        [None, None] => true,
        [Some(_), None] | [None, Some(_)] => false,
    };
    if !is_same {
        what.push("endpoints".to_owned());
    }
    what
}
