//! The tree of matchers that chooses the route of a virtual host (XR18).

use std::ops::Range;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::RouteList;
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
use prost::Message as _;

use crate::route::{Asked, Reason};
use crate::semantics::Semantics;
use crate::tree::{Facts, Input, Known, Tree, Walked, What, message_of, read, walk};

/// The tree of matchers of a virtual host. Each action is a route, or a list of them; if none of them takes the request, no other branch is
/// asked.
#[derive(Debug)]
pub(crate) struct RouteTree {
    pub(crate) tree: Tree,
    /// For each action, its routes.
    actions: Vec<Range<usize>>,
    /// For each route, where it is in the virtual host.
    paths: Vec<String>,
}

impl RouteTree {
    /// The tree, and its routes as they come in it.
    pub(crate) fn of(matcher: &Matcher, semantics: Semantics) -> (Self, Vec<proto::Route>) {
        let mut routes: Vec<proto::Route> = Vec::new();
        let mut paths = Vec::new();
        let mut actions: Vec<Range<usize>> = Vec::new();
        let tree = read(matcher, "matcher", semantics, &mut |any, path| {
            let start = routes.len();
            match message_of(any) {
                "envoy.config.route.v3.Route" => {
                    let Ok(route) = proto::Route::decode(&*any.value) else { return unreadable(path) };
                    routes.push(route);
                    paths.push(path.to_owned());
                }
                "envoy.config.route.v3.RouteList" => {
                    let Ok(list) = RouteList::decode(&*any.value) else { return unreadable(path) };
                    paths.extend((0..list.routes.len()).map(|at| format!("{path}.routes[{at}]")));
                    routes.extend(list.routes);
                }
                name => return What::Unknown(format!("the action {name} is not modelled")),
            }
            actions.push(start..routes.len());
            What::Action(actions.len() - 1)
        });
        (Self { tree, actions, paths }, routes)
    }

    /// Why an Envoy refuses it: of all inputs of requests, it allows headers and filter state.
    pub(crate) fn refused(&self) -> Option<Reason> {
        if let Some(path) = &self.tree.keeps {
            return Some(Reason::new("XR18", format!("{path} has keep_matching, which no route can have")));
        }
        let is_refused = |input: &&Input| match input {
            Input::Header(_) | Input::FilterState(_) | Input::Environment(_) => false,
            Input::DestinationIp
            | Input::DestinationPort
            | Input::SourceIp
            | Input::SourcePort
            | Input::DirectSourceIp
            | Input::SourceType
            | Input::ServerName
            | Input::TransportProtocol
            | Input::ApplicationProtocols
            | Input::NetworkNamespace => true,
            Input::Other(name) => REFUSED.iter().any(|refused| name.starts_with(refused)),
        };
        let input = self.tree.inputs.iter().find(is_refused)?;
        let message = format!("a tree of matchers chooses the route by the {input}, and can only by headers");
        Some(Reason::new("XR18", message))
    }

    /// Asks the tree about a request.
    pub(crate) fn ask(&self, asked: &Asked<'_>) -> Walked {
        walk(&self.tree, asked)
    }

    /// The routes of an action.
    pub(crate) fn routes_of(&self, action: usize) -> Range<usize> {
        self.actions.get(action).cloned().unwrap_or_default()
    }

    /// Where a route is in the virtual host.
    pub(crate) fn path_of_route(&self, index: usize) -> &str {
        self.paths.get(index).map(String::as_str).unwrap_or_default()
    }
}

impl Facts for Asked<'_> {
    fn value(&self, input: &Input) -> Known {
        if let Input::Header(name) = input {
            return match self.seen.get(name) {
                [] => Known::Absent,
                values => Known::Text(values.join(",")),
            };
        }
        let Input::FilterState(key) = input else { return Known::Unknown };
        match self.request.filter_state.get(key) {
            Some(value) => Known::Text(value.clone()),
            None if self.request.router_check.is_some() => Known::Absent,
            None => Known::Unknown,
        }
    }
}

fn unreadable(path: &str) -> What {
    What::Unknown(format!("the action at {path} cannot be read"))
}

/// The beginnings of the names of inputs that an Envoy knows and does not allow here.
const REFUSED: [&str; 4] = [
    "envoy.type.matcher.v3.Http",
    "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput",
    "envoy.extensions.matching.common_inputs.ssl.v3.",
    "xds.type.matcher.v3.HttpAttributesCelMatchInput",
];

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::VirtualHost;

    use super::*;
    use crate::client::{Client, Language};
    use crate::draw::Chance;
    use crate::header::Seen;
    use crate::request::{Request, RouterCheck};
    use crate::table::{RouteTable, Ways};
    use crate::tree::make::{
        action, all_of, any, any_of, exact, exact_map, filter_state, header, is, list, names, network, not,
        or_else, prefix, prefix_map, ranges, route, route_at, routes, sub,
    };
    use crate::truth::Truth;

    fn envoy() -> Semantics {
        Semantics::of(Client::newest(Language::Envoy))
    }

    fn table(matcher: Matcher) -> RouteTable {
        let domains = vec!["*".to_owned()];
        let host = VirtualHost { domains, matcher: Some(matcher), ..VirtualHost::default() };
        let message = proto::RouteConfiguration { virtual_hosts: vec![host], ..Default::default() };
        RouteTable::of(message, envoy())
    }

    fn ways(table: &RouteTable, request: &Request) -> Ways {
        assert_eq!(table.refused, None);
        let seen = Seen::of(request, envoy());
        let path = table.compared_path(request);
        let asked = Asked { request, path: &path, seen: &seen };
        table.hosts[0].ways(&asked, Chance::new(request, envoy()))
    }

    /// The name of the route that a request is sent to; empty if there is none.
    fn chosen(matcher: Matcher, headers: &[(&str, &str)]) -> String {
        let table = table(matcher);
        let request = Request::get("a.test", "/p?q=1");
        let request = headers.iter().fold(request, |request, (name, value)| request.with(name, value));
        let ways = ways(&table, &request);
        let [leaf] = &*ways.leaves else { panic!("{ways:?}") };
        assert_eq!(leaf.unknown, None);
        leaf.route.map(|index| table.hosts[0].routes[index].message.name.clone()).unwrap_or_default()
    }

    fn x(text: &str) -> envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::Predicate {
        is(header("x"), exact(text))
    }

    /// A nested tree that only takes `y: 1`.
    fn only_y(name: &str) -> envoy_types::pb::xds::r#type::matcher::v3::matcher::OnMatch {
        sub(list(vec![(is(header("y"), exact("1")), route(name))]))
    }

    // What these trees do was read off an Envoy 1.40.

    #[test]
    fn r18_the_first_branch_of_a_list_that_leads_to_a_route_decides() {
        let tree = || {
            let branches = vec![(x("a"), only_y("in")), (is(header("x"), prefix("a")), route("second"))];
            or_else(list(branches), route("none"))
        };
        for (headers, expected) in [
            (&[("x", "a"), ("y", "1")][..], "in"),
            (&[("x", "a")], "second"),
            (&[("x", "ab")], "second"),
            (&[("x", "b")], "none"),
            (&[], "none"),
        ] {
            assert_eq!(chosen(tree(), headers), expected, "{headers:?}");
        }
        assert_eq!(chosen(list(vec![(x("a"), route("in"))]), &[("x", "b")]), "");
        assert_eq!(chosen(Matcher::default(), &[]), "");
        assert_eq!(chosen(or_else(Matcher::default(), route("none")), &[]), "none");
    }

    #[test]
    fn r18_predicates_are_joined_and_inverted_and_absent_headers_match_none() {
        let tree = |predicate| or_else(list(vec![(predicate, route("yes"))]), route("no"));
        let both = || vec![x("a"), is(header("y"), exact("1"))];
        for (predicate, headers, expected) in [
            (not(x("a")), &[][..], "yes"),
            (not(x("a")), &[("x", "a")], "no"),
            (not(x("a")), &[("x", "b")], "yes"),
            (any_of(both()), &[("y", "1")], "yes"),
            (any_of(both()), &[("y", "2")], "no"),
            (all_of(both()), &[("y", "1")], "no"),
            (all_of(both()), &[("y", "1"), ("x", "a")], "yes"),
            (not(all_of(both())), &[("y", "1")], "yes"),
        ] {
            assert_eq!(chosen(tree(predicate), headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn r18_headers_are_joined_and_their_names_folded_and_the_path_has_its_query() {
        let first = |predicates: Vec<_>| {
            let branches = predicates.into_iter().map(|one| (one, route("yes"))).collect();
            or_else(list(branches), route("no"))
        };
        assert_eq!(chosen(first(vec![x("1,2")]), &[("x", "1"), ("x", "2")]), "yes");
        assert_eq!(chosen(first(vec![x("1")]), &[("x", "1"), ("x", "2")]), "no");
        assert_eq!(chosen(first(vec![is(header("X"), exact("1"))]), &[("x", "1")]), "yes");
        assert_eq!(chosen(first(vec![is(header("host"), exact("a.test"))]), &[]), "yes");
        assert_eq!(chosen(first(vec![is(header(":path"), exact("/p?q=1"))]), &[]), "yes");
    }

    #[test]
    fn r18_a_longer_prefix_that_leads_nowhere_gives_way_to_a_shorter_one() {
        let tree = || {
            let keys = vec![("a", route("short")), ("ab", only_y("long"))];
            or_else(prefix_map(header("x"), keys), route("none"))
        };
        for (headers, expected) in [
            (&[("x", "ab"), ("y", "1")][..], "long"),
            (&[("x", "abc")], "short"),
            (&[("x", "a")], "short"),
            (&[("x", "b")], "none"),
            (&[], "none"),
        ] {
            assert_eq!(chosen(tree(), headers), expected, "{headers:?}");
        }
        let empty = or_else(prefix_map(header("x"), vec![("", route("any"))]), route("none"));
        assert_eq!((chosen(empty.clone(), &[("x", "b")]), chosen(empty, &[])), ("any".into(), "none".into()));
    }

    #[test]
    fn r18_a_key_of_an_exact_map_is_the_whole_value() {
        let tree = || or_else(exact_map(header("x"), vec![("a", only_y("in"))]), route("none"));
        assert_eq!(chosen(tree(), &[("x", "a"), ("y", "1")]), "in");
        assert_eq!(chosen(tree(), &[("x", "a")]), "none");
        assert_eq!(chosen(tree(), &[("x", "A"), ("y", "1")]), "none");
    }

    #[test]
    fn r18_ranges_of_addresses_and_names_are_asked_from_the_longest() {
        let of = |is_exclusive| {
            let all =
                vec![("10.0.0.0", 8, is_exclusive, route("wide")), ("10.1.0.0", 16, false, only_y("narrow"))];
            or_else(ranges(header("x"), all), route("none"))
        };
        for (headers, expected) in [
            (&[("x", "10.1.2.3"), ("y", "1")][..], ["narrow", "narrow"]),
            (&[("x", "10.1.2.3")], ["wide", "none"]),
            (&[("x", "10.2.2.3")], ["wide", "wide"]),
            (&[("x", "11.1.1.1")], ["none", "none"]),
            (&[("x", "zz")], ["none", "none"]),
        ] {
            assert_eq!([of(false), of(true)].map(|tree| chosen(tree, headers)), expected, "{headers:?}");
        }
        let tree = || {
            let all = vec![("a.test", route("exact")), ("*.test", route("suffix")), ("*", route("any"))];
            or_else(names(header("x"), all), route("none"))
        };
        for (name, expected) in [
            ("a.test", "exact"),
            ("A.test", "suffix"),
            ("b.c.test", "suffix"),
            ("test", "any"),
            (".test", "suffix"),
            ("", "none"),
        ] {
            assert_eq!(chosen(tree(), &[("x", name)]), expected, "{name}");
        }
    }

    #[test]
    fn r18_a_route_of_a_tree_has_conditions_of_its_own_and_nothing_else_is_asked() {
        let tree = |then| or_else(list(vec![(x("a"), then)]), route("none"));
        let a = &[("x", "a")];
        assert_eq!(chosen(tree(route_at("in", "/q")), a), "");
        assert_eq!(chosen(tree(routes(&[("q", "/q"), ("p", "/p"), ("all", "/")])), a), "p");
        assert_eq!(chosen(tree(routes(&[("q", "/q")])), a), "");
    }

    #[test]
    fn r18_filter_state_that_is_not_said_forks_the_answer() {
        let is_gold = || is(filter_state("tier"), exact("gold"));
        let tree = || {
            let branches = vec![
                (is_gold(), route_at("gold", "/q")),
                (x("a"), exact_map_of_tiers()),
                (not(is_gold()), route("other")),
            ];
            list(branches)
        };
        let names = |request: &Request| -> Vec<(Vec<String>, String)> {
            let table = table(tree());
            let name = |index: usize| table.hosts[0].routes[index].message.name.clone();
            let ways = ways(&table, request);
            let leaf = |leaf: crate::table::Leaf| (leaf.assumed, leaf.route.map(name).unwrap_or_default());
            ways.leaves.into_iter().map(leaf).collect()
        };
        let gold = "filter state tier is \"gold\"".to_owned();
        let silver = "filter state tier is \"silver\"".to_owned();
        let request = Request::get("a.test", "/");
        // Nothing is assumed twice: who is not gold is not asked for that again.
        let expected =
            vec![(vec![gold.clone()], String::new()), (vec![format!("not: {gold}")], "other".to_owned())];
        assert_eq!(names(&request), expected);
        let expected = vec![
            (vec![gold.clone()], String::new()),
            (vec![format!("not: {gold}"), silver.clone()], "silver".to_owned()),
            (vec![format!("not: {gold}"), format!("not: {silver}")], "other".to_owned()),
        ];
        assert_eq!(names(&request.clone().with("x", "a")), expected);
        let mut said = request.clone();
        said.filter_state.insert("tier".to_owned(), "silver".to_owned());
        assert_eq!(names(&said), vec![(Vec::new(), "other".to_owned())]);
        let checked = Request { router_check: Some(RouterCheck::default()), ..request };
        assert_eq!(names(&checked), vec![(Vec::new(), "other".to_owned())]);
    }

    fn exact_map_of_tiers() -> envoy_types::pb::xds::r#type::matcher::v3::matcher::OnMatch {
        sub(exact_map(filter_state("tier"), vec![("silver", route("silver"))]))
    }

    #[test]
    fn r18_what_is_not_modelled_is_unknown_with_its_reason() {
        let mut deep = route("deep");
        for _ in 0..100 {
            deep = sub(or_else(Matcher::default(), deep));
        }
        let other = action(any("example.Action", Vec::new()));
        for (then, expected) in [(deep, "nested deeper than 64"), (other, "the action example.Action")] {
            let table = table(or_else(list(vec![(x("a"), route("in"))]), then));
            let known = ways(&table, &Request::get("a", "/").with("x", "a"));
            assert_eq!(known.leaves[0].route, Some(0));
            let unknown = ways(&table, &Request::get("a", "/"));
            assert!(
                unknown.leaves[0].unknown.as_ref().is_some_and(|why| why.contains(expected)),
                "{unknown:?}"
            );
        }
    }

    #[test]
    fn r18_only_headers_and_filter_state_choose_routes_and_no_match_is_kept() {
        let refused = |matcher| table(matcher).refused.map(|reason| reason.message).unwrap_or_default();
        let by = |input| exact_map(input, vec![("a", route("in"))]);
        assert_eq!(refused(by(header("x"))), "");
        assert_eq!(refused(by(filter_state("x"))), "");
        assert!(refused(by(network("SourceIPInput"))).contains("source address"));
        let query = any("envoy.type.matcher.v3.HttpRequestQueryParamMatchInput", Vec::new());
        assert!(refused(list(vec![(not(is(query, exact("a"))), route("in"))])).contains("QueryParam"));
        let mut kept = route("in");
        kept.keep_matching = true;
        assert!(
            refused(or_else(by(header("x")), sub(or_else(Matcher::default(), kept))))
                .contains("matcher.on_no_match.matcher.on_no_match has keep_matching")
        );
    }

    #[test]
    fn r18_the_branches_that_were_looked_at_are_told_without_secrets() {
        let inner = exact_map(header("authorization"), vec![("Bearer t", route("in"))]);
        let tree = list(vec![(x("a"), route("first")), (not(x("a")), sub(inner))]);
        let table = table(tree);
        let request = Request::get("a", "/").with("x", "b").with("authorization", "Bearer t");
        let looked = ways(&table, &request).looked;
        let told: Vec<(&str, Truth, &str)> =
            looked.iter().map(|one| (&*one.path, one.truth, &*one.what)).collect();
        let second = "matcher.matcher_list.matchers[1].on_match";
        assert_eq!(
            told,
            [
                ("matcher.matcher_list.matchers[0].on_match", Truth::No, "header `x` is \"b\", wanted \"a\""),
                (second, Truth::Yes, "not: header `x` is \"b\", wanted \"a\""),
                (
                    &*format!("{second}.matcher.matcher_tree.exact_match_map.map[\"Bearer t\"]"),
                    Truth::Yes,
                    "header `authorization` is …"
                ),
            ]
        );
        let path = table.hosts[0].path_of_route(1);
        assert_eq!(
            path,
            format!("{second}.matcher.matcher_tree.exact_match_map.map[\"Bearer t\"].action.typed_config")
        );
    }
}
