//! The one thread that writes to the journal.
//!
//! It takes all waiting commits, writes them, syncs once, and answers all of them. It starts and ends compactions, but another thread does
//! their work, while commits continue in a new segment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::acknowledged::{Acknowledged, Mark};
use crate::beginning::Beginning;
use crate::compaction::{self, Checkpoint};
use crate::draft::Draft;
use crate::journal::append::{AppendError, Tail};
use crate::journal::segment::{self, Position, Segment};
use crate::shared::Shared;
use crate::{Commit, CommitError, Compaction, FileError, Retention, Revision, StoreError, files};

/// A request to the thread.
#[derive(Debug)]
pub(crate) enum Command {
    Commit(CommitRequest),
    Probe(oneshot::Sender<Result<(), StoreError>>),
    Compact(Retention, oneshot::Sender<Result<Compaction, StoreError>>),
    /// A compaction has done its work.
    Compacted(Result<Checkpoint, StoreError>),
    Begin(Beginning, oneshot::Sender<Result<(), StoreError>>),
}

/// A commit that waits to be written.
#[derive(Debug)]
pub(crate) struct CommitRequest {
    pub(crate) expected: Revision,
    pub(crate) commit: Commit,
    pub(crate) answer: oneshot::Sender<Result<Revision, CommitError>>,
}

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// For the compaction's thread, which must not keep the store open.
    pub(crate) sender: mpsc::WeakSender<Command>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) tail: Tail,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) retention: Retention,
    /// Bytes of the segments before the last one.
    pub(crate) sealed_bytes: u64,
    /// Why nothing may be written any more.
    pub(crate) failure: Option<FileError>,
    pub(crate) compaction: Option<RunningCompaction>,
    /// Compactions that were asked for while one ran.
    pub(crate) queued: Vec<(Retention, oneshot::Sender<Result<Compaction, StoreError>>)>,
    /// Beginnings that were asked for while a compaction ran.
    pub(crate) beginnings: Vec<(Beginning, oneshot::Sender<Result<(), StoreError>>)>,
    /// The revision and size that must be exceeded before the next compaction begins by itself.
    pub(crate) not_before: (Revision, u64),
}

/// A compaction whose thread is at work.
#[derive(Debug)]
pub(crate) struct RunningCompaction {
    thread: JoinHandle<()>,
    /// The segment that commits go to since it began.
    first_kept: u64,
    sealed_bytes: u64,
    answer: Option<oneshot::Sender<Result<Compaction, StoreError>>>,
}

impl Writer {
    /// Works until the store is dropped.
    pub(crate) fn run(mut self) {
        let mut next = self.commands.blocking_recv();
        while let Some(command) = next.take() {
            match command {
                Command::Commit(request) => {
                    next = self.handle_commits(request);
                    self.compact_if_due();
                }
                Command::Probe(answer) => {
                    // A caller that no longer waits asks again.
                    let _ = answer.send(self.probe());
                }
                Command::Compact(keep, answer) if self.compaction.is_some() => {
                    self.queued.push((keep, answer));
                }
                Command::Compact(keep, answer) => self.handle_compact(keep, answer),
                Command::Compacted(checkpoint) => self.handle_compacted(checkpoint),
                Command::Begin(beginning, answer) if self.compaction.is_some() => {
                    self.beginnings.push((beginning, answer));
                }
                Command::Begin(beginning, answer) => self.handle_begin(&beginning, answer),
            }
            next = next.or_else(|| self.commands.blocking_recv());
        }
        if let Some(running) = self.compaction.take() {
            // It was told to stop; if it panicked, its temporary file is removed at the next start.
            let _ = running.thread.join();
        }
        self.acknowledged.flush();
    }

    /// Writes a commit and those that wait behind it; returns the first command that is none.
    fn handle_commits(&mut self, first: CommitRequest) -> Option<Command> {
        let durable_from = self.compaction.as_ref().map_or(0, |running| running.first_kept);
        let shared = Arc::clone(&self.shared);
        let mut draft = Draft::new(&shared, &self.tail, durable_from);
        let durable_head = draft.head;
        let mut answers = Vec::new();
        let mut request = Some(first);
        let mut other = None;
        while let Some(CommitRequest { expected, commit, answer }) = request.take() {
            let is_certain = draft.head == durable_head;
            let result = match &self.failure {
                Some(failure) => Err(StoreError::ReadOnly(failure.clone()).into()),
                None => draft.add(expected, commit),
            };
            let is_certain = is_certain && result.is_err();
            answers.push((answer, result, is_certain));
            if answers.len() < MAX_BATCH && draft.bytes.len() < MAX_BATCH_BYTES {
                match self.commands.try_recv() {
                    Ok(Command::Commit(next)) => request = Some(next),
                    Ok(command) => other = Some(command),
                    Err(_) => {}
                }
            }
        }
        let error = self.write(draft).err();
        for (answer, result, is_certain) in answers {
            let failed = error.as_ref().filter(|_| !is_certain);
            let result = failed.map_or(result, |error| Err(error.clone().into()));
            // A caller that no longer waits will see the head move.
            let _ = answer.send(result);
        }
        other
    }

    fn write(&mut self, draft: Draft<'_>) -> Result<(), StoreError> {
        if draft.records.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.tail.append(&draft.bytes) {
            tracing::error!(
                error = &error.error as &dyn std::error::Error,
                is_restored = error.is_restored,
                "a commit could not be written"
            );
            return Err(self.failed(error));
        }
        self.shared.index.add(draft.addition);
        self.shared.publish(&draft.records);
        let end = Position { segment: self.tail.segment.number, offset: self.tail.end };
        self.acknowledged.set(Mark { head: draft.head, end });
        Ok(())
    }

    fn probe(&mut self) -> Result<(), StoreError> {
        if let Some(failure) = &self.failure {
            return Err(StoreError::ReadOnly(failure.clone()));
        }
        self.tail.probe().map_err(|error| self.failed(error))
    }

    fn failed(&mut self, AppendError { error, is_restored }: AppendError) -> StoreError {
        if is_restored {
            return error.into();
        }
        self.failure = Some(error.clone());
        StoreError::ReadOnly(error)
    }

    fn handle_compact(&mut self, keep: Retention, answer: oneshot::Sender<Result<Compaction, StoreError>>) {
        let bytes = self.bytes();
        let (head, base) = self.head_and_base();
        let (n_revisions, n_kept) = (head.0 - base.0, keep.revisions.max(1));
        if n_revisions <= 1 || (n_revisions <= n_kept && bytes <= keep.bytes) {
            let unchanged =
                Compaction { oldest: base, n_dropped: 0, bytes_before: bytes, bytes_after: bytes };
            let _ = answer.send(Ok(unchanged));
            return;
        }
        if let Err(error) = self.begin_compaction(keep) {
            let _ = answer.send(Err(error));
        } else if let Some(running) = &mut self.compaction {
            running.answer = Some(answer);
        }
    }

    fn handle_compacted(&mut self, checkpoint: Result<Checkpoint, StoreError>) {
        let Some(running) = self.compaction.take() else { return };
        let result = checkpoint.and_then(|checkpoint| self.install(checkpoint, running.sealed_bytes));
        self.postpone();
        match &result {
            Ok(done) => {
                tracing::info!(
                    oldest = done.oldest.0,
                    n_dropped = done.n_dropped,
                    bytes_before = done.bytes_before,
                    bytes_after = done.bytes_after,
                    "the journal was compacted"
                );
            }
            Err(error) => {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "the journal could not be compacted"
                );
            }
        }
        if let Some(answer) = running.answer {
            let _ = answer.send(result);
        }
        for (beginning, answer) in std::mem::take(&mut self.beginnings) {
            self.handle_begin(&beginning, answer);
        }
        // A compaction that finds nothing to do does not begin, and the next one must not wait for it.
        while self.compaction.is_none() && !self.queued.is_empty() {
            let (keep, answer) = self.queued.remove(0);
            self.handle_compact(keep, answer);
        }
    }

    fn handle_begin(&mut self, beginning: &Beginning, answer: oneshot::Sender<Result<(), StoreError>>) {
        // A caller that no longer waits sees the head move.
        let _ = answer.send(self.begin_at(beginning));
    }

    /// Replaces the journal by a checkpoint, to which commits are then appended.
    fn begin_at(&mut self, beginning: &Beginning) -> Result<(), StoreError> {
        let Beginning { revision, state, .. } = beginning;
        if let Some(failure) = &self.failure {
            return Err(StoreError::ReadOnly(failure.clone()));
        }
        self.tail.check_in_place().map_err(|error| self.failed(error))?;
        let head = self.head_and_base().0;
        if *revision < head {
            return Err(StoreError::BeginsBefore { revision: *revision, head });
        }
        let number = self.tail.segment.number + 1;
        let checkpoint = compaction::write_beginning(&self.shared.dir, number, beginning)?;
        let (segment, kept) = checkpoint.install()?;
        self.tail.end = segment.header.checkpoint_end;
        self.tail.segment = Arc::clone(&segment);
        self.sealed_bytes = 0;
        let replaced = self.shared.index.replace_segments(segment, kept);
        self.shared.begin(*revision, state.clone());
        let end = Position { segment: number, offset: self.tail.end };
        self.acknowledged.set(Mark { head: *revision, end });
        remove(&replaced);
        Ok(())
    }

    fn compact_if_due(&mut self) {
        let (head, base) = self.head_and_base();
        let keep = self.retention;
        let has_many = head.0 - base.0 > keep.revisions.saturating_add(keep.revisions / 4);
        let is_large = self.bytes() > keep.bytes.saturating_add(keep.bytes / 4);
        let is_due = (has_many && head > self.not_before.0) || (is_large && self.bytes() > self.not_before.1);
        if !is_due || self.compaction.is_some() || self.failure.is_some() {
            return;
        }
        if let Err(error) = self.begin_compaction(keep) {
            tracing::error!(error = &error as &dyn std::error::Error, "the journal could not be compacted");
            self.postpone();
        }
    }

    /// Seals the segments, so that commits go to a new one, and lets a thread write what is kept of them.
    fn begin_compaction(&mut self, keep: Retention) -> Result<(), StoreError> {
        if let Some(failure) = &self.failure {
            return Err(StoreError::ReadOnly(failure.clone()));
        }
        self.tail.check_in_place().map_err(|error| self.failed(error))?;
        let sealed = self.shared.index.segments();
        let checkpoint_number = self.tail.segment.number + 1;
        let bytes = self.bytes();
        let segment = self.create_segment(checkpoint_number + 1)?;
        self.sealed_bytes = bytes;
        self.tail.end = segment.header.checkpoint_end;
        self.tail.segment = Arc::clone(&segment);
        self.shared.index.add_segment(segment);
        let (dir, stop, sender) = (self.shared.dir.clone(), Arc::clone(&self.stop), self.sender.clone());
        let work = move || {
            // A panic must be answered too: whoever asked for the compaction waits, and none begins meanwhile.
            let checkpoint = catch_unwind(AssertUnwindSafe(|| {
                compaction::write_checkpoint(&dir, &sealed, checkpoint_number, keep, &stop)
            }));
            let checkpoint = checkpoint.unwrap_or(Err(StoreError::Closed));
            let Some(sender) = sender.upgrade() else { return discard(&checkpoint) };
            if let Err(mpsc::error::SendError(Command::Compacted(checkpoint))) =
                sender.blocking_send(Command::Compacted(checkpoint))
            {
                discard(&checkpoint);
            }
        };
        let thread = std::thread::Builder::new().name("store-compaction".to_owned()).spawn(work);
        let thread = thread.map_err(|error| FileError::new("start a thread for", &self.shared.dir, error))?;
        let first_kept = checkpoint_number + 1;
        self.compaction = Some(RunningCompaction { thread, first_kept, sealed_bytes: bytes, answer: None });
        Ok(())
    }

    /// Creates an empty segment after the head.
    ///
    /// If it fails and the file may be there all the same, nothing is written any more: commits in the segment
    /// before would contradict it.
    fn create_segment(&mut self, number: u64) -> Result<Arc<Segment>, FileError> {
        let head = self.head_and_base().0;
        Segment::create(&self.shared.dir, number, head).map(Arc::new).inspect_err(|error| {
            let path = self.shared.dir.join(segment::file_name(number));
            if std::fs::symlink_metadata(&path).is_ok() {
                // It is empty; the next start takes it as the last segment if it is still there.
                let _ = files::remove_file_if_exists(&path);
                self.failure = Some(error.clone());
            }
        })
    }

    /// Makes the checkpoint a part of the journal and removes what it replaces.
    fn install(&mut self, checkpoint: Checkpoint, sealed_bytes: u64) -> Result<Compaction, StoreError> {
        if let Err(error) = self.tail.check_in_place() {
            discard(&Ok(checkpoint));
            return Err(self.failed(error));
        }
        let bytes_before = self.bytes();
        let old_base = self.head_and_base().1;
        #[cfg(test)]
        self.tail.faults.on_step(crate::faults::Step::BeforeRename)?;
        let (segment, kept) = checkpoint.install()?;
        #[cfg(test)]
        self.tail.faults.on_step(crate::faults::Step::AfterRename)?;
        let checkpoint_bytes = segment.header.checkpoint_end;
        let base = kept.base;
        self.shared.publish_base(base);
        let replaced = self.shared.index.replace_segments(segment, kept);
        self.sealed_bytes = self.sealed_bytes - sealed_bytes + checkpoint_bytes;
        #[cfg(test)]
        self.tail.faults.on_step(crate::faults::Step::AfterIndex)?;
        #[cfg(test)]
        if !replaced.is_empty() {
            remove(replaced.get(..1).unwrap_or_default());
            self.tail.faults.on_step(crate::faults::Step::AfterFirstRemoval)?;
        }
        remove(&replaced);
        Ok(Compaction {
            oldest: base,
            n_dropped: base.0 - old_base.0,
            bytes_before,
            bytes_after: self.bytes(),
        })
    }

    /// Lets the journal grow by a quarter of what is kept before it is compacted again by itself.
    fn postpone(&mut self) {
        let head = self.head_and_base().0;
        let revisions = Revision(head.0.saturating_add(self.retention.revisions / 4));
        self.not_before = (revisions, self.bytes().saturating_add(self.retention.bytes / 4));
    }

    fn bytes(&self) -> u64 {
        self.sealed_bytes + self.tail.end
    }

    fn head_and_base(&self) -> (Revision, Revision) {
        let published = self.shared.published();
        (published.head, published.base)
    }
}

/// Removes segments that are replaced.
fn remove(segments: &[Arc<Segment>]) {
    for segment in segments {
        if let Err(error) = files::remove_file_if_exists(&segment.path) {
            // The next start tries again; until then it only takes space.
            tracing::warn!(error = &error as &dyn std::error::Error, "a replaced file could not be removed");
        }
    }
}

fn discard(checkpoint: &Result<Checkpoint, StoreError>) {
    if let Ok(checkpoint) = checkpoint {
        checkpoint.discard();
    }
}

/// Commits that share one sync at most.
const MAX_BATCH: usize = 256;

/// Bytes after which no further commit is added to a batch.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
