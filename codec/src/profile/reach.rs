//! The checked resources, and the listeners that each kind of client requests.

use std::collections::HashMap;

use xds_cache::{Resource, ResourceKey, ResourceType};

use crate::encode::canonical;
use crate::inner::Inner;
use crate::message::{Message, child};

/// The resources that are checked together, by key.
pub(super) struct Resources<'a> {
    in_order: Vec<&'a Resource>,
    by_key: HashMap<ResourceKey, &'a Resource>,
}

/// The kind of client that requests a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A gRPC client, by the name in its target.
    GrpcClient,
    /// A gRPC server, by a name from its template.
    GrpcServer,
    /// An Envoy.
    Envoy,
}

impl<'a> Resources<'a> {
    pub(super) fn new(resources: impl Iterator<Item = &'a Resource>) -> Self {
        let in_order: Vec<_> = resources.collect();
        let mut by_key = HashMap::new();
        for resource in &in_order {
            for alias in resource.aliases() {
                let resource_type = resource.resource_type().clone();
                by_key.entry(ResourceKey { resource_type, name: alias.clone() }).or_insert(*resource);
            }
        }
        by_key.extend(in_order.iter().map(|resource| (resource.key().clone(), *resource)));
        Self { in_order, by_key }
    }

    /// The resource with this name or alias.
    pub(super) fn find(&self, key: &ResourceKey) -> Option<&'a Resource> {
        self.by_key.get(key).copied()
    }

    /// The resources of a type.
    pub(super) fn of_type(&self, resource_type: &ResourceType) -> impl Iterator<Item = &'a Resource> {
        self.in_order.iter().copied().filter(move |resource| resource.resource_type() == resource_type)
    }

    /// The listeners that clients request, with the kind of client.
    pub(super) fn listeners(&self, inner: &Inner) -> Vec<(Asker, &'a Resource)> {
        let listeners = self.of_type(&ResourceType::Listener);
        listeners
            .filter_map(|listener| Some((asker(&decode(inner, listener)?, listener), listener)))
            .collect()
    }
}

/// The message of a resource, if its bytes can be decoded.
pub(super) fn decode(inner: &Inner, resource: &Resource) -> Option<Message> {
    let descriptor = inner.message_of_url(resource.resource_type().type_url())?;
    canonical(inner, &descriptor, &resource.value())
}

fn asker(message: &Message, listener: &Resource) -> Asker {
    if child(message, "api_listener").is_some() {
        return Asker::GrpcClient;
    }
    let is_of_template = SERVER_NAMES.iter().any(|part| listener.name().contains(part));
    if is_of_template { Asker::GrpcServer } else { Asker::Envoy }
}

/// The parameters in names from server templates (gRFCs A36 and A47).
const SERVER_NAMES: [&str; 2] = ["xds.resource.listening_address", "grpc/server?"];
