//! `token`: secret tokens for principals of the access policy.

use tokio_rustls::rustls::crypto::ring::default_provider;
use xds_access::{TokenHash, token_of};

use crate::failure::Failure;
use crate::output;

/// The flags of `token`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Make a token. It is printed once; the access policy gets only its hash
    New,
}

pub(crate) fn run(args: &TokenArgs) -> Result<(), Failure> {
    let Command::New = args.command;
    let mut random = [0; 32];
    let filled = default_provider().secure_random.fill(&mut random);
    filled.map_err(|_| Failure::Failed("the system gives no random numbers".to_owned()))?;
    let token = token_of(&random);
    let hash = TokenHash::of(&token);
    output::print(&format!(
        "{token}\n\n# Give the token to whoever is to use it; it is not shown again. Lines for the access policy:\n\
         - name: NAME\n  role: viewer            # or operator, or admin\n  tokens:\n  - sha256: \"{hash}\"\n"
    ))
}
