//! Rollouts told one by one: each test is one rule.

use serde_json::{Value, json};
use xds_rollout::{
    AckStatus, Counts, DistributionError, Effect, Input, MAX_TICK_MS, Phase, Rollout, RolloutStatus, Verb,
    file_patch,
};

use crate::story::{START_MS, Story, reading, spec, weights_of};

#[test]
fn a_rule_that_is_taken_ends_the_rollout_and_is_not_set_again() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 20}, {"pause": {}}]}));
    story.acked().give(Input::RuleTaken);
    assert_eq!((story.rollout.phase(), story.rollout.owns_rule()), (Phase::Aborted, false));
    assert!(
        !story.effects.iter().any(|effect| matches!(effect, Effect::SetWeights { .. })),
        "{:?}",
        story.effects
    );
    let told = story.outcome(Input::RuleTaken);
    assert!(!told.is_changed, "once is enough");
    story.give(Input::Restarted);
    assert!(
        !story.effects.iter().any(|effect| matches!(effect, Effect::SetWeights { .. })),
        "{:?}",
        story.effects
    );
}

#[test]
fn a_step_counts_when_all_concerned_clients_have_acked() {
    let mut story = Story::new(json!({}));
    assert_eq!(story.set(), [[95, 5]]);
    story.is(Phase::Progressing, 1);
    story.acks(2, 3, 0).is(Phase::Progressing, 1);
    story.acks(3, 3, 0).is(Phase::Paused, 2);
    story.wait(86_400).is(Phase::Paused, 2);
    story.verb(Verb::Resume).is(Phase::Progressing, 3);
    assert_eq!(story.set(), [[50, 50]]);
    story.acked().is(Phase::Promoting, 4);
    assert_eq!(story.set(), [[0, 100]]);
    assert_eq!(file_patch(&story.rollout), None);
    story.acked().is(Phase::Succeeded, 4);
    assert!(story.effects.contains(&Effect::Finished));
    let patch = file_patch(&story.rollout).expect("it succeeded");
    assert_eq!(
        patch,
        "# HTTPRoute default/greeter: the weights of rule 0\nbackendRefs:\n- name: v1\n  port: 80\n  weight: 0\n- name: v2\n  port: 80\n  weight: 100\n"
    );
}

#[test]
fn acks_of_an_earlier_change_count_nothing() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"setWeight": 10}]}));
    let old = AckStatus { change: story.change(), of: 3, acked: 3, ..AckStatus::default() };
    story.give(Input::Acks(old.clone())).is(Phase::Progressing, 2);
    story.give(Input::Acks(old)).is(Phase::Progressing, 2);
}

#[test]
fn a_nack_pauses_or_aborts_as_the_policy_says_and_a_tolerated_one_does_nothing() {
    let mut story = Story::new(json!({}));
    story.acks(2, 3, 1).is(Phase::Paused, 1);
    assert!(story.set().is_empty());
    story.verb(Verb::Resume).acks(2, 3, 1).is(Phase::Paused, 2);

    let mut story = Story::new(json!({"onNack": "abort"}));
    story.acks(2, 3, 1).is(Phase::Aborting, 1);
    assert_eq!(story.set(), [[100, 0]]);
    story.acked().is(Phase::Failed, 1);

    let mut story = Story::new(json!({"onNack": "abort", "nackTolerance": 10}));
    story.acks(90, 100, 9).is(Phase::Progressing, 1);
    story.acks(90, 100, 10).is(Phase::Paused, 2);
    story.acks(89, 100, 11).is(Phase::Aborting, 2);
}

#[test]
fn acks_that_do_not_come_in_time_pause_abort_or_count() {
    for (policy, phase, step) in
        [("pause", Phase::Paused, 1), ("abort", Phase::Aborting, 1), ("continue", Phase::Progressing, 2)]
    {
        let steps = json!([{"setWeight": 5, "waitAck": "30s"}, {"setWeight": 10}]);
        let mut story = Story::new(json!({"steps": steps, "onAckTimeout": policy}));
        story.acks(2, 3, 0).wait(29).is(Phase::Progressing, 1);
        story.wait(1).is(phase, step);
        if policy == "pause" {
            story.verb(Verb::Resume).is(Phase::Progressing, 2);
        }
    }
}

#[test]
fn an_abort_gives_everything_to_stable_in_one_change() {
    let mut story = Story::new(json!({"steps": [
        {"setHeaderRoute": {"name": "t", "match": [{"headerName": "x", "headerValue": {"exact": "y"}}]}},
        {"setWeight": 50},
    ]}));
    story.acked().is(Phase::Progressing, 2);
    story.acked().verb(Verb::Abort).is(Phase::Aborting, 3);
    assert_eq!(story.set(), [[100, 0]]);
    assert!(story.effects.iter().any(
        |effect| matches!(effect, Effect::SetWeights { header_routes, .. } if header_routes.is_empty())
    ));
    story.verb(Verb::Abort).acked().is(Phase::Aborted, 3);
    story.verb(Verb::Abort).is(Phase::Aborted, 3);
    story.verb(Verb::Retry).is(Phase::Progressing, 1);
}

#[test]
fn an_abort_ends_though_a_client_never_answers() {
    let mut story = Story::new(json!({}));
    story.verb(Verb::Abort).wait(300).is(Phase::Aborting, 1);
    story.acks(2, 3, 0).is(Phase::Aborted, 1);
}

#[test]
fn verbs_that_do_not_fit_are_refused_and_change_nothing() {
    let mut story = Story::new(json!({}));
    let refused = |story: &mut Story, verb| {
        let before = story.rollout.clone();
        let error = story.rollout.handle(Input::Verb(verb), story.now_ms + 1).expect_err("refused");
        assert_eq!(story.rollout, before);
        error.to_string()
    };
    assert_eq!(refused(&mut story, Verb::Retry), "a rollout that is Progressing cannot be retried");
    story.verb(Verb::PromoteFull).acked().is(Phase::Succeeded, 4);
    assert_eq!(refused(&mut story, Verb::Abort), "a rollout that is Succeeded cannot be aborted");
    refused(&mut story, Verb::Pause);
    story.verb(Verb::Promote).is(Phase::Succeeded, 4);
}

#[test]
fn a_pause_by_hand_holds_and_a_timed_one_goes_on_by_itself() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"pause": {"duration": "10m"}}]}));
    story.acked().wait(599).is(Phase::Paused, 2);
    story.wait(1).is(Phase::Promoting, 3);
    story.verb(Verb::Pause).acked().is(Phase::Paused, 3);
    story.verb(Verb::Pause).verb(Verb::Resume).is(Phase::Succeeded, 3);
}

#[test]
fn a_clock_that_jumps_neither_ends_a_pause_nor_lengthens_what_is_over() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"pause": {"duration": "10m"}}]}));
    story.acked().wait(300);
    story.now_ms += 86_400_000;
    assert!(story.outcome(Input::Tick).is_changed, "a jump is made durable");
    story.is(Phase::Paused, 2);
    story.now_ms -= 172_800_000;
    story.give(Input::Tick).is(Phase::Paused, 2);
    let left = 300 - MAX_TICK_MS / 1_000;
    story.wait(left - 1).is(Phase::Paused, 2);
    story.wait(1).is(Phase::Promoting, 3);
}

#[test]
fn waiting_is_nothing_to_store_however_much_is_asked_and_measured_meanwhile() {
    let hook = |name: &str, kind: &str| json!({"name": name, "type": kind, "url": format!("http://{name}/")});
    let mut story = Story::new(json!({
        "steps": [{"setWeight": 5}, {"pause": {}}],
        "analysis": {"interval": "10s", "minRequests": 10, "inconclusiveLimit": 1},
        "webhooks": [hook("back", "rollback"), hook("check", "rollout"), hook("gate", "confirm-promotion")],
    }));
    // An hour of a pause, then one of a gate that says "not yet".
    for phase in [Phase::Paused, Phase::Promoting] {
        story.acked();
        let (mut n_stored, mut n_measured, mut n_asked) = (0, 0, 0);
        for _ in 0..360 {
            story.now_ms += 10_000;
            let mut inputs = vec![Input::Tick];
            while let Some(input) = inputs.pop() {
                let outcome = story.outcome(input);
                n_stored += u32::from(outcome.is_changed);
                inputs.extend(outcome.effects.into_iter().filter_map(|effect| match effect {
                    Effect::Measure { measurement, .. } => {
                        n_measured += 1;
                        // Every other time there is too little to do.
                        let canary =
                            Counts { requests: if n_measured % 2 == 0 { 5 } else { 1_000 }, failures: 0 };
                        let reading = reading(canary, canary);
                        Some(Input::Measured { measurement, reading })
                    }
                    Effect::CallWebhook { call, url, .. } => {
                        n_asked += 1;
                        let answer = if url == "http://check/" { Ok(()) } else { Err("no".to_owned()) };
                        Some(Input::Called { call, answer })
                    }
                    _ => None,
                }));
            }
        }
        assert_eq!(story.rollout.phase(), phase);
        assert!(n_measured > 200 && n_asked > 200, "{n_measured} measured, {n_asked} asked");
        // The gate is asked, and its answer counts.
        assert!(n_stored <= 2, "{phase:?}: stored {n_stored} times");
        story.verb(Verb::Resume);
    }
}

#[test]
fn a_canary_of_which_every_request_fails_ends_the_rollout_before_the_measurement_is_due() {
    let steps = json!([{"setWeight": 5}, {"pause": {}}]);
    let analysis = json!({"interval": "1h", "failureLimit": 100, "minRequests": 20});
    let mut story = Story::new(json!({"steps": steps, "analysis": analysis}));
    story.acked().wait(2);
    for (canary, said) in [((19, 19), "too few"), ((100, 99), "one is good")] {
        story.measured(canary, (1_000, 0)).is(Phase::Paused, 2);
        assert_eq!(story.rollout.phase(), Phase::Paused, "{said}");
        story.wait(2);
    }
    story.measured((42, 42), (1_000, 0)).is(Phase::Aborting, 2);
    story.acked();
    let status = RolloutStatus::from(&story.rollout);
    let why = "42 of 42 requests of the canary failed; at most 1 % may";
    assert_eq!((status.phase, status.reason.as_deref()), (Phase::Failed, Some(why)));
    assert_eq!(status.message, format!("failed: {why}; stable has all traffic"));
    let figures = status.last_measurement.expect("they stay after the end");
    assert_eq!((figures.canary.requests, figures.canary.failures, figures.stable.requests), (42, 42, 1_000));
    assert_eq!(status.failed_measurements, 0);
    story.verb(Verb::Retry);
    let status = RolloutStatus::from(&story.rollout);
    assert_eq!((status.reason, status.last_measurement), (None, None));
}

#[test]
fn where_stable_fails_as_well_the_canary_is_not_given_up_early() {
    let steps = json!([{"setWeight": 5}, {"pause": {}}]);
    let analysis = json!({"interval": "1h", "maxErrorRateOverStable": 5});
    let mut story = Story::new(json!({"steps": steps, "analysis": analysis}));
    story.acked().wait(2).measured((50, 50), (50, 50)).is(Phase::Paused, 2);
}

#[test]
fn a_restart_goes_on_with_the_same_step_and_its_timers() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"pause": {"duration": "10m"}}]}));
    let restart = |story: &mut Story, away_s: u64| {
        let text = serde_json::to_string(&story.rollout).expect("it is written");
        story.rollout = serde_json::from_str(&text).expect("it is read");
        story.now_ms += away_s * 1_000;
        story.give(Input::Restarted);
    };
    restart(&mut story, 5);
    assert_eq!(story.set(), [[95, 5]], "what was lost is asked for again");
    story.acks(0, 0, 0).is(Phase::Progressing, 1);
    story.wait(10).acked().is(Phase::Paused, 2);
    story.wait(120);
    restart(&mut story, 479);
    story.is(Phase::Paused, 2);
    story.wait(1).is(Phase::Promoting, 3);
}

#[test]
fn a_failing_canary_aborts_by_itself_within_two_intervals() {
    let analysis = json!({"interval": "10s", "maxErrorRate": 1, "minRequests": 100});
    let mut story = Story::new(json!({"analysis": analysis}));
    story.acked().wait(10).measured((50, 50), (1_000, 0)).is(Phase::Paused, 2);
    story.wait(10).measured((100, 20), (2_000, 0)).is(Phase::Aborting, 2);
    assert_eq!(story.set(), [[100, 0]]);
    story.acked().is(Phase::Failed, 2);
}

#[test]
fn a_bad_measurement_that_still_waits_for_a_hook_is_dropped_with_it() {
    let fields = json!({
        "steps": [{"setWeight": 5}, {"analysis": {"interval": "10s", "minRequests": 10}}], "autoPromote": false,
        "webhooks": [{"name": "check", "type": "rollout", "url": "http://h/"}],
    });
    for verb in [Verb::Promote, Verb::PromoteFull, Verb::Abort] {
        let mut story = Story::new(fields.clone());
        story.acked().wait(10).measured((50, 49), (50, 0)).is(Phase::Progressing, 2);
        story.verb(verb);
        match verb {
            Verb::Promote => _ = story.is(Phase::Paused, 3),
            Verb::PromoteFull => assert_eq!(story.set(), [[0, 100]]),
            _ => assert_eq!(story.set(), [[100, 0]]),
        }
        let n_aborts = story.rollout.events().filter(|event| event.message.starts_with("aborting")).count();
        assert_eq!(n_aborts, usize::from(verb == Verb::Abort), "{verb:?}");
        if verb == Verb::Abort {
            story.acked().is(Phase::Aborted, 2);
        }
    }
}

#[test]
fn the_short_form_waits_for_a_good_measurement_and_aborts_at_the_threshold() {
    let mut fields = json!({"stepWeight": 50, "interval": "10s", "threshold": 2});
    fields["steps"] = Value::Null;
    let mut story = Story::new(fields);
    story.acked().is(Phase::Progressing, 2);
    story.wait(10).measured((100, 50), (0, 0)).is(Phase::Progressing, 2);
    story.wait(10).measured((100, 1), (0, 0)).is(Phase::Progressing, 3);
    story.acked().wait(10).measured((100, 2), (0, 0)).is(Phase::Aborting, 4);
}

#[test]
fn too_little_to_judge_by_pauses_and_counts_on() {
    let steps = json!([{"setWeight": 5}, {"analysis": {"interval": "10s", "minRequests": 9, "inconclusiveLimit": 1}}]);
    let mut story = Story::new(json!({"steps": steps}));
    story.acked().wait(10).measured((1, 1), (0, 0)).is(Phase::Progressing, 2);
    story.wait(10).measured((2, 2), (0, 0)).is(Phase::Paused, 2);
    let since = |story: &Story| {
        let since = story.effects.iter().find_map(|effect| match effect {
            Effect::Measure { since_ms, .. } => Some(*since_ms),
            _ => None,
        });
        since.expect("a measurement is wanted")
    };
    story.verb(Verb::Resume).is(Phase::Progressing, 2);
    story.wait(10);
    assert_eq!(since(&story), START_MS, "the window has grown");
    story.measured((9, 0), (0, 0)).is(Phase::Promoting, 3);
}

#[test]
fn gates_are_asked_until_they_say_go() {
    let hook = |kind: &str| json!({"name": kind, "type": kind, "url": format!("http://h/{kind}")});
    let kinds =
        ["confirm-rollout", "pre-rollout", "confirm-traffic-increase", "confirm-promotion", "post-rollout"];
    let hooks: Vec<Value> = kinds.into_iter().map(hook).collect();
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}], "webhooks": hooks, "interval": "20s"}));
    let asked = |story: &Story, kind: &str| {
        let calls = story.calls();
        let (call, url) = calls.first().expect("a hook is called");
        assert_eq!(*url, format!("http://h/{kind}"));
        *call
    };
    story.is(Phase::Pending, 1);
    assert_eq!(story.set(), [[100, 0]], "until then stable has everything");
    let call = asked(&story, "confirm-rollout");
    story.give(Input::Called { call, answer: Err("403".to_owned()) }).is(Phase::Pending, 1);
    let call = asked(story.wait(20), "confirm-rollout");
    story.give(Input::Called { call, answer: Ok(()) }).is(Phase::Pending, 1);
    let call = asked(&story, "pre-rollout");
    story.give(Input::Called { call, answer: Ok(()) }).is(Phase::Progressing, 1);
    let call = asked(&story, "confirm-traffic-increase");
    story.give(Input::Called { call, answer: Ok(()) });
    assert_eq!(story.set(), [[95, 5]]);
    let call = asked(story.acked().is_still(Phase::Promoting), "confirm-promotion");
    story.give(Input::Called { call, answer: Ok(()) });
    let call = asked(story.acked().is_still(Phase::Succeeded), "post-rollout");
    assert!(!story.effects.contains(&Effect::Finished));
    story.give(Input::Called { call, answer: Ok(()) });
    assert!(story.effects.contains(&Effect::Finished));
}

impl Story {
    fn is_still(&self, phase: Phase) -> &Self {
        assert_eq!(self.rollout.phase(), phase);
        self
    }
}

#[test]
fn a_hook_that_hangs_fails_and_one_of_type_rollback_aborts() {
    let hook = |kind: &str| json!([{"name": "h", "type": kind, "url": "http://h", "timeout": "1s"}]);
    let mut story = Story::new(json!({"webhooks": hook("pre-rollout")}));
    story.wait(60).is(Phase::Aborting, 1);
    let mut story = Story::new(json!({"webhooks": hook("rollback"), "interval": "10s"}));
    story.acked().wait(1);
    let call = story.wait(20).calls().last().expect("it is asked").0;
    story.give(Input::Called { call, answer: Ok(()) }).is(Phase::Aborting, 2);
}

#[test]
fn promotion_waits_for_a_person_if_told_to_and_a_deadline_ends_the_waiting() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}], "autoPromote": false, "deadline": "1h"}));
    story.acked().is(Phase::Paused, 2);
    let mut promoted = Story { rollout: story.rollout.clone(), now_ms: story.now_ms, effects: vec![] };
    promoted.verb(Verb::Promote).is(Phase::Promoting, 2);
    story.wait(3_599).is(Phase::Paused, 2);
    story.wait(1).is(Phase::Aborting, 2);
}

#[test]
fn other_backends_keep_their_share_and_weights_are_whole() {
    let story = Story::on(&[("v1:80", 1), ("v2:80", 0), ("v3:80", 1)], json!({}));
    assert_eq!(story.set(), [[95, 5, 100]]);
    let story = Story::on(&[("v1:80", 30), ("v2:80", 0)], json!({"steps": [{"setWeight": 12.5}]}));
    assert_eq!(story.set(), [[26_250, 3_750]]);
    let mut story = Story::on(&[("v1:80", 90), ("v2:80", 10)], json!({}));
    story.verb(Verb::Abort);
    assert_eq!(story.set(), [[100, 0]]);
}

#[test]
fn a_rule_that_cannot_be_moved_is_refused() {
    let start = |weights: &[(&str, u32)], fields| {
        Rollout::start("r".to_owned(), spec(fields), &weights_of(weights), 0).expect_err("refused")
    };
    let unknown = start(&[("v1:80", 1)], json!({}));
    assert_eq!(unknown.to_string(), "the rule has no backend \"v2:80\"; it has v1:80");
    let nothing = start(&[("v1:80", 0), ("v2:80", 0), ("v3:80", 9)], json!({}));
    assert_eq!(nothing, DistributionError::NothingToMove);
    let large = start(&[("v1:80", 999_999), ("v2:80", 0)], json!({}));
    assert_eq!(large, DistributionError::TooLarge);
}

#[test]
fn a_rule_that_changes_meanwhile_is_followed_or_ends_the_rollout() {
    let change = |weights: &[(&str, u32)]| Input::RuleChanged(Some(weights_of(weights)));
    let mut story = Story::new(json!({}));
    story.give(change(&[("v1:80", 100), ("v2:80", 0), ("v3:80", 7)]));
    assert_eq!(story.set(), [[95, 5, 7]]);
    story.give(change(&[("v1:80", 100), ("v3:80", 7)])).is(Phase::Aborting, 1);
    assert_eq!(story.set(), [[100, 7]], "stable has everything, and the canary is not named");
    let mut story = Story::new(json!({}));
    story.give(change(&[("v2:80", 100)])).is(Phase::Failed, 1);
    let mut story = Story::new(json!({}));
    story.give(Input::RuleChanged(None)).is(Phase::Failed, 1);
    assert!(story.set().is_empty() && story.effects.contains(&Effect::Finished));
}

#[test]
fn acks_and_time_alone_need_not_be_made_durable() {
    let mut story = Story::new(json!({}));
    story.now_ms += 1_000;
    assert!(!story.outcome(Input::Tick).is_changed);
    let change = story.change();
    let status = AckStatus { change, of: 3, acked: 1, ..AckStatus::default() };
    assert!(!story.outcome(Input::Acks(status)).is_changed);
}

fn calls(effects: &[Effect]) -> Vec<u64> {
    let call = |effect: &Effect| match effect {
        Effect::CallWebhook { call, .. } => Some(*call),
        _ => None,
    };
    effects.iter().filter_map(call).collect()
}

#[test]
fn the_answer_to_a_call_for_one_step_does_not_count_for_that_of_another_driver_for_a_later_step() {
    let hook = json!({"name": "h", "type": "confirm-traffic-increase", "url": "http://h"});
    let steps = json!([{"setWeight": 5}, {"setWeight": 10}, {"setWeight": 15}]);
    let mut one = Story::new(json!({"steps": steps, "webhooks": [hook]}));
    let first = calls(&one.effects);
    assert_eq!(first.len(), 1);
    // The other driver takes the first state, gets its answer and goes on to the second step.
    let (taken, outcome) = Rollout::taken(&one.rollout, None, one.now_ms);
    let mut other = Story { rollout: taken, now_ms: one.now_ms, effects: outcome.effects };
    let call = calls(&other.effects)[0];
    other.give(Input::Called { call, answer: Ok(()) }).acked();
    assert_eq!(calls(&other.effects).len(), 1, "the second step asks, too");
    // This one takes that, with its own call for the first step still out.
    let (taken, outcome) = Rollout::taken(&other.rollout, Some(&one.rollout), one.now_ms);
    assert!(!outcome.is_changed);
    let second = calls(&outcome.effects);
    one.rollout = taken;
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    assert!(!one.outcome(Input::Called { call: first[0], answer: Ok(()) }).is_changed, "it is an old one");
    assert!(one.set().is_empty());
    assert!(one.outcome(Input::Called { call: second[0], answer: Ok(()) }).is_changed);
    assert_eq!(one.set(), [[90, 10]]);
}

#[test]
fn a_call_that_is_out_is_not_repeated_for_another_driver_s_state_of_the_same_step() {
    let hook = json!({"name": "h", "type": "confirm-traffic-increase", "url": "http://h"});
    let mut one = Story::new(json!({"steps": [{"setWeight": 5}], "webhooks": [hook]}));
    let first = calls(&one.effects);
    let (taken, outcome) = Rollout::taken(&one.rollout, None, one.now_ms);
    let mut other = Story { rollout: taken, now_ms: one.now_ms, effects: outcome.effects };
    other.verb(Verb::Pause);
    let (taken, outcome) = Rollout::taken(&other.rollout, Some(&one.rollout), one.now_ms);
    assert_eq!(calls(&outcome.effects), [0; 0]);
    one.rollout = taken;
    one.give(Input::Called { call: first[0], answer: Ok(()) }).is(Phase::Paused, 1);
    one.verb(Verb::Resume);
    assert_eq!(one.set(), [[95, 5]]);
}

#[test]
fn a_step_that_no_client_has_is_not_passed_and_a_rollout_without_clients_does_not_succeed() {
    for policy in ["pause", "continue"] {
        let mut story = Story::new(json!({"steps": [{"setWeight": 5}], "onAckTimeout": policy}));
        story.acks(0, 0, 0).is(Phase::Progressing, 1);
        story.wait(300).is(Phase::Paused, 1);
    }
    // All are gone in the middle of it.
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"pause": {"duration": "1m"}}]}));
    story.acked().wait(60).acks(0, 0, 0).is(Phase::Promoting, 3);
    // Nobody has to take anything back.
    story.verb(Verb::Abort).acks(0, 0, 0).is(Phase::Aborted, 3);
}

#[test]
fn a_timed_pause_does_not_promote_a_canary_of_which_nothing_is_known() {
    let steps = json!([{"setWeight": 5}, {"pause": {"duration": "90s"}}]);
    let mut story =
        Story::new(json!({"steps": steps, "analysis": {"interval": "30s", "inconclusiveLimit": 100}}));
    story.acked().wait(30).measured((0, 0), (100, 0)).wait(60);
    story.measured((0, 0), (100, 0)).is(Phase::Paused, 2);
    story.wait(30).measured((10, 0), (100, 0)).is(Phase::Promoting, 3);
}

#[test]
fn clients_that_go_with_a_change_pause_it_and_single_ones_of_many_do_not() {
    let gone = |story: &mut Story, n_gone, of| {
        let status = AckStatus { change: story.change(), of, acked: of, n_gone, ..AckStatus::default() };
        story.give(Input::Acks(status));
    };
    let mut story = Story::new(json!({}));
    story.acked();
    gone(&mut story, 1, 2);
    story.is(Phase::Paused, 2);
    assert!(
        RolloutStatus::from(&story.rollout).message.contains("1 of 3 clients have gone since the change")
    );
    story.verb(Verb::Resume);
    gone(&mut story, 1, 2);
    assert!(!story.rollout.is_held(), "someone has seen it");
    let mut story = Story::new(json!({}));
    story.acks(20, 20, 0);
    gone(&mut story, 1, 19);
    assert!(!story.rollout.is_held());
    gone(&mut story, 2, 18);
    assert!(story.rollout.is_held());
}

#[test]
fn a_canary_without_an_endpoint_is_taken_back_at_once_and_gets_nothing_as_long_as_it_has_none() {
    let why = || Input::NoEndpoint(Some("the canary has no ready endpoint".to_owned()));
    let mut story = Story::new(json!({}));
    story.acked().give(why()).is(Phase::Aborting, 2);
    assert_eq!(story.set(), [[100, 0]]);
    story.acked().verb(Verb::Retry).is(Phase::Aborting, 1);
    story.acked().give(Input::NoEndpoint(None)).verb(Verb::Retry).is(Phase::Progressing, 1);
    // While it has no traffic, a webhook may still wait for its endpoints.
    let hook = json!([{"name": "h", "type": "confirm-rollout", "url": "http://h"}]);
    let mut story = Story::new(json!({"webhooks": hook}));
    story.give(why()).is(Phase::Pending, 1);
    let again = story.outcome(why());
    assert!(!again.is_changed, "nothing to store");
}

/// The state of a rollout as a server of the release before wrote it.
#[test]
fn records_of_earlier_releases_still_open() {
    let mut story = Story::new(json!({"steps": [{"setWeight": 5}, {"analysis": {}}]}));
    story.acked();
    let mut record = serde_json::to_value(&story.rollout).expect("it is written");
    let fields = record.as_object_mut().expect("an object");
    for name in ["began_ms", "no_endpoint", "n_looks", "n_measured"] {
        assert!(fields.remove(name).is_some(), "{name}");
    }
    for (part, names) in [
        ("acks", &["n_gone", "n_gone_forgiven", "by_all_since_ms"][..]),
        ("run", &["is_confirming"]),
        ("spec", &["onInconclusive"]),
    ] {
        let fields = fields[part].as_object_mut().expect("an object");
        for name in names {
            assert!(fields.remove(*name).is_some(), "{name}");
        }
    }
    let read: Rollout = serde_json::from_value(record).expect("it is read");
    assert_eq!(read.phase(), Phase::Progressing);
}
