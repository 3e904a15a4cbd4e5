//! Trees of matchers (`xds.type.matcher.v3.Matcher`), which choose the route of a virtual host (XR18) or the filter chain of a listener
//! (XF2).
//!
//! `node` has the tree, `read` makes it of a message, and `walk` asks it. Who asks says what it knows by [`Facts`]. What it does not know
//! forks the answer.

#[cfg(test)]
pub(crate) mod make;
mod node;
mod read;
mod walk;

pub(crate) use node::{Facts, Input, Kind, Known, Node, Predicate, Sight, Then, Tree, Wanted, What};
pub(crate) use read::{message_of, read};
pub(crate) use walk::{Found, Looked, Walked, Way, walk};
