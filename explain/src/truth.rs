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

    /// Yes if one is yes.
    pub(crate) fn any(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::No, |any, one| match (any, one) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::No, Self::No) => Self::No,
        })
    }

    /// Yes if none is no or unknown.
    pub(crate) fn all(all: impl IntoIterator<Item = Self>) -> Self {
        Self::any(all.into_iter().map(Self::not)).not()
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
