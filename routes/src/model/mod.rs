//! The contents of documents after reading: typed, checked, and with defaults filled in. They keep the places of fields that depend on
//! other documents, for diagnostics.

mod backend;
mod document;
mod filter;
mod gateway;
mod hostname;
mod key;
mod path;
mod policy;
mod reference;
mod route;
mod service;
mod source;
mod split;
mod spot;

pub use backend::{
    Backend, BackendLimits, BackendMember, BackendSource, LbPolicy, NativeTls, StaticEndpoint,
};
pub use document::{Document, Meta, Spec};
pub use filter::{Cors, Filter, FilterKind, Fraction, HeaderEdits, PathRewrite, Redirect};
pub use gateway::{
    AllowedNamespaces, AllowedRoutes, Gateway, GatewayListener, LabelSelector, ListenerProtocol,
};
pub(crate) use hostname::is_dns_label;
pub use hostname::{Hostname, InvalidHostname};
pub use key::{DocumentKey, DocumentName, Kind};
pub use path::FieldPath;
pub use policy::{
    BackendTlsPolicy, ForeignPolicy, GrantFrom, GrantTo, PolicyTarget, ReferenceGrant, TargetName,
};
pub use reference::ObjectRef;
pub use route::{
    BackendRef, HeaderMatch, HeaderValue, HttpMethod, Match, MatchType, MethodMatch, ParentRef, PathMatch,
    QueryMatch, Retry, Route, RouteKind, Rule, SessionKind, SessionLifetime, SessionPersistence, Timeouts,
};
pub use service::{
    AddressType, ConfigMap, EndpointSlice, Namespace, Secret, Service, ServicePort, SliceEndpoint, SlicePort,
    TargetPort,
};
pub use source::Source;
pub use split::{GroupMatch, HttpRouteGroup, SplitBackend, TrafficSplit};
pub use spot::Spot;
