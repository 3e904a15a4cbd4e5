//! Who may ask for client status, and what they see of it.
//!
//! The guard of the admin port has decided before. On the xDS port, principals of the access policy may ask who have proved it by a
//! certificate or a JSON Web Token, each for the nodes in its scope. Without principals nobody may, once clients can prove who they are:
//! otherwise every client could read what all others have.

use std::time::SystemTime;

use axum::http::Extensions;
use xds_access::Scope;

use super::error::ClientStatusError;
use crate::grpc::Grpc;
use crate::grpc::gate::Caller;

/// The port that a request came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The admin port.
    Admin,
    /// The xDS port.
    Xds,
}

/// Somebody who asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    door: Door,
    caller: Caller,
}

impl Asker {
    pub(crate) fn new(door: Door, extensions: &Extensions) -> Self {
        Self { door, caller: Caller::of(extensions) }
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }
}

impl Grpc {
    /// The nodes that somebody may ask about now: a stream may outlive the right to.
    ///
    /// # Errors
    ///
    /// [`ClientStatusError::NotAllowed`] if it is nobody who may.
    pub(crate) fn audience(&self, asker: &Asker) -> Result<Scope, ClientStatusError> {
        if asker.door == Door::Admin {
            return Ok(Scope::default());
        }
        let policy = self.gate.policy();
        let policy = policy.borrow();
        let can_prove = self.config.authenticates_clients || !policy.issuers().is_empty();
        if policy.principals().is_empty() && !can_prove {
            return Ok(Scope::default());
        }
        match policy.identify(asker.caller.proofs(), None, SystemTime::now()) {
            Ok(found) if asker.caller.peer().distrust().is_none() => Ok(found.principal.scope.clone()),
            Ok(_) | Err(_) => Err(ClientStatusError::NotAllowed),
        }
    }
}
