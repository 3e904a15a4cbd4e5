//! Gateways, and which routes they take.

use anyhow::{Result, ensure};
use serde_json::json;
use xds_tests::rpc::Ask;
use xds_tests::wait::{PATIENCE, wait_for};

use crate::conformance::support::{Case, Expected, from, gateway, web_gateway};

const ACCEPTED: (&str, &str, &str) = ("Accepted", "True", "Accepted");

fn route(namespace: &str, name: &str, parents: &str, path: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  parentRefs: [{parents}]\n  rules: [{{matches: [{{path: {{type: PathPrefix, value: {path}}}}}], \
         backendRefs: [{{name: {backend}, port: 8080}}]}}]\n---\n"
    )
}

/// Conformance: HTTPRouteCrossNamespace.
#[tokio::test]
async fn namespaces_are_selected_by_label() -> Result<()> {
    let listeners = "  - {name: http, protocol: HTTP, port: {web}, allowedRoutes: {namespaces: {from: Selector, \
                     selector: {matchLabels: {kind: backend}}}}}";
    let namespace =
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: inside, labels: {kind: backend}}\n---\n";
    let parent = "{name: web, namespace: default}";
    let documents = gateway("web", listeners)
        + namespace
        + &route("inside", "r", parent, "/in", "in")
        + &route("outside", "r", parent, "/out", "out");
    let case = Case::start(&["inside/in", "outside/out"], &["web"], &documents).await?;
    let requests = [(Ask::get("a.com", "/in"), from("in")), (Ask::get("a.com", "/out"), Expected::Code(404))];
    case.check("web", &requests).await?;
    case.world.expect_condition(("HTTPRoute", "inside", "r"), Some(0), ACCEPTED).await?;
    let refused = ("Accepted", "False", "NotAllowedByListeners");
    case.world.expect_condition(("HTTPRoute", "outside", "r"), Some(0), refused).await
}

/// Conformance: HTTPRouteInvalidCrossNamespaceParentRef.
#[tokio::test]
async fn a_route_of_another_namespace_is_refused_by_default() -> Result<()> {
    let documents = web_gateway() + &route("other", "r", "{name: web, namespace: default}", "/", "app");
    let case = Case::start(&["other/app"], &["web"], &documents).await?;
    case.check("web", &[(Ask::get("a.com", "/"), Expected::Code(404))]).await?;
    let refused = ("Accepted", "False", "NotAllowedByListeners");
    case.world.expect_condition(("HTTPRoute", "other", "r"), Some(0), refused).await?;
    let status = case.world.conditions("Gateway", "default", "web").await?;
    assert_eq!(status.listener("http")["attachedRoutes"], 0, "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_kind_that_a_listener_does_not_allow_is_refused() -> Result<()> {
    let listeners =
        "  - {name: http, protocol: HTTP, port: {web}, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}";
    let documents = gateway("web", listeners) + &route("default", "r", "{name: web}", "/", "v1");
    let case = Case::start(&["v1"], &["web"], &documents).await?;
    case.check("web", &[(Ask::get("a.com", "/"), Expected::Code(404))]).await?;
    let refused = ("Accepted", "False", "NotAllowedByListeners");
    case.world.expect_condition(("HTTPRoute", "default", "r"), Some(0), refused).await
}

/// Conformance: HTTPRouteInvalidParentRefNotMatchingListenerPort.
#[tokio::test]
async fn a_parent_that_fits_no_listener_is_refused() -> Result<()> {
    let parents = [
        ("port", "{name: web, port: 81}"),
        ("section", "{name: web, sectionName: nobody}"),
        ("both", "{name: web, sectionName: http, port: 81}"),
    ];
    let routes: String =
        parents.iter().map(|(name, parent)| route("default", name, parent, "/", "v1")).collect();
    let case = Case::start(&["v1"], &["web"], &(web_gateway() + &routes)).await?;
    case.check("web", &[(Ask::get("a.com", "/"), Expected::Code(404))]).await?;
    for (name, _) in parents {
        let refused = ("Accepted", "False", "NoMatchingParent");
        case.world.expect_condition(("HTTPRoute", "default", name), Some(0), refused).await?;
    }
    Ok(())
}

/// Conformance: HTTPRouteMultipleGateways.
#[tokio::test]
async fn a_route_attaches_to_several_gateways() -> Result<()> {
    let documents = gateway("one", "  - {name: http, protocol: HTTP, port: {one}}")
        + &gateway("two", "  - {name: http, protocol: HTTP, port: {two}}")
        + &route("default", "shared", "{name: one}, {name: two}", "/shared", "v1")
        + &route("default", "first", "{name: one}", "/", "v2")
        + &route("default", "second", "{name: two}", "/", "v3");
    let case = Case::start(&["v1", "v2", "v3"], &["one", "two"], &documents).await?;
    let (shared, own) = (Ask::get("a.com", "/shared"), Ask::get("a.com", "/"));
    case.check("one", &[(shared.clone(), from("v1")), (own.clone(), from("v2"))]).await?;
    case.check("two", &[(shared, from("v1")), (own, from("v3"))]).await
}

/// Conformance: GatewayInvalidRouteKind.
#[tokio::test]
async fn unknown_kinds_of_routes_show_at_the_listener() -> Result<()> {
    let listeners = "
  - {name: none, protocol: HTTP, port: {none}, allowedRoutes: {kinds: [{kind: InvalidRoute}]}}
  - {name: some, protocol: HTTP, port: {some}, allowedRoutes: {kinds: [{kind: InvalidRoute}, {kind: HTTPRoute}]}}";
    let documents = gateway("web", listeners) + &route("default", "r", "{name: web}", "/", "v1");
    let case = Case::start(&["v1"], &["none", "some"], &documents).await?;
    let status = case.world.conditions("Gateway", "default", "web").await?;
    for (name, kinds) in [("none", json!([])), ("some", json!(["HTTPRoute"]))] {
        let listener = status.listener(name);
        assert_eq!(listener["supportedKinds"], kinds, "{listener:#}");
        let conditions = listener["conditions"].as_array().cloned().unwrap_or_default();
        let is_refused = conditions
            .iter()
            .any(|one| one["type"] == "ResolvedRefs" && one["reason"] == "InvalidRouteKinds");
        ensure!(is_refused, "{listener:#}");
    }
    case.check("some", &[(Ask::get("a.com", "/"), from("v1"))]).await
}

/// Conformance: GatewayListenerUnsupportedProtocol.
#[tokio::test]
async fn a_protocol_that_is_not_served_shows_at_the_listener() -> Result<()> {
    let listeners = "
  - {name: http, protocol: HTTP, port: {web}}
  - {name: udp, protocol: UDP, port: 5353}";
    let documents = gateway("web", listeners) + &route("default", "r", "{name: web}", "/", "v1");
    let case = Case::start(&["v1"], &["web"], &documents).await?;
    case.check("web", &[(Ask::get("a.com", "/"), from("v1"))]).await?;
    let status = case.world.conditions("Gateway", "default", "web").await?;
    assert_eq!(
        status.find(None, "Accepted"),
        Some(("True".into(), "ListenersNotValid".into())),
        "{status:?}"
    );
    let listener = status.listener("udp");
    let conditions = listener["conditions"].as_array().cloned().unwrap_or_default();
    let is_refused =
        conditions.iter().any(|one| one["type"] == "Accepted" && one["reason"] == "UnsupportedProtocol");
    ensure!(is_refused, "{listener:#}");
    Ok(())
}

/// Conformance: HTTPRouteObservedGenerationBump.
#[tokio::test]
async fn generations_count_changes() -> Result<()> {
    let documents = web_gateway() + &route("default", "r", "{name: web}", "/", "v1");
    let case = Case::start(&["v1", "v2"], &["web"], &documents).await?;
    let generation = async || {
        let status = case.world.conditions("HTTPRoute", "default", "r").await?;
        anyhow::Ok(status.0["observedGeneration"].clone())
    };
    assert_eq!(generation().await?, 1);
    case.world.config.edit("case.yaml", "name: v1, port", "name: v2, port")?;
    wait_for("the next generation", PATIENCE, async || {
        let now = generation().await?;
        ensure!(now == 2, "it is {now}");
        Ok(())
    })
    .await?;
    case.check("web", &[(Ask::get("a.com", "/"), from("v2"))]).await
}
