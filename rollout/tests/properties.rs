//! Properties of every rollout and every history: random steps, verbs, ACKs, NACKs, measurements, answers, clocks and crashes.
//!
//! P1: phases follow each other as the table of this file says, and a verb is refused exactly if its table says so. P2: the canary's
//! share is nothing, everything or a step's, and the rest is stable's. P3: an abort sets the weights once, and when it is over all of it
//! is served by stable. P4: a pause that nobody ends is never shorter than it says. P5: a step's weight is left behind only when all
//! clients have ACKed it, or someone said so. P6: with ACKs, good measurements, hooks that say go and someone who resumes, every
//! rollout ends. P7: what a crash lost is asked for again, and doing it twice changes nothing. P8: all of this holds if two drivers with
//! clocks of their own drive one rollout, each from what it knows, and store a state only in place of the one that it was computed from;
//! every change of weights is stored once.
//!
//! `XDS_CASES` (default 256) says how many histories are run, `XDS_SEED` repeats a run that failed.

use std::hash::{BuildHasher as _, RandomState};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use xds_rollout::{RolloutSpec, Verb};

use crate::check::check;
use crate::pair::{Pair, Turn};
use crate::world::World;

/// Another one each time; [`check`] tells it if something fails.
fn any_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Time(i64),
    Acks { acked: u64, nacked: u64 },
    Measured { which: usize, bad: bool, requests: u64 },
    Called { which: usize, goes: bool },
    Verb(Verb),
    Crash { after_ms: i64, loses: bool },
    Twice,
}

const VERBS: [Verb; 6] =
    [Verb::Pause, Verb::Resume, Verb::Promote, Verb::PromoteFull, Verb::Abort, Verb::Retry];

fn happening() -> impl Strategy<Value = Happening> {
    let leap = prop_oneof![
        8 => 0..30_000_i64,
        3 => 30_000..60_000_i64,
        1 => -100_000..0_i64,
        1 => 60_000..100_000_000_i64,
    ];
    let away = prop_oneof![4 => 0..100_000_i64, 1 => -100_000..0_i64];
    prop_oneof![
        8 => leap.prop_map(Happening::Time),
        6 => Just(Happening::Acks { acked: 3, nacked: 0 }),
        3 => (0..5_u64, 0..3_u64).prop_map(|(acked, nacked)| Happening::Acks { acked, nacked }),
        5 => (0..4_usize, prop::bool::weighted(0.2), 0..30_u64)
            .prop_map(|(which, bad, requests)| Happening::Measured { which, bad, requests }),
        5 => (0..4_usize, prop::bool::weighted(0.7)).prop_map(|(which, goes)| Happening::Called { which, goes }),
        // Going on is asked for more often than what ends everything.
        2 => Just(Happening::Verb(Verb::Resume)),
        1 => select(&VERBS).prop_map(Happening::Verb),
        2 => (away, any::<bool>()).prop_map(|(after_ms, loses)| Happening::Crash { after_ms, loses }),
        1 => Just(Happening::Twice),
    ]
}

fn step() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..=100_u32).prop_map(|weight| json!({"setWeight": weight})),
        1 => (0..=100_u32).prop_map(|weight| json!({"setWeight": weight, "waitAck": "20s"})),
        3 => (1..200_u32).prop_map(|seconds| json!({"pause": {"duration": seconds}})),
        1 => Just(json!({"pause": {}})),
        2 => (1..60_u32, 1..3_u32, 0..3_u32).prop_map(|(interval, count, limit)| json!({"analysis": {
            "interval": interval, "count": count, "failureLimit": limit, "minRequests": 10, "inconclusiveLimit": 2,
        }})),
        1 => Just(json!({"waitAck": "15s"})),
        1 => Just(json!({"setHeaderRoute": {
            "name": "t", "match": [{"headerName": "x", "headerValue": {"exact": "y"}}],
        }})),
    ]
}

fn rollout() -> impl Strategy<Value = Value> {
    let hook = select(vec![
        "confirm-rollout",
        "pre-rollout",
        "rollout",
        "confirm-traffic-increase",
        "confirm-promotion",
        "post-rollout",
        "event",
    ]);
    let hook = (hook, 0..2_u32).prop_map(|(kind, retries)| (kind, retries));
    let policies = (any::<bool>(), select(vec!["abort", "pause"]), select(vec!["pause", "abort"]));
    let background = prop::option::weighted(0.3, 1..60_u32);
    let parts = (vec(step(), 1..7), vec(step(), 0..3), vec(hook, 0..3), policies, background);
    parts.prop_map(|(steps, promotion_steps, hooks, (auto, on_nack, on_timeout), background)| {
        let hooks: Vec<Value> = hooks.into_iter().enumerate().map(|(index, (kind, retries))| {
            json!({"name": format!("h{index}"), "type": kind, "url": "http://h", "retries": retries})
        }).collect();
        let analysis = background.map(|interval| json!({"interval": interval, "inconclusiveLimit": 1}));
        json!({
            "route": {"kind": "HTTPRoute", "namespace": "n", "name": "r"}, "stable": "a", "canary": "b",
            "steps": steps, "promotionSteps": promotion_steps, "webhooks": hooks, "autoPromote": auto,
            "onNack": on_nack, "onAckTimeout": on_timeout, "analysis": analysis, "interval": "10s",
        })
    })
}

fn history(document: &Value, happenings: &[Happening]) -> Result<World, String> {
    let spec = RolloutSpec::try_from(document).map_err(|error| error.to_string())?;
    let mut world = World::new(document, spec);
    world.check()?;
    for happening in happenings {
        world.happens(happening)?;
    }
    Ok(world)
}

#[test]
fn every_history_keeps_to_the_plan() {
    check(any_seed(), &(rollout(), vec(happening(), 1..60)), |(document, happenings)| {
        history(&document, &happenings).map(drop)
    });
}

#[test]
fn every_rollout_ends_when_all_goes_well() {
    check(any_seed(), &(rollout(), vec(happening(), 0..30)), |(document, happenings)| {
        let mut world = history(&document, &happenings)?;
        world.go_well()
    });
}

fn turn() -> impl Strategy<Value = Turn> {
    let driver = || 0..2_usize;
    prop_oneof![
        6 => (0..40_000_i64).prop_map(Turn::Time),
        6 => driver().prop_map(Turn::Tick),
        6 => (driver(), prop::bool::weighted(0.7)).prop_map(|(driver, all)| Turn::Acks { driver, all }),
        4 => (driver(), 0..4_usize, prop::bool::weighted(0.2))
            .prop_map(|(driver, which, bad)| Turn::Measured { driver, which, bad }),
        4 => (driver(), 0..4_usize, prop::bool::weighted(0.7))
            .prop_map(|(driver, which, goes)| Turn::Called { driver, which, goes }),
        1 => driver().prop_map(|driver| Turn::Verb { driver, verb: Verb::Resume }),
        1 => (driver(), select(&VERBS)).prop_map(|(driver, verb)| Turn::Verb { driver, verb }),
        4 => driver().prop_map(Turn::TakeIn),
        1 => driver().prop_map(Turn::Crash),
    ]
}

#[test]
fn two_drivers_of_one_rollout_keep_to_the_plan_and_end_it() {
    // Who begins anew trusts the clock of the other one, so clocks differ only if nobody does.
    let skew = prop_oneof![1 => Just(None), 2 => (-3_600_000..3_600_000_i64).prop_map(Some)];
    check(any_seed(), &(rollout(), skew, vec(turn(), 1..80)), |(document, skew, turns)| {
        let spec = RolloutSpec::try_from(&document).map_err(|error| error.to_string())?;
        let mut pair = Pair::new(&document, spec, skew.unwrap_or_default());
        for turn in turns {
            if skew.is_none() || !matches!(turn, Turn::Crash(_)) {
                pair.turn(turn)?;
            }
        }
        pair.go_well()
    });
}

#[test]
fn an_abort_at_any_time_ends_with_everything_at_stable() {
    check(any_seed(), &(rollout(), vec(happening(), 0..50)), |(document, happenings)| {
        let mut world = history(&document, &happenings)?;
        world.abort()
    });
}
