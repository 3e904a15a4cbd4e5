//! RouteTests: what is expected of routes, and whether it holds.
//!
//! A RouteTest is a document like others, but generates nothing. [`mod@read`] reads what it says. [`judge`] compares an explanation with what is
//! expected of it. [`mod@run`] asks the clients of a RouteTest, each with what it is served, and counts what the requests touched ([`coverage`]).

mod claim;
mod coverage;
mod expect;
mod judge;
mod memo;
mod read;
mod run;

pub use coverage::{Coverage, Kind as CoverageKind, Untouched};
pub use expect::{Always, Claim, Expect, Redirect, RouteTest, Share, Test, TestPolicy, Whose};
pub(crate) use memo::Memo;
pub use read::{MAX_ALWAYS, MAX_ITEM_BYTES, MAX_TESTS, read, read_document};
pub use run::{Case, Failure, Outcome, Report, Served, Totals, route_tests, run_on};
pub(crate) use run::{Subject, run};

#[cfg(test)]
mod tests;
