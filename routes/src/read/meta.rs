//! `metadata`: name, namespace, labels, annotations, age. Also all sorts of names.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use xds_cache::DrainPolicy;
use xds_cache::cluster::{DRAIN_CLUSTER, DRAIN_ENDPOINTS, METADATA};
use xds_cache::time::duration;
use xds_codec::echo;

use super::fields::{Object, Reader, Value};
use super::kinds::TARGETS;
use crate::model::{DocumentKey, Hostname, Kind, Meta, is_dns_label};

/// Reads identity and metadata of a Kubernetes-shaped document; `None`, with an error, if it has no usable name.
pub(crate) fn read_meta(
    kind: Kind,
    document: &mut Object<'_>,
    reader: &mut Reader,
) -> Option<(DocumentKey, Meta)> {
    let metadata = document.need("metadata", reader)?;
    let mut metadata = metadata.object(reader)?;
    let name = metadata.need("name", reader).and_then(|name| read_name(&name, reader));
    let namespace = match metadata.take("namespace") {
        Some(namespace) => read_name(&namespace, reader),
        None => Some(Arc::from("")),
    };
    let mut meta = Meta::default();
    if let Some(labels) = metadata.take("labels") {
        let labels = read_map(&labels, reader);
        if kind == Kind::Namespace || TARGETS.contains(&kind) {
            meta.labels = labels.into();
        }
    }
    if let Some(annotations) = metadata.take("annotations") {
        let is_ours = |key: &str| key.strip_prefix(METADATA).is_some_and(|rest| rest.starts_with('/'));
        let ours = read_map(&annotations, reader).into_iter().filter(|(key, _)| is_ours(key));
        meta.annotations = ours.collect();
        meta.drain = read_drain_annotations(&annotations, reader);
        meta.is_on_demand = kind == Kind::Gateway && asks_for_hosts_on_demand(&annotations, reader);
    }
    if let Some(created) = metadata.take("creationTimestamp") {
        meta.created = created.text(reader).and_then(|text| {
            let seconds = parse_timestamp(text);
            if seconds.is_none() {
                reader.error("bad-timestamp", &created.spot, "expected a time such as 2024-05-01T12:00:00Z");
            }
            seconds
        });
    }
    metadata.ignore(&[
        "generation",
        "resourceVersion",
        "uid",
        "managedFields",
        "selfLink",
        "ownerReferences",
        "finalizers",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ]);
    metadata.finish(reader);
    Some((DocumentKey::new(kind, &namespace?, &name?), meta))
}

/// Reads the name of an object or namespace: 1 to 253 characters, no `/`, blanks or control characters, and no leading `xdstp:`.
///
/// Kubernetes allows less. The characters that are refused here would make resource names ambiguous.
pub(crate) fn read_name(value: &Value<'_>, reader: &mut Reader) -> Option<Arc<str>> {
    let text = value.bounded_text(1, 253, reader)?;
    if text.chars().any(|one| one == '/' || one.is_whitespace() || one.is_control()) {
        let message =
            format!("{} is not a name: `/`, blanks and control characters are not allowed", echo(text));
        reader.error("bad-name", &value.spot, message);
        return None;
    }
    if text.starts_with("xdstp:") {
        let message = format!("{} begins with `xdstp:`, as the URL of a resource does", echo(text));
        reader.error("bad-name", &value.spot, message);
        return None;
    }
    Some(text.into())
}

/// Reads a `SectionName`: 1 to 253 lower-case letters, digits, `-` and `.`.
pub(crate) fn read_section_name(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(1, 253, reader)?;
    if !is_dns_name(text) {
        let message =
            format!("{} is not a name: lower-case letters, digits, `-` and `.` are allowed", echo(text));
        let lower = text.to_ascii_lowercase();
        reader.suggest("bad-name", &value.spot, message, Some(&*lower).filter(|lower| is_dns_name(lower)));
        return None;
    }
    Some(text.to_owned())
}

/// Reads an API group; empty for core kinds.
pub(crate) fn read_group(value: &Value<'_>, reader: &mut Reader) -> Option<Cow<'static, str>> {
    let text = value.bounded_text(0, 253, reader)?;
    if !text.is_empty() && !is_dns_name(text) {
        reader.error("bad-name", &value.spot, format!("{} is not an API group", echo(text)));
        return None;
    }
    Some(known(text))
}

/// Reads a kind, which may be unknown.
pub(crate) fn read_kind(value: &Value<'_>, reader: &mut Reader) -> Option<Cow<'static, str>> {
    let text = value.bounded_text(1, 63, reader)?;
    let is_kind = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_kind {
        reader.error("bad-name", &value.spot, format!("{} is not a kind", echo(text)));
        return None;
    }
    Some(known(text))
}

/// Borrows the text if it is a supported kind or the group of one, which saves memory.
fn known(text: &str) -> Cow<'static, str> {
    let names = Kind::ALL.into_iter().flat_map(|kind| [kind.as_str(), kind.api_group()]);
    let name = names.into_iter().find(|name| *name == text);
    name.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed)
}

/// Reads a host name, with or without a leading wildcard.
pub(crate) fn read_hostname(value: &Value<'_>, reader: &mut Reader) -> Option<Hostname> {
    let text = value.text(reader)?;
    match Hostname::new(text) {
        Ok(hostname) => Some(hostname),
        Err(invalid) => {
            let message = format!("{}: {invalid}", echo(text));
            let lower = text.to_ascii_lowercase();
            let suggestion = Some(&*lower).filter(|lower| Hostname::new(lower).is_ok());
            reader.suggest("bad-hostname", &value.spot, message, suggestion);
            None
        }
    }
}

/// Reads a host name without a wildcard.
pub(crate) fn read_precise_hostname(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let hostname = read_hostname(value, reader)?;
    if hostname.wildcard_suffix().is_some() {
        reader.error("bad-hostname", &value.spot, format!("{hostname}: a wildcard is not allowed here"));
        return None;
    }
    Some(hostname.as_str().to_owned())
}

/// Returns `true` for labels joined by dots.
fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Reads a map of texts, sorted by key.
pub(crate) fn read_map(value: &Value<'_>, reader: &mut Reader) -> Vec<(String, String)> {
    let Some(object) = value.object(reader) else { return Vec::new() };
    let entries = object.entries(reader);
    let mut pairs = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if let Some(text) = value.text(reader) {
            pairs.push((key.to_owned(), text.to_owned()));
        }
    }
    pairs.sort();
    pairs
}

/// Reads how long the cluster of a Service or Backend drains, and how long its endpoints do.
fn read_drain_annotations(value: &Value<'_>, reader: &mut Reader) -> DrainPolicy {
    let mut drain = DrainPolicy::default();
    for (key, value) in value.object(reader).map(|map| map.entries(reader)).unwrap_or_default() {
        let time = match key.strip_prefix(METADATA).and_then(|key| key.strip_prefix('/')) {
            Some(DRAIN_ENDPOINTS) => &mut drain.endpoints,
            Some(DRAIN_CLUSTER) => &mut drain.clusters,
            Some(_) | None => continue,
        };
        *time = read_drain_time(&value, reader);
    }
    drain
}

/// Returns `true` if [`VIRTUAL_HOSTS`] is `on-demand`. The other value, `all`, is the default.
fn asks_for_hosts_on_demand(annotations: &Value<'_>, reader: &mut Reader) -> bool {
    let entries = annotations.object(reader).map(|map| map.entries(reader)).unwrap_or_default();
    let Some((_, value)) = entries.into_iter().find(|(key, _)| *key == VIRTUAL_HOSTS) else { return false };
    value.choice(&["all", "on-demand"], reader) == Some("on-demand")
}

/// Reads a time such as `30s`, `5m` or `0s`; at most a week.
pub(crate) fn read_drain_time(value: &Value<'_>, reader: &mut Reader) -> Option<Duration> {
    match duration(value.text(reader)?) {
        Ok(time) => Some(time),
        Err(error) => {
            reader.error("bad-duration", &value.spot, error.to_string());
            None
        }
    }
}

/// Parses a time of RFC 3339, in seconds since 1970; fractions of a second are dropped.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse().ok() } else { None }
    };
    let is = |at: usize, allowed: &str| text.get(at..=at).is_some_and(|one| allowed.contains(one));
    if !(is(4, "-") && is(7, "-") && is(10, "Tt ") && is(13, ":") && is(16, ":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let rest = text.get(19..)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => rest,
    };
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = if rest.starts_with('+') {
                1
            } else if rest.starts_with('-') {
                -1
            } else {
                return None;
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            sign * (hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60)
        }
    };
    let is_valid =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !is_valid {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Days since 1970 in the Gregorian calendar. Years begin in March here, so the leap day is the last day of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// The annotation of a Gateway that decides whether its RouteConfigurations contain their virtual hosts, or Envoys ask for each
/// one on demand.
const VIRTUAL_HOSTS: &str = "xds-server.io/virtual-hosts";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::{documents, findings};

    #[test]
    fn no_name_can_be_taken_for_a_resource_name_of_another_form() {
        let found = |name: &str, namespace: &str| {
            let metadata = format!("metadata: {{name: '{name}', namespace: '{namespace}'}}");
            findings(&format!("{{apiVersion: v1, kind: ConfigMap, {metadata}}}"))
        };
        assert!(found("a:b", "xdstp").is_empty());
        assert_eq!(found("a", "xdstp:"), ["error[bad-name] metadata.namespace"]);
        assert_eq!(found("a/b", "c"), ["error[bad-name] metadata.name"]);
    }

    #[test]
    fn only_labels_and_annotations_that_are_asked_for_are_kept() {
        let metadata = "{name: a, labels: {b: c}, annotations: {a: b, xds-server.io/mesh: 'true', xds-server.io.evil/a: b}}";
        let table = [
            ("Service", "spec: {ports: [{port: 1}]}", true),
            ("Namespace", "", true),
            ("ConfigMap", "data: {}", false),
            ("Secret", "data: {}", false),
        ];
        for (kind, rest, keeps_labels) in table {
            let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {metadata}\n{rest}\n");
            let document = documents(&text).remove(0);
            assert_eq!(document.meta.label("b"), keeps_labels.then_some("c"), "{kind}");
            assert_eq!(
                *document.meta.annotations,
                [("xds-server.io/mesh".to_owned(), "true".to_owned())],
                "{kind}"
            );
        }
    }

    #[test]
    fn virtual_hosts_are_on_demand_if_a_gateway_says_so_and_other_words_are_errors() {
        let gateway = |kind: &str, way: &str| {
            format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: a, annotations: \
                 {{xds-server.io/virtual-hosts: {way}}}}}, spec: {{gatewayClassName: x, listeners: [{{name: a, port: 80, \
                 protocol: HTTP}}]}}}}"
            )
        };
        for (way, is_on_demand) in [("all", false), ("on-demand", true)] {
            let document = documents(&gateway("Gateway", way)).remove(0);
            assert_eq!(document.meta.is_on_demand, is_on_demand, "{way}");
        }
        for bad in ["ondemand", "''", "'true'"] {
            let found = findings(&gateway("Gateway", bad));
            assert!(found.len() == 1 && found[0].starts_with("error["), "{bad}: {found:?}");
            assert!(found[0].contains("metadata.annotations"), "{bad}: {found:?}");
        }
    }

    #[test]
    fn timestamps_are_those_of_rfc_3339() {
        let table = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-03-01T00:00:00Z", Some(951_868_800)),
            ("2024-02-29T12:00:00.123Z", Some(1_709_208_000)),
            ("2024-02-29T13:00:00+01:00", Some(1_709_208_000)),
            ("1969-12-31T23:59:59Z", Some(-1)),
            ("2024-02-29", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-01-01T00:00:00", None),
            ("2024-01-01T00:00:00+1:00", None),
            ("ääää-01-01T00:00:00Z", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_timestamp(text), expected, "{text}");
        }
    }
}
