//! The forms that a file can have, and what each of them decodes to.

use std::fmt::Write;
use std::time::Duration;

use xds_cache::{NodeGroup, Origin, Profile, ResourceType};
use xds_codec::{Codec, Limits, Object, ObjectContent, Severity};

fn objects(content: &str) -> Vec<Object> {
    let file = Codec::new().unwrap().decode_file("dir/f.yaml", content.as_bytes(), &Limits::default());
    let errors: Vec<_> =
        file.all_diagnostics().into_iter().filter(|diagnostic| diagnostic.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    file.objects
}

fn list(content: &str) -> String {
    let mut text = String::new();
    for object in objects(content) {
        match object.content {
            ObjectContent::Resource { key, outcome } => {
                let resource = outcome.unwrap();
                let ttl = resource.ttl().map(|ttl| format!(" ttl {ttl:?}")).unwrap_or_default();
                let aliases = if resource.aliases().is_empty() {
                    String::new()
                } else {
                    format!(" aliases {:?}", resource.aliases())
                };
                writeln!(text, "{key}{ttl}{aliases} at {}", object.place).unwrap();
                assert!(matches!(resource.origin(), Origin::File { line, .. } if *line >= object.place.line));
            }
            ObjectContent::NodeGroup { name, .. } => {
                writeln!(text, "group {name} at {}", object.place).unwrap();
            }
            ObjectContent::Other { api_version, kind, name, namespace, .. } => {
                writeln!(text, "{api_version} {kind} {namespace}/{name} at {}", object.place).unwrap();
            }
            ObjectContent::Unreadable(diagnostics) => panic!("{diagnostics:?}"),
        }
    }
    text
}

#[test]
fn a_resources_list_as_envoy_reads_it_from_files() {
    let content = "
version_info: '7'
nonce: n
control_plane: {identifier: x}
type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster
x-owner: me
resources:
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
- name: b
- name: c
  version: '1'
  ttl: 1.5s
  aliases: [d, e]
  resource: {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: c}
";
    let expected = "Cluster \"a\" at dir/f.yaml:8:3\nCluster \"b\" at dir/f.yaml:10:3\nCluster \"c\" ttl 1.5s aliases [\"d\", \"e\"] at dir/f.yaml:11:3\n";
    assert_eq!(list(content), expected);
}

#[test]
fn single_resources_in_many_documents() {
    let content = "\u{feff}# comment\r\n---\r\n'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\r\nname: a\r\n---\r\n---\r\n\
        '@type': type.googleapis.com/envoy.service.discovery.v3.Resource\r\nname: x\r\nresource:\r\n  '@type': type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint\r\n  endpoint: {}\r\n";
    assert_eq!(list(content), "Cluster \"a\" at dir/f.yaml:3:1\nLbEndpoint \"x\" at dir/f.yaml:7:1\n");
}

#[test]
fn a_bootstrap_gives_its_static_resources() {
    let content = "
node: {id: a, cluster: b}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 0.0.0.0, port_value: 80}}
  clusters:
  - name: c
  secrets:
  - name: s
layered_runtime: {layers: []}
";
    let expected = "Listener \"l\" at dir/f.yaml:6:5\nCluster \"c\" at dir/f.yaml:9:5\nSecret \"s\" at dir/f.yaml:11:5\n";
    assert_eq!(list(content), expected);
    let file = Codec::new().unwrap().decode_file("f.yaml", content.as_bytes(), &Limits::default());
    let [note] = &*file.diagnostics else { panic!("{:?}", file.diagnostics) };
    assert_eq!(note.severity, Severity::Info);
    assert_eq!(
        note.to_string(),
        "f.yaml:2:1: info[bootstrap-part-ignored] only `static_resources` of a bootstrap is read; ignored: \"node\", \"admin\", \"layered_runtime\""
    );
}

#[test]
fn unnamed_listeners_of_a_bootstrap_get_names_from_their_addresses() {
    let content = "
static_resources:
  listeners:
  - address: {socket_address: {address: 0.0.0.0, port_value: 10000}}
  - address: {socketAddress: {address: '::1', portValue: '10001'}}
  - name: ''
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
  - name: l
    address: {socket_address: {address: 0.0.0.0, port_value: 10000}}
";
    let expected = "Listener \"0.0.0.0_10000\" at dir/f.yaml:4:5
Listener \"::1_10001\" at dir/f.yaml:5:5
Listener \"127.0.0.1_0\" at dir/f.yaml:6:5
Listener \"l\" at dir/f.yaml:8:5
";
    assert_eq!(list(content), expected);
    let codec = Codec::new().unwrap();
    let file = codec.decode_file("f.yaml", content.as_bytes(), &Limits::default());
    let notes: Vec<_> = file.diagnostics.iter().map(ToString::to_string).collect();
    let note = |line: u32, name: &str| {
        format!(
            "f.yaml:{line}:5: info[derived-name] the listener has no `name`, so it is named \"{name}\" after its address; set `name` to make that explicit"
        )
    };
    assert_eq!(notes, [note(4, "0.0.0.0_10000"), note(5, "::1_10001"), note(6, "127.0.0.1_0")]);
    for object in file.objects {
        let ObjectContent::Resource { key, outcome: Ok(resource) } = object.content else { panic!() };
        assert_eq!(codec.to_json(&resource)["name"], *key.name, "the name is in the message too");
    }
}

#[test]
fn a_derived_name_is_encoded_like_a_written_one() {
    let address = "address: {socket_address: {address: 0.0.0.0, port_value: 80}}";
    let encoded = |name: &str| {
        let mut objects = objects(&format!("static_resources: {{listeners: [{{{name}{address}}}]}}"));
        let ObjectContent::Resource { outcome: Ok(resource), .. } = objects.remove(0).content else {
            panic!()
        };
        resource.value().into_owned()
    };
    assert_eq!(encoded(""), encoded("name: 0.0.0.0_80, "));
}

#[test]
fn a_bootstrap_without_static_resources_holds_nothing() {
    let content = "node: {id: a}\ndynamic_resources: {lds_config: {ads: {}}}\n";
    let file = Codec::new().unwrap().decode_file("f.yaml", content.as_bytes(), &Limits::default());
    assert!(file.objects.is_empty() && !file.broken);
    assert_eq!(file.diagnostics.iter().map(|note| note.severity).collect::<Vec<_>>(), [Severity::Info]);
}

#[test]
fn enum_values_are_read_as_envoy_reads_them() {
    assert_eq!(
        list("clusters: [{name: a, type: strict_dns, lb_policy: Ring-Hash}]"),
        "Cluster \"a\" at dir/f.yaml:1:12\n"
    );
}

#[test]
fn lists_by_type_in_every_spelling() {
    let content = "
listeners: [{name: a}]
clusters: [{name: a}, {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: b}]
routes: [{name: a}]
endpoints: [{cluster_name: a}, {clusterName: b}]
secrets: [{name: a}]
runtimes: [{name: a}]
scoped-routes: [{name: a, route_configuration_name: r, key: {fragments: [{string_key: k}]}}]
scoped_routes: []
virtualHosts: [{name: a, domains: [b]}]
virtual_hosts: [{name: b, domains: [b]}]
extension_configs: [{name: a, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
x-anything: {a: [1]}
";
    let expected = "Listener \"a\" at dir/f.yaml:2:13
Cluster \"a\" at dir/f.yaml:3:12
Cluster \"b\" at dir/f.yaml:3:23
RouteConfiguration \"a\" at dir/f.yaml:4:10
ClusterLoadAssignment \"a\" at dir/f.yaml:5:13
ClusterLoadAssignment \"b\" at dir/f.yaml:5:32
Secret \"a\" at dir/f.yaml:6:11
Runtime \"a\" at dir/f.yaml:7:12
ScopedRouteConfiguration \"a\" at dir/f.yaml:8:17
VirtualHost \"a\" at dir/f.yaml:10:16
VirtualHost \"b\" at dir/f.yaml:11:17
TypedExtensionConfig \"a\" at dir/f.yaml:12:21
";
    assert_eq!(list(content), expected);
}

#[test]
fn other_kinds_are_handed_back_whole_and_lists_are_flattened() {
    let content = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: s, namespace: n}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: GRPCRouteList
  items:
  - {apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {name: g}}
---
version: xds-server/v1
listeners: {edge: {port: 80}}
---
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
";
    let expected = "v1 Service n/s at dir/f.yaml:5:3
gateway.networking.k8s.io/v1 GRPCRoute /g at dir/f.yaml:9:5
xds-server/v1  / at dir/f.yaml:11:1
Cluster \"a\" at dir/f.yaml:14:3
";
    assert_eq!(list(content), expected);
}

#[test]
fn kinds_of_smi_need_no_api_version() {
    let content = "kind: TrafficSplit\nmetadata: {name: t}\n---\nkind: HTTPRouteGroup\nmetadata: {name: h, namespace: n}\n";
    assert_eq!(list(content), " TrafficSplit /t at dir/f.yaml:1:1\n HTTPRouteGroup n/h at dir/f.yaml:4:1\n");
    for text in ["kind: Service\n", "kind: TrafficSplit\napiVersion: ''\n"] {
        let file = Codec::new().unwrap().decode_file("f.yaml", text.as_bytes(), &Limits::default());
        let codes: Vec<_> = file.all_diagnostics().iter().map(|found| found.code).collect();
        assert_eq!(codes, ["missing-kind"], "{text}");
    }
}

#[test]
fn node_groups_read_the_same_in_files_and_bodies() {
    let content = "
apiVersion: xds-server.io/v1
kind: NodeGroup
metadata: {name: edge}
spec:
  selector:
    nodeIds: [edge-*]
    clusters: [c]
    metadata: {k.sub: v, n: [1, true]}
    userAgents: [gRPC Go]
  priority: 10
  client: grpc
";
    let objects = objects(content);
    let [Object { content: ObjectContent::NodeGroup { name, outcome: Ok(from_file) }, .. }] = &*objects
    else {
        panic!("{objects:?}")
    };
    assert_eq!(name, "edge");
    let body = serde_json::json!({
        "name": "edge", "priority": 10, "client": "grpc",
        "selector": {"nodeIds": ["edge-*"], "clusters": ["c"], "metadata": {"k.sub": "v", "n": [1, true]}, "userAgents": ["gRPC Go"]},
    });
    let codec = Codec::new().unwrap();
    let from_body: NodeGroup = codec.node_group_from_json(&body).unwrap();
    assert_eq!(*from_file, from_body);
    assert_eq!((from_body.priority, from_body.client), (10, Some(Profile::Grpc)));
    let refused = codec.node_group_from_json(&serde_json::json!({"name": "a", "selector": {}})).unwrap_err();
    assert_eq!(refused[0].code, "empty-selector");
    assert!(codec.node_group_from_json(&serde_json::json!({"name": "a", "selector": {"all": true}})).is_ok());
}

#[test]
fn bodies_are_read_from_yaml_too() {
    let codec = Codec::new().unwrap();
    let parse =
        |text: &str| xds_codec::parse("", text.as_bytes(), xds_codec::Syntax::Yaml, &Limits::default());
    let trees = parse("'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n").unwrap();
    let (resource, warnings) = codec.resource_from_tree(&trees[0]).unwrap();
    assert_eq!((&**resource.name(), resource.origin(), warnings.len()), ("a", &Origin::Api, 0));
    let trees = parse("name: g\nselector: {alll: true}\n").unwrap();
    let refused = codec.node_group_from_tree(&trees[0]).unwrap_err();
    assert_eq!(
        refused[0].to_string(),
        "2:12: error[unknown-field] selector.alll: unknown field in NodeGroup; did you mean `all`?"
    );
    assert_eq!(parse("a: [").unwrap_err()[0].to_string(), "1:4: error[syntax] unclosed bracket '['");
}

#[test]
fn a_bad_object_leaves_the_others_alone() {
    let content = "clusters:\n- {name: a, typo: 1}\n- {name: b}\n- {nam: c}\n";
    let file = Codec::new().unwrap().decode_file("f.yaml", content.as_bytes(), &Limits::default());
    assert!(!file.broken);
    let outcomes: Vec<_> = file
        .objects
        .iter()
        .map(|object| match &object.content {
            ObjectContent::Resource { key, outcome } => format!("{} {}", key.name, outcome.is_ok()),
            ObjectContent::Unreadable(_) => "unreadable".to_owned(),
            ObjectContent::NodeGroup { .. } | ObjectContent::Other { .. } => "other".to_owned(),
        })
        .collect();
    assert_eq!(outcomes, ["a false", "b true", "unreadable"]);
}

#[test]
fn pitfall_11_one_name_twice_in_a_file_is_refused_with_both_places() {
    let content = "clusters: [{name: a}]\n---\nclusters:\n- {name: a}\n";
    let file = Codec::new().unwrap().decode_file("f.yaml", content.as_bytes(), &Limits::default());
    let places: Vec<_> =
        file.all_diagnostics().iter().map(|d| (d.code, d.place.line, d.related[0].line)).collect();
    assert_eq!(places, [("duplicate-resource", 1, 4), ("duplicate-resource", 4, 1)]);
}

#[test]
fn pitfall_71_an_empty_or_half_file_is_broken_and_not_empty() {
    let codec = Codec::new().unwrap();
    let whole = "clusters:\n- name: \"abc\"\n  connect_timeout: \"1s\"\n";
    assert!(!codec.decode_file("f.yaml", whole.as_bytes(), &Limits::default()).broken);
    for half in ["", "clusters:\n- name: \"a", "clusters: [{", "\n\n", "# head\n"] {
        let file = codec.decode_file("f.yaml", half.as_bytes(), &Limits::default());
        assert!(file.broken && file.objects.is_empty() && !file.diagnostics.is_empty(), "{half:?}");
    }
}

#[test]
fn a_type_without_descriptor_is_carried_opaquely() {
    let codec = Codec::new().unwrap();
    let body = serde_json::json!({
        "name": "x", "ttl": "3s",
        "resource": {"@type": "type.googleapis.com/my.Thing", "value": "CgFh"},
    });
    let resource = codec.resource_from_json(&body).unwrap();
    assert_eq!(resource.resource_type(), &ResourceType::from_type_url("type.googleapis.com/my.Thing"));
    assert_eq!(
        (&**resource.name(), &resource.value()[..], resource.ttl()),
        ("x", &b"\x0a\x01a"[..], Some(Duration::from_secs(3)))
    );
    assert_eq!(codec.to_json(&resource), body["resource"]);
    let nameless = codec.resource_from_json(&body["resource"]).unwrap_err();
    assert_eq!(nameless[0].code, "missing-name");
}
