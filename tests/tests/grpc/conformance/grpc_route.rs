//! GRPCRoute: the cases of section 2.2.

use anyhow::Result;
use xds_tests::rpc::{Ask, Told, UNAVAILABLE};

use crate::conformance::support::{
    Case, ECHO, Expected, ensure_shares, from, gateway, no_route, web_gateway,
};

/// The three backends of most cases.
const BACKENDS: [&str; 3] = ["v1", "v2", "v3"];

fn echo(method: &str) -> Ask {
    Ask::call("example.com", &format!("/{ECHO}/{method}"))
}

fn route(name: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n{rules}\n---\n"
    )
}

fn pairs(asks: Vec<(Ask, Option<&'static str>)>) -> Vec<(Ask, Expected)> {
    let expected = |(ask, backend): (Ask, Option<&'static str>)| {
        let expected = backend.map_or_else(|| no_route(&ask), from);
        (ask, expected)
    };
    asks.into_iter().map(expected).collect()
}

/// Conformance: GRPCExactMethodMatching.
#[tokio::test]
async fn exact_methods_are_matched() -> Result<()> {
    let rules = format!(
        "  - matches: [{{method: {{service: {ECHO}, method: Echo}}}}]\n    backendRefs: [{{name: v1, port: 8080}}]\n  \
         - matches: [{{method: {{service: {ECHO}, method: EchoTwo}}}}]\n    backendRefs: [{{name: v2, port: 8080}}]"
    );
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("exact", &rules))).await?;
    let requests =
        pairs(vec![(echo("Echo"), Some("v1")), (echo("EchoTwo"), Some("v2")), (echo("EchoThree"), None)]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

/// Conformance: GRPCRouteHeaderMatching.
#[tokio::test]
async fn headers_are_matched_and_ties_go_to_the_first_rule() -> Result<()> {
    let rules = "
  - matches: [{headers: [{name: version, value: one}]}]
    backendRefs: [{name: v1, port: 8080}]
  - matches: [{headers: [{name: version, value: two}]}]
    backendRefs: [{name: v2, port: 8080}]
  - matches: [{headers: [{name: version, value: two}, {name: color, value: orange}]}]
    backendRefs: [{name: v1, port: 8080}]
  - matches: [{headers: [{name: color, value: blue}]}, {headers: [{name: color, value: green}]}]
    backendRefs: [{name: v1, port: 8080}]
  - matches: [{headers: [{name: color, value: red}]}, {headers: [{name: color, value: yellow}]}]
    backendRefs: [{name: v2, port: 8080}]";
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("headers", rules))).await?;
    let color = |color: &str| echo("Echo").with("color", color);
    let requests = pairs(vec![
        (echo("Echo").with("version", "one"), Some("v1")),
        (echo("Echo").with("version", "two"), Some("v2")),
        (echo("Echo").with("version", "two").with("color", "orange"), Some("v1")),
        (echo("Echo").with("version", "two").with("color", "blue"), Some("v2")),
        (color("orange"), None),
        (echo("Echo").with("some-other-header", "one"), None),
        (color("blue"), Some("v1")),
        (color("green"), Some("v1")),
        (color("red"), Some("v2")),
        (color("yellow"), Some("v2")),
        (color("purple"), None),
    ]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

/// Conformance: GRPCRouteListenerHostnameMatching.
#[tokio::test]
async fn listeners_are_chosen_by_host() -> Result<()> {
    let listener = |name: &str, host: &str| {
        format!("  - {{name: {name}, protocol: HTTP, port: {{web}}, hostname: {host:?}}}\n")
    };
    let listeners = listener("listener-1", "bar.com")
        + &listener("listener-2", "foo.bar.com")
        + &listener("listener-3", "*.bar.com")
        + &listener("listener-4", "*.foo.com");
    let route = |name: &str, sections: &[&str], backend: &str| {
        let parents: Vec<_> =
            sections.iter().map(|section| format!("{{name: web, sectionName: {section}}}")).collect();
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{name: {name}}}\nspec:\n  \
             parentRefs: [{}]\n  rules: [{{backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n",
            parents.join(", ")
        )
    };
    let documents = gateway("web", &listeners)
        + &route("one", &["listener-1"], "v1")
        + &route("two", &["listener-2"], "v2")
        + &route("three", &["listener-3", "listener-4"], "v3");
    let case = Case::start(&BACKENDS, &["web"], &documents).await?;
    let at = |host: &str| Ask::call(host, &format!("/{ECHO}/Echo"));
    let requests = pairs(vec![
        (at("bar.com"), Some("v1")),
        (at("foo.bar.com"), Some("v2")),
        (at("baz.bar.com"), Some("v3")),
        (at("boo.bar.com"), Some("v3")),
        (at("multiple.prefixes.bar.com"), Some("v3")),
        (at("multiple.prefixes.foo.com"), Some("v3")),
        (at("foo.com"), None),
        (at("no.matching.host"), None),
    ]);
    case.check("web", &requests).await?;
    // A proxyless client that dials a host which nobody serves waits for its listener until it gives up.
    let served: Vec<_> =
        requests.into_iter().filter(|(_, expected)| matches!(expected, Expected::From(_))).collect();
    case.check_proxyless("web", &served).await
}

/// Conformance: GRPCRouteNamedRule.
#[tokio::test]
async fn rules_may_have_names() -> Result<()> {
    let rules = format!(
        "  - name: named-rule\n    matches: [{{method: {{service: {ECHO}, method: Echo}}}}]\n    \
         backendRefs: [{{name: v1, port: 8080}}]\n  \
         - matches: [{{method: {{service: {ECHO}, method: EchoTwo}}}}]\n    backendRefs: [{{name: v2, port: 8080}}]"
    );
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("named", &rules))).await?;
    let requests = pairs(vec![(echo("Echo"), Some("v1")), (echo("EchoTwo"), Some("v2"))]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

/// Conformance: GRPCRouteWeight.
#[tokio::test]
async fn weights_are_shares() -> Result<()> {
    let rules = "  - backendRefs: [{name: v1, port: 8080, weight: 70}, {name: v2, port: 8080, weight: 30}, \
                 {name: v3, port: 8080, weight: 0}]";
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("weights", rules))).await?;
    case.world.expect("web", &echo("Echo"), Told::ensure_ok).await?;
    let shares = case.shares("web", &echo("Echo"), 1_000).await?;
    ensure_shares(&shares, &[("v1", 70), ("v2", 30), ("v3", 0)])
}

#[tokio::test]
async fn an_invalid_backend_fails_for_its_share_c47() -> Result<()> {
    let rules = "  - backendRefs: [{name: v1, port: 8080, weight: 20}, {name: gone, port: 8080, weight: 80}]";
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("broken", rules))).await?;
    case.world.expect_from("web", &echo("Echo"), "v1").await?;
    let shares = case.shares("web", &echo("Echo"), 1_000).await?;
    ensure_shares(&shares, &[("v1", 20), (&UNAVAILABLE.to_string(), 80)])?;
    let wanted = ("ResolvedRefs", "False", "BackendNotFound");
    case.world.expect_condition(("GRPCRoute", "default", "broken"), Some(0), wanted).await?;
    let wanted = ("Accepted", "True", "Accepted");
    case.world.expect_condition(("GRPCRoute", "default", "broken"), Some(0), wanted).await
}

#[tokio::test]
async fn a_rule_without_a_backend_is_unavailable_c49() -> Result<()> {
    let rules = format!(
        "  - matches: [{{method: {{service: {ECHO}, method: Echo}}}}]\n  \
         - matches: [{{method: {{service: {ECHO}, method: EchoTwo}}}}]\n    \
         backendRefs: [{{name: v1, port: 8080, weight: 0}}]\n  \
         - matches: [{{method: {{service: {ECHO}, method: EchoThree}}}}]\n    \
         backendRefs: [{{name: v1, port: 8080}}]"
    );
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("none", &rules))).await?;
    let unavailable = Expected::Code(UNAVAILABLE);
    let requests =
        vec![(echo("EchoThree"), from("v1")), (echo("Echo"), unavailable), (echo("EchoTwo"), unavailable)];
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

/// Conformance: GRPCRouteRequestHeaderModifier.
#[tokio::test]
async fn request_headers_are_changed() -> Result<()> {
    let rule = |name: &str, edits: &str| {
        format!(
            "  - matches: [{{headers: [{{name: x-test-case, value: {name}}}]}}]\n    filters:\n    \
             - {{type: RequestHeaderModifier, requestHeaderModifier: {{{edits}}}}}\n    \
             backendRefs: [{{name: v1, port: 8080}}]\n"
        )
    };
    let rules = rule("set", "set: [{name: X-Header-Set, value: set-overwrites-values}]")
        + &rule("add", "add: [{name: x-header-add, value: add-appends-values}]")
        + &rule("remove", "remove: [x-header-remove]")
        + &rule(
            "multi",
            "set: [{name: x-header-set-1, value: header-set-1}, {name: x-header-set-2, value: '50%'}], \
             add: [{name: x-header-add-1, value: header-add-1}], remove: [x-header-remove-1, X-Header-Remove-2]",
        );
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("edits", &rules))).await?;
    let ask = |case: &str| echo("Echo").with("x-test-case", case);
    let table = [
        (ask("set"), "x-header-set", Some("set-overwrites-values")),
        (ask("set").with("x-header-set", "was"), "x-header-set", Some("set-overwrites-values")),
        (ask("add"), "x-header-add", Some("add-appends-values")),
        (ask("add").with("x-header-add", "was"), "x-header-add", Some("was,add-appends-values")),
        (ask("remove").with("x-header-remove", "was"), "x-header-remove", None),
        (ask("multi"), "x-header-set-1", Some("header-set-1")),
        (ask("multi").with("x-header-set-2", "was"), "x-header-set-2", Some("50%")),
        (ask("multi"), "x-header-add-1", Some("header-add-1")),
        (ask("multi").with("x-header-remove-1", "was"), "x-header-remove-1", None),
        (ask("multi").with("x-header-remove-2", "was"), "x-header-remove-2", None),
    ];
    for (ask, header, expected) in table {
        let told = case.world.expect_from("web", &ask, "v1").await?;
        assert_eq!(told.request_header(header)?.as_deref(), expected, "{ask:?}");
    }
    Ok(())
}

#[tokio::test]
async fn precedence_is_service_then_method_then_headers_c38() -> Result<()> {
    let rule = |matches: &str, backend: &str| {
        format!("  - matches: [{{{matches}}}]\n    backendRefs: [{{name: {backend}, port: 8080}}]\n")
    };
    let first = rule("method: {service: foo.Bar}", "a") + &rule("method: {method: Get}", "b");
    let second = rule("method: {service: foo.Bar, method: Get}", "c")
        + &rule("headers: [{name: version, value: '2'}]", "d")
        + &rule("method: {service: foo.Bar}, headers: [{name: version, value: '2'}]", "e");
    let third = rule("method: {service: foo.Bar}", "f");
    let dated = |name: &str, year: u32, rules: &str| {
        route(name, rules)
            .replace("metadata: {", &format!("metadata: {{creationTimestamp: {year}-01-01T00:00:00Z, "))
    };
    let documents = web_gateway()
        + &dated("r1", 2020, &first)
        + &dated("r2", 2021, &second)
        + &dated("aaa", 2021, &third);
    let case = Case::start(&["a", "b", "c", "d", "e", "f"], &["web"], &documents).await?;
    let call = |path: &str| Ask::call("any.host", path);
    let requests = pairs(vec![
        (call("/foo.Bar/Get"), Some("c")),
        (call("/foo.Bar/Get").with("version", "2"), Some("c")),
        (call("/foo.Bar/Put").with("version", "2"), Some("e")),
        (call("/foo.Bar/Put"), Some("a")),
        (call("/x.Y/Get").with("version", "2"), Some("b")),
        (call("/x.Y/Put").with("version", "2"), Some("d")),
        (call("/x.Y/Put"), None),
    ]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

#[tokio::test]
async fn regular_expressions_match_the_whole_name_c29() -> Result<()> {
    let rules = "
  - matches: [{method: {type: RegularExpression, service: 'a|foo\\.[A-Z]+', method: 'Get|Put'}}]
    backendRefs: [{name: v1, port: 8080}]
  - matches: [{method: {type: RegularExpression, service: 'b.*'}}]
    backendRefs: [{name: v2, port: 8080}]
  - matches: [{method: {type: RegularExpression, method: 'List.*'}, headers: [{name: x-v, type: RegularExpression, value: 'v[0-9]'}]}]
    backendRefs: [{name: v3, port: 8080}]";
    let case = Case::start(&BACKENDS, &["web"], &(web_gateway() + &route("regex", rules))).await?;
    let call = |path: &str| Ask::call("any.host", path);
    let requests = pairs(vec![
        (call("/a/Get"), Some("v1")),
        (call("/foo.AB/Put"), Some("v1")),
        (call("/a/GetMore"), None),
        (call("/fooxAB/Put"), None),
        (call("/bcd/Any"), Some("v2")),
        (call("/x.Y/ListAll").with("x-v", "v7"), Some("v3")),
        (call("/x.Y/ListAll").with("x-v", "xv7"), None),
        (call("/x.Y/listAll").with("x-v", "v7"), None),
    ]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

#[tokio::test]
async fn rules_of_a_wildcard_host_serve_what_an_exact_host_leaves_c45() -> Result<()> {
    let host = |name: &str, hosts: &str, matches: &str, backend: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{name: {name}}}\nspec:\n  \
             parentRefs: [{{name: web}}]\n  {hosts}\n  rules: [{{matches: [{{{matches}}}], backendRefs: \
             [{{name: {backend}, port: 8080}}]}}]\n---\n"
        )
    };
    let documents = web_gateway()
        + &host("a", "hostnames: [foo.example.com]", "method: {service: x.X}", "v1")
        + &host("b", "hostnames: ['*.example.com']", "method: {service: y.Y}", "v2")
        + &host("c", "hostnames: []", "", "v3");
    let case = Case::start(&BACKENDS, &["web"], &documents).await?;
    let requests = pairs(vec![
        (Ask::call("foo.example.com", "/x.X/M"), Some("v1")),
        (Ask::call("foo.example.com", "/y.Y/M"), Some("v2")),
        (Ask::call("foo.example.com", "/z.Z/M"), Some("v3")),
        (Ask::call("bar.example.com", "/x.X/M"), Some("v3")),
        (Ask::call("bar.example.com", "/y.Y/M"), Some("v2")),
        (Ask::call("example.org", "/y.Y/M"), Some("v3")),
    ]);
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}
