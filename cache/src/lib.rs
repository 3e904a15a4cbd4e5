//! The configuration that the management server serves: resources, their versions, node groups, views, and who has applied them.
//!
//! Two *layers* hold resources by node group: the base (files) and the overrides (the admin API). [`layer::merge`] merges them into
//! one set of effective groups. The [`Publisher`] compiles the groups into [`View`]s, one for each set of groups and profile, and
//! gives each client the view that it resolves to. A view never changes; a change is a new view. The [`StatusBoard`] records what
//! each stream was sent and what it answered. The [`LoadBoard`] records the requests that clients report.
//!
//! This crate does no I/O, reads no clock and starts no task. It does not know the transport protocol (`xds-session`), and has no
//! descriptors (`xds-codec`). To it, a resource is a name, a type, encoded bytes and a content version. It reads the bytes only where
//! serving depends on them, field by field ([`wire`]): how long a [`cluster`] and its endpoints drain, whether a client needs time to
//! make it ready, what an Envoy waits for without a limit before it uses a listener or a cluster, and which virtual hosts a RouteConfiguration
//! consists of.

pub mod admission;
mod awaited;
pub mod cluster;
pub mod drain;
mod encoded;
mod filling;
mod glob;
pub mod group;
mod held_back;
mod host;
mod host_sum;
pub mod identity;
pub mod layer;
pub mod loads;
mod missing;
mod node;
mod partial;
mod publisher;
mod reconnects;
mod references;
pub mod refusals;
pub mod rejecting;
mod resource;
mod resource_key;
mod resource_type;
pub mod status;
mod stream_id;
mod table;
pub mod time;
mod transition;
mod version;
mod view;
mod virtual_host;
pub mod wave;
pub mod wire;
mod work;
pub mod xdstp;

pub use imbl::ordmap::DiffItem;
pub use imbl::{OrdMap, OrdSet};

pub use drain::{DrainPolicy, Draining};
pub use encoded::{Encoded, RouteConfigParts};
pub use filling::filling;
pub use glob::Glob;
pub use group::{GroupName, NodeGroup, Selector};
pub use held_back::{HeldBack, Phase, WaitsFor};
pub use host_sum::{HostHash, HostSum};
pub use identity::{Identity, Proof, Proofs, Subject};
pub use layer::{Generated, Groups, Layer};
pub use loads::LoadBoard;
pub use missing::{MissingReference, MissingReferences};
pub use node::{Locality, Node, Profile, Scalar};
pub use publisher::{AHEAD, Moved, Preview, Publication, Publisher, ViewReceiver};
pub use references::{Reference, References};
pub use refusals::{Reason, Refusals};
pub use resource::{Origin, Resource, ResourceDraft};
pub use resource_key::{Name, ResourceKey};
pub use resource_type::ResourceType;
pub use status::StatusBoard;
pub use table::{Changes, Found, HostPatterns, TypeTable};
pub use transition::{Deviation, Deviations};
pub use version::{ForeignVersion, Revision, Version, VersionHasher};
pub use view::{Conflict, View, ViewChange, ViewKey};
pub use wave::WavePolicy;
