//! The command as users run it: output, exit codes, environment.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/forms.rs"]
mod forms;
#[path = "cli/seeds.rs"]
mod seeds;
#[path = "cli/targets.rs"]
mod targets;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program without anything of the environment that it would read.
fn xds_server(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xds-server"));
    command.env_clear().env("HOME", dir).env("NO_COLOR", "1").current_dir(dir).stdin(Stdio::null());
    command
}

fn run(dir: &Path, line: &str) -> Output {
    xds_server(dir).args(line.split_whitespace()).output().unwrap()
}

/// Exit code, standard output and standard error.
fn outcome(dir: &Path, line: &str) -> (i32, String, String) {
    let output = run(dir, line);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

const CLUSTER: &str = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Bad input by name, each in a file of its own beside a good one.
fn bad_files() -> TempDir {
    let cluster = |rest: &str| format!("resources:\n- {CLUSTER}\n  {rest}\n");
    let group = "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: NAME}\nspec: {selector: {all: true}}\n";
    let dir = directory(&[
        ("r/good.yaml", &cluster("name: good\n  type: STATIC")),
        ("r/malformed.yaml", "resources: [\n"),
        ("r/malformed.json", "{\"resources\": [}"),
        ("r/unknown-field.yaml", &cluster("name: unknown-field\n  conect_timeout: 1s")),
        ("r/wrong-type.yaml", &cluster("name: wrong-type\n  connect_timeout: soon")),
        (
            "r/unknown-type.yaml",
            "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Clutser\n  name: x\n",
        ),
        ("r/duplicate-key.yaml", &cluster("name: duplicate-key\n  name: again")),
        ("r/empty.yaml", ""),
        ("r/truncated.yaml", "resources:\n- '@type': \"type.googleapis.com/envoy.config.cl"),
        ("r/no-name.yaml", &cluster("type: STATIC")),
        ("r/rule.yaml", &cluster("name: rule\n  connect_timeout: 0s")),
        ("r/twice/one.yaml", &cluster("name: twice\n  type: STATIC")),
        ("r/twice/two.yaml", &cluster("name: twice\n  type: STATIC")),
        ("r/groups/one.yaml", &group.replace("NAME", "one")),
        ("r/groups/two.yaml", &group.replace("NAME", "two")),
        ("r/groups/a.yaml", &cluster("name: nobodys\n  type: STATIC")),
    ]);
    fs::File::create(dir.path().join("r/huge.yaml")).unwrap().set_len(50_000_000).unwrap();
    dir
}

#[test]
fn validate_tells_all_that_is_wrong_with_bad_files() {
    let dir = bad_files();
    let (code, stdout, stderr) = outcome(dir.path(), "validate r");
    assert_eq!((code, stderr.as_str()), (1, ""));
    insta::assert_snapshot!("bad_files_text", stdout);
    let (code, stdout, _) = outcome(dir.path(), "validate r --output json");
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let is_placed = |one: &Value| one["line"].as_u64() > Some(0) || one["code"] == "file-too-large";
    assert!(report["diagnostics"].as_array().unwrap().iter().all(is_placed), "{report:#}");
}

#[test]
fn validate_says_what_an_unusable_node_group_does_to_its_directory() {
    let dir = directory(&[
        (
            "e/group.yaml",
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: e}\nspec: {selector: {}}\n",
        ),
        ("e/a.yaml", &format!("resources:\n- {CLUSTER}\n  name: a\n  type: STATIC\n")),
    ]);
    let (code, stdout, _) = outcome(dir.path(), "validate e");
    assert_eq!(code, 1);
    insta::assert_snapshot!("unusable_node_group", stdout);
}

#[test]
fn validate_finds_nothing_wrong_with_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (code, stdout, stderr) = outcome(&root, "validate fixtures/basic");
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "4 files, 10 resources, 0 errors, 0 warnings\n", "")
    );
}

#[test]
fn pitfall_74_dangling_references_are_warnings_unless_strict() {
    let cluster = format!(
        "resources:\n- {CLUSTER}\n  name: a\n  type: EDS\n  eds_cluster_config: {{service_name: b, eds_config: {{ads: {{}}}}}}\n"
    );
    let dir = directory(&[("a.yaml", &cluster)]);
    let (code, stdout, _) = outcome(dir.path(), "validate a.yaml");
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("a.yaml:5:38: warning[dangling-reference]"), "{stdout}");
    let (code, stdout, _) = outcome(dir.path(), "validate a.yaml --strict");
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("a.yaml:5:38: error[dangling-reference]"), "{stdout}");
}

#[test]
fn a_reference_to_what_is_there_but_bad_is_no_second_fault() {
    let cluster = format!(
        "resources:\n- {CLUSTER}\n  name: a\n  type: EDS\n  eds_cluster_config: {{eds_config: {{ads: {{}}}}}}\n\
         - '@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n  cluster_name: a\n  endpoint: []\n"
    );
    let dir = directory(&[("a.yaml", &cluster)]);
    let (code, stdout, _) = outcome(dir.path(), "validate a.yaml");
    assert_eq!(code, 1);
    assert!(stdout.contains("unknown-field") && !stdout.contains("dangling"), "{stdout}");
}

#[test]
fn validate_for_a_node_refuses_groups_that_conflict_there() {
    let cluster = format!("resources:\n- {CLUSTER}\n  name: a\n  type: STATIC\n");
    let group = |name: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: {name}}}\nspec: {{selector: {{nodeIds: ['n*']}}}}\n"
        )
    };
    let dir = directory(&[
        ("x/g.yaml", &group("x")),
        ("x/a.yaml", &cluster),
        ("y/g.yaml", &group("y")),
        ("y/a.yaml", &cluster),
    ]);
    assert_eq!(outcome(dir.path(), "validate .").0, 0);
    assert_eq!(outcome(dir.path(), "validate . --node other").0, 0);
    let (code, stdout, _) = outcome(dir.path(), "validate . --node n1");
    assert_eq!(code, 1);
    assert!(stdout.contains("error[group-conflict]"), "{stdout}");
}

#[test]
fn validate_never_shows_a_secret() {
    let secret = "resources:\n- '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  name: s\n  \
                  tls_certificate:\n    private_key: {inline_string: hunter2hunter2, inlin: hunter3}\n    password: hunter4\n";
    let dir = directory(&[("s.yaml", secret)]);
    for line in ["validate s.yaml", "validate s.yaml --output json"] {
        let (code, stdout, stderr) = outcome(dir.path(), line);
        assert_eq!(code, 1);
        assert!(!stdout.contains("hunter") && !stderr.contains("hunter"), "{stdout}");
    }
}

#[test]
fn unreadable_and_missing_paths_are_errors_that_name_them() {
    let dir = directory(&[("a.yaml", "x")]);
    let (code, stdout, _) = outcome(dir.path(), "validate missing");
    assert_eq!(code, 1);
    assert!(
        stdout.starts_with("missing: error[unreadable-path] there is no such file or directory"),
        "{stdout}"
    );
    fs::set_permissions(dir.path().join("a.yaml"), fs::Permissions::from_mode(0o000)).unwrap();
    let (code, stdout, _) = outcome(dir.path(), "validate a.yaml");
    // Root may read everything.
    let may_read = fs::File::open(dir.path().join("a.yaml")).is_ok();
    assert_eq!((code, stdout.contains("error[unreadable-file]")), (1, !may_read), "{stdout}");
}

#[test]
fn a_wrong_command_line_is_told_what_would_be_right() {
    let dir = directory(&[
        ("unknown.yaml", "wach: routes\n"),
        ("value.yaml", "poll-interval: often\n"),
        ("port.yaml", "xds-listen: 0.0.0.0:0\n"),
    ]);
    let table = [
        ("serv", "serve"),
        ("--wach routes", "--watch"),
        ("--xds-listen 127.0.0.1", "the port is missing"),
        ("--xds-listen 0.0.0.0:0", "--allow-plaintext-xds"),
        ("--admin-listen 0.0.0.0:0", "--allow-unauthenticated-admin"),
        ("--admin-token-file missing --admin-listen 0.0.0.0:0", "cannot read --admin-token-file missing"),
        ("--drain-timeout 10", "10s"),
        ("--max-message-bytes 1", "at least 128KiB"),
        ("--log-level loud", "error, warn, info, debug or trace"),
        ("--config missing.yaml", "config file missing.yaml: No such file"),
        ("--config unknown.yaml", "config file unknown.yaml: unknown key `wach`; did you mean `watch`?"),
        ("--config value.yaml", "config file value.yaml: poll-interval: invalid value 'often'"),
        ("--config port.yaml", "--allow-plaintext-xds"),
        ("validate", "<PATH>"),
        ("bootstrap envoy", "--node-id"),
        ("bootstrap grpc --node-id n --delta", "omit --delta"),
        ("bootstrap grpc --node-id n --per-type", "omit --per-type"),
        ("bootstrap grpc --node-id n --metadata a", "write KEY=VALUE"),
        ("bootstrap grpc --node-id n --metadata a=1 --metadata a.b=2", "given twice"),
        ("bootstrap grpc --node-id n --locality a//b", "REGION/ZONE"),
        ("bootstrap envoy --node-id n --xds-address 0.0.0.0:1", "not an address to connect to"),
        ("get --node-id n --type clusterz", "clusters"),
        ("bootstrap envoy --node-id n --tls-cert a", "--tls-ca"),
        (
            "bootstrap grpc --node-id n --tls-ca a --out-dir b",
            "omit --tls-server-name, --tls-server-uri and --out-dir",
        ),
        ("nodes --admin https://localhost --ca missing.crt", "cannot read --ca missing.crt"),
        ("get --node-id n --type clusters --cert a", "--key"),
        ("ca issue a/b", "letters, digits"),
        ("ca issue a --dir nowhere", "`xds-server ca init` makes it"),
    ];
    for (line, advice) in table {
        let (code, stdout, stderr) = outcome(dir.path(), line);
        assert_eq!((code, stdout.as_str()), (2, ""), "{line}: {stderr}");
        assert!(stderr.contains(advice), "{line}: {stderr}");
    }
}

/// A debug build checks every flag of every command when it writes the pages, also those of the server.
#[test]
fn every_command_of_the_whole_command_line_has_a_page() {
    let dir = directory(&[]);
    let (code, _, stderr) = outcome(dir.path(), "man pages");
    assert_eq!(code, 0, "{stderr}");
    let page = |name: &str| fs::read_to_string(dir.path().join("pages").join(name)).unwrap();
    assert!(page("xds-server-serve.1").contains("max\\-connection\\-age"));
    assert!(page("xds-server-rollout-start.1").contains(".SH SYNOPSIS"));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = directory(&[("c.yaml", "xds-listen: 0.0.0.0:1\nadmin-listen: 0.0.0.0:2\n")]);
    let stderr = |command: &mut Command| String::from_utf8(command.output().unwrap().stderr).unwrap();
    let from_file = stderr(xds_server(dir.path()).args(["--config", "c.yaml"]));
    assert!(from_file.contains("--xds-listen 0.0.0.0:1 "), "{from_file}");
    let mut command = xds_server(dir.path());
    command.env("XDS_SERVER_CONFIG", "c.yaml").env("XDS_SERVER_XDS_LISTEN", "0.0.0.0:3");
    let from_environment = stderr(&mut command);
    assert!(from_environment.contains("--xds-listen 0.0.0.0:3 "), "{from_environment}");
    let from_flag = stderr(command.args(["--xds-listen", "0.0.0.0:4"]));
    assert!(from_flag.contains("--xds-listen 0.0.0.0:4 "), "{from_flag}");
}

#[test]
fn a_bootstrap_for_envoy_holds_what_it_needs() {
    let dir = directory(&[]);
    let bootstrap = |line: &str| -> Value {
        let (code, stdout, stderr) = outcome(dir.path(), &format!("bootstrap envoy --node-id edge-1 {line}"));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    };
    let sotw = bootstrap("--cluster edge --xds-address 127.0.0.1:7 --admin-port 9901");
    insta::assert_snapshot!("bootstrap_envoy", format!("{sotw:#}"));
    let delta = bootstrap("--delta --xds-address xds.example.com:18000");
    assert_eq!(delta["dynamic_resources"]["ads_config"]["api_type"], "DELTA_GRPC");
    assert_eq!(delta["dynamic_resources"]["ads_config"]["set_node_on_first_message_only"], true);
    assert_eq!(delta["static_resources"]["clusters"][0]["type"], "STRICT_DNS");
    assert_eq!(delta["admin"]["address"]["socket_address"]["port_value"], 0);
    let per_type =
        bootstrap("--per-type --delta --namespace shop --metadata rack.row=7 --locality eu --zone a");
    let source = &per_type["dynamic_resources"]["lds_config"]["api_config_source"];
    assert_eq!(source["api_type"], "DELTA_GRPC");
    assert_eq!(per_type["dynamic_resources"]["cds_config"]["api_config_source"], *source);
    assert_eq!(per_type["node"]["metadata"], serde_json::json!({"NAMESPACE": "shop", "rack": {"row": 7}}));
    assert_eq!(per_type["node"]["locality"], serde_json::json!({"region": "eu", "zone": "a"}));
    let silent = bootstrap("--no-load-reports");
    assert_eq!(silent["cluster_manager"], Value::Null);
    for (line, is_told) in
        [("", false), ("--delta", false), ("--per-type", true), ("--per-type --delta", true)]
    {
        let (_, _, stderr) = outcome(dir.path(), &format!("bootstrap envoy --node-id edge-1 {line}"));
        assert_eq!(stderr.contains("still come over ADS"), is_told, "{line}: {stderr}");
        assert_eq!(stderr.is_empty(), !is_told, "{line}: {stderr}");
    }
}

#[test]
fn a_bootstrap_for_grpc_holds_what_it_needs() {
    let dir = directory(&[]);
    let (code, stdout, _) = outcome(dir.path(), "bootstrap grpc --node-id n --xds-address [::1]:18000");
    assert_eq!(code, 0);
    let bootstrap: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(bootstrap["xds_servers"][0]["server_uri"], "[::1]:18000");
    assert_eq!(bootstrap["xds_servers"][0]["server_features"][0], "xds_v3");
    assert_eq!(bootstrap["xds_servers"][0]["channel_creds"][0]["type"], "insecure");
    assert_eq!(bootstrap["node"]["id"], "n");
    assert_eq!(bootstrap["node"]["locality"], serde_json::json!({"region": "default", "zone": "default"}));
    let template = "grpc/server?xds.resource.listening_address=%s";
    assert_eq!(bootstrap["server_listener_resource_name_template"], template);
    let (_, stdout, _) =
        outcome(dir.path(), "bootstrap grpc --node-id n --metadata stage=test --locality eu/b/rack1");
    let bootstrap: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(bootstrap["node"]["metadata"]["stage"], "test");
    let locality = serde_json::json!({"region": "eu", "zone": "b", "sub_zone": "rack1"});
    assert_eq!(bootstrap["node"]["locality"], locality);
}

#[test]
fn a_server_that_is_not_there_is_exit_code_3() {
    let dir = directory(&[]);
    for line in ["status", "nodes", "nodes n1", "history", "rollback 1", "conditions"] {
        let (code, stdout, stderr) = outcome(dir.path(), &format!("{line} --admin http://127.0.0.1:1"));
        assert_eq!((code, stdout.as_str()), (3, ""), "{line}: {stderr}");
        assert!(stderr.starts_with("error: cannot reach the server at http://127.0.0.1:1: "), "{stderr}");
    }
    let (code, _, stderr) = outcome(dir.path(), "get --node-id n --type clusters --xds-address 127.0.0.1:1");
    assert_eq!(code, 3, "{stderr}");
}

/// A server that listens on free ports. Dropping it kills it.
struct Server {
    child: Child,
    xds: String,
    admin: String,
}

impl Server {
    fn start(dir: &Path, line: &str) -> Self {
        Self::spawn(xds_server(dir), line)
    }

    fn spawn(mut command: Command, line: &str) -> Self {
        command.args(line.split_whitespace()).args(["--log-format", "json", "--data-dir", "data"]);
        command.args(["--xds-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = |service: &str| loop {
            let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if event["message"] == "listening" && event["service"] == service {
                break event["addr"].as_str().unwrap().to_owned();
            }
        };
        let (xds, admin) = (address("xds"), address("admin"));
        // Nobody reads on; a closed pipe must not end the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, xds, admin }
    }

    /// Runs a command against the server until it is as wanted.
    fn wait(&self, dir: &Path, line: &str, is_wanted: impl Fn(&(i32, String, String)) -> bool) -> String {
        let line = line.replace("ADMIN", &self.admin).replace("XDS", &self.xds);
        let began = std::time::Instant::now();
        loop {
            let found = outcome(dir, &line);
            if is_wanted(&found) {
                return found.1;
            }
            assert!(began.elapsed().as_secs() < 20, "{line}: {found:?}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_commands_work_against_a_server() {
    let good = format!("resources:\n- {CLUSTER}\n  name: a\n  type: STATIC\n");
    let dir = directory(&[("r/a.yaml", &good)]);
    let dir = dir.path();
    let server = Server::start(dir, "--watch r");
    let is_done = |found: &(i32, String, String)| found.0 == 0;
    let status = server.wait(dir, "status --admin ADMIN --output table", is_done);
    assert!(status.starts_with("ready: yes\n") && status.contains("r/a.yaml  1 "), "{status}");
    for variant in ["", "--delta"] {
        let line = format!("get --node-id n --type clusters --xds-address XDS --output json {variant}");
        let got: Value = serde_json::from_str(&server.wait(dir, &line, is_done)).unwrap();
        assert_eq!(got["resources"][0]["name"], "a", "{got:#}");
    }
    let nodes: Value = serde_json::from_str(&server.wait(dir, "nodes --admin ADMIN", is_done)).unwrap();
    assert!(nodes["nodes"].is_array());
    let history = server.wait(dir, "history --admin ADMIN --output table", is_done);
    assert!(history.lines().count() >= 2 && history.starts_with("REVISION"), "{history}");
    let (code, _, stderr) = outcome(dir, &format!("rollback 99 --admin {}", server.admin));
    assert_eq!(code, 1);
    assert!(stderr.contains("revision 99"), "{stderr}");
    // A client's view can be watched again.
    let got = server.wait(dir, "get --node-id n --type clusters --xds-address XDS --output yaml", is_done);
    fs::create_dir(dir.join("again")).unwrap();
    fs::write(dir.join("again/a.yaml"), got).unwrap();
    assert_eq!(
        outcome(dir, "validate again"),
        (0, "1 file, 1 resource, 0 errors, 0 warnings\n".to_owned(), String::new())
    );
}

#[test]
fn paths_in_the_environment_are_separated_by_colons() {
    let cluster = |name: &str| format!("resources:\n- {CLUSTER}\n  name: {name}\n  type: STATIC\n");
    let dir = directory(&[("r/a.yaml", &cluster("a")), ("s/b.yaml", &cluster("b"))]);
    let mut command = xds_server(dir.path());
    command.env("XDS_SERVER_WATCH", "r:s");
    let server = Server::spawn(command, "serve");
    let status = server.wait(dir.path(), "status --admin ADMIN --output table", |found| found.0 == 0);
    assert!(status.contains("r/a.yaml") && status.contains("s/b.yaml"), "{status}");
}

#[test]
fn a_broken_first_load_is_not_ready_and_says_why() {
    let dir = directory(&[("r/a.yaml", "resources: [\n")]);
    let dir = dir.path();
    let server = Server::start(dir, "--watch r");
    let is_not_ready = |found: &(i32, String, String)| found.0 == 1 && found.2.contains("not ready");
    let status = server.wait(dir, "status --admin ADMIN --output table", is_not_ready);
    assert!(status.starts_with("ready: no"), "{status}");
    let silent = format!("get --node-id n --type clusters --timeout 300ms --xds-address {}", server.xds);
    let (code, _, stderr) = outcome(dir, &silent);
    assert_eq!(code, 1);
    assert!(stderr.contains("first complete load"), "{stderr}");
    fs::write(dir.join("r/a.yaml"), format!("resources:\n- {CLUSTER}\n  name: a\n  type: STATIC\n")).unwrap();
    server.wait(dir, "status --admin ADMIN", |found| found.0 == 0);
}

#[test]
fn a_port_in_use_and_a_locked_directory_are_told() {
    let dir = directory(&[("r/a.yaml", "resources: [\n")]);
    let dir = dir.path();
    let server = Server::start(dir, "--watch r");
    let (code, _, stderr) = outcome(dir, &format!("--xds-listen {} --admin-listen 127.0.0.1:0", server.xds));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("cannot listen on --xds-listen"), "{stderr}");
    let (code, _, stderr) =
        outcome(dir, "--xds-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --data-dir data");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("the data directory data cannot be used"), "{stderr}");
}

#[test]
fn a_store_can_be_exported_and_imported() {
    let good = format!("resources:\n- {CLUSTER}\n  name: a\n  type: STATIC\n");
    let dir = directory(&[("r/a.yaml", &good)]);
    let dir = dir.path();
    let server = Server::start(dir, "--watch r");
    server.wait(dir, "status --admin ADMIN", |found| found.0 == 0);
    drop(server);
    let (code, export, stderr) = outcome(dir, "store export --data-dir data");
    assert_eq!((code, stderr.as_str()), (0, "exported up to revision 1\n"));
    fs::write(dir.join("export"), &export).unwrap();
    let (code, _, stderr) = outcome(dir, "store import --data-dir other export");
    assert_eq!((code, stderr.as_str()), (0, "imported up to revision 1 into other\n"));
    assert_eq!(outcome(dir, "store export --data-dir other").1, export);
    assert_eq!(outcome(dir, "store import --data-dir other export").0, 1);
}
