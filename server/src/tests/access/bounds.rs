//! The bounds of a scope: the nodes of its groups, and the documents of its namespaces.

use serde_json::{Value, json};

use super::*;

const PRINCIPALS: &[(&str, &str)] = &[
    ("admin", "role: admin"),
    ("edge", "role: admin, groups: ['edge*']"),
    ("operator", "role: operator, groups: ['edge*']"),
    ("shop", "role: admin, namespaces: [shop]"),
    ("reader", "role: viewer, namespaces: [shop]"),
    ("both", "role: admin, groups: ['edge*'], namespaces: [shop]"),
];

/// A server with the groups `edge` and `prod`, each with a cluster, and a cluster for everybody.
async fn world() -> (Rest, watch::Sender<Arc<Policy>>) {
    let (rest, policy) = server(PRINCIPALS);
    for (group, body) in [
        ("edge", json!({"selector": {"nodeIds": ["edge-*"]}})),
        ("prod", json!({"selector": {"nodeIds": ["prod-*"]}, "priority": 1000})),
    ] {
        write(&rest, "admin", "PUT", &format!("/v1/groups/{group}"), &body, 200).await;
    }
    for group in ["edge", "prod", "default"] {
        let cluster = json!({"name": group, "connect_timeout": "1s"});
        write(
            &rest,
            "admin",
            "PUT",
            &format!("/v1/groups/{group}/resources/clusters/{group}"),
            &cluster,
            200,
        )
        .await;
    }
    (rest, policy)
}

async fn write(rest: &Rest, who: &str, method: &str, path: &str, body: &Value, status: u16) -> Reply {
    let reply = ask(rest, who, method, path, &body.to_string()).await;
    assert_eq!(reply.status, status, "{who} {method} {path} {body}: {reply:?}");
    reply
}

#[tokio::test]
async fn a_scoped_group_takes_no_nodes_from_groups_out_of_scope() {
    let (rest, _policy) = world().await;
    let identities = json!([{"spiffe": "spiffe://a.org/prod/*"}]);
    let guarded = json!({"selector": {"nodeIds": ["prod-*"]}, "priority": 1000, "identities": identities});
    write(&rest, "admin", "PUT", "/v1/groups/prod", &guarded, 200).await;
    for (group, body, status) in [
        // Every node, or those of prod, whatever the priority and the proof.
        ("edge2", json!({"selector": {"all": true}, "priority": 2000}), 403),
        ("edge2", json!({"selector": {"all": true}, "priority": -1}), 403),
        ("edge2", json!({"selector": {"nodeIds": ["prod-1"]}}), 403),
        ("edge2", json!({"selector": {"nodeIds": ["*-1"]}}), 403),
        (
            "edge2",
            json!({"selector": {"nodeIds": ["prod-*"]}, "priority": 2000, "identities": identities}),
            403,
        ),
        ("edge2", json!({"selector": {"clusters": ["a"]}}), 403),
        ("edge", json!({"selector": {"nodeIds": ["edge-*", "prod-1"]}}), 403),
        ("edge", json!({"selector": {"all": true}}), 403),
        // A node that only the default group serves something.
        ("edge2", json!({"selector": {"nodeIds": ["other-1"]}}), 403),
        // A part of the nodes that the scope has.
        ("edge2", json!({"selector": {"nodeIds": ["edge-1", "edge-2-*"]}, "priority": 2000}), 200),
        ("edge", json!({"selector": {"nodeIds": ["edge-*"], "clusters": ["a"]}, "priority": 7}), 200),
        // Not the nodes that it had a moment ago.
        ("edge", json!({"selector": {"nodeIds": ["edge-*"]}}), 403),
    ] {
        let reply = write(&rest, "edge", "PUT", &format!("/v1/groups/{group}"), &body, status).await;
        assert!(!reply.text.contains("prod") || body.to_string().contains("prod"), "{reply:?}");
    }
    // A group that comes with its first resource selects the node of its name.
    let cluster = json!({"name": "c", "connect_timeout": "1s"});
    for (group, status) in [("edge-9", 403), ("edge-1", 200)] {
        write(&rest, "edge", "PUT", &format!("/v1/groups/{group}/resources/clusters/c"), &cluster, status)
            .await;
    }
}

#[tokio::test]
async fn a_node_of_two_groups_is_not_taken_by_a_better_priority() {
    let (rest, _policy) = world().await;
    let both = json!({"selector": {"nodeIds": ["edge-*", "prod-*"]}, "priority": 5});
    write(&rest, "admin", "PUT", "/v1/groups/edge", &both, 200).await;
    let with = |more: Value| {
        let mut body = both.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (group, body, status) in [
        ("edge", with(json!({"priority": 1001})), 403),
        ("edge", with(json!({"client": "grpc"})), 403),
        ("edge", with(json!({"identities": [{"cn": "a"}]})), 403),
        ("edge2", with(json!({"priority": 1000})), 403),
        ("edge2", with(json!({"priority": 6})), 200),
        ("edge", with(json!({"priority": 4})), 200),
    ] {
        write(&rest, "edge", "PUT", &format!("/v1/groups/{group}"), &body, status).await;
    }
}

#[tokio::test]
async fn namespaces_alone_grant_no_group() {
    let (rest, _policy) = world().await;
    let cluster = json!({"name": "c", "connect_timeout": "1s"});
    let group = json!({"selector": {"nodeIds": ["x"]}});
    for (method, path, body, status) in [
        ("PUT", "/v1/groups/prod", &group, 403),
        ("PUT", "/v1/groups/new", &group, 403),
        ("DELETE", "/v1/groups/prod", &group, 403),
        ("PUT", "/v1/groups/prod/resources/clusters/c", &cluster, 403),
        ("PUT", "/v1/groups/prod/resources", &json!({"resources": []}), 403),
        ("DELETE", "/v1/groups/prod/resources/clusters/prod", &cluster, 403),
        ("POST", "/v1/apply?group=prod", &http_route("shop", "r", "a.example", "own"), 403),
        ("GET", "/v1/groups/prod", &group, 404),
        ("GET", "/v1/groups/prod/resources", &group, 404),
        ("GET", "/v1/groups/prod/resources/clusters/prod", &group, 404),
        ("GET", "/v1/groups/default/snapshot", &group, 404),
        ("GET", "/v1/nodes/prod-1/snapshot", &group, 404),
        ("GET", "/v1/routes?group=prod", &group, 404),
    ] {
        write(&rest, "shop", method, path, body, status).await;
    }
    for (list, field) in [("/v1/groups", "groups"), ("/v1/nodes", "nodes"), ("/v1/history", "revisions")] {
        let shown = ask(&rest, "reader", "GET", list, "").await.json();
        assert_eq!(shown[field], json!([]), "{list}");
    }
}

/// A Gateway of `core` for everybody's routes, and a route of it.
fn gateway() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
           "metadata": {"name": "gw", "namespace": "core"},
           "spec": {"gatewayClassName": "xds-server", "listeners": [
               {"name": "l", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
}

fn http_route(namespace: &str, name: &str, host: &str, service: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
           "metadata": {"name": name, "namespace": namespace},
           "spec": {"parentRefs": [{"name": "gw", "namespace": "core"}], "hostnames": [host],
                    "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}})
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
           "spec": {"ports": [{"port": 80, "name": "p"}]}})
}

#[tokio::test]
async fn documents_of_a_namespace_attach_and_leave_other_owners_hosts() {
    let (rest, _policy) = world().await;
    for (who, document, status) in [
        ("admin", gateway(), 200),
        ("admin", service("core", "b"), 200),
        ("admin", http_route("core", "r", "core.example", "b"), 200),
        ("shop", service("shop", "own"), 200),
        // Two Services of one name have no short name, so that the other one would lose its.
        ("shop", service("shop", "b"), 403),
        ("shop", http_route("shop", "r", "shop.example", "own"), 200),
        ("shop", http_route("shop", "r", "other.example", "own"), 200),
        // A host of another owner, by a longer path too; that of a wildcard is one.
        ("shop", http_route("shop", "r", "core.example", "own"), 403),
        ("shop", http_route("shop", "more", "core.example", "own"), 403),
        ("shop", http_route("core", "more", "shop.example", "b"), 403),
        ("admin", http_route("core", "wild", "*.wild.example", "b"), 200),
        ("shop", http_route("shop", "more", "*.wild.example", "own"), 403),
        ("shop", http_route("shop", "more", "a.shop.example", "own"), 200),
    ] {
        write(&rest, who, "POST", "/v1/apply", &document, status).await;
    }
    // One in a group of the scope attaches elsewhere too, and is limited by groups alone without namespaces.
    let route = http_route("shop", "of-edge", "of-edge.example", "own");
    write(&rest, "both", "POST", "/v1/apply?group=edge", &route, 200).await;
    write(&rest, "both", "POST", "/v1/apply", &http_route("shop", "of-all", "of-all.example", "own"), 403)
        .await;
    let taken = http_route("shop", "of-edge", "core.example", "own");
    write(&rest, "both", "POST", "/v1/apply", &taken, 403).await;
    for (who, path, status) in [
        ("shop", "/v1/documents/HTTPRoute/core/r", 403),
        ("shop", "/v1/documents/HTTPRoute/shop/r", 200),
        ("shop", "/v1/documents/HTTPRoute/shop/more", 200),
    ] {
        write(&rest, who, "DELETE", path, &json!({}), status).await;
    }
}

#[tokio::test]
async fn weights_of_a_document_that_is_not_seen_are_not_changed() {
    let (rest, _policy) = world().await;
    let document = json!({"version": "xds-server/v1", "namespace": "shop", "routes": {"r": {"rules": [{"to": {"a": 9, "b": 1}}]}},
                          "backends": {"a": {"endpoints": "127.0.0.1:1"}, "b": {"endpoints": "127.0.0.1:2"}}});
    write(&rest, "admin", "POST", "/v1/apply?group=prod", &document, 200).await;
    let before = ask(&rest, "admin", "GET", "/v1/weights/Route/shop/r", "").await.text;
    for method in ["PUT", "PATCH", "DELETE"] {
        let change = async |name: &str| {
            let path = format!("/v1/weights/Route/shop/{name}/0");
            let reply = ask(&rest, "operator", method, &path, r#"{"backends": {"a": 1, "b": 9}}"#).await;
            (reply.status, reply.json()["detail"].to_string().replace(&format!("/{name}"), "/NAME"))
        };
        let (hidden, missing) = (change("r").await, change("nothing").await);
        assert_eq!(hidden, missing, "{method}: one that is out of scope is as if it did not exist");
        assert_eq!(hidden.0, 404, "{method}: {hidden:?}");
    }
    let deleted = ask(&rest, "edge", "DELETE", "/v1/documents/Route/shop/r", "").await;
    assert_eq!(deleted.status, 404, "{deleted:?}");
    assert_eq!(ask(&rest, "admin", "GET", "/v1/weights/Route/shop/r", "").await.text, before);
}

/// Reads a stream of events until it ends.
async fn read_to_end(mut body: axum::body::Body) {
    let read = async { while let Some(Ok(_)) = http_body_util::BodyExt::frame(&mut body).await {} };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("the stream ends");
}

#[tokio::test]
async fn a_stream_of_events_ends_with_the_rights_of_its_caller() {
    let (rest, policies) = server(PRINCIPALS);
    for path in ["/v1/events", "/v1/rollouts?watch=true"] {
        for after in [
            &[("admin", "role: admin")][..],
            &[("admin", "role: admin"), ("edge", "role: viewer, groups: ['edge*']")],
            &[("admin", "role: admin"), ("edge", "role: admin, groups: [edge]")],
            &[],
        ] {
            policies.send_replace(Arc::new(policy(PRINCIPALS)));
            let body = rest.stream("edge", path).await;
            let reading = tokio::spawn(read_to_end(body));
            // The same principals in other lines are the same.
            let same: Vec<(&str, &str)> = PRINCIPALS.iter().rev().copied().collect();
            policies.send_replace(Arc::new(policy(&same)));
            assert_eq!(ask(&rest, "edge", "GET", "/v1/groups", "").await.status, 200);
            assert!(!reading.is_finished(), "{path} {after:?}");
            let changed = if after.is_empty() { Policy::default() } else { policy(after) };
            policies.send_replace(Arc::new(changed));
            reading.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_token() {
    let end = SystemTime::now() + Duration::from_secs(2);
    let text = format!(
        "principals:\n- {{ name: admin, role: admin, tokens: [{{ sha256: {}, expires: {} }}] }}\n",
        TokenHash::of("admin"),
        xds_units::rfc3339(end)
    );
    let policy =
        Policy::read("access.yaml", text.as_bytes(), &mut |_| Err("there is none".to_owned())).unwrap();
    let (_sender, policy) = watch::channel(Arc::new(policy));
    let access = Access { policy, ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    let body = rest.stream("admin", "/v1/events").await;
    read_to_end(body).await;
    assert!(SystemTime::now() + Duration::from_millis(1500) > end, "not before its token");
    assert_eq!(ask(&rest, "admin", "GET", "/v1/groups", "").await.status, 401);
}
