//! A standalone xDS management server.

mod access;
mod aside;
mod audit_file;
mod authorities;
pub mod config;
mod culprits;
pub mod drain;
mod event_streams;
pub mod grpc;
mod listen;
pub mod metrics;
mod oracle;
mod page;
mod peers;
mod relay;
pub mod rollouts;
pub mod run;
pub mod source;
#[cfg_attr(not(feature = "spiffe"), expect(dead_code, reason = "without its client, no agent is ever asked"))]
mod spiffe;
pub mod telemetry;
#[cfg(test)]
mod tests;
mod traces;
