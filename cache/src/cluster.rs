//! What the server must know of a cluster's content: whether a client needs time to make it ready.

use crate::wire::{Content, fields};

/// Whether an Envoy makes the cluster ready without asking the server for more, which takes it some time: it resolves names,
/// or checks the health of its endpoints. `value` is an encoded `envoy.config.cluster.v3.Cluster`; of what is none, it says no.
pub(crate) fn settles_alone(value: &[u8]) -> bool {
    fields(value).any(|field| match (field.number, field.content) {
        (TYPE, Content::Number(STRICT_DNS | LOGICAL_DNS)) | (HEALTH_CHECKS, Content::Bytes(_)) => true,
        (CLUSTER_TYPE, Content::Bytes(custom)) => {
            let is_dns = |name: &[u8]| name.windows(3).any(|part| part == b"dns");
            fields(custom).any(|field| field.number == CLUSTER_TYPE_NAME && field.bytes().is_some_and(is_dns))
        }
        _ => false,
    })
}

/// `Cluster.type`.
const TYPE: u64 = 2;
/// `Cluster.DiscoveryType.STRICT_DNS`.
const STRICT_DNS: u64 = 1;
/// `Cluster.DiscoveryType.LOGICAL_DNS`.
const LOGICAL_DNS: u64 = 2;
/// `Cluster.health_checks`.
const HEALTH_CHECKS: u64 = 8;
/// `Cluster.cluster_type`.
const CLUSTER_TYPE: u64 = 38;
/// `Cluster.CustomClusterType.name`, such as `envoy.clusters.dns`.
const CLUSTER_TYPE_NAME: u64 = 1;

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
