//! A local Envoy that is asked whether it takes resources (`envoy --mode validate`).
//!
//! [`candidate`] says what can be asked, and writes the bootstrap of a question. [`process`] runs the Envoy. This module finds the resources
//! that it refuses: many are asked at once, and a refused question is halved until it is about one resource. The Envoy runs on this machine:
//! it reads the files that resources name, and knows nothing of the bootstraps of clients.

mod candidate;
mod process;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::Resource;

use candidate::{Candidate, bootstrap};
use process::{Envoy, Said};

/// What an Envoy says about resources.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// How many resources it was asked about.
    pub(crate) n_asked: usize,
    /// The resources that it refuses, with its words.
    pub(crate) refused: Vec<(Arc<Resource>, String)>,
    /// Why it did not judge some, if so.
    pub(crate) undecided: Option<String>,
}

/// An Envoy, and the time that it may take.
#[derive(Debug)]
pub(crate) struct Oracle {
    envoy: Envoy,
    ends: Instant,
    n_left: usize,
}

impl Oracle {
    /// Looks for the Envoy.
    ///
    /// # Errors
    ///
    /// If it does not say its version, or no directory can be made for its questions.
    pub(crate) fn new(path: &Path) -> Result<Self, String> {
        let envoy = Envoy::new(path)?;
        Ok(Self { envoy, ends: Instant::now() + MAX_TIME, n_left: MAX_RUNS })
    }

    /// `1.40.0`.
    pub(crate) fn version(&self) -> &str {
        self.envoy.version()
    }

    /// Asks about what one client would be served together.
    pub(crate) fn judge(&mut self, resources: &[Arc<Resource>]) -> Verdict {
        let mut verdict = Verdict::default();
        // What listeners and routes refer to is judged by itself, and stands in for them as an empty cluster.
        let (own, users): (Vec<Candidate>, Vec<Candidate>) =
            resources.iter().filter_map(Candidate::of).partition(Candidate::stands_alone);
        for all in [own, users] {
            verdict.n_asked += all.len();
            for batch in batches(all) {
                let batch: Vec<&Candidate> = batch.iter().collect();
                match self.refused(&batch) {
                    Ok(refused) => {
                        let refused = refused.into_iter();
                        verdict.refused.extend(refused.map(|(one, why)| (Arc::clone(one.resource()), why)));
                    }
                    Err(why) => {
                        verdict.undecided = Some(why);
                        return verdict;
                    }
                }
            }
        }
        verdict
    }

    /// The candidates that it refuses.
    fn refused<'c>(&mut self, all: &[&'c Candidate]) -> Result<Vec<(&'c Candidate, String)>, String> {
        let Some(why) = self.ask(all)? else { return Ok(Vec::new()) };
        if let [one] = all {
            return Ok(vec![(one, why)]);
        }
        let (first, second) = all.split_at(all.len() / 2);
        let mut found = self.refused(first)?;
        found.extend(self.refused(second)?);
        let is_good = |one: &&&'c Candidate| !found.iter().any(|(bad, _)| std::ptr::eq(*bad, **one));
        let first: Vec<&Candidate> = first.iter().filter(is_good).copied().collect();
        let mut second: Vec<&Candidate> = second.iter().filter(is_good).copied().collect();
        // What is left may be refused together, such as two listeners at one address: of two, the later one is told.
        while !first.is_empty() && !second.is_empty() {
            let with = |n: usize| [&*first, second.get(..n).unwrap_or_default()].concat();
            let Some(mut why) = self.ask(&with(second.len()))? else { break };
            let (mut taken, mut refused) = (0, second.len());
            while refused - taken > 1 {
                let middle = taken.midpoint(refused);
                match self.ask(&with(middle))? {
                    Some(words) => (refused, why) = (middle, words),
                    None => taken = middle,
                }
            }
            found.push((second.remove(taken), why));
        }
        Ok(found)
    }

    /// Its words if it refuses these together.
    fn ask(&mut self, all: &[&Candidate]) -> Result<Option<String>, String> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("it takes more than {} s", MAX_TIME.as_secs()));
        }
        self.n_left =
            self.n_left.checked_sub(1).ok_or_else(|| format!("it takes more than {MAX_RUNS} runs"))?;
        match self.envoy.ask(&bootstrap(all), left.min(MAX_RUN))? {
            Said::Taken => Ok(None),
            Said::Refused(why) => Ok(Some(why)),
        }
    }
}

/// Parts of a list that are asked at once.
fn batches(all: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    // Listeners conflict with each other, so those are not parted.
    let mut batches: Vec<Vec<Candidate>> = Vec::new();
    let (together, alone): (Vec<Candidate>, Vec<Candidate>) =
        all.into_iter().partition(Candidate::is_listener);
    batches.extend((!together.is_empty()).then_some(together));
    let mut alone = alone.into_iter().peekable();
    while alone.peek().is_some() {
        batches.push(alone.by_ref().take(MAX_BATCH).collect());
    }
    batches
}

/// All runs together.
const MAX_TIME: Duration = Duration::from_secs(60);

/// One run. 120 configurations take 0.15 s.
const MAX_RUN: Duration = Duration::from_secs(20);

/// Runs of one check. One refused resource among 500 takes about twenty.
const MAX_RUNS: usize = 1_000;

/// Resources of one run, listeners apart.
const MAX_BATCH: usize = 500;
