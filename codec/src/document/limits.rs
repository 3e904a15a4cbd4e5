//! Limits on the work that a text can cause.

/// Limits on the work for one file. A text beyond a limit is refused with a message that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest file in bytes.
    pub max_bytes: usize,
    /// How deeply lists and objects may nest. 100 is also the limit of protobuf parsers.
    pub max_depth: usize,
    /// How much aliases may copy: each value costs 1, and 1 more for every 32 bytes of text in it.
    ///
    /// In a short text, aliases may copy less; see [`MIN_ALIAS_COST`].
    pub max_alias_cost: usize,
    /// How many values a document may have. Lists, objects and scalars count as one each; keys do not count.
    pub max_document_values: usize,
    /// How many diagnostics of one file are reported before "and N more".
    pub max_diagnostics: usize,
}

impl Limits {
    /// A resource or document of 10 MiB has at most about a million values: real texts are densest with endpoints and domains, with ten
    /// bytes each. This is twice as much.
    pub const DEFAULT_DOCUMENT_VALUES: usize = 2_000_000;

    /// How many objects a file of `n_bytes` bytes may have: one for every 64 bytes, and 5,000 more.
    ///
    /// Reading an object takes some 700 bytes in addition to its content, so objects must not be tiny. Real ones have more than 64 bytes.
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

/// The cost of aliases that any text may have, see [`Limits::max_alias_cost`]. Beyond that, a cost of 1 is allowed for every 16 bytes of
/// text. Only an attack grows more by its aliases.
pub(super) const MIN_ALIAS_COST: usize = 10_000;
