//! What streams cost. Not run by itself: `cargo test --release -p xds-server --lib -- --ignored --nocapture measure`.
//!
//! Client and server are one process here, so the client's side is measured with an empty service and taken off where it
//! can be. The numbers are for comparing, not for the record.

use std::time::Instant;

use super::support::*;

const N_STREAMS: usize = 2000;
const N_CONNECTIONS: usize = 20;

/// Resident memory, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
