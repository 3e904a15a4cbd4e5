//! Where the histories of servers end that do not follow the remote.
//!
//! A server that finds another history in the remote than its own, or none, says under `end/{id}` where its own ends, and takes that back as
//! soon as it follows again. So whoever decides that the remote is right knows which revisions were given out, a server without a history
//! founds no store where others have lost theirs, and one that did so a moment before knows that clients have seen more than it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::members::MAX_MEMBERS;
use crate::position::Position;
use crate::remote::{Compare, Entry, Put, Read, Remote, RemoteError, Transaction};

/// Puts where the server `id` is, or deletes that. Writes only if it is not so already.
pub(crate) async fn say(
    remote: &dyn Remote,
    id: &str,
    position: Option<&Position>,
) -> Result<(), RemoteError> {
    let key = format!("{END}{id}");
    // A value of texts and numbers always has a JSON form.
    let value = position.map(|position| Bytes::from(serde_json::to_vec(position).unwrap_or_default()));
    let found = remote.read(vec![Read::key(key.clone())]).await?;
    let found = found.into_iter().flatten().next().map(|entry| entry.value);
    let transaction = match (found, value) {
        (None, None) => return Ok(()),
        (Some(found), Some(value)) if found == value => return Ok(()),
        (_, Some(value)) => Transaction { puts: vec![Put { key, value }], ..Transaction::default() },
        (Some(found), None) => Transaction {
            compares: vec![Compare::Value(key.clone(), found)],
            deletes: vec![(key.clone(), format!("{key}\0"))],
            ..Transaction::default()
        },
    };
    remote.write(transaction).await.map(drop)
}

/// All that servers say.
pub(crate) fn read() -> Read {
    let (from, to) = all();
    Read { from, to: Some(to), limit: MAX_MEMBERS }
}

/// The keys of all.
pub(crate) fn all() -> (String, String) {
    (END.to_owned(), END.replace('/', "0"))
}

/// What servers say, by their ids. What cannot be read is left out.
pub(crate) fn parse(entries: &[Entry]) -> BTreeMap<String, Position> {
    let ends = entries.iter().filter_map(|entry| {
        let id = entry.key.strip_prefix(END)?;
        Some((id.to_owned(), serde_json::from_slice(&entry.value).ok()?))
    });
    ends.collect()
}

/// Before the id, in the key of where a server ends.
pub(crate) const END: &str = "end/";
