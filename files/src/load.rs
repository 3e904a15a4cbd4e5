//! Computes the next state from the previous one and a scan: last good contents, groups by directory, owners (D5).
//!
//! It is a function of its arguments: it does no I/O and reads no clock, and the order of files does not matter.
//!
//! - A file that is broken as a whole keeps its last good contents, a bad object its last good version.
//! - A resource belongs to a group and to one file, a route document to one file of all. Two files that define it are an
//!   error; the owner keeps it.
//! - What is missing stays while removals are [postponed](Removals::Postponed).
//! - Nothing is complete before one load without an error, unless there are last good contents of a run before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{DecodedFile, Diagnostic, Place};
use xds_control::model::FileLoad;
use xds_control::model::FileStatus;
use xds_control::model::Texts;
use xds_routes::UnknownFields;

use crate::read::{FileContent, Scan};
use crate::timing::Removals;
use crate::walk::is_below;

mod content;
mod files;
mod findings;
mod groups;
mod objects;
mod parallel;
mod parsed;
pub mod persist;
mod state;
#[cfg(test)]
mod tests;

pub use state::FilesState;

use files::{FileState, Files};
use findings::Findings;
use groups::Assignment;
use objects::Objects;
use parallel::Bounds;
use parsed::{Parsed, diagnostic};

/// How a load is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The treatment of missing objects.
    pub removals: Removals,
    /// True if the good part of a first load with errors is served.
    pub is_partial_start: bool,
    /// The treatment of route documents with unknown fields.
    pub unknown_fields: UnknownFields,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The state for the next load.
    pub state: FilesState,
    /// The contents to serve and to show, without their texts.
    pub load: FileLoad,
    /// True if something is missing and still served.
    pub postpones_removals: bool,
}

/// Loads what a scan found on top of what was known.
///
/// `decode` is asked only for contents that are new, of several files at a time. A scan that is not settled never removes anything.
#[must_use]
pub fn load(
    previous: &FilesState,
    scan: &Scan,
    options: Options,
    now: SystemTime,
    decode: impl Fn(&str, &FileContent) -> DecodedFile + Sync,
) -> Loaded {
    load_within(Bounds::of_machine(), previous, scan, options, now, decode)
}

/// Like [`load`], with as much at a time as the bounds say, which changes nothing of what it gives.
fn load_within(
    bounds: Bounds,
    previous: &FilesState,
    scan: &Scan,
    options: Options,
    now: SystemTime,
    decode: impl Fn(&str, &FileContent) -> DecodedFile + Sync,
) -> Loaded {
    let removals = if scan.is_settled { options.removals } else { Removals::Postponed };
    let mut findings = Findings::default();
    let parsed = parse_new(previous, scan, bounds, |path, content| {
        Parsed::new(decode(path, content), options.unknown_fields)
    });
    let files = take_files(previous, scan, parsed, options.removals, now);
    let assignment = groups::assign(&files, &previous.directories, removals, &mut findings);
    let mut objects =
        objects::resolve((&previous.objects, &previous.files), &files, &assignment, removals, &mut findings);
    let present = definitions(&assignment);
    let mut definitions = present.clone();
    let mut postpones_removals = false;
    if removals == Removals::Postponed {
        for (name, definition) in &previous.definitions {
            definitions.entry(name.clone()).or_insert_with(|| definition.clone());
        }
        postpones_removals =
            definitions.len() > present.len() || is_something_missing(&files, &assignment, &objects);
    }
    objects.define(&definitions);
    let statuses = statuses(&files, &scan.faults, &objects, findings, now);
    let has_errors = statuses.values().any(|file| file.diagnostics.iter().any(Diagnostic::is_error));
    let is_clean = !has_errors && scan.is_settled;
    // If no file is readable, a partial start would take everything from every client.
    let is_partial = options.is_partial_start && files.values().any(|file| !file.parsed.is_broken);
    let is_complete = previous.is_complete || is_clean || is_partial;
    let (layer, documents) = (objects.layer.clone(), Arc::clone(&objects.documents));
    let (unusable, texts) = (objects.unusable(), Texts::default());
    let state = FilesState { files, directories: assignment.directories, definitions, objects, is_complete };
    let load = FileLoad { layer, documents, files: statuses, unusable, texts, is_complete };
    Loaded { state, load, postpones_removals }
}

/// The files whose content is new, parsed.
fn parse_new<'s>(
    previous: &FilesState,
    scan: &'s Scan,
    bounds: Bounds,
    parse: impl Fn(&str, &FileContent) -> Parsed + Sync,
) -> BTreeMap<&'s Arc<str>, Parsed> {
    let is_new = |path: &Arc<str>, content: &FileContent| {
        previous.files.get(path).is_none_or(|file| file.hash != Some(content.hash))
    };
    let contents = scan.files.iter().filter_map(|(path, read)| Some((path, read.as_ref().ok()?)));
    let new: Vec<_> = contents.filter(|(path, content)| is_new(path, content)).collect();
    let parsed = parallel::map(
        &new,
        bounds,
        |(_, content)| content.bytes.len(),
        |(path, content)| parse(path, content),
    );
    new.into_iter().map(|(path, _)| path).zip(parsed).collect()
}

/// The files of the scan, those below a fault as they were, and the missing ones while removals are postponed.
fn take_files(
    previous: &FilesState,
    scan: &Scan,
    mut parsed: BTreeMap<&Arc<str>, Parsed>,
    removals: Removals,
    now: SystemTime,
) -> Files {
    let mut files = Files::new();
    for (path, read) in &scan.files {
        let mut file = previous.files.get(path).cloned().unwrap_or_else(|| Arc::new(FileState::new(now)));
        match read {
            Ok(content) => match parsed.remove(path) {
                Some(parsed) => Arc::make_mut(&mut file).take(Some(content.hash), parsed, now),
                None if file.is_missing => Arc::make_mut(&mut file).is_missing = false,
                None => {}
            },
            Err(fault) => {
                let parsed = Parsed::of_fault(path, fault);
                if file.is_missing || file.parsed.diagnostics != parsed.diagnostics {
                    Arc::make_mut(&mut file).take(None, parsed, now);
                }
            }
        }
        files.insert(Arc::clone(path), file);
    }
    for (path, file) in &previous.files {
        if files.contains_key(path) {
            continue;
        }
        let is_unreachable = scan.faults.keys().any(|fault| is_below(path, fault));
        if is_unreachable || removals == Removals::Postponed {
            let mut file = Arc::clone(file);
            if file.is_missing == is_unreachable {
                Arc::make_mut(&mut file).is_missing = !is_unreachable;
            }
            files.insert(Arc::clone(path), file);
        }
    }
    files
}

fn is_something_missing(files: &Files, assignment: &Assignment, objects: &Objects) -> bool {
    files.values().any(|file| file.is_missing)
        || assignment.directories.values().any(|group| group.is_leaving)
        || objects.is_something_missing()
}

/// The definition of each group. What is still there wins over a postponed removal.
fn definitions(assignment: &Assignment) -> BTreeMap<GroupName, NodeGroup> {
    let groups = assignment.directories.values().filter(|group| !group.definition.name.is_default());
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by_key(|group| !group.is_leaving);
    groups.into_iter().map(|group| (group.definition.name.clone(), group.definition.clone())).collect()
}

fn statuses(
    files: &Files,
    faults: &BTreeMap<Arc<str>, String>,
    objects: &Objects,
    mut findings: Findings,
    now: SystemTime,
) -> BTreeMap<Arc<str>, FileStatus> {
    let mut statuses = BTreeMap::new();
    for (path, file) in files.iter().filter(|(_, file)| !file.is_missing) {
        let mut diagnostics = file.parsed.diagnostics.clone();
        diagnostics.extend(findings.0.remove(path).unwrap_or_default());
        diagnostics.sort_by_key(|one| (one.place.line, one.place.column));
        let objects = objects.files.get(path).map(|of_file| Arc::clone(&of_file.objects));
        let status = FileStatus {
            path: Arc::clone(path),
            hash: file.hash,
            loaded_at: file.loaded_at,
            objects: objects.unwrap_or_default(),
            diagnostics,
            is_last_good: file.is_last_good(),
        };
        statuses.insert(Arc::clone(path), status);
    }
    for (path, message) in faults {
        let place = Place { file: Arc::clone(path), line: 0, column: 0 };
        let fault = diagnostic("unreadable-path", place, message.clone());
        let status = statuses.entry(Arc::clone(path)).or_insert_with(|| FileStatus {
            path: Arc::clone(path),
            hash: None,
            loaded_at: now,
            objects: Arc::default(),
            diagnostics: Vec::new(),
            is_last_good: files.keys().any(|file| is_below(file, path)),
        });
        status.diagnostics.insert(0, fault);
    }
    statuses
}
