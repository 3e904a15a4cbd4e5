//! Nothing that comes from outside makes the codec panic, or take for ever.

use std::sync::LazyLock;

use proptest::prelude::*;
use xds_cache::ResourceType;
use xds_codec::{Codec, Limits, Tree, render};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

fn swallow(path: &str, content: &[u8]) {
    let limits = Limits { max_alias_cost: 10_000, ..Limits::default() };
    let file = CODEC.decode_file(path, content, &limits);
    let text = String::from_utf8_lossy(content);
    for diagnostic in file.all_diagnostics().into_iter().take(20) {
        let _ = diagnostic.to_string();
        let _ = render(diagnostic, &text, true);
    }
    for object in file.objects.iter().take(20) {
        let _ = format!("{object:?}");
        if let xds_codec::ObjectContent::Resource { outcome: Ok(resource), .. } = &object.content {
            let _ = CODEC.to_yaml(resource);
        }
    }
}

/// Text that is nearly a configuration: tokens of one in any order.
fn tokens() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "clusters:",
        "listeners:",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ",",
        ": ",
        "name",
        "'@type'",
        "\"",
        "'",
        "&a ",
        "*a",
        "<<: ",
        "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "type.googleapis.com/google.protobuf.Struct",
        "value",
        "resource",
        "resources:",
        "apiVersion: xds-server.io/v1",
        "kind: NodeGroup",
        "kind: List",
        "items:",
        "spec",
        "selector",
        "metadata",
        "typed_config",
        "connect_timeout",
        "1s",
        "-1",
        "1e999",
        "99999999999999999999999999999999999999999999",
        "null",
        "~",
        "true",
        "yes",
        "!!str ",
        "|\n",
        ">-\n",
        "\t",
        "# c\n",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "\u{feff}",
        "\u{0}",
        "ü",
        "\\u0000",
        "x-a:",
        "static_resources:",
        "load_assignment",
        "cluster_name",
        "endpoints",
        "@type",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_as_yaml(content in prop::collection::vec(any::<u8>(), 0..400)) {
        swallow("f.yaml", &content);
    }

    #[test]
    fn any_text_as_yaml_and_json(content in "\\PC{0,200}") {
        swallow("f.yaml", content.as_bytes());
        swallow("f.json", content.as_bytes());
    }

    #[test]
    fn any_bytes_as_json(content in prop::collection::vec(any::<u8>(), 0..400)) {
        swallow("f.json", &content);
    }

    #[test]
    fn near_configurations(content in tokens()) {
        swallow("f.yaml", content.as_bytes());
        swallow("f.json", content.as_bytes());
    }

    #[test]
    fn any_bytes_as_any(index in 0..10_usize, content in prop::collection::vec(any::<u8>(), 0..200)) {
        let resource_type = &ResourceType::KNOWN[index];
        let type_url = resource_type.type_url();
        if let Ok(resource) = CODEC.resource_from_any(type_url, &content) {
            let again = CODEC.resource_from_any(type_url, &resource.value()).unwrap();
            prop_assert_eq!(again.value(), resource.value());
        }
        let opaque = CODEC.opaque_resource(type_url, "x", content.clone());
        let _ = (CODEC.to_json(&opaque), CODEC.to_json_with_secrets(&opaque), CODEC.to_yaml(&opaque));
        let _ = CODEC.message_to_json(type_url, &content);
    }

    #[test]
    fn cut_and_bent_messages_as_any(cut in 0..900_usize, at in 0..900_usize, byte in any::<u8>()) {
        let mut content = LISTENER.clone();
        content.truncate(cut);
        if let Some(place) = content.get_mut(at) {
            *place = byte;
        }
        let type_url = ResourceType::Listener.type_url();
        if let Ok(resource) = CODEC.resource_from_any(type_url, &content) {
            let again = CODEC.resource_from_any(type_url, &resource.value()).unwrap();
            prop_assert_eq!(again.value(), resource.value());
            let _ = CODEC.to_json(&resource);
        }
        let _ = CODEC.message_to_json(type_url, &content);
    }

    #[test]
    fn times_and_durations_of_any_size(seconds in any::<i64>(), nanos in any::<i32>()) {
        use prost::Message;
        let time = prost_reflect::prost_types::Timestamp { seconds, nanos }.encode_to_vec();
        for name in ["google.protobuf.Timestamp", "google.protobuf.Duration"] {
            let _ = CODEC.message_to_json(name, &time);
        }
    }
}

static LISTENER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let json = serde_json::json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l",
        "metadata": {"filter_metadata": {"a": {"b": [1, {"c": "d"}]}}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "s",
            "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "1s"}}]}]},
        }}]}],
    });
    CODEC.resource_from_json(&json).unwrap().value().to_vec()
});

#[test]
fn anys_in_anys_end() {
    use prost::Message;
    let type_url = "type.googleapis.com/google.protobuf.Any".to_owned();
    let mut any = prost_reflect::prost_types::Any { type_url: type_url.clone(), value: vec![] };
    for _ in 0..3000 {
        any = prost_reflect::prost_types::Any { type_url: type_url.clone(), value: any.encode_to_vec() };
    }
    let config = CODEC.message_from_json(
        "envoy.config.core.v3.TypedExtensionConfig",
        &serde_json::json!({"name": "n"}),
        xds_codec::UnknownFields::Refuse,
    );
    let mut bytes = config.unwrap().to_vec();
    prost::encoding::message::encode(2, &any, &mut bytes);
    let resource = CODEC.resource_from_any(ResourceType::ExtensionConfig.type_url(), &bytes).unwrap();
    let json = CODEC.to_json(&resource);
    assert_eq!(
        CODEC.resource_from_any(ResourceType::ExtensionConfig.type_url(), &resource.value()).unwrap().value(),
        resource.value()
    );
    assert!(json.to_string().contains("base64") || json.to_string().len() > 1000);
}

#[test]
fn what_the_codec_writes_every_reader_can_read() {
    // As deep as the codec lets through; prost's own limit is that of Envoy's reader.
    for depth in 1..60 {
        let nested = (0..depth).fold(serde_json::json!(1), |value, _| serde_json::json!({"k": value}));
        let listed = (0..depth).fold(serde_json::json!(1), |value, _| serde_json::json!([value]));
        for value in [nested, serde_json::json!({"k": listed})] {
            let body = serde_json::json!({
                "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a",
                "metadata": {"filter_metadata": {"m": value}},
            });
            if let Ok((resource, _)) = CODEC.resource_from_tree(&Tree::from_json(&body)) {
                assert!(
                    CODEC.message_to_json(resource.resource_type().type_url(), &resource.value()).is_ok(),
                    "{depth}"
                );
            }
        }
    }
}

#[test]
fn large_inputs_take_their_time_and_no_more() {
    let keys: String = (0..50_000).map(|n| format!("k{n}: {n}\n")).collect();
    swallow("f.yaml", keys.as_bytes());
    let line = format!("[{}1]", "1,".repeat(100_000));
    swallow("f.json", line.as_bytes());
    swallow("f.yaml", line.as_bytes());
    let merges = format!("a: &a {{{}}}\nb: {{<<: *a, {}}}\n", inline("x", 3_000), inline("y", 3_000));
    swallow("f.yaml", merges.as_bytes());
}

fn inline(prefix: &str, n_keys: usize) -> String {
    (0..n_keys).map(|n| format!("{prefix}{n}: 1")).collect::<Vec<_>>().join(", ")
}
