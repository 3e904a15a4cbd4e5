//! Durations, shares and times as people write them: in files and annotations, in flags, queries and bodies.
//!
//! Each has one grammar, wherever it is written. Two formats have their own, which others define: durations of the Gateway API
//! (GEP-2257) are read by `xds-routes`, those of protobuf's JSON by `xds-codec`.

mod percent;
mod span;
mod time;

pub use percent::{InvalidPercent, Percent};
pub use span::{InvalidSpan, Span};
pub use time::{parse_rfc3339, rfc3339};
