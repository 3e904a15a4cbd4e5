//! The handshake of one connection: it goes on when the connection is read, and everything else waits for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{self, CertificateError, ProtocolVersion};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use xds_cache::Proofs;

use super::names;
use super::trust::Untrusted;

/// A connection that is encrypted, or is about to be.
pub(in crate::listen) enum Secured {
    /// The handshake is under way.
    Handshake(Accept<TcpStream>),
    /// Both sides are agreed.
    Open(TlsStream<TcpStream>),
    /// The handshake failed.
    Failed,
}

/// What the handshake of a connection proved.
#[derive(Clone, Debug)]
pub(in crate::listen) struct Agreed {
    /// The version of TLS, as it is counted.
    pub(in crate::listen) version: &'static str,
    /// The names in the certificate of the client, which was verified; `None` if it showed none.
    pub(in crate::listen) proofs: Option<Proofs>,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[error("{reason}: {detail}")]
pub(in crate::listen) struct Failure {
    /// As it is counted.
    pub(in crate::listen) reason: &'static str,
    detail: String,
}

impl Secured {
    pub(in crate::listen) fn new(acceptor: &TlsAcceptor, stream: TcpStream) -> Self {
        Self::Handshake(acceptor.accept(stream))
    }

    /// Goes on with the handshake; `None` once it is over.
    ///
    /// # Errors
    ///
    /// [`Failure`], once; then as if the connection were closed.
    pub(in crate::listen) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Agreed>, Failure>> {
        let Self::Handshake(accept) = self else { return Poll::Ready(Ok(None)) };
        match ready!(Pin::new(accept).poll(cx)) {
            Ok(stream) => {
                let (_, session) = stream.get_ref();
                let version = match session.protocol_version() {
                    Some(ProtocolVersion::TLSv1_2) => "1.2",
                    _ => "1.3",
                };
                let leaf = session.peer_certificates().and_then(|chain| chain.first());
                let proofs = match leaf.map(names::proofs).transpose() {
                    Ok(proofs) => proofs.map(Proofs::from),
                    Err(error) => {
                        *self = Self::Failed;
                        return Poll::Ready(Err(Failure { reason: BAD_NAME, detail: error.to_string() }));
                    }
                };
                *self = Self::Open(stream);
                Poll::Ready(Ok(Some(Agreed { version, proofs })))
            }
            Err(error) => {
                *self = Self::Failed;
                Poll::Ready(Err(Failure::new(&error)))
            }
        }
    }

    /// The certificates that the client showed, its own first; `None` before the end of the handshake.
    pub(in crate::listen) fn chain(&self) -> Option<&[CertificateDer<'static>]> {
        match self {
            Self::Open(stream) => Some(stream.get_ref().1.peer_certificates().unwrap_or_default()),
            Self::Handshake(_) | Self::Failed => None,
        }
    }

    /// The stream of what was encrypted.
    ///
    /// # Errors
    ///
    /// If there is no such stream.
    pub(in crate::listen) fn open(&mut self) -> io::Result<Pin<&mut TlsStream<TcpStream>>> {
        match self {
            Self::Open(stream) => Ok(Pin::new(stream)),
            Self::Handshake(_) | Self::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Failure {
    fn new(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let Some(inner) = inner else {
            return Self { reason: CLOSED, detail: error.to_string() };
        };
        Self::of(inner)
    }

    /// Returns `true` if the server did not accept what the client showed: others broke off, or speak no TLS.
    pub(in crate::listen) fn is_refusal(&self) -> bool {
        !matches!(self.reason, CLOSED | PROTOCOL | REFUSED_BY_CLIENT)
    }

    /// The failure of a verification.
    pub(super) fn of(error: &rustls::Error) -> Self {
        Self { reason: reason(error), detail: detail(error) }
    }
}

/// What to say of a failure: the library shows some errors as no operator can read them.
fn detail(error: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error
        && let Some(untrusted) = other.0.downcast_ref::<Untrusted>()
    {
        return untrusted.to_string();
    }
    if matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)) {
        return "the CRLs of --xds-client-crl have none of the issuer of the client certificate".to_owned();
    }
    error.to_string()
}

/// The label of a failure: one of a closed list.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library adds kinds of errors, and few of them are worth a label"
)]
fn reason(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(fault) => match fault {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => "unknown-issuer",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "not-yet-valid",
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "bad-usage",
            CertificateError::Revoked => REVOKED,
            CertificateError::UnknownRevocationStatus => "unknown-revocation",
            CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => "crl-expired",
            CertificateError::Other(other) => match other.0.downcast_ref() {
                Some(Untrusted::Domain(_) | Untrusted::NoSpiffeId) => "unknown-issuer",
                Some(Untrusted::BadName(_)) => BAD_NAME,
                None => "bad-certificate",
            },
            _ => "bad-certificate",
        },
        rustls::Error::InvalidCertRevocationList(_) => "bad-crl",
        rustls::Error::NoCertificatesPresented => "no-certificate",
        // Most of all, the client does not trust the certificate of the server.
        rustls::Error::AlertReceived(_) => REFUSED_BY_CLIENT,
        _ => PROTOCOL,
    }
}

/// The names of the client's certificate are ambiguous or malformed.
const BAD_NAME: &str = "bad-name";
/// The issuer of the client's certificate has revoked it.
pub(in crate::listen) const REVOKED: &str = "revoked";
/// The client does not trust the server.
const REFUSED_BY_CLIENT: &str = "refused-by-client";
/// The client does not speak TLS as the server does.
const PROTOCOL: &str = "protocol";
/// The client closed the connection.
pub(in crate::listen) const CLOSED: &str = "closed";
/// The handshake did not end in time.
pub(in crate::listen) const TIMEOUT: &str = "timeout";
/// The server has no certificate yet.
pub(in crate::listen) const NOT_READY: &str = "not-ready";
/// Another handshake took its place.
pub(in crate::listen) const DISPLACED: &str = "displaced";
