//! Notes for operators about a store that was opened.

use std::fmt;
use std::path::PathBuf;

/// Something that was not as it should be and was put right when the store was opened.
///
/// The program that opens the store should log each as a warning.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OpenNote {
    /// The journal ended in the middle of a record, as it does when the machine stops while one is written.
    ///
    /// The part that was cut off was no complete commit.
    TornEnd {
        /// The journal file.
        path: PathBuf,
        /// Where it ends now, in bytes.
        offset: u64,
        /// Bytes that were cut off.
        bytes: u64,
    },
    /// The record of the newest acknowledged revision was unusable, and starts anew. Nothing in the journal is lost.
    MarkReplaced {
        /// Where the unusable one is now.
        aside: PathBuf,
        /// The fault in it.
        reason: String,
    },
    /// Acknowledged commits are not marked until the next start, so a journal that loses its end goes unnoticed.
    NotMarked {
        /// Why not.
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
            Self::MarkReplaced { aside, reason } => {
                let aside = aside.display();
                write!(
                    f,
                    "the record of the newest acknowledged revision starts anew: {reason}; the old one is {aside}"
                )
            }
            Self::NotMarked { reason } => {
                write!(f, "acknowledged revisions are not recorded until the next start: {reason}")
            }
        }
    }
}
