//! Core Secret and ConfigMap.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use xds_codec::document::TreeValue;

use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::meta::read_map;
use crate::model::{ConfigMap, Secret, Spec};

/// Reads a Secret: `data` and `stringData`, which wins if both have a key.
///
/// Messages never show more of a value than its type.
pub(crate) fn read_secret(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let since = reader.n_findings();
    let mut data = BTreeMap::new();
    for (field, encoding) in [("data", Encoding::Base64), ("stringData", Encoding::Plain)] {
        let Some(map) = document.take(field) else { continue };
        for (key, value) in entries_of(&map, reader) {
            let Some(text) = secret_text(&value, reader) else { continue };
            let Some(bytes) = encoding.decode(text) else {
                reader.error(
                    "bad-base64",
                    &value.spot,
                    "the value is not base64; write plain text under `stringData`",
                );
                continue;
            };
            data.insert(key.to_owned(), bytes);
        }
    }
    document.ignore(&["type", "immutable"]);
    reader.make_sensitive(since);
    Some(Spec::Secret(Secret { data: data.into_iter().collect() }))
}

/// Reads a ConfigMap. Routes do not need `binaryData`.
pub(crate) fn read_config_map(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let data = document.take("data").map(|data| read_map(&data, reader)).unwrap_or_default();
    document.ignore(&["binaryData", "immutable"]);
    Some(Spec::ConfigMap(ConfigMap { data }))
}

/// Reads a map of secrets. Anything else is an error that does not show the value.
fn entries_of<'t>(map: &Value<'t>, reader: &mut Reader) -> Vec<(&'t str, Value<'t>)> {
    if !map.is_object() {
        let message = format!("expected an object, found {}", map.tree.kind());
        reader.error("wrong-type", &map.spot, message);
        return Vec::new();
    }
    map.object(reader).map(|map| map.entries(reader)).unwrap_or_default()
}

/// Reads a secret text. Null is an empty text, as in Kubernetes.
fn secret_text<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    match value.tree.value() {
        TreeValue::String(text) => Some(text),
        TreeValue::Null => Some(""),
        TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::List(_) | TreeValue::Object(_) => {
            let message = format!("expected a string, found {}; write it in quotes", value.tree.kind());
            reader.error("wrong-type", &value.spot, message);
            None
        }
    }
}

/// How a value of a Secret is written.
#[derive(Clone, Copy)]
enum Encoding {
    Base64,
    Plain,
}

impl Encoding {
    /// Decodes a value. Base64 may have line breaks, as in many certificates.
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Base64 => {
                let joined: String = text.chars().filter(|one| !matches!(one, '\n' | '\r')).collect();
                STANDARD.decode(joined).ok()
            }
            Self::Plain => Some(text.as_bytes().to_vec()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::panic, reason = "helpers of tests")]
mod tests {
    use super::*;
    use crate::read::testing::{clean, diagnostics, outcomes};

    fn secret(body: &str) -> String {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: tls}}\n{body}")
    }

    #[test]
    fn data_is_decoded_and_string_data_wins() {
        let text = secret(
            "type: kubernetes.io/tls
immutable: true
data:
  tls.crt: |
    aGVs
    bG8=
  both: YQ==
  empty: ''
  nothing: null
stringData: {both: b, tls.key: kéy}",
        );
        let Spec::Secret(secret) = clean(&text) else { panic!("no Secret") };
        assert_eq!(secret.value("tls.crt"), Some(&b"hello"[..]));
        assert_eq!(secret.value("both"), Some(&b"b"[..]));
        assert_eq!(secret.value("tls.key"), Some("kéy".as_bytes()));
        assert_eq!((secret.value("empty"), secret.value("nothing")), (Some(&b""[..]), Some(&b""[..])));
        assert_eq!(secret.value("absent"), None);
    }

    #[test]
    fn no_message_shows_a_secret() {
        let bodies = [
            "data: {key: hunter2!}",
            "data: {key: 31337}",
            "data: {key: [hunter2]}",
            "data: {key: true}",
            "data: hunter2",
            "data: [hunter2]",
            "data: 31337",
            "stringData: {pin: 31337}",
            "stringData: {pin: {x: hunter2}}",
            "stringData: hunter2",
            "dta: {key: hunter2}",
            "stringdata: hunter2",
            "type: [hunter2]\ndata: {a: '='}",
        ];
        for body in bodies {
            let found = diagnostics(&secret(body));
            assert!(!found.is_empty(), "{body}");
            for finding in found {
                assert!(finding.is_sensitive, "{body}");
                let shown = finding.to_string();
                assert!(!shown.contains("hunter2") && !shown.contains("31337"), "{shown}");
            }
            let shown = format!("{:?}", outcomes(&secret(body)));
            assert!(!shown.contains("hunter2") && !shown.contains("31337"), "{shown}");
        }
    }

    #[test]
    fn a_config_map_has_texts() {
        let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: ca}, data: {ca.crt: PEM}, binaryData: {x: AA==}, immutable: false}";
        let Spec::ConfigMap(map) = clean(text) else { panic!("no ConfigMap") };
        assert_eq!(map.data, [("ca.crt".to_owned(), "PEM".to_owned())]);
    }
}
