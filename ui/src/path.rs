//! Paths and parameters of requests.

use std::fmt::Write as _;

use serde_json::Value;

/// Parameters in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads a query string or the body of a form.
    pub(crate) fn read(text: &str) -> Self {
        Self(serde_urlencoded::from_str(text).unwrap_or_default())
    }

    /// A value that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// A value, or nothing as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// All of these names that are not empty.
    pub(crate) fn only(&self, names: &[&str]) -> Self {
        let wanted = |(name, value): &&(String, String)| names.contains(&&**name) && !value.trim().is_empty();
        Self(self.0.iter().filter(wanted).cloned().collect())
    }

    /// Those whose name begins so, without that.
    pub(crate) fn behind<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.trim())))
    }

    /// The same with another value, or without it.
    pub(crate) fn with(&self, name: &str, value: Option<&str>) -> Self {
        let mut all: Vec<_> = self.0.iter().filter(|(known, _)| known != name).cloned().collect();
        all.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        Self(all)
    }

    /// The path with these parameters.
    pub(crate) fn after(&self, path: &str) -> String {
        let query = serde_urlencoded::to_string(&self.0).unwrap_or_default();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

/// A path of these segments.
pub(crate) fn path<'a>(segments: impl IntoIterator<Item = &'a str>) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(byte.into()),
                _ => _ = write!(path, "%{byte:02X}"),
            }
        }
    }
    path
}

/// The segments of a path, decoded; `None` if it cannot be read.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let segments = path.trim_matches('/').split('/').filter(|segment| !segment.is_empty());
    segments.map(decode).collect()
}

fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A text of an answer; nothing if it has none.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A list of an answer; empty if it has none.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A number of an answer; zero if it has none.
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_come_back_whatever_is_in_them() {
        let all = ["a", "a/b", "ü %", "%2F", "?#"];
        assert_eq!(segments(&path(all)).unwrap(), all);
        assert_eq!(segments("/").unwrap(), Vec::<String>::new());
        assert_eq!((segments("/%"), segments("/%zz"), segments("/%ff")), (None, None, None));
    }

    #[test]
    fn parameters_keep_their_order_and_lose_empty_ones() {
        let params = Params::read("b=1&a=x+y%26&c=");
        assert_eq!((params.get("a"), params.get("c"), params.get("d")), (Some("x y&"), None, None));
        assert_eq!(params.only(&["a", "b", "c"]).after("/p"), "/p?b=1&a=x+y%26");
        assert_eq!(params.with("b", None).with("c", Some("2")).after("/p"), "/p?a=x+y%26&c=2");
        assert_eq!(Params::default().after("/p"), "/p");
    }
}
