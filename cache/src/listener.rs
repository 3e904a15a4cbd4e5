//! What an Envoy waits for without a limit before it opens a listener: a resource with `initial_fetch_timeout: 0`.
//!
//! It waits for a listener that it gets while it starts before it accepts connections on any other one.

use crate::resource_key::ResourceKey;
use crate::resource_type::ResourceType;
use crate::wire::{all_of, bytes_of, number_of};

/// The resources that a listener names with a configuration source that has no limit. `value` is an encoded
/// `envoy.config.listener.v3.Listener`; anything else names none.
pub(crate) fn awaited_without_limit(value: &[u8]) -> Vec<ResourceKey> {
    let chains = || all_of(value, FILTER_CHAINS).chain(all_of(value, DEFAULT_FILTER_CHAIN));
    let filters = || chains().flat_map(|chain| all_of(chain, FILTERS));
    let managers = || filters().filter_map(|filter| any(bytes_of(filter, TYPED_CONFIG)?, MANAGER));
    let mut awaited = Vec::new();
    let http_filters = managers().flat_map(|manager| all_of(manager, HTTP_FILTERS));
    for filter in all_of(value, LISTENER_FILTERS).chain(filters()).chain(http_filters) {
        let discovery = bytes_of(filter, CONFIG_DISCOVERY);
        // With a default that needs no warming, nothing is waited for.
        let discovery = discovery.filter(|one| number_of(one, DEFAULT_WITHOUT_WARMING) == 0);
        let source = discovery.and_then(|discovery| bytes_of(discovery, CONFIG_SOURCE));
        awaited.push((ResourceType::ExtensionConfig, bytes_of(filter, NAME), source));
    }
    for rds in managers().filter_map(|manager| bytes_of(manager, RDS)) {
        let (name, source) = (bytes_of(rds, ROUTE_CONFIG_NAME), bytes_of(rds, CONFIG_SOURCE));
        awaited.push((ResourceType::RouteConfiguration, name, source));
    }
    let sockets = chains().filter_map(|chain| bytes_of(chain, TRANSPORT_SOCKET));
    for tls in sockets.filter_map(|socket| any(bytes_of(socket, SOCKET_CONFIG)?, DOWNSTREAM_TLS)) {
        let common = || all_of(tls, COMMON_TLS);
        let combined = common().flat_map(|common| all_of(common, COMBINED_VALIDATION));
        let secrets = common()
            .flat_map(|common| all_of(common, CERTIFICATE_SECRETS).chain(all_of(common, VALIDATION_SECRET)))
            .chain(combined.flat_map(|combined| all_of(combined, COMBINED_SECRET)))
            .chain(all_of(tls, TICKET_KEYS_SECRET));
        for secret in secrets {
            awaited.push((ResourceType::Secret, bytes_of(secret, NAME), bytes_of(secret, SDS_CONFIG)));
        }
    }
    let key = |(resource_type, name, source): (ResourceType, Option<&[u8]>, Option<&[u8]>)| {
        let name = std::str::from_utf8(name?).ok()?;
        source.is_some_and(has_no_limit).then(|| ResourceKey { resource_type, name: name.into() })
    };
    awaited.into_iter().filter_map(key).collect()
}

/// The content of an `Any` with a message of this name.
fn any<'a>(any: &'a [u8], message: &str) -> Option<&'a [u8]> {
    let type_url = bytes_of(any, 1)?;
    type_url.ends_with(message.as_bytes()).then(|| bytes_of(any, 2).unwrap_or_default())
}

/// Returns `true` for a `ConfigSource` that is the stream itself, and whose `initial_fetch_timeout` is there, and zero. Any other source may
/// be another server.
pub(crate) fn has_no_limit(source: &[u8]) -> bool {
    let is_own = [ADS, SELF].iter().any(|field| bytes_of(source, *field).is_some());
    let limit = bytes_of(source, INITIAL_FETCH_TIMEOUT).filter(|_| is_own);
    limit.is_some_and(|limit| number_of(limit, 1) == 0 && number_of(limit, 2) == 0)
}

/// The messages in `Any`s that are looked into.
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const DOWNSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";

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
/// `Rds.route_config_name`.
const ROUTE_CONFIG_NAME: u32 = 2;
/// `DownstreamTlsContext`.
const COMMON_TLS: u32 = 1;
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
