//! Diagnostics at the files whose contents are not served to everyone because of a wave deployment.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::Origin;
use xds_codec::{Diagnostic, Place, Severity};

use super::report::report;
use super::value::{PreviousValue, Wave};
use crate::accepted::Accepted;
use crate::env::{At, Env};
use crate::key::StoreKey;
use crate::model::FileStatus;
use crate::model::wave::{WavePhase, WaveReport};

/// Reports at each file the objects that are not served to everyone: an error if nobody gets them, a warning if an operator has to
/// decide, else for information. A file that is gone, but not for everyone, is listed again.
pub(crate) fn tell_waves(env: &Env, accepted: &Accepted, files: &mut BTreeMap<Arc<str>, FileStatus>, at: At) {
    let wave = accepted.wave.as_deref().filter(|wave| wave.previous.keys().any(StoreKey::is_of_file));
    let Some(wave) = wave else { return };
    let report = report(env, wave, at);
    let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (key, value) in &*wave.previous {
        let Some(place) = place(accepted, key, value.as_ref()) else { continue };
        // Files that exist are listed as soon as their load is done; only files that are gone are listed here.
        if place.line > 0 && !files.contains_key(&place.file) {
            continue;
        }
        let count = counts.entry(Arc::clone(&place.file)).or_default();
        *count += 1;
        if *count > MAX_DIAGNOSTICS {
            continue;
        }
        let file = files.entry(Arc::clone(&place.file)).or_insert_with(|| gone(&place.file, wave));
        if report.phase == WavePhase::Held {
            let is_it = |line, column| place.line > 0 && (line, column) == (place.line, place.column);
            let objects = Arc::make_mut(&mut file.objects).iter_mut();
            let found = objects.filter(|object| is_it(object.line, object.column));
            found.for_each(|object| object.is_last_good = true);
        }
        file.diagnostics.push(diagnostic(&report, key, place));
    }
    for (path, n) in counts.into_iter().filter(|(_, n)| *n > MAX_DIAGNOSTICS) {
        let Some(file) = files.get_mut(&path) else { continue };
        if let Some(last) = file.diagnostics.last_mut() {
            last.message = format!("{}; and {} more objects of the file", last.message, n - MAX_DIAGNOSTICS);
        }
    }
}

/// Where a file says the thing, or said it before it was taken out; `None` if that is not known, or it is not a file's.
fn place(accepted: &Accepted, key: &StoreKey, value: Option<&PreviousValue>) -> Option<Place> {
    let of_origin = |origin: &Origin| match origin {
        Origin::File { path, line, column } => {
            Some(Place { file: Arc::clone(path), line: *line, column: *column })
        }
        Origin::Api => None,
    };
    let present = if let StoreKey::File(group, key) = key {
        accepted.base.resources(group).and_then(|all| all.get(key)).and_then(|one| of_origin(one.origin()))
    } else if let StoreKey::FileDocument(key) = key {
        accepted.documents.files.get(key).map(|one| one.document.place.clone())
    } else {
        return None;
    };
    // An object that was taken out has no line any more.
    let former = || match value? {
        PreviousValue::Resource(resource) => of_origin(resource.origin()),
        PreviousValue::Document(document) => Some(document.document.place.clone()),
        PreviousValue::Label(_) | PreviousValue::Definition(_) | PreviousValue::Weights(_) => None,
    };
    let former = || former().map(|place| Place { line: 0, column: 0, ..place });
    present.or_else(former).filter(|place| !place.file.is_empty())
}

fn diagnostic(report: &WaveReport, key: &StoreKey, place: Place) -> Diagnostic {
    let (id, what) = (report.deployment, key.what());
    let members = &report.members;
    let share = report.share().map_or_else(|| "0%".to_owned(), |share| share.to_string());
    let served = format!(
        "the new version of {what} is served to {share} of its nodes, {} of which are connected; the others have the previous version",
        members.n_ahead
    );
    let why = report.reason.as_deref().unwrap_or("it was put back");
    let (severity, code, message, what_to_do) = match report.phase {
        WavePhase::Held => (
            Severity::Error,
            "wave-put-back",
            format!(
                "the new version of {what} is served to nobody, everyone has the previous version: {why}"
            ),
            format!(
                "change the file again, or undo the change; POST /v1/waves/{id}:resume tries it again as it is"
            ),
        ),
        WavePhase::Paused => (
            Severity::Warning,
            "wave-paused",
            format!("{served}, until somebody decides: {why}"),
            format!(
                "POST /v1/waves/{id}:resume continues, :promote gives it to everyone, :abort puts it back"
            ),
        ),
        WavePhase::Progressing
        | WavePhase::Holding
        | WavePhase::Completed
        | WavePhase::Promoted
        | WavePhase::Reverted
        | WavePhase::Superseded => (
            Severity::Info,
            "wave-under-way",
            format!("{served}; {} have acknowledged it, {} rejected it", members.n_acked, members.n_nacked),
            format!(
                "wait; GET /v1/waves/{id} shows who has it, :promote gives it to everyone, :abort puts it back"
            ),
        ),
    };
    let (path, related, message) = (String::new(), vec![], format!("{message}; {what_to_do}"));
    Diagnostic { severity, code, place, path, message, suggestion: None, related, is_sensitive: false }
}

/// A file that is gone, while its contents are still served.
fn gone(path: &Arc<str>, wave: &Wave) -> FileStatus {
    FileStatus {
        path: Arc::clone(path),
        hash: None,
        loaded_at: wave.began_at,
        objects: Arc::default(),
        diagnostics: vec![],
        is_last_good: true,
    }
}

/// The most diagnostics about a wave deployment at one file.
const MAX_DIAGNOSTICS: usize = 100;
