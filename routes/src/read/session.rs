//! `sessionPersistence` (GEP-1619), in its released and its future form.
//!
//! Up to version 1.5 of the Gateway API, the name is `sessionName` for both types, and `cookieConfig` may be omitted. Since then, each type has
//! its own object. Both forms are read; one document cannot mix them.

use std::time::Duration;

use xds_codec::echo;

use super::fields::{Object, Reader, Value};
use super::matches::{check_header_name, is_token, read_header_name};
use crate::model::{SessionKind, SessionLifetime, SessionPersistence};

/// Reads session persistence.
pub(crate) fn read_session(value: &Value<'_>, reader: &mut Reader) -> Option<SessionPersistence> {
    let mut object = value.object(reader)?;
    let timeout = object.take("absoluteTimeout");
    let absolute_timeout = timeout.as_ref().map(|timeout| timeout.duration(reader));
    if let Some(idle) = object.take("idleTimeout") {
        idle.duration(reader);
        reader.warn(
            "unsupported",
            &idle.spot,
            "idle sessions cannot be ended, because no client supports it",
        );
    }
    let name = object.take("sessionName");
    let is_header = match object.take("type") {
        Some(choice) => choice.choice(&["Cookie", "Header"], reader)? == "Header",
        None => false,
    };
    let (cookie, config, header) =
        (object.take("cookie"), object.take("cookieConfig"), object.take("header"));
    object.finish(reader);
    let kind = if is_header {
        for (unused, message) in [
            (cookie, "cookie must be nil if type is not Cookie"),
            (config, "cookieConfig can only be set with type Cookie"),
        ] {
            if let Some(unused) = unused {
                reader.error("misplaced-field", &unused.spot, message);
            }
        }
        read_header_session(value, header.as_ref(), name.as_ref(), reader)
    } else {
        if let Some(header) = header {
            reader.error("misplaced-field", &header.spot, "header must be nil if type is not Header");
        }
        if let (Some(_), Some(config)) = (&cookie, &config) {
            let message = "`cookie` and `cookieConfig` are the same field in two versions; set only one";
            reader.error("misplaced-field", &config.spot, message);
        }
        let timeout = absolute_timeout.flatten();
        read_cookie_session(value, cookie.or(config).as_ref(), name.as_ref(), timeout, reader)
    };
    let absolute_timeout = absolute_timeout.flatten();
    let session = SessionPersistence { spot: value.spot.clone(), absolute_timeout, kind: kind? };
    if let Some(timeout) = timeout.filter(|_| session.max_age().is_none() && absolute_timeout.is_some()) {
        let message = "the timeout has no effect: sessions expire only if lifetimeType is Permanent and the timeout is above 0";
        reader.warn("unsupported", &timeout.spot, message);
    }
    Some(session)
}

fn read_header_session(
    session: &Value<'_>,
    header: Option<&Value<'_>>,
    session_name: Option<&Value<'_>>,
    reader: &mut Reader,
) -> Option<SessionKind> {
    let name = match (header, session_name) {
        (Some(header), None) => {
            let mut header = header.object(reader)?;
            let name = header.need("name", reader).and_then(|name| read_header_name(&name, reader));
            header.finish(reader);
            name?
        }
        (None, Some(name)) => check_header_name(name.bounded_text(1, 128, reader)?, &name.spot, reader)?,
        (Some(_), Some(name)) => {
            refuse_two_names(name, reader);
            return None;
        }
        (None, None) => {
            reader.error("missing-field", &session.spot, "header must be specified for Header type");
            return None;
        }
    };
    Some(SessionKind::Header { name: name.to_ascii_lowercase() })
}

fn read_cookie_session(
    session: &Value<'_>,
    cookie: Option<&Value<'_>>,
    session_name: Option<&Value<'_>>,
    absolute_timeout: Option<Duration>,
    reader: &mut Reader,
) -> Option<SessionKind> {
    let mut name = session_name.map(|name| read_cookie_name(name, reader));
    let (mut path, mut lifetime) = (Some("/".to_owned()), SessionLifetime::Session);
    if let Some(cookie) = cookie {
        let mut object = cookie.object(reader)?;
        if let Some(own) = object.take("name") {
            if let Some(other) = session_name {
                refuse_two_names(other, reader);
            }
            name = Some(read_cookie_name(&own, reader));
        }
        if let Some(own) = object.take("path") {
            path = read_cookie_path(&own, reader);
        }
        lifetime = read_lifetime(&mut object, reader)?;
        object.finish(reader);
    }
    if lifetime == SessionLifetime::Permanent && absolute_timeout.is_none() {
        let message = "AbsoluteTimeout must be specified when cookie lifetimeType is Permanent";
        reader.error("missing-field", &session.spot, message);
        return None;
    }
    let name = match name {
        Some(name) => Some(name?),
        None => None,
    };
    Some(SessionKind::Cookie { name, path: path?, lifetime })
}

fn read_lifetime(cookie: &mut Object<'_>, reader: &mut Reader) -> Option<SessionLifetime> {
    let Some(value) = cookie.take("lifetimeType") else { return Some(SessionLifetime::Session) };
    let choice = value.choice(&["Session", "Permanent"], reader)?;
    Some(if choice == "Permanent" { SessionLifetime::Permanent } else { SessionLifetime::Session })
}

/// Reads the name of a cookie: an HTTP token.
pub(crate) fn read_cookie_name(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(1, 256, reader)?;
    if !text.bytes().all(is_token) {
        let message = format!("{} is not the name of a cookie", echo(text));
        reader.error("bad-cookie-name", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

/// Reads the path of a cookie. It has no `;`, which would begin another attribute.
pub(crate) fn read_cookie_path(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(1, 1_024, reader)?;
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';') {
        let message =
            format!("{} is not the path of a cookie: a path begins with `/` and has no `;`", echo(text));
        reader.error("bad-cookie-path", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

fn refuse_two_names(session_name: &Value<'_>, reader: &mut Reader) {
    let message = "`sessionName` is the name of this field in an older version; set only one";
    reader.error("misplaced-field", &session_name.spot, message);
}

#[cfg(test)]
mod tests {
    use crate::read::testing::findings;

    fn route(session: &str) -> String {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {{name: r}}, \
             spec: {{rules: [{{matches: [{{method: {{service: a.B}}}}], sessionPersistence: {session}}}]}}}}"
        )
    }

    #[test]
    fn a_time_that_no_client_heeds_is_told() {
        let path = "spec.rules[0].sessionPersistence.absoluteTimeout";
        for session in [
            "{absoluteTimeout: 1h}",
            "{absoluteTimeout: 1h, cookie: {lifetimeType: Session}}",
            "{absoluteTimeout: 1h, type: Header, header: {name: a}}",
            "{absoluteTimeout: 0s, cookie: {lifetimeType: Permanent}}",
        ] {
            assert_eq!(findings(&route(session)), [format!("warning[unsupported] {path}")], "{session}");
        }
        assert!(findings(&route("{absoluteTimeout: 1h, cookie: {lifetimeType: Permanent}}")).is_empty());
        let native = "{version: xds-server/v1, routes: {r: {to: b, session: {header: a, ttl: 1h}}}}";
        assert_eq!(findings(native), ["error[misplaced-field] routes[\"r\"].session.ttl"]);
    }

    #[test]
    fn a_cookie_whose_path_is_that_of_no_request_is_told() {
        let with_path = |path: &str| findings(&route(&format!("{{cookie: {{path: {path}}}}}")));
        for path in ["/", "/a.B", "/a.B/", "/a.B/Get", "/a.B/Get/"] {
            assert_eq!(with_path(path), Vec::<String>::new(), "{path}");
        }
        for path in ["/a", "/a.C", "/service/bar"] {
            assert_eq!(with_path(path), ["warning[cookie-path] spec.rules[0].sessionPersistence"], "{path}");
        }
    }
}
