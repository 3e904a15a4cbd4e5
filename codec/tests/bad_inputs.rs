//! Diagnostics of bad input, word by word: the snapshot is the list of all diagnostics.

use std::fmt::Write;

use xds_codec::{Codec, DecodedFile, Limits};

const CLUSTER: &str = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "'@type': type.googleapis.com/envoy.config.listener.v3.Listener";
const ROUTES: &str = "'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const ENDPOINTS: &str = "'@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const SECRET: &str = "'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const RUNTIME: &str = "'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime";
const HCM: &str = "'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

fn describe(file: &DecodedFile) -> String {
    let mut text = String::new();
    for diagnostic in file.all_diagnostics() {
        writeln!(text, "  {diagnostic}").unwrap();
    }
    if file.broken {
        text.push_str("  (broken)\n");
    }
    if text.is_empty() { "  (nothing)\n".to_owned() } else { text }
}

fn report(name: &str, cases: &[(&str, String)], extension: &str) {
    let codec = Codec::new().unwrap();
    let mut text = String::new();
    for (title, content) in cases {
        let file = codec.decode_file(&format!("f.{extension}"), content.as_bytes(), &Limits::default());
        let shown: String = content.chars().take(400).collect();
        let shown = shown.trim_end().replace('\n', "\n    | ").replace('\r', "\\r");
        writeln!(text, "{title}\n    | {shown}\n{}", describe(&file)).unwrap();
    }
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn text_that_is_no_yaml() {
    let cases = [
        ("empty", String::new()),
        ("only comments", "# nothing\n---\n# here\n".to_owned()),
        ("only null", "---\n~\n---\n".to_owned()),
        ("truncated flow", format!("{{{CLUSTER}, name: a, connect_tim")),
        ("truncated list", "resources:\n- '@type': \"type.goog".to_owned()),
        ("bad indentation", format!("{CLUSTER}\nname: a\n  type: EDS\n")),
        ("tab as indentation", format!("{CLUSTER}\nname: a\nx:\n\t- 1\n")),
        ("no space after colon", format!("{CLUSTER}\nname:a\ntype: EDS\n")),
        ("duplicate key", format!("{CLUSTER}\nname: a\ntype: EDS\nname: b\n")),
        ("duplicate keys in two places", "a: {x: 1, x: 2}\nb:\n  y: 1\n  z: 1\n  y: 2\n".to_owned()),
        ("unknown alias", "a: *nope\n".to_owned()),
        ("alias of itself", "a: &a [*a]\n".to_owned()),
        ("alias bomb", bomb()),
        ("deep nesting", format!("a: {}", "[".repeat(150))),
        ("deep block nesting", (0..150).map(|n| format!("{}a:\n", " ".repeat(n))).collect()),
        ("object as key", "? {a: b}\n: c\n".to_owned()),
        ("custom tag", "a: !secret b\n".to_owned()),
        ("merge of a scalar", "a: {<<: 5}\n".to_owned()),
        ("template", "a: {{ value }}\n".to_owned()),
        ("reserved indicator", "a: @b\n".to_owned()),
        ("conflict markers", "<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> x\n".to_owned()),
    ];
    report("text_that_is_no_yaml", &cases, "yaml");
}

fn bomb() -> String {
    let levels = (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    format!("a0: &a0 [lol, lol]\n{}", levels.collect::<String>())
}

#[test]
fn text_that_is_no_json() {
    let cases = [
        ("empty", " \n".to_owned()),
        ("trailing comma in an object", "{\"a\": 1,}".to_owned()),
        ("trailing comma in a list", "[1,\n2,\n]".to_owned()),
        ("YAML in a JSON file", "a: 1\n".to_owned()),
        ("single quotes", "{'a': 1}".to_owned()),
        ("comment", "{\n  // why\n  \"a\": 1}".to_owned()),
        ("truncated", "{\"resources\": [{\"@type\": \"type.goog".to_owned()),
        ("two documents", "{} {}".to_owned()),
        ("duplicate key", "{\"a\": 1,\n \"a\": 2}".to_owned()),
        ("bad number", "{\"a\": 010}".to_owned()),
        ("bad escape", "{\"a\": \"\\x\"}".to_owned()),
        ("deep nesting", "[".repeat(150)),
        ("line break in a string", "{\"a\": \"b\nc\"}".to_owned()),
    ];
    report("text_that_is_no_json", &cases, "json");
}

#[test]
fn documents_of_no_known_form() {
    let cases = [
        ("a scalar", "hello\n".to_owned()),
        ("a list of scalars", "[1, 2]\n".to_owned()),
        ("a misspelt list", "clutsers:\n- name: a\n".to_owned()),
        ("no form at all", "x-note: hello\n".to_owned()),
        ("a list that is none", "clusters: {name: a}\n".to_owned()),
        ("resources that are none", "resources: 5\n".to_owned()),
        ("a resource that is none", format!("resources:\n- 5\n- {{{CLUSTER}, name: a}}\n")),
        ("no type", "resources:\n- name: a\n".to_owned()),
        ("type that is no text", "'@type': 5\nname: a\n".to_owned()),
        ("misspelt type", "'@type': type.googleapis.com/envoy.config.cluster.v3.Clutser\nname: a\n".to_owned()),
        ("type in another package", "'@type': type.googleapis.com/envoy.api.v2.Cluster\nname: a\n".to_owned()),
        ("type without prefix", "'@type': envoy.config.cluster.v3.Cluster\nname: a\n".to_owned()),
        ("type with another prefix", "'@type': example.com/envoy.config.cluster.v3.Cluster\nname: a\n".to_owned()),
        ("unheard-of type", "'@type': type.googleapis.com/no.such.Thing\nname: a\n".to_owned()),
        ("another type than the list's", format!("clusters:\n- {{{LISTENER}, name: a}}\n")),
        (
            "another type than the response's",
            format!("type_url: type.googleapis.com/envoy.config.listener.v3.Listener\nresources: [{{{CLUSTER}, name: a}}]\n"),
        ),
        ("no name", format!("{CLUSTER}\nnam: a\ntype: EDS\n")),
        ("empty name", format!("{CLUSTER}\nname: ''\n")),
        ("name that is no text", format!("{CLUSTER}\nname: 5\n")),
        ("type without a name of its own", "'@type': type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint\n".to_owned()),
        ("wrapper with another name", format!("name: b\nresource: {{{CLUSTER}, name: a}}\n")),
        ("wrapper with faults", format!("name: 5\nttl: 5\naliases: x\nverison: 1\nresource: {{{CLUSTER}, name: a}}\n")),
        ("one name twice", format!("{CLUSTER}\nname: a\n---\n{CLUSTER}\nname: b\n---\n{CLUSTER}\nname: a\n")),
        ("kind without version", "kind: NodeGroup\n".to_owned()),
        ("version without kind", "apiVersion: v1\n".to_owned()),
        (
            "bad node group",
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: a b}\nspec: {selector: {nodeIDs: [x], clusters: y, metadata: {k: {}}}, priority: high, client: curl}\n".to_owned(),
        ),
        (
            "node group without conditions",
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: a}\nspec: {selector: {}}\n".to_owned(),
        ),
        (
            "node group with too many conditions",
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: a}\nspec: {selector: {all: true, nodeIds: [a]}}\n".to_owned(),
        ),
    ];
    report("documents_of_no_known_form", &cases, "yaml");
}

#[test]
fn listeners_without_names() {
    let socket = "address: {socket_address: {address: 0.0.0.0, port_value: 80}}";
    let bootstrap = |listeners: &str| format!("static_resources:\n  listeners:\n{listeners}");
    let cases = [
        ("no address", bootstrap("  - stat_prefix: x\n")),
        ("a pipe", bootstrap("  - address: {pipe: {path: /run/x}}\n")),
        ("empty name and a pipe", bootstrap("  - name: ''\n    address: {pipe: {path: /run/x}}\n")),
        ("a named port", bootstrap("  - address: {socket_address: {address: 0.0.0.0, named_port: http}}\n")),
        ("no port", bootstrap("  - address: {socket_address: {address: 0.0.0.0}}\n")),
        (
            "a port that is none",
            bootstrap("  - address: {socket_address: {address: 0.0.0.0, port_value: http}}\n"),
        ),
        ("an empty address", bootstrap("  - address: {socket_address: {address: '', port_value: 80}}\n")),
        ("an address that is none", bootstrap("  - address: 0.0.0.0:80\n")),
        ("a name that is no text", bootstrap(&format!("  - name: 5\n    {socket}\n"))),
        ("a derived name and a fault", bootstrap(&format!("  - {socket}\n    typo: 1\n"))),
        (
            "two with one address",
            bootstrap(&format!("  - {socket}\n  - {socket}\n  - {{name: 0.0.0.0_80, {socket}}}\n")),
        ),
        ("in a wrapper", bootstrap(&format!("  - resource: {{{LISTENER}, {socket}}}\n"))),
        ("in a list by type", format!("listeners:\n- {socket}\n")),
        ("in a resources list", format!("resources:\n- {LISTENER}\n  {socket}\n")),
        (
            "in a response",
            format!(
                "type_url: type.googleapis.com/envoy.config.listener.v3.Listener\nresources:\n- {socket}\n"
            ),
        ),
        ("alone", format!("{LISTENER}\n{socket}\n")),
        ("a cluster of a bootstrap", "static_resources: {clusters: [{type: STATIC}]}\n".to_owned()),
    ];
    report("listeners_without_names", &cases, "yaml");
}

#[test]
fn fields_that_are_wrong() {
    let in_hcm = |fields: &str| {
        format!(
            "{LISTENER}\nname: l\nfilter_chains:\n- filters:\n  - name: hcm\n    typed_config:\n      {HCM}\n{fields}"
        )
    };
    let cases = [
        ("unknown field", format!("{CLUSTER}\nname: a\nconect_timeout: 1s\n")),
        (
            "many faults at once",
            format!(
                "{CLUSTER}\nname: a\ntype: EDSS\nconnect_timeout: 5\nlb_policy: 3.5\nfoo: 1\nmetadata: []\n"
            ),
        ),
        (
            "unknown field in an Any",
            in_hcm("      stat_prefx: x\n      rds: {route_config_name: r, config_source: {ads: {}}}\n"),
        ),
        (
            "unknown type in an Any",
            format!(
                "{LISTENER}\nname: l\nfilter_chains: [{{filters: [{{name: f, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxi}}}}]}}]\n"
            ),
        ),
        (
            "Any without type",
            format!(
                "{LISTENER}\nname: l\nfilter_chains: [{{filters: [{{name: f, typed_config: {{stat_prefix: x}}}}]}}]\n"
            ),
        ),
        (
            "Any that is no object",
            format!("{LISTENER}\nname: l\nfilter_chains: [{{filters: [{{name: f, typed_config: x}}]}}]\n"),
        ),
        ("stray @type", format!("{CLUSTER}\nname: a\nload_assignment: {{'@type': x, cluster_name: a}}\n")),
        ("string for a bool", format!("{CLUSTER}\nname: a\nrespect_dns_ttl: yes\n")),
        ("number for a string", format!("{CLUSTER}\nname: a\nalt_stat_name: 8080\n")),
        ("bool for a string", format!("{CLUSTER}\nname: a\nalt_stat_name: true\n")),
        (
            "octal",
            format!(
                "{CLUSTER}\nname: a\nload_assignment: {{cluster_name: a, endpoints: [{{priority: 010}}]}}\n"
            ),
        ),
        (
            "underscores in a number",
            format!("{CLUSTER}\nname: a\nper_connection_buffer_limit_bytes: 1_000\n"),
        ),
        (
            "number out of range",
            format!("{CLUSTER}\nname: a\nper_connection_buffer_limit_bytes: 4294967296\n"),
        ),
        ("negative number", format!("{CLUSTER}\nname: a\nper_connection_buffer_limit_bytes: -1\n")),
        ("fraction", format!("{CLUSTER}\nname: a\nper_connection_buffer_limit_bytes: 1.5\n")),
        (
            "numbers beyond doubles",
            format!(
                "{CLUSTER}\nname: a\ncommon_lb_config: {{healthy_panic_threshold: {{value: -1e400}}}}\nmetadata: {{filter_metadata: {{x: {{y: 1e309, z: 1e308}}}}}}\n"
            ),
        ),
    ];
    report("fields_that_are_wrong", &cases, "yaml");
}

#[test]
fn values_that_are_wrong() {
    let cases = [
        ("object for a list", format!("{ROUTES}\nname: r\nvirtual_hosts: {{name: v}}\n")),
        ("list for an object", format!("{CLUSTER}\nname: a\neds_cluster_config: [x]\n")),
        ("null in a list", format!("{ROUTES}\nname: r\nvirtual_hosts: [null]\n")),
        ("misspelt enum value", format!("{CLUSTER}\nname: a\nlb_policy: round_robbin\n")),
        ("enum value of another type", format!("{CLUSTER}\nname: a\nlb_policy: [x]\n")),
        ("milliseconds", format!("{CLUSTER}\nname: a\nconnect_timeout: 250ms\n")),
        ("duration without unit", format!("{CLUSTER}\nname: a\nconnect_timeout: 5\n")),
        (
            "bad timestamp",
            "'@type': type.googleapis.com/envoy.service.runtime.v3.Runtime\nname: r\nlayer: 5\n".to_owned(),
        ),
        (
            "bad base64",
            format!(
                "{CLUSTER}\nname: a\ntransport_socket: {{name: t, typed_config: {{'@type': type.googleapis.com/google.protobuf.BytesValue, value: '%%'}}}}\n"
            ),
        ),
        (
            "Any of a scalar with more",
            format!(
                "{CLUSTER}\nname: a\ntransport_socket: {{name: t, typed_config: {{'@type': type.googleapis.com/google.protobuf.StringValue, valu: x}}}}\n"
            ),
        ),
        ("both spellings", format!("{CLUSTER}\nname: a\nconnect_timeout: 1s\nconnectTimeout: 2s\n")),
        ("two members of a oneof", format!("{CLUSTER}\nname: a\ntype: EDS\ncluster_type: {{name: x}}\n")),
        ("key of a map", format!("{CLUSTER}\nname: a\ntyped_extension_protocol_options: [a]\n")),
        (
            "messages too deep",
            format!(
                "{CLUSTER}\nname: a\nmetadata: {{filter_metadata: {{f: {}{}}}}}\n",
                "{a: ".repeat(40),
                "}".repeat(40)
            ),
        ),
        ("long value", format!("{CLUSTER}\nname: a\ntype: {}\n", "X".repeat(100))),
        (
            "secret of a wrong type",
            format!(
                "{SECRET}\nname: s\ntls_certificate: {{private_key: {{inline_string: {{hunter2: 1}}, filenam: x}}, password: {{inline_bytes: '!hunter2'}}}}\n"
            ),
        ),
        (
            "two faults in two resources",
            "clusters:\n- {name: a, typo: 1}\n- {name: b}\n- {name: c, type: Q}\n".to_owned(),
        ),
    ];
    report("values_that_are_wrong", &cases, "yaml");
}

#[test]
fn pgv_rules_that_are_broken() {
    let routes = |route: &str| {
        format!(
            "{ROUTES}\nname: r\nvirtual_hosts:\n- name: v\n  domains: ['*']\n  routes:\n  - match: {{prefix: /}}\n    route: {route}\n"
        )
    };
    let cases = [
        (
            "PGV in nested messages",
            format!(
                "{CLUSTER}\nname: a\nconnect_timeout: 0s\noutlier_detection: {{max_ejection_percent: 150}}\nload_assignment: {{cluster_name: ''}}\n"
            ),
        ),
        (
            "PGV in an Any",
            format!(
                "{LISTENER}\nname: l\nfilter_chains:\n- filters:\n  - name: hcm\n    typed_config:\n      {HCM}\n      stat_prefix: ''\n"
            ),
        ),
        ("PGV items", routes("{weighted_clusters: {clusters: []}}")),
        (
            "PGV required and headers",
            format!(
                "{ROUTES}\nname: r\nvirtual_hosts:\n- name: ''\n  domains: []\n  routes:\n  - match: {{prefix: /}}\n  - route: {{cluster: x}}\n  request_headers_to_add: [{{header: {{key: \"bad\\nname\", value: v}}}}]\n"
            ),
        ),
        (
            "PGV port and enum",
            format!(
                "{ENDPOINTS}\ncluster_name: e\nendpoints: [{{lb_endpoints: [{{health_status: 77, endpoint: {{address: {{socket_address: {{address: '', port_value: 99999}}}}}}}}]}}]\n"
            ),
        ),
    ];
    report("pgv_rules_that_are_broken", &cases, "yaml");
}

#[test]
fn rules_beyond_pgv_that_are_broken() {
    let routes = |route: &str| {
        format!(
            "{ROUTES}\nname: r\nvirtual_hosts:\n- name: v\n  domains: ['*']\n  routes:\n  - match: {{prefix: /}}\n    route: {route}\n"
        )
    };
    let cases = [
        (
            "pitfall 76: weights of zero",
            routes("{weighted_clusters: {clusters: [{name: a, weight: 0}, {name: b}]}}"),
        ),
        (
            "pitfall 76: weights too large",
            routes("{weighted_clusters: {clusters: [{name: a, weight: 4294967295}, {name: b, weight: 1}]}}"),
        ),
        (
            "pitfall 76: total weight",
            routes(
                "{weighted_clusters: {total_weight: 100, clusters: [{name: a, weight: 90}, {name: b, weight: 20}]}}",
            ),
        ),
        (
            "pitfall 75: endpoint twice",
            format!(
                "{ENDPOINTS}\ncluster_name: e\nendpoints:\n- lb_endpoints:\n  - endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 80}}}}}}\n- priority: 1\n  lb_endpoints:\n  - endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 80}}}}}}\n  - endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 81}}}}}}\n"
            ),
        ),
        (
            "priority gap",
            format!("{ENDPOINTS}\ncluster_name: e\nendpoints: [{{priority: 0}}, {{priority: 2}}]\n"),
        ),
        (
            "domains and hosts twice",
            format!(
                "{ROUTES}\nname: r\nvirtual_hosts:\n- {{name: v, domains: [a.com, b.com]}}\n- {{name: v, domains: [c.com, A.com]}}\n"
            ),
        ),
        (
            "bad regex",
            format!(
                "{ROUTES}\nname: r\nvirtual_hosts: [{{name: v, domains: ['*'], routes: [{{match: {{safe_regex: {{regex: 'a('}}}}, route: {{cluster: c}}}}]}}]\n"
            ),
        ),
        (
            "A160: xdstp name without service name",
            format!(
                "{CLUSTER}\nname: xdstp://a/envoy.config.cluster.v3.Cluster/b\ntype: EDS\neds_cluster_config: {{eds_config: {{ads: {{}}}}}}\n"
            ),
        ),
        (
            "deprecated fields",
            format!("{CLUSTER}\nname: a\nmax_requests_per_connection: 5\nhttp2_protocol_options: {{}}\n"),
        ),
        (
            "what a cluster says of draining",
            format!(
                "{CLUSTER}\nname: a\nmetadata:\n  filter_metadata:\n    other: {{x: 1}}\n    xds-server.io: {{drain-endpoints: 30s, drain-cluster: soon, drain-clusters: 1m}}\n"
            ),
        ),
        (
            "a time that is no text",
            format!(
                "{CLUSTER}\nname: a\nmetadata: {{filter_metadata: {{xds-server.io: {{drain-endpoints: 30}}}}}}\n"
            ),
        ),
    ];
    report("rules_beyond_pgv_that_are_broken", &cases, "yaml");
}

#[test]
fn endpoints_that_end_an_envoy() {
    let wrapper = "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c/1\nresource:\n  '@type': type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint\n";
    let address = |name: &str| format!("{{socket_address: {{address: {name}, port_value: 80}}}}");
    let cases = [
        ("a host name", format!("{wrapper}  endpoint: {{address: {}}}\n", address("b.test"))),
        (
            "a second address that is a host name",
            format!(
                "{wrapper}  endpoint: {{address: {}, additional_addresses: [{{address: {}}}]}}\n",
                address("192.0.2.1"),
                address("b.test")
            ),
        ),
    ];
    report("endpoints_that_end_an_envoy", &cases, "yaml");
}

#[test]
fn values_that_no_runtime_has() {
    let cases = [(
        "a list, null, and a fraction",
        format!(
            "{RUNTIME}\nname: r\nlayer:\n  a: 1\n  b: [1]\n  c: {{d: null, e: {{numerator: [], denominator: x}}}}\n"
        ),
    )];
    report("values_that_no_runtime_has", &cases, "yaml");
}

#[test]
fn files_beyond_the_limits() {
    let codec = Codec::new().unwrap();
    let large = vec![b'#'; 50_000_000];
    let file = codec.decode_file("f.yaml", &large, &Limits::default());
    assert_eq!(
        describe(&file),
        "  f.yaml:1:1: error[file-too-large] the file has 50000000 bytes, the limit is 10485760 bytes\n  (broken)\n"
    );

    let file = codec.decode_file("f.yaml", b"a: 1\nb: \xff\n", &Limits::default());
    assert_eq!(describe(&file), "  f.yaml:2:4: error[not-utf-8] the file is not UTF-8 text\n  (broken)\n");

    let utf16: Vec<u8> = "a: 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let file = codec.decode_file("f.yaml", &[b"\xff\xfe", &*utf16].concat(), &Limits::default());
    assert_eq!(describe(&file), "  f.yaml:1:1: error[not-utf-8] the file is not UTF-8 text\n  (broken)\n");

    let many: String = (0..3000).map(|n| format!("f{n}: 1\n")).collect();
    let file =
        codec.decode_file("f.yaml", format!("{CLUSTER}\nname: a\n{many}").as_bytes(), &Limits::default());
    let all = file.all_diagnostics();
    assert_eq!(all.len(), 101);
    assert!(all.iter().any(|diagnostic| diagnostic.message == "and 2900 more"), "{:?}", all.last());
}
