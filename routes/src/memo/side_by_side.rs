//! Runs units of one kind in parallel. None of them reads facts that another one writes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;

use xds_codec::Codec;

use super::fact::Fact;
use super::made::Made;
use super::names::NamePool;
use super::reader::Reader;
use super::state::Memo;
use super::unit::Unit;
use super::units;
use crate::encode::Encoder;
use crate::input::{Budget, Options};

/// Runs units on one thread.
pub(super) struct Runner<'r> {
    codec: &'r Codec,
    encoder: Encoder<'r>,
    names: Arc<NamePool>,
    options: &'r Options,
    budget: &'r Budget,
}

/// The result of a unit, and the facts that it read, sorted.
#[derive(Debug)]
pub(super) struct Ran {
    /// `None` if the unit no longer exists.
    pub(super) made: Option<Made>,
    pub(super) reads: Vec<Fact>,
}

impl Ran {
    /// An estimate of the memory that the result takes.
    fn n_bytes(&self) -> usize {
        self.made.as_ref().map_or(0, Made::n_bytes) + self.reads.len() * READ_BYTES
    }
}

impl<'r> Runner<'r> {
    pub(super) fn new(codec: &'r Codec, options: &'r Options, budget: &'r Budget) -> Self {
        Self { codec, encoder: Encoder::new(codec), names: Arc::default(), options, budget }
    }

    /// Runs a unit.
    ///
    /// # Panics
    ///
    /// If the unit panics. The message names the unit.
    pub(super) fn run(&mut self, memo: &Memo, unit: &Unit, goes_on: &dyn Fn() -> bool) -> Ran {
        let reader = Reader::new(memo, unit);
        let run = || {
            #[cfg(test)]
            assert!(!memo.panics_at.is_some_and(|kind| format!("{unit:?}").starts_with(kind)), "injected");
            units::run(unit, &reader, &self.names, &mut self.encoder, self.options, goes_on)
        };
        // The panic continues, so nobody uses the state that it left.
        let made = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            resume_unwind(Box::new(format!("{unit:?}: {text}")))
        });
        let ran = Ran { made, reads: reader.finish() };
        self.budget.take(ran.n_bytes());
        ran
    }

    /// Runs units of one kind on up to `n_threads` threads, including that of the caller, and passes the results to `take` in the order of the
    /// units. All units see `memo`. Each thread encodes equal resources once. Returns `false` if it was stopped before all units ran.
    ///
    /// # Panics
    ///
    /// If a unit panics.
    pub(super) fn run_all(
        &mut self,
        memo: &Memo,
        units: &[Unit],
        n_threads: usize,
        goes_on: &dyn Fn() -> bool,
        mut take: impl FnMut(&Unit, Ran),
    ) -> bool {
        let (n_claimed, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let claim = || {
            let index = n_claimed.fetch_add(1, Relaxed);
            Some((index, units.chunks(BATCH).nth(index)?))
        };
        let Self { codec, options, budget, .. } = *self;
        let (names, keys) = (Arc::clone(&self.names), Arc::clone(self.encoder.keys()));
        let run = |runner: &mut Self, batch: &[Unit], goes_on: &dyn Fn() -> bool| -> Vec<Ran> {
            batch.iter().map_while(|unit| goes_on().then(|| runner.run(memo, unit, goes_on))).collect()
        };
        let work = |sender: mpsc::SyncSender<_>| {
            let encoder = Encoder::with_keys(codec, Arc::clone(&keys));
            let mut runner = Runner { codec, encoder, names: Arc::clone(&names), options, budget };
            while let Some((index, batch)) = claim() {
                // If it was stopped, nobody receives.
                if sender
                    .send((index, run(&mut runner, batch, &|| !is_stopped.load(Relaxed) && budget.lasts())))
                    .is_err()
                {
                    return;
                }
            }
        };
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(MAX_READY);
            let new = |_| {
                let sender = sender.clone();
                thread::Builder::new().name("translate".to_owned()).spawn_scoped(scope, || work(sender)).ok()
            };
            // If a thread cannot be started, the others do its work.
            let threads: Vec<_> = (1..n_threads).filter_map(new).collect();
            drop(sender);
            let mut ready: BTreeMap<usize, Vec<Ran>> = BTreeMap::new();
            for (index, batch) in units.chunks(BATCH).enumerate() {
                while !ready.contains_key(&index) {
                    ready.extend(receiver.try_iter());
                    if ready.contains_key(&index) {
                        break;
                    }
                    if let Some((own, batch)) = claim() {
                        ready.insert(own, run(self, batch, goes_on));
                    } else if let Ok((other, ran)) = receiver.recv() {
                        ready.insert(other, ran);
                    } else {
                        // The holder panicked, and no other thread continues.
                        break;
                    }
                }
                let ran = ready.remove(&index).unwrap_or_default();
                if ran.len() < batch.len() || !goes_on() {
                    is_stopped.store(true, Relaxed);
                    break;
                }
                batch.iter().zip(ran).for_each(|(unit, ran)| take(unit, ran));
            }
            drop(receiver);
            for thread in threads {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        !is_stopped.into_inner()
    }
}

/// The number of processors. It is stored, because asking takes longer than a small change.
pub(super) static N_THREADS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

/// A fact that a unit has read takes a place in the unit's list and one among the fact's readers.
const READ_BYTES: usize = 64;

/// The number of units that a thread takes at a time: some milliseconds of work.
const BATCH: usize = 64;

/// The limit of finished batches that wait, so that no thread runs far ahead.
const MAX_READY: usize = 64;
