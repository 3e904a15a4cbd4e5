//! Simulated rollouts: what becomes of a canary that fails in one way or another, how soon its weight is 0 again, and that a healthy one is
//! left alone. `XDS_SEED` repeats a run; `--nocapture` shows the table of verdicts.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::{Value, json};
use xds_rollout::Phase;

use crate::simulation::{Answers, Fault, Fleet, Pattern, Scene, Verdict};

/// Other rollouts at every run, unless `XDS_SEED` is set.
fn seed() -> u64 {
    let given = std::env::var("XDS_SEED").ok().map(|seed| seed.parse().expect("XDS_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("XDS_SEED={seed}");
    seed
}

/// 20 % for a minute's measurement, then everything.
fn defaults() -> Value {
    json!({"steps": [{"setWeight": 20}, {"analysis": {"interval": "1m", "minRequests": 10}}]})
}

fn scene(fault: Fault) -> Scene {
    Scene { fault, pattern: Pattern::Steady(20.0), answers: Answers::Ack, report: 10 }
}

const FOREVER: f64 = f64::INFINITY;

#[test]
fn a_canary_that_fails_in_any_way_is_taken_back_in_time() {
    let seed = seed();
    let dead = |from| Fault::Dead { from, until: FOREVER };
    // By the report interval of 10 s and of 1 s: seconds to the weight 0, at most.
    let cases = [
        ("process dead from the start", dead(0.0), [60.0, 25.0]),
        ("process dies after 8 s", dead(8.0), [60.0, 25.0]),
        ("process dies after 50 s, late in the measurement", dead(50.0), [60.0, 25.0]),
        ("endpoints not ready after 8 s", Fault::NotReady { from: 8.0 }, [0.2, 0.2]),
        ("no endpoint from the start", Fault::NotReady { from: 0.0 }, [0.2, 0.2]),
        ("refuses connections after 12 s", Fault::Refuses { from: 12.0 }, [40.0, 10.0]),
        ("hangs from the start", Fault::Hangs { from: 0.0 }, [70.0, 40.0]),
        ("10 % of its requests fail", Fault::Fails(0.1), [65.0, 65.0]),
        ("dead for one of two zones", Fault::OneZone, [100.0, 70.0]),
        ("flaps, 30 s each", Fault::Flaps(30.0), [70.0, 40.0]),
    ];
    let both = [Answers::Ack, Answers::AckLate];
    for ((name, fault, limits), answers) in cases.into_iter().flat_map(|case| both.map(|both| (case, both))) {
        for (report, limit) in [10, 1].into_iter().zip(limits) {
            let scene = Scene { report, answers, ..scene(fault) };
            let verdicts = (0..N_EACH).map(|n| Fleet::new(scene, &defaults(), seed.wrapping_add(n)));
            let verdicts: Vec<Verdict> = verdicts.map(|fleet| fleet.run(1_200)).collect();
            show(name, report, &verdicts);
            for Verdict { phase, back_after, message, .. } in &verdicts {
                let is_back = back_after.is_some_and(|after| after <= limit);
                assert!(
                    *phase == Phase::Failed && is_back,
                    "{name}, {answers:?}, {report} s: {phase:?} {back_after:?} {message}"
                );
            }
        }
    }
}

#[test]
fn a_canary_that_comes_back_is_not_promoted_by_a_measurement_in_which_it_was_dead_at_the_end() {
    let seed = seed();
    for (from, until) in [(20.0, 30.0), (45.0, 70.0), (5.0, 15.0)] {
        for report in [10, 1] {
            let scene = Scene { report, ..scene(Fault::Dead { from, until }) };
            let verdict = Fleet::new(scene, &defaults(), seed).run(1_200);
            show(&format!("dead from {from} s to {until} s"), report, std::slice::from_ref(&verdict));
            assert!(matches!(verdict.phase, Phase::Failed | Phase::Succeeded), "{verdict:?}");
        }
    }
}

#[test]
fn without_requests_or_clients_that_answer_nothing_is_promoted() {
    let seed = seed();
    let quiet = Pattern::Steady(0.0);
    let busy = Pattern::Steady(20.0);
    for (name, pattern, answers, phase) in [
        ("no traffic", quiet, Answers::Ack, Phase::Paused),
        ("no client", quiet, Answers::None, Phase::Paused),
        ("all clients leave after 5 s", busy, Answers::AllLeave(5.0), Phase::Paused),
        ("all clients leave after 40 s", busy, Answers::AllLeave(40.0), Phase::Paused),
        ("one client never ACKs", busy, Answers::OneNever, Phase::Paused),
        ("one client NACKs", busy, Answers::OneNacks, Phase::Paused),
    ] {
        for report in [10, 1] {
            let scene = Scene { pattern, answers, report, ..scene(Fault::Nothing) };
            let verdict = Fleet::new(scene, &defaults(), seed).run(1_200);
            show(name, report, std::slice::from_ref(&verdict));
            assert_eq!(verdict.phase, phase, "{name}: {verdict:?}");
        }
    }
    let abort = json!({"steps": defaults()["steps"], "onInconclusive": "abort"});
    let verdict = Fleet::new(Scene { pattern: quiet, ..scene(Fault::Nothing) }, &abort, seed).run(1_200);
    assert_eq!(verdict.phase, Phase::Failed, "{verdict:?}");
}

#[test]
fn a_timed_pause_does_not_promote_what_the_background_knows_too_little_of() {
    let seed = seed();
    let fields = json!({
        "steps": [{"setWeight": 20}, {"pause": {"duration": "20s"}}], "analysis": {"interval": "30s", "inconclusiveLimit": 3},
    });
    let quiet = Scene { pattern: Pattern::Steady(0.0), ..scene(Fault::Nothing) };
    assert_eq!(Fleet::new(quiet, &fields, seed).run(1_200).phase, Phase::Paused);
    assert_eq!(Fleet::new(scene(Fault::Nothing), &fields, seed).run(1_200).phase, Phase::Succeeded);
}

#[test]
fn a_healthy_canary_is_left_alone_however_its_requests_come() {
    let seed = seed();
    let fields = json!({"steps": [
        {"setWeight": 5}, {"analysis": {"interval": "1m"}},
        {"setWeight": 20}, {"analysis": {"interval": "30s", "count": 2}},
        {"setWeight": 50}, {"pause": {"duration": "20s"}},
    ], "analysis": {"interval": "1m"}});
    let patterns = [
        Pattern::Steady(50.0),
        Pattern::Steady(2.0),
        Pattern::Steady(0.1),
        Pattern::Bursts(400),
        Pattern::Bursts(5),
    ];
    let mut n_aborted = 0;
    for (n, pattern) in (0..N_HEALTHY).zip(patterns.into_iter().cycle()) {
        let report = if n % 4 == 0 { 2 } else { 10 };
        let scene = Scene { pattern, report, ..scene(Fault::Nothing) };
        let verdict = Fleet::new(scene, &fields, seed.wrapping_add(n)).run(2_400);
        let is_busy = matches!(pattern, Pattern::Steady(rate) if rate >= 2.0);
        if verdict.phase == Phase::Failed || is_busy && verdict.phase != Phase::Succeeded {
            println!("{pattern:?}: {verdict:?}");
            n_aborted += 1;
        }
    }
    assert!(n_aborted * 100 <= N_HEALTHY, "{n_aborted} of {N_HEALTHY} healthy canaries were taken back");
}

fn show(name: &str, report: u64, verdicts: &[Verdict]) {
    let mut after: Vec<f64> = verdicts.iter().filter_map(|one| one.back_after).collect();
    after.sort_by(f64::total_cmp);
    let worst = after.last().map_or_else(|| "-".to_owned(), |after| format!("{after:.1} s"));
    let median = after.get(after.len() / 2).map_or_else(|| "-".to_owned(), |after| format!("{after:.1} s"));
    let lost = verdicts.iter().map(|one| one.lost).max().unwrap_or_default();
    let last = verdicts.last();
    let (phase, message) = last.map_or((None, ""), |one| (Some(one.phase), one.message.as_str()));
    println!("{name} | {report} s | {phase:?} | {median} / {worst} | {lost} | {message}");
}

/// How many rollouts are simulated for each fault, and how many healthy ones.
const N_EACH: u64 = 20;
const N_HEALTHY: u64 = 1_000;
