//! Yes, no, or unknown.

/// The outcome of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    Yes,
    No,
    /// It depends on something that the request does not say.
    Unknown,
}

impl Truth {
    pub(crate) fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    /// `yes`, `no` or `unknown`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) fn not_if(self, inverts: bool) -> Self {
        if inverts { self.not() } else { self }
    }
}

impl From<bool> for Truth {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}
