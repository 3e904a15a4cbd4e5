//! Expectations of users of the Gateway API, as requests: real Envoys and real gRPC clients, configured by route documents.
//!
//! The cases are those of the API's own conformance tests, restated and written anew;
//! a test's name says which. Where a gRPC client can make the request too, it does.

mod gateways;
mod grpc_route;
mod http_backends;
mod http_filters;
mod http_hosts;
mod http_matching;
mod names;
mod retry;
mod services;
mod support;
mod upgrade;
