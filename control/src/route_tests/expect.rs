//! What a RouteTest or RouterCheck says.

use std::fmt;
use std::str::FromStr;

use xds_cache::GroupName;
use xds_explain::{Client, HeaderCheck, Ratio, Region, Request};

/// A RouteTest, or a RouterCheck.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTest {
    /// The clients; `None` for those that can send each request.
    pub clients: Option<Vec<Client>>,
    /// The clients' groups.
    pub whose: Whose,
    /// What happens to a change that makes it fail; `None` for the server's default.
    pub policy: Option<TestPolicy>,
    /// Requests, and what is expected of them.
    pub tests: Vec<Test>,
    /// Claims about all requests.
    pub always: Vec<Always>,
}

/// The group of the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// That of the document.
    #[default]
    Own,
    /// This group alone.
    Group(GroupName),
    /// All groups of the node with this ID.
    Node(String),
}

/// What happens to a change that makes a test fail, the mildest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestPolicy {
    /// It is published, and the failure reported.
    #[default]
    Tell,
    /// It is accepted, and not published until it passes or somebody releases it.
    Hold,
    /// A write is refused. A load of files cannot be: it is held.
    Refuse,
}

/// A request, and what is expected of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// Its name, or what it asks.
    pub name: String,
    /// Its path in the document: `spec.tests[0]`.
    pub path: String,
    /// The request.
    pub request: Request,
    /// True if it is a gRPC call.
    pub is_call: bool,
    /// True if it names a target, as gRPC clients without a proxy have.
    pub is_target: bool,
    /// Filters that are taken to let the request pass unchanged.
    pub passes: Vec<String>,
    /// What is expected.
    pub expect: Expected,
}

/// What a test expects.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// Of a RouteTest.
    Outcome(Box<Expect>),
    /// Of a RouterCheck.
    Router(Box<RouterExpect>),
}

/// What a test of `router_check_tool` expects: its `validate`. What is not set is not compared; an empty text expects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterExpect {
    /// The cluster.
    pub cluster_name: Option<String>,
    /// The virtual cluster.
    pub virtual_cluster_name: Option<String>,
    /// The virtual host.
    pub virtual_host_name: Option<String>,
    /// The host as it is forwarded.
    pub host_rewrite: Option<String>,
    /// The path as it is forwarded.
    pub path_rewrite: Option<String>,
    /// The URL that a redirect names.
    pub path_redirect: Option<String>,
    /// The status of an answer of the route itself.
    pub code_redirect: Option<u64>,
    /// Headers of the request after the route.
    pub request_headers: Vec<HeaderCheck>,
    /// Headers of the answer after the route.
    pub response_headers: Vec<HeaderCheck>,
    /// First values of headers of the request after the route; empty for none.
    pub request_fields: Vec<(String, String)>,
    /// First values of headers of the answer after the route; empty for none.
    pub response_fields: Vec<(String, String)>,
}

/// What is expected of a request. What is not set is not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The rule or route.
    pub rule: Option<String>,
    /// Shares by backend.
    pub backends: Vec<(String, Share)>,
    /// The limit of the whole request in milliseconds; `Some(None)` for no limit.
    pub timeout: Option<Option<u64>>,
    /// How often it is tried again.
    pub retries: Option<u32>,
    /// A redirect.
    pub redirect: Option<Redirect>,
    /// The status of an answer that no backend gives.
    pub status: Option<String>,
    /// True if no route takes it.
    pub unmatched: Option<bool>,
    /// True if it is refused with 401 or 403 before a backend gets it.
    pub denied: Option<bool>,
    /// What makes it stick to an endpoint; `Some(None)` for nothing.
    pub session: Option<Option<(String, String)>>,
    /// Shares of copies, by backend.
    pub mirrors: Vec<(String, Share)>,
}

/// A redirect; what is not set is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The status.
    pub status: Option<u64>,
    /// Where it leads.
    pub location: Option<String>,
}

/// A bound of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    bound: Bound,
    /// In millionths.
    millionths: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Exactly,
    AtLeast,
    AtMost,
    About,
}

/// A claim about all requests of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Always {
    /// Its name, or what it claims.
    pub name: String,
    /// Its path in the document: `spec.always[0]`.
    pub path: String,
    /// The requests.
    pub region: Region,
    /// What is claimed.
    pub claim: Claim,
}

/// What is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No share goes to one of the backends.
    Never {
        /// The backends.
        backends: Vec<String>,
        /// True if each request must have a route.
        unmatched: bool,
    },
    /// Every share goes to one of the backends.
    Only {
        /// The backends.
        backends: Vec<String>,
    },
}

impl Share {
    /// Returns `true` if a share is within the bound.
    #[must_use]
    pub fn takes(self, share: Ratio) -> bool {
        let (n, of) = share.parts();
        let wanted = u128::from(self.millionths);
        // Shares are at most one, and denominators of more than 10^32 do not arise from weights of 32 bits.
        let (Some(real), Some(least), Some(most), Some(exact)) = (
            n.checked_mul(MILLION),
            of.checked_mul(wanted.saturating_sub(POINT)),
            of.checked_mul(wanted + POINT),
            of.checked_mul(wanted),
        ) else {
            return false;
        };
        match self.bound {
            Bound::Exactly => real == exact,
            Bound::AtLeast => real >= exact,
            Bound::AtMost => real <= exact,
            Bound::About => (least..=most).contains(&real),
        }
    }
}

/// Everything, in millionths.
const MILLION: u128 = 1_000_000;

/// One percent point.
const POINT: u128 = MILLION / 100;

impl FromStr for Share {
    type Err = String;

    /// Reads `90%`, `>=85%`, `<=15%` and `~10%`.
    ///
    /// # Errors
    ///
    /// A sentence that says what to write.
    fn from_str(text: &str) -> Result<Self, String> {
        let (bound, rest) = match text.trim() {
            text if text.starts_with(">=") => (Bound::AtLeast, text.get(2..)),
            text if text.starts_with("<=") => (Bound::AtMost, text.get(2..)),
            text if text.starts_with('~') => (Bound::About, text.get(1..)),
            text => (Bound::Exactly, Some(text)),
        };
        let millionths = rest.filter(|rest| rest.ends_with('%')).and_then(parse_percent);
        let millionths = millionths.ok_or_else(|| {
            format!(
                "{} is no share; write 90%, >=85%, <=15%, or ~10% for at most one percent point more or less",
                xds_codec::echo(text)
            )
        })?;
        Ok(Self { bound, millionths })
    }
}

/// A number of percent with at most four decimals, in millionths.
fn parse_percent(text: &str) -> Option<u32> {
    let number = text.trim_end_matches('%').trim();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return None;
    }
    let millionths =
        whole.parse::<u32>().ok()?.checked_mul(10_000)? + format!("{part:0<4}").parse::<u32>().ok()?;
    (millionths <= 1_000_000).then_some(millionths)
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::Exactly => "",
            Bound::AtLeast => "at least ",
            Bound::AtMost => "at most ",
            Bound::About => "about ",
        };
        write!(f, "{bound}{}", Ratio::new(self.millionths.into(), MILLION))
    }
}

impl TestPolicy {
    /// The policy as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tell => "tell",
            Self::Hold => "hold",
            Self::Refuse => "refuse",
        }
    }
}

impl fmt::Display for TestPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TestPolicy {
    type Err = String;

    /// Reads `tell`, `hold` and `refuse`.
    ///
    /// # Errors
    ///
    /// A sentence that says what to write.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tell" => Ok(Self::Tell),
            "hold" => Ok(Self::Hold),
            "refuse" => Ok(Self::Refuse),
            _ => Err(format!("{} is no policy; write tell, hold or refuse", xds_codec::echo(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_exact_or_within_its_bound() {
        let takes = |share: &str, n: u128, of: u128| share.parse::<Share>().unwrap().takes(Ratio::new(n, of));
        for (share, n, of, expected) in [
            ("100%", 1, 1, true),
            ("100%", 999_999, 1_000_000, false),
            ("12.5%", 1, 8, true),
            ("33.3333%", 1, 3, false),
            ("~33.3%", 1, 3, true),
            ("~10%", 11, 100, true),
            ("~10%", 111, 1000, false),
            ("~10%", 9, 100, true),
            ("~10%", 89, 1000, false),
            ("~0%", 0, 1, true),
            (">=85%", 85, 100, true),
            (">=85%", 84, 100, false),
            (" <= 15 %", 15, 100, true),
            ("<=15%", 16, 100, false),
            ("0%", 0, 1, true),
        ] {
            assert_eq!(takes(share, n, of), expected, "{share} {n}/{of}");
        }
        for bad in ["", "%", "90", "101%", ">90%", "1.23456%", "-1%", "1/2", "=5%", "100.0001%"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }
}
