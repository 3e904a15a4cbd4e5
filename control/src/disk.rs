//! Disks that do not take what is to be stored: said until they do.

use xds_store::StoreError;

use crate::causes::chain;
use crate::transition::Note;

/// What is noted of something that was stored, or could not be.
pub(crate) fn note(stored: Result<(), &StoreError>) -> Option<Note> {
    match stored {
        Ok(()) => Some(Note::solved(STORE)),
        Err(error) if error.is_of_disk() => {
            let problem =
                format!("changes cannot be stored and are refused: {}; what is served goes on", chain(error));
            Some(Note::problem(STORE, problem))
        }
        // The change was at fault, or the server ends.
        Err(_) => None,
    }
}

/// What is noted of copies of files that were saved, or could not be.
pub(crate) fn note_of_copies(failure: Option<&str>) -> Note {
    let problem =
        |failure| format!("last good copies of files cannot be saved: {failure}; it is tried again");
    Note { subject: COPIES, problem: failure.map(problem) }
}

/// The subjects of these problems.
pub(crate) const STORE: &str = "disk";
const COPIES: &str = "last-good";
