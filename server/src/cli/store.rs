//! `store`: the stored changes as text, to keep or to move them.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::PathBuf;

use xds_store::JournalStore;

use crate::cli::Failure;
use crate::config;
use crate::telemetry::chain;

/// The flags of `store`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum StoreCommand {
    /// Write the history and what it holds to standard output, secrets included. No server may use the directory
    Export(DirectoryArgs),
    /// Fill an empty data directory with an export
    Import(ImportArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct DirectoryArgs {
    /// The data directory [default: $XDG_STATE_HOME/xds-server, else ~/.local/state/xds-server]
    #[arg(long, env = "XDS_SERVER_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
struct ImportArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// The export; standard input without it
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &StoreArgs) -> Result<(), Failure> {
    match &args.command {
        StoreCommand::Export(args) => export(args),
        StoreCommand::Import(args) => import(args),
    }
}

fn export(args: &DirectoryArgs) -> Result<(), Failure> {
    let directory = args.path()?;
    if !directory.is_dir() {
        return Err(Failure::Failed(format!("there is no data directory {}", directory.display())));
    }
    let (store, notes) = JournalStore::open(&directory, xds_store::Options::default()).map_err(|error| {
        Failure::Failed(format!("cannot open {}: {}", directory.display(), chain(&error)))
    })?;
    for note in notes {
        // Nothing can be done if standard error is closed.
        let _ = writeln!(io::stderr().lock(), "note: {note}");
    }
    let head = xds_store::export(&store, &mut io::stdout().lock())
        .map_err(|error| Failure::Failed(format!("cannot export: {}", chain(&error))))?;
    let _ = writeln!(io::stderr().lock(), "exported up to revision {head}");
    Ok(())
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    let directory = args.directory.path()?;
    let imported = match &args.file {
        Some(path) => {
            let file = File::open(path)
                .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
            xds_store::import(&directory, &mut BufReader::new(file))
        }
        None => xds_store::import(&directory, &mut io::stdin().lock()),
    };
    let head = imported.map_err(|error| Failure::Failed(format!("cannot import: {}", chain(&error))))?;
    let _ = writeln!(io::stderr().lock(), "imported up to revision {head} into {}", directory.display());
    Ok(())
}

impl DirectoryArgs {
    fn path(&self) -> Result<PathBuf, Failure> {
        Ok(self.data_dir.clone().map_or_else(config::default_data_dir, Ok)?)
    }
}
