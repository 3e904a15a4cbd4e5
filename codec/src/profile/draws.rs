//! Shares that need independent random draws (row C10). Envoy has one random number for each request, and uses its remainder for the
//! fraction of a route, for weights and for mirrors. gRPC clients draw a new number for each.

use std::collections::HashMap;

use super::Effect::Differs;
use super::rule::{Fault, Scope, enum_at, number_at};
use crate::message::{Item, Message, child, messages};
use crate::path::Path;

/// Checks the routes of a virtual host for dependent draws: within one route, and between routes with the same match, of which the first
/// leaves requests to the others.
pub(super) fn virtual_host(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("routes");
    let mut before: HashMap<Vec<(String, String)>, Vec<Draw>> = HashMap::new();
    for (index, route) in messages(message, "routes").enumerate() {
        let Some(matches) = child(&route, "match") else { continue };
        let path = list_path.index(index);
        let fraction = child(&matches, "runtime_fraction").and_then(|fraction| Draw::of(&fraction));
        if fraction.is_none() && before.is_empty() {
            // Mirrors and weights of one route depend on each other too, but each keeps its share.
            continue;
        }
        let draws = before.entry(without_fraction(&matches)).or_default();
        if let Some(fraction) = fraction {
            if draws.iter().any(|draw| draw.decides(fraction)) {
                report(&path, "match.runtime_fraction", "another fraction of the same match", scope);
            }
            if draws.len() < MAX_COMPARED {
                draws.push(fraction);
            }
        }
        let Some(action) = child(&route, "route") else { continue };
        let weights = child(&action, "weighted_clusters").and_then(|split| sum(&split));
        let decides = |sum: &u64| draws.iter().any(|draw| !draw.is_indifferent_to(*sum));
        if weights.is_some_and(|sum| decides(&sum)) {
            report(&path, "route.weighted_clusters", "the fraction", scope);
        }
        let mirrors_path = path.field("route");
        let mirrors_path = mirrors_path.field("request_mirror_policies");
        for (index, mirror) in messages(&action, "request_mirror_policies").enumerate() {
            let share = child(&mirror, "runtime_fraction").and_then(|fraction| Draw::of(&fraction));
            if share.is_some_and(|share| draws.iter().any(|draw| draw.decides(share))) {
                report(&mirrors_path.index(index), "runtime_fraction", "the fraction of the match", scope);
            }
        }
    }
}

fn report(path: &Path<'_>, field: &str, by: &str, scope: &mut Scope<'_>) {
    let fault = Fault::new("C10", Differs, "envoy-one-random-number");
    let text = format!(
        "Envoy draws one random number for each request, and {by} depends on the same one, so the share will differ from the configured one"
    );
    let suggestion = "weights with a sum that has no divisor in common with the fraction's denominator, or \
                      fractions whose numerators are multiples of the smaller denominator";
    scope.report_with(fault, path, field, text, Some(suggestion.to_owned()));
}

/// A fraction of requests: those whose random number has a remainder below the numerator.
#[derive(Clone, Copy)]
struct Draw {
    numerator: u64,
    denominator: u64,
}

impl Draw {
    /// The share of a `RuntimeFractionalPercent`; `None` if it takes all requests or none.
    fn of(fraction: &Message) -> Option<Self> {
        let percent = child(fraction, "default_value")?;
        let numerator = number_at(&percent, "numerator").unwrap_or_default();
        let denominator = match enum_at(&percent, "denominator") {
            1 => 10_000,
            2 => 1_000_000,
            _ => 100,
        };
        (1..denominator).contains(&numerator).then_some(Self { numerator, denominator })
    }

    /// Returns `true` if the remainder by `modulus` is evenly distributed among the requests that it takes, and among those that it leaves.
    fn is_indifferent_to(self, modulus: u64) -> bool {
        self.numerator.is_multiple_of(gcd(self.denominator, modulus))
    }

    fn decides(self, other: Self) -> bool {
        !self.is_indifferent_to(other.denominator) && !other.is_indifferent_to(self.denominator)
    }
}

/// The sum of weights; `None` if all requests go to one cluster.
fn sum(split: &Message) -> Option<u64> {
    let weights = messages(split, "clusters").filter_map(|cluster| number_at(&cluster, "weight"));
    let weights: Vec<u64> = weights.filter(|weight| *weight > 0).collect();
    (weights.len() > 1).then(|| weights.iter().sum())
}

/// The conditions of a match without its fraction.
fn without_fraction(matches: &Message) -> Vec<(String, String)> {
    let fields = matches.fields().filter(|field| field.name() != "runtime_fraction");
    let text = |item: Item| match item {
        Item::Scalar(value) => format!("{value:?}"),
        Item::Message(message) => format!("{:?}", message.bytes()),
    };
    fields.map(|field| (field.name().to_owned(), matches.items(&field).map(text).collect())).collect()
}

fn gcd(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => gcd(other, one % other),
    }
}

/// The limit of compared fractions of one match. Nobody writes more.
const MAX_COMPARED: usize = 16;
