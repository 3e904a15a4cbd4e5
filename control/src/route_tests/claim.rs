//! Claims about all requests.

use xds_explain::{Counterexample, Destination, Model, always};

use super::expect::{Always, Claim};
use super::judge::is_backend;

/// What was found about a claim.
pub(super) struct Found {
    /// Why it does not hold, or what was not decided; nothing if it holds.
    pub(super) wrong: Vec<String>,
    /// The requests for which it does not hold.
    pub(super) examples: Vec<Counterexample>,
}

pub(super) fn check(claimed: &Always, model: &Model, namespace: &str) -> Found {
    let has =
        |backends: &[String], cluster: &str| backends.iter().any(|name| is_backend(cluster, name, namespace));
    let is_forbidden = |to: Destination<'_>| match (&claimed.claim, to) {
        (Claim::Never { backends, .. }, Destination::Cluster(cluster)) => has(backends, cluster),
        (Claim::Never { backends, .. }, Destination::Named) => !backends.is_empty(),
        (Claim::Never { unmatched, .. }, Destination::Nothing) => *unmatched,
        (Claim::Only { backends }, Destination::Cluster(cluster)) => !has(backends, cluster),
        (Claim::Only { .. }, Destination::Named) => true,
        (Claim::Never { .. }, Destination::Answer)
        | (Claim::Only { .. }, Destination::Answer | Destination::Nothing) => false,
    };
    let searched = always(model, &claimed.region, &is_forbidden);
    let mut wrong: Vec<String> = searched.found.iter().map(|one| say(&claimed.claim, one)).collect();
    // What is proved wrong needs no more proof.
    if wrong.is_empty() {
        let left = searched.undecided.iter().take(MAX_UNDECIDED);
        wrong.extend(left.map(|why| format!("undecided: {why}")));
        let n_more = searched.undecided.len().saturating_sub(MAX_UNDECIDED);
        if n_more > 0 {
            wrong.push(format!("undecided: {n_more} more"));
        }
    }
    Found { wrong, examples: searched.found }
}

fn say(claim: &Claim, one: &Counterexample) -> String {
    let wanted = match claim {
        Claim::Never { .. } => "never",
        Claim::Only { .. } => "only",
    };
    let outcomes = one.explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero());
    let to: Vec<String> = outcomes.map(|outcome| format!("{} {}", outcome.share, outcome.what)).collect();
    format!("{wanted}: {} goes {}", xds_explain::request_text(&one.request), to.join(", "))
}

/// Reasons that are shown.
const MAX_UNDECIDED: usize = 5;
