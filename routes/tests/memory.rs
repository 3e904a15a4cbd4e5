//! Reading a route document takes at most [`MOST`] times the memory that its text has, however it is shaped.
//!
//! As `codec/tests/memory.rs`, for what this crate reads of the trees that the codec makes. `XDS_MEMORY_BYTES=10000000` makes
//! the texts as large as a file may be.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use xds_codec::{Limits, Syntax};
use xds_routes::{ReadOutcome, read};

use crate::{ALLOCATOR, alone};

/// Peak bytes for each byte of text.
const MOST: usize = 20;

/// The first 5,000 objects or entries, see [`Limits::max_objects`], and two hundred diagnostics with their paths.
const FIXED: usize = 8 << 20;

type Generate = fn(usize) -> String;

const META: &str = "metadata: {name: a}\n";

const DOCUMENTS: &[(&str, Generate)] = &[
    ("an unknown field of numbers", |n| service(&format!("x: {}", list("0", n)))),
    ("an unknown field of objects", |n| service(&format!("x: {}", list("{a: {}}", n)))),
    ("unknown fields", |n| service(&lines(n, |text, n| write!(text, "x{n}: 0\n  ")))),
    ("ports", |n| service(&format!("ports: {}", list("{port: 1}", n)))),
    ("empty ports", |n| service(&format!("ports: {}", list("{}", n)))),
    ("labels", |n| metadata("labels", &map(n, "a"))),
    ("labels that are numbers", |n| metadata("labels", &map(n, "0"))),
    ("annotations", |n| metadata("annotations", &map(n, "a"))),
    ("one long annotation", |n| metadata("annotations", &format!("{{a: {}}}", "a".repeat(n)))),
    ("a list of annotations", |n| metadata("annotations", &list("a", n))),
    ("managed fields", |n| metadata("managedFields", &list("0", n))),
    ("a ConfigMap", |n| format!("apiVersion: v1\nkind: ConfigMap\n{META}data: {}\n", map(n, "a"))),
    ("binary data", |n| format!("apiVersion: v1\nkind: ConfigMap\n{META}binaryData: {}\n", map(n, "QQ=="))),
    ("a Secret", |n| format!("apiVersion: v1\nkind: Secret\n{META}stringData: {}\n", map(n, "a"))),
    ("rules", |n| route(&format!("rules: {}", list("{}", n)))),
    ("host names", |n| route(&format!("hostnames: {}", list("a", n)))),
    ("host names that are numbers", |n| route(&format!("hostnames: {}", list("0", n)))),
    ("matches", |n| route(&format!("rules: [{{matches: {}}}]", list("{}", n)))),
    ("backends", |n| route(&format!("rules: [{{backendRefs: {}}}]", list("{name: a}", n)))),
    ("listeners", |n| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n{META}spec: {{gatewayClassName: a, listeners: {}}}\n",
            list("{}", n)
        )
    }),
    ("endpoints of a slice", |n| {
        let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n";
        format!(
            "{slice}{META}addressType: IPv4\nports: []\nendpoints: {}\n",
            list("{addresses: [10.0.0.1]}", n)
        )
    }),
    ("native routes", |n| {
        format!(
            "version: xds-server/v1\nroutes:\n{}",
            lines(n, |text, n| writeln!(text, "  a{n}: {{to: b}}"))
        )
    }),
    ("native routes that are none", |n| {
        format!("version: xds-server/v1\nroutes:\n{}", lines(n, |text, n| writeln!(text, "  a{n}: 0")))
    }),
    ("native backends", |n| {
        format!(
            "version: xds-server/v1\nbackends:\n{}",
            lines(n, |text, n| writeln!(text, "  a{n}: {{endpoints: \"1.1.1.1:80\"}}"))
        )
    }),
    ("shares", |n| format!("version: xds-server/v1\nroutes: {{a: {{to: {}}}}}\n", map(n, "1"))),
    ("endpoints of a backend", |n| {
        format!("version: xds-server/v1\nbackends: {{a: {{endpoints: {}}}}}\n", list("'1.1.1.1:80'", n))
    }),
    ("a TrafficSplit", |n| {
        format!(
            "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\n{META}spec: {{service: a, backends: {}}}\n",
            list("{service: b, weight: 1}", n)
        )
    }),
];

fn service(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\n{META}spec:\n  type: ClusterIP\n  {spec}\n")
}

fn route(spec: &str) -> String {
    format!("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n{META}spec:\n  {spec}\n")
}

fn metadata(field: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a, {field}: {value}}}\nspec: {{}}\n")
}

fn list(item: &str, n_bytes: usize) -> String {
    format!("[{}]", vec![item; n_bytes / (item.len() + 1)].join(","))
}

fn map(n_bytes: usize, value: &str) -> String {
    format!("{{{}}}", lines(n_bytes, |text, n| write!(text, "a{n}: {value},")))
}

fn lines(n_bytes: usize, mut line: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for n in 0.. {
        if text.len() >= n_bytes {
            break;
        }
        line(&mut text, n).unwrap();
    }
    text
}

#[test]
fn a_route_document_takes_no_more_than_twenty_times_its_text() {
    let _alone = alone();
    let n_bytes = std::env::var("XDS_MEMORY_BYTES").ok().map_or(100_000, |n| n.parse().unwrap());
    let limits = Limits { max_bytes: 64 << 20, ..Limits::default() };
    let file = "f.yaml".into();
    let mut beyond = Vec::new();
    for (name, generate) in DOCUMENTS {
        let text = generate(n_bytes);
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        let outcomes: Vec<ReadOutcome> = xds_codec::parse("f.yaml", text.as_bytes(), Syntax::Yaml, &limits)
            .unwrap_or_default()
            .iter()
            .map(|tree| read(&file, tree, xds_routes::UnknownFields::Refuse))
            .collect();
        let peak = ALLOCATOR.peak_usage() - before;
        assert_eq!(outcomes.len(), 1, "{name}");
        drop(outcomes);
        let row = format!("{:6.1} × {:>9} {name}", peak as f64 / text.len() as f64, text.len());
        println!("{row}");
        if peak > MOST * text.len() + FIXED {
            beyond.push(row);
        }
    }
    assert!(beyond.is_empty(), "more than {MOST} × the text:\n{}", beyond.join("\n"));
}
