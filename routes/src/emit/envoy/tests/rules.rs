//! Tables of cases: matches, paths, redirects, time limits.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::plans::{edits, forward, grpc, header, method, path, route, to, with_routes};
use super::{emit, routes};
use crate::input::Options;
use crate::model::{
    Fraction, HeaderValue, MatchType, PathMatch, PathRewrite, QueryMatch, Redirect, Retry, Timeouts,
};
use crate::plan::{Action, PlannedRoute, Weighted};

/// The only xDS route that becomes of a route.
fn only(route: PlannedRoute) -> Json {
    only_with(route, &Options::default(), 80)
}

fn only_with(route: PlannedRoute, options: &Options, port: u16) -> Json {
    let mut plan = with_routes(vec![route]);
    plan.ports[0].port = port;
    let mut routes = routes(&emit(&plan, options));
    assert_eq!(routes.len(), 1, "{routes:#?}");
    routes.remove(0)
}

fn match_of(matched: PathMatch) -> Json {
    let mut matched = only(path(matched))["match"].take();
    assert_eq!(matched["case_sensitive"], json!(true), "D26");
    matched.as_object_mut().expect("an object").remove("case_sensitive");
    matched
}

#[test]
fn methods_become_paths_as_the_matrix_says() {
    use MatchType::{Exact, RegularExpression};
    let regex = |text: &str| json!({"safe_regex": {"regex": text}});
    let cases = [
        (Exact, Some("foo.Bar"), Some("M"), json!({"path": "/foo.Bar/M"})),
        (Exact, Some("foo.Bar"), None, json!({"prefix": "/foo.Bar/"})),
        (Exact, None, Some("A+B"), regex(r"/[^/]+/A\+B")),
        (Exact, None, None, json!({"prefix": "/"})),
        (RegularExpression, Some("a|b"), Some("M"), regex("/(?:a|b)/(?:M)")),
        (RegularExpression, Some("a|b"), None, regex("/(?:a|b)/[^/]+")),
        (RegularExpression, None, Some("a|b"), regex("/[^/]+/(?:a|b)")),
        (RegularExpression, None, None, json!({"prefix": "/"})),
    ];
    for (kind, service, name, expected) in cases {
        assert_eq!(match_of(method(kind, service, name)), expected, "{kind:?} {service:?} {name:?}");
    }
}

#[test]
fn paths_are_matched_as_written() {
    let cases = [
        (PathMatch::Any, json!({"prefix": "/"})),
        (PathMatch::Exact("/a.b".to_owned()), json!({"path": "/a.b"})),
        (PathMatch::Prefix("/a".to_owned()), json!({"path_separated_prefix": "/a"})),
        (PathMatch::Prefix("/a?b".to_owned()), json!({"safe_regex": {"regex": r"/a\?b(?:/.*)?"}})),
        (PathMatch::TextPrefix("/a".to_owned()), json!({"prefix": "/a"})),
        (PathMatch::Regex("/(a|b)".to_owned()), json!({"safe_regex": {"regex": "/(a|b)"}})),
    ];
    for (path, expected) in cases {
        assert_eq!(match_of(path.clone()), expected, "{path:?}");
    }
}

#[test]
fn expressions_ignore_case_by_themselves() {
    let cases = [
        (PathMatch::Regex("/a".to_owned()), json!({"regex": "(?i:/a)"})),
        (method(MatchType::Exact, None, Some("M")), json!({"regex": "(?i:/[^/]+/M)"})),
    ];
    for (matched, expected) in cases {
        let mut route = path(matched);
        route.matches.case_sensitive = false;
        let matched = only(route)["match"].take();
        assert_eq!(matched["safe_regex"], expected);
        assert_eq!(matched["case_sensitive"], json!(false));
    }
}

#[test]
fn headers_queries_methods_and_shares_must_all_hold() {
    let mut route = forward(vec![to("prod/a/80", 1)]);
    route.matches.method = Some("POST".to_owned());
    route.matches.headers = vec![
        header("x-a", HeaderValue::Exact("1".to_owned())),
        header("x-b", HeaderValue::Regex("a|b".to_owned())),
        header("x-c", HeaderValue::Present),
        header("x-d", HeaderValue::Regex(String::new())),
    ];
    let query =
        |match_type, value: &str| QueryMatch { name: "q".to_owned(), match_type, value: value.to_owned() };
    route.matches.query =
        vec![query(MatchType::Exact, "1"), query(MatchType::RegularExpression, "a+")].into();
    route.matches.fraction = Some(Fraction { numerator: 1, denominator: 4 });
    let expected = json!({
        "prefix": "/",
        "case_sensitive": true,
        "headers": [
            {"name": ":method", "string_match": {"exact": "POST"}},
            {"name": "x-a", "string_match": {"exact": "1"}},
            {"name": "x-b", "string_match": {"safe_regex": {"regex": "a|b"}}},
            {"name": "x-c", "present_match": true},
            {"name": "x-d", "string_match": {"safe_regex": {"regex": "(?:)"}}},
        ],
        "query_parameters": [
            {"name": "q", "string_match": {"exact": "1"}},
            {"name": "q", "string_match": {"safe_regex": {"regex": "a+"}}},
        ],
        "runtime_fraction": {"default_value": {"numerator": 250_000, "denominator": "MILLION"}},
    });
    assert_eq!(normal(&only(route)["match"]), normal(&expected));
}

/// `HUNDRED` is what is meant where nothing is said.
fn normal(value: &Json) -> Json {
    let text = value.to_string().replace(r#","denominator":"HUNDRED""#, "");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn only_where_kinds_are_merged_a_grpc_route_takes_grpc_alone() {
    let merging = Options { merges_route_kinds: true, ..Options::default() };
    let plain = forward(vec![to("prod/a/80", 1)]);
    let grpc = grpc(plain.clone());
    for (options, route, expected) in
        [(&merging, &grpc, true), (&merging, &plain, false), (&Options::default(), &grpc, false)]
    {
        let matched = only_with(route.clone(), options, 80);
        assert_eq!(matched["match"].get("grpc").is_some(), expected, "{matched:#}");
    }
}

#[test]
fn paths_are_rewritten_with_one_slash_between() {
    let prefix = |text: &str| PathMatch::Prefix(text.to_owned());
    let text_prefix = |text: &str| PathMatch::TextPrefix(text.to_owned());
    let to_prefix = |text: &str| PathRewrite::Prefix(text.to_owned());
    let regex = |regex: &str, text: &str| json!({"pattern": {"regex": regex}, "substitution": text});
    let cases = [
        (prefix("/a.b"), to_prefix("/x"), Some(("prefix_rewrite", json!("/x")))),
        (prefix("/a.b"), to_prefix("/x/"), Some(("prefix_rewrite", json!("/x")))),
        (prefix("/a.b"), to_prefix("/"), Some(("regex_rewrite", regex(r"^/a\.b/*", "/")))),
        (prefix("/a.b"), to_prefix(""), Some(("regex_rewrite", regex(r"^/a\.b/*", "/")))),
        (PathMatch::Any, to_prefix("/x"), Some(("prefix_rewrite", json!("/x/")))),
        (PathMatch::Any, to_prefix("/"), None),
        (text_prefix("/a"), to_prefix("/x/"), Some(("prefix_rewrite", json!("/x/")))),
        (text_prefix("/a"), to_prefix("/"), Some(("prefix_rewrite", json!("/")))),
        (
            prefix("/a"),
            PathRewrite::Full(r"/x\1".to_owned()),
            Some(("regex_rewrite", regex("^/.*$", r"/x\\1"))),
        ),
    ];
    for (matched, rewrite, expected) in cases {
        let mut route = path(matched.clone());
        route.effects.path_rewrite = Some(rewrite.clone());
        let action = only(route)["route"].take();
        let found = ["prefix_rewrite", "regex_rewrite"].map(|field| action.get(field).cloned());
        let expected = ["prefix_rewrite", "regex_rewrite"].map(|field| {
            expected.as_ref().filter(|(name, _)| *name == field).map(|(_, value)| value.clone())
        });
        assert_eq!(found, expected, "{matched:?} {rewrite:?}");
    }
}

#[test]
fn redirects_name_a_port_only_if_they_must() {
    // Port of the listener, scheme, host, port of the redirect; port in the location, and if the host of the request has one.
    let cases = [
        (80, None, false, None, (None, Some(80))),
        (80, Some("https"), false, None, (None, Some(443))),
        (80, Some("https"), false, Some(443), (None, Some(443))),
        (80, Some("https"), false, Some(8443), (Some(8443), Some(8443))),
        (80, None, true, Some(80), (None, None)),
        (80, None, true, Some(8080), (Some(8080), Some(8080))),
        (8080, Some("https"), false, None, (None, Some(443))),
        (8080, Some("https"), true, None, (None, None)),
        (8080, None, false, None, (Some(8080), Some(8080))),
        (8080, None, true, None, (Some(8080), Some(8080))),
        (8080, None, true, Some(80), (None, None)),
        (8080, None, false, Some(80), (None, Some(80))),
    ];
    for (listener, scheme, has_host, port, expected) in cases {
        let host = has_host.then(|| "new.example".to_owned());
        let redirect = Redirect { scheme: scheme.map(str::to_owned), host, path: None, port, status: 301 };
        let mut plan = with_routes(vec![route(0, Action::Redirect(redirect.clone().into()))]);
        plan.ports[0].port = listener;
        let found = routes(&emit(&plan, &Options::default()));
        let port =
            |route: Option<&Json>| route.and_then(|route| route["redirect"].get("port_redirect")?.as_u64());
        assert_eq!((port(found.last()), port(found.first())), expected, "{listener} {redirect:?}");
        let is_told_apart = found[0]["match"].to_string().contains(":authority");
        assert_eq!(is_told_apart, found.len() == 2, "{found:#?}");
    }
}

#[test]
fn the_filters_of_a_backend_have_the_last_word() {
    let rule = edits(
        &[("X-Set", "rule"), ("x-both", "rule"), ("x-gone", "rule")],
        &[("x-add", "rule")],
        &["x-back"],
    );
    let own =
        edits(&[("x-set", "own")], &[("x-add", "own"), ("x-both", "own"), ("x-back", "own")], &["X-Gone"]);
    let mut split =
        forward(vec![Weighted { request_edits: own.into(), ..to("prod/a/80", 1) }, to("prod/b/80", 1)]);
    split.effects.request_edits = rule;
    let found = only(split);
    assert_eq!(found.get("request_headers_to_add"), None, "Envoys would make these changes last");
    let shares = &found["route"]["weighted_clusters"]["clusters"];
    let headers = |share: &Json| -> Vec<String> {
        let added = share["request_headers_to_add"].as_array().expect("changes").iter();
        let text = |value: &Json| value.as_str().unwrap_or("APPEND").to_owned();
        added
            .map(|it| {
                [&it["header"]["key"], &it["header"]["value"], &it["append_action"]].map(text).join(" ")
            })
            .collect()
    };
    let set = "OVERWRITE_IF_EXISTS_OR_ADD";
    let expected = [
        format!("x-both rule {set}"),
        format!("x-set own {set}"),
        "x-add rule APPEND".to_owned(),
        "x-add own APPEND".to_owned(),
        "x-both own APPEND".to_owned(),
        "x-back own APPEND".to_owned(),
    ];
    assert_eq!(headers(&shares[0]), expected);
    assert_eq!(shares[0]["request_headers_to_remove"], json!(["x-back", "X-Gone"]));
    // The other one has those of the rule.
    assert_eq!(headers(&shares[1]).len(), 4);
    assert_eq!(shares[1]["request_headers_to_remove"], json!(["x-back"]));
}

#[test]
fn time_limits_are_those_of_the_whole_request_unless_there_are_retries() {
    let secs = |secs: Option<u64>| secs.map(Duration::from_secs);
    let retry = Retry { codes: vec![503], grpc_on: Vec::new(), attempts: 2, backoff: None };
    let zero = || json!("0s");
    let max = |limit: &str| json!({"max_stream_duration": limit, "grpc_timeout_header_max": limit});
    // Request, attempt, retries; HTTP `timeout`, `per_try_timeout`; gRPC `max_stream_duration`.
    let cases = [
        (None, None, false, None, None, json!({"grpc_timeout_header_max": "0s"})),
        (Some(5), None, false, Some(json!("5s")), None, max("5s")),
        (Some(0), None, false, Some(zero()), None, json!({"grpc_timeout_header_max": "0s"})),
        (Some(5), Some(2), false, Some(json!("2s")), None, max("2s")),
        (Some(5), Some(2), true, Some(json!("5s")), Some(json!("2s")), max("5s")),
        (None, Some(20), true, Some(zero()), Some(json!("20s")), json!({"grpc_timeout_header_max": "0s"})),
        (Some(0), Some(3), false, Some(json!("3s")), None, max("3s")),
    ];
    for (request, attempt, is_retried, timeout, per_try, stream) in cases {
        let mut route = forward(vec![to("prod/a/80", 1)]);
        route.effects.timeouts = Timeouts { request: secs(request), backend_request: secs(attempt) };
        route.effects.retry = is_retried.then(|| retry.clone());
        let http = only(route.clone())["route"].take();
        let case = format!("{request:?} {attempt:?} {is_retried}");
        assert_eq!(http.get("timeout"), timeout.as_ref(), "{case}");
        assert_eq!(http["retry_policy"].get("per_try_timeout"), per_try.as_ref(), "{case}");
        let grpc = only(grpc(route))["route"].take();
        assert_eq!((&grpc["timeout"], &grpc["idle_timeout"]), (&zero(), &zero()), "{case}");
        assert_eq!(grpc["max_stream_duration"], stream, "{case}");
    }
}
