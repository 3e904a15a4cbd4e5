//! Principals with the real process: the policy is a file that changes, and the audit log one that is rotated.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::http::Answer;
use xds_tests::server::{Server, Setup, cli, xds_server};
use xds_tests::tokens::{self, TokenIssuer};
use xds_tests::wait::{PATIENCE, wait_for};

/// A server with an access policy and an audit log.
struct World {
    dir: TempDir,
    server: Server,
    tokens: Vec<(&'static str, String)>,
}

impl World {
    /// Starts with a principal of each role, whose tokens `xds-server token new` made.
    async fn start() -> Result<Self> {
        let dir = TempDir::with_prefix("xds-access-")?;
        let mut tokens = Vec::new();
        let mut policy = "principals:\n".to_owned();
        for role in ["viewer", "operator", "admin"] {
            let printed = cli(&["token", "new"]).await?;
            let token = printed.lines().next().context("no token")?.to_owned();
            ensure!(token.starts_with("xds_") && !printed[token.len()..].contains(&token), "{printed}");
            let lines = printed.lines().filter(|line| !line.starts_with('#')).skip(2);
            let lines: String = lines.map(|line| format!("{line}\n")).collect();
            policy += &lines.replace("NAME", role).replace("role: viewer", &format!("role: {role}"));
            tokens.push((role, token));
        }
        fs::write(dir.path().join("access.yaml"), &policy)?;
        let setup = Setup::new()?
            .arg(format!("--access-policy={}", dir.path().join("access.yaml").display()))
            .arg(format!("--audit-log={}", dir.path().join("audit.log").display()))
            .arg("--tls-poll-interval=100ms");
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        Ok(Self { dir, server, tokens })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn ask(&self, who: &str, method: &str, path: &str) -> Result<Answer> {
        let token = self.tokens.iter().find(|(role, _)| *role == who).map(|(_, token)| token.as_str());
        let bearer = format!("Bearer {}", token.unwrap_or(who));
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        let headers = if who.is_empty() { &headers[1..] } else { &headers[..] };
        self.server.request(method, path, headers, r#"{"selector": {"nodeIds": ["a"]}}"#).await
    }

    /// Waits until the newest line of a file of the audit log is as it should be.
    async fn wait_line(&self, file: &str, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
        let path = self.file(file);
        let found = wait_for("a line of the audit log", PATIENCE, async || {
            let text = fs::read_to_string(&path)?;
            let line = text
                .lines()
                .rev()
                .find_map(|line| serde_json::from_str::<Value>(line).ok().filter(|line| is_good(line)));
            line.with_context(|| format!("there is only {text}"))
        });
        found.await.with_context(|| self.server.log().to_string())
    }
}

#[tokio::test]
async fn roles_hold_and_everything_is_on_record() -> Result<()> {
    let world = World::start().await?;
    for (who, expected) in [
        ("", [401, 401, 401]),
        ("wrong", [401, 401, 401]),
        ("viewer", [200, 403, 403]),
        ("operator", [200, 200, 403]),
        ("admin", [200, 200, 200]),
    ] {
        let calls = [("GET", "/v1/groups"), ("POST", "/v1/reload"), ("PUT", "/v1/groups/g")];
        for ((method, path), status) in calls.into_iter().zip(expected) {
            let answer = world.ask(who, method, path).await?;
            // Without watched files there is nothing to reload, which is another matter.
            let is_reload = path == "/v1/reload" && status == 200;
            let told = answer.status.as_u16();
            ensure!(
                told == status || (is_reload && ![401, 403].contains(&told)),
                "{method} {path} as {who}: {answer:?}"
            );
        }
    }
    let written =
        world.wait_line("audit.log", |line| line["event"] == "api.write" && line["method"] == "PUT").await?;
    ensure!(written["principal"] == "admin" && written["revision"] == 1, "{written}");
    ensure!(written["objects"] == json!(["group/g"]) && written["peer"].is_string(), "{written}");
    let denied = world
        .wait_line("audit.log", |line| line["reason"] == "role" && line["principal"] == "operator")
        .await?;
    ensure!(denied["status"] == 403 && denied["route"] == "/v1/groups/{group}", "{denied}");
    let history = world.ask("viewer", "GET", "/v1/history").await?.json()?;
    ensure!(history["revisions"][0]["actor"] == "admin", "{history}");
    let metrics = world.ask("viewer", "GET", "/metrics").await?.text();
    ensure!(metrics.contains(r#"xds_auth_denied_total{port="admin",reason="role"}"#), "{metrics}");
    ensure!(world.ask("", "GET", "/metrics").await?.status == 401, "metrics need a viewer");
    let all = fs::read_to_string(world.file("audit.log"))? + &world.server.log().to_string();
    ensure!(world.tokens.iter().all(|(_, token)| !all.contains(token)), "a token is in a log");
    Ok(())
}

#[tokio::test]
async fn a_changed_policy_is_used_and_a_bad_one_is_not() -> Result<()> {
    let world = World::start().await?;
    let policy = fs::read_to_string(world.file("access.yaml"))?;
    for (bad, why) in [
        ("principals: [{ name: a, role: boss, tokens: [] }]", "is no role"),
        ("principals: []", "it has no `principals`"),
        ("", "the file is empty"),
    ] {
        fs::write(world.file("access.yaml"), bad)?;
        world.server.wait_json("/readyz", |ready| ready.to_string().contains(why)).await?;
        ensure!(world.ask("viewer", "GET", "/v1/groups").await?.status == 200, "the last good one is kept");
    }
    world.wait_line("audit.log", |line| line["event"] == "policy.kept").await?;
    fs::write(world.file("access.yaml"), policy.replace("name: viewer", "name: reader"))?;
    world.wait_line("audit.log", |line| line["event"] == "policy.loaded").await?;
    world.server.wait_json("/readyz", |ready| !ready.to_string().contains("access policy")).await?;
    Ok(())
}

#[tokio::test]
async fn a_changed_admin_token_is_used_and_a_bad_one_is_not() -> Result<()> {
    let dir = TempDir::with_prefix("xds-token-")?;
    let path = dir.path().join("admin.token");
    let [old, new] = ["0123456789abcdef-old", "0123456789abcdef-new"];
    fs::write(&path, old)?;
    let setup =
        Setup::new()?.arg(format!("--admin-token-file={}", path.display())).arg("--tls-poll-interval=10m");
    let server = Server::start_with(setup).await?;
    let status = async |token: &str| -> Result<u16> {
        let bearer = format!("Bearer {token}");
        let answer = server.request("GET", "/v1/groups", &[("authorization", &*bearer)], "").await?;
        Ok(answer.status.as_u16())
    };
    wait_for("the server", PATIENCE, async || {
        let status = status(old).await?;
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await?;
    ensure!(status(new).await? == 401);
    // The next look would be in ten minutes.
    for (content, problem) in
        [("", Some("the changed admin token is not used")), ("short", Some("admin.token")), (new, None)]
    {
        fs::write(&path, content)?;
        server.signal(Signal::HUP)?;
        let is_told = |ready: &Value| match problem {
            Some(problem) => ready.to_string().contains(problem),
            None => !ready.to_string().contains("admin token"),
        };
        server.wait_json("/readyz", is_told).await?;
        let expected = if problem.is_some() { [200, 401] } else { [401, 200] };
        let found = [status(old).await?, status(new).await?];
        ensure!(found == expected, "{content:?}: {found:?}");
    }
    let log = server.log().to_string();
    ensure!(!log.contains(old) && !log.contains(new), "a token is in the log");
    Ok(())
}

const DOUBTFUL: &str = r#"principals:
- name: ci
  role: operator
  groups: [egde]
  tokens: [{ sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }]
- { name: boss, role: admin, certificates: [{ spiffe: "spiffe://a.org/**" }] }
- { name: late, role: viewer, certificates: [{ spiffe: "spiffe://a.org/late" }] }
"#;

const GUARDED: &str = r#"apiVersion: xds-server.io/v1
kind: NodeGroup
metadata: { name: edge }
spec:
  selector: { nodeIds: ["edge-*"] }
  identities:
  - jwt: { issuer: nobody, subject: a }
"#;

#[tokio::test]
async fn a_policy_is_checked_beside_the_files_that_it_speaks_of() -> Result<()> {
    let dir = TempDir::with_prefix("xds-validate-")?;
    let (files, policy) = (dir.path().join("files"), dir.path().join("access.yaml"));
    fs::create_dir_all(files.join("edge"))?;
    fs::write(files.join("edge/group.yaml"), GUARDED)?;
    fs::write(
        files.join("secret.yaml"),
        "resources:\n- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  name: s\n  \
         generic_secret: { secret: { inline_string: canary } }\n",
    )?;
    fs::write(&policy, DOUBTFUL)?;
    let (files, policy) = (files.display().to_string(), policy.display().to_string());
    let validate = async |more: &[&str]| {
        let args = [&["validate", &files, "--access", &policy], more].concat();
        cli_fails_or_not(&args).await
    };
    let (text, is_good) = validate(&[]).await?;
    ensure!(is_good, "doubts are warnings: {text}");
    for expected in [
        format!(
            "{policy}:4:12: warning[unknown-group] principals[0].groups[0]: no node group matches \"egde\""
        ),
        format!("{policy}:7:46: warning[unreachable-credential] principals[2].certificates[0]: "),
        format!("{files}/edge/group.yaml:7:20: warning[unknown-issuer] spec.identities[0].jwt.issuer: "),
        format!(
            "{files}/secret.yaml:4:46: warning[secret-without-identities] generic_secret.secret.inline_string: "
        ),
        "did you mean `edge`?".to_owned(),
    ] {
        ensure!(text.contains(&expected), "{expected} is not in {text}");
    }
    ensure!(!text.contains("canary"), "{text}");
    let (strict, is_good) = validate(&["--strict"]).await?;
    ensure!(!is_good && strict.contains(":4:12: error[unknown-group]"), "{strict}");
    let (identified, is_good) = validate(&["--secrets", "identified"]).await?;
    ensure!(!is_good && identified.contains("error[secret-without-identities]"), "{identified}");
    let (any, is_good) = validate(&["--secrets", "any"]).await?;
    ensure!(is_good && !any.contains("secret-without-identities"), "{any}");
    fs::write(&policy, DOUBTFUL.replace("operator", "oprator"))?;
    let (bad, is_good) = validate(&[]).await?;
    ensure!(!is_good && bad.contains(":3:9: error[bad-role] principals[0].role: "), "{bad}");
    ensure!(bad.contains("did you mean `operator`?"), "{bad}");

    // The server says the same when it loads them.
    fs::write(&policy, DOUBTFUL)?;
    let setup = Setup::new()?.arg(format!("--watch={files}")).arg(format!("--access-policy={policy}"));
    let server = Server::start_with(setup.arg("--tls-poll-interval=100ms")).await?;
    let found = wait_for("warnings about the policy", PATIENCE, async || {
        let log = server.log().to_string();
        let codes = ["unknown-group", "unreachable-credential", "unknown-issuer"];
        ensure!(codes.iter().all(|code| log.contains(code)), "there is only {log}");
        Ok(())
    });
    found.await
}

/// The output of a command, and whether it ended well.
async fn cli_fails_or_not(args: &[&str]) -> Result<(String, bool)> {
    let output = xds_server().await?.args(args).output().await?;
    Ok((String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?, output.status.success()))
}

#[tokio::test]
async fn the_audit_log_is_opened_again() -> Result<()> {
    let world = World::start().await?;
    fs::rename(world.file("audit.log"), world.file("audit.log.1"))?;
    world.server.signal(Signal::HUP)?;
    wait_for("the new file", PATIENCE, async || Ok(fs::metadata(world.file("audit.log"))?)).await?;
    world.ask("admin", "PUT", "/v1/groups/g").await?;
    world.wait_line("audit.log", |line| line["event"] == "api.write").await?;
    Ok(())
}

/// What `xds-server get` says for a node, with a token if there is one.
async fn get(server: &Server, node: &str, token: Option<&Path>) -> String {
    let address = format!("--xds-address={}", server.xds());
    let token = token.map(|path| format!("--token-file={}", path.display()));
    let node = format!("--node-id={node}");
    let mut args = vec!["get", "--type=clusters", &address, &node];
    args.extend(token.as_deref());
    cli(&args).await.unwrap_or_else(|error| format!("{error:#}"))
}

#[tokio::test]
async fn tokens_prove_who_xds_clients_are() -> Result<()> {
    let dir = TempDir::with_prefix("xds-tokens-")?;
    let file = |name: &str| dir.path().join(name);
    fs::create_dir(file("routes"))?;
    let group = json!({"apiVersion": "xds-server.io/v1", "kind": "NodeGroup", "metadata": {"name": "edge"}, "spec": {
        "selector": {"nodeIds": ["edge-*"]},
        "identities": [{"jwt": {"issuer": "cluster", "claims": {"/pod": "{node}"}}}],
    }});
    fs::write(file("routes/group.json"), group.to_string())?;
    let issuer = TokenIssuer::new()?;
    fs::write(file("keys.json"), issuer.key_set())?;
    let policy = tokens::policy(Path::new("keys.json"));
    fs::write(file("access.yaml"), &policy)?;
    let setup = Setup::new()?
        .watch(&file("routes"))
        .arg(format!("--access-policy={}", file("access.yaml").display()))
        .arg("--tls-poll-interval=100ms");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let token = issuer.token(&tokens::claims("edge-1", Duration::from_secs(3600))?)?;
    fs::write(file("token"), format!("{token}\n"))?;
    fs::write(file("forged"), format!("{token}x\n"))?;
    let (good, forged) = (file("token"), file("forged"));
    let all = [
        ("edge-1", Some(&*good), "version_info"),
        ("edge-2", Some(&*good), "node-id-mismatch: "),
        ("edge-1", None, "no-credential: "),
        ("edge-1", Some(&*forged), "bad-token: "),
        ("other", None, "version_info"),
    ];
    for (node, token, expected) in all {
        let told = get(&server, node, token).await;
        ensure!(told.contains(expected), "{node} {token:?}: {told}");
    }
    fs::write(file("access.yaml"), format!("{policy}denied: [{{ issuer: cluster, subject: edge }}]\n"))?;
    wait_for("the refusal of whom the policy denies", PATIENCE, async || {
        let told = get(&server, "edge-1", Some(&good)).await;
        ensure!(told.contains("denied: the access policy denies the identity of this token"), "{told}");
        Ok(())
    })
    .await?;
    ensure!(!server.log().to_string().contains(&token), "the token is in the log");
    Ok(())
}
