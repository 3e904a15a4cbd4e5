//! `diff`, `explain`, `history` and `bisect` about revisions of a running server.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::server::{Server, Setup, cli, xds_server};

/// A route of the host that goes to this backend, with a number that changes nothing.
fn shop(to: &str, n: u32) -> String {
    format!(
        "version: xds-server/v1\nlisteners: {{ edge: {{ port: 10000, address: 127.0.0.1 }} }}\nroutes:\n  shop:\n    \
         hosts: [shop.test]\n    rules: [{{ match: {{ prefix: / }}, to: {to} }}]\nbackends:\n  one: {{ endpoints: \
         ['10.0.0.1:80'] }}\n  two: {{ endpoints: ['10.0.0.2:80'] }}\n  spare: {{ endpoints: ['10.0.0.{n}:80'] }}\n"
    )
}

/// Exit code, standard output and standard error.
async fn run(server: &Server, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = xds_server().await?;
    let admin = format!("--admin=http://{}", server.admin());
    let output = command.args(args).arg(admin).output().await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status.code(), text(output.stdout), text(output.stderr)))
}

/// A server on whose revisions 1 to 6 the host goes to `one`, and on 7 to 10 to `two`.
async fn start() -> Result<Server> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    for n in 1..=10 {
        let to = if n <= 6 { "one" } else { "two" };
        let headers = [("content-type", "application/yaml"), ("x-actor", "ada")];
        let answer = server.request("POST", "/v1/apply", &headers, shop(to, n)).await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    Ok(server)
}

#[tokio::test]
async fn revisions_are_compared_and_explained() -> Result<()> {
    let server = start().await?;
    let (code, text, _) = run(&server, &["diff", "rev:6", "rev:7"]).await?;
    let moved = "client         envoy@1.40
1 moved        GET http://shop.test/, port 10000
  from         default/one  by Route/default/shop/0/0  [Route default/shop]
  to           default/two  by Route/default/shop/0/0  [Route default/shop]
";
    ensure!(text.starts_with(moved) && code == Some(1), "{code:?} {text}");
    let (code, text, _) = run(&server, &["diff", "rev:7", "current"]).await?;
    ensure!(text.contains("no change") && code == Some(0), "{code:?} {text}");
    let (code, _, error) = run(&server, &["diff", "rev:x", "current"]).await?;
    ensure!(code == Some(2) && error.contains("rev:"), "{code:?} {error}");
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("routes.yaml");
    // The API's document counts, not the one of the files.
    for (text, expected) in
        [(shop("one", 1), "no change"), (shop("one", 1).replace("shop", "other"), "other.test")]
    {
        std::fs::write(&path, text)?;
        let path = path.to_str().context("a path that is not UTF-8")?;
        let (code, text, error) = run(&server, &["diff", "current", path]).await?;
        let is_same = expected == "no change";
        ensure!(text.contains(expected) && code == Some(i32::from(!is_same)), "{code:?} {text} {error}");
    }
    let (code, _, error) = run(&server, &["diff", "rev:99", "current"]).await?;
    ensure!(code == Some(1) && error.contains("revision 99 does not exist"), "{code:?} {error}");

    let ask = ["explain", "--host", "shop.test", "--at", "6"];
    let (code, text, _) = run(&server, &ask).await?;
    ensure!(text.contains("to default/one") && code == Some(0), "{code:?} {text}");
    let (_, text, _) = run(&server, &["history", "7", "--requests", "--output", "table"]).await?;
    ensure!(
        text.contains("requests of envoy clients of default:\n  client         envoy@1.40\n  1 moved"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn the_revision_that_moved_a_request_is_found() -> Result<()> {
    let server = start().await?;
    let bisect = ["bisect", "--host", "shop.test", "--expect", "default/one"];
    let (code, text, _) = run(&server, &bisect).await?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.len() == 4 && code == Some(0), "{code:?} {text}");
    ensure!(lines[0].starts_with("revision 7     by ada at "), "{text}");
    ensure!(lines[1] == "at 6           default/one  (as expected)", "{text}");
    ensure!(lines[2] == "at 7           default/two  (not as expected)", "{text}");
    ensure!(lines[3] == "asked at       5 of 10 revisions", "{text}");
    let (_, text, _) = run(&server, &[&bisect[..], &["--output", "json"]].concat()).await?;
    let found: Value = serde_json::from_str(&text)?;
    ensure!(found["revision"]["revision"] == 7 && found["before"]["revision"] == 6, "{found}");

    let (code, _, error) = run(&server, &[&bisect[..], &["--since", "8"]].concat()).await?;
    ensure!(
        code == Some(1) && error.contains("neither at revision 8 (default/two) nor at 10"),
        "{code:?} {error}"
    );
    let (code, _, error) = run(&server, &["bisect", "--host", "none.test", "--expect", "404"]).await?;
    ensure!(code == Some(1) && error.contains("at revision 1 and at 10"), "{code:?} {error}");
    let error = cli(&["bisect", "--host", "a", "--expect", "b", "--admin=http://127.0.0.1:1"]).await;
    ensure!(error.is_err_and(|error| error.to_string().contains("cannot reach")));
    Ok(())
}
