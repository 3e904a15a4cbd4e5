//! Policies as they are written, and whom they recognise.

use serde_json::json;
use xds_cache::identity::{DnsName, Fingerprint, SpiffeId};
use xds_cache::{Proof, Subject};

use super::{NOW, Signer, claims, now, policy};
use crate::{BadToken, Policy, Principal, Role, TokenHash, Unidentified};

const POLICY: &str = r#"
issuers:
- { name: corp, issuer: "https://issuer.example", audiences: [xds-server], jwksFile: jwks.json, leeway: 0s }
principals:
- name: ci
  role: operator
  groups: ["edge*"]
  namespaces: [shop, "-"]
  writesPerMinute: 30
  tokens:
  - { sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", expires: 2027-03-01T00:00:00Z, note: pipeline }
  - { sha256: "60303AE22B998861BCE3B28F33EEC1BE758A213C86C93C076DBE9F558C11C752", expires: 2026-01-01T00:00:00Z }
- { name: prometheus, role: viewer, certificates: [{ spiffe: "spiffe://example.org/ns/mon/sa/*" }, { cn: old }] }
- { name: platform, role: admin, mayActFor: true, jwt: [{ issuer: corp, claims: { /groups: platform-admins } }] }
- { name: everyone, role: viewer, certificates: [{ spiffe: "spiffe://example.org/**" }, { dns: "*.example.com" }] }
denied:
- { spiffe: "spiffe://example.org/ns/mon/sa/bad", reason: INC-42 }
- { certificateSha256: "AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA" }
- { issuer: corp, subject: mallory }
- { issuer: corp, jwtId: stolen }
"#;

fn spiffe(path: &str) -> Proof {
    let id = SpiffeId::new(&format!("spiffe://example.org/{path}")).unwrap();
    Proof { subject: Subject::Spiffe(id), expires: None, certificate: Some(Fingerprint([0xab; 32])) }
}

fn read() -> (Signer, Policy) {
    let signer = Signer::new();
    let policy = policy(POLICY, &json!({"keys": [signer.key()]})).unwrap();
    (signer, policy)
}

/// The principal, the actor and the credential, or the reason why there is none.
fn who(policy: &Policy, proofs: &[Proof], bearer: Option<&str>) -> String {
    match policy.identify(proofs, bearer, now()) {
        Ok(found) => format!("{} {} {}", found.principal.name, found.actor, found.via),
        Err(error) => error.reason().to_owned(),
    }
}

#[test]
fn each_credential_leads_to_its_principal() {
    let (signer, policy) = read();
    let token = |changes| signer.token(&claims(changes));
    let admins = |subject: &str| token(json!({"sub": subject, "groups": ["a", "platform-admins"]}));
    for (proofs, bearer, expected) in [
        (vec![], None, "no-credential"),
        (vec![], Some("test".to_owned()), "ci ci token:9f86d081"),
        (vec![], Some("Test".to_owned()), "bad-credential"),
        (vec![], Some("test2".to_owned()), "bad-credential"),
        (
            vec![],
            Some("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned()),
            "bad-credential",
        ),
        (vec![], Some(String::new()), "bad-credential"),
        (vec![spiffe("ns/mon/sa/prom")], None, "prometheus prometheus certificate:abababab"),
        (vec![spiffe("ns/x")], None, "everyone everyone certificate:abababab"),
        (vec![spiffe("ns/mon/sa/bad")], None, "denied"),
        (vec![spiffe("ns/mon/sa/bad")], Some("test".to_owned()), "denied"),
        (vec![], Some(admins("alice")), "platform platform/alice jwt:corp"),
        (vec![], Some(admins("mallory")), "denied"),
        (vec![], Some(token(json!({"groups": "platform-admins", "jti": "stolen"}))), "denied"),
        (vec![], Some(token(json!({"groups": "platform-admins"}))), "platform platform/alice jwt:corp"),
        (vec![], Some(token(json!({"groups": ["a"]}))), "bad-credential"),
        (vec![], Some(token(json!({"groups": ["platform-admins"], "exp": NOW}))), "bad-credential"),
        // Both, which must agree; a bad one beside a good one counts.
        (vec![spiffe("ns/mon/sa/prom")], Some("test".to_owned()), "bad-credential"),
        (vec![spiffe("ns/mon/sa/prom")], Some("wrong".to_owned()), "bad-credential"),
    ] {
        assert_eq!(who(&policy, &proofs, bearer.as_deref()), expected, "{proofs:?} {bearer:?}");
    }
    let unknown = Proof {
        subject: Subject::Dns(DnsName::new("a.other.com").unwrap()),
        expires: None,
        certificate: None,
    };
    assert_eq!(who(&policy, std::slice::from_ref(&unknown), None), "bad-credential");
    // A certificate that is nobody's is only a way to connect.
    assert_eq!(who(&policy, &[unknown], Some("test")), "ci ci token:9f86d081");
    let by_fingerprint = Proof { certificate: Some(Fingerprint([0xaa; 32])), ..spiffe("ns/x") };
    assert_eq!(who(&policy, &[by_fingerprint], None), "denied");
}

#[test]
fn a_token_that_was_verified_counts_until_it_ends_or_is_not_trusted_any_more() {
    let (signer, policy) = read();
    let token = |changes| policy.verify_bearer(&signer.token(&claims(changes)), now()).unwrap();
    let admin = token(json!({"groups": "platform-admins"}));
    assert_eq!(who(&policy, std::slice::from_ref(&admin), None), "platform platform/alice jwt:corp");
    assert_eq!(who(&policy, &[token(json!({"groups": ["a"]}))], None), "no-credential");
    let denied = token(json!({"groups": "platform-admins", "sub": "mallory"}));
    assert_eq!(who(&policy, &[denied], None), "denied");
    let prometheus = spiffe("ns/mon/sa/prom");
    assert_eq!(who(&policy, &[prometheus.clone(), admin.clone()], None), "bad-credential");
    for over in [now() - std::time::Duration::from_secs(1), now()] {
        let ended = |proof: &Proof| Proof { expires: Some(over), ..proof.clone() };
        assert_eq!(who(&policy, &[ended(&admin)], None), "no-credential");
        assert_eq!(who(&policy, &[ended(&prometheus)], None), "no-credential");
    }
    let other = super::policy(POLICY, &json!({"keys": [Signer::new().key()]})).unwrap();
    assert_eq!(who(&other, &[admin], None), "no-credential", "its key is gone");
}

#[test]
fn refusals_say_why_and_never_what_was_sent() {
    let (_, policy) = read();
    let told = |proofs: &[Proof], bearer| policy.identify(proofs, bearer, now()).unwrap_err().to_string();
    // The second token of ci is that of the text "test2" in other digits: it ended.
    assert_eq!(told(&[], Some("test2")), "bad-credential: the token ended at 2026-01-01T00:00:00.000Z");
    assert_eq!(told(&[], Some("secret-x")), "bad-credential: the token is unknown");
    assert_eq!(
        told(&[], Some("a.b.secret-x")),
        "bad-credential: the token is no JWT: its header is no JSON object in base64url"
    );
    assert_eq!(
        told(&[spiffe("ns/mon/sa/prom")], Some("test")),
        "bad-credential: the certificate is that of prometheus, and the token that of ci; send one of them"
    );
    assert_eq!(told(&[], None), Unidentified::Nothing.to_string());
    assert_eq!(
        Policy::default().verify_bearer("a.b.c", now()).unwrap_err(),
        BadToken::Form("its header is no JSON object in base64url")
    );
}

#[test]
fn a_principal_has_a_role_and_a_scope() {
    let (_, policy) = read();
    let ci = &policy.principals()[0];
    assert_eq!((ci.role, ci.writes_per_minute, ci.may_act_for), (Role::Operator, Some(30), false));
    assert!(ci.scope.groups.has("edge-1") && !ci.scope.groups.has("core") && !ci.scope.is_all());
    assert!(
        ci.scope.namespaces.has("shop") && ci.scope.namespaces.has("-") && !ci.scope.namespaces.has("shops")
    );
    let platform = &policy.principals()[2];
    assert!(platform.may_act_for && platform.scope.is_all() && platform.scope.groups.has("anything"));
    assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    assert_eq!(policy.ending(now()).count(), 1);
    assert_eq!(policy.denial(&spiffe("ns/mon/sa/bad")), Some("INC-42"));
    assert!(!policy.is_denied(&spiffe("ns/mon/sa/good")));
}

#[test]
fn the_token_of_a_file_is_a_principal_too() {
    let policy = Policy::default().with(Principal::admin("admin", TokenHash::of("s3cret")));
    assert_eq!(
        who(&policy, &[], Some("s3cret")),
        format!("admin admin token:{}", TokenHash::of("s3cret").short())
    );
}

#[test]
fn every_fault_has_its_place_and_says_what_would_be_right() {
    for (yaml, expected) in FAULTS {
        let jwks = json!({"keys": [Signer::new().key()]});
        let told = policy(yaml, &jwks).unwrap_err();
        assert!(told.contains(expected), "{yaml}\n{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let hash = TokenHash::of("a");
    let twice = format!(
        "principals:\n- {{ name: a, role: admin, tokens: [{{ sha256: {hash} }}, {{ sha256: {hash} }}] }}"
    );
    assert!(
        policy(&twice, &json!({}))
            .unwrap_err()
            .contains("error[duplicate-token] principals[0].tokens[1].sha256: another token has this hash")
    );
}

/// Policies, and the beginning or a part of what is said about them.
const FAULTS: &[(&str, &str)] = &[
    (
        "",
        "access.yaml:1:1: error[empty-file] the file is empty; an access policy has `issuers`, `principals` or `denied`",
    ),
    ("a: [", "access.yaml:1:"),
    ("[]", "access.yaml:1:1: error[wrong-type] expected an object, found a list"),
    (
        "principal: []",
        "access.yaml:1:1: error[unknown-field] principal: unknown field in the access policy; did you mean `principals`?",
    ),
    ("principals: {}", "access.yaml:1:13: error[wrong-type] principals: expected a list, found an object"),
    (
        "principals:\n- { name: a, rôle: x }",
        "access.yaml:2:14: error[unknown-field] principals[0].rôle: unknown field in a principal; did you mean `role`?",
    ),
    (
        "principals:\n- { name: a, role: Admin, tokens: [] }",
        "access.yaml:2:20: error[bad-role] principals[0].role: \"Admin\" is no role; it is viewer, operator or admin; did you mean `admin`?",
    ),
    (
        "principals:\n- { name: a, tokens: [] }",
        "access.yaml:2:3: error[missing-field] principals[0]: `role` is missing",
    ),
    (
        "principals:\n- { name: a, role: admin }",
        "access.yaml:2:3: error[missing-field] principals[0]: nobody can be this principal; give it `tokens`, `certificates` or `jwt`",
    ),
    (
        "principals:\n- { name: 'a/b', role: admin, tokens: [] }",
        "error[bad-name] principals[0].name: a name has 1 to 128 letters",
    ),
    (
        "principals:\n- { name: rollout, role: admin, tokens: [] }",
        "\"rollout\" stands for the server itself in the history",
    ),
    (
        "principals:\n- { name: a, role: admin, groups: [], tokens: [] }",
        "error[empty-list] principals[0].groups: an empty list allows nothing",
    ),
    (
        "principals:\n- { name: a, role: admin, writesPerMinute: 0, tokens: [] }",
        "expected a whole number from 1 on",
    ),
    (
        "principals:\n- { name: a, role: admin, mayActFor: yes, tokens: [] }",
        "error[wrong-type] principals[0].mayActFor: expected true or false, found a string",
    ),
    (
        "principals:\n- { name: a, role: admin, tokens: [{ sha256: hunter2 }] }",
        "access.yaml:2:46: error[bad-hash] principals[0].tokens[0].sha256: expected the SHA-256 of a token",
    ),
    (
        "principals:\n- { name: a, role: admin, tokens: [{ sha256: x, expires: tomorrow }] }",
        "error[bad-time] principals[0].tokens[0].expires: \"tomorrow\" is no time; write it as 2027-03-01T00:00:00Z",
    ),
    (
        "principals:\n- { name: a, role: admin, certificates: [{ spiffe: x, dns: y }] }",
        "error[wrong-fields] principals[0].certificates[0]: expected exactly one of `spiffe`, `dns` or `cn`",
    ),
    (
        "principals:\n- { name: a, role: admin, certificates: [{ spiffe: 'spiffe://a/*x' }] }",
        "error[bad-pattern] principals[0].certificates[0].spiffe: ",
    ),
    (
        "principals:\n- { name: a, role: admin, jwt: [{ issuer: corp, subject: a }] }",
        "error[unknown-issuer] principals[0].jwt[0].issuer: there is no usable issuer of the name \"corp\"",
    ),
    (
        "principals:\n- { name: a, role: admin, jwt: [{ issuer: corp }] }",
        "every token of the issuer would match; add `subject`, `claims` or both",
    ),
    (
        "principals:\n- { name: a, role: admin, jwt: [{ issuer: c, claims: { groups: a } }] }",
        "error[bad-pointer] principals[0].jwt[0].claims.groups: a claim is named by a JSON pointer, which begins with a slash; did you mean `/groups`?",
    ),
    (
        "principals:\n- { name: a, role: admin, tokens: [] }\n- { name: a, role: viewer, tokens: [] }",
        "access.yaml:3:11: error[duplicate-name] principals[1].name: another principal has this name (see access.yaml:2:3)",
    ),
    (
        "issuers: [{ name: a, issuer: b, jwksFile: c }]",
        "error[missing-field] issuers[0]: the issuer has no `audiences`",
    ),
    (
        "issuers: [{ name: a, issuer: b, audiences: [c], jwksFile: d, leeway: 1h }]",
        "error[bad-duration] issuers[0].leeway: a leeway is for clocks that differ: at most 300s",
    ),
    (
        "denied: [{ spiffe: x, dns: y }]",
        "expected exactly one of `spiffe`, `dns`, `cn`, `certificateSha256` or `issuer`",
    ),
    (
        "denied: [{ certificateSha256: abc }]",
        "error[bad-hash] denied[0].certificateSha256: expected the SHA-256 of a certificate",
    ),
    ("a: 1\n---\nb: 1", "error[too-many-documents]"),
];
