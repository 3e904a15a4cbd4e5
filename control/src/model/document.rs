//! Route documents between the server and the API: their owners, their conditions, and how they are shown.
//!
//! A document is shown without secrets ([`redacted`]).

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};
use xds_access::Scope;
use xds_cache::{GroupName, OrdMap};
use xds_codec::{REDACTED, has_userinfo, is_credential_header, is_hidden_in_matches};
use xds_routes::conditions::{ConditionType, ObjectStatus, ParentStatus, Truth};
use xds_routes::{Condition, Document, DocumentKey, Documents, Kind, Options, Translation};

use crate::model::weights::Overrides;

/// The documents of one source, by key. A copy shares what it has with the original.
pub type GroupedDocuments = OrdMap<DocumentKey, GroupedDocument>;

/// A document and the node group that its place gives it.
#[derive(Clone, Debug)]
pub struct GroupedDocument {
    /// The document.
    pub document: Arc<Document>,
    /// The group of its directory, or that of the call that applied it.
    pub group: GroupName,
    /// What the caller might touch who applied a test; `None` for everything. The policy of the test counts for nothing else.
    pub scope: Option<Arc<Scope>>,
}

impl DocumentState {
    /// A document as it was written, without the weights that are laid over it: the API's, else the file's.
    #[must_use]
    pub fn written(&self, key: &DocumentKey) -> Option<&GroupedDocument> {
        self.owned.get(key).or_else(|| self.files.get(key))
    }
}

impl PartialEq for GroupedDocument {
    /// Compares what the documents say only if they are not the very same, as almost all of two loads are.
    fn eq(&self, other: &Self) -> bool {
        self.group == other.group
            && (Arc::ptr_eq(&self.document, &other.document) || self.document == other.document)
    }
}

impl GroupedDocument {
    /// A document of a file, or of a caller who might touch everything.
    #[must_use]
    pub fn new(document: Arc<Document>, group: GroupName) -> Self {
        Self { document, group, scope: None }
    }

    /// Returns `true` if both say the same for the same group, wherever it is written.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.group == other.group && self.document.source == other.document.source
    }
}

/// All documents at one time, and their translation.
#[derive(Clone, Debug, Default)]
pub struct DocumentState {
    /// The documents of the files.
    pub files: Arc<GroupedDocuments>,
    /// The documents of the API; they lie over those of the files.
    pub owned: Arc<GroupedDocuments>,
    /// The weights that the API lays over those of rules, of documents and of RouteConfigurations.
    pub weights: Arc<Overrides>,
    /// The translation of all documents together.
    pub translated: Arc<Translated>,
    /// How documents are translated.
    pub options: Arc<Options>,
}

/// Since when each condition of an object has its status, in the order of [`conditions`]; only of objects that have some.
pub type ConditionAges = OrdMap<DocumentKey, Arc<[SystemTime]>>;

/// The translation of documents, with the times of their conditions.
#[derive(Debug, Default)]
pub struct Translated {
    /// The documents that count: those of the API, and those of the files that these do not hide; with overrides of weights
    /// laid over what they say, though not over their source.
    pub documents: Documents,
    /// The translation.
    pub translation: Translation,
    /// Since when every condition has its present status.
    pub since: ConditionAges,
}

impl Translated {
    /// All conditions of an object, each with the part of the object that it is about, and the time since when it has its status.
    pub fn conditions(
        &self,
        key: &DocumentKey,
    ) -> impl Iterator<Item = (ConditionPart, &Condition, SystemTime)> {
        let status = self.translation.conditions.objects.get(key);
        let since = self.since.get(key).into_iter().flat_map(|since| since.iter().copied());
        let conditions = status.into_iter().flat_map(|status| conditions(status)).zip(since);
        conditions.map(|((part, condition), since)| (part, condition, since))
    }
}

/// The part of an object that a condition is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionPart {
    /// The whole object.
    Object,
    /// Its relation to a parent: the parent, `sectionName` and `port` of the reference.
    Parent(String, Option<String>, Option<u16>),
    /// The listener with this name.
    Listener(String),
}

impl ConditionPart {
    /// The part that is about a parent.
    #[must_use]
    pub fn of_parent(parent: &ParentStatus) -> Self {
        Self::Parent(parent.parent.clone(), parent.section.clone(), parent.port)
    }
}

/// All conditions of an object, each with the part of the object that it is about.
pub fn conditions(status: &ObjectStatus) -> impl Iterator<Item = (ConditionPart, &Condition)> {
    let own = status.conditions.iter().map(|condition| (ConditionPart::Object, condition));
    let parents = status.parents.iter().flat_map(|parent| {
        parent.conditions.iter().map(|condition| (ConditionPart::of_parent(parent), condition))
    });
    let listeners = status.listeners.iter().flat_map(|listener| {
        listener
            .conditions
            .iter()
            .map(|condition| (ConditionPart::Listener(listener.name.clone()), condition))
    });
    own.chain(parents).chain(listeners)
}

/// Returns `true` if a condition of this type and status needs no attention: most are good if they hold, some if they do not.
#[must_use]
pub fn is_fine(kind: &str, status: &str) -> bool {
    let is_bad_if_true = BAD_IF_TRUE.iter().any(|bad| bad.as_str() == kind);
    let wanted = if is_bad_if_true { Truth::False } else { Truth::True };
    status == wanted.to_string()
}

/// The conditions that are bad news if they hold.
const BAD_IF_TRUE: [ConditionType; 3] =
    [ConditionType::Conflicted, ConditionType::OverlappingTlsConfig, ConditionType::PartiallyInvalid];

/// How a document is called in answers, paths and the history: `document/{kind}/{namespace}/{name}`, with `-` for the namespace
/// of a kind that has none.
#[must_use]
pub fn what(key: &DocumentKey) -> String {
    format!("document/{}/{}/{}", key.kind, namespace(key), key.name)
}

/// The namespace as paths write it: `-` for a kind that has none.
#[must_use]
pub fn namespace(key: &DocumentKey) -> &str {
    if key.namespace.is_empty() { NO_NAMESPACE } else { &key.namespace }
}

/// Stands for the namespace of kinds that have none.
pub const NO_NAMESPACE: &str = "-";

/// A document without its secrets: the values of a Secret, and credentials in headers.
#[must_use]
pub fn redacted(document: &Document) -> Value {
    redact(document.key.kind, &document.source.json())
}

/// Redacts a document that is only known as JSON.
#[must_use]
pub fn redact(kind: Kind, source: &Value) -> Value {
    let mut shown = source.clone();
    if let Some(Value::Object(annotations)) = shown.pointer_mut("/metadata/annotations")
        && let Some(copy) = annotations.get_mut(LAST_APPLIED)
    {
        *copy = REDACTED.into();
    }
    if kind != Kind::Secret {
        hide_credentials(&mut shown);
        return shown;
    }
    if let Value::Object(fields) = &mut shown {
        hide_but(fields, &SHOWN_OF_SECRETS);
    }
    if let Some(Value::Object(metadata)) = shown.get_mut("metadata") {
        hide_but(metadata, &SHOWN_OF_METADATA);
    }
    shown
}

/// Hides the values of all fields but some: of a map with values of its own, the names stay. A field that is misspelt, or was
/// indented too little or too far, may hold a key as well.
fn hide_but(fields: &mut Map<String, Value>, shown: &[&str]) {
    for (_, value) in fields.iter_mut().filter(|(name, _)| !shown.contains(&name.as_str())) {
        match value {
            Value::Object(values) => values.values_mut().for_each(|value| *value = REDACTED.into()),
            Value::Null => {}
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                *other = REDACTED.into();
            }
        }
    }
}

/// The fields of a Secret that are not secret.
const SHOWN_OF_SECRETS: [&str; 5] = ["apiVersion", "kind", "metadata", "type", "immutable"];

/// The metadata that every document may have.
const SHOWN_OF_METADATA: [&str; 8] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "uid",
];

/// Where `kubectl apply` keeps a copy of the whole document.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values of headers with credentials wherever headers are set, added, matched or sent, and texts with a password in a URI.
///
/// Headers stand as `{name, value}`, `{key, value}` or `name: value`, in the words of the Gateway API (`set`, `add`, `headers`), of SMI, of
/// the native form (`set_headers` and the like) and of tests (`additional_request_headers`, `request_header_matches`, `curl`).
fn hide_credentials(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let word = key.to_ascii_lowercase().replace('_', "");
                if word == "set" || word == "add" || (word.ends_with("headers") && word != "headers") {
                    hide_headers(value, is_credential_header);
                } else if word == "headers"
                    || word.ends_with("headermatches")
                    || word.ends_with("headerfields")
                {
                    hide_headers(value, is_hidden_in_matches);
                } else if word == "curl" && value.as_str().is_some_and(sends_credential) {
                    *value = REDACTED.into();
                }
                hide_credentials(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_credentials),
        Value::String(text) if has_userinfo(text) => *value = REDACTED.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Hides the values of headers with such names.
fn hide_headers(headers: &mut Value, is_secret: fn(&str) -> bool) {
    match headers {
        Value::Array(items) => items.iter_mut().for_each(|item| hide_headers(item, is_secret)),
        Value::Object(fields) => {
            let name = ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str());
            if name.is_some_and(is_secret) {
                let hidden = fields.iter_mut().filter(|(key, _)| !SHOWN_OF_HEADERS.contains(&key.as_str()));
                hidden.for_each(|(_, value)| *value = REDACTED.into());
            }
            for (name, value) in fields.iter_mut() {
                if is_secret(name) {
                    *value = REDACTED.into();
                } else if name == "values" {
                    hide_headers(value, is_secret);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` if a command line of curl sends a credential, or may.
fn sends_credential(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let mut names = command.split([':', ';']).filter_map(|before| {
        before.rsplit(|begin: char| begin.is_whitespace() || begin == '\'' || begin == '"').next()
    });
    words.any(|word| word.starts_with("-u") || word.starts_with("--user") || word.starts_with("--oauth2"))
        || names.any(|name| is_hidden_in_matches(name.trim_start_matches("-H")))
}

/// The fields of a header that say nothing of its value.
const SHOWN_OF_HEADERS: [&str; 8] = [
    "name",
    "key",
    "type",
    "present_match",
    "presentMatch",
    "invert_match",
    "invertMatch",
    "treat_missing_header_as_empty",
];

/// The hash of what a document says and for which group; where it is written, and the order of its keys, do not count.
#[must_use]
pub fn content_hash(document: &Document, group: &GroupName) -> String {
    document.source.version(group).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let source = json!({
            "kind": "Secret",
            "metadata": {"name": "s", "annotations": {LAST_APPLIED: "{\"data\": 1}", "a": "b"}},
            "type": "Opaque",
            "data": {"tls.key": "aHVudGVy"},
            "stringData": {"password": "hunter2"},
        });
        let shown = redact(Kind::Secret, &source);
        assert_eq!(
            shown,
            json!({
                "kind": "Secret",
                "metadata": {"name": "s", "annotations": {LAST_APPLIED: REDACTED, "a": "b"}},
                "type": "Opaque",
                "data": {"tls.key": REDACTED},
                "stringData": {"password": REDACTED},
            })
        );
        assert_eq!(redact(Kind::Secret, &json!({"data": "hunter2"})), json!({"data": REDACTED}));
        let misplaced = json!({
            "strnigData": {"tls.key": "hunter2"},
            "tls.key": "hunter2",
            "metadata": {"name": "s", "stringData": {"tls.key": {"a": "hunter2"}}, "tls.key": ["hunter2"]},
        });
        let shown = redact(Kind::Secret, &misplaced);
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
        assert_eq!(shown["metadata"]["name"], "s");
        assert_eq!(redact(Kind::ConfigMap, &json!({"data": {"a": "b"}})), json!({"data": {"a": "b"}}));
    }

    #[test]
    fn credentials_in_headers_are_not_shown() {
        let source = json!({"filters": [{"set": [
            {"name": "Authorization", "value": "Bearer hunter2"}, {"name": "x-a", "value": "1"},
        ]}], "headers": {"add": {"x-api-key": "hunter2", "x-b": "2"}}});
        let shown = redact(Kind::HttpRoute, &source);
        assert_eq!(
            shown,
            json!({"filters": [{"set": [
                {"name": "Authorization", "value": REDACTED}, {"name": "x-a", "value": "1"},
            ]}], "headers": {"add": {"x-api-key": REDACTED, "x-b": "2"}}})
        );
    }

    /// Every form in which a document may have a header.
    #[test]
    fn credentials_in_matches_and_tests_are_not_shown() {
        for source in [
            json!({"matches": [{"headers": [{"type": "Exact", "name": "Authorization", "value": "hunter2"}]}]}),
            json!({"matches": [{"headers": {"values": {"authorization": "hunter2"}}}]}),
            json!({"spec": {"matches": [{"headers": [{"x-api-key": "hunter2"}]}]}}),
            json!({"spec": {"matches": [{"headers": {"x-auth-token": "hunter2"}}]}}),
            json!({"request": {"headers": {"authorization": ["Bearer hunter2"]}}}),
            json!({"request": {"curl": "curl -H 'Authorization: Bearer hunter2' http://a/"}}),
            json!({"request": {"curl": "curl -HX-Api-Key:hunter2 http://a/"}}),
            json!({"request": {"curl": "curl -u a:hunter2 http://a/"}}),
            json!({"request": {"curl": "curl http://a:hunter2@b/"}}),
            json!({"input": {"additional_request_headers": [{"key": "authorization", "value": "hunter2"}]}}),
            json!({"input": {"additionalRequestHeaders": [{"key": "x-api-key", "value": "hunter2"}]}}),
            json!({"validate": {"request_header_matches": [
                {"name": "authorization", "string_match": {"exact": "hunter2"}},
            ]}}),
            json!({"validate": {"requestHeaderFields": [{"key": "authorization", "value": "hunter2"}]}}),
        ] {
            let shown = redact(Kind::RouteTest, &source).to_string();
            assert!(!shown.contains("hunter2") && shown.contains(REDACTED), "{shown}");
        }
        for source in [
            json!({"matches": [{"headers": [{"name": "cookie", "value": "a=b"}, {"name": "x-a", "value": "b"}]}]}),
            json!({"request": {"curl": "curl -H 'x-user: a' 'http://a/?authorization=b'"}}),
            json!({"mirror": "http://a/b@c"}),
        ] {
            assert_eq!(redact(Kind::RouteTest, &source), source);
        }
    }

    #[test]
    fn credentials_of_the_native_form_are_not_shown() {
        let source = json!({"routes": {"r": {
            "match": {"headers": {"authorization": "Bearer hunter2", "cookie": "~a=b"}},
            "set_headers": {"authorization": "Bearer hunter2", "x-a": "1"},
            "add_response_headers": {"set-cookie": "hunter2"},
        }}});
        let shown = redact(Kind::Route, &source);
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
        assert_eq!(shown["routes"]["r"]["match"]["headers"]["cookie"], "~a=b");
        assert_eq!(shown["routes"]["r"]["set_headers"]["x-a"], "1");
    }

    #[test]
    fn a_copy_in_an_annotation_is_not_shown_of_any_kind() {
        let source = json!({"metadata": {"annotations": {LAST_APPLIED: "hunter2"}}});
        assert!(!redact(Kind::HttpRoute, &source).to_string().contains("hunter2"));
    }

    #[test]
    fn conditions_are_fine_or_not_by_their_type() {
        for (kind, status, expected) in [
            ("Accepted", "True", true),
            ("Accepted", "False", false),
            ("Accepted", "Unknown", false),
            ("Conflicted", "False", true),
            ("PartiallyInvalid", "True", false),
        ] {
            assert_eq!(is_fine(kind, status), expected, "{kind} {status}");
        }
    }
}
