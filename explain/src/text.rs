//! Matchers of one text (XR13).

use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::regex::Pattern;
use crate::semantics::{Difference, Semantics};
use crate::shape::Shape;
use crate::truth::Truth;

/// How letters are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Nothing,
    Ascii,
    Unicode,
}

impl Fold {
    /// That of `ignore_case`.
    pub(crate) fn if_ignored(is_ignored: bool, semantics: Semantics) -> Self {
        match (is_ignored, semantics.has(Difference::CaseFoldsInUnicode)) {
            (false, _) => Self::Nothing,
            (true, false) => Self::Ascii,
            (true, true) => Self::Unicode,
        }
    }

    fn of(self, text: &str) -> String {
        match self {
            Self::Nothing => text.to_owned(),
            Self::Ascii => text.to_ascii_lowercase(),
            Self::Unicode => text.to_lowercase(),
        }
    }
}

/// A condition on a text.
#[derive(Debug)]
pub(crate) struct Text {
    kind: Kind,
    fold: Fold,
}

#[derive(Debug)]
enum Kind {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    Regex(Pattern),
    /// An extension.
    Custom(String),
    /// The message says nothing.
    Nothing,
}

impl Text {
    pub(crate) fn exact(text: &str, fold: Fold) -> Self {
        Self { kind: Kind::Exact(fold.of(text)), fold }
    }

    pub(crate) fn prefix(text: &str, fold: Fold) -> Self {
        Self { kind: Kind::Prefix(fold.of(text)), fold }
    }

    pub(crate) fn suffix(text: &str) -> Self {
        Self { kind: Kind::Suffix(text.to_owned()), fold: Fold::Nothing }
    }

    pub(crate) fn contains(text: &str) -> Self {
        Self { kind: Kind::Contains(text.to_owned()), fold: Fold::Nothing }
    }

    pub(crate) fn regex(text: &str, semantics: Semantics) -> Self {
        Self { kind: Kind::Regex(Pattern::new(text, semantics)), fold: Fold::Nothing }
    }

    pub(crate) fn of(matcher: &StringMatcher, semantics: Semantics) -> Self {
        let fold = Fold::if_ignored(matcher.ignore_case, semantics);
        let kind = match &matcher.match_pattern {
            Some(MatchPattern::Exact(text)) => Kind::Exact(fold.of(text)),
            Some(MatchPattern::Prefix(text)) => Kind::Prefix(fold.of(text)),
            Some(MatchPattern::Suffix(text)) => Kind::Suffix(fold.of(text)),
            Some(MatchPattern::Contains(text)) => Kind::Contains(fold.of(text)),
            Some(MatchPattern::SafeRegex(regex)) => Kind::Regex(Pattern::new(&regex.regex, semantics)),
            Some(MatchPattern::Custom(extension)) => Kind::Custom(extension.name.clone()),
            None => Kind::Nothing,
        };
        Self { kind, fold }
    }

    pub(crate) fn matches(&self, text: &str) -> Truth {
        let folded;
        let seen = match self.fold {
            Fold::Nothing => text,
            Fold::Ascii | Fold::Unicode => {
                folded = self.fold.of(text);
                &folded
            }
        };
        match &self.kind {
            Kind::Exact(wanted) => (seen == wanted).into(),
            Kind::Prefix(wanted) => seen.starts_with(&**wanted).into(),
            Kind::Suffix(wanted) => seen.ends_with(&**wanted).into(),
            Kind::Contains(wanted) => seen.contains(&**wanted).into(),
            Kind::Regex(pattern) => pattern.matches(text.as_bytes()),
            Kind::Custom(_) => Truth::Unknown,
            Kind::Nothing => Truth::No,
        }
    }

    /// The texts that it takes; `None` if that is not known. Letters that only Unicode folds to ASCII are taken for themselves.
    pub(crate) fn shapes(&self) -> Option<Vec<Shape<'_>>> {
        let folds = self.fold != Fold::Nothing;
        Some(match &self.kind {
            Kind::Exact(text) => vec![Shape::Exact { text: text.clone(), folds }],
            Kind::Prefix(text) => vec![Shape::Prefix { text: text.clone(), folds }],
            Kind::Suffix(text) => vec![Shape::Suffix { text: text.clone(), folds }],
            Kind::Contains(text) => vec![Shape::Contains { text: text.clone(), folds }],
            Kind::Regex(pattern) => vec![Shape::Regex(pattern)],
            Kind::Custom(_) => return None,
            Kind::Nothing => Vec::new(),
        })
    }

    /// `"on"`, `prefix "a"`, `regex "a+"`.
    pub(crate) fn describe(&self) -> String {
        let case = if self.fold == Fold::Nothing { "" } else { " in any case" };
        match &self.kind {
            Kind::Exact(text) => format!("{text:?}{case}"),
            Kind::Prefix(text) => format!("prefix {text:?}{case}"),
            Kind::Suffix(text) => format!("suffix {text:?}{case}"),
            Kind::Contains(text) => format!("a text with {text:?}{case}"),
            Kind::Regex(pattern) => format!("regex {:?}", pattern.text()),
            Kind::Custom(name) => format!("the extension {name}"),
            Kind::Nothing => "nothing".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Language};

    #[test]
    fn r13_case_is_ignored_in_ascii_or_in_unicode() {
        let text = |language, pattern| {
            let matcher = StringMatcher { ignore_case: true, match_pattern: Some(pattern) };
            Text::of(&matcher, Semantics::of(Client::newest(language)))
        };
        for (language, is_unicode) in
            [(Language::Envoy, false), (Language::CCore, false), (Language::Go, true)]
        {
            let exact = text(language, MatchPattern::Exact("ÄB".to_owned()));
            assert_eq!(exact.matches("Äb"), Truth::Yes);
            assert_eq!(exact.matches("äb"), Truth::from(is_unicode), "{language:?}");
            assert_eq!(text(language, MatchPattern::Suffix("B".to_owned())).matches("ab"), Truth::Yes);
            assert_eq!(text(language, MatchPattern::Contains("B".to_owned())).matches("abc"), Truth::Yes);
            assert_eq!(text(language, MatchPattern::Prefix("B".to_owned())).matches("ab"), Truth::No);
        }
    }
}
