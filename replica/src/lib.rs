//! A store that several servers share.
//!
//! What is shared is a chain of commits in a [`Remote`]: a map of keys to values that changes by transactions, such as etcd. Each server
//! is a [`Replica`]: it keeps the whole kept history in a journal of its own, the *mirror*, and reads from there alone. So a server
//! starts and serves without the remote.
//!
//! A commit is one transaction on the key `head`: if its bytes are those that the commit was built on, the commit and the next head are
//! put. Each commit names the hash of the chain before it. A replica takes only what links to what it has, so events that are lost,
//! repeated or out of order, members that are behind, and restored backups all look the same: they do not link.
//! A replica never takes anything away because the remote is gone, empty, or set back.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`chain`] | Which commit follows which? |
//! | [`body`] | How are a commit and its contents written? |
//! | [`draft`] | What is put for a commit? |
//! | [`seal`] | Who can read them? |
//! | [`layout`] | Under which key is what? |
//! | [`feed`] | What does a server that only follows read? |
//! | [`judge`] | Does a mirror follow what the remote shows? |
//! | [`remote`] | What must a remote be able to do? |
//! | [`position`] | Where in the chain is the mirror? |
//! | [`replica`] | The store: commits and reads. |
//! | [`follow`] | How does a mirror catch up? |
//! | [`retain`] | Which commits does the remote keep? |
//! | [`migrate`] | How does a journal become the shared store? |
//! | [`state`] | Which state does a remote have at a revision? |
//! | [`end`] | Where do the histories of servers end that do not follow? |
//! | [`mod@compact`] | What is deleted by command? |
//! | [`mod@adopt`] | How do all servers take what the remote has? |
//! | [`members`] | Which servers share the store? |
//! | [`presence`] | How do they know of this one? |
//! | [`etcd`] | The remote in etcd. |

mod adopt;
mod body;
mod chain;
mod compact;
mod draft;
mod end;
pub mod etcd;
mod feed;
mod follow;
mod judge;
mod layout;
mod members;
mod migrate;
mod position;
mod presence;
mod remote;
mod replica;
mod retain;
mod seal;
mod small_file;
mod state;

pub use adopt::{AdoptError, Adopted, adopt};
pub use compact::{CompactError, Compacted, compact};
pub use feed::{Feed, FeedError};
pub use members::{Gone, MAX_MEMBERS, Member, Members, Seat};
pub use migrate::{PushError, Pushed, detach, push};
pub use presence::{Company, ForgetError, Presence, PresenceError, PresenceOptions};
pub use remote::{Compare, Entry, Lease, Put, Read, Remote, RemoteError, Transaction, Written};
pub use replica::{OpenError, Options, Replica, Role};
pub use seal::{KeyFileError, StoreKeys};
pub use small_file::replace as replace_file;
