//! Doubts about a policy: parts of it that can have no effect, or another one than it seems, beside the groups and documents that
//! are served.
//!
//! All are warnings. A name that is not there may come later, and a rule without effect harms nobody by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use xds_cache::NodeGroup;
use xds_cache::identity::SubjectPattern;
use xds_codec::document::Position;
use xds_codec::{Diagnostic, Place, Severity, echo, nearest};
use xds_units::rfc3339;

use crate::policy::{Denied, Policy, Rule, Whom};
use crate::principal::{Placed, Principal};

/// The things that a policy speaks of: node groups and namespaces.
#[derive(Clone, Debug, Default)]
pub struct Served<'s> {
    /// The node groups, and where each is defined.
    pub groups: Vec<(&'s NodeGroup, Place)>,
    /// The namespaces that documents are in.
    pub namespaces: BTreeSet<&'s str>,
}

/// A pattern of certificates or tokens, and whose it is.
struct Credential<'p> {
    principal: &'p Principal,
    pattern: &'p SubjectPattern,
    at: Position,
    path: String,
}

/// Finds everything that is doubtful about `policy`, in the order of the file; doubts about node groups stand where these do. At most
/// [`MAX_DOUBTS`].
#[must_use]
pub fn check(policy: &Policy, served: &Served<'_>, now: SystemTime) -> Vec<Diagnostic> {
    let mut doubts = Vec::new();
    for (index, principal) in policy.principals().iter().enumerate() {
        check_scope(policy, index, principal, served, &mut doubts);
        check_tokens(policy, index, principal, now, &mut doubts);
    }
    check_credentials(policy, &mut doubts);
    doubts.sort_by_key(|doubt| (doubt.place.line, doubt.place.column));
    for (group, place) in &served.groups {
        check_group(policy, group, place, &mut doubts);
        if doubts.len() >= MAX_DOUBTS {
            break;
        }
    }
    doubts.truncate(MAX_DOUBTS);
    doubts
}

/// Reports globs of a scope that nothing matches.
fn check_scope(
    policy: &Policy,
    index: usize,
    principal: &Principal,
    served: &Served<'_>,
    doubts: &mut Vec<Diagnostic>,
) {
    let groups = served.groups.iter().map(|(group, _)| group.name.as_str());
    let namespaces = served.namespaces.iter().copied().chain(["-"]);
    let scope = &principal.scope;
    let fields: [(_, _, _, _, Vec<&str>); 2] = [
        ("groups", "unknown-group", "node group", &scope.groups, groups.collect()),
        ("namespaces", "unknown-namespace", "namespace", &scope.namespaces, namespaces.collect()),
    ];
    for (field, code, what, patterns, names) in fields {
        for (of_field, glob) in patterns.globs().iter().enumerate() {
            if doubts.len() >= MAX_DOUBTS || names.iter().any(|name| glob.value.matches(name)) {
                continue;
            }
            let text = glob.value.as_str();
            let there = match names.len() {
                0..=MAX_LISTED => names.iter().map(|name| echo(name)).collect::<Vec<_>>().join(", "),
                more => format!("{more} others"),
            };
            let message = format!("no {what} matches {}; there are {there}", echo(text));
            let rule = policy.rule(format!("principals[{index}].{field}[{of_field}]"), glob.at);
            let suggestion = nearest(text, names.iter().copied()).map(str::to_owned);
            doubts.push(Diagnostic { suggestion, ..warning(code, rule, message) });
        }
    }
}

/// Reports secret tokens that have ended.
fn check_tokens(
    policy: &Policy,
    index: usize,
    principal: &Principal,
    now: SystemTime,
    doubts: &mut Vec<Diagnostic>,
) {
    for (of_field, token) in principal.tokens.iter().enumerate() {
        let Some(end) = token.value.expires.filter(|end| *end <= now) else { continue };
        let rule = policy.rule(format!("principals[{index}].tokens[{of_field}]"), token.at);
        let message = format!(
            "the token {} ended at {}; take it out, or make another one with `xds-server token new`",
            token.value.hash.short(),
            rfc3339(end)
        );
        doubts.push(warning("ended-token", rule, message));
    }
}

/// Reports patterns that never decide, because an earlier one or `denied` does, and patterns of two principals that overlap.
///
/// Exact names are looked up. Patterns are compared with all others of their kind, up to [`MAX_COMPARED`] pairs.
fn check_credentials(policy: &Policy, doubts: &mut Vec<Diagnostic>) {
    let credentials = credentials(policy);
    let mut n_left = MAX_COMPARED;
    let mut by_text: HashMap<String, &Credential<'_>> = HashMap::new();
    let mut by_kind: BTreeMap<Kind, Earlier<'_, '_>> = BTreeMap::new();
    for credential in &credentials {
        if doubts.len() >= MAX_DOUBTS || n_left == 0 {
            break;
        }
        n_left = n_left.saturating_sub(policy.denied().len());
        if let Some(doubt) = denied(policy, credential) {
            doubts.push(doubt);
            continue;
        }
        let is_exact = credential.pattern.is_exact();
        let earlier = by_kind.entry(Kind::of(credential.pattern)).or_default();
        let twin = by_text.get(&credential.pattern.to_string()).copied();
        // Two exact names meet only if they are the same.
        let exact: &[&Credential<'_>] = if is_exact { &[] } else { &earlier.exact };
        let others = twin.into_iter().chain(earlier.patterns.iter().chain(exact).copied());
        let doubt = others.take(n_left).find_map(|other| compare(policy, other, credential));
        n_left = n_left.saturating_sub(1 + earlier.patterns.len() + exact.len());
        doubts.extend(doubt);
        by_text.entry(credential.pattern.to_string()).or_insert(credential);
        if is_exact {
            earlier.exact.push(credential);
        } else {
            earlier.patterns.push(credential);
        }
    }
    if n_left == 0 {
        let message = format!(
            "the policy has too many patterns of certificates and tokens to compare all of them with each other and with \
             `denied`; {MAX_COMPARED} pairs were compared"
        );
        let rule = policy.rule("principals".to_owned(), Position::default());
        doubts.push(Diagnostic { severity: Severity::Info, ..warning("too-many-patterns", rule, message) });
    }
}

/// The patterns of one kind that stand before another one.
#[derive(Default)]
struct Earlier<'c, 'p> {
    /// Names.
    exact: Vec<&'c Credential<'p>>,
    /// Patterns that several names match.
    patterns: Vec<&'c Credential<'p>>,
}

/// The doubt about a pattern that only denied identities match.
fn denied(policy: &Policy, credential: &Credential<'_>) -> Option<Diagnostic> {
    let mut entries = policy.denied().iter().enumerate();
    let (index, entry) = entries.find(|(_, entry)| denies(entry, credential.pattern))?;
    let message =
        format!("{} can never be used: denied[{index}] denies everyone whom it matches", credential.pattern);
    let rule = policy.rule(credential.path.clone(), credential.at);
    Some(related(policy, warning("denied-credential", rule, message), entry.at))
}

/// Subjects of different kinds have nothing in common, nor have those of different trust domains and issuers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Spiffe(String),
    Dns(usize),
    CommonName(String),
    Token(String),
}

impl Kind {
    fn of(pattern: &SubjectPattern) -> Self {
        match pattern {
            SubjectPattern::Spiffe(pattern) => Self::Spiffe(pattern.trust_domain().to_owned()),
            SubjectPattern::Dns(pattern) => Self::Dns(pattern.as_str().split('.').count()),
            SubjectPattern::CommonName(name) => Self::CommonName(name.to_string()),
            SubjectPattern::Token(pattern) => Self::Token(pattern.issuer.to_string()),
        }
    }
}

/// The patterns of all principals, in the order in which they decide.
fn credentials(policy: &Policy) -> Vec<Credential<'_>> {
    let mut credentials = Vec::new();
    for (index, principal) in policy.principals().iter().enumerate() {
        for (field, patterns) in [("certificates", &principal.certificates), ("jwt", &principal.jwt)] {
            for (of_field, Placed { value, at }) in patterns.iter().enumerate() {
                let path = format!("principals[{index}].{field}[{of_field}]");
                credentials.push(Credential { principal, pattern: value, at: *at, path });
            }
        }
    }
    credentials
}

/// The doubt about a pattern beside an earlier one of another principal, which decides where both match.
fn compare(policy: &Policy, earlier: &Credential<'_>, later: &Credential<'_>) -> Option<Diagnostic> {
    let (first, second) = (&earlier.principal.name, &later.principal.name);
    if first == second || !earlier.pattern.meets(later.pattern) {
        return None;
    }
    let (code, message) = if earlier.pattern.covers(later.pattern) {
        let message = format!(
            "{} can never be used: everyone whom it matches is the principal {first} before, by {} with {}; put {second} before \
             {first}, or make the pattern of {first} narrower",
            later.pattern, earlier.path, earlier.pattern
        );
        ("unreachable-credential", message)
    } else if later.pattern.covers(earlier.pattern) {
        // An exception before the rule.
        return None;
    } else if matches!(later.pattern, SubjectPattern::Token(_))
        && !gives_less(earlier.principal, later.principal)
    {
        // Tokens with the claims of several principals are common, and get the most.
        return None;
    } else {
        let message = format!(
            "{} overlaps with {} of the principal {first}: whoever matches both is {first}, who stands first, and never {second}; \
             make one of them narrower",
            later.pattern, earlier.pattern
        );
        ("overlapping-principals", message)
    };
    let rule = policy.rule(later.path.clone(), later.at);
    Some(related(policy, warning(code, rule, message), earlier.at))
}

/// Returns `true` if one principal may do less than another, by its role or because of its scope.
fn gives_less(one: &Principal, other: &Principal) -> bool {
    one.role < other.role || (!one.scope.is_all() && other.scope.is_all())
}

/// Returns `true` if everyone who matches the pattern is denied.
fn denies(denied: &Denied, pattern: &SubjectPattern) -> bool {
    match &denied.whom {
        Whom::Subject(subject) => subject.covers(pattern),
        Whom::Certificate(_) | Whom::TokenId { .. } => false,
    }
}

/// Reports entries of a group's `identities` that grant nothing under this policy.
fn check_group(policy: &Policy, group: &NodeGroup, place: &Place, doubts: &mut Vec<Diagnostic>) {
    let names = || policy.issuers().iter().map(|issuer| issuer.name.as_str());
    let path = |index: usize, field: &str| {
        // In a file it is a document; in a body the fields of `spec` are at the top.
        let spec = if place.file.is_empty() { "" } else { "spec." };
        let field = if field.is_empty() { String::new() } else { format!(".{field}") };
        Rule { place: place.clone(), path: format!("{spec}identities[{index}]{field}") }
    };
    for (index, entry) in group.identities.iter().enumerate() {
        for subject in entry.subjects() {
            if let SubjectPattern::Token(token) = subject
                && !names().any(|name| *name == *token.issuer)
            {
                let known: Vec<&str> = names().take(MAX_LISTED).collect();
                let message = format!(
                    "the entry of the group {} grants nothing: the access policy has no issuer of the name {}; {}",
                    group.name,
                    echo(&token.issuer),
                    match known.as_slice() {
                        [] => "it has no `issuers`".to_owned(),
                        known => format!("it has {}", known.join(", ")),
                    }
                );
                let suggestion = nearest(&token.issuer, names()).map(str::to_owned);
                let rule = path(index, "jwt.issuer");
                doubts.push(Diagnostic { suggestion, ..warning("unknown-issuer", rule, message) });
            }
            let denied = policy.denied().iter().enumerate().find(|(_, denied)| denies(denied, subject));
            if let Some((of_denied, denied)) = denied {
                let message = format!(
                    "the entry of the group {} grants nothing: denied[{of_denied}] of the access policy denies everyone whom {subject} \
                     matches",
                    group.name
                );
                doubts.push(related(policy, warning("denied-identity", path(index, ""), message), denied.at));
            }
        }
    }
}

fn warning(code: &'static str, rule: Rule, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        code,
        place: rule.place,
        path: rule.path,
        message,
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}

/// The same with another place in the policy that belongs to it.
fn related(policy: &Policy, mut doubt: Diagnostic, at: Position) -> Diagnostic {
    doubt.related.push(policy.rule(String::new(), at).place);
    doubt
}

/// The most doubts of one check.
pub const MAX_DOUBTS: usize = 100;
/// Names in one message.
const MAX_LISTED: usize = 10;
/// Pairs of patterns that one check compares: a tenth of a second.
const MAX_COMPARED: usize = 1_000_000;
