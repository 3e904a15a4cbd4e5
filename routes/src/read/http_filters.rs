//! Filters that only HTTPRoutes have: redirects, rewrites, CORS.

use xds_codec::echo;

use super::fields::{Object, Reader, Value};
use super::matches::read_header_name;
use super::meta::read_precise_hostname;
use crate::model::{Cors, FilterKind, PathRewrite, Redirect};

/// Reads `requestRedirect`.
pub(crate) fn read_redirect(body: &mut Object<'_>, reader: &mut Reader) -> Option<Redirect> {
    let scheme = body.take("scheme").and_then(|scheme| scheme.choice(&["http", "https"], reader));
    let host = body.take("hostname").and_then(|host| read_precise_hostname(&host, reader));
    let path = body.take("path").and_then(|path| read_path(&path, reader));
    let port = body.take("port").and_then(|port| port.port(reader));
    let status = match body.take("statusCode") {
        Some(status) => read_status(&status, reader),
        None => Some(302),
    };
    Some(Redirect { scheme: scheme.map(str::to_owned), host, path, port, status: status? })
}

/// Reads the status of a redirect.
pub(crate) fn read_status(value: &Value<'_>, reader: &mut Reader) -> Option<u16> {
    let status = value.integer(300, 399, reader).and_then(|status| u16::try_from(status).ok())?;
    if !REDIRECT_STATUSES.contains(&status) {
        let message = format!("{status} is not one of 301, 302, 303, 307 and 308");
        reader.error("unknown-value", &value.spot, message);
        return None;
    }
    Some(status)
}

/// Reads `urlRewrite`.
pub(crate) fn read_rewrite(body: &mut Object<'_>, reader: &mut Reader) -> Option<FilterKind> {
    let host = match body.take("hostname") {
        Some(host) => Some(read_precise_hostname(&host, reader)?),
        None => None,
    };
    let path = match body.take("path") {
        Some(path) => Some(read_path(&path, reader)?),
        None => None,
    };
    Some(FilterKind::Rewrite { host, path })
}

/// Reads how a path is replaced.
fn read_path(value: &Value<'_>, reader: &mut Reader) -> Option<PathRewrite> {
    let mut object = value.object(reader)?;
    let kind = object.need("type", reader);
    let kind = kind.and_then(|kind| kind.choice(&["ReplaceFullPath", "ReplacePrefixMatch"], reader));
    let (full, prefix) = (object.take("replaceFullPath"), object.take("replacePrefixMatch"));
    object.finish(reader);
    let is_full = kind? == "ReplaceFullPath";
    let (own, other, own_field, other_field) = match is_full {
        true => (full, prefix, "replaceFullPath", "replacePrefixMatch"),
        false => (prefix, full, "replacePrefixMatch", "replaceFullPath"),
    };
    let type_of = |field| if field == "replaceFullPath" { "ReplaceFullPath" } else { "ReplacePrefixMatch" };
    if let Some(other) = other {
        let message = format!("type must be '{}' when {other_field} is set", type_of(other_field));
        reader.error("misplaced-field", &other.spot, message);
    }
    let Some(own) = own else {
        let message = format!("{own_field} must be specified when type is set to '{}'", type_of(own_field));
        reader.error("missing-field", &value.spot, message);
        return None;
    };
    let path = own.bounded_text(0, 1_024, reader)?;
    // Without a leading `/`, the path would become part of the host name in a `location` header.
    let is_path = path.starts_with('/') || (path.is_empty() && !is_full);
    if !is_path || path.contains(char::is_control) {
        reader.error("bad-path", &own.spot, format!("{} is not a path that begins with `/`", echo(path)));
        return None;
    }
    Some(match is_full {
        true => PathRewrite::Full(path.to_owned()),
        false => PathRewrite::Prefix(path.to_owned()),
    })
}

/// Reads `cors`.
pub(crate) fn read_cors(body: &mut Object<'_>, reader: &mut Reader) -> Cors {
    let allow_origins = read_texts(body, "allowOrigins", 64, read_origin, reader);
    let allow_methods = read_texts(body, "allowMethods", 9, read_method_or_star, reader);
    let allow_headers = read_texts(body, "allowHeaders", 64, read_header_name, reader);
    let expose_headers = read_texts(body, "exposeHeaders", 64, read_header_name, reader);
    for (texts, message) in [
        (&allow_origins, "AllowOrigins cannot contain '*' alongside other origins"),
        (&allow_methods, "AllowMethods cannot contain '*' alongside other methods"),
        (&allow_headers, "AllowHeaders cannot contain '*' alongside other methods"),
    ] {
        if texts.len() > 1 && texts.iter().any(|text| text == "*") {
            reader.error("misplaced-wildcard", body.spot(), message);
        }
    }
    let allow_credentials = body.take("allowCredentials").and_then(|truth| truth.truth(reader));
    let max_age = body.take("maxAge").and_then(|age| age.integer(1, 2_147_483_647, reader));
    Cors {
        allow_origins,
        allow_methods,
        allow_headers,
        expose_headers,
        allow_credentials: allow_credentials.unwrap_or(false),
        max_age_seconds: max_age.and_then(|age| u32::try_from(age).ok()).unwrap_or(5),
    }
}

/// Reads a list of at most `max` texts. Duplicates are dropped.
fn read_texts<'t>(
    body: &mut Object<'t>,
    field: &'static str,
    max: usize,
    read: impl Fn(&Value<'t>, &mut Reader) -> Option<&'t str>,
    reader: &mut Reader,
) -> Vec<String> {
    let Some(list) = body.take(field) else { return Vec::new() };
    let items = list.list(max, reader);
    let mut texts: Vec<String> = Vec::with_capacity(items.len());
    for value in items {
        let Some(text) = read(&value, reader) else { continue };
        if !texts.iter().any(|other| other == text) {
            texts.push(text.to_owned());
        }
    }
    texts
}

fn read_method_or_star<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    value.choice(&METHODS_OR_ANY, reader)
}

/// Reads an origin: `https://a.example:8443`, `https://*.a.example`, `*`.
fn read_origin<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    let text = value.bounded_text(1, 253, reader)?;
    if !is_origin(text) {
        let message = format!("{} is not an origin such as `https://a.example` or `*`", echo(text));
        reader.error("bad-origin", &value.spot, message);
        return None;
    }
    Some(text)
}

fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some(rest) = rest else { return false };
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let is_port = port.is_none_or(|port| {
        (1..=5).contains(&port.len())
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    });
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    is_port && (host == "*" || host.strip_prefix("*.").unwrap_or(host).split('.').all(is_label))
}

/// The HTTP methods that routes can name.
pub(crate) const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// The same, and `*` for every method.
pub(crate) const METHODS_OR_ANY: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"];

const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
