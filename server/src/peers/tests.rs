//! Links over real connections.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use xds_cache::{Reason, Refusals};
use xds_control::acks::{AcksReport, Applied};

use super::ask::State;
use super::link::{Ends, Link};
use super::messages::Hello;
use super::*;
use crate::listen::{Port, PortRules};
use xds_replica::Feed;
use xds_store::JournalStore;

const QUESTION: Question = Question::Acks { revision: 7, wait_ms: 0, scope: None };

/// A server that answers until it is [ended](Self::end).
struct Running {
    port: Arc<Port>,
    task: JoinSet<()>,
}

impl Running {
    async fn end(mut self) {
        self.task.shutdown().await;
        self.port.cut_off();
    }
}

fn serve_at(listener: TcpListener, id: &str, is_silent: &Arc<AtomicBool>) -> Running {
    let rules = PortRules {
        name: "peer",
        max_connections: 8,
        reason: Reason::AdminConnections,
        opening: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        stalled: Duration::from_secs(10),
        may_take_later: false,
        max_of_address: usize::MAX,
        is_http1_only: false,
    };
    let port = Port::new(rules, None, Arc::<Refusals>::default());
    let is_silent = Arc::clone(is_silent);
    let answers = Arc::new(Answers {
        id: id.to_owned(),
        status: Box::new(|| Status { revision: 7, streams: 3, fingerprint: None }),
        culprits: Arc::default(),
        answer: Box::new(move |question| {
            let is_silent = is_silent.load(Ordering::SeqCst);
            Box::pin(async move {
                if is_silent {
                    std::future::pending::<()>().await;
                }
                let Question::Acks { revision, .. } = question else { return Err("no".to_owned()) };
                Ok(Answer::Acks(Applied::Known(AcksReport { revision, total: 5, ..AcksReport::default() })))
            })
        }),
    });
    let mut task = JoinSet::new();
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = JournalStore::open(dir.path(), xds_store::Options::default()).unwrap();
    let feed = Arc::new(Feed::of_journal(dir.path(), Arc::new(store)).unwrap());
    let followers = Followers::open(dir.path(), Duration::ZERO, Arc::default());
    let serves = PeerPort { answers, feed, followers };
    let serving = serve(listener, Arc::clone(&port), serves, std::future::pending());
    task.spawn(async move {
        let _dir = dir;
        serving.await.unwrap();
    });
    Running { port, task }
}

async fn becomes(link: &Link, what: &str, is_so: impl Fn(&State) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so(&link.state()) {
        assert!(Instant::now() < deadline, "never {what}: {:?}", link.state());
        sleep(Duration::from_millis(5)).await;
    }
}

fn is_up(state: &State) -> bool {
    matches!(state, State::Up(_))
}

fn is_down(state: &State, text: &str) -> bool {
    matches!(state, State::Down { why, .. } if why.contains(text))
}

#[tokio::test]
async fn a_server_is_asked_as_long_as_it_is_there_and_is_who_it_should_be() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_silent = Arc::<AtomicBool>::default();
    let running = serve_at(listener, "b", &is_silent);
    let ends =
        |other: &str| Ends { own: "a".to_owned(), other: other.to_owned(), address: address.to_string() };
    let linking = Linking { files: None, culprits: Arc::default() };
    let link = Link::new(ends("b"), linking.clone());
    becomes(&link, "up", is_up).await;
    assert!(
        matches!(link.state(), State::Up(status) if status == Status { revision: 7, streams: 3, fingerprint: None })
    );
    let patience = Duration::from_secs(10);
    let answer = link.asker().ask(&QUESTION, patience).await;
    assert!(matches!(&answer, Ok(Answer::Acks(Applied::Known(report))) if report.total == 5), "{answer:?}");
    // Many at once are answered, each its own.
    let asked = (0..100).map(|revision| {
        let asker = link.asker();
        async move {
            let question = Question::Acks { revision, wait_ms: 0, scope: None };
            let Ok(Answer::Acks(Applied::Known(report))) = asker.ask(&question, patience).await else {
                return false;
            };
            report.revision == revision
        }
    });
    let n_right =
        futures_util::future::join_all(asked).await.into_iter().filter(|is_right| *is_right).count();
    assert!(n_right >= 64, "{n_right} of 100: those that found no place were told so");

    let other = Link::new(ends("c"), linking);
    becomes(&other, "told that it is another server", |state| is_down(state, "this is the server \"b\""))
        .await;
    let refused = other.asker().ask(&QUESTION, patience).await;
    assert!(refused.is_err_and(|why| why.contains("this is the server")));

    is_silent.store(true, Ordering::SeqCst);
    let silent = link.asker().ask(&QUESTION, Duration::from_millis(50)).await;
    assert_eq!(silent, Err("it did not answer within 0.05 s".to_owned()));
    assert!(is_up(&link.state()), "it says how it is all the same");

    // A question that waits is told that the link broke.
    let asker = link.asker();
    let waiting = tokio::spawn(async move { asker.ask(&QUESTION, Duration::from_secs(60)).await });
    sleep(Duration::from_millis(20)).await;
    running.end().await;
    becomes(&link, "down", |state| matches!(state, State::Down { .. })).await;
    assert_eq!(waiting.await.unwrap(), Err("the link with it broke".to_owned()));
    assert!(link.asker().ask(&QUESTION, patience).await.is_err());

    is_silent.store(false, Ordering::SeqCst);
    let _again = serve_at(TcpListener::bind(address).await.unwrap(), "b", &is_silent);
    becomes(&link, "up again", is_up).await;
    assert!(link.asker().ask(&QUESTION, patience).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_follower_has_one_place_which_is_kept_until_it_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let grace = Duration::from_secs(60);
    let followers = Followers::open(dir.path(), grace, Arc::default());
    let hello =
        |id: &str| Hello { from: id.to_owned(), release: "1.2".to_owned(), since: 7, ..Hello::default() };
    assert!(followers.attach(&hello("")).is_err());
    let edge = followers.attach(&hello("edge")).unwrap();
    let other = followers.attach(&hello("edge")).err().unwrap();
    assert!(other.contains("--instance-id"), "{other}");
    let shown = |followers: &Followers| {
        let all = followers
            .replicas()
            .into_iter()
            .map(|one| (one.id.clone(), one.follows, one.release, one.reached));
        all.collect::<Vec<_>>()
    };
    let all = shown(&followers);
    let [(id, follows, release, Reached::No { .. })] = all.as_slice() else {
        panic!("{:?}", shown(&followers))
    };
    assert_eq!((id.as_str(), *follows, release.as_str()), ("edge", true, "1.2"));
    assert_eq!(followers.forget("edge"), Some(Err(ForgetError::Alive("edge".to_owned()))));
    assert_eq!(followers.forget("other"), None);

    // It counts for a while after it has gone, also for a server that starts again.
    drop(edge);
    for n in 0..2 {
        let again = (n == 1).then(|| Followers::open(dir.path(), grace, Arc::default()));
        let followers = again.as_ref().unwrap_or(&followers);
        let is_over = |followers: &Followers| match followers.replicas().remove(0).reached {
            Reached::Gone { is_over, .. } => is_over,
            Reached::Yes(_) | Reached::No { .. } => panic!("{:?}", shown(followers)),
        };
        assert!(!is_over(followers));
        tokio::time::advance(grace).await;
        assert!(is_over(followers));
        assert!(followers.attach(&hello("edge")).is_ok(), "it may come back");
    }
    assert_eq!(followers.forget("edge"), Some(Ok(())));
    assert_eq!(shown(&Followers::open(dir.path(), grace, Arc::default())), []);
}
