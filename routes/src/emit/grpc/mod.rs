//! A plan as resources for proxyless gRPC clients.

use super::{Emitted, GrpcLoss};
use crate::plan::Plan;
use crate::translate::Options;

/// The resources of a plan for proxyless gRPC clients, and what they cannot have, sorted and unique.
pub(crate) fn grpc(plan: &Plan, options: &Options) -> (Vec<Emitted>, Vec<GrpcLoss>) {
    let _ = (plan, options);
    (Vec::new(), Vec::new())
}
