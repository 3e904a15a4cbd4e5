//! References of routes to backends: what they lead to, and what is said of those that lead nowhere.

use super::backends_support::{
    backend, backends, default_plan, everything, fallback, filter, object, route_plan, service, shown, to,
};
use super::support::{document, documents, grpc, one, route, rule, web};
use crate::model::{
    BackendRef, Document, FilterKind, Fraction, GrantFrom, GrantTo, HeaderEdits, Kind, PathRewrite, Redirect,
    ReferenceGrant, RouteKind, Rule, SessionKind, SessionLifetime, SessionPersistence, Spec, Spot,
};
use crate::plan::{Action, BackendProtocol, Target};

fn some_backends() -> Vec<Document> {
    vec![
        service("a/one", "http:80"),
        service("a/two", "http:80 grpc:90"),
        service("a/ws", "ws:80+kubernetes.io/ws wss:81+kubernetes.io/wss odd:82+kubernetes.io/odd"),
        service("a/h2c", "x:80+kubernetes.io/h2c"),
        service("b/far", "http:80"),
        backend("a/static", "10.0.0.1:80"),
        backend("b/far-static", "10.0.0.1:80"),
        fallback("a/broken", "a/nowhere"),
    ]
}

fn planned_rule(kind: RouteKind, rule: Rule) -> crate::plan::RoutePlan {
    let mut all = some_backends();
    let planned = route(kind, "a/r", "", "", vec![rule]);
    let name = planned.key.to_string();
    all.push(planned);
    route_plan(&documents(all), &name)
}

#[test]
fn every_reference_that_leads_nowhere_has_its_reason() {
    let table = [
        ("a/one:80", "", ""),
        ("a/static", "", ""),
        ("Service=a/one", "", ""),
        ("Service=a/two", "BackendNotFound", "no port is given, and the Service a/two has 2"),
        ("a/one:81", "BackendNotFound", "the Service a/one has no port 81; it has 80"),
        ("a/none:80", "BackendNotFound", "there is no Service a/none"),
        (
            "a/static:80",
            "BackendNotFound",
            "there is a Backend with this name: to use it, write `group: gateway.envoyproxy.io`",
        ),
        ("a/none", "BackendNotFound", "there is no Backend a/none"),
        ("a/broken", "BackendNotFound", "a/broken → a/nowhere"),
        (
            "Other=a/static",
            "InvalidKind",
            "\"example.com/Other\" is not a kind of backend; there is a Backend with this name",
        ),
        ("Secret=a/none", "InvalidKind", "\"Secret\" is not a kind of backend"),
        (
            "b/far:80",
            "RefNotPermitted",
            "no ReferenceGrant that lets a GRPCRoute of a refer to the Service far",
        ),
        ("b/missing:80", "RefNotPermitted", "the namespace b has no ReferenceGrant"),
        ("b/far-static", "RefNotPermitted", "the namespace b has no ReferenceGrant"),
        ("b/far-static:80", "RefNotPermitted", "refer to the Service far-static"),
        ("a/ws:80", "UnsupportedProtocol", "gRPC does not run over WebSocket"),
        ("a/ws:82", "UnsupportedProtocol", "it is unknown"),
    ];
    for (text, reason, message) in table {
        let plan = planned_rule(RouteKind::Grpc, to(text));
        let found = plan.problems.first();
        assert_eq!(found.map_or("", |problem| problem.reason.as_str()), reason, "{text}");
        assert!(found.is_none_or(|problem| problem.message.contains(message)), "{text}: {found:?}");
        assert_eq!(plan.routes[0].action == Action::Fail, !reason.is_empty(), "{text}");
    }
    for text in ["b/far-static:80", "Other=b/far-static"] {
        let message = &planned_rule(RouteKind::Grpc, to(text)).problems[0].message;
        assert!(!message.contains("there is a Backend"), "a hint tells what nobody may know: {message}");
    }
}

#[test]
fn an_http_route_speaks_websocket_but_not_over_tls_without_a_policy() {
    assert!(planned_rule(RouteKind::Http, to("a/ws:80")).problems.is_empty());
    let plan = planned_rule(RouteKind::Http, to("a/ws:81"));
    assert_eq!(plan.problems[0].reason.as_str(), "UnsupportedProtocol");
}

#[test]
fn invalid_backends_keep_their_share_and_weights_their_relation() {
    let table = [
        ("a/one:80*90 a/two:80*10", "a/one/80*90 a/two/80*10"),
        ("a/one:80*20 a/none:80*80", "a/one/80*20 broken*80"),
        ("a/one:80*1 a/two:80*0", "a/one/80*1 a/two/80*0"),
        ("a/one:80*0 a/none:80*1", "a/one/80*0 broken*1"),
        ("a/one:80*1 a/static*2 a/one:80*3", "a/one/80*4 a/static*2"),
        ("a/two:80 a/two:90", "a/two/80*1 a/two/90*1"),
        ("a/none:80 a/nothing:80", "fail"),
        ("a/one:80*0 a/two:80*0", "fail"),
        ("a/one:80*0", "fail"),
        ("", "fail"),
    ];
    for (text, expected) in table {
        assert_eq!(shown(&planned_rule(RouteKind::Grpc, to(text)).routes[0].action), expected, "{text}");
    }
}

#[test]
fn the_kind_of_a_route_and_what_backends_say_decide_the_protocol() {
    let mut all = some_backends();
    all.push(backend("a/h2", "h2 10.0.0.1:80"));
    all.push(fallback("a/all-h2", "a/h2 a/h2c:80"));
    all.push(fallback("a/mixed", "a/h2 a/one:80"));
    let (http1, http2) = (BackendProtocol::Http1, BackendProtocol::Http2);
    let table = [
        (RouteKind::Grpc, "*", "a/one:80", true, http2),
        (RouteKind::Http, "*", "a/one:80", false, http1),
        (RouteKind::Http, "*", "a/h2c:80", false, http2),
        (RouteKind::Http, "*", "a/h2", false, http2),
        (RouteKind::Http, "*", "a/all-h2", false, http2),
        (RouteKind::Http, "*", "a/mixed", false, http1),
        (RouteKind::Native, "*", "a/static", false, http1),
        (RouteKind::Native, "rpc:a.B/", "a/static", true, http2),
        (RouteKind::Native, "*", "a/h2", true, http2),
        (RouteKind::Native, "*", "a/static a/h2", false, http1),
        (RouteKind::Native, "*", "a/none:80 a/h2", true, http2),
    ];
    for (kind, matches, text, is_grpc, protocol) in table {
        let rule = Rule { backends: backends(text), ..rule(vec![one(matches)]) };
        let planned = route(kind, "a/r", "", "", vec![rule]);
        let name = planned.key.to_string();
        let documents = documents(all.iter().cloned().chain([planned]));
        let planned = route_plan(&documents, &name);
        assert_eq!(planned.routes[0].is_grpc, is_grpc, "{kind:?} {matches} {text}");
        let Action::Forward(targets) = &planned.routes[0].action else { panic!("{text} fails") };
        let mut found = targets.iter().filter_map(|target| match &target.target {
            Target::Backend(backend) => Some(backend.protocol),
            Target::Broken => None,
        });
        assert_eq!(found.next(), Some(protocol), "{kind:?} {matches} {text}");
    }
}

fn extension() -> FilterKind {
    FilterKind::Extension { group: "g".into(), kind: "K".into(), name: "n".into() }
}

fn mirror(to: &str, numerator: u32) -> FilterKind {
    FilterKind::Mirror { backend: object(to), fraction: Fraction { numerator, denominator: 100 } }
}

fn redirect() -> FilterKind {
    let redirect = Redirect { scheme: None, host: Some("b".into()), path: None, port: None, status: 302 };
    FilterKind::Redirect(redirect)
}

fn rewrite() -> FilterKind {
    FilterKind::Rewrite { host: None, path: Some(PathRewrite::Full("/x".into())) }
}

fn header(name: &str) -> FilterKind {
    let set = vec![(name.to_owned(), "v".to_owned())];
    FilterKind::RequestHeaders(HeaderEdits { set, ..HeaderEdits::default() })
}

/// The rule with these filters, and the backends with theirs.
fn filtered(filters: Vec<FilterKind>, text: &str, backend_filters: Vec<FilterKind>) -> Rule {
    let filters = filters.into_iter().map(filter).collect();
    let of_backend: Vec<_> = backend_filters.into_iter().map(filter).collect();
    let with = |backend: BackendRef| BackendRef { filters: of_backend.clone(), ..backend };
    Rule { filters, backends: backends(text).into_iter().map(with).collect(), ..rule(vec![everything()]) }
}

#[test]
fn an_unknown_filter_is_never_skipped() {
    let plan = planned_rule(RouteKind::Http, filtered(vec![extension()], "a/one:80", vec![]));
    assert_eq!(
        (shown(&plan.routes[0].action).as_str(), plan.problems[0].reason.as_str()),
        ("fail", "InvalidKind")
    );
    let mut rule = filtered(vec![], "a/one:80 a/two:80", vec![extension()]);
    rule.backends[1].filters.clear();
    let plan = planned_rule(RouteKind::Http, rule);
    assert_eq!(shown(&plan.routes[0].action), "broken*1 a/two/80*1");
    assert_eq!(plan.problems.len(), 1);
}

#[test]
fn filters_of_the_only_backend_hold_for_the_rule() {
    let filters = vec![mirror("a/two:80", 50), rewrite(), header("x")];
    let plan = planned_rule(RouteKind::Http, filtered(vec![], "a/one:80", filters.clone()));
    let planned = &plan.routes[0];
    assert_eq!(planned.effects.mirrors[0].backend.name, "a/two/80");
    assert!(planned.effects.path_rewrite.is_some() && plan.partly_invalid.is_empty());
    let Action::Forward(targets) = &planned.action else { panic!() };
    assert_eq!(targets[0].request_edits.set.len(), 1, "header edits stay with the backend");
    assert_eq!(planned.effects.request_edits, HeaderEdits::default());

    let plan = planned_rule(RouteKind::Http, filtered(vec![], "a/one:80 a/two:80", filters));
    assert_eq!(shown(&plan.routes[0].action), "fail", "a rewrite that is not done must not be forgotten");
    assert!(plan.routes[0].effects.mirrors.is_empty() && plan.routes[0].effects.path_rewrite.is_none());
    let begins =
        |text: &String| text.starts_with("Dropped Rule 0: ") || text.starts_with("Fall Back in Rule 0: ");
    assert!(
        plan.partly_invalid.len() == 4 && plan.partly_invalid.iter().all(begins),
        "{:?}",
        plan.partly_invalid
    );
}

#[test]
fn a_mirror_that_leads_nowhere_is_told_and_left_out() {
    let filters = vec![mirror("a/none:80", 100), mirror("a/two:80", 0), mirror("a/two:90", 20)];
    let plan = planned_rule(RouteKind::Grpc, filtered(filters, "a/one:80", vec![]));
    let names: Vec<&str> =
        plan.routes[0].effects.mirrors.iter().map(|mirror| mirror.backend.name.as_str()).collect();
    assert_eq!(names, ["a/two/90"], "a share of 0 is no mirror");
    assert_eq!(plan.problems[0].reason.as_str(), "BackendNotFound");
    assert_eq!(shown(&plan.routes[0].action), "a/one/80*1");
}

#[test]
fn a_redirect_needs_no_backend_and_goes_with_no_rewrite() {
    let plan = planned_rule(RouteKind::Http, filtered(vec![redirect()], "", vec![]));
    assert_eq!(shown(&plan.routes[0].action), "redirect");
    let plan = planned_rule(RouteKind::Http, filtered(vec![redirect(), rewrite()], "", vec![]));
    assert_eq!(shown(&plan.routes[0].action), "fail");
    assert!(plan.partly_invalid[0].starts_with("Dropped Rule 0: "), "{:?}", plan.partly_invalid);
}

#[test]
fn the_same_backend_twice_keeps_the_filters_of_the_first() {
    let mut rule = filtered(vec![], "a/one:80*2 a/one:80*3", vec![header("x")]);
    assert!(planned_rule(RouteKind::Grpc, rule.clone()).partly_invalid.is_empty());
    rule.backends[1].filters = vec![filter(header("y"))];
    let plan = planned_rule(RouteKind::Grpc, rule);
    assert_eq!(shown(&plan.routes[0].action), "a/one/80*5");
    assert!(plan.partly_invalid[0].starts_with("Fall Back in Rule 0: the backend one is named twice"));
}

/// GEP-1619: different rules never share a session, and a session outlives changes of the rule.
#[test]
fn sessions_are_named_by_the_rule() {
    let persistence = |name: Option<&str>| SessionPersistence {
        spot: Spot::default(),
        absolute_timeout: None,
        kind: SessionKind::Cookie {
            name: name.map(str::to_owned),
            path: "/".into(),
            lifetime: SessionLifetime::Session,
        },
    };
    let sticky = |rule_name: Option<&str>, name, to_text| Rule {
        name: rule_name.map(Into::into),
        session: Some(Box::new(persistence(name))),
        ..to(to_text)
    };
    let names = |rules: Vec<Rule>| -> Vec<String> {
        let planned = grpc("a/r", "", "", rules);
        let documents = documents(some_backends().into_iter().chain([planned]));
        let plan = route_plan(&documents, "GRPCRoute a/r");
        plan.routes.into_iter().map(|route| route.effects.session.clone().unwrap().name).collect()
    };
    let found = names(vec![
        sticky(None, None, "a/one:80"),
        sticky(None, None, "a/one:80"),
        sticky(Some("0"), None, "a/one:80"),
        sticky(None, Some("mine"), "a/one:80"),
    ]);
    assert!(
        found[0].starts_with("xds-session-") && found[0] != found[1] && found[0] != found[2],
        "{found:?}"
    );
    assert_eq!(found[3], "mine");
    assert_eq!(
        names(vec![sticky(None, None, "a/two:80*5 a/one:80*1")])[0],
        found[0],
        "backends are no part of it"
    );
    assert_eq!(found[0], "xds-session-a027c99037ccfbe7", "it never changes, in no version");
}

fn grant(from: [&str; 3], to: [&str; 3], namespace: &str) -> Document {
    let [group, kind, from_namespace] = from.map(str::to_owned);
    let from = vec![GrantFrom { group, kind, namespace: from_namespace }];
    let [group, kind, name] = to.map(str::to_owned);
    let to = vec![GrantTo { group, kind, name: (!name.is_empty()).then_some(name) }];
    let name = format!("{namespace}/grant");
    document(Kind::ReferenceGrant, &name, Spec::ReferenceGrant(ReferenceGrant { from, to }))
}

/// Conformance test HTTPRouteInvalidReferenceGrant: each of these is wrong in one thing only.
#[test]
fn a_grant_must_fit_in_everything() {
    let gateway_api = Kind::HttpRoute.api_group();
    let from = [gateway_api, "HTTPRoute", "a"];
    let to_far = ["", "Service", "far"];
    let table = [
        ("all fits", grant(from, to_far, "b"), true),
        ("every name", grant(from, ["", "Service", ""], "b"), true),
        ("its namespace", grant(from, to_far, "c"), false),
        ("from kind", grant([gateway_api, "GRPCRoute", "a"], to_far, "b"), false),
        ("from group", grant(["", "HTTPRoute", "a"], to_far, "b"), false),
        ("from namespace", grant([gateway_api, "HTTPRoute", "c"], to_far, "b"), false),
        ("to kind", grant(from, ["", "Secret", "far"], "b"), false),
        ("to group", grant(from, ["apps", "Service", "far"], "b"), false),
        ("to name", grant(from, ["", "Service", "other"], "b"), false),
    ];
    for (what, grant, is_granted) in table {
        let planned = web("a/r", "", "", vec![to("b/far:80")]);
        let documents = documents(some_backends().into_iter().chain([grant, planned]));
        let plan = route_plan(&documents, "HTTPRoute a/r");
        let reason = plan.problems.first().map(|problem| problem.reason.as_str());
        assert_eq!(reason, (!is_granted).then_some("RefNotPermitted"), "{what}");
        let expected = if is_granted { "b/far/80*1" } else { "fail" };
        assert_eq!(shown(&plan.routes[0].action), expected, "{what}");
    }
}

/// Conformance test HTTPRoutePartiallyInvalidViaInvalidReferenceGrant.
#[test]
fn one_rule_that_is_not_granted_leaves_the_others() {
    let planned = web("a/r", "", "", vec![to("b/far:80"), to("a/one:80")]);
    let documents = documents(some_backends().into_iter().chain([planned]));
    let plan = route_plan(&documents, "HTTPRoute a/r");
    let actions: Vec<String> = plan.routes.iter().map(|route| shown(&route.action)).collect();
    assert_eq!(actions, ["fail", "a/one/80*1"]);
}

#[test]
fn only_what_routes_reach_is_served() {
    let sticky = Rule {
        session: Some(Box::new(SessionPersistence {
            spot: Spot::default(),
            absolute_timeout: None,
            kind: SessionKind::Header { name: "x".into() },
        })),
        ..to("a/main")
    };
    let documents = documents(some_backends().into_iter().chain([
        fallback("a/main", "a/one:80 a/static"),
        web("a/r", "", "w.com", vec![sticky, filtered(vec![mirror("a/two:80", 1)], "", vec![])]),
        grpc("a/g", "", "g.com", vec![to("a/two:80")]),
    ]));
    let (plan, planned) = default_plan(&documents);
    let for_envoys = plan.clusters.iter().filter(|(_, cluster)| !cluster.protocols.is_empty());
    let names: Vec<&str> = for_envoys.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a/main", "a/one/80", "a/static", "a/two/80"]);
    let one = &plan.clusters["a/one/80"];
    assert!(one.is_fallback_member && one.has_sessions && one.protocols == [BackendProtocol::Http1]);
    assert!(!plan.clusters["a/main"].is_fallback_member);
    let both = [BackendProtocol::Http1, BackendProtocol::Http2];
    assert_eq!(plan.clusters["a/two/80"].protocols, both, "a mirror of HTTP and a target of gRPC");
    for name in ["a/one/80", "a/static", "a/two/80"] {
        assert!(plan.assignments.contains_key(name), "{name}");
    }
    let warned = planned.diagnostics.iter().filter(|one| one.code == "no-endpoints").count();
    assert_eq!(warned, 2, "{:?}", planned.diagnostics);
}
