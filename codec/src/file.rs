//! Files: each object of a file decodes or fails independently.

use std::sync::Arc;

use xds_cache::{NodeGroup, Resource, ResourceKey};

use crate::Codec;
use crate::diagnostic::{Diagnostic, Place, Severity, echo_name};
use crate::document::{self, Limits, Node, Position, Problems, Syntax, SyntaxProblem, Tree};
use crate::finding::Deprecated;
use crate::form::{Expected, Piece, split};
use crate::node_group::read_node_group;
use crate::resource::{Read, Surroundings};

/// The contents of a file.
#[derive(Debug)]
pub struct DecodedFile {
    /// The objects in the order of the text.
    pub objects: Vec<Object>,
    /// Diagnostics about the file as a whole, and the warnings of its good objects. The errors of an object are in the object.
    pub diagnostics: Vec<Diagnostic>,
    /// True if the text itself is broken, so nothing in the file can be used. `objects` is empty then.
    pub broken: bool,
}

/// One object of a file.
#[derive(Debug)]
pub struct Object {
    /// Where it begins.
    pub place: Place,
    /// The content.
    pub content: ObjectContent,
}

/// The content of an [`Object`].
#[derive(Debug)]
pub enum ObjectContent {
    /// A resource whose type and name are known.
    Resource {
        /// Its type and name.
        key: ResourceKey,
        /// The resource, or its errors: at least one diagnostic.
        outcome: Result<Resource, Vec<Diagnostic>>,
    },
    /// An object whose type and name cannot be read. It may be any object that the file had before.
    Unreadable(Vec<Diagnostic>),
    /// A `NodeGroup` document.
    NodeGroup {
        /// Its name; empty if there is none.
        name: String,
        /// The group, or its errors: at least one diagnostic.
        outcome: Result<NodeGroup, Vec<Diagnostic>>,
    },
    /// A document of another kind, for another reader.
    Other {
        /// Its `apiVersion`, or the `version` of the native form. Empty if the kind does not need one.
        api_version: String,
        /// Its `kind`; empty for the native form.
        kind: String,
        /// `metadata.name`; empty if there is none.
        name: String,
        /// `metadata.namespace`; empty if there is none.
        namespace: String,
        /// The whole document.
        tree: Tree,
    },
}

impl DecodedFile {
    /// All diagnostics, including those of objects, in the order of the text.
    #[must_use]
    pub fn all_diagnostics(&self) -> Vec<&Diagnostic> {
        let of_objects = self.objects.iter().flat_map(|object| object.diagnostics());
        let mut all: Vec<_> = self.diagnostics.iter().chain(of_objects).collect();
        all.sort_by_key(|diagnostic| (diagnostic.place.line, diagnostic.place.column));
        all
    }
}

impl Object {
    /// The faults of the object; empty if it is good.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match &self.content {
            ObjectContent::Resource { outcome, .. } => outcome.as_ref().err().map_or(&[], Vec::as_slice),
            ObjectContent::NodeGroup { outcome, .. } => outcome.as_ref().err().map_or(&[], Vec::as_slice),
            ObjectContent::Unreadable(diagnostics) => diagnostics,
            ObjectContent::Other { .. } => &[],
        }
    }

    fn diagnostics_mut(&mut self) -> Option<&mut Vec<Diagnostic>> {
        match &mut self.content {
            ObjectContent::Resource { outcome, .. } => outcome.as_mut().err(),
            ObjectContent::NodeGroup { outcome, .. } => outcome.as_mut().err(),
            ObjectContent::Unreadable(diagnostics) => Some(diagnostics),
            ObjectContent::Other { .. } => None,
        }
    }
}

impl Codec {
    /// Reads a file. `path` is shown in diagnostics, and decides between JSON (`.json`) and YAML.
    #[must_use]
    pub fn decode_file(&self, path: &str, content: &[u8], limits: &Limits) -> DecodedFile {
        let file: Arc<str> = path.into();
        let documents = match document::parse(content, Syntax::of_file(path), limits) {
            Ok(documents) => documents,
            Err(problems) => return broken_file(&file, problems),
        };
        let mut reader = Reader {
            codec: self,
            file,
            limits,
            max_objects: Limits::max_objects(content.len()),
            deprecated: Deprecated::default(),
            objects: Vec::new(),
            n_unreadable: 0,
            n_left: limits.max_diagnostics,
            n_untold: 0,
            is_full: false,
            diagnostics: Vec::new(),
        };
        documents.iter().for_each(|tree| split(tree.root(), &mut |piece| reader.read(piece)));
        if reader.is_full {
            return reader.too_many_objects();
        }
        let deprecated = std::mem::take(&mut reader.deprecated);
        reader.diagnostics.extend(deprecated.warnings(&reader.file));
        let Reader { mut objects, mut diagnostics, n_untold, .. } = reader;
        refuse_duplicates(&mut objects);
        shorten(&mut objects, &mut diagnostics, limits.max_diagnostics, n_untold);
        DecodedFile { objects, diagnostics, broken: false }
    }
}

/// Parses a text, such as the body of a request, into its documents: at least one, none of them null.
///
/// `name` is shown in diagnostics. It may be empty.
///
/// # Errors
///
/// Returns the faults of the text, at least one diagnostic.
pub fn parse(
    name: &str,
    content: &[u8],
    syntax: Syntax,
    limits: &Limits,
) -> Result<Vec<Tree>, Vec<Diagnostic>> {
    document::parse(content, syntax, limits)
        .map_err(|problems| broken_file(&name.into(), problems).diagnostics)
}

fn broken_file(file: &Arc<str>, problems: Problems) -> DecodedFile {
    let Problems { list, n_more, .. } = problems;
    let mut diagnostics: Vec<_> = list.into_iter().map(|problem| place_problem(file, problem)).collect();
    if n_more > 0 {
        diagnostics.push(and_more(file, n_more));
    }
    DecodedFile { objects: Vec::new(), diagnostics, broken: true }
}

pub(crate) fn place_problem(file: &Arc<str>, problem: SyntaxProblem) -> Diagnostic {
    let place =
        |position: Position| Place { file: Arc::clone(file), line: position.line, column: position.column };
    Diagnostic {
        severity: Severity::Error,
        code: problem.code,
        place: place(problem.position),
        path: String::new(),
        message: problem.message,
        suggestion: None,
        related: problem.related.into_iter().map(place).collect(),
        is_sensitive: false,
    }
}

/// Reads the pieces of one file.
struct Reader<'c> {
    codec: &'c Codec,
    file: Arc<str>,
    limits: &'c Limits,
    max_objects: usize,
    deprecated: Deprecated,
    objects: Vec<Object>,
    /// The number of unreadable objects.
    n_unreadable: usize,
    /// The number of diagnostics of objects that may still be reported, in addition to one for each.
    n_left: usize,
    /// The number of faults that are not reported because there are too many.
    n_untold: usize,
    /// True if there are more than [`max_objects`](Self::max_objects).
    is_full: bool,
    diagnostics: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn read(&mut self, piece: Piece<'_>) {
        if self.objects.len() >= self.max_objects {
            self.is_full = true;
            return;
        }
        let (tree, content) = match piece {
            Piece::Resource { tree, expected } => (tree, self.read_resource(tree, &expected)),
            Piece::NodeGroup(tree) => {
                let (name, outcome) = read_node_group(&self.file, tree);
                (tree, ObjectContent::NodeGroup { name, outcome })
            }
            Piece::Other { api_version, kind, tree } => {
                let metadata =
                    |key| tree.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Node::as_str);
                let (name, namespace) = (metadata("name"), metadata("namespace"));
                let (name, namespace) =
                    (name.unwrap_or_default().to_owned(), namespace.unwrap_or_default().to_owned());
                (tree, ObjectContent::Other { api_version, kind, name, namespace, tree: tree.to_tree() })
            }
            Piece::Bad { tree, finding } => {
                (tree, ObjectContent::Unreadable(vec![finding.locate(&self.file, tree)]))
            }
            Piece::Note { tree, finding } => {
                self.note(finding.locate(&self.file, tree));
                return;
            }
        };
        if let ObjectContent::Unreadable(found) = &content {
            // One unreadable object is enough to report, and a file can be full of them.
            if self.n_unreadable >= self.limits.max_diagnostics.max(1) {
                self.n_untold += found.len();
                return;
            }
            self.n_unreadable += 1;
        }
        let Position { line, column } = tree.position();
        self.objects.push(Object { place: Place { file: Arc::clone(&self.file), line, column }, content });
    }

    fn note(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < self.limits.max_diagnostics {
            self.diagnostics.push(diagnostic);
        } else {
            self.n_untold += 1;
        }
    }

    fn too_many_objects(self) -> DecodedFile {
        let message = format!(
            "the file has more than {} objects, which is the limit for its size; split the file",
            self.max_objects
        );
        let place = self.objects.last().map(|object| object.place.clone());
        let Place { line, column, .. } =
            place.unwrap_or_else(|| Place { file: "".into(), line: 1, column: 1 });
        let problem = SyntaxProblem::new("too-many-objects", Position { line, column }, message);
        broken_file(&self.file, Problems::of(problem, self.limits))
    }

    fn read_resource(&mut self, tree: Node<'_>, expected: &Expected) -> ObjectContent {
        let around =
            Surroundings { file: &self.file, is_file: true, expected, deprecated: &mut self.deprecated };
        match self.codec.read_resource(tree, around) {
            Read::Keyed { key, outcome: Ok((resource, warnings)), .. } => {
                warnings.into_iter().for_each(|warning| self.note(warning));
                ObjectContent::Resource { key, outcome: Ok(*resource) }
            }
            Read::Keyed { key, outcome: Err(mut diagnostics), n_more } => {
                self.n_untold += n_more;
                self.cut(&mut diagnostics);
                ObjectContent::Resource { key, outcome: Err(diagnostics) }
            }
            Read::Unreadable(mut diagnostics) => {
                self.cut(&mut diagnostics);
                ObjectContent::Unreadable(diagnostics)
            }
        }
    }

    /// Keeps as many diagnostics of an object as may still be reported, at least one.
    fn cut(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        let n_told = diagnostics.len().min(self.n_left.max(1));
        self.n_untold += diagnostics.len() - n_told;
        self.n_left = self.n_left.saturating_sub(n_told);
        diagnostics.truncate(n_told);
    }
}

/// Refuses every resource that the file defines more than once (row A70), because the right definition is unknown.
fn refuse_duplicates(objects: &mut [Object]) {
    let key = |object: &Object| match &object.content {
        ObjectContent::Resource { key, .. } => Some(key.clone()),
        ObjectContent::Unreadable(_) | ObjectContent::NodeGroup { .. } | ObjectContent::Other { .. } => None,
    };
    let mut sorted: Vec<usize> = (0..objects.len()).collect();
    // The sort is stable, so the places of one key are in the order of the text.
    sorted.sort_by_cached_key(|index| objects.get(*index).and_then(key));
    let same = |a: &usize, b: &usize| {
        let [a, b] = [a, b].map(|index| objects.get(*index).and_then(key));
        a.is_some() && a == b
    };
    let runs: Vec<Vec<usize>> =
        sorted.chunk_by(same).filter(|run| run.len() > 1).map(<[usize]>::to_vec).collect();
    for run in runs {
        // One more than is shown, because an object does not list its own place.
        let place = |index: &usize| objects.get(*index).map(|object| object.place.clone());
        let places: Vec<Place> = run.iter().take(MAX_RELATED + 1).filter_map(place).collect();
        for index in &run {
            if let Some(object) = objects.get_mut(*index) {
                refuse_duplicate(object, &places, run.len());
            }
        }
    }
}

fn refuse_duplicate(object: &mut Object, places: &[Place], n_times: usize) {
    let ObjectContent::Resource { key, outcome } = &mut object.content else { return };
    let others = places.iter().filter(|place| **place != object.place);
    let diagnostic = Diagnostic {
        severity: Severity::Error,
        code: "duplicate-resource",
        place: object.place.clone(),
        path: String::new(),
        message: format!("{} {} is defined {n_times} times", key.resource_type, echo_name(&key.name)),
        suggestion: None,
        related: others.take(MAX_RELATED).cloned().collect(),
        is_sensitive: false,
    };
    match outcome {
        Ok(_) => *outcome = Err(vec![diagnostic]),
        Err(diagnostics) => diagnostics.push(diagnostic),
    }
}

/// Keeps `limit` diagnostics of a file, with at least one for each bad object whose name is known, and at most `limit` unreadable
/// objects.
fn shorten(objects: &mut Vec<Object>, diagnostics: &mut Vec<Diagnostic>, limit: usize, n_untold: usize) {
    let file = objects.first().map(|object| Arc::clone(&object.place.file)).unwrap_or_default();
    let mut left = limit.max(1);
    let mut n_more = n_untold;
    let mut cut = |list: &mut Vec<Diagnostic>, least: usize| {
        let kept = list.len().min(left.max(least));
        n_more += list.len() - kept;
        list.truncate(kept);
        left = left.saturating_sub(kept);
    };
    objects.retain_mut(|object| {
        let least = usize::from(!matches!(object.content, ObjectContent::Unreadable(_)));
        if let Some(list) = object.diagnostics_mut() {
            cut(list, least);
        }
        !matches!(&object.content, ObjectContent::Unreadable(list) if list.is_empty())
    });
    cut(diagnostics, 0);
    if n_more > 0 {
        diagnostics.push(and_more(&file, n_more));
    }
}

fn and_more(file: &Arc<str>, n_more: usize) -> Diagnostic {
    let message = format!("and {n_more} more");
    let problem = SyntaxProblem::new("too-many-errors", Position { line: 1, column: 1 }, message);
    Diagnostic { severity: Severity::Info, ..place_problem(file, problem) }
}

/// The limit of related places. More do not help.
const MAX_RELATED: usize = 10;
