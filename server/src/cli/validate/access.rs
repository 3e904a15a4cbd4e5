//! The access policy beside the files: doubts about it, and secrets that clients without an identity would not get.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use xds_access::check::{Served, check};
use xds_codec::{Diagnostic, Severity};
use xds_control::model::Texts;

use super::ValidateArgs;
use crate::access::read_policy;
use crate::cli::offline::{Offline, nowhere};
use crate::config::args::Secrets;
use crate::source::read::FileContent;

/// The findings about the policy of `--access`, and about secrets.
pub(super) fn findings(args: &ValidateArgs, offline: &mut Offline) -> Vec<Diagnostic> {
    let mut findings = args.access.as_deref().map(|path| of_policy(path, offline)).unwrap_or_default();
    if args.strict {
        let doubts = findings.iter_mut().filter(|one| one.severity == Severity::Warning);
        doubts.for_each(|one| one.severity = Severity::Error);
    }
    findings.extend(of_secrets(args, offline));
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
fn of_secrets(args: &ValidateArgs, offline: &Offline) -> Vec<Diagnostic> {
    let is_asked = match args.secrets {
        Some(Secrets::Any) => return vec![],
        Some(Secrets::Identified) => true,
        None if args.access.is_none() => return vec![],
        None => args.strict,
    };
    let mut found = xds_control::withheld(&offline.codec, &offline.groups());
    if !is_asked {
        found.iter_mut().for_each(|one| one.severity = Severity::Warning);
    }
    found
}
