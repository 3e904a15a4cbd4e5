//! Route documents beyond the Gateway API's own cases, with real clients: splits, fallbacks, sessions, SMI, the native form.

mod api;
mod balancing;
mod canary;
mod drain;
mod fallback;
mod files;
mod fraction;
mod limits;
mod mesh;
mod native;
mod on_demand;
mod on_demand_changes;
mod on_demand_cost;
mod programmed;
mod proxyless;
mod session;
mod split;
mod streams;
mod tls;
mod weights;
