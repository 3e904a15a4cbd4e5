//! Rules of routes in the native form.

use std::time::Duration;

use xds_codec::document::TreeValue;
use xds_codec::echo;

use super::backend::refuse_twice;
use super::filters::read_filters;
use super::matches::read_matches;
use super::target::{one_or_list, read_target};
use crate::model::{
    BackendRef, FilterKind, Retry, Rule, SessionKind, SessionLifetime, SessionPersistence, Timeouts,
};
use crate::read::backend_ref::warn_of_no_weight;
use crate::read::context::Context;
use crate::read::fields::{Object, Reader, Value};
use crate::read::matches::read_header_name;
use crate::read::meta::read_section_name;
use crate::read::session::{read_cookie_name, read_cookie_path};

/// Reads a rule, whose fields are [`RULE_FIELDS`].
pub(super) fn read_rule(fields: &mut Object<'_>, context: &Context<'_>, reader: &mut Reader) -> Rule {
    let name = fields.take("name").and_then(|name| read_section_name(&name, reader));
    let matches = read_matches(fields, reader);
    let filters = read_filters(fields, &matches, context, reader);
    let redirects = filters.iter().any(|filter| matches!(filter.kind, FilterKind::Redirect(_)));
    let backends = match fields.take("to") {
        Some(to) => {
            if redirects {
                reader.error(
                    "misplaced-field",
                    &to.spot,
                    "a rule with `redirect` sends no requests to backends; remove `to`",
                );
            }
            read_backends(&to, context, reader)
        }
        None => {
            if !redirects && !fields.has("redirect") {
                let message = "the field `to` is missing; it names the backends that get the requests";
                reader.error("missing-field", fields.spot(), message);
            }
            Vec::new()
        }
    };
    let timeouts = read_timeouts(fields, reader);
    let retry = fields.take("retry").and_then(|retry| read_retry(&retry, reader));
    let session = fields.take("session").and_then(|session| read_session(&session, reader));
    Rule {
        spot: fields.spot().clone(),
        name: name.map(Into::into),
        matches,
        filters,
        backends,
        timeouts,
        retry: retry.map(Box::new),
        session: session.map(Box::new),
    }
}

/// Reads the name of one backend, or several with their weights. Duplicates are refused.
fn read_backends(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<BackendRef> {
    if let Some(name) = value.tree.as_str() {
        let object = read_target(name, &value.spot, context, reader);
        return object
            .into_iter()
            .map(|object| BackendRef { object, weight: 1, filters: Vec::new() })
            .collect();
    }
    if !value.is_object() {
        value.wrong("the name of a backend, or an object with the weight of each", reader);
        return Vec::new();
    }
    let entries = value.object(reader).map(|map| map.entries(reader)).unwrap_or_default();
    if entries.is_empty() || entries.len() > MAX_BACKENDS {
        let message = format!("a rule has 1 to {MAX_BACKENDS} backends, not {}", entries.len());
        reader.error("bad-length", &value.spot, message);
        return Vec::new();
    }
    let mut backends: Vec<BackendRef> = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let object = read_target(name, &value.spot, context, reader);
        let weight = read_weight(&value, reader);
        let (Some(object), Some(weight)) = (object, weight) else { continue };
        refuse_twice(&object, backends.iter().map(|other| &other.object), reader);
        backends.push(BackendRef { object, weight, filters: Vec::new() });
    }
    warn_of_no_weight(&backends, &value.spot, reader);
    backends
}

/// Reads a whole number from 0 to 1,000,000. A percentage is refused, because weights can have any sum.
fn read_weight(value: &Value<'_>, reader: &mut Reader) -> Option<u32> {
    if let TreeValue::String(text) = value.tree.value() {
        let message =
            format!("{} is not a weight; a weight is a whole number from 0 to {MAX_WEIGHT}", echo(text));
        reader.error("bad-weight", &value.spot, message);
        return None;
    }
    value.integer(0, MAX_WEIGHT, reader).and_then(|weight| u32::try_from(weight).ok())
}

fn read_timeouts(fields: &mut Object<'_>, reader: &mut Reader) -> Timeouts {
    let request = fields.take("timeout").and_then(|timeout| timeout.duration(reader));
    let attempt = fields.take("attempt_timeout");
    let backend_request = attempt.as_ref().and_then(|timeout| timeout.duration(reader));
    if let (Some(attempt), Some(longest), Some(one)) = (attempt, request, backend_request)
        && !longest.is_zero()
        && one > longest
    {
        reader.error("out-of-range", &attempt.spot, "one attempt cannot take longer than `timeout`");
    }
    Timeouts { request, backend_request }
}

fn read_retry(value: &Value<'_>, reader: &mut Reader) -> Option<Retry> {
    let mut fields = value.object(reader)?;
    let (mut codes, mut grpc_on) = (Vec::new(), Vec::new());
    if let Some(on) = fields.need("on", reader) {
        for item in one_or_list(&on, MAX_REASONS, reader) {
            if matches!(item.tree.value(), TreeValue::Number(_)) {
                let code = item.integer(400, 599, reader).and_then(|code| u16::try_from(code).ok());
                codes.extend(code.filter(|code| !codes.contains(code)));
            } else if let Some(condition) = item.choice(&Retry::GRPC_CONDITIONS, reader)
                && !grpc_on.iter().any(|other| other == condition)
            {
                grpc_on.push(condition.to_owned());
            }
        }
    }
    let attempts = match fields.take("attempts") {
        Some(attempts) => {
            attempts.integer(1, MAX_ATTEMPTS, reader).and_then(|attempts| u32::try_from(attempts).ok())
        }
        None => Some(1),
    };
    let backoff = fields.take("backoff").and_then(|backoff| positive_duration(&backoff, reader));
    fields.finish(reader);
    Some(Retry { codes, grpc_on, attempts: attempts?, backoff })
}

fn positive_duration(value: &Value<'_>, reader: &mut Reader) -> Option<Duration> {
    let duration = value.duration(reader)?;
    if duration.is_zero() {
        reader.error("out-of-range", &value.spot, "the time must be longer than 0");
        return None;
    }
    Some(duration)
}

/// Reads `cookie` or `header`, and `ttl`. A cookie with `ttl` outlives the browser.
fn read_session(value: &Value<'_>, reader: &mut Reader) -> Option<SessionPersistence> {
    let mut fields = value.object(reader)?;
    let (cookie, header) = (fields.take("cookie"), fields.take("header"));
    let ttl = fields.take("ttl");
    let absolute_timeout = ttl.as_ref().and_then(|ttl| positive_duration(ttl, reader));
    let path = fields.take("path");
    for (field, message) in [(&path, "only a cookie has a path"), (&ttl, "only a cookie can expire")] {
        if let (Some(field), Some(_)) = (field, &header) {
            reader.error("misplaced-field", &field.spot, message);
        }
    }
    let kind = match (cookie, header) {
        (Some(cookie), None) => {
            let lifetime = match absolute_timeout {
                Some(_) => SessionLifetime::Permanent,
                None => SessionLifetime::Session,
            };
            let path = path.map_or(Some("/".to_owned()), |path| read_cookie_path(&path, reader));
            // With `true`, the name is derived from the rule's identity.
            let name = if matches!(cookie.tree.value(), TreeValue::Bool(true)) {
                Some(None)
            } else {
                read_cookie_name(&cookie, reader).map(Some)
            };
            name.zip(path).map(|(name, path)| SessionKind::Cookie { name, path, lifetime })
        }
        (None, Some(header)) => {
            let name = read_header_name(&header, reader);
            name.map(|name| SessionKind::Header { name: name.to_ascii_lowercase() })
        }
        (Some(_), Some(_)) | (None, None) => {
            reader.error("missing-field", &value.spot, "a session needs either a `cookie` or a `header`");
            None
        }
    };
    fields.finish(reader);
    Some(SessionPersistence { spot: value.spot.clone(), absolute_timeout, kind: kind? })
}

/// Every field of a rule.
pub(super) const RULE_FIELDS: [&str; 16] = [
    "name",
    "match",
    "to",
    "timeout",
    "attempt_timeout",
    "retry",
    "session",
    "mirror",
    "redirect",
    "rewrite",
    "set_headers",
    "add_headers",
    "remove_headers",
    "set_response_headers",
    "add_response_headers",
    "remove_response_headers",
];

/// The limit of the Gateway API.
const MAX_BACKENDS: usize = 16;

/// The limit of the Gateway API.
const MAX_WEIGHT: i64 = 1_000_000;

/// More would only overload the backends; gRPC clients stop after five.
const MAX_ATTEMPTS: i64 = 100;

/// Enough for every condition and many status codes.
const MAX_REASONS: usize = 64;
