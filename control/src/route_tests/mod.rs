//! RouteTests: what is expected of routes, and whether it holds.
//!
//! A RouteTest is a document like others, but generates nothing. [`mod@read`] reads what it says, and [`router`] what a RouterCheck says:
//! the tests of Envoy's `router_check_tool`. [`judge`] compares an explanation with what is
//! expected of it. [`mod@run`] asks the clients of a RouteTest, each with what it is served, and counts what the requests touched ([`coverage`]).

mod claim;
mod coverage;
mod expect;
mod judge;
mod memo;
mod read;
mod router;
mod router_judge;
mod run;
mod size;

pub use coverage::{Coverage, Kind as CoverageKind, Untouched};
pub use expect::{
    Always, Claim, Expect, Expected, Redirect, RouteTest, RouterExpect, Share, Test, TestPolicy, Whose,
};
pub(crate) use memo::Memo;
pub use read::{MAX_ALWAYS, read, read_document};
pub use router::read_file as read_router_checks;
pub use run::{Case, Failure, Loose, Outcome, Report, Served, Totals, route_tests, run_loose, run_on};
pub(crate) use run::{Subject, run};
pub use size::{MAX_ITEM_BYTES, MAX_TESTS};

#[cfg(test)]
mod tests;
