//! The status of a call that fails: the one place where errors become gRPC statuses.

use std::fmt::Display;
use std::time::SystemTime;

use tonic::Status;
use xds_cache::{Reason, Refusals};
use xds_session::SessionError;

use crate::grpc::convert::RequestError;
use crate::grpc::load_report::ReportError;
use crate::grpc::node::NodeError;
use crate::grpc::receive::ReceiveError;
use crate::grpc::streams::{OpenError, StreamEnding};
use crate::listen::Peer;

/// Counts a request of `peer` that passed a limit.
pub(crate) fn refuse(refusals: &Refusals, reason: Reason, peer: &Peer, detail: impl Display) {
    refusals.record(reason, &format!("{}: {detail}", peer.address()), SystemTime::now());
}

/// The status of a stream whose client broke the protocol; counted if it passed a limit.
pub(crate) fn end_of(refusals: &Refusals, peer: &Peer, error: &RequestError) -> Status {
    if let Some(reason) = reason_of(error) {
        refuse(refusals, reason, peer, error);
    }
    status_of(error)
}

/// The limit that was passed, if it was one.
fn reason_of(error: &RequestError) -> Option<Reason> {
    match error {
        RequestError::Malformed { .. }
        | RequestError::Node(NodeError::Malformed(_))
        | RequestError::Report(ReportError::Malformed(_)) => None,
        RequestError::Node(NodeError::TooLong { .. } | NodeError::TooMany { .. }) => Some(Reason::Node),
        RequestError::Report(ReportError::TooLong { .. } | ReportError::TooMany { .. }) => {
            Some(Reason::LoadReport)
        }
        RequestError::Session(error) => reason_of_session(error),
        RequestError::NoRoom(_) => Some(Reason::SubscriptionMemory),
    }
}

fn reason_of_session(error: &SessionError) -> Option<Reason> {
    match error {
        SessionError::TooManyNames { .. }
        | SessionError::TooManyUnknown { .. }
        | SessionError::TooManyDropped { .. }
        | SessionError::NameTooLong { .. } => Some(Reason::Names),
        SessionError::TooManyTypes { .. } => Some(Reason::Types),
        SessionError::MissingNode
        | SessionError::MissingTypeUrl
        | SessionError::WrongType { .. }
        | SessionError::WrongStream => None,
    }
}

/// The status of a stream whose client broke the protocol.
pub(crate) fn status_of(error: &RequestError) -> Status {
    let message = error.to_string();
    match error {
        RequestError::Malformed { .. }
        | RequestError::Node(NodeError::Malformed(_))
        | RequestError::Report(ReportError::Malformed(_)) => Status::invalid_argument(message),
        RequestError::Node(NodeError::TooLong { .. } | NodeError::TooMany { .. })
        | RequestError::Report(ReportError::TooLong { .. } | ReportError::TooMany { .. })
        | RequestError::NoRoom(_) => Status::resource_exhausted(message),
        RequestError::Session(error) => status_of_session(error, message),
    }
}

fn status_of_session(error: &SessionError, message: String) -> Status {
    match error {
        SessionError::MissingNode | SessionError::MissingTypeUrl | SessionError::WrongType { .. } => {
            Status::invalid_argument(message)
        }
        SessionError::TooManyNames { .. }
        | SessionError::TooManyUnknown { .. }
        | SessionError::TooManyDropped { .. }
        | SessionError::NameTooLong { .. }
        | SessionError::TooManyTypes { .. } => Status::resource_exhausted(message),
        SessionError::WrongStream => Status::internal(message),
    }
}

impl From<ReceiveError> for Status {
    fn from(error: ReceiveError) -> Self {
        let message = error.to_string();
        match error {
            ReceiveError::TooLarge { .. }
            | ReceiveError::NoNode { .. }
            | ReceiveError::Displaced
            | ReceiveError::NoRoom { .. } => Self::resource_exhausted(message),
            ReceiveError::TooSlow { .. } => Self::deadline_exceeded(message),
        }
    }
}

impl From<StreamEnding> for Status {
    fn from(ending: StreamEnding) -> Self {
        let message = ending.to_string();
        match ending {
            StreamEnding::Shutdown | StreamEnding::Aged | StreamEnding::Shed => Self::unavailable(message),
            StreamEnding::Displaced | StreamEnding::Crowded => Self::resource_exhausted(message),
            StreamEnding::Silent => Self::deadline_exceeded(message),
            StreamEnding::Expired { .. }
            | StreamEnding::Untrusted { .. }
            | StreamEnding::Denied { .. }
            | StreamEnding::Distrusted => Self::unauthenticated(message),
        }
    }
}

impl From<OpenError> for Status {
    fn from(error: OpenError) -> Self {
        let message = error.to_string();
        match error {
            OpenError::TooMany { .. } => Self::resource_exhausted(message),
            OpenError::Draining => Self::unavailable(message),
        }
    }
}
