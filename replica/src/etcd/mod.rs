//! The remote in etcd, by its API of version 3.
//!
//! One member is used until it fails, then the next one: a client that spreads its calls over all members sends every third one to a member
//! that is stopped. All reads are linearizable.

mod client;
mod messages;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use xds_store::BoxFuture;

use self::client::Client;
use self::messages::{
    DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, Request, RequestOp, Target, TxnRequest,
    TxnResponse,
};
pub use self::settings::{EtcdOptions, EtcdUrl, EtcdUrlError};
use crate::layout::HEAD;
use crate::remote::{Compare, Entry, Lease, Read, Remote, RemoteError, Transaction, Written};

/// A [`Remote`] in etcd.
#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    prefix: String,
    news: Arc<Notify>,
    /// Ends with the remote.
    _watch: JoinSet<()>,
}

impl Etcd {
    /// A remote in the etcd at `url`. It connects when it is used, and tries again whenever it has to.
    ///
    /// Called within a tokio runtime.
    #[must_use]
    pub fn new(url: EtcdUrl, options: EtcdOptions) -> Self {
        let prefix = url.prefix.clone();
        let client = Arc::new(Client::new(url, options));
        let news = Arc::<Notify>::default();
        let mut watch = JoinSet::new();
        watch.spawn(watch_head(Arc::clone(&client), format!("{prefix}{HEAD}"), Arc::clone(&news)));
        Self { client, prefix, news, _watch: watch }
    }

    /// Has etcd drop the old values that it keeps of all keys, also of those with other prefixes. Their space is used again; the file becomes
    /// smaller only by `etcdctl defrag`.
    ///
    /// # Errors
    ///
    /// If etcd does not answer within a minute, or refuses.
    pub async fn drop_history(&self) -> Result<(), RemoteError> {
        self.client.compact().await
    }

    fn key(&self, key: &str) -> Bytes {
        format!("{}{key}", self.prefix).into()
    }

    fn range(&self, read: &Read) -> RequestOp {
        op(Request::Range(RangeRequest {
            key: self.key(&read.from),
            range_end: read.to.as_ref().map(|end| self.key(end)).unwrap_or_default(),
            limit: i64::try_from(read.limit).unwrap_or_default(),
        }))
    }

    fn compare(&self, compare: Compare) -> messages::Compare {
        match compare {
            Compare::Value(key, value) => {
                messages::Compare { target: VALUE, key: self.key(&key), with: Some(Target::Value(value)) }
            }
            Compare::Absent(key) => {
                messages::Compare { target: VERSION, key: self.key(&key), with: Some(Target::Version(0)) }
            }
        }
    }

    fn entries(&self, response: TxnResponse) -> Vec<Vec<Entry>> {
        let ranges = response.responses.into_iter().map(|response| response.range.unwrap_or_default().kvs);
        let entries = ranges.map(|kvs| {
            let entries = kvs.into_iter().map(|kv| {
                let key = String::from_utf8_lossy(&kv.key);
                Entry { key: key.strip_prefix(&self.prefix).unwrap_or(&key).to_owned(), value: kv.value }
            });
            entries.collect()
        });
        entries.collect()
    }
}

impl Remote for Etcd {
    fn read(&self, reads: Vec<Read>) -> BoxFuture<'_, Result<Vec<Vec<Entry>>, RemoteError>> {
        Box::pin(async move {
            let success = reads.iter().map(|read| self.range(read)).collect();
            let response = self.client.transact(TxnRequest { success, ..TxnRequest::default() }).await?;
            Ok(self.entries(response))
        })
    }

    fn write(&self, transaction: Transaction) -> BoxFuture<'_, Result<Written, RemoteError>> {
        Box::pin(async move {
            let Transaction { compares, puts, leased, deletes, otherwise } = transaction;
            let n_read = otherwise.len();
            let put = |(Lease(lease), put): (Lease, crate::remote::Put)| {
                op(Request::Put(PutRequest { key: self.key(&put.key), value: put.value, lease }))
            };
            let puts = puts.into_iter().map(|put| (NO_LEASE, put)).chain(leased);
            let delete = |(from, to): (String, String)| {
                op(Request::DeleteRange(DeleteRangeRequest {
                    key: self.key(&from),
                    range_end: self.key(&to),
                }))
            };
            let request = TxnRequest {
                compare: compares.into_iter().map(|compare| self.compare(compare)).collect(),
                success: deletes.into_iter().map(delete).chain(puts.map(put)).collect(),
                failure: otherwise.into_iter().map(|key| self.range(&Read::key(key))).collect(),
            };
            let response = self.client.transact(request).await?;
            if response.succeeded {
                return Ok(Written::Done);
            }
            let found = self.entries(response).into_iter().chain(std::iter::repeat_with(Vec::new));
            let values = found.take(n_read).map(|entries| Some(entries.into_iter().next()?.value));
            Ok(Written::Failed(values.collect()))
        })
    }

    fn hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.news.notified())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, RemoteError>> {
        Box::pin(async move {
            let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
            Ok(Lease(self.client.grant(LeaseGrantRequest { ttl }).await?.id))
        })
    }

    fn keep_alive(&self, lease: Lease) -> BoxFuture<'_, Result<bool, RemoteError>> {
        Box::pin(self.client.keep_alive(lease.0))
    }

    fn revoke(&self, lease: Lease) -> BoxFuture<'_, Result<(), RemoteError>> {
        Box::pin(self.client.revoke(lease.0))
    }
}

/// Wakes at each change of the key, for ever.
async fn watch_head(client: Arc<Client>, key: String, news: Arc<Notify>) {
    loop {
        // Why it ended does not matter: news may have been missed, and the next call says whether anything is wrong.
        let _ = client.watch(key.clone().into(), || news.notify_one()).await;
        news.notify_one();
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// Comparisons are of versions or values.
const VERSION: i32 = 0;
const VALUE: i32 = 3;

const NO_LEASE: Lease = Lease(0);

/// Before a watch is opened again.
const WATCH_PAUSE: Duration = Duration::from_secs(1);
