//! Stand-ins for unusable documents whose absence would do harm.
//!
//! There is one such kind: without its BackendTLSPolicy, a backend would get plaintext. As long as the targets of a broken
//! policy can be read, every request to them fails instead.

use std::sync::Arc;

use xds_codec::document::Node;

use super::backend_ref::read_local_object;
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::meta::read_section_name;
use super::outcome::place_of;
use crate::model::{BackendTlsPolicy, Document, DocumentKey, Kind, Meta, ObjectRef, Source, Spec};

/// The stand-in for several documents with the same key, none of which can be used: a policy for the targets of all of them, under
/// which every request fails. `None` for every other kind.
#[must_use]
pub fn stand_in<'d>(documents: impl IntoIterator<Item = &'d Document>) -> Option<Arc<Document>> {
    let mut found: Option<(Document, Box<BackendTlsPolicy>)> = None;
    for document in documents {
        let Spec::BackendTlsPolicy(policy) = &document.spec else { continue };
        match &mut found {
            Some((_, all)) => all.targets.extend(policy.targets.iter().cloned()),
            None => found = Some((document.clone(), without_trust(policy.clone()))),
        }
    }
    let (document, policy) = found?;
    Some(Arc::new(Document { spec: Spec::BackendTlsPolicy(policy), ..document }))
}

/// The stand-in for a document with errors; `None` if none of its targets can be read.
///
/// Its age is not trusted, so any other policy for the same target wins.
pub(super) fn of_broken(file: &Arc<str>, tree: Node<'_>, key: &DocumentKey) -> Option<Arc<Document>> {
    if key.kind != Kind::BackendTlsPolicy {
        return None;
    }
    // The faults are reported already.
    let mut reader = Reader::new(file, false);
    let root = Value::root(tree);
    let mut spec = root.object(&mut reader)?.take("spec")?.object(&mut reader)?;
    let context = Context { kind: key.kind, api_version: "", key };
    let targets = read_targets(&mut spec, &context, &mut reader);
    if targets.is_empty() {
        return None;
    }
    let policy = BackendTlsPolicy {
        targets,
        ca_certificates: Vec::new(),
        uses_system_certificates: false,
        hostname: String::new(),
        alt_names: Vec::new(),
        spot: root.spot,
    };
    Some(Arc::new(Document {
        key: key.clone(),
        place: place_of(file, tree),
        meta: Meta::none(),
        spec: Spec::BackendTlsPolicy(Box::new(policy)),
        source: Arc::new(Source::of_document(tree)),
    }))
}

/// Reads the readable targets: those of the list, or the single one of versions before `v1alpha3`. A section that cannot be read
/// stands for all sections.
fn read_targets(
    spec: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Vec<(ObjectRef, Option<String>)> {
    let list = spec.take("targetRefs").map(|list| list.list(MAX_TARGETS, reader)).unwrap_or_default();
    let mut targets = Vec::new();
    for value in list.into_iter().chain(spec.take("targetRef")) {
        let Some(mut object) = value.object(reader) else { continue };
        let section = object.take("sectionName").and_then(|section| read_section_name(&section, reader));
        targets.extend(read_local_object(&mut object, context, reader).map(|target| (target, section)));
    }
    targets
}

/// Removes all trust, so every request fails.
fn without_trust(mut policy: Box<BackendTlsPolicy>) -> Box<BackendTlsPolicy> {
    policy.ca_certificates.clear();
    policy.uses_system_certificates = false;
    policy
}

/// The limit of a policy.
const MAX_TARGETS: usize = 16;
