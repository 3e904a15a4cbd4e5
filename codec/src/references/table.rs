//! The table of fields that refer to resources.

use xds_cache::ResourceType;

/// A field that names resources of one type.
pub(crate) struct Row {
    /// The message, anywhere in a resource.
    pub(crate) message: &'static str,
    /// Its field, a string or a list of strings; [`ALL`] for every resource of the type.
    pub(crate) field: &'static str,
    /// The type of the target.
    pub(crate) to: ResourceType,
    /// When clients request the name from this server.
    pub(crate) served: Served,
}

/// When a client requests a name from a management server.
pub(crate) enum Served {
    /// Always: the client looks the name up among all its resources.
    Always,
    /// If this field has a config source that is a management server, not a file.
    By(&'static str),
}

/// In place of a field, if the client requests everything.
pub(crate) const ALL: &str = "scoped_rds_config_source.*";

const fn cluster(message: &'static str, field: &'static str) -> Row {
    Row { message, field, to: ResourceType::Cluster, served: Served::Always }
}

const fn extension(message: &'static str) -> Row {
    Row { message, field: "name", to: ResourceType::ExtensionConfig, served: Served::By("config_discovery") }
}

/// Sorted by message.
pub(crate) const ROWS: &[Row] = &[
    extension("envoy.config.cluster.v3.Filter"),
    cluster("envoy.config.core.v3.ApiConfigSource", "cluster_names"),
    cluster("envoy.config.core.v3.GrpcService.EnvoyGrpc", "cluster_name"),
    cluster("envoy.config.core.v3.HttpUri", "cluster"),
    Row {
        message: "envoy.config.endpoint.v3.LedsClusterLocalityConfig",
        field: "leds_collection_name",
        to: ResourceType::LbEndpoint,
        served: Served::By("leds_config"),
    },
    extension("envoy.config.listener.v3.Filter"),
    extension("envoy.config.listener.v3.ListenerFilter"),
    cluster("envoy.config.metrics.v3.StatsdSink", "tcp_cluster_name"),
    cluster("envoy.config.route.v3.RouteAction", "cluster"),
    cluster("envoy.config.route.v3.RouteAction.RequestMirrorPolicy", "cluster"),
    Row {
        message: "envoy.config.route.v3.ScopedRouteConfiguration",
        field: "route_configuration_name",
        to: ResourceType::RouteConfiguration,
        served: Served::Always,
    },
    cluster("envoy.config.route.v3.WeightedCluster.ClusterWeight", "name"),
    cluster("envoy.config.trace.v3.DatadogConfig", "collector_cluster"),
    cluster("envoy.config.trace.v3.LightstepConfig", "collector_cluster"),
    cluster("envoy.config.trace.v3.ZipkinConfig", "collector_cluster"),
    cluster("envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig", "cluster"),
    cluster("envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters"),
    cluster("envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster", "cluster"),
    cluster("envoy.extensions.filters.http.cache_v2.v3.CacheV2Config", "override_upstream_cluster"),
    extension("envoy.extensions.filters.http.composite.v3.DynamicConfig"),
    cluster("envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig", "cluster"),
    cluster("envoy.extensions.filters.http.mcp_router.v3.McpRouter.McpCluster", "cluster"),
    cluster("envoy.extensions.filters.network.dubbo_proxy.v3.RouteAction", "cluster"),
    cluster("envoy.extensions.filters.network.generic_proxy.action.v3.RouteAction", "cluster"),
    extension("envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"),
    Row {
        message: "envoy.extensions.filters.network.http_connection_manager.v3.Rds",
        field: "route_config_name",
        to: ResourceType::RouteConfiguration,
        served: Served::By("config_source"),
    },
    Row {
        message: "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds",
        field: ALL,
        to: ResourceType::ScopedRouteConfiguration,
        served: Served::By("scoped_rds_config_source"),
    },
    cluster("envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route", "cluster"),
    cluster(
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy",
        "cluster",
    ),
    cluster(
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy",
        "cluster",
    ),
    cluster("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "cluster"),
    cluster("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight", "name"),
    cluster("envoy.extensions.filters.network.thrift_proxy.v3.RouteAction", "cluster"),
    cluster("envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy", "cluster"),
    cluster("envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight", "name"),
    cluster("envoy.extensions.filters.udp.udp_proxy.v3.Route", "cluster"),
    cluster("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", "cluster"),
    extension("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.SessionFilter"),
    cluster("envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig", "default_cluster"),
    cluster("envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction", "cluster"),
    cluster("envoy.extensions.tracers.fluentd.v3.FluentdConfig", "cluster"),
    Row {
        message: "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig",
        field: "name",
        to: ResourceType::Secret,
        served: Served::By("sds_config"),
    },
];

/// Fields that look like the name of a requested cluster, but are not.
#[cfg(test)]
pub(crate) const NO_REFERENCES: &[&str] = &[
    "envoy.config.core.v3.Node.cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name",
    "envoy.config.endpoint.v3.ClusterStats.cluster_name",
    "envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig.cluster_name",
    "envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster",
    "envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel.required_cluster_name",
];
