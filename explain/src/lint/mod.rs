//! Parts of what is served that can never act, or act otherwise than they are written.
//!
//! [`lint`] looks at all requests with the same means as [`crate::diff()`]. It tells only what is certain: where something cannot be decided, it
//! is silent.

mod chains;
mod clients;
mod fallbacks;
mod find;
mod overrides;
mod partly;
mod place;
mod report;
mod routes;
mod shares;
mod used_by;

pub use clients::differences;
pub use find::lint;
pub use report::{Depth, Doubt, DoubtCode, Doubts};
