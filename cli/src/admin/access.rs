//! `access check`: what somebody may get, and which rule decides.

use serde_json::Value;

use super::connection::{AdminArgs, segment};
use crate::failure::Failure;
use crate::output::{cell, clean, print_in};

/// The verbs of `access`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AccessArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Say whether a client gets a node group, or a principal an endpoint of the admin API; the exit code is 0 if so, else 1
    Check(CheckArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct CheckArgs {
    /// Node ID of a client of the xDS port. If it is connected and no identity is given, its own counts
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Cluster that the node claims
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// SPIFFE ID of its certificate
    #[arg(long, value_name = "ID")]
    spiffe: Option<String>,
    /// DNS name of its certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// Common name of a certificate without any other name
    #[arg(long, value_name = "NAME")]
    cn: Option<String>,
    /// Issuer of its token, by its name in the access policy
    #[arg(long, value_name = "NAME")]
    issuer: Option<String>,
    /// Subject of the token
    #[arg(long, value_name = "SUBJECT", requires = "issuer")]
    subject: Option<String>,
    /// Claims of the token, as a JSON object
    #[arg(long, value_name = "JSON", requires = "issuer")]
    claims: Option<String>,
    /// A principal by its name, instead of an identity
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Node group that the client wants; without it, whether it is served at all, and with which groups
    #[arg(long, value_name = "NAME", requires = "node")]
    group: Option<String>,
    /// Endpoint that the principal wants, such as "PUT /v1/groups/edge"
    #[arg(long, value_name = "METHOD PATH", conflicts_with = "node")]
    endpoint: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn access(args: &AccessArgs) -> Result<(), Failure> {
    let Verb::Check(args) = &args.verb;
    let dns = (!args.dns.is_empty()).then(|| args.dns.join(","));
    let query = [
        ("node", &args.node),
        ("cluster", &args.cluster),
        ("spiffe", &args.spiffe),
        ("dns", &dns),
        ("cn", &args.cn),
        ("issuer", &args.issuer),
        ("subject", &args.subject),
        ("claims", &args.claims),
        ("principal", &args.principal),
        ("group", &args.group),
        ("endpoint", &args.endpoint),
    ];
    let query = query.iter().filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))));
    let query: Vec<String> = query.collect();
    let found = args.admin.connect()?.get(&format!("/v1/access:check?{}", query.join("&")))?;
    print_in(args.admin.output, &found, || render(&found))?;
    if found["allowed"] == true { Ok(()) } else { Err(Failure::Silent) }
}

/// The verdict, and under it why.
fn render(found: &Value) -> String {
    let cell = |value: &Value| clean(&cell(value));
    let verdict = if found["allowed"] == true { "allowed" } else { "not allowed" };
    let mut text = format!("{verdict}: {} ({})\n", cell(&found["message"]), cell(&found["reason"]));
    let rule = &found["rule"];
    if rule.is_object() {
        let place = match (rule["file"].as_str(), rule["line"].as_u64()) {
            (Some(_), Some(line)) => format!("{}:{line}: ", cell(&rule["file"])),
            (Some(_), None) => format!("{}: ", cell(&rule["file"])),
            (None, _) => String::new(),
        };
        text.push_str(&format!("rule: {place}{}\n", cell(&rule["path"])));
    }
    for (key, name) in
        [("needed", "needed"), ("groups", "groups"), ("principal", "principal"), ("role", "role")]
    {
        if !cell(&found[key]).is_empty() {
            text.push_str(&format!("{name}: {}\n", cell(&found[key])));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_has_its_rule_and_what_is_needed() {
        let refused = json!({"allowed": false, "reason": "role", "message": "m\u{1b}", "needed": "the role admin",
            "rule": {"file": "a.yaml", "line": 3, "path": "principals[0]"}, "principal": "ci", "role": "viewer"});
        assert_eq!(
            render(&refused),
            "not allowed: m\\u{1b} (role)\nrule: a.yaml:3: principals[0]\nneeded: the role admin\nprincipal: ci\nrole: viewer\n"
        );
        let granted = json!({"allowed": true, "reason": "granted", "message": "m", "rule": {"path": "edge: identities[0]"},
            "groups": ["edge", "default"]});
        let text = render(&granted);
        assert!(text.starts_with("allowed: m (granted)\nrule: edge: identities[0]\ngroups: edge"), "{text}");
    }
}
