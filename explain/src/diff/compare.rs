//! Compares two models, and asks both about every example.

use crate::diff::report::{Changes, Class, ClassKind, Findings, Found, MAX_CLASSES, Undecided, name};
use crate::diff::{clusters, listeners};
use crate::explanation::{ActionKind, Explanation};
use crate::model::Model;
use crate::ratio::Ratio;
use crate::request::Request;
use crate::space::split::Budget;

/// The steps that comparisons may take: those of one, unless several share them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort(Budget);

/// Compares what a client does with requests before and after. Both models are of the same client.
#[must_use]
pub fn diff(before: &Model, after: &Model) -> Changes {
    diff_within(before, after, &mut Effort::default())
}

/// The same with the steps that are left of some. What they do not suffice for is undecided.
#[must_use]
pub fn diff_within(before: &Model, after: &Model, effort: &mut Effort) -> Changes {
    let models = [before, after];
    let mut findings = Findings { budget: effort.0, ..Findings::default() };
    listeners::compare(models, &mut findings);
    clusters::compare(models, &mut findings);
    effort.0 = findings.budget;
    conclude(models, findings)
}

fn conclude(models: [&Model; 2], findings: Findings) -> Changes {
    let Findings { mut found, mut undecided, sampled, unchanged_hosts, .. } = findings;
    found.sort_by_cached_key(|one| {
        let example = one.example.as_ref();
        let words = example.map(|request| {
            (request.authority.clone(), request.path.clone(), request.method.clone(), request.headers.clone())
        });
        (one.kind, one.cluster.clone(), words)
    });
    let found = together(found);
    let mut n_classes = found.len();
    let mut classes = Vec::new();
    for one in found {
        if classes.len() == MAX_CLASSES {
            break;
        }
        let about = one.about.clone();
        match one.explained(models) {
            Ok(class) => classes.push(class),
            Err(why) => {
                n_classes -= 1;
                undecided.extend(why.map(|why| Undecided { about, why }));
            }
        }
    }
    undecided.sort_unstable();
    undecided.dedup();
    let client = models[0].client().to_string();
    Changes { client, classes, n_classes, undecided, sampled, unchanged_hosts }
}

/// The same for the same requests of several listeners is one class.
fn together(found: Vec<Found>) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for one in found {
        match all.last_mut().filter(|last| last.is_like(&one)) {
            Some(last) => last.parts = last.parts.saturating_add(one.parts),
            None => all.push(one),
        }
    }
    all
}

impl Found {
    fn is_like(&self, other: &Self) -> bool {
        let bare = |request: &Option<Request>| {
            request.as_ref().map(|request| Request {
                connection: Default::default(),
                scheme: String::new(),
                ..request.clone()
            })
        };
        self.kind == other.kind
            && self.kind != ClassKind::Connection
            && self.what == other.what
            && self.cluster == other.cluster
            && self.shares == other.shares
            && self.when == other.when
            && bare(&self.example) == bare(&other.example)
    }

    /// The class, after the example has been asked of both models; an error is why it is none.
    fn explained(self, models: [&Model; 2]) -> Result<Class, Option<String>> {
        // Filters that refuse the example on both sides would hide where the others of its class go.
        let explanations = self.example.as_ref().map(|example| {
            let example = Request { passes_filters: true, ..example.clone() };
            models.map(|model| model.explain(&example).into_iter().next())
        });
        let [before, after] = explanations.unwrap_or_default();
        if let (Some(before), Some(after)) = (&before, &after)
            && self.kind <= ClassKind::Destination
            && self.when.is_empty()
            && destinations(before) == destinations(after)
        {
            // The example is elsewhere: what was compared depends on something that was left out.
            let is_expected = self.is_linked || self.shares.is_none();
            let example = self.example.as_ref();
            let path = example.map(|request| request.path.clone()).unwrap_or_default();
            return Err((!is_expected).then(|| format!("requests like {path}: the example does not differ")));
        }
        Ok(Class {
            kind: self.kind,
            what: self.what,
            cluster: self.cluster,
            example: self.example,
            share: self.share,
            when: self.when,
            parts: self.parts,
            before,
            after,
        })
    }
}

/// Where a request goes, in a form that can be compared.
fn destinations(explanation: &Explanation) -> Vec<(String, Ratio)> {
    let mut all: Vec<(String, Ratio)> = Vec::new();
    for outcome in explanation.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        let name = match outcome.action {
            // Nothing takes it in both cases.
            ActionKind::NoRoute | ActionKind::NoVirtualHost => String::new(),
            ActionKind::Cluster
            | ActionKind::Redirect
            | ActionKind::DirectResponse
            | ActionKind::Denied
            | ActionKind::Aborted
            | ActionKind::NoChain
            | ActionKind::NoListener
            | ActionKind::RefusedResource
            | ActionKind::Plugin
            | ActionKind::RefusedRequest => name(outcome),
        };
        match all.iter_mut().find(|(own, _)| *own == name) {
            Some((_, sum)) => *sum = sum.plus(outcome.share).unwrap_or(Ratio::ONE),
            None => all.push((name, outcome.share)),
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}
