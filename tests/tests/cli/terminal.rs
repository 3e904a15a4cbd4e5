//! What is different on a terminal, which `script` of util-linux gives.

use anyhow::{Context as _, Result, ensure};
use xds_tests::server::{Server, Setup, xds_server};

/// What a command writes to a terminal, with a variable of the environment.
async fn on_terminal(server: &Server, args: &str, (name, value): (&str, &str)) -> Result<String> {
    let command = xds_server().await?;
    let program = command.as_std().get_program().to_str().context("a path that is not UTF-8")?;
    let line = format!("{program} {args} --admin=http://{}", server.admin());
    let mut script = tokio::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env(name, value);
    let output = script.stdin(std::process::Stdio::null()).output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n"))
}

#[tokio::test]
async fn the_difference_of_a_revision_has_colours_unless_they_are_unwanted() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    for priority in [1, 2] {
        let group = serde_json::json!({"priority": priority, "selector": {"nodeIds": ["edge-1"]}});
        server.put("/v1/groups/edge", &group).await?;
    }
    let last = server.get_json("/v1/history?limit=1").await?["revisions"][0]["revision"].to_string();
    let text = on_terminal(&server, &format!("history {last}"), ("LANG", "C")).await?;
    for line in ["\u{1b}[1m~ group/edge\u{1b}[0m\n", "\u{1b}[32m+", "\u{1b}[31m-", "\u{1b}[36m@@"] {
        ensure!(text.contains(line), "{line:?}: {text:?}");
    }
    let text = on_terminal(&server, &format!("history {last}"), ("NO_COLOR", "1")).await?;
    ensure!(text.contains("~ group/edge\n") && !text.contains('\u{1b}'), "{text:?}");
    Ok(())
}
