//! What an Envoy waits for without a limit before it uses a listener or a cluster: a resource with `initial_fetch_timeout: 0`.
//!
//! It waits for a listener or a cluster that it gets while it starts before it accepts connections on any listener.

use crate::resource_key::ResourceKey;
use crate::resource_type::ResourceType;
use crate::wire::{all_of, bytes_of, number_of};

/// The resources that a listener names with a configuration source that has no limit. `value` is an encoded
/// `envoy.config.listener.v3.Listener`; anything else names none.
pub(crate) fn of_listener(value: &[u8]) -> Vec<ResourceKey> {
    let filters = chains(value).flat_map(|chain| all_of(chain, FILTERS));
    let mut awaited: Vec<Named<'_>> = Vec::new();
    let http_filters = managers(value).flat_map(|manager| all_of(manager, HTTP_FILTERS));
    for filter in all_of(value, LISTENER_FILTERS).chain(filters).chain(http_filters) {
        let discovery = bytes_of(filter, CONFIG_DISCOVERY);
        // With a default that needs no warming, nothing is waited for.
        let discovery = discovery.filter(|one| number_of(one, DEFAULT_WITHOUT_WARMING) == 0);
        let source = discovery.and_then(|discovery| bytes_of(discovery, CONFIG_SOURCE));
        awaited.push((ResourceType::ExtensionConfig, bytes_of(filter, NAME), source));
    }
    for rds in managers(value).filter_map(|manager| bytes_of(manager, RDS)) {
        let (name, source) = (bytes_of(rds, ROUTE_CONFIG_NAME), bytes_of(rds, CONFIG_SOURCE));
        awaited.push((ResourceType::RouteConfiguration, name, source));
    }
    for scoped in managers(value).filter_map(|manager| bytes_of(manager, SCOPED_ROUTES)) {
        let source = bytes_of(scoped, SCOPED_SOURCE);
        let own = all_of(scoped, OWN_SCOPES).flat_map(|list| all_of(list, SCOPES));
        awaited.extend(
            own.map(|scope| (ResourceType::RouteConfiguration, bytes_of(scope, ROUTE_OF_SCOPE), source)),
        );
    }
    let sockets = chains(value).filter_map(|chain| bytes_of(chain, TRANSPORT_SOCKET));
    let tls = sockets.filter_map(|socket| any(bytes_of(socket, SOCKET_CONFIG)?, DOWNSTREAM_TLS));
    awaited.extend(tls.flat_map(|tls| secrets_of(tls).chain(all_of(tls, TICKET_KEYS_SECRET))).map(secret));
    without_limit(awaited)
}

/// Returns `true` if an Envoy waits so for the routes that the scopes of a listener lead to, which are resources of their own.
pub(crate) fn are_routes_of_scopes(value: &[u8]) -> bool {
    let scoped = managers(value).filter_map(|manager| bytes_of(manager, SCOPED_ROUTES));
    let mut scoped = scoped.filter(|scoped| bytes_of(scoped, SCOPED_RDS).is_some());
    scoped.any(|scoped| bytes_of(scoped, SCOPED_SOURCE).is_some_and(has_no_limit))
}

/// The filter chains of a listener.
fn chains(listener: &[u8]) -> impl Iterator<Item = &[u8]> {
    all_of(listener, FILTER_CHAINS).chain(all_of(listener, DEFAULT_FILTER_CHAIN))
}

/// The HTTP connection managers of a listener.
fn managers(listener: &[u8]) -> impl Iterator<Item = &[u8]> {
    let filters = chains(listener).flat_map(|chain| all_of(chain, FILTERS));
    filters.filter_map(|filter| any(bytes_of(filter, TYPED_CONFIG)?, MANAGER))
}

/// The resources that a cluster names so, except its endpoints. `value` is an encoded `envoy.config.cluster.v3.Cluster`.
pub(crate) fn of_cluster(value: &[u8]) -> Vec<ResourceKey> {
    let matches = all_of(value, SOCKET_MATCHES).filter_map(|one| bytes_of(one, SOCKET_OF_MATCH));
    let sockets = all_of(value, CLUSTER_SOCKET).chain(matches);
    let tls = sockets.filter_map(|socket| any(bytes_of(socket, SOCKET_CONFIG)?, UPSTREAM_TLS));
    without_limit(tls.flat_map(secrets_of).map(secret).collect())
}

/// Returns `true` if an Envoy waits for the endpoints of a cluster so. `value` is an encoded `envoy.config.cluster.v3.Cluster` whose
/// endpoints are a resource of their own.
pub(crate) fn are_endpoints(value: &[u8]) -> bool {
    let sources = all_of(value, EDS_CLUSTER_CONFIG).filter_map(|config| bytes_of(config, EDS_CONFIG));
    sources.last().is_some_and(has_no_limit)
}

/// A resource that is named: its type, its name, and the source that it comes from.
type Named<'a> = (ResourceType, Option<&'a [u8]>, Option<&'a [u8]>);

/// The keys of those whose source has no limit.
fn without_limit(named: Vec<Named<'_>>) -> Vec<ResourceKey> {
    let key = |(resource_type, name, source): Named<'_>| {
        let name = std::str::from_utf8(name?).ok()?;
        source.is_some_and(has_no_limit).then(|| ResourceKey { resource_type, name: name.into() })
    };
    named.into_iter().filter_map(key).collect()
}

/// The `SdsSecretConfig`s of a `DownstreamTlsContext` or an `UpstreamTlsContext`, but not those that only one of them has.
fn secrets_of(tls: &[u8]) -> impl Iterator<Item = &[u8]> {
    let common = || all_of(tls, COMMON_TLS);
    let combined = common().flat_map(|common| all_of(common, COMBINED_VALIDATION));
    common()
        .flat_map(|common| all_of(common, CERTIFICATE_SECRETS).chain(all_of(common, VALIDATION_SECRET)))
        .chain(combined.flat_map(|combined| all_of(combined, COMBINED_SECRET)))
}

fn secret(config: &[u8]) -> Named<'_> {
    (ResourceType::Secret, bytes_of(config, NAME), bytes_of(config, SDS_CONFIG))
}

/// The content of an `Any` with a message of this name.
fn any<'a>(any: &'a [u8], message: &str) -> Option<&'a [u8]> {
    let type_url = bytes_of(any, 1)?;
    type_url.ends_with(message.as_bytes()).then(|| bytes_of(any, 2).unwrap_or_default())
}

/// Returns `true` for a `ConfigSource` that is the stream itself, and whose `initial_fetch_timeout` is there, and zero. Any other source may
/// be another server.
fn has_no_limit(source: &[u8]) -> bool {
    let is_own = [ADS, SELF].iter().any(|field| bytes_of(source, *field).is_some());
    let limit = bytes_of(source, INITIAL_FETCH_TIMEOUT).filter(|_| is_own);
    limit.is_some_and(|limit| number_of(limit, 1) == 0 && number_of(limit, 2) == 0)
}

/// The messages in `Any`s that are looked into.
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

/// `Listener`.
const FILTER_CHAINS: u32 = 3;
const LISTENER_FILTERS: u32 = 9;
const DEFAULT_FILTER_CHAIN: u32 = 25;
/// `FilterChain`.
const FILTERS: u32 = 3;
const TRANSPORT_SOCKET: u32 = 6;
/// `TransportSocket.typed_config`.
const SOCKET_CONFIG: u32 = 3;
/// `name` of all kinds of filters, and of `SdsSecretConfig`.
const NAME: u32 = 1;
/// `config_discovery` of all kinds of filters.
const CONFIG_DISCOVERY: u32 = 5;
/// `Filter.typed_config`.
const TYPED_CONFIG: u32 = 4;
/// `config_source` of `ExtensionConfigSource` and `Rds`.
const CONFIG_SOURCE: u32 = 1;
/// `ExtensionConfigSource.apply_default_config_without_warming`.
const DEFAULT_WITHOUT_WARMING: u32 = 3;
/// `HttpConnectionManager`.
const RDS: u32 = 3;
const HTTP_FILTERS: u32 = 5;
const SCOPED_ROUTES: u32 = 31;
/// `ScopedRoutes.rds_config_source`, `scoped_route_configurations_list` and `scoped_rds`.
const SCOPED_SOURCE: u32 = 3;
const OWN_SCOPES: u32 = 4;
const SCOPED_RDS: u32 = 5;
/// `ScopedRouteConfigurationsList.scoped_route_configurations`.
const SCOPES: u32 = 1;
/// `ScopedRouteConfiguration.route_configuration_name`.
const ROUTE_OF_SCOPE: u32 = 2;
/// `Rds.route_config_name`.
const ROUTE_CONFIG_NAME: u32 = 2;
/// `Cluster`.
const EDS_CLUSTER_CONFIG: u32 = 3;
const CLUSTER_SOCKET: u32 = 24;
const SOCKET_MATCHES: u32 = 43;
/// `Cluster.EdsClusterConfig.eds_config`.
const EDS_CONFIG: u32 = 1;
/// `Cluster.TransportSocketMatch.transport_socket`.
const SOCKET_OF_MATCH: u32 = 3;
/// `common_tls_context` of both TLS contexts.
const COMMON_TLS: u32 = 1;
/// `DownstreamTlsContext`.
const TICKET_KEYS_SECRET: u32 = 5;
/// `CommonTlsContext`.
const CERTIFICATE_SECRETS: u32 = 6;
const VALIDATION_SECRET: u32 = 7;
const COMBINED_VALIDATION: u32 = 8;
/// `CombinedCertificateValidationContext.validation_context_sds_secret_config`.
const COMBINED_SECRET: u32 = 2;
/// `SdsSecretConfig.sds_config`.
const SDS_CONFIG: u32 = 2;
/// `ConfigSource`.
const ADS: u32 = 3;
const SELF: u32 = 5;
const INITIAL_FETCH_TIMEOUT: u32 = 4;
