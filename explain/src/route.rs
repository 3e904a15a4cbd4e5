//! The conditions of one route.

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::google::protobuf::BoolValue;
use serde::Serialize;

use crate::context::Context;
use crate::draw::Fraction;
use crate::header::{HeaderCondition, Joined, Seen, is_secret};
use crate::path::PathCondition;
use crate::query::{self, QueryCondition};
use crate::request::Request;
use crate::semantics::{Difference, Semantics};
use crate::text::Text;
use crate::truth::Truth;

/// A request as the conditions of routes see it.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request,
    /// Without query (XR1).
    pub(crate) path: &'a str,
    pub(crate) seen: &'a Seen,
}

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) message: proto::Route,
    pub(crate) path: PathCondition,
    headers: Vec<HeaderCondition>,
    queries: Vec<QueryCondition>,
    cookies: Vec<CookieCondition>,
    /// The share of requests that it takes; `None` for all.
    pub(crate) fraction: Option<Fraction>,
    is_grpc: bool,
    certificate: Option<(Option<bool>, Option<bool>)>,
    /// Conditions that a request alone does not answer.
    context: Vec<Context>,
    /// Conditions of the tree of matchers that the route is in, if the tree is looked at as a list of routes.
    branches: Vec<Arc<Joined>>,
    /// True for what stands behind the routes of a branch in such a list: requests that come to it find no route.
    pub(crate) is_end: bool,
    /// Why the client does not use it.
    pub(crate) left_out: Option<Reason>,
}

/// Why a client refuses a resource, or does not use a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// In words.
    pub message: String,
    /// The rule.
    pub row: &'static str,
}

impl Reason {
    pub(crate) fn new(row: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), row }
    }
}

/// A condition that does not hold, or of which it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The kind of condition: `path`, `header`, `query`, `cookie`, `grpc`, `tls`, `other`, `fraction`, `leftOut`.
    pub on: &'static str,
    /// The name of the header, parameter or cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the route wants.
    pub want: String,
    /// What the request has; `None` if it has not got it.
    pub got: Option<String>,
    /// The rule.
    pub row: &'static str,
    /// True if the request does not say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown: bool,
}

#[derive(Debug)]
pub(crate) struct CookieCondition {
    pub(crate) name: String,
    pub(crate) text: Option<Text>,
    inverts: bool,
}

/// One condition of a route.
pub(crate) enum Condition<'r> {
    LeftOut(&'r Reason),
    Path,
    Header(&'r HeaderCondition),
    Query(&'r QueryCondition),
    Cookie(&'r CookieCondition),
    Grpc,
    Certificate(Option<bool>, Option<bool>),
    Branch(&'r Joined),
    /// On what filters know of a request.
    Unknown(&'r Context),
    Never,
}

impl Route {
    pub(crate) fn of(message: proto::Route, semantics: Semantics) -> Self {
        let empty = proto::RouteMatch::default();
        let matches = message.r#match.as_ref().unwrap_or(&empty);
        let has_context = semantics.has(Difference::ContextIsMatched);
        let mut left_out = left_out(&message, matches, semantics);
        let fraction = matches.runtime_fraction.as_ref().and_then(|fraction| {
            let read = Fraction::of(fraction, semantics);
            if read.is_none() && !semantics.has(Difference::BareFractionAlways) {
                left_out.get_or_insert_with(|| {
                    Reason::new("XR15", "its fraction has no default value, so that it never matches")
                });
            }
            read
        });
        let headers = matches.headers.iter().map(|header| HeaderCondition::of(header, semantics)).collect();
        let queries = match semantics.has(Difference::QueryIsMatched) {
            true => {
                matches.query_parameters.iter().map(|query| QueryCondition::of(query, semantics)).collect()
            }
            false => Vec::new(),
        };
        let mut context = Vec::new();
        let mut cookies = Vec::new();
        if has_context {
            context.extend(matches.dynamic_metadata.iter().map(|one| Context::of_metadata(one, semantics)));
            context.extend(matches.filter_state.iter().map(|one| Context::of_filter_state(one, semantics)));
            cookies.extend(matches.cookies.iter().map(|cookie| CookieCondition {
                name: cookie.name.clone(),
                text: cookie.string_match.as_ref().map(|text| Text::of(text, semantics)),
                inverts: cookie.invert_match,
            }));
        }
        let certificate = matches.tls_context.as_ref().filter(|_| has_context).map(|context| {
            let value = |flag: &Option<BoolValue>| flag.as_ref().map(|flag| flag.value);
            (value(&context.presented), value(&context.validated))
        });
        Self {
            path: PathCondition::of(matches, semantics),
            headers,
            queries,
            cookies,
            fraction,
            is_grpc: matches.grpc.is_some() && semantics.has(Difference::GrpcIsMatched),
            certificate,
            context,
            branches: Vec::new(),
            is_end: false,
            left_out,
            message,
        }
    }

    /// A route of a tree of matchers, with the conditions of its branch.
    pub(crate) fn within(branches: Vec<Arc<Joined>>, message: proto::Route, semantics: Semantics) -> Self {
        Self { branches, ..Self::of(message, semantics) }
    }

    /// The end of a branch of a tree of matchers.
    pub(crate) fn end(branches: Vec<Arc<Joined>>, semantics: Semantics) -> Self {
        let path_specifier = Some(PathSpecifier::Prefix(String::new()));
        let r#match = Some(proto::RouteMatch { path_specifier, ..proto::RouteMatch::default() });
        Self {
            is_end: true,
            ..Self::within(branches, proto::Route { r#match, ..proto::Route::default() }, semantics)
        }
    }

    /// What tells the route from one with the same message: the conditions of its branch, and if it is an end.
    pub(crate) fn place_in_tree(&self) -> (Vec<(&str, String)>, bool) {
        let branches = self.branches.iter().map(|one| (&*one.name, one.wanted()));
        (branches.collect(), self.is_end)
    }

    /// All conditions, that of the fraction apart.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        let left_out = self.left_out.iter().map(Condition::LeftOut);
        let certificate = self
            .certificate
            .iter()
            .map(|(presented, validated)| Condition::Certificate(*presented, *validated));
        left_out
            .chain([Condition::Path])
            .chain(self.headers.iter().map(Condition::Header))
            .chain(self.queries.iter().map(Condition::Query))
            .chain(self.cookies.iter().map(Condition::Cookie))
            .chain(self.is_grpc.then_some(Condition::Grpc))
            .chain(certificate)
            .chain(self.branches.iter().map(|branch| Condition::Branch(branch)))
            .chain(self.context.iter().map(Condition::Unknown))
            .chain(self.fraction.iter().filter(|fraction| fraction.is_never()).map(|_| Condition::Never))
    }

    /// If the request fits, its fraction apart.
    pub(crate) fn matches(&self, asked: &Asked<'_>) -> Truth {
        let mut all = Truth::Yes;
        for condition in self.conditions() {
            match self.truth(&condition, asked) {
                Truth::No => return Truth::No,
                Truth::Unknown => all = Truth::Unknown,
                Truth::Yes => {}
            }
        }
        all
    }

    /// The path that it wants, in words.
    pub(crate) fn wanted_path(&self) -> String {
        self.path.wanted()
    }

    /// If the path fits, whatever else does not.
    pub(crate) fn takes_path(&self, asked: &Asked<'_>) -> bool {
        self.left_out.is_none() && self.truth(&Condition::Path, asked) != Truth::No
    }

    /// The conditions that do not hold, and those of which it is not known.
    pub(crate) fn failures(&self, asked: &Asked<'_>) -> Vec<Failure> {
        let conditions = self.conditions().map(|condition| (self.truth(&condition, asked), condition));
        let failed = conditions.filter(|(truth, _)| *truth != Truth::Yes).take(MAX_FAILURES);
        failed.map(|(truth, condition)| self.describe(&condition, asked, truth)).collect()
    }

    /// All conditions in the words of failures, whether they hold or not.
    pub(crate) fn described(&self, asked: &Asked<'_>) -> Vec<Failure> {
        self.conditions().map(|condition| self.describe(&condition, asked, Truth::No)).collect()
    }

    pub(crate) fn truth(&self, condition: &Condition<'_>, asked: &Asked<'_>) -> Truth {
        match condition {
            Condition::LeftOut(_) | Condition::Never => Truth::No,
            Condition::Path => self.path.matches(asked.path, &asked.request.method),
            Condition::Header(header) => header.matches(asked.seen),
            Condition::Query(query) => query.matches(&asked.request.path),
            Condition::Cookie(cookie) => cookie.matches(asked.seen),
            Condition::Grpc => is_grpc(asked.seen).into(),
            Condition::Certificate(presented, validated) => {
                match asked.request.connection.certificate {
                    // A connection in plaintext has no certificate, and no condition on one holds.
                    _ if !asked.request.connection.is_tls(&asked.request.scheme) => {
                        (presented.is_none() && validated.is_none()).into()
                    }
                    None => Truth::Unknown,
                    Some((is_presented, is_valid)) => {
                        let fits = |wanted: &Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
                        (fits(presented, is_presented) && fits(validated, is_valid)).into()
                    }
                }
            }
            Condition::Branch(branch) => branch.matches(asked.seen),
            Condition::Unknown(context) => context.matches(asked.request),
        }
    }

    fn describe(&self, condition: &Condition<'_>, asked: &Asked<'_>, truth: Truth) -> Failure {
        let failure = |on, name: Option<&str>, want: String, got: Option<String>, row| Failure {
            on,
            name: name.map(str::to_owned),
            want,
            got,
            row,
            is_unknown: truth == Truth::Unknown,
        };
        match condition {
            Condition::LeftOut(reason) => failure("leftOut", None, reason.message.clone(), None, reason.row),
            Condition::Path => {
                failure("path", None, self.path.wanted(), Some(asked.path.to_owned()), self.path.rule())
            }
            Condition::Header(header) => {
                let (name, got) = (header.name(), header.got(asked.seen));
                failure("header", Some(name), header.wanted(), got, header.rule(asked.seen))
            }
            Condition::Query(condition) => {
                let (name, got) = (&*condition.name, query::value(&asked.request.path, &condition.name));
                let got = got.map(|got| if is_secret(name) { "…" } else { got }.to_owned());
                failure("query", Some(name), condition.wanted(), got, "XR14")
            }
            Condition::Cookie(cookie) => {
                let got = cookie.value(asked.seen).map(|_| "…".to_owned());
                failure("cookie", Some(&cookie.name), cookie.wanted(), got, "XR17")
            }
            Condition::Grpc => {
                let got = asked.seen.get("content-type").first().cloned();
                failure("grpc", Some("content-type"), "application/grpc".to_owned(), got, "XR16")
            }
            Condition::Certificate(presented, validated) => {
                let word = |flag: &Option<bool>, word: &str| match flag {
                    Some(true) => format!("{word}: true"),
                    Some(false) => format!("{word}: false"),
                    None => String::new(),
                };
                let want = format!("{} {}", word(presented, "presented"), word(validated, "validated"));
                failure("tls", Some("client certificate"), want.trim().to_owned(), None, "XR17")
            }
            Condition::Branch(branch) => failure("header", Some(&branch.name), branch.wanted(), None, "XR18"),
            Condition::Unknown(context) => {
                let got = context.value(asked.request);
                let name = context.to_string();
                let got = got.map(|got| if is_secret(&name) { "…" } else { got }.to_owned());
                failure("other", Some(&name), context.wanted(), got, "XR17")
            }
            Condition::Never => failure("fraction", None, "0 % of requests".to_owned(), None, "XR15"),
        }
    }
}

impl CookieCondition {
    fn value<'s>(&self, seen: &'s Seen) -> Option<&'s str> {
        let pairs = seen.get("cookie").iter().flat_map(|value| value.split(';'));
        pairs
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(name, _)| *name == self.name)
            .map(|(_, value)| value.trim_matches('"'))
    }

    fn matches(&self, seen: &Seen) -> Truth {
        let Some(value) = self.value(seen) else { return self.inverts.into() };
        let outcome = self.text.as_ref().map_or(Truth::Yes, |text| text.matches(value));
        outcome.not_if(self.inverts)
    }

    fn wanted(&self) -> String {
        let text = self.text.as_ref().map_or_else(|| "present".to_owned(), Text::describe);
        if self.inverts { format!("not {text}") } else { text }
    }
}

/// A gRPC request by its `content-type` (XR16).
pub(crate) fn is_grpc(seen: &Seen) -> bool {
    let value = seen.get("content-type").first().map(String::as_str).unwrap_or_default();
    value == "application/grpc" || value.starts_with("application/grpc+")
}

/// Why a client does not even read the rest of a route.
fn unread(matches: &proto::RouteMatch, semantics: Semantics) -> Option<Reason> {
    if semantics.has(Difference::OddPathIsLeftOut) {
        let is_odd = match &matches.path_specifier {
            Some(PathSpecifier::Prefix(prefix)) => !is_prefix_of_method(prefix),
            Some(PathSpecifier::Path(path)) => !is_method(path),
            Some(_) | None => false,
        };
        if is_odd {
            return Some(Reason::new("XR2", "its path is not that of a gRPC method"));
        }
    }
    let ignores_query =
        semantics.has(Difference::QueryIsMatched) || semantics.has(Difference::QueryIsIgnored);
    if !matches.query_parameters.is_empty() && !ignores_query {
        return Some(Reason::new("XR14", "it has conditions on the query"));
    }
    None
}

/// Why a client does not use a route, though it uses others of the resource.
fn left_out(message: &proto::Route, matches: &proto::RouteMatch, semantics: Semantics) -> Option<Reason> {
    if let Some(reason) = unread(matches, semantics) {
        return Some(reason);
    }
    if !semantics.has(Difference::ActsAsProxy)
        && let Some(Action::Route(action)) = &message.action
        && let Some(ClusterSpecifier::ClusterHeader(_)) = action.cluster_specifier
    {
        return Some(Reason::new("XA1", "its cluster is named by a header"));
    }
    None
}

/// `""`, `/`, `/a`, `/a/` or `/a/b`.
fn is_prefix_of_method(prefix: &str) -> bool {
    if prefix.is_empty() {
        return true;
    }
    let Some(rest) = prefix.strip_prefix('/') else { return false };
    match rest.split_once('/') {
        Some((service, method)) => !service.is_empty() && !method.contains('/'),
        None => true,
    }
}

/// `/a/b`.
fn is_method(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(service, method)| !service.is_empty() && !method.is_empty() && !method.contains('/'))
}

/// Why a client refuses the whole resource because of a route.
pub(crate) fn refused(message: &proto::Route, semantics: Semantics) -> Option<Reason> {
    let empty = proto::RouteMatch::default();
    let matches = message.r#match.as_ref().unwrap_or(&empty);
    if unread(matches, semantics).is_some() {
        return None;
    }
    if semantics.has(Difference::OnlyPlainPaths) {
        let kind = match &matches.path_specifier {
            Some(PathSpecifier::PathSeparatedPrefix(_)) => Some(("XR4", "path_separated_prefix")),
            Some(PathSpecifier::PathMatchPolicy(_)) => Some(("XR5", "path_match_policy")),
            Some(PathSpecifier::ConnectMatcher(_)) => Some(("XR6", "connect_matcher")),
            None => Some(("XR2", "a match without a path")),
            Some(PathSpecifier::Prefix(_) | PathSpecifier::Path(_) | PathSpecifier::SafeRegex(_)) => None,
        };
        if let Some((row, kind)) = kind {
            return Some(Reason::new(row, format!("a route has {kind}")));
        }
    }
    for header in &matches.headers {
        let name = &header.name;
        match &header.header_match_specifier {
            None if semantics.has(Difference::BareHeaderIsRefused) => {
                return Some(Reason::new("XR11", format!("the condition on header {name:?} says nothing")));
            }
            Some(HeaderMatchSpecifier::RangeMatch(range))
                if range.start > range.end && semantics.has(Difference::BackwardRangeIsRefused) =>
            {
                return Some(Reason::new(
                    "XR12",
                    format!("the range of header {name:?} ends before it begins"),
                ));
            }
            Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
                ignore_case: true,
                match_pattern: Some(MatchPattern::SafeRegex(_)),
            })) if semantics.has(Difference::FoldedRegexIsRefused) => {
                let text = format!("the regular expression of header {name:?} has ignore_case");
                return Some(Reason::new("XR13", text));
            }
            Some(_) | None => {}
        }
    }
    match &message.action {
        Some(Action::Redirect(_) | Action::DirectResponse(_))
            if semantics.has(Difference::RedirectIsRefused) =>
        {
            Some(Reason::new("XA3", "a route neither forwards nor is left out"))
        }
        Some(Action::Route(action)) if semantics.has(Difference::UnsetWeightIsRefused) => {
            let Some(ClusterSpecifier::WeightedClusters(split)) = &action.cluster_specifier else {
                return None;
            };
            let unset = split.clusters.iter().find(|member| member.weight.is_none())?;
            Some(Reason::new("XA1", format!("cluster {:?} has no weight", unset.name)))
        }
        Some(_) | None => None,
    }
}

/// The failed conditions of one route in an answer.
const MAX_FAILURES: usize = 16;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
    use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
    use envoy_types::pb::envoy::r#type::v3::Int64Range;

    use super::*;
    use crate::client::{Client, Language};

    const ALL: [Language; 4] = [Language::Envoy, Language::CCore, Language::Go, Language::Js];

    fn route(matches: RouteMatch) -> proto::Route {
        proto::Route { r#match: Some(matches), ..proto::Route::default() }
    }

    fn prefix(text: &str) -> RouteMatch {
        RouteMatch { path_specifier: Some(PathSpecifier::Prefix(text.to_owned())), ..RouteMatch::default() }
    }

    fn each<T>(message: &proto::Route, ask: impl Fn(&proto::Route, Semantics) -> T) -> [T; 4] {
        ALL.map(|language| ask(message, Semantics::of(Client::newest(language))))
    }

    fn is_left_out(message: &proto::Route) -> [bool; 4] {
        each(message, |message, semantics| Route::of(message.clone(), semantics).left_out.is_some())
    }

    fn is_refused(message: &proto::Route) -> [bool; 4] {
        each(message, |message, semantics| refused(message, semantics).is_some())
    }

    #[test]
    fn r2_core_leaves_out_paths_that_no_method_has() {
        for (text, is_odd) in [
            ("", false),
            ("/", false),
            ("/a", false),
            ("/a/", false),
            ("/a/b", false),
            ("a", true),
            ("/a/b/", true),
            ("//b", true),
        ] {
            assert_eq!(is_left_out(&route(prefix(text))), [false, is_odd, false, false], "{text}");
        }
        for (text, is_odd) in [("/a/b", false), ("/a", true), ("/a/", true), ("a/b", true), ("/a/b/c", true)]
        {
            let path_specifier = Some(PathSpecifier::Path(text.to_owned()));
            let message = route(RouteMatch { path_specifier, ..RouteMatch::default() });
            assert_eq!(is_left_out(&message), [false, is_odd, false, false], "{text}");
        }
    }

    #[test]
    fn r4_only_envoy_takes_other_kinds_of_paths() {
        let path_specifier = Some(PathSpecifier::PathSeparatedPrefix("/a".to_owned()));
        let message = route(RouteMatch { path_specifier, ..RouteMatch::default() });
        assert_eq!(is_refused(&message), [false, true, true, true]);
    }

    fn with_header(header: HeaderMatcher) -> proto::Route {
        route(RouteMatch { headers: vec![HeaderMatcher { name: "x".to_owned(), ..header }], ..prefix("/") })
    }

    #[test]
    fn r11_core_refuses_a_header_without_a_condition() {
        assert!(is_refused(&with_header(HeaderMatcher::default()))[1]);
        assert!(!is_refused(&with_header(HeaderMatcher::default()))[0]);
    }

    #[test]
    fn r12_core_refuses_a_range_that_ends_before_it_begins() {
        let header_match_specifier = Some(HeaderMatchSpecifier::RangeMatch(Int64Range { start: 2, end: 1 }));
        let message = with_header(HeaderMatcher { header_match_specifier, ..HeaderMatcher::default() });
        assert_eq!(is_refused(&message), [false, true, false, false]);
    }

    #[test]
    fn r13_a_regex_that_ignores_case_is_refused() {
        let match_pattern = Some(MatchPattern::SafeRegex(Default::default()));
        let matcher = StringMatcher { ignore_case: true, match_pattern };
        let header_match_specifier = Some(HeaderMatchSpecifier::StringMatch(matcher));
        let message = with_header(HeaderMatcher { header_match_specifier, ..HeaderMatcher::default() });
        assert_eq!(is_refused(&message), [true, true, false, false]);
        // What is left out by its path is not read on.
        let mut odd = message;
        odd.r#match.as_mut().unwrap().path_specifier = prefix("/a/b/c").path_specifier;
        assert_eq!(is_refused(&odd), [true, false, false, false]);
    }

    #[test]
    fn r14_a_route_with_a_query_is_left_out_or_matches_more() {
        let query_parameters = vec![QueryParameterMatcher { name: "a".to_owned(), ..Default::default() }];
        let message = route(RouteMatch { query_parameters, ..prefix("/") });
        assert_eq!(is_left_out(&message), [false, true, true, false]);
    }

    #[test]
    fn r15_a_fraction_without_a_default_matches_always_or_never() {
        let runtime_fraction = Some(RuntimeFractionalPercent::default());
        let message = route(RouteMatch { runtime_fraction, ..prefix("/") });
        assert_eq!(is_left_out(&message), [false, false, true, false]);
    }

    #[test]
    fn r17_only_envoy_looks_at_certificates_metadata_and_cookies() {
        let cookies = vec![proto::CookieMatcher { name: "sid".to_owned(), ..Default::default() }];
        let tls_context = Some(proto::route_match::TlsContextMatchOptions {
            presented: Some(BoolValue { value: true }),
            validated: None,
        });
        let with_cookie = route(RouteMatch { cookies, ..prefix("/") });
        let with_certificate = route(RouteMatch { tls_context, ..prefix("/") });
        let request = Request { scheme: "https".to_owned(), ..Request::get("a", "/s/m") };
        let known = Request {
            connection: crate::request::Connection { certificate: Some((true, true)), ..Default::default() },
            ..request.clone()
        };
        let ask = |message: &proto::Route, request: &Request| {
            each(message, |message, semantics| {
                let seen = Seen::of(request, semantics);
                Route::of(message.clone(), semantics).matches(&Asked { request, path: "/s/m", seen: &seen })
            })
        };
        use Truth::{No, Unknown, Yes};
        assert_eq!(ask(&with_cookie, &request), [No, Yes, Yes, Yes]);
        assert_eq!(ask(&with_cookie, &request.clone().with("cookie", "a=1; sid=2")), [Yes; 4]);
        assert_eq!(ask(&with_certificate, &request), [Unknown, Yes, Yes, Yes]);
        assert_eq!(ask(&with_certificate, &known), [Yes; 4]);
    }

    #[test]
    fn a1_an_unset_weight_is_refused_and_a_cluster_by_header_left_out() {
        let action = |specifier| {
            let action = proto::RouteAction { cluster_specifier: Some(specifier), ..Default::default() };
            proto::Route { action: Some(Action::Route(action)), ..route(prefix("/")) }
        };
        let clusters = vec![proto::weighted_cluster::ClusterWeight::default()];
        let split = proto::WeightedCluster { clusters, ..Default::default() };
        let unset = action(ClusterSpecifier::WeightedClusters(split));
        assert_eq!(is_refused(&unset), [false, true, false, false]);
        let by_header = action(ClusterSpecifier::ClusterHeader("x".to_owned()));
        assert_eq!(is_left_out(&by_header), [false, true, true, true]);
    }

    #[test]
    fn a3_js_and_java_refuse_redirects() {
        let message =
            proto::Route { action: Some(Action::Redirect(Default::default())), ..route(prefix("/")) };
        assert_eq!(is_refused(&message), [false, false, false, true]);
        assert!(refused(&message, Semantics::of(Client::newest(Language::Java))).is_some());
    }

    #[test]
    fn r19_java_folds_the_case_of_paths_by_default() {
        let semantics = Semantics::of(Client::newest(Language::Java));
        let request = Request::get("a", "/S/M");
        let seen = Seen::of(&request, semantics);
        let route = Route::of(route(prefix("/s/")), semantics);
        assert_eq!(route.matches(&Asked { request: &request, path: "/S/M", seen: &seen }), Truth::Yes);
    }
}
