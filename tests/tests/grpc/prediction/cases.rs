//! Good configurations, and changes to them.

use std::fmt;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use prost_reflect::prost::Message as _;
use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use xds_codec::{Codec, PgvLevel};
use xds_tests::certificates::Authority;
use xds_tests::random::Random;

use crate::prediction::clients::Client;

#[expect(clippy::expect_used, reason = "a static has nowhere to return an error")]
pub(crate) static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("the built-in descriptors"));
pub(crate) static LENIENT: LazyLock<Codec> = LazyLock::new(|| CODEC.with_pgv_level(PgvLevel::Off));

/// A configuration, and how it was made.
pub(crate) struct Case {
    pub(crate) number: usize,
    world: String,
    changes: Vec<String>,
    /// As JSON.
    pub(crate) resources: Vec<Value>,
    /// Type URL, name and bytes of each.
    pub(crate) encoded: Vec<(String, String, Vec<u8>)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.world, self.changes.join("; "))
    }
}

/// Makes cases, the same for the same seed.
pub(crate) struct Generator {
    random: Random,
    worlds: Vec<Map<String, Value>>,
    /// Half of the changes are to fields with these names, if there are any.
    read: &'static [&'static str],
    n: usize,
}

/// A message in a configuration.
struct Spot {
    /// The resource and the way there.
    path: Vec<Step>,
    message: MessageDescriptor,
}

#[derive(Clone, Debug)]
enum Step {
    Field(String),
    Item(usize),
}

impl Generator {
    pub(crate) fn new(client: Client, random: Random) -> Result<Self> {
        let (text, read) = match client {
            Client::Envoy => (include_str!("envoy.yaml"), &[][..]),
            Client::Grpcio | Client::GrpcGo | Client::GrpcJs | Client::GrpcJava => {
                (include_str!("grpc.yaml"), READ_BY_GRPC)
            }
        };
        let authority = Authority::new()?;
        let issued = authority.issue(&["a"])?;
        let mut worlds: Vec<Map<String, Value>> = serde_saphyr::from_str(text)?;
        for world in &mut worlds {
            for value in world.values_mut() {
                replace(value, &|text| {
                    *text = text.replace("TYPE:", "type.googleapis.com/envoy.");
                    match text.as_str() {
                        "CERTIFICATE" => issued.chain_pem().clone_into(text),
                        "KEY" => *text = issued.key_pem(),
                        "JWKS" => JWKS.clone_into(text),
                        "AUTHORITY" => *text = authority.pem(),
                        _ => {}
                    }
                });
            }
        }
        Ok(Self { random, worlds, read, n: 0 })
    }

    /// A configuration with one or two changes.
    ///
    /// Three of four keep to `validate.rules`, which the lint checks exactly: most random changes break them.
    pub(crate) fn next_case(&mut self) -> Case {
        let any = self.below(4) == 0;
        loop {
            if let Some(case) = self.try_case() {
                let keeps_rules = || case.resources.iter().all(|one| CODEC.resource_from_json(one).is_ok());
                if any || keeps_rules() {
                    self.n += 1;
                    return case;
                }
            }
        }
    }

    fn try_case(&mut self) -> Option<Case> {
        // Each as it is first.
        let index = if self.n < self.worlds.len() { self.n } else { self.below(self.worlds.len()) };
        let mut world = self.worlds.get(index)?.clone();
        let name = world.remove("name")?.as_str()?.to_owned();
        let mut root = Value::Object(world);
        let n_changes = if self.n < self.worlds.len() { 0 } else { 1 + usize::from(self.below(3) == 0) };
        let changes = (0..n_changes).map(|_| self.change(&mut root)).collect::<Option<Vec<_>>>()?;
        let number = self.n;
        replace(&mut root, &|text| {
            let mut chars = text.chars();
            if matches!((chars.next(), chars.next(), chars.next()), (Some('a'..='z'), Some('N'), None)) {
                *text = text.replace('N', &number.to_string());
            }
        });
        ports(&mut root, number);
        let resources: Vec<Value> = root.as_object()?.values().cloned().collect();
        let encoded = resources.iter().map(encode).collect::<Option<Vec<_>>>()?;
        Some(Case { number, world: name, changes, resources, encoded })
    }

    /// Changes one field of one message.
    fn change(&mut self, root: &mut Value) -> Option<String> {
        let mut spots = Vec::new();
        for (name, resource) in root.as_object()? {
            let message = message_of(resource)?;
            collect(resource, message, &mut vec![Step::Field(name.clone())], &mut spots);
        }
        let spot = spots.swap_remove(self.below(spots.len()));
        let is_read = self.chooses();
        let fields: Vec<FieldDescriptor> = spot.message.fields().filter(is_used).filter(is_read).collect();
        if fields.is_empty() {
            return None;
        }
        let at = at(root, &spot.path)?.as_object_mut()?;
        // Half of the changes are to fields that are there.
        let there: Vec<_> = fields.iter().filter(|field| at.contains_key(field.name())).collect();
        let field = match there.is_empty() || self.below(2) == 0 {
            true => fields.get(self.below(fields.len()))?,
            false => there.get(self.below(there.len()))?,
        };
        let old = at.get(field.name()).cloned();
        let new = match (&old, self.below(4)) {
            (Some(_), 0) => None,
            (Some(Value::Array(items)), 1) if !items.is_empty() => {
                let mut items = items.clone();
                items.extend(items.first().cloned());
                Some(Value::Array(items))
            }
            _ => Some(self.value_of(field, 3)?),
        };
        if old == new {
            return None;
        }
        // What makes a listener that of a gRPC client.
        let makes = ["name", "api_listener"].contains(&field.name())
            && spot.message.full_name().ends_with(".Listener");
        if makes && at.contains_key("api_listener") {
            return None;
        }
        let mut text = path_text(&spot.path);
        text = format!("{text}.{} = ", field.name());
        match new {
            None => {
                at.remove(field.name());
                text += "null";
            }
            Some(value) => {
                if let Some(oneof) = field.containing_oneof() {
                    for other in oneof.fields() {
                        at.remove(other.name());
                    }
                }
                text += &value.to_string();
                at.insert(field.name().to_owned(), value);
            }
        }
        Some(text)
    }

    fn value_of(&mut self, field: &FieldDescriptor, depth: usize) -> Option<Value> {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return None };
            if self.below(3) == 0 {
                return Some(json!({}));
            }
            let value = self.single(&entry.map_entry_value_field(), depth)?;
            let key = self.pick(&["", "a", "cors", "envoy.lb"]);
            let is_text = matches!(entry.map_entry_key_field().kind(), Kind::String);
            return Some(if is_text { json!({key: value}) } else { json!({"1": value}) });
        }
        if field.cardinality() == Cardinality::Repeated {
            let n = self.below(3);
            return (0..n).map(|_| self.single(field, depth)).collect::<Option<Vec<_>>>().map(Value::Array);
        }
        self.single(field, depth)
    }

    fn single(&mut self, field: &FieldDescriptor, depth: usize) -> Option<Value> {
        Some(match field.kind() {
            Kind::Bool => json!(self.below(2) == 0),
            Kind::String => json!(self.pick(TEXTS)),
            Kind::Bytes => json!(self.pick(&["", "YQ==", "AAEC"])),
            Kind::Float | Kind::Double => {
                json!(self.pick_of(&[0.0, -1.0, 0.5, 1.0, 50.0, 100.0, 100.5, 1e30]))
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!(self.pick_of(&[-1, 0, 1, 2, 5, 100, 200, 600, 65_536, 2_147_483_647]))
            }
            Kind::Uint32 | Kind::Fixed32 | Kind::Uint64 | Kind::Fixed64 => {
                json!(self.pick_of(&[
                    0,
                    1,
                    2,
                    5,
                    32,
                    100,
                    101,
                    200,
                    404,
                    600,
                    1000,
                    65_535,
                    65_536,
                    65_537,
                    4_294_967_295_u64
                ]))
            }
            Kind::Enum(descriptor) => {
                let values: Vec<i32> = descriptor.values().map(|value| value.number()).collect();
                match self.below(8) {
                    0 => json!(9999),
                    _ => json!(self.pick_of(&values)),
                }
            }
            Kind::Message(message) => self.message(&message, depth)?,
        })
    }

    fn message(&mut self, message: &MessageDescriptor, depth: usize) -> Option<Value> {
        if message.full_name().starts_with("google.protobuf.") {
            return self.well_known(message.full_name());
        }
        if depth == 0 {
            return Some(json!({}));
        }
        let is_read = self.chooses();
        let fields: Vec<FieldDescriptor> = message.fields().filter(is_used).filter(is_read).collect();
        let mut value = json!({});
        let n = self.below(4).min(fields.len());
        for _ in 0..n {
            let field = fields.get(self.below(fields.len()))?;
            let taken = field
                .containing_oneof()
                .is_some_and(|oneof| oneof.fields().any(|other| value.get(other.name()).is_some()));
            if !taken {
                let new = self.value_of(field, depth - 1)?;
                value.as_object_mut()?.insert(field.name().to_owned(), new);
            }
        }
        Some(value)
    }

    fn well_known(&mut self, name: &str) -> Option<Value> {
        Some(match name {
            "google.protobuf.Duration" => {
                json!(self.pick(&[
                    "0s",
                    "-1s",
                    "1s",
                    "0.000001s",
                    "0.0005s",
                    "0.05s",
                    "600s",
                    "10000000s",
                    "10000000000s",
                    "315576000000s"
                ]))
            }
            "google.protobuf.Any" => match self.below(3) {
                0 => json!({}),
                1 => json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}}),
                _ => json!({"@type": "type.googleapis.com/envoy.config.core.v3.Address"}),
            },
            "google.protobuf.BoolValue" => json!(self.below(2) == 0),
            "google.protobuf.UInt32Value" | "google.protobuf.UInt64Value" => {
                json!(self.pick_of(&[
                    0,
                    1,
                    2,
                    5,
                    99,
                    100,
                    101,
                    1024,
                    65_537,
                    8_388_608,
                    8_388_609,
                    4_294_967_295_u64
                ]))
            }
            "google.protobuf.Int32Value" | "google.protobuf.Int64Value" => {
                json!(self.pick_of(&[-1, 0, 1, 100]))
            }
            "google.protobuf.DoubleValue" | "google.protobuf.FloatValue" => {
                json!(self.pick_of(&[-1.0, 0.0, 0.5, 100.0, 101.0]))
            }
            "google.protobuf.StringValue" => json!(self.pick(TEXTS)),
            "google.protobuf.BytesValue" => json!("YQ=="),
            "google.protobuf.Struct" => {
                json!(self.pick_of(&[json!({}), json!({"a": 1}), json!({"stage": "a"})]))
            }
            "google.protobuf.Value" => json!("a"),
            "google.protobuf.ListValue" => json!([]),
            "google.protobuf.Timestamp" => json!("2026-01-01T00:00:00Z"),
            "google.protobuf.Empty" => json!({}),
            _ => return None,
        })
    }

    /// The fields of the next change: all of them, or only those that clients read.
    fn chooses(&mut self) -> impl Fn(&FieldDescriptor) -> bool + use<> {
        let read = self.read;
        let is_any = read.is_empty() || self.below(2) == 0;
        move |field| is_any || read.contains(&field.name())
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.within(0..end.max(1) as u64)).unwrap_or(0)
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        let index = self.below(texts.len());
        texts.get(index).copied().unwrap_or_default()
    }

    fn pick_of<T: Clone + Default>(&mut self, values: &[T]) -> T {
        let index = self.below(values.len());
        values.get(index).cloned().unwrap_or_default()
    }
}

/// Texts that mean something somewhere.
const TEXTS: &[&str] = &[
    "",
    "a",
    "cN",
    "dN",
    "zN",
    "*",
    "/",
    "/a",
    "a b",
    "a.test",
    "A.Test",
    "*.test",
    "x-h",
    "X-H",
    ":path",
    "host",
    "%",
    "%PROTOCOL%",
    "%FOO%",
    "10.0.0.1",
    "::1",
    "10.0.0.0/8",
    "(",
    "[0-9]+",
    "5xx",
    "internal",
    "h2",
    "http",
    "websocket",
    "rN",
    "a\nb",
    "\u{e9}",
    "/a/{b}",
    "/a//b",
    "cors",
    "fault",
    "router",
    "hcm",
    "name with spaces and more than a few letters",
];

/// Fields that at least one gRPC client reads in one of its messages.
const READ_BY_GRPC: &[&str] = &[
    "api_listener",
    "rds",
    "route_config",
    "http_filters",
    "is_optional",
    "config_source",
    "route_config_name",
    "cluster_specifier_plugins",
    "virtual_hosts",
    "domains",
    "routes",
    "match",
    "route",
    "non_forwarding_action",
    "prefix",
    "path",
    "safe_regex",
    "regex",
    "headers",
    "string_match",
    "exact",
    "suffix",
    "contains",
    "ignore_case",
    "range_match",
    "present_match",
    "invert_match",
    "exact_match",
    "safe_regex_match",
    "prefix_match",
    "suffix_match",
    "contains_match",
    "start",
    "end",
    "runtime_fraction",
    "default_value",
    "numerator",
    "denominator",
    "case_sensitive",
    "query_parameters",
    "cluster",
    "cluster_header",
    "cluster_specifier_plugin",
    "weighted_clusters",
    "clusters",
    "weight",
    "max_stream_duration",
    "grpc_timeout_header_max",
    "hash_policy",
    "header",
    "header_name",
    "filter_state",
    "key",
    "regex_rewrite",
    "pattern",
    "substitution",
    "terminal",
    "retry_policy",
    "retry_on",
    "num_retries",
    "retry_back_off",
    "base_interval",
    "max_interval",
    "typed_per_filter_config",
    "abort",
    "delay",
    "percentage",
    "grpc_status",
    "http_status",
    "header_abort",
    "fixed_delay",
    "header_delay",
    "max_active_faults",
    "type",
    "cluster_type",
    "typed_config",
    "eds_cluster_config",
    "eds_config",
    "service_name",
    "ads",
    "self",
    "lb_policy",
    "load_balancing_policy",
    "policies",
    "typed_extension_config",
    "endpoint_picking_policy",
    "ring_hash_lb_config",
    "minimum_ring_size",
    "maximum_ring_size",
    "hash_function",
    "least_request_lb_config",
    "choice_count",
    "common_lb_config",
    "override_host_status",
    "circuit_breakers",
    "thresholds",
    "max_requests",
    "per_host_thresholds",
    "max_connections",
    "lrs_server",
    "load_assignment",
    "upstream_config",
    "outlier_detection",
    "interval",
    "base_ejection_time",
    "max_ejection_time",
    "max_ejection_percent",
    "enforcing_success_rate",
    "success_rate_stdev_factor",
    "success_rate_minimum_hosts",
    "success_rate_request_volume",
    "failure_percentage_threshold",
    "enforcing_failure_percentage",
    "endpoints",
    "lb_endpoints",
    "endpoint",
    "address",
    "socket_address",
    "port_value",
    "named_port",
    "locality",
    "region",
    "zone",
    "load_balancing_weight",
    "priority",
    "health_status",
    "policy",
    "drop_overloads",
    "category",
    "drop_percentage",
    "additional_addresses",
    "metadata",
    "filter_metadata",
    "typed_filter_metadata",
    "transport_socket",
    "transport_socket_matches",
    "common_tls_context",
    "validation_context",
    "combined_validation_context",
    "default_validation_context",
    "tls_certificate_provider_instance",
    "ca_certificate_provider_instance",
    "instance_name",
    "match_subject_alt_names",
    "match_typed_subject_alt_names",
    "system_root_certs",
    "tls_certificates",
    "tls_params",
    "listener_filters",
    "filter_chains",
    "xff_num_trusted_hops",
    "original_ip_detection_extensions",
    "common_http_protocol_options",
    "idle_timeout",
    "session_state",
    "cookie",
    "ttl",
    "name",
];

/// The public key of RFC 7515, A.3.
const JWKS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// Whether random changes may set it: nothing that depends on the client's machine (its files, environment, sockets and bootstrap), and nothing that is
/// gone.
fn is_used(field: &FieldDescriptor) -> bool {
    let is_gone = field.name().starts_with("hidden_envoy_deprecated");
    let names_file = [
        "filename",
        "path_config_source",
        "watched_directory",
        "private_key_provider",
        "google_grpc",
        "access_log_path",
        "environment_variable",
        "path_specifier",
        "socket_options",
        "network_namespace_filepath",
        "instance_name",
    ];
    let opens = field.parent_message().full_name().ends_with("Pipe")
        || field.parent_message().full_name().ends_with("FileAccessLog");
    let is_path = field.full_name() == "envoy.config.core.v3.ConfigSource.path";
    !is_gone && !opens && !is_path && !names_file.contains(&field.name())
}

fn replace(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Gives the listeners ports of their own, so that a port that is still in use refuses nothing.
fn ports(root: &mut Value, number: usize) {
    let own = |port: &mut Value| {
        if let Some(old @ 1..10) = port.as_u64() {
            *port = json!(20_000 + (number as u64 * 10) % 30_000 + old);
        }
    };
    for resource in root.as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        if resource["@type"] != "type.googleapis.com/envoy.config.listener.v3.Listener" {
            continue;
        }
        if let Some(port) = resource.pointer_mut("/address/socket_address/port_value") {
            own(port);
        }
        for more in
            resource.get_mut("additional_addresses").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some(port) = more.pointer_mut("/address/socket_address/port_value") {
                own(port);
            }
        }
    }
}

fn message_of(value: &Value) -> Option<MessageDescriptor> {
    let url = value.get("@type")?.as_str()?;
    CODEC.pool().get_message_by_name(url.rsplit('/').next()?)
}

/// Every message that is there.
fn collect(value: &Value, message: MessageDescriptor, path: &mut Vec<Step>, spots: &mut Vec<Spot>) {
    let Some(fields) = value.as_object() else { return };
    if message.full_name() == "google.protobuf.Any" {
        if let Some(inner) = message_of(value) {
            collect(value, inner, path, spots);
        }
        return;
    }
    if message.full_name().starts_with("google.protobuf.") {
        return;
    }
    for (name, value) in fields {
        let Some(field) = message.get_field_by_name(name) else { continue };
        let Kind::Message(inner) = field.kind() else { continue };
        path.push(Step::Field(name.clone()));
        if field.is_map() {
            let Kind::Message(inner) = inner.map_entry_value_field().kind() else {
                path.pop();
                continue;
            };
            for (key, value) in value.as_object().into_iter().flatten() {
                path.push(Step::Field(key.clone()));
                collect(value, inner.clone(), path, spots);
                path.pop();
            }
        } else if let Some(items) = value.as_array() {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Item(index));
                collect(item, inner.clone(), path, spots);
                path.pop();
            }
        } else {
            collect(value, inner, path, spots);
        }
        path.pop();
    }
    spots.push(Spot { path: path.clone(), message });
}

fn at<'v>(root: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(root, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(index) => value.get_mut(index),
    })
}

fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text += &format!(".{name}"),
            Step::Item(index) => text += &format!("[{index}]"),
        }
    }
    text
}

fn encode(resource: &Value) -> Option<(String, String, Vec<u8>)> {
    let message = message_of(resource)?;
    let mut fields = resource.clone();
    let url = fields.as_object_mut()?.remove("@type")?.as_str()?.to_owned();
    let decoded = DynamicMessage::deserialize(message, fields).ok()?;
    let name = ["name", "cluster_name"]
        .iter()
        .find_map(|name| resource.get(*name)?.as_str())
        .unwrap_or_default()
        .to_owned();
    Some((url, name, decoded.encode_to_vec()))
}

/// So that a configuration that cannot be encoded is seen at once.
pub(crate) fn check_worlds(client: Client) -> Result<()> {
    let mut generator = Generator::new(client, Random::new(0))?;
    for index in 0..generator.worlds.len() {
        generator.n = 0;
        let world = generator.worlds.get(index).cloned().context("world")?;
        for (name, resource) in world.iter().filter(|(name, _)| *name != "name") {
            encode(resource).with_context(|| format!("{name} cannot be encoded: {resource}"))?;
            if let Err(faults) = CODEC.resource_from_json(resource) {
                anyhow::bail!("{name}: {faults:?}");
            }
        }
    }
    Ok(())
}
