//! What is published and asked for.

use xds_cache::{Name, Origin, Reference, Resource, ResourceDraft, ResourceKey, ResourceType};

/// Cluster, endpoints, listener, route; then virtual host and one with `xdstp:` names, which only delta subscribes to.
pub(crate) const N_KINDS: usize = 6;

/// The type of a kind.
pub(crate) fn resource_type(kind: usize) -> ResourceType {
    match kind {
        0 => ResourceType::Cluster,
        1 => ResourceType::ClusterLoadAssignment,
        2 => ResourceType::Listener,
        3 => ResourceType::RouteConfiguration,
        4 => ResourceType::VirtualHost,
        _ => ResourceType::from_type_url("type.googleapis.com/T"),
    }
}

/// What resources of a kind can be called.
pub(crate) fn resource_names(kind: usize) -> &'static [&'static str] {
    match kind {
        0 | 1 | 3 => &["a", "b", "c", "d"],
        2 => &["a.io", "b.io:80", "*.io", "*"],
        4 => &["r/v0", "r/v1", "r/v2", "q/v0"],
        _ => &["xdstp://u/T/d/x?a=1&b=2", "xdstp://u/T/d/y", "xdstp://u/T/d/z?b=2&a=1", "xdstp://u/T/d/e/w"],
    }
}

/// What can be asked for of a kind.
pub(crate) fn asked_names(kind: usize) -> &'static [&'static str] {
    match kind {
        0 | 1 | 3 => &["*", "a", "b", "c", "e"],
        2 => &[
            "*",
            "a.io",
            "b.io:80",
            "A.io:81",
            "xdstp://u/envoy.config.listener.v3.Listener/a.io?b=2&a=1",
            "c.org",
            "*.io",
            "not/a.host",
        ],
        4 => &["*", "r/a.io", "r/b.io", "r/b.org", "r/v0", "q/A.io", "r/b.io:80"],
        _ => &[
            "*",
            "xdstp://u/T/d/x?b=2&a=1",
            "xdstp://u/T/d/y",
            "xdstp://u/T/d/*",
            "xdstp://u/T/d/*?b=2&a=1",
            "xdstp://u/T/d/e/*",
        ],
    }
}

/// The aliases of a virtual host with this content: its route and its domains.
pub(crate) fn aliases(kind: usize, name: &str, content: u8) -> Vec<String> {
    if kind != 4 {
        return vec![];
    }
    // No two virtual hosts of a route have one domain: clients refuse that.
    let domains: &[&str] = match (name.as_bytes().last(), content) {
        (Some(b'0'), 1) => &["a.io"],
        (Some(b'0'), 2) => &["*.io"],
        (Some(b'0'), 3) => &["*"],
        (Some(b'0'), _) => &["b.*"],
        (Some(b'1'), 1) => &["b.io"],
        (Some(b'1'), 2) => &["*o", "b.org"],
        (Some(b'1'), 3) => &["b.o*"],
        (Some(b'1'), _) => &["*a.io"],
        (_, 1) => &["b.i*"],
        (_, 2) => &["*.org"],
        (_, 3) => &["a.*"],
        (_, _) => &["c.io"],
    };
    let route = &name[..1];
    domains.iter().map(|domain| format!("{route}/{domain}")).collect()
}

/// Whether a wildcard covers a resource of this name and content.
pub(crate) fn in_wildcard(kind: usize, name: &str, content: u8) -> bool {
    kind == 3 || (content != 4 && !(kind == 2 && name.starts_with('*')))
}

/// Whether the name of a resource of this content is a pattern of hosts.
pub(crate) fn is_pattern(kind: usize, content: u8) -> bool {
    kind == 2 && content != 3
}

/// The cluster that a route of this content goes to.
pub(crate) fn target(content: u8) -> &'static str {
    ["a", "b", "c", "d"][usize::from(content) % 4]
}

pub(crate) fn resource(kind: usize, name: &str, content: u8) -> Resource {
    let reference = |kind: usize, name: &str| Reference {
        to: ResourceKey { resource_type: resource_type(kind), name: name.into() }.into(),
        path: "here".into(),
    };
    let references: Vec<Reference> = match kind {
        0 => vec![reference(1, name)],
        3 => vec![reference(0, target(content))],
        _ => vec![],
    };
    Resource::new(ResourceDraft {
        key: ResourceKey { resource_type: resource_type(kind), name: name.into() }.into(),
        value: value(kind, name, content).into(),
        ttl: None,
        aliases: aliases(kind, name, content).into_iter().map(Name::from).collect(),
        references: references.into_iter().collect(),
        origin: Origin::Api,
        in_wildcard: in_wildcard(kind, name, content),
        host_pattern: is_pattern(kind, content),
    })
}

/// The bytes of a resource: a listener begins with its name, as the encoded message does.
fn value(kind: usize, name: &str, content: u8) -> Vec<u8> {
    let mut value = vec![];
    if kind == 2 {
        value.extend([0x0a, u8::try_from(name.len()).expect("a short name")]);
        value.extend(name.as_bytes());
    }
    value.extend(content.to_string().as_bytes());
    value
}

/// What a client reads of a resource: its content, and whether the name in it is right.
pub(crate) fn content_of(kind: usize, name: &str, value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value).into_owned();
    if kind != 2 {
        return text;
    }
    let length = char::from(u8::try_from(name.len()).expect("a short name"));
    match text.strip_prefix(&format!("\n{length}{name}")) {
        Some(content) => content.to_owned(),
        None => format!("another name than {name}: {text}"),
    }
}
