//! Where in the journal each record and each blob is.
//!
//! The index says nothing that the journal does not say, so it is never synced: what a crash takes from it is put
//! back when it is opened, and what cannot be trusted is made again. It is kept by sled, in the directory `index`;
//! if sled cannot be used (it does not open on a full disk, for one) it is kept in memory.

mod engine;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use engine::{Applied, Engine, Failure, Update};

use crate::journal::segment::{Position, Segment};
use crate::journal::{self, Journal, Replay, Segments};
use crate::{BlobHash, OpenNote, Revision, StoreError, files};

/// The index of a journal that is open, and the segments that it refers to.
#[derive(Debug)]
pub(crate) struct Index {
    inner: RwLock<Inner>,
}

/// The index as it lies in its directory, before the journal is known.
#[derive(Debug)]
pub(crate) struct Found(Option<Result<Engine, Failure>>);

impl Found {
    /// Opens the index in `dir`, if there is one.
    pub(crate) fn open(dir: &Path) -> Self {
        let path = dir.join(DIRECTORY);
        Self(path.exists().then(|| Engine::open_sled(&path)))
    }

    /// The newest revision that the index knows. The journal had it, synced: the index is written afterwards.
    ///
    /// `None` if there is no index, or none that can be read.
    pub(crate) fn head(&self) -> Option<Revision> {
        let engine = self.0.as_ref()?.as_ref().ok()?;
        Some(engine.applied().ok()??.head)
    }
}

/// Changed together, so that whoever finds a place also finds the segment.
#[derive(Debug)]
struct Inner {
    engine: Engine,
    segments: Segments,
    /// Where the last segment ends.
    end: u64,
}

/// What a batch of commits added to the journal.
#[derive(Debug, Default)]
pub(crate) struct Addition {
    pub(crate) records: Vec<(Revision, Position)>,
    pub(crate) blobs: Vec<(BlobHash, Position)>,
}

/// A frame of the journal.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) segment: Arc<Segment>,
    pub(crate) position: Position,
}

impl Index {
    /// Makes what was found in `dir` say what the journal says, or makes an index there.
    pub(crate) fn open(dir: &Path, found: Found, journal: &Journal, notes: &mut Vec<OpenNote>) -> Self {
        let engine = open_sled(dir, found, journal, notes).unwrap_or_else(|failure| {
            notes.push(OpenNote::IndexInMemory { reason: failure.reason });
            Engine::in_memory(&journal.replay)
        });
        let inner = Inner { engine, segments: journal.segments.clone(), end: journal.end };
        Self { inner: RwLock::new(inner) }
    }

    /// Adds what was appended to the last segment, which ends at `end` since then.
    pub(crate) fn add(&self, addition: Addition, head: Revision, end: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.end = end;
        let applied = inner.applied(head);
        let Addition { records, blobs } = addition;
        inner.change(&Update { set_records: records, set_blobs: blobs, applied, ..Update::default() });
    }

    /// Takes a new segment as the last one; nothing is in it yet.
    pub(crate) fn add_segment(&self, segment: Arc<Segment>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.end = segment.header.checkpoint_end;
        inner.segments.insert(segment.number, segment);
    }

    /// Forgets the segments before `checkpoint`, and returns them; what was kept of them is in `checkpoint` now,
    /// at the places that `kept` tells.
    pub(crate) fn replace_segments(
        &self,
        checkpoint: Arc<Segment>,
        kept: &Replay,
        head: Revision,
    ) -> Vec<Arc<Segment>> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let number = checkpoint.number;
        let newer = inner.segments.split_off(&number);
        let replaced = std::mem::replace(&mut inner.segments, newer);
        inner.segments.insert(number, checkpoint);
        match inner.relocation(number, kept, head) {
            Ok(update) => inner.change(&update),
            Err(failure) => inner.give_up_sled(&failure),
        }
        replaced.into_values().collect()
    }

    /// Writes what sled still holds in memory; how well is its own affair.
    pub(crate) fn flush(&self) {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if let Err(failure) = inner.engine.flush() {
            tracing::warn!(
                reason = failure.reason,
                "the index could not be flushed; it is caught up at the next start"
            );
        }
    }

    /// Where the record of `revision` is, if it is kept. The journal is read if the index fails.
    pub(crate) fn record(&self, revision: Revision) -> Result<Option<Place>, StoreError> {
        self.place(|engine| engine.record(revision))
    }

    /// Where the blob `hash` is, if it is kept. The journal is read if the index fails.
    pub(crate) fn blob(&self, hash: BlobHash) -> Result<Option<Place>, StoreError> {
        self.place(|engine| engine.blob(hash))
    }

    /// The segments, and where the last one ends.
    pub(crate) fn segments(&self) -> (Segments, u64) {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        (inner.segments.clone(), inner.end)
    }

    fn place(
        &self,
        ask: impl Fn(&Engine) -> Result<Option<Position>, Failure>,
    ) -> Result<Option<Place>, StoreError> {
        let failure = {
            let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
            match ask(&inner.engine) {
                Ok(position) => return Ok(inner.resolve(position)),
                Err(failure) => failure,
            }
        };
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.give_up_sled(&failure);
        match ask(&inner.engine) {
            Ok(position) => Ok(inner.resolve(position)),
            Err(_) => Err(journal::replay(&inner.segments, inner.end).err().unwrap_or(StoreError::Closed)),
        }
    }
}

impl Inner {
    fn change(&mut self, update: &Update) {
        if let Err(failure) = self.engine.change(update) {
            self.give_up_sled(&failure);
        }
    }

    /// Makes the index again from the journal, in memory. If that fails, whoever asks next tries again.
    fn give_up_sled(&mut self, failure: &Failure) {
        tracing::error!(
            reason = failure.reason,
            "the index failed; it is kept in memory until the next start"
        );
        self.engine = match journal::replay(&self.segments, self.end) {
            Ok(replay) => Engine::in_memory(&replay),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the journal cannot be read");
                Engine::Failed(error.to_string())
            }
        };
    }

    fn applied(&self, head: Revision) -> Applied {
        let segment = self.segments.keys().next_back().copied().unwrap_or_default();
        Applied { head, end: Position { segment, offset: self.end } }
    }

    fn resolve(&self, position: Option<Position>) -> Option<Place> {
        let position = position?;
        let segment = Arc::clone(self.segments.get(&position.segment)?);
        Some(Place { segment, position })
    }

    /// What changes for everything that is in segments before `number`.
    fn relocation(&self, number: u64, kept: &Replay, head: Revision) -> Result<Update, Failure> {
        let mut applied = self.applied(head);
        if let Some(place) = kept.records.get(&head) {
            applied.end = Position { segment: number, offset: place.end };
        }
        let mut update = Update { applied, ..Update::default() };
        for (revision, _) in self.engine.records()?.into_iter().filter(|(_, at)| at.segment < number) {
            match kept.records.get(&revision) {
                Some(place) => update.set_records.push((revision, place.position)),
                None => update.removed_records.push(revision),
            }
        }
        for (hash, _) in self.engine.blobs()?.into_iter().filter(|(_, at)| at.segment < number) {
            match kept.blobs.get(&hash) {
                Some(position) => update.set_blobs.push((hash, *position)),
                None => update.removed_blobs.push(hash),
            }
        }
        Ok(update)
    }
}

/// Opens sled and brings it up to date; if it has to be replaced, its directory is moved aside.
fn open_sled(
    dir: &Path,
    found: Found,
    journal: &Journal,
    notes: &mut Vec<OpenNote>,
) -> Result<Engine, Failure> {
    let path = dir.join(DIRECTORY);
    let is_new = found.0.is_none();
    let engine = found.0.unwrap_or_else(|| create(&path));
    match engine.and_then(|engine| catch_up(engine, &journal.replay)) {
        Ok(Caught::Up(engine)) => return Ok(engine),
        Ok(Caught::Rebuilt(engine)) => {
            if !is_new {
                let reason = "it was empty, or older than the last compaction".to_owned();
                notes.push(OpenNote::IndexRebuilt { aside: None, reason });
            }
            return Ok(engine);
        }
        Err(failure) if is_new || !failure.is_damage => return Err(failure),
        Err(Failure { reason, .. }) => {
            let aside = files::move_aside(&path)?;
            notes.push(OpenNote::IndexRebuilt { aside: Some(aside), reason });
        }
    }
    match catch_up(create(&path)?, &journal.replay)? {
        Caught::Up(engine) | Caught::Rebuilt(engine) => Ok(engine),
    }
}

/// An index that agrees with the journal.
enum Caught {
    /// It did, or was only behind.
    Up(Engine),
    /// It was empty, or written before a compaction.
    Rebuilt(Engine),
}

fn create(path: &Path) -> Result<Engine, Failure> {
    files::create_dir(path)?;
    Engine::open_sled(path)
}

fn catch_up(mut engine: Engine, replay: &Replay) -> Result<Caught, Failure> {
    let Some(applied) = engine.applied()? else {
        engine.clear()?;
        engine.change(&everything(replay))?;
        return Ok(Caught::Rebuilt(verified(engine, replay)?));
    };
    let start = replay.start.map_or(0, |start| start.segment);
    if applied.end.segment < start && applied.head <= replay.head {
        engine.clear()?;
        engine.change(&everything(replay))?;
        return Ok(Caught::Rebuilt(verified(engine, replay)?));
    }
    if !is_known(applied, replay) {
        let reason = format!(
            "it knows revision {} at byte {} of segment {}, which the journal (at revision {}) does not",
            applied.head, applied.end.offset, applied.end.segment, replay.head
        );
        return Err(Failure { reason, is_damage: true });
    }
    let mut missing = everything(replay);
    missing.set_records.retain(|(revision, _)| *revision > applied.head);
    missing.set_blobs.retain(|(_, position)| *position >= applied.end);
    engine.change(&missing)?;
    Ok(Caught::Up(verified(engine, replay)?))
}

/// Whether the journal was at `applied` once.
fn is_known(applied: Applied, replay: &Replay) -> bool {
    match replay.records.get(&applied.head) {
        Some(place) => place.position.segment == applied.end.segment && place.end == applied.end.offset,
        None => applied.head == replay.base && replay.start == Some(applied.end),
    }
}

/// Makes sure that the index says what the journal says, no less and no more.
fn verified(engine: Engine, replay: &Replay) -> Result<Engine, Failure> {
    let records = engine.records()?;
    let has_records = records.len() == replay.records.len()
        && records.iter().all(|(revision, position)| {
            replay.records.get(revision).is_some_and(|place| place.position == *position)
        });
    let blobs = engine.blobs()?;
    let has_blobs = blobs.len() == replay.blobs.len()
        && blobs.iter().all(|(hash, position)| replay.blobs.get(hash) == Some(position));
    if has_records && has_blobs { Ok(engine) } else { Err("it disagrees with the journal".into()) }
}

fn everything(replay: &Replay) -> Update {
    let last = replay.records.values().next_back();
    let last = last.map(|place| Position { segment: place.position.segment, offset: place.end });
    Update {
        set_records: replay.records.iter().map(|(revision, place)| (*revision, place.position)).collect(),
        set_blobs: replay.blobs.iter().map(|(hash, position)| (*hash, *position)).collect(),
        applied: Applied { head: replay.head, end: last.or(replay.start).unwrap_or_default() },
        ..Update::default()
    }
}

/// Name of sled's directory in the data directory.
pub(crate) const DIRECTORY: &str = "index";
