//! The command line: `serve` by default, and commands that ask a server, a file or a client's side of the protocol.
//!
//! Results go to standard output, everything else to standard error. The exit code is 0 if all went well, 1 if what was
//! asked for was refused, rejected or failed, 2 if the command line is wrong, 3 if the server cannot be reached, 4 if clients do not have
//! it yet.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use xds_units::escape::clean_lines;

mod about;
mod admin;
mod bisect;
mod bootstrap;
mod ca;
mod completions;
mod diff;
mod explain;
mod failure;
mod get;
mod man;
mod offline;
mod output;
mod progress;
mod served;
mod store;
mod tls;
mod token;
mod translate;
mod validate;

pub use failure::Failure;

/// The command `serve`, which is the server's: this crate is compiled without it.
pub trait Serve: clap::Args + fmt::Debug {
    /// The file that has settings (`--config`).
    fn config_file(&self) -> Option<&Path>;

    /// Makes the settings of a file the defaults of the flags of `serve`.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    fn with_defaults(serve: clap::Command, file: &Path) -> Result<clap::Command, Failure>;

    /// Reads `--watch` as a list of paths: that is how the environment has it.
    fn split_watch(&mut self);

    /// Serves until the process is to end.
    ///
    /// # Errors
    ///
    /// If the flags contradict each other, or it cannot serve.
    fn run(self) -> Result<(), Failure>;
}

/// A standalone xDS management server.
///
/// Without a command it serves: `xds-server --watch ./routes` is `xds-server serve --watch ./routes`.
#[derive(Debug, Parser)]
#[command(name = "xds-server", version, subcommand_required = true, after_help = EXIT_CODES)]
struct Cli<S: Serve> {
    #[command(subcommand)]
    command: Command<S>,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, refused or rejected, 2 wrong command line, 3 cannot reach the server, 4 not all clients have it yet";

#[derive(Debug, Subcommand)]
enum Command<S: Serve> {
    /// Serve resources to xDS clients (the default command)
    Serve(Box<S>),
    /// Print a bootstrap that connects a client to the server
    Bootstrap(bootstrap::BootstrapArgs),
    /// Make certificates for trying out TLS, not for production
    Ca(ca::CaArgs),
    /// Make a secret token for a principal of the access policy
    Token(token::TokenArgs),
    /// Check files as the server would, without a server
    Validate(Box<validate::ValidateArgs>),
    /// Print the resources that files would generate, without a server
    Translate(Box<translate::TranslateArgs>),
    /// Explain where a request goes and why, by files and without a server, or by what one serves or served
    Explain(Box<explain::ExplainArgs>),
    /// Say which requests a change moves: two files or directories, without a server, or two revisions of one
    Diff(Box<diff::DiffArgs>),
    /// Find the revision that changed where a request goes
    Bisect(Box<bisect::BisectArgs>),
    /// Show what a node would be served, by asking as an xDS client
    Get(get::GetArgs),
    /// Show the resources that a group or a node is served, and where they come from
    Snapshot(admin::SnapshotArgs),
    /// Compare what an Envoy has with what the server serves it
    #[command(visible_alias = "config_dump")]
    ConfigDump(Box<admin::ConfigDumpArgs>),
    /// Show whether the server is ready, and the state of its files, route documents and clients
    Status(admin::StatusArgs),
    /// Check whether the server is ready, for health checks of containers
    Health(admin::HealthArgs),
    /// List the conditions of all route documents
    Conditions(admin::ConditionsArgs),
    /// Create or replace route documents of the API, which override those of files
    Apply(Box<admin::ApplyArgs>),
    /// Put the files of a directory in place of those that the servers of a shared store serve
    Push(Box<admin::PushArgs>),
    /// Delete a route document of the API
    Delete(Box<admin::DeleteArgs>),
    /// List the route documents of files and the API, or show one
    Documents(admin::DocumentsArgs),
    /// List, show, put or delete node groups
    Groups(Box<admin::GroupsArgs>),
    /// List, show, put or delete resources of the API
    Resources(Box<admin::ResourcesArgs>),
    /// Make the server read its files again
    Reload(admin::ReloadArgs),
    /// Show or change how rules split their requests between backends
    Weights(Box<admin::WeightsArgs>),
    /// Count the connected clients by state, and list the worst
    Fleet(Box<admin::FleetArgs>),
    /// List the routes that clients are served, with their backends and places
    Routes(Box<admin::RoutesArgs>),
    /// Show nodes, changes and canaries on the terminal, as they are now
    Top(admin::TopArgs),
    /// Show when the certificates of the server's ports end
    Certificates(admin::CertificatesArgs),
    /// List the connected clients, or show one
    Nodes(admin::NodesArgs),
    /// Show who has acknowledged a change
    Acks(admin::AcksArgs),
    /// Wait until clients use a revision or an object
    Wait(admin::WaitArgs),
    /// Show the xDS server that this one relays, and what it sends
    Relay(admin::RelayArgs),
    /// List the servers that share the store, or forget one that vanished
    Replicas(admin::ReplicasArgs),
    /// Ask what a client or a principal may get, and which rule decides
    Access(Box<admin::AccessArgs>),
    /// Show who changed what, and who was refused
    Audit(admin::AuditArgs),
    /// Show events of the server as they happen
    Events(admin::EventsArgs),
    /// Show the requests and errors that clients report
    Loads(admin::LoadsArgs),
    /// Show which RouteTests pass and fail on what is served, and why; publish the change that they hold
    Tests(admin::TestsArgs),
    /// List changes, or show one revision
    History(admin::HistoryArgs),
    /// Move traffic from one backend to another in steps
    Rollout(admin::RolloutArgs),
    /// Restore the API's objects to their state at a revision
    Rollback(Box<admin::RollbackArgs>),
    /// List wave deployments, watch one, or pause, resume, promote or abort it
    Waves(admin::WavesArgs),
    /// Print what a shell needs to complete command lines
    Completions(completions::CompletionsArgs),
    /// Write manual pages of all commands
    Man(man::ManArgs),
    /// Export or import the stored changes, or repair a damaged data directory
    Store(store::StoreArgs),
}

/// Runs one command line, the program's name first.
pub fn run<S: Serve>(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = with_default_command(args.into_iter().collect());
    let outcome = match parse::<S>(args) {
        Ok(command) => execute(command),
        Err(ParseFailure::Clap(error)) => {
            // Help and version are no errors: clap prints them to standard output.
            let is_error = error.use_stderr();
            return if error.print().is_ok() && !is_error { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        Err(ParseFailure::Config(failure)) => Err(failure),
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if !matches!(failure, Failure::Silent) {
        // Nothing can be done if standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "error: {}", clean_lines(&failure.to_string()));
    }
    failure.exit_code()
}

fn execute<S: Serve>(command: Command<S>) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => args.run(),
        Command::Bootstrap(args) => bootstrap::run(&args),
        Command::Ca(args) => ca::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Access(args) => admin::access(&args),
        Command::Acks(args) => admin::acks(&args),
        Command::Apply(args) => admin::apply(&args),
        Command::Push(args) => admin::push(&args),
        Command::Delete(args) => admin::delete(&args),
        Command::Documents(args) => admin::documents(&args),
        Command::Audit(args) => admin::audit(&args),
        Command::Events(args) => admin::events(&args),
        Command::Groups(args) => admin::groups(&args),
        Command::Reload(args) => admin::reload(&args),
        Command::Resources(args) => admin::resources(&args),
        Command::Snapshot(args) => admin::snapshot(&args),
        Command::ConfigDump(args) => admin::config_dump(&args),
        Command::Status(args) => admin::status(&args),
        Command::Health(args) => admin::health(&args),
        Command::Fleet(args) => admin::fleet(&args),
        Command::Top(args) => admin::top(&args),
        Command::Routes(args) => admin::routes(&args),
        Command::Certificates(args) => admin::certificates(&args),
        Command::Nodes(args) => admin::nodes(&args),
        Command::Loads(args) => admin::loads(&args),
        Command::Relay(args) => admin::relay(&args),
        Command::Replicas(args) => admin::replicas(&args),
        Command::Tests(args) => admin::tests(&args),
        Command::History(args) => admin::history(&args),
        Command::Rollout(args) => admin::rollout(&args),
        Command::Rollback(args) => admin::rollback(&args),
        Command::Conditions(args) => admin::conditions(&args),
        Command::Wait(args) => admin::wait(&args),
        Command::Waves(args) => admin::waves(&args),
        Command::Weights(args) => admin::weights(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Translate(args) => translate::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::<S>::command()),
        Command::Man(args) => man::run(&args, Cli::<S>::command()),
        Command::Store(args) => store::run(&args),
    }
}

enum ParseFailure {
    Clap(clap::Error),
    Config(Failure),
}

fn parse<S: Serve>(args: Vec<OsString>) -> Result<Command<S>, ParseFailure> {
    let mut cli = Cli::<S>::command();
    if env::var_os("XDS_SERVER_LOG_LEVEL").is_none()
        && env::var_os("RUST_LOG").is_some_and(|level| !level.is_empty())
    {
        cli = cli.mut_subcommand("serve", |serve| serve.mut_arg("log_level", |level| level.env("RUST_LOG")));
    }
    let command: Command<S> = parse_with(cli.clone(), args.clone()).map_err(ParseFailure::Clap)?;
    let Command::Serve(first) = &command else { return Ok(command) };
    let Some(path) = first.config_file() else { return Ok(command) };
    let mut failure = None;
    let cli = cli.mut_subcommand("serve", |serve| {
        S::with_defaults(serve.clone(), path).unwrap_or_else(|error| {
            failure = Some(error);
            serve
        })
    });
    match failure {
        Some(error) => Err(ParseFailure::Config(error)),
        None => parse_with(cli, args).map_err(ParseFailure::Clap),
    }
}

fn parse_with<S: Serve>(mut cli: clap::Command, args: Vec<OsString>) -> Result<Command<S>, clap::Error> {
    let matches = cli.try_get_matches_from_mut(args)?;
    let mut command = Cli::<S>::from_arg_matches(&matches).map_err(|error| error.format(&mut cli))?.command;
    if let (Command::Serve(args), Some(("serve", matches))) = (&mut command, matches.subcommand())
        && matches.value_source("watch") == Some(clap::parser::ValueSource::EnvVariable)
    {
        args.split_watch();
    }
    Ok(command)
}

/// Puts `serve` where no command is given.
fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let asks_for_help = |word: &OsStr| ["-h", "--help", "-V", "--version"].iter().any(|flag| word == *flag);
    let needs_command = match args.get(1) {
        None => true,
        Some(first) => first.as_encoded_bytes().starts_with(b"-") && !asks_for_help(first),
    };
    if needs_command {
        args.insert(args.len().min(1), "serve".into());
    }
    args
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use std::path::PathBuf;

    use super::*;

    /// The server's command, as far as the words of these tests go.
    #[derive(Debug, clap::Args)]
    struct StandIn {
        #[arg(long, env = "XDS_SERVER_WATCH")]
        watch: Vec<PathBuf>,
        #[arg(long)]
        partial_start: bool,
        #[arg(long, env = "XDS_SERVER_LOG_LEVEL")]
        log_level: Option<String>,
    }

    impl Serve for StandIn {
        fn config_file(&self) -> Option<&Path> {
            None
        }

        fn with_defaults(serve: clap::Command, _: &Path) -> Result<clap::Command, Failure> {
            Ok(serve)
        }

        fn split_watch(&mut self) {}

        fn run(self) -> Result<(), Failure> {
            Err(Failure::Silent)
        }
    }

    fn command(words: &[&str]) -> Result<Command<StandIn>, ErrorKind> {
        let args = ["xds-server"].iter().chain(words).map(OsString::from).collect();
        parse(with_default_command(args)).map_err(|failure| match failure {
            ParseFailure::Clap(error) => error.kind(),
            ParseFailure::Config(error) => panic!("{error}"),
        })
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::<StandIn>::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_command() {
        for words in [&[][..], &["--watch", "a"], &["serve", "--watch", "a"], &["--partial-start"]] {
            assert!(matches!(command(words), Ok(Command::Serve(_))), "{words:?}");
        }
        assert!(matches!(command(&["status"]), Ok(Command::Status(_))));
        assert_eq!(command(&["--help"]).unwrap_err(), ErrorKind::DisplayHelp);
        assert_eq!(command(&["-V"]).unwrap_err(), ErrorKind::DisplayVersion);
        assert_eq!(command(&["statuss"]).unwrap_err(), ErrorKind::InvalidSubcommand);
        assert_eq!(command(&["--wach", "a"]).unwrap_err(), ErrorKind::UnknownArgument);
    }

    /// The words of each command, also of those within others.
    fn commands(of: &clap::Command, words: &str, all: &mut Vec<String>) {
        all.push(words.to_owned());
        for command in of.get_subcommands() {
            commands(command, &format!("{words} {}", command.get_name()), all);
        }
    }

    #[test]
    fn every_command_is_completed_and_has_a_page() {
        let mut all = Vec::new();
        commands(&Cli::<StandIn>::command(), "xds-server", &mut all);
        assert!(all.iter().any(|words| words == "xds-server rollout start"), "{all:?}");
        let dir = tempfile::tempdir().unwrap();
        let pages = dir.path().join("man1");
        man::run(&man::ManArgs::to(pages.clone()), Cli::<StandIn>::command()).unwrap();
        for words in &all {
            let page = std::fs::read_to_string(pages.join(format!("{}.1", words.replace(' ', "-"))));
            assert!(page.is_ok_and(|page| page.contains(".SH SYNOPSIS")), "{words}");
        }
        assert_eq!(std::fs::read_dir(&pages).unwrap().count(), all.len());
        let scripts = completions::all(&Cli::<StandIn>::command());
        assert_eq!(scripts.len(), 5, "bash, elvish, fish, PowerShell and zsh");
        for (script, words) in scripts.iter().flat_map(|script| all.iter().map(move |words| (script, words)))
        {
            let name = words.rsplit(' ').next().unwrap();
            assert!(script.contains(name), "{words}: {script}");
        }
    }
}
