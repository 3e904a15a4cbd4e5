//! Compares an explanation with what is expected of it.

use std::collections::BTreeMap;

use xds_explain::{ActionKind, Client, Explanation, Outcome, Ratio};

use super::expect::{Expect, Expected, Share, Test};
use super::router_judge;

/// Why an explanation is not as expected, one sentence each; nothing if it is.
pub(super) fn mismatches(
    test: &Test,
    explanation: &Explanation,
    client: Client,
    namespace: &str,
) -> Vec<String> {
    let mut open = unknown(test, explanation);
    if explanation.has_more {
        open.push("more outcomes than are followed".to_owned());
    }
    if !open.is_empty() {
        return vec![format!("depends on {}", open.join(", "))];
    }
    let expect = match &test.expect {
        Expected::Outcome(expect) => expect,
        Expected::Router(expect) => return router_judge::mismatches(expect, explanation, client),
    };
    let mut cases: BTreeMap<&[String], Vec<&Outcome>> = BTreeMap::new();
    for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        cases.entry(&outcome.when).or_default().push(outcome);
    }
    let found: Vec<(&[String], Vec<String>)> = cases
        .into_iter()
        .map(|(when, outcomes)| (when, Judge { explanation, outcomes: &outcomes, namespace }.all(expect)))
        .collect();
    let is_certain = found.iter().all(|(_, wrong)| !wrong.is_empty());
    match &*found {
        [] => vec!["no outcome".to_owned()],
        [(_, wrong)] => wrong.clone(),
        all if is_certain => all.iter().flat_map(|(when, wrong)| under(when, wrong)).collect(),
        all => {
            let wrong = all.iter().filter(|(_, wrong)| !wrong.is_empty());
            wrong
                .map(|(when, wrong)| format!("depends on {}: {}", when.join(" and "), wrong.join("; ")))
                .collect()
        }
    }
}

/// What the explanation depends on and the test does not say.
fn unknown(test: &Test, explanation: &Explanation) -> Vec<String> {
    let passes = |what: &str| {
        what.strip_prefix("the filter ").is_some_and(|name| test.passes.iter().any(|own| own == name))
    };
    // The words of the command line; here these are fields of the request.
    let shown = |what: &String| what.replace("--", "");
    explanation.unknown.iter().filter(|what| !passes(what)).map(shown).collect()
}

fn under(when: &[String], wrong: &[String]) -> Vec<String> {
    wrong.iter().map(|wrong| format!("if {}: {wrong}", when.join(" and "))).collect()
}

/// What happens under one set of assumptions.
struct Judge<'e> {
    explanation: &'e Explanation,
    outcomes: &'e [&'e Outcome],
    namespace: &'e str,
}

impl Judge<'_> {
    fn all(&self, expect: &Expect) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(rule) = &expect.rule {
            let got = self.values(|outcome| self.rule(outcome));
            wrong.extend(not_all("rule", rule, &got, |got| is_rule(got, rule)));
        }
        self.backends(&expect.backends, &mut wrong);
        if let Some(timeout) = &expect.timeout {
            let got = self.values(|outcome| {
                let limit = outcome.limits.iter().find(|limit| limit.of == "request");
                limit.map_or_else(|| NOT_FORWARDED.to_owned(), |limit| milliseconds(limit.ms))
            });
            let wanted = milliseconds(*timeout);
            wrong.extend(not_all("timeout", &wanted, &got, |got| got == wanted));
        }
        if let Some(retries) = expect.retries {
            let got = self.values(|outcome| match (&outcome.retry, outcome.action) {
                (Some(retry), _) => retry.n_retries.to_string(),
                (None, ActionKind::Cluster) => "0".to_owned(),
                (None, _) => NOT_FORWARDED.to_owned(),
            });
            let wanted = retries.to_string();
            wrong.extend(not_all("retries", &wanted, &got, |got| got == wanted));
        }
        wrong.extend(self.answers(expect));
        if let Some(session) = &expect.session {
            let words = |by: &str, name: &str| format!("{by} `{name}`");
            let got = self.values(|outcome| match (&outcome.session, outcome.action) {
                (Some(session), _) => words(session.by, &session.name),
                (None, ActionKind::Cluster) => "none".to_owned(),
                (None, _) => NOT_FORWARDED.to_owned(),
            });
            let wanted = session.as_ref().map_or_else(|| "none".to_owned(), |(by, name)| words(by, name));
            wrong.extend(not_all("session", &wanted, &got, |got| got == wanted));
        }
        for (name, share) in &expect.mirrors {
            let copies = self.outcomes.iter().flat_map(|outcome| {
                let of =
                    outcome.mirrors.iter().filter(|mirror| is_backend(&mirror.cluster, name, self.namespace));
                of.map(|mirror| mirror.share.times(outcome.share))
            });
            wrong.extend(off("mirrors", name, *share, sum(copies)));
        }
        wrong
    }

    /// What is expected of answers that no backend gives.
    fn answers(&self, expect: &Expect) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(redirect) = &expect.redirect {
            let redirects = |what: fn(&Outcome) -> Option<String>| {
                self.values(|outcome| {
                    let is_it = outcome.action == ActionKind::Redirect;
                    let value = is_it.then(|| what(outcome).unwrap_or_default());
                    value.unwrap_or_else(|| format!("no redirect: {}", outcome.what))
                })
            };
            if let Some(status) = redirect.status.map(|status| status.to_string()) {
                let got = redirects(|outcome| outcome.status.clone());
                wrong.extend(not_all("redirect.status", &status, &got, |got| got == status));
            }
            if let Some(location) = &redirect.location {
                let got = redirects(|outcome| outcome.location.clone());
                wrong.extend(not_all("redirect.location", location, &got, |got| got == location));
            }
            if redirect.status.is_none() && redirect.location.is_none() {
                let got = redirects(|_| Some("a redirect".to_owned()));
                wrong.extend(not_all("redirect", "a redirect", &got, |got| got == "a redirect"));
            }
        }
        if let Some(status) = &expect.status {
            let got = self.values(|outcome| {
                outcome.status.clone().unwrap_or_else(|| format!("that of a backend: {}", outcome.what))
            });
            wrong.extend(not_all("status", status, &got, |got| is_status(got, status)));
        }
        if let Some(unmatched) = expect.unmatched {
            let got = self.values(|outcome| flag(is_unmatched(outcome), &outcome.what));
            wrong.extend(not_all("unmatched", &unmatched.to_string(), &got, |got| is_flag(got, unmatched)));
        }
        if let Some(denied) = expect.denied {
            let got = self.values(|outcome| flag(is_denied(outcome), &outcome.what));
            wrong.extend(not_all("denied", &denied.to_string(), &got, |got| is_flag(got, denied)));
        }
        wrong
    }

    fn backends(&self, expected: &[(String, Share)], wrong: &mut Vec<String>) {
        let n_wrong = wrong.len();
        for (name, share) in expected {
            let reached = self.outcomes.iter().filter(|outcome| {
                // An answer that no backend gives: the cluster is not served.
                let cluster = outcome.cluster.as_ref().filter(|_| outcome.status.is_none());
                cluster.is_some_and(|cluster| is_backend(&cluster.name, name, self.namespace))
            });
            wrong.extend(off("backends", name, *share, sum(reached.map(|outcome| Some(outcome.share)))));
        }
        if wrong.len() > n_wrong {
            let got: Vec<String> =
                self.outcomes.iter().map(|outcome| format!("{} {}", outcome.share, outcome.what)).collect();
            wrong.push(format!("backends: the request goes {}", got.join(", ")));
        }
    }

    /// A value of each outcome, with its share; equal values as one.
    fn values(&self, value: impl Fn(&Outcome) -> String) -> Vec<(String, Ratio)> {
        let mut all: Vec<(String, Ratio)> = Vec::new();
        for outcome in self.outcomes {
            let value = value(outcome);
            match all.iter_mut().find(|(own, _)| *own == value) {
                Some((_, share)) => *share = share.plus(outcome.share).unwrap_or(Ratio::ONE),
                None => all.push((value, outcome.share)),
            }
        }
        all
    }

    /// The name of the route.
    fn rule(&self, outcome: &Outcome) -> String {
        let route = outcome.route.and_then(|at| self.explanation.routes.iter().find(|one| one.index == at));
        route.map_or_else(|| format!("no route: {}", outcome.what), |route| route.element.name.clone())
    }
}

/// One sentence if some share of requests has another value.
fn not_all(
    field: &str,
    wanted: &str,
    got: &[(String, Ratio)],
    is_it: impl Fn(&str) -> bool,
) -> Option<String> {
    if got.iter().all(|(value, _)| is_it(value)) {
        return None;
    }
    let shown: Vec<String> = match got {
        [(value, _)] => vec![value.clone()],
        all => all.iter().map(|(value, share)| format!("{value} ({share})")).collect(),
    };
    Some(format!("{field}: expected {wanted}, got {}", shown.join(", ")))
}

fn off(field: &str, name: &str, wanted: Share, got: Option<Ratio>) -> Option<String> {
    match got {
        Some(got) if wanted.takes(got) => None,
        Some(got) => Some(format!("{field}.{name}: expected {wanted}, got {got}")),
        None => Some(format!("{field}.{name}: expected {wanted}, got a share that is too fine to be exact")),
    }
}

fn sum(mut shares: impl Iterator<Item = Option<Ratio>>) -> Option<Ratio> {
    shares.try_fold(Ratio::ZERO, |sum, share| sum.plus(share?))
}

/// Returns `true` if a cluster has this name, or is generated from a document with it.
pub(super) fn is_backend(cluster: &str, name: &str, namespace: &str) -> bool {
    let bare = cluster.strip_prefix("grpc/").unwrap_or(cluster);
    // The same backend over HTTP/2.
    let bare = bare.strip_suffix("/h2").unwrap_or(bare);
    let is_it = |cluster: &str, name: &str| {
        let rest = cluster.strip_prefix(name);
        rest.is_some_and(|rest| {
            let port = rest.strip_prefix('/');
            let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            rest.is_empty() || port.is_some_and(is_port)
        })
    };
    cluster == name
        || is_it(bare, name)
        || bare
            .strip_prefix(namespace)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| is_it(rest, name))
}

/// Returns `true` if a route has this name, or belongs to the rule with it.
fn is_rule(route: &str, rule: &str) -> bool {
    route.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if a status has this number or name: `grpc 14 UNAVAILABLE` has both.
fn is_status(got: &str, wanted: &str) -> bool {
    got == wanted
        || got.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(' '))
        || got.starts_with("grpc ") && got.strip_suffix(wanted).is_some_and(|rest| rest.ends_with(' '))
}

fn is_unmatched(outcome: &Outcome) -> bool {
    matches!(
        outcome.action,
        ActionKind::NoRoute | ActionKind::NoVirtualHost | ActionKind::NoListener | ActionKind::NoChain
    )
}

fn is_denied(outcome: &Outcome) -> bool {
    let is_refusal = matches!(outcome.status.as_deref(), Some("401" | "403" | "grpc 7" | "grpc 16"));
    outcome.action == ActionKind::Denied
        || is_refusal && matches!(outcome.action, ActionKind::DirectResponse | ActionKind::Aborted)
}

fn flag(is_it: bool, what: &str) -> String {
    format!("{is_it}: {what}")
}

fn is_flag(got: &str, wanted: bool) -> bool {
    got.strip_prefix(if wanted { "true" } else { "false" }).is_some()
}

fn milliseconds(ms: Option<u64>) -> String {
    ms.map_or_else(|| "none".to_owned(), |ms| xds_units::Span::from_millis(ms).in_seconds())
}

const NOT_FORWARDED: &str = "nothing, because no backend gets it";
