//! What a client is told when its call fails: the one place where errors become gRPC statuses.

use tonic::Status;
use xds_session::SessionError;

use crate::grpc::streams::OpenError;

/// The status of a stream whose client broke the protocol.
pub(crate) fn status_of(error: &SessionError) -> Status {
    let message = error.to_string();
    match error {
        SessionError::MissingNode | SessionError::MissingTypeUrl | SessionError::WrongType { .. } => {
            Status::invalid_argument(message)
        }
        SessionError::TooManyNames { .. }
        | SessionError::NameTooLong { .. }
        | SessionError::TooManyTypes { .. } => Status::resource_exhausted(message),
        SessionError::WrongStream => Status::internal(message),
        _ => Status::unknown(message),
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
