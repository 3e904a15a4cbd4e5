//! The kinds of resources that may be missing: what a listener looks like that needs one, and how it answers without.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, Issued, TlsFront, ask_tls};
use xds_tests::config;
use xds_tests::rpc::Ask;
use xds_tests::server::free_addr;

/// What is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The routes of a listener.
    Routes,
    /// An extension that is an HTTP filter.
    HttpFilter,
    /// An extension that is a network filter.
    NetworkFilter,
    /// An extension that is a listener filter.
    ListenerFilter,
    /// A secret of a listener: its certificate.
    ListenerSecret,
    /// The scope that leads from the listener to its routes.
    Scope,
    /// The routes that a scope leads to.
    RoutesOfScope,
    /// The cluster that the routes lead to.
    ClusterOfRoutes,
    /// A cluster that a request names, and that the Envoy asks for then.
    ClusterOnDemand,
    /// The first of two members of an aggregate cluster.
    Member,
    /// The endpoints of a cluster.
    Endpoints,
    /// The only one of the endpoints of a cluster that are a collection.
    EndpointOfCollection,
    /// A secret of a cluster: whom it trusts.
    ClusterSecret,
}

/// A listener that needs a resource which may be missing.
#[derive(Clone, Debug)]
pub(super) struct Needing {
    pub(super) kind: Kind,
    /// The listener's name.
    pub(super) listener: String,
    /// Where it listens. An Envoy that is to choose a port may give a listener the one of another that drains.
    addr: SocketAddr,
    /// The name of what may be missing.
    pub(super) name: String,
    /// The `initial_fetch_timeout` of everything that the listener needs.
    limit: &'static str,
}

/// What is outside the Envoy.
#[derive(Debug)]
pub(super) struct Outside {
    backend: Backend,
    other: Backend,
    /// The backend with TLS, with the certificate that listeners have too.
    front: TlsFront,
    authority: Authority,
    issued: Issued,
}

/// A listener, and what it needs.
struct Chain {
    listener: Value,
    routes: Value,
    cluster: Value,
    endpoints: Value,
}

impl Outside {
    pub(super) async fn start() -> Result<Self> {
        let (backend, other) = (Backend::start("b").await?, Backend::start("other").await?);
        let authority = Authority::new()?;
        let issued = authority.issue(&[HOST])?;
        let front = TlsFront::start(&issued, backend.addr()).await?;
        Ok(Self { backend, other, front, authority, issued })
    }
}

impl Needing {
    /// One of several listeners of a kind. Each has everything for itself.
    pub(super) fn new(kind: Kind, limit: &'static str, number: &str) -> Result<Self> {
        let listener = format!("{number}-{kind:?}");
        Ok(Self { kind, name: format!("for-{listener}"), listener, addr: free_addr()?, limit })
    }

    /// The same listener, which needs a resource of another name.
    pub(super) fn with_other(self) -> Self {
        Self { name: format!("other-{}", self.name), ..self }
    }

    /// The listener, and what it needs, except the resource that may be missing.
    pub(super) fn needs(&self, outside: &Outside) -> Vec<Value> {
        let Chain { listener, routes, cluster, endpoints } = self.chain(outside);
        match self.kind {
            Kind::Routes => vec![listener, cluster, endpoints],
            Kind::Scope
            | Kind::HttpFilter
            | Kind::NetworkFilter
            | Kind::ListenerFilter
            | Kind::ListenerSecret
            | Kind::EndpointOfCollection
            | Kind::ClusterSecret => vec![listener, routes, cluster, endpoints],
            Kind::RoutesOfScope => vec![listener, self.scope(&self.name), cluster, endpoints],
            Kind::ClusterOfRoutes | Kind::ClusterOnDemand => vec![listener, routes, endpoints],
            Kind::Member => {
                let (aggregate, other) = (self.own("aggregate"), self.own("other"));
                let members = json!({"@type": AGGREGATE, "clusters": [self.name, other]});
                let aggregate = json!({
                    "@type": config::CLUSTER, "name": aggregate, "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "1s",
                    "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": members},
                });
                let of_other = config::endpoints(&other, &[outside.other.addr()]);
                vec![listener, routes, endpoints, aggregate, config::cluster(&other), of_other]
            }
            Kind::Endpoints => vec![listener, routes, cluster],
        }
    }

    /// The same with routes that stand in the listener.
    pub(super) fn needs_with_own_routes(&self, outside: &Outside) -> Vec<Value> {
        let mut needs = self.needs(outside);
        let position = needs.iter().position(|one| one["@type"] == config::ROUTE);
        let mut routes = position.map(|position| needs.remove(position)).unwrap_or_default();
        routes.as_object_mut().and_then(|routes| routes.remove("@type"));
        let manager = &mut needs[0]["filter_chains"][0]["filters"][0]["typed_config"];
        manager.as_object_mut().and_then(|manager| manager.remove("rds"));
        manager["route_config"] = routes;
        needs
    }

    /// The resource that may be missing.
    pub(super) fn resource(&self, outside: &Outside) -> Value {
        let Chain { routes, cluster, endpoints, .. } = self.chain(outside);
        let extension =
            |config: Value| json!({"@type": EXTENSION, "name": self.name, "typed_config": config});
        let pem = |text: &str| json!({"inline_string": text});
        match self.kind {
            Kind::Routes | Kind::RoutesOfScope => routes,
            Kind::HttpFilter => extension(json!({"@type": LUA})),
            Kind::NetworkFilter => extension(json!({"@type": RBAC, "stat_prefix": "rbac"})),
            Kind::ListenerFilter => extension(json!({"@type": INSPECTOR})),
            Kind::ListenerSecret => json!({"@type": SECRET, "name": self.name, "tls_certificate": {
                "certificate_chain": pem(outside.issued.chain_pem()), "private_key": pem(&outside.issued.key_pem()),
            }}),
            Kind::Scope => self.scope(&self.own("routes")),
            Kind::ClusterOfRoutes | Kind::ClusterOnDemand | Kind::Member => cluster,
            Kind::Endpoints => endpoints,
            Kind::EndpointOfCollection => {
                let mut whole = config::endpoints("", &[outside.backend.addr()]);
                let mut endpoint = whole["endpoints"][0]["lb_endpoints"][0].take();
                endpoint["@type"] = json!(LB_ENDPOINT);
                json!({"@type": WRAPPER, "name": format!("{}one", self.collection()), "resource": endpoint})
            }
            Kind::ClusterSecret => json!({"@type": SECRET, "name": self.name, "validation_context": {
                "trusted_ca": pem(&outside.authority.pem()),
            }}),
        }
    }

    /// What a client is told by an Envoy that lacks the resource.
    pub(super) fn without(&self) -> &'static str {
        match self.kind {
            Kind::Routes | Kind::Scope | Kind::RoutesOfScope => "404",
            Kind::HttpFilter => "500",
            Kind::NetworkFilter | Kind::ListenerFilter | Kind::ListenerSecret => CLOSED,
            Kind::ClusterOfRoutes
            | Kind::ClusterOnDemand
            | Kind::Endpoints
            | Kind::EndpointOfCollection
            | Kind::ClusterSecret => "503",
            Kind::Member => "200 by other",
        }
    }

    /// Asks the listener for something, and says what it told: a status, and the backend that answered.
    pub(super) async fn ask(&self, outside: &Outside) -> Result<String> {
        let ask = Ask::get(HOST, "/").with(SCOPE_HEADER, &self.listener).with(CLUSTER_HEADER, &self.name);
        let told = match self.kind {
            Kind::ListenerSecret => {
                ask_tls(&outside.authority, self.addr, HOST, &ask).await.map(|(told, _)| told)
            }
            Kind::Routes
            | Kind::HttpFilter
            | Kind::NetworkFilter
            | Kind::ListenerFilter
            | Kind::Scope
            | Kind::RoutesOfScope
            | Kind::ClusterOfRoutes
            | Kind::ClusterOnDemand
            | Kind::Member
            | Kind::Endpoints
            | Kind::EndpointOfCollection
            | Kind::ClusterSecret => {
                ask.send_over(TcpStream::connect(self.addr).await.context("connect")?).await
            }
        };
        match told {
            Ok(told) if told.backend.is_empty() => Ok(told.code.to_string()),
            Ok(told) => Ok(format!("{} by {}", told.code, told.backend)),
            Err(error) => {
                ensure!(!format!("{error:#}").contains("in time"), "{error:#}");
                Ok(CLOSED.to_owned())
            }
        }
    }

    fn chain(&self, outside: &Outside) -> Chain {
        let (to, at) = match self.kind {
            Kind::Member => (self.own("aggregate"), &self.name),
            Kind::Endpoints | Kind::ClusterOfRoutes | Kind::ClusterOnDemand => {
                (self.name.clone(), &self.name)
            }
            Kind::Routes
            | Kind::HttpFilter
            | Kind::NetworkFilter
            | Kind::ListenerFilter
            | Kind::ListenerSecret
            | Kind::Scope
            | Kind::RoutesOfScope
            | Kind::EndpointOfCollection
            | Kind::ClusterSecret => (self.own("cluster"), &self.own("cluster")),
        };
        let is_of_routes = matches!(self.kind, Kind::Routes | Kind::RoutesOfScope);
        let routes = if is_of_routes { self.name.clone() } else { self.own("routes") };
        let is_tls = self.kind == Kind::ClusterSecret;
        let backend = if is_tls { outside.front.addr } else { outside.backend.addr() };
        let mut cluster = config::cluster(at);
        cluster["eds_cluster_config"]["eds_config"] = self.source();
        if is_tls {
            let secret = json!({"name": self.name, "sds_config": self.source()});
            let tls = json!({"validation_context_sds_secret_config": secret});
            let tls = json!({"@type": UPSTREAM_TLS, "sni": HOST, "common_tls_context": tls});
            cluster["transport_socket"] = json!({"name": "tls", "typed_config": tls});
        }
        let mut endpoints = config::endpoints(at, &[backend]);
        if self.kind == Kind::EndpointOfCollection {
            let locality = &mut endpoints["endpoints"][0];
            locality.as_object_mut().and_then(|locality| locality.remove("lb_endpoints"));
            let (source, name) = (self.source(), format!("{}*", self.collection()));
            locality["leds_cluster_locality_config"] =
                json!({"leds_config": source, "leds_collection_name": name});
        }
        let action = match self.kind == Kind::ClusterOnDemand {
            true => json!({"cluster_header": CLUSTER_HEADER}),
            false => config::to(&to),
        };
        let routes_to = config::route_config(&routes, &[("/", action)]);
        Chain { listener: self.listener(&routes), routes: routes_to, cluster, endpoints }
    }

    fn listener(&self, routes: &str) -> Value {
        let mut listener = config::listener(&self.listener, self.addr.port(), routes);
        let chain = &mut listener["filter_chains"][0];
        let manager = &mut chain["filters"][0]["typed_config"];
        manager["rds"]["config_source"] = self.source();
        let discovered = |url: &str| {
            let discovery = json!({"config_source": self.source(), "type_urls": [url]});
            json!({"name": self.name, "config_discovery": discovery})
        };
        match self.kind {
            Kind::HttpFilter => insert_first(&mut manager["http_filters"], discovered(LUA)),
            Kind::ClusterOnDemand => {
                // Only the first request to a missing cluster is answered before.
                let odcds = json!({"source": self.source(), "timeout": "1s"});
                let filter = json!({"@type": ON_DEMAND, "odcds": odcds});
                insert_first(
                    &mut manager["http_filters"],
                    json!({"name": "on_demand", "typed_config": filter}),
                );
            }
            Kind::NetworkFilter => insert_first(&mut chain["filters"], discovered(RBAC)),
            Kind::ListenerFilter => listener["listener_filters"] = json!([discovered(INSPECTOR)]),
            Kind::ListenerSecret => {
                let secret = json!({"name": self.name, "sds_config": self.source()});
                let tls = json!({"tls_certificate_sds_secret_configs": [secret]});
                let tls = json!({"@type": DOWNSTREAM_TLS, "common_tls_context": tls});
                chain["transport_socket"] = json!({"name": "tls", "typed_config": tls});
            }
            Kind::Scope | Kind::RoutesOfScope => {
                manager.as_object_mut().and_then(|manager| manager.remove("rds"));
                let key = json!({"header_value_extractor": {"name": SCOPE_HEADER, "index": 0}});
                manager["scoped_routes"] = json!({
                    "name": self.listener,
                    "scope_key_builder": {"fragments": [key]},
                    "rds_config_source": self.source(),
                    "scoped_rds": {"scoped_rds_config_source": self.source()},
                });
            }
            Kind::Routes
            | Kind::ClusterOfRoutes
            | Kind::Member
            | Kind::Endpoints
            | Kind::EndpointOfCollection
            | Kind::ClusterSecret => {}
        }
        listener
    }

    /// The scope of requests to this listener.
    fn scope(&self, routes: &str) -> Value {
        json!({
            "@type": SCOPE,
            "name": self.name,
            "route_configuration_name": routes,
            "key": {"fragments": [{"string_key": self.listener}]},
        })
    }

    /// What the names of the endpoints of the cluster begin with.
    fn collection(&self) -> String {
        format!("xdstp://a/envoy.config.endpoint.v3.LbEndpoint/{}/", self.listener)
    }

    fn own(&self, what: &str) -> String {
        format!("{}-{what}", self.listener)
    }

    fn source(&self) -> Value {
        source(self.limit)
    }
}

/// The stream, with a limit for the first answer.
pub(super) fn source(limit: &str) -> Value {
    json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": limit})
}

fn insert_first(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.insert(0, item);
    }
}

/// What a client is told that has everything.
pub(super) const SERVED: &str = "200 by b";
/// What a client is told by a connection that ends at once.
const CLOSED: &str = "closed";

const HOST: &str = "localhost";
/// The header by which requests belong to a scope.
const SCOPE_HEADER: &str = "x-scope";
/// The header by which requests name a cluster.
const CLUSTER_HEADER: &str = "x-cluster";

const AGGREGATE: &str = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
const DOWNSTREAM_TLS: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
const INSPECTOR: &str = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
const LB_ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
const ON_DEMAND: &str = "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand";
const RBAC: &str = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC";
const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const UPSTREAM_TLS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
