//! The tree of a regular expression.

use super::class::Class;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// It matches nothing: a class without characters.
    Nothing,
    /// It matches the empty text.
    Empty,
    /// One or more characters. Each is a byte, unless the text is UTF-8.
    Text {
        text: Vec<u32>,
        folds_case: bool,
    },
    Class(Class),
    /// Any character.
    Any,
    /// `\C`.
    Byte,
    At(Anchor),
    Concat(Vec<Self>),
    Alternate(Vec<Self>),
    Repeat {
        times: Times,
        flags: Flags,
        of: Box<Self>,
    },
    Capture(Box<Self>),
}

/// A condition that takes no characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    BeginText,
    /// `\z`.
    EndText,
    /// `$`, unless it means the end of a line.
    Dollar,
    BeginLine,
    EndLine,
    WordBoundary,
    NoWordBoundary,
}

/// How often a part repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// `*`.
    Star,
    /// `+`.
    Plus,
    /// `?`.
    Quest,
    /// `{2}`, `{2,}` or `{2,3}`.
    Counted { least: u32, most: Option<u32> },
}

/// The flags that `(?…)` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) folds_case: bool,
    pub(super) is_multi_line: bool,
    pub(super) dot_takes_newline: bool,
    pub(super) is_lazy: bool,
}

impl Node {
    pub(super) fn character(rune: u32, folds_case: bool) -> Self {
        Self::Text { text: vec![rune], folds_case }
    }

    /// The parts after each other.
    pub(super) fn concat(mut parts: Vec<Self>) -> Self {
        match parts.len() {
            0 => Self::Empty,
            1 => parts.swap_remove(0),
            _ => Self::Concat(parts),
        }
    }

    /// One of the parts.
    pub(super) fn alternate(mut parts: Vec<Self>) -> Self {
        match parts.len() {
            0 => Self::Nothing,
            1 => parts.swap_remove(0),
            _ => Self::Alternate(parts),
        }
    }

    /// Repeats a node. Stacked operators with the same flags become one.
    pub(super) fn repeat(of: Self, times: Times, flags: Flags) -> Self {
        if times.is_operator()
            && let Self::Repeat { times: inner, flags: inner_flags, of } = &of
            && inner.is_operator()
            && *inner_flags == flags
        {
            let times = if *inner == times { times } else { Times::Star };
            return Self::Repeat { times, flags, of: of.clone() };
        }
        Self::Repeat { times, flags, of: Box::new(of) }
    }

    /// Returns `true` for one character, by a literal or a class.
    pub(super) fn is_one_character(&self) -> bool {
        match self {
            Self::Text { text, .. } => text.len() == 1,
            Self::Class(_) | Self::Any | Self::Byte => true,
            Self::Nothing
            | Self::Empty
            | Self::At(_)
            | Self::Concat(_)
            | Self::Alternate(_)
            | Self::Repeat { .. }
            | Self::Capture(_) => false,
        }
    }
}

impl Times {
    /// Returns `true` for `*`, `+` and `?`.
    pub(super) fn is_operator(self) -> bool {
        !matches!(self, Self::Counted { .. })
    }

    pub(super) fn bounds(self) -> (u32, Option<u32>) {
        match self {
            Self::Star => (0, None),
            Self::Plus => (1, None),
            Self::Quest => (0, Some(1)),
            Self::Counted { least, most } => (least, most),
        }
    }
}
