//! The inputs of Listeners and virtual hosts for Envoys.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::plan::{PlannedRoute, TlsTermination};

/// A Listener.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Listener {
    /// Its name.
    pub(crate) name: String,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// True if anyone can connect, so that headers of requests are not trusted.
    pub(super) is_edge: bool,
    /// True if a request for an unknown host waits until Envoy has asked for it.
    pub(crate) is_on_demand: bool,
    /// Its filter chains, by the names of their tables; at least one.
    pub(super) chains: Vec<(String, Option<TlsTermination>)>,
}

/// A virtual host without its routes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Frame {
    pub(super) name: String,
    /// At least one.
    pub(super) domains: Vec<String>,
    /// True if its requests belong to another connection. Then it has no routes.
    pub(super) is_misdirected: bool,
    pub(super) port: ListenerPort,
}

impl Frame {
    /// Returns `true` if one of its domains is a wildcard.
    pub(crate) fn has_wildcard(&self) -> bool {
        self.domains.iter().any(|domain| domain.starts_with('*'))
    }
}

/// A virtual host, and the context of its routes.
#[derive(Hash)]
pub(super) struct HostContext<'p> {
    pub(super) frame: Frame,
    pub(super) routes: &'p [PlannedRoute],
    /// The facts about the backends of routes with sessions.
    pub(super) pins: Pins<'p>,
}

/// The port at which requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(super) struct ListenerPort {
    pub(super) number: u16,
    pub(super) is_tls: bool,
    /// True if GRPCRoutes and HTTPRoutes may share a host.
    pub(super) merges_route_kinds: bool,
}

/// The facts about backends that can have sessions, by name.
pub(super) type Pins<'p> = BTreeMap<&'p str, Pinned>;

/// The facts about a backend that can have sessions.
#[derive(Hash)]
pub(super) struct Pinned {
    pub(super) may_have_endpoints: bool,
    /// An expression that matches the session headers of its endpoints, if a session by header needs it.
    pub(super) values: Option<String>,
}
