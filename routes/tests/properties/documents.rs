//! Random sets of documents: few names, so that references hit and miss, hosts nest, and everything meets everything.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Value as Json, json};

const NAMESPACES: [&str; 2] = ["default", "prod"];
const HOSTS: [&str; 8] = [
    "example.net",
    // A name of a Service too.
    "a.prod",
    "foo.example.com",
    "bar.example.com",
    "a.foo.example.com",
    "*.example.com",
    "*.foo.example.com",
    "*.com",
];
/// The last one is nowhere.
const SERVICES: [&str; 5] = ["a", "b", "c", "external", "missing"];
const PORTS: [u16; 3] = [80, 81, 82];
const GRPC_SERVICES: [&str; 3] = ["foo.Bar", "foo.BarBaz", "x"];
const METHODS: [&str; 3] = ["Get", "List", "GetAll"];
const HEADERS: [&str; 5] = ["version", "Version", "color", "trace-bin", "user-agent"];
const PATHS: [&str; 6] = ["/", "/a", "/a/", "/a/b", "/foo.Bar/Get", "/a/b/c"];
const REGEXES: [&str; 4] = ["a|b", "[a-z]+", ".*", "x(?:y|z)*"];

/// A set of documents, each with an identity of its own.
pub(crate) fn worlds() -> impl Strategy<Value = Vec<Json>> {
    let kinds = (
        vec(gateway(), 0..3),
        vec(route(), 1..6),
        vec(service(), 0..5),
        vec(slice(), 0..4),
        vec(grant(), 0..3),
        vec(split(), 0..3),
        vec(group(), 0..2),
        vec(policy(), 0..2),
        vec(backend(), 0..2),
        weighted(0.3, native()),
    );
    kinds.prop_map(|kinds| {
        let (gateways, routes, services, slices, grants, splits, groups, policies, backends, natives) = kinds;
        let mut all: Vec<Json> =
            [gateways, routes, services, slices, grants, splits, groups, policies, backends].concat();
        all.extend(natives);
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|document| {
            let metadata = &document["metadata"];
            seen.insert(format!("{}/{}/{}", document["kind"], metadata["namespace"], metadata["name"]))
        });
        all
    })
}

/// One document of such a set; of the native form, several.
pub(crate) fn world_documents() -> impl Strategy<Value = Vec<Json>> {
    let one = prop_oneof![
        2 => gateway(),
        6 => route(),
        3 => service(),
        3 => slice(),
        1 => grant(),
        2 => split(),
        1 => group(),
        1 => policy(),
        1 => backend(),
        1 => native(),
        2 => certificates(),
        1 => namespace(),
        1 => foreign_policy(),
    ];
    one.prop_map(|document| vec![document])
}

fn namespace() -> impl Strategy<Value = Json> {
    (one_of(&NAMESPACES), one_of(&["x", "y"])).prop_map(|(name, team)| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}})
    })
}

/// A policy that is not supported.
fn foreign_policy() -> impl Strategy<Value = Json> {
    let gateway_api = "gateway.networking.k8s.io";
    let target = prop_oneof![
        Just(json!({"group": gateway_api, "kind": "Gateway", "name": "edge"})),
        Just(json!({"group": gateway_api, "kind": "Gateway", "name": "edge", "sectionName": "l1"})),
        Just(json!({"group": gateway_api, "kind": "HTTPRoute", "name": "r0"})),
        Just(json!({"group": gateway_api, "kind": "GRPCRoute", "name": "r1"})),
        Just(json!({"group": "", "kind": "Service", "name": "a"})),
        Just(json!({"group": gateway_api, "kind": "GRPCRoute", "name": "r2", "sectionName": "named"})),
    ];
    (one_of(&["a", "b"]), one_of(&NAMESPACES), target).prop_map(|(name, namespace, target)| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Guard",
            "metadata": metadata(name, namespace), "spec": {"targetRef": target},
        })
    })
}

/// The certificates that listeners and policies name as `missing`: a Secret or a ConfigMap with something in PEM, or with nothing
/// of use.
fn certificates() -> impl Strategy<Value = Json> {
    (any::<bool>(), one_of(&NAMESPACES), one_of(&["AAAA", "BBBB", "?"])).prop_map(
        |(is_secret, namespace, body)| {
            let pem = |label: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
            let certificate = pem("CERTIFICATE");
            let metadata = metadata("missing", namespace);
            match is_secret {
                true => json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
                    "stringData": {"tls.crt": certificate, "tls.key": pem("PRIVATE KEY")},
                }),
                false => json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                    "data": {"ca.crt": certificate},
                }),
            }
        },
    )
}

fn metadata(name: &str, namespace: &str) -> Json {
    json!({"name": name, "namespace": namespace})
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    select(texts)
}

/// The object with those of the fields that are given.
fn with(mut object: Json, fields: impl IntoIterator<Item = (&'static str, Option<Json>)>) -> Json {
    for (name, value) in fields {
        if let (Some(value), Some(object)) = (value, object.as_object_mut()) {
            object.insert(name.to_owned(), value);
        }
    }
    object
}

fn gateway() -> impl Strategy<Value = Json> {
    let listener = (
        select(&[80_u16, 81, 443][..]),
        weighted(0.6, one_of(&HOSTS)),
        prop::bool::weighted(0.2),
        weighted(0.2, one_of(&["All", "Same", "None", "Selector"])),
        weighted(0.2, one_of(&["HTTPRoute", "GRPCRoute", "TCPRoute"])),
    );
    let way = weighted(0.4, prop_oneof![1 => Just("all"), 4 => Just("on-demand")]);
    (one_of(&["edge", "inner"]), one_of(&NAMESPACES), vec(listener, 1..5), way).prop_map(
        |(name, namespace, listeners, way)| {
            type Listener = (u16, Option<&'static str>, bool, Option<&'static str>, Option<&'static str>);
            let listener = |(index, (port, host, is_tls, from, kind)): (usize, Listener)| {
                let protocol = if is_tls { "HTTPS" } else { "HTTP" };
                let listener = json!({"name": format!("l{index}"), "port": port, "protocol": protocol});
                let selector = json!({"matchLabels": {"team": "x"}});
                let namespaces = from.map(|from| {
                    let selector = (from == "Selector").then(|| selector.clone());
                    with(json!({"from": from}), [("selector", selector)])
                });
                let kinds = kind.map(|kind| json!([{"kind": kind}]));
                let allowed = with(json!({}), [("namespaces", namespaces), ("kinds", kinds)]);
                let tls = is_tls.then(|| json!({"certificateRefs": [{"name": "missing"}]}));
                let host = host.map(Json::from);
                with(listener, [("hostname", host), ("tls", tls), ("allowedRoutes", Some(allowed))])
            };
            let listeners: Vec<Json> = listeners.into_iter().enumerate().map(listener).collect();
            let annotations = way.map(|way| json!({"xds-server.io/virtual-hosts": way}));
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "metadata": with(metadata(name, namespace), [("annotations", annotations)]),
                "spec": {"gatewayClassName": "any", "listeners": listeners},
            })
        },
    )
}

fn parent() -> impl Strategy<Value = Json> {
    let gateway = (one_of(&["edge", "inner", "nowhere"]), one_of(&NAMESPACES), weighted(0.3, 0..3_usize));
    let service = (one_of(&SERVICES), one_of(&NAMESPACES), weighted(0.5, select(&PORTS[..])));
    prop_oneof![
        3 => gateway.prop_map(|(name, namespace, section)| {
            let section = section.map(|index| json!(format!("l{index}")));
            with(json!({"name": name, "namespace": namespace}), [("sectionName", section)])
        }),
        1 => service.prop_map(|(name, namespace, port)| {
            let service = json!({"group": "", "kind": "Service", "name": name, "namespace": namespace});
            with(service, [("port", port.map(Json::from))])
        }),
    ]
}

fn backend_ref() -> impl Strategy<Value = Json> {
    let to = prop_oneof![
        8 => (one_of(&SERVICES), select(&PORTS[..])).prop_map(|(name, port)| json!({"name": name, "port": port})),
        1 => Just(json!({"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "be0"})),
        1 => Just(json!({"kind": "Pod", "name": "a"})),
    ];
    let weight = prop_oneof![3 => 0..4_u32, 1 => 0..=1_000_000_u32];
    (to, weighted(0.2, one_of(&NAMESPACES)), weighted(0.8, weight), weighted(0.1, filter())).prop_map(
        |(to, namespace, weight, filter)| {
            let namespace = namespace.map(Json::from);
            let filters = filter.map(|filter| json!([filter]));
            with(to, [("namespace", namespace), ("weight", weight.map(Json::from)), ("filters", filters)])
        },
    )
}

fn filter() -> impl Strategy<Value = Json> {
    let edits = json!({"set": [{"name": "x-a", "value": "1%"}], "add": [{"name": "x-b", "value": "2"}], "remove": ["x-c"]});
    prop_oneof![
        Just(json!({"type": "RequestHeaderModifier", "requestHeaderModifier": edits})),
        Just(json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": edits})),
        (one_of(&SERVICES), select(&PORTS[..]), 0..=100_u32).prop_map(|(name, port, percent)| json!({
            "type": "RequestMirror",
            "requestMirror": {"backendRef": {"name": name, "port": port}, "percent": percent},
        })),
        Just(json!({"type": "ExtensionRef", "extensionRef": {"group": "g", "kind": "K", "name": "n"}})),
    ]
}

fn headers() -> impl Strategy<Value = Json> {
    let header = prop_oneof![
        (one_of(&HEADERS), one_of(&["one", "two"]))
            .prop_map(|(name, value)| json!({"name": name, "value": value})),
        (one_of(&HEADERS), one_of(&REGEXES))
            .prop_map(|(name, value)| json!({"type": "RegularExpression", "name": name, "value": value})),
    ];
    vec(header, 0..3).prop_map(Json::from)
}

fn grpc_match() -> impl Strategy<Value = Json> {
    let exact = (weighted(0.7, one_of(&GRPC_SERVICES)), weighted(0.5, one_of(&METHODS)));
    let regex = (weighted(0.7, one_of(&REGEXES)), weighted(0.5, one_of(&REGEXES)));
    let method = prop_oneof![
        3 => exact.prop_map(|(service, method)| ("Exact", service, method)),
        1 => regex.prop_map(|(service, method)| ("RegularExpression", service, method)),
    ];
    (weighted(0.8, method), headers()).prop_map(|(method, headers)| {
        let method = method.filter(|(_, service, method)| service.is_some() || method.is_some());
        let method = method.map(|(match_type, service, method)| {
            let fields = [("service", service.map(Json::from)), ("method", method.map(Json::from))];
            with(json!({"type": match_type}), fields)
        });
        with(json!({"headers": headers}), [("method", method)])
    })
}

fn http_match() -> impl Strategy<Value = Json> {
    let path = prop_oneof![
        (one_of(&["Exact", "PathPrefix"]), one_of(&PATHS))
            .prop_map(|(kind, path)| json!({"type": kind, "value": path})),
        one_of(&REGEXES).prop_map(|regex| json!({"type": "RegularExpression", "value": regex})),
    ];
    let query = Just(json!([{"name": "q", "value": "1"}]));
    (weighted(0.7, path), headers(), weighted(0.2, one_of(&["GET", "POST"])), weighted(0.1, query)).prop_map(
        |(path, headers, method, query)| {
            let method = method.map(Json::from);
            with(json!({"headers": headers}), [("path", path), ("method", method), ("queryParams", query)])
        },
    )
}

fn session() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(json!({"cookie": {"name": "sid"}})),
        Just(json!({"absoluteTimeout": "1h", "cookie": {"lifetimeType": "Permanent"}})),
        Just(json!({"type": "Header", "header": {"name": "x-session"}})),
    ]
}

fn rule(matches: BoxedStrategy<Json>) -> impl Strategy<Value = Json> {
    let parts = (
        vec(matches, 0..3),
        vec(backend_ref(), 0..4),
        weighted(0.3, filter()),
        weighted(0.2, session()),
        weighted(0.2, Just(())),
    );
    parts.prop_map(|(matches, backends, filter, session, is_named)| {
        let rule = json!({"matches": matches, "backendRefs": backends});
        let filters = filter.map(|filter| json!([filter]));
        let name = is_named.map(|()| json!("named"));
        with(rule, [("filters", filters), ("sessionPersistence", session), ("name", name)])
    })
}

fn route() -> impl Strategy<Value = Json> {
    let rules = prop_oneof![
        3 => vec(rule(grpc_match().boxed()), 0..3).prop_map(|rules| ("GRPCRoute", rules)),
        2 => vec(rule(http_match().boxed()), 1..3).prop_map(|rules| ("HTTPRoute", rules)),
    ];
    let ages = &["2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"];
    let parts = (
        0..6_usize,
        one_of(&NAMESPACES),
        weighted(0.5, one_of(ages)),
        vec(parent(), 0..3),
        subsequence(&HOSTS[..], 0..3),
        rules,
        any::<Index>(),
    );
    parts.prop_map(|(name, namespace, age, mut parents, hosts, (kind, mut rules), at)| {
        // More than one reference to a parent needs sections on all of them, and a rule's name is there once.
        let mut seen = std::collections::BTreeSet::new();
        parents.retain(|parent| {
            seen.insert(format!("{}{}{}", parent["kind"], parent["namespace"], parent["name"]))
        });
        let named = (!rules.is_empty()).then(|| at.index(rules.len()));
        for (index, rule) in rules.iter_mut().enumerate() {
            if let Some(rule) = rule.as_object_mut().filter(|_| Some(index) != named) {
                rule.remove("name");
            }
        }
        let metadata = metadata(&format!("r{name}"), namespace);
        let metadata = with(metadata, [("creationTimestamp", age.map(Json::from))]);
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": {"parentRefs": parents, "hostnames": hosts, "rules": rules},
        })
    })
}

fn service() -> impl Strategy<Value = Json> {
    let port = (
        weighted(0.5, one_of(&["kubernetes.io/h2c", "kubernetes.io/ws", "grpc"])),
        weighted(0.2, 8000..8003_u16),
    );
    let ports = (vec(port, PORTS.len()), subsequence(&PORTS[..], 1..=2));
    (one_of(&["a", "b", "c", "external"]), one_of(&NAMESPACES), ports).prop_map(|(name, namespace, (details, ports))| {
        let port = |(port, (protocol, target)): (&u16, &(Option<&str>, Option<u16>))| {
            let fields = [("appProtocol", protocol.map(Json::from)), ("targetPort", target.map(Json::from))];
            with(json!({"name": format!("p{port}"), "port": port}), fields)
        };
        let ports: Vec<Json> = ports.iter().zip(&details).map(port).collect();
        let spec = match name {
            "external" => json!({"type": "ExternalName", "externalName": "db.example.com", "ports": ports}),
            _ => json!({"ports": ports}),
        };
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name, namespace), "spec": spec})
    })
}

fn slice() -> impl Strategy<Value = Json> {
    let condition = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({"ready": false})),
        1 => Just(json!({"ready": false, "serving": true, "terminating": true})),
    ];
    let endpoint = (1..4_u8, condition, weighted(0.5, one_of(&["x", "y"])));
    (0..4_u8, one_of(&SERVICES), one_of(&NAMESPACES), vec(endpoint, 0..4)).prop_map(
        |(index, service, namespace, endpoints)| {
            let endpoint = |(last, conditions, zone): (u8, Json, Option<&str>)| {
                let endpoint = json!({"addresses": [format!("10.0.0.{last}")], "conditions": conditions});
                with(endpoint, [("zone", zone.map(Json::from))])
            };
            let endpoints: Vec<Json> = endpoints.into_iter().map(endpoint).collect();
            let ports = PORTS.map(|port| json!({"name": format!("p{port}"), "port": port}));
            json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("s{index}"), "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": endpoints,
            })
        },
    )
}

fn grant() -> impl Strategy<Value = Json> {
    let kind = one_of(&["GRPCRoute", "HTTPRoute"]);
    (0..2_u8, one_of(&NAMESPACES), kind, one_of(&NAMESPACES)).prop_map(|(index, namespace, kind, from)| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1",
            "kind": "ReferenceGrant",
            "metadata": metadata(&format!("g{index}"), namespace),
            "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": from}],
                "to": [{"group": "", "kind": "Service"}],
            },
        })
    })
}

fn split() -> impl Strategy<Value = Json> {
    let backend = (one_of(&SERVICES), 0..4_u32);
    let parts =
        (0..3_u8, one_of(&NAMESPACES), one_of(&SERVICES), vec(backend, 1..4), prop::bool::weighted(0.3));
    parts.prop_map(|(index, namespace, service, backends, has_matches)| {
        let backends: Vec<Json> = backends
            .into_iter()
            .map(|(service, weight)| json!({"service": service, "weight": weight}))
            .collect();
        let matches = has_matches.then(|| json!([{"kind": "HTTPRouteGroup", "name": "g0"}]));
        json!({
            "apiVersion": "split.smi-spec.io/v1alpha4",
            "kind": "TrafficSplit",
            "metadata": metadata(&format!("t{index}"), namespace),
            "spec": with(json!({"service": service, "backends": backends}), [("matches", matches)]),
        })
    })
}

fn group() -> impl Strategy<Value = Json> {
    let one =
        (weighted(0.5, one_of(&PATHS)), subsequence(&["GET", "POST", "*"][..], 0..3), headers_by_name());
    (one_of(&NAMESPACES), vec(one, 0..3)).prop_map(|(namespace, matches)| {
        let one = |(index, (path, methods, headers)): (usize, (Option<&str>, Vec<&str>, Json))| {
            let one = json!({"name": format!("m{index}"), "methods": methods, "headers": headers});
            with(one, [("pathRegex", path.map(Json::from))])
        };
        let matches: Vec<Json> = matches.into_iter().enumerate().map(one).collect();
        json!({
            "apiVersion": "specs.smi-spec.io/v1alpha4",
            "kind": "HTTPRouteGroup",
            "metadata": metadata("g0", namespace),
            "spec": {"matches": matches},
        })
    })
}

fn headers_by_name() -> impl Strategy<Value = Json> {
    let names = subsequence(&["version", "color", "host"][..], 0..3);
    (names, one_of(&REGEXES))
        .prop_map(|(names, regex)| names.into_iter().map(|name| (name.to_owned(), json!(regex))).collect())
}

fn policy() -> impl Strategy<Value = Json> {
    (0..2_u8, one_of(&NAMESPACES), one_of(&SERVICES), any::<bool>()).prop_map(
        |(index, namespace, service, is_valid)| {
            let trust = match is_valid {
                true => ("wellKnownCACertificates", Some(json!("System"))),
                false => (
                    "caCertificateRefs",
                    Some(json!([{"group": "", "kind": "ConfigMap", "name": "missing"}])),
                ),
            };
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "BackendTLSPolicy",
                "metadata": metadata(&format!("p{index}"), namespace),
                "spec": {
                    "targetRefs": [{"group": "", "kind": "Service", "name": service}],
                    "validation": with(json!({"hostname": "a.internal"}), [trust]),
                },
            })
        },
    )
}

fn backend() -> impl Strategy<Value = Json> {
    let endpoint = prop_oneof![
        Just(json!({"ip": {"address": "10.0.1.1", "port": 80}})),
        Just(json!({"ip": {"address": "10.0.1.2", "port": 80}})),
        Just(json!({"fqdn": {"hostname": "a.example.com", "port": 80}})),
        Just(json!({"fqdn": {"hostname": "b.example.com", "port": 80}})),
        Just(json!({"unix": {"path": "/run/a"}})),
    ];
    (one_of(&NAMESPACES), vec(endpoint, 1..4)).prop_map(|(namespace, mut endpoints)| {
        let mut seen = std::collections::BTreeSet::new();
        endpoints.retain(|endpoint| seen.insert(endpoint.to_string()));
        // Sockets and names together are refused.
        if endpoints.iter().any(|endpoint| endpoint.get("unix").is_some()) {
            endpoints.retain(|endpoint| endpoint.get("fqdn").is_none());
        }
        json!({
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "Backend",
            "metadata": metadata("be0", namespace),
            "spec": {"endpoints": endpoints},
        })
    })
}

/// A document of the native form, with names that no other document has.
fn native() -> impl Strategy<Value = Json> {
    let backend = one_of(&["n0", "n1", "n2", "a:80", "prod/b:81", "missing"]);
    let to = vec((backend, 0..4_u32), 1..4);
    let matches = prop_oneof![
        Just(json!({"grpc": "foo.Bar/Get"})),
        Just(json!({"grpc": "*/List", "headers": {"version": "~a|b", "color": "*", "a": "b"}})),
        Just(json!({"text_prefix": "/a", "query": {"b": "c", "a": "*"}, "fraction": "12.5%"})),
        Just(json!({"path": "/foo.Bar/get", "case_sensitive": false})),
    ];
    let rule = (matches, to, weighted(0.3, Just(json!({"cookie": "sid"})))).prop_map(|(one, to, session)| {
        let to: Json = to.into_iter().map(|(name, weight)| (name.to_owned(), json!(weight))).collect();
        with(json!({"match": one, "to": to, "set_headers": {"b": "1", "a": "2"}}), [("session", session)])
    });
    let route = (subsequence(&HOSTS[..], 0..2), vec(rule, 1..3)).prop_map(|(hosts, rules)| {
        with(json!({"rules": rules}), [("hosts", (!hosts.is_empty()).then(|| json!(hosts)))])
    });
    let fallback = subsequence(&["n0", "n1", "n2", "n3", "a:80"][..], 1..4);
    (vec(route, 1..3), fallback).prop_map(|(routes, fallback)| {
        let routes: Json =
            routes.into_iter().enumerate().map(|(index, route)| (format!("n{index}"), route)).collect();
        json!({
            "version": "xds-server/v1",
            "listeners": {"n": 8080},
            "routes": routes,
            "backends": {
                "n0": {"protocol": "grpc", "endpoints": ["10.0.2.1:80", {"addr": "10.0.2.2:80", "zone": "x", "weight": 2}]},
                "n1": {"dns": "n1.example.com:80", "lb": "least_request"},
                "n2": {"fallback": fallback},
                "n3": {"dns": "n3.example.com:443", "tls": true},
            },
        })
    })
}
