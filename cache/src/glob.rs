//! Text patterns.

use std::collections::BTreeSet;

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

    /// Returns `true` if every text that matches `other` also matches this pattern. `false` may also mean that this is not decided.
    ///
    /// Takes at most pattern × pattern steps, and few if the patterns begin differently.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        walk(&self.parts, &other.parts, |own, other| match (own, other) {
            (Some(GlobPart::Any), _) => Step::EITHER,
            (Some(GlobPart::One), Some(GlobPart::One | GlobPart::Exactly(_))) => Step::BOTH,
            (Some(GlobPart::Exactly(own)), Some(GlobPart::Exactly(other))) if own == other => Step::BOTH,
            (Some(GlobPart::One | GlobPart::Exactly(_)) | None, _) => Step::NONE,
        })
    }

    /// Returns `true` if a text matches both this pattern and `other`. Takes at most pattern × pattern steps.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        walk(&self.parts, &other.parts, |own, other| match (own, other) {
            (Some(GlobPart::Any), _) | (_, Some(GlobPart::Any)) => Step::EITHER,
            (None, _) | (_, None) => Step::NONE,
            (Some(GlobPart::One), _) | (_, Some(GlobPart::One)) => Step::BOTH,
            (Some(GlobPart::Exactly(own)), Some(GlobPart::Exactly(other))) if own == other => Step::BOTH,
            (Some(GlobPart::Exactly(_)), Some(GlobPart::Exactly(_))) => Step::NONE,
        })
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

/// The ways on from a pair of places in two patterns.
#[derive(Clone, Copy)]
struct Step {
    /// Past the part of the one or that of the other, where there is one.
    is_either: bool,
    /// Past both parts.
    is_both: bool,
}

impl Step {
    const EITHER: Self = Self { is_either: true, is_both: false };
    const BOTH: Self = Self { is_either: false, is_both: true };
    const NONE: Self = Self { is_either: false, is_both: false };
}

/// Returns `true` if the steps lead from the beginnings of both patterns to their ends. A step sees the parts that are next; `None` at
/// the end.
fn walk(
    own: &[GlobPart],
    other: &[GlobPart],
    step: impl Fn(Option<GlobPart>, Option<GlobPart>) -> Step,
) -> bool {
    let ways = |at: usize, column: usize| step(own.get(at).copied(), other.get(column).copied());
    // The places in `other` that go with a place in `own`.
    let mut columns = BTreeSet::from([0]);
    for at in 0..own.len() {
        let mut next = BTreeSet::new();
        while let Some(column) = columns.pop_first() {
            let Step { is_either, is_both } = ways(at, column);
            if is_either {
                next.insert(column);
            }
            if is_either && column < other.len() {
                columns.insert(column + 1);
            }
            if is_both {
                next.insert(column + 1);
            }
        }
        if next.is_empty() {
            return false;
        }
        columns = next;
    }
    columns.into_iter().any(|column| (column..other.len()).all(|column| ways(own.len(), column).is_either))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All texts of at most four characters over two letters.
    fn texts() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let longer: Vec<String> = all[from..]
                .iter()
                .flat_map(|text| ["a", "b"].map(|letter| format!("{text}{letter}")))
                .collect();
            from = all.len();
            all.extend(longer);
        }
        all
    }

    #[test]
    fn a_glob_covers_and_meets_what_its_texts_say() {
        // The third letter stands for all those that no pattern names.
        let parts = ["", "a", "b", "?", "*"];
        let patterns = (0..625_usize).map(|seed| {
            let pattern: String = (0..4_u32).map(|at| parts[seed / 5_usize.pow(at) % 5]).collect();
            Glob::new(&pattern)
        });
        let patterns: Vec<(Glob, Vec<String>)> = patterns
            .map(|glob| {
                let texts = texts().into_iter().map(|text| text.replace('b', "c")).chain(texts());
                let matching = texts.filter(|text| glob.matches(text)).collect();
                (glob, matching)
            })
            .collect();
        let (mut n_covered, mut n_apart) = (0, 0);
        for (one, of_one) in &patterns {
            for (other, of_other) in &patterns {
                if one.covers(other) {
                    n_covered += 1;
                    let missing = of_other.iter().find(|text| !one.matches(text));
                    assert_eq!(missing, None, "{} does not cover {}", one.as_str(), other.as_str());
                }
                let meets = of_one.iter().any(|text| other.matches(text));
                assert!(one.meets(other) || !meets, "{} meets {}", one.as_str(), other.as_str());
                n_apart += usize::from(!one.meets(other));
            }
        }
        assert!(n_covered > 10_000 && n_apart > 10_000, "{n_covered} {n_apart}");
        for (one, other) in
            [("*", "a*b"), ("edge-*", "edge-1"), ("edge-*", "edge-*-x"), ("a?", "ab"), ("", "")]
        {
            assert!(Glob::new(one).covers(&Glob::new(other)), "{one} covers {other}");
        }
        assert!(!Glob::new("edge-*").meets(&Glob::new("prod-*")));
        assert!(Glob::new("*-1").meets(&Glob::new("edge-*")));
    }

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
