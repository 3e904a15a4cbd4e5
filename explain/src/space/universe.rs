//! The texts that a part of a request can be.

/// The texts that a part of a request can be, as an automaton of its own: conditions are asked about no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Universe {
    /// A path without query, as it arrives at the routes.
    Path(PathRules),
    /// `/service/method`.
    GrpcPath,
    /// The method.
    Method,
    /// A value of a header; of gRPC metadata if it is ASCII alone.
    Value { is_ascii: bool },
    /// A value in a query.
    Query,
    /// A value of a cookie.
    Cookie,
}

/// What the connection manager does to paths: such paths do not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathRules {
    pub(crate) normalizes: bool,
    pub(crate) merges_slashes: bool,
    pub(crate) unescapes_slashes: bool,
    pub(crate) ignores_parameters: bool,
    /// True if some condition looks at a percent sign. If not, paths without one are as good.
    pub(crate) has_escapes: bool,
}

/// A state: what is open of a character, of an escape, of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    character: Character,
    escape: Escape,
    part: Part,
}

/// What is missing of a character in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Character {
    Whole,
    /// So many bytes.
    Open(u8),
    /// So many bytes, the first of which is in a range.
    Limited(u8, u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Escape {
    None,
    Percent,
    Digit(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Nothing yet.
    Start,
    /// Behind a slash.
    Slash,
    Dot,
    DotDot,
    Other,
    /// The service of a gRPC path, its end, and the method.
    Service,
    ServiceEnd,
    Method,
    /// Behind a blank, which cannot be the last.
    Blank,
}

impl State {
    /// No text yet.
    pub(crate) const START: Self =
        Self { character: Character::Whole, escape: Escape::None, part: Part::Start };
}

impl Universe {
    /// Returns `true` if the text may end here.
    pub(crate) fn accepts(self, state: State) -> bool {
        let is_whole = state.character == Character::Whole;
        is_whole
            && match self {
                Self::Path(rules) => {
                    state.part != Part::Start
                        && !(rules.normalizes && matches!(state.part, Part::Dot | Part::DotDot))
                }
                Self::GrpcPath => state.part == Part::Method,
                Self::Method => state.part == Part::Other,
                Self::Value { .. } => state.part != Part::Blank,
                Self::Query | Self::Cookie => true,
            }
    }

    /// The state behind a byte; `None` if no text goes on so.
    pub(crate) fn step(self, state: State, byte: u8) -> Option<State> {
        let character = state.character.step(byte)?;
        let is_ascii_only = matches!(self, Self::GrpcPath | Self::Method | Self::Value { is_ascii: true });
        if is_ascii_only && !byte.is_ascii() || byte < b' ' || byte == 0x7f {
            return None;
        }
        let state = State { character, ..state };
        match self {
            Self::Path(rules) => rules.step(state, byte),
            Self::GrpcPath => grpc_path(state, byte),
            Self::Method => (byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
                .then_some(State { part: Part::Other, ..state }),
            Self::Value { .. } => match (state.part, byte) {
                (Part::Start, b' ') => None,
                (_, b' ') => Some(State { part: Part::Blank, ..state }),
                _ => Some(State { part: Part::Other, ..state }),
            },
            Self::Query => (!b" #&".contains(&byte)).then_some(state),
            Self::Cookie => (!b" \",;\\".contains(&byte)).then_some(state),
        }
    }

    /// The bytes that it tells apart one by one; all others are alike.
    pub(crate) fn special(self) -> &'static [u8] {
        match self {
            Self::Path(_) | Self::GrpcPath => b"/.%?#; \\",
            Self::Method => b"!#$%&'*+-.^_`|~",
            Self::Value { .. } => b" ",
            Self::Query => b" #&",
            Self::Cookie => b" \",;\\",
        }
    }

    /// Returns `true` if escapes matter, so that hexadecimal digits are told apart.
    pub(crate) fn reads_escapes(self) -> bool {
        matches!(self, Self::Path(rules) if rules.has_escapes && (rules.normalizes || rules.unescapes_slashes))
    }
}

impl Character {
    fn step(self, byte: u8) -> Option<Self> {
        let open = |n: u8| if n == 0 { Self::Whole } else { Self::Open(n) };
        match (self, byte) {
            (Self::Whole, 0..=0x7f) => Some(Self::Whole),
            (Self::Whole, 0xc2..=0xdf) => Some(Self::Open(1)),
            (Self::Whole, 0xe0) => Some(Self::Limited(2, 0xa0, 0xbf)),
            (Self::Whole, 0xed) => Some(Self::Limited(2, 0x80, 0x9f)),
            (Self::Whole, 0xe1..=0xef) => Some(Self::Open(2)),
            (Self::Whole, 0xf0) => Some(Self::Limited(3, 0x90, 0xbf)),
            (Self::Whole, 0xf1..=0xf3) => Some(Self::Open(3)),
            (Self::Whole, 0xf4) => Some(Self::Limited(3, 0x80, 0x8f)),
            (Self::Open(n), 0x80..=0xbf) => Some(open(n - 1)),
            (Self::Limited(n, low, high), _) if (low..=high).contains(&byte) => Some(open(n - 1)),
            (Self::Whole | Self::Open(_) | Self::Limited(..), _) => None,
        }
    }
}

impl PathRules {
    fn step(self, state: State, byte: u8) -> Option<State> {
        let is_escaped = self.normalizes || self.unescapes_slashes;
        let is_left_out = byte == b';' && self.ignores_parameters
            || byte == b'%' && is_escaped && !self.has_escapes
            || b" ?#".contains(&byte);
        if is_left_out {
            return None;
        }
        let part = match (state.part, byte) {
            (Part::Start, b'/') => Part::Slash,
            (Part::Start, _) => return None,
            (Part::Slash, b'/') if self.merges_slashes => return None,
            (Part::Dot | Part::DotDot, b'/') if self.normalizes => return None,
            (_, b'/') => Part::Slash,
            (_, b'\\') if self.normalizes => return None,
            (Part::Slash, b'.') => Part::Dot,
            (Part::Dot, b'.') => Part::DotDot,
            _ => Part::Other,
        };
        let escape = match (state.escape, char::from(byte).to_digit(16)) {
            _ if !is_escaped => Escape::None,
            (Escape::Percent, Some(digit)) => Escape::Digit(u8::try_from(digit).unwrap_or_default()),
            (Escape::Digit(high), Some(digit)) => {
                let escaped = high * 16 + u8::try_from(digit).unwrap_or_default();
                let is_undone = self.normalizes
                    && (escaped.is_ascii_alphanumeric() || b"-._~".contains(&escaped))
                    || self.unescapes_slashes && b"/\\".contains(&escaped);
                if is_undone {
                    return None;
                }
                Escape::None
            }
            _ if byte == b'%' => Escape::Percent,
            _ => Escape::None,
        };
        // What no rule looks at is one state.
        let part =
            if self.normalizes || self.merges_slashes && part == Part::Slash { part } else { Part::Other };
        Some(State { part, escape, ..state })
    }
}

fn grpc_path(state: State, byte: u8) -> Option<State> {
    if b" ?#".contains(&byte) {
        return None;
    }
    let part = match (state.part, byte == b'/') {
        (Part::Start, true) => Part::Slash,
        (Part::Service, true) => Part::ServiceEnd,
        (Part::Slash | Part::Service, false) => Part::Service,
        (Part::ServiceEnd | Part::Method, false) => Part::Method,
        _ => return None,
    };
    Some(State { part, ..state })
}
