//! The state that a remote has at a revision, without a mirror of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use xds_store::{BlobHash, Revision};

use crate::body::Body;
use crate::chain::{ChainHash, Head};
use crate::follow::{PAGE, Trouble, read_base, read_commit};
use crate::layout::{self, Base, Parts};
use crate::remote::{Entry, Put, Remote};
use crate::seal::Sealer;

/// Where the kept history of a store begins: its base, or the empty state.
pub(crate) fn beginning(store: &str, base: Option<&Base>) -> (Revision, ChainHash) {
    match base {
        Some(base) => (base.revision, base.chain),
        None => (Revision::ZERO, ChainHash::of_beginning(store, Revision::ZERO)),
    }
}

/// Reads the state at `end`, with its contents, and the chain there. It needs memory for all contents of the state and of a page of commits.
pub(crate) async fn read_state(
    remote: &dyn Remote,
    sealer: &Sealer,
    (store, base): (&str, Option<&Base>),
    end: Revision,
) -> Result<(Body, ChainHash), Trouble> {
    let (mut state, mut contents) = (BTreeMap::new(), HashMap::new());
    if let Some(base) = base.filter(|base| !base.packs.is_empty()) {
        let (of_base, blobs) = read_base(remote, sealer, store, base).await?;
        state = of_base;
        keep(&mut contents, blobs);
    }
    let (revision, chain) = beginning(store, base);
    let mut head = Head { epoch: 0, revision, chain };
    while head.revision < end {
        let page = remote.read(vec![layout::commits_from(head.revision.next(), PAGE)]).await?;
        let page = page.into_iter().next().unwrap_or_default();
        if page.is_empty() {
            return Err(Trouble::Moved);
        }
        for Entry { key, value } in page {
            if head.revision == end {
                break;
            }
            if key != layout::commit_key(head.revision.next()) {
                return Err(Trouble::Moved);
            }
            let (commit, blobs, next) = read_commit(remote, sealer, (store, head), (&key, &value)).await?;
            head = next;
            keep(&mut contents, blobs);
            for change in commit.changes {
                match change.value {
                    Some(hash) => drop(state.insert(change.key, hash)),
                    None => drop(state.remove(&change.key)),
                }
            }
        }
        // What nothing names any more needs no memory.
        let named: HashSet<_> = state.values().copied().collect();
        contents.retain(|hash, _| named.contains(hash));
    }
    let blobs = state.values().collect::<BTreeSet<_>>().into_iter().map(|hash| {
        let missing = || Trouble::Unreadable(format!("the content {hash} is missing"));
        contents.get(hash).cloned().ok_or_else(missing)
    });
    let blobs = blobs.collect::<Result<Vec<_>, _>>()?;
    let text = serde_json::to_vec(&state).map_err(|error| Trouble::Unreadable(error.to_string()))?;
    Ok((Body { text, blobs }, head.chain))
}

fn keep(contents: &mut HashMap<BlobHash, Bytes>, blobs: Vec<Bytes>) {
    contents.extend(blobs.into_iter().map(|blob| (BlobHash::of(&blob), blob)));
}

/// The parts of a state that is to be the base `revision`, each to be put before that names them. `None` if they have more than
/// [`MAX_BODY_BYTES`](crate::body::MAX_BODY_BYTES).
pub(crate) fn seal_base(
    sealer: &Sealer,
    store: &str,
    revision: Revision,
    body: &Body,
) -> Option<(Vec<BlobHash>, Vec<Put>)> {
    let place = layout::place(Parts::Base, store, revision);
    let sealed = sealer.seal(&place, body.encode().ok()?)?;
    let parts = Parts::Base.cut(revision, &sealed);
    (parts.len() <= layout::MAX_PARTS).then(|| parts.into_iter().unzip())
}
