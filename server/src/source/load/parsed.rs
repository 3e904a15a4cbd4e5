//! What one file says, in the form in which it is kept from load to load.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{NodeGroup, Resource, ResourceKey};
use xds_codec::{DecodedFile, Diagnostic, ObjectContent, Place, Severity};

use crate::source::read::FileFault;

/// What a file says.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    /// Whether the text as a whole cannot be used; there are no objects then.
    pub(super) is_broken: bool,
    /// In the order of the text.
    pub(super) objects: Vec<ParsedObject>,
    /// Everything that is wrong or doubtful.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Whether something is in the file of which not even type and name are known.
    pub(super) has_unreadable: bool,
}

/// One object, good or bad. What is wrong with it is among the diagnostics of the file.
#[derive(Clone, Debug)]
pub(super) enum ParsedObject {
    /// A resource; `None` if it is bad.
    Resource(ResourceKey, Place, Option<Arc<Resource>>),
    /// A node group; `None` if it is bad.
    Group(Place, Option<NodeGroup>),
}

impl Parsed {
    /// Takes in what the codec read.
    pub(super) fn new(decoded: DecodedFile) -> Self {
        let mut parsed = Self { is_broken: decoded.broken, ..Self::default() };
        parsed.diagnostics = decoded.all_diagnostics().into_iter().cloned().collect();
        for object in decoded.objects {
            let place = object.place;
            match object.content {
                ObjectContent::Resource { key, outcome } => {
                    parsed.objects.push(ParsedObject::Resource(key, place, outcome.ok().map(Arc::new)));
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
                    parsed.objects.push(ParsedObject::Group(place, group));
                }
                ObjectContent::Unreadable(_) => parsed.has_unreadable = true,
                ObjectContent::Other { api_version, kind, .. } => {
                    let what = if kind.is_empty() { api_version } else { kind };
                    let message =
                        format!("documents of the kind {what:?} are not served; the document is left out");
                    let diagnostic = diagnostic("unsupported-kind", place, message);
                    parsed.diagnostics.push(Diagnostic { severity: Severity::Warning, ..diagnostic });
                }
            }
        }
        parsed
    }

    /// What is known of a file that has no content.
    pub(super) fn of_fault(path: &Arc<str>, fault: &FileFault) -> Self {
        let place = Place { file: Arc::clone(path), line: 0, column: 0 };
        let diagnostics = vec![diagnostic(fault.code(), place, fault.to_string())];
        Self { is_broken: true, diagnostics, ..Self::default() }
    }

    /// The resources that the file defines, well or badly.
    pub(super) fn keys(&self) -> BTreeSet<&ResourceKey> {
        fn key(object: &ParsedObject) -> Option<&ResourceKey> {
            match object {
                ParsedObject::Resource(key, _, _) => Some(key),
                ParsedObject::Group(..) => None,
            }
        }
        self.objects.iter().filter_map(key).collect()
    }

    /// The node groups that the file defines, well or badly.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Place, Option<&NodeGroup>)> {
        self.objects.iter().filter_map(|object| match object {
            ParsedObject::Group(place, group) => Some((place, group.as_ref())),
            ParsedObject::Resource(..) => None,
        })
    }
}

/// The default group is what it is: every node, below every other group.
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
