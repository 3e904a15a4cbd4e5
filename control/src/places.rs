//! Where the parts of an explanation are written: files, documents, objects of the API.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use xds_cache::{Origin, ResourceKey, ResourceType, View};
use xds_codec::{Diagnostic, Place as FilePlace, Severity};
use xds_explain::{Located, Part, Place};
use xds_routes::model::Kind;
use xds_routes::{Document, DocumentKey, Documents};

use crate::model::Texts;

/// Finds the places of what is served.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// What is served.
    pub view: &'a View,
    /// The documents.
    pub documents: &'a Documents,
    /// The texts of files; where one is missing, the place is where the object begins.
    pub texts: &'a Texts,
}

/// An object, and paths in it, the best first.
struct Wanted {
    place: FilePlace,
    document: Option<DocumentKey>,
    paths: Vec<String>,
}

/// The places of documents: what has one of them is generated.
type Generated<'a> = HashSet<&'a FilePlace>;

impl Places<'_> {
    /// The files in which [`locate`](Self::locate) looks for the lines of fields.
    #[must_use]
    pub fn files<T: Located + Clone>(&self, answers: &[T]) -> BTreeSet<Arc<str>> {
        let generated = self.generated();
        let mut files = BTreeSet::new();
        for answer in answers {
            // Places are filled in later; a copy takes none.
            answer.clone().locate(&mut |part| {
                let wanted = self.wanted(part, &generated);
                let wanted = wanted.filter(|wanted| !wanted.paths.is_empty());
                files.extend(wanted.map(|wanted| wanted.place.file));
                None
            });
        }
        files.remove("");
        files
    }

    /// Fills in the places of answers. All together take one pass over each file.
    pub fn locate<T: Located>(&self, answers: &mut [T]) {
        let generated = self.generated();
        let mut wanted: Vec<Option<Wanted>> = Vec::new();
        for answer in answers.iter_mut() {
            answer.locate(&mut |part| {
                wanted.push(self.wanted(part, &generated));
                None
            });
        }
        let places = self.resolve(&wanted);
        let mut places = places.into_iter();
        for answer in answers {
            answer.locate(&mut |_| places.next().flatten());
        }
    }

    /// The places of parts. All together take one pass over each file.
    #[must_use]
    pub fn of_parts(&self, parts: &[Part]) -> Vec<Option<Place>> {
        let generated = self.generated();
        let wanted: Vec<Option<Wanted>> = parts.iter().map(|part| self.wanted(part, &generated)).collect();
        self.resolve(&wanted)
    }

    fn generated(&self) -> Generated<'_> {
        self.documents.iter().map(|(_, placed)| &placed.document.place).collect()
    }

    fn resolve(&self, wanted: &[Option<Wanted>]) -> Vec<Option<Place>> {
        let all = wanted.iter().enumerate().filter_map(|(at, wanted)| Some((at, wanted.as_ref()?)));
        let candidates = all
            .flat_map(|(at, wanted)| wanted.paths.iter().map(move |path| (at, probe(&wanted.place, path))));
        let (owners, mut probes): (Vec<usize>, Vec<Diagnostic>) = candidates.unzip();
        self.texts.move_to_fields(&mut probes);
        let mut lines: Vec<Option<u32>> = vec![None; wanted.len()];
        for (at, probe) in owners.into_iter().zip(&probes) {
            let Some(Some(wanted)) = wanted.get(at) else { continue };
            let is_found = (probe.place.line, probe.place.column) != (wanted.place.line, wanted.place.column);
            if let Some(line) = lines.get_mut(at).filter(|line| is_found && line.is_none()) {
                *line = Some(probe.place.line);
            }
        }
        let shown = wanted.iter().zip(lines).map(|(wanted, line)| {
            let Wanted { place, document, .. } = wanted.as_ref()?;
            let line = line.unwrap_or(place.line);
            Some(Place {
                file: place.file.to_string(),
                line,
                document: document.as_ref().map(ToString::to_string),
            })
        });
        shown.collect()
    }

    fn wanted(&self, part: &Part, generated: &Generated<'_>) -> Option<Wanted> {
        if let Some((document, paths)) = part.route.as_deref().and_then(|name| self.of_route(name)) {
            return Some(Wanted {
                place: document.place.clone(),
                document: Some(document.key.clone()),
                paths,
            });
        }
        if let Some(document) = self.of_resource(&part.resource, generated) {
            return Some(Wanted {
                place: document.place.clone(),
                document: Some(document.key.clone()),
                paths: Vec::new(),
            });
        }
        let resource = self.view.resolve(&part.resource.resource_type, &part.resource.name)?;
        Some(match resource.origin() {
            Origin::File { path, line, column } => Wanted {
                place: FilePlace { file: Arc::clone(path), line: *line, column: *column },
                document: None,
                paths: Some(part.path.clone()).filter(|path| !path.is_empty()).into_iter().collect(),
            },
            Origin::Api => Wanted { place: nowhere(), document: None, paths: Vec::new() },
        })
    }

    /// The document of a generated route, by its name: `KIND/NAMESPACE/NAME/RULE/MATCH`.
    fn of_route(&self, name: &str) -> Option<(&Document, Vec<String>)> {
        let mut parts = name.splitn(6, '/');
        let kind = Kind::ALL.into_iter().find(|kind| Some(kind.as_str()) == parts.clone().next())?;
        parts.next();
        let key = DocumentKey::new(kind, parts.next()?, parts.next()?);
        let document = &self.documents.get(&key)?.document;
        let (rule, matching) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let matching = matching.split('/').next().unwrap_or_default();
        let json = document.source.json();
        let native = ["routes", &*key.name].iter().try_fold(&json, |json, key| json.get(*key));
        let rules = native.unwrap_or(json.get("spec").unwrap_or(&json)).get("rules");
        let by_name = |name: &str| {
            rules?
                .as_array()?
                .iter()
                .position(|rule| rule.get("name").and_then(|own| own.as_str()) == Some(name))
        };
        let index = by_name(rule).map_or_else(|| rule.to_owned(), |index| index.to_string());
        let paths = match native {
            Some(_) => vec![
                format!("rules[{index}].match[{matching}]"),
                format!("rules[{index}].match"),
                format!("rules[{index}]"),
                format!("match[{matching}]"),
                "match".to_owned(),
            ],
            None => vec![format!("spec.rules[{index}].matches[{matching}]"), format!("spec.rules[{index}]")],
        };
        Some((document, paths))
    }

    /// The document of a generated listener or cluster, by its name: `NAMESPACE/NAME`, with a port or more behind it.
    fn of_resource(&self, key: &ResourceKey, generated: &Generated<'_>) -> Option<&Document> {
        let kinds: &[Kind] = match key.resource_type {
            ResourceType::Listener | ResourceType::RouteConfiguration => &[Kind::Gateway],
            ResourceType::Cluster => &[Kind::Backend, Kind::Service],
            ResourceType::Runtime
            | ResourceType::Secret
            | ResourceType::ClusterLoadAssignment
            | ResourceType::LbEndpoint
            | ResourceType::ExtensionConfig
            | ResourceType::ScopedRouteConfiguration
            | ResourceType::VirtualHost
            | ResourceType::Other(_) => return None,
        };
        let is_generated = match self.view.resolve(&key.resource_type, &key.name)?.origin() {
            Origin::File { path, line, column } => {
                generated.contains(&FilePlace { file: Arc::clone(path), line: *line, column: *column })
            }
            Origin::Api => false,
        };
        let name = key.name.strip_prefix("grpc/").unwrap_or(&key.name);
        let mut parts = name.split('/');
        let (namespace, name) = (parts.next()?, parts.next()?);
        let mut found =
            kinds.iter().filter_map(|kind| self.documents.get(&DocumentKey::new(*kind, namespace, name)));
        found.next().filter(|_| is_generated).map(|placed| &*placed.document)
    }
}

/// A diagnostic that says nothing, to find the line of a path.
fn probe(place: &FilePlace, path: &str) -> Diagnostic {
    Diagnostic {
        severity: Severity::Info,
        code: "place",
        place: place.clone(),
        path: path.to_owned(),
        message: String::new(),
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}

/// The place of an object of the API.
fn nowhere() -> FilePlace {
    FilePlace { file: "".into(), line: 0, column: 0 }
}
