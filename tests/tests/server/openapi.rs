//! `/openapi.json` against a running server: its real answers are as the document says.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::config::core::v3::{Locality, Node};
use serde_json::{Value, json};
use xds_tests::config::CLUSTER;
use xds_tests::events::Events;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup};

const ROUTES: &str = "version: xds-server/v1
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes: { shop: { hosts: [shop.example.com], to: { one: 90, two: 10 } } }
backends:
  one: { endpoints: ['127.0.0.1:1'] }
  two: { endpoints: ['127.0.0.1:2'] }
";

/// Every read that has an answer in JSON.
const READS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/v1/groups",
    "/v1/groups?limit=1",
    "/v1/groups/edge",
    "/v1/groups/edge/resources",
    "/v1/groups/edge/resources?limit=1",
    "/v1/groups/edge/snapshot",
    "/v1/groups/edge/snapshot?limit=1",
    "/v1/documents",
    "/v1/documents?limit=1",
    "/v1/documents/Route/default/shop",
    "/v1/conditions",
    "/v1/weights",
    "/v1/weights/Route/default/shop",
    "/v1/weights/Route/default/shop/0",
    "/v1/routes",
    "/v1/routes?limit=1&profile=envoy",
    "/v1/certificates",
    "/v1/fleet",
    "/v1/fleet?sort=id&limit=1",
    "/v1/nodes",
    "/v1/nodes/edge-1",
    "/v1/nodes/edge-1/snapshot",
    "/v1/acks",
    "/v1/relay",
    "/v1/replicas",
    "/v1/status/files",
    "/v1/tests",
    "/v1/history",
    "/v1/history/1",
    "/v1/history/1...2",
    "/v1/history/1?requests=true",
    "/v1/history/1...2?requests=true",
    "/v1/rollouts",
    "/v1/loads",
    "/v1/loads?limit=1",
    "/v1/waves",
    "/v1/access:check?node=edge-1",
    "/v1/access:check?node=edge-1&group=edge&spiffe=spiffe://a.org/x",
    "/v1/access:check?endpoint=PUT%20/v1/groups/edge",
];

/// The document, and the operations of which an answer was seen.
struct Described {
    document: Value,
    seen: BTreeSet<String>,
}

impl Described {
    /// The path of the document that a path of a request is, such as `/v1/groups/{group}` for `/v1/groups/edge`.
    fn path_of(&self, path: &str) -> Result<&str> {
        let path = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |template: &&String| {
            let template: Vec<&str> = template.split('/').collect();
            let same = |(template, part): (&&str, &&str)| match template.rsplit_once('}') {
                Some((_, verb)) => part.ends_with(verb) && (verb.is_empty() != part.contains(':')),
                None => template == part,
            };
            template.len() == parts.len() && template.iter().zip(&parts).all(same)
        };
        let paths = self.document["paths"].as_object().context("paths")?;
        // A path that is spelled out wins, as in a router.
        let best = paths.keys().filter(fits).min_by_key(|template| template.matches('{').count());
        best.map(String::as_str).with_context(|| format!("{path} is not described"))
    }

    /// Checks an answer against the document.
    fn check(&mut self, method: &str, path: &str, status: u16, body: &Value) -> Result<()> {
        let template = self.path_of(path)?.to_owned();
        let operation = &self.document["paths"][&template][method];
        let response = &operation["responses"][status.to_string()];
        ensure!(response.is_object(), "{method} {path} is not described to answer {status}: {body:#}");
        let kind = if status < 400 { "application/json" } else { "application/problem+json" };
        let schema = &response["content"][kind]["schema"];
        ensure!(schema.is_object(), "{method} {path}: no schema of {status}");
        self.validate(schema, body).with_context(|| format!("{method} {path}: {status} {body:#}"))?;
        self.seen.insert(format!("{method} {template}"));
        Ok(())
    }

    fn validate(&self, schema: &Value, value: &Value) -> Result<()> {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        if schema["$ref"].is_string() && schema["$ref"] != "#/components/schemas/Problem" {
            schema["unevaluatedProperties"] = json!(false);
        }
        let validator = jsonschema::validator_for(&schema)?;
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .take(5)
            .collect();
        ensure!(errors.is_empty(), "{errors:#?}");
        Ok(())
    }
}

/// Checks what a request is answered with.
async fn check(
    server: &Server,
    described: &mut Described,
    (method, path): (&str, &str),
    body: Option<&Value>,
    status: u16,
) -> Result<Value> {
    let headers = [("content-type", "application/json"), ("if-match", "*")];
    let headers = if body.is_some() { &headers[..1 + usize::from(path.contains("/weights/"))] } else { &[] };
    let body = body.map(Value::to_string).unwrap_or_default();
    let answer = server.request(&method.to_uppercase(), path, headers, body).await?;
    let json = answer.json()?;
    ensure!(answer.status.as_u16() == status, "{method} {path}: {} {json:#}", answer.status);
    described.check(method, path, status, &json)?;
    Ok(json)
}

/// Checks that every event that came is one of those that are described.
async fn check_events(described: &Described, events: &Events) -> Result<()> {
    events.wait("event: nack").await?;
    let kinds = kinds_of(described, events, "/v1/events")?;
    for kind in ["publish", "connect", "ack", "nack"] {
        ensure!(kinds.contains(kind), "no event {kind}: {kinds:?}");
    }
    Ok(())
}

/// Checks the events of rollouts.
async fn check_watch(described: &Described, events: &Events) -> Result<()> {
    events.wait("event: deleted").await?;
    let kinds = kinds_of(described, events, "/v1/rollouts")?;
    ensure!(kinds == BTreeSet::from(["rollout".to_owned(), "deleted".to_owned()]), "{kinds:?}");
    let path = "/v1/rollouts/{rollout}";
    let stream =
        &described.document["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"];
    ensure!(stream["schema"].is_object(), "{path} has no stream");
    Ok(())
}

/// The kinds of the events that came, each of which is as the document says of the stream at a path.
fn kinds_of(described: &Described, events: &Events, path: &str) -> Result<BTreeSet<String>> {
    let text = events.text();
    let mut kinds = BTreeSet::new();
    let content = &described.document["paths"][path]["get"]["responses"]["200"]["content"];
    let schema = &content["text/event-stream"]["schema"];
    ensure!(schema.is_object(), "{path} has no stream: {content:#}");
    for block in text.split("\n\n").filter(|block| block.contains("event: ") && block.contains("data: ")) {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let kind = field("event: ").context("a kind")?;
        let Some(Ok(data)) = field("data: ").map(serde_json::from_str::<Value>) else { continue };
        let mut event = json!({"event": kind, "data": data});
        if let Some(id) = field("id: ") {
            event["id"] = json!(id);
        }
        described.validate(schema, &event).with_context(|| event.to_string())?;
        kinds.insert(kind.to_owned());
    }
    Ok(kinds)
}

/// Checks that the document and the server take the same bodies of rollouts.
async fn check_rollout_bodies(server: &Server, described: &mut Described) -> Result<()> {
    let schema =
        described.document["paths"]["/v1/rollouts"]["post"]["requestBody"]["content"]["application/json"]["schema"]
            .clone();
    let body = |more: &Value| {
        let mut body = json!({"route": {"kind": "Route", "namespace": "default", "name": "shop"}, "stable": "one", "canary": "two"});
        let fields = body.as_object_mut().context("an object")?;
        fields.extend(more.as_object().context("fields")?.clone());
        anyhow::Ok(body)
    };
    let step = |step: Value| json!({"steps": [step]});
    for good in [
        json!({"steps": [{"setWeight": "12.5%", "waitAck": "1m30s"}, {"waitAck": 5}, {"pause": {}}, {"pause": {"duration": "10m"}}],
            "promotionSteps": [{"setWeight": 99.5}], "maxWeight": 50, "autoPromote": false, "onNack": "abort",
            "nackTolerance": 1, "waitAck": "1h", "onAckTimeout": "continue", "deadline": "2d", "interval": 30}),
        json!({"steps": [{"setHeaderRoute": {"name": "t", "match": [{"headerName": "x-t", "headerValue": {"regex": "a+"}}]}},
            {"setHeaderRoute": {"name": "t"}}, {"setWeight": 5}]}),
        json!({"steps": [{"analysis": {"interval": "1m", "count": 3, "maxErrorRate": 1, "minRequests": 100}}],
            "analysis": {"failureLimit": 2, "inconclusiveLimit": 0, "maxErrorRateOverStable": 0.5,
                "prometheus": {"address": "http://prometheus:9090", "query": "up", "min": 1}}}),
        json!({"stepWeight": 10, "maxWeight": 50, "interval": "1m", "threshold": 5, "stepWeightPromotion": 25}),
        json!({"stepWeights": [1, "2%", 50], "webhooks": [{"name": "gate", "type": "confirm-promotion",
            "url": "http://gate.example.com:8080/gate?a=b", "timeout": "10s", "retries": 2, "metadata": {"team": "web"}}]}),
    ] {
        let body = body(&good)?;
        described.validate(&schema, &body).with_context(|| body.to_string())?;
        let answer = check(server, described, ("post", "/v1/rollouts?dryRun=true"), Some(&body), 200).await?;
        described.validate(&schema, &answer["spec"]).with_context(|| format!("the long form of {body}"))?;
    }
    for bad in [
        json!({}),
        json!({"steps": []}),
        json!({"steps": [{"pause": {}}], "stepWeight": 5}),
        json!({"stepWeight": 5, "stepWeights": [5]}),
        json!({"stepWeight": 5, "promotionSteps": [{"setWeight": 50}]}),
        json!({"steps": [{"pause": {}}], "threshold": 5}),
        json!({"steps": [{"pause": {}}], "more": 1}),
        json!({"steps": [{"pause": {}}], "onNack": "continue"}),
        json!({"steps": [{"pause": {}}], "webhooks": [{"name": "a", "type": "gate", "url": "http://a/"}]}),
        json!({"steps": [{"pause": {}}], "webhooks": [{"name": "a", "type": "event", "url": "http://u@a/"}]}),
        step(json!({})),
        step(json!({"setWeight": 101})),
        step(json!({"setWeight": "5"})),
        step(json!({"setWeight": 5, "pause": {}})),
        step(json!({"pause": {}, "waitAck": "1s"})),
        step(json!({"pause": {"duration": "soon"}})),
        step(json!({"analysis": {"count": 0}})),
        step(json!({"analysis": {"prometheus": {"address": "http://a", "query": "up"}}})),
        step(
            json!({"setHeaderRoute": {"name": "t", "match": [{"headerName": "x", "headerValue": {"exact": "a", "prefix": "b"}}]}}),
        ),
    ] {
        let body = body(&bad)?;
        ensure!(described.validate(&schema, &body).is_err(), "the document takes {body}");
        let checked = check(server, described, ("post", "/v1/rollouts?dryRun=true"), Some(&body), 422).await;
        checked.with_context(|| body.to_string())?;
    }
    Ok(())
}

/// Waves by zone: a group that asks for them, and a wave deployment.
async fn check_waves(server: &Server, d: &mut Described) -> Result<()> {
    let group = json!({"selector": {"nodeIds": ["other-*"]}, "waves": {"shares": "each", "by": "zone", "order": ["a"]}});
    check(server, d, ("put", "/v1/groups/other"), Some(&group), 200).await?;
    check(server, d, ("get", "/v1/groups/other"), None, 200).await?;
    let by_zone = "/v1/groups/edge/resources/clusters/two?waves=each&by=zone&hold=1h";
    check(server, d, ("put", by_zone), Some(&plain_cluster("two", 2)), 200).await?;
    let waves = check(server, d, ("get", "/v1/waves"), None, 200).await?;
    let wave = &waves["waveDeployments"][0];
    assert_eq!(wave["values"][0]["value"], "a", "{wave:#}");
    check(server, d, ("post", &format!("/v1/waves/{}:promote", wave["id"])), None, 200).await?;
    check(server, d, ("post", "/v1/tests:release"), None, 409).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_answers_are_as_the_document_says() -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("shop.yaml"), ROUTES)?;
    std::fs::write(
        dir.path().join("bad.yaml"),
        "version: xds-server/v1\nroutes: { bad: { to: { one: 5% } } }\n",
    )?;
    let server = Server::start_with(Setup::new()?.watch(dir.path()).arg("--partial-start")).await?;
    server.wait_ready().await?;
    let mut described =
        Described { document: server.get_json("/openapi.json").await?, seen: BTreeSet::new() };
    let d = &mut described;
    let events = Events::open(server.admin()).await?;

    let group = json!({"selector": {"nodeIds": ["edge-*"]}, "waves": {"shares": ["10%"]}, "drain": {"clusters": "1s"}});
    check(&server, d, ("put", "/v1/groups/edge?dryRun=true"), Some(&group), 200).await?;
    check(&server, d, ("put", "/v1/groups/edge"), Some(&json!({"selector": {"nodeIds": ["edge-*"]}})), 200)
        .await?;
    let list = resources(&[plain_cluster("one", 1), plain_cluster("two", 1)]);
    check(&server, d, ("put", "/v1/groups/edge/resources"), Some(&list), 200).await?;
    let locality = Some(Locality { zone: "a".to_owned(), ..Locality::default() });
    let node = Node { locality, ..raw::node("edge-1", "c") };
    let mut stream = SotwStream::open(raw::connect(server.xds()).await?, path::ADS, node);
    stream.subscribe(CLUSTER, &[]).await?;
    let response = stream.expect_type(CLUSTER).await?;
    stream.ack(&response, &[]).await?;
    check(&server, d, ("put", "/v1/groups/edge/resources/clusters/one"), Some(&plain_cluster("one", 2)), 200)
        .await?;
    let response = stream.expect_type(CLUSTER).await?;
    stream.nack(&response, &[], "", "no such thing").await?;
    let is_error = |nodes: &Value| nodes["nodes"][0]["status"] == "ERROR";
    server.wait_json("/v1/nodes", is_error).await?;

    let rule = "/v1/weights/Route/default/shop/0";
    check(&server, d, ("patch", rule), Some(&json!({"percent": {"one": 50}})), 200).await?;
    check(&server, d, ("patch", rule), Some(&json!({"percent": {"tow": 50}})), 422).await?;
    let rollout = json!({"route": {"kind": "Route", "namespace": "default", "name": "shop", "rule": "0"},
        "stable": "one", "canary": "two", "steps": [{"setWeight": 5}, {"pause": {}}]});
    let headers = [("content-type", "application/json")];
    check_rollout_bodies(&server, d).await?;
    let watched = Events::open_at(server.admin(), "/v1/rollouts?watch=1").await?;
    let begun = server.request("POST", "/v1/rollouts", &headers, rollout.to_string()).await?;
    let (status, begun) = (begun.status.as_u16(), begun.json()?);
    ensure!(status == 202, "{begun:#}");
    d.check("post", "/v1/rollouts", status, &begun)?;
    let id = begun["id"].as_str().context("an id")?;

    let mut wrong = Vec::new();
    for path in READS {
        let checked = check(&server, d, ("get", path), None, 200).await;
        wrong.extend(checked.err().map(|error| format!("{path}: {:?}", error.root_cause().to_string())));
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    for (path, status) in [("/v1/groups/none", 404), ("/v1/nodes/none", 404), ("/v1/groups?limit=0", 400)] {
        check(&server, d, ("get", path), None, status).await?;
    }
    check(&server, d, ("get", &format!("/v1/rollouts/{id}/loads")), None, 200).await?;
    for verb in ["pause", "resume", "promote", "abort"] {
        let path = format!("/v1/rollouts/{id}:{verb}");
        let answer = server.request("POST", &path, &[], "").await?;
        d.check("post", &path, answer.status.as_u16(), &answer.json()?)?;
    }
    let has_ended = |rollout: &Value| ["Succeeded", "Aborted"].iter().any(|phase| rollout["phase"] == *phase);
    server.wait_json(&format!("/v1/rollouts/{id}"), has_ended).await?;
    ensure!(server.request("DELETE", &format!("/v1/rollouts/{id}"), &[], "").await?.status == 200);
    check_watch(d, &watched).await?;
    check_waves(&server, d).await?;
    check(&server, d, ("post", "/v1/rollback"), Some(&json!({"revision": 1})), 200).await?;
    check(&server, d, ("put", "/v1/files"), Some(&json!({"files": {}})), 409).await?;
    check(&server, d, ("put", "/v1/files"), Some(&json!({"files": {"/a.yaml": ""}})), 422).await?;
    check(&server, d, ("post", "/v1/rollback"), Some(&json!({"revison": 1})), 422).await?;

    check_events(d, &events).await?;
    ensure!(d.seen.len() > 28, "{:?}", d.seen);
    Ok(())
}

#[test]
fn a_document_that_lies_is_found_out() -> Result<()> {
    let schemas = json!({"Group": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}});
    let described =
        Described { document: json!({"components": {"schemas": schemas}}), seen: BTreeSet::new() };
    let schema = json!({"$ref": "#/components/schemas/Group"});
    described.validate(&schema, &json!({"name": "a"}))?;
    for wrong in [json!({}), json!({"name": 5}), json!({"name": "a", "more": 1})] {
        ensure!(described.validate(&schema, &wrong).is_err(), "{wrong}");
    }
    Ok(())
}
