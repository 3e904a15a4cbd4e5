//! What an operator should hear of after a store was opened.

use std::fmt;
use std::path::PathBuf;

/// Something that was not as it should be and was put right when the store was opened.
///
/// Whoever opens the store should log each as a warning.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OpenNote {
    /// The journal ended in the middle of a record, as it does when the machine stops while one is written.
    ///
    /// What was cut off was no complete commit.
    TornEnd {
        /// The journal file.
        path: PathBuf,
        /// Where it ends now, in bytes.
        offset: u64,
        /// Bytes that were cut off.
        bytes: u64,
    },
    /// The index was made again from the journal. Nothing is lost.
    IndexRebuilt {
        /// Where the unusable index is now, if it was not simply out of date.
        aside: Option<PathBuf>,
        /// What was wrong with it.
        reason: String,
    },
    /// The index is kept in memory until the next start. Nothing is lost.
    IndexInMemory {
        /// Why it cannot be kept on disk.
        reason: String,
    },
}

impl fmt::Display for OpenNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornEnd { path, offset, bytes } => {
                let path = path.display();
                write!(
                    f,
                    "{path} ended in an incomplete record: {bytes} bytes after byte {offset} were cut off"
                )
            }
            Self::IndexRebuilt { aside: Some(aside), reason } => {
                write!(
                    f,
                    "the index was rebuilt from the journal: {reason}; the old one is {}",
                    aside.display()
                )
            }
            Self::IndexRebuilt { aside: None, reason } => {
                write!(f, "the index was rebuilt from the journal: {reason}")
            }
            Self::IndexInMemory { reason } => {
                write!(f, "the index is kept in memory until the next start: {reason}")
            }
        }
    }
}
