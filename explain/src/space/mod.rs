//! The space of all requests, cut where conditions can tell requests apart.
//!
//! Each dimension of a request (path, a header, a parameter, …) has so few values that conditions can tell apart that they can be looked
//! at one by one. `automaton` finds them for texts, `values` for everything but the path. `split` follows two lists of routes through
//! them, `flat` makes such a list of a tree of matchers, `host` finds the hosts, and `connection` the connections.

pub(crate) mod automaton;
pub(crate) mod connection;
pub(crate) mod destination;
pub(crate) mod flat;
pub(crate) mod host;
pub(crate) mod split;
pub(crate) mod universe;
pub(crate) mod values;
