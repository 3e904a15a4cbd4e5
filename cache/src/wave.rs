//! Waves: a change reaches a share of the nodes first, then more of them (D14).
//!
//! During a wave deployment there are two states of the groups: *ahead* with the change, *behind* without it. A [`Split`]
//! says which node is ahead; the publisher compiles views of both. How far a wave deployment is, is a [`Deployment`]'s to say.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use xds_units::Percent;

use crate::layer::Groups;
use crate::node::Node;
use crate::time::{InvalidDuration, duration};
use crate::version::VersionHasher;

mod deployment;
mod members;
mod order;

pub use deployment::{AlreadyPaused, Decision, Deployment, Fault, NotPaused, Obstacle, Seen, Stage};
pub use members::{AWAY_TIME, ClientId, Loss, Losses, Members, Present};
pub use order::{By, Census, MAX_VALUE_BYTES, MAX_VALUES, Order, Place, Ranking, order};

/// A part of all nodes, in hundredths of a percent: 1 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u16);

/// The waves of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WavePolicy {
    /// The share of each wave: ascending, the last one [`Share::ALL`]. Of `each` that alone, until the values are known.
    shares: Arc<[Share]>,
    /// Whether each value is one wave.
    is_each: bool,
    /// By what nodes are ranked.
    pub by: By,
    /// The values that come first, as [`order()`] reads them; empty by [`By::Hash`].
    pub order: Arc<[Arc<str>]>,
    /// How long a wave that every member has ACKed is left alone before the next one starts.
    pub hold: Duration,
    /// How many members of the waves so far may reject the change.
    pub max_nacks: Tolerance,
    /// How long a wave waits for its ACKs before it pauses; `None` for ever.
    pub ack_timeout: Option<Duration>,
    /// How many members of the waves so far may be lost; `None` for nobody in the first wave and [`LATER_MAX_LOST`] after.
    pub max_lost: Option<Tolerance>,
    /// Whether a wave passes that no connected node is in.
    pub allow_empty: bool,
    /// By how much the share of requests that fail may be larger ahead than behind while a wave is held; `None` if nobody looks.
    pub max_error_rate: Option<Share>,
}

/// A [`WavePolicy`] as people write it: `1%,10%,100%` or `each`, `zone`, `30s`, `1` or `5%`, `5m`. Only the shares have to be
/// there.
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

/// A text that says nothing of waves; the message says what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidWaves(String);

impl From<InvalidDuration> for InvalidWaves {
    fn from(error: InvalidDuration) -> Self {
        Self(error.to_string())
    }
}

/// Which nodes are ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The wave deployment's number: every wave deployment has other first nodes.
    pub deployment: u64,
    /// The part of the nodes that is ahead; `None` if none is.
    pub share: Option<Share>,
    /// Which of them come first.
    pub ranking: Ranking,
}

/// What the nodes that are not ahead are served.
#[derive(Clone, Debug)]
pub struct Behind {
    /// Who is ahead.
    pub split: Split,
    /// The groups of the others. They must select the same nodes as those that are ahead.
    pub groups: Groups,
}

impl Share {
    /// All nodes.
    pub const ALL: Self = Self(10_000);

    /// Whether it is everyone.
    #[must_use]
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// The part of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.0)) / usize::from(Self::ALL.0)
    }

    /// As a whole number, from 1 to 10,000.
    #[must_use]
    pub fn hundredths(self) -> u16 {
        self.0
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn as_ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", Percent::from(*self).number())
    }
}

impl FromStr for Share {
    type Err = InvalidWaves;

    /// Reads `1%`, `0.5%` or `10`.
    ///
    /// # Errors
    ///
    /// If it is no number from 0.01 to 100, or has more than two decimals.
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        let share = text.parse::<Percent>().ok().and_then(|share| u16::try_from(share.hundredths()).ok());
        share.filter(|share| *share > 0).map(Self).ok_or_else(|| {
            InvalidWaves(format!("{text:?} is no share: write 1%, 0.5% or 100%, at least 0.01%"))
        })
    }
}

impl From<Share> for Percent {
    fn from(share: Share) -> Self {
        Self::of_hundredths(share.0)
    }
}

impl WavePolicy {
    /// Waves of these shares, which end with everyone whether or not that is said, without time between them and without
    /// tolerance.
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
            return Err(InvalidWaves(format!("{} are too many waves; at most {MAX_WAVES}", shares.len())));
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

    /// One wave for each value that nodes are ranked by, which [`by`](Self::by) still has to say.
    #[must_use]
    pub fn each() -> Self {
        Self::of_shares(Arc::new([Share::ALL])).of_each()
    }

    /// Reads what somebody wrote.
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
    /// If it speaks of values, and does not say of which.
    pub fn checked(self) -> Result<Self, InvalidWaves> {
        let why = match self.by {
            By::Hash if self.is_each => "each value is to be one wave",
            By::Hash if !self.order.is_empty() => "there is an order of values",
            By::Hash | By::Region | By::Zone | By::SubZone | By::Metadata(_) => return Ok(self),
        };
        Err(InvalidWaves(format!(
            "{why}, and nothing says of which: set `by` to region, zone, subZone or metadata.KEY"
        )))
    }

    /// The same with the waves of these values, if each is to be one: the last wave has the rest too, if there are more than
    /// [`MAX_WAVES`].
    #[must_use]
    pub fn in_order(&self, order: &Order) -> Self {
        if !self.is_each {
            return self.clone();
        }
        let ends = order.places().iter().map(|place| place.end).filter(|end| !end.is_all());
        let shares = ends.take(MAX_WAVES - 1).chain([Share::ALL]).collect();
        Self { shares, ..self.clone() }
    }

    /// Whether each value is one wave.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.is_each
    }

    /// The same, of which each wave is one value; the shares are theirs.
    #[must_use]
    pub fn of_each(self) -> Self {
        Self { is_each: true, ..self }
    }

    /// How careful it is: the smaller, the more. One wave for each value comes before all shares.
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
                "{text:?} is no number of nodes: write a number such as 2, or a share such as 5%"
            ))
        })
    }
}

impl Split {
    /// Whether a node is ahead. Depends on the wave deployment, the node's id and the value that it says alone, so it is so on every
    /// replica and after every restart; who is ahead with a share is so with every larger one. No node of a value is ahead before all
    /// of the values before it are.
    #[must_use]
    pub fn is_ahead(&self, node: &Node) -> bool {
        let Some(Share(share)) = self.share else { return false };
        let (start, end) = match &self.ranking {
            Ranking::Hash => (0, Share::ALL.0),
            Ranking::Awaited => return false,
            Ranking::Ordered(order) => order.part(order.place_of(node)),
        };
        let mut hasher = VersionHasher::new();
        hasher.update(&self.deployment.to_le_bytes());
        hasher.update(node.id.as_bytes());
        let position = u64::from(start) + hasher.finish().bits() % u64::from(end - start).max(1);
        position < u64::from(share)
    }
}

/// The part of the members that may be lost after the first wave if nobody says otherwise: in a large fleet, some machine always
/// restarts meanwhile.
pub const LATER_MAX_LOST: Share = Share(500);

/// How many waves a wave deployment may have.
pub const MAX_WAVES: usize = 100;

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use super::*;

    /// Another one each time; a test that uses it tells it if it fails.
    pub(super) fn any_seed() -> u64 {
        RandomState::new().hash_one(0)
    }

    #[test]
    fn shares_are_read_and_written() {
        for (text, shown) in
            [("1%", "1%"), ("0.5%", "0.5%"), ("0.01", "0.01%"), ("100 %", "100%"), ("12.34%", "12.34%")]
        {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), shown);
        }
        for text in ["", "%", "0%", "0.001%", "100.01%", "-1%", "+1%", "1e1", "999999", ".5", "5.", "ß"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

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
                assert!(told.contains("set `by` to region, zone"), "{told}");
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

    #[test]
    fn a_larger_share_has_all_members_of_a_smaller_one_and_about_as_many_as_it_says() {
        let ahead = |deployment, share: &str| -> Vec<usize> {
            let split = Split { deployment, share: Some(share.parse().unwrap()), ranking: Ranking::Hash };
            (0..10_000).filter(|n| split.is_ahead(&Node::with_id(&format!("node-{n}")))).collect()
        };
        let (one, ten, all) = (ahead(7, "1%"), ahead(7, "10%"), ahead(7, "100%"));
        assert!(one.iter().all(|n| ten.contains(n)));
        assert_eq!(all.len(), 10_000);
        assert!(
            (60..140).contains(&one.len()) && (900..1_100).contains(&ten.len()),
            "{}, {}",
            one.len(),
            ten.len()
        );
        assert_ne!(one, ahead(8, "1%"), "another deployment begins with others");
        let nobody = Split { deployment: 7, share: None, ranking: Ranking::Hash };
        assert!(!nobody.is_ahead(&Node::with_id("node-1")));
    }
}
