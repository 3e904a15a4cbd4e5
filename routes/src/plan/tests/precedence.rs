//! The order of routes.

use proptest::prelude::*;

use super::support::*;
use crate::model::{Document, DocumentKey, Fraction, Match, MatchType, MethodMatch, PathMatch, RouteKind};
use crate::plan::precedence::{Rank, Seniority};
use crate::plan::{Action, PlannedRoute, RouteId};

/// The routes of the only host of a Gateway with these routes.
fn order(routes: Vec<Document>) -> String {
    let all = routes.into_iter().chain([gateway("default/edge", vec![http("web", 80, "")])]);
    let hosts = planned(&documents(all)).hosts("default/edge/80");
    hosts[0].strip_prefix("*: ").unwrap().to_owned()
}

#[test]
fn the_worked_example_of_grpc_routes() {
    let r1 = ["rpc:foo.Bar/", "rpc:/Get"];
    let r2 = ["rpc:foo.Bar/Get", "version=2", "rpc:foo.Bar/ version=2"];
    let parents = "default/edge";
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        created(2020, grpc("default/r1", parents, "", rules(&r1))),
        created(2021, grpc("default/r2", parents, "", rules(&r2))),
        created(2021, grpc("default/aaa", parents, "", rules(&["rpc:foo.Bar/"]))),
    ];
    let outcome = planned(&documents(all));
    let expected = "*: r2/0/0 r2/2/0 r1/0/0 aaa/0/0 r1/1/0 r2/1/0";
    assert_eq!(outcome.hosts("default/edge/80"), [expected]);
    let table = [
        ("/foo.Bar/Get", "", "r2/0/0"),
        ("/foo.Bar/Get", "version=2", "r2/0/0"),
        ("/foo.Bar/Put", "version=2", "r2/2/0"),
        ("/foo.Bar/Put", "", "r1/0/0"),
        ("/x.Y/Get", "version=2", "r1/1/0"),
        ("/x.Y/Put", "version=2", "r2/1/0"),
        ("/x.Y/Put", "", ""),
    ];
    for (path, headers, expected) in table {
        assert_eq!(outcome.answer("default/edge/80", "a", path, headers), expected, "{path} {headers}");
    }
}

#[test]
fn each_criterion_counts_before_the_next() {
    use RouteKind::{Grpc, Http, Native};
    // The first is asked before the second, whichever is written first.
    let table = [
        (Grpc, "rpc:Longer/", "rpc:Short/VeryLongMethod"),
        (Grpc, "rpc:Same/Longer", "rpc:Same/Short a=1 b=2"),
        (Grpc, "rpc:Same/M a=1 b=2", "rpc:Same/M a=1"),
        (Grpc, "rpc:S/", "rpc:/VeryLongMethod"),
        (Grpc, "rpc:/M", "a=1 b=2"),
        (Grpc, "a=1", "*"),
        // The type is no criterion, and an expression counts by its text.
        (Grpc, "rpc~a.(B|C|D)/", "rpc:a.B/M"),
        (Http, "=/a", "^/a/very/long/prefix @GET a=1"),
        (Http, "=/a @GET", "=/a a=1 b=2 ?q=1"),
        (Http, "^/a/b", "^/a @GET"),
        (Http, "^/a", "~/a/very/long/[a-z]+/expression"),
        (Http, "~/long[0-9]+", "~/[0-9]+ @GET"),
        (Http, "~/.*", "@GET a=1"),
        (Http, "^/a @GET", "^/a a=1 b=2 c=3"),
        (Http, "a=1 b=2", "a=1 ?q=1 ?r=1"),
        (Http, "a=1 ?q=1", "a=1"),
        (Http, "@GET", "a=1"),
        (Native, "rpc:S/", "=/S/M"),
        (Native, "^/a", "^~/a"),
        (Native, "^~/ab", "^/a"),
        (Native, "~/x", "^~/"),
    ];
    for (kind, first, second) in table {
        let all = |rules| vec![route(kind, "default/r", "default/edge", "", rules)];
        assert_eq!(order(all(rules(&[first, second]))), "r/0/0 r/1/0", "{first} before {second}");
        assert_eq!(order(all(rules(&[second, first]))), "r/1/0 r/0/0", "{first} before {second}");
    }
}

#[test]
fn equal_matches_go_by_age_then_name_then_rule_then_match() {
    let route = |name: &str| grpc(name, "default/edge", "", rules(&["rpc:S/M"]));
    assert_eq!(order(vec![created(2, route("default/a")), created(1, route("default/b"))]), "b/0/0 a/0/0");
    assert_eq!(order(vec![route("default/b"), route("default/a")]), "a/0/0 b/0/0");
    // Without an age a route is younger than all that have one.
    assert_eq!(order(vec![route("default/a"), created(i64::MAX - 1, route("default/b"))]), "b/0/0 a/0/0");
    let twice = vec![rule(vec![one("a=1"), one("b=1")]), rule(vec![one("c=1")])];
    assert_eq!(order(vec![grpc("default/a", "default/edge", "", twice)]), "a/0/0 a/0/1 a/1/0");
}

#[test]
fn names_are_compared_with_their_namespace_as_one_text() {
    let key = |namespace: &str, name: &str| DocumentKey::new(crate::model::Kind::GrpcRoute, namespace, name);
    let seniority = |namespace, name| Seniority::new(&key(namespace, name), None);
    // `-` is before `/`.
    assert!(seniority("a-b", "z") < seniority("a", "z"));
    assert!(seniority("a", "z") < seniority("b", "a"));
    assert!(seniority("a", "b") < seniority("a", "c"));
}

fn path() -> impl Strategy<Value = PathMatch> {
    let text = || prop::sample::select(vec!["", "a", "b", "ab", "a.b", "(a|b)"]).prop_map(str::to_owned);
    let part = || prop::option::of(text());
    let match_type = prop::sample::select(vec![MatchType::Exact, MatchType::RegularExpression]);
    prop_oneof![
        Just(PathMatch::Any),
        text().prop_map(|text| PathMatch::Exact(format!("/{text}"))),
        text().prop_map(|text| PathMatch::Prefix(format!("/{text}"))),
        text().prop_map(|text| PathMatch::TextPrefix(format!("/{text}"))),
        text().prop_map(|text| PathMatch::Regex(format!("/{text}"))),
        (match_type, part(), part()).prop_map(|(match_type, service, method)| PathMatch::Method(
            MethodMatch { match_type, service, method }
        )),
    ]
}

fn matches() -> impl Strategy<Value = Match> {
    let headers = prop::sample::select(vec!["*", "a=1", "a=1 b=2", "?q=1", "a=1 ?q=1", "@GET", "@GET a=1"]);
    (path(), headers, any::<bool>(), any::<bool>()).prop_map(|(path, words, case_sensitive, has_fraction)| {
        let fraction = has_fraction.then_some(Fraction { numerator: 1, denominator: 2 });
        Match { path, case_sensitive, fraction, ..one(words) }
    })
}

fn ranked() -> impl Strategy<Value = (Rank, RouteId)> {
    let kind = prop::sample::select(vec![
        crate::model::Kind::GrpcRoute,
        crate::model::Kind::HttpRoute,
        crate::model::Kind::Route,
    ]);
    let name = || prop::sample::select(vec!["a", "b", "a-b"]);
    let created = prop::option::of(0..3_i64);
    (matches(), kind, name(), name(), created, 0..3_usize, 0..3_usize).prop_map(
        |(matches, kind, namespace, name, created, rule, match_index)| {
            let document = DocumentKey::new(kind, namespace, name);
            let id = RouteId { document: document.clone(), rule, rule_name: None, match_index };
            let route = planned_route(id.clone(), matches);
            (Rank::of(&route, &Seniority::new(&document, created)), id)
        },
    )
}

fn planned_route(id: RouteId, matches: Match) -> PlannedRoute {
    PlannedRoute::plain(id, false, matches, Action::Fail)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn precedence_is_a_total_order(a in ranked(), b in ranked(), c in ranked()) {
        use std::cmp::Ordering::{Equal, Greater, Less};
        prop_assert_eq!(a.0.cmp(&b.0), b.0.cmp(&a.0).reverse());
        if a.0.cmp(&b.0) != Greater && b.0.cmp(&c.0) != Greater {
            prop_assert_ne!(a.0.cmp(&c.0), Greater);
        }
        // Only a route itself has its place: of two there is always a first.
        if a.0.cmp(&b.0) == Equal {
            prop_assert_eq!(a.1, b.1);
        } else {
            prop_assert!(a.0.cmp(&b.0) == Less || b.0.cmp(&a.0) == Less);
        }
    }

    #[test]
    fn an_order_does_not_depend_on_where_it_began(mut routes in prop::collection::vec(ranked(), 0..12)) {
        let mut reversed = routes.clone();
        reversed.reverse();
        routes.sort_by(|one, other| one.0.cmp(&other.0));
        reversed.sort_by(|one, other| one.0.cmp(&other.0));
        let ranks = |list: Vec<(Rank, RouteId)>| list.into_iter().map(|(rank, _)| rank).collect::<Vec<_>>();
        prop_assert_eq!(ranks(routes), ranks(reversed));
    }
}
