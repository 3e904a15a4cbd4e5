//! Policies of unsupported kinds (GEP-713): their kinds, and the served kinds that they target.
//!
//! Nothing else of them is read. A policy that targets no served kind is skipped like any document of another program. A target that
//! cannot be read is ignored.

use std::sync::Arc;

use xds_codec::document::Node;

use super::fields::{Object, Reader, Value};
use super::gateway::read_selector;
use super::kinds::TARGETS;
use super::meta::{read_name, read_section_name};
use super::outcome::{ReadOutcome, one, place_of};
use crate::model::{
    AllowedNamespaces, Document, DocumentKey, ForeignPolicy, Kind, Meta, PolicyTarget, Source, Spec,
    TargetName,
};

/// Reads a document of an unsupported kind as a policy; `None` if it is not a policy, or targets no served kind.
pub(super) fn read(file: &Arc<str>, tree: Node<'_>, api_version: &str, kind: &str) -> Option<ReadOutcome> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if !is_plain(kind) || !(group.is_empty() || is_plain(group)) {
        return None;
    }
    let targets = read_targets(file, tree)?;
    let mut reader = Reader::new(file, false);
    let Some((namespace, name)) = read_identity(tree, &mut reader) else {
        return Some(ReadOutcome::Unreadable(reader.into_diagnostics()));
    };
    let full_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let key = DocumentKey::new(Kind::Policy, &namespace, &format!("{full_kind}:{name}"));
    let spec = Spec::Policy(ForeignPolicy { kind: kind.to_owned(), name: name.to_string(), targets });
    let source = Arc::new(Source::of_policy(tree));
    let document =
        Document { key: key.clone(), place: place_of(file, tree), meta: Meta::none(), spec, source };
    Some(one(file, tree, key, Ok((Arc::new(document), Vec::new())), None))
}

/// Reads the targets of served kinds; `None` if there are none.
fn read_targets(file: &Arc<str>, tree: Node<'_>) -> Option<Vec<PolicyTarget>> {
    // The meaning of these fields is not known here, so no fault is reported.
    let mut silent = Reader::new(file, false);
    let mut spec = Value::root(tree).object(&mut silent)?.take("spec")?.object(&mut silent)?;
    let mut references: Vec<Value<'_>> = spec.take("targetRef").into_iter().collect();
    references.extend(spec.take("targetRefs").iter().flat_map(|list| list.list(usize::MAX, &mut silent)));
    let selectors = spec.take("targetSelectors");
    let selectors = selectors.iter().flat_map(|list| list.list(usize::MAX, &mut silent)).collect::<Vec<_>>();
    let references = references.iter().filter_map(|value| {
        read_target(value, &mut silent, |object, reader| {
            let name = object.take("name")?.text(reader)?.to_owned();
            let namespace = object.take("namespace").and_then(|namespace| namespace.text(reader));
            Some(TargetName::Object { namespace: namespace.map(str::to_owned), name })
        })
    });
    let mut targets: Vec<PolicyTarget> = references.collect();
    targets.extend(selectors.iter().filter_map(|value| {
        read_target(value, &mut silent, |object, reader| {
            let namespaces = object
                .take("namespaces")
                .map_or(AllowedNamespaces::Same, |value| read_namespaces(&value, reader));
            Some(TargetName::Selector { namespaces, labels: read_selector(value, reader)? })
        })
    }));
    (!targets.is_empty()).then_some(targets)
}

/// Reads a target whose kind is served; `name` reads its name.
fn read_target(
    value: &Value<'_>,
    reader: &mut Reader,
    name: impl FnOnce(&mut Object<'_>, &mut Reader) -> Option<TargetName>,
) -> Option<PolicyTarget> {
    let mut object = value.object(reader)?;
    let kind = object.take("kind")?.text(reader)?;
    let group = match object.take("group") {
        Some(group) => Some(group.text(reader)?),
        // Some kinds name the version instead, as owner references do.
        None => object
            .take("apiVersion")
            .and_then(|version| version.text(reader))
            .map(|version| version.split_once('/').map_or("", |(group, _)| group)),
    };
    let group = group.map(|group| if group == "core" { "" } else { group });
    let is_named = |one: &Kind| one.as_str() == kind && group.is_none_or(|group| group == one.api_group());
    let kind = TARGETS.into_iter().find(is_named)?;
    let section = object.take("sectionName").and_then(|section| read_section_name(&section, reader));
    Some(PolicyTarget { spot: value.spot.clone(), kind, name: name(&mut object, reader)?, section })
}

fn read_namespaces(value: &Value<'_>, reader: &mut Reader) -> AllowedNamespaces {
    let Some(mut object) = value.object(reader) else { return AllowedNamespaces::Same };
    match object.take("from").and_then(|from| from.text(reader)) {
        Some("All") => AllowedNamespaces::All,
        Some("Selector") => {
            let selector = object.take("selector").and_then(|selector| read_selector(&selector, reader));
            selector.map_or(AllowedNamespaces::All, AllowedNamespaces::Selector)
        }
        Some(_) | None => AllowedNamespaces::Same,
    }
}

/// Reads namespace and name; `None`, with an error, if there is no usable name.
fn read_identity(tree: Node<'_>, reader: &mut Reader) -> Option<(Arc<str>, Arc<str>)> {
    let mut metadata = Value::root(tree).object(reader)?.need("metadata", reader)?.object(reader)?;
    let name = metadata.need("name", reader).and_then(|name| read_name(&name, reader))?;
    let namespace = match metadata.take("namespace") {
        Some(namespace) => read_name(&namespace, reader)?,
        None => "".into(),
    };
    Some((namespace, name))
}

/// Returns `true` if a kind or group has only letters, digits and the like, so `kind.group:name` is unambiguous.
fn is_plain(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=253).contains(&text.len()) && text.bytes().all(is_part)
}
