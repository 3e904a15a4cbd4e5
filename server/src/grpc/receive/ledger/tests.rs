//! Tests of the ledger.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const LIMITS: ReceiveLimits =
    ReceiveLimits { process: 200, per_source: 70, per_connection: 50, patience: Duration::from_secs(10) };

const NOBODY: [u64; 0] = [];

fn source(n: u8) -> Source {
    Source::from(IpAddr::from([10, 0, 0, n]))
}

struct Rig {
    ledger: Ledger<u64>,
    began: Instant,
    last: u64,
}

impl Rig {
    fn new() -> Self {
        Self { ledger: Ledger::new(LIMITS), began: Instant::now(), last: 0 }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.began + Duration::from_secs(seconds)
    }

    fn begin(&mut self, connection: u64, from: u8) -> u64 {
        self.last += 1;
        self.ledger.begin(self.last, self.last, connection, source(from), self.began);
        self.last
    }

    fn ask(&mut self, connection: u64, from: u8, n_bytes: usize) -> (u64, Asked) {
        let id = self.begin(connection, from);
        (id, self.ledger.ask(id, n_bytes, self.began))
    }
}

#[test]
fn of_small_messages_the_oldest_has_to_go() {
    let mut rig = Rig::new();
    let [a, b, c] = [1, 2, 3].map(|connection| rig.begin(connection, 1));
    assert_eq!(rig.ledger.hold(a, 50, rig.began), NOBODY);
    assert_eq!(rig.ledger.hold(b, 50, rig.began), NOBODY);
    assert_eq!(rig.ledger.hold(c, 1, rig.began), [a]);
    assert_eq!(rig.ledger.n_bytes(), 51);
    assert_eq!(rig.ledger.hold(a, 99, rig.began), NOBODY, "who has to go holds nothing");
    assert_eq!(rig.ledger.n_bytes(), 51);
}

#[test]
fn large_messages_do_not_take_the_room_of_small_ones() {
    let mut rig = Rig::new();
    for connection in 1..=2 {
        assert_eq!(rig.ask(connection, u8::try_from(connection).unwrap(), 50).1, Asked::Admitted);
    }
    assert_eq!(rig.ask(3, 3, 10).1, Asked::Waits);
    let small = rig.begin(9, 9);
    assert_eq!(rig.ledger.hold(small, 100, rig.began), NOBODY);
}

#[test]
fn a_large_message_waits_for_its_connection_its_address_or_the_process() {
    let mut rig = Rig::new();
    let (a, asked) = rig.ask(1, 1, 40);
    assert_eq!(asked, Asked::Admitted);
    let (b, asked) = rig.ask(1, 1, 20);
    assert_eq!(asked, Asked::Waits, "the connection has 10 left");
    let (c, asked) = rig.ask(2, 1, 31);
    assert_eq!(asked, Asked::Waits, "the address has 30 left");
    assert_eq!(rig.ask(3, 3, 40).1, Asked::Admitted, "nobody else has to wait for them");
    let (d, asked) = rig.ask(4, 4, 30);
    assert_eq!(asked, Asked::Waits, "the process has 20 left");
    assert_eq!(rig.ask(5, 5, 10).1, Asked::Waits, "nobody passes who waits for the process");
    assert_eq!(rig.ledger.remove(a, rig.began), [b, c], "and then there are 9 left");
    assert_eq!(rig.ledger.remove(b, rig.began), NOBODY, "29 are not 30, and nobody passes");
    assert_eq!(rig.ledger.remove(c, rig.began), [d, rig.last]);
}

#[test]
fn what_can_never_fit_is_refused_at_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(1, 1, 51).1, Asked::Refused(Scope::Connection));
    assert_eq!(rig.ask(1, 1, 50).1, Asked::Admitted);
    assert_eq!(rig.ask(1, 1, 10).1, Asked::Waits);
    assert_eq!(rig.ask(1, 1, 10).1, Asked::Waits);
    assert_eq!(rig.ask(1, 1, 10).1, Asked::Refused(Scope::Connection), "two of a connection wait already");
}

#[test]
fn who_makes_no_progress_has_to_go() {
    let mut rig = Rig::new();
    let [silent, moving] = [1, 2].map(|connection| rig.begin(connection, 1));
    let (large, _) = rig.ask(3, 3, 50);
    let (waiting, asked) = rig.ask(3, 3, 1);
    assert_eq!(asked, Asked::Waits);
    let received = |seconds: u64| move |id: &u64| if *id == moving { seconds as usize } else { 7 };
    assert!(rig.ledger.expire(rig.at(1), received(1)).ended.is_empty());
    let expired = rig.ledger.expire(rig.at(9), received(9));
    assert!(expired.ended.is_empty());
    let expired = rig.ledger.expire(rig.at(11), received(11));
    let ended = [
        (silent, Ending::TooSlow),
        (moving, Ending::TooSlow),
        (large, Ending::TooSlow),
        (waiting, Ending::NoTurn),
    ];
    assert_eq!(expired.ended, ended, "a small message has no time for drops");
    assert!(rig.ledger.expire(rig.at(12), received(12)).stuck.is_empty());
    assert_eq!(rig.ledger.expire(rig.at(13), received(12)).stuck, [silent, moving, large, waiting]);
    assert_eq!(rig.ledger.n_bytes(), 0);
}

#[test]
fn a_large_message_that_moves_has_time_by_its_size() {
    let large = 10 * MIN_RATE;
    let limits = ReceiveLimits { process: 4 * large, per_source: large, per_connection: large, ..LIMITS };
    let mut ledger = Ledger::new(limits);
    let began = Instant::now();
    ledger.begin(1, 1, 1, source(1), began);
    assert_eq!(ledger.ask(1, large, began), Asked::Admitted);
    for seconds in 1..20 {
        let expired = ledger.expire(began + Duration::from_secs(seconds), |_| seconds as usize);
        assert!(expired.ended.is_empty(), "after {seconds} s");
    }
    assert_eq!(ledger.expire(began + Duration::from_secs(20), |_| 20).ended.len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Hold(u64, u8, usize),
    Ask(u64, u8, usize),
    Remove(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5_u64, 0..3_u8, 0..60_usize).prop_map(|(c, s, n)| Step::Hold(c, s, n)),
        (0..5_u64, 0..3_u8, 1..60_usize).prop_map(|(c, s, n)| Step::Ask(c, s, n)),
        any::<usize>().prop_map(Step::Remove),
        (0..8_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn no_budget_is_ever_passed_and_nothing_is_left_behind(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let mut rig = Rig::new();
        let mut seconds = 0;
        for step in steps {
            let now = rig.at(seconds);
            match step {
                Step::Hold(connection, from, n) => {
                    let id = rig.begin(connection, from);
                    rig.ledger.hold(id, n, now);
                }
                Step::Ask(connection, from, n) => {
                    let id = rig.begin(connection, from);
                    rig.ledger.ask(id, n, now);
                }
                Step::Remove(n) => {
                    let ids: Vec<u64> = rig.ledger.messages.keys().copied().collect();
                    if let Some(id) = ids.get(n % ids.len().max(1)) {
                        rig.ledger.remove(*id, now);
                    }
                }
                Step::Wait(n) => {
                    seconds += n;
                    rig.ledger.expire(rig.at(seconds), |_| 0);
                }
            }
            let ledger = &rig.ledger;
            prop_assert!(ledger.n_small <= 100 && ledger.n_admitted <= 100);
            prop_assert!(ledger.by_source.values().all(|n| *n <= 70));
            prop_assert!(ledger.by_connection.values().all(|n| *n <= 50));
            prop_assert_eq!(ledger.by_source.values().sum::<usize>(), ledger.n_admitted);
            prop_assert_eq!(ledger.by_connection.values().sum::<usize>(), ledger.n_admitted);
        }
        for id in rig.ledger.messages.keys().copied().collect::<Vec<_>>() {
            rig.ledger.remove(id, rig.began);
        }
        let ledger = &rig.ledger;
        prop_assert_eq!(ledger.n_bytes(), 0);
        prop_assert!(ledger.small.is_empty() && ledger.waiting.is_empty());
        prop_assert!(ledger.by_source.is_empty() && ledger.by_connection.is_empty());
    }
}
