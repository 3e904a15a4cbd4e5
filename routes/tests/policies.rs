//! Policies that are not supported: the conditions of their targets, and what is kept of them.

use std::fmt::Write as _;

use xds_routes::{DocumentKey, Kind, Options, Translation};

use crate::support::{Reading, conditions_text};

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: x, listeners: [{name: http, port: 80, protocol: HTTP}, {name: alt, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, labels: {app: shop}}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
";

fn policy(kind: &str, name: &str, targets: &str) -> String {
    format!(
        "---\napiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{targets}, key: hunter2}}\n"
    )
}

fn affected(translation: &Translation) -> Vec<String> {
    let text = conditions_text(translation);
    text.lines().filter(|line| line.contains("PolicyAffected")).map(str::to_owned).collect()
}

#[test]
fn what_a_policy_targets_has_a_condition_that_it_is_served_without_it() {
    let text = ROUTE.to_owned()
        + &policy(
            "Limit",
            "a",
            "targetRefs: [{kind: Gateway, name: edge, sectionName: alt}, {kind: Service, name: shop}]",
        )
        + &policy("Limit", "b", "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}")
        + &policy("Auth", "b", "targetSelectors: [{kind: HTTPRoute, matchLabels: {app: shop}}]");
    let reading = Reading::of("a.yaml", &text);
    assert!(reading.diagnostics.is_empty(), "{:?}", reading.diagnostics);
    let translation = reading.translate(&Options::default());
    let condition = "xds-server.io/PolicyAffected=False UnsupportedPolicy";
    assert_eq!(
        affected(&translation),
        [
            format!(
                "Gateway default/edge [listener alt, 1 routes]: {condition}: Limit default/a is not supported: requests are \
                 served as if there were none"
            ),
            format!(
                "HTTPRoute default/shop [Gateway default/edge]: {condition}: Auth default/b, Limit default/b are not \
                 supported: requests are served as if there were none"
            ),
            format!(
                "Service default/shop: {condition}: Limit default/a is not supported: requests are served as if there were none"
            ),
        ]
    );
    let without = Reading::of("a.yaml", ROUTE).translate(&Options::default());
    let served = |translation: &Translation| format!("{:?}", translation.groups);
    assert_eq!(served(&translation), served(&without), "nothing that is served changes");
}

#[test]
fn policies_of_two_kinds_are_two_objects_and_nothing_but_their_targets_is_kept() {
    let target = "targetRef: {kind: Gateway, name: edge}";
    let reading = Reading::of("a.yaml", &(policy("Limit", "a", target) + &policy("Auth", "a", target)));
    let keys: Vec<String> = reading.documents.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["Policy default/Auth.example.com:a", "Policy default/Limit.example.com:a"]);
    let placed = &reading.documents[&DocumentKey::new(Kind::Policy, "default", "Auth.example.com:a")];
    assert_eq!(
        placed.document.source.text(),
        "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Auth\",\"metadata\":{\"name\":\"a\"},\
         \"spec\":{\"targetRef\":{\"kind\":\"Gateway\",\"name\":\"edge\"}}}"
    );
    let again = Reading::of("a.yaml", placed.document.source.text());
    assert_eq!(again.documents[&placed.document.key].document.source, placed.document.source);
}

/// Every policy has sixteen targets, by name or by labels, and every target hundreds of policies.
#[test]
fn hundreds_of_policies_are_told_in_short_texts() {
    let n = 100;
    let mut text = ROUTE.to_owned();
    for at in 0..n {
        let _ = write!(
            text,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{at}, labels: {{app: shop}}}}\n\
             spec: {{parentRefs: [{{name: edge}}], hostnames: [h{at}.example.com], rules: [{{backendRefs: [{{name: shop, port: 80}}]}}]}}\n"
        );
    }
    for at in 0..5 * n {
        let target = |one: usize| format!("{{kind: HTTPRoute, name: r{}}}", (at * 7 + one) % n);
        let targets: Vec<String> = (0..15).map(target).collect();
        let selector = format!(
            "targetSelectors: [{{kind: HTTPRoute, matchExpressions: [{{key: k{at}, operator: DoesNotExist}}]}}]"
        );
        text +=
            &policy("Limit", &format!("p{at}"), &format!("targetRefs: [{}], {selector}", targets.join(", ")));
    }
    let translation = Reading::of("a.yaml", &text).translate(&Options::default());
    let longest = affected(&translation).iter().map(String::len).max();
    assert!(longest < Some(300), "{longest:?}");
    assert_eq!(translation.diagnostics.iter().filter(|one| one.code == "unsupported-policy").count(), 5 * n);
}
