//! Secrets are in no text (pitfall 68).

use std::sync::LazyLock;

use serde_json::{Value, json};
use xds_cache::Resource;
use xds_codec::{Codec, Limits, REDACTED, json_diff, render};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIhunter2hunter2hunter2hunter2\n-----END PRIVATE KEY-----\n";

fn secret(name: &str, content: &Value) -> Resource {
    let mut body = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": name});
    for (key, value) in content.as_object().unwrap() {
        body[key] = value.clone();
    }
    CODEC.resource_from_json(&body).unwrap()
}

fn assert_hidden(text: &str) {
    for part in ["hunter2", "aHVudGVyMg", "PRIVATE"] {
        assert!(!text.contains(part), "{text}");
    }
}

#[test]
fn pitfall_68_secrets_are_in_no_json_and_no_debug() {
    let secrets = [
        secret(
            "tls",
            &json!({"tls_certificate": {
                "certificate_chain": {"inline_string": "public"}, "private_key": {"inline_string": KEY}, "password": {"inline_string": "hunter2"},
            }}),
        ),
        secret(
            "bytes",
            &json!({"tls_certificate": {"private_key": {"inline_bytes": "aHVudGVyMg=="}, "pkcs12": {"inline_bytes": "aHVudGVyMg=="}}}),
        ),
        secret(
            "tickets",
            &json!({"session_ticket_keys": {"keys": [{"inline_bytes": "aHVudGVyMg=="}, {"filename": "/keys/1"}]}}),
        ),
        secret(
            "generic",
            &json!({"generic_secret": {"secret": {"inline_string": "hunter2"}, "secrets": {"a": {"inline_string": "hunter2"}}}}),
        ),
        secret(
            "provider",
            &json!({"tls_certificate": {"private_key_provider": {"provider_name": "p", "typed_config": {
                "@type": "type.googleapis.com/google.protobuf.Struct", "value": {"pin": "hunter2", "list": ["hunter2", 2, {"x": "hunter2"}]},
            }}}}),
        ),
    ];
    for secret in &secrets {
        let json = CODEC.to_json(secret);
        assert_hidden(&json.to_string());
        assert_hidden(&CODEC.to_yaml(secret));
        assert_hidden(&format!("{secret:?} {CODEC:?}"));
        assert!(json.to_string().contains(REDACTED));
        assert!(CODEC.has_secrets(secret), "{json}");
        let shown = CODEC.to_json_with_secrets(secret).to_string();
        assert!(shown.contains("hunter2") || shown.contains("aHVudGVyMg"), "{shown}");
    }
    let tls = CODEC.to_json(&secrets[0]);
    assert_eq!(tls["tls_certificate"]["certificate_chain"]["inline_string"], "public");
    assert_eq!(tls["tls_certificate"]["private_key"], json!({"inline_string": REDACTED}));
    let tickets = CODEC.to_json(&secrets[2]);
    assert_eq!(
        tickets["session_ticket_keys"]["keys"],
        json!([{"inline_bytes": REDACTED}, {"filename": "/keys/1"}])
    );
}

#[test]
fn pitfall_68_secrets_inside_of_other_resources_are_hidden_too() {
    let socket = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": KEY}}]}});
    let cluster = json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c",
        "transport_socket": {"name": "tls", "typed_config": socket}});
    let resource = CODEC.resource_from_json(&cluster).unwrap();
    assert_hidden(&CODEC.to_json(&resource).to_string());
    assert!(CODEC.has_secrets(&resource));

    let routes = json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r",
        "request_headers_to_add": [{"header": {"key": "Authorization", "value": "Bearer hunter2"}}, {"header": {"key": "x-plain", "value": "seen"}}]});
    let resource = CODEC.resource_from_json(&routes).unwrap();
    assert!(CODEC.has_secrets(&resource));
    let json = CODEC.to_json(&resource);
    assert_hidden(&json.to_string());
    assert_eq!(json["request_headers_to_add"][1]["header"]["value"], "seen");
}

#[test]
fn the_first_secret_is_found_by_its_path_also_beside_a_version_without_one() {
    let routes = |header: &str, hosts: &[&str]| {
        let hosts: Vec<Value> = hosts
            .iter()
            .map(|name| {
                let header = if *name == "secret" { "cookie" } else { "x-plain" };
                json!({"name": name, "domains": [name], "response_headers_to_add": [{"header": {"key": header, "value": "v"}}]})
            })
            .collect();
        let json = json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r",
            "virtual_hosts": hosts, "request_headers_to_add": [{"header": {"key": header, "value": "v"}}]});
        CODEC.resource_from_json(&json).unwrap()
    };
    let free = routes("x-plain", &["a", "b"]);
    let of_host = Some("virtual_hosts[2].response_headers_to_add[0].header.value".to_owned());
    let table = [
        (routes("x-plain", &["a", "b"]), None),
        (routes("x-other", &["b", "c"]), None),
        (routes("cookie", &["a", "b"]), Some("request_headers_to_add[0].header.value".to_owned())),
        (routes("x-plain", &["a", "b", "secret"]), of_host.clone()),
        (routes("x-plain", &["c", "a", "secret"]), of_host),
    ];
    for (resource, expected) in table {
        assert_eq!(CODEC.secret_path(&resource), expected);
        assert_eq!(CODEC.secret_path_beside(&resource, &free), expected);
    }
    let key = secret("tls", &json!({"tls_certificate": {"private_key": {"inline_string": KEY}}}));
    assert_eq!(CODEC.secret_path(&key).as_deref(), Some("tls_certificate.private_key.inline_string"));
    let socket = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": KEY}}]}});
    let cluster = json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c",
        "transport_socket": {"name": "tls", "typed_config": socket}});
    let path = CODEC.secret_path(&CODEC.resource_from_json(&cluster).unwrap());
    let expected =
        "transport_socket.typed_config.common_tls_context.tls_certificates[0].private_key.inline_string";
    assert_eq!(path.as_deref(), Some(expected));
}

#[test]
fn what_names_the_place_of_a_secret_and_holds_none_is_not_secret() {
    let of_file = secret(
        "tls",
        &json!({"tls_certificate": {"certificate_chain": {"inline_string": "public"}, "private_key": {"filename": "/key"}}}),
    );
    let routes = json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "[redacted]",
        "request_headers_to_add": [{"header": {"key": "x-plain", "value": "seen"}}]});
    let bare = json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c"});
    for resource in
        [of_file, CODEC.resource_from_json(&routes).unwrap(), CODEC.resource_from_json(&bare).unwrap()]
    {
        assert!(!CODEC.has_secrets(&resource), "{}", CODEC.to_json(&resource));
    }
}

#[test]
fn pitfall_68_a_secret_that_cannot_be_decoded_is_hidden_whole() {
    let broken = CODEC.opaque_resource(
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "s",
        b"\xffhunter2".to_vec(),
    );
    assert_eq!(CODEC.to_json(&broken)["value"], REDACTED);
    assert!(CODEC.has_secrets(&broken));
    assert_hidden(&format!("{broken:?}"));
}

#[test]
fn pitfall_68_a_change_of_a_key_shows_as_no_value() {
    let make = |key: &str| {
        CODEC.to_json(&secret("s", &json!({"tls_certificate": {"private_key": {"inline_string": key}}})))
    };
    assert_eq!(json_diff(&make("hunter2"), &make("hunter2-new")), []);
}

#[test]
fn pitfall_68_secrets_are_in_no_diagnostic() {
    let texts = [
        "secrets:\n- name: s\n  tls_certificate:\n    private_key: {inline_string: [hunter2]}\n",
        "secrets:\n- name: s\n  tls_certificate:\n    private_key: hunter2\n",
        "secrets:\n- name: s\n  tls_certificate:\n    private_key: {inline_bytes: '!hunter2'}\n",
        "secrets:\n- name: s\n  tls_certificate:\n    password: {filename: 5, inline_string: hunter2}\n",
        "secrets:\n- name: s\n  tls_certificate:\n    private_key:\n      inline_string: hunter2\n      inline_bytes: hunter2\n",
        "secrets:\n- name: s\n  generic_secret:\n    secret: {inline_strin: hunter2}\n",
        "secrets:\n- name: s\n  tls_certificate:\n    private_key:\n      inline_string: |\n        -----BEGIN PRIVATE KEY-----\n     hunter2: x: y\n",
        "secrets:\n- name: s\n  session_ticket_keys: {keys: [hunter2]}\n",
        "secrets:\n- name: s\n  tls_certificate:\n    private_key: \"hunter2\n",
    ];
    for text in texts {
        let file = CODEC.decode_file("f.yaml", text.as_bytes(), &Limits::default());
        assert!(!file.all_diagnostics().is_empty(), "{text}");
        for diagnostic in file.all_diagnostics() {
            assert_hidden(&diagnostic.to_string());
            assert_hidden(&format!("{diagnostic:?}"));
            assert_hidden(&render(diagnostic, text, false));
        }
        assert_hidden(&format!("{file:?}"));
    }
}

#[test]
fn a_rendered_diagnostic_points_at_its_place() {
    let text = "clusters:\n- name: a\n  conect_timeout: 1s\n";
    let file = CODEC.decode_file("f.yaml", text.as_bytes(), &Limits::default());
    let rendered = render(file.all_diagnostics()[0], text, false);
    let expected = "error[unknown-field] conect_timeout: unknown field in envoy.config.cluster.v3.Cluster
  --> f.yaml:3:3
  |
3 |   conect_timeout: 1s
  |   ^
  = did you mean `connect_timeout`?
";
    assert_eq!(
        rendered.replace(" --> ", "  --> ").replace("   -->", "  -->"),
        expected.replace("  |\n3", "3")
    );
    assert!(render(file.all_diagnostics()[0], text, true).contains("\x1b[1;31merror"));
}

/// A route with a match of a header.
fn matching(header: &Value) -> Resource {
    let body = json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r", "virtual_hosts": [
        {"name": "h", "domains": ["*"], "routes": [{"match": {"prefix": "/", "headers": [header]}, "direct_response": {"status": 200}}]},
    ]});
    CODEC.resource_from_json(&body).unwrap()
}

#[test]
fn matches_of_credential_headers_show_no_value_and_are_no_secrets() {
    for name in ["authorization", "Authorization", "proxy-authorization", "X-Auth-Token", "x-api-key"] {
        for value in [
            json!({"string_match": {"exact": "Bearer hunter2"}}),
            json!({"string_match": {"safe_regex": {"regex": ".*hunter2.*"}}}),
            json!({"exact_match": "hunter2"}),
            json!({"prefix_match": "hunter2"}),
        ] {
            let mut header = json!({"name": name, "invert_match": true});
            header.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            let resource = matching(&header);
            let shown = CODEC.to_json(&resource);
            assert_hidden(&shown.to_string());
            assert_eq!(shown["virtual_hosts"][0]["routes"][0]["match"]["headers"][0]["name"], name);
            assert_eq!(shown["virtual_hosts"][0]["routes"][0]["match"]["headers"][0]["invert_match"], true);
            assert!(CODEC.to_json_with_secrets(&resource).to_string().contains("hunter2"));
            // Every client may be served it.
            assert!(!CODEC.has_secrets(&resource));
        }
    }
    // A cookie that a route matches chooses a backend.
    for name in ["x-user", "cookie"] {
        let shown = CODEC.to_json(&matching(&json!({"name": name, "exact_match": "hunter2"})));
        assert!(shown.to_string().contains("hunter2"), "{name}");
    }
}

#[test]
fn passwords_of_uris_entries_called_so_and_symmetric_keys_are_hidden() {
    let jwks = r#"{"keys": [{"kty": "oct", "k": "aHVudGVyMg"}]}"#;
    let listener = |config: Value| {
        let body = json!({"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "e", "typed_config": config});
        CODEC.resource_from_json(&body).unwrap()
    };
    let jwt = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication";
    let provider =
        |key: &str, value: &str| json!({"@type": jwt, "providers": {"p": {"local_jwks": {key: value}}}});
    let remote = |uri: &str| {
        let uri = json!({"uri": uri, "cluster": "c", "timeout": "1s"});
        json!({"@type": jwt, "providers": {"p": {"remote_jwks": {"http_uri": uri}}}})
    };
    let typed = |key: &str| json!({"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "a/b", "value": {"outer": {key: ["hunter2", {"x": "hunter2"}], "n": 1}}});
    for config in [
        provider("inline_string", jwks),
        remote("https://user:hunter2@id.example/keys"),
        remote("https://:hunter2@id.example"),
        typed("password"),
        typed("Client-Secret"),
        typed("token"),
        typed("private_key"),
    ] {
        let resource = listener(config.clone());
        assert_hidden(&CODEC.to_json(&resource).to_string());
        assert!(CODEC.to_json_with_secrets(&resource) != CODEC.to_json(&resource), "{config}");
    }
    for config in [
        provider("inline_string", r#"{"keys": [{"kty": "EC", "x": "hunter2"}]}"#),
        provider("filename", "/hunter2"),
        remote("https://id.example/a@hunter2:b"),
        remote("https://hunter2@id.example/"),
        typed("tokens_per_fill"),
    ] {
        let resource = listener(config.clone());
        assert_eq!(CODEC.to_json_with_secrets(&resource), CODEC.to_json(&resource), "{config}");
    }
    assert!(
        CODEC.has_secrets(&listener(provider("inline_string", jwks))),
        "whoever has the key can make tokens"
    );
}

#[test]
fn a_text_in_place_of_an_object_with_a_secret_is_not_echoed() {
    for content in [
        json!({"generic_secret": "hunter2"}),
        json!({"tls_certificate": "hunter2"}),
        json!({"session_ticket_keys": "hunter2"}),
        json!({"tls_certificate": {"private_key": "hunter2"}}),
    ] {
        let mut body = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "s"});
        body.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let text = json!({"resources": [body]}).to_string();
        let decoded = CODEC.decode_file("a.json", text.as_bytes(), &Limits::default());
        let found = decoded.all_diagnostics();
        assert!(!found.is_empty());
        for diagnostic in found {
            assert_hidden(&format!("{diagnostic} {}", render(diagnostic, &text, false)));
        }
    }
}
