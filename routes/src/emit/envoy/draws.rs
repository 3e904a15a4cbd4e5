//! Shares that are drawn independently, although an Envoy has only one random number per request.
//!
//! An Envoy draws one number for each request. A fraction matches the request if the number modulo the denominator is below the numerator.
//! A mirror does the same. Weights choose by the number modulo their sum. Two such draws are independent if the first does not depend on
//! the number modulo the greatest common divisor of both. That is the case if its numerator is a multiple of that divisor. With
//! `fraction: 0.5%` as 50 of 10,000 and weights of 5,000 each, the first backend would get everything.
//!
//! So a fraction is written with the largest denominator, unless another fraction is checked before it: then it gets a smaller one.
//! Weights that still depend on a fraction are multiplied, and the largest is reduced by less than ten, until their sum has no divisor in
//! common with any denominator. Fractions of whole percents are independent in three rules, mirrors included; finer ones in fewer
//! (`docs/documents.md`).

use serde_json::{Value as Json, json};

use crate::emit::shared::Percent;
use crate::model::{HeaderValue, Match, MatchType, PathMatch};
use crate::plan::{Action, PlannedRoute};

/// How the shares of one route are drawn.
#[derive(Default)]
pub(super) struct Draws {
    /// The share of requests that the route takes; `None` for all.
    pub(super) fraction: Option<Percent>,
    /// The share of requests that each mirror gets, in their order; `None` for all.
    mirrors: Vec<Option<Percent>>,
    /// True if the weights must be made independent.
    is_scaled: bool,
}

impl Draws {
    /// The `RuntimeFractionalPercent` of the mirror of this index, unless it gets everything.
    pub(super) fn mirror(&self, index: usize) -> Option<Json> {
        let percent = self.mirrors.get(index).copied().flatten()?;
        Some(json!({"default_value": percent.message()}))
    }

    /// Makes weights independent of the other draws, if necessary.
    pub(super) fn scale<'w>(&self, weights: impl Iterator<Item = &'w mut u32>) {
        if self.is_scaled {
            scale(weights.collect());
        }
    }
}

/// The draws of the routes of one virtual host, in their order.
pub(super) fn of(routes: &[PlannedRoute]) -> Vec<Draws> {
    let mut earlier: Vec<Earlier<'_>> = Vec::new();
    let mut seen = Seen::default();
    let mut all = Vec::with_capacity(routes.len());
    for route in routes {
        let fraction = fraction(route, &earlier);
        if let Some(percent) = fraction {
            earlier.push(Earlier { route, percent });
            seen.add(percent);
        }
        let mirrors = route.effects.mirrors.iter().map(|mirror| {
            let candidates: Vec<_> = Percent::all(mirror.fraction).rev().collect();
            let independent = candidates.iter().find(|percent| seen.leaves(**percent));
            independent.or(candidates.first()).copied()
        });
        let mirrors: Vec<_> = mirrors.collect();
        let is_scaled = match &route.action {
            Action::Forward(targets) if targets.len() > 1 => {
                let sum = targets.iter().map(|target| u64::from(target.weight)).sum();
                !seen.is_indifferent_to(sum)
            }
            Action::Forward(_) | Action::Redirect(_) | Action::Fail => false,
        };
        all.push(Draws { fraction, mirrors, is_scaled });
    }
    all
}

/// A route with a fraction.
struct Earlier<'p> {
    route: &'p PlannedRoute,
    percent: Percent,
}

/// The fraction of a route, independent of the earlier fractions that its requests may have been compared with. All routes of a rule
/// share one draw, so a request that one of them leaves is not taken by another.
fn fraction(route: &PlannedRoute, earlier: &[Earlier<'_>]) -> Option<Percent> {
    let candidates: Vec<_> = Percent::all(route.matches.fraction?).collect();
    let before = earlier.iter().rev().take(MAX_COMPARED);
    let mut others = Vec::new();
    for one in before.filter(|one| may_share_requests(&one.route.matches, &route.matches)) {
        let is_same_rule = (&one.route.id.document, one.route.id.rule) == (&route.id.document, route.id.rule);
        if is_same_rule && one.route.matches.fraction == route.matches.fraction {
            return Some(one.percent);
        }
        others.push(one.percent);
    }
    let independent =
        candidates.iter().find(|percent| others.iter().all(|other| percent.is_independent_of(*other)));
    independent.or(candidates.first()).copied()
}

/// The earlier fractions.
#[derive(Default)]
struct Seen(Vec<Percent>);

impl Seen {
    fn add(&mut self, percent: Percent) {
        match self.0.iter_mut().find(|seen| seen.denominator == percent.denominator) {
            Some(seen) => seen.numerator = gcd(seen.numerator, percent.numerator),
            None => self.0.push(percent),
        }
    }

    /// Returns `true` if the remainder by `modulus` is independent of all of them.
    fn is_indifferent_to(&self, modulus: u64) -> bool {
        self.0.iter().all(|seen| seen.is_indifferent_to(modulus))
    }

    /// Returns `true` if a later draw of this percentage keeps its share.
    fn leaves(&self, percent: Percent) -> bool {
        self.0.iter().all(|seen| seen.is_independent_of(percent))
    }
}

impl Percent {
    /// Returns `true` if the remainder by `modulus` is evenly distributed among the requests that it takes, and among those that it leaves.
    fn is_indifferent_to(self, modulus: u64) -> bool {
        self.numerator.is_multiple_of(gcd(self.denominator, modulus))
    }

    fn is_independent_of(self, other: Self) -> bool {
        self.is_indifferent_to(other.denominator) || other.is_indifferent_to(self.denominator)
    }
}

/// Returns `true` if a request may match both, regardless of fractions. A regular expression counts as matching anything.
fn may_share_requests(one: &Match, other: &Match) -> bool {
    if one.method.is_some() && other.method.is_some() && one.method != other.method {
        return false;
    }
    let differs = |header: &crate::model::HeaderMatch| {
        let HeaderValue::Exact(value) = &header.value else { return false };
        let same = other.headers.iter().find(|other| other.name == header.name);
        same.is_some_and(|other| matches!(&other.value, HeaderValue::Exact(other) if other != value))
    };
    if one.headers.iter().any(differs) {
        return false;
    }
    let begins =
        |text: &str, with: &str| text.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    match (&one.path, &other.path) {
        (PathMatch::Exact(one), PathMatch::Exact(other)) => one.eq_ignore_ascii_case(other),
        (PathMatch::Exact(path), PathMatch::Prefix(prefix) | PathMatch::TextPrefix(prefix))
        | (PathMatch::Prefix(prefix) | PathMatch::TextPrefix(prefix), PathMatch::Exact(path)) => {
            begins(path, prefix)
        }
        (
            PathMatch::Prefix(one) | PathMatch::TextPrefix(one),
            PathMatch::Prefix(other) | PathMatch::TextPrefix(other),
        ) => begins(one, other) || begins(other, one),
        (PathMatch::Method(one), PathMatch::Method(other)) => {
            let is_exact = |method: &crate::model::MethodMatch| method.match_type == MatchType::Exact;
            let agree = |one: &Option<String>, other: &Option<String>| {
                one.is_none() || other.is_none() || one == other
            };
            !is_exact(one)
                || !is_exact(other)
                || (agree(&one.service, &other.service) && agree(&one.method, &other.method))
        }
        _ => true,
    }
}

/// Multiplies weights by a power of ten, and lowers the largest until the sum has no common divisor with any denominator.
pub(super) fn scale(mut weights: Vec<&mut u32>) {
    let sum: u64 = weights.iter().map(|weight| u64::from(**weight)).sum();
    let factors = (0..=9).rev().map(|power| 10_u32.pow(power));
    let factor = factors.into_iter().find(|factor| sum * u64::from(*factor) <= u64::from(u32::MAX));
    let factor = factor.unwrap_or(1);
    for weight in &mut weights {
        **weight = weight.saturating_mul(factor);
    }
    let sum = sum * u64::from(factor);
    let excess = (0..10).find(|excess| sum > *excess && gcd(sum - excess, 10) == 1).unwrap_or(0);
    if let Some(largest) = weights.into_iter().max_by_key(|weight| **weight) {
        *largest = largest.saturating_sub(u32::try_from(excess).unwrap_or(0));
    }
}

pub(super) fn gcd(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => gcd(other, one % other),
    }
}

/// The number of earlier fractions that a fraction is compared with. Similar routes are next to each other.
const MAX_COMPARED: usize = 100;
