//! HTTPRoute: host names of listeners and routes.

use anyhow::Result;
use serde_json::json;
use xds_tests::rpc::Ask;

use crate::conformance::support::{Case, Expected, from, gateway, web_gateway};

const BACKENDS: [&str; 3] = ["v1", "v2", "v3"];
const NOT_FOUND: Expected = Expected::Code(404);

fn route(name: &str, parents: &str, hosts: &str, path: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{parents}]\n  hostnames: [{hosts}]\n  rules: [{{matches: [{{path: {{type: PathPrefix, value: \
         {path}}}}}], backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n"
    )
}

fn listener(name: &str, port: &str, host: &str) -> String {
    let host = if host.is_empty() { String::new() } else { format!(", hostname: {host:?}") };
    format!("  - {{name: {name}, protocol: HTTP, port: {{{port}}}{host}}}\n")
}

/// Conformance: HTTPRouteHostnameIntersection.
#[tokio::test]
async fn the_hosts_of_listener_and_route_intersect() -> Result<()> {
    let listeners = listener("one", "web", "very.specific.com")
        + &listener("two", "web", "*.wildcard.io")
        + &listener("three", "web", "*.anotherwildcard.io");
    let parent = "{name: web}";
    let documents = gateway("web", &listeners)
        + &gateway("all", &listener("all", "all", ""))
        + &route(
            "r1",
            parent,
            "non.matching.com, '*.nonmatchingwildcard.io', very.specific.com",
            "/s1",
            "v1",
        )
        + &route(
            "r2",
            parent,
            "non.matching.com, wildcard.io, foo.wildcard.io, bar.wildcard.io, foo.bar.wildcard.io",
            "/s2",
            "v2",
        )
        + &route("r3", parent, "non.matching.com, '*.specific.com'", "/s3", "v3")
        + &route("r4", parent, "'*.anotherwildcard.io'", "/s4", "v1")
        + &route("r5", parent, "specific.but.wrong.com, wildcard.io", "/s5", "v1")
        + &route("r6", "{name: all}", "first.com, sub.first.com, second.com, sub.second.com", "/", "v2");
    let case = Case::start(&BACKENDS, &["web", "all"], &documents).await?;
    let mut requests = vec![
        (Ask::get("very.specific.com", "/s1"), from("v1")),
        (Ask::get("very.specific.com:1234", "/s1"), from("v1")),
        (Ask::get("very.specific.com", "/s3"), from("v3")),
        (Ask::get("very.specific.com", "/non-matching-prefix"), NOT_FOUND),
        (Ask::get("non.matching.com", "/s1"), NOT_FOUND),
        (Ask::get("foo.nonmatchingwildcard.io", "/s1"), NOT_FOUND),
        (Ask::get("foo.wildcard.io", "/non-matching-prefix"), NOT_FOUND),
        (Ask::get("non.matching.com", "/s2"), NOT_FOUND),
        (Ask::get("wildcard.io", "/s2"), NOT_FOUND),
        (Ask::get("foo.specific.com", "/s3"), NOT_FOUND),
        (Ask::get("non.matching.com", "/s3"), NOT_FOUND),
        (Ask::get("anotherwildcard.io", "/s4"), NOT_FOUND),
        (Ask::get("foo.anotherwildcard.io", "/non-matching-prefix"), NOT_FOUND),
    ];
    for host in ["foo.wildcard.io", "bar.wildcard.io", "foo.bar.wildcard.io"] {
        requests.push((Ask::get(host, "/s2"), from("v2")));
    }
    for host in ["foo.anotherwildcard.io", "bar.anotherwildcard.io", "foo.bar.anotherwildcard.io"] {
        requests.push((Ask::get(host, "/s4"), from("v1")));
    }
    for host in ["specific.but.wrong.com", "wildcard.io", "very.specific.com", "foo.wildcard.io"] {
        requests.push((Ask::get(host, "/s5"), NOT_FOUND));
    }
    case.check("web", &requests).await?;
    let mut requests = vec![(Ask::get("third.com", "/"), NOT_FOUND)];
    for host in ["first.com", "sub.first.com", "second.com", "sub.second.com"] {
        requests.push((Ask::get(host, "/"), from("v2")));
    }
    case.check("all", &requests).await?;

    let refused = ("Accepted", "False", "NoMatchingListenerHostname");
    case.world.expect_condition(("HTTPRoute", "default", "r5"), Some(0), refused).await?;
    let status = case.world.conditions("Gateway", "default", "web").await?;
    let attached = ["one", "two", "three"].map(|name| status.listener(name)["attachedRoutes"].clone());
    assert_eq!(attached, [json!(2), json!(1), json!(1)], "{status:?}");
    Ok(())
}

/// Conformance: HTTPRouteListenerHostnameMatching.
#[tokio::test]
async fn listeners_are_chosen_by_host() -> Result<()> {
    let listeners = listener("listener-1", "web", "bar.com")
        + &listener("listener-2", "web", "foo.bar.com")
        + &listener("listener-3", "web", "*.bar.com")
        + &listener("listener-4", "web", "*.foo.com");
    let section = |name: &str| format!("{{name: web, sectionName: {name}}}");
    let both = format!("{}, {}", section("listener-3"), section("listener-4"));
    let documents = gateway("web", &listeners)
        + &route("one", &section("listener-1"), "", "/", "v1")
        + &route("two", &section("listener-2"), "", "/", "v2")
        + &route("three", &both, "", "/", "v3");
    let case = Case::start(&BACKENDS, &["web"], &documents).await?;
    let requests = [
        (Ask::get("bar.com", "/"), from("v1")),
        (Ask::get("foo.bar.com", "/"), from("v2")),
        (Ask::get("baz.bar.com", "/"), from("v3")),
        (Ask::get("boo.bar.com", "/"), from("v3")),
        (Ask::get("multiple.prefixes.bar.com", "/"), from("v3")),
        (Ask::get("multiple.prefixes.foo.com", "/"), from("v3")),
        (Ask::get("foo.com", "/"), NOT_FOUND),
        (Ask::get("no.matching.host", "/"), NOT_FOUND),
    ];
    case.check("web", &requests).await
}

/// Conformance: HTTPRouteListenerPortMatching.
#[tokio::test]
async fn listeners_are_chosen_by_port() -> Result<()> {
    let listeners = listener("listener-1", "p80", "foo.com")
        + &listener("listener-2", "p8080", "foo.com")
        + &listener("listener-3", "p8080", "bar.com")
        + &listener("listener-4", "p8090", "foo.com")
        + &listener("listener-5", "p8090", "bar.com");
    let documents = gateway("web", &listeners)
        + &route("one", "{name: web, port: {p80}}", "", "/", "v1")
        + &route("two", "{name: web, port: {p8080}}", "", "/", "v2")
        + &route("three", "{name: web, port: {p8090}, sectionName: listener-4}", "", "/", "v3");
    let case = Case::start(&BACKENDS, &["p80", "p8080", "p8090"], &documents).await?;
    let (foo, bar) = (Ask::get("foo.com", "/"), Ask::get("bar.com", "/"));
    case.check("p80", &[(foo.clone(), from("v1")), (bar.clone(), NOT_FOUND)]).await?;
    case.check("p8080", &[(foo.clone(), from("v2")), (bar.clone(), from("v2"))]).await?;
    case.check("p8090", &[(foo, from("v3")), (bar, NOT_FOUND)]).await
}

/// Each listener has a route of its own with its own path; only the most specific listener owns a host.
async fn check_isolation(hosts: &str) -> Result<()> {
    let names = ["empty-hostname", "wildcard-example-com", "wildcard-foo-example-com", "abc-foo-example-com"];
    let of_listeners = ["", "*.example.com", "*.foo.example.com", "abc.foo.example.com"];
    let mut listeners = String::new();
    let mut routes = String::new();
    for (name, host) in names.iter().zip(of_listeners) {
        listeners += &listener(name, "web", host);
        let parent = format!("{{name: web, sectionName: {name}}}");
        routes += &route(name, &parent, hosts, &format!("/{name}"), "v1");
    }
    let case = Case::start(&BACKENDS, &["web"], &(gateway("web", &listeners) + &routes)).await?;
    let mut requests = Vec::new();
    for (host, owner) in
        ["bar.com", "bar.example.com", "bar.foo.example.com", "abc.foo.example.com"].iter().zip(names)
    {
        for name in names {
            let expected = if name == owner { from("v1") } else { NOT_FOUND };
            requests.push((Ask::get(host, &format!("/{name}")), expected));
        }
    }
    case.check("web", &requests).await
}

/// Conformance: GatewayHTTPListenerIsolation.
#[tokio::test]
async fn listeners_are_isolated() -> Result<()> {
    check_isolation("").await
}

#[tokio::test]
async fn listeners_are_isolated_when_routes_name_hosts() -> Result<()> {
    check_isolation("bar.com, '*.example.com', '*.foo.example.com', abc.foo.example.com").await
}

#[tokio::test]
async fn of_two_kinds_on_one_host_the_first_is_accepted() -> Result<()> {
    let grpc = "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: b-grpc}\nspec:\n  \
                parentRefs: [{name: web}]\n  hostnames: [a.com]\n  rules: [{backendRefs: [{name: v2, port: 8080}]}]\n---\n";
    let documents = web_gateway()
        + &route("c-http", "{name: web}", "a.com", "/", "v1")
        + grpc
        + &route("d-http", "{name: web}", "b.com", "/", "v3");
    let case = Case::start(&BACKENDS, &["web"], &documents).await?;
    let requests = [(Ask::call("a.com", "/x.Y/M"), from("v2")), (Ask::get("b.com", "/x"), from("v3"))];
    case.check("web", &requests).await?;
    let refused = ("Accepted", "False", "HostnameConflict");
    case.world.expect_condition(("HTTPRoute", "default", "c-http"), Some(0), refused).await?;
    let accepted = ("Accepted", "True", "Accepted");
    case.world.expect_condition(("HTTPRoute", "default", "d-http"), Some(0), accepted).await
}
