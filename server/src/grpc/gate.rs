//! The gate of the xDS port: who makes a call, as far as that was proved.
//!
//! Views for clients come from here alone. Every answer needs a [`Caller`], and only the gate makes one.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use tonic::Status;
use xds_cache::admission::{Denial, DenialReason};
use xds_cache::{Node, Proof, Proofs, Publisher, Reason, View, ViewReceiver};

use crate::grpc::streams::StreamEnding;
use crate::listen::Peer;

/// Who makes a call, and what that client has proved. One pointer, because every stream keeps one.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Parts>);

struct Parts {
    peer: Peer,
    proofs: Proofs,
}

/// Why a call is not let in at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateRefusal {
    /// The client showed no certificate. It learns so here, because a failed handshake would tell it nothing.
    #[error("no-credential: this server serves clients that show a certificate, and this one showed none")]
    NoCredential,
    /// The certificate ended while the connection was open.
    #[error(transparent)]
    Ended(#[from] StreamEnding),
}

impl Caller {
    /// The caller of a request that the guard let in; one that came by another way has proved nothing.
    pub(crate) fn of(extensions: &http::Extensions) -> Self {
        let anonymous = || Self::new(Peer::of(extensions), Proofs::default());
        extensions.get::<Self>().cloned().unwrap_or_else(anonymous)
    }

    /// Lets a call of `peer` in.
    ///
    /// # Errors
    ///
    /// [`GateRefusal`] if the certificate has ended, or if there is none and one is needed.
    pub(crate) fn admit(peer: &Peer, needs_certificate: bool, now: SystemTime) -> Result<Self, GateRefusal> {
        if needs_certificate && !peer.is_verified() {
            return Err(GateRefusal::NoCredential);
        }
        match peer.expires().filter(|end| *end <= now) {
            Some(at) => Err(StreamEnding::Expired { at }.into()),
            None => Ok(Self::new(peer.clone(), peer.proofs())),
        }
    }

    fn new(peer: Peer, proofs: Proofs) -> Self {
        Self(Arc::new(Parts { peer, proofs }))
    }

    /// The other end of the connection.
    pub(crate) fn peer(&self) -> &Peer {
        &self.0.peer
    }

    /// When the first proof ends.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        Proof::first_end(&self.0.proofs)
    }

    /// What the client has proved.
    pub(crate) fn proofs(&self) -> &Proofs {
        &self.0.proofs
    }

    /// Follows the view of the client as `node`.
    ///
    /// # Errors
    ///
    /// [`Denial`] if it claims a group that is not granted to it.
    pub(crate) fn follow(&self, publisher: &Publisher, node: &Node) -> Result<ViewReceiver, Denial> {
        publisher.follow_as(node, &self.0.proofs)
    }

    /// The view of the client as `node`; `None` before the first complete load.
    ///
    /// # Errors
    ///
    /// [`Denial`] if it claims a group that is not granted to it.
    pub(crate) fn view(&self, publisher: &Publisher, node: &Node) -> Result<Option<Arc<View>>, Denial> {
        publisher.view_as(node, &self.0.proofs)
    }
}

impl GateRefusal {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::NoCredential => Reason::NoCredential,
            Self::Ended(_) => Reason::Expired,
        }
    }
}

/// The reason of a denial, as it is counted.
pub(crate) fn reason_of(denial: &Denial) -> Reason {
    match denial.reason {
        DenialReason::NoCredential => Reason::NoCredential,
        DenialReason::IdentityNotAllowed => Reason::IdentityNotAllowed,
        DenialReason::NodeIdMismatch => Reason::NodeIdMismatch,
    }
}

/// The status of a client that is denied.
pub(crate) fn status_of(denial: &Denial) -> Status {
    match denial.reason {
        DenialReason::NoCredential => Status::unauthenticated(denial.to_string()),
        DenialReason::IdentityNotAllowed | DenialReason::NodeIdMismatch => {
            Status::permission_denied(denial.to_string())
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("peer", &self.0.peer).finish_non_exhaustive()
    }
}
