//! Text patterns.

/// A text pattern: `*` stands for any run of characters, also none; `?` for one; `\` takes the next one literally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: String,
    parts: Vec<GlobPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlobPart {
    Any,
    One,
    Exactly(char),
}

impl Glob {
    /// Reads a pattern; every text is one.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            match character {
                '*' if parts.last() == Some(&GlobPart::Any) => {}
                '*' => parts.push(GlobPart::Any),
                '?' => parts.push(GlobPart::One),
                '\\' => parts.push(GlobPart::Exactly(characters.next().unwrap_or('\\'))),
                other => parts.push(GlobPart::Exactly(other)),
            }
        }
        Self { pattern: pattern.to_owned(), parts }
    }

    /// The pattern that matches exactly `text`.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        let mut pattern = String::with_capacity(text.len());
        for character in text.chars() {
            if matches!(character, '*' | '?' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        Self { pattern, parts: text.chars().map(GlobPart::Exactly).collect() }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// The only text that matches, if there is only one and it needed no escape.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        let plain = self.parts.iter().all(|part| matches!(part, GlobPart::Exactly(_)));
        (plain && !self.pattern.contains('\\')).then_some(&self.pattern)
    }

    /// Returns `true` if the whole `text` matches. Takes at most pattern × text steps.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut rest = text.chars();
        let mut part = 0;
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            let character = rest.next();
            match (self.parts.get(part), character) {
                (Some(GlobPart::Any), _) => {
                    part += 1;
                    rest = before;
                    retry = Some((part, rest.clone()));
                    continue;
                }
                (Some(GlobPart::One), Some(_)) => {
                    part += 1;
                    continue;
                }
                (Some(GlobPart::Exactly(expected)), Some(found)) if *expected == found => {
                    part += 1;
                    continue;
                }
                (None, None) => return true,
                (_, _) => {}
            }
            let Some((restart, mut from)) = retry.take() else { return false };
            if from.next().is_none() {
                return false;
            }
            part = restart;
            rest = from.clone();
            retry = Some((restart, from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_the_whole_text() {
        let table = [
            ("edge-*", "edge-1", true),
            ("edge-*", "edge-", true),
            ("edge-*", "ledge-1", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*ab", "aab", true),
            ("**a", "ba", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("ü?", "üß", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hostile_glob_ends() {
        let glob = Glob::new(&"*a".repeat(500));
        assert!(!glob.matches(&("a".repeat(499) + "b")));
    }

    #[test]
    fn a_literal_matches_only_itself() {
        for text in ["a*b", "?", r"a\b", "plain"] {
            assert!(Glob::literal(text).matches(text));
            assert!(Glob::new(Glob::literal(text).as_str()).matches(text));
            assert!(!Glob::literal(text).matches("a-b"));
        }
    }
}
