//! The gate of the xDS port: who makes a call, as far as that was proved.
//!
//! A certificate proves what it says for a whole connection, and a bearer token for one call. Views for clients come from here alone:
//! every answer needs a [`Caller`], and only the [`Gate`] makes one.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::watch;
use tonic::Status;
use xds_access::{BadToken, Policy};
use xds_cache::admission::{Denial, DenialReason};
use xds_cache::{Node, Proof, Proofs, Publisher, Reason, View, ViewReceiver};

use crate::grpc::streams::{Credential, OpenStream, StreamEnding, Streams};
use crate::listen::Peer;

/// The check of every call.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    policy: watch::Receiver<Arc<Policy>>,
    rules: GateRules,
}

/// The rules of a gate that never change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateRules {
    /// True if nobody is served who has shown neither a certificate nor a token.
    pub(crate) needs_credential: bool,
    /// True if that is so because of the access policy: clients have nothing but tokens.
    pub(crate) needs_token: bool,
    /// True if calls that the access policy would refuse are let in, and told.
    pub(crate) is_dry_run: bool,
}

/// A call that is let in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    /// Why it would not be, if the access policy were in force.
    pub(crate) waived: Option<GateRefusal>,
}

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
    NoCertificate,
    /// The client showed neither a certificate nor a token.
    #[error(
        "no-credential: this server serves clients that show a certificate or a bearer token, and this one showed neither"
    )]
    NoCredential,
    /// The client showed something else than a token, or several.
    #[error("bad-token: expected one header `authorization` of the form `Bearer TOKEN`")]
    Authorization,
    /// The token is not believed.
    #[error("bad-token: {0}")]
    BadToken(#[from] BadToken),
    /// The certificate ended while the connection was open.
    #[error(transparent)]
    Expired(StreamEnding),
    /// The port trusts the certificate no more.
    #[error("{0}")]
    Untrusted(StreamEnding, Reason),
    /// The access policy denies the client.
    #[error("{ending}")]
    Denied {
        /// As the client is told.
        ending: StreamEnding,
        /// Why.
        reason: Reason,
        /// The identity that is denied, which was verified. For the records only.
        identity: Option<String>,
    },
}

impl Gate {
    /// A gate that goes by the newest policy. Without issuers in it, tokens are ignored.
    pub(crate) fn new(policy: watch::Receiver<Arc<Policy>>, rules: GateRules) -> Self {
        Self { policy, rules }
    }

    /// The policy, which may change.
    pub(crate) fn policy(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.clone()
    }

    /// Lets a call of `peer` in. A dry run takes nothing as proved that the policy would refuse, so whoever is let in by it is given no
    /// secret.
    ///
    /// # Errors
    ///
    /// [`GateRefusal`] if the certificate has ended or is not trusted any more, if a token is bad, also beside a good certificate, if
    /// the policy denies one of them, and if there is neither and one is needed.
    pub(crate) fn admit(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Admitted, GateRefusal> {
        let policy = Arc::clone(&self.policy.borrow());
        let mut proofs = peer.proofs();
        if let Some((ending, reason)) = distrusted(peer) {
            return Err(GateRefusal::Untrusted(ending, reason));
        }
        if let Some(ending) = StreamEnding::by_time(&proofs).filter(|_| peer.is_expired(now)) {
            return Err(GateRefusal::Expired(ending));
        }
        let mut waived = None;
        let mut refuse = |refusal| {
            if self.rules.is_dry_run {
                waived.get_or_insert(refusal);
                return Ok(());
            }
            Err(refusal)
        };
        let takes_tokens = !policy.issuers().is_empty();
        let mut has_token = false;
        match token(&policy, headers, now) {
            Ok(None) => {}
            Ok(Some(proof)) => {
                has_token = true;
                proofs = proofs.iter().cloned().chain([proof]).collect();
            }
            Err(refusal) => refuse(refusal)?,
        }
        if let Some((ending, reason)) = denied(&policy, &proofs) {
            let identity = proofs.iter().find(|proof| policy.is_denied(proof));
            let identity = identity.map(|proof| proof.subject.to_string());
            refuse(GateRefusal::Denied { ending, reason, identity })?;
            proofs = Proofs::default();
        }
        if self.rules.needs_credential && !has_token && !peer.is_verified() {
            let refusal = if takes_tokens { GateRefusal::NoCredential } else { GateRefusal::NoCertificate };
            match self.rules.needs_token {
                true => refuse(refusal)?,
                false => return Err(refusal),
            }
        }
        Ok(Admitted { caller: Caller::new(peer.clone(), proofs), waived })
    }

    /// Opens a stream of somebody who was let in.
    ///
    /// # Errors
    ///
    /// There is no place for it, or the policy or the trust in the certificate has changed since.
    pub(crate) fn open<C>(
        &self,
        streams: &Arc<Streams<C>>,
        caller: &Caller,
    ) -> Result<OpenStream<C>, Status> {
        let open = streams.open(caller.peer(), caller.proofs())?;
        // A change after this line finds the stream, and one before it is found here.
        match withdrawn(&self.policy.borrow(), caller.peer(), caller.proofs()) {
            Some((ending, _)) => Err(ending.into()),
            None => Ok(open),
        }
    }
}

/// The ending for somebody whose certificate the port trusts no more, whom the policy denies, or whose token it trusts no more.
pub(crate) fn withdrawn(policy: &Policy, peer: &Peer, proofs: &[Proof]) -> Option<(StreamEnding, Reason)> {
    distrusted(peer).or_else(|| denied(policy, proofs))
}

fn distrusted(peer: &Peer) -> Option<(StreamEnding, Reason)> {
    peer.distrust().map(|why| (StreamEnding::Untrusted { why }, why.reason()))
}

fn denied(policy: &Policy, proofs: &[Proof]) -> Option<(StreamEnding, Reason)> {
    if let Some(denied) = proofs.iter().find(|proof| policy.is_denied(proof)) {
        return Some((StreamEnding::Denied { by: Credential::of(denied) }, Reason::Denied));
    }
    let is_trusted = proofs.iter().all(|proof| policy.trusts(proof));
    (!is_trusted).then_some((StreamEnding::Distrusted, Reason::BadToken))
}

/// The proof by the bearer token of a call; `None` if there is none, or nobody's tokens are believed.
fn token(policy: &Policy, headers: &HeaderMap, now: SystemTime) -> Result<Option<Proof>, GateRefusal> {
    let token = if policy.issuers().is_empty() { None } else { bearer(headers)? };
    Ok(token.map(|token| policy.verify_bearer(token, now)).transpose()?)
}

/// The bearer token of a call; `None` if there is no credential in its headers.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, GateRefusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || values.next().is_some() {
        return Err(GateRefusal::Authorization);
    }
    Ok(Some(token.trim()))
}

impl Caller {
    /// The caller of a request that the guard let in; one that came by another way has proved nothing.
    pub(crate) fn of(extensions: &http::Extensions) -> Self {
        let anonymous = || Self::new(Peer::of(extensions), Proofs::default());
        extensions.get::<Self>().cloned().unwrap_or_else(anonymous)
    }

    fn new(peer: Peer, proofs: Proofs) -> Self {
        Self(Arc::new(Parts { peer, proofs }))
    }

    /// The other end of the connection.
    pub(crate) fn peer(&self) -> &Peer {
        &self.0.peer
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
            Self::NoCertificate | Self::NoCredential => Reason::NoCredential,
            Self::Authorization | Self::BadToken(_) => Reason::BadToken,
            Self::Expired(_) => Reason::Expired,
            Self::Untrusted(_, reason) | Self::Denied { reason, .. } => *reason,
        }
    }

    /// The verified identity of a client of `peer`, as far as it has one.
    pub(crate) fn identity(&self, peer: &Peer) -> Option<String> {
        match self {
            Self::Denied { identity, .. } => identity.clone(),
            Self::NoCertificate
            | Self::NoCredential
            | Self::Authorization
            | Self::BadToken(_)
            | Self::Expired(_)
            | Self::Untrusted(..) => peer.proofs().first().map(|proof| proof.subject.to_string()),
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
