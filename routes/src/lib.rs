//! Route documents as xDS resources: Gateway API, SMI TrafficSplit and the native form.
//!
//! There are three steps, each a pure function:
//!
//! 1. [`read`](fn@read) reads one document and reports its own faults. The result is a [`model::Document`].
//! 2. [`plan`] looks at all documents together: which routes a listener accepts, in which order, which backends they reach, and which
//!    [`Conditions`] every object gets. The result is a [`plan::Plan`] for each node group.
//! 3. [`emit`] writes a plan as resources, once for Envoy and once for proxyless gRPC, which accept different things.
//!
//! [`translate`](fn@translate) does steps 2 and 3, and repeats only the parts whose inputs have changed. The crate does no I/O and reads no
//! clock. The order of documents does not matter. No outside input makes it panic.

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
pub use input::{Bounds, Documents, GenerationLimits, Options, Placed, Purpose, Stopped};
pub use memo::{Delta, Diagnostics, Work};
pub use model::{Document, DocumentKey, Kind};
pub use plan::split_roots;
pub use read::{ReadObject, ReadOutcome, UnknownFields, left_out, read, stand_in};
pub use translate::{Generated, GeneratedGroup, Translation, translate, translate_within};
