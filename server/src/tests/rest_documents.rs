//! The admin API of route documents over a real control: forms, statuses, entity tags, secrets.

use serde_json::Value;

use super::documents::{ROUTE, SERVICE, both, files};
use super::rest::{Reply, Rest, rest};
use super::*;

const YAML: (&str, &str) = ("content-type", "application/yaml");

async fn apply(rest: &Rest, query: &str, body: &str) -> Reply {
    rest.call("POST", &format!("/v1/apply{query}"), &[YAML], body).await
}

fn tag(reply: &Reply) -> String {
    reply.headers["etag"].to_str().unwrap().to_owned()
}

fn codes(reply: &Value, list: &str) -> Vec<String> {
    let faults = reply[list].as_array().unwrap_or_else(|| panic!("{reply:#}"));
    faults.iter().map(|fault| fault["code"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn documents_are_applied_read_and_deleted() {
    let rest = rest();
    let reply = apply(&rest, "", &both()).await;
    assert_eq!((reply.status, &reply.json()["revision"]), (200, &json!(1)), "{}", reply.text);
    let list = rest.get("/v1/documents?namespace=prod&kind=HTTPRoute").await.json();
    let expected = json!([{"kind": "HTTPRoute", "namespace": "prod", "name": "shop", "group": "default",
        "generation": 1, "source": "api", "overridden": false}]);
    assert_eq!(list["documents"], expected);
    assert_eq!(rest.get("/v1/documents").await.json()["documents"].as_array().unwrap().len(), 4);
    let one = rest.get("/v1/documents/HTTPRoute/prod/shop").await.json();
    assert_eq!(one["document"]["spec"]["rules"][0]["backendRefs"][0]["name"], "shop");
    assert_eq!(one["status"]["parents"][0]["conditions"][0]["type"], "Accepted");
    let reply = rest.call("DELETE", "/v1/documents/HTTPRoute/prod/shop", &[], "").await;
    assert_eq!((reply.status, rest.get("/v1/documents/HTTPRoute/prod/shop").await.status), (200, 404));
    assert_eq!(rest.call("DELETE", "/v1/documents/HTTPRoute/prod/shop", &[], "").await.status, 404);
    // Kinds without a namespace have a dash in its place.
    apply(&rest, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n").await;
    assert_eq!(rest.get("/v1/documents/Namespace/-/n").await.json()["namespace"], "-");
    for (path, status, detail) in [
        ("/v1/documents/Namespace/default/n", 404, "has no namespace"),
        ("/v1/documents/Deployment/a/b", 404, "not a kind of route documents"),
        ("/v1/documents?kind=Deployment", 400, "not a kind of route documents"),
        ("/v1/documents?knd=Service", 400, "knd"),
        ("/v1/conditions?kind=Deployment", 400, "not a kind of route documents"),
    ] {
        let reply = rest.get(path).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(detail), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_policy_that_is_not_supported_is_told_to_whoever_applies_it_or_its_target() {
    let rest = rest();
    let policy = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: guard, namespace: prod}\n\
                  spec: {targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}, basicAuth: {users: hunter2}}\n";
    let reply = apply(&rest, "", policy).await;
    assert_eq!((reply.status, codes(&reply.json(), "warnings")), (200, vec!["unsupported-kind".to_owned()]));
    let reply = apply(&rest, "", &both()).await.json();
    assert!(codes(&reply, "warnings").contains(&"unsupported-policy".to_owned()), "{reply:#}");
    let reply = apply(&rest, "", &policy.replace("guard", "other")).await.json();
    let warning = &reply["warnings"][0];
    assert_eq!(warning["code"], "unsupported-policy", "{reply:#}");
    assert_eq!(
        warning["detail"],
        "spec.targetRef: policies of the kind SecurityPolicy are not supported: HTTPRoute prod/shop is served without it"
    );
    let route = rest.get("/v1/documents/HTTPRoute/prod/shop").await.json();
    let conditions = route["status"]["parents"][0]["conditions"].as_array().unwrap();
    let affected = conditions.iter().find(|one| one["type"] == "xds-server.io/PolicyAffected").unwrap();
    assert_eq!((&affected["status"], &affected["reason"]), (&json!("False"), &json!("UnsupportedPolicy")));
    let path = "/v1/documents/Policy/prod/SecurityPolicy.gateway.envoyproxy.io:guard";
    let shown = rest.get(path).await;
    assert!(shown.status == 200 && !shown.text.contains("hunter2"), "{}", shown.text);
    for name in ["guard", "other"] {
        let path = format!("/v1/documents/Policy/prod/SecurityPolicy.gateway.envoyproxy.io:{name}");
        assert_eq!(rest.call("DELETE", &path, &[], "").await.status, 200);
    }
    let route = rest.get("/v1/documents/HTTPRoute/prod/shop").await;
    assert!(!route.text.contains("PolicyAffected"), "{}", route.text);
}

#[tokio::test]
async fn all_documents_of_a_body_are_applied_or_none() {
    let rest = rest();
    let body = format!(
        "{SERVICE}---\napiVersion: v1\nkind: Service\nmetadata: {{name: bad}}\nspec: {{ports: [{{prt: 0}}]}}\n"
    );
    let reply = apply(&rest, "", &body).await;
    let problem = reply.json();
    assert_eq!(reply.status, 422, "{problem:#}");
    let faults = problem["errors"].as_array().unwrap();
    assert!(faults.iter().all(|fault| fault["line"] == 17 && fault["column"].is_u64()), "{problem:#}");
    assert!(faults[0]["pointer"].as_str().unwrap().starts_with("#/spec/ports/0"), "{problem:#}");
    assert_eq!(rest.get("/v1/documents").await.json()["documents"], json!([]));
    assert_eq!(rest.server.revision(), 0);
    for (body, status) in [("", 400), ("a: [", 400), ("kind: Deployment\napiVersion: apps/v1\n", 422)] {
        assert_eq!(apply(&rest, "", body).await.status, status, "{body}");
    }
    assert_eq!(rest.call("POST", "/v1/apply", &[("content-type", "text/plain")], SERVICE).await.status, 415);
    assert_eq!(apply(&rest, "?dryrun=true", SERVICE).await.status, 400, "a misspelt parameter would write");
}

#[tokio::test]
async fn a_dry_run_tells_what_would_differ_and_what_is_doubtful() {
    let rest = rest();
    let answer = apply(&rest, "?dryRun=true", ROUTE).await.json();
    assert_eq!((&answer["committed"], rest.server.revision()), (&json!(false), 0));
    let what: Vec<_> =
        answer["difference"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert!(what.starts_with(&["document/Gateway/prod/edge", "document/HTTPRoute/prod/shop"]), "{what:?}");
    assert!(what.contains(&"generated/envoy/default/listeners/prod/edge/8080"), "{what:?}");
    let warning = &answer["warnings"][0];
    assert_eq!((&warning["line"], &warning["severity"]), (&json!(12), &json!("warning")), "{answer:#}");
    assert_eq!(rest.get("/v1/documents").await.json()["documents"], json!([]));
    // Doubts about what was applied before are not told again, and have no lines of another body.
    apply(&rest, "", ROUTE).await;
    let answer = apply(&rest, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n").await.json();
    assert_eq!(answer["warnings"], json!([]));
}

#[tokio::test]
async fn the_group_of_documents_is_said_or_stays() {
    let rest = Rest::new(Server::with_files(&MemoryStore::new()));
    let node_group =
        "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: g}\nspec: {selector: {all: true}}\n";
    let load = files(&[("r/g/group.yaml", node_group), ("r/g/a.yaml", ROUTE)]);
    rest.server.control.load_files(load).await.unwrap();
    let group_of = async |kind: &str, name: &str| {
        rest.get(&format!("/v1/documents/{kind}/prod/{name}")).await.json()["group"].clone()
    };
    apply(&rest, "", &both()).await;
    assert_eq!(
        (group_of("Gateway", "edge").await, group_of("Service", "shop").await),
        (json!("g"), json!("default"))
    );
    let one = rest.get("/v1/documents/Gateway/prod/edge").await.json();
    assert_eq!(
        (&one["source"], &one["overridden"], &one["file"]["path"]),
        (&json!("api"), &json!(true), &json!("r/g/a.yaml"))
    );
    assert_eq!(one["fileDocument"], one["document"]);
    apply(&rest, "?group=h", ROUTE).await;
    assert_eq!(group_of("Gateway", "edge").await, json!("h"));
    let deleted = rest.call("DELETE", "/v1/documents/Gateway/prod/edge", &[], "").await;
    assert_eq!((deleted.status, group_of("Gateway", "edge").await), (200, json!("g")));
    let refused = rest.call("DELETE", "/v1/documents/Gateway/prod/edge", &[], "").await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains("r/g/a.yaml:2:1"), "{}", refused.text);
}

#[tokio::test]
async fn a_write_is_done_only_to_what_was_seen() {
    let rest = rest();
    let path = "/v1/documents/Service/prod/shop";
    let service = SERVICE.split("---").next().unwrap();
    let with = async |header: &str, tag: &str, body: &str| {
        rest.call("POST", "/v1/apply", &[YAML, (header, tag)], body).await
    };
    assert_eq!(with("if-match", "*", service).await.status, 412, "it does not exist");
    assert_eq!(with("if-none-match", "*", service).await.status, 200);
    assert_eq!(with("if-none-match", "*", service).await.status, 412);
    let seen = tag(&rest.get(path).await);
    let unchanged = rest.call("GET", path, &[("if-none-match", &seen)], "").await;
    assert_eq!(unchanged.status, 304);
    assert_eq!(with("if-match", &seen, &service.replace("80", "81")).await.status, 200);
    let stale = with("if-match", &seen, service).await;
    assert_eq!((stale.status, stale.json()["etag"].is_string()), (412, true));
    assert_eq!(rest.call("DELETE", path, &[("if-match", &seen)], "").await.status, 412);
    let current = tag(&rest.get(path).await);
    assert_eq!(rest.call("DELETE", path, &[("if-match", &current)], "").await.status, 200);
    // Several documents are seen in the list of all.
    let all = tag(&rest.get("/v1/documents").await);
    assert_eq!(with("if-match", &all, &both()).await.status, 200);
    assert_eq!(with("if-match", &all, SERVICE).await.status, 412);
    // The status of a document shows in its tag, and does not count for writes.
    let route = "/v1/documents/HTTPRoute/prod/shop";
    let before = tag(&rest.get(route).await);
    rest.call("DELETE", path, &[], "").await;
    assert_ne!(tag(&rest.get(route).await), before);
    assert_eq!(rest.call("DELETE", route, &[("if-match", &before)], "").await.status, 200);
}

#[tokio::test]
async fn secrets_are_never_shown_and_their_placeholder_is_never_taken() {
    let rest = rest();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: hunter2}\n";
    let dry_run = apply(&rest, "?dryRun=true", secret).await;
    apply(&rest, "", secret).await;
    let read = rest.get("/v1/documents/Secret/default/s").await;
    let history = rest.get("/v1/history/1").await;
    for reply in [&dry_run, &read, &history] {
        assert_eq!(reply.status, 200);
        assert!(reply.text.contains("[redacted]") && !reply.text.contains("hunter"), "{}", reply.text);
    }
    let again = read.json()["document"].to_string();
    let reply = rest.call("POST", "/v1/apply", &[("content-type", "application/json")], &again).await;
    assert_eq!((reply.status, &reply.json()["errors"][0]["pointer"]), (422, &json!("#/stringData/key")));
    let bad = apply(&rest, "", &secret.replace("{key: hunter2}", "{key: [hunter3]}")).await;
    assert!(bad.status == 422 && !bad.text.contains("hunter"), "{}", bad.text);
}

#[tokio::test]
async fn conditions_have_the_shape_of_the_gateway_api() {
    let rest = rest();
    apply(&rest, "", ROUTE).await;
    let gateway = rest.get("/v1/conditions?kind=Gateway&namespace=prod&name=edge").await.json();
    let listener = &gateway["objects"][0]["listeners"][0];
    assert_eq!((&listener["name"], &listener["attachedRoutes"]), (&json!("http"), &json!(1)), "{gateway:#}");
    let routes = rest.get("/v1/conditions?kind=HTTPRoute").await.json();
    let object = &routes["objects"][0];
    let parent = &object["parents"][0];
    let expected =
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "prod", "name": "edge"});
    assert_eq!((&object["source"], &parent["parentRef"]), (&json!("api"), &expected));
    let unresolved = &parent["conditions"][1];
    assert_eq!(
        (
            &unresolved["type"],
            &unresolved["status"],
            &unresolved["reason"],
            &unresolved["observedGeneration"]
        ),
        (&json!("ResolvedRefs"), &json!("False"), &json!("BackendNotFound"), &json!(1))
    );
    assert!(unresolved["lastTransitionTime"].as_str().unwrap().ends_with('Z'));
    let none = rest.get("/v1/conditions?name=none").await;
    assert_eq!((none.status, none.json()), (200, json!({"objects": [], "next": null})));
}

#[tokio::test]
async fn a_validation_judges_documents_and_changes_nothing() {
    let rest = rest();
    let validate = async |body: &str| {
        let reply = rest.call("POST", "/v1/validate", &[YAML], body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let good = validate(&both()).await;
    assert_eq!(
        (&good["valid"], &good["objects"], &good["diagnostics"]),
        (&json!(true), &json!(4), &json!([])),
        "{good:#}"
    );
    assert!(good["conditions"][0]["conditions"][0].get("lastTransitionTime").is_none(), "{good:#}");
    let doubtful = validate(ROUTE).await;
    assert_eq!(
        (&doubtful["valid"], &doubtful["diagnostics"][0]["line"]),
        (&json!(true), &json!(12)),
        "{doubtful:#}"
    );
    let bad = validate(&ROUTE.replace("port: 8080", "port: 0")).await;
    assert_eq!((&bad["valid"], &bad["diagnostics"][0]["line"]), (&json!(false), &json!(5)), "{bad:#}");
    let other = validate("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n").await;
    assert_eq!(
        (&other["valid"], codes(&other, "diagnostics")),
        (&json!(true), vec!["unsupported-kind".to_owned()])
    );
    let twice = "{apiVersion: v1, kind: Namespace, metadata: {name: n}}";
    let twice = validate(&format!("{twice}\n---\n{twice}\n")).await;
    assert_eq!(
        (&twice["valid"], codes(&twice, "diagnostics")),
        (&json!(false), vec!["duplicate-document".to_owned()])
    );
    // A resource that is written out may name a generated one.
    let raw = "routes:\n- name: r\n  virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: prod/shop/80}}]}]\n";
    assert_eq!(codes(&validate(&format!("{raw}---{}", both())).await, "diagnostics"), Vec::<String>::new());
    let dangling = validate(raw).await;
    assert_eq!(codes(&dangling, "diagnostics"), ["dangling-reference"]);
    let found = &dangling["diagnostics"][0];
    assert_eq!((&found["line"], &found["column"]), (&json!(3), &json!(92)), "at the field: {dangling:#}");
    assert_eq!(rest.server.revision(), 0);
}

#[tokio::test]
async fn the_status_of_files_lists_documents_and_snapshots_say_what_is_generated() {
    let rest = Rest::new(Server::with_files(&MemoryStore::new()));
    let all = format!("{}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: prod}}\n", both());
    rest.server.control.load_files(files(&[("r/a.yaml", &all)])).await.unwrap();
    let status = rest.get("/v1/status/files").await.json();
    let objects: Vec<_> = status["files"][0]["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| format!("{} {} {}", object["kind"], object["name"], object["line"]).replace('"', ""))
        .collect();
    assert_eq!(
        objects,
        [
            "Gateway prod/edge 2",
            "HTTPRoute prod/shop 7",
            "Service prod/shop 14",
            "EndpointSlice prod/shop-1 19",
            "Namespace prod 26"
        ]
    );
    let snapshot = rest.get("/v1/groups/default/snapshot").await.json();
    let cluster = &snapshot["types"][ResourceType::Cluster.type_url()]["resources"][0];
    assert_eq!(
        (&cluster["generated"], &cluster["source"], &cluster["file"]["line"]),
        (&json!(true), &json!("file"), &json!(14)),
        "{cluster:#}"
    );
}
