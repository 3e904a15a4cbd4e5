//! The clients that a publication concerns, and all connected ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use xds_cache::status::{StreamEntry, StreamId};
use xds_cache::{GroupName, Node, ResourceType, Revision, StatusBoard, ViewKey};

use super::changed::{Changed, ConcernedStream};
use super::fold::{AckState, Fold};
use super::late::InGroups;
use super::query::AcksQuery;
use super::report::{AcksReport, Progress, Sight, list};

/// The clients that a publication concerns.
#[derive(Default)]
pub(super) struct Concerned {
    pub(super) revision: Revision,
    /// What it changed, by view.
    pub(super) changes: BTreeMap<ViewKey, Changed>,
    /// What it changed in views that came later.
    pub(super) in_groups: InGroups,
    /// The clients that were connected at the publication.
    pub(super) clients: Vec<ConcernedClient>,
    /// Those that came later.
    pub(super) late: Vec<ConcernedClient>,
}

/// A client that a publication concerns.
pub(super) struct ConcernedClient {
    node: Arc<Node>,
    /// Those that it had at the publication.
    groups: Arc<[GroupName]>,
    streams: Vec<ConcernedStream>,
    state: AckState,
}

impl Concerned {
    /// How many bytes the resources have that it keeps.
    pub(super) fn n_bytes(&self) -> usize {
        let changes = self.changes.values().flat_map(|changed| changed.change.changes.values());
        let n_bytes: usize =
            changes.flat_map(|changes| &changes.changed).map(|resource| resource.n_bytes()).sum();
        n_bytes + self.in_groups.n_bytes()
    }

    /// From now on, no more clients are counted that come later.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.in_groups = InGroups::default();
        let clients = self.clients.iter_mut().chain(&mut self.late);
        clients.flat_map(|client| &mut client.streams).for_each(ConcernedStream::forget_change);
    }

    /// Finds the clients that came after the publication, and that it concerns.
    pub(super) fn find_late(&mut self, board: &StatusBoard) {
        let counted = self.clients.iter().chain(&self.late).flat_map(|client| &client.streams);
        let counted: HashSet<StreamId> = counted.map(|stream| stream.id).collect();
        let new = self.in_groups.in_new_views(board, |key| self.changes.contains_key(key));
        let new = new.into_iter().map(|change| (change.key.clone(), Changed::new(change)));
        self.changes.extend(new.collect::<Vec<_>>());
        let mut late = Clients::default();
        for (key, changed) in &self.changes {
            let came = board.streams_of(Some(key)).into_iter().filter(|entry| !counted.contains(&entry.id()));
            for entry in came {
                if let Some(stream) = changed.concerned(&entry) {
                    late.add(&entry, stream);
                }
            }
        }
        self.late.extend(late.list);
    }

    /// Reads what the clients have answered since the last look.
    pub(super) fn look(&mut self, board: &StatusBoard) {
        self.settle(board);
        self.late.retain(|client| client.streams.iter().any(|stream| board.stream(stream.id).is_some()));
        for client in self.clients.iter_mut().chain(&mut self.late) {
            match client.state {
                AckState::Acked { .. } | AckState::Gone => {}
                AckState::Pending | AckState::Unknown | AckState::Nacked(_) => {
                    client.state = client.look(board, self.revision);
                }
            }
            // The state of a client that left is of no use, and neither is a settled one's after it left.
            if client.streams.iter().all(|stream| board.stream(stream.id).is_none()) {
                client.state = match &client.state {
                    acked @ AckState::Acked { .. } => acked.clone(),
                    AckState::Pending | AckState::Unknown | AckState::Nacked(_) | AckState::Gone => {
                        AckState::Gone
                    }
                };
            }
        }
    }

    /// Clients of which it was not known whether they are concerned are left out when they turn out not to be.
    fn settle(&mut self, board: &StatusBoard) {
        for clients in [&mut self.clients, &mut self.late] {
            clients.retain_mut(|client| {
                if !client.streams.iter().any(ConcernedStream::is_in_doubt) {
                    return true;
                }
                for stream in &mut client.streams {
                    board.stream(stream.id).iter().for_each(|entry| stream.settle(entry));
                }
                client.streams.retain(|stream| !stream.types.is_empty());
                !client.streams.is_empty()
            });
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        for client in &self.clients {
            match &client.state {
                AckState::Gone => continue,
                AckState::Pending | AckState::Unknown => progress.pending += 1,
                AckState::Acked { .. } => progress.acked += 1,
                AckState::Nacked(_) => {}
            }
            progress.total += 1;
        }
        progress
    }

    pub(super) fn report(&self, query: &AcksQuery, sight: impl Fn(&[GroupName]) -> Sight) -> AcksReport {
        let mut report = AcksReport { revision: self.revision.0, ..AcksReport::default() };
        for client in self.clients.iter().chain(&self.late) {
            let sight = sight(&client.groups);
            if sight == Sight::Nothing || !query.has(&client.node.id) {
                continue;
            }
            let node = || client.node.id.clone();
            match &client.state {
                AckState::Gone => continue,
                AckState::Pending | AckState::Unknown => {
                    report.n_pending += 1;
                    list(&mut report.pending, node());
                    if client.state == AckState::Unknown {
                        report.n_unknown += 1;
                        list(&mut report.unknown, node());
                    }
                }
                AckState::Acked { by_newer } => {
                    report.acked += 1;
                    report.superseded += usize::from(*by_newer);
                }
                AckState::Nacked(rejected) => {
                    let nack = rejected.of_node(node(), sight);
                    let (n, listed) = match rejected.failed_before {
                        true => (&mut report.n_already_failing, &mut report.already_failing),
                        false => (&mut report.n_nacked, &mut report.nacked),
                    };
                    *n += 1;
                    list(listed, nack);
                }
            }
            report.total += 1;
        }
        report
    }
}

impl ConcernedClient {
    fn look(&self, board: &StatusBoard, revision: Revision) -> AckState {
        let mut fold = Fold::default();
        for stream in &self.streams {
            let Some(entry) = board.stream(stream.id) else { continue };
            fold.count();
            fold.read(&entry, stream, revision, |_, _| false);
        }
        fold.state()
    }
}

/// Collects concerned streams into clients.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) list: Vec<ConcernedClient>,
    /// Clients of per-type streams by connection and node id.
    by_connection: HashMap<(Arc<str>, String), usize>,
}

impl Clients {
    pub(super) fn add(&mut self, entry: &StreamEntry, stream: ConcernedStream) {
        let (node, groups, connection) = entry.with(|status| {
            let info = &status.info;
            let connection = info.service.as_ref().map(|_| (Arc::clone(&info.address), info.node.id.clone()));
            let groups = status.view.as_ref().map(|view| Arc::clone(&view.groups)).unwrap_or_default();
            (Arc::clone(&info.node), groups, connection)
        });
        if let Some(connection) = connection {
            let position = *self.by_connection.entry(connection).or_insert(self.list.len());
            if let Some(client) = self.list.get_mut(position) {
                client.streams.push(stream);
                return;
            }
        }
        self.list.push(ConcernedClient { node, groups, streams: vec![stream], state: AckState::Pending });
    }
}

/// All connected clients, by whether they use everything up to the revision. A stream without a first request is no client yet.
pub(super) fn of_everyone(
    board: &StatusBoard,
    query: &AcksQuery,
    sight: impl Fn(&[GroupName]) -> Sight,
) -> AcksReport {
    let types_of = |entry: &StreamEntry| {
        entry.with(|status| {
            let is_asked = query.has(&status.info.node.id) && !status.types.is_empty();
            is_asked.then(|| status.types.keys().cloned().collect::<Vec<ResourceType>>())
        })
    };
    let entries = board.streams().into_iter().filter_map(|entry| Some((types_of(&entry)?, entry)));
    let (types, entries): (Vec<_>, Vec<_>) =
        entries.map(|(types, entry)| ((entry.id(), types), entry)).unzip();
    let mut clients = Clients::default();
    for (entry, stream) in entries.iter().zip(ConcernedStream::whole(types)) {
        clients.add(entry, stream);
    }
    let mut all = Concerned { revision: query.revision, clients: clients.list, ..Concerned::default() };
    all.look(board);
    all.report(query, sight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acks::{MAX_LISTED, Rejected};

    #[test]
    fn clients_that_are_not_named_count() {
        let client = |n: usize| {
            let nack = |failed_before| {
                let resource_type = ResourceType::Listener;
                AckState::Nacked(Rejected {
                    resource_type,
                    resource: None,
                    message: "no".into(),
                    failed_before,
                })
            };
            let state = match n % 4 {
                0 => AckState::Acked { by_newer: false },
                1 => AckState::Pending,
                2 => nack(false),
                _ => nack(true),
            };
            ConcernedClient { node: Arc::new(Node::default()), groups: [].into(), streams: vec![], state }
        };
        let clients = (0..4 * (MAX_LISTED + 1)).map(client).collect();
        let concerned = Concerned { revision: Revision(7), clients, ..Concerned::default() };
        let mut report = concerned.report(&AcksQuery::concerned(Revision(7)), |_| Sight::Words);
        let counts = |of: &AcksReport| [of.acked, of.n_pending, of.n_nacked, of.n_already_failing];
        let lists = |of: &AcksReport| [of.pending.len(), of.nacked.len(), of.already_failing.len()];
        assert_eq!((counts(&report), lists(&report)), ([MAX_LISTED + 1; 4], [MAX_LISTED; 3]));
        assert_eq!(report.total, counts(&report).iter().sum::<usize>());
        let other = report.clone();
        report.add(&other);
        assert_eq!((counts(&report), lists(&report)), ([2 * (MAX_LISTED + 1); 4], [MAX_LISTED; 3]));
        assert_eq!(report.total, counts(&report).iter().sum::<usize>());
    }
}
