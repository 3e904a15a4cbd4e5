//! HTTPRoute: backends that are missing, not permitted, or left out.

use anyhow::Result;
use xds_tests::rpc::Ask;

use crate::conformance::support::{Case, Expected, ensure_shares, from, web_gateway};

const FAILED: Expected = Expected::Code(500);

fn route(rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n{rules}\n---\n"
    )
}

fn grant(namespace: &str, from: [&str; 3], to: [&str; 3]) -> String {
    let [group, kind, of] = from;
    let [to_group, to_kind, name] = to;
    format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: {namespace}}}\n\
         spec:\n  from: [{{group: {group}, kind: {kind}, namespace: {of}}}]\n  \
         to: [{{group: {to_group:?}, kind: {to_kind}, name: {name}}}]\n---\n"
    )
}

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
const ROUTE: (&str, &str, &str) = ("HTTPRoute", "default", "r");

async fn check_refused(rules: &str, extra: &str, reason: &'static str) -> Result<()> {
    let documents = web_gateway() + &route(rules) + extra;
    let case = Case::start(&["v1", "other/app"], &["web"], &documents).await?;
    case.check("web", &[(Ask::get("a.com", "/x"), FAILED)]).await?;
    case.world.expect_condition(ROUTE, Some(0), ("ResolvedRefs", "False", reason)).await?;
    case.world.expect_condition(ROUTE, Some(0), ("Accepted", "True", "Accepted")).await
}

/// Conformance: HTTPRouteInvalidNonExistentBackendRef.
#[tokio::test]
async fn a_backend_that_does_not_exist() -> Result<()> {
    check_refused("  - backendRefs: [{name: nobody, port: 8080}]", "", "BackendNotFound").await
}

/// Conformance: HTTPRouteInvalidBackendRefUnknownKind.
#[tokio::test]
async fn a_backend_of_an_unknown_kind() -> Result<()> {
    check_refused("  - backendRefs: [{kind: NonExistent, name: v1, port: 8080}]", "", "InvalidKind").await
}

/// Conformance: HTTPRouteInvalidCrossNamespaceBackendRef.
#[tokio::test]
async fn a_backend_of_another_namespace() -> Result<()> {
    let rules = "  - backendRefs: [{name: app, namespace: other, port: 8080}]";
    check_refused(rules, "", "RefNotPermitted").await
}

/// Conformance: HTTPRouteInvalidReferenceGrant.
#[tokio::test]
async fn grants_that_do_not_fit() -> Result<()> {
    let rules = "  - backendRefs: [{name: app, namespace: other, port: 8080}]";
    let good_from = [GATEWAY_GROUP, "HTTPRoute", "default"];
    let good_to = ["", "Service", "app"];
    let wrong = [
        ("third", good_from, good_to),
        ("other", [GATEWAY_GROUP, "GRPCRoute", "default"], good_to),
        ("other", ["other.group", "HTTPRoute", "default"], good_to),
        ("other", [GATEWAY_GROUP, "HTTPRoute", "elsewhere"], good_to),
        ("other", good_from, ["", "Secret", "app"]),
        ("other", good_from, ["other.group", "Service", "app"]),
        ("other", good_from, ["", "Service", "another"]),
    ];
    let grants: String = wrong
        .iter()
        .enumerate()
        .map(|(index, (namespace, from, to))| {
            grant(namespace, *from, *to).replace("name: g,", &format!("name: g{index},"))
        })
        .collect();
    check_refused(rules, &grants, "RefNotPermitted").await
}

/// Conformance: HTTPRouteReferenceGrant.
#[tokio::test]
async fn a_grant_permits_until_it_is_deleted() -> Result<()> {
    let documents = web_gateway() + &route("  - backendRefs: [{name: app, namespace: other, port: 8080}]");
    let case = Case::start(&["v1", "other/app"], &["web"], &documents).await?;
    let grant = grant("other", [GATEWAY_GROUP, "HTTPRoute", "default"], ["", "Service", "app"]);
    case.world.write("grant.yaml", &grant)?;
    case.check("web", &[(Ask::get("a.com", "/"), from("app"))]).await?;
    case.world.config.remove("grant.yaml")?;
    case.check("web", &[(Ask::get("a.com", "/"), FAILED)]).await?;
    case.world.expect_condition(ROUTE, Some(0), ("ResolvedRefs", "False", "RefNotPermitted")).await
}

/// Conformance: HTTPRoutePartiallyInvalidViaInvalidReferenceGrant.
#[tokio::test]
async fn one_bad_rule_leaves_the_others_alone() -> Result<()> {
    let rules = "
  - matches: [{path: {type: PathPrefix, value: /v2}}]
    backendRefs: [{name: secret-app, namespace: other, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: app, namespace: other, port: 8080}]";
    let grant = grant("other", [GATEWAY_GROUP, "HTTPRoute", "default"], ["", "Service", "app"]);
    let documents = web_gateway() + &route(rules) + &grant;
    let case = Case::start(&["other/app", "other/secret-app"], &["web"], &documents).await?;
    let requests = [(Ask::get("a.com", "/"), from("app")), (Ask::get("a.com", "/v2"), FAILED)];
    case.check("web", &requests).await?;
    case.world.expect_condition(ROUTE, Some(0), ("ResolvedRefs", "False", "RefNotPermitted")).await
}

/// Conformance: HTTPRouteNoBackendRefs.
#[tokio::test]
async fn a_rule_without_backends_fails() -> Result<()> {
    let rules = "
  - matches: [{path: {type: PathPrefix, value: /none}}]
  - matches: [{path: {type: PathPrefix, value: /zero}}]
    backendRefs: [{name: v1, port: 8080, weight: 0}]
  - matches: [{path: {type: PathPrefix, value: /ok}}]
    backendRefs: [{name: v1, port: 8080}]";
    let case = Case::start(&["v1"], &["web"], &(web_gateway() + &route(rules))).await?;
    let requests = [
        (Ask::get("a.com", "/ok"), from("v1")),
        (Ask::get("a.com", "/none"), FAILED),
        (Ask::get("a.com", "/zero"), FAILED),
        (Ask::get("a.com", "/other"), Expected::Code(404)),
    ];
    case.check("web", &requests).await
}

#[tokio::test]
async fn an_invalid_backend_fails_for_its_share() -> Result<()> {
    let rules = "  - backendRefs: [{name: v1, port: 8080, weight: 40}, {name: gone, port: 8080, weight: 60}]";
    let case = Case::start(&["v1"], &["web"], &(web_gateway() + &route(rules))).await?;
    let ask = Ask::get("a.com", "/");
    case.world.expect_from("web", &ask, "v1").await?;
    ensure_shares(&case.shares("web", &ask, 1_000).await?, &[("v1", 40), ("500", 60)])
}

#[tokio::test]
async fn a_service_without_endpoints_is_unavailable() -> Result<()> {
    let empty =
        "apiVersion: v1\nkind: Service\nmetadata: {name: empty}\nspec: {ports: [{port: 8080}]}\n---\n";
    let documents = web_gateway() + &route("  - backendRefs: [{name: empty, port: 8080}]") + empty;
    let case = Case::start(&["v1"], &["web"], &documents).await?;
    case.check("web", &[(Ask::get("a.com", "/"), Expected::Code(503))]).await?;
    case.world.expect_condition(ROUTE, Some(0), ("ResolvedRefs", "True", "ResolvedRefs")).await
}
