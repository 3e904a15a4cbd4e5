//! Junk in the place of any value: nothing panics, and clients refuse nothing of what is left.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value as Json;
use xds_codec::{Limits, Syntax};
use xds_routes::{Options, read};

use crate::support::Reading;

use super::documents::worlds;
use super::{config, faults};

/// Values that fit somewhere, by type or by text, and trees of any shape.
fn junk() -> impl Strategy<Value = Json> {
    let texts = [
        "",
        "*",
        "/",
        "%",
        "a/b",
        "/a%2Fb",
        "%s%n",
        "(",
        "(?=a)",
        "(?i)a",
        "a|b",
        "\u{0}",
        "*.a",
        "é.example.com",
        "..",
        "0",
        "~x",
        "a:80",
        "a:0",
        "::1",
        "10.0.0.1",
        "255.255.255.255",
        "-----BEGIN CERTIFICATE-----",
        "1h",
        "99999h",
        "0s",
        "5%",
        "Exact",
        "RegularExpression",
        "HTTPS",
        "x-",
        ":path",
        "host",
        "grpc",
        "xds-server/unavailable",
        "a\nb",
        "\\",
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        select(vec![0, 1, -1, 80, 65_535, 65_536, 1_000_000, 1_000_001, i64::MAX, i64::MIN])
            .prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "\\PC{0,12}".prop_map(Json::from),
        select(texts.to_vec()).prop_map(Json::from),
        select(texts.to_vec()).prop_map(Json::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Json::from),
            vec(("[a-z/%]{0,6}", inner), 0..3).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// The JSON pointers of every value in a tree.
fn pointers(tree: &Json, at: &str, found: &mut Vec<String>) {
    let children: Vec<(String, &Json)> = match tree {
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| (format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), value))
            .collect(),
        Json::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (format!("{at}/{index}"), value)).collect()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Vec::new(),
    };
    for (at, value) in children {
        found.push(at.clone());
        pointers(value, &at, found);
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn junk_anywhere_breaks_nothing(
        mut documents in worlds(),
        changes in vec((any::<Index>(), any::<Index>(), junk()), 1..4),
    ) {
        prop_assume!(!documents.is_empty());
        for (document, place, value) in changes {
            let document = document.get_mut(&mut documents);
            let mut places = Vec::new();
            pointers(document, "", &mut places);
            // Kinds and versions are what makes them documents; junk there has tests of its own.
            places.retain(|place| !["/apiVersion", "/kind", "/version"].contains(&place.as_str()));
            if places.is_empty() {
                continue;
            }
            let place = place.get(places.as_slice());
            *document.pointer_mut(place).expect("a place") = value;
        }
        let mut reading = Reading::default();
        for document in &documents {
            let text = document.to_string();
            let Ok(trees) = xds_codec::parse("f.json", text.as_bytes(), Syntax::Json, &Limits::default()) else {
                continue;
            };
            trees.iter().for_each(|tree| reading.take(read(&"f.json".into(), tree, xds_routes::UnknownFields::Refuse)));
        }
        prop_assert_eq!(faults(&reading.translate(&Options::default())), Vec::<String>::new());
    }
}
