//! The wiring: one server from start to end.

use crate::config::Config;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// If the server cannot start.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    anyhow::bail!("{} is not wired to its listeners yet", config.instance_id)
}
