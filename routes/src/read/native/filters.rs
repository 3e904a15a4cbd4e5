//! Changes to requests: headers, mirrors, redirects, rewrites.

use xds_codec::echo;

use super::backend::refuse_twice;
use super::edits::{REQUEST_FIELDS, RESPONSE_FIELDS, read_edits};
use super::share::read_share;
use super::target::read_target;
use crate::model::{Filter, FilterKind, Fraction, Match, PathMatch, PathRewrite, Redirect};
use crate::read::context::Context;
use crate::read::fields::{Object, Reader, Value};
use crate::read::http_filters::read_status;
use crate::read::meta::read_precise_hostname;

/// Reads the fields of a rule that are filters.
pub(super) fn read_filters(
    fields: &mut Object<'_>,
    matches: &[Match],
    context: &Context<'_>,
    reader: &mut Reader,
) -> Vec<Filter> {
    let mut filters = Vec::new();
    if let Some((spot, edits)) = read_edits(fields, REQUEST_FIELDS, reader) {
        filters.push(Filter { spot, kind: FilterKind::RequestHeaders(edits) });
    }
    if let Some((spot, edits)) = read_edits(fields, RESPONSE_FIELDS, reader) {
        filters.push(Filter { spot, kind: FilterKind::ResponseHeaders(edits) });
    }
    if let Some(mirror) = fields.take("mirror") {
        filters.extend(read_mirrors(&mirror, context, reader));
    }
    let redirect = fields.take("redirect");
    if let Some(kind) = redirect.as_ref().and_then(|redirect| read_redirect(redirect, matches, reader)) {
        filters.extend(redirect.as_ref().map(|redirect| Filter { spot: redirect.spot.clone(), kind }));
    }
    if let Some(rewrite) = fields.take("rewrite") {
        if redirect.is_some() {
            reader.error("misplaced-field", &rewrite.spot, "a rule has either `redirect` or `rewrite`");
        }
        let kind = read_rewrite(&rewrite, matches, reader);
        filters.extend(kind.map(|kind| Filter { spot: rewrite.spot, kind }));
    }
    filters.shrink_to_fit();
    filters
}

/// Reads one backend that gets a copy of every request, or several with a share each.
fn read_mirrors(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<Filter> {
    let mut entries = Vec::new();
    if let Some(name) = value.tree.as_str() {
        entries.push((name, value.clone(), Some(Fraction { numerator: 100, denominator: 100 })));
    } else if let Some(map) = value.object(reader) {
        for (name, share) in map.entries(reader) {
            let fraction = read_share(&share, reader);
            entries.push((name, share, fraction));
        }
    }
    if entries.len() > MAX_MIRRORS {
        let message = format!("there are {} items, at most {MAX_MIRRORS} are allowed", entries.len());
        reader.error("too-many-items", &value.spot, message);
        return Vec::new();
    }
    let mut filters: Vec<Filter> = Vec::new();
    for (name, value, fraction) in entries {
        let backend = read_target(name, &value.spot, context, reader);
        let (Some(backend), Some(fraction)) = (backend, fraction) else { continue };
        let others = filters.iter().filter_map(|filter| match &filter.kind {
            FilterKind::Mirror { backend, .. } => Some(backend),
            FilterKind::RequestHeaders(_)
            | FilterKind::ResponseHeaders(_)
            | FilterKind::Redirect(_)
            | FilterKind::Rewrite { .. }
            | FilterKind::Cors(_)
            | FilterKind::Extension { .. } => None,
        });
        refuse_twice(&backend, others, reader);
        filters.push(Filter { spot: value.spot, kind: FilterKind::Mirror { backend, fraction } });
    }
    filters
}

fn read_redirect(value: &Value<'_>, matches: &[Match], reader: &mut Reader) -> Option<FilterKind> {
    let mut fields = value.object(reader)?;
    let scheme = fields.take("scheme").and_then(|scheme| scheme.choice(&["http", "https"], reader));
    let host = fields.take("host").and_then(|host| read_precise_hostname(&host, reader));
    let path = read_path_rewrite(&mut fields, matches, reader);
    let port = fields.take("port").and_then(|port| port.port(reader));
    let status = match fields.take("status") {
        Some(status) => read_status(&status, reader)?,
        None => 302,
    };
    if !["scheme", "host", "path", "prefix", "port"].iter().any(|field| fields.has(field)) {
        reader.error(
            "missing-field",
            &value.spot,
            "the redirect changes nothing, so clients would be redirected forever",
        );
    }
    fields.finish(reader);
    Some(FilterKind::Redirect(Redirect { scheme: scheme.map(str::to_owned), host, path, port, status }))
}

fn read_rewrite(value: &Value<'_>, matches: &[Match], reader: &mut Reader) -> Option<FilterKind> {
    let mut fields = value.object(reader)?;
    let host = fields.take("host").and_then(|host| read_precise_hostname(&host, reader));
    let path = read_path_rewrite(&mut fields, matches, reader);
    if !["host", "path", "prefix"].iter().any(|field| fields.has(field)) {
        reader.error("missing-field", &value.spot, "a rewrite needs `host`, `path` or `prefix`");
    }
    fields.finish(reader);
    Some(FilterKind::Rewrite { host, path })
}

/// Reads `path`, which replaces the whole path, or `prefix`, which replaces the matched prefix.
fn read_path_rewrite(fields: &mut Object<'_>, matches: &[Match], reader: &mut Reader) -> Option<PathRewrite> {
    match (fields.take("path"), fields.take("prefix")) {
        (Some(_), Some(prefix)) => {
            reader.error("misplaced-field", &prefix.spot, "set `path` or `prefix`, not both");
            None
        }
        (Some(path), None) => read_path(&path, reader).map(PathRewrite::Full),
        (None, Some(prefix)) => {
            let is_prefix = |one: &Match| matches!(one.path, PathMatch::Any | PathMatch::Prefix(_));
            if !matches.iter().all(is_prefix) {
                let message = "only a rule that matches nothing but prefixes can replace the `prefix`";
                reader.error("misplaced-field", &prefix.spot, message);
            }
            read_path(&prefix, reader).map(PathRewrite::Prefix)
        }
        (None, None) => None,
    }
}

/// Reads a path in the form that requests have: it begins with `/`, and has no query or fragment.
pub(super) fn read_path(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(1, 1_024, reader)?;
    let is_path_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'?' && byte != b'#';
    if !text.starts_with('/') || !text.bytes().all(is_path_byte) {
        let message = format!(
            "{} is not a path: a path begins with `/`, has no query or fragment, and percent-encodes everything but ASCII",
            echo(text)
        );
        reader.error("bad-path", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

/// The limit of filters in a rule of the Gateway API.
const MAX_MIRRORS: usize = 16;
