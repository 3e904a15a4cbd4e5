//! `/v1/fleet`: counts and the order of nodes, with streams whose answers the test chooses. `/v1/routes`: routes with their ways.

use serde_json::Value;

use super::acked::AckingClient;
use super::rest::{self, JSON, Rest};
use super::*;

async fn put(rest: &Rest, text: &str) -> u64 {
    let body = json!({"name": "a", "alt_stat_name": text, "connect_timeout": "1s"});
    let reply = rest.put("/v1/groups/default/resources/clusters/a", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    rest.server.revision()
}

fn states(fleet: &Value) -> Vec<(&str, &str)> {
    let nodes = fleet["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (node["id"].as_str().unwrap(), node["state"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn the_worst_come_first_and_everybody_is_counted() {
    let rest = rest::rest();
    let first = put(&rest, "1").await;
    let [good, old, bad, silent] = [(1, "n-good"), (2, "n-old"), (3, "n-bad"), (4, "n-silent")]
        .map(|(id, name)| AckingClient::connect(&rest.server, id, name));
    let new = AckingClient::connect(&rest.server, 5, "m-new");
    old.ack(first);
    let second = put(&rest, "2").await;
    good.ack(second);
    bad.nack(second);
    silent.leave_open(second);
    let fleet = rest.get("/v1/fleet").await.json();
    assert_eq!(
        states(&fleet),
        [
            ("n-bad", "rejected"),
            ("n-old", "pending"),
            ("n-silent", "pending"),
            ("m-new", "absent"),
            ("n-good", "acknowledged")
        ],
        "{fleet:#}"
    );
    assert_eq!(
        (&fleet["total"], &fleet["found"], &fleet["revision"]),
        (&json!(5), &json!(5), &json!(second))
    );
    assert_eq!(fleet["states"], json!({"rejected": 1, "pending": 2, "absent": 1, "acknowledged": 1}));
    assert_eq!(fleet["nodes"][0]["rejection"], "no such filter");
    assert_eq!(fleet["by"]["group"], json!([{"value": "default", "n": 5}]));
    assert_eq!(
        (&fleet["nodes"][1]["revision"], &fleet["nodes"][4]["revision"]),
        (&json!(first), &json!(second))
    );

    // A filter changes what is found, not what is counted.
    let found = rest.get("/v1/fleet?state=rejected").await.json();
    assert_eq!(
        (states(&found), &found["total"], &found["found"]),
        (vec![("n-bad", "rejected")], &json!(5), &json!(1))
    );
    let found = rest.get("/v1/fleet?search=m-").await.json();
    assert_eq!(states(&found), [("m-new", "absent")]);
    let of = |path: &'static str| {
        let rest = &rest;
        async move {
            states(&rest.get(path).await.json()).into_iter().map(|(id, _)| id.to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(of("/v1/fleet?sort=id").await, ["m-new", "n-bad", "n-good", "n-old", "n-silent"]);
    assert_eq!(of("/v1/fleet?sort=id&limit=2&page=2").await, ["n-good", "n-old"]);
    assert_eq!(of("/v1/fleet?sort=id&limit=2&page=3").await, ["n-silent"]);
    assert_eq!(of("/v1/fleet?sort=id&limit=2&page=4").await, Vec::<String>::new());
    assert_eq!(of("/v1/fleet?limit=1&page=2").await, ["n-old"]);
    for bad in [
        "limit=0",
        "limit=1001",
        "page=0",
        "page=11",
        "page=1001&limit=1",
        "sort=x",
        "state=x",
        "stat=rejects",
    ] {
        assert_eq!(rest.get(&format!("/v1/fleet?{bad}")).await.status, 400, "{bad}");
    }
    drop((good, old, bad, silent, new));
    let fleet = rest.get("/v1/fleet").await.json();
    assert_eq!((&fleet["total"], &fleet["nodes"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn a_node_with_several_streams_is_as_its_worst_one_is() {
    let rest = rest::rest();
    let revision = put(&rest, "1").await;
    let [one, other] = [1, 2].map(|id| AckingClient::connect(&rest.server, id, "n"));
    one.ack(revision);
    other.nack(revision);
    let fleet = rest.get("/v1/fleet").await.json();
    assert_eq!((states(&fleet), &fleet["total"]), (vec![("n", "rejected")], &json!(1)));
    assert_eq!((&fleet["nodes"][0]["streams"], &fleet["nodes"][0]["revision"]), (&json!(2), &Value::Null));
    other.ack(revision);
    assert_eq!(states(&rest.get("/v1/fleet").await.json()), [("n", "acknowledged")]);
    assert_eq!(fleet["nodes"][0]["reconnects"], 1, "two streams of one service are one that came back");
    let steady = AckingClient::connect(&rest.server, 3, "a");
    let fleet = rest.get("/v1/fleet?sort=reconnects").await.json();
    assert_eq!(states(&fleet), [("n", "acknowledged"), ("a", "absent")]);
    drop(steady);
}

const DOCUMENTS: &str = "
version: xds-server/v1
listeners:
  edge: {port: 10000}
routes:
  shop:
    hosts: [shop.test]
    rules:
    - {match: {path: /cart, headers: {x-beta: 'on'}}, to: {new: 1, old: 3}}
    - {to: old}
  blog: {hosts: [blog.test], to: old}
backends:
  old: {endpoints: ['127.0.0.1:1', '127.0.0.1:2']}
  new: {endpoints: '127.0.0.1:3'}
";

#[tokio::test]
async fn routes_are_listed_in_order_with_their_ways() {
    let rest = rest::rest();
    let yaml = ("content-type", "application/yaml");
    let reply = rest.call("POST", "/v1/apply", &[yaml], DOCUMENTS).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let list = rest.get("/v1/routes").await.json();
    let routes = list["routes"].as_array().unwrap();
    let shown = |route: &Value| {
        let backends = route["backends"].as_array().unwrap();
        let backends = backends
            .iter()
            .map(|one| format!("{}/{}={}", one["share"][0], one["share"][1], one["nEndpoints"]));
        format!(
            "{} {} {} {}",
            route["port"],
            route["domains"][0],
            route["path"],
            backends.collect::<Vec<_>>().join(",")
        )
    };
    let shown: Vec<String> = routes.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            r#"10000 "blog.test" "prefix \"/\"" 1/1=2"#,
            r#"10000 "shop.test" "\"/cart\"" 1/4=1,3/4=2"#,
            r#"10000 "shop.test" "prefix \"/\"" 1/1=2"#,
        ],
        "{list:#}"
    );
    assert!(routes[1]["conditions"][0].as_str().unwrap().contains("x-beta"), "{}", routes[1]);
    assert_eq!(routes[1]["place"]["document"], "Route default/shop");

    let paths = |list: Value| {
        list["routes"].as_array().unwrap().iter().map(|one| one["path"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(paths(rest.get("/v1/routes?path=cart").await.json()), [r#""\"/cart\"""#]);
    assert_eq!(paths(rest.get("/v1/routes?host=blog").await.json()).len(), 1);
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = rest.get(&format!("/v1/routes?limit=2{after}")).await.json();
        let next = page["next"].as_str().map(|next| format!("&after={next}"));
        found.extend(paths(page));
        let Some(next) = next else { break };
        after = next;
    }
    assert_eq!(found, paths(list.clone()));
    for (bad, status) in [
        ("limit=0", 400),
        ("limit=1001", 400),
        ("profile=x", 400),
        ("node=a&group=b", 400),
        ("group=none", 404),
    ] {
        assert_eq!(rest.get(&format!("/v1/routes?{bad}")).await.status, status, "{bad}");
    }

    // What was kept of the last answer is not used for another state.
    let reply = rest.call("DELETE", "/v1/documents/Route/default/blog", &[JSON], "").await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(paths(rest.get("/v1/routes?host=blog").await.json()), Vec::<String>::new());
}
