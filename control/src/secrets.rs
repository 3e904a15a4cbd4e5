//! Reports about secrets that are kept from clients without an identity: errors of files, refusals of writes, problems.
//!
//! [`withhold`](crate::withhold) decides.

use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, Withheld, differing};
use xds_cache::{GroupName, Groups, Origin, Resource};
use xds_codec::{Codec, Diagnostic, Place, Severity};

use crate::accepted::{Accepted, Files, place_of_group};
use crate::model::WriteError;
use crate::warning::warning;
use crate::withhold::{Guarding, Secrets, withhold};

/// Refuses a write that would have something withheld which is not withheld yet.
///
/// # Errors
///
/// [`WriteError::Invalid`] with everything that it is about.
pub(crate) fn refuse(before: &Groups, after: &Groups) -> Result<(), WriteError> {
    let faults: Vec<Diagnostic> =
        news(before, after).map(|(name, one)| fault(name, one, body())).take(MAX_FAULTS).collect();
    if faults.is_empty() { Ok(()) } else { Err(WriteError::Invalid(faults)) }
}

/// Refuses files that would have something withheld which is not withheld yet.
///
/// # Errors
///
/// [`WriteError::Invalid`] with everything that it is about, each at its place in the files.
pub(crate) fn refuse_files(before: &Groups, after: &Groups, files: &Files) -> Result<(), WriteError> {
    let faults = news(before, after).map(|(name, one)| fault(name, one, place(name, one, files)));
    let faults: Vec<Diagnostic> = faults.take(MAX_FAULTS).collect();
    if faults.is_empty() { Ok(()) } else { Err(WriteError::Invalid(faults)) }
}

/// Everything that is withheld, each at its place in the files if it comes from one.
pub(crate) fn faults(groups: &Groups, files: &Files) -> Vec<Diagnostic> {
    let all = groups.iter().flat_map(|(name, group)| group.withheld.iter().map(move |one| (name, one)));
    all.map(|(name, one)| fault(name, one, place(name, one, files))).take(MAX_FAULTS).collect()
}

/// Everything that [`Secrets::Identified`] withholds of these groups, as [`faults`] of the files that it comes from.
#[must_use]
pub fn withheld(codec: &Codec, groups: &Groups) -> Vec<Diagnostic> {
    let guarding = Guarding { secrets: Secrets::Identified, ..Guarding::default() };
    let kept = |(name, group): (&GroupName, &Arc<EffectiveGroup>)| {
        let kept = withhold(codec, guarding, None, (**group).clone());
        (name.clone(), Arc::new(kept))
    };
    faults(&groups.iter().map(kept).collect(), &Files::new())
}

/// The problem that something is withheld; `None` if nothing is.
pub(crate) fn problem(accepted: &Accepted) -> Option<String> {
    let n_withheld: usize = accepted.groups.values().map(|group| group.withheld.len()).sum();
    let (name, first) =
        accepted.groups.iter().find_map(|(name, group)| Some((name, group.withheld.first()?)))?;
    let more = match n_withheld - 1 {
        0 => String::new(),
        n_more => format!("; and {n_more} more"),
    };
    Some(format!("secrets are withheld: {}{more}", fault(name, first, place(name, first, &accepted.files))))
}

/// Logs what is withheld and was not before.
pub(crate) fn log_news(before: &Groups, after: &Accepted) {
    for (name, one) in news(before, &after.groups).take(MAX_FAULTS) {
        let fault = fault(name, one, place(name, one, &after.files));
        let (file, line, column, code) =
            (&*fault.place.file, fault.place.line, fault.place.column, fault.code);
        tracing::error!(file, line, column, code, "{fault}");
    }
}

/// What `after` withholds and `before` does not. Later versions of a withheld resource are no news.
fn news<'g>(before: &'g Groups, after: &'g Groups) -> impl Iterator<Item = (&'g GroupName, &'g Withheld)> {
    differing(before, after).into_iter().flat_map(|name| {
        let known = before.get(name).map(|group| &*group.withheld).unwrap_or_default();
        let now = after.get(name).map(|group| &*group.withheld).unwrap_or_default();
        let is_news = |one: &&Withheld| !known.iter().any(|known| is_same(known, one));
        now.iter().filter(is_news).map(move |one| (name, one))
    })
}

fn is_same(one: &Withheld, other: &Withheld) -> bool {
    match (one, other) {
        (Withheld::Resource { resource: one, .. }, Withheld::Resource { resource: other, .. }) => {
            // A write that hides one of a file is another.
            let is_of_api = |resource: &Resource| *resource.origin() == Origin::Api;
            one.key() == other.key() && is_of_api(one) == is_of_api(other)
        }
        (Withheld::Definition { .. }, Withheld::Definition { .. }) => true,
        (_, _) => false,
    }
}

fn fault(name: &GroupName, withheld: &Withheld, place: Place) -> Diagnostic {
    let (path, message) = match withheld {
        Withheld::Resource { resource, path } => {
            let change = match name.is_default() {
                true => "move it to a group with `identities`",
                false => "give the group `identities`, or move it to a group that has some",
            };
            let message = format!(
                "{} holds a secret, and the group {name} has no `identities`, so that clients which have proved nothing would \
                 get it; {change}",
                resource.key()
            );
            (&**path, message)
        }
        Withheld::Definition { secret } => {
            let message = format!(
                "the group {name} needs `identities`, because {} in it holds a secret; its last good definition stays",
                secret.key()
            );
            (if place.file.is_empty() { "identities" } else { "spec.identities" }, message)
        }
    };
    let fault = warning(CODE, path, message);
    Diagnostic { severity: Severity::Error, place, ..fault }
}

fn place(name: &GroupName, withheld: &Withheld, files: &Files) -> Place {
    match withheld {
        Withheld::Resource { resource, .. } => match resource.origin() {
            Origin::File { path, line, column } => {
                Place { file: Arc::clone(path), line: *line, column: *column }
            }
            Origin::Api => body(),
        },
        Withheld::Definition { .. } => place_of_group(name, files).unwrap_or_else(body),
    }
}

/// The place of what no file says.
fn body() -> Place {
    Place { file: "".into(), line: 0, column: 0 }
}

/// The code of these faults.
pub(crate) const CODE: &str = "secret-without-identities";

/// The most faults that one change reports.
const MAX_FAULTS: usize = 100;
