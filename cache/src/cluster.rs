//! Facts about a cluster's content that the server needs: whether a client needs time to make it ready, and how long it drains.

use crate::drain::DrainPolicy;
use crate::time::duration;
use crate::wire::{Value, all_of, bytes_of, fields};

/// The name in `Cluster.metadata.filter_metadata` under which a cluster has settings for this server.
pub const METADATA: &str = "xds-server.io";

/// Under that name, and as the annotation `xds-server.io/drain-endpoints`: how long removed endpoints of the cluster drain,
/// such as `30s`.
pub const DRAIN_ENDPOINTS: &str = "drain-endpoints";

/// Under that name, and as the annotation `xds-server.io/drain-cluster`: how long the cluster stays after its removal, such as
/// `1m`.
pub const DRAIN_CLUSTER: &str = "drain-cluster";

/// How long a cluster and its endpoints drain, by its own settings. `value` is an encoded `envoy.config.cluster.v3.Cluster`; a
/// value that is not a duration is ignored.
pub(crate) fn drain_policy(value: &[u8]) -> DrainPolicy {
    let own = bytes_of(value, CLUSTER_METADATA).and_then(|metadata| entry(metadata, METADATA));
    let time = |key| {
        let text = entry(own?, key).and_then(|value| bytes_of(value, STRING_VALUE))?;
        duration(std::str::from_utf8(text).ok()?).ok()
    };
    DrainPolicy { endpoints: time(DRAIN_ENDPOINTS), clusters: time(DRAIN_CLUSTER) }
}

/// The value under a key in a message whose first field is a map.
fn entry<'a>(message: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut of_key = all_of(message, MAP).filter(|entry| bytes_of(entry, MAP_KEY) == Some(key.as_bytes()));
    of_key.next().and_then(|entry| bytes_of(entry, MAP_VALUE))
}

/// Returns `true` if an Envoy needs time to make the cluster ready, without asking the server for more: it resolves names, or
/// checks the health of endpoints. `value` is an encoded `envoy.config.cluster.v3.Cluster`; the result is `false` for anything
/// else.
pub(crate) fn settles_alone(value: &[u8]) -> bool {
    fields(value).any(|field| match (field.number, field.value) {
        (TYPE, Value::Varint(STRICT_DNS | LOGICAL_DNS)) | (HEALTH_CHECKS, Value::Bytes(_)) => true,
        (CLUSTER_TYPE, Value::Bytes(custom)) => {
            let is_dns = |name: &[u8]| name.windows(3).any(|part| part == b"dns");
            all_of(custom, CLUSTER_TYPE_NAME).any(is_dns)
        }
        _ => false,
    })
}

/// `Cluster.type`.
const TYPE: u32 = 2;
/// `Cluster.DiscoveryType.STRICT_DNS`.
const STRICT_DNS: u64 = 1;
/// `Cluster.DiscoveryType.LOGICAL_DNS`.
const LOGICAL_DNS: u64 = 2;
/// `Cluster.health_checks`.
const HEALTH_CHECKS: u32 = 8;
/// `Cluster.cluster_type`.
const CLUSTER_TYPE: u32 = 38;
/// `Cluster.CustomClusterType.name`, such as `envoy.clusters.dns`.
const CLUSTER_TYPE_NAME: u32 = 1;

/// `Cluster.metadata`.
const CLUSTER_METADATA: u32 = 25;
/// `Metadata.filter_metadata`, `Struct.fields`.
const MAP: u32 = 1;
/// The key of a map's entry.
const MAP_KEY: u32 = 1;
/// The value of a map's entry.
const MAP_VALUE: u32 = 2;
/// `Value.string_value`.
const STRING_VALUE: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_to_resolve_and_health_checks_take_time() {
        let rows: [(&[u8], bool); 8] = [
            (b"", false),
            (b"\x0a\x01c\x10\x03", false),
            (b"\x0a\x01c\x10\x01", true),
            (b"\x0a\x01c\x10\x02", true),
            (b"\x10\x03\x42\x00", true),
            (b"\xb2\x02\x14\x0a\x12envoy.clusters.dns", true),
            (b"\xb2\x02\x02\x0a\x00", false),
            (b"not a message", false),
        ];
        for (value, expected) in rows {
            assert_eq!(settles_alone(value), expected, "{value:?}");
        }
    }
}
