//! Writes plans as resources, for each profile in the form that its clients accept (D3).

mod emitted;
pub(crate) mod envoy;
pub(crate) mod grpc;
mod shared;

pub(crate) use emitted::{Emitted, EmittedPart, FoundBy, GrpcLoss};
#[cfg(test)]
pub(crate) use emitted::{Sink, all};
pub(crate) use envoy::{Frame as EnvoyFrame, Listener as EnvoyListener};
pub(crate) use grpc::Dialled;
pub(crate) use shared::{UNAVAILABLE, assignment, no_endpoints};
