//! `diff`: which requests a change of files moves.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::server::xds_server;

const BEFORE: &str = "version: xds-server/v1
listeners:
  edge: { port: 10000, address: 127.0.0.1 }
routes:
  shop:
    hosts: [shop.test]
    rules:
    - match: { path: /cart }
      to: cart
    - match: { prefix: /cart, headers: { x-beta: \"on\" } }
      to: { cart-next: 90, cart: 10 }
    - match: { prefix: / }
      to: web
backends:
  cart: { endpoints: [\"10.0.0.1:80\"] }
  cart-next: { endpoints: [\"10.0.0.2:80\"] }
  web: { endpoints: [\"10.0.0.3:80\"] }
";

/// Exit code and standard output, in a directory with `a.yaml` and `b.yaml`.
async fn diff(after: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("a.yaml"), BEFORE)?;
    std::fs::write(dir.path().join("b.yaml"), after)?;
    run(dir.path(), &[&["a.yaml", "b.yaml"], args].concat()).await
}

async fn run(dir: &Path, args: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = xds_server().await?;
    let output = command.arg("diff").args(args).current_dir(dir).output().await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

fn with_a_rule() -> String {
    let rule = "    - match: { path: /cart/admin }\n      to: web\n    - match: { prefix: /cart,";
    BEFORE.replace("    - match: { prefix: /cart,", rule)
}

#[tokio::test]
async fn moved_requests_are_shown_with_places_on_both_sides() -> Result<()> {
    let (code, text) = diff(&with_a_rule(), &[]).await?;
    assert_eq!(
        text,
        "client         envoy@1.40
1 moved        GET http://shop.test/cart/admin, header x-beta: \"on\", port 10000
  from         10 % default/cart, 90 % default/cart-next  by Route/default/shop/1/0  [a.yaml:10]
  to           default/web  by Route/default/shop/1/0  [b.yaml:10]
"
    );
    assert_eq!(code, Some(1));
    Ok(())
}

#[tokio::test]
async fn what_moves_no_request_is_no_change() -> Result<()> {
    // Another order of rules of which no request meets both, and a rule behind one that takes everything.
    let after = BEFORE.replace(
        "    - match: { prefix: / }",
        "    - match: { path: / }\n      to: web\n    - match: { prefix: / }",
    );
    let (code, text) = diff(&after, &[]).await?;
    ensure!(text.contains("no change") && code == Some(0), "{code:?} {text}");
    let (code, text) = diff(BEFORE, &["--profile", "grpc"]).await?;
    ensure!(text.contains("no change") && code == Some(0), "{code:?} {text}");
    Ok(())
}

#[tokio::test]
async fn other_endpoints_and_settings_are_classes_of_their_own() -> Result<()> {
    let after = BEFORE
        .replace("10.0.0.3:80", "10.0.0.4:80")
        .replace("      to: cart\n", "      to: cart\n      timeout: 5s\n");
    let (code, text) = diff(&after, &["--output", "json"]).await?;
    let answer: Value = serde_json::from_str(&text)?;
    let classes = answer["changes"][0]["classes"].as_array().context("classes")?;
    let kinds: Vec<&str> = classes.iter().filter_map(|class| class["kind"].as_str()).collect();
    assert_eq!(kinds, ["treatment", "cluster"], "{answer:#}");
    assert_eq!(classes[0]["what"], serde_json::json!(["timeout"]));
    assert_eq!(classes[0]["example"]["path"], "/cart");
    assert_eq!(
        (&classes[1]["cluster"], &classes[1]["what"][0]),
        (&"default/web".into(), &"endpoints".into())
    );
    assert_eq!(code, Some(1));
    Ok(())
}

#[tokio::test]
async fn two_paths_are_wanted_that_have_something() -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("a.yaml"), BEFORE)?;
    std::fs::create_dir(dir.path().join("empty"))?;
    assert_eq!(run(dir.path(), &["a.yaml"]).await?.0, Some(2));
    assert_eq!(run(dir.path(), &["a.yaml", "empty"]).await?.0, Some(1));
    Ok(())
}
