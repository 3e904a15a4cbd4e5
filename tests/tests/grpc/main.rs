//! The server with real gRPC clients.

mod conformance;
mod grpc_clients;
mod grpc_servers;
mod identities;
mod loads;
mod missing;
mod prediction;
mod rollouts;
mod soak;
mod spiffe;
mod tokens;
mod trust;
