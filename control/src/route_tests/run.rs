//! Runs RouteTests on what clients are served.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use xds_cache::{GroupName, Groups, Node, Profile, Publisher, View, ViewKey};
use xds_codec::{Diagnostic, Place, Severity};
use xds_explain::{Client, Explanation, Language, Model, Request};
use xds_routes::{Document, DocumentKey, Documents, Kind, Placed};

use super::claim;
use super::coverage::Coverage;
use super::expect::{Always, RouteTest, Test, TestPolicy, Whose};
use super::judge;
use super::read::read;
use crate::acks::view_key_of_group;

/// The clients that a RouteTest is about: what they are served is one view for each kind of client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// Those of this group alone.
    Group(GroupName),
    /// The node with this ID.
    Node(String),
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {group}"),
            Self::Node(id) => write!(f, "node {id}"),
        }
    }
}

/// One test of one client.
#[derive(Clone, Debug)]
pub struct Case {
    /// The RouteTest.
    pub document: DocumentKey,
    /// Its path in the document; empty if the document cannot be read.
    pub path: String,
    /// Where the document begins.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// The clients' groups.
    pub served: Served,
    /// The client; `None` if there was none to ask.
    pub client: Option<Client>,
    /// The policy of the RouteTest, if it has one.
    pub policy: Option<TestPolicy>,
    /// What was found.
    pub outcome: Outcome,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Why it failed, one sentence each; nothing if it passed.
    pub wrong: Vec<String>,
    /// Where the requests go for which it failed, at most a few.
    pub explanations: Vec<Explanation>,
    /// The names of the routes that its requests reach.
    pub routes: BTreeSet<String>,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Each test of each client, in the order of documents.
    pub cases: Vec<Case>,
    /// The coverage of each kind of clients.
    pub coverage: BTreeMap<(Served, Profile), Coverage>,
    /// What was asked.
    views: BTreeMap<(Served, Profile), Arc<View>>,
}

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Those that passed.
    pub passed: usize,
    /// Those that failed.
    pub failed: usize,
}

/// The RouteTests and RouterChecks among documents.
pub fn route_tests(documents: &Documents) -> impl Iterator<Item = &Placed> {
    let first = DocumentKey::before(Kind::RouteTest);
    documents.range(first..).map(|(_, placed)| placed).take_while(|placed| placed.document.key.kind.is_test())
}

/// Runs RouteTests on what a publisher serves.
pub fn run_on<'d>(publisher: &Publisher, tests: impl Iterator<Item = &'d Placed>) -> Report {
    run_loose(publisher, tests, &[])
}

/// Tests that no document says.
#[derive(Clone, Debug)]
pub struct Loose {
    /// What reports call them.
    pub key: DocumentKey,
    /// Where they are.
    pub place: Place,
    /// The group whose clients are asked, unless the tests say it.
    pub group: GroupName,
    /// The tests.
    pub test: RouteTest,
}

/// Runs RouteTests, and tests that no document says, on what a publisher serves.
pub fn run_loose<'d>(
    publisher: &Publisher,
    tests: impl Iterator<Item = &'d Placed>,
    loose: &[Loose],
) -> Report {
    let (_, groups) = publisher.groups();
    let mut asked = Published { publisher, groups: &groups };
    let mut runner = Runner::new(&mut asked);
    for placed in tests {
        runner.document(&placed.document, &placed.group);
    }
    for one in loose {
        runner.tests(&one.key, &one.place, &one.group, Ok(&one.test));
    }
    runner.report
}

/// What RouteTests are run on.
pub(crate) trait Subject {
    /// What clients of a kind are served; `None` for nothing.
    fn view(&mut self, served: &Served, client: Client) -> Option<Arc<View>>;

    /// What a RouteTest says.
    fn read(&mut self, document: &Document) -> Arc<Result<RouteTest, Vec<Diagnostic>>>;

    /// Returns `false` if the outcome is known. Without a request it is that of a claim about all.
    fn wants(&mut self, document: &DocumentKey, asked: (&Served, Client), request: Option<&Request>) -> bool;
}

/// What a publisher serves: everything is run.
struct Published<'p> {
    publisher: &'p Publisher,
    groups: &'p Groups,
}

impl Subject for Published<'_> {
    fn view(&mut self, served: &Served, client: Client) -> Option<Arc<View>> {
        self.publisher.view_at(&served.key(self.publisher, self.groups, client)?)
    }

    fn read(&mut self, document: &Document) -> Arc<Result<RouteTest, Vec<Diagnostic>>> {
        Arc::new(read(&document.place.file, &document.source.tree()))
    }

    fn wants(&mut self, _: &DocumentKey, _: (&Served, Client), _: Option<&Request>) -> bool {
        true
    }
}

impl Served {
    /// The key of what a client is served; `None` if there is no such group.
    pub(crate) fn key(&self, publisher: &Publisher, groups: &Groups, client: Client) -> Option<ViewKey> {
        match self {
            Self::Node(id) => {
                let agent = client.language.user_agent().to_owned();
                let node = Node { user_agent_name: agent, ..Node::with_id(id) };
                Some(publisher.view_of(&node)?.key().clone())
            }
            Self::Group(group) if !group.is_default() && !groups.contains_key(group) => None,
            Self::Group(group) => Some(view_key_of_group(group, client.language.profile())),
        }
    }
}

/// Runs RouteTests on a subject.
pub(crate) fn run<'d>(tests: impl Iterator<Item = &'d Placed>, subject: &mut dyn Subject) -> Report {
    let mut runner = Runner::new(subject);
    for placed in tests {
        runner.document(&placed.document, &placed.group);
    }
    runner.report
}

struct Runner<'r> {
    subject: &'r mut dyn Subject,
    /// By client; `None` if it is served nothing.
    models: BTreeMap<(Served, Client), Option<Arc<Model>>>,
    /// The clients of which everything that they can touch was added to the coverage.
    covered: BTreeSet<(Served, Client)>,
    report: Report,
}

impl<'r> Runner<'r> {
    fn new(subject: &'r mut dyn Subject) -> Self {
        Self { subject, models: BTreeMap::new(), covered: BTreeSet::new(), report: Report::default() }
    }

    fn document(&mut self, document: &Document, group: &GroupName) {
        let read = self.subject.read(document);
        self.tests(&document.key, &document.place, group, (*read).as_ref());
    }

    fn tests(
        &mut self,
        document: &DocumentKey,
        place: &Place,
        group: &GroupName,
        read: Result<&RouteTest, &Vec<Diagnostic>>,
    ) {
        let blank = |served: Served, policy| Case {
            document: document.clone(),
            path: String::new(),
            place: place.clone(),
            name: String::new(),
            served,
            client: None,
            policy,
            outcome: Outcome::default(),
        };
        let test = match read {
            Ok(test) => test,
            Err(faults) => {
                let wrong = faults.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
                let outcome = Outcome { wrong, ..Outcome::default() };
                self.report.cases.push(Case { outcome, ..blank(Served::Group(group.clone()), None) });
                return;
            }
        };
        let served = match &test.whose {
            Whose::Own => Served::Group(group.clone()),
            Whose::Group(group) => Served::Group(group.clone()),
            Whose::Node(id) => Served::Node(id.clone()),
        };
        let blank = blank(served, test.policy);
        let namespace = &document.namespace;
        for one in &test.tests {
            let blank = Case { name: one.name.clone(), path: one.path.clone(), ..blank.clone() };
            self.requests(test, one, &blank, namespace);
        }
        for claimed in &test.always {
            let blank = Case { name: claimed.name.clone(), path: claimed.path.clone(), ..blank.clone() };
            self.claim(test, claimed, &blank, namespace);
        }
    }

    /// Returns `false`, and says so, if there were too many tests already.
    fn goes_on(&mut self, blank: &Case) -> bool {
        if self.report.cases.len() < MAX_CASES {
            return true;
        }
        if self.report.cases.len() == MAX_CASES {
            let wrong = vec![format!("not run: there are more than {MAX_CASES} tests; delete some")];
            let outcome = Outcome { wrong, ..Outcome::default() };
            self.report.cases.push(Case { outcome, ..blank.clone() });
        }
        false
    }

    fn requests(&mut self, route_test: &RouteTest, test: &Test, blank: &Case, namespace: &str) {
        let mut asked: Vec<(Client, Vec<Explanation>)> = Vec::new();
        let senders = senders(route_test, test);
        // Which clients can reach the host is a matter of all of them.
        let is_wanted = |client: &Client| {
            self.subject.wants(&blank.document, (&blank.served, *client), Some(&test.request))
        };
        if !senders.iter().any(is_wanted) {
            return;
        }
        for client in senders {
            if !self.goes_on(blank) {
                return;
            }
            let Some(model) = self.model(&blank.served, client) else { continue };
            asked.push((client, model.explain(&test.request)));
        }
        if route_test.clients.is_none() {
            // By default those that can reach the host, if there are any.
            let reaches =
                |all: &[Explanation]| all.iter().any(|one| one.virtual_host.is_some() || one.is_routed());
            if asked.iter().any(|(_, all)| reaches(all)) {
                asked.retain(|(_, all)| reaches(all));
            } else {
                asked.truncate(1);
            }
        }
        if asked.is_empty() {
            self.nobody(blank);
        }
        for (client, explanations) in asked {
            let mut outcome = Outcome::default();
            self.cover(&blank.served, client, &explanations);
            let is_one = explanations.len() == 1;
            for explanation in explanations {
                outcome.routes.extend(routes(&explanation));
                let wrong = judge::mismatches(test, &explanation, client, namespace);
                let listener = explanation.listener.as_ref().filter(|_| !is_one);
                let at = listener.map(|one| format!("listener {}: ", one.element.name)).unwrap_or_default();
                if !wrong.is_empty() && outcome.explanations.len() < MAX_EXPLANATIONS {
                    outcome.wrong.extend(wrong.into_iter().map(|wrong| format!("{at}{wrong}")));
                    outcome.explanations.push(explanation);
                }
            }
            self.report.cases.push(Case { client: Some(client), outcome, ..blank.clone() });
        }
    }

    fn cover(&mut self, served: &Served, client: Client, explanations: &[Explanation]) {
        let coverage = self.report.coverage.entry((served.clone(), client.language.profile())).or_default();
        if self.covered.insert((served.clone(), client))
            && let Some(Some(model)) = self.models.get(&(served.clone(), client))
        {
            coverage.add_model(model);
        }
        explanations.iter().for_each(|one| coverage.add(one));
    }

    fn claim(&mut self, route_test: &RouteTest, claimed: &Always, blank: &Case, namespace: &str) {
        let all = || [Profile::Envoy, Profile::Grpc].into_iter().flat_map(Client::newest_of).collect();
        let clients: Vec<Client> = route_test.clients.clone().unwrap_or_else(all);
        let mut is_asked = false;
        for client in clients {
            if !self.goes_on(blank) {
                return;
            }
            if !self.subject.wants(&blank.document, (&blank.served, client), None) {
                is_asked = true;
                continue;
            }
            let Some(model) = self.model(&blank.served, client) else { continue };
            is_asked = true;
            let claim::Found { wrong, examples } = claim::check(claimed, &model, namespace);
            let explanations: Vec<Explanation> = examples.into_iter().map(|one| one.explanation).collect();
            let routes = explanations.iter().flat_map(routes).collect();
            let outcome = Outcome { wrong, explanations, routes };
            self.report.cases.push(Case { client: Some(client), outcome, ..blank.clone() });
        }
        if !is_asked {
            self.nobody(blank);
        }
    }

    fn nobody(&mut self, blank: &Case) {
        let wrong = vec![format!("nothing is served to the {}", blank.served)];
        let outcome = Outcome { wrong, ..Outcome::default() };
        self.report.cases.push(Case { outcome, ..blank.clone() });
    }

    fn model(&mut self, served: &Served, client: Client) -> Option<Arc<Model>> {
        if let Some(known) = self.models.get(&(served.clone(), client)) {
            return known.clone();
        }
        let key = (served.clone(), client.language.profile());
        let known = self.report.views.get(&key).cloned();
        let view = known.or_else(|| self.subject.view(served, client));
        let model = view.map(|view| {
            let model = Arc::new(Model::of_view(&view, client));
            self.report.views.insert(key, view);
            model
        });
        self.models.insert((served.clone(), client), model.clone());
        model
    }
}

/// The clients that send the request of a test.
fn senders(route_test: &RouteTest, test: &Test) -> Vec<Client> {
    let profiles: &[Profile] = match (test.is_target, test.is_call) {
        (true, _) => &[Profile::Grpc],
        (false, true) => &[Profile::Envoy, Profile::Grpc],
        (false, false) => &[Profile::Envoy],
    };
    match &route_test.clients {
        None => profiles.iter().flat_map(|profile| Client::newest_of(*profile)).collect(),
        Some(clients) => {
            let mut clients = clients.clone();
            clients.retain(|client| profiles.contains(&Language::profile(client.language)));
            clients
        }
    }
}

/// The names of the routes that get a share.
fn routes(explanation: &Explanation) -> Vec<String> {
    let chosen: BTreeSet<usize> = explanation
        .outcomes
        .iter()
        .filter(|outcome| !outcome.share.is_zero())
        .filter_map(|outcome| outcome.route)
        .collect();
    let routes = explanation.routes.iter().filter(|route| chosen.contains(&route.index));
    routes.map(|route| route.element.name.clone()).filter(|name| !name.is_empty()).collect()
}

impl Report {
    /// Fills in the places of explanations, with one call for each view.
    pub fn locate(&mut self, mut locate: impl FnMut(&View, &mut [Explanation])) {
        for (key, view) in &self.views {
            let is_of_view = |case: &&mut Case| {
                case.served == key.0 && case.client.is_some_and(|client| client.language.profile() == key.1)
            };
            let mut lists: Vec<&mut Vec<Explanation>> =
                self.cases.iter_mut().filter(is_of_view).map(|case| &mut case.outcome.explanations).collect();
            let counts: Vec<usize> = lists.iter().map(|list| list.len()).collect();
            let mut all: Vec<Explanation> = lists.iter_mut().flat_map(|list| std::mem::take(*list)).collect();
            locate(view, &mut all);
            let mut all = all.into_iter();
            for (list, n) in lists.into_iter().zip(counts) {
                list.extend(all.by_ref().take(n));
            }
        }
    }

    /// Drops what was asked; explanations get no places any more.
    pub fn forget_views(&mut self) {
        self.views.clear();
    }

    /// The view of a kind of clients.
    #[must_use]
    pub fn view(&self, served: &Served, profile: Profile) -> Option<&Arc<View>> {
        self.views.get(&(served.clone(), profile))
    }

    /// How many tests passed and failed.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let failed = self.failed().count();
        Totals { passed: self.cases.len() - failed, failed }
    }

    /// The tests that failed; those that failed in the same way for several clients are one.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure<'_>> {
        let mut all: Vec<Failure<'_>> = Vec::new();
        for case in self.failed() {
            let same = |other: &&&Case| {
                (&case.document, &case.path, &case.outcome.wrong)
                    == (&other.document, &other.path, &other.outcome.wrong)
            };
            // Tests of one document stand together.
            let is_of_document = |one: &&mut Failure<'_>| {
                one.cases.first().is_some_and(|first| first.document == case.document)
            };
            let mut of_document = all.iter_mut().rev().take_while(is_of_document);
            match of_document.find(|one| one.cases.first().as_ref().is_some_and(same)) {
                Some(one) => one.cases.push(case),
                None => all.push(Failure { cases: vec![case] }),
            }
        }
        all
    }

    /// The tests that failed, of each client.
    pub fn failed(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !case.is_passed())
    }
}

impl Case {
    /// Returns `true` if the expectation holds.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.outcome.wrong.is_empty()
    }
}

/// A test that failed in the same way for some clients.
#[derive(Clone, Debug)]
pub struct Failure<'r> {
    /// The test of each of them; at least one.
    pub cases: Vec<&'r Case>,
}

impl Failure<'_> {
    /// `RouteTest shop/cart: beta users`, with the clients.
    #[must_use]
    pub fn title(&self) -> String {
        let Some(first) = self.cases.first() else { return String::new() };
        let clients: Vec<String> =
            self.cases.iter().filter_map(|case| Some(case.client?.to_string())).collect();
        let clients = if clients.is_empty() { String::new() } else { format!(" ({})", clients.join(", ")) };
        match &*first.name {
            "" => format!("{}{clients}", first.document),
            name => format!("{}: {name}{clients}", first.document),
        }
    }

    /// Why it failed, in one line.
    #[must_use]
    pub fn why(&self) -> String {
        self.cases.first().map(|case| case.outcome.wrong.join("; ")).unwrap_or_default()
    }

    /// Where the requests go.
    #[must_use]
    pub fn explanations(&self) -> Vec<Explanation> {
        self.cases.iter().flat_map(|case| case.outcome.explanations.iter().cloned()).collect()
    }

    /// The failure at its place in the document.
    #[must_use]
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        let first = self.cases.first()?;
        Some(Diagnostic {
            severity: Severity::Error,
            code: "route-test-failed",
            place: first.place.clone(),
            path: first.path.clone(),
            message: format!("{}: {}", self.title(), self.why()),
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        })
    }
}

/// Tests of all RouteTests and clients in one run. A test takes less than a millisecond.
const MAX_CASES: usize = 20_000;

/// Explanations of one failure.
const MAX_EXPLANATIONS: usize = 3;
