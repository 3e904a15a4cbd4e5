//! `man`: manual pages of all commands.

use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;

/// The arguments of `man`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory for the pages, which is made if there is none; for man it is named man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes a page for each command of `cli`, also for those within others.
///
/// # Errors
///
/// [`Failure::Failed`] if they cannot be written.
pub(crate) fn run(args: &ManArgs, cli: clap::Command) -> Result<(), Failure> {
    let directory = &args.directory;
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(cli, directory));
    written.map_err(|error| Failure::Failed(format!("cannot write to {}: {error}", directory.display())))
}

#[cfg(test)]
impl ManArgs {
    pub(super) fn to(directory: PathBuf) -> Self {
        Self { directory }
    }
}
