//! Hostile texts for as long as `XDS_FUZZ_SECONDS` says (default: 2): arbitrary bytes, and texts by the grammars of JSON, YAML and
//! Envoy's messages, bent.
//!
//! Whatever comes, reading ends, in memory and time that follow the text, with a bounded number of diagnostics; and what is read
//! is canonical by the judgement of another reader. `XDS_FUZZ_SEED` runs a failure again.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../tests/src/splitmix.rs"]
mod splitmix;

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use xds_cache::{Resource, ResourceType};
use xds_codec::{Codec, DecodedFile, Limits, ObjectContent, Syntax, UnknownFields, render};

use splitmix::Random;

use crate::{ALLOCATOR, alone};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

/// Peak bytes for each byte of text, as in `memory.rs`.
const MOST: usize = 20;

/// The facts of message types that are met for the first time, diagnostics, and the first 5,000 objects.
const FIXED: usize = 5 << 20;

/// Ten times what the slowest text of that length takes without optimization.
const LONGEST: Duration = Duration::from_secs(20);

impl Random {
    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Writes a random text; stops opening things when it is long enough.
struct Writer<'r> {
    random: &'r mut Random,
    text: String,
    most: usize,
    is_yaml: bool,
    n_anchors: usize,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.text.len() >= self.most
    }

    /// Any value.
    fn value(&mut self, depth: usize) {
        if self.is_yaml && self.random.chance(3) {
            self.n_anchors += 1;
            self.text.push_str(&format!("&a{} ", self.n_anchors));
        } else if self.is_yaml && self.n_anchors > 0 && self.random.chance(5) {
            let anchor = 1 + self.random.below(self.n_anchors);
            return self.text.push_str(&format!("*a{anchor} "));
        }
        let n = if self.random.chance(5) { self.random.below(2_000) } else { self.random.below(5) };
        match self.random.below(if depth == 0 || self.is_full() { 3 } else { 5 }) {
            0 => self.text.push_str(self.random.one_of::<&str>(SCALARS)),
            1 => self.text.push_str(&self.random.number().to_string()),
            2 => {
                let text = self.random.one_of(TEXTS).repeat(n + 1);
                self.text.push_str(&serde_json::Value::from(text).to_string());
            }
            3 => self.list(n, depth, |writer, depth| writer.value(depth)),
            _ => self.object(n, depth),
        }
    }

    fn list(&mut self, n: usize, depth: usize, mut item: impl FnMut(&mut Self, usize)) {
        self.text.push('[');
        for index in 0..n {
            self.text.push_str(if index == 0 { "" } else { "," });
            item(self, depth - 1);
            if self.is_full() {
                break;
            }
        }
        self.text.push(']');
    }

    fn object(&mut self, n: usize, depth: usize) {
        self.text.push('{');
        for index in 0..n {
            self.text.push_str(if index == 0 { "" } else { "," });
            let key = if self.random.chance(30) { "a".to_owned() } else { format!("k{index}") };
            let merge = self.is_yaml && self.random.chance(5);
            self.text.push_str(&if merge { "<<: ".to_owned() } else { format!("\"{key}\": ") });
            self.value(depth - 1);
            if self.is_full() {
                break;
            }
        }
        self.text.push('}');
    }

    /// A message of the type, mostly right.
    fn message(&mut self, descriptor: &MessageDescriptor, depth: usize, first: &str) {
        if self.random.chance(2) {
            return self.value(depth);
        }
        match descriptor.full_name() {
            "google.protobuf.Any" => {
                let messages: Vec<MessageDescriptor> = CODEC.pool().all_messages().collect();
                let content = self.random.one_of(&messages).clone();
                let first = format!("\"@type\": \"type.googleapis.com/{}\"", content.full_name());
                return self.fields(&content, depth, &first);
            }
            "google.protobuf.Duration" => return self.text.push_str("\"1.5s\""),
            "google.protobuf.Timestamp" => return self.text.push_str("\"2024-01-31T12:00:00Z\""),
            "google.protobuf.FieldMask" => return self.text.push_str("\"a,bC\""),
            "google.protobuf.Struct" => {
                let n = self.random.below(4);
                return self.object(n, depth.max(1));
            }
            "google.protobuf.Value" => return self.value(depth),
            "google.protobuf.ListValue" => {
                return self.list(3, depth.max(1), |writer, depth| writer.value(depth));
            }
            name if name.starts_with("google.protobuf.") && name.ends_with("Value") => {
                if let Some(field) = descriptor.get_field_by_name("value") {
                    return self.single(&field, depth);
                }
            }
            _ => {}
        }
        self.fields(descriptor, depth, first);
    }

    fn fields(&mut self, descriptor: &MessageDescriptor, depth: usize, first: &str) {
        self.text.push('{');
        self.text.push_str(first);
        let fields: Vec<FieldDescriptor> = descriptor.fields().collect();
        let n = if depth == 0 || fields.is_empty() || self.is_full() { 0 } else { self.random.below(6) };
        let mut is_first = first.is_empty();
        for _ in 0..n {
            let field = self.random.one_of(&fields).clone();
            self.text.push_str(if std::mem::take(&mut is_first) { "" } else { "," });
            let name = if self.random.chance(10) { field.json_name() } else { field.name() };
            self.text.push_str(&format!("\"{name}\": "));
            self.field(&field, depth - 1);
        }
        self.text.push('}');
    }

    fn field(&mut self, field: &FieldDescriptor, depth: usize) {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return };
            self.text.push('{');
            for n in 0..self.random.below(4) {
                self.text.push_str(&format!("{}\"{n}\": ", if n == 0 { "" } else { "," }));
                self.single(&entry.map_entry_value_field(), depth);
            }
            return self.text.push('}');
        }
        if field.is_list() {
            let n = if self.random.chance(5) { self.random.below(500) } else { self.random.below(4) };
            return self.list(n, depth + 1, |writer, depth| writer.single(field, depth));
        }
        self.single(field, depth);
    }

    fn single(&mut self, field: &FieldDescriptor, depth: usize) {
        match field.kind() {
            Kind::Message(descriptor) => self.message(&descriptor, depth, ""),
            Kind::Bool => self.text.push_str("true"),
            Kind::String => self.text.push_str("\"*.example.com\""),
            Kind::Bytes => self.text.push_str("\"QUFB\""),
            Kind::Enum(descriptor) => {
                let values: Vec<_> = descriptor.values().collect();
                let name = self.random.one_of(&values).name().to_owned();
                self.text.push_str(&format!("\"{name}\""));
            }
            Kind::Float | Kind::Double => self.text.push_str("0.25"),
            Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64 => {
                let number = self.random.below(300);
                self.text.push_str(&number.to_string());
            }
        }
    }
}

const SCALARS: &[&str] = &[
    "null",
    "true",
    "0",
    "-0",
    "-1",
    "1e308",
    "1.5",
    "[]",
    "{}",
    "\"\"",
    "18446744073709551615",
    "999999999999999999999999999999999999999999999",
];

const TEXTS: &[&str] =
    &["a", "", "\u{0}", "é\u{202e}", "[redacted]", "type.googleapis.com/", "1s", "QUFB", "\n"];

/// Pieces of text that stand where they should not.
const JUNK: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "'",
    "&a ",
    "*a1 ",
    "<<: ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "!!str ",
    "? ",
    "- ",
    "|\n",
    ">-\n",
    "\t",
    "# c\n",
    "\u{feff}",
    "\u{0}",
    "\r",
    "\\u0000",
    "apiVersion: v1\nkind: List\nitems:\n",
    "resources: ",
    "resource: ",
    "@type",
    "static_resources: ",
    "clusters: ",
    "version: xds-server/v1\n",
    "kind: NodeGroup\n",
];

fn text(random: &mut Random) -> (&'static str, Vec<u8>) {
    let is_yaml = random.chance(50);
    let name = if is_yaml { "f.yaml" } else { "f.json" };
    if random.chance(10) {
        let n = random.below(400);
        return (name, (0..n).map(|_| u8::try_from(random.below(256)).unwrap()).collect());
    }
    let most = if random.chance(5) { 60_000 } else { 3_000 };
    let mut writer = Writer { random, text: String::new(), most, is_yaml, n_anchors: 0 };
    if writer.random.chance(20) {
        writer.value(12);
    } else {
        let known = writer.random.one_of(&ResourceType::KNOWN).clone();
        let descriptor = CODEC.pool().get_message_by_name(known.message_name()).unwrap();
        let name = if known == ResourceType::ClusterLoadAssignment { "cluster_name" } else { "name" };
        let first = format!("\"@type\": \"{}\", \"{name}\": \"n\"", known.type_url());
        writer.fields(&descriptor, 8, &first);
    }
    let mut text = writer.text.into_bytes();
    let n_changes = if random.chance(60) { 0 } else { random.below(6) };
    for _ in 0..n_changes {
        let at = random.below(text.len() + 1);
        match random.below(4) {
            0 => text.truncate(at),
            1 => text.splice(at..at, random.one_of(JUNK).bytes()).for_each(drop),
            2 => {
                let end = (at + random.below(40)).min(text.len());
                text.drain(at..end);
            }
            _ => {
                let end = (at + random.below(200)).min(text.len());
                let copy = text[at..end].to_vec();
                text.splice(at..at, copy).for_each(drop);
            }
        }
    }
    (name, text)
}

/// Reads and judges one text; how many good resources it had.
fn judge(name: &str, text: &[u8]) -> usize {
    let limits = Limits::default();
    let began = Instant::now();
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let file = CODEC.decode_file(name, text, &limits);
    let peak = ALLOCATOR.peak_usage() - before;
    assert!(peak <= MOST * text.len() + FIXED, "{peak} bytes for {}", text.len());
    assert!(began.elapsed() < LONGEST, "{:?} for {} bytes", began.elapsed(), text.len());
    assert!(file.objects.len() <= Limits::max_objects(text.len()));
    let all = file.all_diagnostics();
    assert!(all.len() <= limits.max_diagnostics + 2 + file.objects.len(), "{}", all.len());
    let source = String::from_utf8_lossy(text);
    for diagnostic in all.iter().take(5) {
        assert!(diagnostic.to_string().len() < 20_000, "{diagnostic}");
        let _ = render(diagnostic, &source, true);
    }
    let good: Vec<&Resource> = resources(&file).collect();
    good.iter().for_each(|resource| check(resource));
    let syntax = Syntax::of_file(name);
    for tree in xds_codec::parse(name, text, syntax, &limits).unwrap_or_default().iter().take(3) {
        let json = tree.to_json();
        let mut written = String::new();
        tree.root().write_json(&mut written);
        // serde_json reads numbers that are no integers less exactly than they are written.
        serde_json::from_str::<serde_json::Value>(&written).unwrap();
        let again = xds_codec::parse("f.json", written.as_bytes(), Syntax::Json, &limits);
        // Null, which a number beyond all doubles becomes too, is an empty file.
        let again = again.map(|trees| trees.first().map(xds_codec::Tree::to_json)).ok().flatten();
        assert_eq!(again.unwrap_or_default(), json, "{written}");
        let _ = CODEC.message_from_tree(
            "envoy.service.discovery.v3.DiscoveryRequest",
            tree,
            UnknownFields::Ignore,
        );
    }
    good.len()
}

fn resources(file: &DecodedFile) -> impl Iterator<Item = &Resource> {
    file.objects.iter().filter_map(|object| match &object.content {
        ObjectContent::Resource { outcome, .. } => outcome.as_ref().ok(),
        ObjectContent::Unreadable(_) | ObjectContent::NodeGroup { .. } | ObjectContent::Other { .. } => None,
    })
}

/// A resource that was read is the one that prost reads, and comes back from every form.
fn check(resource: &Resource) {
    let resource_type = resource.resource_type();
    let Some(descriptor) = CODEC.pool().get_message_by_name(resource_type.message_name()) else { return };
    let message = DynamicMessage::decode(descriptor, resource.value().into_owned()).unwrap();
    let again = CODEC.resource_from_any(resource_type.type_url(), &message.encode_to_vec());
    if let Ok(again) = again {
        assert_eq!(again.value(), resource.value(), "the bytes of prost, made canonical");
    }
    let json = CODEC.to_json_with_secrets(resource);
    let is_shown_whole = CODEC.to_json(resource) == json;
    assert!(
        !CODEC.has_secrets(resource) || !is_shown_whole || json.to_string().contains("[redacted]"),
        "{json}"
    );
    if let Ok(again) = CODEC.resource_from_json(&json) {
        assert_eq!(again.value(), resource.value(), "{json}");
    }
}

#[test]
fn any_text_is_read_within_bounds_and_what_is_read_is_canonical() {
    let _alone = alone();
    let of_environment = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seconds = of_environment("XDS_FUZZ_SECONDS");
    // Always the same texts in a run of all tests, so that a change fails by its own fault.
    let first = of_environment("XDS_FUZZ_SEED");
    let seed = first.unwrap_or_else(|| seconds.map_or(0, |_| clock()));
    println!("XDS_FUZZ_SEED={seed}");
    LazyLock::force(&CODEC);
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let (mut n_texts, mut n_good) = (0_u64, 0);
    while n_texts == 0 || Instant::now() < until {
        let mut random = Random(seed.wrapping_add(n_texts));
        let (name, text) = text(&mut random);
        let outcome = std::panic::catch_unwind(|| judge(name, &text));
        let Ok(good) = outcome else {
            panic!("XDS_FUZZ_SEED={} {name}: {}", seed.wrapping_add(n_texts), String::from_utf8_lossy(&text));
        };
        n_good += good;
        n_texts += 1;
    }
    println!("{n_texts} texts, {n_good} resources");
}
