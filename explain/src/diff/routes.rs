//! Two lists of routes of one host.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use envoy_types::pb::envoy::config::route::v3 as proto;

use crate::diff::report::{ClassKind, Findings, Found, distinct};
use crate::ratio::Ratio;
use crate::route::Route;
use crate::space::destination::{Shares, moved, shares, treatment};
use crate::space::split::{Both, Budget, Lists, Part};
use crate::space::universe::PathRules;
use crate::space::values::Arrival;

/// The routes of one host on both sides, and what happens to requests that none takes.
#[derive(Debug)]
pub(super) struct Pair<'m> {
    pub(super) routes: [&'m [Route]; 2],
    pub(super) ends: [&'static str; 2],
    /// The virtual host, in words.
    pub(super) about: String,
}

/// Routes with the same conditions, the same destinations and the same settings have the same number.
pub(super) type Identities = [Vec<u32>; 2];

/// Adds a class for each pair of lists that requests meet and that differ.
pub(super) fn compare(pair: &Pair<'_>, arrival: &Arrival<'_>, rules: PathRules, findings: &mut Findings) {
    let identities = identities(pair.routes);
    let ends_differ = pair.ends[0] != pair.ends[1];
    let mut relevant = changed(&identities);
    if ends_differ {
        relevant = [0, 1].map(|side: usize| (0..).zip(pair.routes[side]).map(|(at, _)| at).collect());
    }
    // Lists are equal if their routes are, one by one.
    let mut lists = Lists::of(pair.routes, arrival, rules);
    let same = |both: &Both| {
        let of = |list: &Vec<u32>, own: &Vec<u32>| -> Vec<Option<u32>> {
            list.iter().map(|at| own.get(*at as usize).copied()).collect()
        };
        let is_same =
            both[0].len() == both[1].len() && of(&both[0], &identities[0]) == of(&both[1], &identities[1]);
        // An unconditional route at the end leaves nothing to the end of the list.
        is_same && (!ends_differ || both[0].is_empty() && both[1].is_empty())
    };
    let mut budget = Budget { n_steps: findings.budget.n_steps, ..Budget::default() };
    let walked = lists.walk(arrival, &relevant, &mut budget, same);
    findings.budget.n_steps = budget.n_steps;
    for why in walked.undecided {
        findings.sampled = true;
        findings.leave(&pair.about, why);
    }
    let mut known: HashMap<(usize, Vec<u32>), Option<Shares>> = HashMap::new();
    for part in walked.parts {
        let sides = [0, 1].map(|side: usize| {
            let list = &part.lists[side];
            let routes = || list.iter().filter_map(|at| pair.routes[side].get(*at as usize));
            let compute = || shares(routes(), pair.ends[side], arrival.semantics);
            known.entry((side, list.clone())).or_insert_with(compute).clone()
        });
        judge(pair, part, sides, findings);
    }
}

/// What a part is: another destination, another treatment, or nothing.
fn judge(pair: &Pair<'_>, part: Part, sides: [Option<Shares>; 2], findings: &mut Findings) {
    let [Some(from), Some(to)] = sides else {
        findings.leave(&pair.about, "shares that are too fine to be exact");
        return;
    };
    let found = |kind, what, share| Found {
        kind,
        what,
        cluster: None,
        example: Some(part.example.clone()),
        shares: None,
        share,
        when: part.when.clone(),
        parts: part.n,
        about: pair.about.clone(),
        is_linked: part.is_linked,
    };
    if from != to {
        let share = moved(&from, &to);
        let one = found(ClassKind::Destination, Vec::new(), share);
        findings.found.push(Found { shares: Some([from, to]), ..one });
        return;
    }
    let routes = [0, 1].map(|side: usize| {
        let all = part.lists[side].iter().filter_map(|at| pair.routes[side].get(*at as usize));
        all.filter(|route| !route.is_end).collect::<Vec<_>>()
    });
    let settings = match routes[0].len() == routes[1].len() {
        true => routes[0].iter().zip(&routes[1]).flat_map(|(old, new)| treatment(old, new)).collect(),
        false => match (routes[0].first(), routes[1].first()) {
            (Some(old), Some(new)) => treatment(old, new),
            _ => Vec::new(),
        },
    };
    if !settings.is_empty() {
        let one = found(ClassKind::Treatment, distinct(settings), Ratio::ONE);
        findings.found.push(Found { shares: Some([from, to]), ..one });
    }
}

/// Gives equal routes the same number. Names do not count.
fn identities(routes: [&[Route]; 2]) -> Identities {
    type Known<'m> = (u32, proto::Route, (Vec<(&'m str, String)>, bool));
    let mut known: HashMap<u64, Vec<Known<'_>>> = HashMap::new();
    let mut next = 0;
    routes.map(|routes| {
        let mut numbers = Vec::with_capacity(routes.len());
        for route in routes {
            let bare = proto::Route { name: String::new(), ..route.message.clone() };
            let place = route.place_in_tree();
            let mut hasher = DefaultHasher::new();
            (format!("{:?}", bare.r#match), &place).hash(&mut hasher);
            let alike = known.entry(hasher.finish()).or_default();
            let same = alike.iter().find(|(_, own, at)| *own == bare && *at == place);
            let number = same.map(|(number, ..)| *number).unwrap_or_else(|| {
                next += 1;
                alike.push((next, bare, place));
                next
            });
            numbers.push(number);
        }
        numbers
    })
}

/// The routes that are not on the other side, or not in the same order. A request that meets none of them finds the same routes.
fn changed(identities: &Identities) -> Both {
    let [old, new] = identities;
    let n_head = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let rest = |all: &[u32]| all.get(n_head..).unwrap_or_default().to_vec();
    let (old, new) = (rest(old), rest(new));
    let n_tail = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let middle = |all: &[u32]| all.get(..all.len() - n_tail).unwrap_or_default().to_vec();
    let (old, new) = (middle(&old), middle(&new));
    let (kept_old, kept_new) = common(&old, &new);
    let of = |kept: &[bool]| {
        (0..).zip(kept).filter(|(_, kept)| !**kept).map(|(at, _): (u32, _)| at + n_head as u32).collect()
    };
    [of(&kept_old), of(&kept_new)]
}

/// A longest common subsequence: which elements of both lists are in it. Lists that are too long have nothing in common.
fn common(old: &[u32], new: &[u32]) -> (Vec<bool>, Vec<bool>) {
    let (mut kept_old, mut kept_new) = (vec![false; old.len()], vec![false; new.len()]);
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > MAX_CELLS {
        return (kept_old, kept_new);
    }
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    for (i, one) in old.iter().enumerate().rev() {
        for (j, other) in new.iter().enumerate().rev() {
            lengths[i * width + j] = match one == other {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            (kept_old[i], kept_new[j]) = (true, true);
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    (kept_old, kept_new)
}

/// Cells of the table of a longest common subsequence.
const MAX_CELLS: usize = 4_000_000;
