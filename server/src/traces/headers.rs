//! The headers of requests to a collector.

use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};

/// Reads a header from each line, `name: value`. Empty lines count as none. A name may be there several times.
///
/// # Errors
///
/// The number of the first line that has none, and why. Values are secrets, so no error has one.
pub(super) fn parse(text: &[u8]) -> Result<MetadataMap, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the file is not text".to_owned())?;
    let mut headers = MetadataMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (n, line) in lines {
        let (name, value) = header(line).map_err(|why| format!("line {}: {why}", n + 1))?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &str) -> Result<(MetadataKey<Ascii>, MetadataValue<Ascii>), String> {
    let (name, value) = line.split_once(':').ok_or("expected `name: value`")?;
    let name = name.trim().to_ascii_lowercase();
    let key =
        MetadataKey::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))?;
    if is_of_grpc(&name) {
        return Err(format!("gRPC itself sets {name:?}"));
    }
    let mut value = MetadataValue::try_from(value.trim())
        .map_err(|_| format!("the value of {name:?} has characters that no header has"))?;
    value.set_sensitive(true);
    Ok((key, value))
}

fn is_of_grpc(name: &str) -> bool {
    name.starts_with("grpc-") || ["content-type", "te", "user-agent", "host", "connection"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_header() {
        let headers =
            parse(b"Authorization: Bearer a:b\r\n\n  x-scope-orgid:  one \nx-more: 1\nx-more: 2\n").unwrap();
        assert_eq!(headers.get("authorization").unwrap(), "Bearer a:b");
        assert_eq!(headers.get("x-scope-orgid").unwrap(), "one");
        assert_eq!(headers.get_all("x-more").iter().count(), 2);
        assert!(!format!("{headers:?}").contains("Bearer"), "{headers:?}");
        assert!(parse(b"").unwrap().is_empty());
    }

    #[test]
    fn a_line_that_is_none_is_told_without_its_value() {
        for (text, why) in [
            (&b"a: b\nsecret"[..], "line 2: expected `name: value`"),
            (b"a b: secret", "line 1: \"a b\" is no name of a header"),
            (b"a-bin: secret", "line 1: \"a-bin\" is no name of a header"),
            (b"a: secret\x07", "line 1: the value of \"a\" has characters that no header has"),
            (b"Content-Type: secret", "line 1: gRPC itself sets \"content-type\""),
            (b"grpc-timeout: secret", "line 1: gRPC itself sets \"grpc-timeout\""),
            (b"a: \xff", "the file is not text"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why);
        }
    }
}
