//! Properties of every document, sensible or not.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use xds_codec::{Diagnostic, Tree};
use xds_routes::{ReadOutcome, read};

const KINDS: [&str; 6] =
    ["GRPCRoute", "HTTPRoute", "Gateway", "GatewayClass", "ReferenceGrant", "BackendTLSPolicy"];

/// Fields that mean something, so that values come deep into the readers.
const FIELDS: [&str; 56] = [
    "parentRefs",
    "hostnames",
    "rules",
    "matches",
    "method",
    "service",
    "type",
    "headers",
    "name",
    "value",
    "values",
    "filters",
    "requestHeaderModifier",
    "set",
    "add",
    "remove",
    "requestMirror",
    "percent",
    "fraction",
    "numerator",
    "backendRef",
    "backendRefs",
    "port",
    "weight",
    "group",
    "kind",
    "namespace",
    "sectionName",
    "path",
    "queryParams",
    "timeouts",
    "request",
    "backendRequest",
    "retry",
    "codes",
    "sessionPersistence",
    "cookie",
    "lifetimeType",
    "requestRedirect",
    "replacePrefixMatch",
    "urlRewrite",
    "cors",
    "allowOrigins",
    "listeners",
    "protocol",
    "tls",
    "certificateRefs",
    "allowedRoutes",
    "namespaces",
    "selector",
    "from",
    "to",
    "targetRefs",
    "validation",
    "extensionRef",
    "destination",
];

const TEXTS: [&str; 24] = [
    "",
    "a",
    "/",
    "/a/",
    "a.b",
    "*.a.b",
    "Exact",
    "RegularExpression",
    "PathPrefix",
    "(a|b)+",
    "[",
    "GET",
    "1s",
    "0h",
    "HTTP",
    "HTTPS",
    "Cookie",
    "Header",
    "Permanent",
    "RequestMirror",
    "RequestHeaderModifierFilter",
    "URLRewrite",
    "Service",
    "ä\u{0}",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..70_000).prop_map(Value::from),
        prop::sample::select(TEXTS.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 120, 6, |inner| {
        let fields = prop::collection::vec((prop::sample::select(FIELDS.to_vec()), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(Diagnostic::is_error)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_document_is_good_without_errors_or_bad_with_some(
        kind in prop::sample::select(KINDS.to_vec()),
        version in prop::sample::select(vec!["v1", "v1alpha2"]),
        spec in any_value(),
    ) {
        let api_version = format!("gateway.networking.k8s.io/{version}");
        let document = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let ReadOutcome::Objects(objects) = read(&"".into(), &Tree::from_json(&document), xds_routes::UnknownFields::Refuse) else {
            return Err(TestCaseError::fail("it has a kind and a name"));
        };
        prop_assert_eq!(objects.len(), 1);
        for object in objects {
            match object.outcome {
                Ok((read_document, diagnostics)) => {
                    prop_assert!(!has_errors(&diagnostics));
                    prop_assert_eq!(&read_document.source.json(), &document);
                }
                Err(diagnostics) => prop_assert!(has_errors(&diagnostics)),
            }
        }
    }
}
