//! RouteTests that a change must not break: those with the policy `refuse`.

use std::collections::BTreeSet;

use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups, Publisher, Revision};
use xds_codec::Diagnostic;
use xds_routes::model::Spec;
use xds_routes::{Document, DocumentKey, Placed};

use crate::accepted::Accepted;
use crate::env::Env;
use crate::model::document::DocumentState;
use crate::model::{Write, WriteError};
use crate::route_tests::{Case, Failure, TestPolicy, route_tests, run_on};

/// Refuses a write that breaks a RouteTest with the policy `refuse`.
///
/// # Errors
///
/// [`WriteError::Invalid`] with everything that it breaks.
pub(crate) fn refuse(
    env: &Env,
    accepted: &Accepted,
    write: &Write,
    (documents, groups): (&DocumentState, &Groups),
) -> Result<(), WriteError> {
    let broken = if is_of_server(write) { vec![] } else { broken(env, accepted, documents, groups) };
    if broken.is_empty() { Ok(()) } else { Err(WriteError::Invalid(broken)) }
}

/// Returns `true` for writes that must not be refused, because the server makes them in the course of something that was accepted: a
/// rollout must always be able to go back.
fn is_of_server(write: &Write) -> bool {
    match write {
        Write::StepRollouts { .. } | Write::EndOverrides => true,
        Write::PutGroup(_)
        | Write::DeleteGroup(_)
        | Write::ReplaceResources { .. }
        | Write::PutResource { .. }
        | Write::DeleteResource { .. }
        | Write::ApplyDocuments { .. }
        | Write::DeleteDocument { .. }
        | Write::ChangeWeights { .. }
        | Write::Rollback { .. }
        | Write::Revert { .. } => false,
    }
}

/// The RouteTests with the policy `refuse` that the change would break, as errors. A test that fails already, in the same way, is not
/// broken by the change: it would otherwise be in the way of every repair.
///
/// Runs only those whose documents or groups the change concerns. Costs nothing if there are none.
pub(crate) fn broken(
    env: &Env,
    accepted: &Accepted,
    documents: &DocumentState,
    groups: &Groups,
) -> Vec<Diagnostic> {
    let known = &accepted.documents.translated.documents;
    let changed: BTreeSet<&GroupName> = differing(&accepted.groups, groups).into_iter().collect();
    let is_required = |placed: &&Placed| policy(env, &placed.document) == TestPolicy::Refuse;
    let is_new = |placed: &Placed| {
        known.get(&placed.document.key).is_none_or(|old| old.document.source != placed.document.source)
    };
    let concerned: Vec<&Placed> = route_tests(&documents.translated.documents)
        .filter(is_required)
        .filter(|placed| !changed.is_empty() || is_new(placed))
        .collect();
    if concerned.is_empty() {
        return vec![];
    }
    let next = Publisher::new();
    next.publish(Revision(1), groups.clone());
    let after = run_on(&next, concerned.iter().copied());
    if after.failures().is_empty() {
        return vec![];
    }
    let failing: BTreeSet<&DocumentKey> = after.failed().map(|case| &case.document).collect();
    let already = route_tests(known).filter(|placed| failing.contains(&placed.document.key));
    let before = Publisher::new();
    before.publish(Revision(1), accepted.groups.clone());
    let before = run_on(&before, already);
    let is_known = |case: &&Case| {
        before.failed().any(|old| {
            (&old.document, &old.name, old.client, &old.outcome.wrong)
                == (&case.document, &case.name, case.client, &case.outcome.wrong)
        })
    };
    let failures = after
        .failures()
        .into_iter()
        .map(|failure| Failure { cases: failure.cases.into_iter().filter(|case| !is_known(case)).collect() });
    failures.filter_map(|failure| explained(&failure)).take(MAX_BROKEN).collect()
}

/// The failure as an error, with where the requests go.
fn explained(failure: &Failure<'_>) -> Option<Diagnostic> {
    let mut diagnostic = failure.diagnostic()?;
    let explanations = failure.explanations();
    if !explanations.is_empty() {
        diagnostic.message.push('\n');
        diagnostic.message.push_str(xds_explain::to_text(&explanations, false).trim_end());
    }
    Some(diagnostic)
}

/// What happens to a change that breaks the RouteTest.
fn policy(env: &Env, document: &Document) -> TestPolicy {
    let Spec::RouteTest { policy } = &document.spec else { return TestPolicy::Tell };
    let own = policy.as_ref().and_then(|policy| policy.parse().ok());
    own.unwrap_or(env.options.test_policy)
}

/// Failures that one change reports.
const MAX_BROKEN: usize = 20;
