//! The nodes that waves have reached. They are remembered from then on, so that those that a change kills count against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::status::StreamId;

/// The members of the waves so far, by node id. Time is passed in.
///
/// A member's clients may be several: a node id can be shared, and is then one member. A client that is away for longer than
/// [`AWAY_TIME`] is gone; one that comes back without any version is a process that has restarted. What other servers say of their clients
/// is known a little later, so one that moves from server to server may be seen at both, or at neither, for a moment.
#[derive(Clone, Debug, Default)]
pub struct Members(BTreeMap<Arc<str>, Member>);

#[derive(Clone, Debug, Default)]
struct Member {
    /// Its clients that are connected.
    clients: BTreeSet<ClientId>,
    /// Since when each of the others is away; the earliest first.
    away: VecDeque<Instant>,
    /// Those that came to one server while all that were known were still at others: one of these may be the same client, of which the other
    /// server does not know yet that it left.
    moving: Vec<Moving>,
    /// True if its clients may have been connected all the time.
    is_unseen: bool,
    /// How often one reconnected without its configuration.
    n_restarts: u32,
}

/// A client that may have moved from another server.
#[derive(Clone, Debug)]
struct Moving {
    client: ClientId,
    has_configuration: bool,
}

/// One client of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientId {
    /// An ADS stream.
    Stream(StreamId),
    /// The streams for single types from one address.
    Address(Arc<str>),
    /// A client of another server: the id of that server, and how it tells its clients apart.
    Elsewhere(Arc<str>, Arc<str>),
}

impl ClientId {
    /// The other server that it is at; `None` for this one.
    fn server(&self) -> Option<&str> {
        match self {
            Self::Stream(_) | Self::Address(_) => None,
            Self::Elsewhere(server, _) => Some(server),
        }
    }
}

/// The clients of one node that are connected, each with whether it showed on any stream that it holds configuration.
pub type Present = BTreeMap<ClientId, bool>;

/// Why a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is away for longer than [`AWAY_TIME`].
    Gone,
    /// It reconnected without its configuration, so often.
    Restarted(u32),
}

/// How many members have restarted, are away or are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many members there are, connected or not.
    pub n_known: usize,
    /// How many are away, but not for long enough to be lost.
    pub n_away: usize,
    /// How many are gone.
    pub n_gone: usize,
    /// How many have restarted.
    pub n_restarted: usize,
}

impl Members {
    /// These nodes, which were connected to the server before it restarted and are still to come back.
    #[must_use]
    pub fn remembered(nodes: impl IntoIterator<Item = Arc<str>>, now: Instant) -> Self {
        let member = Member { away: VecDeque::from([now]), ..Member::default() };
        Self(nodes.into_iter().map(|node| (node, member.clone())).collect())
    }

    /// These nodes, of which another server knew that they were connected, to itself or to others.
    #[must_use]
    pub fn of_another(nodes: impl IntoIterator<Item = Arc<str>>, now: Instant) -> Self {
        let mut members = Self::remembered(nodes, now);
        members.0.values_mut().for_each(|member| member.is_unseen = true);
        members
    }

    /// Updates the members with those that are connected at `now`. A node that is not known yet becomes a member. `is_released`
    /// returns `true` for a member without a connected client that the change no longer concerns, so it stops being a member.
    pub fn look(
        &mut self,
        present: BTreeMap<Arc<str>, Present>,
        is_released: impl Fn(&str) -> bool,
        now: Instant,
    ) {
        self.0.retain(|node, member| {
            if present.contains_key(node) {
                return true;
            }
            let left = std::mem::take(&mut member.clients);
            member.leave(left, now);
            !is_released(node)
        });
        for (node, clients) in present {
            match self.0.get_mut(&node) {
                Some(member) => member.look(clients, now),
                None => {
                    let clients = clients.into_keys().collect();
                    self.0.insert(node, Member { clients, ..Member::default() });
                }
            }
        }
    }

    /// Removes the members that are lost at `now`. One that reconnects is a new member.
    pub fn forgive(&mut self, now: Instant) {
        self.0.retain(|_, member| match member.loss(now) {
            Some(Loss::Gone) if member.clients.is_empty() => false,
            Some(_) => {
                member.n_restarts = 0;
                member.away.retain(|since| !is_over(*since, now));
                // One that restarted may be gone since.
                !(member.clients.is_empty() && member.away.is_empty())
            }
            None => true,
        });
    }

    /// How many have restarted, are away or are gone.
    #[must_use]
    pub fn losses(&self, now: Instant) -> Losses {
        let mut losses = Losses { n_known: self.0.len(), ..Losses::default() };
        for member in self.0.values() {
            match member.loss(now) {
                Some(Loss::Gone) => losses.n_gone += 1,
                Some(Loss::Restarted(_)) => losses.n_restarted += 1,
                None if !member.away.is_empty() => losses.n_away += 1,
                None => {}
            }
        }
        losses
    }

    /// The members that are lost, by node id.
    pub fn lost(&self, now: Instant) -> impl Iterator<Item = (&Arc<str>, Loss)> {
        self.0.iter().filter_map(move |(node, member)| Some((node, member.loss(now)?)))
    }

    /// Returns `true` if a node is one.
    #[must_use]
    pub fn contains(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// The members without a connected client, in order.
    pub fn absent(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter(|(_, member)| member.clients.is_empty()).map(|(node, _)| node)
    }

    /// The node ids, in order.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// When, after `now`, the next one that is away is lost.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let ends = self.0.values().flat_map(|member| &member.away).map(|since| *since + AWAY_TIME);
        ends.filter(|end| *end > now).min()
    }
}

impl Member {
    fn look(&mut self, present: Present, now: Instant) {
        if std::mem::take(&mut self.is_unseen) {
            self.away.clear();
            self.clients = present.into_keys().collect();
            return;
        }
        let (stayed, left): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.clients).into_iter().partition(|client| present.contains_key(client));
        self.leave(left, now);
        for (client, has_configuration) in &present {
            if stayed.contains(client) {
                continue;
            }
            if self.away.pop_front().is_some() {
                self.come_back(*has_configuration);
            } else if stayed.iter().any(|known| known.server() != client.server()) {
                let (client, has_configuration) = (client.clone(), *has_configuration);
                self.moving.push(Moving { client, has_configuration });
            }
        }
        self.clients = present.into_keys().collect();
    }

    fn come_back(&mut self, has_configuration: bool) {
        if !has_configuration {
            self.n_restarts = self.n_restarts.saturating_add(1);
        }
    }

    /// These clients are not connected any more. Those that were seen at another server already are not away.
    fn leave(&mut self, clients: BTreeSet<ClientId>, now: Instant) {
        self.moving.retain(|one| !clients.contains(&one.client));
        for client in clients {
            match self.moving.iter().position(|one| one.client.server() != client.server()) {
                Some(at) => {
                    let moved = self.moving.swap_remove(at);
                    self.come_back(moved.has_configuration);
                }
                None => self.away.push_back(now),
            }
        }
    }

    fn loss(&self, now: Instant) -> Option<Loss> {
        if self.n_restarts > 0 {
            return Some(Loss::Restarted(self.n_restarts));
        }
        self.away.front().filter(|since| is_over(**since, now)).map(|_| Loss::Gone)
    }
}

fn is_over(since: Instant, now: Instant) -> bool {
    now >= since + AWAY_TIME
}

/// How long a member may be away before it is lost: a client that lost its connection comes back sooner.
pub const AWAY_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn present(clients: &[(u64, bool)]) -> BTreeMap<Arc<str>, Present> {
        let clients: Present =
            clients.iter().map(|(id, has)| (ClientId::Stream(StreamId(*id)), *has)).collect();
        if clients.is_empty() { BTreeMap::new() } else { BTreeMap::from([("node".into(), clients)]) }
    }

    #[test]
    fn who_is_away_for_too_long_or_comes_back_with_nothing_is_lost() {
        type Look<'a> = (u64, &'a [(u64, bool)]);
        let rows: [(&str, &[Look<'_>], Option<Loss>); 9] = [
            ("is there", &[(0, &[(1, false)]), (99, &[(1, false)])], None),
            ("is away", &[(0, &[(1, false)]), (1, &[]), (10, &[])], None),
            ("is gone", &[(0, &[(1, false)]), (1, &[]), (11, &[])], Some(Loss::Gone)),
            (
                "lost its connection",
                &[(0, &[(1, false)]), (1, &[]), (2, &[(2, true)]), (99, &[(2, true)])],
                None,
            ),
            ("came back late", &[(0, &[(1, false)]), (1, &[]), (50, &[(2, true)])], None),
            ("restarted", &[(0, &[(1, false)]), (1, &[]), (2, &[(2, false)])], Some(Loss::Restarted(1))),
            (
                "restarts between two looks, again and again",
                &[(0, &[(1, true)]), (1, &[(2, false)]), (2, &[(3, false)])],
                Some(Loss::Restarted(2)),
            ),
            ("another process with the same id", &[(0, &[(1, true)]), (1, &[(1, true), (2, false)])], None),
            (
                "one of two processes restarted",
                &[(0, &[(1, true), (2, true)]), (1, &[(1, true), (3, false)])],
                Some(Loss::Restarted(1)),
            ),
        ];
        for (what, looks, expected) in rows {
            let start = Instant::now();
            let (mut members, mut now) = (Members::default(), start);
            for (second, clients) in looks {
                now = start + Duration::from_secs(*second);
                members.look(present(clients), |_| false, now);
            }
            assert_eq!(members.lost(now).map(|(_, loss)| loss).next(), expected, "{what}");
            members.forgive(now);
            assert_eq!(members.losses(now).n_gone + members.losses(now).n_restarted, 0, "{what}");
        }
    }

    #[test]
    fn one_that_moves_to_another_server_is_not_lost_in_whatever_order_it_is_seen() {
        // Each look: the second, and the servers that have the node; `!` is for a client that came without configuration.
        let rows = [
            ("left first", "0 own; 1; 2 b", None),
            ("is at both for a moment", "0 own; 1 own b; 2 b", None),
            ("moved between two others", "0 b; 1 b c; 2 c", None),
            ("left a server that was silent for long", "0 c; 1 c b; 300 b; 310 b", None),
            ("restarted, and is at both for a moment", "0 b; 1 b own!; 2 own!", Some(Loss::Restarted(1))),
            ("moved, and is gone", "0 own; 1 own b; 2 b; 3; 13", Some(Loss::Gone)),
            ("the one that came is the one that goes", "0 own; 1 own b; 2 own; 12 own", Some(Loss::Gone)),
        ];
        for (what, looks, expected) in rows {
            let start = Instant::now();
            let (mut members, mut now) = (Members::default(), start);
            for look in looks.split("; ") {
                let mut words = look.split(' ');
                now = start + Duration::from_secs(words.next().unwrap().parse().unwrap());
                let clients = words.map(|word| match word.trim_end_matches('!') {
                    "own" => (ClientId::Stream(StreamId(1)), !word.ends_with('!')),
                    server => (ClientId::Elsewhere(server.into(), "stream 1".into()), !word.ends_with('!')),
                });
                let present: Present = clients.collect();
                let all = if present.is_empty() { vec![] } else { vec![("node".into(), present)] };
                members.look(all.into_iter().collect(), |_| false, now);
            }
            assert_eq!(members.lost(now).map(|(_, loss)| loss).next(), expected, "{what}");
        }
    }

    #[test]
    fn one_that_restarted_and_is_gone_since_is_forgiven_as_gone() {
        let now = Instant::now();
        let mut members = Members::default();
        members.look(present(&[(1, false)]), |_| false, now);
        members.look(present(&[(2, false)]), |_| false, now);
        members.look(present(&[]), |_| false, now);
        let later = now + AWAY_TIME;
        assert_eq!(members.losses(later), Losses { n_known: 1, n_restarted: 1, ..Losses::default() });
        members.forgive(later);
        assert_eq!(members.losses(later), Losses::default());
    }

    #[test]
    fn members_of_another_server_are_as_they_are_found_and_lost_if_they_are_not() {
        let now = Instant::now();
        let mut members = Members::of_another(["node".into(), "other".into()], now);
        assert_eq!(members.absent().count(), 2);
        members.look(present(&[(1, false)]), |_| false, now);
        let later = now + AWAY_TIME;
        assert_eq!(members.losses(later), Losses { n_known: 2, n_gone: 1, ..Losses::default() });
        members.look(present(&[(2, false)]), |_| false, later);
        assert_eq!(members.losses(later).n_restarted, 1);
        assert_eq!(members.absent().map(|node| &**node).collect::<Vec<_>>(), ["other"]);
    }

    #[test]
    fn members_of_before_a_restart_of_the_server_are_expected_back() {
        let now = Instant::now();
        let mut members = Members::remembered(["node".into(), "other".into()], now);
        assert_eq!(members.losses(now), Losses { n_known: 2, n_away: 2, ..Losses::default() });
        assert_eq!(members.poll_timeout(now), Some(now + AWAY_TIME));
        members.look(present(&[(1, true)]), |_| false, now);
        let later = now + AWAY_TIME;
        assert_eq!(members.losses(later), Losses { n_known: 2, n_gone: 1, ..Losses::default() });
        assert_eq!(members.poll_timeout(later), None);
        members.look(present(&[(1, true)]), |node| node == "other", later);
        assert_eq!(
            members.losses(later),
            Losses { n_known: 1, ..Losses::default() },
            "it is concerned no more"
        );
    }
}
