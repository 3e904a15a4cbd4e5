//! RouteTests among files: `validate` runs them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::server::{Server, Setup, cli, xds_server};
use xds_tests::wait::wait_for;

const ROUTES: &str = "version: xds-server/v1
listeners:
  edge: { port: 10000, address: 127.0.0.1 }
routes:
  shop:
    hosts: [shop.test]
    rules:
    - match: { prefix: /cart }
      to: cart
    - match: { prefix: / }
      to: web
backends:
  cart: { endpoints: [\"10.0.0.1:80\"] }
  web: { endpoints: [\"10.0.0.2:80\"] }
";

const TEST: &str = "apiVersion: xds-server.io/v1
kind: RouteTest
metadata: { name: shop }
spec:
  tests:
  - name: the cart
    request: { host: shop.test, path: /cart }
    expect: { backends: { cart: 100% } }
  - name: everything else
    request: { host: shop.test, path: /x }
    expect: { backends: { WEB: 100% } }
";

fn files(backend: &str) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("routes.yaml"), ROUTES)?;
    std::fs::write(dir.path().join("test.yaml"), TEST.replace("WEB", backend))?;
    Ok(dir)
}

/// Exit code and standard output.
async fn validate(dir: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = xds_server().await?;
    let output = command.args(["validate", "."]).args(args).current_dir(dir).output().await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

#[tokio::test]
async fn tests_that_pass_are_counted_with_what_they_touch() -> Result<()> {
    let (code, text) = validate(files("web")?.path(), &["--min-coverage", "100%"]).await?;
    assert_eq!(
        text,
        "coverage of group default, envoy: routes 2/2, conditions 2/2, hosts 1/1, backends 2/2
2 files, 0 resources, 5 documents, 2 route tests (0 failed), 0 errors, 0 warnings
"
    );
    assert_eq!(code, Some(0));
    Ok(())
}

#[tokio::test]
async fn a_failure_is_an_error_at_its_line_with_an_explanation() -> Result<()> {
    let (code, text) = validate(files("cart")?.path(), &[]).await?;
    assert_eq!(
        text,
        "./test.yaml:9:5: error[route-test-failed] spec.tests[1]: RouteTest default/shop: everything else (envoy@1.40): backends.cart: expected 100 %, got 0 %; backends: the request goes 100 % to default/web

RouteTest default/shop: everything else (envoy@1.40)
client         envoy@1.40
listener       default/edge/10000  127.0.0.1:10000, the only chain  [./routes.yaml:3]
virtual host   shop.test  `shop.test`, exact  [./routes.yaml:3]
 route 1 no    Route/default/shop/0/0  path /x is not separated prefix \"/cart\"  [./routes.yaml:8]
 route 2 yes   Route/default/shop/1/0  path prefix \"/\"  [./routes.yaml:10]
 100 %         default/web  to default/web  [./routes.yaml:14]
  endpoints    10.0.0.2:80 healthy 100 %
  limits       request 15 s (timeout, default); idle 5 m (the connection manager's stream_idle_timeout, default)
  filters      cors: on; stateful_session: off; router: forwards

coverage of group default, envoy: routes 2/2, conditions 2/2, hosts 1/1, backends 2/2
2 files, 0 resources, 5 documents, 2 route tests (1 failed), 1 error, 0 warnings
"
    );
    assert_eq!(code, Some(1));
    Ok(())
}

#[tokio::test]
async fn json_and_junit_have_every_test() -> Result<()> {
    let dir = files("cart")?;
    let (code, text) = validate(dir.path(), &["--output", "json", "--junit", "junit.xml"]).await?;
    ensure!(code == Some(1), "{text}");
    let report: Value = serde_json::from_str(&text)?;
    let tests = &report["tests"];
    ensure!((&tests["passed"], &tests["failed"]) == (&1.into(), &1.into()), "{tests}");
    ensure!(tests["cases"][1]["explanations"][0]["virtualHost"]["place"]["line"] == 3, "{tests}");
    ensure!(tests["coverage"][0]["counts"]["routes"]["touched"] == 2, "{tests}");
    let junit = std::fs::read_to_string(dir.path().join("junit.xml"))?;
    for part in [
        "<testsuites name=\"xds-server validate\" tests=\"4\" failures=\"1\"",
        "<testsuite name=\"RouteTest default/shop envoy@1.40\" tests=\"2\" failures=\"1\"",
        "<property name=\"coverage of group default, envoy\" value=\"routes 2/2, conditions 2/2, hosts 1/1, backends 2/2\"/>",
        "<testcase classname=\"RouteTest default/shop envoy@1.40\" name=\"the cart\" file=\"test.yaml\" time=\"0\"/>",
        "<failure type=\"route-test-failed\" message=\"backends.cart: expected 100 %, got 0 %;",
    ] {
        ensure!(junit.contains(part), "{part} is not in\n{junit}");
    }
    Ok(())
}

#[tokio::test]
async fn too_little_coverage_is_an_error_and_names_what_is_untouched() -> Result<()> {
    let dir = files("web")?;
    let one = TEST.replace("WEB", "web");
    std::fs::write(dir.path().join("test.yaml"), one.split("  - name: everything").next().context("text")?)?;
    let (code, text) = validate(dir.path(), &["--min-coverage", "80%"]).await?;
    ensure!(code == Some(1), "{text}");
    ensure!(
        text.contains("RouteTests touch 1 of 2 routes, which is 50 %; --min-coverage asks for 80 %"),
        "{text}"
    );
    ensure!(
        text.contains("untouched: route Route/default/shop/1/0 (path prefix \"/\")  [routes.yaml:10]"),
        "{text}"
    );
    std::fs::remove_file(dir.path().join("test.yaml"))?;
    let (code, text) = validate(dir.path(), &["--min-coverage", "80%"]).await?;
    ensure!(code == Some(1) && text.contains("there are no RouteTests"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_running_server_tells_what_fails_and_refuses_what_must_not() -> Result<()> {
    let dir = files("cart")?;
    let server = Server::start_with(Setup::new()?.watch(dir.path())).await?;
    let tested = async || {
        let tests = server.get_json("/v1/tests").await?;
        ensure!(tests["revision"].is_u64(), "{tests}");
        Ok(tests)
    };
    let tests = wait_for("the outcome", Duration::from_secs(30), tested).await?;
    ensure!((&tests["passed"], &tests["failed"]) == (&1.into(), &1.into()), "{tests}");
    let mut command = xds_server().await?;
    let admin = server.url("");
    let output = command.args(["tests", "--output", "table", "--admin", &admin]).output().await?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(1), "{text}");
    ensure!(text.contains("everything else: backends.cart: expected 100 %, got 0 %"), "{text}");
    ensure!(text.contains("coverage of group default, envoy: routes 2/2"), "{text}");

    let required = TEST.replace("WEB", "web").replace("  tests:", "  policy: refuse\n  tests:");
    std::fs::write(dir.path().join("test.yaml"), required)?;
    cli(&["reload", "--admin", &admin]).await?;
    let moved = ROUTES.replace("      to: web", "      to: cart");
    std::fs::write(dir.path().join("moved.yaml"), moved)?;
    let file = dir.path().join("moved.yaml");
    let refused = cli(&["apply", "-f", file.to_str().context("path")?, "--admin", &admin]).await;
    let refused = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(
        refused.contains("route-test-failed") || refused.contains("backends.web: expected 100 %"),
        "{refused}"
    );
    Ok(())
}

/// The exit code and output of `xds-server tests`.
async fn tests_of(server: &Server) -> Result<(Option<i32>, String)> {
    let mut command = xds_server().await?;
    let output = command.args(["tests", "--output", "table", "--admin", &server.url("")]).output().await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

#[tokio::test]
async fn a_held_change_is_shown_outlives_a_kill_and_goes_out_when_released() -> Result<()> {
    let dir = files("web")?;
    let held = TEST.replace("WEB", "web").replace("  tests:", "  policy: hold\n  tests:");
    std::fs::write(dir.path().join("test.yaml"), held)?;
    let mut server = Server::start_with(Setup::new()?.watch(dir.path()).fixed_admin_port()?).await?;
    server.wait_ready().await?;
    let goes_to = async |server: &Server| -> Result<Value> {
        let asked = serde_json::json!({"request": {"host": "shop.test", "path": "/x"}});
        let answer = server.post("/v1/explain", &asked).await?;
        Ok(answer["explanations"][0]["outcomes"][0]["cluster"]["name"].clone())
    };
    ensure!(goes_to(&server).await? == "default/web", "{}", goes_to(&server).await?);
    // A file that breaks the test is accepted and not published.
    std::fs::write(dir.path().join("routes.yaml"), ROUTES.replace("      to: web", "      to: cart"))?;
    let admin = server.url("");
    let mut command = xds_server().await?;
    command.args(["reload", "--admin", &admin]).output().await?;
    let is_held = |tests: &Value| tests["held"].is_object();
    let tests = server.wait_json("/v1/tests", is_held).await?;
    let reason = tests["held"]["reason"].as_str().context("reason")?;
    ensure!(
        reason.starts_with("it breaks RouteTest default/shop: everything else (envoy@1.40): backends.web"),
        "{reason}"
    );
    ensure!(tests["held"]["objects"] == serde_json::json!(["document/Route/default/shop"]), "{tests}");
    let status = server.get_json("/v1/status/files").await?;
    ensure!(status["served"] == "earlier", "{status}");
    ensure!(goes_to(&server).await? == "default/web", "{}", goes_to(&server).await?);
    server.kill().await?;
    server.restart().await?;
    server.wait_ready().await?;
    let is_known = |tests: &Value| tests["held"]["failures"].as_array().is_some_and(|all| !all.is_empty());
    server.wait_json("/v1/tests", is_known).await?;
    let (code, text) = tests_of(&server).await?;
    ensure!(code == Some(1), "{text}");
    for part in [
        "held: it breaks RouteTest default/shop: everything else",
        "  document/Route/default/shop is served as it was before",
        "`xds-server tests release` publishes it",
        "route 2 yes   Route/default/shop/1/0",
    ] {
        ensure!(text.contains(part), "{part} is not in\n{text}");
    }
    let ready = server.get_json("/readyz").await?;
    ensure!(ready.to_string().contains("a change is held back, it breaks RouteTest"), "{ready}");
    cli(&["tests", "release", "--admin", &server.url("")]).await?;
    let tests = server.wait_json("/v1/tests", |tests| tests["failed"] == 1).await?;
    ensure!(tests["held"].is_null(), "{tests}");
    ensure!(goes_to(&server).await? == "default/cart", "{}", goes_to(&server).await?);
    let again = cli(&["tests", "release", "--admin", &server.url("")]).await;
    let again = again.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(again.contains("RouteTests hold no change"), "{again}");
    Ok(())
}

const CHECKS: &str = "runtime: { re2.max_program_size.error_level: 1000 }
tests:
- test_name: the cart
  input: { authority: shop.test, path: /cart, method: GET }
  validate: { cluster_name: default/cart, path_redirect: \"\" }
- test_name: everything else
  input: { authority: shop.test, path: /x, method: GET }
  validate: { cluster_name: default/WEB }
";

#[tokio::test]
async fn files_of_router_check_tool_are_run_on_a_route_configuration() -> Result<()> {
    let dir = files("web")?;
    std::fs::remove_file(dir.path().join("test.yaml"))?;
    let checks = tempfile::tempdir()?;
    let file = checks.path().join("checks.yaml");
    let path = file.to_str().context("path")?;
    let args = ["--router-check", path, "--route-config", "default/edge/10000", "--min-coverage", "100%"];
    std::fs::write(&file, CHECKS.replace("WEB", "web"))?;
    let (code, text) = validate(dir.path(), &args).await?;
    ensure!(code == Some(0) && text.contains("2 route tests (0 failed)"), "{text}");

    std::fs::write(&file, CHECKS.replace("WEB", "none"))?;
    let junit = dir.path().join("junit.xml");
    let more = ["--junit", junit.to_str().context("path")?];
    let (code, text) = validate(dir.path(), &[&args[..], &more].concat()).await?;
    let expected = format!(
        "{path}:6:3: error[route-test-failed] tests[1]: RouterCheck default/{path}: everything else (envoy@1.40): cluster_name: expected \"default/none\", got \"default/web\""
    );
    ensure!(code == Some(1) && text.contains(&expected), "{expected}\n{text}");
    ensure!(text.contains("route 2 yes   Route/default/shop/1/0"), "{text}");
    let junit = std::fs::read_to_string(&junit)?;
    ensure!(
        junit.contains(&format!(
            "<testsuite name=\"RouterCheck default/{path} envoy@1.40\" tests=\"2\" failures=\"1\""
        )),
        "{junit}"
    );

    let wrong = ["--router-check", path, "--route-config", "default/edge/1000"];
    let (code, text) = validate(dir.path(), &wrong).await?;
    let hint = "there is no RouteConfiguration \"default/edge/1000\"; did you mean \"default/edge/10000\"?";
    ensure!(code == Some(1) && text.contains(hint), "{text}");

    std::fs::write(&file, CHECKS.replace("cluster_name: default/WEB", "cluster: x"))?;
    let (code, text) = validate(dir.path(), &args).await?;
    let fault =
        format!("{path}:8:24: error[unknown-field] tests[1].validate.cluster: there is no field \"cluster\"");
    ensure!(code == Some(1) && text.contains(&fault), "{fault}\n{text}");
    Ok(())
}

#[tokio::test]
async fn a_router_check_is_a_document_beside_the_routes() -> Result<()> {
    let dir = files("web")?;
    let check = |cluster: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: RouterCheck\nmetadata: {{ name: tool }}\nspec:\n  policy: refuse\n  \
             routeConfig: default/edge/10000\n  tests:\n  - test_name: t\n    input: {{ authority: shop.test, path: /x, method: GET }}\n    \
             validate: {{ cluster_name: {cluster} }}\n"
        )
    };
    let file = dir.path().join("test.yaml");
    std::fs::write(&file, check("default/cart"))?;
    let (code, text) = validate(dir.path(), &[]).await?;
    let failure = "./test.yaml:8:5: error[route-test-failed] spec.tests[0]: RouterCheck default/tool: t (envoy@1.40): cluster_name: expected \"default/cart\", got \"default/web\"";
    ensure!(code == Some(1) && text.contains(failure), "{text}");

    std::fs::write(&file, check("default/web"))?;
    let server = Server::start_with(Setup::new()?.watch(dir.path())).await?;
    server.wait_ready().await?;
    let admin = server.url("");
    let elsewhere = tempfile::tempdir()?;
    let moved = elsewhere.path().join("moved.yaml");
    std::fs::write(&moved, ROUTES.replace("      to: web", "      to: cart"))?;
    let refused = cli(&["apply", "-f", moved.to_str().context("path")?, "--admin", &admin]).await;
    let refused = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refused.contains("RouterCheck default/tool: t (envoy@1.40)"), "{refused}");
    Ok(())
}
