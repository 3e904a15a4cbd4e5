//! A typo in a route document costs its object the update, and nothing else.

use anyhow::{Result, ensure};
use serde_json::Value;
use xds_tests::config::ConfigDir;
use xds_tests::server::{Server, Setup, cli, xds_server};

/// A typo: the file, what it says in place of what, and what is reported.
struct Typo {
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
    line: u64,
    code: &'static str,
    suggestion: Option<&'static str>,
}

const FILES: [(&str, &str); 5] = [
    (
        "native.yaml",
        "version: xds-server/v1\nlisteners:\n  front: {port: 8443, address: 127.0.0.1}\nroutes:\n  all: {to: b}\nbackends:\n  b: 127.0.0.1:80\n",
    ),
    (
        "gateway.yaml",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  gatewayClassName: x\n  listeners: [{name: a, port: 80, protocol: HTTP}]\n",
    ),
    (
        "http.yaml",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: http}\nspec:\n  parentRefs: [{name: g}]\n  hostnames: [http.example.com]\n  rules: [{}]\n",
    ),
    (
        "grpc.yaml",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: grpc}\nspec:\n  parentRefs: [{name: g}]\n  hostnames: [grpc.example.com]\n  rules:\n  - matches: [{method: {service: a}, headers: [{name: x-canary, value: '1'}]}]\n",
    ),
    (
        "split.yaml",
        "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: split}\nspec:\n  service: root\n  backends: [{service: one, weight: 1}]\n---\napiVersion: v1\nkind: Service\nmetadata: {name: root}\nspec: {ports: [{port: 80}]}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: one}\nspec: {ports: [{port: 80}]}\n",
    ),
];

/// Each of them was once served with another meaning: it listened on every address, answered for every host, or sent all requests
/// of a service to the canary. A misspelt group removed the live route.
const TYPOS: [Typo; 9] = [
    Typo::new("native.yaml", "address:", "adress:", 3, "unknown-field", "address"),
    Typo::new("native.yaml", "backends:", "backend:", 6, "unknown-field", "backends"),
    Typo::new("http.yaml", "hostnames:", "hosts:", 6, "unknown-field", ""),
    Typo::new("http.yaml", "hostnames:", "hostname:", 6, "unknown-field", "hostnames"),
    Typo::new(
        "http.yaml",
        "gateway.networking.k8s.io",
        "gateway.network.k8s.io",
        1,
        "unknown-version",
        "gateway.networking.k8s.io/v1",
    ),
    Typo::new("http.yaml", "HTTPRoute", "HTTPRoutes", 2, "unknown-kind", "HTTPRoute"),
    Typo::new("grpc.yaml", "headers:", "header:", 8, "unknown-field", "headers"),
    Typo::new("grpc.yaml", "matches:", "match:", 8, "unknown-field", "matches"),
    Typo::new("split.yaml", "weight:", "wieght:", 6, "unknown-field", "weight"),
];

impl Typo {
    const fn new(
        file: &'static str,
        right: &'static str,
        wrong: &'static str,
        line: u64,
        code: &'static str,
        suggestion: &'static str,
    ) -> Self {
        let suggestion = if suggestion.is_empty() { None } else { Some(suggestion) };
        Self { file, right, wrong, line, code, suggestion }
    }

    fn text(&self) -> String {
        let good = FILES.iter().find(|(file, _)| *file == self.file).map_or("", |(_, text)| text);
        good.replacen(self.right, self.wrong, 1)
    }

    /// Returns `true` if the error is reported at its place.
    fn is_told(&self, files: &Value) -> bool {
        let files = files["files"].as_array().into_iter().flatten();
        let of_file =
            files.filter(|file| file["path"].as_str().is_some_and(|path| path.ends_with(self.file)));
        let mut found = of_file.flat_map(|file| file["diagnostics"].as_array().into_iter().flatten());
        found.any(|one| {
            one["severity"] == "error"
                && one["code"] == self.code
                && one["line"] == self.line
                && one["suggestion"].as_str() == self.suggestion
        })
    }
}

/// The file and the text of each typo.
pub(crate) fn texts() -> impl Iterator<Item = (&'static str, String)> {
    TYPOS.iter().map(|typo| (typo.file, typo.text()))
}

async fn snapshot(server: &Server) -> Result<String> {
    Ok(server.get_json("/v1/groups/default/snapshot").await?["resources"].to_string())
}

#[tokio::test]
async fn a_typo_in_a_route_document_is_told_with_what_was_meant_and_changes_nothing() -> Result<()> {
    let dir = ConfigDir::new()?;
    for (file, text) in FILES {
        dir.write(file, text)?;
    }
    let server = Server::start_with(Setup::new()?.watch(dir.path())).await?;
    server.wait_ready().await?;
    let before = snapshot(&server).await?;
    for typo in &TYPOS {
        dir.write(typo.file, &typo.text())?;
        server.wait_json("/v1/status/files", |files| typo.is_told(files)).await?;
        ensure!(snapshot(&server).await? == before, "{} changed what is served", typo.wrong);
        let path = dir.path().to_string_lossy().into_owned();
        let output = xds_server().await?.args(["validate", &path]).output().await?;
        ensure!(output.status.code() == Some(1), "{}: validate says {:?}", typo.wrong, output.status);

        let good = FILES.iter().find(|(file, _)| *file == typo.file).map_or("", |(_, text)| text);
        dir.write(typo.file, good)?;
        server.wait_json("/v1/status/files", |files| !typo.is_told(files)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_easily_got_wrong_is_told_with_what_would_be_right() -> Result<()> {
    let dir = ConfigDir::new()?;
    std::os::unix::fs::symlink("/nowhere", dir.path().join("dangling.yaml"))?;
    dir.write("comment.json", "// ours\n{\"resources\": []}\n")?;
    dir.write("capitals.JSON", "// ours\n{\"resources\": []}\n")?;
    dir.write("capitals.YML", "routes:\n  a: {to: b}\n")?;
    dir.write(".hidden.yaml", "routes: []\n")?;
    dir.write(".x/a.yaml", "routes: []\n")?;
    std::fs::write(dir.path().join(".a.yaml.swp"), "")?;
    dir.write("no-version.yaml", "routes:\n  a: {to: b}\nbackends:\n  b: 127.0.0.1:80\n")?;
    dir.write(
        "unit.yaml",
        "version: xds-server/v1\nroutes:\n  a: {to: b, timeout: 5}\nbackends:\n  b: 127.0.0.1:80\n",
    )?;
    let path = dir.path().to_string_lossy().into_owned();
    let output = xds_server().await?.args(["validate", &path]).output().await?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(!told.contains(".swp"), "{told}");
    for expected in [
        "comment.json:1:1: error[syntax] expected a value, found '/'; JSON has no comments; YAML has them, after `#`",
        "dangling.yaml: error[unreadable-path] the link leads to /nowhere, and nothing is there; remove the link, or put",
        "no-version.yaml:1:1: error[missing-version] the document has no `version`; listeners, routes or backends by name",
        "did you mean `version: xds-server/v1`?",
        "/.hidden.yaml: info[hidden] hidden files and directories are not read; to have this one read",
        "/.x: info[hidden] hidden files",
        "capitals.YML:1:1: error[missing-version]",
        "capitals.JSON:1:1: error[syntax] expected a value, found '/'; JSON has no comments",
        "unit.yaml:3:23: error[bad-duration] routes[\"a\"].timeout: 5 is not a duration: it has no unit",
        "did you mean `5s`?",
    ] {
        ensure!(told.contains(expected), "{expected:?} is not in\n{told}");
    }
    let empty = ConfigDir::new()?;
    let output = xds_server().await?.arg("validate").arg(empty.path()).output().await?;
    ensure!(output.status.code() == Some(1), "an empty directory is validated: {:?}", output.status);
    Ok(())
}

#[tokio::test]
async fn unknown_fields_of_kubernetes_kinds_are_warnings_if_told_so() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write(
        "service.yaml",
        "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}], future: 1}}",
    )?;
    let path = dir.path().to_string_lossy().into_owned();
    ensure!(cli(&["validate", &path]).await.is_err());
    cli(&["validate", "--unknown-fields=warn", &path]).await?;
    let server = Server::start_with(Setup::new()?.watch(dir.path()).arg("--unknown-fields=warn")).await?;
    server.wait_ready().await?;
    let files = server.get_json("/v1/status/files").await?.to_string();
    ensure!(files.contains("which is left out"), "{files}");
    Ok(())
}
