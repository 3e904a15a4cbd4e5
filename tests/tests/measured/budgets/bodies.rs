//! Contents for REST bodies, polls and files.

use anyhow::{Context as _, Result};
use xds_tests::shapes::Shape;

/// A body or the contents of a file.
pub(crate) struct Body {
    pub(crate) content_type: &'static str,
    pub(crate) text: String,
}

/// The method and path of a row, with names in place of the parameters.
pub(crate) fn target(way: &str) -> Result<(&'static str, String)> {
    let (method, path) = way.split_once(' ').context("no method")?;
    let method =
        ["GET", "POST", "PUT", "PATCH"].into_iter().find(|known| *known == method).context("method")?;
    let parameters = [
        ("{group}", "budget"),
        ("{type}", "clusters"),
        ("{kind}", "Route"),
        ("{namespace}", "default"),
        ("{name}", "a"),
        ("{rule}", "0"),
        ("{rollout}", "a"),
    ];
    Ok((method, parameters.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))))
}

/// Bodies of about `n_bytes` for a row: every shape, as a whole and where the endpoint looks for values. Each has a name.
pub(crate) fn of(way: &str, n_bytes: usize) -> Vec<(String, Body)> {
    let mut bodies = Vec::new();
    for shape in Shape::ALL {
        for template in templates(way) {
            let text = template.replace(HERE, &shape.json(n_bytes - template.len()));
            for content_type in content_types(way) {
                let at: String = template.chars().take(60).collect();
                let name = format!("{shape:?} in {at} as {content_type}");
                bodies.push((name, Body { content_type, text: text.clone() }));
            }
        }
        if way.contains("YAML") {
            let text = format!("{CLUSTER_IN_BLOCKS}{}", shape.yaml(n_bytes - CLUSTER_IN_BLOCKS.len(), 10));
            bodies.push((format!("{shape:?} in blocks"), Body { content_type: YAML, text }));
        }
    }
    if way.contains("YAML") {
        bodies.push(("aliases of aliases".to_owned(), Body { content_type: YAML, text: laughs(n_bytes) }));
        let documents = "a: 1\n---\n".repeat(n_bytes / 9);
        bodies.push(("many documents".to_owned(), Body { content_type: YAML, text: documents }));
    }
    bodies
}

/// Where the shape goes.
const HERE: &str = "SHAPE";

fn templates(way: &str) -> &'static [&'static str] {
    match way {
        "POST /v1/apply" => &DOCUMENTS,
        "POST /v1/validate" => &[CLUSTER, DOCUMENTS[1]],
        "PUT /v1/groups/{group}" => &["SHAPE", r#"{"selector":{"nodeIds":["a"],"metadata":SHAPE}}"#],
        "PUT /v1/groups/{group}/resources" => &["SHAPE", CLUSTER, r#"{"resources":SHAPE}"#],
        "PUT /v1/groups/{group}/resources/{type}/{name}" => &[BARE_CLUSTER],
        "POST /v1/explain" => {
            &["SHAPE", r#"{"request":{"host":"a","headers":SHAPE}}"#, r#"{"clients":SHAPE}"#]
        }
        "PUT /v1/files" => &["SHAPE", r#"{"files":SHAPE}"#, r#"{"files":{"a.yaml":SHAPE}}"#],
        "POST /v1/diff" => &["SHAPE", r#"{"from":SHAPE}"#, r#"{"clients":SHAPE}"#],
        "POST /v1/rollouts" => &["SHAPE", r#"{"steps":SHAPE}"#],
        "POST /v1/rollback" | "POST /v1/rollouts/{rollout}:promote" => &["SHAPE"],
        "PUT /v1/weights/{kind}/{namespace}/{name}/{rule}" => &[r#"{"weights":SHAPE}"#],
        "PATCH /v1/weights/{kind}/{namespace}/{name}/{rule}" => &[r#"{"percent":SHAPE}"#],
        "POST /v3/discovery:clusters" => &[
            r#"{"node":{"id":"x","metadata":{"a":SHAPE}}}"#,
            r#"{"node":{"id":"x"},"resource_names":SHAPE}"#,
            r#"{"node":{"id":"x"},"no_such_field":SHAPE}"#,
        ],
        "POST /v3/discovery:client_status" => &[r#"{"node_matchers":SHAPE}"#, r#"{"node":SHAPE}"#],
        "file, JSON" => &[CLUSTER, DOCUMENTS[1], ANNOTATED],
        "file, YAML" => &[CLUSTER],
        _ => &["SHAPE"],
    }
}

fn content_types(way: &str) -> &'static [&'static str] {
    match way {
        // The reader is the same for all endpoints: both languages are tried at one that keeps nothing.
        "POST /v1/validate" => &[JSON, YAML],
        "file, YAML" => &[YAML],
        _ => &[JSON],
    }
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

const DOCUMENTS: [&str; 4] = [
    "SHAPE",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":SHAPE}"#,
    r#"{"version":"xds-server/v1","routes":SHAPE}"#,
    r#"{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a"},"spec":{"rules":SHAPE}}"#,
];
/// A document of a kind whose content is kept as it is.
const ANNOTATED: &str = r#"{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a","annotations":SHAPE}}"#;
const CLUSTER: &str = r#"{"resources":[{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a","connect_timeout":"1s","metadata":{"filter_metadata":{"x":{"v":SHAPE}}}}]}"#;
const BARE_CLUSTER: &str = r#"{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a","connect_timeout":"1s","metadata":{"filter_metadata":{"x":{"v":SHAPE}}}}"#;
const CLUSTER_IN_BLOCKS: &str = "resources:
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
  connect_timeout: 1s
  metadata:
    filter_metadata:
      x:
        v:
";

/// A document of aliases of aliases, and of as many aliases of one small list as fit.
fn laughs(n_bytes: usize) -> String {
    let mut text = "a: &a [0,0,0,0,0,0,0,0,0]\n".to_owned();
    for (name, of) in
        ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
    {
        text += &format!("{name}: &{name} [*{of},*{of},*{of},*{of},*{of},*{of},*{of},*{of},*{of}]\n");
    }
    text += "z: [";
    text += &"*a,".repeat((n_bytes - text.len()) / 3);
    text + "0]\n"
}
