//! The table of quirks: each behaviour that only some types or some clients have.
//!
//! The flow asks [`TypeState::has`](crate::type_state::TypeState::has) or [`Quirk::is_of`], and names no type. A type that needs no row
//! here behaves like the endpoints of a cluster: clients ask for it by name, and a list carries what changed.

use xds_cache::status::Variant;
use xds_cache::{Profile, ResourceType};

/// A behaviour that not every type and client has. Each says why it matters; [`ROWS`] says who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// A list holds everything, and the client deletes what is absent (R10). Lists of other types carry what changed, and a State of
    /// the World client never learns that something of these is gone.
    CompleteLists,
    /// A first request without names asks for everything (R2), so clients take these resources unasked.
    TakenUnasked,
    /// The client uses only what it asks for. Of other types it may go on with what it has dropped, for as long as something else
    /// that it uses refers to that.
    UsedOnlyWhenAsked,
    /// Envoy ignores the removal: connections of a replaced listener use the route configuration until they are drained.
    IgnoresRemovals,
    /// The client obeys the removal too early: connections of a replaced listener fail without the extension until they are drained.
    FailsWithoutRemoved,
    /// If one waits all wait, and removals go in the same response as additions. The key of one scope may pass to another, Envoy rejects
    /// two scopes with the same key, and a key without a scope has no routes.
    ChangeTogether,
    /// Envoy forgets the requests that wait for the routes of a scope if the scope leads elsewhere, or is gone, before these are there.
    ForgetsWaiting,
    /// A name is `ROUTE/host`, and one resource may serve many hosts of its route configuration (rows A116, A118).
    NamesAreHosts,
    /// Envoy asks at the first request to a host. So it may ask for hosts that do not exist, or no longer do, at any time.
    AskedAtFirstUse,
    /// Envoy comes back with versions and no names: it asks for what it has by its versions alone (row A120).
    AskedByVersions,
    /// Clients do not ask for it by the name that a reference has.
    NotAskedByReference,
    /// The answer for a name that does not exist is a resource without content (row A117).
    AbsenceIsAResource,
    /// Envoy reads a heartbeat as "does not exist" (row A121).
    NoHeartbeats,
    /// The client makes it ready by itself after the ACK: it resolves names or checks health.
    Settles,
    /// The client may have it from somewhere else, such as its bootstrap.
    MayBeLocal,
    /// When what refers to it changes, Envoy waits for it once more, though it has it (R14, row A128).
    WarmedAnew,
    /// Envoy waits once more for what the thing names that it is [warmed anew](Self::WarmedAnew) with: the endpoints of a collection.
    WarmedInTurn,
    /// The client waits for an answer about a name that does not exist (row A178). Others expect silence (row A41).
    WaitsForMissing,
    /// An Envoy that is told of the removal of what it never received waits for that without a limit: the answer ends its
    /// `initial_fetch_timeout`, and not its wait. It stays `INITIALIZING`, and no listener of it accepts connections.
    StuckIfToldMissing,
    /// An Envoy that waits for endpoints or a runtime layer without a limit, and is told nothing of what does not exist, stays
    /// `PRE_INITIALIZING`: it opens no listener. So it is sent an assignment without endpoints, or a layer without values.
    StuckIfNotTold,
    /// The same for the secrets of a cluster, of which there is no empty one. So it is not sent the cluster before these are there.
    StuckWithoutSecrets,
    /// Envoy waits for what it names with `initial_fetch_timeout: 0` without a limit, and if it gets it while it starts, no listener
    /// accepts connections. So it is not sent it before that is there.
    AwaitsWithoutLimit,
    /// C-core and grpc-js use none of the routes before they have every cluster, and wait 15 s for one that does not exist. So routes
    /// to clusters that are not served wait for these, and a client without older routes is sent the others. So do aggregate clusters.
    WaitsForAllClusters,
    /// Envoy compares what it is sent with what it was sent last, even if it could not use that: it acknowledges a resource that it has
    /// rejected when it is offered again, and does not use it. So each goes in a response of its own, where a rejection is of that.
    RejectsOnlyOnce,
    /// An Envoy that refuses one resource of a complete list takes nothing of the list. Of other complete lists it takes what it does not
    /// refuse.
    RefusedWhole,
}

/// The types and clients that have a quirk. A field that is `None` or empty makes no difference.
struct Row {
    quirk: Quirk,
    types: &'static [ResourceType],
    variant: Option<Variant>,
    profile: Option<Profile>,
    /// The client asks by name, not for everything.
    by_name: bool,
}

const fn row(quirk: Quirk, types: &'static [ResourceType]) -> Row {
    Row { quirk, types, variant: None, profile: None, by_name: false }
}

const LISTED: &[ResourceType] =
    &[ResourceType::Cluster, ResourceType::Listener, ResourceType::ScopedRouteConfiguration];

const ROWS: &[Row] = &[
    Row { variant: Some(Variant::Sotw), ..row(Quirk::CompleteLists, LISTED) },
    row(Quirk::TakenUnasked, LISTED),
    // Clusters refer to each other, but a client asks for all of them.
    row(Quirk::UsedOnlyWhenAsked, &[ResourceType::Cluster, ResourceType::VirtualHost]),
    Row {
        variant: Some(Variant::Delta),
        by_name: true,
        ..row(Quirk::IgnoresRemovals, &[ResourceType::RouteConfiguration])
    },
    Row {
        variant: Some(Variant::Delta),
        by_name: true,
        ..row(Quirk::FailsWithoutRemoved, &[ResourceType::ExtensionConfig])
    },
    row(Quirk::ChangeTogether, &[ResourceType::ScopedRouteConfiguration]),
    row(Quirk::ForgetsWaiting, &[ResourceType::ScopedRouteConfiguration]),
    row(Quirk::NamesAreHosts, &[ResourceType::VirtualHost]),
    row(Quirk::AskedAtFirstUse, &[ResourceType::VirtualHost]),
    Row { variant: Some(Variant::Delta), ..row(Quirk::AskedByVersions, &[ResourceType::VirtualHost]) },
    row(
        Quirk::NotAskedByReference,
        &[ResourceType::LbEndpoint, ResourceType::ScopedRouteConfiguration, ResourceType::VirtualHost],
    ),
    Row { variant: Some(Variant::Delta), ..row(Quirk::AbsenceIsAResource, &[ResourceType::VirtualHost]) },
    row(Quirk::NoHeartbeats, &[ResourceType::VirtualHost]),
    row(Quirk::Settles, &[ResourceType::Cluster]),
    row(Quirk::MayBeLocal, &[ResourceType::Cluster, ResourceType::Secret]),
    Row { profile: Some(Profile::Envoy), ..row(Quirk::WarmedAnew, &[ResourceType::ClusterLoadAssignment]) },
    Row { profile: Some(Profile::Envoy), ..row(Quirk::WarmedInTurn, &[ResourceType::LbEndpoint]) },
    Row { variant: Some(Variant::Sotw), profile: Some(Profile::Grpc), ..row(Quirk::WaitsForMissing, &[]) },
    Row {
        variant: Some(Variant::Delta),
        by_name: true,
        ..row(Quirk::StuckIfToldMissing, &[ResourceType::RouteConfiguration, ResourceType::ExtensionConfig])
    },
    Row {
        variant: Some(Variant::Sotw),
        profile: Some(Profile::Envoy),
        ..row(Quirk::StuckIfNotTold, &[ResourceType::ClusterLoadAssignment, ResourceType::Runtime])
    },
    Row {
        variant: Some(Variant::Sotw),
        profile: Some(Profile::Envoy),
        ..row(Quirk::StuckWithoutSecrets, &[ResourceType::Cluster])
    },
    Row { profile: Some(Profile::Envoy), ..row(Quirk::AwaitsWithoutLimit, &[ResourceType::Listener]) },
    Row {
        profile: Some(Profile::Grpc),
        ..row(
            Quirk::WaitsForAllClusters,
            &[ResourceType::Cluster, ResourceType::Listener, ResourceType::RouteConfiguration],
        )
    },
    row(Quirk::RejectsOnlyOnce, &[ResourceType::ExtensionConfig, ResourceType::Secret]),
    Row {
        variant: Some(Variant::Sotw),
        ..row(Quirk::RefusedWhole, &[ResourceType::ScopedRouteConfiguration])
    },
];

/// A stream that asks for a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) resource_type: &'a ResourceType,
    pub(crate) variant: Variant,
    /// It asks for everything.
    pub(crate) is_wildcard: bool,
}

impl Quirk {
    /// Returns `true` if some clients have this quirk with a type.
    pub(crate) fn is_of(self, resource_type: &ResourceType) -> bool {
        self.row().is_some_and(|row| row.is_for(resource_type))
    }

    /// Returns `true` if clients of a profile have this quirk with a type.
    pub(crate) fn is_of_profile(self, resource_type: &ResourceType, profile: Profile) -> bool {
        let is_for = |row: &Row| row.profile.is_none_or(|of| of == profile);
        self.row().is_some_and(|row| row.is_for(resource_type) && is_for(row))
    }

    /// Returns `true` if this stream's client has the quirk, whatever its profile.
    pub(crate) fn is_of_asker(self, asker: Asker<'_>) -> bool {
        self.row().is_some_and(|row| {
            row.is_for(asker.resource_type)
                && row.variant.is_none_or(|variant| variant == asker.variant)
                && !(row.by_name && asker.is_wildcard)
        })
    }

    fn row(self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.quirk == self)
    }
}

impl Row {
    fn is_for(&self, resource_type: &ResourceType) -> bool {
        self.types.is_empty() || self.types.contains(resource_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quirk_has_one_row() {
        for (position, row) in ROWS.iter().enumerate() {
            assert!(ROWS[position + 1..].iter().all(|other| other.quirk != row.quirk), "{:?}", row.quirk);
        }
        assert_eq!(ROWS.len(), Quirk::RefusedWhole as usize + 1);
    }

    #[test]
    fn a_row_tells_clients_apart() {
        let asker = |variant, is_wildcard| Asker {
            resource_type: &ResourceType::RouteConfiguration,
            variant,
            is_wildcard,
        };
        assert!(Quirk::IgnoresRemovals.is_of_asker(asker(Variant::Delta, false)));
        assert!(!Quirk::IgnoresRemovals.is_of_asker(asker(Variant::Delta, true)));
        assert!(!Quirk::IgnoresRemovals.is_of_asker(asker(Variant::Sotw, false)));
        assert!(!Quirk::FailsWithoutRemoved.is_of_asker(asker(Variant::Delta, false)));
        let endpoints = ResourceType::ClusterLoadAssignment;
        assert!(Quirk::WarmedAnew.is_of_profile(&endpoints, Profile::Envoy));
        assert!(!Quirk::WarmedAnew.is_of_profile(&endpoints, Profile::Grpc));
    }
}
