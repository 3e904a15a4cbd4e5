//! What is different on a terminal, which `script` of util-linux gives.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use xds_tests::envoy::Envoy;
use xds_tests::server::{Server, Setup, Variant, xds_server};
use xds_tests::wait::PATIENCE;

/// What a command writes to a terminal, with a variable of the environment.
async fn on_terminal(server: &Server, args: &str, (name, value): (&str, &str)) -> Result<String> {
    let command = xds_server().await?;
    let program = command.as_std().get_program().to_str().context("a path that is not UTF-8")?;
    let line = format!("{program} {args} --admin=http://{}", server.admin());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env(name, value);
    let output = script.stdin(Stdio::null()).output().await?;
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
    let text = on_terminal(&server, &format!("history show {last}"), ("LANG", "C")).await?;
    for line in ["\u{1b}[1m~ group/edge\u{1b}[0m\n", "\u{1b}[32m+", "\u{1b}[31m-", "\u{1b}[36m@@"] {
        ensure!(text.contains(line), "{line:?}: {text:?}");
    }
    let text = on_terminal(&server, &format!("history {last}"), ("NO_COLOR", "1")).await?;
    ensure!(text.contains("~ group/edge\n") && !text.contains('\u{1b}'), "{text:?}");
    Ok(())
}

/// What a terminal program writes, as it comes.
#[derive(Debug)]
struct Terminal {
    child: Child,
    /// Open as long as someone could type.
    keys: ChildStdin,
    screen: ChildStdout,
    written: String,
}

impl Terminal {
    /// Runs a line of a shell on a terminal of 120 columns and 30 rows.
    fn start(line: &str) -> Result<Self> {
        let mut script = Command::new("script");
        script.args(["-qefc", &format!("stty rows 30 cols 120; {line}"), "/dev/null"]).env("TERM", "xterm");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = script.spawn()?;
        let keys = child.stdin.take().context("no standard input")?;
        let screen = child.stdout.take().context("no standard output")?;
        Ok(Self { child, keys, screen, written: String::new() })
    }

    /// Reads until a text comes; gives everything that was written before and with it.
    async fn expect(&mut self, text: &str) -> Result<String> {
        let mut buffer = [0; 4096];
        let read = async {
            loop {
                if let Some(at) = self.written.find(text) {
                    let rest = self.written.split_off(at + text.len());
                    return anyhow::Ok(std::mem::replace(&mut self.written, rest));
                }
                let n = self.screen.read(&mut buffer).await?;
                ensure!(n > 0, "it ended");
                self.written.push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        };
        let found = timeout(PATIENCE, read).await;
        found
            .context("too late")
            .and_then(|found| found)
            .with_context(|| format!("{text:?} in {:?}", self.written))
    }
}

#[tokio::test]
async fn who_waits_for_longer_than_a_second_is_told_for_what() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let command = xds_server().await?;
    let program = command.as_std().get_program().to_str().context("a path that is not UTF-8")?;
    let line =
        format!("{program} reload --admin=http://{} --output json; echo ended $?", listener.local_addr()?);
    let mut terminal = Terminal::start(&line)?;
    let (mut stream, _) = listener.accept().await?;
    terminal.expect("waiting for the server to read its files, 1s").await?;
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).await?;
    // It is wiped out before the answer.
    let told = terminal.expect("ended 0").await?;
    ensure!(told.contains("\u{1b}[2K") || told.contains("\u{1b}[J") || told.contains("\u{1b}[K"), "{told:?}");
    ensure!(told.contains("{}"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn top_shows_a_node_that_comes_and_leaves_the_terminal_as_it_was() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let command = xds_server().await?;
    let program = command.as_std().get_program().to_str().context("a path that is not UTF-8")?;
    let top =
        format!("stty -g; {program} top --admin=http://{}; echo ended $?; stty -g; echo end", server.admin());
    let mut terminal = Terminal::start(&top)?;
    let before = terminal.expect("\n").await?;
    // Only what changes on the screen is written, so not each word is.
    terminal.expect("revision ").await?;
    let _envoy = Envoy::start(&server.bootstrap_envoy("edge-1", Variant::Delta).await?).await?;
    terminal.expect("edge-1").await?;
    terminal.keys.write_all(b"2").await?;
    terminal.expect("\u{1b}[7m2 changes").await?;
    terminal.keys.write_all(b"q").await?;
    // The other screen is left.
    terminal.expect("\u{1b}[?1049l").await?;
    terminal.expect("ended 0\r\n").await?;
    let after = terminal.expect("end\r\n").await?;
    assert_eq!(after.lines().next(), before.lines().next(), "the settings of the terminal");
    ensure!(terminal.child.wait().await?.success());
    Ok(())
}

#[tokio::test]
async fn top_wants_a_terminal_and_a_server() -> Result<()> {
    let output = xds_server().await?.arg("top").output().await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && error.contains("needs a terminal"), "{error}");
    let command = xds_server().await?;
    let program = command.as_std().get_program().to_str().context("a path that is not UTF-8")?;
    let mut terminal = Terminal::start(&format!("{program} top --admin=http://127.0.0.1:1; echo ended $?"))?;
    let told = terminal.expect("ended 3").await?;
    ensure!(told.contains("cannot reach the server") && !told.contains("\u{1b}[?1049h"), "{told:?}");
    Ok(())
}
