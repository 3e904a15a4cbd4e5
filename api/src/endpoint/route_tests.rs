//! `/v1/tests`: the outcome of RouteTests on what is served, and the change that they hold.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use xds_control::Tested;
use xds_control::route_tests::{Case, Coverage, CoverageKind, Served, TestPolicy};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::{Asked, Caller};
use crate::endpoint::waves::WaveEntry;
use crate::input::{NoParams, Params};
use crate::problem::ApiError;
use crate::seen::Seen;
use crate::state::{ApiState, aside};
use crate::write::counted;

/// The outcome of RouteTests.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TestList {
    /// The revision that was tested; null before the first time.
    pub revision: Option<u64>,
    /// When it was tested.
    pub tested_at: Option<String>,
    /// How many tests passed.
    pub passed: usize,
    /// How many failed.
    pub failed: usize,
    /// Each test of each client, in the order of documents.
    pub tests: Vec<TestEntry>,
    /// What the requests of all tests touch, for each kind of clients.
    pub coverage: Vec<CoverageEntry>,
    /// The change that RouteTests keep from being published; null if there is none.
    pub held: Option<HeldChange>,
}

/// A change that is accepted and not published.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldChange {
    /// Its id below `/v1/waves`.
    pub wave_deployment: u64,
    /// The first test that it breaks.
    pub reason: String,
    /// The objects that are served as they were before.
    pub objects: Vec<String>,
    /// The tests that it breaks, with where the requests would go; empty for a moment after a restart.
    pub failures: Vec<String>,
}

/// One test of one client.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TestEntry {
    /// The RouteTest.
    pub document: String,
    /// Its name.
    pub test: String,
    /// Its path in the document, such as `spec.tests[0]`.
    pub path: String,
    /// The client, such as `envoy@1.40`; null if there was none to ask.
    pub client: Option<String>,
    /// Whose resources count: `group edge` or `node edge-1`.
    pub of: String,
    /// `tell`, `hold` or `refuse`.
    pub policy: &'static str,
    /// True if what is expected holds.
    pub passed: bool,
    /// Why it failed, one sentence each.
    pub failures: Vec<String>,
    /// Where the requests go for which it failed.
    #[schema(value_type = Vec<Object>)]
    pub explanations: Vec<Value>,
    /// The same as text; empty if it passed.
    pub text: String,
}

/// What the requests of all tests touch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CoverageEntry {
    /// The clients, such as `group default, envoy`.
    pub of: String,
    /// Routes: each match of a rule.
    pub routes: Touched,
    /// Conditions of routes that once decided.
    pub conditions: Touched,
    /// Virtual hosts.
    pub hosts: Touched,
    /// Backends.
    pub backends: Touched,
    /// The same as text.
    pub text: String,
}

/// How many are touched.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Touched {
    /// Those that are touched.
    pub touched: usize,
    /// All.
    pub all: usize,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let policy = state.control.test_policy();
    let tested = state.control.tested();
    let seen = Seen::new(&state, &caller);
    let held = state.control.held_by_tests().filter(|(report, _)| seen.deployment(report));
    let held = held.map(|(report, failures)| HeldChange {
        wave_deployment: report.deployment,
        reason: report.reason.unwrap_or_default(),
        objects: report.objects,
        // Explanations may be about anything.
        failures: failures.iter().filter(|_| seen.is_all()).map(ToString::to_string).collect(),
    });
    let list = aside(move || {
        let Some(tested) = tested else {
            return TestList {
                revision: None,
                tested_at: None,
                passed: 0,
                failed: 0,
                tests: vec![],
                coverage: vec![],
                held,
            };
        };
        shown(&tested, policy, held, &Scoped { caller, seen })
    });
    Answer::ok(&list.await?)
}

/// Publishes what is held.
pub(crate) async fn release(
    State(state): State<ApiState>,
    _: Params<NoParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let done = state.control.release_tests(asked.actor()).await;
    Answer::ok(&WaveEntry::from(&counted(&state.refusals, done)?))
}

/// What a caller sees.
struct Scoped {
    caller: Caller,
    seen: Seen,
}

impl Scoped {
    /// Returns `true` if everything that the clients are served is in scope.
    fn served(&self, served: &Served) -> bool {
        match served {
            Served::Group(group) => self.caller.sees_group(group),
            // Which groups a node has is not asked again.
            Served::Node(_) => self.seen.is_all(),
        }
    }

    fn case(&self, case: &Case) -> bool {
        self.served(&case.served) && self.seen.document(&case.document)
    }
}

fn shown(tested: &Tested, policy: TestPolicy, held: Option<HeldChange>, scope: &Scoped) -> TestList {
    let cases = || tested.report.cases.iter().filter(|case| scope.case(case));
    let passed = cases().filter(|case| case.is_passed()).count();
    let failed = cases().count() - passed;
    let coverage = tested.report.coverage.iter().filter(|((served, _), _)| scope.served(served));
    let coverage = coverage.map(|((served, profile), coverage)| {
        let [routes, conditions, hosts, backends] = CoverageKind::ALL.map(|kind| touched(coverage, kind));
        let text = coverage.to_string();
        CoverageEntry { of: format!("{served}, {profile}"), routes, conditions, hosts, backends, text }
    });
    TestList {
        revision: Some(tested.revision.0),
        tested_at: Some(rfc3339(tested.at)),
        passed,
        failed,
        tests: cases().map(|case| entry(case, policy)).collect(),
        coverage: coverage.collect(),
        held,
    }
}

fn entry(case: &Case, policy: TestPolicy) -> TestEntry {
    let explanations = &case.outcome.explanations;
    let text =
        if explanations.is_empty() { String::new() } else { xds_explain::to_text(explanations, false) };
    TestEntry {
        document: case.document.to_string(),
        test: case.name.clone(),
        path: case.path.clone(),
        client: case.client.map(|client| client.to_string()),
        of: case.served.to_string(),
        policy: case.policy.unwrap_or(policy).as_str(),
        passed: case.is_passed(),
        failures: case.outcome.wrong.clone(),
        explanations: explanations.iter().filter_map(|one| serde_json::to_value(one).ok()).collect(),
        text,
    }
}

fn touched(coverage: &Coverage, kind: CoverageKind) -> Touched {
    let (touched, all) = coverage.count(kind);
    Touched { touched, all }
}
