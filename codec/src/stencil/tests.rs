//! Filled stencils against the codec: messages of the shapes that are generated and of others, with texts of all kinds.

use serde_json::json;

use super::cut::Piece;
use super::*;
use crate::PgvLevel;

const TYPES: &str = "type.googleapis.com/envoy";

fn ads() -> Json {
    json!({"ads": {}, "resource_api_version": "V3"})
}

fn listener(texts: &[&str]) -> Json {
    let any = format!("{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager");
    let router = format!("{TYPES}.extensions.filters.http.router.v3.Router");
    json!({
        "@type": format!("{TYPES}.config.listener.v3.Listener"), "name": texts[0],
        "api_listener": {"api_listener": {
            "@type": any, "stat_prefix": texts[1],
            "rds": {"route_config_name": texts[2], "config_source": ads()},
            "http_filters": [{"name": texts[3], "typed_config": {"@type": router}}],
        }},
    })
}

fn eds_cluster(texts: &[&str]) -> Json {
    json!({
        "@type": format!("{TYPES}.config.cluster.v3.Cluster"), "name": texts[0], "type": "EDS",
        "eds_cluster_config": {"eds_config": ads(), "service_name": texts[1]},
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [{"max_requests": 4_294_967_295_u32}]},
        "metadata": {"filter_metadata": {"xds-server": {"drain_endpoints": "30s"}, "other": {"a": texts[2]}}},
    })
}

/// Asks for the assignment of its own name.
fn plain_cluster(texts: &[&str]) -> Json {
    json!({
        "@type": format!("{TYPES}.config.cluster.v3.Cluster"), "name": texts[0], "type": "EDS",
        "eds_cluster_config": {"eds_config": ads()}, "connect_timeout": "5s",
    })
}

/// May name itself.
fn aggregate(texts: &[&str]) -> Json {
    let config = format!("{TYPES}.extensions.clusters.aggregate.v3.ClusterConfig");
    let members = { "@type" };
    json!({
        "@type": format!("{TYPES}.config.cluster.v3.Cluster"), "name": texts[0], "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": {"name": texts[3], "typed_config": {members: config, "clusters": [texts[1], texts[2]]}},
    })
}

fn dns_cluster(texts: &[&str]) -> Json {
    let endpoints = [texts[1], texts[2]].map(|address| {
        let address = json!({"socket_address": {"address": address, "port_value": 443}});
        json!({"endpoint": {"address": address}})
    });
    json!({
        "@type": format!("{TYPES}.config.cluster.v3.Cluster"), "name": texts[0], "type": "STRICT_DNS",
        "load_assignment": {"cluster_name": texts[3], "endpoints": [{"lb_endpoints": endpoints}]},
    })
}

fn assignment(texts: &[&str]) -> Json {
    let endpoint = |address: &str, health: &str| {
        let address = json!({"socket_address": {"address": address, "port_value": 50_051}});
        json!({"endpoint": {"address": address}, "health_status": health})
    };
    let health = if texts[3].len().is_multiple_of(2) { "HEALTHY" } else { "DRAINING" };
    json!({
        "@type": format!("{TYPES}.config.endpoint.v3.ClusterLoadAssignment"), "cluster_name": texts[0],
        "endpoints": [{
            "locality": {"zone": texts[3]}, "load_balancing_weight": 2,
            "lb_endpoints": [endpoint(texts[1], "HEALTHY"), endpoint(texts[2], health)],
        }],
    })
}

fn host(texts: &[&str]) -> Json {
    let clusters = json!([{"name": texts[3], "weight": 90}, {"name": texts[4], "weight": 10}]);
    let header = json!({"name": texts[5], "string_match": {"safe_regex": {"regex": texts[6]}}});
    let own = format!("{TYPES}.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute");
    json!({
        "@type": format!("{TYPES}.config.route.v3.VirtualHost"),
        "name": texts[0], "domains": [texts[1], texts[2]],
        "routes": [{
            "match": {"prefix": texts[4], "headers": [header]},
            "route": {"weighted_clusters": {"clusters": clusters}, "timeout": "5s"},
            "request_headers_to_add": [{"header": {"key": texts[5], "value": texts[6]}}],
            "typed_per_filter_config": {"session": {"@type": own, "stateful_session": {"session_state": {
                "name": texts[0], "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": texts[1]},
            }}}},
        }],
    })
}

fn routes(texts: &[&str]) -> Json {
    let host = |name: &str, domain: &str| {
        let route = json!({"match": {"path": texts[5]}, "route": {"cluster": texts[6]}});
        json!({"name": name, "domains": [domain, texts[4]], "routes": [route]})
    };
    json!({
        "@type": format!("{TYPES}.config.route.v3.RouteConfiguration"), "name": texts[0],
        "virtual_hosts": [host(texts[1], texts[2]), {"name": texts[3], "domains": [texts[6]]}],
    })
}

fn on_demand(texts: &[&str]) -> Json {
    json!({
        "@type": format!("{TYPES}.config.route.v3.RouteConfiguration"), "name": texts[0],
        "vhds": {"config_source": ads()},
    })
}

fn secret(texts: &[&str]) -> Json {
    json!({
        "@type": format!("{TYPES}.extensions.transport_sockets.tls.v3.Secret"), "name": texts[0],
        "generic_secret": {"secret": {"inline_string": texts[1]}},
    })
}

fn wrapped(texts: &[&str]) -> Json {
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource";
    json!({"@type": type_url, "name": texts[0], "aliases": [texts[1]], "resource": plain_cluster(texts)})
}

type Shape = (&'static str, fn(&[&str]) -> Json);

const SHAPES: &[Shape] = &[
    ("listener", listener),
    ("EDS cluster", eds_cluster),
    ("plain cluster", plain_cluster),
    ("aggregate", aggregate),
    ("DNS cluster", dns_cluster),
    ("assignment", assignment),
    ("host", host),
    ("routes", routes),
    ("routes on demand", on_demand),
    ("secret", secret),
    ("wrapped", wrapped),
];

/// Texts that checks look at, and others.
const TEXTS: &[&str] = &[
    "a",
    "b",
    "A",
    "a.example",
    "A.example",
    "c",
    "d",
    "e.example:80",
    "*",
    "*.example",
    "/",
    "/a",
    "10.0.0.1",
    "::1",
    "",
    " ",
    "a b",
    "a\nb",
    "\0",
    "\u{7f}",
    "xdstp://x/envoy.config.cluster.v3.Cluster/a",
    "ü",
    "(",
    "content-type",
    ":path",
    "30s",
    "soon",
    "Zm9v",
    "EDS",
];

/// Random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    /// Texts for a message. Every fourth message has texts of all kinds, the others have plain names.
    fn texts(&mut self) -> Vec<String> {
        let is_odd = self.below(4) == 0;
        let long = 1 + self.below(3) * self.below(90);
        let mut text = |at: usize| match is_odd {
            true => TEXTS[self.below(TEXTS.len())].to_owned(),
            false => format!("name-{at}-{}{}", self.below(1_000_000), "n".repeat(long)),
        };
        (0..7).map(&mut text).collect()
    }
}

/// The outcome of a message, as text: everything of the resource, or every diagnostic.
fn told(outcome: Result<ResourceDraft, Vec<Diagnostic>>) -> String {
    match outcome {
        Ok(draft) => format!("{draft:?}"),
        Err(diagnostics) => format!("{diagnostics:?}"),
    }
}

fn compare(codec: &Codec, stencils: &mut Stencils, json: &Json) -> bool {
    let found = stencils.resource(json);
    let is_read = found.is_ok();
    let expected = codec.resource_from_json(json).map(|resource| resource.to_draft());
    assert_eq!(told(found), told(expected), "{json}");
    is_read
}

#[test]
fn what_stencils_make_is_what_the_codec_makes() {
    for level in [PgvLevel::Error, PgvLevel::Warn, PgvLevel::Off] {
        let codec = Codec::new().unwrap().with_pgv_level(level);
        for (name, shape) in SHAPES {
            let (mut stencils, mut random) = (Stencils::new(&codec), Random(7));
            let (mut n_read, mut n_refused) = (0, 0);
            for _ in 0..600 {
                let texts = random.texts();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let is_read = compare(&codec, &mut stencils, &shape(&texts));
                *(if is_read { &mut n_read } else { &mut n_refused }) += 1;
            }
            assert!(n_read > 100, "{name}: {n_read} of {}", n_read + n_refused);
        }
    }
}

const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// The stencil of a message with letters as its texts.
fn cut(codec: &Codec, shape: fn(&[&str]) -> Json) -> Option<Stencil> {
    let json = shape(&LETTERS);
    Stencil::cut(&codec.inner, &json, &codec.resource_from_json(&json).unwrap())
}

#[test]
fn what_is_generated_has_stencils_and_what_depends_on_more_has_none() {
    let codec = Codec::new().unwrap();
    let n_holes = |(name, shape): &Shape| {
        let is_text = |piece: &&Piece| matches!(piece, Piece::Text(..));
        let n_holes = cut(&codec, *shape).map(|stencil| stencil.pieces.iter().filter(is_text).count());
        (*name, n_holes)
    };
    let expected = [
        ("listener", Some(4)),
        ("EDS cluster", Some(2)),
        ("plain cluster", Some(1)),
        ("aggregate", Some(4)),
        // An address that the assignment has twice is found only in the whole.
        ("DNS cluster", Some(1)),
        ("assignment", Some(4)),
        // Neither the expression, nor what is in the map.
        ("host", Some(9)),
        ("routes", Some(8)),
        // It asks for names that are no texts.
        ("routes on demand", None),
        ("secret", None),
        ("wrapped", None),
    ];
    assert_eq!(SHAPES.iter().map(n_holes).collect::<Vec<_>>(), expected);
}

#[test]
fn a_wrong_stencil_is_seen() {
    let codec = Codec::new().unwrap();
    for (name, shape) in SHAPES {
        let json = shape(&LETTERS);
        let skeleton = Skeleton::of(&json, Vec::new(), MAX_SKELETON_BYTES).unwrap();
        let texts = &skeleton.texts;
        let is_right = |stencil: &Stencil| {
            stencil.fill(texts, &Keys::default()).is_some_and(|filled| is_from_codec(&codec, &json, &filled))
        };
        let Some(right) = cut(&codec, *shape) else { continue };
        assert!(right.fits(texts) && is_right(&right), "{name}");
        let mut n_broken = 0;
        for at in 0..right.pieces.len() {
            let mut wrong = cut(&codec, *shape).unwrap();
            match &mut wrong.pieces[at] {
                Piece::Raw(bytes) => _ = bytes.pop(),
                Piece::Text(_, text) => {
                    *text = texts.iter().position(|other| other != &texts[*text]).unwrap();
                }
                Piece::Open(number) => *number += 1,
                Piece::Close => continue,
            }
            assert!(!is_right(&wrong), "{name}: {:?} is {:?}", right.pieces[at], wrong.pieces[at]);
            n_broken += 1;
        }
        assert!(n_broken >= 2, "{name}");
        for at in 0..right.references.len() {
            let mut wrong = cut(&codec, *shape).unwrap();
            wrong.references[at].path = "elsewhere".into();
            assert!(!is_right(&wrong), "{name}");
        }
    }
}

#[test]
fn shapes_are_kept_from_the_second_time_on_and_not_without_limit() {
    let codec = Codec::new().unwrap();
    let mut stencils = Stencils::new(&codec);
    let n_shapes =
        |stencils: &Stencils| -> usize { stencils.shapes.values().map(|shapes| shapes.stencils.len()).sum() };
    let cluster = |name: &str, weight: usize, timeout: usize| {
        let mut cluster = plain_cluster(&[name]);
        cluster["connect_timeout"] = json!(format!("{timeout}s"));
        cluster["per_connection_buffer_limit_bytes"] = json!(weight);
        cluster
    };
    let counts: Vec<usize> = (0..4)
        .map(|n| {
            stencils.resource(&cluster(&format!("c{n}"), 1, 5)).unwrap();
            n_shapes(&stencils)
        })
        .collect();
    assert_eq!(counts, [0, 1, 1, 1]);
    for n in 0..20 {
        stencils.resource(&cluster("c", 1, 10 + n)).unwrap();
    }
    assert_eq!(n_shapes(&stencils), MAX_SHAPES);
    let long = "n".repeat(60_000);
    let mut most = 0;
    for n in 0..400 {
        for name in ["c", "d"] {
            let mut cluster = cluster(name, 2 + n, 5);
            cluster["metadata"] = json!({"filter_metadata": {"other": {"a": long}}});
            stencils.resource(&cluster).unwrap();
        }
        most = most.max(stencils.n_bytes);
        assert!(stencils.n_bytes <= MAX_KEPT_BYTES);
    }
    assert!(most > MAX_KEPT_BYTES / 2, "{most}");
    for n in 0..MAX_SEEN + 10 {
        stencils.is_second(&n.to_le_bytes());
        assert!(stencils.seen.len() <= MAX_SEEN);
    }
}
