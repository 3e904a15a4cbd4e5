//! Access rules: the RBAC filter of Envoys (XA8).

use std::collections::BTreeMap;
use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::rbac::v3::permission::Rule;
use envoy_types::pb::envoy::config::rbac::v3::principal::{Authenticated, Identifier};
use envoy_types::pb::envoy::config::rbac::v3::rbac::Action;
use envoy_types::pb::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::{Rbac as RbacFilter, RbacPerRoute};
use envoy_types::pb::envoy::r#type::matcher::v3::PathMatcher;
use envoy_types::pb::envoy::r#type::matcher::v3::path_matcher::Rule as PathRule;
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;

use crate::after::is_of;
use crate::cidr::is_in;
use crate::filters::Circumstances;
use crate::header::HeaderCondition;
use crate::text::Text;
use crate::truth::Truth;

/// What access rules say about a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// There are no rules.
    Off,
    Granted(String),
    Refused(String),
    /// It depends on something that is not known.
    Unknown(String),
}

/// What the filter says, and its shadow rules; `None` if its configuration cannot be read.
pub(crate) fn judge(config: &Any, of: Circumstances<'_>) -> Option<(Access, Access)> {
    let filter = if is_of(config, "envoy.extensions.filters.http.rbac.v3.RBACPerRoute") {
        // Without rules of its own it turns the filter off.
        RbacPerRoute::decode(&*config.value).ok()?.rbac.unwrap_or_default()
    } else {
        RbacFilter::decode(&*config.value).ok()?
    };
    let access = |rules: Option<&Rbac>, has_matcher: bool| match rules {
        _ if has_matcher => Access::Unknown("a tree of matchers decides".to_owned()),
        Some(rules) => rules_say(rules, of),
        None => Access::Off,
    };
    Some((
        access(filter.rules.as_ref(), filter.matcher.is_some()),
        access(filter.shadow_rules.as_ref(), filter.shadow_matcher.is_some()),
    ))
}

fn rules_say(rules: &Rbac, of: Circumstances<'_>) -> Access {
    let mut unknown = None;
    // The first policy that matches, in the order of names, is told.
    let policies: BTreeMap<&String, &Policy> = rules.policies.iter().collect();
    let matching = policies.into_iter().find(|(name, policy)| {
        let truth = matches(policy, of);
        if truth == Truth::Unknown && unknown.is_none() {
            unknown = Some((*name).clone());
        }
        truth == Truth::Yes
    });
    let matching = matching.map(|(name, _)| format!("the policy {name:?} matches"));
    match (rules.action(), matching, unknown) {
        (Action::Log, ..) => Access::Granted("its rules only log".to_owned()),
        (Action::Allow, Some(why), _) => Access::Granted(why),
        (Action::Deny, Some(why), _) => Access::Refused(why),
        (Action::Allow | Action::Deny, None, Some(name)) => {
            Access::Unknown(format!("the policy {name:?} looks at something that is not known"))
        }
        (Action::Allow, None, None) => Access::Refused("no policy allows it".to_owned()),
        (Action::Deny, None, None) => Access::Granted("no policy denies it".to_owned()),
    }
}

fn matches(policy: &Policy, of: Circumstances<'_>) -> Truth {
    let permissions = Truth::any(policy.permissions.iter().map(|permission| permits(permission, of, 0)));
    let principals = Truth::any(policy.principals.iter().map(|principal| is_principal(principal, of, 0)));
    // A condition in CEL is not evaluated.
    let has_condition = policy.condition.is_some() || policy.checked_condition.is_some();
    let condition = if has_condition { Truth::Unknown } else { Truth::Yes };
    Truth::all([permissions, principals, condition])
}

#[expect(deprecated, reason = "clients take the old fields all the same")]
fn permits(permission: &Permission, of: Circumstances<'_>, depth: usize) -> Truth {
    if depth > MAX_DEPTH {
        return Truth::Unknown;
    }
    let connection = &of.request.connection;
    let each = |permission: &Permission| permits(permission, of, depth + 1);
    match &permission.rule {
        Some(Rule::AndRules(set)) => Truth::all(set.rules.iter().map(each)),
        Some(Rule::OrRules(set)) => Truth::any(set.rules.iter().map(each)),
        Some(Rule::NotRule(rule)) => each(rule).not(),
        Some(Rule::Any(any)) => (*any).into(),
        Some(Rule::Header(header)) => HeaderCondition::of(header, of.semantics).matches(of.seen),
        Some(Rule::UrlPath(path)) => takes_path(path, of),
        Some(Rule::DestinationIp(range)) => holds(range, connection.to),
        Some(Rule::DestinationPort(port)) => {
            connection.port.map_or(Truth::Unknown, |own| (u32::from(own) == *port).into())
        }
        Some(Rule::DestinationPortRange(range)) => {
            let is_inside = |own: u16| (range.start..range.end).contains(&i32::from(own));
            connection.port.map_or(Truth::Unknown, |own| is_inside(own).into())
        }
        Some(Rule::RequestedServerName(name)) => {
            let is_known = connection.sni.is_some() || !connection.is_tls(&of.request.scheme);
            match is_known {
                true => Text::of(name, of.semantics).matches(connection.sni.as_deref().unwrap_or_default()),
                false => Truth::Unknown,
            }
        }
        Some(Rule::Metadata(_) | Rule::SourcedMetadata(_) | Rule::Matcher(_) | Rule::UriTemplate(_))
        | None => Truth::Unknown,
    }
}

#[expect(deprecated, reason = "clients take the old fields all the same")]
fn is_principal(principal: &Principal, of: Circumstances<'_>, depth: usize) -> Truth {
    if depth > MAX_DEPTH {
        return Truth::Unknown;
    }
    let connection = &of.request.connection;
    let each = |principal: &Principal| is_principal(principal, of, depth + 1);
    match &principal.identifier {
        Some(Identifier::AndIds(set)) => Truth::all(set.ids.iter().map(each)),
        Some(Identifier::OrIds(set)) => Truth::any(set.ids.iter().map(each)),
        Some(Identifier::NotId(id)) => each(id).not(),
        Some(Identifier::Any(any)) => (*any).into(),
        Some(Identifier::Authenticated(wanted)) => is_authenticated(wanted, of),
        Some(Identifier::SourceIp(range) | Identifier::DirectRemoteIp(range)) => {
            holds(range, connection.from)
        }
        // The connection manager may take the address from this header.
        Some(Identifier::RemoteIp(_)) if !of.seen.get("x-forwarded-for").is_empty() => Truth::Unknown,
        Some(Identifier::RemoteIp(range)) => holds(range, connection.from),
        Some(Identifier::Header(header)) => HeaderCondition::of(header, of.semantics).matches(of.seen),
        Some(Identifier::UrlPath(path)) => takes_path(path, of),
        Some(_) | None => Truth::Unknown,
    }
}

/// A certificate is presented; a name of it that is asked for is not known.
fn is_authenticated(wanted: &Authenticated, of: Circumstances<'_>) -> Truth {
    let connection = &of.request.connection;
    if !connection.is_tls(&of.request.scheme) {
        return Truth::No;
    }
    match (&wanted.principal_name, connection.certificate) {
        (None, Some((is_presented, _))) => is_presented.into(),
        (Some(_), Some(_)) | (_, None) => Truth::Unknown,
    }
}

fn takes_path(path: &PathMatcher, of: Circumstances<'_>) -> Truth {
    let own = of.request.path.split(['?', '#']).next().unwrap_or_default();
    match &path.rule {
        Some(PathRule::Path(text)) => Text::of(text, of.semantics).matches(own),
        None => Truth::Unknown,
    }
}

fn holds(range: &CidrRange, address: Option<IpAddr>) -> Truth {
    address.map_or(Truth::Unknown, |address| is_in(address, range).into())
}

/// Rules within rules. Envoy has no limit.
const MAX_DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::rbac::v3::permission;
    use envoy_types::pb::envoy::config::rbac::v3::principal;
    use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
    use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
    use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    use envoy_types::pb::envoy::r#type::v3::Int32Range;
    use envoy_types::pb::google::protobuf::UInt32Value;

    use super::*;
    use crate::client::{Client, Language};
    use crate::header::Seen;
    use crate::request::{Connection, Request};
    use crate::semantics::Semantics;

    fn is_present(name: &str) -> HeaderMatcher {
        let header_match_specifier = Some(HeaderMatchSpecifier::PresentMatch(true));
        HeaderMatcher { name: name.to_owned(), header_match_specifier, ..Default::default() }
    }

    fn text(pattern: MatchPattern) -> StringMatcher {
        StringMatcher { match_pattern: Some(pattern), ignore_case: false }
    }

    fn permission(rule: Rule) -> Permission {
        Permission { rule: Some(rule) }
    }

    fn principal(identifier: Identifier) -> Principal {
        Principal { identifier: Some(identifier) }
    }

    fn policy(rule: Rule, identifier: Identifier) -> Policy {
        Policy {
            permissions: vec![permission(rule)],
            principals: vec![principal(identifier)],
            ..Default::default()
        }
    }

    fn rules(action: Action, policies: &[(&str, Policy)]) -> Rbac {
        let policies = policies.iter().map(|(name, policy)| ((*name).to_owned(), policy.clone()));
        Rbac { action: action.into(), policies: policies.collect(), ..Default::default() }
    }

    fn anybody(rule: Rule) -> Policy {
        policy(rule, Identifier::Any(true))
    }

    fn anything(identifier: Identifier) -> Policy {
        policy(Rule::Any(true), identifier)
    }

    fn asked(rules: &Rbac, request: &Request) -> Access {
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let seen = Seen::of(request, semantics);
        rules_say(rules, Circumstances { request, seen: &seen, semantics })
    }

    fn is_granted(policy: Policy, request: &Request) -> Option<bool> {
        match asked(&rules(Action::Allow, &[("p", policy)]), request) {
            Access::Granted(_) => Some(true),
            Access::Refused(_) => Some(false),
            Access::Off | Access::Unknown(_) => None,
        }
    }

    fn from(address: &str) -> Request {
        let connection = Connection { from: address.parse().ok(), ..Connection::default() };
        Request { connection, ..Request::get("a.test", "/") }
    }

    #[test]
    fn a8_allow_takes_what_a_policy_takes_and_deny_the_rest() {
        let request = Request::get("a.test", "/");
        let (yes, no) =
            (anybody(Rule::Any(true)), anybody(Rule::NotRule(Box::new(permission(Rule::Any(true))))));
        let policies = [("b", yes.clone()), ("a", no), ("c", yes)];
        let says = |action, policies: &[(&str, Policy)]| asked(&rules(action, policies), &request);
        let matches = || "the policy \"b\" matches".to_owned();
        assert_eq!(says(Action::Allow, &policies), Access::Granted(matches()), "in the order of names");
        assert_eq!(says(Action::Deny, &policies), Access::Refused(matches()));
        assert_eq!(says(Action::Allow, &policies[1..2]), Access::Refused("no policy allows it".to_owned()));
        assert_eq!(says(Action::Deny, &policies[1..2]), Access::Granted("no policy denies it".to_owned()));
        assert_eq!(says(Action::Allow, &[]), Access::Refused("no policy allows it".to_owned()));
        assert_eq!(says(Action::Log, &policies), Access::Granted("its rules only log".to_owned()));
        let unknown = Policy { condition: Some(Default::default()), ..policies[0].1.clone() };
        let why = Access::Unknown("the policy \"u\" looks at something that is not known".to_owned());
        assert_eq!(says(Action::Deny, &[("u", unknown.clone())]), why);
        assert_eq!(says(Action::Deny, &[("u", unknown), ("v", policies[0].1.clone())]), {
            Access::Refused("the policy \"v\" matches".to_owned())
        });
    }

    /// The answers of Envoy 1.40.
    #[test]
    fn a8_conditions_are_those_of_routes() {
        let path = |pattern| PathMatcher { rule: Some(PathRule::Path(text(pattern))) };
        let request = Request::get("a.test", "/d?q");
        let exact = anybody(Rule::UrlPath(path(MatchPattern::Exact("/d".to_owned()))));
        assert_eq!(is_granted(exact, &request), Some(true), "without the query");
        let suffix = anything(Identifier::UrlPath(path(MatchPattern::Suffix("q".to_owned()))));
        assert_eq!(is_granted(suffix, &request), Some(false));
        let header = anybody(Rule::Header(is_present("x-a")));
        assert_eq!(is_granted(header.clone(), &request), Some(false));
        assert_eq!(is_granted(header, &request.clone().with("X-A", "1")), Some(true));
        let name = anybody(Rule::RequestedServerName(text(MatchPattern::Exact(String::new()))));
        assert_eq!(is_granted(name.clone(), &request), Some(true), "no TLS, no name");
        let tls = Request { scheme: "https".to_owned(), ..request };
        assert_eq!(is_granted(name, &tls), None);
    }

    #[test]
    fn a8_ports_and_addresses_are_those_of_the_connection() {
        let port = |port| Request {
            connection: Connection { port: Some(port), ..Connection::default() },
            ..Request::get("a.test", "/")
        };
        let range = anybody(Rule::DestinationPortRange(Int32Range { start: 80, end: 90 }));
        assert_eq!(is_granted(range.clone(), &port(80)), Some(true));
        assert_eq!(is_granted(range.clone(), &port(90)), Some(false), "the end is not in it");
        assert_eq!(is_granted(range, &Request::get("a.test", "/")), None);
        assert_eq!(is_granted(anybody(Rule::DestinationPort(80)), &port(80)), Some(true));
        let inside =
            CidrRange { address_prefix: "10.0.0.0".to_owned(), prefix_len: Some(UInt32Value { value: 8 }) };
        let direct = anything(Identifier::DirectRemoteIp(inside.clone()));
        assert_eq!(is_granted(direct.clone(), &from("10.1.2.3")), Some(true));
        assert_eq!(is_granted(direct, &from("11.1.2.3")), Some(false));
        let remote = anything(Identifier::RemoteIp(inside));
        assert_eq!(is_granted(remote.clone(), &from("10.1.2.3")), Some(true));
        let forwarded = from("10.1.2.3").with("x-forwarded-for", "11.1.1.1");
        assert_eq!(is_granted(remote, &forwarded), None);
    }

    #[test]
    fn a8_sets_are_and_or_not() {
        let yes = || principal(Identifier::Any(true));
        let no = || principal(Identifier::NotId(Box::new(yes())));
        let unknown = || principal(Identifier::FilterState(Default::default()));
        let set = |ids| principal::Set { ids };
        let and = |ids| is_granted(anything(Identifier::AndIds(set(ids))), &Request::get("a.test", "/"));
        let or = |ids| is_granted(anything(Identifier::OrIds(set(ids))), &Request::get("a.test", "/"));
        assert_eq!((and(vec![yes(), no()]), or(vec![yes(), no()])), (Some(false), Some(true)));
        assert_eq!((and(vec![unknown(), no()]), or(vec![unknown(), yes()])), (Some(false), Some(true)));
        assert_eq!((and(vec![unknown(), yes()]), or(vec![unknown(), no()])), (None, None));
        let rules =
            permission::Set { rules: vec![permission(Rule::Any(true)), permission(Rule::Any(false))] };
        let request = Request::get("a.test", "/");
        assert_eq!(is_granted(anybody(Rule::OrRules(rules.clone())), &request), Some(true));
        assert_eq!(is_granted(anybody(Rule::AndRules(rules)), &request), Some(false));
    }

    #[test]
    fn a8_a_certificate_is_known_only_if_the_request_says_so() {
        let any = anything(Identifier::Authenticated(Authenticated::default()));
        let named =
            Authenticated { principal_name: Some(text(MatchPattern::Exact("spiffe://a".to_owned()))) };
        let named = anything(Identifier::Authenticated(named));
        let with = |tls, certificate| Request {
            connection: Connection { tls: Some(tls), certificate, ..Connection::default() },
            ..Request::get("a.test", "/")
        };
        assert_eq!(is_granted(any.clone(), &with(false, None)), Some(false));
        assert_eq!(is_granted(any.clone(), &with(true, None)), None);
        assert_eq!(is_granted(any, &with(true, Some((true, true)))), Some(true));
        assert_eq!(is_granted(named, &with(true, Some((true, true)))), None);
    }
}
