//! Routes of the native form.

use super::rule::{RULE_FIELDS, read_rule};
use super::target::{one_or_list, read_qualified};
use crate::model::{Hostname, Kind, ParentRef, Route, RouteKind, Rule, Spec};
use crate::read::context::Context;
use crate::read::fields::{Object, Reader, Value};
use crate::read::meta::read_hostname;
use crate::read::route::check_rules;

/// Reads a route: `hosts`, `listen` and `rules`, or the fields of a single rule in place of `rules`.
pub(super) fn read_route(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Spec> {
    let mut fields = value.object(reader)?;
    let hostnames = match fields.take("hosts") {
        Some(hosts) => read_hosts(&hosts, reader),
        None => Vec::new(),
    };
    let parents = match fields.take("listen") {
        Some(listeners) => read_listeners(&listeners, context, reader),
        None => Vec::new(),
    };
    let rules = match fields.take("rules") {
        Some(list) => read_rules(&mut fields, &list, context, reader),
        None => vec![read_rule(&mut fields, context, reader)],
    };
    fields.finish(reader);
    let n_matches = rules.iter().map(|rule| rule.matches.len()).sum();
    check_rules(&value.spot, &rules, n_matches, reader);
    Some(Spec::Route(Route {
        kind: RouteKind::Native,
        parents,
        uses_default_gateways: false,
        hostnames,
        rules,
    }))
}

fn read_rules(
    route: &mut Object<'_>,
    list: &Value<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Vec<Rule> {
    for field in RULE_FIELDS {
        if let Some(misplaced) = route.take(field) {
            let message = format!("`{field}` cannot be next to `rules`; move it into a rule");
            reader.error("misplaced-field", &misplaced.spot, message);
        }
    }
    let items = list.list(MAX_RULES, reader);
    if items.is_empty() && list.is_list() {
        reader.error("missing-field", &list.spot, "a route needs at least one rule");
    }
    let mut rules = Vec::with_capacity(items.len());
    for item in items {
        let Some(mut fields) = item.object(reader) else { continue };
        rules.push(read_rule(&mut fields, context, reader));
        fields.finish(reader);
    }
    rules
}

/// Reads hosts; `*` alone is the same as none.
fn read_hosts(value: &Value<'_>, reader: &mut Reader) -> Vec<Hostname> {
    let items = one_or_list(value, MAX_HOSTS, reader);
    if let [only] = items.as_slice()
        && only.tree.as_str() == Some("*")
    {
        return Vec::new();
    }
    let mut hosts: Vec<Hostname> = Vec::with_capacity(items.len());
    for item in items {
        if item.tree.as_str() == Some("*") {
            reader.error("bad-hostname", &item.spot, "`*` matches every host, so it must be the only one");
            continue;
        }
        let Some(host) = read_hostname(&item, reader) else { continue };
        if hosts.contains(&host) {
            reader.warn("duplicate-hostname", &item.spot, format!("the host name {host} appears twice"));
            continue;
        }
        hosts.push(host);
    }
    hosts
}

/// Reads the listeners, which may be Gateways too: `name` or `namespace/name`.
fn read_listeners(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<ParentRef> {
    let items = one_or_list(value, MAX_PARENTS, reader);
    let mut parents: Vec<ParentRef> = Vec::with_capacity(items.len());
    for item in items {
        if item.tree.as_str() == Some(ALL_GRPC) {
            let message = "`grpc` is not a listener; remove it: gRPC clients find a route by its `hosts`";
            reader.error("unsupported", &item.spot, message);
            continue;
        }
        let Some((namespace, name)) = read_qualified(&item, context, reader) else { continue };
        if parents.iter().any(|other| other.namespace == namespace && other.name == name) {
            reader.warn("duplicate-parent", &item.spot, "the listener appears twice");
            continue;
        }
        let kind = Kind::Gateway;
        let (group, kind) = (kind.api_group().into(), kind.as_str().into());
        parents.push(ParentRef { spot: item.spot, group, kind, namespace, name, section: None, port: None });
    }
    parents
}

/// A reserved word that is refused as the name of a listener.
pub(super) const ALL_GRPC: &str = "grpc";

/// The limit of the Gateway API.
const MAX_RULES: usize = 16;

/// The limit of the Gateway API.
const MAX_HOSTS: usize = 16;

/// The limit of the Gateway API.
const MAX_PARENTS: usize = 32;
