//! Input and output of `validate` for CI: `--strict`, standard input, JUnit, GitHub's commands and SARIF.

use std::io::Write as _;

use serde_json::Value;

use super::{CLUSTER, Stdio, directory, outcome, xds_server};

/// A route with a parent and a backend that are missing, and one whose fault has a place of its own.
const ROUTES: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}, {name: edgy}]
  rules:
  - {backendRefs: [{name: none, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: other}
spec:
  parentRefs: [{name: edge}]
  rules:
  - {backendRefs: [{name: none, port: 80}], matches: [{path: {value: /other}}]}
";

#[test]
fn strict_makes_errors_of_documents_that_are_not_served_as_they_were_meant() {
    let dir = directory(&[("r/a.yaml", ROUTES)]);
    let (code, stdout, _) = outcome(dir.path(), "validate r");
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.ends_with("0 errors, 3 warnings\n"), "{stdout}");
    let (code, stdout, stderr) = outcome(dir.path(), "validate r --strict");
    let expected = "\
r/a.yaml:10:30: error[no-matching-parent] spec.parentRefs[1]: HTTPRoute default/shop at Gateway default/edgy: Accepted is False (NoMatchingParent): there is no Gateway default/edgy
r/a.yaml:12:20: error[backend-not-found] spec.rules[0].backendRefs[0]: HTTPRoute default/shop at Gateway default/edge: ResolvedRefs is False (BackendNotFound): there is no Service default/none
r/a.yaml:20:20: error[backend-not-found] spec.rules[0].backendRefs[0]: HTTPRoute default/other at Gateway default/edge: ResolvedRefs is False (BackendNotFound): there is no Service default/none
1 file, 0 resources, 3 documents, 3 errors, 0 warnings
";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (1, expected, ""));
    let fine = directory(&[(
        "a.yaml",
        "version: xds-server/v1\nlisteners: {a: {port: 80}}\nroutes: {a: {to: b}}\nbackends: {b: 127.0.0.1:80}\n",
    )]);
    let (code, stdout, _) = outcome(fine.path(), "validate a.yaml --strict");
    assert_eq!(code, 0, "{stdout}");
}

#[test]
fn strict_names_the_document_of_a_condition_that_no_warning_explains() {
    let policy = "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: p}\nspec:\n  \
                  targetRefs: [{group: '', kind: Service, name: none}]\n  \
                  validation: {hostname: a.example.com, wellKnownCACertificates: System}\n";
    let dir = directory(&[("p.yaml", policy)]);
    let (code, stdout, _) = outcome(dir.path(), "validate p.yaml --strict");
    assert_eq!(code, 1, "{stdout}");
    let expected =
        "p.yaml:1:1: error[not-accepted] BackendTLSPolicy default/p: Accepted is False (TargetNotFound): ";
    assert!(stdout.starts_with(expected), "{stdout}");
}

#[test]
fn strict_makes_an_error_of_a_policy_that_what_it_protects_is_served_without() {
    let policy = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: guard}\nspec:\n  \
                  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]\n";
    let gateway = ROUTES.split("---").next().unwrap();
    let dir = directory(&[("r/gateway.yaml", gateway), ("r/policy.yaml", policy)]);
    let expected = |severity: &str| {
        format!(
            "r/policy.yaml:5:16: {severity}[unsupported-policy] spec.targetRefs[0]: policies of the kind SecurityPolicy are \
             not supported: Gateway default/edge is served without it\n"
        )
    };
    let (code, stdout, _) = outcome(dir.path(), "validate r");
    assert!(code == 0 && stdout.starts_with(&expected("warning")), "{stdout}");
    assert!(
        stdout.contains("Gateway default/edge: xds-server.io/PolicyAffected is False (UnsupportedPolicy)"),
        "{stdout}"
    );
    let (code, stdout, _) = outcome(dir.path(), "validate r --strict");
    assert!(code == 1 && stdout.starts_with(&expected("error")), "{stdout}");
    let (code, stdout, _) = outcome(dir.path(), "validate r/policy.yaml --strict");
    assert!(code == 0 && stdout.contains("info[unsupported-kind]"), "{stdout}");
}

/// Exit code and standard output of the command with that input.
fn piped(line: &str, input: &[u8]) -> (i32, String) {
    let dir = directory(&[]);
    let mut command = xds_server(dir.path());
    command.args(line.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn standard_input_is_a_file_of_any_number_of_documents() {
    let (code, stdout) = piped("validate -", ROUTES.as_bytes());
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.starts_with("<stdin>:10:30: warning[no-matching-parent]"), "{stdout}");
    assert!(stdout.ends_with("1 file, 0 resources, 3 documents, 0 errors, 3 warnings\n"), "{stdout}");
    let json =
        b"{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Service\",\n\t\"metadata\": {\"name\": \"x\"}\n}\n";
    let (code, stdout) = piped("validate -", json);
    assert_eq!(code, 1);
    assert!(stdout.starts_with("<stdin>:1:1: error[missing-field]"), "{stdout}");
    let (code, stdout) = piped("validate - --max-file-bytes 10", ROUTES.as_bytes());
    assert_eq!(code, 1);
    assert!(stdout.starts_with("<stdin>: error[file-too-large]"), "{stdout}");
    let (code, stdout) = piped("validate -", b"\xff\xfe\x00");
    assert!(code == 1 && stdout.starts_with("<stdin>:"), "{stdout}");
    let (code, stdout) = piped("translate - --type listeners --format yaml", ROUTES.as_bytes());
    assert!(code == 0 && stdout.contains("name: default/edge/8080"), "{stdout}");
}

#[test]
fn junit_has_a_test_case_for_each_file() {
    let dir = directory(&[
        ("r/a.yaml", ROUTES),
        ("r/b.yaml", &format!("resources:\n- {CLUSTER}\n  name: b\n  conect_timeout: 1s\n  tpye: STATIC\n")),
        ("r/c.yaml", "clusters: []\n"),
    ]);
    let (code, stdout, _) = outcome(dir.path(), "validate r --output junit");
    assert_eq!(code, 1);
    let expected = [
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"xds-server validate\" tests=\"3\" failures=\"1\" ",
        "<testcase classname=\"xds-server validate\" name=\"r/a.yaml\" file=\"r/a.yaml\" time=\"0\">\n      <system-out>",
        "name=\"r/b.yaml\" file=\"r/b.yaml\" time=\"0\">\n      <failure type=\"unknown-field\" message=\"unknown field in \
         envoy.config.cluster.v3.Cluster (and 1 more)\">r/b.yaml:4:3: error[unknown-field] conect_timeout: ",
        "name=\"r/c.yaml\" file=\"r/c.yaml\" time=\"0\">\n    </testcase>",
    ];
    for text in expected {
        assert!(stdout.contains(text), "{text} is not in\n{stdout}");
    }
}

#[test]
fn annotations_of_github_name_file_line_and_column() {
    let dir = directory(&[("a,b.yaml", ROUTES)]);
    let (code, stdout, _) = outcome(dir.path(), "validate . --output github");
    assert_eq!(code, 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines.contains(
            &"::warning file=a%2Cb.yaml,line=12,col=20,title=backend-not-found::spec.rules[0].backendRefs[0]: \
              there is no Service default/none"
        ),
        "{stdout}"
    );
    assert!(!stdout.contains("::notice"), "a warning says what the condition says: {stdout}");
    let (code, stdout, _) = outcome(dir.path(), "validate . --output github --strict");
    assert!(code == 1 && stdout.starts_with("::error file=a%2Cb.yaml,line=10,col=30,"), "{stdout}");
}

#[test]
fn sarif_has_results_with_rules_levels_and_places() {
    let dir = directory(&[("r/ä b.yaml", ROUTES)]);
    let (code, stdout, _) = outcome(dir.path(), "validate r --output sarif --strict");
    assert_eq!(code, 1);
    let sarif: Value = serde_json::from_str(&stdout).unwrap();
    let run = &sarif["runs"][0];
    assert_eq!((&sarif["version"], &run["tool"]["driver"]["name"]), (&"2.1.0".into(), &"xds-server".into()));
    let first = &run["results"][0];
    assert_eq!((&first["level"], &first["ruleId"]), (&"error".into(), &"no-matching-parent".into()));
    let rule = first["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(run["tool"]["driver"]["rules"][rule]["id"], "no-matching-parent");
    let place = &first["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "r/%C3%A4%20b.yaml");
    assert_eq!((&place["region"]["startLine"], &place["region"]["startColumn"]), (&10.into(), &30.into()));
}
