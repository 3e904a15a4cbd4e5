//! Reads a [`Resource`] from a tree, JSON or bytes, with all checks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use xds_cache::wire::Fields;
use xds_cache::{Name, Origin, References, Resource, ResourceDraft, ResourceKey, ResourceType};

use crate::Codec;
use crate::convert::known::{opaque_value, parse_duration};
use crate::convert::{Converter, UnknownFields};
use crate::diagnostic::{Diagnostic, Severity, echo_name, nearest};
use crate::document::{Node, Position, Tree};
use crate::finding::{Deprecated, Finding, Findings};
use crate::form::{Expected, WRAPPER_TYPE};
use crate::inner::TYPE_PREFIX;
use crate::message::{Message, child, number, text};
use crate::path::Path;
use crate::{checks, encode, lint, references};

/// The outcome of reading a resource.
pub(crate) enum Read {
    /// Type and name are known. The outcome is the resource with its warnings, or its faults and the number of further faults.
    Keyed {
        key: ResourceKey,
        outcome: Result<(Box<Resource>, Vec<Diagnostic>), Vec<Diagnostic>>,
        n_more: usize,
    },
    /// Type and name cannot be read.
    Unreadable(Vec<Diagnostic>),
}

/// The context in which a resource is read.
pub(crate) struct Surroundings<'a> {
    /// The file; empty for a body.
    pub(crate) file: &'a Arc<str>,
    /// True if the resource is from a file.
    pub(crate) is_file: bool,
    /// The type by the surrounding list.
    pub(crate) expected: &'a Expected,
    /// The deprecated fields that the file's resources set.
    pub(crate) deprecated: &'a mut Deprecated,
}

/// The fields of `envoy.service.discovery.v3.Resource` around a resource.
#[derive(Default)]
struct Wrapper {
    name: Option<String>,
    ttl: Option<Duration>,
    aliases: Vec<Name>,
}

impl Codec {
    /// Reads a resource from a body in JSON, or in YAML that was parsed as JSON: an object with `@type`, or the wrapper
    /// `envoy.service.discovery.v3.Resource`. Warnings are dropped. [`Diagnostic::path`] is the field path.
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn resource_from_json(&self, json: &serde_json::Value) -> Result<Resource, Vec<Diagnostic>> {
        self.resource_from_tree(&Tree::from_json(json)).map(|(resource, _)| resource)
    }

    /// Like [`resource_from_json`](Self::resource_from_json), from a tree and with its warnings.
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn resource_from_tree(&self, tree: &Tree) -> Result<(Resource, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut deprecated = Deprecated::default();
        let file = "".into();
        let expected = &Expected::Nothing;
        let around = Surroundings { file: &file, is_file: false, expected, deprecated: &mut deprecated };
        match self.read_resource(tree.root(), around) {
            Read::Keyed { outcome, .. } => outcome.map(|(resource, warnings)| (*resource, warnings)),
            Read::Unreadable(diagnostics) => Err(diagnostics),
        }
    }

    /// Reads a resource from a type URL and encoded bytes. The bytes are made canonical; unknown fields stay. For a type without descriptor,
    /// the name cannot be read: use [`opaque_resource`](Self::opaque_resource).
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn resource_from_any(&self, type_url: &str, bytes: &[u8]) -> Result<Resource, Vec<Diagnostic>> {
        let file: Arc<str> = "".into();
        let nowhere = Tree::null(Position::default());
        let fail =
            |code, text: String| vec![Finding::error(code, &Path::Root, text).locate(&file, nowhere.root())];
        let resource_type = ResourceType::from_type_url(type_url);
        let Some(descriptor) = self.inner.message_of_url(type_url) else {
            return Err(fail("unknown-type", format!("unknown type {}", echo_name(type_url))));
        };
        let message = encode::canonical(&self.inner, &descriptor, &Bytes::copy_from_slice(bytes));
        let message = message.ok_or_else(|| {
            fail(
                "bad-bytes",
                format!("the bytes are not a valid {}", echo_name(resource_type.message_name())),
            )
        })?;
        let Some(name) = name_field(&resource_type).and_then(|field| text(&message, field)) else {
            return Err(fail("missing-name", "the resource has no name".to_owned()));
        };
        let key = ResourceKey { resource_type, name: name.into() };
        let mut findings = Findings::default();
        checks::check(&self.inner, &message, &mut findings);
        if findings.has_errors() {
            let mut diagnostics = findings.locate(&file, nowhere.root());
            diagnostics.retain(Diagnostic::is_error);
            return Err(diagnostics);
        }
        self.finish(key, &message, Wrapper::default(), Origin::Api)
            .map_err(|finding| vec![finding.locate(&file, nowhere.root())])
    }

    /// The name in encoded bytes, which may be no valid resource; `None` if there is none.
    #[must_use]
    pub fn name_in(&self, type_url: &str, bytes: &[u8]) -> Option<String> {
        let descriptor = self.inner.message_of_url(type_url)?;
        let number =
            descriptor.get_field_by_name(name_field(&ResourceType::from_type_url(type_url))?)?.number();
        let named = Fields::of(bytes).flatten().filter(|field| field.number == number);
        named.filter_map(|field| field.text().ok().map(str::to_owned)).last()
    }

    /// A resource with unchanged bytes, for a type without descriptor or name field.
    #[must_use]
    pub fn opaque_resource(&self, type_url: &str, name: &str, bytes: impl Into<Bytes>) -> Resource {
        Resource::plain(ResourceType::from_type_url(type_url), name, bytes)
    }

    /// Reads a resource with or without its wrapper.
    pub(crate) fn read_resource(&self, tree: Node<'_>, around: Surroundings<'_>) -> Read {
        let fail = |finding: Finding| Read::Unreadable(vec![finding.locate(around.file, tree)]);
        if !tree.is_object() {
            let text = format!("expected a resource, found {}", tree.kind());
            return fail(Finding::error("wrong-type", &Path::Root, text));
        }
        let is_wrapper = match tree.get("@type").and_then(Node::as_str) {
            Some(type_url) => type_url.ends_with(WRAPPER_TYPE),
            None => tree.get("resource").is_some() && around.expected.resource_type().is_none(),
        };
        if !is_wrapper {
            return self.read_bare(tree, Wrapper::default(), around);
        }
        let mut findings = Findings::default();
        let wrapper = read_wrapper(tree, &mut findings);
        if findings.has_errors() {
            return Read::Unreadable(findings.locate(around.file, tree));
        }
        match tree.get("resource") {
            Some(resource) => self.read_bare(resource, wrapper, around),
            None => fail(Finding::error("missing-resource", &Path::Root, "the wrapper has no `resource`")),
        }
    }

    fn read_bare(&self, tree: Node<'_>, wrapper: Wrapper, around: Surroundings<'_>) -> Read {
        let resource_type = match self.read_type(tree, around.expected.resource_type()) {
            Ok(resource_type) => resource_type,
            Err(findings) => return Read::Unreadable(findings.locate(around.file, tree)),
        };
        let is_unnamed = is_unnamed_static_listener(tree, around.expected);
        let derived = if is_unnamed { self.derived_name(tree) } else { None };
        let key = match (read_key(resource_type, tree, &wrapper), &derived) {
            (Ok(key), _) => key,
            (Err(_), Some(name)) => {
                ResourceKey { resource_type: ResourceType::Listener, name: name.as_str().into() }
            }
            (Err(fault), None) => {
                let (resource_type, finding) = *fault;
                let finding = finding.suggest(is_unnamed.then_some("name: listener_0"));
                return Read::Unreadable(self.nameless((resource_type, finding), tree, &around));
            }
        };
        let origin = if around.is_file {
            let (line, column) = {
                let Position { line, column } = tree.position();
                (line, column)
            };
            Origin::File { path: Arc::clone(around.file), line, column }
        } else {
            Origin::Api
        };
        let Some(descriptor) = self.inner.message_of_url(key.resource_type.type_url()) else {
            let value = opaque_value(tree.entries()).unwrap_or_default().into();
            let draft = draft(key.clone(), value, References::default(), wrapper, origin);
            return Read::Keyed { key, outcome: Ok((Box::new(Resource::new(draft)), Vec::new())), n_more: 0 };
        };
        let mut converter = Converter::new(&self.inner, UnknownFields::Refuse);
        let mut message = converter.convert(&descriptor, tree);
        let mut findings = converter.findings;
        if let Some(name) = derived {
            let text = format!(
                "the listener has no `name`, so it is named {} after its address; set `name` to make that explicit",
                echo_name(&name)
            );
            let finding = Finding::warning("derived-name", &Path::Root, text);
            findings.push(Finding { severity: Severity::Info, ..finding });
            message = named(&message, &name);
        }
        check_wrapper_name(&key, tree, &wrapper, &mut findings);
        if !findings.has_errors() {
            checks::check(&self.inner, &message, &mut findings);
        }
        around.deprecated.append(std::mem::take(&mut findings.deprecated));
        let is_bad = findings.has_errors();
        let (diagnostics, n_more) = findings.locate_some(around.file, tree);
        if is_bad {
            return Read::Keyed { key, outcome: Err(diagnostics), n_more };
        }
        let outcome = match self.finish(key.clone(), &message, wrapper, origin) {
            Ok(resource) => Ok((Box::new(resource), diagnostics)),
            Err(finding) => Err(vec![finding.locate(around.file, tree)]),
        };
        Read::Keyed { key, outcome, n_more }
    }

    /// The name `{address}_{port}` of a listener. Faults of the address are reported later.
    fn derived_name(&self, tree: Node<'_>) -> Option<String> {
        let descriptor = self.inner.message("envoy.config.core.v3.Address")?;
        let mut converter = Converter::new(&self.inner, UnknownFields::Ignore);
        let address = converter.convert(&descriptor, tree.get("address")?);
        let socket = child(&address, "socket_address")?;
        // Port 0 is valid: the system chooses.
        Some(format!("{}_{}", text(&socket, "address")?, number(&socket, "port_value")?))
    }

    /// Reports the other faults of a resource without a name.
    fn nameless(
        &self,
        (resource_type, finding): (ResourceType, Finding),
        tree: Node<'_>,
        around: &Surroundings<'_>,
    ) -> Vec<Diagnostic> {
        let mut converter = Converter::new(&self.inner, UnknownFields::Refuse);
        converter.findings.push(finding);
        if let Some(descriptor) = self.inner.message_of_url(resource_type.type_url()) {
            converter.convert(&descriptor, tree);
        }
        converter.findings.locate(around.file, tree)
    }

    /// The type of a resource by its `@type`, which must agree with its list.
    fn read_type(&self, tree: Node<'_>, expected: Option<&ResourceType>) -> Result<ResourceType, Findings> {
        let mut findings = Findings::default();
        let type_path = Path::Root.field("@type");
        let Some(url) = tree.get("@type") else {
            return expected.cloned().ok_or_else(|| {
                findings.push(Finding::error("missing-type", &Path::Root, "the resource needs an `@type`"));
                findings
            });
        };
        let Some(type_url) = url.as_str() else {
            let text = format!("expected a type URL, found {}", url.kind());
            findings.push(Finding::error("wrong-type", &type_path, text).at(url.position()));
            return Err(findings);
        };
        let is_known = self.inner.message_of_url(type_url).is_some();
        if is_known && !type_url.starts_with(TYPE_PREFIX)
            || !is_known && opaque_value(tree.entries()).is_none()
        {
            let mut converter = Converter::new(&self.inner, UnknownFields::Refuse);
            converter.unknown_type(type_url, url, &Path::Root);
            return Err(converter.findings);
        }
        let found = ResourceType::from_type_url(type_url);
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            let text = format!("a {found} in a list of type {expected}");
            findings.push(Finding::error("type-mismatch", &type_path, text).at(url.position()));
            return Err(findings);
        }
        Ok(found)
    }

    fn finish(
        &self,
        key: ResourceKey,
        message: &Message,
        wrapper: Wrapper,
        origin: Origin,
    ) -> Result<Resource, Box<Finding>> {
        let references = references::find(&self.inner, &key, message).map_err(|most| {
            let text = format!(
                "the resource refers to more than {most} others, which is the limit for its size; split it"
            );
            Box::new(Finding::error("too-many-references", &Path::Root, text))
        })?;
        if key.resource_type == ResourceType::LbEndpoint
            && let Some(finding) = lint::endpoint_of_collection(message)
        {
            return Err(Box::new(finding));
        }
        Ok(Resource::new(draft(key, message.bytes().clone(), references, wrapper, origin)))
    }

    /// The same resource with another message. Its wrapper and its origin stay. `None` if it refers to too many others.
    pub(crate) fn remade(&self, resource: &Resource, message: &Message) -> Option<Resource> {
        let references = references::find(&self.inner, resource.key(), message).ok()?;
        let value = message.bytes().clone().into();
        Some(Resource::new(ResourceDraft { value, references, ..resource.to_draft() }))
    }
}

fn draft(
    key: ResourceKey,
    value: Bytes,
    references: References,
    wrapper: Wrapper,
    origin: Origin,
) -> ResourceDraft {
    let aliases = wrapper.aliases.into();
    ResourceDraft {
        key: key.into(),
        value: value.into(),
        ttl: wrapper.ttl,
        aliases,
        references,
        origin,
        in_wildcard: true,
        host_pattern: false,
    }
}

/// The field with the name of a resource of the type; `None` if only the wrapper has it.
pub(crate) fn name_field(resource_type: &ResourceType) -> Option<&'static str> {
    match resource_type {
        ResourceType::ClusterLoadAssignment => Some("cluster_name"),
        ResourceType::LbEndpoint | ResourceType::Other(_) => None,
        ResourceType::Runtime
        | ResourceType::Secret
        | ResourceType::Cluster
        | ResourceType::ExtensionConfig
        | ResourceType::Listener
        | ResourceType::ScopedRouteConfiguration
        | ResourceType::RouteConfiguration
        | ResourceType::VirtualHost => Some("name"),
    }
}

fn inner_name<'t>(resource_type: &ResourceType, tree: Node<'t>) -> Option<Node<'t>> {
    let field = name_field(resource_type)?;
    tree.get(field).or_else(|| tree.get(&crate::finding::json_name(field)))
}

/// The key of a resource. If it has no name, the error has its type and the fault.
fn read_key(
    resource_type: ResourceType,
    tree: Node<'_>,
    wrapper: &Wrapper,
) -> Result<ResourceKey, Box<(ResourceType, Finding)>> {
    let own = inner_name(&resource_type, tree);
    let name = own.and_then(Node::as_str).or(wrapper.name.as_deref());
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let name = name.into();
        return Ok(ResourceKey { resource_type, name });
    }
    let Some(field) = name_field(&resource_type) else {
        let text = format!(
            "a {resource_type} has no name of its own; wrap it in an object with `name` and `resource`"
        );
        return Err(Box::new((resource_type, Finding::error("missing-name", &Path::Root, text))));
    };
    let finding = match (own, name) {
        (Some(_), Some(_)) => {
            let text = format!("the {resource_type} has an empty name");
            Finding::error("empty-name", &Path::Root.field(field), text)
        }
        (_, _) => {
            Finding::error("missing-name", &Path::Root, format!("the {resource_type} has no `{field}`"))
        }
    };
    Err(Box::new((resource_type, finding)))
}

/// Adds a name to a listener. It is the first field, so the bytes stay canonical.
fn named(listener: &Message, name: &str) -> Message {
    let mut bytes = crate::wire::Writer::default();
    bytes.bytes_field(1, name.as_bytes());
    bytes.raw(listener.bytes());
    Message::new(listener.descriptor().clone(), bytes.finish())
}

/// Returns `true` for a listener of a bootstrap with no name or an empty one, which is allowed there.
fn is_unnamed_static_listener(tree: Node<'_>, expected: &Expected) -> bool {
    matches!(expected, Expected::Static(ResourceType::Listener))
        && tree.get("name").is_none_or(|name| name.as_str() == Some(""))
}

/// If a wrapper has a name, it must be that of the resource, because clients read the one and caches the other.
fn check_wrapper_name(key: &ResourceKey, tree: Node<'_>, wrapper: &Wrapper, findings: &mut Findings) {
    let Some(own) = inner_name(&key.resource_type, tree) else { return };
    let Some(wrapped) = wrapper.name.as_deref().filter(|name| !name.is_empty()) else { return };
    if own.as_str() != Some(wrapped) {
        let text = format!("the wrapper names it {}", echo_name(wrapped));
        let path = Path::Root.field("name");
        findings.push(Finding::error("name-mismatch", &path, text).at(own.position()));
    }
}

fn read_wrapper(tree: Node<'_>, findings: &mut Findings) -> Wrapper {
    let mut wrapper = Wrapper::default();
    for entry in tree.entries() {
        let path = Path::Root.field(entry.key);
        let value = entry.value;
        let wrong = |expected: &str| {
            let text = format!("expected {expected}, found {}", value.kind());
            Finding::error("wrong-type", &path, text).at(value.position())
        };
        match entry.key {
            "@type" | "resource" | "version" => {}
            _ if value.is_null() => {}
            "name" => match value.as_str() {
                Some(name) => wrapper.name = Some(name.to_owned()),
                None => findings.push(wrong("a string")),
            },
            "ttl" => match value.as_str().and_then(parse_duration) {
                Some((seconds @ 0.., nanos @ 0..)) => {
                    wrapper.ttl = Some(Duration::new(seconds.unsigned_abs(), nanos.unsigned_abs()));
                }
                Some(_) | None => {
                    let text = "expected a duration such as `30s`";
                    findings.push(Finding::error("bad-duration", &path, text).at(value.position()));
                }
            },
            "aliases" => {
                let Some(items) = value.as_list() else {
                    findings.push(wrong("a list of strings"));
                    continue;
                };
                if items.len() > MAX_ALIASES {
                    let text = format!("{} aliases, at most {MAX_ALIASES} are allowed", items.len());
                    findings.push(Finding::error("too-many-items", &path, text).at(value.position()));
                    continue;
                }
                match items.map(|item| item.as_str().map(Name::from)).collect() {
                    Some(aliases) => wrapper.aliases = aliases,
                    None => findings.push(wrong("a list of strings")),
                }
            }
            "metadata" | "resource_name" | "resourceName" | "cache_control" | "cacheControl" => {
                let text = "the field has no effect here";
                findings.push(Finding::warning("ignored-field", &path, text).at(entry.position));
            }
            key => {
                let known = ["name", "version", "ttl", "aliases", "resource"];
                let text = "unknown field in envoy.service.discovery.v3.Resource";
                let finding = Finding::error("unknown-field", &path, text).at(entry.position);
                findings.push(finding.suggest(nearest(key, known.into_iter())));
            }
        }
    }
    wrapper
}

/// The limit of aliases of one resource. Virtual hosts have the most, one for each domain.
const MAX_ALIASES: usize = 10_000;
