//! Finds the resources that an Envoy refuses: many are asked at once, and a refused question is halved until it is about one resource.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::Resource;

use super::candidate::{Candidate, bootstrap};
use super::process::{Envoy, Said};

/// What an Envoy says about resources.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How many resources it was asked about.
    pub n_asked: usize,
    /// The resources that it refuses.
    pub refused: Vec<Refusal>,
    /// The resources that it takes.
    pub taken: Vec<Arc<Resource>>,
    /// Why it did not judge some, if so.
    pub undecided: Option<String>,
}

/// A resource that an Envoy refuses.
#[derive(Debug)]
pub struct Refusal {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Its words.
    pub why: String,
    /// True if it refuses the resource only together with others.
    pub is_of_conflict: bool,
}

/// What an end without an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The resource is refused: an Envoy that is served it would end, too.
    Refuses,
    /// Nothing: the program may be at fault.
    Undecided,
}

/// An Envoy, and what it may take.
#[derive(Debug)]
pub struct Oracle {
    /// The program.
    pub envoy: Envoy,
    /// What it may take.
    pub bounds: Bounds,
    /// How often it ran within these bounds.
    pub n_runs: usize,
    /// How often it answered.
    pub n_answers: usize,
}

/// What the answers about some resources may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// When they were asked for.
    pub begun: Instant,
    /// How long all runs together may take.
    pub time: Duration,
    /// How many runs there may be.
    pub n_runs: usize,
    /// What an end without an answer means.
    pub crash: Crash,
}

impl Oracle {
    /// Looks for the Envoy.
    ///
    /// # Errors
    ///
    /// If it does not say its version, or no directory can be made for its questions.
    pub fn new(path: &Path) -> Result<Self, String> {
        let envoy = Envoy::new(path, &std::env::temp_dir(), MAX_VERSION)?;
        let bounds =
            Bounds { begun: Instant::now(), time: MAX_TIME, n_runs: MAX_RUNS, crash: Crash::Refuses };
        Ok(Self { envoy, bounds, n_runs: 0, n_answers: 0 })
    }

    /// `1.40.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.envoy.version()
    }

    /// Asks about what one client would be served together.
    pub fn judge(&mut self, resources: &[Arc<Resource>]) -> Verdict {
        let mut verdict = Verdict::default();
        // What listeners and routes refer to is judged by itself, and stands in for them as an empty cluster.
        let (own, users): (Vec<Candidate>, Vec<Candidate>) =
            resources.iter().filter_map(Candidate::of).partition(Candidate::stands_alone);
        for all in [own, users] {
            verdict.n_asked += all.len();
            for batch in batches(all) {
                let batch: Vec<&Candidate> = batch.iter().collect();
                let mut found = Vec::new();
                let asked = self.refused(&batch, &mut found);
                let is_taken = |one: &&Candidate| !is_in(&found, one);
                if asked.is_ok() {
                    let taken = batch.iter().copied().filter(is_taken);
                    verdict.taken.extend(taken.map(|one| Arc::clone(one.resource())));
                }
                verdict.refused.extend(found.into_iter().map(Found::into_refusal));
                if let Err(why) = asked {
                    verdict.undecided = Some(why);
                    return verdict;
                }
            }
        }
        verdict
    }

    /// Adds the candidates that it refuses to `found`.
    fn refused<'c>(&mut self, all: &[&'c Candidate], found: &mut Vec<Found<'c>>) -> Result<(), String> {
        let Some(why) = self.ask(all)? else { return Ok(()) };
        if let [one] = all {
            found.push(Found { candidate: one, why, is_of_conflict: false });
            return Ok(());
        }
        let (first, second) = all.split_at(all.len() / 2);
        self.refused(first, found)?;
        self.refused(second, found)?;
        let is_good = |one: &&&'c Candidate| !is_in(found, one);
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
            found.push(Found { candidate: second.remove(taken), why, is_of_conflict: true });
        }
        Ok(())
    }

    /// Its words if it refuses these together.
    fn ask(&mut self, all: &[&Candidate]) -> Result<Option<String>, String> {
        let Bounds { begun, time, n_runs, crash } = self.bounds;
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(format!("it takes more than {} s", time.as_secs_f32().ceil()));
        }
        if self.n_runs >= n_runs {
            return Err(format!("it takes more than {n_runs} runs"));
        }
        self.n_runs += 1;
        let said = self.envoy.ask(&bootstrap(all), left.min(MAX_RUN))?;
        self.n_answers += 1;
        match said {
            Said::Taken => Ok(None),
            Said::Refused(why) => Ok(Some(why)),
            Said::Crashed(why) if crash == Crash::Refuses => Ok(Some(why)),
            Said::Crashed(why) => Err(format!("it ended without an answer: {why}")),
        }
    }
}

/// A candidate that is refused.
struct Found<'c> {
    candidate: &'c Candidate,
    why: String,
    is_of_conflict: bool,
}

impl Found<'_> {
    fn into_refusal(self) -> Refusal {
        let Self { candidate, why, is_of_conflict } = self;
        Refusal { resource: Arc::clone(candidate.resource()), why, is_of_conflict }
    }
}

fn is_in(found: &[Found<'_>], candidate: &Candidate) -> bool {
    found.iter().any(|one| std::ptr::eq(one.candidate, candidate))
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

/// How long it may take to say its version.
pub const MAX_VERSION: Duration = Duration::from_secs(10);

/// All runs together.
const MAX_TIME: Duration = Duration::from_secs(60);

/// One run. 120 configurations take 0.15 s.
const MAX_RUN: Duration = Duration::from_secs(20);

/// Runs of one check. One refused resource among 500 takes about twenty.
const MAX_RUNS: usize = 1_000;

/// Resources of one run, listeners apart.
const MAX_BATCH: usize = 500;
