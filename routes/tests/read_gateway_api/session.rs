//! Session persistence in both shapes.

use std::time::Duration;

use xds_routes::model::{SessionKind, SessionLifetime, SessionPersistence};

use super::{document, expect, route_of, rule_of, spec_and_warnings};

fn with_session(session: &str) -> String {
    document("GRPCRoute", "v1", &format!("{{rules: [{{sessionPersistence: {session}}}]}}"))
}

fn session_of(session: &str) -> (SessionPersistence, Vec<String>) {
    let (spec, warnings) = spec_and_warnings(&with_session(session));
    (rule_of(&route_of(spec)).session.as_deref().cloned().expect("there is a session"), warnings)
}

#[test]
fn both_shapes_say_the_same() {
    let cookie = |name: Option<&str>, path: &str, lifetime| SessionKind::Cookie {
        name: name.map(str::to_owned),
        path: path.to_owned(),
        lifetime,
    };
    let header = |name: &str| SessionKind::Header { name: name.to_owned() };
    let (session, permanent) = (SessionLifetime::Session, SessionLifetime::Permanent);
    let hour = Some(Duration::from_secs(3_600));
    let table = [
        ("{cookie: {}}", None, cookie(None, "/", session)),
        ("{type: Cookie, cookie: {name: sid, path: /a}}", None, cookie(Some("sid"), "/a", session)),
        ("{absoluteTimeout: 1h, cookie: {lifetimeType: Permanent}}", hour, cookie(None, "/", permanent)),
        ("{type: Header, header: {name: X-Sid}}", None, header("x-sid")),
        ("{}", None, cookie(None, "/", session)),
        ("{sessionName: sid}", None, cookie(Some("sid"), "/", session)),
        (
            "{sessionName: sid, type: Cookie, cookieConfig: {lifetimeType: Session}}",
            None,
            cookie(Some("sid"), "/", session),
        ),
        (
            "{absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}",
            hour,
            cookie(None, "/", permanent),
        ),
        ("{type: Header, sessionName: X-Sid}", None, header("x-sid")),
    ];
    for (text, absolute_timeout, kind) in table {
        let (session, warnings) = session_of(text);
        assert_eq!((session.absolute_timeout, session.kind), (absolute_timeout, kind), "{text}");
        assert!(warnings.is_empty(), "{text} {warnings:?}");
    }
}

#[test]
fn what_no_client_can_do_is_a_warning() {
    let (_, warnings) = session_of("{sessionName: a, idleTimeout: 5m}");
    assert_eq!(
        warnings,
        [
            "spec.rules[0].sessionPersistence.idleTimeout: idle sessions cannot be ended, because no client supports it"
        ]
    );
}

#[test]
fn what_the_api_refuses_is_refused() {
    const PERMANENT: &str =
        "sessionPersistence: AbsoluteTimeout must be specified when cookie lifetimeType is Permanent";
    let table = [
        ("{cookie: {lifetimeType: Permanent}}", PERMANENT),
        ("{cookieConfig: {lifetimeType: Permanent}}", PERMANENT),
        ("{type: Header, header: {name: a}, cookie: {}}", "cookie must be nil if type is not Cookie"),
        ("{type: Header, sessionName: a, cookieConfig: {}}", "cookieConfig can only be set with type Cookie"),
        ("{cookie: {}, header: {name: a}}", "header must be nil if type is not Header"),
        ("{type: Header}", "header must be specified for Header type"),
        ("{type: Header, header: {}}", "header: the field `name` is missing"),
        ("{type: Header, header: {name: 'a b'}}", "are allowed"),
        ("{type: Header, header: {name: a}, sessionName: b}", "set only one"),
        ("{cookie: {name: a}, sessionName: b}", "set only one"),
        ("{cookie: {}, cookieConfig: {}}", "set only one"),
        ("{cookie: {name: 'a;b'}}", "\"a;b\" is not the name of a cookie"),
        ("{sessionName: ''}", "\"\" has 0 characters, 1 to 256 are allowed"),
        ("{cookie: {path: a}}", "\"a\" is not the path of a cookie: a path begins with `/` and has no `;`"),
        (
            "{cookie: {path: '/; Domain=x'}}",
            "is not the path of a cookie: a path begins with `/` and has no `;`",
        ),
        ("{cookie: {lifetimeType: Forever}}", "\"Forever\" is not one of Session, Permanent"),
        ("{type: Address}", "\"Address\" is not one of Cookie, Header"),
        (
            "{absoluteTimeout: 1}",
            "absoluteTimeout: 1 is not a duration: it has no unit; write it as in `1h30m`, `10s` or `500ms`",
        ),
    ];
    for (session, error) in table {
        expect(&with_session(session), error);
    }
}
