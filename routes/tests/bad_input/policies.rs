//! Policies that are not supported: a warning where they target something that is served, else a note.

use super::{check, route};

/// A policy in front of the route `bad`, its Gateway and its Service.
fn policy(kind: &str, spec: &str) -> String {
    let policy = format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: {kind}\nmetadata: {{name: p}}\nspec: {spec}\n---\n"
    );
    policy + &route("HTTPRoute", "[{name: all, backendRefs: [{name: bad, port: 80}]}]")
}

#[test]
fn policies_for_what_is_served_without_them() {
    let gateway = "group: gateway.networking.k8s.io, kind: Gateway";
    let http_route = "group: gateway.networking.k8s.io, kind: HTTPRoute";
    check(&[
        (
            "a Gateway",
            policy("ClientTrafficPolicy", &format!("{{targetRef: {{{gateway}, name: bad}}}}")),
            &[
                "bad.yaml:4:19: warning[unsupported-policy] spec.targetRef: policies of the kind ClientTrafficPolicy are not \
               supported: Gateway default/bad is served without it",
            ],
        ),
        (
            "a listener",
            policy(
                "ClientTrafficPolicy",
                &format!("{{targetRefs: [{{{gateway}, name: bad, sectionName: http}}]}}"),
            ),
            &[
                "bad.yaml:4:21: warning[unsupported-policy] spec.targetRefs[0]: policies of the kind ClientTrafficPolicy are \
               not supported: listener http of Gateway default/bad is served without it",
            ],
        ),
        (
            "a route, its rule and its Service, which are named only once",
            policy(
                "SecurityPolicy",
                &format!(
                    "\n  targetRefs:\n  - {{{http_route}, name: gone}}\n  - {{{http_route}, name: bad}}\n  \
                     - {{{http_route}, name: bad, sectionName: all}}\n  - {{group: '', kind: Service, name: bad}}\n  \
                     jwt: {{providers: [{{name: x}}]}}"
                ),
            ),
            &[
                "bad.yaml:7:5: warning[unsupported-policy] spec.targetRefs[1]: policies of the kind SecurityPolicy are not \
               supported: HTTPRoute default/bad, Service default/bad are served without it",
            ],
        ),
        (
            "more than a message names",
            policy(
                "BackendTrafficPolicy",
                "{targetRefs: [{kind: Gateway, name: bad}, {kind: HTTPRoute, name: bad}, {kind: Service, name: bad}, \
                 {kind: Service, name: good}, {kind: Gateway, name: good}]}",
            ),
            &[
                "bad.yaml:4:21: warning[unsupported-policy] spec.targetRefs[0]: policies of the kind BackendTrafficPolicy are \
               not supported: Gateway default/bad, Gateway default/good, HTTPRoute default/bad and 2 more are served without it",
            ],
        ),
        (
            "everything with a label",
            policy(
                "SecurityPolicy",
                "{targetSelectors: [{group: gateway.networking.k8s.io, kind: HTTPRoute, matchExpressions: [{key: a, operator: \
                 DoesNotExist}]}]}",
            ),
            &[
                "bad.yaml:4:26: warning[unsupported-policy] spec.targetSelectors[0]: policies of the kind SecurityPolicy are not \
               supported: HTTPRoute default/bad is served without it",
            ],
        ),
    ]);
}

#[test]
fn policies_for_what_is_not_served() {
    let left_out = |kind: &str| {
        format!(
            "bad.yaml:1:1: info[unsupported-kind] the kind \"{kind}\" is not served; the document is left out"
        )
    };
    let security = left_out("SecurityPolicy");
    let said: &[&str] = &[&security];
    let case = |name: &'static str, spec: &str| (name, policy("SecurityPolicy", spec), said);
    check(&[
        case("an object that is not there", "{targetRef: {kind: Gateway, name: gone}}"),
        case("a listener that is not there", "{targetRef: {kind: Gateway, name: bad, sectionName: gone}}"),
        case("a rule that is not there", "{targetRef: {kind: HTTPRoute, name: bad, sectionName: gone}}"),
        case("an object of another namespace", "{targetRef: {kind: Gateway, namespace: far, name: bad}}"),
        case("other labels", "{targetSelectors: [{kind: HTTPRoute, matchLabels: {a: b}}]}"),
    ]);
}

#[test]
fn policies_that_cannot_be_told_from_others() {
    check(&[(
        "a policy without a name",
        policy("SecurityPolicy", "{targetRef: {kind: Gateway, name: bad}}").replacen("{name: p}", "{}", 1),
        &["bad.yaml:3:11: error[missing-field] metadata: the field `name` is missing"],
    )]);
}
