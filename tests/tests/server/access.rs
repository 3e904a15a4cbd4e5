//! Principals with the real process: the policy is a file that changes, and the audit log one that is rotated.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use xds_tests::config::CLUSTER;
use xds_tests::http::Answer;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::server::{Server, Setup, cli, principal, xds_server};
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
            let (token, lines) = principal(role).await?;
            policy += &lines;
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

    /// Waits until a line of a file of the audit log is as it should be.
    async fn wait_line(&self, file: &str, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = wait_line(&self.file(file), is_good).await;
        found.with_context(|| self.server.log().to_string())
    }
}

/// Waits until a line of an audit log is as it should be. The newest such line counts.
async fn wait_line(path: &Path, is_good: impl Fn(&Value) -> bool) -> Result<Value> {
    wait_for("a line of the audit log", PATIENCE, async || {
        let text = fs::read_to_string(path)?;
        let line = text
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str::<Value>(line).ok().filter(|line| is_good(line)));
        line.with_context(|| format!("there is only {text}"))
    })
    .await
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
        wait_for("the problem", PATIENCE, async || {
            let ready = world.ask("viewer", "GET", "/readyz").await?.text();
            ensure!(ready.contains(why), "{ready}");
            let unknown = world.ask("", "GET", "/readyz").await?.text();
            ensure!(unknown.contains("access: ") && !unknown.contains("access.yaml"), "{unknown}");
            Ok(())
        })
        .await?;
        ensure!(world.ask("viewer", "GET", "/v1/groups").await?.status == 200, "the last good one is kept");
    }
    world.wait_line("audit.log", |line| line["event"] == "policy.kept").await?;
    fs::write(world.file("access.yaml"), policy.replace("name: viewer", "name: reader"))?;
    // There was a line when the first one was loaded. The new one is in force when the principal has another name.
    wait_for("the new policy", PATIENCE, async || {
        ensure!(world.ask("viewer", "PUT", "/v1/groups/g").await?.status == 403);
        let audit = fs::read_to_string(world.file("audit.log"))?;
        ensure!(audit.contains(r#""principal":"reader""#), "{audit}");
        Ok(())
    })
    .await?;
    let audit = fs::read_to_string(world.file("audit.log"))?;
    ensure!(audit.matches("policy.loaded").count() == 2, "{audit}");
    world.server.wait_json("/readyz", |ready| !ready.to_string().contains("access: ")).await?;
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
        if content.is_empty() {
            server.signal(Signal::HUP)?;
        } else {
            // No other files are watched.
            let headers = [("authorization", &*format!("Bearer {old}"))];
            ensure!(server.request("POST", "/v1/reload", &headers, "").await?.status == 200);
        }
        let is_told = |ready: &Value| match problem {
            Some(problem) => ready.to_string().contains(problem),
            None => !ready.to_string().contains("admin token"),
        };
        let (used, refused) = if problem.is_some() { (old, new) } else { (new, old) };
        let bearer = format!("Bearer {used}");
        wait_for("the token and its problem", PATIENCE, async || {
            let found = status(used).await?;
            ensure!(found == 200, "{content:?}: {found}");
            let ready = server.request("GET", "/readyz", &[("authorization", &*bearer)], "").await?.json()?;
            ensure!(is_told(&ready), "{ready}");
            Ok(())
        })
        .await?;
        ensure!(status(refused).await? == 401, "{content:?}");
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
    fs::write(file("routes/group.json"), group_of_pods())?;
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
    let claims = tokens::claims("edge-1", Duration::from_secs(3600))?;
    let token = issuer.token(&claims)?;
    fs::write(file("token"), format!("{token}\n"))?;
    // Another issuer has signed the same.
    fs::write(file("forged"), TokenIssuer::new()?.token(&claims)?)?;
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

/// The node group of the pods that tokens name.
fn group_of_pods() -> String {
    let spec = json!({
        "selector": {"nodeIds": ["edge-*"]},
        "identities": [{"jwt": {"issuer": "cluster", "claims": {"/pod": "{node}"}}}],
    });
    json!({"apiVersion": "xds-server.io/v1", "kind": "NodeGroup", "metadata": {"name": "edge"}, "spec": spec})
        .to_string()
}

/// A client that accepts everything, as a node that has shown nothing. It goes on in `following`.
async fn follow(server: &Server, node: &str, following: &mut JoinSet<()>) -> Result<()> {
    let channel = raw::connect(server.xds()).await?;
    let mut stream = SotwStream::open(channel, path::ADS, raw::node(node, "edge"));
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first, &[]).await?;
    following.spawn(async move {
        while let Ok(response) = stream.expect_type(CLUSTER).await
            && stream.ack(&response, &[]).await.is_ok()
        {}
    });
    Ok(())
}

/// Files for a server of which some clients and a principal are refused, unless it only tries its policy.
struct Tried {
    dir: TempDir,
    admin: String,
}

/// A client: its node, the file of its token, why it is refused, and the identity that is on record.
type Client = (&'static str, Option<&'static str>, &'static str, Option<&'static str>);

const REFUSED: [Client; 3] = [
    ("edge-2", Some("pod"), "node-id-mismatch", Some("jwt:cluster:edge")),
    ("edge-3", None, "no-credential", None),
    ("elsewhere", Some("ops"), "denied", Some("jwt:cluster:ops")),
];

impl Tried {
    async fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("xds-dry-run-")?;
        let file = |name: &str| dir.path().join(name);
        fs::create_dir_all(file("routes/edge"))?;
        fs::write(file("routes/edge/group.json"), group_of_pods())?;
        let issuer = TokenIssuer::new()?;
        fs::write(file("keys.json"), issuer.key_set())?;
        let (admin, lines) = principal("admin").await?;
        let issuers = tokens::policy(Path::new("keys.json"));
        let policy = format!(
            "{issuers}principals:\n{lines}- {{ name: ops, role: operator, jwt: [{{ issuer: cluster, subject: ops }}] }}\n\
             denied: [{{ issuer: cluster, subject: ops, reason: INC-42 }}]\n"
        );
        fs::write(file("access.yaml"), policy)?;
        for (name, subject) in [("pod", "edge"), ("ops", "ops")] {
            let mut claims = tokens::claims("edge-1", Duration::from_secs(3600))?;
            claims["sub"] = subject.into();
            fs::write(file(name), issuer.token(&claims)?)?;
        }
        Ok(Self { dir, admin })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a server that serves the cluster `c` to the group `edge`.
    async fn start(&self, flag: Option<&str>) -> Result<Server> {
        let setup = Setup::new()?.watch(&self.file("routes")).probe();
        let setup = setup.arg(format!("--access-policy={}", self.file("access.yaml").display()));
        let setup = setup.arg(format!("--audit-log={}", self.file("audit.log").display()));
        let server = Server::start_with(flag.into_iter().fold(setup, |setup, flag| setup.arg(flag))).await?;
        server.wait_ready().await?;
        self.put(&server, "", 1).await?;
        Ok(server)
    }

    async fn ask(
        &self,
        server: &Server,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Answer> {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        server.request(method, path, &headers, body.to_string()).await
    }

    async fn put(&self, server: &Server, query: &str, seconds: u32) -> Result<()> {
        let cluster = json!({"name": "c", "connect_timeout": format!("{seconds}s")});
        let path = format!("/v1/groups/edge/resources/clusters/c{query}");
        self.ask(server, &self.admin, "PUT", &path, &cluster).await?.success().map(drop)
    }

    /// What a client is told, with the token of a file if it has one.
    async fn get(&self, server: &Server, node: &str, token: Option<&str>) -> String {
        get(server, node, token.map(|name| self.file(name)).as_deref()).await
    }

    /// The line of the audit log about clients that are refused, or would be, for this reason.
    async fn line(&self, reason: &str) -> Result<Value> {
        wait_line(&self.file("audit.log"), |line| line["event"] == "xds.denied" && line["reason"] == reason)
            .await
    }
}

fn would_deny(reason: &str) -> String {
    format!("xds_access_would_deny_total{{reason=\"{reason}\"}}")
}

fn refused(reason: &str) -> String {
    format!("xds_refused_total{{reason=\"{reason}\"}}")
}

#[tokio::test]
async fn a_dry_run_serves_clients_whom_the_policy_would_refuse_and_says_so() -> Result<()> {
    let tried = Tried::new().await?;
    let server = tried.start(Some("--access-dry-run")).await?;
    let ready = server.get_json("/readyz").await?;
    ensure!(ready["status"] == "ready", "{ready}");
    ensure!(ready["problems"].to_string().contains("dry-run: "), "{ready}");
    ensure!(server.log().containing("ERROR").is_empty(), "{}", server.log());
    let told = tried.get(&server, "edge-1", Some("pod")).await;
    ensure!(told.contains("\"c\""), "{told}");
    let metrics = server.get("/metrics").await?.text();
    let mut counts = metrics.lines().filter(|line| line.starts_with("xds_access_would_deny_total{"));
    ensure!(counts.all(|line| line.ends_with(" 0")), "the first one may have it: {metrics}");
    for (node, token, reason, identity) in REFUSED {
        let told = tried.get(&server, node, token).await;
        ensure!(told.contains("\"c\"") == node.starts_with("edge-"), "{node}: {told}");
        ensure!(told.contains("version_info"), "{node}: {told}");
        ensure!(server.metric(&would_deny(reason)).await? == 1, "{reason}");
        ensure!(server.metric(&refused(reason)).await? == 0, "{reason}");
        let line = tried.line(reason).await?;
        ensure!(line["outcome"] == "would deny" && line["identity"] == json!(identity), "{line}");
        let is_about_a_group = reason != "denied";
        ensure!(line["node"] == json!(is_about_a_group.then_some(node)), "{line}");
    }
    // The admin port is in force: nobody becomes an operator by a dry run.
    let ops = fs::read_to_string(tried.file("ops"))?;
    let answer = tried.ask(&server, &ops, "GET", "/v1/groups", &Value::Null).await?;
    ensure!(answer.status == 401, "{answer:?}");
    let line = wait_line(&tried.file("audit.log"), |line| line["event"] == "api.denied").await?;
    ensure!(line["reason"] == "denied" && line["outcome"] == "denied", "{line}");
    Ok(())
}

#[tokio::test]
async fn without_a_dry_run_the_same_clients_are_refused() -> Result<()> {
    let tried = Tried::new().await?;
    let server = tried.start(None).await?;
    let ready = server.get_json("/readyz").await?;
    ensure!(!ready.to_string().contains("dry-run: "), "{ready}");
    for (node, token, reason, identity) in REFUSED {
        let told = tried.get(&server, node, token).await;
        ensure!(told.contains(&format!("{reason}: ")) && !told.contains("version_info"), "{node}: {told}");
        ensure!(server.metric(&refused(reason)).await? == 1, "{reason}");
        let line = tried.line(reason).await?;
        ensure!(line["outcome"] == "denied" && line["identity"] == json!(identity), "{line}");
    }
    Ok(())
}

/// A wave counts nodes that are served only because of the dry run, as it counts others.
#[tokio::test]
async fn a_wave_reaches_nodes_that_only_a_dry_run_serves() -> Result<()> {
    let tried = Tried::new().await?;
    let server = tried.start(Some("--access-dry-run")).await?;
    let mut following = JoinSet::new();
    for node in ["edge-4", "edge-5"] {
        follow(&server, node, &mut following).await?;
    }
    tried.put(&server, "?waves=50%25,100%25&hold=0s", 2).await?;
    wait_for("the end of the wave", PATIENCE, async || {
        let waves = tried.ask(&server, &tried.admin, "GET", "/v1/waves", &Value::Null).await?.json()?;
        let wave = &waves["waveDeployments"][0];
        ensure!(wave["phase"] == "completed" && wave["nAcked"] == 2, "{waves:#}");
        Ok(())
    })
    .await?;
    // Each whenever it follows a view.
    ensure!(server.metric(&would_deny("no-credential")).await? >= 2);
    Ok(())
}
