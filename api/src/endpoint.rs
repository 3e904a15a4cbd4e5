//! The handlers, one module per part of the API.

pub(crate) mod access_check;
pub(crate) mod acks;
mod apply;
pub(crate) mod audit;
pub(crate) mod conditions;
pub(crate) mod diff;
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod files;
mod filter;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod loads;
pub(crate) mod nodes;
pub(crate) mod push;
pub(crate) mod relay;
pub(crate) mod replicas;
pub(crate) mod resources;
pub(crate) mod rollouts;
pub(crate) mod route_tests;
pub(crate) mod snapshot;
pub(crate) mod validate;
pub(crate) mod waves;
pub(crate) mod weights;
pub(crate) mod weights_change;
