//! Listeners, filter chains and targets: which tables requests meet before and after.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    PathWithEscapedSlashesAction, RouteSpecifier,
};
use xds_cache::{Resource, ResourceType};

use crate::diff::hosts;
use crate::diff::report::{ClassKind, Findings, Found};
use crate::listener::addresses;
use crate::model::{Manager, Model};
use crate::ratio::Ratio;
use crate::request::Request;
use crate::semantics::Difference;
use crate::space::connection::{ChainIndex, Way, ways};
use crate::space::destination::differing;
use crate::space::universe::PathRules;
use crate::space::values::Arrival;
use crate::table::RouteTable;

/// Compares everything that requests meet from the connection on.
pub(super) fn compare(models: [&Model; 2], findings: &mut Findings) {
    if models[0].semantics.has(Difference::ActsAsProxy) {
        compare_listeners(models, findings);
    } else {
        compare_targets(models, findings);
    }
}

/// The listeners of an address.
type At<'m> = [Option<(&'m Resource, &'m Listener)>; 2];

fn compare_listeners(models: [&Model; 2], findings: &mut Findings) {
    let mut by_address: BTreeMap<(Vec<(IpAddr, u16)>, String), At<'_>> = BTreeMap::new();
    for (side, model) in models.into_iter().enumerate() {
        for (resource, listener) in model.all_listeners() {
            let mut addresses: Vec<(IpAddr, u16)> = addresses(listener).collect();
            addresses.sort_unstable();
            let name = if addresses.is_empty() { resource.name().to_string() } else { String::new() };
            let at = by_address.entry((addresses, name)).or_default();
            if let Some(of_side) = at.get_mut(side)
                && of_side.is_none()
            {
                *of_side = Some((resource, listener));
            } else {
                findings.leave(resource.name(), "another listener has the same address");
            }
        }
    }
    let mut walk = Walk { models, findings, seen: HashSet::new() };
    for at in by_address.into_values() {
        match at {
            [Some(old), Some(new)] => walk.pair([old, new]),
            [Some(only), None] | [None, Some(only)] => {
                let way = ways([only.1, only.1]).0.into_values().next();
                walk.connection(&way.unwrap_or_else(|| plain(only.1)), only.0.name());
            }
            [None, None] => {}
        }
    }
}

fn plain(listener: &Listener) -> Way {
    let connection = crate::request::Connection {
        port: addresses(listener).next().map(|(_, port)| port),
        ..Default::default()
    };
    Way { connection, is_tls: false }
}

struct Walk<'m, 'f> {
    models: [&'m Model; 2],
    findings: &'f mut Findings,
    /// The pairs of RouteConfigurations that were compared.
    seen: HashSet<[String; 2]>,
}

impl<'m> Walk<'m, '_> {
    fn pair(&mut self, both: [(&'m Resource, &'m Listener); 2]) {
        let is_same = both[0].0.says_the_same(both[1].0) || both[0].1 == both[1].1;
        if is_same && !self.has_changed_tables(both[0].1) {
            return;
        }
        let about = both[1].0.name();
        let (ways, undecided) = ways(both.map(|(_, listener)| listener));
        if let Some(why) = undecided {
            self.findings.leave(about, why);
        }
        for (chains, way) in ways {
            match chains {
                [Some(old), Some(new)] => self.chains(both, [old, new], &way),
                [Some(_), None] | [None, Some(_)] => self.connection(&way, about),
                [None, None] => {}
            }
        }
    }

    /// Returns `true` if a RouteConfiguration of the listener differs.
    fn has_changed_tables(&self, listener: &Listener) -> bool {
        let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
        let resource = Resource::plain(ResourceType::Listener, "", Vec::new());
        chains.filter_map(|chain| Model::manager(&resource, chain, None)).any(|manager| {
            match &manager.message.route_specifier {
                Some(RouteSpecifier::Rds(rds)) => self.has_changed(&rds.route_config_name),
                Some(RouteSpecifier::RouteConfig(_)) | None => false,
                // Which tables the scopes lead to is not modelled.
                Some(RouteSpecifier::ScopedRoutes(_)) => true,
            }
        })
    }

    fn has_changed(&self, name: &str) -> bool {
        let of_type = ResourceType::RouteConfiguration;
        let [old, new] = self.models.map(|model| model.resource(&of_type, name));
        let hosts = self.models.map(|model| model.on_demand_hosts(name));
        let same_hosts = hosts[0].len() == hosts[1].len()
            && hosts[0].iter().zip(&hosts[1]).all(|(old, new)| old.says_the_same(new));
        match (old, new) {
            (Some(old), Some(new)) => !old.says_the_same(&new) || !same_hosts,
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    }

    /// Connections that are accepted on one side alone.
    fn connection(&mut self, way: &Way, about: &str) {
        let base = request(way, "any.test");
        self.push(ClassKind::Connection, Vec::new(), base, about);
    }

    fn push(&mut self, kind: ClassKind, what: Vec<String>, example: Request, about: &str) {
        self.findings.found.push(Found {
            kind,
            what,
            cluster: None,
            example: Some(example),
            shares: None,
            share: Ratio::ONE,
            when: Vec::new(),
            parts: 1,
            about: about.to_owned(),
            is_linked: false,
        });
    }

    fn chains(&mut self, both: [(&'m Resource, &'m Listener); 2], chains: [ChainIndex; 2], way: &Way) {
        let about = both[1].0.name().to_string();
        let found = [0, 1].map(|side: usize| chain_at(both[side].1, chains[side]));
        let [Some(old), Some(new)] = found else { return };
        let base = request(way, "any.test");
        if old.transport_socket != new.transport_socket {
            let kind = match old.transport_socket.is_some() == new.transport_socket.is_some() {
                true => ClassKind::Treatment,
                false => ClassKind::Connection,
            };
            self.push(kind, vec!["TLS of the listener".to_owned()], base.clone(), &about);
        }
        let managers = [0, 1].map(|side: usize| {
            found[side].and_then(|chain| Model::manager(both[side].0, chain, chains[side]))
        });
        match &managers {
            [Some(old), Some(new)] => self.managers([old, new], &base, &about),
            [None, None] if old.filters != new.filters => {
                self.push(ClassKind::Treatment, vec!["network filters".to_owned()], base, &about);
            }
            [None, None] => {}
            [Some(_), None] | [None, Some(_)] => self.push(ClassKind::Connection, Vec::new(), base, &about),
        }
    }

    fn managers(&mut self, managers: [&Manager; 2], base: &Request, about: &str) {
        let messages = managers.map(|manager| &manager.message);
        let bare = messages.map(|one| HttpConnectionManager { route_specifier: None, ..one.clone() });
        if bare[0] != bare[1] {
            let names = differing(&bare[0], &bare[1]);
            let what = names.into_iter().map(|name| format!("connection manager: {name}")).collect();
            self.push(ClassKind::Treatment, what, base.clone(), about);
        }
        let arrival =
            Arrival { base: base.clone(), managers: messages.map(Some), semantics: self.models[0].semantics };
        self.tables(&arrival, about, |arrival, tables, findings| {
            let rules = rules(messages, tables, findings);
            hosts::compare(tables, arrival, rules, findings);
        });
    }

    /// Compares the tables of two connection managers, once for each pair.
    fn tables(
        &mut self,
        arrival: &Arrival<'_>,
        about: &str,
        compare: impl Fn(&Arrival<'_>, [&Arc<RouteTable>; 2], &mut Findings),
    ) {
        let specifiers = arrival.managers.map(|manager| manager.and_then(|one| one.route_specifier.as_ref()));
        if let [Some(RouteSpecifier::ScopedRoutes(_)), _] | [_, Some(RouteSpecifier::ScopedRoutes(_))] =
            specifiers
        {
            self.findings.leave(about, "scopes choose the route configuration");
            return;
        }
        let names = specifiers.map(|specifier| match specifier {
            Some(RouteSpecifier::Rds(rds)) => rds.route_config_name.clone(),
            Some(RouteSpecifier::RouteConfig(_) | RouteSpecifier::ScopedRoutes(_)) | None => String::new(),
        });
        let is_by_name = names.iter().all(|name| !name.is_empty());
        let is_new = self.seen.insert(names.clone());
        if is_by_name && (!is_new || names[0] == names[1] && !self.has_changed(&names[0])) {
            return;
        }
        let tables = [0, 1].map(|side: usize| self.table(side, specifiers[side]));
        match &tables {
            [Some(old), Some(new)] => {
                compare(arrival, [old, new], self.findings);
                self.on_demand(arrival, [old, new], &compare);
            }
            [None, None] => {}
            [Some(only), None] | [None, Some(only)] => {
                let host = only.hosts.iter().flat_map(|host| &host.message.domains).next();
                let host = host.map(|domain| domain.replace('*', "any")).unwrap_or_default();
                let example = Request { authority: host, ..arrival.base.clone() };
                let what = vec!["the route configuration is there on one side alone".to_owned()];
                self.push(ClassKind::Destination, what, example, about);
            }
        }
    }

    fn table(&self, side: usize, specifier: Option<&RouteSpecifier>) -> Option<Arc<RouteTable>> {
        match specifier? {
            RouteSpecifier::Rds(rds) => self.models[side].table(&rds.route_config_name),
            RouteSpecifier::RouteConfig(inline) => {
                Some(Arc::new(RouteTable::of(RouteConfiguration::clone(inline), self.models[side].semantics)))
            }
            RouteSpecifier::ScopedRoutes(_) => None,
        }
    }

    /// Virtual hosts on demand that are not the same on both sides, each as a table of its own.
    fn on_demand(
        &mut self,
        arrival: &Arrival<'_>,
        tables: [&Arc<RouteTable>; 2],
        compare: &impl Fn(&Arrival<'_>, [&Arc<RouteTable>; 2], &mut Findings),
    ) {
        if tables.iter().any(|table| table.message.vhds.is_none()) {
            return;
        }
        let mut names: BTreeMap<String, [Option<Arc<Resource>>; 2]> = BTreeMap::new();
        for side in [0, 1] {
            let table = &tables[side].message.name;
            for resource in self.models[side].on_demand_hosts(table) {
                let host = resource.name().get(table.len() + 1..).unwrap_or_default().to_owned();
                names.entry(host).or_default()[side] = Some(resource);
            }
        }
        for (host, both) in names {
            if let [Some(old), Some(new)] = &both
                && old.says_the_same(new)
            {
                continue;
            }
            let found = [0, 1].map(|side: usize| match self.models[side].on_demand(tables[side], &host) {
                Some((table, _)) => table,
                None => Arc::clone(tables[side]),
            });
            compare(arrival, [&found[0], &found[1]], self.findings);
        }
    }
}

fn chain_at(listener: &Listener, index: ChainIndex) -> Option<&FilterChain> {
    match index {
        Some(at) => listener.filter_chains.get(at),
        None => listener.default_filter_chain.as_ref(),
    }
}

fn request(way: &Way, host: &str) -> Request {
    let scheme = if way.is_tls { "https" } else { "http" }.to_owned();
    let host = way.connection.sni.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| host.to_owned());
    Request { connection: way.connection.clone(), scheme, ..Request::get(&host, "/") }
}

/// What happens to paths on their way to the routes. Where both sides differ, the paths that one of them changes are not looked at.
fn rules(
    managers: [&HttpConnectionManager; 2],
    tables: [&Arc<RouteTable>; 2],
    findings: &mut Findings,
) -> PathRules {
    let [old, new] = [0, 1].map(|side: usize| PathRules {
        normalizes: managers[side].normalize_path.as_ref().is_some_and(|flag| flag.value),
        merges_slashes: managers[side].merge_slashes,
        unescapes_slashes: !matches!(
            managers[side].path_with_escaped_slashes_action(),
            PathWithEscapedSlashesAction::ImplementationSpecificDefault
                | PathWithEscapedSlashesAction::KeepUnchanged
        ),
        ignores_parameters: tables[side].message.ignore_path_parameters_in_path_matching,
        has_escapes: false,
    });
    if old != new {
        findings.leave(&tables[1].message.name, "paths that are normalized on one side alone");
    }
    PathRules {
        normalizes: old.normalizes || new.normalizes,
        merges_slashes: old.merges_slashes || new.merges_slashes,
        unescapes_slashes: old.unescapes_slashes || new.unescapes_slashes,
        ignores_parameters: old.ignores_parameters || new.ignores_parameters,
        has_escapes: false,
    }
}

/// The targets of gRPC clients.
fn compare_targets(models: [&Model; 2], findings: &mut Findings) {
    let names: BTreeSet<String> = models
        .into_iter()
        .flat_map(|model| model.all(&ResourceType::Listener))
        .map(|resource| resource.name().to_string())
        .collect();
    for target in names {
        let both = models.map(|model| model.api_manager(&target));
        let mut walk = Walk { models, findings: &mut *findings, seen: HashSet::new() };
        let base = Request::call(&target, "package.Service/Method");
        match &both {
            [Some((_, Some(old))), Some((_, Some(new)))] => {
                let arrival = Arrival { base, managers: [None, None], semantics: models[0].semantics };
                let messages = [&old.message, &new.message];
                let bare = messages.map(|one| HttpConnectionManager { route_specifier: None, ..one.clone() });
                if bare[0] != bare[1] {
                    let names = differing(&bare[0], &bare[1]);
                    let what = names.into_iter().map(|name| format!("connection manager: {name}")).collect();
                    walk.push(ClassKind::Treatment, what, arrival.base.clone(), &target);
                }
                let with_managers = Arrival { managers: messages.map(Some), ..arrival.clone() };
                walk.tables(&with_managers, &target, |_, tables, findings| {
                    hosts::compare_for(tables, &target, &arrival, findings);
                });
            }
            [Some((_, None)) | None, Some((_, None)) | None] => {}
            [Some(_), Some(_) | None] | [None, Some(_)] => {
                walk.push(ClassKind::Connection, Vec::new(), base, &target);
            }
        }
    }
}
