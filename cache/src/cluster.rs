//! What the server must know of a cluster's content: whether a client needs time to make it ready.

/// Whether an Envoy makes the cluster ready without asking the server for more, which takes it some time: it resolves names,
/// or checks the health of its endpoints. `value` is an encoded `envoy.config.cluster.v3.Cluster`; of what is none, it says no.
pub(crate) fn settles_alone(mut value: &[u8]) -> bool {
    while let Some((field, content)) = next_field(&mut value) {
        match (field, content) {
            (TYPE, Content::Number(STRICT_DNS | LOGICAL_DNS)) | (HEALTH_CHECKS, Content::Bytes(_)) => {
                return true;
            }
            (CLUSTER_TYPE, Content::Bytes(mut custom)) => {
                let is_dns = |name: &[u8]| name.windows(3).any(|part| part == b"dns");
                while let Some((field, content)) = next_field(&mut custom) {
                    if field == CLUSTER_TYPE_NAME && matches!(content, Content::Bytes(name) if is_dns(name)) {
                        return true;
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// A field's value, as far as it matters.
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Takes the next field off `value`; `None` at the end, and at the first thing that is no field.
fn next_field<'a>(value: &mut &'a [u8]) -> Option<(u64, Content<'a>)> {
    let tag = varint(value)?;
    let content = match tag & 7 {
        0 => Content::Number(varint(value)?),
        1 => take(value, 8).map(|_| Content::Fixed)?,
        2 => {
            let length = usize::try_from(varint(value)?).ok()?;
            Content::Bytes(take(value, length)?)
        }
        5 => take(value, 4).map(|_| Content::Fixed)?,
        _ => return None,
    };
    Some((tag >> 3, content))
}

fn take<'a>(value: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = value.split_at_checked(length)?;
    *value = rest;
    Some(taken)
}

fn varint(value: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = value.split_first()?;
        *value = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
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
