//! Files without a server: read, loaded and translated as the server would.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use xds_cache::{Generated, GroupName, Groups, Layer, NodeGroup, ResourceKey, layer};
use xds_codec::{Codec, Diagnostic, Limits, Place};
use xds_control::documents;
use xds_control::model::document::{self, ConditionPart, DocumentState, Translated};
use xds_control::model::{FileObjectKey, FileStatus, Texts};
use xds_control::{Secrets, chain};
use xds_files::load::{FilesState, Loaded, Options, load};
use xds_files::read::{FileContent, FileFault, FileRead, ReadOptions, Reader, Scan};
use xds_files::timing::Removals;
use xds_routes::DocumentKey;
use xds_routes::conditions::{ConditionReason, ConditionType};
use xds_settings::units::parse_size;
use xds_settings::{DescriptorArgs, RouteArgs};

use crate::failure::Failure;
use crate::output::clean;
use crate::progress::Progress;

/// The files to read, and how to read them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FilesArgs {
    /// Files and directories, as given to --watch; `-` is standard input, which messages call `<stdin>`: YAML or JSON, also
    /// several documents
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Size limit of a file
    #[arg(long, env = "XDS_SERVER_MAX_FILE_BYTES", value_name = "SIZE", default_value = "10MiB",
        value_parser = parse_size)]
    pub(crate) max_file_bytes: usize,
    /// Follow symbolic links that lead out of the watched directories; without this flag they are errors
    #[arg(long, env = "XDS_SERVER_FOLLOW_SYMLINKS", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub(crate) follow_symlinks: bool,
    /// Limit of values (lists, objects and scalars) in one document
    #[arg(long, env = "XDS_SERVER_MAX_DOCUMENT_VALUES", value_name = "N",
        default_value_t = xds_codec::Limits::DEFAULT_DOCUMENT_VALUES)]
    pub(crate) max_document_values: usize,
    #[command(flatten)]
    pub(crate) descriptors: DescriptorArgs,
    #[command(flatten)]
    pub(crate) routes: RouteArgs,
}

/// The text of each file that was found, by its path.
///
/// # Errors
///
/// [`Failure::Failed`] names the first file or directory that cannot be read, or is not text.
pub(crate) fn texts(scan: Scan) -> Result<BTreeMap<String, String>, Failure> {
    if let Some((path, fault)) = scan.faults.first_key_value() {
        return Err(Failure::Failed(format!("{path}: {fault}")));
    }
    let text = |(path, read): (Arc<str>, FileRead)| {
        let content = read.map_err(|fault| Failure::Failed(format!("{path}: {fault}")))?;
        let text = String::from_utf8(content.bytes.to_vec());
        let text = text.map_err(|error| Failure::Failed(format!("{path} is not UTF-8 text: {error}")))?;
        Ok((path.to_string(), text))
    };
    scan.files.into_iter().map(text).collect()
}

/// The contents of files.
pub(crate) struct Offline {
    pub(crate) codec: Codec,
    pub(crate) limits: Limits,
    pub(crate) scan: Scan,
    /// The usable part.
    pub(crate) layer: Layer,
    /// The translation of its documents.
    pub(crate) translated: Arc<Translated>,
    /// Faults and doubts of each file, and between documents.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The hidden files and directories that look like configuration and are not read.
    pub(crate) hidden: Vec<String>,
    /// The texts of the files, to find the places of fields.
    pub(crate) texts: Texts,
    /// The resources that cannot be used.
    pub(crate) unusable: BTreeSet<ResourceKey>,
    /// Where the node groups are defined.
    pub(crate) group_places: BTreeMap<GroupName, Place>,
}

impl FilesArgs {
    /// The contents of paths, and hidden files that look like configuration and are not read.
    pub(crate) fn scan(&self, paths: &[PathBuf]) -> (Scan, Vec<String>) {
        let options = ReadOptions {
            max_file_bytes: self.max_file_bytes,
            follows_links: self.follow_symlinks,
            ..ReadOptions::default()
        };
        let (stdin, paths): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|path| path.as_os_str() == "-");
        let mut reader = Reader::new(&paths, options);
        let (walk, mut scan) = reader.scan(|_| false);
        if !stdin.is_empty() {
            scan.files.insert(STDIN.into(), read_stdin(self.max_file_bytes));
        }
        (scan, reader.hidden(&walk))
    }
}

impl Offline {
    /// Reads and translates. `secrets` says which Gateways get their certificates.
    ///
    /// # Errors
    ///
    /// The files generate more than `--max-trial-memory` allows, or this program itself is broken; what else is wrong with files is among
    /// the diagnostics.
    pub(crate) fn read(args: &FilesArgs, secrets: Secrets) -> Result<Self, Failure> {
        let (scan, hidden) = args.scan(&args.paths);
        let codec = args.descriptors.codec().map_err(|error| Failure::Failed(chain(&error)))?;
        let limits = Limits {
            max_bytes: args.max_file_bytes,
            max_document_values: args.max_document_values,
            ..Limits::default()
        };
        let routes = xds_routes::Options::from(&args.routes);
        let unknown_fields = routes.unknown_fields;
        let options = Options { removals: Removals::Due, is_partial_start: false, unknown_fields };
        let progress = Progress::of_steps("reading files", scan.files.len() as u64);
        let Loaded { state, load, .. } =
            load(&FilesState::default(), &scan, options, SystemTime::now(), |path, content| {
                let decoded = codec.decode_file(path, &content.bytes, &limits);
                progress.step();
                decoded
            });
        drop(progress);
        let _progress = Progress::of_wait("translating documents");
        let nothing = DocumentState { options: Arc::new(routes), ..DocumentState::default() };
        let is_guarded = |group: &GroupName| {
            let group = load.layer.groups.get(group).and_then(|group| group.definition.as_ref());
            group.is_some_and(NodeGroup::is_guarded)
        };
        let withholds = |group: &GroupName| secrets == Secrets::Identified && !is_guarded(group);
        let documents = documents::offline(&codec, &nothing, load.documents, &withholds);
        let documents = documents.map_err(|error| Failure::Failed(chain(&error)))?;
        let translated = documents.translated;
        let group_places = load.files.values().flat_map(group_places).collect();
        let mut diagnostics: Vec<Diagnostic> =
            load.files.into_values().flat_map(|file| file.diagnostics).collect();
        diagnostics.extend(translated.translation.diagnostics.iter().cloned());
        Ok(Self {
            codec,
            texts: state.texts(&scan, &limits),
            limits,
            scan,
            layer: load.layer,
            translated,
            diagnostics,
            hidden,
            unusable: load.unusable,
            group_places,
        })
    }

    /// The resources generated from documents.
    pub(crate) fn generated(&self) -> &Generated {
        &self.translated.translation.groups
    }

    /// The groups as they would be served.
    pub(crate) fn groups(&self) -> Groups {
        layer::merge(&self.layer, &Layer::default(), self.generated())
    }

    /// The texts of all files and of some others, to find the places of documents, too.
    pub(crate) fn all_texts(&self, others: &[(Arc<str>, Arc<[u8]>)]) -> Texts {
        let texts = self
            .scan
            .files
            .iter()
            .filter_map(|(path, read)| Some((path.clone(), read.as_ref().ok()?.bytes.clone())));
        Texts::new(texts.chain(others.iter().cloned()).collect(), &self.limits)
    }

    /// The conditions that are not as they should be.
    pub(crate) fn unmet(&self) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        for (key, status) in &self.translated.translation.conditions.objects {
            for (part, condition) in document::conditions(status) {
                let status = condition.status.to_string();
                if document::is_fine(condition.kind.as_str(), &status) {
                    continue;
                }
                let of = match part {
                    ConditionPart::Object => String::new(),
                    ConditionPart::Parent(parent, section, _) => match section {
                        Some(section) => format!("{parent} ({section})"),
                        None => parent,
                    },
                    ConditionPart::Listener(name) => format!("listener {name}"),
                };
                let document = self.translated.documents.get(key).map(|placed| &placed.document);
                unmet.push(Unmet {
                    key: key.clone(),
                    place: document.map_or_else(nowhere, |document| document.place.clone()),
                    of,
                    kind: condition.kind,
                    status,
                    reason: condition.reason,
                    message: condition.message.clone(),
                });
            }
        }
        unmet
    }
}

/// The node groups that a file defines, and where.
fn group_places(file: &FileStatus) -> impl Iterator<Item = (GroupName, Place)> {
    let groups = file.objects.iter().filter(|object| object.key == FileObjectKey::NodeGroup);
    groups.map(|object| {
        let place = Place { file: Arc::clone(&file.path), line: object.line, column: object.column };
        (object.group.clone(), place)
    })
}

/// Standard input as a file.
fn read_stdin(limit: usize) -> FileRead {
    let mut bytes = Vec::new();
    match io::stdin().lock().take(limit as u64 + 1).read_to_end(&mut bytes) {
        Ok(n) if n > limit => Err(FileFault::TooLarge { bytes: n as u64, limit }),
        Ok(_) => Ok(FileContent::new(&bytes)),
        Err(error) => Err(FileFault::Unreadable(error.to_string())),
    }
}

/// How messages call standard input.
const STDIN: &str = "<stdin>";

/// A condition that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// The object.
    pub(crate) key: DocumentKey,
    /// Where its document begins.
    pub(crate) place: Place,
    /// The parent or listener that it is about; empty for the object itself.
    pub(crate) of: String,
    pub(crate) kind: ConditionType,
    pub(crate) status: String,
    pub(crate) reason: ConditionReason,
    pub(crate) message: String,
}

impl fmt::Display for Unmet {
    /// `HTTPRoute prod/shop at Gateway prod/edge: ResolvedRefs is False (BackendNotFound): there is no Service prod/none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, of, kind, status, reason, message, .. } = self;
        write!(f, "{key}")?;
        if !of.is_empty() {
            write!(f, " at {of}")?;
        }
        write!(f, ": {kind} is {status} ({reason})")?;
        if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
    }
}

/// The place of what is in no file.
pub(crate) fn nowhere() -> Place {
    Place { file: "".into(), line: 0, column: 0 }
}

/// Diagnostics as text: with the lines that they are about if `is_terminal`, one line each if not.
pub(crate) fn render(diagnostics: &[Diagnostic], scan: &Scan, is_terminal: bool) -> String {
    let colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::new();
    for one in diagnostics {
        let shown = cleaned(one);
        if is_terminal {
            let content = scan.files.get(&one.place.file).and_then(|read| read.as_ref().ok());
            let source = content.map(|content| String::from_utf8_lossy(&content.bytes)).unwrap_or_default();
            text.push_str(&xds_codec::render(&shown, &source, colour));
            text.push('\n');
        } else {
            text.push_str(&format!("{shown}\n"));
        }
    }
    text
}

/// A diagnostic with texts of the document and names of files escaped.
pub(crate) fn cleaned(one: &Diagnostic) -> Diagnostic {
    let place = |place: &Place| Place { file: clean(&place.file).into(), ..place.clone() };
    Diagnostic {
        path: clean(&one.path),
        message: clean(&one.message),
        place: place(&one.place),
        suggestion: one.suggestion.as_deref().map(clean),
        related: one.related.iter().map(place).collect(),
        ..one.clone()
    }
}

/// Returns `true` if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
