//! The forms that a document can have (D5), and the objects in it.

use xds_cache::ResourceType;

use crate::diagnostic::{echo_name, nearest};
use crate::document::{Entries, Entry, Node, TreeValue};
use crate::finding::Finding;
use crate::path::Path;

/// A part of a document that can be used, or fail, independently.
pub(crate) enum Piece<'t> {
    /// A resource, wrapped or not.
    Resource { tree: Node<'t>, expected: Expected },
    /// A document of kind `NodeGroup`.
    NodeGroup(Node<'t>),
    /// A document of another kind, or in the native form. The API version is empty if a kind that needs none has none.
    Other { api_version: String, kind: String, tree: Node<'t> },
    /// None of these. The finding's path begins at the tree.
    Bad { tree: Node<'t>, finding: Finding },
    /// A note about the document.
    Note { tree: Node<'t>, finding: Finding },
}

/// Takes the pieces of a document one by one, because all of them together could take more memory than the document.
pub(crate) type Pieces<'p, 't> = &'p mut dyn FnMut(Piece<'t>);

/// The type of a resource by the list that contains it.
#[derive(Clone)]
pub(crate) enum Expected {
    /// None: the resource names its type.
    Nothing,
    /// Its type.
    Type(ResourceType),
    /// Its type, in `static_resources` of a bootstrap, where a listener needs no name.
    Static(ResourceType),
}

impl Expected {
    /// The type that the resource must have.
    pub(crate) fn resource_type(&self) -> Option<&ResourceType> {
        match self {
            Self::Nothing => None,
            Self::Type(resource_type) | Self::Static(resource_type) => Some(resource_type),
        }
    }
}

/// The end of the wrapper's type URL.
pub(crate) const WRAPPER_TYPE: &str = "/envoy.service.discovery.v3.Resource";

/// The API version of this program's kinds.
pub(crate) const OWN_API_VERSION: &str = "xds-server.io/v1";

/// The kinds of SMI. Its specification shows them without an `apiVersion`, and no other API has kinds with these names.
const KINDS_WITHOUT_VERSION: [&str; 2] = ["TrafficSplit", "HTTPRouteGroup"];

/// The sections of a native document. They have objects by name; lists of resources by type are lists.
const NATIVE_SECTIONS: [&str; 3] = ["listeners", "routes", "backends"];

/// Splits a document into its pieces, in the order of the text.
pub(crate) fn split<'t>(tree: Node<'t>, pieces: Pieces<'_, 't>) {
    match tree.value() {
        TreeValue::List(items) => items.for_each(|item| split(item, pieces)),
        TreeValue::Object(entries) => split_object(tree, entries, pieces),
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {
            let text = format!("expected an object, found {}", tree.kind());
            pieces(Piece::Bad { tree, finding: Finding::error("wrong-type", &Path::Root, text) });
        }
    }
}

fn split_object<'t>(tree: Node<'t>, entries: Entries<'t>, pieces: Pieces<'_, 't>) {
    let text = |key| tree.get(key).and_then(Node::as_str);
    if tree.get("@type").is_some() {
        let type_url = text("@type").unwrap_or_default();
        let is_collection = COLLECTION_TYPES
            .iter()
            .any(|name| type_url.strip_suffix(name).is_some_and(|start| start.ends_with('/')));
        if !is_collection {
            return pieces(Piece::Resource { tree, expected: Expected::Nothing });
        }
        return split_lists(tree, entries, pieces);
    }
    if tree.entry("apiVersion").is_some() || tree.entry("kind").is_some() {
        return split_kind(tree, pieces);
    }
    if let Some(version) = text("version").filter(|version| version.starts_with("xds-server/")) {
        let (api_version, kind) = (version.to_owned(), String::new());
        return pieces(Piece::Other { api_version, kind, tree });
    }
    if tree.get("resource").is_some() {
        return pieces(Piece::Resource { tree, expected: Expected::Nothing });
    }
    if NATIVE_SECTIONS.into_iter().any(|section| tree.get(section).is_some_and(Node::is_object)) {
        let text =
            "the document has no `version`; listeners, routes or backends by name belong to the native form";
        let finding = Finding::error("missing-version", &Path::Root, text);
        return pieces(Piece::Bad { tree, finding: finding.suggest(Some("version: xds-server/v1")) });
    }
    split_lists(tree, entries, pieces);
}

fn split_kind<'t>(tree: Node<'t>, pieces: Pieces<'_, 't>) {
    let text = |key| tree.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
    if let Some(kind) = text("kind").filter(|kind| KINDS_WITHOUT_VERSION.contains(kind))
        && tree.entry("apiVersion").is_none()
    {
        let (api_version, kind) = (String::new(), kind.to_owned());
        return pieces(Piece::Other { api_version, kind, tree });
    }
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        let missing = if text("apiVersion").is_none() { "apiVersion" } else { "kind" };
        let finding = Finding::error("missing-kind", &Path::Root, format!("the document has no `{missing}`"));
        return pieces(Piece::Bad { tree, finding });
    };
    if kind.ends_with("List")
        && let Some(items) = tree.get("items").and_then(Node::as_list)
    {
        return items.for_each(|item| split(item, pieces));
    }
    if api_version == OWN_API_VERSION && kind == "NodeGroup" {
        return pieces(Piece::NodeGroup(tree));
    }
    pieces(Piece::Other { api_version: api_version.to_owned(), kind: kind.to_owned(), tree });
}

/// Splits documents with lists of resources: a `resources` list, a bootstrap, lists by type.
fn split_lists<'t>(tree: Node<'t>, entries: Entries<'t>, pieces: Pieces<'_, 't>) {
    let list_type = read_list_type(tree, pieces);
    let has = |key: &str| {
        let mut entries = entries;
        entries.any(|entry| normal(entry.key) == key)
    };
    let (is_response, is_bootstrap) = (has("resources"), has("staticresources") || has("dynamicresources"));
    let mut n_lists = 0;
    let (mut ignored, mut n_ignored) = (Vec::new(), 0);
    for entry in entries {
        let key = normal(entry.key);
        if entry.key == "@type"
            || entry.key.starts_with("x-")
            || (is_response && RESPONSE_KEYS.contains(&&*key))
        {
            continue;
        }
        if key == "resources" {
            n_lists += 1;
            let expected = list_type.clone().map_or(Expected::Nothing, Expected::Type);
            split_list(tree, entry, &expected, pieces);
        } else if key == "staticresources" {
            n_lists += 1;
            split_static(entry, pieces);
        } else if is_bootstrap {
            n_ignored += 1;
            ignored.extend(Some(entry).filter(|_| n_ignored <= MAX_IGNORED));
        } else if let Some(resource_type) = type_of_list(&key) {
            n_lists += 1;
            split_list(tree, entry, &Expected::Type(resource_type), pieces);
        } else {
            n_lists += 1;
            pieces(Piece::Bad { tree, finding: unknown_key(entry) });
        }
    }
    if let Some(first) = ignored.first() {
        let names: Vec<_> = ignored.iter().map(|entry| echo_name(entry.key)).collect();
        let more = if n_ignored > names.len() { ", …" } else { "" };
        let text =
            format!("only `static_resources` of a bootstrap is read; ignored: {}{more}", names.join(", "));
        let finding = Finding::warning("bootstrap-part-ignored", &Path::Root, text).at(first.position);
        let finding = Finding { severity: crate::Severity::Info, ..finding };
        pieces(Piece::Note { tree, finding });
    }
    if n_lists == 0 && !is_bootstrap {
        let finding = Finding::error("unknown-form", &Path::Root, "the document contains no resources");
        pieces(Piece::Bad { tree, finding });
    }
}

/// The type of all resources in a discovery response.
fn read_list_type<'t>(tree: Node<'t>, pieces: Pieces<'_, 't>) -> Option<ResourceType> {
    let url = tree.get("type_url").or_else(|| tree.get("typeUrl"))?;
    let Some(type_url) = url.as_str() else {
        let text = format!("expected a type URL, found {}", url.kind());
        let finding = Finding::error("wrong-type", &Path::Root.field("type_url"), text).at(url.position());
        pieces(Piece::Bad { tree, finding });
        return None;
    };
    Some(ResourceType::from_type_url(type_url)).filter(|_| !type_url.is_empty())
}

fn split_static<'t>(entry: Entry<'t>, pieces: Pieces<'_, 't>) {
    for list in entry.value.entries() {
        match type_of_list(&normal(list.key)) {
            Some(resource_type) => split_list(entry.value, list, &Expected::Static(resource_type), pieces),
            None => pieces(Piece::Bad { tree: entry.value, finding: unknown_key(list) }),
        }
    }
    if !matches!(entry.value.value(), TreeValue::Object(_) | TreeValue::Null) {
        let text = format!("expected an object, found {}", entry.value.kind());
        let finding = Finding::error("wrong-type", &Path::Root.field("static_resources"), text);
        pieces(Piece::Bad { tree: entry.value, finding: finding.at(entry.value.position()) });
    }
}

fn split_list<'t>(tree: Node<'t>, entry: Entry<'t>, expected: &Expected, pieces: Pieces<'_, 't>) {
    let Some(items) = entry.value.as_list() else {
        if !entry.value.is_null() {
            let text = format!("expected a list, found {}", entry.value.kind());
            let finding =
                Finding::error("wrong-type", &Path::Root.field(entry.key), text).at(entry.value.position());
            pieces(Piece::Bad { tree, finding });
        }
        return;
    };
    for tree in items {
        // A list by type may contain wrappers too, which name the type inside.
        let is_wrapper = match tree.get("@type").and_then(Node::as_str) {
            Some(type_url) => type_url.ends_with(WRAPPER_TYPE),
            None => tree.get("resource").is_some(),
        };
        let expected = if is_wrapper { Expected::Nothing } else { expected.clone() };
        pieces(Piece::Resource { tree, expected });
    }
}

fn unknown_key(entry: Entry<'_>) -> Finding {
    let key = entry.key.chars().take(80).collect::<String>();
    let names =
        ResourceType::KNOWN.iter().map(ResourceType::slug).chain(["resources", "static_resources", "@type"]);
    let path = Path::Root.field(&key);
    Finding::error("unknown-form", &path, "this is not the key of a list of resources")
        .at(entry.position)
        .suggest(nearest(entry.key, names))
}

/// The type of the list with this key, in any spelling.
fn type_of_list(normal_key: &str) -> Option<ResourceType> {
    ResourceType::KNOWN.into_iter().find(|known| known.slug().replace('-', "") == normal_key)
}

/// A key in a form that is the same for snake, kebab and camel case.
fn normal(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// The limit of ignored keys in a message.
const MAX_IGNORED: usize = 20;

/// Messages that contain resources, but are no resources.
const COLLECTION_TYPES: [&str; 3] = [
    "envoy.service.discovery.v3.DiscoveryResponse",
    "envoy.service.discovery.v3.DeltaDiscoveryResponse",
    "envoy.config.bootstrap.v3.Bootstrap",
];

/// The keys that are allowed next to `resources`, in normal form. They describe a response, not the resources.
const RESPONSE_KEYS: [&str; 9] = [
    "versioninfo",
    "nonce",
    "typeurl",
    "controlplane",
    "canary",
    "systemversioninfo",
    "removedresources",
    "removedresourcenames",
    "resourceerrors",
];
