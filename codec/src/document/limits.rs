//! Bounds on the work that a text can cause.

/// Bounds on what one file can make this program do. A text beyond one of them is refused with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest file in bytes.
    pub max_bytes: usize,
    /// How deep lists and objects may nest. 100 is also the bound of protobuf's own readers.
    pub max_depth: usize,
    /// How much aliases may copy: one for each value and for each 32 bytes of text in it.
    ///
    /// Aliases of a short text may copy less, see [`MIN_ALIAS_COST`].
    pub max_alias_cost: usize,
    /// How many values one document may have, each list, object and scalar being one; keys count with their values.
    pub max_document_values: usize,
    /// How many diagnostics are given for one file before "and N more".
    pub max_diagnostics: usize,
}

impl Limits {
    /// A resource or document of 10 MiB has at most about a million values: the densest of use are endpoints and domains, with
    /// ten bytes for each. Twice that leaves room; anything denser is not a configuration.
    pub const DEFAULT_DOCUMENT_VALUES: usize = 2_000_000;

    /// How many objects a file of that many bytes may hold.
    ///
    /// An object that is read takes some 700 bytes besides its content, so what a file holds may not be only objects: one for every
    /// 64 bytes, which is less than any of use has, and 5,000 more for files of short ones.
    #[must_use]
    pub const fn max_objects(n_bytes: usize) -> usize {
        5_000 + n_bytes / 64
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 10 << 20,
            max_depth: 100,
            max_alias_cost: 200_000,
            max_document_values: Self::DEFAULT_DOCUMENT_VALUES,
            max_diagnostics: 100,
        }
    }
}

/// The cost of copies by aliases that any text may have, see [`Limits::max_alias_cost`]. Beyond that they may copy one for every
/// 16 bytes of text: a text that grows more by its aliases has been written to be large, and not to be read.
pub(super) const MIN_ALIAS_COST: usize = 10_000;
