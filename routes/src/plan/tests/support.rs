//! Documents made by hand, and requests to what is planned of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::GroupName;
use xds_codec::Place;

use crate::conditions::{Condition, Conditions, ObjectStatus};
use crate::input::{Documents, Options, Placed};
use crate::model::{
    AllowedNamespaces, AllowedRoutes, Document, DocumentKey, Gateway, GatewayListener, GrantFrom, GrantTo,
    HeaderMatch, HeaderValue, Hostname, Kind, ListenerProtocol, Match, MatchType, Meta, MethodMatch,
    Namespace, ObjectRef, ParentRef, PathMatch, ReferenceGrant, Route, RouteKind, Rule, Secret, Spec, Spot,
    Timeouts,
};
use crate::plan::{Chain, Host, PlannedRoute, Port, VirtualHost};

/// The documents of the group `default`, in files.
pub(crate) fn documents(list: impl IntoIterator<Item = Document>) -> Documents {
    in_groups(list.into_iter().map(|document| ("default", document)))
}

/// Documents and the groups of their directories.
pub(crate) fn in_groups<'g>(list: impl IntoIterator<Item = (&'g str, Document)>) -> Documents {
    let placed = list.into_iter().map(|(group, document)| {
        let group = GroupName::new(group).unwrap();
        let placed = Placed::new(Arc::new(document), group);
        (placed.document.key.clone(), placed)
    });
    placed.collect()
}

/// A document of kind `kind` named `namespace/name`, or `name` for kinds without namespace.
pub(crate) fn document(kind: Kind, name: &str, spec: Spec) -> Document {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Document {
        key: DocumentKey::new(kind, namespace, name),
        place: Place { file: format!("{name}.yaml").into(), line: 1, column: 1 },
        meta: Meta::none(),
        spec,
        source: Arc::default(),
    }
}

/// A document with a `creationTimestamp`, in seconds since 1970.
pub(crate) fn created(seconds: i64, document: Document) -> Document {
    let meta = Meta { created: Some(seconds), ..(*document.meta).clone() };
    Document { meta: meta.kept(), ..document }
}

/// A Gateway of the class `xds`.
pub(crate) fn gateway(name: &str, listeners: Vec<GatewayListener>) -> Document {
    gateway_at(name, None, listeners)
}

/// A Gateway of the class `xds` with an address.
pub(crate) fn gateway_at(name: &str, address: Option<&str>, listeners: Vec<GatewayListener>) -> Document {
    let address = address.map(|address| address.parse().unwrap());
    let class_spot = spot("spec.gatewayClassName");
    let (parameters, unsupported_address) = (None, None);
    let spec =
        Gateway { class: "xds".into(), class_spot, parameters, address, unsupported_address, listeners };
    document(Kind::Gateway, name, Spec::Gateway(Box::new(spec)))
}

/// A listener of the native form.
pub(crate) fn native_gateway(name: &str, port: u16) -> Document {
    let mut listener = http("http", port, "");
    listener.allowed.namespaces = AllowedNamespaces::All;
    let spec = Gateway {
        class: String::new(),
        class_spot: spot("listeners"),
        parameters: None,
        unsupported_address: None,
        address: None,
        listeners: vec![listener],
    };
    document(Kind::Gateway, name, Spec::Gateway(Box::new(spec)))
}

/// A GatewayClass.
pub(crate) fn class(name: &str, controller: &str) -> Document {
    document(Kind::GatewayClass, name, Spec::GatewayClass { controller: controller.to_owned() })
}

/// An HTTP listener that takes every kind from its own namespace; `host` may be empty.
pub(crate) fn http(name: &str, port: u16, host: &str) -> GatewayListener {
    listener(name, port, ListenerProtocol::Http, host)
}

/// An HTTPS listener with the certificates of these Secrets.
pub(crate) fn https(name: &str, port: u16, host: &str, certificates: &[&str]) -> GatewayListener {
    let certificates = certificates.iter().map(|secret| reference(Kind::Secret, secret)).collect();
    GatewayListener { certificates, ..listener(name, port, ListenerProtocol::Https, host) }
}

/// A listener.
pub(crate) fn listener(name: &str, port: u16, protocol: ListenerProtocol, host: &str) -> GatewayListener {
    GatewayListener {
        spot: spot(&format!("spec.listeners[{name}]")),
        name: name.to_owned(),
        port,
        protocol,
        hostname: (!host.is_empty()).then(|| hostname(host)),
        certificates: Vec::new(),
        allowed: AllowedRoutes {
            namespaces: AllowedNamespaces::Same,
            kinds: Vec::new(),
            kinds_spot: spot(&format!("spec.listeners[{name}].allowedRoutes.kinds")),
        },
    }
}

/// The listener, taking routes from these namespaces.
pub(crate) fn from(namespaces: AllowedNamespaces, mut listener: GatewayListener) -> GatewayListener {
    listener.allowed.namespaces = namespaces;
    listener
}

/// The listener, taking these kinds of the Gateway API.
pub(crate) fn of_kinds(kinds: &[&str], mut listener: GatewayListener) -> GatewayListener {
    let group = Kind::Gateway.api_group();
    listener.allowed.kinds = kinds.iter().map(|kind| (group.to_owned(), (*kind).to_owned())).collect();
    listener
}

/// A route; `hosts` are separated by blanks, and its parents are written as in [`parent`].
pub(crate) fn route(kind: RouteKind, name: &str, parents: &str, hosts: &str, rules: Vec<Rule>) -> Document {
    let document_kind = match kind {
        RouteKind::Grpc => Kind::GrpcRoute,
        RouteKind::Http => Kind::HttpRoute,
        RouteKind::Native => Kind::Route,
    };
    let parents = parents.split_whitespace().map(parent).collect();
    let hostnames = hosts.split_whitespace().map(hostname).collect();
    document(
        document_kind,
        name,
        Spec::Route(Route { kind, parents, uses_default_gateways: false, hostnames, rules }),
    )
}

/// A GRPCRoute.
pub(crate) fn grpc(name: &str, parents: &str, hosts: &str, rules: Vec<Rule>) -> Document {
    route(RouteKind::Grpc, name, parents, hosts, rules)
}

/// An HTTPRoute.
pub(crate) fn web(name: &str, parents: &str, hosts: &str, rules: Vec<Rule>) -> Document {
    route(RouteKind::Http, name, parents, hosts, rules)
}

/// `namespace/name`, then `#section`, then `:port`; behind another kind and `=` if it is no Gateway.
fn parent(text: &str) -> ParentRef {
    let (kind, rest) = text.split_once('=').unwrap_or(("Gateway", text));
    let (rest, port) =
        rest.split_once(':').map_or((rest, None), |(rest, port)| (rest, Some(port.parse().unwrap())));
    let (rest, section) =
        rest.split_once('#').map_or((rest, None), |(rest, section)| (rest, Some(section.to_owned())));
    let (namespace, name) = rest.split_once('/').unwrap();
    ParentRef {
        spot: spot("spec.parentRefs[0]"),
        group: Kind::of_name(kind).unwrap_or(Kind::Gateway).api_group().into(),
        kind: kind.to_owned().into(),
        namespace: namespace.into(),
        name: name.into(),
        section,
        port,
    }
}

/// A rule with these matches and no backends.
pub(crate) fn rule(matches: Vec<Match>) -> Rule {
    Rule {
        spot: Spot::default(),
        name: None,
        matches,
        filters: Vec::new(),
        backends: Vec::new(),
        timeouts: Timeouts::default(),
        retry: None,
        session: None,
    }
}

/// Rules of one match each, written as in [`one`].
pub(crate) fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| rule(vec![one(text)])).collect()
}

/// A match, in words separated by blanks: `*` for anything; `=/path`, `^/prefix`, `^~text` or `~/regex` for the path;
/// `service/`, `service/method` or `/method` after `rpc:`, or after `rpc~` for expressions; `name=value` for a header;
/// `?name=value` for a query parameter; `@METHOD`.
pub(crate) fn one(text: &str) -> Match {
    let mut matches = Match::of_path(&Spot::default(), PathMatch::Any);
    for word in text.split_whitespace() {
        add_word(&mut matches, word);
    }
    matches
}

fn add_word(matches: &mut Match, word: &str) {
    if let Some(method) = word.strip_prefix("rpc:") {
        matches.path = PathMatch::Method(method_match(MatchType::Exact, method));
    } else if let Some(method) = word.strip_prefix("rpc~") {
        matches.path = PathMatch::Method(method_match(MatchType::RegularExpression, method));
    } else if let Some(path) = word.strip_prefix("^~") {
        matches.path = PathMatch::TextPrefix(path.to_owned());
    } else if let Some(path) = word.strip_prefix('^') {
        matches.path = PathMatch::Prefix(path.to_owned());
    } else if let Some(path) = word.strip_prefix('=') {
        matches.path = PathMatch::Exact(path.to_owned());
    } else if let Some(path) = word.strip_prefix('~') {
        matches.path = PathMatch::Regex(path.to_owned());
    } else if let Some(method) = word.strip_prefix('@') {
        matches.method = Some(method.to_owned());
    } else if let Some((name, value)) = word.strip_prefix('?').and_then(|word| word.split_once('=')) {
        let (name, value) = (name.to_owned(), value.to_owned());
        let query = crate::model::QueryMatch { name, match_type: MatchType::Exact, value };
        matches.query = matches.query.iter().cloned().chain([query]).collect();
    } else if let Some((name, value)) = word.split_once('=') {
        let value = HeaderValue::Exact(value.to_owned());
        matches.headers.push(HeaderMatch { spot: Spot::default(), name: name.to_owned(), value });
    } else {
        assert_eq!(word, "*", "no match");
    }
}

fn method_match(match_type: MatchType, text: &str) -> MethodMatch {
    let (service, method) = text.split_once('/').unwrap();
    let given = |part: &str| (!part.is_empty()).then(|| part.to_owned());
    MethodMatch { match_type, service: given(service), method: given(method) }
}

/// A reference to an object `namespace/name`.
pub(crate) fn reference(kind: Kind, name: &str) -> ObjectRef {
    let (namespace, name) = name.split_once('/').unwrap();
    ObjectRef {
        spot: spot(&format!("ref[{name}]")),
        group: kind.api_group().into(),
        kind: kind.as_str().into(),
        namespace: namespace.into(),
        name: name.into(),
        port: None,
    }
}

/// A Namespace with one label.
pub(crate) fn namespace(name: &str, key: &str, value: &str) -> Document {
    let mut namespace = document(Kind::Namespace, name, Spec::Namespace(Namespace));
    Arc::make_mut(&mut namespace.meta).labels = [(key.to_owned(), value.to_owned())].into();
    namespace
}

/// A Secret of the type `kubernetes.io/tls`.
pub(crate) fn secret(name: &str) -> Document {
    let pem = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n").into_bytes();
    let data = vec![("tls.crt".to_owned(), pem("CERTIFICATE")), ("tls.key".to_owned(), pem("PRIVATE KEY"))];
    document(Kind::Secret, name, Spec::Secret(Secret { data }))
}

/// A ReferenceGrant that lets Gateways of a namespace refer to Secrets.
pub(crate) fn grant_secrets(name: &str, from: &str) -> Document {
    let from = GrantFrom {
        group: Kind::Gateway.api_group().to_owned(),
        kind: "Gateway".to_owned(),
        namespace: from.to_owned(),
    };
    let to = GrantTo { group: String::new(), kind: "Secret".to_owned(), name: None };
    document(
        Kind::ReferenceGrant,
        name,
        Spec::ReferenceGrant(ReferenceGrant { from: vec![from], to: vec![to] }),
    )
}

fn hostname(text: &str) -> Hostname {
    Hostname::new(text).unwrap()
}

pub(crate) fn spot(path: &str) -> Spot {
    Spot { path: path.into(), line: 0, column: 0 }
}

/// The outcome of documents, ready to be asked.
pub(crate) struct Outcome {
    /// By group and name.
    pub(crate) ports: BTreeMap<(String, String), Port>,
    /// The secrets of all groups.
    pub(crate) secrets: Vec<String>,
    /// The conditions.
    pub(crate) conditions: Conditions,
    /// `code: message` of every diagnostic.
    pub(crate) diagnostics: Vec<String>,
}

/// Plans with the default options.
pub(crate) fn planned(documents: &Documents) -> Outcome {
    planned_with(documents, &Options::default())
}

/// Plans.
pub(crate) fn planned_with(documents: &Documents, options: &Options) -> Outcome {
    let planned = crate::memo::plan(documents, options);
    let mut ports = BTreeMap::new();
    let mut secrets = Vec::new();
    for (group, planned) in planned.groups {
        secrets.extend(planned.plan.secrets.into_keys());
        for port in planned.plan.ports {
            ports.insert((group.as_str().to_owned(), port.name.clone()), port);
        }
    }
    let show = |diagnostic: &xds_codec::Diagnostic| format!("{}: {}", diagnostic.code, diagnostic.message);
    let diagnostics = planned.diagnostics.iter().map(show).collect();
    Outcome { ports, secrets, conditions: planned.conditions, diagnostics }
}

impl Outcome {
    /// The port of that name in the group `default`.
    pub(crate) fn port(&self, name: &str) -> &Port {
        let key = ("default".to_owned(), name.to_owned());
        self.ports.get(&key).unwrap_or_else(|| panic!("no port {name}, only {:?}", self.ports.keys()))
    }

    /// The chain of that name in the group `default`.
    pub(crate) fn chain(&self, name: &str) -> &Chain {
        let chains = self.ports.values().flat_map(|port| &port.chains);
        let mut named = chains.filter(|chain| chain.name == name);
        named.next().unwrap_or_else(|| panic!("no chain {name}"))
    }

    /// The hosts of a chain with their routes: `host: route route`, where a route is `name/rule/match`.
    pub(crate) fn hosts(&self, chain: &str) -> Vec<String> {
        let show = |host: &VirtualHost| {
            let routes: Vec<String> = host.routes.iter().map(short).collect();
            format!("{}: {}", host.host, routes.join(" "))
        };
        self.chain(chain).hosts.iter().map(show).collect()
    }

    /// The route that takes a request, as `name/rule/match`; empty if none does.
    pub(crate) fn answer(&self, chain: &str, authority: &str, path: &str, headers: &str) -> String {
        let host = authority.split(':').next().unwrap();
        let hosts = &self.chain(chain).hosts;
        // As clients of xDS choose: the most specific name, and no other.
        let best = hosts.iter().filter(|one| has_name(&one.host, host)).max_by_key(|one| match &one.host {
            Host::Any => (0, 0),
            Host::Name(name) if name.as_str().starts_with('*') => (1, name.as_str().len()),
            Host::Name(_) => (2, 0),
        });
        let headers: Vec<(&str, &str)> =
            headers.split_whitespace().map(|header| header.split_once('=').unwrap()).collect();
        let mut routes = best.iter().flat_map(|host| &host.routes);
        routes.find(|route| takes(&route.matches, path, &headers)).map(short).unwrap_or_default()
    }

    /// The status of an object, written `Kind namespace/name`.
    pub(crate) fn status(&self, object: &str) -> &ObjectStatus {
        let mut all = self.conditions.objects.iter();
        let (_, status) =
            all.find(|(key, _)| key.to_string() == object).unwrap_or_else(|| panic!("no status of {object}"));
        status
    }

    /// The conditions of an object itself, as `Type=Status/Reason`.
    pub(crate) fn of_object(&self, object: &str) -> String {
        show(&self.status(object).conditions)
    }

    /// The conditions of a route for its parent at `index`.
    pub(crate) fn of_parent(&self, object: &str, index: usize) -> String {
        show(&self.status(object).parents[index].conditions)
    }

    /// The conditions of a Gateway's listener.
    pub(crate) fn of_listener(&self, gateway: &str, name: &str) -> String {
        let mut listeners = self.status(gateway).listeners.iter();
        show(&listeners.find(|listener| listener.name == name).unwrap().conditions)
    }

    /// How many routes the listeners of a Gateway took, in their order.
    pub(crate) fn attached(&self, gateway: &str) -> Vec<usize> {
        self.status(gateway).listeners.iter().map(|listener| listener.attached_routes).collect()
    }

    /// The first diagnostic with this code.
    pub(crate) fn diagnostic(&self, code: &str) -> &str {
        let mut all = self.diagnostics.iter();
        all.find(|line| line.starts_with(&format!("{code}: ")))
            .unwrap_or_else(|| panic!("no {code} in {:#?}", self.diagnostics))
    }
}

/// Conditions as `Type=Status/Reason`.
fn show(conditions: &[Condition]) -> String {
    let show = |one: &Condition| format!("{}={}/{}", one.kind, one.status, one.reason);
    conditions.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn short(route: &PlannedRoute) -> String {
    format!("{}/{}/{}", route.id.document.name, route.id.rule, route.id.match_index)
}

fn has_name(host: &Host, name: &str) -> bool {
    match host.as_str().strip_prefix('*') {
        Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
        None => host.as_str() == name,
    }
}

/// Returns `true` if a request is one that a match asks for, told in another way than by the text that a client is served.
fn takes(matches: &Match, path: &str, headers: &[(&str, &str)]) -> bool {
    let whole = |regex: &str| regex::Regex::new(&format!("^(?:{regex})$")).unwrap().is_match(path);
    let is_path = match &matches.path {
        PathMatch::Any => true,
        PathMatch::Exact(exact) => exact == path,
        PathMatch::Prefix(prefix) => path == prefix || path.starts_with(&format!("{prefix}/")),
        PathMatch::TextPrefix(prefix) => path.starts_with(prefix.as_str()),
        PathMatch::Regex(regex) => whole(regex),
        PathMatch::Method(MethodMatch { match_type, service, method }) => {
            let (own_service, own_method) = path.trim_start_matches('/').split_once('/').unwrap();
            let is = |given: &Option<String>, own: &str| match (given, match_type) {
                (None, _) => true,
                (Some(given), MatchType::Exact) => given == own,
                (Some(given), MatchType::RegularExpression) => {
                    regex::Regex::new(&format!("^(?:{given})$")).unwrap().is_match(own)
                }
            };
            is(service, own_service) && is(method, own_method)
        }
    };
    let has = |header: &HeaderMatch| {
        let value = headers.iter().find(|(name, _)| *name == header.name).map(|(_, value)| *value);
        match &header.value {
            HeaderValue::Exact(exact) => value == Some(exact.as_str()),
            HeaderValue::Regex(_) => false,
            HeaderValue::Present => value.is_some(),
        }
    };
    is_path && matches.headers.iter().all(has)
}
