//! The waves of groups that set none, as flags.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use xds_cache::WavePolicy;
use xds_cache::time::duration;
use xds_cache::wave::{By, InvalidWaves, Share, Tolerance, order};

use crate::config::error::ConfigError;

/// The values that come first, separated by commas: at most [`MAX_VALUES`](xds_cache::wave::MAX_VALUES).
#[derive(Clone, Debug, Default)]
pub struct WaveOrder(Arc<[Arc<str>]>);

impl FromStr for WaveOrder {
    type Err = InvalidWaves;

    /// Reads `eu-west-1b,eu-west-1a`.
    ///
    /// # Errors
    ///
    /// As [`order`].
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        order(text.split(',')).map(Self)
    }
}

/// The flags of waves.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Waves")]
pub struct WaveArgs {
    /// Send every change to these shares of its nodes, one after the other: 1%,10%,100%. `each` takes one value of --wave-by
    /// after the other. A node group may set other shares
    #[arg(long, env = "XDS_SERVER_WAVES", value_name = "SHARES")]
    pub waves: Option<WavePolicy>,
    /// Property of the nodes that decides which come first: region, zone, subZone, metadata.KEY, or hash (of the node ID)
    /// [default: hash]
    #[arg(long, env = "XDS_SERVER_WAVE_BY", value_name = "BY")]
    pub wave_by: Option<By>,
    /// The values of --wave-by that come first: eu-west-1b,eu-west-1a [default: those with fewer nodes first]
    #[arg(long, env = "XDS_SERVER_WAVE_ORDER", value_name = "VALUES")]
    pub wave_order: Option<WaveOrder>,
    /// How long to wait before the next wave after all clients of a wave have accepted the change [default: 30s]
    #[arg(long, env = "XDS_SERVER_WAVE_HOLD", value_name = "DURATION", value_parser = duration)]
    pub wave_hold: Option<Duration>,
    /// How many clients may reject a change before it is put back: a number, or a share such as 5% [default: 0]
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_NACKS", value_name = "N")]
    pub wave_max_nacks: Option<Tolerance>,
    /// How long a wave waits for its clients before it pauses [default: forever]
    #[arg(long, env = "XDS_SERVER_WAVE_ACK_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub wave_ack_timeout: Option<Duration>,
    /// How many clients may be gone or have restarted before a wave stops: a number, or a share [default: 0 in the first wave, 5%
    /// after it]
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_LOST", value_name = "N")]
    pub wave_max_lost: Option<Tolerance>,
    /// Let a wave pass if it has no connected client; without this flag it waits for one
    #[arg(long, env = "XDS_SERVER_WAVE_ALLOW_EMPTY")]
    pub wave_allow_empty: bool,
    /// Put a change back if the share of failed requests on nodes with it exceeds that on other nodes by more than this, by load
    /// reports
    #[arg(long, env = "XDS_SERVER_WAVE_MAX_ERROR_RATE", value_name = "SHARE")]
    pub wave_max_error_rate: Option<Share>,
}

impl WaveArgs {
    /// The policy; `None` without `--waves`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoWaves`] if there are details of waves, but none; [`ConfigError::Waves`] if they do not go together.
    pub fn policy(&self) -> Result<Option<WavePolicy>, ConfigError> {
        let details = [
            ("wave-by", self.wave_by.is_some()),
            ("wave-order", self.wave_order.is_some()),
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
        policy.by = self.wave_by.clone().unwrap_or_default();
        policy.order = self.wave_order.clone().unwrap_or_default().0;
        policy.hold = self.wave_hold.unwrap_or(DEFAULT_HOLD);
        policy.max_nacks = self.wave_max_nacks.unwrap_or(policy.max_nacks);
        policy.ack_timeout = self.wave_ack_timeout;
        policy.max_lost = self.wave_max_lost;
        policy.allow_empty = self.wave_allow_empty;
        policy.max_error_rate = self.wave_max_error_rate;
        policy.checked().map(Some).map_err(|error| ConfigError::Waves(error.to_string()))
    }
}

/// Long enough for a bad configuration to show in what a node does, not only in what it answers.
const DEFAULT_HOLD: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        waves: WaveArgs,
    }

    fn policy(flags: &[&str]) -> Result<Option<WavePolicy>, String> {
        let flags =
            Flags::try_parse_from(["serve"].iter().chain(flags)).map_err(|error| error.to_string())?;
        flags.waves.policy().map_err(|error| error.to_string())
    }

    #[test]
    fn waves_may_go_by_zone() {
        let each = policy(&["--waves=each", "--wave-by=zone", "--wave-order=b,a"]).unwrap().unwrap();
        assert!(each.is_each() && each.by == By::Zone);
        assert_eq!(each.order.iter().map(|value| &**value).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!((policy(&[]), policy(&["--waves=10%"]).unwrap().unwrap().by), (Ok(None), By::Hash));
        for (flags, wrong) in [
            (&["--wave-by=zone"][..], "--wave-by needs --waves"),
            (&["--waves=each"], "(--wave-by)"),
            (&["--waves=10%", "--wave-order=a"], "(--wave-by)"),
            (&["--waves=10%", "--wave-by=zones"], "write hash, region, zone, subZone, or metadata.KEY"),
            (&["--waves=10%", "--wave-by=zone", "--wave-order=a,a"], "twice in the order"),
        ] {
            let told = policy(flags).unwrap_err();
            assert!(told.contains(wrong), "{flags:?}: {told}");
        }
    }
}
