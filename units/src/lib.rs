//! Durations, shares and times as people write them in files, annotations, flags, queries and bodies, and texts from outside as people
//! are shown them ([`escape`]).
//!
//! Each of the former has one grammar, wherever it is written. Two formats have a grammar that others define: `xds-routes` reads durations of the
//! Gateway API (GEP-2257), and `xds-codec` reads those of protobuf's JSON.

pub mod escape;
mod percent;
mod span;
mod time;

pub use percent::{InvalidPercent, Percent};
pub use span::{InvalidSpan, Span};
pub use time::{parse_rfc3339, rfc3339};
