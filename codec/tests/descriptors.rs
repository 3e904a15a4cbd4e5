//! The checked-in descriptor set is the one that the generator makes of the `envoy-types` in use.

use std::fs;
use std::path::Path;

use xds_codec::{Codec, CodecError, ENVOY_TYPES_VERSION};

#[path = "../examples/gen-descriptors/compile.rs"]
mod compile;

#[test]
fn the_set_was_made_of_the_version_in_the_lock_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let lock = fs::read_to_string(root).unwrap();
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"envoy-types\"")).unwrap();
    assert!(
        entry.contains(&format!("version = \"{ENVOY_TYPES_VERSION}\"")),
        "envoy-types was updated: run `cargo run --release -p xds-codec --example gen-descriptors`"
    );
}

#[test]
fn the_set_is_what_the_generator_makes() {
    let envoy_types = compile::find_envoy_types().unwrap();
    if !envoy_types.directory.join("proto").is_dir() {
        println!("the sources of envoy-types are not here: not compared");
        return;
    }
    assert_eq!(envoy_types.version, ENVOY_TYPES_VERSION);
    let expected = compile::compile(&envoy_types.directory).unwrap();
    let codec = Codec::new().unwrap();
    assert!(
        codec.descriptor_set() == expected,
        "run `cargo run --release -p xds-codec --example gen-descriptors`"
    );
}

#[test]
fn the_set_has_what_envoy_types_lacks() {
    let codec = Codec::new().unwrap();
    for name in [
        "xds.type.v3.TypedStruct",
        "udpa.type.v1.TypedStruct",
        "envoy.service.discovery.v3.DiscoveryRequest",
        "envoy.service.status.v3.ClientConfig",
        "envoy.service.load_stats.v3.LoadStatsRequest",
        "envoy.config.bootstrap.v3.Bootstrap",
    ] {
        assert!(codec.pool().get_message_by_name(name).is_some(), "{name}");
    }
    assert!(
        codec
            .pool()
            .services()
            .any(|service| service.full_name() == "envoy.service.discovery.v3.AggregatedDiscoveryService")
    );
}

#[test]
fn users_add_types_of_their_own() {
    use prost::Message;
    use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
    let message = DescriptorProto { name: Some("Thing".to_owned()), ..DescriptorProto::default() };
    let file = FileDescriptorProto {
        name: Some("my/thing.proto".to_owned()),
        package: Some("my".to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    let codec = Codec::with_descriptor_sets(&[set.clone().into()]).unwrap();
    assert!(codec.pool().get_message_by_name("my.Thing").is_some());
    assert!(codec.descriptor_set().ends_with(&set));
    let body = serde_json::json!({"name": "t", "resource": {"@type": "type.googleapis.com/my.Thing"}});
    assert_eq!(&**codec.resource_from_json(&body).unwrap().name(), "t");

    let error = Codec::with_descriptor_sets(&[set.into(), vec![0xff].into()]).unwrap_err();
    assert!(matches!(error, CodecError::UserDescriptors { index: 1, .. }), "{error}");
}

#[test]
fn the_configuration_of_route_lookup_is_built_in() {
    let codec = Codec::new().unwrap();
    let plugin = serde_json::json!({
        "@type": "type.googleapis.com/grpc.lookup.v1.RouteLookupClusterSpecifier",
        "route_lookup_config": {
            "grpc_keybuilders": [{"names": [{"service": "shop.Cart"}], "headers": [{"key": "user", "names": ["x-user"]}]}],
            "lookup_service": "dns:///lookup:443", "max_age": "60s", "cache_size_bytes": "1000", "default_target": "cart",
        },
    });
    let routes = serde_json::json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r",
        "cluster_specifier_plugins": [{"extension": {"name": "rls", "typed_config": plugin}}],
    });
    let resource = codec.resource_from_json(&routes).unwrap();
    let shown = codec.to_json(&resource);
    let config = &shown["cluster_specifier_plugins"][0]["extension"]["typed_config"]["route_lookup_config"];
    assert_eq!((&config["max_age"], &config["cache_size_bytes"]), (&"60s".into(), &"1000".into()), "{shown}");
}
