//! How a client can break the protocol.

/// The client broke the protocol or passed a limit; its stream cannot go on, everything else does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The first request of the stream carried no node, so nothing can be chosen for it (row A16, D7).
    ///
    /// Sent as `INVALID_ARGUMENT`.
    #[error("the first request of a stream must carry `node` with a non-empty `node.id`")]
    MissingNode,
    /// A request on an ADS stream did not say its type (row A8).
    ///
    /// Sent as `INVALID_ARGUMENT`.
    #[error("`type_url` is required on an aggregated stream")]
    MissingTypeUrl,
    /// A request on a per-type stream was for another type (row A9).
    ///
    /// Sent as `INVALID_ARGUMENT`.
    #[error("`type_url` is {found:?}, but this service serves only {expected:?}")]
    WrongType {
        /// The service's type URL.
        expected: String,
        /// The request's, at most its first 128 characters.
        found: String,
    },
    /// The request is of the other variant than its stream, or its stream is not open.
    ///
    /// Sent as `INTERNAL`: only a fault of this program leads here.
    #[error("the request does not belong to this stream")]
    WrongStream,
    /// Too many names are subscribed to, or are in one list of a request.
    ///
    /// Sent as `RESOURCE_EXHAUSTED`.
    #[error("more than {limit} names of one type are subscribed to on this stream (--max-names-per-type)")]
    TooManyNames {
        /// How many there may be.
        limit: usize,
    },
    /// Too many names are subscribed to, dropped ones included, of types that the server does not know.
    ///
    /// Sent as `RESOURCE_EXHAUSTED`.
    #[error(
        "more than {limit} names of resource types that this server does not know are subscribed to on this stream, all such types together"
    )]
    TooManyUnknown {
        /// How many there may be.
        limit: usize,
    },
    /// Too many names were dropped while responses were not answered: the client may take up again what it dropped until it has seen
    /// those, so the server has to remember it.
    ///
    /// Sent as `RESOURCE_EXHAUSTED`.
    #[error(
        "{n_names} names of one type are subscribed to on this stream, and {n_dropped} dropped names may come back with responses in flight; the limit for both is {limit} (--max-names-per-type): acknowledge responses before you drop more names"
    )]
    TooManyDropped {
        /// How many names are asked for.
        n_names: usize,
        /// How many were dropped and are remembered.
        n_dropped: usize,
        /// How many there may be together.
        limit: usize,
    },
    /// A name is too long.
    ///
    /// Sent as `RESOURCE_EXHAUSTED`.
    #[error("a resource name has {length} bytes; at most {limit} are allowed")]
    NameTooLong {
        /// Its length in bytes.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Too many types are subscribed to.
    ///
    /// Sent as `RESOURCE_EXHAUSTED`.
    #[error("more than {limit} resource types are subscribed to on this stream")]
    TooManyTypes {
        /// How many there may be.
        limit: usize,
    },
}
