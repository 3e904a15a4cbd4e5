//! RouteTests that a change must not break: those with the policies `refuse` and `hold`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_access::Scope;
use xds_cache::layer::{EffectiveGroup, differing};
use xds_cache::{GroupName, Groups, Preview, Profile, Publisher, Revision, View, ViewKey};
use xds_codec::{Diagnostic, Place};
use xds_explain::{Client, Request, Touched};
use xds_routes::model::Spec;
use xds_routes::{Document, DocumentKey, Placed};

use crate::accepted::Accepted;
use crate::differing::differing as changes;
use crate::env::Env;
use crate::model::Texts;
use crate::model::document::{DocumentState, namespace};
use crate::model::weights::{RuleKey, WeightedObject};
use crate::places::Places;
use crate::route_tests::{Case, Failure, RouteTest, Served, Subject, TestPolicy, route_tests, run, run_on};

/// A state of everything.
#[derive(Clone, Copy)]
pub(crate) struct State<'s> {
    pub(crate) documents: &'s DocumentState,
    pub(crate) groups: &'s Groups,
}

/// The RouteTests that a change breaks.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    /// Those with the policy `refuse`.
    pub(crate) refuse: Vec<BrokenTest>,
    /// Those with the policy `hold`.
    pub(crate) hold: Vec<BrokenTest>,
}

/// A RouteTest that a change breaks.
#[derive(Clone, Debug)]
pub(crate) struct BrokenTest {
    document: DocumentKey,
    /// The group of the document.
    group: GroupName,
    served: Served,
    /// What fails, with where the requests go.
    pub(crate) diagnostic: Diagnostic,
}

impl Broken {
    pub(crate) fn is_empty(&self) -> bool {
        self.refuse.is_empty() && self.hold.is_empty()
    }

    pub(crate) fn all(self) -> Vec<BrokenTest> {
        [self.refuse, self.hold].concat()
    }
}

impl BrokenTest {
    /// What a caller is told of it: where requests of clients out of scope go is left out, and of a test out of scope everything.
    pub(crate) fn told_to(&self, scope: Option<&Scope>) -> Diagnostic {
        let Some(scope) = scope else { return self.diagnostic.clone() };
        if !scope.has_document(namespace(&self.document), Some(&self.group)) {
            let place = Place { file: "".into(), line: 0, column: 0 };
            let message = "a RouteTest out of scope fails".to_owned();
            return Diagnostic { place, message, path: String::new(), ..self.diagnostic.clone() };
        }
        // Which groups a node has is not asked again.
        if matches!(&self.served, Served::Group(group) if scope.has_group(group.as_str())) {
            return self.diagnostic.clone();
        }
        let message = format!("{} fails for clients that may be out of scope", self.document);
        Diagnostic { message, ..self.diagnostic.clone() }
    }
}

/// What callers are told of the RouteTests that a change breaks.
pub(crate) fn told(broken: &[BrokenTest], scope: Option<&Scope>) -> Vec<Diagnostic> {
    broken.iter().map(|broken| broken.told_to(scope)).collect()
}

impl<'s> From<&'s Accepted> for State<'s> {
    fn from(accepted: &'s Accepted) -> Self {
        Self { documents: &accepted.documents, groups: &accepted.groups }
    }
}

/// The RouteTests with the policies `refuse` and `hold` that fail in the `state` after a change, and not `before` it in the same way: a test that fails
/// already would otherwise be in the way of every repair. `cohort` is that of the published views that have the state before.
///
/// Runs only the tests that are new, and those whose requests the change may concern. Costs nothing if no group differs. A test of a caller
/// with a scope counts only if the change touches something in that scope.
pub(crate) fn broken(env: &Env, before: State<'_>, state: State<'_>, cohort: u32) -> Broken {
    let State { documents, groups } = state;
    let known = &before.documents.translated.documents;
    let is_new = |placed: &Placed| {
        known
            .get(&placed.document.key)
            .is_none_or(|old| old.group != placed.group || old.document.source != placed.document.source)
    };
    let is_unchanged = differing(before.groups, groups).is_empty();
    let required = route_tests(&documents.translated.documents)
        .filter(|placed| policy(env, &placed.document) != TestPolicy::Tell);
    let (required, new): (Vec<&Placed>, Vec<bool>) = required
        .map(|placed| (placed, is_new(placed)))
        .filter(|(_, is_new)| *is_new || !is_unchanged)
        .unzip();
    if required.is_empty() {
        return Broken::default();
    }
    let new = required.iter().zip(new).filter(|(_, is_new)| *is_new);
    let new: BTreeSet<&DocumentKey> = new.map(|(placed, _)| &placed.document.key).collect();
    let mut changed = Changed { env, groups, cohort, new, compared: BTreeMap::new() };
    let mut after = run(required.iter().copied(), &mut changed);
    env.route_tests.forget_others(&required);
    if after.failures().is_empty() {
        return Broken::default();
    }
    let owned = &documents.owned;
    let (documents, texts) = (&documents.translated.documents, Texts::default());
    after.locate(|view, explanations| Places { view, documents, texts: &texts }.locate(explanations));
    let failing: BTreeSet<&DocumentKey> = after.failed().map(|case| &case.document).collect();
    let already = route_tests(known).filter(|placed| failing.contains(&placed.document.key));
    let publisher = Publisher::new();
    publisher.publish(Revision(1), before.groups.clone());
    let before_run = run_on(&publisher, already);
    let known: BTreeSet<_> = before_run.failed().map(in_its_way).collect();
    let is_known = |case: &&Case| known.contains(&in_its_way(case));
    let mut broken = Broken::default();
    for failure in after.failures() {
        let cases: Vec<&Case> = failure.cases.into_iter().filter(|case| !is_known(case)).collect();
        let Some(first) = cases.first() else { continue };
        let author = owned.get(&first.document).and_then(|test| test.scope.as_deref());
        if author.is_some_and(|author| !is_in_scope(author, before, state)) {
            continue;
        }
        let (document, served) = (first.document.clone(), first.served.clone());
        let group = documents.get(&document).map(|placed| placed.group.clone());
        let group = group.unwrap_or_else(GroupName::default_group);
        let policy = cases.iter().map(|case| case.policy.unwrap_or(env.options.test_policy)).max();
        let list = match policy {
            Some(TestPolicy::Refuse) => &mut broken.refuse,
            Some(TestPolicy::Hold) => &mut broken.hold,
            Some(TestPolicy::Tell) | None => continue,
        };
        if list.len() < MAX_BROKEN {
            let diagnostic = explained(&Failure { cases });
            list.extend(diagnostic.map(|diagnostic| BrokenTest { document, group, served, diagnostic }));
        }
    }
    broken
}

/// Returns `true` if two states differ in a group, a raw resource, a document or an override in scope.
fn is_in_scope(scope: &Scope, before: State<'_>, after: State<'_>) -> bool {
    let is_same_group = |old: &EffectiveGroup, new: &EffectiveGroup| {
        old.definition == new.definition && old.resources == new.resources
    };
    let has_group = |name: &GroupName| {
        let [old, new] = [before, after].map(|state| state.groups.get(name));
        scope.has_group(name.as_str()) && !old.zip(new).is_some_and(|(old, new)| is_same_group(old, new))
    };
    let [old, new] = [before, after].map(|state| &state.documents.translated.documents);
    let has = |key: &DocumentKey, placed: Option<&Placed>| {
        placed.is_some_and(|placed| scope.has_document(namespace(key), Some(&placed.group)))
    };
    // Where a document is written does not count.
    let is_same =
        |old: &Placed, new: &Placed| old.group == new.group && old.document.source == new.document.source;
    let has_document = |(key, old, new): (&DocumentKey, Option<&Placed>, Option<&Placed>)| {
        !old.zip(new).is_some_and(|(old, new)| is_same(old, new)) && (has(key, old) || has(key, new))
    };
    let [laid, laid_now] = [before, after].map(|state| &*state.documents.weights);
    let has_override = |key: &RuleKey| match &key.object {
        WeightedObject::Document(document) => {
            has(document, old.get(document)) || has(document, new.get(document))
        }
        WeightedObject::Routes(group, _) => scope.has_group(group.as_str()),
    };
    let mut overridden = laid.keys().chain(laid_now.keys()).filter(|key| laid.get(key) != laid_now.get(key));
    differing(before.groups, after.groups).into_iter().any(has_group)
        || changes(old, new).any(has_document)
        || overridden.any(has_override)
}

/// What clients would be served, and what of that is different.
type Compared = (Arc<View>, Touched);

/// What would be published, compared with what is.
struct Changed<'c> {
    env: &'c Env,
    groups: &'c Groups,
    /// The cohort of the published views.
    cohort: u32,
    /// The RouteTests of which the outcome is not known.
    new: BTreeSet<&'c DocumentKey>,
    /// By client; `None` if it would be served nothing.
    compared: BTreeMap<(Served, Profile), Option<Compared>>,
}

impl Changed<'_> {
    fn compare(&mut self, served: &Served, client: Client) -> Option<&Compared> {
        let Self { env, groups, cohort, .. } = *self;
        let compare = || {
            let publisher = &env.parts.publisher;
            let key = ViewKey { cohort, ..served.key(publisher, groups, client)? };
            let Preview { before, after, drained } = publisher.preview(&key, groups, Instant::now())?;
            // What is only kept for a while does not count.
            let after = drained.map_or(after, |(_, drained)| drained);
            let touched = Touched::between(&before, &after);
            Some((after, touched))
        };
        self.compared.entry((served.clone(), client.language.profile())).or_insert_with(compare).as_ref()
    }
}

impl Subject for Changed<'_> {
    fn view(&mut self, served: &Served, client: Client) -> Option<Arc<View>> {
        self.compare(served, client).map(|(view, _)| Arc::clone(view))
    }

    fn read(&mut self, document: &Document) -> Arc<Result<RouteTest, Vec<Diagnostic>>> {
        self.env.route_tests.read(document)
    }

    fn wants(
        &mut self,
        document: &DocumentKey,
        (served, client): (&Served, Client),
        request: Option<&Request>,
    ) -> bool {
        if self.new.contains(document) {
            return true;
        }
        match (self.compare(served, client), request) {
            (Some((_, touched)), Some(request)) => touched.takes(request),
            (Some((_, touched)), None) => !touched.is_nothing(),
            (None, _) => true,
        }
    }
}

/// A test of a client, and how it fails.
fn in_its_way(case: &Case) -> (&DocumentKey, &str, Option<Client>, &[String]) {
    (&case.document, &case.name, case.client, &case.outcome.wrong)
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
