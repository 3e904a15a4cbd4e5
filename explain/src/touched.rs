//! The requests that a change of resources may concern, found by comparing resources, without asking a client.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use prost::Message as _;
use xds_cache::wire::{Field, Fields, Value};
use xds_cache::{Profile, Resource, ResourceKey, ResourceType, View};

use crate::host::without_port;
use crate::request::Request;

/// The requests that a change may concern: more rather than fewer. Endpoints and settings of clusters do not count, but whether a cluster
/// is there does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    is_everything: bool,
    /// In lower case.
    domains: BTreeSet<String>,
}

impl Touched {
    /// Compares what the same clients are served before and after. Costs as much as differs, and the bytes of the route
    /// configurations that do.
    #[must_use]
    pub fn between(before: &View, after: &View) -> Self {
        let mut touched = Self::default();
        let types: BTreeSet<&ResourceType> = before.types().chain(after.types()).collect();
        for of_type in types {
            let (old, new) = (before.table(of_type), after.table(of_type));
            let changes = new.changes_since(old);
            for resource in &changes.changed {
                let known = old.find(resource.name()).map(|known| &**known);
                touched.resource([before, after], known, Some(resource));
            }
            for resource in changes.removed.iter().filter_map(|name| old.find(name)) {
                touched.resource([before, after], Some(resource), None);
            }
        }
        touched
    }

    /// Returns `true` if no request is concerned.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        !self.is_everything && self.domains.is_empty()
    }

    /// Returns `true` if the request may be treated in another way.
    #[must_use]
    pub fn takes(&self, request: &Request) -> bool {
        if self.is_everything || request.route_config.is_some() {
            return !self.is_nothing();
        }
        let host = request.authority.strip_prefix("xds:///").unwrap_or(&request.authority);
        let host = host.to_ascii_lowercase();
        let hosts = [&*host, without_port(&host)];
        let takes = |domain: &String, host: &str| {
            let (suffix, prefix) = (domain.strip_prefix('*'), domain.strip_suffix('*'));
            *domain == host
                || suffix.is_some_and(|suffix| host.ends_with(suffix))
                || prefix.is_some_and(|prefix| host.starts_with(prefix))
        };
        self.domains.iter().any(|domain| hosts.iter().any(|host| takes(domain, host)))
    }

    fn resource(&mut self, views: [&View; 2], old: Option<&Resource>, new: Option<&Resource>) {
        let Some(any) = new.or(old) else { return };
        let is_grpc = views[1].key().profile == Profile::Grpc;
        match (any.resource_type(), old, new) {
            (
                ResourceType::ClusterLoadAssignment
                | ResourceType::LbEndpoint
                | ResourceType::Secret
                | ResourceType::Runtime,
                ..,
            )
            | (ResourceType::Cluster, Some(_), Some(_)) => {}
            (ResourceType::Cluster, None, _) => self.is_everything |= is_awaited(views[0], any.key()),
            (ResourceType::Cluster, ..) => self.is_everything = true,
            (ResourceType::Listener, ..) if is_grpc => self.add(any.name()),
            (ResourceType::RouteConfiguration, ..) if is_grpc => {
                let targets = views
                    .into_iter()
                    .flat_map(|view| view.table(&ResourceType::Listener).referrers(any.key()));
                let names: Vec<_> = targets.map(|listener| listener.name().to_string()).collect();
                names.iter().for_each(|name| self.add(name));
            }
            (ResourceType::RouteConfiguration, Some(old), Some(new)) => self.table(old, new),
            (ResourceType::VirtualHost, ..) => {
                let both = [old, new].into_iter().flatten();
                both.for_each(|resource| self.host(&resource.value()));
            }
            (
                ResourceType::RouteConfiguration
                | ResourceType::Listener
                | ResourceType::ScopedRouteConfiguration
                | ResourceType::ExtensionConfig
                | ResourceType::Other(_),
                ..,
            ) => self.is_everything = true,
        }
    }

    fn add(&mut self, domain: &str) {
        self.domains.insert(domain.to_ascii_lowercase());
    }

    /// Adds the domains of the virtual hosts between the first and the last that differ.
    fn table(&mut self, old: &Resource, new: &Resource) {
        let (old, new) = (old.value(), new.value());
        let (Some(old), Some(new)) = (Parts::of(&old), Parts::of(&new)) else {
            self.is_everything = true;
            return;
        };
        let is_by_authority =
            RouteConfiguration::decode(&*new.rest).is_ok_and(|message| message.vhost_header.is_empty());
        if old.rest != new.rest || !is_by_authority {
            self.is_everything = true;
            return;
        }
        let n_head = old.hosts.iter().zip(&new.hosts).take_while(|(old, new)| old == new).count();
        let (old, new) =
            (old.hosts.get(n_head..).unwrap_or_default(), new.hosts.get(n_head..).unwrap_or_default());
        let n_tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        for hosts in [old, new] {
            hosts.iter().take(hosts.len() - n_tail).for_each(|host| self.host(host));
        }
    }

    fn host(&mut self, message: &[u8]) {
        match VirtualHost::decode(message) {
            Ok(host) => host.domains.iter().for_each(|domain| self.add(domain)),
            Err(_) => self.is_everything = true,
        }
    }
}

/// Returns `true` if something refers to a cluster that is not there yet.
fn is_awaited(view: &View, cluster: &ResourceKey) -> bool {
    view.types().any(|of_type| view.table(of_type).referrers(cluster).next().is_some())
}

/// A RouteConfiguration as it is on the wire: its virtual hosts, and everything else.
struct Parts<'b> {
    hosts: Vec<&'b [u8]>,
    rest: Vec<u8>,
}

impl<'b> Parts<'b> {
    /// `None` if it cannot be read.
    fn of(message: &'b [u8]) -> Option<Self> {
        let mut parts = Self { hosts: Vec::new(), rest: Vec::new() };
        for field in Fields::of(message) {
            match field.ok()? {
                Field { number: VIRTUAL_HOSTS, value: Value::Bytes(host), .. } => parts.hosts.push(host),
                other => parts.rest.extend_from_slice(other.raw),
            }
        }
        Some(parts)
    }
}

const VIRTUAL_HOSTS: u32 = 2;
