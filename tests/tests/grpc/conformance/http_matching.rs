//! HTTPRoute: paths, methods, headers, query parameters, weights.

use anyhow::Result;
use http::Method;
use xds_tests::rpc::{Ask, Told};

use crate::conformance::support::{Case, Expected, ensure_shares, from, web_gateway};

const BACKENDS: [&str; 3] = ["v1", "v2", "v3"];
const NOT_FOUND: Expected = Expected::Code(404);

fn get(path: &str) -> Ask {
    Ask::get("example.com", path)
}

/// An HTTPRoute of the gateway `web`.
fn route(name: &str, hosts: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [{hosts}]\n  rules:\n{rules}\n---\n"
    )
}

/// A rule with these matches and one backend.
fn rule(matches: &str, backend: &str) -> String {
    format!("  - matches: [{matches}]\n    backendRefs: [{{name: {backend}, port: 8080}}]\n")
}

/// Conformance: HTTPRouteMatching.
#[tokio::test]
async fn paths_and_headers_match_within_one_route() -> Result<()> {
    let rules = rule("{path: {type: PathPrefix, value: /}}, {headers: [{name: version, value: one}]}", "v1")
        + &rule("{path: {type: PathPrefix, value: /v2}}, {headers: [{name: version, value: two}]}", "v2");
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("m", "", &rules))).await?;
    let requests = [
        (get("/"), from("v1")),
        (get("/example"), from("v1")),
        (get("/").with("Version", "one"), from("v1")),
        (get("/v2"), from("v2")),
        (get("/v2/example"), from("v2")),
        (get("/").with("Version", "two"), from("v2")),
        (get("/v2/"), from("v2")),
        (get("/v2example"), from("v1")),
        (get("/foo/v2/example"), from("v1")),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteMatchingAcrossRoutes.
#[tokio::test]
async fn routes_of_one_listener_are_merged() -> Result<()> {
    let first = rule("{path: {type: PathPrefix, value: /}}, {headers: [{name: version, value: one}]}", "v1");
    let second =
        rule("{path: {type: PathPrefix, value: /v2}}, {headers: [{name: version, value: two}]}", "v2");
    let documents = web_gateway()
        + &route("part1", "example.com, example.net", &first)
        + &route("part2", "example.com", &second);
    let case = Case::start(&BACKENDS, &["web"], &documents).await?;
    let net = |path: &str| Ask::get("example.net", path);
    let requests = [
        (get("/"), from("v1")),
        (get("/example"), from("v1")),
        (net("/example"), from("v1")),
        (get("/example").with("version", "one"), from("v1")),
        (get("/v2"), from("v2")),
        (net("/v2"), from("v1")),
        (get("/v2/example"), from("v2")),
        (get("/").with("version", "two"), from("v2")),
    ];
    case.check("web", &requests).await
}

#[tokio::test]
async fn exact_paths_come_before_prefixes_and_longer_ones_before_shorter() -> Result<()> {
    let exact = |path: &str| format!("{{path: {{type: Exact, value: {path}}}}}");
    let prefix = |path: &str| format!("{{path: {{type: PathPrefix, value: {path}}}}}");
    let rules = rule(&exact("/match/exact/one"), "v3")
        + &rule(&exact("/match/exact"), "v2")
        + &rule(&exact("/match"), "v1")
        + &rule(&prefix("/match/prefix/one"), "v2")
        + &rule(&prefix("/match/prefix/"), "v1")
        + &rule(&prefix("/match/"), "v3");
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("order", "", &rules))).await?;
    let requests = [
        (get("/match/exact/one"), from("v3")),
        (get("/match/exact"), from("v2")),
        (get("/match"), from("v1")),
        (get("/match/prefix/one/any"), from("v2")),
        (get("/match/prefix/any"), from("v1")),
        (get("/match/any"), from("v3")),
        (get("/other"), NOT_FOUND),
        (get("/matchany"), NOT_FOUND),
    ];
    case.check("web", &requests).await
}

#[tokio::test]
async fn regular_expressions_come_last_and_match_whole_paths() -> Result<()> {
    let rules = rule("{path: {type: RegularExpression, value: '/[a-z]+/x'}}", "v1")
        + &rule("{path: {type: PathPrefix, value: /abc}}", "v2")
        + &rule("{path: {type: Exact, value: /b/x}}", "v3");
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("regex", "", &rules))).await?;
    let requests = [
        (get("/a/x"), from("v1")),
        (get("/a/x/y"), NOT_FOUND),
        (get("/abc/x"), from("v2")),
        (get("/b/x?a=b"), from("v3")),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteMethodMatching.
#[tokio::test]
async fn methods_are_matched_after_paths_and_before_headers() -> Result<()> {
    let rules = rule("{method: POST}", "v1")
        + &rule("{method: GET}", "v2")
        + &rule("{path: {type: PathPrefix, value: /path1}, method: GET}", "v1")
        + &rule("{headers: [{name: version, value: one}], method: PUT}", "v2")
        + &rule(
            "{path: {type: PathPrefix, value: /path2}, headers: [{name: version, value: two}], method: POST}",
            "v3",
        )
        + &rule(
            "{path: {type: PathPrefix, value: /path3}, method: PATCH}, {path: {type: PathPrefix, value: /path4}, headers: [{name: version, value: three}], method: DELETE}",
            "v1",
        )
        + &rule("{path: {type: PathPrefix, value: /path5}}", "v1")
        + &rule("{method: PATCH}", "v2")
        + &rule("{headers: [{name: version, value: four}]}", "v3");
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("methods", "", &rules))).await?;
    let ask = |method: Method, path: &str| get(path).method(method);
    let requests = [
        (ask(Method::POST, "/"), from("v1")),
        (ask(Method::GET, "/"), from("v2")),
        (ask(Method::HEAD, "/"), NOT_FOUND),
        (ask(Method::GET, "/path1"), from("v1")),
        (ask(Method::PUT, "/").with("version", "one"), from("v2")),
        (ask(Method::POST, "/path2").with("version", "two"), from("v3")),
        (ask(Method::PATCH, "/path3"), from("v1")),
        (ask(Method::DELETE, "/path4").with("version", "three"), from("v1")),
        (ask(Method::PUT, "/"), NOT_FOUND),
        (ask(Method::DELETE, "/path4"), NOT_FOUND),
        (ask(Method::PATCH, "/path5"), from("v1")),
        (ask(Method::PATCH, "/").with("version", "four"), from("v2")),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteQueryParamMatching.
#[tokio::test]
async fn query_parameters_are_matched() -> Result<()> {
    let query = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| format!("{{name: {name}, value: {value}}}")).collect();
        format!("queryParams: [{}]", pairs.join(", "))
    };
    let rules = rule(&format!("{{{}}}", query(&[("animal", "whale")])), "v1")
        + &rule(&format!("{{{}}}", query(&[("animal", "dolphin")])), "v2")
        + &rule(&format!("{{{}}}", query(&[("animal", "dolphin"), ("color", "blue")])), "v3")
        + &rule(&format!("{{{}}}", query(&[("ANIMAL", "Whale")])), "v3")
        + &rule(
            &format!(
                "{{path: {{type: PathPrefix, value: /path1}}, {}}}, {{headers: [{{name: version, value: one}}], {}}}",
                query(&[("animal", "whale")]),
                query(&[("animal", "whale")])
            ),
            "v2",
        );
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("query", "", &rules))).await?;
    let requests = [
        (get("/?animal=whale"), from("v1")),
        (get("/?animal=dolphin"), from("v2")),
        (get("/?animal=whale&otherparam=irrelevant"), from("v1")),
        (get("/?animal=dolphin&color=yellow"), from("v2")),
        (get("/?color=blue&animal=dolphin"), from("v3")),
        (get("/?ANIMAL=Whale"), from("v3")),
        (get("/?animal=whale&otherparam=irrelevant&color=blue"), from("v1")),
        (get("/path1?animal=whale"), from("v2")),
        (get("/?animal=whale").with("version", "one"), from("v2")),
        (get("/"), NOT_FOUND),
        (get("/?animal=shark"), NOT_FOUND),
        (get("/?color=blue"), NOT_FOUND),
        (get("/?animal=Whale"), NOT_FOUND),
        (get("/?animal=whaled"), NOT_FOUND),
        (get("/path1"), NOT_FOUND),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteHeaderMatching.
#[tokio::test]
async fn headers_are_matched_whatever_the_case_of_their_names() -> Result<()> {
    let rules = rule("{headers: [{name: Version, value: one}]}", "v1")
        + &rule("{headers: [{name: version, value: two}]}", "v2")
        + &rule("{headers: [{name: version, value: two}, {name: color, value: orange}]}", "v1")
        + &rule("{headers: [{name: color, value: blue}]}, {headers: [{name: color, value: green}]}", "v1")
        + &rule("{headers: [{name: color, value: red}]}, {headers: [{name: color, value: yellow}]}", "v2");
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("headers", "", &rules))).await?;
    let color = |color: &str| get("/").with("color", color);
    let requests = [
        (get("/").with("version", "one"), from("v1")),
        (get("/").with("VERSION", "two"), from("v2")),
        (get("/").with("version", "two").with("color", "orange"), from("v1")),
        (get("/").with("version", "two").with("color", "blue"), from("v2")),
        (color("orange"), NOT_FOUND),
        (get("/").with("some-other-header", "one"), NOT_FOUND),
        (color("blue"), from("v1")),
        (color("green"), from("v1")),
        (color("red"), from("v2")),
        (color("yellow"), from("v2")),
        (color("purple"), NOT_FOUND),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteWeight.
#[tokio::test]
async fn weights_are_shares() -> Result<()> {
    let rules = "  - backendRefs: [{name: v1, port: 8080, weight: 70}, {name: v2, port: 8080, weight: 30}, \
                 {name: v3, port: 8080, weight: 0}]";
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("weights", "", rules))).await?;
    case.world.expect("web", &get("/"), Told::ensure_ok).await?;
    ensure_shares(&case.shares("web", &get("/"), 1_000).await?, &[("v1", 70), ("v2", 30), ("v3", 0)])
}
