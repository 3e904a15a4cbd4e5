//! The paths of the xDS services.

/// ADS, State of the World.
pub const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// ADS, incremental.
pub const ADS_DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// The services that have all three methods: type URL, `Stream`, `Delta` and `Fetch`.
pub const PER_TYPE: [(&str, &str, &str, &str); 8] = [
    (
        "type.googleapis.com/envoy.config.listener.v3.Listener",
        "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
        "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
        "/envoy.service.listener.v3.ListenerDiscoveryService/FetchListeners",
    ),
    (
        "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes",
        "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes",
        "/envoy.service.route.v3.RouteDiscoveryService/FetchRoutes",
    ),
    (
        "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/StreamScopedRoutes",
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/DeltaScopedRoutes",
        "/envoy.service.route.v3.ScopedRoutesDiscoveryService/FetchScopedRoutes",
    ),
    (
        "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters",
    ),
    (
        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints",
    ),
    (
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
        "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
        "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets",
    ),
    (
        "type.googleapis.com/envoy.service.runtime.v3.Runtime",
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime",
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/DeltaRuntime",
        "/envoy.service.runtime.v3.RuntimeDiscoveryService/FetchRuntime",
    ),
    (
        "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/StreamExtensionConfigs",
        "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/DeltaExtensionConfigs",
        "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/FetchExtensionConfigs",
    ),
];

/// VHDS, which is incremental only.
pub const VIRTUAL_HOSTS_DELTA: &str = "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts";
/// LEDS, which is incremental only.
pub const LOCALITY_ENDPOINTS_DELTA: &str =
    "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints";
