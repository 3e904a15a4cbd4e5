//! The contents of one file, as they are kept from load to load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::NodeGroup;
use xds_codec::{DecodedFile, Diagnostic, ObjectContent, Place, Severity};
use xds_control::route_tests::read_document;
use xds_routes::{Document, DocumentKey, ReadObject, ReadOutcome, UnknownFields};

use super::content::{Content, Good, Key};
use crate::read::FileFault;

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    /// True if the text as a whole cannot be used; there are no objects then.
    pub(super) is_broken: bool,
    /// The resources and documents, in the order of the text. Bad ones have no content; their errors are among the diagnostics.
    pub(super) objects: Vec<(Key, Place, Option<Content>)>,
    /// The node groups; `None` for those that are bad.
    pub(super) groups: Vec<(Place, Option<NodeGroup>)>,
    /// All errors and warnings.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// True if the file has an object whose type and name could not be read.
    pub(super) has_unreadable: bool,
    /// Stand-ins for bad documents that were never good.
    pub(super) stand_ins: BTreeMap<DocumentKey, Arc<Document>>,
    /// The number of faults of documents over the limit, which are not reported.
    pub(super) n_untold: usize,
}

impl Parsed {
    /// Takes in a file as the codec read it.
    pub(super) fn new(decoded: DecodedFile, unknown_fields: UnknownFields) -> Self {
        let mut parsed = Self { is_broken: decoded.broken, ..Self::default() };
        parsed.diagnostics = decoded.all_diagnostics().into_iter().cloned().collect();
        // Documents of kinds that are not served: the place of the first of each kind, and their number.
        let mut foreign = BTreeMap::new();
        for object in decoded.objects {
            let place = object.place;
            match object.content {
                ObjectContent::Resource { key, outcome } => {
                    let content = outcome.ok().map(|resource| Content::Resource(Arc::new(resource)));
                    parsed.objects.push((Key::Resource(Arc::new(key)), place, content));
                }
                ObjectContent::NodeGroup { outcome, .. } => {
                    let mut group = outcome.ok();
                    if group.as_ref().is_some_and(changes_default) {
                        group = None;
                        let message = "the group `default` selects every node and has no priority and no client; \
                                       give the group another name, or write only `selector: {all: true}`";
                        parsed.diagnostics.push(diagnostic(
                            "default-group",
                            place.clone(),
                            message.to_owned(),
                        ));
                    }
                    parsed.groups.push((place, group));
                }
                ObjectContent::Unreadable(_) => parsed.has_unreadable = true,
                ObjectContent::Other { api_version, kind, tree, .. } => {
                    let kind = if kind.is_empty() { api_version } else { kind };
                    match read_document(&place.file, &tree, unknown_fields) {
                        ReadOutcome::NotOurs => foreign.entry(kind).or_insert((place, 0)).1 += 1,
                        ReadOutcome::Unreadable(found) => {
                            parsed.has_unreadable = true;
                            parsed.tell(found, 1);
                        }
                        ReadOutcome::Objects(objects) => parsed.take_documents(objects),
                    }
                }
            }
        }
        parsed.tell_foreign(foreign);
        parsed.refuse_duplicates();
        parsed.tell_untold();
        parsed.objects.shrink_to_fit();
        parsed
    }

    /// Takes in the objects of a route document.
    fn take_documents(&mut self, objects: Vec<ReadObject>) {
        for object in objects {
            let content = match object.outcome {
                Ok((document, warnings)) => {
                    self.tell(warnings, 0);
                    Some(Content::Document(document))
                }
                Err(found) => {
                    self.tell(found, 1);
                    let stand_in = object.stand_in.map(|stand_in| (object.key.clone(), stand_in));
                    self.stand_ins.extend(stand_in);
                    None
                }
            };
            self.objects.push((Key::Document(object.key), object.place, content));
        }
    }

    /// Adds a note for each kind that is not served.
    fn tell_foreign(&mut self, foreign: BTreeMap<String, (Place, usize)>) {
        for (kind, (place, n)) in foreign {
            let diagnostic = diagnostic("unsupported-kind", place, xds_routes::left_out(&kind, n));
            self.tell(vec![Diagnostic { severity: Severity::Info, ..diagnostic }], 0);
        }
    }

    /// Adds the diagnostics of a document: at most [`MAX_DIAGNOSTICS`] for a file, but `least` for each document.
    fn tell(&mut self, found: Vec<Diagnostic>, least: usize) {
        let left = MAX_DIAGNOSTICS.saturating_sub(self.diagnostics.len()).max(least);
        self.n_untold += found.len().saturating_sub(left);
        self.diagnostics.extend(found.into_iter().take(left));
    }

    fn tell_untold(&mut self) {
        let file = self.diagnostics.first().map(|first| Arc::clone(&first.place.file));
        if let Some(file) = file.filter(|_| self.n_untold > 0) {
            let place = Place { file, line: 1, column: 1 };
            let note = diagnostic("too-many-errors", place, format!("and {} more", self.n_untold));
            self.diagnostics.push(Diagnostic { severity: Severity::Info, ..note });
        }
    }

    /// Refuses every document that the file has more than once: no copy is better than another.
    fn refuse_duplicates(&mut self) {
        let mut places: BTreeMap<DocumentKey, Vec<Place>> = BTreeMap::new();
        let mut said: BTreeMap<DocumentKey, Vec<Arc<Document>>> = BTreeMap::new();
        for object in &self.objects {
            if let (Key::Document(key), place, content) = object {
                places.entry(key.clone()).or_default().push(place.clone());
                let document = content.as_ref().and_then(Content::document).cloned();
                said.entry(key.clone()).or_default().extend(document);
            }
        }
        let is_refused = |key: &DocumentKey| places.get(key).is_some_and(|places| places.len() > 1);
        for (key, mut said) in said.into_iter().filter(|(key, _)| is_refused(key)) {
            said.extend(self.stand_ins.remove(&key));
            let stand_in = xds_routes::stand_in(said.iter().map(|document| &**document));
            self.stand_ins.extend(stand_in.map(|stand_in| (key, stand_in)));
        }
        for object in &mut self.objects {
            let (Key::Document(key), place, content) = object else { continue };
            let Some(places) = places.get(key).filter(|places| places.len() > 1) else { continue };
            *content = None;
            let message = format!("{key} is defined {} times", places.len());
            let related = places.iter().filter(|other| *other != place).take(MAX_RELATED).cloned().collect();
            let error = diagnostic("duplicate-document", place.clone(), message);
            self.diagnostics.push(Diagnostic { related, ..error });
        }
    }

    /// The state of a file that has no content.
    pub(super) fn of_fault(path: &Arc<str>, fault: &FileFault) -> Self {
        let place = Place { file: Arc::clone(path), line: 0, column: 0 };
        let diagnostics = vec![diagnostic(fault.code(), place, fault.to_string())];
        Self { is_broken: true, diagnostics, ..Self::default() }
    }

    /// Keeps the stand-ins of documents that may be in the unreadable part.
    pub(super) fn keep_stand_ins(&mut self, before: &Self) {
        let (keys, mut kept) = (self.keys(), before.stand_ins.clone());
        kept.retain(|key, _| !keys.contains(&Key::Document(key.clone())));
        self.stand_ins.extend(kept);
    }

    /// The resources and documents that are good, in the order of the text.
    pub(super) fn good(&self) -> impl Iterator<Item = (&Key, Good)> {
        self.objects.iter().filter_map(|(key, place, content)| {
            Some((key, Good { content: content.clone()?, place: place.clone() }))
        })
    }

    /// The resources and documents that the file defines, well or badly.
    pub(super) fn keys(&self) -> BTreeSet<&Key> {
        self.objects.iter().map(|(key, _, _)| key).collect()
    }
}

/// The default group cannot be changed: it has every node, and is below every other group.
fn changes_default(group: &NodeGroup) -> bool {
    group.name.is_default() && *group != NodeGroup::default_group()
}

/// An error without suggestion and related places.
pub(super) fn diagnostic(code: &'static str, place: Place, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code,
        place,
        path: String::new(),
        message,
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}

/// The most diagnostics about the documents of one file. More would not help.
const MAX_DIAGNOSTICS: usize = 100;

/// More places do not help.
const MAX_RELATED: usize = 10;
