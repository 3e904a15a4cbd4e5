//! Ranges of addresses.

use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::CidrRange;

/// Returns `true` if the range holds the address. Bits of the host are ignored.
pub(crate) fn is_in(address: IpAddr, range: &CidrRange) -> bool {
    let length = range.prefix_len.as_ref().map_or(0, |length| length.value);
    match (address, range.address_prefix.parse()) {
        (IpAddr::V4(address), Ok(IpAddr::V4(prefix))) => {
            let shift = 32_u32.saturating_sub(length);
            u64::from(u32::from(address)) >> shift == u64::from(u32::from(prefix)) >> shift
        }
        (IpAddr::V6(address), Ok(IpAddr::V6(prefix))) => {
            let shift = 128_u32.saturating_sub(length);
            let cut = |bits: u128| bits.checked_shr(shift).unwrap_or_default();
            cut(address.into()) == cut(prefix.into())
        }
        _ => false,
    }
}
