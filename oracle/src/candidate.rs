//! Resources as an Envoy is asked about them.
//!
//! Listeners, clusters and secrets are static ones of the bootstrap. Others are parts of made-up ones: a route configuration of a listener,
//! an assignment of a cluster, a secret of a context. Names of clusters that they use are there, without endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::bootstrap::v3::bootstrap::{DynamicResources, StaticResources};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::api_config_source::ApiType;
use envoy_types::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType as SocketConfig;
use envoy_types::pb::envoy::config::core::v3::{
    Address, ApiConfigSource, ApiVersion, GrpcService, Node, SocketAddress, TransportSocket, address,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType as FilterConfig;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfig;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::secret::Type as SecretType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, SdsSecretConfig, Secret, UpstreamTlsContext,
};
use envoy_types::pb::google::protobuf::{Any, BoolValue};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{Message, Name};
use xds_cache::{Resource, ResourceType};

/// A resource that can be asked about.
#[derive(Debug)]
pub struct Candidate {
    resource: Arc<Resource>,
    form: Form,
}

/// What it is in the bootstrap.
#[derive(Debug)]
enum Form {
    /// As it is.
    Listener,
    /// As it is.
    Cluster,
    /// As it is, with a cluster that uses it.
    Secret(Box<Cluster>),
    /// A part of a made-up cluster.
    Assignment(Box<Cluster>),
    /// A part of a made-up listener.
    Routes(Box<RouteConfiguration>),
}

impl Candidate {
    /// `None` for a resource that cannot be asked about: a listener of gRPC clients, scoped routes, extensions by discovery.
    #[must_use]
    pub fn of(resource: &Arc<Resource>) -> Option<Self> {
        let value = resource.value();
        let form = match resource.resource_type() {
            ResourceType::Listener => {
                let listener = Listener::decode(&**value).ok()?;
                listener.api_listener.is_none().then_some(Form::Listener)?
            }
            ResourceType::Cluster => Form::Cluster,
            ResourceType::Secret => {
                let secret = Secret::decode(&**value).ok()?;
                Form::Secret(Box::new(user_of(&secret)?))
            }
            ResourceType::ClusterLoadAssignment => {
                let assignment = ClusterLoadAssignment::decode(&**value).ok()?;
                Form::Assignment(Box::new(Cluster {
                    name: format!("{MADE_UP}/{}", assignment.cluster_name),
                    load_assignment: Some(assignment),
                    ..Cluster::default()
                }))
            }
            ResourceType::RouteConfiguration => {
                let mut routes = RouteConfiguration::decode(&**value).ok()?;
                routes.vhds = None;
                Form::Routes(Box::new(routes))
            }
            ResourceType::VirtualHost => {
                let host = VirtualHost::decode(&**value).ok()?;
                Form::Routes(Box::new(RouteConfiguration {
                    name: resource.name().to_string(),
                    virtual_hosts: vec![host],
                    ..RouteConfiguration::default()
                }))
            }
            ResourceType::Runtime
            | ResourceType::LbEndpoint
            | ResourceType::ExtensionConfig
            | ResourceType::ScopedRouteConfiguration
            | ResourceType::Other(_) => return None,
        };
        Some(Self { resource: Arc::clone(resource), form })
    }

    pub(super) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    pub(super) fn is_listener(&self) -> bool {
        matches!(self.form, Form::Listener)
    }

    /// True if it needs no clusters beside it.
    pub(super) fn stands_alone(&self) -> bool {
        matches!(self.form, Form::Cluster | Form::Secret(_) | Form::Assignment(_))
    }
}

/// A cluster that uses a secret; `None` for a kind that clusters do not use.
fn user_of(secret: &Secret) -> Option<Cluster> {
    // Without a source, it is one of the bootstrap.
    let named = SdsSecretConfig { name: secret.name.clone(), sds_config: None };
    let common_tls_context = match secret.r#type.as_ref()? {
        SecretType::TlsCertificate(_) => CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![named],
            ..CommonTlsContext::default()
        },
        SecretType::ValidationContext(_) => CommonTlsContext {
            validation_context_type: Some(ValidationContextType::ValidationContextSdsSecretConfig(named)),
            ..CommonTlsContext::default()
        },
        SecretType::SessionTicketKeys(_) | SecretType::GenericSecret(_) => return None,
    };
    let context =
        UpstreamTlsContext { common_tls_context: Some(common_tls_context), ..UpstreamTlsContext::default() };
    Some(Cluster {
        name: format!("{MADE_UP}/{}", secret.name),
        transport_socket: Some(TransportSocket {
            name: "envoy.transport_sockets.tls".to_owned(),
            config_type: Some(SocketConfig::TypedConfig(any(&context))),
        }),
        ..Cluster::default()
    })
}

/// The bootstrap that asks about some resources, as bytes.
pub(super) fn bootstrap(all: &[&Candidate]) -> Vec<u8> {
    let mut made = StaticResources::default();
    // Messages as they are, fields that this program does not know included.
    let mut raw = Vec::new();
    let own: BTreeSet<&str> = all
        .iter()
        .filter(|one| matches!(one.form, Form::Cluster))
        .map(|one| &**one.resource.name())
        .collect();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (index, one) in all.iter().enumerate() {
        let value = one.resource.value();
        match &one.form {
            Form::Listener => append(&mut raw, LISTENERS, &value),
            Form::Cluster => append(&mut raw, CLUSTERS, &value),
            Form::Secret(user) => {
                append(&mut raw, SECRETS, &value);
                made.clusters.push(Cluster::clone(user));
            }
            Form::Assignment(cluster) => made.clusters.push(Cluster::clone(cluster)),
            Form::Routes(routes) => {
                made.listeners.push(listener_of(index, RouteConfiguration::clone(routes)));
            }
        }
        used.extend(one.resource.references().of_type(&ResourceType::Cluster).map(|name| &**name));
    }
    let stand_ins = used.difference(&own).copied().chain([SOURCE]);
    made.clusters.extend(stand_ins.map(|name| Cluster { name: name.to_owned(), ..Cluster::default() }));
    let grpc = EnvoyGrpc { cluster_name: SOURCE.to_owned(), ..EnvoyGrpc::default() };
    let service =
        GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(grpc)), ..GrpcService::default() };
    let bootstrap = Bootstrap {
        node: Some(Node { id: MADE_UP.to_owned(), cluster: MADE_UP.to_owned(), ..Node::default() }),
        static_resources: Some(made),
        dynamic_resources: Some(DynamicResources {
            ads_config: Some(ApiConfigSource {
                api_type: ApiType::Grpc.into(),
                transport_api_version: ApiVersion::V3.into(),
                grpc_services: vec![service],
                ..ApiConfigSource::default()
            }),
            ..DynamicResources::default()
        }),
        ..Bootstrap::default()
    };
    let mut bytes = bootstrap.encode_to_vec();
    // A message that is there twice is merged.
    append(&mut bytes, STATIC_RESOURCES, &raw);
    bytes
}

/// A listener with these routes. An Envoy that gets them by RDS does not ask if their clusters are there.
fn listener_of(index: usize, mut routes: RouteConfiguration) -> Listener {
    routes.validate_clusters.get_or_insert(BoolValue { value: false });
    let router = HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(HttpConfig::TypedConfig(any(&Router::default()))),
        ..HttpFilter::default()
    };
    let manager = HttpConnectionManager {
        stat_prefix: MADE_UP.to_owned(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        http_filters: vec![router],
        ..HttpConnectionManager::default()
    };
    let filter = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(FilterConfig::TypedConfig(any(&manager))),
    };
    // Any number of listeners may have port 0.
    let address = SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    };
    Listener {
        name: format!("{MADE_UP}/{index}"),
        address: Some(Address { address: Some(address::Address::SocketAddress(address)) }),
        filter_chains: vec![FilterChain { filters: vec![filter], ..FilterChain::default() }],
        ..Listener::default()
    }
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// Appends a message as a field.
fn append(bytes: &mut Vec<u8>, field: u32, message: &[u8]) {
    encode_key(field, WireType::LengthDelimited, bytes);
    encode_varint(u64::try_from(message.len()).unwrap_or(u64::MAX), bytes);
    bytes.extend_from_slice(message);
}

/// The name of everything that is made up.
const MADE_UP: &str = "xds-server-oracle";

/// The cluster that ADS would use.
const SOURCE: &str = "xds-server-oracle/ads";

/// Fields of `StaticResources`.
const LISTENERS: u32 = 1;
const CLUSTERS: u32 = 2;
const SECRETS: u32 = 3;

/// A field of `Bootstrap`.
const STATIC_RESOURCES: u32 = 2;
