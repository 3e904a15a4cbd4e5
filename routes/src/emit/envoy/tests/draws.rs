//! Shares that one random number decides.

use super::plans::{everything, forward, to};
use crate::emit::envoy::draws::{gcd, of, scale};
use crate::model::{Fraction, Match};
use crate::plan::{Action, PlannedRoute};

fn route(rule: usize, ten_thousandths: u32, weights: [u32; 2]) -> PlannedRoute {
    let mut route = forward(vec![to("a", weights[0]), to("b", weights[1])]);
    route.id.rule = rule;
    let fraction = Fraction { numerator: ten_thousandths, denominator: 10_000 };
    route.matches = Match { fraction: Some(fraction), ..everything() };
    route
}

/// Ten-thousandths of the requests, and the weights of two targets.
type Rule = (u32, [u32; 2]);

/// The counts of an Envoy that draws every number below a common multiple of all divisors: requests by route and target.
fn counts(routes: &[PlannedRoute], n: u64) -> Vec<[u64; 2]> {
    let draws = of(routes);
    let weights: Vec<[u32; 2]> = routes
        .iter()
        .zip(&draws)
        .map(|(route, draws)| {
            let Action::Forward(targets) = &route.action else { panic!("{route:?}") };
            let mut weights = [targets[0].weight, targets[1].weight];
            draws.scale(weights.iter_mut());
            weights
        })
        .collect();
    let mut counts = vec![[0; 2]; routes.len()];
    for number in 0..n {
        // A prime spreads the numbers over all of 64 bits, as random ones are.
        let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let taken = draws.iter().position(|draws| {
            draws.fraction.is_none_or(|percent| number % percent.denominator < percent.numerator)
        });
        let Some(taken) = taken else { continue };
        let [one, other] = weights[taken].map(u64::from);
        counts[taken][usize::from(number % (one + other) >= one)] += 1;
    }
    counts
}

#[test]
fn every_share_is_kept_whatever_others_there_are() {
    let table: [(&[Rule], &[f64]); 5] = [
        (&[(50, [5_000, 5_000]), (10_000, [5_000, 5_000])], &[0.005, 0.995]),
        (&[(1_000, [5_000, 5_000]), (2_000, [9, 1]), (10_000, [50, 50])], &[0.1, 0.18, 0.72]),
        (&[(1_000, [1, 1]), (1_000, [1, 99]), (1_000, [1, 1]), (10_000, [1, 1])], &[0.1, 0.09, 0.081, 0.729]),
        (&[(1_250, [1_000_000, 1]), (2_000, [1, 9]), (10_000, [500_000, 500_000])], &[0.125, 0.175, 0.7]),
        (&[(5_000, [u32::MAX - 1, 1]), (10_000, [1 << 31, 1 << 30])], &[0.5, 0.5]),
    ];
    for (rules, shares) in table {
        let routes: Vec<_> =
            rules.iter().enumerate().map(|(rule, (share, weights))| route(rule, *share, *weights)).collect();
        let n = 1_000_000;
        for (((_, weights), share), counts) in rules.iter().zip(shares).zip(counts(&routes, n)) {
            let expected = share * n as f64;
            let total = (counts[0] + counts[1]) as f64;
            assert!((total - expected).abs() < expected * 0.02 + 50.0, "{rules:?}: {counts:?} of {expected}");
            let first = f64::from(weights[0]) / (f64::from(weights[0]) + f64::from(weights[1]));
            assert!((counts[0] as f64 - total * first).abs() < total * 0.02 + 20.0, "{rules:?}: {counts:?}");
        }
    }
}

#[test]
fn scaled_weights_keep_their_proportions() {
    for weights in [[1_u32, 1], [5_000, 5_000], [0, 10], [u32::MAX - 1, 1], [1_000_000, 3]] {
        let mut scaled = weights;
        scale(scaled.iter_mut().collect());
        let [one, other] = scaled.map(u64::from);
        assert_eq!(gcd(one + other, 1_000_000), 1, "{scaled:?}");
        let share = |[one, other]: [u32; 2]| f64::from(one) / (f64::from(one) + f64::from(other));
        assert!((share(weights) - share(scaled)).abs() < 1e-7, "{weights:?} {scaled:?}");
    }
}
