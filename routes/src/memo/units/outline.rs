//! The outlines of documents that other units read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::mesh::{of_service, of_split};
use crate::memo::fact::{Fact, Value};
use crate::memo::made::Made;
use crate::memo::reader::Reader;
use crate::model::{BackendSource, DocumentKey, EndpointSlice, Kind, Spec};
use crate::plan::Outline;

/// The outline of a document, and the keys by which it is found; `None` if the document does not exist.
pub(super) fn outline(reader: &Reader<'_>, key: &DocumentKey) -> Option<Made> {
    let placed = reader.document(key)?;
    let mut facts = Made::new();
    if let Some(outline) = Outline::of(placed) {
        facts.push((Fact::Outline(key.clone()), Value::Outline(outline.into())));
    }
    if let Spec::EndpointSlice(EndpointSlice { service: Some(service), .. }) = &placed.document.spec {
        let service = DocumentKey::of(Kind::Service, Arc::clone(&key.namespace), service.as_str().into());
        let slice = Fact::Slice(reader.known(service), Some(key.clone()));
        facts.push((slice, Value::Present));
    }
    if let Spec::Backend(backend) = &placed.document.spec
        && let BackendSource::Fallback(_) = &backend.source
    {
        facts.push((Fact::Fallback(Some(key.clone())), Value::Present));
    }
    if let Spec::Service(service) = &placed.document.spec {
        facts.extend(of_service(placed, service));
    }
    facts.extend(of_split(placed));
    if let Spec::ReferenceGrant(_) = &placed.document.spec {
        facts.push((Fact::Grant(Arc::clone(&key.namespace), Some(key.clone())), Value::Present));
    }
    if let Spec::BackendTlsPolicy(policy) = &placed.document.spec {
        let targets = policy.targets.iter().flat_map(|(target, _)| reader.backends(target));
        let targets: BTreeSet<DocumentKey> = targets.collect();
        let found = targets.into_iter().map(|target| Fact::Policy(target, Some(key.clone())));
        facts.extend(found.map(|found| (found, Value::Present)));
    }
    Some(facts)
}
