//! The kernel's notifications. They only say that something may have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use xds_files::names::{can_matter, is_configuration};
use xds_files::walk::{Directory, Walk};

/// The directories that matter, by absolute path, and the names in them that do; `None` stands for all.
type Interest = BTreeMap<PathBuf, Option<Vec<OsString>>>;

/// The state that the callback reads and writes.
#[derive(Debug, Default)]
struct Shared {
    interest: Arc<Interest>,
    /// Directories whose watch has ended. Another one may be there since, even with the same inode.
    lost: BTreeSet<PathBuf>,
}

/// Watches directories, and notifies once for any number of changes.
#[derive(Debug)]
pub(super) struct Events {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, Directory>,
    shared: Arc<Mutex<Shared>>,
    /// True if it was said that watching fails.
    has_warned: bool,
}

impl Events {
    /// Watches nothing yet. `dirty` is notified of everything that can matter.
    ///
    /// Without a watcher, because the system has none left, changes are found by polling.
    pub(super) fn new(dirty: Arc<Notify>) -> Self {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let of_callback = Arc::clone(&shared);
        // Called for each event on the watcher's own thread. Nothing is queued: events collapse into one notification.
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that events were lost.
            let matters = event.map_or(true, |event| take(&event, &mut lock(&of_callback)));
            if matters {
                dirty.notify_one();
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "files cannot be watched; changes are found by polling");
        });
        Self { has_warned: watcher.is_err(), watcher: watcher.ok(), watched: BTreeMap::new(), shared }
    }

    /// Watches exactly the directories of a walk. Returns `true` if one of them was not watched before.
    pub(super) fn watch(&mut self, walk: &Walk) -> bool {
        let interest =
            walk.directories.iter().map(|(path, directory)| (absolute(path), directory.only.clone()));
        let interest = Arc::new(interest.collect());
        let lost = {
            let mut shared = lock(&self.shared);
            shared.interest = interest;
            std::mem::take(&mut shared.lost)
        };
        let Some(watcher) = &mut self.watcher else { return false };
        let is_kept = |path: &PathBuf, old: &Directory| {
            walk.directories.get(path).is_some_and(|new| new.id == old.id) && !lost.contains(&absolute(path))
        };
        let gone: Vec<PathBuf> = self
            .watched
            .iter()
            .filter(|(path, old)| !is_kept(path, old))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            // It fails if the directory itself is gone, and with it the watch.
            let _ = watcher.unwatch(&absolute(&path));
            self.watched.remove(&path);
        }
        let mut is_new = false;
        for (path, directory) in &walk.directories {
            if self.watched.contains_key(path) {
                continue;
            }
            match watcher.watch(&absolute(path), RecursiveMode::NonRecursive) {
                Ok(()) => {
                    is_new = true;
                    self.watched.insert(path.clone(), directory.clone());
                }
                Err(error) if !self.has_warned => {
                    self.has_warned = true;
                    tracing::warn!(path = %path.display(), %error, "cannot be watched; changes are found by polling");
                }
                Err(_) => {}
            }
        }
        is_new
    }
}

/// Notes which watches an event ends. Returns whether it can change what is loaded.
///
/// When a name goes, by removal or renaming, the watcher drops what it watches at that path and below, even if another
/// directory has come there since.
fn take(event: &Event, shared: &mut Shared) -> bool {
    let is_gone = match event.kind {
        EventKind::Remove(_) => true,
        EventKind::Modify(ModifyKind::Name(mode)) => mode != RenameMode::To,
        EventKind::Any
        | EventKind::Access(_)
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Other => false,
    };
    if is_gone {
        let is_below = |path: &&PathBuf| event.paths.iter().any(|gone| path.starts_with(gone));
        let lost: Vec<PathBuf> = shared.interest.keys().filter(is_below).cloned().collect();
        shared.lost.extend(lost);
    }
    can_change(event, &shared.interest)
}

/// Returns `true` if an event can change what is loaded.
fn can_change(event: &Event, interest: &Interest) -> bool {
    let is_about_content = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Data(_)) => {
            true
        }
        // Reading is no change; else our own reading would make us read again.
        EventKind::Access(_) => return false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    };
    if event.need_rescan() || event.paths.is_empty() {
        return true;
    }
    event.paths.iter().any(|path| {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return true };
        let text = name.to_string_lossy();
        match interest.get(parent) {
            // A log that is written beside the configuration must not delay removals for ever.
            Some(None) if is_about_content => is_configuration(&text),
            Some(None) => can_matter(&text),
            Some(Some(only)) => only.iter().any(|wanted| wanted == name) || interest.contains_key(path),
            // The directory itself, or one that was given up a moment ago.
            None => interest.contains_key(path),
        }
    })
}

/// Events carry absolute paths; resolving links here would hide that a link was swapped.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, Flag, MetadataKind, RemoveKind};

    use super::*;

    #[test]
    fn only_what_can_change_the_load_counts() {
        let interest: Interest =
            BTreeMap::from([("/w".into(), None), ("/p".into(), Some(vec!["w.yaml".into(), "root".into()]))]);
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let table = [
            (data, "/w/a.yaml", true),
            (closed, "/w/a.yaml", true),
            (data, "/w/access.log", false),
            (data, "/w/.a.yaml.swp", false),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "/w/a.yaml", false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), "/w/a.yaml", false),
            (EventKind::Create(CreateKind::Folder), "/w/conf.d", true),
            (EventKind::Create(CreateKind::File), "/w/4913", false),
            (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), "/w/a.yaml", true),
            (renamed, "/w/..data", true),
            (renamed, "/w/..data_tmp", false),
            (EventKind::Remove(RemoveKind::Folder), "/w", true),
            (renamed, "/p/root", true),
            (data, "/p/w.yaml", true),
            (data, "/p/other.yaml", false),
            (EventKind::Create(CreateKind::Folder), "/elsewhere/a", false),
        ];
        for (kind, path, expected) in table {
            let event = Event::new(kind).add_path(path.into());
            assert_eq!(can_change(&event, &interest), expected, "{kind:?} {path}");
        }
        assert!(can_change(&Event::new(EventKind::Other).set_flag(Flag::Rescan), &interest));
    }

    #[test]
    fn a_name_that_goes_ends_the_watches_at_and_below_it() {
        let lost_by = |kind, path: &str| {
            let interest: Interest = ["/w", "/w/a", "/w/a/b", "/w/ab"].map(|path| (path.into(), None)).into();
            let mut shared = Shared { interest: Arc::new(interest), ..Shared::default() };
            take(&Event::new(kind).add_path(path.into()), &mut shared);
            shared.lost.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let renamed = |mode| EventKind::Modify(ModifyKind::Name(mode));
        assert_eq!(lost_by(EventKind::Remove(RemoveKind::Folder), "/w/a"), ["/w/a", "/w/a/b"]);
        assert_eq!(lost_by(renamed(RenameMode::From), "/w/a"), ["/w/a", "/w/a/b"]);
        assert!(lost_by(renamed(RenameMode::To), "/w/a").is_empty());
        assert!(lost_by(EventKind::Remove(RemoveKind::File), "/w/a/c.yaml").is_empty());
    }
}
