//! Route documents on the command line: validated and translated without a server, shown of one.

use serde_json::Value;

use super::{Server, directory, fs, outcome};

/// A gateway, a route with a backend that is there and one that is not, and the backend.
const ROUTES: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: prod}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: prod}
spec:
  parentRefs: [{name: edge}]
  rules:
  - {matches: [{path: {value: /a}}], backendRefs: [{name: shop, port: 80}]}
  - {matches: [{path: {value: /b}}], backendRefs: [{name: none, port: 80}]}
";

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: shop, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: prod, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}]
";

#[test]
fn validate_tells_what_is_doubtful_between_documents_and_what_becomes_of_them() {
    let dir = directory(&[("r/a.yaml", ROUTES), ("r/b/b.yaml", SERVICE)]);
    let (code, stdout, stderr) = outcome(dir.path(), "validate r");
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (
            0,
            "r/a.yaml:13:52: warning[backend-not-found] spec.rules[1].backendRefs[0]: there is no Service prod/none\n\
             HTTPRoute prod/shop at Gateway prod/edge: ResolvedRefs is False (BackendNotFound): there is no Service prod/none\n\
             2 files, 0 resources, 4 documents, 0 errors, 1 warning\n",
            ""
        )
    );
    let report: Value = serde_json::from_str(&outcome(dir.path(), "validate r --output json").1).unwrap();
    assert_eq!((&report["documents"], &report["conditions"][0]["type"]), (&4.into(), &"ResolvedRefs".into()));
    fs::write(dir.path().join("r/a.yaml"), ROUTES.replace("port: 8080", "prt: 8080")).unwrap();
    let (code, stdout, _) = outcome(dir.path(), "validate r");
    assert_eq!(code, 1);
    assert!(stdout.contains("r/a.yaml:4:") && stdout.contains("did you mean `port`?"), "{stdout}");
    fs::write(dir.path().join("r/a.yaml"), format!("{ROUTES}---\n{SERVICE}")).unwrap();
    let (code, stdout, _) = outcome(dir.path(), "validate r");
    assert_eq!(code, 1);
    assert!(
        stdout.contains("r/b/b.yaml:1:1: error[duplicate-document] Service prod/shop is defined in 2 files"),
        "{stdout}"
    );
}

#[test]
fn what_is_translated_is_a_file_that_the_server_takes() {
    let dir = directory(&[("r/a.yaml", ROUTES), ("r/b.yaml", SERVICE)]);
    for profile in ["envoy", "grpc"] {
        let line = format!("translate r --profile {profile} --format yaml");
        let (code, stdout, stderr) = outcome(dir.path(), &line);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.starts_with("resources:\n") && stderr.contains("warning[backend-not-found]"),
            "{stdout}{stderr}"
        );
        let target = dir.path().join(format!("{profile}.yaml"));
        fs::write(&target, stdout).unwrap();
        let (code, stdout, _) = outcome(dir.path(), &format!("validate {profile}.yaml --target {profile}"));
        assert_eq!(code, 0, "{stdout}");
        assert!(stdout.contains("0 errors"), "{stdout}");
    }
    let types = |line: &str| -> Vec<String> {
        let (code, stdout, stderr) = outcome(dir.path(), line);
        assert_eq!(code, 0, "{stderr}");
        let shown: Value = serde_json::from_str(&stdout).unwrap();
        let resources = shown["resources"].as_array().unwrap();
        resources
            .iter()
            .map(|one| one["@type"].as_str().unwrap().rsplit('.').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(types("translate r"), ["Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration"]);
    assert_eq!(types("translate r --target envoy --output json --type listeners --type routes").len(), 2);
    assert_eq!(
        types("translate r --controller-name other"),
        Vec::<String>::new(),
        "the options are those of serve"
    );
    let (code, stdout, stderr) = outcome(dir.path(), "translate r --group none");
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.ends_with("error: there is no group none; there is default\n"), "{stderr}");
    fs::write(dir.path().join("r/c.yaml"), "clusters: [\n").unwrap();
    let (code, stdout, stderr) = outcome(dir.path(), "translate r --type clusters");
    assert_eq!(code, 1, "what can be served is shown nevertheless");
    assert!(stdout.contains("prod/shop/80") && stderr.contains("r/c.yaml:1:"), "{stdout}{stderr}");
}

#[test]
fn a_secret_is_neither_translated_nor_validated_in_clear() {
    let listener = "name: https, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}";
    let gateway = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\n\
         spec: {{gatewayClassName: xds, listeners: [{{{listener}}}]}}\n"
    );
    // The base64 of PEM texts that hold `hunter2` where the key would be.
    let secret = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: cert}\nstringData:\n  \
                  tls.crt: \"-----BEGIN CERTIFICATE-----\\naHVudGVyMg==\\n-----END CERTIFICATE-----\\n\"\n  \
                  tls.key: \"-----BEGIN PRIVATE KEY-----\\naHVudGVyMg==\\n-----END PRIVATE KEY-----\\n\"\n";
    let dir = directory(&[
        ("r/a.yaml", &gateway),
        ("r/s.yaml", secret),
        ("r/bad.yaml", "kind: Secret\napiVersion: v1\nmetadata: {name: b}\ndata: {k: 'aHVudGVyMg=!'}\n"),
    ]);
    let (_, secrets, _) = outcome(dir.path(), "translate r --type secrets");
    assert!(secrets.contains("[redacted]"), "{secrets}");
    for line in ["translate r", "translate r --profile grpc", "validate r", "validate r --output json"] {
        let (_, stdout, stderr) = outcome(dir.path(), line);
        for text in [&stdout, &stderr] {
            assert!(!text.contains("aHVudGVyMg=!") && !text.contains("BEGIN PRIVATE KEY"), "{line}: {text}");
        }
    }
}

#[test]
fn a_server_shows_what_became_of_its_documents() {
    let dir = directory(&[("r/a.yaml", ROUTES), ("r/b.yaml", SERVICE)]);
    let dir = dir.path();
    let server = Server::start(dir, "--watch r");
    let is_done = |found: &(i32, String, String)| found.0 == 0;
    let status = server.wait(dir, "status --admin ADMIN --output table", is_done);
    assert!(status.contains("objects: 2 (1 fine, 1 not)\n"), "{status}");
    assert!(
        status.contains("HTTPRoute prod/shop  Gateway prod/edge  ResolvedRefs  False   BackendNotFound"),
        "{status}"
    );
    assert!(status.contains("r/a.yaml  2        0       1"), "{status}");
    let all = server.wait(dir, "conditions --admin ADMIN --output table", is_done);
    assert!(all.starts_with("OBJECT") && all.contains("listener http"), "{all}");
    let one = server.wait(dir, "conditions --kind HTTPRoute --name shop --json --admin ADMIN", is_done);
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["objects"].as_array().unwrap().len(), 1, "{one:#}");
    let (code, _, stderr) = outcome(dir, &format!("conditions --kind Pod --admin {}", server.admin));
    assert_eq!(code, 2);
    assert!(stderr.contains("not a kind of route documents"), "{stderr}");
    let got = server.wait(dir, "get --node-id n --type clusters --xds-address XDS --output json", is_done);
    assert!(got.contains("prod/shop/80"), "{got}");
}
