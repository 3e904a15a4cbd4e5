//! The status board: what is said of a stream, from its events.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use xds_cache::status::{
    ConfigStatus, EventKind, Named, News, Rejection, Sent, Standing, StreamEntry, StreamEvent, StreamId,
    StreamInfo, Subscriber, TypeAnswer, TypeStatus, Variant,
};
use xds_cache::{Node, ResourceType, Revision, StatusBoard, Version, ViewChange};

struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

fn register(board: &Arc<StatusBoard>, id: u64) -> Arc<StreamEntry> {
    let info = StreamInfo {
        id: StreamId(id),
        node: Arc::new(Node::with_id("n")),
        address: "here".into(),
        variant: Variant::Delta,
        service: None,
        since: SystemTime::UNIX_EPOCH,
        proofs: Arc::default(),
    };
    let nobody: Weak<dyn Subscriber> = Weak::<Nobody>::new();
    board.register(info, nobody)
}

fn sent(nonce: u64, revision: u64, is_final: bool) -> Sent {
    Sent { nonce, version_info: "v".into(), revision: Revision(revision), is_final }
}

fn status_after(events: &[EventKind]) -> TypeStatus {
    let board = StatusBoard::new();
    let entry = register(&board, 1);
    for kind in events {
        let event = StreamEvent { resource_type: ResourceType::Cluster, kind: kind.clone() };
        entry.record(&event, SystemTime::UNIX_EPOCH);
    }
    entry.status().types.remove(&ResourceType::Cluster).unwrap_or_default()
}

fn nacked(sent: Sent) -> EventKind {
    EventKind::Nacked { sent, message: "bad".into(), named: Named::default() }
}

#[test]
fn the_status_follows_the_last_response_and_its_answer() {
    use EventKind::{Acked, Current, Sent as SentKind, Subscribed};
    let first = || sent(1, 1, true);
    let second = || sent(2, 2, true);
    let table = [
        (vec![Subscribed, Current(Revision(1))], ConfigStatus::NotSent),
        (vec![SentKind(first())], ConfigStatus::Stale),
        (vec![SentKind(first()), Acked(first())], ConfigStatus::Synced),
        (vec![SentKind(first()), nacked(first())], ConfigStatus::Error),
        (vec![SentKind(first()), SentKind(second()), Acked(first())], ConfigStatus::Stale),
        (vec![SentKind(first()), nacked(first()), SentKind(second())], ConfigStatus::Error),
        (vec![SentKind(first()), nacked(first()), SentKind(second()), Acked(second())], ConfigStatus::Synced),
    ];
    for (events, expected) in table {
        assert_eq!(status_after(&events).status(), expected, "{events:?}");
    }
}

#[test]
fn acknowledged_is_a_final_response_or_that_nothing_was_owed() {
    use EventKind::{Acked, Current, Sent as SentKind};
    let part = || sent(1, 3, false);
    let last = || sent(2, 3, true);
    let table = [
        (vec![], false),
        (vec![Current(Revision(2))], false),
        (vec![Current(Revision(3))], true),
        (vec![SentKind(part()), Acked(part())], false),
        (vec![SentKind(part()), SentKind(last()), Acked(last())], true),
        (vec![SentKind(last()), Current(Revision(3))], false),
        (vec![SentKind(last()), nacked(last()), Current(Revision(4))], false),
        (vec![SentKind(last()), Acked(last()), SentKind(sent(3, 4, true))], true),
    ];
    for (events, expected) in table {
        assert_eq!(status_after(&events).has_acked(Revision(3)), expected, "{events:?}");
    }
}

#[test]
fn a_rejection_counts_for_its_publication_and_those_before_until_it_heals() {
    let rejected = [EventKind::Sent(sent(1, 3, true)), nacked(sent(1, 3, true))];
    let status = status_after(&rejected);
    let answer = |status: &TypeStatus, revision| status.answer(Revision(revision), |_| true);
    let rejects = |answer| matches!(answer, TypeAnswer::Rejects { .. });
    assert!(rejects(answer(&status, 3)) && answer(&status, 4) == TypeAnswer::Pending);
    let healed = [EventKind::Sent(sent(2, 4, true)), EventKind::Acked(sent(2, 4, true))];
    let status = status_after(&[&rejected[..], &healed[..]].concat());
    assert_eq!(answer(&status, 3), TypeAnswer::Uses);
    assert_eq!(
        status.last_nack.map(|nack| nack.message.to_string()).as_deref(),
        Some("bad"),
        "it is remembered"
    );
}

fn standing(names: &[&str], n_unknown: usize, since: u64) -> EventKind {
    let rejection = |name: &&str| Rejection {
        name: (*name).into(),
        version: Version::of(b"bad"),
        message: "bad".into(),
        version_info: "v".into(),
        revision: Revision(since),
        since: Revision(since),
    };
    let rejected: Vec<Rejection> = names.iter().map(rejection).collect();
    let since = (!names.is_empty() || n_unknown > 0).then_some(Revision(since));
    EventKind::Standing(Standing { n_rejected: rejected.len(), rejected, n_unknown, since }.into())
}

#[test]
fn the_rejection_of_a_resource_stands_while_others_are_accepted_and_lowers_no_revision() {
    use EventKind::{Acked, Current, Sent as SentKind};
    let first =
        [SentKind(sent(1, 1, true)), Acked(sent(1, 1, true)), Current(Revision(1)), Current(Revision(2))];
    let rejected = [
        SentKind(sent(2, 3, true)),
        Current(Revision(3)),
        nacked(sent(2, 3, true)),
        standing(&[], 2, 3),
        SentKind(sent(3, 3, false)),
        SentKind(sent(4, 3, true)),
        Current(Revision(3)),
        Acked(sent(3, 3, false)),
        nacked(sent(4, 3, true)),
        standing(&["a"], 0, 3),
    ];
    let later = [SentKind(sent(5, 4, true)), Current(Revision(4)), Acked(sent(5, 4, true))];
    let healed =
        [SentKind(sent(6, 5, true)), Current(Revision(5)), standing(&[], 0, 5), Acked(sent(6, 5, true))];
    let status = status_after(&[&first[..], &rejected[..]].concat());
    assert_eq!((status.status(), status.acknowledged()), (ConfigStatus::Error, Some(Revision(2))));
    let status = status_after(&[&first[..], &rejected[..], &later[..]].concat());
    assert_eq!((status.status(), status.acknowledged()), (ConfigStatus::Error, Some(Revision(2))));
    assert!(status.failed_before(Revision(4)) && !status.has_acked(Revision(4)));
    let of = |name: &'static str, revision| status.answer(Revision(revision), move |one| one == name);
    assert!(matches!(of("a", 4), TypeAnswer::Rejects { failed_before: true, .. }), "it still rejects it");
    assert_eq!(of("b", 4), TypeAnswer::Uses, "it has answered, and rejects another one");
    assert_eq!((of("a", 5), of("b", 5)), (TypeAnswer::Pending, TypeAnswer::Pending), "it has not answered");
    assert_eq!(status.rejected_names().unwrap().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
    let status = status_after(&[&first[..], &rejected[..], &later[..], &healed[..]].concat());
    assert_eq!((status.status(), status.acknowledged()), (ConfigStatus::Synced, Some(Revision(5))));
    assert!(!status.failed_before(Revision(6)));
}

#[test]
fn a_stream_leaves_the_board_when_its_entry_is_dropped() {
    let board = StatusBoard::new();
    let mut news = board.news();
    let ticks = board.ticks();
    let (first, second) = (register(&board, 1), register(&board, 2));
    assert_eq!(board.n_streams(), 2);
    assert_eq!(
        board.streams().iter().map(|entry| entry.status().info.id).collect::<Vec<_>>(),
        [StreamId(1), StreamId(2)]
    );
    drop(first);
    assert!(board.stream(StreamId(1)).is_none() && board.stream(StreamId(2)).is_some());
    assert!(ticks.has_changed().unwrap(), "who waits for its ACK looks again");
    let seen: Vec<bool> = std::iter::from_fn(|| news.try_recv().ok())
        .map(|news| matches!(news, News::Disconnected(info) if info.id == StreamId(1)))
        .collect();
    assert_eq!(seen, [false, false, true]);
    drop(second);
    assert_eq!(board.n_streams(), 0);
}

#[test]
fn the_worst_type_is_the_streams_status() {
    let board = StatusBoard::new();
    let entry = register(&board, 1);
    assert_eq!(entry.status().status(), ConfigStatus::NotSent);
    let record = |resource_type: ResourceType, kind: EventKind| {
        entry.record(&StreamEvent { resource_type, kind }, SystemTime::UNIX_EPOCH);
    };
    record(ResourceType::Listener, EventKind::Sent(sent(1, 1, true)));
    record(ResourceType::Listener, EventKind::Acked(sent(1, 1, true)));
    assert_eq!(entry.status().status(), ConfigStatus::Synced);
    record(ResourceType::Cluster, EventKind::Sent(sent(2, 1, true)));
    assert_eq!(entry.status().status(), ConfigStatus::Stale);
    record(ResourceType::Cluster, nacked(sent(2, 1, true)));
    assert_eq!(entry.status().status(), ConfigStatus::Error);
}
