//! Budgets: no client, file or body may make the server spend far more than it costs to send.
//!
//! Each file is about one kind of attack. `xds_tests::footprint` measures the server, `xds_tests::healthy` is an Envoy that
//! must be served all the while.

mod client_status;
mod disk;
mod escapes;
mod nodes;
mod polling;
mod store;
mod ways;
mod webhooks;
