//! The waves of a change, as a user asks for them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::order::{By, Order, order};
use super::share::{InvalidWaves, Share};
use crate::time::duration;

/// The waves of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WavePolicy {
    /// The share of each wave: ascending, the last one [`Share::ALL`]. Of `each` that alone, until the values are known.
    shares: Arc<[Share]>,
    /// True if each value is one wave.
    is_each: bool,
    /// By what nodes are ranked.
    pub by: By,
    /// The values that come first, as [`order()`] reads them; empty by [`By::Hash`].
    pub order: Arc<[Arc<str>]>,
    /// How long to wait, after every member of a wave has ACKed, before the next wave starts.
    pub hold: Duration,
    /// How many members of the waves so far may reject the change.
    pub max_nacks: Tolerance,
    /// How long a wave waits for its ACKs before it pauses; `None` for ever.
    pub ack_timeout: Option<Duration>,
    /// How many members of the waves so far may be lost; `None` means none in the first wave and [`LATER_MAX_LOST`] after it.
    pub max_lost: Option<Tolerance>,
    /// True if a wave passes that no connected node is in.
    pub allow_empty: bool,
    /// How much larger the share of failed requests may be ahead than behind while a wave is held; `None` if this is not
    /// checked.
    pub max_error_rate: Option<Share>,
}

/// A [`WavePolicy`] as people write it: `1%,10%,100%` or `each`, `zone`, `30s`, `1` or `5%`, `5m`. Only the shares are
/// required.
#[derive(Clone, Debug, Default)]
pub struct PolicyTexts<'a> {
    /// The share of each wave, or `each`.
    pub shares: &'a str,
    /// See [`WavePolicy::by`].
    pub by: Option<&'a str>,
    /// See [`WavePolicy::order`]; empty if it is not said.
    pub order: Vec<&'a str>,
    /// See [`WavePolicy::hold`].
    pub hold: Option<&'a str>,
    /// See [`WavePolicy::max_nacks`].
    pub max_nacks: Option<&'a str>,
    /// See [`WavePolicy::ack_timeout`].
    pub ack_timeout: Option<&'a str>,
    /// See [`WavePolicy::max_lost`].
    pub max_lost: Option<&'a str>,
    /// See [`WavePolicy::allow_empty`].
    pub allow_empty: bool,
    /// See [`WavePolicy::max_error_rate`].
    pub max_error_rate: Option<&'a str>,
}

/// How many nodes may reject a change, or be lost with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// So many.
    Nodes(u32),
    /// This part of the members, rounded down.
    Share(Share),
}

impl WavePolicy {
    /// Waves of these shares, without time between them and without tolerance. The last wave is always everyone, even if the
    /// shares do not say so.
    ///
    /// # Errors
    ///
    /// If there is none, there are more than [`MAX_WAVES`], or they do not ascend.
    pub fn new(mut shares: Vec<Share>) -> Result<Self, InvalidWaves> {
        if shares.is_empty() {
            return Err(InvalidWaves(
                "there is no wave: write a list of shares, such as 1%,10%,100%, or each".to_owned(),
            ));
        }
        if let Some(pair) = shares.windows(2).find(|pair| pair.first() >= pair.last()) {
            let pair: Vec<String> = pair.iter().map(ToString::to_string).collect();
            return Err(InvalidWaves(format!("waves must grow: {} comes before {}", pair[0], pair[1])));
        }
        if shares.last() != Some(&Share::ALL) {
            shares.push(Share::ALL);
        }
        if shares.len() > MAX_WAVES {
            return Err(InvalidWaves(format!(
                "{} waves are too many; at most {MAX_WAVES} are allowed",
                shares.len()
            )));
        }
        Ok(Self::of_shares(shares.into()))
    }

    fn of_shares(shares: Arc<[Share]>) -> Self {
        Self {
            shares,
            is_each: false,
            by: By::Hash,
            order: Arc::default(),
            hold: Duration::ZERO,
            max_nacks: Tolerance::Nodes(0),
            ack_timeout: None,
            max_lost: None,
            allow_empty: false,
            max_error_rate: None,
        }
    }

    /// One wave for everyone.
    #[must_use]
    pub fn at_once() -> Self {
        Self::of_shares(Arc::new([Share::ALL]))
    }

    /// One wave for each value that nodes are ranked by, which [`by`](Self::by) still has to say.
    #[must_use]
    pub fn each() -> Self {
        Self::at_once().of_each()
    }

    /// Reads a policy as written.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read.
    pub fn of_texts(texts: PolicyTexts<'_>) -> Result<Self, InvalidWaves> {
        let PolicyTexts {
            shares,
            by,
            order: first,
            hold,
            max_nacks,
            ack_timeout,
            max_lost,
            allow_empty,
            max_error_rate,
        } = texts;
        let mut policy: Self = shares.parse()?;
        policy.by = by.map_or(Ok(By::Hash), str::parse)?;
        policy.order = order(first)?;
        if let Some(hold) = hold {
            policy.hold = duration(hold)?;
        }
        if let Some(max_nacks) = max_nacks {
            policy.max_nacks = max_nacks.parse()?;
        }
        policy.ack_timeout = ack_timeout.map(duration).transpose()?;
        policy.max_lost = max_lost.map(str::parse).transpose()?;
        policy.allow_empty = allow_empty;
        policy.max_error_rate = max_error_rate.map(str::parse).transpose()?;
        policy.checked()
    }

    /// The same, if its parts go together.
    ///
    /// # Errors
    ///
    /// If it uses values without saying which.
    pub fn checked(self) -> Result<Self, InvalidWaves> {
        let why = match self.by {
            By::Hash if self.is_each => "each value is a wave of its own",
            By::Hash if !self.order.is_empty() => "there is an order of values",
            By::Hash | By::Region | By::Zone | By::SubZone | By::Metadata(_) => return Ok(self),
        };
        Err(InvalidWaves(format!(
            "{why}, but `by` is missing: set it to region, zone, subZone or metadata.KEY"
        )))
    }

    /// The same with the waves of these values, if each is to be one: the last wave has the rest too, if there are more than
    /// [`MAX_WAVES`].
    #[must_use]
    pub fn in_order(&self, order: &Order) -> Self {
        if !self.is_each {
            return self.clone();
        }
        let ends = order.values().iter().map(|one| one.end).filter(|end| !end.is_all());
        let shares = ends.take(MAX_WAVES - 1).chain([Share::ALL]).collect();
        Self { shares, ..self.clone() }
    }

    /// Returns `true` if each value is one wave.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.is_each
    }

    /// The same, of which each wave is one value; the shares are theirs.
    #[must_use]
    pub fn of_each(self) -> Self {
        Self { is_each: true, ..self }
    }

    /// A measure of caution: the smaller, the more careful. One wave for each value is smaller than all shares.
    #[must_use]
    pub fn first_share(&self) -> Option<Share> {
        self.shares.first().copied().filter(|_| !self.is_each)
    }

    /// How many of `n_members` may be lost in the wave with the index `wave`.
    #[must_use]
    pub fn tolerated_losses(&self, wave: usize, n_members: usize) -> usize {
        match self.max_lost {
            Some(max_lost) => max_lost.nodes(n_members),
            None if wave == 0 => 0,
            None => LATER_MAX_LOST.of(n_members),
        }
    }

    /// The shares as [`of_texts`](Self::of_texts) reads them.
    #[must_use]
    pub fn shares_text(&self) -> String {
        self.shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// The share of each wave: ascending, never empty, the last one is everyone. Of [`each`](Self::each) that one alone, before
    /// [`in_order`](Self::in_order).
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }
}

impl FromStr for WavePolicy {
    type Err = InvalidWaves;

    /// Reads `1%,10%,100%`, or `each`, which is not [`checked`](Self::checked) yet.
    ///
    /// # Errors
    ///
    /// As [`WavePolicy::new`], and if one of them is no share.
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        if text.trim() == "each" {
            return Ok(Self::each());
        }
        Self::new(text.split(',').map(Share::from_str).collect::<Result<_, _>>()?)
    }
}

impl Tolerance {
    /// How many of `n_members` it lets pass.
    #[must_use]
    pub fn nodes(self, n_members: usize) -> usize {
        match self {
            Self::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            Self::Share(share) => share.of(n_members),
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Share(share) => write!(f, "{share}"),
        }
    }
}

impl FromStr for Tolerance {
    type Err = InvalidWaves;

    /// Reads `2` (nodes) or `5%` (of the members).
    ///
    /// # Errors
    ///
    /// If it is neither.
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        let text = text.trim();
        let read = if text.ends_with('%') {
            text.parse().ok().map(Self::Share)
        } else {
            text.parse().ok().map(Self::Nodes)
        };
        read.ok_or_else(|| {
            InvalidWaves(format!(
                "{text:?} is not a number of nodes: write a number such as 2, or a share such as 5%"
            ))
        })
    }
}

/// The default share of members that may be lost after the first wave: in a large fleet, some machine always restarts.
pub const LATER_MAX_LOST: Share = Share(500);

/// How many waves a wave deployment may have.
pub const MAX_WAVES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_ascend_and_end_with_everyone() {
        let shares = |text: &str| {
            let policy: Result<WavePolicy, _> = text.parse();
            policy.map(|policy| policy.shares().iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(shares("1%,10%").unwrap(), ["1%", "10%", "100%"]);
        assert_eq!(shares("100%").unwrap(), ["100%"]);
        for wrong in ["", "10%,1%", "5%,5%", "100%,100%", "1%,,2%", "x"] {
            assert!(shares(wrong).is_err(), "{wrong}");
        }
        let many: Vec<String> = (1..=MAX_WAVES + 1).map(|n| format!("0.{n:02}%")).take(99).collect();
        assert!(shares(&many.join(",")).is_ok());
        assert!(shares(&(many.join(",") + ",1%,2%")).is_err());
    }

    #[test]
    fn values_need_something_that_they_are_of() {
        let read = |shares, by, order: &[&'static str]| {
            let order = order.to_vec();
            WavePolicy::of_texts(PolicyTexts { shares, by, order, ..PolicyTexts::default() })
        };
        let policy = read("each", Some("zone"), &["b", "a"]).unwrap();
        assert!(policy.is_each() && policy.by == By::Zone && policy.order.len() == 2);
        assert!(read("10%", Some("hash"), &[]).is_ok());
        for (shares, order) in [("each", &[][..]), ("10%", &["a"])] {
            for by in [None, Some("hash")] {
                let told = read(shares, by, order).unwrap_err().to_string();
                assert!(told.contains("`by` is missing: set it to region, zone"), "{told}");
            }
        }
        let shares: WavePolicy = "0.01%".parse().unwrap();
        assert!(policy.first_share() < shares.first_share());
    }

    #[test]
    fn tolerances_are_read_and_written() {
        assert_eq!("2".parse::<Tolerance>().unwrap().nodes(1_000), 2);
        assert_eq!("5%".parse::<Tolerance>().unwrap().nodes(30), 1);
        for wrong in ["", "-1", "x", "0%", "1.5"] {
            assert!(wrong.parse::<Tolerance>().is_err(), "{wrong}");
        }
    }
}
