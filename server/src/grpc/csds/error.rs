//! Errors of client status.

use tonic::Status;

use crate::grpc::matcher::MatcherError;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientStatusError {
    /// A matcher cannot be used.
    #[error("node_matchers: {0}")]
    Matcher(#[from] MatcherError),
    /// The answer would be too large.
    #[error(
        "the answer has more than {limit} bytes, the most that a gRPC client accepts in one message; narrow \
         `node_matchers`, set `exclude_resource_contents`, or call StreamClientStatus, which answers in parts"
    )]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// It is nobody who may ask.
    #[error(
        "identity-not-allowed: client status is for principals of the access policy that show a certificate or a JSON Web Token; \
         ask on the admin port with any other credential"
    )]
    NotAllowed,
    /// Others are asking.
    #[error("too many requests for client status at once; try again later")]
    Busy,
    /// The part could not be made.
    #[error("the status could not be assembled")]
    Internal,
}

impl From<ClientStatusError> for Status {
    fn from(error: ClientStatusError) -> Self {
        match error {
            ClientStatusError::Matcher(_) => Self::invalid_argument(error.to_string()),
            ClientStatusError::TooLarge { .. } | ClientStatusError::Busy => {
                Self::resource_exhausted(error.to_string())
            }
            ClientStatusError::NotAllowed => Self::permission_denied(error.to_string()),
            ClientStatusError::Internal => Self::internal(error.to_string()),
        }
    }
}
