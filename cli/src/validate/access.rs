//! The access policy beside the files: doubts about it, and secrets that clients without an identity would not get.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use xds_access::check::{Served, check};
use xds_codec::{Diagnostic, Severity};
use xds_control::model::Texts;
use xds_files::read::FileContent;
use xds_settings::{Secrets, read_policy};

use crate::offline::{Offline, nowhere};

/// The policy to check, and how.
pub(super) struct AccessCheck<'a> {
    /// `--access`.
    pub(super) policy: Option<&'a Path>,
    /// `--secrets`.
    pub(super) secrets: Option<Secrets>,
    /// `--strict`.
    pub(super) is_strict: bool,
}

/// The findings about a policy, and about secrets.
pub(super) fn findings(check: &AccessCheck<'_>, offline: &mut Offline) -> Vec<Diagnostic> {
    let mut findings = check.policy.map(|path| of_policy(path, offline)).unwrap_or_default();
    if check.is_strict {
        let doubts = findings.iter_mut().filter(|one| one.severity == Severity::Warning);
        doubts.for_each(|one| one.severity = Severity::Error);
    }
    findings.extend(of_secrets(check, offline));
    texts(offline, &findings).move_to_fields(&mut findings);
    findings
}

/// The faults of a policy; if it has none, what is doubtful about it. Its file is one of those that were read.
fn of_policy(path: &Path, offline: &mut Offline) -> Vec<Diagnostic> {
    let name = path.display().to_string();
    let text = std::fs::read(path).unwrap_or_default();
    offline.scan.files.insert(name.into(), Ok(FileContent::new(&text)));
    let policy = match read_policy(path) {
        Ok((policy, _)) => policy,
        Err(faults) => return faults,
    };
    let groups = offline.groups();
    let place = |name| offline.group_places.get(name).cloned().unwrap_or_else(nowhere);
    let documents = offline.translated.documents.keys();
    let served = Served {
        groups: groups.iter().map(|(name, group)| (&group.definition, place(name))).collect(),
        namespaces: documents.map(|key| &*key.namespace).collect(),
    };
    check(&policy, &served, SystemTime::now())
}

/// The texts of the files that findings are in.
fn texts(offline: &Offline, findings: &[Diagnostic]) -> Texts {
    let files: BTreeSet<&Arc<str>> = findings.iter().map(|one| &one.place.file).collect();
    let text = |file: &Arc<str>| {
        let content = offline.scan.files.get(file)?.as_ref().ok()?;
        Some((Arc::clone(file), Arc::clone(&content.bytes)))
    };
    Texts::new(files.into_iter().filter_map(text).collect(), &offline.limits)
}

/// The secrets that would be withheld; errors, unless that was not asked for.
fn of_secrets(check: &AccessCheck<'_>, offline: &Offline) -> Vec<Diagnostic> {
    let is_asked = match check.secrets {
        Some(Secrets::Any) => return vec![],
        Some(Secrets::Identified) => true,
        None if check.policy.is_none() => return vec![],
        None => check.is_strict,
    };
    let mut found = xds_control::withheld(&offline.codec, &offline.groups());
    if !is_asked {
        found.iter_mut().for_each(|one| one.severity = Severity::Warning);
    }
    found
}
