//! The flags of commands that write: the waves of the change.

use super::connection::segment;

/// The waves of a change; without them, as the groups say.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct WaveFlags {
    /// Send the change to these shares of the nodes, one after the other: 1%,10%,100%. `each` takes one value of --by after the
    /// other; `none` sends it to everyone at once [default: the policy of the groups]
    #[arg(long, value_name = "SHARES")]
    waves: Option<String>,
    /// Property of the nodes that decides which come first: region, zone, subZone, metadata.KEY, or hash (of the node ID)
    /// [default: hash]
    #[arg(long, value_name = "BY", requires = "waves")]
    by: Option<String>,
    /// The values of --by that come first: eu-west-1b,eu-west-1a [default: those with fewer nodes first]
    #[arg(long, value_name = "VALUES", requires = "waves")]
    order: Option<String>,
    /// How long to wait before the next wave after all nodes of a wave have accepted the change, such as 30s [default: 0s]
    #[arg(long, value_name = "TIME", requires = "waves")]
    hold: Option<String>,
    /// How many nodes ahead may reject the change: a number, or a share such as 5% [default: 0]
    #[arg(long, value_name = "NODES", requires = "waves")]
    max_nacks: Option<String>,
    /// How long a wave waits for its ACKs before it pauses, such as 5m [default: forever]
    #[arg(long, value_name = "TIME", requires = "waves")]
    ack_timeout: Option<String>,
    /// How many nodes ahead may be gone or have restarted: a number, or a share [default: 0 in the first wave, 5% after it]
    #[arg(long, value_name = "NODES", requires = "waves")]
    max_lost: Option<String>,
    /// Let a wave pass if it has no connected node
    #[arg(long, requires = "waves")]
    allow_empty: bool,
    /// Put the change back if the share of failed requests on nodes with it exceeds that on other nodes by more than this, such
    /// as 5%, by load reports
    #[arg(long, value_name = "SHARE", requires = "waves")]
    max_error_rate: Option<String>,
    /// End a conflicting wave deployment or rollout
    #[arg(long)]
    force: bool,
}

impl WaveFlags {
    /// The parameters of the query that say so.
    pub(super) fn query(&self) -> Vec<String> {
        let texts = [
            ("waves", &self.waves),
            ("by", &self.by),
            ("order", &self.order),
            ("hold", &self.hold),
            ("maxNacks", &self.max_nacks),
            ("ackTimeout", &self.ack_timeout),
            ("maxLost", &self.max_lost),
            ("maxErrorRate", &self.max_error_rate),
        ];
        let given = texts.iter().filter_map(|(key, text)| Some((key, text.as_ref()?)));
        let mut query: Vec<String> = given.map(|(key, text)| format!("{key}={}", segment(text))).collect();
        query.extend(self.allow_empty.then(|| "allowEmpty=true".to_owned()));
        query.extend(self.force.then(|| "force=true".to_owned()));
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_parameters() {
        assert!(WaveFlags::default().query().is_empty());
        let text = |text: &str| Some(text.to_owned());
        let (waves, hold) = (text("1%,10%"), text("30s"));
        let (max_nacks, ack_timeout, max_lost) = (text("5%"), text("5m"), text("2"));
        let flags = WaveFlags {
            waves,
            by: text("zone"),
            order: text("b,a"),
            hold,
            max_nacks,
            ack_timeout,
            max_lost,
            max_error_rate: text("1%"),
            allow_empty: true,
            force: true,
        };
        let expected = "waves=1%25%2C10%25&by=zone&order=b%2Ca&hold=30s&maxNacks=5%25&ackTimeout=5m&maxLost=2&maxErrorRate=1%25&allowEmpty=true&force=true";
        assert_eq!(flags.query().join("&"), expected);
    }
}
