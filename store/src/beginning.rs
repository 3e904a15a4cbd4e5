//! A state to begin with instead of an empty one.

use bytes::Bytes;

use crate::{Revision, State};

/// A state that another store reached, at a revision.
///
/// Printing it shows keys and contents: it is not for logs.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The revision of the state.
    pub revision: Revision,
    /// Every key and its value.
    pub state: State,
    /// The contents of all values, in any order.
    pub blobs: Vec<Bytes>,
}
