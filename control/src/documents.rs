//! Route documents: the files' with the API's over them, the resources that they generate, and the ages of their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Value, json};
use xds_access::{Patterns, Scope};
use xds_cache::{Generated, GroupName, filling};
use xds_codec::{Codec, Diagnostic, Severity, Tree};
use xds_routes::{
    Bounds, Delta, Document, DocumentKey, Documents, Kind, Placed, Purpose, ReadOutcome, Translation,
    UnknownFields, split_roots, translate_within,
};

use crate::differing::differing;
use crate::key::{StoreKey, resource_name};
use crate::model::document::{
    ConditionAges, DocumentState, GroupedDocument, GroupedDocuments, Translated, conditions, redacted, what,
};
use crate::model::weights::{Overrides, WeightedObject};
use crate::model::{ChangedObject, Write, WriteError};
use crate::plan::{MAX_DIFFERENCE, Plan};
use crate::stored_statuses::StoredStatuses;
use crate::{check, weights};

/// New documents of the API; `None` removes one.
pub(crate) type DocumentPatch = BTreeMap<DocumentKey, Option<GroupedDocument>>;

/// The documents and weights before they are translated.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The documents of the files.
    pub(crate) files: Arc<GroupedDocuments>,
    /// The documents of the API.
    pub(crate) owned: Arc<GroupedDocuments>,
    /// The overrides of weights.
    pub(crate) weights: Arc<Overrides>,
}

/// How documents are translated.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) codec: &'a Codec,
    /// The statuses in the store, of documents that this process has not seen in their present form.
    pub(crate) stored_statuses: &'a StoredStatuses,
    /// The time.
    pub(crate) now: SystemTime,
    /// How far the translation goes.
    pub(crate) bounds: Bounds<'a>,
    /// Returns `true` for a group whose Gateways must have no secrets.
    pub(crate) withholds: &'a dyn Fn(&GroupName) -> bool,
}

impl<'a> Terms<'a> {
    /// The terms of a change for whose result somebody always waits.
    pub(crate) fn awaited(
        (codec, stored_statuses): (&'a Codec, &'a StoredStatuses),
        now: SystemTime,
        withholds: &'a dyn Fn(&GroupName) -> bool,
    ) -> Self {
        Self { codec, stored_statuses, now, bounds: Bounds::SERVING, withholds }
    }
}

/// The state of documents with these inputs. The cost follows the changes; without any, the generated resources are the same values.
///
/// # Errors
///
/// [`WriteError::Stopped`] at a bound.
pub(crate) fn next(
    before: &DocumentState,
    said: Said,
    terms: Terms<'_>,
) -> Result<DocumentState, WriteError> {
    let Said { files, owned, weights } = said;
    let Terms { codec, stored_statuses, now, bounds, withholds } = terms;
    let present = &before.translated.documents;
    let written = |key: &DocumentKey| owned.get(key).or_else(|| files.get(key));
    let changed: BTreeSet<&DocumentKey> = differing(&before.files, &files)
        .chain(differing(&before.owned, &owned))
        .map(|(key, _, _)| key)
        .collect();
    let mut documents = effective(present, &changed, written, stored_statuses);
    mark_gateways(&mut documents, withholds);
    let mut laid = weights::changed_objects(&before.weights, &weights);
    laid.extend(weights::objects(&weights).into_iter().filter(|object| match object {
        WeightedObject::Document(key) => changed.contains(key),
        WeightedObject::Routes(..) => false,
    }));
    weights::lay_documents(&mut documents, laid, &weights, |key| written(key).map(|one| &one.document));
    let options = Arc::clone(&before.options);
    if present.diff(&documents).next().is_none() {
        let translated = Arc::clone(&before.translated);
        return Ok(DocumentState { files, owned, weights, translated, options });
    }
    let previous = Some(&before.translated.translation);
    let translation = translate_within(codec, &documents, &options, previous, bounds);
    let translation = translation.map_err(WriteError::Stopped)?;
    let translated = Arc::new(translated(&before.translated, documents, translation, stored_statuses, now));
    Ok(DocumentState { files, owned, weights, translated, options })
}

/// Generates the resources of files without serving them. `withholds` returns `true` for a group whose Gateways must have no secrets.
///
/// # Errors
///
/// The files would generate more than a trial may take.
pub fn offline(
    codec: &Codec,
    nothing: &DocumentState,
    files: Arc<GroupedDocuments>,
    withholds: &dyn Fn(&GroupName) -> bool,
) -> Result<DocumentState, WriteError> {
    let said = Said { files, owned: Arc::default(), weights: Arc::default() };
    let stored_statuses = StoredStatuses::default();
    let terms = Terms {
        bounds: Bounds { goes_on: &|| true, purpose: Purpose::Check },
        ..Terms::awaited((codec, &stored_statuses), SystemTime::UNIX_EPOCH, withholds)
    };
    next(nothing, said, terms)
}

/// The documents that count, each with its generation, after some of them were `written`.
fn effective<'d>(
    before: &Documents,
    changed: &BTreeSet<&DocumentKey>,
    written: impl Fn(&DocumentKey) -> Option<&'d GroupedDocument>,
    stored_statuses: &StoredStatuses,
) -> Documents {
    let mut documents = before.clone();
    let mut has_new_service = false;
    for key in filling(changed.iter()) {
        let Some(GroupedDocument { document, group, .. }) = written(key) else {
            documents.remove(*key);
            continue;
        };
        let before = before.get(*key);
        has_new_service |= before.is_none() && key.kind == Kind::Service;
        let generation = match before {
            Some(placed) if placed.document.source == document.source => placed.generation,
            before => stored_statuses.generation(document, before.map(|placed| placed.generation)),
        };
        let was_split = before.is_some_and(|placed| placed.was_split) || stored_statuses.was_split(key);
        let (document, group) = (Arc::clone(document), group.clone());
        documents.insert((*key).clone(), Placed { generation, was_split, ..Placed::new(document, group) });
    }
    // A split can be there before its Service.
    let roots = match has_new_service {
        true => split_roots(of_kind(&documents, Kind::TrafficSplit)),
        false => split_roots(changed.iter().filter_map(|key| Some(&*documents.get(*key)?.document))),
    };
    for root in roots {
        if documents.get(&root).is_some_and(|placed| !placed.was_split)
            && let Some(placed) = documents.get_mut(&root)
        {
            placed.was_split = true;
        }
    }
    documents
}

/// Marks the Gateways of groups that must have no secrets.
fn mark_gateways(documents: &mut Documents, withholds: impl Fn(&GroupName) -> bool) {
    let gateways = placed_of_kind(documents, Kind::Gateway);
    let is_other = |placed: &&Placed| placed.withholds_secrets != withholds(&placed.group);
    let others: Vec<_> = gateways.filter(is_other).map(|placed| placed.document.key.clone()).collect();
    for key in others {
        if let Some(placed) = documents.get_mut(&key) {
            placed.withholds_secrets = !placed.withholds_secrets;
        }
    }
}

fn of_kind(documents: &Documents, kind: Kind) -> impl Iterator<Item = &Document> {
    placed_of_kind(documents, kind).map(|placed| &*placed.document)
}

fn placed_of_kind(documents: &Documents, kind: Kind) -> impl Iterator<Item = &Placed> {
    let first = DocumentKey::before(kind);
    documents.range(first..).take_while(move |(key, _)| key.kind == kind).map(|(_, placed)| placed)
}

/// The translation of documents, as it is kept: without its differences to the one before, which after a first load are everything.
pub(crate) fn translated(
    before: &Translated,
    documents: Documents,
    mut translation: Translation,
    stored_statuses: &StoredStatuses,
    now: SystemTime,
) -> Translated {
    let delta = std::mem::take(&mut translation.delta);
    let since = since(before, &translation, &delta, stored_statuses, now);
    Translated { documents, translation, since }
}

/// The time since when each condition has its status: `now` if it had another status or none, and the store remembers no time.
fn since(
    before: &Translated,
    after: &Translation,
    delta: &Delta,
    stored_statuses: &StoredStatuses,
    now: SystemTime,
) -> ConditionAges {
    let mut since = before.since.clone();
    let objects: BTreeSet<&DocumentKey> =
        delta.conditions.iter().chain(stored_statuses.documents()).collect();
    for object in filling(objects.iter()) {
        let known = before.conditions(object);
        let known: BTreeMap<_, _> =
            known.map(|(part, condition, at)| ((part, condition.kind), (condition.status, at))).collect();
        let status = after.conditions.objects.get(*object);
        let ages = status.into_iter().flat_map(|status| conditions(status)).map(|(part, condition)| {
            // A remembered status comes first, because before the files are read, conditions are not final.
            let remembered = stored_statuses.since(object, &part, condition);
            let known = known.get(&(part, condition.kind)).filter(|(status, _)| *status == condition.status);
            remembered.or(known.map(|(_, at)| *at)).unwrap_or(now)
        });
        let ages: Arc<[SystemTime]> = ages.collect();
        match ages.is_empty() {
            true => _ = since.remove(*object),
            false => _ = since.insert((*object).clone(), ages),
        }
    }
    since
}

/// The documents of the API with a patch applied. Documents that the patch does not name lose their line numbers, which were those of
/// the body that they came in.
pub(crate) fn patched(owned: &Arc<GroupedDocuments>, patch: &DocumentPatch) -> Arc<GroupedDocuments> {
    if patch.is_empty() {
        return Arc::clone(owned);
    }
    let mut documents: GroupedDocuments = (**owned).clone();
    let has_lines = |(key, one): &(&DocumentKey, &GroupedDocument)| {
        !patch.contains_key(*key) && one.document.place.line > 0
    };
    for (key, one) in owned.iter().filter(has_lines) {
        let one = GroupedDocument { document: without_lines(&one.document), ..one.clone() };
        documents.insert(key.clone(), one);
    }
    for (key, document) in patch {
        match document {
            Some(document) => _ = documents.insert(key.clone(), document.clone()),
            None => _ = documents.remove(key),
        }
    }
    Arc::new(documents)
}

fn without_lines(document: &Arc<Document>) -> Arc<Document> {
    of_json(&document.key, &document.source.json()).unwrap_or_else(|_| Arc::clone(document))
}

/// Reads the source of a document.
///
/// # Errors
///
/// Explains why it is not, or no longer, the document of that key.
fn of_json(key: &DocumentKey, source: &Value) -> Result<Arc<Document>, String> {
    let found = |found: Vec<Diagnostic>| found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match xds_routes::read(&"".into(), &Tree::from_json(source), UnknownFields::Accepted) {
        ReadOutcome::NotOurs => Err("its kind is unknown".to_owned()),
        ReadOutcome::Unreadable(diagnostics) => Err(found(diagnostics)),
        ReadOutcome::Objects(objects) => {
            let object = objects.into_iter().find(|object| object.key == *key);
            let object = object.ok_or_else(|| "it contains a different document".to_owned())?;
            object.outcome.map(|(document, _)| document).map_err(found)
        }
    }
}

/// A document as it is stored. Holds secrets if it is a Secret.
pub(crate) fn record(document: &GroupedDocument) -> Bytes {
    record_of(document, "")
}

/// The document with the path of its file, if it has one.
pub(crate) fn record_with_path(document: &GroupedDocument) -> Bytes {
    let path = &document.document.place.file;
    if path.is_empty() {
        return record(document);
    }
    record_of(document, &format!(",\"path\":{}", Value::from(&**path)))
}

/// The source is JSON text already, written as this would be.
fn record_of(document: &GroupedDocument, rest: &str) -> Bytes {
    let GroupedDocument { document, group, scope } = document;
    let scope = scope.as_ref().map(|scope| {
        let [groups, namespaces] = scope.texts();
        format!(",\"scope\":{}", json!({ "groups": groups, "namespaces": namespaces }))
    });
    let scope = scope.unwrap_or_default();
    let (group, source) = (Value::from(group.as_str()), document.source.text());
    format!("{{\"group\":{group},\"source\":{source}{scope}{rest}}}").into()
}

/// Reads what [`record`] or [`record_with_path`] wrote.
///
/// # Errors
///
/// Explains why it cannot be read.
pub(crate) fn read_record(key: &DocumentKey, value: &[u8]) -> Result<GroupedDocument, String> {
    let value: Value = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let group = value.get("group").and_then(Value::as_str).ok_or("it names no group")?;
    let group = GroupName::new(group).map_err(|error| error.to_string())?;
    let mut document = of_json(key, value.get("source").unwrap_or(&Value::Null))?;
    if let Some(path) = value.get("path").and_then(Value::as_str) {
        Arc::make_mut(&mut document).place.file = path.into();
    }
    let scope = value.get("scope").map(read_scope).transpose()?.map(Arc::new);
    Ok(GroupedDocument { document, group, scope })
}

/// Reads the scope in which a test was applied.
fn read_scope(value: &Value) -> Result<Scope, String> {
    let patterns = |name: &str| {
        let texts: Option<Vec<String>> = serde_json::from_value(value.get(name).cloned().unwrap_or_default())
            .map_err(|error| format!("scope.{name}: {error}"))?;
        Ok::<_, String>(Patterns::of_texts(texts.as_deref()))
    };
    Ok(Scope::new(patterns("groups")?, patterns("namespaces")?))
}

/// The [stand-in](xds_routes::stand_in) for a record that cannot be read.
pub(crate) fn stand_in_of_record(key: &DocumentKey, value: &[u8]) -> Option<GroupedDocument> {
    let value: Value = serde_json::from_slice(value).ok()?;
    let group = value.get("group").and_then(Value::as_str).and_then(|group| GroupName::new(group).ok());
    let source = Tree::from_json(value.get("source")?);
    let ReadOutcome::Objects(objects) = xds_routes::read(&"".into(), &source, UnknownFields::Accepted) else {
        return None;
    };
    let document = objects.into_iter().find(|object| object.key == *key)?.stand_in?;
    Some(GroupedDocument::new(document, group.unwrap_or_else(GroupName::default_group)))
}

/// The plan for the store that applies `patch` to `owned`.
pub(crate) fn plan(owned: &GroupedDocuments, patch: &DocumentPatch) -> Plan {
    let is_change = |(key, after): &(&DocumentKey, &Option<GroupedDocument>)| match (owned.get(*key), after) {
        (Some(before), Some(after)) => !before.says_the_same(after),
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    let changes = patch.iter().filter(is_change);
    changes.map(|(key, after)| (StoreKey::Document(key.clone()), after.as_ref().map(record))).collect()
}

/// Adds the differences between two contents, without secrets, up to [`MAX_DIFFERENCE`] objects.
pub(crate) fn difference(
    before: &GroupedDocuments,
    after: &GroupedDocuments,
    changed: &mut Vec<ChangedObject>,
) {
    for (key, old, new) in differing(before, after) {
        let is_same = match (old, new) {
            (Some(old), Some(new)) => old.says_the_same(new),
            (_, _) => false,
        };
        if is_same || changed.len() >= MAX_DIFFERENCE {
            continue;
        }
        let json = |document: &GroupedDocument| redacted(&document.document);
        changed.push(ChangedObject::new(what(key), (old, new), json));
    }
}

/// The difference between generated resources, for each kind of client:
/// `generated/{profile}/{group}/{type slug}/{name}`.
pub(crate) fn generated_difference(
    codec: &Codec,
    before: &Generated,
    after: &Generated,
    changed: &mut Vec<ChangedObject>,
) {
    let flat = |generated: &Generated| {
        let mut flat = BTreeMap::new();
        for (name, group) in generated {
            for (profile, resources) in &group.profiles {
                for (key, resource) in resources {
                    let what = format!("generated/{profile}/{}", resource_name(name, key));
                    flat.insert(what, Arc::clone(resource));
                }
            }
        }
        flat
    };
    let (before, after) = (flat(before), flat(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        let is_same = old.zip(new).is_some_and(|(old, new)| old.says_the_same(new));
        if is_same || changed.len() >= MAX_DIFFERENCE {
            continue;
        }
        let json = |resource: &Arc<xds_cache::Resource>| codec.to_json(resource);
        changed.push(ChangedObject::new(name.clone(), (old, new), json));
    }
}

/// The warnings between documents that concern a write: those about its own documents, which have lines in the body, and new ones
/// about others.
pub(crate) fn doubts_of_write(before: &Translated, after: &Translated) -> Vec<Diagnostic> {
    if before.translation.diagnostics.is_same(&after.translation.diagnostics) {
        return vec![];
    }
    let told: BTreeSet<_> = before.translation.diagnostics.iter().map(identity).collect();
    let is_news = |doubt: &&Diagnostic| {
        (doubt.place.file.is_empty() && doubt.place.line > 0) || !told.contains(&identity(doubt))
    };
    after.translation.diagnostics.iter().filter(is_news).take(MAX_DOUBTS).cloned().collect()
}

/// Returns `true` for a fault of this program: it cannot generate a resource from documents that it has taken.
pub(crate) fn is_own_fault(doubt: &Diagnostic) -> bool {
    doubt.code == "generated-resource" && doubt.place.file.is_empty()
}

/// Refuses a write from which the program cannot generate a resource, unless it takes a change back.
pub(crate) fn refuse_own_faults(write: &Write, warnings: &[Diagnostic]) -> Result<(), WriteError> {
    let faults: Vec<_> = warnings.iter().filter(|doubt| is_own_fault(doubt)).cloned().collect();
    if faults.is_empty() || write.takes_back() {
        return Ok(());
    }
    Err(WriteError::Invalid(check::as_errors(faults)))
}

/// The identity of a warning. The line does not count, because every edit above moves it.
fn identity(doubt: &Diagnostic) -> (&str, &str, &str, &str) {
    (&doubt.place.file, doubt.code, &doubt.path, &doubt.message)
}

/// Logs new warnings between documents.
pub(crate) fn log_news(before: &Translated, after: &Translated) {
    if before.translation.diagnostics.is_same(&after.translation.diagnostics) {
        return;
    }
    let told: BTreeSet<_> = before.translation.diagnostics.iter().map(identity).collect();
    let news = after.translation.diagnostics.iter().filter(|doubt| !told.contains(&identity(doubt)));
    for doubt in news.take(MAX_DOUBTS) {
        let (file, line, column, code) =
            (&*doubt.place.file, doubt.place.line, doubt.place.column, doubt.code);
        match doubt.severity {
            Severity::Error | Severity::Warning => tracing::warn!(file, line, column, code, "{doubt}"),
            Severity::Info => tracing::info!(file, line, column, code, "{doubt}"),
        }
    }
}

/// The most warnings between documents that one change reports.
const MAX_DOUBTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_as_its_values_would_be() {
        let source = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"},
            "data": {"b": "\"\\/\n\u{7f}\u{1}\u{2028}é\u{1f600}}", "a": ""},
            "other": [0, -1, 1.5, 0.1, 1e21, -0.0, 5e-324, 18_446_744_073_709_551_615_u64, null, true, [], {}],
        });
        let ReadOutcome::Objects(objects) =
            xds_routes::read(&"f \"".into(), &Tree::from_json(&source), UnknownFields::Accepted)
        else {
            unreachable!("a document")
        };
        let document = objects.into_iter().next().unwrap().outcome.unwrap().0;
        let of_file = GroupedDocument::new(document, GroupName::new("a \"b\"").unwrap());
        let mut document = Document::clone(&of_file.document);
        document.place.file = "".into();
        let of_api = GroupedDocument { document: Arc::new(document), ..of_file.clone() };
        let without_path = json!({"group": "a \"b\"", "source": source}).to_string();
        let with_path = json!({"group": "a \"b\"", "source": source, "path": "f \""}).to_string();
        assert_eq!(record(&of_file), without_path);
        assert_eq!(record_with_path(&of_api), without_path);
        assert_eq!(record_with_path(&of_file), with_path);
    }
}
