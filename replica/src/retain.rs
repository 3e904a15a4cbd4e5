//! How much of the history the remote keeps.
//!
//! Any replica may do it. The base is replaced by comparing it, and commits are deleted in the same transaction, so a reader finds either.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_store::{HistoryError, Revision, Store, StoreError};

use crate::body::Body;
use crate::draft::put_parts;
use crate::follow::chain;
use crate::layout::{self, BASE, Base, CommitLine, MAX_PARTS, META, Parts};
use crate::remote::{Compare, Put, Read, Transaction};
use crate::replica::Shared;

/// Moves the base whenever the history has grown by a quarter more than is kept.
pub(crate) async fn retain(shared: Arc<Shared>) {
    let mut moved = shared.moved.subscribe();
    while moved.changed().await.is_ok() {
        moved.borrow_and_update();
        let base = shared.tail.lock().await.base;
        let keep = shared.options.retention.revisions.max(1);
        let head = shared.mirror.head();
        // The mirror also limits the bytes that it keeps.
        let oldest = shared.mirror.oldest();
        if oldest <= base && head.0.saturating_sub(base.0) <= keep.saturating_add(keep / 4) {
            continue;
        }
        let revision = Revision(head.0.saturating_sub(keep)).max(oldest);
        match move_base(&shared, revision).await {
            Ok(()) => tracing::info!(oldest = revision.0, "the history of the shared store was shortened"),
            Err(reason) => tracing::warn!(reason, "the history of the shared store could not be shortened"),
        }
    }
}

/// Makes the state at `revision` the base.
async fn move_base(shared: &Arc<Shared>, revision: Revision) -> Result<(), String> {
    let (store, meta, sealer) = {
        let tail = shared.tail.lock().await;
        let (Some(position), Some((meta, sealer))) = (&tail.position, &tail.sealer) else { return Ok(()) };
        (position.store.clone(), meta.clone(), sealer.clone())
    };
    let found = shared.remote.read(vec![Read::key(BASE), Read::key(layout::commit_key(revision))]).await;
    let mut found = found.map_err(|error| error.to_string())?.into_iter();
    let mut next = || found.next().and_then(|entries| entries.into_iter().next()).map(|entry| entry.value);
    let (old, commit) = (next(), next());
    // Another replica was faster.
    let Some((line, _)) = commit.as_ref().and_then(CommitLine::parse) else { return Ok(()) };
    let (ours, place) = (Arc::clone(shared), layout::place(Parts::Base, &store, revision));
    let sealed = tokio::task::spawn_blocking(move || {
        let plain = state_at(&ours.mirror, revision)?.encode().map_err(|error| error.to_string())?;
        sealer.seal(&place, plain).ok_or_else(|| "the system has no random numbers".to_owned())
    });
    let sealed = sealed.await.map_err(|error| error.to_string())??;
    let parts = Parts::Base.cut(revision, &sealed);
    if parts.len() > MAX_PARTS {
        return Err(format!("the state has {} MiB, more than {MAX_PARTS}", parts.len()));
    }
    let (packs, puts): (Vec<_>, Vec<Put>) = parts.into_iter().unzip();
    put_parts(&*shared.remote, &puts).await.map_err(|error| error.to_string())?;
    let base = serde_json::to_vec(&Base { revision, chain: line.chain, packs });
    let base = base.map_err(|error| error.to_string())?;
    let transaction = Transaction {
        compares: vec![
            old.map_or_else(|| Compare::Absent(BASE.to_owned()), |old| Compare::Value(BASE.to_owned(), old)),
            Compare::Value(META.to_owned(), meta),
        ],
        puts: vec![Put { key: BASE.to_owned(), value: base.into() }],
        deletes: vec![
            layout::commits_before(revision.next()),
            Parts::Commit.before(revision.next()),
            Parts::Base.before(revision),
        ],
        ..Transaction::default()
    };
    shared.remote.write(transaction).await.map_err(|error| error.to_string())?;
    shared.tail.lock().await.base = revision;
    Ok(())
}

/// The state at `revision`, with its contents.
pub(crate) fn state_at(mirror: &dyn Store, revision: Revision) -> Result<Body, String> {
    let state = mirror.state_at(revision).map_err(|error: HistoryError| chain(&error))?;
    let hashes: BTreeSet<_> = state.values().copied().collect();
    let blobs = hashes.into_iter().map(|hash| {
        let content = mirror.blob(hash).map_err(|error: StoreError| chain(&error))?;
        content.ok_or_else(|| format!("the content {hash} is missing"))
    });
    let blobs = blobs.collect::<Result<Vec<_>, _>>()?;
    let state: std::collections::BTreeMap<_, _> = state.iter().map(|(key, hash)| (&**key, hash)).collect();
    let text = serde_json::to_vec(&state).map_err(|error| error.to_string())?;
    Ok(Body { text, blobs })
}
