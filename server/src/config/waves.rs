//! The waves of changes where their groups do not say it, as flags.

use std::time::Duration;

use xds_cache::WavePolicy;
use xds_cache::wave::{Share, Tolerance, duration};

use super::ConfigError;

/// The flags of waves.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Waves")]
pub struct WaveArgs {
    /// Deploy every change to these shares of its nodes, one after the other: 1%,10%,100%; a node group may say otherwise
    #[arg(long, env = "XDS_SERVER_WAVES", value_name = "SHARES")]
    pub waves: Option<WavePolicy>,
    /// How long a wave that all its clients have accepted is left alone before the next one [default: 30s]
    #[arg(long, env = "XDS_SERVER_WAVE_HOLD", value_name = "DURATION", value_parser = duration)]
    pub wave_hold: Option<Duration>,
    /// How many clients may reject a change before it is put back: a number, or a share such as 5% [default: 0]
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_NACKS", value_name = "N")]
    pub wave_max_nacks: Option<Tolerance>,
    /// How long a wave waits for its clients before it pauses [default: for ever]
    #[arg(long, env = "XDS_SERVER_WAVE_ACK_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub wave_ack_timeout: Option<Duration>,
    /// How many clients may be gone or have restarted before a wave stops: a number, or a share [default: 0 in the first wave, 5% after]
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_LOST", value_name = "N")]
    pub wave_max_lost: Option<Tolerance>,
    /// Let a wave pass that no connected client is in; else it waits for one
    #[arg(long, env = "XDS_SERVER_WAVE_ALLOW_EMPTY")]
    pub wave_allow_empty: bool,
    /// Put a change back if the share of requests that fail is larger by more than this where it is than elsewhere, by load reports
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_ERROR_RATE", value_name = "SHARE")]
    pub wave_max_error_rate: Option<Share>,
}

impl WaveArgs {
    /// The policy; `None` without `--waves`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoWaves`] if there are details of waves, but none.
    pub fn policy(&self) -> Result<Option<WavePolicy>, ConfigError> {
        let details = [
            ("wave-hold", self.wave_hold.is_some()),
            ("wave-max-nacks", self.wave_max_nacks.is_some()),
            ("wave-ack-timeout", self.wave_ack_timeout.is_some()),
            ("wave-max-lost", self.wave_max_lost.is_some()),
            ("wave-allow-empty", self.wave_allow_empty),
            ("wave-max-error-rate", self.wave_max_error_rate.is_some()),
        ];
        let Some(policy) = &self.waves else {
            return match details.iter().find(|(_, is_set)| *is_set) {
                Some((flag, _)) => Err(ConfigError::NoWaves(flag)),
                None => Ok(None),
            };
        };
        let mut policy = policy.clone();
        policy.hold = self.wave_hold.unwrap_or(DEFAULT_HOLD);
        policy.max_nacks = self.wave_max_nacks.unwrap_or(policy.max_nacks);
        policy.ack_timeout = self.wave_ack_timeout;
        policy.max_lost = self.wave_max_lost;
        policy.allow_empty = self.wave_allow_empty;
        policy.max_error_rate = self.wave_max_error_rate;
        Ok(Some(policy))
    }
}

/// Long enough for a bad configuration to show in what a node does, not only in what it answers.
const DEFAULT_HOLD: Duration = Duration::from_secs(30);
