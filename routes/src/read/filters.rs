//! Filters of rules and backends: their types, header changes and mirrors. Filters that only HTTPRoutes have are in `http_filters`.

use xds_codec::echo;

use super::backend_ref::{read_backend_object, read_local_object};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::http_filters::{read_cors, read_redirect, read_rewrite};
use super::matches::read_header_name;
use crate::model::{Filter, FilterKind, Fraction, HeaderEdits, Kind};

/// A type of filter and the name of its field.
struct FilterType {
    name: &'static str,
    field: &'static str,
    tag: Tag,
    is_http_only: bool,
}

/// The types of filters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    RequestHeaders,
    ResponseHeaders,
    Mirror,
    Redirect,
    Rewrite,
    Cors,
    ExternalAuth,
    Extension,
}

/// Reads `filters`: at most 16, and each type that changes requests or responses at most once.
pub(crate) fn read_filters(list: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<Filter> {
    let items = list.list(16, reader);
    let mut filters = Vec::with_capacity(items.len());
    let mut seen: Vec<Tag> = Vec::new();
    for value in items {
        let Some((filter_type, filter)) = read_filter(&value, context, reader) else { continue };
        let tag = filter_type.tag;
        let may_repeat = matches!(tag, Tag::Mirror | Tag::Extension | Tag::ExternalAuth);
        if !may_repeat && seen.contains(&tag) {
            let message = format!("{} filter cannot be repeated", filter_type.name);
            reader.error("repeated-filter", &value.spot, message);
        }
        let both = [Tag::Redirect, Tag::Rewrite];
        if both.contains(&tag) && seen.iter().any(|other| both.contains(other) && *other != tag) {
            let message = "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but not both";
            reader.error("repeated-filter", &value.spot, message);
        }
        seen.push(tag);
        filters.extend(filter);
    }
    filters
}

/// Reads one filter. If its type is known but nothing else can be read, only the type is returned.
fn read_filter(
    value: &Value<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<(&'static FilterType, Option<Filter>)> {
    let mut object = value.object(reader)?;
    let name = object.need("type", reader)?;
    let known: Vec<_> =
        TYPES.iter().filter(|known| context.kind == Kind::HttpRoute || !known.is_http_only).collect();
    let old_type = old_name(&name, &known, context, reader);
    let filter_type = match old_type {
        Some(filter_type) => filter_type,
        None => {
            let names: Vec<_> = known.iter().map(|known| known.name).collect();
            let name = name.choice(&names, reader)?;
            known.iter().copied().find(|known| known.name == name)?
        }
    };
    for other in known.iter().filter(|other| other.name != filter_type.name) {
        if let Some(misplaced) = object.take(other.field) {
            let message =
                format!("filter.{} must be nil if the filter.type is not {}", other.field, other.name);
            reader.error("misplaced-field", &misplaced.spot, message);
        }
    }
    let kind = match object.take(filter_type.field) {
        Some(body) => {
            let mut body = body.object(reader)?;
            let kind = read_body(filter_type.tag, &mut body, context, reader);
            body.finish(reader);
            kind
        }
        None if old_type.is_some() => read_inline(filter_type.tag, &mut object, context, reader),
        None => {
            let FilterType { name, field, .. } = filter_type;
            let message = format!("filter.{field} must be specified for {name} filter.type");
            reader.error("missing-field", object.spot(), message);
            None
        }
    };
    object.finish(reader);
    Some((filter_type, kind.map(|kind| Filter { spot: value.spot.clone(), kind })))
}

/// Finds the type for a name from the examples of GEP-1016: `RequestHeaderModifierFilter`, `RequestMirrorPolicyFilter`.
fn old_name(
    value: &Value<'_>,
    known: &[&'static FilterType],
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<&'static FilterType> {
    if context.version() != "v1alpha2" {
        return None;
    }
    let stem = value.tree.as_str()?.strip_suffix("Filter")?;
    let stem = stem.strip_suffix("Policy").unwrap_or(stem);
    let filter_type = known.iter().copied().find(|known| known.name == stem)?;
    let message = format!("since v1 the type is {}, and its settings are in `{}`", stem, filter_type.field);
    reader.warn("old-form", &value.spot, message);
    Some(filter_type)
}

/// Reads settings next to the type, as in the examples of GEP-1016.
fn read_inline(
    tag: Tag,
    filter: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<FilterKind> {
    if tag != Tag::Mirror {
        return read_body(tag, filter, context, reader);
    }
    let mut destination = filter.need("destination", reader)?.object(reader)?;
    let kind = read_body(tag, &mut destination, context, reader);
    destination.finish(reader);
    kind
}

fn read_body(
    tag: Tag,
    body: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<FilterKind> {
    match tag {
        Tag::RequestHeaders => Some(FilterKind::RequestHeaders(read_edits(body, reader))),
        Tag::ResponseHeaders => Some(FilterKind::ResponseHeaders(read_edits(body, reader))),
        Tag::Mirror => read_mirror(body, context, reader),
        Tag::Redirect => read_redirect(body, reader).map(FilterKind::Redirect),
        Tag::Rewrite => read_rewrite(body, reader),
        Tag::Cors => Some(FilterKind::Cors(read_cors(body, reader))),
        Tag::ExternalAuth => {
            let message = "ExternalAuth is not supported; every request that reaches this filter fails";
            reader.warn("unsupported", body.spot(), message);
            body.ignore(&["protocol", "backendRef", "grpc", "http", "forwardBody"]);
            let group = context.kind.api_group().to_owned();
            Some(FilterKind::Extension { group, kind: "ExternalAuth".to_owned(), name: String::new() })
        }
        Tag::Extension => {
            let object = read_local_object(body, context, reader)?;
            Some(FilterKind::Extension {
                group: object.group.into_owned(),
                kind: object.kind.into_owned(),
                name: object.name.to_string(),
            })
        }
    }
}

/// Reads `set`, `add` and `remove`: at most 16 each. If a name appears twice, the first one is used.
fn read_edits(body: &mut Object<'_>, reader: &mut Reader) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    if let Some(list) = body.take("set") {
        edits.set = read_pairs(&list, reader);
    }
    if let Some(list) = body.take("add") {
        edits.add = read_pairs(&list, reader);
    }
    if let Some(list) = body.take("remove") {
        let items = list.list(16, reader);
        edits.remove.reserve_exact(items.len());
        for value in items {
            let Some(name) = read_edited_name(&value, reader) else { continue };
            if is_first(name, edits.remove.iter(), &value, reader) {
                edits.remove.push(name.to_owned());
            }
        }
    }
    edits
}

fn read_pairs(list: &Value<'_>, reader: &mut Reader) -> Vec<(String, String)> {
    let items = list.list(16, reader);
    let mut pairs: Vec<(String, String)> = Vec::with_capacity(items.len());
    for value in items {
        let Some(mut object) = value.object(reader) else { continue };
        let name = object.need("name", reader).and_then(|name| read_edited_name(&name, reader));
        let text = object.need("value", reader).and_then(|text| read_header_value(&text, reader));
        object.finish(reader);
        let (Some(name), Some(text)) = (name, text) else { continue };
        if is_first(name, pairs.iter().map(|(name, _)| name), &value, reader) {
            pairs.push((name.to_owned(), text.to_owned()));
        }
    }
    pairs
}

fn is_first<'a>(
    name: &str,
    mut others: impl Iterator<Item = &'a String>,
    value: &Value<'_>,
    reader: &mut Reader,
) -> bool {
    let is_first = !others.any(|other| other.eq_ignore_ascii_case(name));
    if !is_first {
        let message = format!("the header {} appears twice; only the first one is used", echo(name));
        reader.warn("duplicate-header", &value.spot, message);
    }
    is_first
}

/// Reads the name of a header to change. Envoy rejects all routes if one of them changes `host`.
fn read_edited_name<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    let name = read_header_name(value, reader)?;
    if name.eq_ignore_ascii_case("host") {
        let message =
            "this filter cannot change the header `host`; use the filter URLRewrite of an HTTPRoute";
        reader.error("bad-header-name", &value.spot, message);
        return None;
    }
    Some(name)
}

/// Reads the value of a header: 1 to 4,096 characters, without line breaks.
fn read_header_value<'t>(value: &Value<'t>, reader: &mut Reader) -> Option<&'t str> {
    let text = value.bounded_text(1, 4_096, reader)?;
    if text.contains(|one: char| one != '\t' && one.is_control()) {
        // It may be a credential.
        let message = "the value of a header cannot have control characters, such as line breaks";
        reader.error("bad-header-value", &value.spot, message);
        return None;
    }
    Some(text)
}

fn read_mirror(body: &mut Object<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<FilterKind> {
    let backend = body.need("backendRef", reader).and_then(|value| {
        let mut object = value.object(reader)?;
        let backend = read_backend_object(&mut object, context, reader);
        object.finish(reader);
        backend
    });
    let (percent, fraction) = (body.take("percent"), body.take("fraction"));
    if percent.is_some() && fraction.is_some() {
        let message = "Only one of percent or fraction may be specified in HTTPRequestMirrorFilter";
        reader.error("misplaced-field", body.spot(), message);
        return None;
    }
    let fraction = match (percent, fraction) {
        (Some(percent), _) => {
            let numerator = percent.integer(0, 100, reader).and_then(|percent| u32::try_from(percent).ok());
            numerator.map(|numerator| Fraction { numerator, denominator: 100 })
        }
        (None, Some(fraction)) => read_fraction(&fraction, reader),
        (None, None) => Some(Fraction { numerator: 100, denominator: 100 }),
    };
    Some(FilterKind::Mirror { backend: backend?, fraction: fraction? })
}

fn read_fraction(value: &Value<'_>, reader: &mut Reader) -> Option<Fraction> {
    let mut object = value.object(reader)?;
    let numerator = object.need("numerator", reader).and_then(|part| part.integer(0, MAX_INT32, reader));
    let denominator = match object.take("denominator") {
        Some(part) => part.integer(1, MAX_INT32, reader),
        None => Some(100),
    };
    object.finish(reader);
    let (numerator, denominator) = (numerator?, denominator?);
    if numerator > denominator {
        let message = "numerator must be less than or equal to denominator";
        reader.error("out-of-range", &value.spot, message);
        return None;
    }
    Some(Fraction {
        numerator: u32::try_from(numerator).ok()?,
        denominator: u32::try_from(denominator).ok()?,
    })
}

/// Numbers of the Gateway API have 32 bits.
const MAX_INT32: i64 = 2_147_483_647;

const TYPES: [FilterType; 8] = [
    FilterType {
        name: "RequestHeaderModifier",
        field: "requestHeaderModifier",
        tag: Tag::RequestHeaders,
        is_http_only: false,
    },
    FilterType {
        name: "ResponseHeaderModifier",
        field: "responseHeaderModifier",
        tag: Tag::ResponseHeaders,
        is_http_only: false,
    },
    FilterType { name: "RequestMirror", field: "requestMirror", tag: Tag::Mirror, is_http_only: false },
    FilterType { name: "ExtensionRef", field: "extensionRef", tag: Tag::Extension, is_http_only: false },
    FilterType { name: "RequestRedirect", field: "requestRedirect", tag: Tag::Redirect, is_http_only: true },
    FilterType { name: "URLRewrite", field: "urlRewrite", tag: Tag::Rewrite, is_http_only: true },
    FilterType { name: "CORS", field: "cors", tag: Tag::Cors, is_http_only: true },
    FilterType { name: "ExternalAuth", field: "externalAuth", tag: Tag::ExternalAuth, is_http_only: true },
];
