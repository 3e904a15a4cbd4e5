//! How responses and events are written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use bytes::Bytes;
use xds_cache::status::{EventKind, Sent, StreamEvent};
use xds_cache::wire;
use xds_cache::{HeldBack, Resource, ResourceKey, ResourceType};
use xds_session::{Entries, Entry, Form, Response};

/// Names for versions: equal ones get equal names.
#[derive(Default)]
pub(crate) struct Versions {
    by_type: BTreeMap<ResourceType, Vec<String>>,
}

impl Versions {
    /// `v1`, `v2`, … for content hashes, in the order in which they are seen; labels as they are.
    pub(crate) fn show(&mut self, resource_type: &ResourceType, version: &str) -> String {
        if version.parse::<xds_cache::Version>().is_err() {
            return format!("{version:?}");
        }
        let seen = self.by_type.entry(resource_type.clone()).or_default();
        let position = seen.iter().position(|known| known == version).unwrap_or_else(|| {
            seen.push(version.to_owned());
            seen.len() - 1
        });
        format!("v{}", position + 1)
    }

    /// The content hash that is shown as `v1`, `v2`, …; any other word stands for itself.
    pub(crate) fn meant(&self, resource_type: &ResourceType, shown: &str) -> String {
        let number = shown.strip_prefix('v').and_then(|number| number.parse::<usize>().ok());
        let seen = self.by_type.get(resource_type);
        let known = number.and_then(|number| seen?.get(number.checked_sub(1)?));
        known.map_or_else(|| shown.to_owned(), Clone::clone)
    }
}

/// One response as a line.
pub(crate) fn response(
    stream: &str,
    first_nonce: u64,
    response: &Response,
    versions: &mut Versions,
) -> String {
    let contents = &response.contents;
    let resource_type = &contents.resource_type;
    let nonce = response.nonce - first_nonce + 1;
    let version = versions.show(resource_type, &contents.version_info);
    let form = match contents.form {
        Form::Sotw | Form::Delta { with_ttl: false } => "",
        Form::SotwWrapped => " wrapped",
        Form::Delta { with_ttl: true } => " ttl",
    };
    let has_ttl = matches!(contents.form, Form::SotwWrapped | Form::Delta { with_ttl: true });
    let mut line = format!("{stream} #{nonce} {} {version}{form}:", resource_type.slug());
    match &contents.entries {
        Entries::Table(table) => {
            table.resources().for_each(|resource| full(&mut line, resource, has_ttl));
        }
        Entries::Listed(entries) => entries.iter().for_each(|entry| match entry {
            Entry::Full(resource) => full(&mut line, resource, has_ttl),
            Entry::Heartbeat(resource) => {
                let _ = write!(line, " {}(heartbeat)", resource.name());
            }
            Entry::Unpopulated(name) => {
                let _ = write!(line, " {name}(unpopulated)");
            }
        }),
    }
    for (what, names) in [("removed", &contents.removed), ("not_found", &contents.not_found)] {
        if !names.is_empty() {
            let _ = write!(line, " {what}={}", names.join(","));
        }
    }
    line
}

fn full(line: &mut String, resource: &Resource, has_ttl: bool) {
    let _ = write!(line, " {}@{}", resource.name(), content(resource));
    if let Some(ttl) = resource.ttl().filter(|_| has_ttl) {
        let _ = write!(line, "(ttl {ttl:?})");
    }
    if !resource.aliases().is_empty() {
        let _ = write!(line, "(alias {})", resource.aliases().join(","));
    }
}

/// The content of a scenario's resource: its bytes up to the padding, and the name before them if it is another's.
pub(crate) fn content(resource: &Resource) -> String {
    let value = resource.value();
    let bytes = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if let Some(rest) = bytes.strip_prefix(DNS) {
        return text(rest) + "(dns)";
    }
    if bytes.starts_with(ROUTED) {
        let of = |message, number| wire::all_of(message, number);
        let routes = of(&value, VIRTUAL_HOSTS).flat_map(|host| of(host, ROUTES));
        let clusters = routes.flat_map(|route| of(route, ACTION)).flat_map(|action| of(action, CLUSTER));
        let clusters: Vec<String> = clusters.map(text).collect();
        let content = wire::bytes_of(&value, CONTENT).map(text).unwrap_or_default();
        return format!("{content}({})", clusters.join(","));
    }
    let Some((length, rest)) = bytes.strip_prefix(b"\n").and_then(|rest| rest.split_first()) else {
        return text(bytes);
    };
    let (name, content) = rest.split_at(usize::from(*length));
    if *name == *resource.name().as_bytes() { text(content) } else { text(content) + "(" + &text(name) + ")" }
}

/// An encoded RouteConfiguration with this content and a route to each cluster; short names only.
pub(crate) fn routed(content: &[u8], clusters: &[&str]) -> Bytes {
    let field = |number: u32, value: &[u8]| {
        let length = u8::try_from(value.len()).expect("a short value");
        assert!(length < 0x80 && number < 16, "a short value");
        [&[(number as u8) << 3 | 2, length][..], value].concat()
    };
    let route = |cluster: &&str| field(ROUTES, &field(ACTION, &field(CLUSTER, cluster.as_bytes())));
    let routes: Vec<u8> = clusters.iter().flat_map(route).collect();
    [field(CONTENT, content), field(VIRTUAL_HOSTS, &routes)].concat().into()
}

/// The first byte of what [`routed`] makes: the key of `internal_only_headers`, where the content is.
const ROUTED: &[u8] = b"\x1a";
const CONTENT: u32 = 3;
/// `RouteConfiguration.virtual_hosts`, `VirtualHost.routes`, `Route.route`, `RouteAction.cluster`.
const VIRTUAL_HOSTS: u32 = 2;
const ROUTES: u32 = 3;
const ACTION: u32 = 2;
const CLUSTER: u32 = 1;

/// What an encoded Cluster has that resolves names: `type: STRICT_DNS`.
pub(crate) const DNS: &[u8] = b"\x10\x01";

/// A content with a name before it, as the first field of an encoded Listener; short names only.
pub(crate) fn named(name: &str, content: &[u8]) -> Bytes {
    let length = u8::try_from(name.len()).expect("a short name");
    assert!(length < 0x80, "a short name");
    [b"\n", &[length][..], name.as_bytes(), content].concat().into()
}

/// The resources of a response that are there in full.
pub(crate) fn sent(response: &Response) -> impl Iterator<Item = &Resource> {
    let (table, listed) = match &response.contents.entries {
        Entries::Table(table) => (Some(table.resources()), &[][..]),
        Entries::Listed(entries) => (None, entries.as_slice()),
    };
    let listed = listed.iter().filter_map(|entry| match entry {
        Entry::Full(resource) => Some(resource),
        Entry::Heartbeat(_) | Entry::Unpopulated(_) => None,
    });
    table.into_iter().flatten().chain(listed).map(|resource| &**resource)
}

/// What is held back, as a line.
pub(crate) fn held_back(stream: &str, held: &HeldBack, now: Instant) -> String {
    let what = if held.is_removal { "removal" } else { "update" };
    let name = |key: &ResourceKey| format!("{}/{}", key.resource_type.slug(), key.name);
    let (of, since) = (held.waits_for.resource(), now.duration_since(held.since).as_secs());
    let waits_for = held.waits_for.as_str();
    format!(
        "{stream} {what} of {} waits for {waits_for} of {} since {since}s",
        name(&held.resource),
        name(of)
    )
}

/// An event as a line, if it is one that matters.
pub(crate) fn event(stream: &str, first_nonce: u64, event: &StreamEvent) -> Option<String> {
    let resource_type = event.resource_type.slug();
    let nonce = |sent: &Sent| sent.nonce - first_nonce + 1;
    match &event.kind {
        EventKind::Acked(sent) => Some(format!("{stream} ack #{} {resource_type}", nonce(sent))),
        EventKind::Nacked { sent, message, .. } => {
            Some(format!("{stream} nack #{} {resource_type} {message:?}", nonce(sent)))
        }
        EventKind::Standing(standing) if standing.is_empty() => {
            Some(format!("{stream} rejects no {resource_type}"))
        }
        EventKind::Standing(standing) => {
            let names = standing.rejected.iter().map(|rejection| &*rejection.name);
            let names = names.collect::<Vec<_>>().join(",");
            let n_unknown = standing.n_unknown;
            Some(format!("{stream} rejects {resource_type} [{names}] and has {n_unknown} unknown"))
        }
        EventKind::CameUpToDate => Some(format!("{stream} is up to date with {resource_type}")),
        EventKind::HeldBack => Some(format!("{stream} holds back {resource_type}")),
        EventKind::GraceExpired => Some(format!("{stream} grace expired {resource_type}")),
        EventKind::Subscribed | EventKind::CameBack | EventKind::Sent(_) | EventKind::Current(_) => None,
    }
}

/// The key under which a resource's version is remembered.
pub(crate) fn known(resource: &Resource) -> (ResourceType, String, String) {
    (resource.resource_type().clone(), resource.name().to_string(), content(resource))
}
