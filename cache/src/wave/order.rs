//! The order of nodes in waves: by the hash of their IDs alone, or first by a value that nodes report, such as their zone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::share::{InvalidWaves, Share};
use crate::node::{Node, Scalar};

/// The property that decides the order of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The hash of the node id.
    #[default]
    Hash,
    /// The region of the node's locality.
    Region,
    /// The zone of its locality; zones of the same name in two regions are one.
    Zone,
    /// The sub-zone of its locality.
    SubZone,
    /// The node's metadata at this dotted path.
    Metadata(Arc<str>),
}

/// The values of the nodes that a change concerns, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many nodes have each value.
    pub values: BTreeMap<Arc<str>, usize>,
    /// How many have none.
    pub n_unknown: usize,
}

/// The order of values. Each has a part of the whole, from the end of the previous one to its own end. The rest after the last
/// one, at least one hundredth of a percent, is for nodes with any other value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    by: By,
    values: Vec<RankedValue>,
    index: HashMap<Arc<str>, usize>,
}

/// One value of an [`Order`], and where its part ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedValue {
    /// The value that nodes give; at most [`MAX_VALUE_BYTES`].
    pub value: Arc<str>,
    /// The share with which all nodes of the value are ahead.
    pub end: Share,
}

/// How the nodes of a wave deployment are ranked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// By the hash of their ids.
    #[default]
    Hash,
    /// By a value that no node has reported yet: nobody is ahead.
    Awaited,
    /// By their values, and by hash among those that have the same.
    Ordered(Arc<Order>),
}

impl By {
    /// The value of a node; `None` if it has none, or a longer one than [`MAX_VALUE_BYTES`].
    #[must_use]
    pub fn value_of<'n>(&self, node: &'n Node) -> Option<Cow<'n, str>> {
        let locality = &node.locality;
        let value = match self {
            Self::Hash => return None,
            Self::Region => Cow::Borrowed(locality.region.as_str()),
            Self::Zone => Cow::Borrowed(locality.zone.as_str()),
            Self::SubZone => Cow::Borrowed(locality.sub_zone.as_str()),
            Self::Metadata(path) => match node.metadata.get(&**path)? {
                Scalar::String(text) => Cow::Borrowed(text.as_str()),
                other @ (Scalar::Number(_) | Scalar::Bool(_)) => Cow::Owned(other.to_string()),
            },
        };
        (1..=MAX_VALUE_BYTES).contains(&value.len()).then_some(value)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash => f.write_str("hash"),
            Self::Region => f.write_str("region"),
            Self::Zone => f.write_str("zone"),
            Self::SubZone => f.write_str("subZone"),
            Self::Metadata(path) => write!(f, "metadata.{path}"),
        }
    }
}

impl FromStr for By {
    type Err = InvalidWaves;

    /// Reads `hash`, `region`, `zone`, `subZone` or `metadata.KEY`.
    ///
    /// # Errors
    ///
    /// If it is not one of these, or KEY is longer than [`MAX_VALUE_BYTES`].
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        let text = text.trim();
        Ok(match text {
            "hash" => Self::Hash,
            "region" => Self::Region,
            "zone" => Self::Zone,
            "subZone" => Self::SubZone,
            _ => match text.strip_prefix("metadata.") {
                Some(path) if (1..=MAX_VALUE_BYTES).contains(&path.len()) => Self::Metadata(path.into()),
                Some(_) | None => {
                    let shown: String = text.chars().take(80).collect();
                    return Err(InvalidWaves(format!(
                        "waves cannot be ordered by {shown:?}: write hash, region, zone, subZone, or metadata.KEY, where KEY is a dotted \
                         path in the node's metadata of at most {MAX_VALUE_BYTES} bytes"
                    )));
                }
            },
        })
    }
}

impl Census {
    /// Adds one node.
    pub fn add(&mut self, value: Option<&str>) {
        match value {
            None => self.n_unknown += 1,
            Some(value) => match self.values.get_mut(value) {
                Some(n_nodes) => *n_nodes += 1,
                None => _ = self.values.insert(value.into(), 1),
            },
        }
    }
}

impl Order {
    /// The order of these values: those in `first`, then the others, of which those with fewer nodes come first, and by name if
    /// they have as many. The part of each is as large as its part of the nodes; one that is in `first` and has
    /// no node counts as if it had one. Values beyond [`MAX_VALUES`] are not in it.
    #[must_use]
    pub fn new(by: By, first: &[Arc<str>], census: &Census) -> Self {
        let listed = first.iter().map(|value| (Arc::clone(value), census.values.get(value).copied()));
        let mut values: Vec<(Arc<str>, usize)> =
            listed.map(|(value, n_nodes)| (value, n_nodes.unwrap_or(1))).collect();
        let is_listed: BTreeSet<&Arc<str>> = first.iter().collect();
        let others = census.values.iter().filter(|(value, _)| !is_listed.contains(value));
        let mut others: Vec<(Arc<str>, usize)> =
            others.map(|(value, n_nodes)| (Arc::clone(value), *n_nodes)).collect();
        // They come in the order of their names, which stays among those that are equal.
        others.sort_by_key(|(_, n_nodes)| *n_nodes);
        values.extend(others);
        let n_unranked: usize = values.iter().skip(MAX_VALUES).map(|(_, n_nodes)| n_nodes).sum();
        values.truncate(MAX_VALUES);
        let n_rest = census.n_unknown + n_unranked;
        let n_all = n_rest + values.iter().map(|(_, n_nodes)| n_nodes).sum::<usize>();
        let whole = usize::from(Share::ALL.0);
        let (mut n_before, mut start) = (0, 0);
        let n_values = values.len();
        let values = values.into_iter().enumerate().map(|(at, (value, n_nodes))| {
            n_before += n_nodes;
            let n_after = n_values - at - 1 + usize::from(n_rest > 0);
            let exact = (n_before.saturating_mul(whole) + n_all / 2) / n_all.max(1);
            start = exact.clamp(start + 1, whole - n_after);
            RankedValue { value, end: Share(u16::try_from(start).unwrap_or(Share::ALL.0)) }
        });
        Self::of_values(by, values.collect())
    }

    /// The order that was stored: each value with the [`hundredths`](Share::hundredths) of its end.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_VALUES`], or the ends do not ascend up to 100%.
    pub fn stored(by: By, stored: Vec<(String, u16)>) -> Result<Self, InvalidWaves> {
        let ends = stored.iter().map(|(_, end)| *end);
        let does_ascend = ends.clone().zip(ends.clone().skip(1)).all(|(one, next)| one < next);
        let is_in_bounds = ends.clone().all(|end| (1..=Share::ALL.0).contains(&end));
        if !does_ascend || !is_in_bounds || stored.len() > MAX_VALUES {
            return Err(InvalidWaves(format!(
                "the order of its values is wrong: the ends of at most {MAX_VALUES} must ascend from 1 to 10000"
            )));
        }
        let values =
            stored.into_iter().map(|(value, end)| RankedValue { value: value.into(), end: Share(end) });
        Ok(Self::of_values(by, values.collect()))
    }

    fn of_values(by: By, values: Vec<RankedValue>) -> Self {
        let index = values.iter().enumerate().map(|(at, one)| (Arc::clone(&one.value), at)).collect();
        Self { by, values, index }
    }

    /// By what it is.
    #[must_use]
    pub fn by(&self) -> &By {
        &self.by
    }

    /// The values, the first one first; at most [`MAX_VALUES`], the ends of which ascend.
    #[must_use]
    pub fn values(&self) -> &[RankedValue] {
        &self.values
    }

    /// The index in [`values`](Self::values) of the value of a node; `None` if it has another one, or none.
    #[must_use]
    pub fn index_of(&self, node: &Node) -> Option<usize> {
        self.by.value_of(node).and_then(|value| self.index.get(&*value).copied())
    }

    /// Where the part of the value with this index begins, and where it ends; `None` means the nodes that have none of the values.
    #[must_use]
    pub fn part(&self, at: Option<usize>) -> (u16, u16) {
        let end = |at: usize| self.values.get(at).map_or(0, |one| one.end.0);
        match at {
            Some(at) => (at.checked_sub(1).map_or(0, end), end(at)),
            None => {
                let last = self.values.last().map_or(0, |one| one.end.0);
                (last.min(Share::ALL.0 - 1), Share::ALL.0)
            }
        }
    }
}

impl Ranking {
    /// Returns `true` if nobody is ahead because no node has reported a value yet.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        *self == Self::Awaited
    }

    /// The order, if there is one.
    #[must_use]
    pub fn order(&self) -> Option<&Arc<Order>> {
        match self {
            Self::Ordered(order) => Some(order),
            Self::Hash | Self::Awaited => None,
        }
    }
}

/// Reads the values that are to come first.
///
/// # Errors
///
/// If there are more than [`MAX_VALUES`], or one is empty, longer than [`MAX_VALUE_BYTES`], or there twice.
pub fn order<'t>(values: impl IntoIterator<Item = &'t str>) -> Result<Arc<[Arc<str>]>, InvalidWaves> {
    let mut order: Vec<Arc<str>> = Vec::new();
    for value in values.into_iter().map(str::trim) {
        if value.is_empty() || value.len() > MAX_VALUE_BYTES {
            let shown: String = value.chars().take(80).collect();
            return Err(InvalidWaves(format!(
                "{shown:?} is not a value for an order: write the values that come first, such as eu-west-1b,eu-west-1a, each of at most \
                 {MAX_VALUE_BYTES} bytes"
            )));
        }
        if order.iter().any(|one| **one == *value) {
            return Err(InvalidWaves(format!("{value:?} appears twice in the order: write each value once")));
        }
        if order.len() == MAX_VALUES {
            return Err(InvalidWaves(format!("an order has at most {MAX_VALUES} values")));
        }
        order.push(value.into());
    }
    Ok(order.into())
}

/// How many values are ranked; nodes with others come last, like those without any.
pub const MAX_VALUES: usize = 500;

/// The longest value that is ranked, in bytes; a longer one counts as none.
pub const MAX_VALUE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Locality;
    use crate::wave::{Split, WavePolicy};

    fn node(id: usize, zone: &str) -> Node {
        let locality = Locality { zone: zone.to_owned(), ..Locality::default() };
        Node { locality, ..Node::with_id(&format!("node-{id}")) }
    }

    fn by_zone(shares: &str, first: &[&str]) -> WavePolicy {
        let mut policy: WavePolicy = shares.parse().unwrap();
        policy.by = By::Zone;
        policy.order = order(first.iter().copied()).unwrap();
        policy
    }

    fn ordered(policy: &WavePolicy, census: &Census) -> Order {
        Order::new(policy.by.clone(), &policy.order, census)
    }

    fn census(nodes: &[Node]) -> Census {
        let mut census = Census::default();
        nodes.iter().for_each(|node| census.add(By::Zone.value_of(node).as_deref()));
        census
    }

    fn zones(order: &Order) -> Vec<(&str, String)> {
        order.values().iter().map(|one| (&*one.value, one.end.to_string())).collect()
    }

    /// So many nodes of each zone.
    fn fleet(zones: &[(&str, usize)]) -> Vec<Node> {
        let zones = zones.iter().flat_map(|(zone, n)| std::iter::repeat_n(*zone, *n));
        zones.enumerate().map(|(id, zone)| node(id, zone)).collect()
    }

    #[test]
    fn what_waves_go_by_is_read_and_written() {
        for text in ["hash", "region", "zone", "subZone", "metadata.tier", "metadata.a.b"] {
            assert_eq!(text.parse::<By>().unwrap().to_string(), text);
        }
        for wrong in ["", "zones", "Zone", "metadata", "metadata.", "locality.zone"] {
            let told = wrong.parse::<By>().unwrap_err().to_string();
            assert!(told.contains("metadata.KEY") && told.contains(wrong), "{told}");
        }
        assert!(format!("metadata.{}", "k".repeat(MAX_VALUE_BYTES + 1)).parse::<By>().is_err());
        for wrong in [&["a", "b", "a"][..], &["a", ""], &[&"z".repeat(MAX_VALUE_BYTES + 1)]] {
            assert!(order(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
        let many: Vec<String> = (0..=MAX_VALUES).map(|n| n.to_string()).collect();
        assert!(order(many.iter().map(String::as_str)).is_err());
        assert!(order(many.iter().skip(1).map(String::as_str)).is_ok());
    }

    #[test]
    fn a_value_is_a_short_text_of_locality_or_metadata() {
        let mut node = node(1, "a");
        node.locality.region = "r".repeat(MAX_VALUE_BYTES + 1);
        node.metadata = BTreeMap::from([
            ("tier".to_owned(), Scalar::String("gold".to_owned())),
            ("ring.n".to_owned(), Scalar::Number(2.0)),
            ("canary".to_owned(), Scalar::Bool(true)),
        ]);
        for (by, expected) in [
            ("zone", Some("a")),
            ("region", None),
            ("subZone", None),
            ("metadata.tier", Some("gold")),
            ("metadata.ring.n", Some("2")),
            ("metadata.canary", Some("true")),
            ("metadata.ring", None),
            ("hash", None),
        ] {
            assert_eq!(by.parse::<By>().unwrap().value_of(&node).as_deref(), expected, "{by}");
        }
    }

    #[test]
    fn the_smallest_value_comes_first_unless_an_order_is_given() {
        let nodes = fleet(&[("c", 10), ("b", 30), ("a", 10), ("", 50)]);
        let found = ordered(&by_zone("each", &[]), &census(&nodes));
        let percent = |text: &str| text.to_owned();
        assert_eq!(zones(&found), [("a", percent("10%")), ("c", percent("20%")), ("b", percent("50%"))]);
        // One that nobody has counts as one node.
        let found = ordered(&by_zone("each", &["b", "new"]), &census(&nodes[..50]));
        let expected = [("b", "58.82%"), ("new", "60.78%"), ("a", "80.39%"), ("c", "100%")];
        assert_eq!(zones(&found), expected.map(|(zone, end)| (zone, percent(end))));
        let none = ordered(&by_zone("each", &[]), &Census::default());
        assert_eq!((none.values().len(), none.part(None)), (0, (0, 10_000)));
    }

    #[test]
    fn each_value_is_a_wave_and_nodes_without_one_are_the_last() {
        let shares = |zones: &[(&str, usize)]| {
            let policy = by_zone("each", &[]);
            policy.in_order(&ordered(&policy, &census(&fleet(zones)))).shares_text()
        };
        assert_eq!(shares(&[("a", 1), ("b", 1), ("c", 2)]), "25%,50%,100%");
        assert_eq!(shares(&[("a", 1), ("b", 1), ("", 2)]), "25%,50%,100%");
        assert_eq!(shares(&[("a", 1)]), "100%");
        let names: Vec<String> = (0..300).map(|n| format!("zone-{n:03}")).collect();
        let many: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let policy = by_zone("each", &[]);
        let policy = policy.in_order(&ordered(&policy, &census(&fleet(&many))));
        assert_eq!(
            (policy.shares().len(), policy.shares().last()),
            (crate::wave::MAX_WAVES, Some(&Share::ALL))
        );
    }

    #[test]
    fn one_value_is_complete_before_the_next_begins_and_the_unknown_are_last() {
        let seed = crate::wave::tests::any_seed();
        for round in 0..40 {
            let random = |n: u64| (seed ^ (round * 7 + n)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let names: Vec<String> = (0..random(0) % 8 + 1).map(|n| format!("zone-{n}")).collect();
            let counts = names.iter().zip(1..).map(|(name, n)| (name.as_str(), random(n) as usize % 40 + 1));
            let counts: Vec<(&str, usize)> = counts.collect();
            let mut nodes = fleet(&counts);
            let order = Arc::new(ordered(&by_zone("each", &[]), &census(&nodes)));
            // They were not there when the order was made.
            let n_known = nodes.len();
            nodes.extend((0..5).map(|n| node(n_known + n, if n % 2 == 0 { "" } else { "elsewhere" })));
            let ahead = |hundredths: u16| -> Vec<&Node> {
                let ranking = Ranking::Ordered(Arc::clone(&order));
                let split = Split { deployment: round, share: Some(Share(hundredths)), ranking };
                nodes.iter().filter(|node| split.is_ahead(node)).collect()
            };
            let mut before = 0;
            let ends = order.values().iter().map(|one| one.end.0);
            for hundredths in (1..=10_000).step_by(97).chain(ends).collect::<BTreeSet<u16>>() {
                let ahead = ahead(hundredths);
                let has = |zone: &str| ahead.iter().filter(|node| node.locality.zone == zone).count();
                let all = |zone: &str| counts.iter().find(|(name, _)| *name == zone).map_or(0, |(_, n)| *n);
                let zones: Vec<&str> = order.values().iter().map(|one| &*one.value).collect();
                let first_open = zones.iter().position(|zone| has(zone) < all(zone)).unwrap_or(zones.len());
                let begun = zones.iter().skip(first_open + 1).filter(|zone| has(zone) > 0).count();
                assert_eq!(begun, 0, "seed {seed}, round {round}: {hundredths}");
                if hundredths < 10_000 {
                    assert_eq!(
                        has("") + has("elsewhere"),
                        0,
                        "seed {seed}, round {round}: unknown nodes are last"
                    );
                }
                for one in order.values().iter().filter(|one| one.end.0 <= hundredths) {
                    assert_eq!(
                        has(&one.value),
                        all(&one.value),
                        "seed {seed}, round {round}: complete at its end"
                    );
                }
                assert!(ahead.len() >= before, "seed {seed}, round {round}: who is ahead stays so");
                before = ahead.len();
            }
            assert_eq!(ahead(10_000).len(), nodes.len());
        }
    }

    #[test]
    fn a_share_is_about_that_share_of_the_nodes() {
        let nodes = fleet(&[("a", 300), ("b", 1_000), ("c", 2_700)]);
        let order = Arc::new(ordered(&by_zone("10%", &[]), &census(&nodes)));
        for (share, expected) in
            [("1%", 30..55), ("7.5%", 300..301), ("20%", 700..900), ("32.5%", 1_300..1_301)]
        {
            let ranking = Ranking::Ordered(Arc::clone(&order));
            let split = Split { deployment: 7, share: Some(share.parse().unwrap()), ranking };
            let n_ahead = nodes.iter().filter(|node| split.is_ahead(node)).count();
            assert!(expected.contains(&n_ahead), "{share}: {n_ahead}");
        }
        let awaited = Split { deployment: 7, share: Some(Share::ALL), ranking: Ranking::Awaited };
        assert!(
            !nodes.iter().any(|node| awaited.is_ahead(node)),
            "nobody is ahead of an order that is not known"
        );
    }

    #[test]
    fn an_order_that_was_stored_is_the_same() {
        let nodes = fleet(&[("a", 3), ("b", 4), ("", 1)]);
        let order = ordered(&by_zone("each", &[]), &census(&nodes));
        let stored = |order: &Order| -> Vec<(String, u16)> {
            order.values().iter().map(|one| (one.value.to_string(), one.end.hundredths())).collect()
        };
        assert_eq!(Order::stored(By::Zone, stored(&order)).unwrap(), order);
        for wrong in [vec![("a", 0)], vec![("a", 5), ("b", 5)], vec![("a", 10_001)]] {
            let wrong = wrong.into_iter().map(|(value, end)| (value.to_owned(), end)).collect();
            assert!(Order::stored(By::Zone, wrong).is_err());
        }
    }

    #[test]
    fn more_values_than_are_ranked_are_the_last() {
        let nodes: Vec<Node> = (0..2 * MAX_VALUES).map(|id| node(id, &format!("zone-{id:04}"))).collect();
        let order = ordered(&by_zone("each", &[]), &census(&nodes));
        assert_eq!((order.values().len(), order.part(None)), (MAX_VALUES, (5_000, 10_000)));
        assert!(nodes.iter().skip(MAX_VALUES).all(|node| order.index_of(node).is_none()));
    }
}
