//! Principals: who may use which endpoint, for which objects, and what is on record of it.

mod bounded;
mod bounds;
mod learned;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use xds_access::audit::Trail;
use xds_access::{Policy, TokenHash};
use xds_api::{Access, Token};

use super::rest::{Reply, Rest};
use super::*;

/// Everything that is served, with the role that it needs. Kept by hand: the table of the API must not check itself.
const ROLES: &[(&str, &str, Option<&str>)] = &[
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", Some("viewer")),
    ("GET", "/openapi.json", Some("viewer")),
    ("GET", "/v1/groups", Some("viewer")),
    ("GET", "/v1/groups/{group}", Some("viewer")),
    ("PUT", "/v1/groups/{group}", Some("admin")),
    ("DELETE", "/v1/groups/{group}", Some("admin")),
    ("GET", "/v1/groups/{group}/resources", Some("viewer")),
    ("PUT", "/v1/groups/{group}/resources", Some("admin")),
    ("GET", "/v1/groups/{group}/resources/{type}/{name}", Some("viewer")),
    ("PUT", "/v1/groups/{group}/resources/{type}/{name}", Some("admin")),
    ("DELETE", "/v1/groups/{group}/resources/{type}/{name}", Some("admin")),
    ("GET", "/v1/groups/{group}/snapshot", Some("viewer")),
    ("POST", "/v1/apply", Some("admin")),
    ("GET", "/v1/documents", Some("viewer")),
    ("GET", "/v1/documents/{kind}/{namespace}/{name}", Some("viewer")),
    ("DELETE", "/v1/documents/{kind}/{namespace}/{name}", Some("admin")),
    ("GET", "/v1/conditions", Some("viewer")),
    ("GET", "/v1/weights", Some("viewer")),
    ("GET", "/v1/weights/{kind}/{namespace}/{name}", Some("viewer")),
    ("GET", "/v1/weights/{kind}/{namespace}/{name}/{rule}", Some("viewer")),
    ("PATCH", "/v1/weights/{kind}/{namespace}/{name}/{rule}", Some("operator")),
    ("PUT", "/v1/weights/{kind}/{namespace}/{name}/{rule}", Some("operator")),
    ("DELETE", "/v1/weights/{kind}/{namespace}/{name}/{rule}", Some("operator")),
    ("GET", "/v1/routes", Some("viewer")),
    ("GET", "/v1/certificates", Some("viewer")),
    ("GET", "/v1/fleet", Some("viewer")),
    ("GET", "/v1/nodes", Some("viewer")),
    ("GET", "/v1/nodes/{id}", Some("viewer")),
    ("GET", "/v1/nodes/{id}/snapshot", Some("viewer")),
    ("GET", "/v1/acks", Some("viewer")),
    ("GET", "/v1/relay", Some("viewer")),
    ("GET", "/v1/replicas", Some("viewer")),
    ("DELETE", "/v1/replicas/{replica}", Some("operator")),
    ("GET", "/v1/status/files", Some("viewer")),
    ("PUT", "/v1/files", Some("admin")),
    ("POST", "/v1/reload", Some("operator")),
    ("POST", "/v1/validate", Some("operator")),
    ("POST", "/v1/explain", Some("viewer")),
    ("POST", "/v1/diff", Some("viewer")),
    ("GET", "/v1/tests", Some("viewer")),
    ("POST", "/v1/tests:release", Some("operator")),
    ("GET", "/v1/history", Some("viewer")),
    ("GET", "/v1/history/{revision}", Some("viewer")),
    ("POST", "/v1/rollback", Some("admin")),
    ("GET", "/v1/rollouts", Some("viewer")),
    ("POST", "/v1/rollouts", Some("operator")),
    ("GET", "/v1/rollouts/{rollout}", Some("viewer")),
    ("GET", "/v1/rollouts/{rollout}/loads", Some("viewer")),
    ("POST", "/v1/rollouts/{rollout}:pause", Some("operator")),
    ("POST", "/v1/rollouts/{rollout}:resume", Some("operator")),
    ("POST", "/v1/rollouts/{rollout}:promote", Some("operator")),
    ("POST", "/v1/rollouts/{rollout}:abort", Some("operator")),
    ("POST", "/v1/rollouts/{rollout}:retry", Some("operator")),
    ("DELETE", "/v1/rollouts/{rollout}", Some("operator")),
    ("GET", "/v1/loads", Some("viewer")),
    ("GET", "/v1/waves", Some("viewer")),
    ("GET", "/v1/waves/{deployment}", Some("viewer")),
    ("POST", "/v1/waves/{deployment}:pause", Some("operator")),
    ("POST", "/v1/waves/{deployment}:resume", Some("operator")),
    ("POST", "/v1/waves/{deployment}:promote", Some("operator")),
    ("POST", "/v1/waves/{deployment}:abort", Some("operator")),
    ("GET", "/v1/access:check", Some("admin")),
    ("GET", "/v1/audit", Some("admin")),
    ("GET", "/v1/events", Some("viewer")),
];

/// A policy of principals whose tokens are their names.
pub(super) fn policy(principals: &[(&str, &str)]) -> Policy {
    let principal = |(name, more): &(&str, &str)| {
        format!("- {{ name: {name}, {more}, tokens: [{{ sha256: {} }}] }}\n", TokenHash::of(name))
    };
    let text = format!("principals:\n{}", principals.iter().map(principal).collect::<String>());
    Policy::read("access.yaml", text.as_bytes(), &mut |_| Err("there is none".to_owned())).unwrap()
}

fn server(principals: &[(&str, &str)]) -> (Rest, watch::Sender<Arc<Policy>>) {
    let (sender, policy) = watch::channel(Arc::new(policy(principals)));
    let access = Access { policy, ..Access::default() };
    (Rest::with_access(Server::without_files(&MemoryStore::new()), access), sender)
}

const ALL: &[(&str, &str)] =
    &[("viewer", "role: viewer"), ("operator", "role: operator"), ("admin", "role: admin")];

pub(super) async fn ask(rest: &Rest, token: &str, method: &str, path: &str, body: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("content-type", "application/json")];
    // A change of weights has to say what it saw.
    headers.extend(path.starts_with("/v1/weights").then_some(("if-match", "*")));
    headers.extend((!token.is_empty()).then_some(("authorization", &*bearer)));
    rest.call(method, path, &headers, body).await
}

/// The last line of the audit log.
fn last_line(trail: &Trail) -> Value {
    trail.newest(1).pop().unwrap_or_default()
}

#[tokio::test]
async fn every_row_needs_its_role_and_refusals_are_on_record() {
    let (_policy, current) = watch::channel(Arc::new(policy(ALL)));
    let access = Access { policy: current, ..Access::default() };
    let (trail, counts) = (Arc::clone(&access.trail), Arc::clone(&access.counts));
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let n_denied = |reason: &str| -> u64 {
        counts.all().iter().filter(|(count, _)| count.denied == Some(reason)).map(|(_, n)| n).sum()
    };
    let document = ask(&rest, "admin", "GET", "/openapi.json", "").await.json();
    let described: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let listed = ROLES.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    assert_eq!(described, listed, "the list of this test has all endpoints and no other");
    let roles = ["", "viewer", "operator", "admin"];
    for (method, template, needs) in ROLES {
        let path = endpoints::filled(template);
        for (rank, role) in roles.iter().enumerate() {
            // A stream of events would not end.
            if *template == "/v1/events" && !role.is_empty() {
                continue;
            }
            let needed = needs.map_or(0, |needs| roles.iter().position(|one| *one == needs).unwrap());
            let (status, reason) = if role.is_empty() { (401, "no-credential") } else { (403, "role") };
            let before = n_denied(reason);
            let reply = ask(&rest, role, method, &path, "{}").await;
            let what = format!("{method} {template} as {role:?}");
            if rank >= needed {
                assert!(![401, 403].contains(&reply.status), "{what}: {reply:?}");
                continue;
            }
            assert_eq!((reply.status, n_denied(reason)), (status, before + 1), "{what}: {reply:?}");
            let told = reply.json();
            assert!(told.as_object().unwrap().keys().all(|key| PROBLEM.contains(&&**key)), "{what}: {told}");
            let needs = needs.unwrap_or_default();
            let words = match role.is_empty() {
                true => "no-credential: this API needs a bearer token or a client certificate".to_owned(),
                false => format!("role: this needs the role {needs}, and the principal {role} has {role}"),
            };
            assert_eq!(told["detail"], words, "{what}");
            let line = last_line(&trail);
            let found =
                ["event", "outcome", "reason", "method", "route"].map(|field| line[field].as_str().unwrap());
            assert_eq!(found, ["api.denied", "denied", reason, method, template], "{what}");
            let principal = (!role.is_empty()).then_some(*role);
            assert_eq!(
                (line["principal"].as_str(), line["status"].as_u64()),
                (principal, Some(status.into()))
            );
        }
    }
    let refused = ask(&rest, "viewer", "POST", "/v1/rollback", "{}").await;
    assert_eq!(refused.json()["type"], "https://xds-server.io/problems/role");
}

/// The fields of a refusal.
const PROBLEM: &[&str] = &["type", "title", "status", "detail", "instance"];

#[test]
fn the_page_about_access_has_every_endpoint_with_its_roles() {
    let page = include_str!("../../../docs/access.md");
    let paths: BTreeSet<&str> = ROLES.iter().map(|(_, path, _)| *path).collect();
    for path in paths {
        let role = |is_read: bool| {
            let mut found =
                ROLES.iter().filter(|(method, at, _)| *at == path && (*method == "GET") == is_read);
            found.next().map_or("–", |(_, _, role)| role.unwrap_or("everyone"))
        };
        let row = format!("| `{path}` | {} | {} |", role(true), role(false));
        assert!(page.contains(&row), "docs/access.md lacks the row {row}");
    }
}

#[tokio::test]
async fn the_actor_is_the_principal_and_not_what_a_header_says() {
    let (rest, _policy) = server(&[("ci", "role: admin"), ("portal", "role: admin, mayActFor: true")]);
    for (token, group) in [("ci", "a"), ("portal", "b")] {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", &*bearer),
            ("content-type", "application/json"),
            ("x-actor", "alice on behalf of x"),
        ];
        let body = json!({"selector": {"nodeIds": [group]}}).to_string();
        let put = rest.call("PUT", &format!("/v1/groups/{group}"), &headers, &body).await;
        assert_eq!(put.status, 200, "{put:?}");
    }
    let revisions = ask(&rest, "ci", "GET", "/v1/history", "").await.json()["revisions"].clone();
    assert_eq!(
        (&revisions[0]["actor"], &revisions[0]["onBehalfOf"]),
        (&json!("portal"), &json!("alice on behalf of x"))
    );
    assert_eq!((&revisions[1]["actor"], &revisions[1]["onBehalfOf"]), (&json!("ci"), &Value::Null));
    let of_portal = ask(&rest, "ci", "GET", "/v1/history?actor=portal", "").await.json();
    assert_eq!(of_portal["revisions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_scope_limits_what_is_read_and_written() {
    let (rest, _policy) = server(&[
        ("admin", "role: admin"),
        ("edge", "role: admin, groups: ['edge*']"),
        ("shop", "role: admin, namespaces: [shop]"),
    ]);
    let put = async |token: &str, group: &str| {
        let body = json!({"selector": {"nodeIds": [group]}}).to_string();
        ask(&rest, token, "PUT", &format!("/v1/groups/{group}"), &body).await.status
    };
    assert_eq!(
        (put("admin", "core").await, put("edge", "edge-1").await, put("edge", "core").await),
        (200, 200, 403)
    );
    // Whether or not it exists.
    for group in ["core", "nothing"] {
        let path = format!("/v1/groups/{group}");
        let deleted = ask(&rest, "edge", "DELETE", &path, "").await;
        let told = format!("scope: the group {group} is out of the scope of this principal");
        assert_eq!((deleted.status, &deleted.json()["detail"]), (403, &json!(told)));
        let read = ask(&rest, "edge", "GET", &path, "").await;
        assert_eq!(
            (read.status, &read.json()["detail"]),
            (404, &json!(format!("there is no group {group}")))
        );
    }
    let groups = ask(&rest, "edge", "GET", "/v1/groups", "").await.json();
    assert_eq!(
        groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect::<Vec<_>>(),
        ["edge-1"]
    );
    // A write is refused by all it touches: documents of shop are served to the default group.
    let document = |namespace: &str| {
        json!({"version": "xds-server/v1", "namespace": namespace, "listeners": {"l": {"port": 1 + usize::from(namespace == "core")}},
               "routes": {"r": {"rules": [{"to": "b"}]}}, "backends": {"b": {"endpoints": "127.0.0.1:1"}}})
    };
    let apply = async |token: &str, namespace: &str| {
        let reply = ask(&rest, token, "POST", "/v1/apply", &document(namespace).to_string()).await;
        (reply.status, reply.text)
    };
    let (status, text) = apply("shop", "shop").await;
    assert_eq!(status, 200, "{text}");
    let (status, text) = apply("shop", "core").await;
    assert!(status == 403 && text.contains("core/"), "{text}");
    let (status, text) = apply("edge", "shop").await;
    assert!(status == 200, "nothing changes: {text}");
    let (status, text) = apply("edge", "elsewhere").await;
    assert!(status == 403 && text.contains("the group default is out of the scope"), "{text}");
    assert_eq!(apply("admin", "core").await.0, 200);
    for (list, field) in
        [("/v1/documents", "documents"), ("/v1/weights", "objects"), ("/v1/conditions", "objects")]
    {
        let namespaces = async |token: &str| -> BTreeSet<String> {
            let shown = ask(&rest, token, "GET", list, "").await.json();
            let objects = shown[field].as_array().unwrap().iter();
            objects.map(|object| object["namespace"].as_str().unwrap().to_owned()).collect()
        };
        assert!(namespaces("admin").await.contains("core"), "{list}");
        assert_eq!(namespaces("shop").await, BTreeSet::from(["shop".to_owned()]), "{list}");
        assert_eq!(namespaces("edge").await, BTreeSet::new(), "{list}");
    }
    assert_eq!(ask(&rest, "shop", "GET", "/v1/documents/Route/core/r", "").await.status, 404);
    assert_eq!(ask(&rest, "shop", "GET", "/v1/documents/Route/shop/r", "").await.status, 200);
    assert_eq!(
        ask(&rest, "edge", "GET", "/v1/documents/Route/shop/r", "").await.status,
        404,
        "its group is default"
    );
    assert_eq!(ask(&rest, "shop", "DELETE", "/v1/documents/Route/core/r", "").await.status, 403);
}

#[tokio::test]
async fn a_principal_may_write_so_often() {
    let (rest, _policy) = server(&[("ci", "role: admin, writesPerMinute: 2"), ("other", "role: admin")]);
    for status in [200, 200, 429] {
        let reply = ask(&rest, "ci", "PUT", "/v1/groups/g", r#"{"selector": {"nodeIds": ["a"]}}"#).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.headers.contains_key("retry-after"), status == 429);
    }
    assert_eq!(ask(&rest, "ci", "GET", "/v1/groups/g", "").await.status, 200, "reads go on");
    assert_eq!(ask(&rest, "other", "DELETE", "/v1/groups/g", "").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn wrong_tokens_lock_out_nobody_who_has_a_right_one() {
    let (rest, _policy) = server(ALL);
    for n in 0..1_000 {
        let status = ask(&rest, &format!("wrong-{n}"), "GET", "/v1/groups", "").await.status;
        assert_eq!(status, if n < 20 { 401 } else { 429 }, "{n}");
    }
    // What is refused unseen does not count: each time one more is looked at, and then it takes longer.
    for seconds in [3, 6, 12, 24, 48, 60, 60] {
        let refused = ask(&rest, "a.b.c", "GET", "/v1/groups", "").await;
        let told = refused.headers["retry-after"].to_str().unwrap();
        assert_eq!((refused.status, told), (429, &*seconds.to_string()), "{refused:?}");
        tokio::time::advance(Duration::from_millis(seconds * 1000 - 10)).await;
        assert_eq!(ask(&rest, "wrong", "GET", "/v1/groups", "").await.status, 429, "{seconds}");
        assert_eq!(ask(&rest, "viewer", "GET", "/v1/groups", "").await.status, 200);
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!(ask(&rest, "wrong", "GET", "/v1/groups", "").await.status, 401, "{seconds}");
    }
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(ask(&rest, "wrong", "GET", "/v1/groups", "").await.status, 401);
    assert_eq!(ask(&rest, "wrong", "GET", "/v1/groups", "").await.status, 401, "it begins anew");
}

/// A token of `ada` that ends in 2200, and the key that verifies it. openssl made both.
const KEY_X: &str = "Mji6pHua_a8Vz8r2itMj8MWtQSQIgNDbVOjkl-oCnz8";
const TOKEN: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJ4ZHMiLCJzdWIiOiJhZGEiLCJleHAiOjcyNTgxMTg0MDB9.\
    u3IIVzIMXgewbhfeCXo4sZwrlG51TolXpWlmjbxRdyja9VYj-Ju6GPMg37CkQhd9D_098YNz2aKFKvHBO5LJAg";

#[tokio::test(start_paused = true)]
async fn wrong_tokens_lock_out_no_good_token_of_an_issuer() {
    let text = "issuers: [{ name: id, issuer: 'https://id.example', audiences: [xds], jwksFile: k }]\n\
                principals: [{ name: ada, role: viewer, jwt: [{ issuer: id, subject: ada }] }]\n";
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": KEY_X}]}).to_string();
    let policy =
        Policy::read("access.yaml", text.as_bytes(), &mut |_| Ok(keys.clone().into_bytes())).unwrap();
    let (_sender, policy) = watch::channel(Arc::new(policy));
    let access = Access { policy, ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let forged = TOKEN.replace("u3IIV", "u3IIW");
    for n in 0..100 {
        for wrong in ["wrong", &forged] {
            let status = ask(&rest, wrong, "GET", "/v1/groups", "").await.status;
            assert!([401, 429].contains(&status), "{n}: {status}");
        }
        assert_eq!(ask(&rest, TOKEN, "GET", "/v1/groups", "").await.status, 200, "{n}");
    }
    assert_eq!(ask(&rest, &forged, "GET", "/v1/groups", "").await.status, 429);
}

#[tokio::test]
async fn a_changed_policy_counts_from_the_next_request() {
    let (rest, sender) = server(ALL);
    assert_eq!(ask(&rest, "viewer", "GET", "/v1/groups", "").await.status, 200);
    sender.send_replace(Arc::new(policy(&[("admin", "role: admin")])));
    assert_eq!(ask(&rest, "viewer", "GET", "/v1/groups", "").await.status, 401);
    sender.send_replace(Arc::default());
    assert_eq!(
        ask(&rest, "", "GET", "/v1/groups", "").await.status,
        200,
        "without principals it is as without a policy"
    );
}

#[tokio::test]
async fn the_token_of_the_file_is_the_principal_admin() {
    let (_sender, policy) = watch::channel(Arc::new(policy(&[("viewer", "role: viewer")])));
    let access = Access { policy, token: Token::new("s3cret").unwrap().fixed(), ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let put = ask(&rest, "s3cret", "PUT", "/v1/groups/g", r#"{"selector": {"nodeIds": ["a"]}}"#).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(ask(&rest, "viewer", "GET", "/v1/history", "").await.json()["revisions"][0]["actor"], "admin");
    assert_eq!(ask(&rest, "", "GET", "/v1/groups", "").await.status, 401);
}

#[tokio::test]
async fn a_page_of_another_site_is_refused_also_with_a_good_token() {
    let (rest, _policy) = server(ALL);
    for (site, status) in [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)] {
        let headers = [("authorization", "Bearer viewer"), ("sec-fetch-site", site)];
        assert_eq!(rest.call("GET", "/v1/groups", &headers, "").await.status, status, "{site}");
        assert_eq!(rest.call("GET", "/healthz", &headers, "").await.status, status, "{site}");
    }
}

#[tokio::test]
async fn writes_and_refusals_are_on_record() {
    let (_sender, policy) = watch::channel(Arc::new(policy(ALL)));
    let access = Access { policy, ..Access::default() };
    let (trail, counts) = (Arc::clone(&access.trail), Arc::clone(&access.counts));
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    ask(&rest, "admin", "PUT", "/v1/groups/g", r#"{"selector": {"nodeIds": ["a"]}}"#).await;
    let via = format!("token:{}", TokenHash::of("admin").short());
    let mut line = last_line(&trail);
    assert!(line.as_object_mut().unwrap().remove("ts").is_some_and(|ts| ts.as_str().unwrap().ends_with('Z')));
    assert_eq!(
        line,
        json!({"event": "api.write", "outcome": "allowed", "principal": "admin", "role": "admin", "via": via,
               "method": "PUT", "route": "/v1/groups/{group}", "status": 200, "objects": ["group/g"], "revision": 1})
    );
    ask(&rest, "admin", "DELETE", "/v1/groups/nothing", "").await;
    let line = last_line(&trail);
    assert_eq!((&line["outcome"], &line["status"]), (&json!("failed"), &json!(404)));
    ask(&rest, "viewer", "DELETE", "/v1/groups/g", "").await;
    let line = last_line(&trail);
    assert_eq!(
        (&line["event"], &line["reason"], &line["principal"]),
        (&json!("api.denied"), &json!("role"), &json!("viewer"))
    );
    ask(&rest, "secret-of-somebody", "DELETE", "/v1/groups/g", "").await;
    let line = last_line(&trail);
    assert_eq!((&line["reason"], &line["status"]), (&json!("bad-credential"), &json!(401)));
    let all = ask(&rest, "admin", "GET", "/v1/audit?limit=3", "").await;
    assert_eq!(all.json()["entries"].as_array().map(Vec::len), Some(3), "{all:?}");
    assert!(!all.text.contains("secret-of-somebody"));
    assert_eq!(trail.newest(100).len(), 4, "reads are not on record");
    let denied: u64 = counts.all().iter().filter(|(count, _)| count.denied.is_some()).map(|(_, n)| n).sum();
    assert_eq!(denied, 2);
}

#[tokio::test]
async fn polls_and_sign_ins_are_on_record_and_questions_are_reads() {
    let (_sender, policy) = watch::channel(Arc::new(policy(ALL)));
    let access = Access { policy, ..Access::default() };
    let trail = Arc::clone(&access.trail);
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let mut polls = axum::Router::new();
    let types = ["listeners", "clusters", "secrets"];
    for kind in types {
        polls = polls.route(&format!("/v3/discovery:{kind}"), axum::routing::post(|| async { "{}" }));
    }
    let router = crate::page::over(xds_api::router_with(rest.state.clone(), polls), false);
    let call = async |path: &str, headers: &[(&str, &str)], body: &str| {
        rest::call(router.clone(), "POST", path, headers, body).await.status
    };
    for kind in types {
        let path = format!("/v3/discovery:{kind}");
        assert_eq!(call(&path, &[("authorization", "Bearer admin")], "{}").await, 200);
        let line = last_line(&trail);
        assert_eq!((&line["event"], &line["route"]), (&json!("secret.read"), &json!(path)), "{line}");
    }
    let form = ("content-type", "application/x-www-form-urlencoded");
    assert_eq!(call("/ui/sign-in", &[form], "token=viewer&to=/").await, 303);
    let mut line = last_line(&trail);
    line.as_object_mut().unwrap().retain(|field, _| !["ts", "via", "objects"].contains(&&**field));
    assert_eq!(
        line,
        json!({"event": "page.sign-in", "outcome": "allowed", "principal": "viewer", "role": "viewer",
               "method": "POST", "route": "/ui/sign-in", "status": 200})
    );
    assert_eq!(call("/ui/sign-in", &[form], "token=wrong&to=/").await, 401);
    let line = last_line(&trail);
    assert_eq!(
        (&line["event"], &line["reason"], &line["route"]),
        (&json!("api.denied"), &json!("bad-credential"), &json!("/ui/sign-in"))
    );
    let before = trail.newest(100).len();
    let comparison = r#"{"from": "current", "to": "current"}"#;
    assert_eq!(ask(&rest, "viewer", "POST", "/v1/diff", comparison).await.status, 200);
    assert_eq!(trail.newest(100).len(), before, "a diff changes nothing");
}

#[tokio::test]
async fn nothing_is_written_that_would_not_be_on_record() {
    let (_sender, policy) = watch::channel(Arc::new(policy(ALL)));
    let access = Access { policy, trail: Arc::new(Trail::new(true)), ..Access::default() };
    let trail = Arc::clone(&access.trail);
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    trail.set_sink(Box::new(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap()));
    trail.record(xds_access::audit::Entry::new("policy.loaded", "allowed"), SystemTime::now());
    let put = ask(&rest, "admin", "PUT", "/v1/groups/g", r#"{"selector": {"nodeIds": ["a"]}}"#).await;
    assert_eq!(
        (put.status, &put.json()["type"]),
        (503, &json!("https://xds-server.io/problems/not-audited"))
    );
    assert_eq!(ask(&rest, "admin", "GET", "/v1/groups", "").await.status, 200, "reads go on");
}

const CHECKED: &str = r#"
issuers: []
principals:
- { name: ada, role: admin, tokens: [{ sha256: "TOKEN" }] }
- name: ci
  role: operator
  groups: ["edge*"]
  certificates: [{ spiffe: "spiffe://a.org/ci/*" }]
denied:
- { spiffe: "spiffe://a.org/ci/old" }
"#;

#[expect(clippy::too_many_lines, reason = "a line for each question")]
#[tokio::test]
async fn a_question_is_answered_with_the_rule_that_decides_and_what_is_needed() {
    let text = CHECKED.replace("TOKEN", &TokenHash::of("ada").to_string());
    let policy = Policy::read("access.yaml", text.as_bytes(), &mut |_| Err("none".to_owned())).unwrap();
    let (sender, policy) = watch::channel(Arc::new(policy));
    let access = Access { policy, accepts_certificates: true, ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let group = |name: &str, selector: Value, identities: Option<Value>| {
        let mut body = json!({"name": name, "selector": selector});
        identities.into_iter().for_each(|identities| body["identities"] = identities);
        body.to_string()
    };
    let bound = json!([{"spiffe": "spiffe://a.org/edge/*", "nodeIds": ["{1}"]}]);
    for (name, body) in [
        ("edge", group("edge", json!({"nodeIds": ["edge-*"]}), Some(bound))),
        ("extra", group("extra", json!({"all": true}), Some(json!([{"dns": "x.a.org"}])))),
        ("open", group("open", json!({"all": true}), None)),
    ] {
        let put = ask(&rest, "ada", "PUT", &format!("/v1/groups/{name}"), &body).await;
        assert_eq!(put.status, 200, "{put:?}");
    }
    let check =
        async |query: &str| ask(&rest, "ada", "GET", &format!("/v1/access:check?{query}"), "").await.json();
    let edge_1 = "spiffe=spiffe://a.org/edge/edge-1";
    for (query, allowed, reason, rule, needed) in [
        (format!("node=edge-1&group=edge&{edge_1}"), true, "granted", "edge: identities[0]", ""),
        (
            format!("node=edge-2&group=edge&{edge_1}"),
            false,
            "node-id-mismatch",
            "edge: identities",
            "with the node id {1}",
        ),
        (
            "node=edge-1&group=edge".to_owned(),
            false,
            "no-credential",
            "edge: identities",
            "spiffe://a.org/edge/*",
        ),
        (
            "node=edge-1&group=open&cn=x".to_owned(),
            false,
            "identity-not-allowed",
            "edge: identities",
            "spiffe://a.org/edge/*",
        ),
        (
            format!("node=other&group=edge&{edge_1}"),
            false,
            "not-selected",
            "edge: selector",
            "the selector selects",
        ),
        (
            format!("node=other&group=extra&{edge_1}"),
            false,
            "identity-not-allowed",
            "extra: identities",
            "dns:x.a.org",
        ),
        (
            "node=other&group=extra&dns=y.a.org,x.a.org".to_owned(),
            true,
            "granted",
            "extra: identities[0]",
            "",
        ),
        ("node=other&group=open".to_owned(), true, "open", "open", ""),
        ("node=other&group=default".to_owned(), true, "open", "default", ""),
        ("node=other".to_owned(), true, "granted", "", ""),
        ("node=a&spiffe=spiffe://a.org/ci/old".to_owned(), false, "denied", "denied[0]", "`denied`"),
        ("node=a&issuer=corp&subject=x".to_owned(), false, "bad-token", "", "`issuers`"),
        (
            "endpoint=PATCH%20/v1/weights/Route/shop/r/0&spiffe=spiffe://a.org/ci/x".to_owned(),
            true,
            "granted",
            "principals[1].certificates[0]",
            "",
        ),
        (
            "endpoint=PUT%20/v1/groups/edge&spiffe=spiffe://a.org/ci/x".to_owned(),
            false,
            "role",
            "principals[1].certificates[0]",
            "the role admin",
        ),
        (
            "endpoint=GET%20/v1/groups/core&principal=ci".to_owned(),
            false,
            "scope",
            "principals[1]",
            "`groups`",
        ),
        (
            "endpoint=POST%20/v1/reload&principal=ci".to_owned(),
            false,
            "scope",
            "principals[1]",
            "without `groups`",
        ),
        ("endpoint=PUT%20/v1/groups/core&principal=ada".to_owned(), true, "granted", "principals[0]", ""),
        (
            "endpoint=GET%20/v1/groups&spiffe=spiffe://a.org/x".to_owned(),
            false,
            "bad-credential",
            "",
            "a principal",
        ),
        ("endpoint=GET%20/v1/groups".to_owned(), false, "no-credential", "", "a principal"),
        ("endpoint=GET%20/healthz".to_owned(), true, "open", "", ""),
    ] {
        let found = check(&query).await;
        assert_eq!(
            (found["allowed"].as_bool(), found["reason"].as_str()),
            (Some(allowed), Some(reason)),
            "{query}: {found}"
        );
        assert_eq!(found["rule"]["path"].as_str().unwrap_or_default(), rule, "{query}: {found}");
        assert!(found["needed"].as_str().unwrap_or_default().contains(needed), "{query}: {found}");
        assert_eq!(found["needed"].is_null(), allowed, "{query}: {found}");
        assert!(found["message"].as_str().is_some_and(|message| !message.is_empty()), "{found}");
    }
    let ci = check("endpoint=PATCH%20/v1/weights/Route/shop/r/0&spiffe=spiffe://a.org/ci/x").await;
    assert_eq!((&ci["rule"]["file"], &ci["rule"]["line"]), (&json!("access.yaml"), &json!(8)));
    assert_eq!((&ci["principal"], &ci["role"]), (&json!("ci"), &json!("operator")));
    let all = check(&format!("node=edge-1&{edge_1}")).await;
    assert_eq!(all["groups"], json!(["edge", "open", "default"]));
    for (query, status, text) in [
        ("", 400, "say who asks for what"),
        ("node=a&endpoint=GET%20/v1/groups", 400, "leave it out"),
        ("node=a&subject=x", 400, "of which `issuer`"),
        ("node=a&spiffe=x", 400, "spiffe="),
        ("node=a&issuer=corp&claims=%5B%5D", 400, "expected a JSON object"),
        ("node=a&group=none", 404, "no node group"),
        ("endpoint=GET%20/v1/none", 404, "no endpoint"),
        ("endpoint=GET%20/v1/groups&principal=none", 404, "no principal"),
    ] {
        let found = check(query).await;
        assert_eq!(found["status"], status, "{query}: {found}");
        assert!(found["detail"].as_str().unwrap_or_default().contains(text), "{query}: {found}");
    }
    drop(sender);
}
