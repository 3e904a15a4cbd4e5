//! Secrets go only to groups with identities, whatever brings them there (`--secrets identified`).

use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use xds_cache::{Node, Proofs};
use xds_codec::Diagnostic;
use xds_control::{Guarding, Secrets};
use xds_routes::{DocumentKey, Kind};

use super::documents::{apply, documents, files};
use super::*;

/// In every private key below, and nowhere else.
const CANARY: &str = "CANARYKEY";
const CODE: &str = "secret-without-identities";

fn options(secrets: Secrets) -> Options {
    let guarding = Guarding { secrets, ..Guarding::default() };
    Options { guarding, watches_files: true, ..Options::default() }
}

fn open(store: &Arc<MemoryStore>, options: Options) -> Server {
    Server::open(Arc::clone(store) as Arc<dyn Store>, options)
}

async fn started(options: Options) -> Server {
    let server = open(&MemoryStore::new(), options);
    server.control.load_files(files(&[("a.yaml", "resources: []")])).await.unwrap();
    server
}

fn definition(name: &str, is_guarded: bool) -> NodeGroup {
    let mut json = json!({"name": name, "selector": {"nodeIds": [name]}});
    if is_guarded {
        json["identities"] = json!([{"dns": "client.example.com"}]);
    }
    codec().node_group_from_json(&json).unwrap()
}

fn put_secret(name: &str) -> Write {
    Write::PutResource { group: group(name), resource: Arc::new(secret(CANARY)) }
}

/// Routes that add a header, which may be a credential.
fn put_header(name: &str, has_credential: bool) -> Write {
    let (header, value) = if has_credential { ("authorization", CANARY) } else { ("x-color", "blue") };
    let body = json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "r",
        "request_headers_to_add": [{"header": {"key": header, "value": value}}],
    });
    Write::PutResource { group: group(name), resource: Arc::new(codec().resource_from_json(&body).unwrap()) }
}

fn group_file(name: &str, is_guarded: bool) -> String {
    let identities = if is_guarded { "  identities: [{dns: client.example.com}]\n" } else { "" };
    format!(
        "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: {name}}}\nspec:\n  selector: {{nodeIds: [{name}]}}\n{identities}"
    )
}

fn secret_file(private: &str) -> String {
    format!(
        "resources:\n- \"@type\": {}\n  name: s\n  tls_certificate:\n    certificate_chain: {{inline_string: public}}\n    \
         private_key:\n      inline_string: {private}\n",
        ResourceType::Secret.type_url()
    )
}

/// A Gateway with TLS and its certificate; the canary is in the key.
fn gateway_file() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let data = json!({"tls.crt": certificate.pem(), "tls.key": format!("{CANARY}\n{}", key.serialize_pem())});
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: cert, namespace: prod}}\ntype: kubernetes.io/tls\nstringData: {data}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: prod}}\n\
         spec:\n  gatewayClassName: xds\n  listeners:\n  - name: https\n    port: 8443\n    protocol: HTTPS\n    tls: {{certificateRefs: \
         [{{name: cert}}]}}\n"
    )
}

/// Everything that a client with this node id and without any proof is given.
fn given_to_anybody(server: &Server, node: &str) -> Vec<u8> {
    let view = server.publisher.view_as(&Node::with_id(node), &Proofs::default());
    let Ok(Some(view)) = view else { return vec![] };
    view.resources().flat_map(|resource| resource.value().to_vec()).collect()
}

/// Returns `true` if a client that has proved nothing is denied the group of its node id.
fn is_refused(server: &Server, node: &str) -> bool {
    server.publisher.view_as(&Node::with_id(node), &Proofs::default()).is_err()
}

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes())
}

fn names_of(server: &Server, name: &str) -> Vec<String> {
    let view = server.publisher.view_at(&view_key_of_group(&group(name), Profile::Envoy)).unwrap();
    view.resources().map(|resource| resource.name().to_string()).collect()
}

fn invalid(outcome: Result<WriteOutcome, WriteError>) -> Vec<Diagnostic> {
    match outcome {
        Err(WriteError::Invalid(faults)) => faults,
        other => panic!("{other:?}"),
    }
}

fn conditions(server: &Server) -> Value {
    let documents = server.control.documents();
    let gateway = DocumentKey::new(Kind::Gateway, "prod", "edge");
    let found = documents.translated.conditions(&gateway);
    let found = found.map(|(part, condition, _)| {
        format!(
            "{part:?} {} {} {}: {}",
            condition.kind, condition.status, condition.reason, condition.message
        )
    });
    found.collect::<Vec<_>>().into()
}

#[tokio::test]
async fn a_write_may_not_bring_a_secret_into_a_group_without_identities() {
    let server = started(options(Secrets::Identified)).await;
    server.write(Write::PutGroup(definition("open", false))).await.unwrap();
    server.write(Write::PutGroup(definition("guarded", true))).await.unwrap();
    server.write(put_secret("guarded")).await.unwrap();
    for name in ["default", "open", "new"] {
        let faults = invalid(server.write(put_secret(name)).await);
        let [fault] = faults.as_slice() else { panic!("{faults:?}") };
        assert_eq!((fault.code, fault.path.as_str()), (CODE, "tls_certificate.private_key.inline_string"));
        assert!(fault.message.contains(name) && !fault.message.contains(CANARY), "{fault}");
    }
    let faults = invalid(server.write(put_header("default", true)).await);
    assert_eq!(faults[0].path, "request_headers_to_add[0].header.value");
    server.write(put_header("default", false)).await.unwrap();
    assert!(server.control.problems().is_empty(), "{:?}", server.control.problems());

    // A group with secrets keeps its identities, and may have others.
    let faults = invalid(server.write(Write::PutGroup(definition("guarded", false))).await);
    assert_eq!((faults[0].code, faults[0].path.as_str()), (CODE, "identities"));
    let delete = Write::DeleteResource { group: group("guarded"), key: secret("").key().clone() };
    let deleted = server.write(delete).await.unwrap().revision;
    server.write(Write::PutGroup(definition("guarded", false))).await.unwrap();
    invalid(server.write(Write::Revert { of: deleted }).await);
    assert!(!has_canary(&given_to_anybody(&server, "guarded")));
}

#[tokio::test]
async fn any_group_may_have_secrets_where_nobody_is_authenticated() {
    let server = started(options(Secrets::Any)).await;
    server.write(put_secret("default")).await.unwrap();
    assert!(has_canary(&given_to_anybody(&server, "n")));
}

#[tokio::test]
async fn a_file_with_a_secret_for_everybody_is_an_error_where_the_secret_is() {
    let text = secret_file(CANARY);
    let load = || files(&[("a.yaml", &text), ("b.yaml", "resources: []")]);
    let server = open(&MemoryStore::new(), options(Secrets::Identified));
    let outcome = server.control.load_files(load()).await.unwrap();
    assert_eq!(outcome.n_errors, 1);
    let file = &server.control.files()["a.yaml"];
    let [error] = file.diagnostics.as_slice() else { panic!("{:?}", file.diagnostics) };
    assert_eq!((error.code, error.place.line), (CODE, 7), "{error}");
    assert!(error.message.contains("the group default has no `identities`"), "{error}");
    // A first load with errors is not served, unless a part may be.
    let not_ready = server.control.not_ready();
    assert!(not_ready[0].contains("a.yaml:7"), "{not_ready:?}");
    let partial = Options { is_partial_start: true, ..options(Secrets::Identified) };
    let server = open(&MemoryStore::new(), partial);
    server.control.load_files(load()).await.unwrap();
    assert_eq!(server.control.not_ready(), [""; 0]);
    assert!(!has_canary(&given_to_anybody(&server, "n")));
    let problems = server.control.problems();
    assert!(problems.iter().any(|one| one.contains(CODE) && !one.contains(CANARY)), "{problems:?}");
    // It is gone with the error.
    server.control.load_files(files(&[("b.yaml", "resources: []")])).await.unwrap();
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn no_last_good_copy_excuses_a_secret_for_everybody() {
    let text = secret_file(CANARY);
    let load = files(&[("a.yaml", &text), ("g/group.yaml", &group_file("g", true)), ("g/s.yaml", &text)]);
    let server = open(&MemoryStore::new(), options(Secrets::Identified));
    server.control.recall(load.layer.clone(), (*load.documents).clone());
    server.control.load_files(load).await.unwrap();
    assert_eq!(server.control.not_ready(), [""; 0], "the rest is served");
    assert_eq!((names_of(&server, "default"), names_of(&server, "g")), (vec![], vec!["s".to_owned()]));
}

#[tokio::test]
async fn a_resource_of_a_file_keeps_the_version_before_its_secret() {
    let route = |header: &str, value: &str| {
        format!(
            "resources:\n- \"@type\": {}\n  name: r\n  request_headers_to_add:\n  - header: {{key: {header}, value: {value}}}\n",
            ResourceType::RouteConfiguration.type_url()
        )
    };
    let server = started(options(Secrets::Identified)).await;
    let serves = |text: &str| String::from_utf8_lossy(&given_to_anybody(&server, "n")).contains(text);
    server.control.load_files(files(&[("a.yaml", &route("x-color", "blue"))])).await.unwrap();
    assert!(serves("blue"));
    for _ in 0..2 {
        server.control.load_files(files(&[("a.yaml", &route("authorization", CANARY))])).await.unwrap();
        assert!(serves("blue") && !serves(CANARY));
        server.write(put("default", "c", "1")).await.unwrap();
        assert!(serves("blue") && !serves(CANARY), "after a write too");
    }
    server.control.load_files(files(&[("a.yaml", &route("x-color", "green"))])).await.unwrap();
    assert!(serves("green"));
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn a_group_with_secrets_that_loses_its_identities_keeps_its_definition() {
    let server = started(options(Secrets::Identified)).await;
    let secret = secret_file(CANARY);
    let load = |is_guarded| files(&[("g/group.yaml", &group_file("g", is_guarded)), ("g/s.yaml", &secret)]);
    server.control.load_files(load(true)).await.unwrap();
    let outcome = server.control.load_files(load(false)).await.unwrap();
    assert_eq!(outcome.n_errors, 1);
    let file = &server.control.files()["g/group.yaml"];
    assert_eq!((file.diagnostics[0].code, &*file.diagnostics[0].path), (CODE, "spec.identities"));
    assert!(is_refused(&server, "g"));
    assert_eq!(names_of(&server, "g"), ["s"]);
    assert!(!has_canary(&given_to_anybody(&server, "g")));
    // Without the secret it may lose them.
    server.control.confirm_files(files(&[("g/group.yaml", &group_file("g", false))])).await.unwrap();
    assert!(!is_refused(&server, "g"));
    assert_eq!(server.control.problems(), [""; 0]);
}

#[tokio::test]
async fn a_gateway_with_a_key_needs_a_group_with_identities() {
    let server = started(options(Secrets::Identified)).await;
    let gateway = gateway_file();
    server.control.load_files(files(&[("gateway.yaml", &gateway)])).await.unwrap();
    let found = conditions(&server).to_string();
    assert!(found.contains("ResolvedRefs False InvalidCertificateRef: secret-without-identities"), "{found}");
    assert!(!has_canary(&given_to_anybody(&server, "n")));
    assert_eq!(names_of(&server, "default"), [""; 0]);
    let load =
        |is_guarded| files(&[("g/g.yaml", &group_file("g", is_guarded)), ("g/gateway.yaml", &gateway)]);
    server.control.confirm_files(load(true)).await.unwrap();
    let found = conditions(&server).to_string();
    assert!(!found.contains("secret-without-identities"), "{found}");
    assert_eq!(names_of(&server, "g"), ["prod/cert", "prod/edge/8443", "prod/edge/8443/https"]);
    // The group keeps its identities, and the Gateway its listener.
    server.control.confirm_files(load(false)).await.unwrap();
    assert_eq!(names_of(&server, "g"), ["prod/cert", "prod/edge/8443", "prod/edge/8443/https"]);
    assert_eq!(server.control.files()["g/g.yaml"].diagnostics[0].code, CODE);
    // Documents of the API are no other.
    server.control.confirm_files(files(&[("a.yaml", "resources: []")])).await.unwrap();
    server.write(apply(&gateway)).await.unwrap();
    assert!(conditions(&server).to_string().contains("secret-without-identities"));
    assert!(!has_canary(&given_to_anybody(&server, "n")));
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// The group gets this definition over the API, with identities or without.
    Define(bool),
    Undefine,
    /// A secret of the API, into the group or for everybody.
    Secret(bool),
    Header(bool, bool),
    Remove(bool),
    Documents(bool),
    Rollback(u64),
    /// The files: whether the group's identities are there, and which files hold secrets.
    Files(Option<bool>, bool, bool, bool),
    /// Another process on the same store.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::Define),
        Just(Step::Undefine),
        any::<bool>().prop_map(Step::Secret),
        any::<(bool, bool)>().prop_map(|(group, has)| Step::Header(group, has)),
        any::<bool>().prop_map(Step::Remove),
        any::<bool>().prop_map(Step::Documents),
        (0_u64..8).prop_map(Step::Rollback),
        any::<(Option<bool>, bool, bool, bool)>().prop_map(|(a, b, c, d)| Step::Files(a, b, c, d)),
        any::<bool>().prop_map(Step::Restart),
    ]
}

/// Takes a step. An error of it is none of the test.
async fn take(server: &mut Server, store: &Arc<MemoryStore>, gateway: &str, step: Step) {
    let place = |in_group| if in_group { "g" } else { "default" };
    let write = match step {
        Step::Define(is_guarded) => Write::PutGroup(definition("g", is_guarded)),
        Step::Undefine => Write::DeleteGroup(group("g")),
        Step::Secret(in_group) => put_secret(place(in_group)),
        Step::Header(in_group, has_credential) => put_header(place(in_group), has_credential),
        Step::Remove(in_group) => {
            Write::DeleteResource { group: group(place(in_group)), key: secret("").key().clone() }
        }
        Step::Documents(in_group) => Write::ApplyDocuments {
            group: Some(group(place(in_group))),
            documents: documents(gateway),
            warnings: vec![],
        },
        Step::Rollback(to) => rollback(to),
        Step::Files(group, for_group, for_all, has_gateway) => {
            let (definition, secret) =
                (group.map(|is_guarded| group_file("g", is_guarded)), secret_file(CANARY));
            let mut all = vec![("a.yaml", "resources: []")];
            all.extend(definition.as_deref().map(|text| ("g/group.yaml", text)));
            all.extend(for_group.then_some(("g/s.yaml", &*secret)));
            all.extend(for_all.then_some(("s.yaml", &*secret)));
            all.extend(has_gateway.then_some(("g/gateway.yaml", gateway)));
            let _ = server.control.confirm_files(files(&all)).await;
            return;
        }
        Step::Restart(is_identified) => {
            let secrets = if is_identified { Secrets::Identified } else { Secrets::Any };
            let options = Options { is_partial_start: true, ..options(secrets) };
            *server = open(store, options);
            let _ = server.control.confirm_files(files(&[("a.yaml", "resources: []")])).await;
            return;
        }
    };
    let _ = server.write(write).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_changes_gives_a_key_to_a_client_without_identity(steps in proptest::collection::vec(step(), 1..14)) {
        let gateway = gateway_file();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = MemoryStore::new();
            let mut server = open(&store, Options { is_partial_start: true, ..options(Secrets::Identified) });
            let mut is_identified = true;
            for step in steps {
                if let Step::Restart(identified) = step {
                    is_identified = identified;
                }
                take(&mut server, &store, &gateway, step.clone()).await;
                for node in ["g", "other"] {
                    let has = has_canary(&given_to_anybody(&server, node));
                    prop_assert!(!has || !is_identified, "{node} has it after {step:?}");
                }
                let problems = server.control.problems().join(" ");
                prop_assert!(!problems.contains(CANARY), "{problems}");
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_group_that_only_tries_its_identities_does_so_until_it_holds_a_secret() {
    for secrets in [Secrets::Any, Secrets::Identified] {
        let guarding = Guarding { secrets, tries_identities: true };
        let server = started(Options { guarding, ..options(secrets) }).await;
        server.write(Write::PutGroup(definition("guarded", true))).await.unwrap();
        server.write(put_header("guarded", false)).await.unwrap();
        assert!(!is_refused(&server, "guarded"), "it is given to everyone");
        let waived = server.publisher.waived(&Node::with_id("guarded"), &[]);
        assert_eq!(waived.iter().map(|denial| denial.group.as_str()).collect::<Vec<_>>(), ["guarded"]);
        for _ in 0..2 {
            server.write(put_secret("guarded")).await.unwrap();
            assert!(is_refused(&server, "guarded") && given_to_anybody(&server, "guarded").is_empty());
            assert!(server.publisher.waived(&Node::with_id("guarded"), &[]).is_empty());
            let key = secret(CANARY).key().clone();
            server.write(Write::DeleteResource { group: group("guarded"), key }).await.unwrap();
            assert!(!is_refused(&server, "guarded"));
        }
        server.write(put_header("guarded", true)).await.unwrap();
        assert!(is_refused(&server, "guarded"), "a secret may come with a resource that is there");
    }
    let server = started(options(Secrets::Any)).await;
    server.write(Write::PutGroup(definition("guarded", true))).await.unwrap();
    assert!(is_refused(&server, "guarded"), "without the flag they are in force");
}
