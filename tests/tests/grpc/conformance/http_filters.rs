//! HTTPRoute: filters and time limits.

use anyhow::{Result, ensure};
use http::Method;
use xds_tests::rpc::{Ask, Told};
use xds_tests::wait::{PATIENCE, wait_for};

use crate::conformance::support::{Case, Expected, from, web_gateway};

fn route(rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  rules:\n{rules}\n---\n"
    )
}

/// A rule for a path prefix with filters, and one backend.
fn rule(path: &str, filters: &str) -> String {
    format!(
        "  - matches: [{{path: {{type: PathPrefix, value: {path}}}}}]\n    filters: [{filters}]\n    \
         backendRefs: [{{name: v1, port: 8080}}]\n"
    )
}

async fn start(rules: &str) -> Result<Case> {
    Case::start(&["v1", "v2", "v3"], &["web"], &(web_gateway() + &route(rules))).await
}

fn get(path: &str) -> Ask {
    Ask::get("example.com", path)
}

/// Conformance: HTTPRouteRequestHeaderModifier.
#[tokio::test]
async fn request_headers_are_changed() -> Result<()> {
    let edits = |text: &str| format!("{{type: RequestHeaderModifier, requestHeaderModifier: {{{text}}}}}");
    let rules = rule("/set", &edits("set: [{name: X-Header-Set, value: set-overwrites-values}]"))
        + &rule("/add", &edits("add: [{name: X-Header-Add, value: add-appends-values}]"))
        + &rule("/remove", &edits("remove: [X-Header-Remove]"))
        + &rule(
            "/multiple",
            &edits(
                "set: [{name: X-Header-Set-1, value: header-set-1}, {name: X-Header-Set-2, value: header-set-2}], \
                 add: [{name: X-Header-Add-1, value: header-add-1}, {name: X-Header-Add-3, value: header-add-3}], \
                 remove: [X-Header-Remove-1]",
            ),
        );
    let case = start(&rules).await?;
    let table = [
        (get("/set"), "x-header-set", Some("set-overwrites-values")),
        (get("/set").with("x-header-set", "some-other-value"), "x-header-set", Some("set-overwrites-values")),
        (get("/add"), "x-header-add", Some("add-appends-values")),
        (get("/add").with("x-header-add", "was"), "x-header-add", Some("was,add-appends-values")),
        (get("/remove").with("x-header-remove", "was"), "x-header-remove", None),
        (get("/multiple").with("x-header-set-2", "was"), "x-header-set-2", Some("header-set-2")),
        (get("/multiple").with("x-header-add-3", "was"), "x-header-add-3", Some("was,header-add-3")),
        (get("/multiple").with("x-header-remove-1", "was"), "x-header-remove-1", None),
    ];
    for (ask, header, expected) in table {
        let told = case.world.expect_from("web", &ask, "v1").await?;
        assert_eq!(told.request_header(header)?.as_deref(), expected, "{ask:?}");
    }
    Ok(())
}

#[tokio::test]
async fn headers_of_one_backend_are_changed_for_it_alone() -> Result<()> {
    let backend = |name: &str| {
        format!(
            "{{name: {name}, port: 8080, filters: [{{type: RequestHeaderModifier, requestHeaderModifier: \
             {{set: [{{name: backend, value: {name}}}]}}}}]}}"
        )
    };
    let rules = format!("  - backendRefs: [{}, {}]", backend("v1"), backend("v2"));
    let case = start(&rules).await?;
    case.world.expect("web", &get("/"), Told::ensure_ok).await?;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let told = case.world.ask("web", &get("/")).await?;
        assert_eq!(told.request_header("backend")?.as_deref(), Some(told.backend.as_str()));
        seen.insert(told.backend);
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    Ok(())
}

/// Conformance: HTTPRouteResponseHeaderModifier.
#[tokio::test]
async fn response_headers_are_changed() -> Result<()> {
    let edits = |text: &str| format!("{{type: ResponseHeaderModifier, responseHeaderModifier: {{{text}}}}}");
    let rules = rule("/set", &edits("set: [{name: x-backend, value: hidden}, {name: x-new, value: '100%'}]"))
        + &rule("/remove", &edits("remove: [X-Request]"));
    let case = start(&rules).await?;
    let told = case.world.expect("web", &get("/set"), Told::ensure_ok).await?;
    assert_eq!((told.backend.as_str(), told.headers["x-new"].to_str()?), ("hidden", "100%"));
    let told = case.world.expect_from("web", &get("/remove"), "v1").await?;
    ensure!(!told.headers.contains_key("x-request"), "{told:?}");
    Ok(())
}

/// Conformance: HTTPRouteRequestMirror.
#[tokio::test]
async fn copies_go_to_mirrors() -> Result<()> {
    let mirror = |name: &str, share: &str| {
        format!("{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 8080}}{share}}}}}")
    };
    let rules = rule("/all", &format!("{}, {}", mirror("v2", ""), mirror("v3", "")))
        + &rule("/share", &mirror("v2", ", percent: 20"))
        + &rule("/none", &mirror("v3", ", percent: 0"));
    let case = start(&rules).await?;
    let n = |name: &str| case.world.backends[name].n_requests();
    case.world.expect_from("web", &get("/all"), "v1").await?;
    wait_for("the copies", PATIENCE, async || {
        ensure!(n("v2") >= 1 && n("v3") >= 1, "{} and {}", n("v2"), n("v3"));
        Ok(())
    })
    .await?;
    let (v2, v3) = (n("v2"), n("v3"));
    for _ in 0..500 {
        case.world.ask("web", &get("/share")).await?.ensure_from("v1")?;
        case.world.ask("web", &get("/none")).await?.ensure_from("v1")?;
    }
    // Copies come a moment after their originals; one to everybody marks the end.
    case.world.ask("web", &get("/all")).await?.ensure_from("v1")?;
    wait_for("the last copy", PATIENCE, async || {
        ensure!(n("v3") == v3 + 1, "{} of one", n("v3") - v3);
        Ok(())
    })
    .await?;
    let copied = n("v2") - v2;
    ensure!((60..=145).contains(&copied), "{copied} of 500 were copied");
    Ok(())
}

#[tokio::test]
async fn requests_are_redirected() -> Result<()> {
    let redirect = |path: &str, text: &str| {
        format!(
            "  - matches: [{{path: {{type: PathPrefix, value: {path}}}}}]\n    \
             filters: [{{type: RequestRedirect, requestRedirect: {{{text}}}}}]\n"
        )
    };
    let rules = redirect("/host", "hostname: example.org")
        + &redirect("/host-and-status", "hostname: example.org, statusCode: 301")
        + &redirect("/scheme", "scheme: https, port: 8443, statusCode: 307")
        + &redirect("/full", "path: {type: ReplaceFullPath, replaceFullPath: /new}")
        + &redirect(
            "/prefix",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /other}, statusCode: 308",
        )
        + &redirect("/gone", "path: {type: ReplacePrefixMatch, replacePrefixMatch: /}, statusCode: 303");
    let case = start(&rules).await?;
    let port = case.world.port("web")?;
    let table = [
        ("/host", 302, format!("http://example.org:{port}/host")),
        ("/host-and-status", 301, format!("http://example.org:{port}/host-and-status")),
        ("/scheme", 307, "https://example.com:8443/scheme".to_owned()),
        ("/full/x", 302, format!("http://example.com:{port}/new")),
        ("/prefix/x", 308, format!("http://example.com:{port}/other/x")),
        ("/gone/x", 303, format!("http://example.com:{port}/x")),
    ];
    for (path, code, location) in table {
        let told = case.world.expect_code("web", &get(path), code).await?;
        assert_eq!(told.headers["location"].to_str()?, location, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn paths_and_hosts_are_rewritten() -> Result<()> {
    let rewrite = |text: &str| format!("{{type: URLRewrite, urlRewrite: {{{text}}}}}");
    let prefix =
        |text: &str| rewrite(&format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {text}}}"));
    let rules = rule("/prefix/one", &prefix("/one"))
        + &rule("/strip", &prefix("/"))
        + &rule("/full", &rewrite("path: {type: ReplaceFullPath, replaceFullPath: /whole}"))
        + &rule("/host", &rewrite("hostname: one.example.org"));
    let case = start(&rules).await?;
    let table = [
        ("/prefix/one/two", "example.com", "/one/two"),
        ("/prefix/one", "example.com", "/one"),
        ("/strip", "example.com", "/"),
        ("/strip/three", "example.com", "/three"),
        ("/full/a/b?c=d", "example.com", "/whole?c=d"),
        ("/host", "one.example.org", "/host"),
    ];
    for (path, host, expected) in table {
        let told = case.world.expect_from("web", &get(path), "v1").await?;
        let request = told.request()?;
        assert_eq!((&request["authority"], &request["path"]), (&host.into(), &expected.into()), "{path}");
    }
    Ok(())
}

/// Conformance: HTTPRouteTimeoutRequest.
#[tokio::test]
async fn time_limits_end_requests() -> Result<()> {
    let limited = |path: &str, timeouts: &str| {
        format!(
            "  - matches: [{{path: {{type: PathPrefix, value: {path}}}}}]\n    timeouts: {{{timeouts}}}\n    \
             backendRefs: [{{name: v1, port: 8080}}]\n"
        )
    };
    let rules = limited("/request", "request: 500ms")
        + &limited("/backend", "backendRequest: 500ms")
        + &limited("/none", "request: 0s");
    let case = start(&rules).await?;
    for path in ["/request", "/backend"] {
        case.world.expect_from("web", &get(path), "v1").await?;
        case.world.ask("web", &get(&format!("{path}?delay_ms=2000"))).await?.ensure_code(504)?;
    }
    case.world.ask("web", &get("/none?delay_ms=600")).await?.ensure_from("v1")
}

#[tokio::test]
async fn failed_requests_are_retried() -> Result<()> {
    let rules = "
  - matches: [{path: {type: PathPrefix, value: /again}}]
    retry: {codes: [503], attempts: 3, backoff: 10ms}
    backendRefs: [{name: v1, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /once}}]
    backendRefs: [{name: v1, port: 8080}]";
    let case = start(rules).await?;
    case.world.expect_from("web", &get("/again"), "v1").await?;
    case.world.backends["v1"].fail(0.5);
    for _ in 0..20 {
        case.world.ask("web", &get("/again")).await?.ensure_from("v1")?;
    }
    let mut n_failed = 0;
    for _ in 0..20 {
        n_failed += usize::from(case.world.ask("web", &get("/once")).await?.code == 503);
    }
    ensure!(n_failed == 10, "{n_failed} of 20 failed");
    Ok(())
}

#[tokio::test]
async fn origins_are_checked() -> Result<()> {
    let cors = "{type: CORS, cors: {allowOrigins: ['https://www.foo.com', 'https://*.bar.com'], \
                allowMethods: [GET, OPTIONS], allowHeaders: [x-header-1], exposeHeaders: [x-header-2], \
                allowCredentials: true, maxAge: 3600}}";
    let case = start(&rule("/", cors)).await?;
    case.world.expect_from("web", &get("/"), "v1").await?;
    let preflight = |origin: &str| {
        get("/")
            .method(Method::OPTIONS)
            .with("origin", origin)
            .with("access-control-request-method", "GET")
            .with("access-control-request-headers", "x-header-1")
    };
    for origin in ["https://www.foo.com", "https://any.bar.com"] {
        let told = case.world.ask("web", &preflight(origin)).await?;
        let header =
            |name: &str| told.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        assert_eq!(header("access-control-allow-origin"), origin, "{told:?}");
        assert_eq!(header("access-control-max-age"), "3600");
        assert_eq!(header("access-control-allow-credentials"), "true");
        ensure!(header("access-control-allow-methods").contains("GET"), "{told:?}");
    }
    let told = case.world.ask("web", &preflight("https://foo.com")).await?;
    ensure!(!told.headers.contains_key("access-control-allow-origin"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn an_unknown_filter_fails_its_rule_c54() -> Result<()> {
    let unknown = "{type: ExtensionRef, extensionRef: {group: example.com, kind: Magic, name: m}}";
    let case = start(&(rule("/magic", unknown) + &rule("/", ""))).await?;
    let requests = [(get("/"), from("v1")), (get("/magic"), Expected::Code(500))];
    case.check("web", &requests).await
}
