//! Equal content gives equal bytes; nothing is lost on the way.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use xds_codec::{Codec, Limits, MessageError, ObjectContent, PgvLevel, UnknownFields};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

/// Maps, structs and `Any`s at every depth.
fn rich() -> Value {
    let metadata = json!({
        "filter_metadata": {"b": {"z": 1.5, "a": [null, true, {"k2": "x", "k1": {}}]}, "a": {}, "c": {"": -0.25}},
        "typed_filter_metadata": {"t": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "x/y", "value": {"q": 1, "p": {"s": [], "r": 2}}}},
    });
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let hosts = json!([{
        "name": "v", "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "name": "r", "metadata": metadata, "route": {
            "weighted_clusters": {"clusters": [{"name": "a", "weight": 90}, {"name": "b", "weight": 10}]},
            "timeout": "1.5s", "retry_policy": {"retry_on": "5xx", "num_retries": 2},
        }, "typed_per_filter_config": {
            "f2": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"y": "1", "x": "2"}},
            "f1": {"@type": "type.googleapis.com/google.protobuf.UInt32Value", "value": 7},
        }}],
    }]);
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "s", "codec_type": "HTTP2",
        "route_config": {"name": "inline", "virtual_hosts": hosts},
        "http_filters": [{"name": "router", "typed_config": router}],
    });
    json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "l",
        "metadata": metadata,
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    })
}

/// The same value with the keys of every object in another order.
fn permute(value: &Value, seed: &mut u64) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            for index in (1..entries.len()).rev() {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                entries.swap(index, (*seed >> 33) as usize % (index + 1));
            }
            let entries = entries.into_iter().map(|(key, value)| (key.clone(), permute(value, seed)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| permute(item, seed)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

proptest! {
    #[test]
    fn pitfall_46_the_order_of_keys_changes_no_byte(mut seed in any::<u64>()) {
        let expected = CODEC.resource_from_json(&rich()).unwrap();
        let permuted = permute(&rich(), &mut seed);
        let found = CODEC.resource_from_json(&permuted).unwrap();
        prop_assert_eq!(found.value(), expected.value());
        prop_assert_eq!(found.version(), expected.version());
        // Binary input whose maps came in any order is made canonical too.
        let again = CODEC.resource_from_any(expected.resource_type().type_url(), &shuffled_bytes(&permuted)).unwrap();
        prop_assert_eq!(again.value(), expected.value());
    }
}

/// Bytes of another encoder, whose maps have a random order.
fn shuffled_bytes(json: &Value) -> Vec<u8> {
    use prost::Message;
    let mut object = json.as_object().unwrap().clone();
    object.shift_remove("@type");
    let descriptor = CODEC.pool().get_message_by_name("envoy.config.listener.v3.Listener").unwrap();
    prost_reflect::DynamicMessage::deserialize(descriptor, Value::Object(object)).unwrap().encode_to_vec()
}

#[test]
fn pitfall_46_comments_and_spelling_change_no_byte() {
    let read = |content: &str| {
        let file = CODEC.decode_file("f.yaml", content.as_bytes(), &Limits::default());
        let object = file.objects.into_iter().next().unwrap();
        let ObjectContent::Resource { outcome: Ok(resource), .. } = object.content else { panic!() };
        resource.version()
    };
    let one = read(
        "# c\n'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\nconnect_timeout: 1s # d\n",
    );
    let two = read("clusters:\n- {connectTimeout: 1.000s, name: \"a\", type: STATIC, lb_policy: 0}\n");
    // `type` is in a oneof, so that its default is not the same as nothing.
    assert_ne!(one, two);
    assert_eq!(one, read("clusters:\n- {connectTimeout: 1.000s, name: \"a\", lb_policy: 0}\n"));
}

#[test]
fn json_comes_back_as_it_was_written() {
    let resource = CODEC.resource_from_json(&rich()).unwrap();
    let json = CODEC.to_json(&resource);
    assert_eq!(json, rich());
    assert_eq!(json.as_object().unwrap().keys().next().unwrap(), "@type");
    let again = CODEC.resource_from_json(&json).unwrap();
    assert_eq!(again.value(), resource.value());
    assert_eq!(serde_json::to_string(&CODEC.to_json(&again)).unwrap(), serde_json::to_string(&json).unwrap());
}

#[test]
fn yaml_comes_back_as_it_was_written() {
    let mut rich = rich();
    rich["stat_prefix"] = json!("yes");
    rich["filter_chains"][0]["name"] = json!("010");
    let resource = CODEC.resource_from_json(&rich).unwrap();
    let yaml = CODEC.to_yaml(&resource);
    let file = CODEC.decode_file("f.yaml", yaml.as_bytes(), &Limits::default());
    let [object] = &*file.objects else { panic!("{:?}", file.diagnostics) };
    let ObjectContent::Resource { outcome: Ok(again), .. } = &object.content else {
        panic!("{:?}", object.diagnostics())
    };
    assert_eq!(again.value(), resource.value(), "{yaml}");
}

#[test]
fn the_canonical_bytes_are_those_of_prost() {
    // Without maps there is only one order, and the typed encoder has it too.
    use prost::Message;
    let json = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "e",
        "endpoints": [{"priority": 1, "load_balancing_weight": 3, "lb_endpoints": [{"health_status": "DRAINING", "endpoint": {"address": {"socket_address": {"address": "::1", "port_value": 8}}}}]},
            {"locality": {"zone": "z"}}],
        "policy": {"drop_overloads": [{"category": "c", "drop_percentage": {"numerator": 5, "denominator": "MILLION"}}], "endpoint_stale_after": "0.5s"},
    });
    let resource = CODEC.resource_from_json(&json).unwrap();
    let typed =
        envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment::decode(&**resource.value())
            .unwrap();
    assert_eq!(typed.encode_to_vec(), resource.value()[..]);
}

#[test]
fn a221_unknown_fields_stay() {
    let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let known = CODEC.resource_from_json(&json!({"@type": url, "name": "a"})).unwrap();
    // 60000: varint, 60001: bytes, 60002: 32 bits, 60003: 64 bits, 60001 again.
    let unknown = b"\x80\xa6\x1d\x96\x01\x8a\xa6\x1d\x02hi\x95\xa6\x1d\x01\x02\x03\x04\x99\xa6\x1d\x01\x02\x03\x04\x05\x06\x07\x08\x8a\xa6\x1d\x01!";
    let bytes = [&known.value()[..], &unknown[..]].concat();
    let resource = CODEC.resource_from_any(url, &bytes).unwrap();
    let n_known = known.value().len();
    assert_eq!(&resource.value()[..n_known], &known.value()[..]);
    let mut rest = resource.value()[n_known..].to_vec();
    let mut expected = unknown.to_vec();
    // Equal numbers keep their order; only numbers are sorted.
    assert_eq!(rest.len(), expected.len());
    rest.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rest, expected);
    let again = CODEC.resource_from_any(url, &resource.value()).unwrap();
    assert_eq!(again.value(), resource.value());
}

#[test]
fn a223_unknown_types_in_an_any_pass_through() {
    let chain = json!({"filters": [{"name": "f", "typed_config": {"@type": "type.googleapis.com/my.Filter", "value": "CgFh"}}]});
    let listener = json!({"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l", "filter_chains": [chain]});
    let resource = CODEC.resource_from_json(&listener).unwrap();
    assert_eq!(CODEC.to_json(&resource), listener);
    let again = CODEC.resource_from_any(resource.resource_type().type_url(), &resource.value()).unwrap();
    assert_eq!(again.value(), resource.value());
}

#[test]
fn a220_the_level_of_pgv_is_a_choice() {
    let body = json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "connect_timeout": "0s"});
    assert_eq!(CODEC.resource_from_json(&body).unwrap_err()[0].code, "pgv-range");
    assert!(CODEC.with_pgv_level(PgvLevel::Off).resource_from_json(&body).is_ok());
    let tree = xds_codec::Tree::from_json(&body);
    let (_, warnings) = CODEC.with_pgv_level(PgvLevel::Warn).resource_from_tree(&tree).unwrap();
    assert_eq!(warnings[0].to_string(), "warning[pgv-range] connect_timeout: must be more than 0s, is 0s");
}

#[test]
fn requests_of_newer_clients_are_read() {
    let name = "envoy.service.discovery.v3.DiscoveryRequest";
    let json = json!({"node": {"id": "n", "user_agent_name": "envoy", "brand_new": 1}, "typeUrl": "x", "resource_names": ["a"]});
    let bytes = CODEC.message_from_json(name, &json, UnknownFields::Ignore).unwrap();
    let expected =
        json!({"node": {"id": "n", "user_agent_name": "envoy"}, "resource_names": ["a"], "type_url": "x"});
    assert_eq!(CODEC.message_to_json(name, &bytes).unwrap(), expected);
    let error = CODEC.message_from_json(name, &json, UnknownFields::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the JSON is not a valid envoy.service.discovery.v3.DiscoveryRequest: error[unknown-field] node.brand_new: unknown field in envoy.config.core.v3.Node"
    );
    assert!(matches!(CODEC.message_to_json("no.Such", b""), Err(MessageError::UnknownType { .. })));
    assert!(matches!(CODEC.message_to_json(name, b"\xff"), Err(MessageError::BadBytes { .. })));
}

#[test]
fn numbers_keep_their_value() {
    let value = |number: Value| {
        let fields = json!({"@type": "type.googleapis.com/google.protobuf.DoubleValue", "value": number});
        let body = json!({"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "n", "typed_config": fields});
        CODEC.to_json(&CODEC.resource_from_json(&body).unwrap())["typed_config"]["value"].clone()
    };
    for number in [
        json!(0),
        json!(1),
        json!(-1.5),
        json!(1e300),
        json!(0.1),
        json!("NaN"),
        json!("-Infinity"),
        json!(9007199254740993_u64 as f64),
    ] {
        assert_eq!(value(number.clone()).as_f64(), number.as_f64(), "{number}");
        assert_eq!(value(number.clone()).as_str(), number.as_str(), "{number}");
    }
}
