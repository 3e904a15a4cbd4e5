//! Route documents as xDS resources: Gateway API, SMI TrafficSplit and the native form.
//!
//! Three steps, each a pure function:
//!
//! 1. [`read`](fn@read) takes one document apart and says what is wrong with it by itself. The result is a [`model::Document`].
//! 2. [`plan`] looks at all documents together: which routes a listener takes, in which order, which backends they
//!    reach, and which [`Conditions`] every object gets. The result is a [`plan::Plan`] for each node group.
//! 3. [`emit`] writes a plan as resources, once for Envoy and once for proxyless gRPC, which take different things.
//!
//! [`translate`](fn@translate) is steps 2 and 3, of which only that is done again which reads what changed. The crate does no I/O and reads no clock; the order of documents changes nothing; nothing that comes from outside makes it panic.

pub mod conditions;
pub mod emit;
mod encode;
mod input;
mod memo;
pub mod model;
pub mod plan;
mod rare;
pub mod read;
mod thin;
mod translate;
pub mod weights;

pub use conditions::{Condition, Conditions};
pub use input::{Documents, GenerationLimits, Options, Placed};
pub use memo::{Delta, Diagnostics, Work};
pub use model::{Document, DocumentKey, Kind};
pub use plan::split_roots;
pub use read::{ReadObject, ReadOutcome, UnknownFields, left_out, read, stand_in};
pub use translate::{Generated, GeneratedGroup, Translation, translate, translate_while};
