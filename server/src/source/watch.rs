//! The loop over the files: it waits for events, reads, loads, delivers, and saves last good copies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinError;
use tokio::time::{sleep, sleep_until};
use xds_cache::Layer;
use xds_codec::{Codec, Limits, Severity};
use xds_control::BoxFuture;
use xds_control::chain;
use xds_control::model::Texts;
use xds_control::model::document::GroupedDocuments;
use xds_control::model::{Asked, FileLoad};
use xds_control::model::{FileStatus, ReloadOutcome, WriteError};
use xds_files::load::{FilesState, Loaded, Options, load, persist};
use xds_files::read::{ReadOptions, Reader, Scan};
use xds_files::timing::{Pace, Removals, Step, Timing};
use xds_files::walk::Walk;
use xds_routes::UnknownFields;
use xds_store::{LastGood, LastGoodError};

use crate::source::events::Events;

/// The parts with which files are read.
#[derive(Debug)]
pub struct WatchParts {
    /// Files and directories.
    pub roots: Vec<PathBuf>,
    /// Bounds of one file and its documents.
    pub limits: Limits,
    /// True if symbolic links may lead out of the watched directories.
    pub follows_links: bool,
    /// True if the good part of a first load with errors is served.
    pub is_partial_start: bool,
    /// The treatment of route documents with unknown fields.
    pub unknown_fields: UnknownFields,
    /// The times to wait.
    pub timing: Timing,
    /// Reads the objects in the files.
    pub codec: Arc<Codec>,
    /// The last good copies.
    pub last_good: LastGood,
    /// True if the files are for several servers: then paths are relative to the roots, and a load comes when nothing is waiting for its
    /// removal, because what is between two sets is neither.
    pub is_for_all: bool,
}

/// Gets the result of each attempt to save last good copies: why one could not be saved, or that all are.
pub type Saved = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Takes in a load. The answer comes when it is published or refused.
pub type Deliver =
    Box<dyn FnMut(FileLoad, Asked) -> BoxFuture<'static, Result<ReloadOutcome, WriteError>> + Send>;

/// The watched files. Does nothing until it is [run](Self::run).
#[derive(Debug)]
pub struct FileSource {
    work: Work,
    pace: Pace,
    dirty: Arc<Notify>,
    requests: mpsc::Receiver<Request>,
    saver: watch::Sender<Arc<FilesState>>,
    /// The callers that wait for an answer, and the work done for them so far.
    waiting: Vec<Waiting>,
    /// The load that was delivered last.
    delivered: Option<FileLoad>,
    /// The diagnostics of the last load, which were logged.
    logged: BTreeSet<String>,
}

/// Asks for a look at the files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FileSourceHandle {
    requests: mpsc::Sender<Request>,
}

/// The files can no longer be read, because of a fault in this program.
#[derive(Debug, thiserror::Error)]
#[error("reading the files failed")]
pub struct SourceFailed(#[from] JoinError);

/// Work that is done on threads that may block.
#[derive(Debug)]
struct Work {
    reader: Reader,
    events: Events,
    codec: Arc<Codec>,
    limits: Limits,
    is_partial_start: bool,
    unknown_fields: UnknownFields,
    /// The roots, if paths are to be relative to them.
    relative_to: Option<Vec<PathBuf>>,
    state: Arc<FilesState>,
    /// The walk of the last load; `None` before the first one.
    walk: Option<Walk>,
}

/// The result of one look at the files.
#[derive(Debug)]
struct Looked {
    load: FileLoad,
    postpones_removals: bool,
    /// True if there were no changes without an event.
    is_quiet: bool,
}

#[derive(Debug)]
enum Request {
    /// Look soon.
    Look,
    /// Look now, and answer.
    Reload(Asked, oneshot::Sender<Result<ReloadOutcome, WriteError>>),
    /// Stop.
    Stop,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    asked: Asked,
    answer: oneshot::Sender<Result<ReloadOutcome, WriteError>>,
    /// The result of the first load for this request.
    first: Option<ReloadOutcome>,
}

impl FileSourceHandle {
    /// Reads the files now, and answers when their contents are published.
    ///
    /// A missing object is removed only after two quiet seconds. The answer waits for that, at most some seconds longer.
    ///
    /// # Errors
    ///
    /// [`WriteError::Closed`] if the source has stopped; else the error of the publication.
    pub async fn reload(&self, asked: Asked) -> Result<ReloadOutcome, WriteError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Reload(asked, answer)).await.map_err(|_| WriteError::Closed)?;
        answered.await.map_err(|_| WriteError::Closed)?
    }

    /// Ends the source, even if there are other handles. A publication that is under way ends first.
    pub async fn stop(&self) {
        // It fails only if the source has ended already.
        let _ = self.requests.send(Request::Stop).await;
    }

    /// Reads the files soon, for SIGHUP. Does nothing if such a request is waiting already.
    pub fn look(&self) {
        if self.requests.try_send(Request::Look).is_err() {
            tracing::debug!("the files are read anyway");
        }
    }
}

impl FileSource {
    /// Reads the last good copies; blocks shortly. The source runs as long as there is a handle.
    ///
    /// # Errors
    ///
    /// If the directory of the copies cannot be read.
    pub fn open(parts: WatchParts, tell: Saved) -> Result<(Self, FileSourceHandle), LastGoodError> {
        let copies = parts.last_good.load_all()?;
        for note in &copies.notes {
            tracing::warn!(problem = %note, "last good copy left out");
        }
        let (state, damaged) = persist::restore(&copies.copies, SystemTime::now());
        for path in damaged {
            tracing::warn!(path, "last good copy of another version left out");
        }
        let state = Arc::new(state);
        let dirty = Arc::new(Notify::new());
        let work = Work {
            reader: Reader::new(
                &parts.roots,
                ReadOptions {
                    max_file_bytes: parts.limits.max_bytes,
                    follows_links: parts.follows_links,
                    ..ReadOptions::default()
                },
            ),
            events: Events::new(Arc::clone(&dirty)),
            codec: parts.codec,
            limits: parts.limits,
            is_partial_start: parts.is_partial_start,
            unknown_fields: parts.unknown_fields,
            relative_to: parts.is_for_all.then_some(parts.roots),
            state: Arc::clone(&state),
            walk: None,
        };
        let (saver, to_save) = watch::channel(Arc::clone(&state));
        tokio::spawn(save_copies(parts.last_good, state, to_save, tell));
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        let pace = Pace::new(parts.timing, Instant::now());
        let (waiting, delivered, logged) = (Vec::new(), None, BTreeSet::new());
        let source = Self { work, pace, dirty, requests, saver, waiting, delivered, logged };
        Ok((source, FileSourceHandle { requests: sender }))
    }

    /// The served contents in the last good copies with which this run began.
    #[must_use]
    pub fn copies(&self) -> (Layer, GroupedDocuments) {
        self.work.state.served()
    }

    /// Loads the files, and loads them again when they change, until [`stop`](FileSourceHandle::stop) or until there is no handle any more.
    ///
    /// # Errors
    ///
    /// If a load panics, which is a fault in this program.
    pub async fn run(mut self, mut deliver: Deliver) -> Result<(), SourceFailed> {
        loop {
            match self.pace.poll_step(Instant::now()) {
                Step::Load(removals) => self = self.load(removals, &mut deliver).await?,
                Step::Poll => self = self.poll().await?,
                Step::Wait => tokio::select! {
                    () = self.dirty.notified() => self.pace.handle_event(Instant::now()),
                    () = sleep_until(self.pace.deadline().into()) => {}
                    request = self.requests.recv() => match request {
                        Some(Request::Look) => self.pace.handle_request(),
                        Some(Request::Reload(asked, answer)) => self.handle_reload(asked, answer),
                        Some(Request::Stop) | None => return Ok(()),
                    },
                },
            }
        }
    }

    fn handle_reload(&mut self, asked: Asked, answer: oneshot::Sender<Result<ReloadOutcome, WriteError>>) {
        self.pace.handle_request();
        self.waiting.push(Waiting { since: Instant::now(), asked, answer, first: None });
    }

    /// Walks, and treats a difference as an event that the kernel did not send.
    async fn poll(mut self) -> Result<Self, SourceFailed> {
        let mut work = self.work;
        let (work, is_same) = tokio::task::spawn_blocking(move || {
            let walk = work.reader.walk();
            let is_same = work.walk.as_ref() == Some(&walk);
            (work, is_same)
        })
        .await?;
        self.work = work;
        self.pace.handle_polled(Instant::now());
        if !is_same {
            self.pace.handle_event(Instant::now());
        }
        Ok(self)
    }

    async fn load(mut self, removals: Removals, deliver: &mut Deliver) -> Result<Self, SourceFailed> {
        let began = Instant::now();
        let mut work = self.work;
        let (work, Looked { load, postpones_removals, is_quiet }) = tokio::task::spawn_blocking(move || {
            let looked = work.load(removals);
            (work, looked)
        })
        .await?;
        self.work = work;
        self.pace.handle_loaded(began, postpones_removals);
        if !is_quiet {
            self.pace.handle_event(Instant::now());
        }
        let is_complete = load.is_complete;
        if self.work.relative_to.is_none() || !postpones_removals {
            self.deliver(load, deliver).await;
        }
        if is_complete {
            self.saver.send_replace(Arc::clone(&self.work.state));
        }
        Ok(self)
    }

    /// Hands on a load that differs from the last one, or that a caller waits for.
    async fn deliver(&mut self, load: FileLoad, deliver: &mut Deliver) {
        let is_same = self.delivered.as_ref().is_some_and(|last| is_same(last, &load));
        if is_same && self.waiting.is_empty() {
            return;
        }
        self.log_news(&load);
        if !is_same {
            log_summary(&load);
        }
        self.delivered = Some(FileLoad { texts: Texts::default(), ..load.clone() });
        let asked = self.waiting.iter().map(|waiting| waiting.asked).max().unwrap_or(Asked::ByNobody);
        let outcome = deliver(load, asked).await;
        match &outcome {
            Ok(_) => self.pace.handle_taken(),
            Err(error) => {
                tracing::error!(%error, "the files were read, but not published; it is tried again");
                self.delivered = None;
                self.pace.handle_refused(Instant::now());
            }
        }
        self.answer(&outcome);
    }

    /// Answers the waiting callers, unless a missing object may still be removed for them.
    fn answer(&mut self, outcome: &Result<ReloadOutcome, WriteError>) {
        let is_waiting_on = self.pace.postpones_removals() && outcome.is_ok();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let mut outcome = outcome.clone();
            if let (Ok(outcome), Some(first)) = (&mut outcome, &waiting.first) {
                outcome.difference.splice(0..0, first.difference.iter().cloned());
            }
            if is_waiting_on && waiting.since.elapsed() < MAX_WAIT {
                waiting.first = outcome.ok();
                self.waiting.push(waiting);
            } else if waiting.answer.send(outcome).is_err() {
                tracing::debug!("who asked for a reload has gone");
            }
        }
    }

    /// Logs the diagnostics that the last load did not have.
    fn log_news(&mut self, load: &FileLoad) {
        let mut logged = BTreeSet::new();
        for one in load.files.values().flat_map(|file| &file.diagnostics) {
            let text = one.to_string();
            if !self.logged.contains(&text) {
                let (file, line, column, code) =
                    (&*one.place.file, one.place.line, one.place.column, one.code);
                match one.severity {
                    Severity::Error => tracing::error!(file, line, column, code, "{text}"),
                    Severity::Warning => tracing::warn!(file, line, column, code, "{text}"),
                    Severity::Info => tracing::info!(file, line, column, code, "{text}"),
                }
            }
            logged.insert(text);
        }
        self.logged = logged;
    }
}

impl Work {
    /// Reads and loads.
    fn load(&mut self, removals: Removals) -> Looked {
        let events = &mut self.events;
        let (walk, scan) = self.reader.scan(|walk| events.watch(walk));
        if self.walk.is_none() {
            log_hidden(&self.reader.hidden(&walk));
        }
        let scan = match &self.relative_to {
            Some(roots) => below_roots(scan, roots),
            None => scan,
        };
        let before = self.walk.replace(walk);
        // A change without an event counts as new.
        let is_news = removals == Removals::Due && before.is_some() && before != self.walk;
        let removals = if is_news { Removals::Postponed } else { removals };
        let Self { is_partial_start, unknown_fields, .. } = *self;
        let options = Options { removals, is_partial_start, unknown_fields };
        let (codec, limits) = (&self.codec, &self.limits);
        let now = SystemTime::now();
        let Loaded { state, mut load, postpones_removals } =
            load(&self.state, &scan, options, now, |path, content| {
                codec.decode_file(path, &content.bytes, limits)
            });
        load.texts = state.texts(&scan, limits);
        self.state = Arc::new(state);
        Looked { load, postpones_removals, is_quiet: scan.is_settled && !is_news }
    }
}

/// The same with paths relative to the roots. Several roots keep their last names, so that their files stay apart.
fn below_roots(scan: Scan, roots: &[PathBuf]) -> Scan {
    let relative = |path: Arc<str>| -> Arc<str> {
        let found = roots.iter().find_map(|root| Some((root, Path::new(&*path).strip_prefix(root).ok()?)));
        let Some((root, below)) = found else { return path };
        let name = root.file_name().map(Path::new).unwrap_or(root);
        let below = match below.as_os_str().is_empty() {
            true => name.to_owned(),
            false if roots.len() > 1 => name.join(below),
            false => below.to_owned(),
        };
        below.display().to_string().into()
    };
    let Scan { files, faults, is_settled } = scan;
    Scan {
        files: files.into_iter().map(|(path, read)| (relative(path), read)).collect(),
        faults: faults.into_iter().map(|(path, fault)| (relative(path), fault)).collect(),
        is_settled,
    }
}

/// Logs the hidden files of the watched directories, once for the life of the server.
fn log_hidden(hidden: &[String]) {
    if !hidden.is_empty() {
        let (n_hidden, paths) = (hidden.len(), hidden.join(", "));
        tracing::info!(n_hidden, paths, "hidden files and directories are not read");
    }
}

fn log_summary(load: &FileLoad) {
    let (n_files, n_resources, n_documents) =
        (load.files.len(), load.layer.n_resources(), load.documents.len());
    let n_errors =
        load.files.values().flat_map(|file| &file.diagnostics).filter(|one| one.is_error()).count();
    tracing::info!(
        n_files,
        n_resources,
        n_documents,
        n_errors,
        is_complete = load.is_complete,
        "files loaded"
    );
}

/// Saves the changes of the last good contents. Of several waiting states, only the newest is saved. Failed copies are tried again
/// after a while.
async fn save_copies(
    last_good: LastGood,
    mut saved: Arc<FilesState>,
    mut states: watch::Receiver<Arc<FilesState>>,
    tell: Saved,
) {
    let last_good = Arc::new(last_good);
    let mut unsaved: Copies = BTreeMap::new();
    loop {
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            () = sleep(SAVE_AGAIN), if !unsaved.is_empty() => {}
        }
        let state = Arc::clone(&states.borrow_and_update());
        let (before, store) = (saved, Arc::clone(&last_good));
        saved = Arc::clone(&state);
        let due = std::mem::take(&mut unsaved);
        let saving = tokio::task::spawn_blocking(move || {
            let mut due = due;
            due.extend(persist::changed_copies(&before, &state));
            save_all(&store, due)
        });
        match saving.await {
            Ok((failed, failure)) => {
                unsaved = failed;
                tell(failure.as_deref());
            }
            Err(_) => tracing::error!("saving last good copies failed"),
        }
    }
}

/// Copies by the path of their file; `None` for a file that is gone.
type Copies = BTreeMap<Arc<str>, Option<Vec<u8>>>;

/// Saves copies, and returns those that could not be, with the last reason.
fn save_all(store: &LastGood, due: Copies) -> (Copies, Option<String>) {
    let due: Vec<_> = due.into_iter().collect();
    let failed = Mutex::new((Copies::new(), None));
    // Each copy waits for the disk, which serves several at once.
    std::thread::scope(|scope| {
        for part in due.chunks(due.len().div_ceil(N_SAVERS).max(1)) {
            let failed = &failed;
            scope.spawn(move || {
                for (path, copy) in part {
                    let Err(error) = save_copy(store, path, copy.as_deref()) else { continue };
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.1 = Some(chain(&error));
                    // A copy that is too large will not be smaller later.
                    if matches!(error, LastGoodError::File(_)) {
                        failed.0.insert(Arc::clone(path), copy.clone());
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn save_copy(last_good: &LastGood, path: &str, copy: Option<&[u8]>) -> Result<(), LastGoodError> {
    let done = match copy {
        Some(copy) => last_good.save(path, copy),
        None => last_good.remove(path),
    };
    done.inspect_err(|error| {
        let error = chain(error);
        tracing::error!(path, error, "the last good copy could not be saved");
    })
}

/// Returns `true` if served and shown contents are equal.
fn is_same(one: &FileLoad, other: &FileLoad) -> bool {
    let is_same_file = |one: &FileStatus, other: &FileStatus| {
        one.hash == other.hash
            && one.objects == other.objects
            && one.diagnostics == other.diagnostics
            && one.is_last_good == other.is_last_good
    };
    let files = one.files.iter().zip(&other.files);
    one.is_complete == other.is_complete
        && one.files.len() == other.files.len()
        && files
            .into_iter()
            .all(|((path, one), (other_path, other))| path == other_path && is_same_file(one, other))
        && one.layer == other.layer
        && one.documents == other.documents
}

/// The most reloads that wait. Reloads come from people; more than these wait for the next look.
const MAX_REQUESTS: usize = 16;
/// How long after a failure copies are saved again: a disk that was full may have room by then.
const SAVE_AGAIN: Duration = Duration::from_secs(10);
/// The most copies that are written at once.
const N_SAVERS: usize = 8;
/// How long the answer to a reload waits for removals while files go on changing.
const MAX_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
