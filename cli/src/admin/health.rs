//! `health`: an exit code for container runtimes, whose images have no other HTTP client.

use std::time::Duration;

use super::connection::AdminArgs;
use crate::failure::Failure;
use crate::output::{Form, cell, clean, items, print, print_in};

/// The flags of `health`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HealthArgs {
    /// Check only whether the process answers, not whether it is ready
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Succeeds if the server is ready; exit code 1 if it is not, 3 if it does not answer within [`TIMEOUT`].
pub(crate) fn health(args: &HealthArgs) -> Result<(), Failure> {
    let admin = args.admin.connect_for(Some(TIMEOUT))?;
    let answer = admin.get_any(if args.live { "/healthz" } else { "/readyz" })?;
    let is_well = (200..300).contains(&answer.status);
    match args.admin.output {
        Some(form @ (Form::Json | Form::Yaml)) => print_in(Some(form), &answer.body, String::new)?,
        Some(Form::Table | Form::Wide | Form::Name) | None if is_well => {
            print(&format!("{}\n", clean(&cell(&answer.body["status"]))))?;
        }
        Some(Form::Table | Form::Wide | Form::Name) | None => {}
    }
    if is_well {
        return Ok(());
    }
    let reasons = items(&answer.body["reasons"]).map(cell).collect::<Vec<_>>().join("; ");
    let reasons = if reasons.is_empty() { format!("HTTP {}", answer.status) } else { clean(&reasons) };
    Err(Failure::Failed(format!("the server is not ready: {reasons}")))
}

/// Shorter than the time limit of any health check: a server that needs longer is not well.
const TIMEOUT: Duration = Duration::from_secs(3);
