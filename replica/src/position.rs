//! Where in the chain a mirror is, beside its journal.
//!
//! The journal has the commits, not the chain. A position that is older than the journal's end is as good as a newer one: the chain up to
//! the end follows from the commits since. So it is saved now and then, and never waited for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xds_store::{JournalStore, Revision, Store as _, StoreError};

use crate::chain::Head;
use crate::small_file;

/// The store that a mirror follows, and a place in its chain.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Position {
    pub(crate) store: String,
    #[serde(flatten)]
    pub(crate) head: Head,
}

/// The position cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PositionError {
    #[error("{} cannot be read or written", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a position in a shared store", path.display())]
    Malformed { path: PathBuf },
    #[error("the journal has nothing at the positions of {}", path.display())]
    Elsewhere { path: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads the position at the end of the mirror's journal. `None` if it follows nothing yet.
pub(crate) fn read(dir: &Path, mirror: &JournalStore) -> Result<Option<Position>, PositionError> {
    let path = path(dir);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PositionError::File { path, source }),
    };
    let saved: Vec<Position> =
        serde_json::from_slice(&text).map_err(|_| PositionError::Malformed { path: path.clone() })?;
    for position in saved {
        if let Some(position) = at_end(position, mirror)? {
            return Ok(Some(position));
        }
    }
    match mirror.head() {
        Revision::ZERO => Ok(None),
        _ => Err(PositionError::Elsewhere { path }),
    }
}

/// Saves positions, of which the first that the journal has counts.
pub(crate) fn write(dir: &Path, positions: &[&Position]) -> Result<(), PositionError> {
    let path = path(dir);
    small_file::replace(&path, &positions).map_err(|source| PositionError::File { path, source })
}

/// Makes the mirror a store of its own.
pub(crate) fn remove(dir: &Path) -> Result<bool, PositionError> {
    let path = path(dir);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PositionError::File { path, source }),
    }
}

/// The position of the journal's end, from one that it has.
fn at_end(mut position: Position, mirror: &JournalStore) -> Result<Option<Position>, StoreError> {
    let end = mirror.head();
    if !(mirror.oldest()..=end).contains(&position.head.revision) {
        return Ok(None);
    }
    for revision in position.head.revision.next().0..=end.0 {
        let Some(record) = mirror.record(Revision(revision))? else { return Ok(None) };
        position.head = position.head.next(&record);
    }
    Ok(Some(position))
}

fn path(dir: &Path) -> PathBuf {
    dir.join("replica.json")
}
