//! Plans of documents that are made by hand.

pub(crate) mod backends_support;
pub(crate) mod support;

mod attachment;
mod conditions;
mod conformance;
mod endpoints;
mod fallbacks;
mod foreign_policies;
mod hosts;
mod mesh;
mod model;
mod precedence;
mod references;
mod splits;
mod tls;
