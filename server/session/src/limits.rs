//! How much a client may make grow.

/// Limits of one client's streams. What passes one ends its stream, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Names of one type on one stream.
    pub max_names_per_type: usize,
    /// Bytes of one name.
    pub max_name_bytes: usize,
    /// Types on one stream.
    pub max_types: usize,
    /// Bytes of resources in one response, where the protocol lets it be split; a single larger resource is sent alone.
    pub max_response_bytes: usize,
}

impl Default for Limits {
    /// D9; responses are split below gRPC's default receive limit of 4 MiB (row A78).
    fn default() -> Self {
        Self {
            max_names_per_type: 250_000,
            max_name_bytes: 4096,
            max_types: 100,
            max_response_bytes: 3 * 1024 * 1024,
        }
    }
}
