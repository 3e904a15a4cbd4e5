//! Tests of reading rollouts, and of the messages about wrong ones.

use serde_json::{Value, json};

use super::*;

fn long(fields: &Value) -> Value {
    let mut value = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "greeter", "rule": 0},
        "stable": "v1:80", "canary": "v2:80",
        "steps": [{"setWeight": 5}],
    });
    let (Some(into), Some(from)) = (value.as_object_mut(), fields.as_object()) else { return value };
    for (name, field) in from {
        into.insert(name.clone(), field.clone());
    }
    value
}

fn weights(steps: &[Step]) -> Vec<u32> {
    let shares = steps.iter().filter_map(|step| {
        let Step::SetWeight { weight, .. } = step else { return None };
        Some(weight.hundredths() / 100)
    });
    shares.collect()
}

#[test]
fn every_form_of_a_step_is_read() {
    let spec = RolloutSpec::try_from(long(&json!({
        "steps": [
            {"setHeaderRoute": {"name": "testers", "match": [
                {"headerName": "X-Tester", "headerValue": {"exact": "yes"}},
                {"headerName": "x-team", "headerValue": {"regex": "a|b"}},
                {"headerName": "x-id", "headerValue": {"prefix": "q"}},
            ]}},
            {"setWeight": 5},
            {"pause": {"duration": "10m"}},
            {"pause": {"duration": 90}},
            {"pause": {}},
            {"analysis": {"interval": "10s", "count": 3, "minRequests": 50, "maxErrorRate": "2.5%"}},
            {"setWeight": 12.5, "waitAck": "30s"},
            {"waitAck": 30},
            {"setHeaderRoute": {"name": "testers"}},
        ],
        "autoPromote": false, "maxWeight": 50, "onNack": "abort", "deadline": "1h", "nackTolerance": 10,
        "analysis": {"maxErrorRateOverStable": 1, "prometheus": {"address": "http://p:9090", "query": "up", "min": 1}},
        "webhooks": [{"name": "gate", "type": "confirm-rollout", "url": "http://gate/x", "metadata": {"a": "b"}}],
    })))
    .unwrap();
    assert_eq!(spec.n_steps(), 9);
    assert_eq!(spec.step(3), Some(&Step::Pause { duration: Some(Span::from_millis(90_000)) }));
    let again = serde_json::from_value::<RolloutSpec>(serde_json::to_value(&spec).unwrap()).unwrap();
    assert_eq!(again, spec, "the long form is read as it is written");
}

#[test]
fn the_short_form_stands_for_steps_as_flagger_has_them() {
    let short = |fields: Value| {
        let mut value = long(&fields);
        value.as_object_mut().unwrap().remove("steps");
        RolloutSpec::try_from(value).unwrap()
    };
    let spec = short(json!({"stepWeight": 20, "maxWeight": 50, "interval": "30s", "threshold": 5}));
    assert_eq!(weights(&spec.steps), [20, 40, 60], "it ends at the first that reaches the largest");
    let Some(Step::Analysis(analysis)) = spec.step(1) else { panic!("no analysis after the weight") };
    assert_eq!((analysis.interval, analysis.failure_limit), (Span::from_millis(30_000), 4));
    assert_eq!(serde_json::from_value::<RolloutSpec>(serde_json::to_value(&spec).unwrap()).unwrap(), spec);
    let spec = short(json!({"stepWeights": [1, 5, 50], "stepWeightPromotion": 25}));
    assert_eq!(weights(&spec.steps), [1, 5, 50]);
    assert_eq!(weights(&spec.promotion_steps), [75]);
    assert_eq!(weights(&short(json!({"stepWeight": 10, "maxWeight": 20})).steps), [10, 20]);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let many = vec![json!({"pause": {}}); MAX_STEPS + 1];
    for (fields, pointer, wrong) in [
        (json!({"canary": "v1:80"}), "/canary", "a backend other than the stable one"),
        (json!({"canary": null}), "", "\"canary\" is missing"),
        (json!({"steps": []}), "/steps", "at least one"),
        (json!({"steps": null}), "", "\"steps\" is missing"),
        (json!({"steps": many}), "/steps", "at most 100"),
        (json!({"steps": [{"setWeight": 101}]}), "/steps/0/setWeight", "0 to 100"),
        (json!({"steps": [{"setWeight": -1}]}), "/steps/0/setWeight", "0 to 100"),
        (json!({"steps": [{"setWeight": "5"}]}), "/steps/0/setWeight", "found \"5\""),
        (json!({"steps": [{"setWeight": 0.001}]}), "/steps/0/setWeight", "two decimals"),
        (json!({"steps": [{"setWeight": 60}], "maxWeight": 50}), "/steps/0/setWeight", "more than maxWeight"),
        (json!({"steps": [{}]}), "/steps/0", "a step is one of"),
        (json!({"steps": [{"setWeight": 5, "pause": {}}]}), "/steps/0", "a step does one thing"),
        (json!({"steps": [{"pause": {}, "waitAck": "3s"}]}), "/steps/0", "a step does one thing"),
        (json!({"steps": [{"setWieght": 5}]}), "/steps/0/setWieght", "unknown field"),
        (
            json!({"steps": [{"pause": {"duration": "soon"}}]}),
            "/steps/0/pause/duration",
            "a duration such as",
        ),
        (json!({"steps": [{"pause": {"duration": 0}}]}), "/steps/0/pause/duration", "a duration such as"),
        (json!({"steps": [{"pause": {"duration": "31d"}}]}), "/steps/0/pause/duration", "30d"),
        (json!({"steps": [{"setHeaderRoute": {"name": "a"}}]}), "/steps/0/setHeaderRoute", "no earlier step"),
        (
            json!({"steps": [{"setHeaderRoute": {"name": "a", "match": [{"headerName": ":path", "headerValue": {"exact": "a"}}]}}]}),
            "/steps/0/setHeaderRoute/match/0/headerName",
            "the name of a header",
        ),
        (
            json!({"steps": [{"setHeaderRoute": {"name": "a", "match": [{"headerName": "a", "headerValue": {"regex": "("}}]}}]}),
            "/steps/0/setHeaderRoute/match/0/headerValue/regex",
            "not a regular expression",
        ),
        (json!({"steps": [{"analysis": {"interval": "10ms"}}]}), "/steps/0/analysis/interval", "from 1s"),
        (
            json!({"analysis": {"prometheus": {"address": "http://a@b", "query": "x", "min": 1}}}),
            "/analysis/prometheus/address",
            "user or password",
        ),
        (
            json!({"analysis": {"prometheus": {"address": "http://b", "query": "x"}}}),
            "/analysis/prometheus",
            "min or max",
        ),
        (
            json!({"webhooks": [{"name": "a", "type": "never", "url": "http://a"}]}),
            "/webhooks/0/type",
            "post-rollout",
        ),
        (
            json!({"webhooks": [{"name": "a", "type": "event", "url": "gopher://a"}]}),
            "/webhooks/0/url",
            "a URL such as",
        ),
        (json!({"onNack": "ignore"}), "/onNack", "abort, pause"),
        (json!({"stepWeight": 5}), "/steps", "write one or the other"),
        (json!({"steps": null, "stepWeight": 0}), "/stepWeight", "more than 50 steps"),
        (json!({"steps": null, "stepWeights": [5, 5]}), "/stepWeights", "must rise"),
        (json!({"route": {"kind": "HTTPRoute", "name": "x"}}), "/route", "\"namespace\" is missing"),
        (json!({"color/~": 1}), "/color~1~0", "unknown field"),
    ] {
        let error = RolloutSpec::try_from(long(&fields)).unwrap_err();
        let found = error.faults.iter().any(|fault| fault.pointer == pointer && fault.detail.contains(wrong));
        assert!(found, "{fields}: {error}");
    }
    assert!(RolloutSpec::try_from(json!([])).is_err());
}

#[test]
fn expressions_are_those_that_every_client_takes() {
    for (regex, wrong) in [
        ("(?x)a", "not a regular expression that all clients take: column 1"),
        ("\\p{L}{1,100}", "ends processes of gRPC (js)"),
    ] {
        let matches = json!([{"headerName": "a", "headerValue": {"regex": regex}}]);
        let steps = json!([{"setHeaderRoute": {"name": "a", "match": matches}}]);
        let error = RolloutSpec::try_from(long(&json!({"steps": steps}))).unwrap_err().to_string();
        assert!(error.contains(wrong) && error.contains("/headerValue/regex"), "{error}");
    }
}
