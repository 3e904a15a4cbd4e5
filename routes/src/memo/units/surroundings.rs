//! Collects the documents that others refer to, for the functions of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::input::{Documents, Options, Placed};
use crate::memo::fact::{Fact, Value};
use crate::memo::reader::Reader;
use crate::model::{BackendSource, Document, DocumentKey, Filter, FilterKind, Kind, ObjectRef, Spec};
use crate::plan::{Lookup, Verdict, policy_targets};

/// The documents that some others refer to, and the verdicts on the fallbacks among them.
pub(super) struct Surroundings<'r, 'm> {
    reader: &'r Reader<'m>,
    /// True if outlines are enough.
    is_of_outlines: bool,
    documents: Documents,
    verdicts: BTreeMap<DocumentKey, Verdict>,
}

impl<'r, 'm> Surroundings<'r, 'm> {
    pub(super) fn new(reader: &'r Reader<'m>) -> Self {
        Self { reader, is_of_outlines: false, documents: Documents::new(), verdicts: BTreeMap::new() }
    }

    /// The same, with outlines.
    pub(super) fn of_outlines(reader: &'r Reader<'m>) -> Self {
        Self { is_of_outlines: true, ..Self::new(reader) }
    }

    /// Adds a document, if it exists.
    pub(super) fn add(&mut self, key: DocumentKey) -> Option<&'m Document> {
        let placed = match self.is_of_outlines {
            true => self.reader.outline(&key)?,
            false => self.reader.document(&key)?,
        };
        self.documents.insert(key, placed.clone());
        Some(&placed.document)
    }

    /// Adds a document that the unit already has.
    pub(super) fn add_placed(&mut self, placed: &Placed) {
        self.documents.insert(placed.document.key.clone(), placed.clone());
    }

    pub(super) fn add_filter(&mut self, from: &str, filter: &Filter) {
        match &filter.kind {
            FilterKind::Mirror { backend, .. } => self.add_reference(from, backend),
            FilterKind::RequestHeaders(_)
            | FilterKind::ResponseHeaders(_)
            | FilterKind::Redirect(_)
            | FilterKind::Rewrite { .. }
            | FilterKind::Cors(_)
            | FilterKind::Extension { .. } => {}
        }
    }

    /// Adds the documents that a reference from a namespace can name, and those that permit it.
    pub(super) fn add_reference(&mut self, from: &str, to: &ObjectRef) {
        self.add_grants(from, to);
        self.reader.backends(to).into_iter().for_each(|key| self.add_backend(key));
    }

    /// Adds the documents that a reference of a fallback can name, and those that permit it.
    pub(super) fn add_member(&mut self, from: &str, to: &ObjectRef) {
        self.add_grants(from, to);
        self.reader.backends(to).into_iter().for_each(|key| _ = self.add(key));
    }

    /// Adds the documents that a reference to a certificate can name, and those that permit it.
    pub(super) fn add_certificate(&mut self, from: &str, to: &ObjectRef) {
        self.add_grants(from, to);
        self.add(DocumentKey::new(Kind::Secret, &to.namespace, &to.name));
    }

    /// Adds a BackendTLSPolicy or Backend, and the documents that its status depends on.
    pub(super) fn add_judged(&mut self, placed: &Placed) {
        self.add_placed(placed);
        if let Spec::BackendTlsPolicy(policy) = &placed.document.spec {
            for (target, _) in &policy.targets {
                self.reader.backends(target).into_iter().for_each(|key| self.add_backend(key));
            }
        }
        if let Spec::Backend(_) = &placed.document.spec {
            self.add_backend(placed.document.key.clone());
        }
        self.add_trusted();
    }

    /// Adds the grants for a reference. Within a namespace none is needed.
    fn add_grants(&mut self, from: &str, to: &ObjectRef) {
        if *to.namespace == *from {
            return;
        }
        for (fact, _) in self.reader.all(Fact::Grant(Arc::clone(&to.namespace), None)) {
            if let Fact::Grant(_, Some(grant)) = fact {
                self.add(grant.clone());
            }
        }
    }

    /// Adds a Service or Backend, and its policies.
    fn add_backend(&mut self, key: DocumentKey) {
        let Some(document) = self.add(key.clone()) else { return };
        if let Spec::Backend(backend) = &document.spec
            && let BackendSource::Fallback(_) = &backend.source
            && let Some(Value::Verdict(verdict)) = self.reader.value(Fact::Verdict(key.clone()))
        {
            self.verdicts.insert(key.clone(), (**verdict).clone());
        }
        for (fact, _) in self.reader.all(Fact::Policy(key, None)) {
            if let Fact::Policy(_, Some(policy)) = fact {
                self.add(policy.clone());
            }
        }
    }

    /// Adds the Service or Backend of a cluster, with endpoints and certificates.
    pub(super) fn add_cluster(&mut self, name: &str) {
        let mut parts = name.split('/');
        let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else { return };
        let kind = if parts.next().is_some() { Kind::Service } else { Kind::Backend };
        let key = self.reader.known(DocumentKey::new(kind, namespace, name));
        if kind == Kind::Service {
            for (fact, _) in self.reader.all(Fact::Slice(key.clone(), None)) {
                if let Fact::Slice(_, Some(slice)) = fact {
                    self.add(slice.clone());
                }
            }
            self.add(key.namesake(Kind::Endpoints));
        }
        self.add_backend(key);
        self.add_trusted();
    }

    /// Adds the certificates that policies trust.
    fn add_trusted(&mut self) {
        for placed in self.documents.clone().values() {
            let Spec::BackendTlsPolicy(policy) = &placed.document.spec else { continue };
            for reference in &policy.ca_certificates {
                for kind in [Kind::Secret, Kind::ConfigMap] {
                    self.add(DocumentKey::new(kind, &reference.namespace, &reference.name));
                }
            }
        }
    }

    /// All collected documents.
    pub(super) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The Service or Backend of a cluster, if it has policies.
    pub(super) fn key_with_policies(&self, cluster: &str) -> Option<DocumentKey> {
        let key = backend_of_cluster(cluster)?;
        let policies = self.documents.values().any(|placed| {
            let Spec::BackendTlsPolicy(policy) = &placed.document.spec else { return false };
            policy_targets(policy).any(|target| target == key)
        });
        policies.then_some(key)
    }

    /// All collected documents, indexed.
    pub(super) fn lookup(&self, options: &Options) -> Lookup<'_> {
        let verdict = |key| Some((key, self.verdicts.get(key)?.clone()));
        Lookup::of(&self.documents, self.documents.keys().filter_map(verdict).collect(), options)
    }
}

/// The Service or Backend of a cluster, by the cluster's name.
fn backend_of_cluster(cluster: &str) -> Option<DocumentKey> {
    let mut parts = cluster.split('/');
    let (namespace, name) = (parts.next()?, parts.next()?);
    let kind = if parts.next().is_some() { Kind::Service } else { Kind::Backend };
    Some(DocumentKey::new(kind, namespace, name))
}
