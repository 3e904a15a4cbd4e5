//! What several servers share, as far as this crate needs it.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use xds_store::BoxFuture;

/// A map of keys to values that changes by transactions.
///
/// Keys are relative: an implementation puts its prefix before them. Transactions take effect one after the other. A read sees the effect
/// of all that were answered before it was asked, and all parts of one call see the same state.
///
/// Implementations try again only what cannot take effect twice: a call that ends in [`RemoteError::Silent`] may take effect at any later
/// time.
pub trait Remote: Send + Sync + Debug {
    /// Reads ranges of keys. The answers come in the order of `reads`, and the entries of each in the order of their keys.
    fn read(&self, reads: Vec<Read>) -> BoxFuture<'_, Result<Vec<Vec<Entry>>, RemoteError>>;

    /// Makes a transaction.
    fn write(&self, transaction: Transaction) -> BoxFuture<'_, Result<Written, RemoteError>>;

    /// Returns when the value of `head` may have changed. It is a hint: it may come for nothing, late, or never.
    fn hint(&self) -> BoxFuture<'_, ()>;

    /// Begins a lease: keys that are put with it are deleted when nobody has prolonged it for `ttl`, in whole seconds.
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, RemoteError>>;

    /// Prolongs a lease, by whatever member answers. Returns `false` if it has ended.
    fn keep_alive(&self, lease: Lease) -> BoxFuture<'_, Result<bool, RemoteError>>;

    /// Ends a lease, and deletes its keys.
    fn revoke(&self, lease: Lease) -> BoxFuture<'_, Result<(), RemoteError>>;
}

/// What keeps keys for as long as somebody prolongs it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease(pub i64);

/// A range of keys to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Read {
    /// The first key.
    pub from: String,
    /// The key that ends the range and is not in it; `None` for `from` alone.
    pub to: Option<String>,
    /// How many entries are returned at most; zero for all.
    pub limit: usize,
}

impl Read {
    /// One key.
    pub(crate) fn key(key: impl Into<String>) -> Self {
        Self { from: key.into(), to: None, limit: 0 }
    }
}

/// A key and its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
}

/// Changes that take effect together, if all comparisons hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transaction {
    /// What must be so.
    pub compares: Vec<Compare>,
    /// What is then done, each key at most once.
    pub puts: Vec<Put>,
    /// The same of keys that end with a lease.
    pub leased: Vec<(Lease, Put)>,
    /// Ranges that are then deleted: from the first key up to the second one, which is not deleted.
    pub deletes: Vec<(String, String)>,
    /// Keys that are read if a comparison fails.
    pub otherwise: Vec<String>,
}

/// What a key must have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Compare {
    /// This value.
    Value(String, Bytes),
    /// No value.
    Absent(String),
}

/// A new value of a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Put {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
}

/// What a transaction came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Written {
    /// It took effect.
    Done,
    /// A comparison failed, and nothing changed. The values of `otherwise`, in its order.
    Failed(Vec<Option<Bytes>>),
}

/// A call failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RemoteError {
    /// Nothing was sent, so nothing changes.
    #[error("{0}")]
    Unreachable(String),
    /// It was sent and not answered: it may take effect at any time, or never.
    #[error("{0}")]
    Silent(String),
    /// It was refused because the space is used up.
    #[error("{0}")]
    Full(String),
    /// It was refused because it is too large.
    #[error("{0}")]
    TooLarge(String),
    /// It was refused because of who asks.
    #[error("{0}")]
    Refused(String),
}
