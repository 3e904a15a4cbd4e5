//! Writes of the command line: documents of files and directories, groups, resources; and what it shows of them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xds_tests::server::{Server, Setup, cli, xds_server};
use xds_tests::wait::PATIENCE;

/// A directory of two files, one of them below it.
fn documents() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: NAME}\nspec: {ports: [{port: 80}]}\n";
    std::fs::write(dir.path().join("a.yaml"), service.replace("NAME", "a"))?;
    std::fs::create_dir(dir.path().join("more"))?;
    let json = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}}"#;
    std::fs::write(dir.path().join("more/b.json"), json.replace(", ", ",\n\t"))?;
    std::fs::write(dir.path().join("readme.txt"), "no document")?;
    Ok(dir)
}

struct Shell {
    admin: String,
}

impl Shell {
    async fn table(&self, args: &[&str]) -> Result<String> {
        cli(&[args, &["--output", "table", "--admin", &self.admin]].concat()).await
    }

    async fn json(&self, args: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(
            &cli(&[args, &["--output", "json", "--admin", &self.admin]].concat()).await?,
        )?)
    }

    async fn refused(&self, args: &[&str]) -> String {
        self.table(args)
            .await
            .map_or_else(|error| format!("{error:#}"), |text| format!("not refused: {text}"))
    }
}

#[tokio::test]
async fn documents_are_applied_shown_and_deleted() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let shell = Shell { admin: server.url("") };
    let dir = documents()?;
    let path = dir.path().to_string_lossy().into_owned();
    let dry = shell.table(&["apply", "-f", &path, "--dry-run"]).await?;
    ensure!(dry.contains("would change:\n") && dry.contains("+ document/Service/default/a\n"), "{dry}");
    assert_eq!(server.get_json("/v1/documents").await?["documents"], json!([]));
    let applied = shell.json(&["apply", "-f", &path, "--wait", "--timeout", "5s"]).await?;
    assert_eq!((&applied["committed"], &applied["acked"]), (&json!(true), &json!(0)), "{applied:#}");
    let listed = shell.table(&["documents", "Service"]).await?;
    ensure!(listed.contains("Service default/a  default  api") && listed.contains("default/b"), "{listed}");
    let shown = shell.table(&["documents", "Service", "default/b"]).await?;
    ensure!(shown.contains("SOURCE      api\n") && shown.contains("\"port\": 80"), "{shown}");

    // A fault is reported at its place in its file.
    std::fs::write(
        dir.path().join("more/c.yaml"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: [{port: 0}]}\n",
    )?;
    let refused = shell.refused(&["apply", "-f", &path]).await;
    ensure!(refused.contains("more/c.yaml:4:23: #/spec/ports/0/port: "), "{refused}");
    let none = shell.refused(&["apply", "-f", &format!("{path}/readme.txt")]).await;
    ensure!(none.contains("readme.txt:1:1: "), "{none}");

    let input = "apiVersion: v1\nkind: Service\nmetadata: {name: d}\nspec: {ports: [{port: 80}]}\n";
    let mut command = xds_server().await?;
    command.args(["apply", "-f", "-", "--output", "json", "--admin", &shell.admin]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await?;
    }
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await??;
    ensure!(output.status.success(), "{output:?}");

    for name in ["a", "default/b", "d"] {
        shell.json(&["delete", "Service", name]).await?;
    }
    assert_eq!(server.get_json("/v1/documents").await?["documents"], json!([]));
    let gone = shell.refused(&["delete", "Service", "a"]).await;
    ensure!(gone.contains("(HTTP 404)"), "{gone}");
    Ok(())
}

#[tokio::test]
async fn groups_resources_events_and_acks_are_written_and_shown() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let shell = Shell { admin: server.url("") };
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let group = file("group.yaml", "selector: {nodeIds: [edge-1]}\npriority: 3\n")?;
    shell.json(&["groups", "put", "edge", "-f", &group]).await?;
    let listed = shell.table(&["groups", "list"]).await?;
    ensure!(listed.contains("edge") && listed.contains("{\"nodeIds\":[\"edge-1\"]"), "{listed}");
    assert_eq!(shell.json(&["groups", "get", "edge"]).await?["priority"], 3);

    file("d.yaml", "name: d\nconnect_timeout: 1s\n")?;
    let cluster = file("cluster.yaml", "name: c\nconnect_timeout: 1s\n")?;
    shell.json(&["resources", "put", "edge", "clusters", "c", "-f", &cluster]).await?;
    let listed = shell.table(&["resources", "list", "edge"]).await?;
    ensure!(listed.contains("Cluster  c\n"), "{listed}");
    assert_eq!(shell.json(&["resources", "get", "edge", "clusters", "c"]).await?["name"], "c");
    for of in [["--group", "edge"], ["--node", "edge-1"]] {
        let snapshot = shell.table(&["snapshot", of[0], of[1]]).await?;
        ensure!(snapshot.contains("Cluster  c ") && snapshot.contains(" edge "), "{snapshot}");
    }
    // The advice to a command names commands.
    let waves = ["--waves", "10%", "--hold", "1h"];
    let begun = shell
        .table(
            &[
                &["resources", "put", "edge", "clusters", "d", "-f", &cluster.replace("cluster.", "d.")][..],
                &waves,
            ]
            .concat(),
        )
        .await?;
    ensure!(begun.contains("wave deployment: xds-server waves "), "{begun}");
    let id = begun
        .rsplit("xds-server waves ")
        .next()
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let refused = shell.refused(&["resources", "delete", "edge", "clusters", "d"]).await;
    ensure!(refused.contains(&format!("`xds-server waves promote {id}` or `abort`")), "{refused}");
    ensure!(
        refused.contains(" --force") && !refused.contains("/v1/") && !refused.contains("force=true"),
        "{refused}"
    );
    assert_eq!(shell.json(&["waves", "promote", &id]).await?["phase"], "promoted");
    shell.json(&["resources", "delete", "edge", "clusters", "d"]).await?;
    let acks = shell.table(&["acks"]).await?;
    ensure!(acks.contains("0 of 0 clients have acknowledged it"), "{acks}");
    shell.json(&["reload"]).await?;

    let events = cli(&["events", "--output", "json", "--admin", &shell.admin]).await?;
    let events: Vec<Value> = events.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let published: Vec<&Value> = events.iter().filter(|event| event["event"] == "publish").collect();
    let [.., before, last] = published.as_slice() else { anyhow::bail!("{events:#?}") };
    let since = before["id"].as_str().unwrap_or_default();
    let later = shell.table(&["events", "--since", since]).await?;
    ensure!(later.contains(&format!("{}  publish  ", last["id"].as_str().unwrap_or_default())), "{later}");
    ensure!(!later.contains(since), "{later}");

    shell.json(&["resources", "delete", "edge", "clusters", "c"]).await?;
    shell.json(&["groups", "delete", "edge"]).await?;
    let gone = shell.refused(&["groups", "get", "edge"]).await;
    ensure!(gone.contains("there is no group edge"), "{gone}");
    Ok(())
}
