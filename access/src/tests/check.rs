//! Doubts about policies.

use serde_json::json;
use xds_cache::identity::{Identity, SpiffePattern, SubjectPattern, TokenPattern};
use xds_cache::{GroupName, NodeGroup};
use xds_codec::Place;

use super::{Signer, now, policy};
use crate::check::{Served, check};

fn group(name: &str, subjects: Vec<SubjectPattern>) -> NodeGroup {
    let identities =
        if subjects.is_empty() { vec![] } else { vec![Identity::new(subjects, vec![]).unwrap()] };
    let name = GroupName::new(name).unwrap();
    NodeGroup { identities: identities.into(), ..NodeGroup::for_node_id(name) }
}

fn token(issuer: &str) -> SubjectPattern {
    SubjectPattern::Token(TokenPattern { issuer: issuer.into(), subject: Some("a".into()), claims: vec![] })
}

/// The doubts beside the groups `default`, `edge-eu` and these, and the namespaces `shop` and `default`.
fn doubts(yaml: &str, more: &[NodeGroup]) -> Vec<String> {
    let policy = policy(yaml, &json!({"keys": [Signer::new().key()]})).unwrap();
    let groups = [group("default", vec![]), group("edge-eu", vec![])];
    let place = |group: &NodeGroup| Place { file: format!("{}.yaml", group.name).into(), line: 1, column: 1 };
    let served = Served {
        groups: groups.iter().chain(more).map(|group| (group, place(group))).collect(),
        namespaces: ["shop", "default"].into(),
    };
    check(&policy, &served, now()).iter().map(ToString::to_string).collect()
}

const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn names_of_a_scope_must_be_there() {
    let yaml = format!(
        "principals:\n- name: ci\n  role: operator\n  groups: [\"edge-*\", \"egde-*\"]\n  namespaces: [shop, shopp, \"-\"]\n  \
         tokens: [{{ sha256: \"{HASH}\" }}]\n"
    );
    assert_eq!(
        doubts(&yaml, &[]),
        [
            "access.yaml:4:22: warning[unknown-group] principals[0].groups[1]: no node group matches \"egde-*\"; there are \
             \"default\", \"edge-eu\"; did you mean `edge-eu`?",
            "access.yaml:5:22: warning[unknown-namespace] principals[0].namespaces[1]: no namespace matches \"shopp\"; there are \
             \"default\", \"shop\", \"-\"; did you mean `shop`?",
        ]
    );
}

#[test]
fn credentials_without_effect_are_reported_with_the_one_that_decides() {
    let yaml = format!(
        r#"issuers:
- {{ name: corp, issuer: "https://i.example", audiences: [x], jwksFile: jwks.json }}
principals:
- {{ name: mon, role: viewer, certificates: [{{ spiffe: "spiffe://a.org/mon/*" }}, {{ cn: old }}] }}
- {{ name: all, role: viewer, certificates: [{{ spiffe: "spiffe://a.org/**" }}] }}
- {{ name: prom, role: operator, certificates: [{{ spiffe: "spiffe://a.org/mon/prom" }}, {{ cn: old }}, {{ dns: "x.*.com" }}] }}
- {{ name: web, role: operator, certificates: [{{ dns: "*.a.com" }}, {{ spiffe: "spiffe://b.org/web" }}] }}
- {{ name: staff, role: viewer, jwt: [{{ issuer: corp, claims: {{ /groups: staff }} }}] }}
- {{ name: boss, role: admin, jwt: [{{ issuer: corp, claims: {{ /groups: boss }} }}] }}
- {{ name: guest, role: viewer, jwt: [{{ issuer: corp, claims: {{ /groups: guest }} }}] }}
- {{ name: ada, role: admin, tokens: [{{ sha256: "{HASH}", expires: 2026-01-01T00:00:00Z }}] }}
denied:
- {{ spiffe: "spiffe://b.org/**" }}
"#
    );
    assert_eq!(
        doubts(&yaml, &[]),
        [
            "access.yaml:6:48: warning[unreachable-credential] principals[2].certificates[0]: spiffe://a.org/mon/prom can never be \
             used: everyone whom it matches is the principal mon before, by principals[0].certificates[0] with \
             spiffe://a.org/mon/*; put prom before mon, or make the pattern of mon narrower (see access.yaml:4:45)",
            "access.yaml:6:87: warning[unreachable-credential] principals[2].certificates[1]: cn:old can never be used: everyone \
             whom it matches is the principal mon before, by principals[0].certificates[1] with cn:old; put prom before mon, or \
             make the pattern of mon narrower (see access.yaml:4:81)",
            "access.yaml:7:47: warning[overlapping-principals] principals[3].certificates[0]: dns:*.a.com overlaps with dns:x.*.com \
             of the principal prom: whoever matches both is prom, who stands first, and never web; make one of them narrower (see access.yaml:6:100)",
            "access.yaml:7:67: warning[denied-credential] principals[3].certificates[1]: spiffe://b.org/web can never be used: \
             denied[0] denies everyone whom it matches (see access.yaml:13:3)",
            "access.yaml:9:36: warning[overlapping-principals] principals[5].jwt[0]: jwt:corp /groups=boss overlaps with jwt:corp \
             /groups=staff of the principal staff: whoever matches both is staff, who stands first, and never boss; make one of \
             them narrower (see access.yaml:8:38)",
            "access.yaml:11:38: warning[ended-token] principals[7].tokens[0]: the token 9f86d081 ended at \
             2026-01-01T00:00:00.000Z; take it out, or make another one with `xds-server token new`",
        ]
    );
}

#[test]
fn entries_of_groups_that_grant_nothing_stand_at_the_group() {
    let yaml = "issuers:\n- { name: cluster, issuer: \"https://i.example\", audiences: [x], jwksFile: jwks.json }\ndenied:\n- { spiffe: \"spiffe://a.org/old/**\" }\n";
    let old = SubjectPattern::Spiffe(SpiffePattern::new("spiffe://a.org/old/x").unwrap());
    assert_eq!(
        doubts(yaml, &[group("a", vec![token("cluster")]), group("b", vec![token("clutser"), old])]),
        [
            "b.yaml:1:1: warning[unknown-issuer] spec.identities[0].jwt.issuer: the entry of the group b grants nothing: the access \
             policy has no issuer of the name \"clutser\"; it has cluster; did you mean `cluster`?",
            "b.yaml:1:1: warning[denied-identity] spec.identities[0]: the entry of the group b grants nothing: denied[0] of the \
             access policy denies everyone whom spiffe://a.org/old/x matches (see access.yaml:4:3)",
        ]
    );
    assert!(doubts("principals: []", &[group("b", vec![token("x")])])[0].contains("it has no `issuers`"));
}

#[test]
fn a_policy_with_very_many_patterns_is_checked_in_bounded_time() {
    let entry = |n: usize| format!("{{ spiffe: \"spiffe://a.org/*/{n}\" }}");
    let list = |from: usize| (from..from + 4000).map(entry).collect::<Vec<_>>().join(", ");
    let yaml = format!(
        "principals:\n- {{ name: a, role: admin, certificates: [{}] }}\n- {{ name: b, role: admin, certificates: [{}] }}\n",
        list(0),
        list(4000)
    );
    let found = doubts(&yaml, &[]);
    assert!(found.len() == 1 && found[0].contains("info[too-many-patterns]"), "{found:?}");
}
