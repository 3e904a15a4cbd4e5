//! `validate`: what the server would say of files, without a server.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use xds_cache::{
    Generated, GroupName, Groups, Layer, Node, Origin, Profile, Publisher, Resource, ResourceKey,
    ResourceType, Revision, StatusBoard, layer,
};
use xds_codec::document::Tree;
use xds_codec::{Codec, Diagnostic, Effect, Limits, Place, ProfileFinding, Severity, Syntax};

use crate::cli::{Failure, output};
use crate::config::units::parse_size;
use crate::control::check;
use crate::source::FileLoad;
use crate::source::load::{Options, State, load};
use crate::source::read::{Reader, Scan};
use crate::source::timing::Removals;
use crate::telemetry::chain;

/// The flags of `validate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Files and directories, as given to --watch
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// For which clients: what they refuse is an error, what they ignore or read differently a warning; with `all`, what
    /// one kind of client refuses and the other may take is a warning too
    #[arg(long, value_enum, value_name = "CLIENT", default_value = "all")]
    target: Target,
    /// Treat what is doubtful of references and groups as errors
    #[arg(long, env = "XDS_SERVER_STRICT", action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new())]
    strict: bool,
    /// Also judge what a node with this id would get: groups that conflict there are errors
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// The form of the result
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    /// The largest file that is read
    #[arg(long, env = "XDS_SERVER_MAX_FILE_BYTES", value_name = "SIZE", default_value = "10MiB",
        value_parser = parse_size)]
    max_file_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// Envoy
    Envoy,
    /// Proxyless gRPC clients
    Grpc,
    /// Both
    All,
}

impl Target {
    fn profiles(self) -> &'static [Profile] {
        match self {
            Self::Envoy => &[Profile::Envoy],
            Self::Grpc => &[Profile::Grpc],
            Self::All => &[Profile::Envoy, Profile::Grpc],
        }
    }

    /// A NACK is an error. With `all` it is none if clients of the other kind come to the resource too, for which it may be
    /// meant: every cluster may be for Envoys, but a listener with an `api_listener` is of no use to them.
    fn severity_of(self, finding: &ProfileFinding) -> Severity {
        let is_for_others = self == Self::All && finding.is_shared;
        match finding.effect {
            Effect::Rejected if !is_for_others => Severity::Error,
            Effect::Rejected | Effect::Fails | Effect::Ignored | Effect::Differs => Severity::Warning,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Lines, on a terminal with the lines of the files that they are about
    Text,
    /// One object
    Json,
}

/// What was found.
struct Report {
    diagnostics: Vec<Diagnostic>,
    n_files: usize,
    n_resources: usize,
}

/// Exit code 0 if there is no error, 1 if there is one.
pub(crate) fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let (_, scan) = Reader::new(&args.paths, args.max_file_bytes).scan(|_| false);
    let report = report(args, &scan)?;
    let n_errors = report.count(Severity::Error);
    match args.output {
        Form::Json => output::print_json(&report.to_json())?,
        Form::Text => output::print(&report.to_text(&scan))?,
    }
    if n_errors == 0 { Ok(()) } else { Err(Failure::Silent) }
}

fn report(args: &ValidateArgs, scan: &Scan) -> Result<Report, Failure> {
    let codec = Codec::new().map_err(|error| Failure::Failed(chain(&error)))?;
    let limits = Limits { max_bytes: args.max_file_bytes, ..Limits::default() };
    let options = Options { removals: Removals::Due, is_partial_start: false };
    let loaded = load(&State::default(), scan, options, SystemTime::now(), |path, content| {
        codec.decode_file(path, &content.bytes, &limits)
    });
    let FileLoad { layer, files, .. } = loaded.load;
    let mut diagnostics: Vec<Diagnostic> = files.into_values().flat_map(|file| file.diagnostics).collect();
    diagnostics.extend(doubts(args, &layer, loaded.state.unusable()));
    let found = lint_profiles(&codec, args.target, &layer);
    let found = place(found, args.target, scan, &limits);
    diagnostics.retain(|one| !is_told_by_profile(one, args.target, &found));
    diagnostics.extend(found);
    if scan.files.is_empty() && scan.faults.is_empty() {
        diagnostics.push(nothing_found(args));
    }
    diagnostics.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(Report { diagnostics, n_files: scan.files.len(), n_resources: layer.n_resources() })
}

/// What is doubtful about the groups together, as the server judges it before it publishes.
///
/// That a resource which is there has a fault is told already; that others name it, is no further one.
fn doubts(args: &ValidateArgs, layer: &Layer, unusable: BTreeSet<ResourceKey>) -> Vec<Diagnostic> {
    let mut present = Layer::default();
    let default = present.groups.entry(GroupName::default_group()).or_default();
    let placeholder = |key: ResourceKey| {
        let resource = Resource::plain(key.resource_type.clone(), &key.name, Vec::new());
        (key, Arc::new(resource))
    };
    default.resources.extend(unusable.into_iter().map(placeholder));
    let groups = layer::merge(layer, &present, &Generated::new());
    let touched: BTreeSet<_> = groups.keys().collect();
    let mut doubts = check::doubts(&BTreeMap::new(), &groups, &touched, &StatusBoard::new(), |_| true);
    if args.strict {
        doubts = check::as_errors(doubts);
    }
    let Some(id) = &args.node else { return doubts };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups);
    let view = publisher.view_of(&Node::with_id(id));
    for conflict in view.iter().flat_map(|view| view.conflicts()) {
        let resource = layer.resources(&conflict.loser).and_then(|resources| resources.get(&conflict.key));
        let place = resource.map_or_else(nowhere, |resource| origin_of(resource.origin()));
        let (key, winner, loser) = (&conflict.key, &conflict.winner, &conflict.loser);
        let message = format!(
            "the node {id:?} is in the groups `{winner}` and `{loser}`, which have the same priority and both have {key}; \
             that of `{winner}` is served"
        );
        doubts.push(diagnostic(Severity::Error, "group-conflict", place, message));
    }
    doubts
}

/// What clients of the target make of the resources of each group, each finding once.
///
/// A group is judged as its nodes see it: over the default group, and for names that neither has, with what other groups have.
/// A group whose nodes are all of one kind is not judged for the other.
fn lint_profiles(codec: &Codec, target: Target, layer: &Layer) -> Vec<ProfileFinding> {
    let groups = layer::merge(layer, &Layer::default(), &Generated::new());
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for profile in target.profiles() {
        let others = match profile {
            Profile::Envoy => reached_by(codec, &groups, Profile::Grpc),
            Profile::Grpc => reached_by(codec, &groups, Profile::Envoy),
        };
        for name in names_for(&groups, *profile) {
            let resources = seen_by(&groups, name, *profile);
            for mut finding in codec.lint_profile(resources.into_iter(), *profile) {
                let place = origin_of(&finding.origin);
                finding.is_shared = others.contains(&(finding.resource.clone(), place.clone()));
                let key = (place, finding.path.clone(), finding.code, finding.message.clone());
                if seen.insert(key) {
                    found.push(finding);
                }
            }
        }
    }
    found
}

/// The groups that may have nodes of that kind.
fn names_for(groups: &Groups, profile: Profile) -> impl Iterator<Item = &GroupName> {
    let groups = groups.iter();
    let groups =
        groups.filter(move |(_, group)| group.definition.client.is_none_or(|client| client == profile));
    groups.map(|(name, _)| name)
}

/// What clients of that kind come to in any group, and where each is from.
///
/// What one group's clients refuse may be there for another group's, so one group alone does not tell.
fn reached_by(codec: &Codec, groups: &Groups, profile: Profile) -> HashSet<(ResourceKey, Place)> {
    let mut reached = HashSet::new();
    for name in names_for(groups, profile) {
        let resources = seen_by(groups, name, profile);
        let keys = codec.reached_by(resources.iter().copied(), profile);
        let resources = resources.into_iter().filter(|resource| keys.contains(resource.key()));
        reached.extend(resources.map(|resource| (resource.key().clone(), origin_of(resource.origin()))));
    }
    reached
}

/// The resources that nodes of a group may be served: listeners only of their own groups, so that nobody else's count.
fn seen_by<'g>(groups: &'g Groups, name: &GroupName, profile: Profile) -> Vec<&'g Resource> {
    let default = GroupName::default_group();
    let mut resources: BTreeMap<&ResourceKey, &Resource> = BTreeMap::new();
    for own in [name, &default] {
        for (key, resource) in groups.get(own).iter().flat_map(|group| group.resources_for(profile)) {
            resources.entry(key).or_insert(resource);
        }
    }
    for other in
        groups.values().filter(|group| group.definition.client.is_none_or(|client| client == profile))
    {
        for (key, resource) in other.resources_for(profile) {
            if key.resource_type != ResourceType::Listener {
                resources.entry(key).or_insert(resource);
            }
        }
    }
    resources.into_values().collect()
}

/// Makes diagnostics of findings, with their places in the files.
fn place(found: Vec<ProfileFinding>, target: Target, scan: &Scan, limits: &Limits) -> Vec<Diagnostic> {
    let mut documents: BTreeMap<Arc<str>, Vec<Tree>> = BTreeMap::new();
    let mut diagnostics = Vec::new();
    for finding in found {
        let Place { file, .. } = origin_of(&finding.origin);
        let trees = documents.entry(Arc::clone(&file)).or_insert_with(|| {
            let content = scan.files.get(&file).and_then(|read| read.as_ref().ok());
            let bytes = content.map(|content| &*content.bytes).unwrap_or_default();
            xds_codec::parse(&file, bytes, Syntax::of_file(&file), limits).unwrap_or_default()
        });
        let mut diagnostic = finding.to_diagnostic(target.severity_of(&finding), trees);
        if target == Target::All && finding.effect == Effect::Rejected && finding.is_shared {
            diagnostic.message.push_str(match finding.profile {
                Profile::Grpc => " (no matter if only Envoys are to get it)",
                Profile::Envoy => " (no matter if only gRPC clients are to get it)",
            });
        }
        diagnostics.push(diagnostic);
    }
    diagnostics
}

/// Whether the lint of every resource says what the profile's says better, or what the target does not want to know.
fn is_told_by_profile(diagnostic: &Diagnostic, target: Target, found: &[Diagnostic]) -> bool {
    let better = match diagnostic.code {
        "priority-gap" if target == Target::Envoy => return true,
        "priority-gap" => "grpc-priority-gap",
        "bad-regex" => "grpc-regex",
        _ => return false,
    };
    found.iter().any(|one| one.code == better && one.place == diagnostic.place && one.path == diagnostic.path)
}

fn origin_of(origin: &Origin) -> Place {
    match origin {
        Origin::File { path, line, column } => Place { file: Arc::clone(path), line: *line, column: *column },
        Origin::Api => nowhere(),
    }
}

fn nothing_found(args: &ValidateArgs) -> Diagnostic {
    let paths: Vec<String> = args.paths.iter().map(|path| path.display().to_string()).collect();
    let message = format!("no *.yaml, *.yml or *.json in {}", paths.join(", "));
    diagnostic(Severity::Warning, "no-files", nowhere(), message)
}

fn nowhere() -> Place {
    Place { file: "".into(), line: 0, column: 0 }
}

fn diagnostic(severity: Severity, code: &'static str, place: Place, message: String) -> Diagnostic {
    let (path, suggestion, related) = (String::new(), None, vec![]);
    Diagnostic { severity, code, place, path, message, suggestion, related, is_sensitive: false }
}

impl Report {
    fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == severity).count()
    }

    fn to_text(&self, scan: &Scan) -> String {
        let is_terminal = io::stdout().is_terminal();
        let colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
        let mut text = String::new();
        for one in &self.diagnostics {
            if is_terminal {
                let content = scan.files.get(&one.place.file).and_then(|read| read.as_ref().ok());
                let source =
                    content.map(|content| String::from_utf8_lossy(&content.bytes)).unwrap_or_default();
                text.push_str(&xds_codec::render(one, &source, colour));
                text.push('\n');
            } else {
                text.push_str(&format!("{one}\n"));
            }
        }
        let (n_errors, n_warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let counts = [
            counted(self.n_files, "file"),
            counted(self.n_resources, "resource"),
            counted(n_errors, "error"),
            counted(n_warnings, "warning"),
        ];
        text.push_str(&format!("{}\n", counts.join(", ")));
        text
    }

    fn to_json(&self) -> Value {
        let place = |place: &Place| json!({"file": &*place.file, "line": place.line, "column": place.column});
        let one = |one: &Diagnostic| {
            json!({
                "severity": one.severity.as_str(),
                "code": one.code,
                "file": &*one.place.file,
                "line": one.place.line,
                "column": one.place.column,
                "path": one.path,
                "message": one.message,
                "suggestion": one.suggestion,
                "related": one.related.iter().map(place).collect::<Vec<_>>(),
            })
        };
        json!({
            "files": self.n_files,
            "resources": self.n_resources,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "diagnostics": self.diagnostics.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
