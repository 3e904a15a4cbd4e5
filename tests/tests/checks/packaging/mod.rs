//! `packaging/` and the Dockerfile against the server: every flag, variable, path and port that they name exists.
//!
//! There is no container runtime, no cluster and no init system here. docs/guides/from-a-fresh-machine-to-production.md says what
//! that leaves unchecked.

mod debian;
mod flags;
mod guides;
mod image;
mod kubernetes;
mod release;
mod systemd;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use xds_tests::tools::require_all;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads a file of the repository.
fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// Runs a program that a machine may lack, and returns what it printed; `None` without the program.
///
/// # Errors
///
/// If it fails, or if it is absent and every program is required.
fn run_if_present(command: &mut Command) -> Result<Option<String>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if require_all() {
                bail!("no {name} on PATH, but XDS_TESTS_REQUIRE_ALL=1");
            }
            writeln!(io::stderr(), "SKIPPED: no {name} on PATH")?;
            return Ok(None);
        }
        Err(error) => return Err(error).context(name),
    };
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{name}: {printed}");
    Ok(Some(printed))
}
