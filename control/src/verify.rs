//! Translations that follow others, compared with what is made of the same documents from nothing.
//!
//! Both are equal unless a unit of the translation reads something without recording it. Tests compare after each change, and a
//! server in use compares now and then. A difference is reported, and the whole translation replaces the other one.

use std::sync::Arc;

use xds_codec::Codec;
use xds_routes::{Translation, translate};

use crate::accepted::Accepted;
use crate::documents;
use crate::env::At;
use crate::model::document::DocumentState;
use crate::model::{ChangeSource, WriteError};
use crate::plan::Patch;
use crate::stored_statuses::StoredStatuses;
use crate::transition::{Label, Note, Outcome, ProblemSubject, Transition};

/// The translation of all documents, made from nothing, with the places where the present one differs; `None` if it does not.
pub(crate) fn anew(codec: &Codec, documents: &DocumentState) -> Option<(Translation, String)> {
    let translated = &documents.translated;
    let whole = translate(codec, &translated.documents, &documents.options, None);
    let difference = translated.translation.difference(&whole)?;
    Some((whole, difference))
}

/// Refuses what would be wrong.
///
/// # Errors
///
/// Says where it differs from what is made from nothing.
pub(crate) fn refuse(codec: &Codec, before: &Accepted, after: &Accepted) -> Result<(), WriteError> {
    if Arc::ptr_eq(&before.documents.translated, &after.documents.translated) {
        return Ok(());
    }
    match anew(codec, &after.documents) {
        Some((_, difference)) => {
            Err(WriteError::Internal(format!("a change would have produced a wrong result for {difference}")))
        }
        None => Ok(()),
    }
}

/// Puts what is made from nothing in the place of what is wrong.
pub(crate) fn propose(codec: &Codec, accepted: &Accepted, at: At) -> Transition {
    let Some((translation, difference)) = anew(codec, &accepted.documents) else {
        return Transition::quiet(accepted.clone(), Outcome::Done);
    };
    let before = &accepted.documents.translated;
    let (documents, stored_statuses) = (before.documents.clone(), StoredStatuses::default());
    let translated = documents::translated(before, documents, translation, &stored_statuses, at.wall);
    let documents = DocumentState { translated: Arc::new(translated), ..accepted.documents.clone() };
    let groups = accepted.patched(codec, &accepted.base, &Patch::new(), &documents);
    let problem = format!(
        "after changes of documents, {difference} differed from a translation of all documents, so everything was translated again. This is a bug in the server: please report it"
    );
    let next = Accepted { documents, groups, ..accepted.clone() };
    let label = Label::new("", ChangeSource::Verify, format!("mend {difference}"));
    let notes = vec![Note::problem(ProblemSubject::Translation, problem)];
    Transition { is_published: true, label, notes, ..Transition::quiet(next, Outcome::Done) }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;
    use xds_cache::{GroupName, Profile};
    use xds_codec::Tree;
    use xds_routes::{Delta, ReadOutcome, UnknownFields, read};

    use super::*;
    use crate::model::document::{GroupedDocument, GroupedDocuments, Translated};

    /// A route that an Envoy is served, accepted.
    fn accepted(codec: &Codec) -> Accepted {
        let native = json!({
            "version": "xds-server/v1", "listeners": {"edge": {"port": 10_000}},
            "routes": {"web": {"match": {"prefix": "/"}, "to": "one"}}, "backends": {"one": "10.0.0.1:80"},
        });
        let ReadOutcome::Objects(objects) =
            read(&"f".into(), &Tree::from_json(&native), UnknownFields::Refuse)
        else {
            unreachable!("documents")
        };
        let group = GroupName::default_group();
        let grouped = |document| GroupedDocument::new(document, group.clone());
        let documents: GroupedDocuments =
            objects.into_iter().map(|object| (object.key, grouped(object.outcome.unwrap().0))).collect();
        let documents =
            documents::offline(codec, &DocumentState::default(), Arc::new(documents), &|_| false).unwrap();
        let groups = Accepted::default().patched(codec, &Accepted::default().base, &Patch::new(), &documents);
        Accepted { documents, groups, ..Accepted::default() }
    }

    /// The same with one of its Envoy's resources lost.
    fn damaged(codec: &Codec, accepted: &Accepted) -> Accepted {
        let Translated { documents, translation, since } = &*accepted.documents.translated;
        let mut translation = translation.clone();
        let group = translation.groups.get_mut(&GroupName::default_group()).unwrap();
        let resources = group.profiles.get_mut(&Profile::Envoy).unwrap();
        let lost = resources.keys().next().unwrap().clone();
        resources.remove(&lost);
        let translated = Translated { documents: documents.clone(), translation, since: since.clone() };
        let documents = DocumentState { translated: Arc::new(translated), ..accepted.documents.clone() };
        let groups = accepted.patched(codec, &accepted.base, &Patch::new(), &documents);
        Accepted { documents, groups, ..accepted.clone() }
    }

    #[test]
    fn what_is_wrong_is_told_refused_and_mended() {
        let codec = Codec::new().unwrap();
        let good = accepted(&codec);
        let bad = damaged(&codec, &good);
        assert!(refuse(&codec, &bad, &good).is_ok());
        let refused = refuse(&codec, &good, &bad).unwrap_err().to_string();
        assert!(refused.contains("of the node group default for envoy clients"), "{refused}");
        let at = At { wall: SystemTime::now(), clock: std::time::Instant::now() };
        let mended = propose(&codec, &bad, at);
        assert!(mended.is_published);
        assert_eq!(mended.next.groups, good.groups);
        assert_ne!(mended.next.groups, bad.groups);
        let problem = mended.notes.iter().find_map(|note| note.problem.as_deref()).unwrap();
        assert!(problem.contains("of the node group default for envoy clients"), "{problem}");
        let calm = propose(&codec, &good, at);
        assert!(!calm.is_published && calm.notes.is_empty());
        for accepted in [&good, &mended.next] {
            let delta = &accepted.documents.translated.translation.delta;
            assert_eq!(*delta, Delta::default(), "is not kept");
        }
    }
}
