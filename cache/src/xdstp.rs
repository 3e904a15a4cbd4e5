//! `xdstp:` names: which spellings are one name, and glob collections.
//!
//! This module works on names only. Names of the old style are compared byte by byte and never changed (row A61).

use std::borrow::Cow;
use std::fmt::Write as _;

/// The beginning of every such name.
const SCHEME: &str = "xdstp://";

/// The canonical spelling of a name: context parameters sorted by key, and percent-escapes exactly where a URI needs them (rows
/// A144, A147). Any other text is returned unchanged, and so is an invalid `xdstp:` name: one without an id, with a directive
/// (`#`), or with two parameters of one key (rows A146, A150, A151).
#[must_use]
pub fn canonical(name: &str) -> Cow<'_, str> {
    match canonical_urn(name) {
        Some(canonical) if canonical != name => Cow::Owned(canonical),
        Some(_) | None => Cow::Borrowed(name),
    }
}

/// Returns `true` if the name stands for every resource of a directory: its last path segment is `*` (row A154).
#[must_use]
pub fn is_glob(name: &str) -> bool {
    name.starts_with(SCHEME) && split_parameters(name).0.ends_with("/*")
}

/// The glob that has the resource of this name as a member: same directory, one level, same context parameters (rows A155, A157).
/// `None` if it is no `xdstp:` name, a glob itself, or has a path with other escapes than the canonical ones.
#[must_use]
pub fn glob_of(name: &str) -> Option<String> {
    if !name.starts_with(SCHEME) || is_glob(name) {
        return None;
    }
    let canonical = canonical(name);
    let (path, parameters) = split_parameters(&canonical);
    if path != split_parameters(name).0 {
        return None;
    }
    let (directory, _) = path.get(SCHEME.len()..)?.rsplit_once('/')?;
    let separator = if parameters.is_empty() { "" } else { "?" };
    directory.contains('/').then(|| format!("{SCHEME}{directory}/*{separator}{parameters}"))
}

/// The type and the id of a name, with their escapes; `None` if it is not an `xdstp:` name, and two empty texts if it is an
/// invalid one: without an id, or with a directive.
pub(crate) fn id(name: &str) -> Option<(&str, &str)> {
    let (path, _) = split_parameters(name.strip_prefix(SCHEME)?);
    let (_, typed) = path.split_once('/').unwrap_or_default();
    let is_urn = !name.contains('#');
    Some(typed.split_once('/').filter(|_| is_urn).unwrap_or_default())
}

/// A component with every percent-escape decoded; `None` if that is no text.
pub(crate) fn decoded(component: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(component.len());
    let mut bytes = component.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        let escaped = (byte == b'%').then(|| hexadecimal(bytes.as_slice())).flatten();
        if escaped.is_some() {
            bytes.nth(1);
        }
        decoded.push(escaped.unwrap_or(byte));
    }
    String::from_utf8(decoded).ok()
}

fn split_parameters(name: &str) -> (&str, &str) {
    name.split_once('?').unwrap_or((name, ""))
}

fn canonical_urn(name: &str) -> Option<String> {
    let rest = name.strip_prefix(SCHEME)?;
    if rest.contains('#') {
        return None;
    }
    let (path, parameters) = split_parameters(rest);
    let segments: Vec<&str> = path.split('/').collect();
    // The authority, which may be empty, the type, and at least one segment of the id.
    if segments.len() < 3 || segments.get(1).is_some_and(|resource_type| resource_type.is_empty()) {
        return None;
    }
    let segments: Vec<String> = segments.into_iter().map(|segment| escaped(segment, "")).collect();
    let mut sorted = Vec::new();
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        sorted.push((escaped(key, "&=+"), escaped(value, "&=+")));
    }
    sorted.sort();
    if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return None;
    }
    let mut canonical = format!("{SCHEME}{}", segments.join("/"));
    for (position, (key, value)) in sorted.into_iter().enumerate() {
        let separator = if position == 0 { '?' } else { '&' };
        let _ = write!(canonical, "{separator}{key}={value}");
    }
    Some(canonical)
}

/// A component with every percent-escape decoded that need not be one, and every byte escaped that must be: all but RFC 3986's
/// `pchar`, and those of `reserved`. An escaped `*` stays one, because a bare one would make a glob.
fn escaped(component: &str, reserved: &str) -> String {
    let mut escaped = String::with_capacity(component.len());
    let mut bytes = component.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        let decoded = (byte == b'%').then(|| hexadecimal(bytes.as_slice())).flatten();
        if decoded.is_some() {
            bytes.nth(1);
        }
        let plain = decoded.unwrap_or(byte);
        let is_plain = plain.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&plain);
        let must_stay = decoded == Some(b'*') || reserved.as_bytes().contains(&plain);
        if is_plain && !must_stay {
            escaped.push(char::from(plain));
        } else {
            let _ = write!(escaped, "%{plain:02X}");
        }
    }
    escaped
}

/// The byte that the first two hexadecimal digits stand for.
fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(*high)? * 16 + digit(*low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_canonical_spelling() {
        let table = [
            ("xdstp://a/T/x?b=2&a=1", "xdstp://a/T/x?a=1&b=2"),
            ("xdstp://a/T/x?a=1&b=2", "xdstp://a/T/x?a=1&b=2"),
            ("xdstp://a/T/srv/[::]:80", "xdstp://a/T/srv/%5B::%5D:80"),
            ("xdstp://a/T/srv/%5b::%5d:80", "xdstp://a/T/srv/%5B::%5D:80"),
            ("xdstp:///T/%61?x=%62", "xdstp:///T/a?x=b"),
            ("xdstp://a/T/a%2Fb", "xdstp://a/T/a%2Fb"),
            ("xdstp://a/T/50%", "xdstp://a/T/50%25"),
            ("xdstp://a/T/x?", "xdstp://a/T/x"),
            ("xdstp://a/T/ü", "xdstp://a/T/%C3%BC"),
            ("xdstp://a/T/%2A", "xdstp://a/T/%2A"),
        ];
        for (name, expected) in table {
            assert_eq!(canonical(name), expected);
            assert_eq!(canonical(expected), expected, "canonical is final");
        }
    }

    #[test]
    fn other_and_invalid_names_stay_as_they_are() {
        let names = ["b?b=2&a=1", "a%20b", "xdstp://a/T", "xdstp://", "xdstp://a//x", "xdstp://a/T/x#y", ""];
        for name in names.into_iter().chain(["xdstp://a/T/x?b=2&a=1&a=2", "xdstp://a/T/%61#x"]) {
            assert_eq!(canonical(name), name);
        }
    }

    #[test]
    fn a_glob_covers_one_level_with_the_same_parameters() {
        let glob = |name| glob_of(name);
        assert_eq!(glob("xdstp://a/T/foo/bar").as_deref(), Some("xdstp://a/T/foo/*"));
        assert_eq!(glob("xdstp://a/T/foo/x/y").as_deref(), Some("xdstp://a/T/foo/x/*"));
        assert_eq!(glob("xdstp://a/T/foo/bar?k=v").as_deref(), Some("xdstp://a/T/foo/*?k=v"));
        assert_eq!(glob("xdstp://a/T/bar").as_deref(), Some("xdstp://a/T/*"));
        assert_eq!(glob("xdstp://a/T/foo/bar?k=v&a=b").as_deref(), Some("xdstp://a/T/foo/*?a=b&k=v"));
        for name in
            ["foo/bar", "xdstp://a/T/%61/b", "xdstp://a/T", "xdstp://a/T/foo/*", "xdstp://", "xdstp://a"]
        {
            assert_eq!(glob(name), None, "{name}");
        }
        assert!(is_glob("xdstp://a/T/*?k=v") && !is_glob("a/*") && !is_glob("xdstp://a/T/x*"));
    }
}
