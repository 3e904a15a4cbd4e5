//! Checks every fallback.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fallback, FallbackFault, MAX_PATH, Verdict, shortened};
use crate::conditions::ConditionReason;
use crate::input::of_kinds;
use crate::model::{Backend, BackendMember, BackendSource, Document, DocumentKey, Kind, Spec};
use crate::plan::backends::Referent;
use crate::plan::lookup::Lookup;

/// Judges every fallback.
pub(crate) fn verdicts<'d>(lookup: &Lookup<'d>) -> BTreeMap<&'d DocumentKey, Verdict> {
    let mut walk = Walk { lookup, done: BTreeMap::new(), path: Vec::new(), on_path: BTreeSet::new() };
    for (_, placed) in of_kinds(lookup.documents, Kind::Backend..=Kind::Backend) {
        if let Some((backend, members)) = fallback(&placed.document) {
            walk.judge(&placed.document, backend, members);
        }
    }
    walk.done
}

/// A depth-first walk with its own stack instead of recursion, because documents may nest to any depth.
struct Walk<'l, 'd> {
    lookup: &'l Lookup<'d>,
    done: BTreeMap<&'d DocumentKey, Verdict>,
    path: Vec<Step<'d>>,
    on_path: BTreeSet<&'d DocumentKey>,
}

/// A fallback on the path, with its intermediate results.
struct Step<'d> {
    document: &'d Document,
    name: String,
    /// The members that are still to be checked.
    members: &'d [BackendMember],
    says_http2: bool,
    found: Fallback,
}

/// The target of a member.
enum Below<'d> {
    Known(String, Fallback),
    /// A fallback that must be judged first.
    Unknown(&'d Document, &'d Backend, &'d [BackendMember]),
}

impl<'d> Walk<'_, 'd> {
    fn judge(&mut self, document: &'d Document, backend: &'d Backend, members: &'d [BackendMember]) {
        if !self.done.contains_key(&document.key) {
            self.enter(document, backend, members);
        }
        while let Some(step) = self.path.last() {
            let Some((member, rest)) = step.members.split_first() else {
                let verdict = step.verdict();
                self.leave(verdict);
                continue;
            };
            match self.look_at(step, member) {
                Ok(Below::Unknown(document, backend, members)) => self.enter(document, backend, members),
                Ok(Below::Known(name, below)) => {
                    if let Some(step) = self.path.last_mut() {
                        step.members = rest;
                        step.take(name, below);
                    }
                }
                Err(fault) => self.leave(Err(fault)),
            }
        }
    }

    fn enter(&mut self, document: &'d Document, backend: &'d Backend, members: &'d [BackendMember]) {
        let name = Referent::Backend { document, backend }.cluster_name();
        let found = Fallback { members: Vec::new(), is_http2: true, longest_path: vec![name.clone()] };
        self.on_path.insert(&document.key);
        self.path.push(Step { document, name, members, says_http2: backend.is_http2, found });
    }

    fn leave(&mut self, verdict: Verdict) {
        if let Some(step) = self.path.pop() {
            self.on_path.remove(&step.document.key);
            self.done.insert(&step.document.key, verdict);
        }
    }

    /// The target of a step's member; a fault if it does not exist or closes a cycle.
    fn look_at(&self, step: &Step<'d>, member: &BackendMember) -> Result<Below<'d>, FallbackFault> {
        let referent = self.lookup.referent(&step.document.key, &member.object).map_err(|problem| {
            let missing = format!("{}/{}", member.object.namespace, member.object.name);
            let path = vec![step.name.clone(), missing];
            FallbackFault { reason: problem.reason, path, what: problem.message, is_cycle: false }
        })?;
        let name = referent.cluster_name();
        let document = referent.document();
        let Some((backend, members)) = fallback(document) else {
            let is_http2 = self.lookup.speaks_http2(&referent);
            let leaf = Fallback { members: Vec::new(), is_http2, longest_path: vec![name.clone()] };
            return Ok(Below::Known(name, leaf));
        };
        if self.on_path.contains(&document.key) {
            let from = self.path.iter().position(|step| step.document.key == document.key);
            let cycle = self.path.iter().skip(from.unwrap_or_default()).map(|step| step.name.clone());
            let path = shortened(cycle.chain([name]).collect());
            let what = "fallbacks must not form a cycle".to_owned();
            return Err(FallbackFault {
                reason: ConditionReason::BackendNotFound,
                path,
                what,
                is_cycle: true,
            });
        }
        match self.done.get(&document.key) {
            Some(Ok(below)) => Ok(Below::Known(name, below.clone())),
            Some(Err(fault)) => Err(fault.above(&step.name)),
            None => Ok(Below::Unknown(document, backend, members)),
        }
    }
}

impl Step<'_> {
    fn take(&mut self, name: String, below: Fallback) {
        let found = &mut self.found;
        found.is_http2 &= below.is_http2;
        if below.longest_path.len() >= found.longest_path.len() {
            found.longest_path = std::iter::once(self.name.clone()).chain(below.longest_path).collect();
        }
        if !found.members.contains(&name) {
            found.members.push(name);
        }
    }

    /// The verdict if every member can be used.
    fn verdict(&self) -> Verdict {
        let n_clusters = self.found.longest_path.len();
        if n_clusters <= MAX_PATH {
            return Ok(Fallback { is_http2: self.says_http2 || self.found.is_http2, ..self.found.clone() });
        }
        let what = format!(
            "a chain of fallbacks can have at most {MAX_PATH} clusters, and this one has {n_clusters}"
        );
        let path = self.found.longest_path.clone();
        Err(FallbackFault { reason: ConditionReason::BackendNotFound, path, what, is_cycle: false })
    }
}

/// The members of a fallback; `None` for every other document.
fn fallback(document: &Document) -> Option<(&Backend, &[BackendMember])> {
    let Spec::Backend(backend) = &document.spec else { return None };
    match &backend.source {
        BackendSource::Fallback(members) => Some((backend, members)),
        BackendSource::Endpoints(_) => None,
    }
}
