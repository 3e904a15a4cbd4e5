//! Durations and shares as people write them: in files and annotations, in flags, queries and bodies.
//!
//! Each has one grammar, wherever it is written. Two formats have their own, which others define: durations of the Gateway API
//! (GEP-2257) are read by `xds-routes`, those of protobuf's JSON by `xds-codec`.

mod percent;
mod span;

pub use percent::{InvalidPercent, Percent};
pub use span::{InvalidSpan, Span};
