//! The targets of references to backends: the port of a Service, or a Backend.

use xds_cache::DrainPolicy;

use super::lookup::{Lookup, RefProblem};
use super::parts::BackendProtocol;
use crate::conditions::ConditionReason;
use crate::model::{
    Backend, Document, DocumentKey, DocumentName, Kind, ObjectRef, Service, ServicePort, Spec,
};

/// The target of a reference.
#[derive(Clone, Copy, Debug)]
pub(super) enum Referent<'d> {
    /// A port of a Service.
    Port { document: &'d Document, service: &'d Service, port: &'d ServicePort },
    /// A Backend.
    Backend { document: &'d Document, backend: &'d Backend },
}

impl<'d> Referent<'d> {
    /// The name of its cluster: `namespace/service/port` or `namespace/backend`. It is unique, because names have no slash.
    pub(super) fn cluster_name(&self) -> String {
        let DocumentName { namespace, name, .. } = &*self.document().key;
        match self {
            Self::Port { port, .. } => format!("{namespace}/{name}/{}", port.port),
            Self::Backend { .. } => format!("{namespace}/{name}"),
        }
    }

    /// How long its cluster and endpoints drain.
    pub(super) fn drain(&self) -> DrainPolicy {
        let own = match self {
            Self::Port { .. } => DrainPolicy::default(),
            Self::Backend { backend, .. } => backend.drain,
        };
        own.or(self.document().meta.drain)
    }

    /// The Service or Backend.
    pub(super) fn document(&self) -> &'d Document {
        match self {
            Self::Port { document, .. } | Self::Backend { document, .. } => document,
        }
    }
}

impl<'d> Lookup<'d> {
    /// The target of a backendRef, or the reason why it cannot be used: `InvalidKind`, `RefNotPermitted` or `BackendNotFound`.
    ///
    /// A fallback that cannot be used counts as not found.
    pub(super) fn backend(&self, from: &DocumentKey, to: &ObjectRef) -> Result<Referent<'d>, RefProblem> {
        let found = self.referent(from, to)?;
        if let Some(Err(fault)) = self.fallbacks.get(&found.document().key) {
            let message = format!("the Backend {}/{} cannot be used: {fault}", to.namespace, to.name);
            return Err(RefProblem { reason: fault.reason, message, spot: to.spot.clone() });
        }
        Ok(found)
    }

    /// The same, without checking the members of a fallback.
    ///
    /// Permission is checked first, so an error does not reveal whether a forbidden target exists.
    pub(super) fn referent(&self, from: &DocumentKey, to: &ObjectRef) -> Result<Referent<'d>, RefProblem> {
        let problem = |reason, message| RefProblem { reason, message, spot: to.spot.clone() };
        let Some(kind) = to.backend_kind() else {
            let shown = shown_kind(&to.group, &to.kind);
            return Err(problem(
                ConditionReason::InvalidKind,
                format!("{shown} is not a kind of backend{}", self.hint(from, to)),
            ));
        };
        if !self.is_granted(from.kind, &from.namespace, to) && !self.is_parent(from, to) {
            let message = format!(
                "the namespace {} has no ReferenceGrant that lets a {} of {} refer to the {kind} {}",
                to.namespace, from.kind, from.namespace, to.name,
            );
            return Err(problem(ConditionReason::RefNotPermitted, message));
        }
        let missing = |hint: &str| {
            problem(
                ConditionReason::BackendNotFound,
                format!("there is no {kind} {}/{}{hint}", to.namespace, to.name),
            )
        };
        if kind == Kind::Backend {
            return self.backend_named(&to.namespace, &to.name).ok_or_else(|| missing(""));
        }
        let found = self.service(&to.namespace, &to.name).ok_or_else(|| missing(&self.hint(from, to)));
        let (document, service) = found?;
        let port = service_port(service, to)
            .map_err(|message| problem(ConditionReason::BackendNotFound, message))?;
        Ok(Referent::Port { document, service, port })
    }

    /// Returns `true` if a route refers to a Service that is its own parent. That needs no grant, because requests would go there without
    /// the route too (MeshConsumerRoute).
    fn is_parent(&self, from: &DocumentKey, to: &ObjectRef) -> bool {
        let document = self.document(from.kind, &from.namespace, &from.name);
        let Some(Spec::Route(route)) = document.map(|document| &document.spec) else { return false };
        Kind::Service.is_named(&to.group, &to.kind)
            && route.parents.iter().any(|parent| {
                parent.is_service() && (&parent.namespace, &parent.name) == (&to.namespace, &to.name)
            })
    }

    /// A Service.
    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<(&'d Document, &'d Service)> {
        let document = self.document(Kind::Service, namespace, name)?;
        let Spec::Service(service) = &document.spec else { return None };
        Some((document, service))
    }

    fn backend_named(&self, namespace: &str, name: &str) -> Option<Referent<'d>> {
        let document = self.document(Kind::Backend, namespace, name)?;
        let Spec::Backend(backend) = &document.spec else { return None };
        Some(Referent::Backend { document, backend })
    }

    /// A port of a Service by its number.
    pub(super) fn port_of(&self, namespace: &str, name: &str, number: u16) -> Option<Referent<'d>> {
        let (document, service) = self.service(namespace, name)?;
        let port = service.ports.iter().find(|port| port.port == number)?;
        Some(Referent::Port { document, service, port })
    }

    /// The backend whose cluster has this name.
    pub(super) fn of_cluster_name(&self, name: &str) -> Option<Referent<'d>> {
        let mut parts = name.split('/');
        let (namespace, name) = (parts.next()?, parts.next()?);
        match parts.next() {
            Some(port) => self.port_of(namespace, name, port.parse().ok()?),
            None => self.backend_named(namespace, name),
        }
    }

    /// Returns `true` if a backend declares HTTP/2. A fallback also does if all its members do.
    pub(super) fn speaks_http2(&self, referent: &Referent<'d>) -> bool {
        match referent {
            Referent::Port { port, .. } => is_http2_name(port.app_protocol.as_deref().unwrap_or_default()),
            Referent::Backend { document, backend } => {
                let fallback = self.fallbacks.get(&document.key).and_then(|verdict| verdict.as_ref().ok());
                fallback.map_or(backend.is_http2, |fallback| fallback.is_http2)
            }
        }
    }

    /// The protocol of connections to a backend: HTTP/2 for gRPC, otherwise its own setting.
    pub(super) fn protocol(&self, referent: &Referent<'d>, is_grpc: bool) -> BackendProtocol {
        match is_grpc || self.speaks_http2(referent) {
            true => BackendProtocol::Http2,
            false => BackendProtocol::Http1,
        }
    }

    /// Checks that routes support the `appProtocol` of a port. Only names with `kubernetes.io/` have a fixed meaning.
    pub(super) fn check_protocol(
        &self,
        referent: &Referent<'d>,
        is_grpc: bool,
        to: &ObjectRef,
    ) -> Result<(), RefProblem> {
        let Referent::Port { document, port, .. } = referent else { return Ok(()) };
        let name = port.app_protocol.as_deref().unwrap_or_default();
        let why = match name {
            "kubernetes.io/ws" | "kubernetes.io/wss" if is_grpc => "gRPC does not run over WebSocket",
            "kubernetes.io/wss" if self.policy(referent).is_none() => "it needs a BackendTLSPolicy",
            "kubernetes.io/h2c" | "kubernetes.io/ws" | "kubernetes.io/wss" => return Ok(()),
            _ if name.starts_with("kubernetes.io/") => "it is unknown",
            _ => return Ok(()),
        };
        let message =
            format!("the port {} of the {} has the appProtocol {name}: {why}", port.port, document.key);
        Err(RefProblem { reason: ConditionReason::UnsupportedProtocol, message, spot: to.spot.clone() })
    }

    /// The hint that a Backend of the same name exists, if the referring object may know about it.
    fn hint(&self, from: &DocumentKey, to: &ObjectRef) -> String {
        let group = Kind::Backend.api_group();
        let backend = ObjectRef { group: group.into(), kind: "Backend".into(), ..to.clone() };
        let exists = self.document(Kind::Backend, &to.namespace, &to.name).is_some();
        if !exists || !self.is_granted(from.kind, &from.namespace, &backend) {
            return String::new();
        }
        format!("; there is a Backend with this name: to use it, write `group: {group}` and `kind: Backend`")
    }
}

/// Returns `true` if a port's `appProtocol` or name means HTTP/2: `kubernetes.io/h2c`, or by common use `grpc…`, `http2…`, `h2c…`.
pub(super) fn is_http2_name(name: &str) -> bool {
    name == "kubernetes.io/h2c" || ["grpc", "http2", "h2c"].iter().any(|prefix| name.starts_with(prefix))
}

/// The port of a reference; the only port if it names none.
fn service_port<'d>(service: &'d Service, to: &ObjectRef) -> Result<&'d ServicePort, String> {
    let name = format!("{}/{}", to.namespace, to.name);
    let Some(number) = to.port else {
        return match service.ports.as_slice() {
            [port] => Ok(port),
            ports => Err(format!("no port is given, and the Service {name} has {}", ports.len())),
        };
    };
    service.ports.iter().find(|port| port.port == number).ok_or_else(|| {
        let ports: Vec<String> = service.ports.iter().map(|port| port.port.to_string()).collect();
        match ports.is_empty() {
            true => format!("the Service {name} has no port {number}; it has none"),
            false => format!("the Service {name} has no port {number}; it has {}", ports.join(", ")),
        }
    })
}

fn shown_kind(group: &str, kind: &str) -> String {
    match group {
        "" => xds_codec::echo_name(kind),
        group => xds_codec::echo_name(&format!("{group}/{kind}")),
    }
}
