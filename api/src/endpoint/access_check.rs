//! `/v1/access:check`: what somebody may get, which rule decides, and what would have to be otherwise.
//!
//! The answer is that of the code that decides about real clients and requests. Nothing is done for it, and it shows no resource.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_access::{Policy, Principal, Role, Rule, token_proof};
use xds_cache::admission::{Denial, DenialReason, admit};
use xds_cache::identity::{DnsName, IdentityMatch, SpiffeId, shown};
use xds_cache::{GroupName, Groups, Node, NodeGroup, Proof, Subject};

use crate::answer::Answer;
use crate::endpoints::row::{Endpoint, Method, Needs, Reach};
use crate::problem::ApiError;
use crate::reach::check_scope;
use crate::state::{ApiState, group_name};

/// The answer to a question about access.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccessVerdict {
    /// True if it is allowed.
    pub allowed: bool,
    /// The reason in a word, as in statuses and in the audit log; `granted` or `open` if it is allowed.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub message: String,
    /// What would have to be otherwise; absent if it is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<String>,
    /// The rule that decided; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<DecidingRule>,
    /// Who was asked about, as the server shows identities.
    pub identities: Vec<String>,
    /// The node that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// True if the node is connected. Then its claims are those of its stream, and what it proved there counts if the question
    /// names no identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// The node groups that the client would be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// The principal of the admin API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
}

/// A part of the access policy or of a node group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DecidingRule {
    /// The file; absent for a node group of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1, of the rule, or of the node group that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The path, such as `principals[2].certificates[0]`, or of a node group `edge: identities[1]`.
    pub path: String,
}

/// Whom and what is asked about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckParams {
    node: Option<String>,
    cluster: Option<String>,
    spiffe: Option<String>,
    dns: Option<String>,
    cn: Option<String>,
    issuer: Option<String>,
    subject: Option<String>,
    claims: Option<String>,
    principal: Option<String>,
    group: Option<String>,
    endpoint: Option<String>,
}

/// Answers a question. `endpoints` is the table of the admin API.
pub(crate) fn check(
    endpoints: &'static [Endpoint],
    state: &ApiState,
    params: &CheckParams,
) -> Result<Answer, ApiError> {
    let proofs = proofs(params)?;
    let policy = Arc::clone(&state.access.policy.borrow());
    let verdict = match (&params.endpoint, &params.node, &params.group) {
        (Some(_), _, Some(_)) => {
            return Err(bad("a question is about a `group` or about an `endpoint`, not about both"));
        }
        (Some(_), Some(_), None) => {
            return Err(bad("a `node` is a client of the xDS port; leave it out to ask about an `endpoint`"));
        }
        (Some(endpoint), None, None) => {
            of_endpoint(state, &policy, &proofs, params, row(endpoints, endpoint)?, endpoint)?
        }
        (None, None, _) => {
            let text = "say who asks for what: a `node`, and the `group` if it is about one; or the `endpoint` of the admin API, \
                        such as `PUT /v1/groups/edge`. The identity is one of `spiffe`, `dns`, `cn`, or `issuer` with `subject` \
                        or `claims`";
            return Err(bad(text));
        }
        (None, Some(id), group) => {
            state.check_loaded()?;
            let group = group.as_deref().map(group_name).transpose()?;
            of_client(state, &policy, proofs, (id, params.cluster.as_deref()), group.as_ref())?
        }
    };
    Answer::ok(&verdict)
}

fn bad(text: &str) -> ApiError {
    ApiError::BadRequest(text.to_owned())
}

/// The identity that is asked about, as if it had been proved.
fn proofs(params: &CheckParams) -> Result<Vec<Proof>, ApiError> {
    let proof = |subject| Proof { subject, expires: None, certificate: None };
    let wrong = |field: &str, text: &str, error: &dyn std::fmt::Display| {
        ApiError::BadRequest(format!("{field}={:?}: {error}", shown(text)))
    };
    let mut proofs = Vec::new();
    if let Some(id) = &params.spiffe {
        let id = SpiffeId::new(id).map_err(|error| wrong("spiffe", id, &error))?;
        proofs.push(proof(Subject::Spiffe(id)));
    }
    for name in params.dns.iter().flat_map(|names| names.split(',')) {
        let name = DnsName::new(name).map_err(|error| wrong("dns", name, &error))?;
        proofs.push(proof(Subject::Dns(name)));
    }
    if let Some(name) = &params.cn {
        if !proofs.is_empty() {
            return Err(bad(
                "a common name counts only of a certificate without any other name; leave out `cn`",
            ));
        }
        proofs.push(proof(Subject::CommonName(name.as_str().into())));
    }
    match &params.issuer {
        None if params.subject.is_some() || params.claims.is_some() => {
            return Err(bad(
                "`subject` and `claims` are those of a token; say of which `issuer` of the access policy",
            ));
        }
        None => {}
        Some(issuer) => {
            let claims = params.claims.as_deref().unwrap_or("{}");
            let token = token_proof(issuer, params.subject.as_deref().unwrap_or_default(), claims);
            proofs.push(token.map_err(|error| ApiError::BadRequest(format!("claims: {error}")))?);
        }
    }
    Ok(proofs)
}

fn names(proofs: &[Proof]) -> Vec<String> {
    proofs.iter().map(|proof| proof.subject.to_string()).collect()
}

fn rule(rule: Rule) -> DecidingRule {
    let line = (rule.place.line > 0).then_some(rule.place.line);
    let file = (!rule.place.file.is_empty()).then(|| rule.place.file.to_string());
    DecidingRule { file, line, path: rule.path }
}

/// A verdict without anything that only some have.
fn verdict(reason: &'static str, message: String, proofs: &[Proof]) -> AccessVerdict {
    AccessVerdict {
        allowed: false,
        reason,
        message,
        needed: None,
        rule: None,
        identities: names(proofs),
        node: None,
        connected: None,
        groups: None,
        principal: None,
        role: None,
    }
}

/// The verdict about somebody whom the policy knows not, or denies; `None` if that is not so.
fn of_identity(policy: &Policy, proofs: &[Proof]) -> Option<AccessVerdict> {
    for proof in proofs {
        if let Some(denied) = policy.denied_by(proof) {
            let message = format!("the access policy denies {}", proof.subject);
            let needed = Some("the entry of `denied` taken out".to_owned());
            return Some(AccessVerdict {
                needed,
                rule: Some(rule(denied)),
                ..verdict("denied", message, proofs)
            });
        }
        if let Subject::Token(token) = &proof.subject
            && !policy.issuers().iter().any(|issuer| *issuer.name == *token.issuer)
        {
            let message = format!("the access policy has no issuer of the name {:?}", shown(&token.issuer));
            let needed = Some("an entry of `issuers` of this name".to_owned());
            return Some(AccessVerdict { needed, ..verdict("bad-token", message, proofs) });
        }
    }
    None
}

/// What a client of the xDS port is given.
fn of_client(
    state: &ApiState,
    policy: &Policy,
    proofs: Vec<Proof>,
    (id, cluster): (&str, Option<&str>),
    wanted: Option<&GroupName>,
) -> Result<AccessVerdict, ApiError> {
    let connected =
        state.board.streams().into_iter().find_map(|stream| {
            stream.with(|status| (status.info.node.id == id).then(|| status.info.clone()))
        });
    let mut node = connected.as_ref().map_or_else(|| Node::with_id(id), |info| (*info.node).clone());
    if let Some(cluster) = cluster {
        cluster.clone_into(&mut node.cluster);
    }
    let proofs = match &connected {
        Some(info) if proofs.is_empty() => info.proofs.to_vec(),
        _ => proofs,
    };
    let groups = state.control.groups();
    let wanted = wanted.map(|name| find(&groups, name)).transpose()?;
    let verdict = of_identity(policy, &proofs)
        .or_else(|| without_credential(state, &proofs))
        .unwrap_or_else(|| given(state, &groups, &node, &proofs, wanted));
    Ok(AccessVerdict { node: Some(id.to_owned()), connected: Some(connected.is_some()), ..verdict })
}

fn find<'g>(groups: &'g Groups, name: &GroupName) -> Result<&'g NodeGroup, ApiError> {
    let missing = || ApiError::NotFound(format!("there is no node group {:?}", shown(name.as_str())));
    groups.get(name).map(|group| &group.definition).ok_or_else(missing)
}

/// The verdict about a client that has to prove something and has not.
fn without_credential(state: &ApiState, proofs: &[Proof]) -> Option<AccessVerdict> {
    let is_refused = state.access.clients_need_credential && proofs.is_empty();
    is_refused.then(|| {
        let message =
            "the xDS port serves clients that show a certificate or a token, and this one shows neither";
        let needed =
            Some("a certificate of --xds-client-ca, or a token of an issuer of the access policy".to_owned());
        AccessVerdict { needed, ..verdict("no-credential", message.to_owned(), proofs) }
    })
}

/// A part of a node group.
fn rule_of_group(state: &ApiState, group: &NodeGroup, path: &str) -> DecidingRule {
    let place = state.control.group_places([&group.name]).remove(&group.name);
    DecidingRule {
        file: place.as_ref().map(|place| place.file.to_string()),
        line: place.as_ref().map(|place| place.line),
        path: if path.is_empty() { group.name.to_string() } else { format!("{}: {path}", group.name) },
    }
}

/// The verdict about the groups of a client, all of them or the `wanted` one.
fn given(
    state: &ApiState,
    groups: &Groups,
    node: &Node,
    proofs: &[Proof],
    wanted: Option<&NodeGroup>,
) -> AccessVerdict {
    let place = |group: &NodeGroup, path: &str| rule_of_group(state, group, path);
    let is_selected = |group: &&NodeGroup| !group.name.is_default() && group.selector.selects(node);
    let definitions = groups.values().map(|group| &group.definition);
    let mut selected: Vec<NodeGroup> = definitions.filter(is_selected).cloned().collect();
    // The answer is as if identities that are only tried were in force.
    selected.iter_mut().for_each(|group| group.tries_identities = false);
    selected.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    let default = GroupName::default_group();
    let given: Vec<&GroupName> = match admit(node, proofs, &selected) {
        Ok(given) => given.into_iter().chain([&default]).collect(),
        Err(denial) => {
            let group = groups.get(&denial.group).map(|group| &group.definition);
            return AccessVerdict {
                needed: group.map(|group| needed_by(&denial, group)),
                rule: group.map(|group| place(group, "identities")),
                groups: Some(Vec::new()),
                ..verdict(denial.reason.slug(), denial.to_string(), proofs)
            };
        }
    };
    let names = Some(given.iter().map(ToString::to_string).collect());
    let Some(group) = wanted else {
        let message = format!("a client with the node id {} is served", shown(&node.id));
        return AccessVerdict { allowed: true, groups: names, ..verdict("granted", message, proofs) };
    };
    if !given.contains(&&group.name) {
        let is_selected = group.selector.selects(node);
        let (reason, message, needed, path) = match is_selected {
            true => (
                "identity-not-allowed",
                format!("the group {} is not granted to {}, and is left out", group.name, who(proofs)),
                entries(group),
                "identities",
            ),
            false => (
                "not-selected",
                format!("the selector of the group {} does not select the node {}", group.name, shown(&node.id)),
                "a node that the selector selects: its id, cluster, metadata and user agent are what the client claims".to_owned(),
                "selector",
            ),
        };
        let rule = Some(place(group, path));
        return AccessVerdict {
            needed: Some(needed),
            rule,
            groups: names,
            ..verdict(reason, message, proofs)
        };
    }
    let is_granted =
        |entry: &xds_cache::identity::Identity| entry.judge(proofs, &node.id) == IdentityMatch::Granted;
    let (reason, message, path) = match group.identities.iter().position(is_granted) {
        Some(index) => {
            let message = format!("the group {} is granted to {}", group.name, who(proofs));
            ("granted", message, format!("identities[{index}]"))
        }
        None => {
            let message = format!(
                "the group {} has no `identities`: it is for every client that it selects",
                group.name
            );
            ("open", message, String::new())
        }
    };
    let rule = Some(place(group, &path));
    AccessVerdict { allowed: true, rule, groups: names, ..verdict(reason, message, proofs) }
}

fn who(proofs: &[Proof]) -> String {
    if proofs.is_empty() { "a client without an identity".to_owned() } else { names(proofs).join(", ") }
}

/// What a client would need for a group that refuses it.
fn needed_by(denial: &Denial, group: &NodeGroup) -> String {
    match denial.reason {
        DenialReason::NodeIdMismatch => {
            format!("a node id that the entry of this identity allows; {}", entries(group))
        }
        DenialReason::NoCredential | DenialReason::IdentityNotAllowed => entries(group),
    }
}

/// The entries of a group, for people.
fn entries(group: &NodeGroup) -> String {
    let shown: Vec<String> = group.identities.iter().take(MAX_SHOWN).map(ToString::to_string).collect();
    let more = match group.identities.len().saturating_sub(MAX_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("one of the entries of `identities` of the group {}: {}{more}", group.name, shown.join("; "))
}

/// What somebody may do on the admin port.
fn of_endpoint(
    state: &ApiState,
    policy: &Policy,
    proofs: &[Proof],
    params: &CheckParams,
    (row, segments): Row<'_>,
    endpoint: &str,
) -> Result<AccessVerdict, ApiError> {
    let Needs::Role(role, reach) = row.needs else {
        let message = format!("{endpoint} answers everyone");
        return Ok(AccessVerdict { allowed: true, ..verdict("open", message, proofs) });
    };
    if let Some(refused) = of_identity(policy, proofs) {
        return Ok(refused);
    }
    if policy.principals().is_empty() {
        return Ok(without_principals(state, proofs));
    }
    let found = match &params.principal {
        Some(name) => policy.principal(name),
        None if state.access.accepts_certificates || is_token(proofs) => {
            proofs.iter().find_map(|proof| policy.principal_of(proof))
        }
        None if proofs.is_empty() => None,
        None => {
            let message = "the admin port asks for no certificates".to_owned();
            let needed = Some("--admin-client-ca with the authority of the certificate".to_owned());
            return Ok(AccessVerdict { needed, ..verdict("no-credential", message, proofs) });
        }
    };
    let Some((principal, by)) = found else {
        let (reason, message) = match (&params.principal, proofs) {
            (Some(name), _) => {
                return Err(ApiError::NotFound(format!(
                    "the access policy has no principal {:?}",
                    shown(name)
                )));
            }
            (None, []) => ("no-credential", "the request has no credential".to_owned()),
            (None, proofs) => {
                ("bad-credential", format!("no principal of the access policy has {}", who(proofs)))
            }
        };
        let needed =
            Some(format!("a principal with the role {role} or a greater one that has this identity"));
        return Ok(AccessVerdict { needed, ..verdict(reason, message, proofs) });
    };
    let verdict = of_principal(principal, (role, reach), row, &segments, endpoint, proofs);
    Ok(AccessVerdict {
        rule: Some(rule(by)),
        principal: Some(principal.name.to_string()),
        role: Some(principal.role.as_str()),
        ..verdict
    })
}

fn is_token(proofs: &[Proof]) -> bool {
    proofs.iter().any(|proof| matches!(proof.subject, Subject::Token(_)))
}

/// The verdict of a policy that has no principals.
fn without_principals(state: &ApiState, proofs: &[Proof]) -> AccessVerdict {
    let has_token = state.access.token.borrow().is_some();
    let by_certificate = state.access.accepts_certificates && !proofs.is_empty() && !is_token(proofs);
    if by_certificate || !(has_token || state.access.accepts_certificates) {
        let message = "there are no principals: everyone who is let in may do everything".to_owned();
        return AccessVerdict { allowed: true, ..verdict("open", message, proofs) };
    }
    let message =
        "there are no principals: only who has the admin token or a certificate is let in".to_owned();
    let needed = Some("the token of --admin-token-file, or a certificate of --admin-client-ca".to_owned());
    AccessVerdict { needed, ..verdict("no-credential", message, proofs) }
}

fn of_principal(
    principal: &Principal,
    (role, reach): (Role, Reach),
    row: &Endpoint,
    segments: &[(&str, &str)],
    endpoint: &str,
    proofs: &[Proof],
) -> AccessVerdict {
    let (name, has) = (&principal.name, principal.role);
    if has < role {
        let message = format!("{endpoint} needs the role {role}, and the principal {name} has {has}");
        let needed = Some(format!("the role {role} for the principal {name}"));
        return AccessVerdict { needed, ..verdict("role", message, proofs) };
    }
    if !principal.scope.is_all() {
        let segment =
            |name: &str| segments.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        if let Err(error) = check_scope(&principal.scope, reach, &segment, row.changes()) {
            let message = format!("out of the scope of the principal {name}: {error}");
            let needed = Some(match reach {
                Reach::Everything => {
                    format!("a principal without `groups` and `namespaces`; {name} has some")
                }
                Reach::Nothing | Reach::Group | Reach::Object | Reach::Objects => {
                    format!("`groups` and `namespaces` of the principal {name} that have it")
                }
            });
            return AccessVerdict { needed, ..verdict("scope", message, proofs) };
        }
    }
    let message = match (principal.scope.is_all(), reach) {
        (false, Reach::Objects | Reach::Object | Reach::Group) => {
            format!("the principal {name} may, as far as all that it touches or shows is in its scope")
        }
        (true, _) | (false, Reach::Nothing | Reach::Everything) => format!("the principal {name} may"),
    };
    AccessVerdict { allowed: true, ..verdict("granted", message, proofs) }
}

/// A row of the table, and the variable segments of the path that is asked about.
type Row<'p> = (&'static Endpoint, Vec<(&'static str, &'p str)>);

/// The row that an endpoint such as `GET /v1/groups/edge` is.
fn row<'p>(endpoints: &'static [Endpoint], endpoint: &'p str) -> Result<Row<'p>, ApiError> {
    let missing = || {
        ApiError::NotFound(format!(
            "there is no endpoint {:?}; write a method and a path, such as `PUT /v1/groups/edge`",
            shown(endpoint)
        ))
    };
    let (method, path) = endpoint.split_once(' ').ok_or_else(missing)?;
    let method = http::Method::from_bytes(method.as_bytes()).ok().and_then(|method| Method::of(&method));
    let path: Vec<&str> = path.trim().split('?').next().unwrap_or_default().split('/').collect();
    let rows = endpoints.iter().filter(|row| Some(row.method) == method);
    let found = rows.filter_map(|row| Some((row, segments(row.path, &path)?)));
    // A path that is spelled out wins, as in the router.
    found.min_by_key(|(_, segments)| segments.len()).ok_or_else(missing)
}

/// The variable segments of a path that fits a template.
fn segments<'p>(template: &'static str, path: &[&'p str]) -> Option<Vec<(&'static str, &'p str)>> {
    let template: Vec<&str> = template.split('/').collect();
    if template.len() != path.len() {
        return None;
    }
    let mut segments = Vec::new();
    for (expected, found) in template.into_iter().zip(path) {
        match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) if !found.is_empty() => segments.push((name, *found)),
            Some(_) => return None,
            None if expected == *found => {}
            None => return None,
        }
    }
    Some(segments)
}

/// Entries in one message.
const MAX_SHOWN: usize = 10;
