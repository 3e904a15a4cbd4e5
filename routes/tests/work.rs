//! Costs of a change do not grow with the documents: it is the same number of units however many there are.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use xds_cache::{GroupName, Profile};
use xds_codec::{Codec, Tree};
use xds_routes::model::Spec;
use xds_routes::{
    DocumentKey, Documents, Kind, Options, Placed, ReadOutcome, UnknownFields, Work, read, translate,
};

/// GRPCRoutes with a host of their own on one Gateway with a certificate, each with two Services of one endpoint. Virtual hosts are
/// sent as `virtual_hosts` says.
fn documents(n_routes: usize, virtual_hosts: &str) -> Documents {
    let mut documents = Documents::new();
    let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "protocol": protocol, "port": port, "allowedRoutes": {"namespaces": {"from": "All"}}});
    let mut https = listener("https", 443, "HTTPS");
    https["tls"] = json!({"certificateRefs": [{"name": "certificate"}]});
    let spec = json!({"gatewayClassName": "xds", "listeners": [listener("http", 80, "HTTP"), https]});
    let mut gateway = object("gateway.networking.k8s.io/v1", "Gateway", "edge", json!({"spec": spec}));
    gateway["metadata"]["annotations"] = json!({"xds-server.io/virtual-hosts": virtual_hosts});
    add(&mut documents, &gateway);
    add(&mut documents, &secret("AAAA"));
    for index in 0..n_routes {
        add(&mut documents, &route(index, 10));
        for version in ["v1", "v2"] {
            add(&mut documents, &service(index, version, "1"));
            add(&mut documents, &slice(index, version, 1));
        }
    }
    documents
}

fn object(version: &str, kind: &str, name: &str, rest: Json) -> Json {
    let mut object =
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "prod"}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn secret(body: &str) -> Json {
    let pem = |label: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    let data = json!({"tls.crt": pem("CERTIFICATE"), "tls.key": pem("PRIVATE KEY")});
    object("v1", "Secret", "certificate", json!({"stringData": data}))
}

/// A route like the others, with another host or of another kind.
fn other(kind: &str, index: usize, host: &str) -> Json {
    let mut route = route(index, 10);
    route["kind"] = json!(kind);
    route["spec"]["hostnames"] = json!([host]);
    route
}

fn route(index: usize, weight: usize) -> Json {
    let backend = |version: &str, weight: usize| json!({"name": format!("s{index}-{version}"), "port": 80, "weight": weight});
    object(
        "gateway.networking.k8s.io/v1",
        "GRPCRoute",
        &format!("r{index:05}"),
        json!({"spec": {
            "parentRefs": [{"name": "edge"}],
            "hostnames": [format!("r{index}.example.com")],
            "rules": [{"backendRefs": [backend("v1", 100 - weight), backend("v2", weight)]}],
        }}),
    )
}

fn service(index: usize, version: &str, label: &str) -> Json {
    let mut service = object(
        "v1",
        "Service",
        &format!("s{index}-{version}"),
        json!({
            "spec": {"ports": [{"name": "grpc", "port": 80}]},
        }),
    );
    service["metadata"]["labels"] = json!({"a": label});
    service
}

fn slice(index: usize, version: &str, last: u8) -> Json {
    let name = format!("s{index}-{version}");
    let mut slice = object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &name,
        json!({
            "addressType": "IPv4",
            "ports": [{"name": "grpc", "port": 80}],
            "endpoints": [{"addresses": [format!("10.0.0.{last}")]}],
        }),
    );
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": name});
    slice
}

fn add(documents: &mut Documents, json: &Json) {
    let outcome = read(&"routes.yaml".into(), &Tree::from_json(json), UnknownFields::Refuse);
    let ReadOutcome::Objects(objects) = outcome else { panic!("not read: {json}") };
    for object in objects {
        let (document, _) = object.outcome.expect("a document without faults");
        let group = GroupName::default_group();
        documents.insert(object.key, Placed::new(document, group));
    }
}

/// The work of changes among so many routes: a weight, a slice, a secret, a label of a Service, a route that comes and one that
/// goes; one that has another host, one of another kind that comes, with a host of its own and with one that is taken, and
/// listeners of the Gateway that stand elsewhere in its file.
fn work(codec: &Codec, n_routes: usize, virtual_hosts: &str) -> [Work; 10] {
    let documents = documents(n_routes, virtual_hosts);
    let options = Options::default();
    let first = translate(codec, &documents, &options, None);
    assert!(first.diagnostics.is_empty(), "{:?}", first.diagnostics);
    let after = |change: &dyn Fn(&mut Documents)| {
        let mut changed = documents.clone();
        change(&mut changed);
        translate(codec, &changed, &options, Some(&first)).work
    };
    [
        after(&|documents| add(documents, &route(7, 20))),
        after(&|documents| add(documents, &slice(7, "v1", 2))),
        after(&|documents| add(documents, &secret("BBBB"))),
        after(&|documents| add(documents, &service(7, "v1", "2"))),
        after(&|documents| add(documents, &route(n_routes, 20))),
        after(&|documents| drop(documents.remove(&DocumentKey::new(Kind::GrpcRoute, "prod", "r00007")))),
        after(&|documents| add(documents, &other("GRPCRoute", 7, "other.example.com"))),
        after(&|documents| add(documents, &other("HTTPRoute", n_routes, "other.example.com"))),
        after(&|documents| add(documents, &other("HTTPRoute", n_routes, "r7.example.com"))),
        after(&|documents| {
            let key = DocumentKey::new(Kind::Gateway, "prod", "edge");
            let placed = documents.get_mut(&key).expect("the Gateway");
            let Spec::Gateway(gateway) = &mut Arc::make_mut(&mut placed.document).spec else {
                panic!("{key}")
            };
            gateway.listeners.iter_mut().for_each(|listener| listener.spot.column += 1);
        }),
    ]
}

/// The work of changes to the mesh and to backends among so many Services, twice as many as there are routes.
fn mesh_work(codec: &Codec, n_routes: usize) -> Vec<(&'static str, usize)> {
    let gateway_api = "gateway.networking.k8s.io/v1";
    let service_of = |name: &str| json!({"group": "", "kind": "Service", "name": name});
    let split = |weight: u32| {
        let backends = json!([{"service": "s7-v1", "weight": weight}, {"service": "s7-v2", "weight": 1}]);
        object(
            "split.smi-spec.io/v1alpha4",
            "TrafficSplit",
            "split",
            json!({"spec": {"service": "s8-v1", "backends": backends}}),
        )
    };
    let mesh_route = |name: &str, parent: &str| {
        let rules = json!([{"backendRefs": [{"name": "s7-v2", "port": 80}]}]);
        object(
            gateway_api,
            "GRPCRoute",
            name,
            json!({"spec": {"parentRefs": [service_of(parent)], "rules": rules}}),
        )
    };
    let backend = |port: u16| {
        let endpoints = json!([{"ip": {"address": "10.0.0.1", "port": port}}]);
        object(
            "gateway.envoyproxy.io/v1alpha1",
            "Backend",
            "backend",
            json!({"spec": {"endpoints": endpoints}}),
        )
    };
    let policy = |hostname: &str| {
        let validation = json!({"hostname": hostname, "wellKnownCACertificates": "System"});
        let spec = json!({"targetRefs": [service_of("s7-v1")], "validation": validation});
        object(gateway_api, "BackendTLSPolicy", "policy", json!({"spec": spec}))
    };
    let from = json!([{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "namespace": "other"}]);
    let spec = json!({"from": from, "to": [{"group": "", "kind": "Service"}]});
    let grant = object("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "grant", json!({"spec": spec}));
    let mut documents = documents(n_routes, "all");
    // Envoys listen to one port for all Services.
    add(&mut documents, &mesh_route("first", "s5-v1"));
    let options = Options::default();
    let mut last = translate(codec, &documents, &options, None);
    let (new, key) = (n_routes, DocumentKey::new);
    let mut done = Vec::new();
    let mut step = |what: &'static str, change: &dyn Fn(&mut Documents)| {
        change(&mut documents);
        last = translate(codec, &documents, &options, Some(&last));
        done.push((what, last.work.n_units));
    };
    step("a Service comes", &|all| add(all, &service(new, "v1", "1")));
    step("its endpoints come", &|all| add(all, &slice(new, "v1", 1)));
    step("a route of it comes", &|all| add(all, &mesh_route("second", &format!("s{new}-v1"))));
    step("a split comes", &|all| add(all, &split(1)));
    step("its weights change", &|all| add(all, &split(2)));
    step("a Backend comes", &|all| add(all, &backend(80)));
    step("it changes", &|all| add(all, &backend(81)));
    step("a policy comes", &|all| add(all, &policy("a.internal")));
    step("it changes", &|all| add(all, &policy("b.internal")));
    step("a grant comes", &|all| add(all, &grant));
    step("the grant goes", &|all| _ = all.remove(&key(Kind::ReferenceGrant, "prod", "grant")));
    step("the policy goes", &|all| _ = all.remove(&key(Kind::BackendTlsPolicy, "prod", "policy")));
    step("the Backend goes", &|all| _ = all.remove(&key(Kind::Backend, "prod", "backend")));
    step("the split goes", &|all| _ = all.remove(&key(Kind::TrafficSplit, "prod", "split")));
    step("the route goes", &|all| _ = all.remove(&key(Kind::GrpcRoute, "prod", "second")));
    step("the endpoints go", &|all| _ = all.remove(&key(Kind::EndpointSlice, "prod", &format!("s{new}-v1"))));
    step("the Service goes", &|all| _ = all.remove(&key(Kind::Service, "prod", &format!("s{new}-v1"))));
    assert!(last.groups == translate(codec, &documents, &options, None).groups);
    done
}

#[test]
fn a_change_of_the_mesh_takes_as_many_units_among_six_hundred_services_as_among_a_hundred() {
    let codec = Codec::new().expect("a codec");
    let [few, many] = [50, 300].map(|n_routes| mesh_work(&codec, n_routes));
    assert_eq!(few, many);
    // A grant makes those of its namespace's references run that could need it: none here.
    assert!(many.iter().all(|(_, n_units)| *n_units < 32), "{many:?}");
}

#[test]
fn a_change_takes_as_many_units_among_six_hundred_routes_as_among_a_hundred() {
    let codec = Codec::new().expect("a codec");
    for virtual_hosts in ["all", "on-demand"] {
        let [few, many] = [100, 600].map(|n_routes| work(&codec, n_routes, virtual_hosts));
        assert_eq!(few, many);
        let [weight, slice, secret, service, added, removed, moved, other, rival, gateway] = many;
        assert!(
            weight.n_units < 16 && slice.n_units < 8 && secret.n_units < 8,
            "{weight:?} {slice:?} {secret:?}"
        );
        let units = [service, added, removed, moved, other, rival, gateway].map(|work| work.n_units);
        assert!(units.iter().all(|n_units| *n_units < 32), "{units:?}");
        assert!(service.n_units < 8 && gateway.n_units < 8, "{units:?}");
    }
}

#[test]
fn a_weight_of_a_host_on_demand_changes_the_virtual_host_and_takes_no_more_units() {
    let codec = Codec::new().expect("a codec");
    let options = Options::default();
    let after = |virtual_hosts: &str| {
        let mut documents = documents(50, virtual_hosts);
        let first = translate(&codec, &documents, &options, None);
        add(&mut documents, &route(7, 20));
        let next = translate(&codec, &documents, &options, Some(&first));
        let [before, after] =
            [&first, &next].map(|one| &one.groups[&GroupName::default_group()].profiles[&Profile::Envoy]);
        let changed: Vec<_> = after.iter().filter(|(key, one)| !Arc::ptr_eq(*one, &before[*key])).collect();
        let size = changed.iter().map(|(_, one)| one.n_bytes()).max().unwrap_or_default();
        (changed.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), size, next.work.n_units)
    };
    let (whole, whole_size, n_units) = after("all");
    let tables = ["prod/edge/443/https", "prod/edge/80"];
    assert_eq!(whole, tables.map(|table| format!("RouteConfiguration \"{table}\"")));
    let (changed, size, n_units_on_demand) = after("on-demand");
    assert_eq!(changed, tables.map(|table| format!("VirtualHost \"{table}/r7.example.com\"")));
    assert!(size < 500 && whole_size > 50 * 100, "{size} {whole_size}");
    assert!(n_units_on_demand < n_units, "{n_units_on_demand} {n_units}");
}
