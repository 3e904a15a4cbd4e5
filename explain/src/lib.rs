//! What Envoys and gRPC clients do with a request, by the resources that they are served.
//!
//! A [`Model`] is made of the resources of a view for one [`Client`], and [`Model::explain`] follows a [`Request`] through it: listener,
//! filter chain, virtual host, routes with the conditions that did not hold, clusters with exact shares, endpoints. Clients differ, and
//! `semantics` is the table of how. The crate does no I/O and reads no clock, and its answers do not depend on chance: they are shares.
//!
//! The rules have names, which begin with X so that they are not taken for those of the protocol: XV1–XV5 (hosts), XR1–XR19 (conditions),
//! XF1–XF9 (connections), XH1–XH5 (before routing), XA1–XA12 (after it), XE1–XE5 (chance and what is not known). `docs/explain.md` lists
//! them.

mod after;
mod always;
mod balancer;
mod before;
mod chains;
mod changed;
mod checked;
mod choice;
mod cidr;
mod client;
mod context;
mod curl;
mod diff;
mod draw;
mod endpoints;
mod explain;
mod explanation;
mod filters;
mod header;
mod host;
mod inventory;
mod lint;
mod listener;
mod model;
mod outline;
mod path;
mod query;
mod ratio;
mod rbac;
mod regex;
mod request;
mod rewrite;
mod route;
mod scope;
mod semantics;
mod shape;
mod space;
mod table;
mod tables;
mod target;
mod text;
mod touched;
mod tree;
mod truth;
mod write;

pub use always::{Conditions, Counterexample, Destination, MAX_EXAMPLES, Region, Searched, TextIs, always};
pub use balancer::{Balancer, MAX_CLUSTERS};
pub use changed::{Case, Checked, HeaderCheck, HeaderIs, Headers, Known};
pub use client::{Client, Language, UnknownClient};
pub use curl::{CurlError, curl};
pub use diff::{Changes, Class, ClassKind, Effort, MAX_CLASSES, Undecided, diff, diff_within, request_text};
pub use explain::MAX_LISTENERS;
pub use explanation::{
    ActionKind, BranchSeen, Element, Endpoint, Explanation, Filter, Follows, Host, LeftOut, Limit, Listener,
    Located, Mirror, Note, Outcome, Part, Place, Retry, RouteSeen, Session,
};
pub use host::DomainKind;
pub use inventory::{Inventory, Item, inventory};
pub use lint::{Depth, Doubt, DoubtCode, Doubts, differences, lint};
pub use model::Model;
pub use outline::{Way, WayBackend, WaysWanted, ways};
pub use ratio::Ratio;
pub use request::{Connection, Request, RouterCheck};
pub use route::{Failure, Reason};
pub use target::{ClusterShare, MAX_METHODS, MethodConfig, MethodName, RetryPolicy, Target, Versioned};
pub use touched::Touched;
pub use write::{targets_to_text, to_text};
