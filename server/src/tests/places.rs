//! The places of faults in requests: segments of paths, and pointers, lines and columns of bodies.

use super::rest::rest;
use super::*;

#[tokio::test]
async fn a_path_segment_with_bad_percent_encoding_is_named() {
    let rest = rest();
    for (path, segment, wrong) in [
        ("/v1/groups/g/resources/clusters/%ff", "\"%ff\"", "not UTF-8"),
        ("/v1/groups/g%zz/resources/clusters/a", "\"g%zz\"", "not a percent-encoding"),
        ("/v1/groups/%ff", "\"%ff\"", "not UTF-8"),
        ("/v1/nodes/a%/snapshot", "\"a%\"", "not a percent-encoding"),
        ("/v1/history/%c3", "\"%c3\"", "not UTF-8"),
    ] {
        let reply = rest.get(path).await;
        let problem = reply.json();
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!((reply.status, &problem["instance"]), (400, &json!(path)), "{detail}");
        assert!(detail.contains(segment) && detail.contains(wrong), "{detail}");
    }
    assert_eq!(rest.get("/v1/groups/a%25").await.status, 404, "what is well encoded is looked up");
}

#[tokio::test]
async fn every_fault_of_a_body_has_its_pointer_line_and_column() {
    let rest = rest();
    let (all, one) = ("/v1/groups/g/resources", "/v1/groups/g/resources/clusters/a");
    let cluster = ResourceType::Cluster.type_url();
    let json = |text: &str| ("application/json", text.replace("CLUSTER", cluster));
    let yaml = |text: &str| ("application/yaml", text.replace("CLUSTER", cluster));
    for (method, path, (kind, text), status, pointer, line, column) in [
        ("PUT", all, json("{\n \"resources\": }"), 400, "#", 2, 15),
        ("PUT", all, yaml("resources: [\n"), 400, "#", 1, 12),
        ("PUT", all, json("null"), 422, "#", 1, 1),
        ("PUT", one, json("null"), 422, "#", 1, 1),
        ("PUT", all, json("\n[]"), 422, "#", 2, 1),
        ("PUT", all, json("{\n \"resources\": 1}"), 422, "#/resources", 2, 15),
        ("PUT", all, json("{\"resources\": [],\n \"version\": 1}"), 422, "#/version", 2, 13),
        ("PUT", all, json("{\"resources\": [],\n \"other\": 1}"), 422, "#/other", 2, 2),
        (
            "PUT",
            all,
            json("{\"resources\": [\n{\"@type\": \"CLUSTER\", \"name\": \"a\",\n  \"typo\": 1}]}"),
            422,
            "#/resources/0/typo",
            3,
            3,
        ),
        (
            "PUT",
            all,
            yaml("resources:\n- \"@type\": CLUSTER\n  name: a\n  alt_stat_name: '[redacted]'\n"),
            422,
            "#/resources/0/alt_stat_name",
            4,
            18,
        ),
        (
            "PUT",
            all,
            yaml("resources:\n- {\"@type\": CLUSTER, name: a}\n- {\"@type\": CLUSTER, name: a}\n"),
            422,
            "#/resources/1",
            3,
            3,
        ),
        ("PUT", one, json("{\"name\": \"a\",\n \"typo\": 1}"), 422, "#/typo", 2, 2),
        ("PUT", one, yaml("typo: 1\nname: a\n"), 422, "#/typo", 1, 1),
        ("PUT", one, json("\n {\"name\": \"b\"}"), 422, "#", 2, 2),
        ("PUT", one, json("{\n\"name\": \"[redacted]\"}"), 422, "#/name", 2, 9),
        (
            "PUT",
            "/v1/groups/g",
            json("{\n \"selector\": {\"nodeIdz\": []}}"),
            422,
            "#/selector/nodeIdz",
            2,
            15,
        ),
        ("PUT", "/v1/groups/g", yaml("selector: {all: true}\nname: h\n"), 422, "#/name", 2, 7),
        ("POST", "/v1/rollback", json(" {\"revison\": 1}"), 422, "#/revison", 1, 14),
    ] {
        let reply = rest.call(method, path, &[("content-type", kind)], &text).await;
        let problem = reply.json();
        let fault = &problem["errors"][0];
        assert_eq!(
            (reply.status, &fault["pointer"], &fault["line"], &fault["column"]),
            (status, &json!(pointer), &json!(line), &json!(column)),
            "{text}: {problem}"
        );
    }
}
