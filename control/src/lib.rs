//! The one place where changes become revisions and publications (D2).
//!
//! Files and the admin API both end here: a change is built from what is, checked, committed to the store by compare-and-set
//! and published, one change at a time. What the files say is the *base*, what the API says the *overrides* (D6); the store
//! keeps the overrides, and of the files what they said last, without secrets: for differences, and for the next start.
//!
//! [`candidate`] says what a write would make of the overrides, [`check`] whether that is valid, [`plan`] what has to be
//! stored for it, [`mod@write`] does it. [`load`] takes in what the files give, [`stored`] what the store holds, [`past`] what it
//! held. Route documents of both sources are one more input: [`documents`] has them translated into resources. Over the weights
//! of rules, [`weights`] lays what the API says of them; those that [`rollouts`] own are theirs. [`wave`] lets a change reach a
//! share of the nodes first.

pub mod acks;
mod affected;
mod candidate;
pub mod check;
mod contents;
mod disk;
pub mod documents;
mod history;
mod key;
mod load;
mod mass_removal;
pub mod model;
mod observed;
mod past;
mod phases;
mod plan;
mod record;
mod recorded;
mod rollouts;
mod state;
mod stored;
pub(crate) mod wave;
mod weights;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast;
use xds_cache::loads::LoadBoard;
use xds_cache::wave::Share;
use xds_cache::{Layer, Publisher, Revision, StatusBoard, WavePolicy};
use xds_codec::{Codec, Diagnostic};
use xds_routes::conditions::GrpcFeature;
use xds_store::{Store, StoreError};

pub use self::acks::Acks;
use self::documents::Said;
use self::model::document::DocumentState;
use self::model::wave::{WavePhase, WaveReport, WaveVerb};
use self::model::{
    Asked, ChangedObject, Event, FileLoad, FileStatus, HistoryEntry, ReloadOutcome, ServedLoad, Write,
    WriteError, WriteOptions, WriteOutcome,
};
use self::observed::Observed;
pub use self::rollouts::RuleState;
use self::state::State;
use self::wave::Wave;

/// How changes are judged.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether files are watched: then nothing is served before their first complete load.
    pub watches_files: bool,
    /// Whether a dangling reference, or a conflict of groups of equal priority, is an error.
    pub strict: bool,
    /// The share of a group's resources, from 0 to 1, of which a load may remove no more without being confirmed.
    pub hold_mass_removal: Option<f64>,
    /// How route documents are translated.
    pub routes: xds_routes::Options,
    /// The waves of changes of groups that do not say it themselves; `None` for everyone at once.
    pub waves: Option<WavePolicy>,
    /// How clients are served, to tell in which phases they would get a change.
    pub session: xds_session::Limits,
}

/// What the control tells of its work, for the metrics.
pub trait Observer: Send + Sync {
    /// A revision was published; `source` is `api`, `file`, `rollback`, `revert`, `expiry`, `waves`, `rollout` or `store`.
    fn published(&self, source: &'static str, revision: Revision);
    /// A wave deployment is in another phase, or has reached another share of the nodes.
    fn wave(&self, phase: WavePhase, share: Option<Share>);
    /// All metrics in OpenMetrics text; `unsupported` is how many rules have something that gRPC clients cannot have.
    fn render(&self, unsupported: &BTreeMap<GrpcFeature, usize>) -> String;
}

/// A boxed future, for what is behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reads the files again and hands them to [`Control::take_files`], as confirmed if the argument is true.
pub type Reload = Arc<dyn Fn(bool) -> BoxFuture<'static, Result<ReloadOutcome, WriteError>> + Send + Sync>;

/// Changes what is served. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// What changes are made with.
pub struct Parts {
    /// Reads and writes resources.
    pub codec: Codec,
    /// Where changes are committed.
    pub store: Arc<dyn Store>,
    /// Where they are published.
    pub publisher: Arc<Publisher>,
    /// Who is connected.
    pub board: Arc<StatusBoard>,
    /// Publishes, and remembers whom that concerned.
    pub acks: Arc<Acks>,
    /// What clients report of their requests.
    pub loads: Arc<LoadBoard>,
    /// Who counts.
    pub observer: Option<Arc<dyn Observer>>,
}

struct Shared {
    parts: Parts,
    options: Options,
    /// Held while a change is made; the state is only changed under it.
    changing: tokio::sync::Mutex<()>,
    /// Held while a dry run is made and played, which takes a processor and memory for its time. Taken before `changing`.
    dry_running: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    reload: OnceLock<Reload>,
    events: broadcast::Sender<Event>,
    /// Told when a wave deployment begins, or somebody did something to one.
    wave_told: tokio::sync::Notify,
    /// The documents without what a wave deployment changed, as they were needed last.
    former: Mutex<Option<wave::former::FormerDocuments>>,
    /// Told when overrides of weights change.
    weights_changed: tokio::sync::Notify,
    /// What the files gave when their copies were saved, until the first load.
    recalled: Mutex<Option<load::Base>>,
}

/// How many events a slow reader may lag behind before it loses the oldest.
const EVENT_CAPACITY: usize = 256;

impl Control {
    /// Reads what the store holds, and publishes it if there are no files to wait for.
    ///
    /// # Errors
    ///
    /// If the store cannot be read at all. A record that cannot be read is a [problem](Control::problems),
    /// not an error.
    pub fn open(parts: Parts, options: Options) -> Result<Self, StoreError> {
        let (revision, keys) = parts.store.state();
        let mut stored = stored::read(&parts.codec, &*parts.store, &keys, None)?;
        for problem in stored.unreadable.values() {
            tracing::error!(problem, "stored record left out");
        }
        let routes = Arc::new(options.routes.clone());
        let nothing = DocumentState { options: routes, ..DocumentState::default() };
        let said = Said {
            files: Arc::default(),
            owned: Arc::new(std::mem::take(&mut stored.documents)),
            weights: Arc::new(std::mem::take(&mut stored.weights)),
        };
        let observed = Observed::read(&*parts.store, &keys, |_| true)?;
        let documents = documents::next(&parts.codec, &nothing, said, &observed, SystemTime::now());
        let (events, _) = broadcast::channel(EVENT_CAPACITY);
        let codec = parts.codec.clone();
        let shared = Shared {
            parts,
            changing: tokio::sync::Mutex::default(),
            dry_running: tokio::sync::Mutex::default(),
            state: Mutex::new(State::new(&codec, revision_of(revision), stored, documents, observed)),
            reload: OnceLock::new(),
            events,
            wave_told: tokio::sync::Notify::new(),
            former: Mutex::default(),
            weights_changed: tokio::sync::Notify::new(),
            recalled: Mutex::default(),
            options,
        };
        shared.read_wave(&keys)?;
        if !shared.options.watches_files {
            shared.publish_first();
        }
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Says how the files are read again. Without it a reload changes nothing. The first one stays.
    pub fn set_reload(&self, reload: Reload) {
        if self.shared.reload.set(reload).is_err() {
            tracing::warn!("how the files are read again was said twice");
        }
    }

    /// Makes `load` what the files give. The first complete one also makes the server ready.
    ///
    /// Nothing is done if nothing changed. A load that removes too much is held back (`--hold-mass-removal`), unless it is confirmed.
    ///
    /// # Errors
    ///
    /// Never because of the files' contents; a store that fails is a problem, and the files are served nevertheless.
    pub async fn take_files(&self, load: FileLoad, asked: Asked) -> Result<ReloadOutcome, WriteError> {
        self.detached(move |control| async move { control.shared.load(load, asked).await }).await
    }

    /// Takes in what others commit to the same store, until the store is closed.
    pub async fn follow_store(self) {
        let mut head = self.shared.parts.store.watch();
        loop {
            {
                let _changing = self.shared.changing.lock().await;
                match self.shared.catch_up().await {
                    Ok(()) => self.shared.solved("store"),
                    Err(error) => self.shared.problem("store", format!("the store cannot be read: {error}")),
                }
            }
            if head.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes the server not ready, for good.
    pub fn shut_down(&self) {
        self.shared.state().is_closing = true;
    }

    /// Runs a change to its end even if the caller goes away meanwhile: what is committed must be published.
    async fn detached<T, F>(&self, change: impl FnOnce(Self) -> F) -> Result<T, WriteError>
    where
        F: Future<Output = Result<T, WriteError>> + Send + 'static,
        T: Send + 'static,
    {
        tokio::spawn(change(self.clone())).await.map_err(|_| WriteError::Closed)?
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({})", self.shared.state().revision)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Control {
    /// Validates, commits and publishes a change. Answered after all three.
    ///
    /// Dropping the future does not stop a write that has begun.
    pub async fn write(&self, write: Write, options: WriteOptions) -> Result<WriteOutcome, WriteError> {
        self.detached(|control| async move { control.shared.write(write, options).await }).await
    }

    /// What the API owns now, and the revision of it.
    pub fn overrides(&self) -> (Revision, Arc<Layer>) {
        let state = self.shared.state();
        (state.revision, Arc::clone(&state.overrides))
    }

    /// What the files give now.
    pub fn base(&self) -> Arc<Layer> {
        Arc::clone(&self.shared.state().base)
    }

    /// Reads the files again now. `confirm` also publishes a load that is held back.
    pub async fn reload(&self, confirm: bool) -> Result<ReloadOutcome, WriteError> {
        match self.shared.reload.get() {
            Some(reload) => reload(confirm).await,
            None => Ok(self.shared.nothing_loaded()),
        }
    }

    /// The route documents now, and what became of them.
    pub fn documents(&self) -> DocumentState {
        self.shared.state().documents.clone()
    }

    /// The watched files, by path.
    pub fn files(&self) -> BTreeMap<Arc<str>, FileStatus> {
        let (files, documents) = {
            let state = self.shared.state();
            (Arc::clone(&state.files), state.documents.clone())
        };
        let mut files = (*files).clone();
        let mut touched = BTreeSet::new();
        for doubt in &documents.translated.translation.diagnostics {
            if let Some(file) = files.get_mut(&doubt.place.file) {
                file.diagnostics.push(doubt.clone());
                touched.insert(&doubt.place.file);
            }
        }
        self.shared.tell_waves(&mut files);
        for path in touched {
            if let Some(file) = files.get_mut(path) {
                file.diagnostics.sort_by_key(|one| (one.place.line, one.place.column));
            }
        }
        files
    }

    /// Why a load of files is held back, if one is.
    pub fn held(&self) -> Option<String> {
        self.shared.state().held.clone()
    }

    /// Which load of the files is served.
    pub fn served_load(&self) -> ServedLoad {
        let state = self.shared.state();
        match state.is_loaded {
            false => ServedLoad::None,
            true if state.held.is_some() || state.problems.contains_key(load::REFUSED) => ServedLoad::Earlier,
            true => ServedLoad::Current,
        }
    }

    /// Why the server is not ready; empty if it is.
    pub fn not_ready(&self) -> Vec<String> {
        let state = self.shared.state();
        let mut reasons = Vec::new();
        if state.is_closing {
            reasons.push("the server is shutting down".to_owned());
        }
        if !state.is_loaded {
            reasons.push(state.nothing_served());
        }
        reasons
    }

    /// What needs attention though the server serves, such as a stored record that could not be read.
    pub fn problems(&self) -> Vec<String> {
        let state = self.shared.state();
        let broken = state.broken_files().filter(|_| state.is_loaded);
        let broken =
            broken.map(|files| format!("there are errors in {files}; last good contents are served"));
        // What the program itself got wrong is in no file.
        let is_ours = |doubt: &&Diagnostic| doubt.code == "generated-resource" && doubt.place.file.is_empty();
        let generated = state.documents.translated.translation.diagnostics.iter().filter(is_ours);
        let known = state.unreadable.values().chain(state.problems.values()).cloned().chain(broken);
        let wave = state.wave.as_ref().and_then(Wave::problem);
        let held = state.held.as_ref().filter(|_| state.is_loaded).map(|held| {
            format!("a load of the files is held back: {held}; `xds-server reload --confirm` lets it pass")
        });
        known.chain(generated.map(ToString::to_string)).chain(wave).chain(held).collect()
    }

    /// The wave deployment that is under way, and the last ones that were, newest first.
    pub fn waves(&self) -> Vec<WaveReport> {
        self.shared.wave_reports()
    }

    /// Does something to a wave deployment. Answered with what it is then.
    pub async fn wave(
        &self,
        deployment: u64,
        verb: WaveVerb,
        actor: String,
    ) -> Result<WaveReport, WriteError> {
        let act = move |control: Self| async move { control.shared.act(deployment, verb, &actor).await };
        self.detached(act).await
    }

    /// What is published, held and reported from now on; a reader that lags loses the oldest and is told so.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// The metrics in OpenMetrics text.
    pub fn metrics(&self) -> String {
        let translated = Arc::clone(&self.shared.state().documents.translated);
        let unsupported = &translated.translation.grpc_unsupported;
        self.shared.parts.observer.as_ref().map(|observer| observer.render(unsupported)).unwrap_or_default()
    }

    /// At most `limit` revisions below `before` (or from the newest on), newest first. Reads files.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<HistoryEntry>, WriteError> {
        history::entries(&*self.shared.parts.store, before, limit)
    }

    /// One revision and what it changed. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    pub fn revision(&self, revision: Revision) -> Result<(HistoryEntry, Vec<ChangedObject>), WriteError> {
        history::entry(&self.shared.parts.codec, &*self.shared.parts.store, revision)
    }

    /// What differs between the states after two revisions. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    pub fn difference(&self, from: Revision, to: Revision) -> Result<Vec<ChangedObject>, WriteError> {
        history::difference(&self.shared.parts.codec, &*self.shared.parts.store, from, to)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        // No receiver is no error: then nobody watches.
        let _ = self.events.send(event);
    }

    /// Notes that something needs attention until the same subject is fine again.
    fn problem(&self, subject: &'static str, message: String) {
        tracing::error!(subject, "{message}");
        let before = self.state().problems.insert(subject, message.clone());
        if before.as_ref() != Some(&message) {
            self.tell(Event::Problem { message });
        }
    }

    fn solved(&self, subject: &'static str) {
        self.state().problems.remove(subject);
    }
}

/// The store's and the cache's revisions are the same numbers.
fn revision_of(revision: xds_store::Revision) -> Revision {
    Revision(revision.0)
}

fn stored_revision(revision: Revision) -> xds_store::Revision {
    xds_store::Revision(revision.0)
}

/// An error and its causes on one line; a cause that the line says already is left out.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = cause.source();
    }
    text
}
