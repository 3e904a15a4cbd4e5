//! Reading a text takes at most [`MOST`] times the memory that the text has, however it is shaped.
//!
//! A counting allocator measures the peak of each reading. The texts are small here; `XDS_MEMORY_BYTES=10000000` makes them
//! as large as a file may be.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests; the figures are what they are run for")]

use std::fmt::Write as _;
use std::sync::LazyLock;

use xds_codec::document::Position;
use xds_codec::{Codec, Limits, Syntax, UnknownFields};

use crate::{ALLOCATOR, alone};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

/// Peak bytes for each byte of text. Nothing of use comes near: a byte of configuration costs three to six.
const MOST: usize = 20;

/// The memory that a reading may take besides: the facts of message types that are looked at for the first time, a hundred
/// diagnostics, and the first 5,000 objects, see [`Limits::max_objects`].
const FIXED: usize = 5 << 20;

const CLUSTER: &str = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A text of about that many bytes.
type Generate = fn(usize) -> String;

/// Values that may stand anywhere in a `Struct`; JSON, and YAML in flow style.
const VALUES: &[(&str, Generate)] = &[
    ("numbers", |n| list("0", n)),
    ("larger numbers", |n| list("123456.5", n)),
    ("numbers beyond 64 bits", |n| list("99999999999999999999", n)),
    ("truths", |n| list("true", n)),
    ("nulls", |n| list("null", n)),
    ("empty lists", |n| list("[]", n)),
    ("empty objects", |n| list("{}", n)),
    ("lists of one", |n| list("[0]", n)),
    ("objects of one", |n| list("{\"a\":0}", n)),
    ("short texts", |n| list("\"a\"", n)),
    ("empty texts", |n| list("\"\"", n)),
    ("escapes", |n| list("\"\\u0000\\n\\\"\"", n)),
    ("one long text", |n| format!("\"{}\"", "a".repeat(n))),
    ("one long text of escapes", |n| format!("\"{}\"", "\\u00e4".repeat(n / 6))),
    ("long texts", |n| list(&format!("\"{}\"", "a".repeat(1000)), n)),
    ("many keys", |n| object(n, |text, key| write!(text, "\"{key}\":0"))),
    ("many keys with objects", |n| object(n, |text, key| write!(text, "\"{key}\":{{}}"))),
    ("one long key", |n| format!("{{\"{}\":[0,1,2]}}", "k".repeat(n))),
    ("repeated keys", |n| format!("{{{}}}", repeated("\"a\":0", n))),
    ("deep lists", |n| list(&nested("[", "]", 30), n)),
    ("deep objects", |n| list(&nested("{\"a\":", "}", 30), n)),
    ("too deep lists", |n| format!("{}{}", "[".repeat(n / 2), "]".repeat(n / 2))),
    ("too deep objects", |n| format!("{}0{}", "{\"a\":".repeat(n / 6), "}".repeat(n / 6))),
];

/// Values that only YAML has.
const YAML_VALUES: &[(&str, Generate)] = &[
    ("plain texts", |n| list("a", n)),
    ("keys without values", |n| object(n, |text, key| write!(text, "{key}"))),
    ("objects of a key", |n| list("{a}", n)),
    ("pairs", |n| list("a: 0", n)),
    ("quoted", |n| list("'a'", n)),
    ("anchors", |n| numbered_list(n, |text, n| write!(text, "&a{n} a"))),
    ("an anchor and aliases", |n| format!("[&a [0,0,0,0,0,0,0,0,0,0],{}]", repeated("*a", n))),
    ("aliases of an object", |n| format!("[&a {{b: {{c: [d]}}}},{}]", repeated("*a", n))),
    ("merges", |n| format!("[&a {{b: 0, c: 1}},{}]", repeated("{<<: *a}", n))),
    ("tags", |n| list("!!str 5", n)),
    ("missing keys", |n| list("? ", n)),
    ("colons", |n| list(":", n)),
    ("billion laughs", |n| {
        let levels = (1..12).map(|n| format!("&a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", ")));
        format!("[&a0 [lol, lol], {}, {}]", levels.collect::<Vec<_>>().join(", "), repeated("a", n))
    }),
    ("doubling merges", |n| {
        let levels = (1..60).map(|n| format!("&a{n} {{<<: *a{}, b{n}: 0}}", n - 1)).collect::<Vec<_>>();
        format!("[&a0 {{b0: 0}}, {}, {}]", levels.join(", "), repeated("a", n))
    }),
];

/// Whole files.
const FILES: &[(&str, Generate)] = &[
    ("block list", |n| within_struct(n, |text, _| writeln!(text, "      - 0"))),
    ("block list of nothing", |n| format!("{}\n", "-\n".repeat(n / 2))),
    ("block list of objects", |n| within_struct(n, |text, _| writeln!(text, "      - a: 0\n        b: c"))),
    ("block object", |n| {
        format!(
            "{CLUSTER}\nname: a\nmetadata:\n  filter_metadata:\n    m:\n{}",
            lines(n, |text, n| writeln!(text, "      k{n}: 0"))
        )
    }),
    ("comments", |n| format!("{CLUSTER}\nname: a\n{}", "#\n".repeat(n / 2))),
    ("comments of one line", |n| format!("{CLUSTER}\nname: a\n#{}", "c".repeat(n))),
    ("empty lines", |n| format!("{CLUSTER}\nname: a\n{}", "\n".repeat(n))),
    ("documents of nothing", |n| "---\n".repeat(n / 4)),
    ("documents of a number", |n| "--- 0\n".repeat(n / 6)),
    ("documents of an empty object", |n| "--- {}\n".repeat(n / 7)),
    ("documents of unknown kinds", |n| "--- {apiVersion: a, kind: b}\n".repeat(n / 28)),
    ("documents of resources", |n| lines(n, |text, n| writeln!(text, "--- {{{CLUSTER}, name: a{n}}}"))),
    ("resources that are none", |n| format!("resources: {}\n", list("0", n))),
    ("resources without types", |n| format!("resources: {}\n", list("{}", n))),
    ("clusters without names", |n| format!("clusters: {}\n", list("{}", n))),
    ("clusters", |n| format!("clusters: {}\n", numbered_list(n, |text, n| write!(text, "{{name: a{n}}}")))),
    ("clusters with a fault each", |n| {
        format!("clusters: {}\n", numbered_list(n, |text, n| write!(text, "{{name: a{n}, x: 0}}")))
    }),
    ("one cluster again and again", |n| format!("clusters: {}\n", list("{name: a}", n))),
    ("unknown fields", |n| format!("{CLUSTER}\nname: a\n{}", lines(n, |text, n| writeln!(text, "k{n}: 0")))),
    ("unknown fields below a long key", |n| {
        format!(
            "{CLUSTER}\nname: a\ntyped_extension_protocol_options:\n  {}:\n{}",
            "k".repeat(n / 2),
            lines(n / 2, |text, n| writeln!(text, "    k{n}: 0"))
        )
    }),
    ("lists of no known type", |n| lines(n, |text, n| writeln!(text, "k{n}: []"))),
    ("parts of a bootstrap", |n| {
        format!("static_resources: {{}}\n{}", lines(n, |text, n| writeln!(text, "k{n}: []")))
    }),
    ("endpoints", |n| {
        let endpoint = "{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}";
        format!("endpoints:\n- cluster_name: a\n  endpoints:\n  - lb_endpoints: {}\n", list(endpoint, n))
    }),
    ("empty endpoints", |n| {
        format!("endpoints:\n- cluster_name: a\n  endpoints:\n  - lb_endpoints: {}\n", list("{}", n))
    }),
    ("empty localities", |n| format!("endpoints:\n- cluster_name: a\n  endpoints: {}\n", list("{}", n))),
    ("domains", |n| {
        let domains = numbered_list(n, |text, n| write!(text, "{n}"));
        format!(
            "routes:\n- name: a\n  virtual_hosts:\n  - name: b\n    domains: {}\n",
            domains.replace(',', "',' ").replace('[', "[' ").replace(']', "']")
        )
    }),
    ("equal domains", |n| {
        format!("routes:\n- name: a\n  virtual_hosts:\n  - name: b\n    domains: {}\n", list("a", n))
    }),
    ("empty virtual hosts", |n| format!("routes:\n- name: a\n  virtual_hosts: {}\n", list("{}", n))),
    ("routes", |n| {
        let route = "{match: {prefix: /}, route: {cluster: a}}";
        format!(
            "routes:\n- name: a\n  virtual_hosts:\n  - name: b\n    domains: ['*']\n    routes: {}\n",
            list(route, n)
        )
    }),
    ("names of clusters", |n| {
        let names = numbered_list(n, |text, n| write!(text, "a{n}"));
        format!(
            "{CLUSTER}\nname: a\ncluster_type:\n  name: b\n  typed_config:\n    '@type': type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig\n    clusters: {names}\n"
        )
    }),
    ("aliases of a resource", |n| {
        format!("name: a\naliases: {}\nresource: {{{CLUSTER}, name: a}}\n", list("a", n))
    }),
    ("Any within Any", |n| {
        let any = "{'@type': type.googleapis.com/google.protobuf.Any, value: ";
        let inner =
            format!("{{'@type': type.googleapis.com/google.protobuf.ListValue, value: {}}}", list("0", n));
        format!(
            "{CLUSTER}\nname: a\ntyped_extension_protocol_options: {{x: {}{inner}{}}}\n",
            any.repeat(12),
            "}".repeat(12)
        )
    }),
    ("base64", |n| {
        format!(
            "secrets:\n- name: a\n  generic_secret: {{secret: {{inline_bytes: {}}}}}\n",
            "QUFB".repeat(n / 4)
        )
    }),
    ("opaque base64", |n| {
        format!(
            "name: a\nresource: {{'@type': type.googleapis.com/no.such.Type, value: {}}}\n",
            "QUFB".repeat(n / 4)
        )
    }),
    ("node ids", |n| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: a}}\nspec: {{selector: {{nodeIds: {}}}}}\n",
            list("a", n)
        )
    }),
    ("metadata of a node group", |n| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: a}}\nspec: {{selector: {{metadata: {}}}}}\n",
            object(n, |text, key| write!(text, "{key}: 0"))
        )
    }),
    ("numbers as texts", |n| {
        format!(
            "{CLUSTER}\nname: a\nload_assignment: {{cluster_name: a, endpoints: {}}}\n",
            list("{priority: \"1\"}", n)
        )
    }),
    ("packed numbers", |n| {
        format!(
            "listeners:\n- name: a\n  filter_chains: [{{filter_chain_match: {{source_ports: {}}}}}]\n",
            list("1", n)
        )
    }),
    ("wrapped numbers", |n| {
        format!(
            "routes:\n- name: a\n  virtual_hosts:\n  - {{name: b, domains: ['*'], retry_policy: {{retriable_status_codes: {}}}}}\n",
            list("1", n)
        )
    }),
];

fn list(item: &str, n_bytes: usize) -> String {
    format!("[{}]", repeated(item, n_bytes))
}

fn repeated(item: &str, n_bytes: usize) -> String {
    let mut text = format!("{item},").repeat(n_bytes / (item.len() + 1));
    text.pop();
    text
}

fn numbered_list(n_bytes: usize, mut item: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::from("[");
    for n in 0.. {
        if text.len() >= n_bytes {
            break;
        }
        item(&mut text, n).unwrap();
        text.push(',');
    }
    text.pop();
    text + "]"
}

/// An object with keys that are as short as they can be.
fn object(n_bytes: usize, mut entry: impl FnMut(&mut String, &str) -> std::fmt::Result) -> String {
    let mut text = String::from("{");
    for n in 0.. {
        if text.len() >= n_bytes {
            break;
        }
        entry(&mut text, &short(n)).unwrap();
        text.push(',');
    }
    text.pop();
    text + "}"
}

/// A short text for each number.
fn short(mut n: usize) -> String {
    let mut text = String::from("a");
    while n > 0 {
        text.push(char::from(b'a' + u8::try_from(n % 26).unwrap()));
        n /= 26;
    }
    text
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

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}0{}", open.repeat(depth), close.repeat(depth))
}

fn within_struct(n_bytes: usize, line: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let lines = lines(n_bytes, line);
    format!("{CLUSTER}\nname: a\nmetadata:\n  filter_metadata:\n    m:\n      l:\n{lines}")
}

/// How many bytes a text has.
fn n_bytes() -> usize {
    std::env::var("XDS_MEMORY_BYTES").ok().map_or(100_000, |n| n.parse().unwrap())
}

/// The peak of what is allocated while `read` runs, above what was before.
fn peak_of<T>(read: impl FnOnce() -> T) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    drop(read());
    ALLOCATOR.peak_usage().saturating_sub(before)
}

/// Measures one reading after another; says all that pass the bound.
struct Table(Vec<String>);

impl Table {
    fn measure<T>(&mut self, name: &str, text: &str, read: impl FnOnce(&[u8]) -> T) {
        let start = std::time::Instant::now();
        let peak = peak_of(|| read(text.as_bytes()));
        let time = start.elapsed();
        let times = |peak: usize| peak as f64 / text.len() as f64;
        let row = format!("{:6.1} × {:>9} {name}, {time:?}", times(peak), text.len());
        println!("{row}");
        if peak > MOST * text.len() + FIXED {
            self.0.push(row);
        }
    }

    fn check(self) {
        assert!(self.0.is_empty(), "more than {MOST} × the text:\n{}", self.0.join("\n"));
    }
}

fn limits() -> Limits {
    Limits { max_bytes: 64 << 20, ..Limits::default() }
}

#[test]
fn a_resource_takes_no_more_than_twenty_times_its_text() {
    let _alone = alone();
    LazyLock::force(&CODEC);
    let mut table = Table(Vec::new());
    for (name, generate) in VALUES {
        let value = generate(n_bytes());
        let text = format!(
            "{{\"@type\":\"type.googleapis.com/envoy.config.cluster.v3.Cluster\",\"name\":\"a\",\"metadata\":{{\"filter_metadata\":{{\"m\":{{\"l\":{value}}}}}}}}}"
        );
        table.measure(&format!("JSON, {name}"), &text, |text| CODEC.decode_file("f.json", text, &limits()));
        table.measure(&format!("YAML, {name}"), &text, |text| CODEC.decode_file("f.yaml", text, &limits()));
    }
    for (name, generate) in YAML_VALUES {
        let value = generate(n_bytes());
        let text = format!("{CLUSTER}\nname: a\nmetadata: {{filter_metadata: {{m: {{l: {value}}}}}}}\n");
        table.measure(&format!("YAML, {name}"), &text, |text| CODEC.decode_file("f.yaml", text, &limits()));
    }
    table.check();
}

#[test]
fn a_file_takes_no_more_than_twenty_times_its_text() {
    let _alone = alone();
    LazyLock::force(&CODEC);
    let mut table = Table(Vec::new());
    for (name, generate) in FILES {
        let text = generate(n_bytes());
        table.measure(name, &text, |text| CODEC.decode_file("f.yaml", text, &limits()));
    }
    table.check();
}

#[test]
fn a_message_takes_no_more_than_twenty_times_its_text() {
    let _alone = alone();
    LazyLock::force(&CODEC);
    let mut table = Table(Vec::new());
    for (name, generate) in VALUES {
        let value = generate(n_bytes());
        let text = format!("{{\"node\":{{\"id\":\"x\",\"metadata\":{{\"a\":{value}}}}}}}");
        table.measure(&format!("request, {name}"), &text, |text| {
            let trees = xds_codec::parse("", text, Syntax::Json, &limits()).ok()?;
            let request = "envoy.service.discovery.v3.DiscoveryRequest";
            CODEC.message_from_tree(request, trees.first()?, UnknownFields::Ignore).ok()
        });
    }
    table.check();
}

#[test]
fn a_document_has_a_limit_of_values_that_is_told_with_its_place() {
    let _alone = alone();
    let limits = Limits { max_document_values: 1000, ..Limits::default() };
    let numbers = |n: usize| format!("[\n{}\n]", vec!["0"; n].join(",\n"));
    for name in ["f.json", "f.yaml"] {
        let file = CODEC.decode_file(name, numbers(1000).as_bytes(), &limits);
        let [diagnostic] = &*file.diagnostics else { panic!("{:?}", file.diagnostics) };
        // The list is a value too.
        assert_eq!((diagnostic.code, diagnostic.place.line), ("too-many-values", 1001), "{diagnostic}");
        assert!(
            diagnostic.message.contains("1000 values")
                && diagnostic.message.contains("--max-document-values")
        );
        assert!(file.broken);
        let file = CODEC.decode_file(name, numbers(999).as_bytes(), &limits);
        assert!(!file.broken, "{:?}", file.diagnostics);
    }
    // Each document of a file counts for itself.
    let two = format!("{}\n---\n{}\n", numbers(999), numbers(999));
    assert!(!CODEC.decode_file("f.yaml", two.as_bytes(), &limits).broken);
    // Values copied by an alias count.
    let copies = format!("[&a {}, *a]", numbers(600).replace('\n', " "));
    assert!(CODEC.decode_file("f.yaml", copies.as_bytes(), &limits).broken);
    let position = Position { line: 1, column: 1 };
    assert_eq!(xds_codec::Tree::null(position).root().position(), position);
}
