//! How much a client may make grow, and how long it is waited for.

use std::time::Duration;

/// Limits of one client's streams. What passes one in number or size ends its stream, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Names of one type on one stream.
    pub max_names_per_type: usize,
    /// Names of all types on one stream together that the server does not know ([`ResourceType::Other`](xds_cache::ResourceType::Other)),
    /// if `max_names_per_type` is not less. Clients ask for few of these, so that many are a mistake or an attack.
    pub max_unknown_names: u32,
    /// Bytes of one name.
    pub max_name_bytes: usize,
    /// Types on one stream.
    pub max_types: usize,
    /// Bytes of resources in one response, where the protocol lets it be split; a single larger resource is sent alone.
    pub max_response_bytes: usize,
    /// How long what refers to something new waits for a client that says nothing of that.
    pub addition_grace: Duration,
    /// How long what is gone is kept for a client that does not say that it does without.
    pub removal_grace: Duration,
    /// How long a client has, after it accepted a cluster, to resolve its names or check its health.
    pub settle_time: Duration,
    /// Anything waits at all. Without, requests fail when configuration changes; for tests that show it.
    pub is_phased: bool,
}

impl Default for Limits {
    /// D9; 15 s is also how long Envoy waits for endpoints and routes before it goes on without. Responses are split below gRPC's default receive limit of 4 MiB (row A78).
    fn default() -> Self {
        Self {
            max_names_per_type: 250_000,
            max_unknown_names: 1000,
            max_name_bytes: 4096,
            max_types: 100,
            max_response_bytes: 3 * 1024 * 1024,
            addition_grace: Duration::from_secs(15),
            removal_grace: Duration::from_secs(60),
            settle_time: Duration::from_secs(5),
            is_phased: true,
        }
    }
}
