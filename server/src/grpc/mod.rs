//! xDS over the wire: the gRPC services, REST-JSON polling, client status, and load reports.
//!
//! The way of a response: the publisher makes a view, and wakes every stream that follows it. The stream asks its session
//! (`xds_session::Client`, driven by `client`) for a response. `encode` turns it into bytes that streams share (`shared`), and `body`
//! writes them behind a nonce. The way of a request: `requests` takes it out of the connection, and `convert` turns it into a request
//! of the session; `load_report` reads load reports for the board. [`state`] has what all services share.
//!
//! There is no task and no queue per stream. Everything that a client can make grow has a limit in [`GrpcConfig`].

mod age;
mod arrivals;
mod balance;
mod boards;
mod body;
mod budget;
mod call;
mod client;
mod config;
mod convert;
mod csds;
mod currency;
mod discovery;
pub mod encode;
mod fetch;
mod frames;
mod gate;
mod guard;
mod identity;
mod json_answer;
mod kinds;
mod late;
mod lines;
mod load_report;
mod loads;
mod matcher;
mod metered;
mod nacks;
mod node;
mod pace;
mod poll;
mod polls;
mod receive;
mod requests;
mod rest;
mod serve;
mod shared;
mod state;
mod status;
mod streams;
mod subscriptions;
#[cfg(test)]
mod tests;
mod trace;
mod wire;

pub use boards::Boards;
pub use config::{GrpcConfig, MIN_LOAD_REPORT_INTERVAL};
pub use receive::ReceiveLimits;
pub use serve::ServeError;
pub use state::Grpc;
