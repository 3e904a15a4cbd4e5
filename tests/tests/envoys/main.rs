//! The server with real Envoys, and with gRPC clients beside them.

mod documents;
mod envoy;
mod envoy_per_type;
mod explain;
mod harness;
mod hitless;
mod missing;
mod rejections;
mod soak;
mod tls;
mod waiting;
mod waves;
