//! `validate`: checks files as the server would, without a server.
//!
//! This module collects the findings; [`access`] those of an access policy. [`mod@report`] holds them, and writes them as text and JSON. [`strict`] turns bad conditions
//! into errors. [`dead`] finds parts that can never act, or act otherwise than they look. [`oracle`] asks a local Envoy. [`route_tests`] runs RouteTests, and what [`router_check`] reads. [`junit`], [`github`] and [`sarif`] write the forms that CI systems read.

mod access;
mod dead;
mod github;
mod junit;
mod oracle;
mod report;
mod route_tests;
mod router_check;
mod sarif;
mod strict;
mod target;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use access::AccessCheck;
use report::Report;
use route_tests::Tested;
use target::{Target, diagnostic, names_for, origin_of, reached_by, seen_by};
use xds_cache::{Groups, MissingReferences, Node, Profile, Publisher, ResourceKey, Revision, StatusBoard};
use xds_codec::document::Tree;
use xds_codec::{Diagnostic, Effect, Language, Limits, Place, ProfileFinding, Severity, Syntax};
use xds_control::check;
use xds_explain::{Depth, Ratio};
use xds_files::read::Scan;
use xds_settings::Secrets;
use xds_units::Percent;

use crate::failure::Failure;
use crate::offline::{FilesArgs, Offline, nowhere};
use crate::output;
use crate::progress::Progress;

/// The flags of `validate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Clients to check for. Anything they reject is an error; anything they ignore or read differently is a warning. With `all`,
    /// anything that only one kind of client rejects is a warning
    #[arg(long, value_enum, value_name = "CLIENT", default_value = "all")]
    target: Target,
    /// Languages of gRPC to check for: only what these refuse or read differently counts. Repeat it, or separate several with commas
    #[arg(
        long,
        value_enum,
        value_name = "LANGUAGE",
        value_delimiter = ',',
        default_value = "core,go,js,java"
    )]
    clients: Vec<Client>,
    /// Also treat as errors: doubtful references and groups, documents that are not accepted, references that do not resolve,
    /// unsupported policies, and parts that can never act
    #[arg(long, env = "XDS_SERVER_STRICT", action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new())]
    strict: bool,
    /// Which parts that act otherwise than they look are told. With `all`, notes also tell what is often meant: exact paths and hosts of
    /// which a wider route takes a part, fallbacks, and calls that Envoys and gRPC clients answer differently
    #[arg(long, value_enum, value_name = "LINTS", default_value = "default")]
    lint: Lint,
    /// Also check the resources of a node with this ID: groups that conflict there are errors
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Also check this access policy, and the files beside it: groups and namespaces that do not exist, principals that nobody can be
    /// or that overlap, and identities that grant nothing
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Node groups that may have resources with secrets, as for `serve`. With `identified`, secrets in other groups are errors, and
    /// Gateways there get no certificates [default: any; with --access, secrets in other groups are warnings]
    #[arg(long, value_name = "GROUPS")]
    secrets: Option<Secrets>,
    /// Share of routes that the requests of RouteTests must touch, for each kind of clients that they ask, such as 80%
    #[arg(long, value_name = "SHARE")]
    min_coverage: Option<Percent>,
    /// Also run the tests in this file of Envoy's `router_check_tool`, in YAML or JSON, on --route-config
    #[arg(long, value_name = "FILE", requires = "route_config")]
    router_check: Option<PathBuf>,
    /// The RouteConfiguration that the tests of --router-check are about, in each group that has it
    #[arg(long, value_name = "NAME", requires = "router_check")]
    route_config: Option<String>,
    /// Also ask this Envoy program whether it takes the resources for Envoys. It runs on this machine with the files that they name,
    /// and must be trusted
    #[arg(long, value_name = "PATH")]
    oracle: Option<PathBuf>,
    /// Also write the findings and the outcome of RouteTests to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Form,
    #[command(flatten)]
    files: FilesArgs,
}

/// A language of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Client {
    /// C-core: C++, Python, Ruby, PHP and C#
    Core,
    /// grpc-go
    Go,
    /// grpc-js
    Js,
    /// grpc-java
    Java,
}

impl From<Client> for Language {
    fn from(client: Client) -> Self {
        match client {
            Client::Core => Self::Core,
            Client::Go => Self::Go,
            Client::Js => Self::Js,
            Client::Java => Self::Java,
        }
    }
}

/// How much is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Lint {
    /// Parts that never act, or act otherwise than they are written
    Default,
    /// Also what is often meant, as notes
    All,
}

impl From<Lint> for Depth {
    fn from(lint: Lint) -> Self {
        match lint {
            Lint::Default => Self::Default,
            Lint::All => Self::All,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Lines, on a terminal with the lines of the files that they are about
    Text,
    /// One object
    Json,
    /// JUnit XML: a test case for each file and each test of a RouteTest
    Junit,
    /// Workflow commands of GitHub Actions, which become annotations
    Github,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// Exit code 0 if there is no error, 1 if there is one.
pub(crate) fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let secrets = args.secrets.map_or(xds_control::Secrets::Any, Into::into);
    let mut offline = Offline::read(&args.files, secrets)?;
    let progress = Progress::of_wait("checking what the files say");
    let report = report(args, &mut offline);
    drop(progress);
    let n_errors = report.count(Severity::Error);
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::write(&report))
            .map_err(|error| Failure::Failed(format!("{} cannot be written: {error}", path.display())))?;
    }
    match args.output {
        Form::Json => output::print_json(&report.to_json())?,
        Form::Text => output::print(&report.to_text(&offline.scan))?,
        Form::Junit => output::print(&junit::write(&report))?,
        Form::Github => output::print(&github::write(&report))?,
        Form::Sarif => output::print_json(&sarif::write(&report))?,
    }
    if n_errors == 0 { Ok(()) } else { Err(Failure::Silent) }
}

fn report(args: &ValidateArgs, offline: &mut Offline) -> Report {
    let mut diagnostics = std::mem::take(&mut offline.diagnostics);
    let mut unmet = offline.unmet();
    if args.strict {
        strict::make_errors(&mut diagnostics, &mut unmet, &offline.translated.documents);
    }
    diagnostics.extend(doubts(args, offline));
    let (policy, secrets) = (args.access.as_deref(), args.secrets);
    let check = AccessCheck { policy, secrets, is_strict: args.strict };
    diagnostics.extend(access::findings(&check, offline));
    let languages: Vec<Language> = args.clients.iter().copied().map(Into::into).collect();
    let mut found = lint_profiles(args.target, offline);
    found
        .retain(|one| one.profile == Profile::Envoy || one.languages.iter().any(|it| languages.contains(it)));
    let found = place(found, args.target, &offline.scan, &offline.limits);
    diagnostics.retain(|one| !is_told_by_profile(one, args.target, &found));
    diagnostics.extend(found);
    let groups = offline.groups();
    let kinds = args
        .target
        .profiles()
        .iter()
        .flat_map(|profile| names_for(&groups, *profile).map(move |group| (*profile, group.clone())));
    let check = dead::Check { kinds: kinds.collect(), languages: &languages, depth: args.lint.into() };
    diagnostics.extend(check.findings(args.strict, offline));
    let checks = args.router_check.as_deref().zip(args.route_config.as_deref());
    let checks = checks.map(|(path, name)| router_check::read(path, name, offline)).unwrap_or_default();
    diagnostics.extend(checks.faults);
    let tested = Tested::run(offline, &checks.loose, &checks.texts);
    diagnostics.extend(tested.iter().flat_map(|tested| tested.failures.iter().cloned()));
    if let Some(least) = args.min_coverage {
        let least = Ratio::new(least.hundredths().into(), Percent::ALL.hundredths().into());
        let low = || vec![route_tests::no_tests()];
        diagnostics.extend(tested.as_ref().map_or_else(low, |tested| tested.too_few(least)));
    }
    let mut judged = None;
    if let Some(path) = args.oracle.as_deref().filter(|_| args.target != Target::Grpc) {
        let (found, refused) = oracle::judge(path, args.target, offline);
        judged = found;
        diagnostics.extend(refused);
    }
    diagnostics.extend(offline.hidden.iter().map(|path| hidden(path)));
    if offline.scan.files.is_empty() && offline.scan.faults.is_empty() {
        diagnostics.push(nothing_found(args));
    }
    diagnostics.sort_by(|a, b| a.place.cmp(&b.place));
    let unexplained = strict::unexplained(&unmet, &diagnostics, &offline.translated.documents);
    Report {
        diagnostics,
        unmet,
        unexplained,
        files: offline.scan.files.keys().cloned().collect(),
        n_resources: offline.layer.n_resources(),
        n_documents: offline.translated.documents.len(),
        tested,
        judged,
    }
}

/// Warnings about the groups together, as the server checks them before it publishes.
///
/// References to a resource with errors are no further fault, because its own errors are reported.
fn doubts(args: &ValidateArgs, offline: &Offline) -> Vec<Diagnostic> {
    let groups = offline.groups();
    let touched: BTreeSet<_> = groups.keys().collect();
    let before = (&Groups::new(), &MissingReferences::default());
    let mut doubts =
        check::doubts(before, &groups, &touched, &offline.unusable, &StatusBoard::new(), |_| true);
    offline.texts.move_to_fields(&mut doubts);
    if args.strict {
        doubts = check::as_errors(doubts);
    }
    let Some(id) = &args.node else { return doubts };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups.clone());
    let view = publisher.view_of(&Node::with_id(id));
    for conflict in view.iter().flat_map(|view| view.conflicts()) {
        let loser = groups.get(&conflict.loser);
        let all = loser
            .into_iter()
            .flat_map(|group| Profile::ALL.into_iter().flat_map(|profile| group.resources_for(profile)));
        let resource = all.into_iter().find(|(key, _)| ***key == conflict.key);
        let place = resource.map_or_else(nowhere, |(_, resource)| origin_of(resource.origin()));
        let (key, winner, loser) = (&conflict.key, &conflict.winner, &conflict.loser);
        let message = format!(
            "the node {id:?} is in the groups `{winner}` and `{loser}`, which have the same priority and both have {key}; \
             that of `{winner}` is served"
        );
        doubts.push(diagnostic(Severity::Error, "group-conflict", place, message));
    }
    doubts
}

/// Findings of the target's clients about the resources of each group, each finding once.
///
/// A group is checked as its nodes see it: over the default group, and with other groups for names that neither of them has. A group
/// whose nodes are all of one kind is not checked for the other. Generated resources are made for the kind that gets them, so they are
/// not checked; but their references are followed.
fn lint_profiles(target: Target, offline: &Offline) -> Vec<ProfileFinding> {
    let (codec, groups) = (&offline.codec, offline.groups());
    let written = offline.layer.groups.values().flat_map(|group| group.resources.values());
    let written: HashSet<(&ResourceKey, Place)> =
        written.map(|resource| (resource.key(), origin_of(resource.origin()))).collect();
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
                if !written.contains(&(&finding.resource, place.clone())) {
                    continue;
                }
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
        if target == Target::All
            && finding.effect.is_severe()
            && finding.effect != Effect::Fails
            && finding.is_shared
        {
            diagnostic.message.push_str(match finding.profile {
                Profile::Grpc => " (ignore this if only Envoys use it)",
                Profile::Envoy => " (ignore this if only gRPC clients use it)",
            });
        }
        diagnostics.push(diagnostic);
    }
    diagnostics
}

/// Returns `true` if a general lint is covered by a better one of the profile, or does not concern the target.
fn is_told_by_profile(diagnostic: &Diagnostic, target: Target, found: &[Diagnostic]) -> bool {
    let better = match diagnostic.code {
        "priority-gap" if target == Target::Envoy => return true,
        "priority-gap" => "grpc-priority-gap",
        _ => return false,
    };
    found.iter().any(|one| one.code == better && one.place == diagnostic.place && one.path == diagnostic.path)
}

fn nothing_found(args: &ValidateArgs) -> Diagnostic {
    let paths: Vec<String> = args.files.paths.iter().map(|path| path.display().to_string()).collect();
    let message = format!("there is no *.yaml, *.yml or *.json in {}", paths.join(", "));
    diagnostic(Severity::Error, "no-files", nowhere(), message)
}

/// A note about files that look like configuration and are not read.
fn hidden(path: &str) -> Diagnostic {
    let place = Place { file: path.into(), line: 0, column: 0 };
    let message =
        "hidden files and directories are not read; to have this one read, remove the dot from its name";
    diagnostic(Severity::Info, "hidden", place, message.to_owned())
}
