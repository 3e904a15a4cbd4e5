//! Servers that share a remote in memory, and know of each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use xds_replica::{
    Company, ForgetError, Member, OpenError, Options, Presence, PresenceError, PresenceOptions, Remote,
    Replica,
};

use crate::support::{Link, Shelf, keys};

/// A server that shares the store.
struct Sharing(Replica);

impl Sharing {
    fn company(&self) -> watch::Receiver<Company> {
        self.presence().company()
    }

    fn presence(&self) -> Arc<Presence> {
        self.0.presence().unwrap()
    }
}

async fn begin(dir: &Path, link: &Arc<Link>, id: &str) -> Result<Sharing, PresenceError> {
    begin_with(dir, link, id, PresenceOptions::default()).await
}

async fn begin_with(
    dir: &Path,
    link: &Arc<Link>,
    id: &str,
    presence: PresenceOptions,
) -> Result<Sharing, PresenceError> {
    let remote = Arc::clone(link) as Arc<dyn Remote>;
    let member = Member { peer: Some(format!("{id}:1")), release: "1".to_owned(), since: 7 };
    let options = Options { member: Some((id.to_owned(), member)), presence, ..Options::default() };
    match Replica::open(dir, remote, keys(), options).await {
        Ok((replica, _)) => Ok(Sharing(replica)),
        Err(OpenError::Presence(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// The servers that one knows of: `a` for one that lives, `(a)` for one that is gone.
fn known(presence: &Sharing) -> String {
    told(&presence.company().borrow())
}

fn told(company: &Company) -> String {
    let Some(members) = &company.members else { return "?".to_owned() };
    let seats = members.seats.iter();
    let ids = seats.map(|(id, seat)| if seat.gone.is_some() { format!("({id})") } else { id.clone() });
    ids.collect::<Vec<_>>().join(" ")
}

async fn becomes(presence: &Sharing, expected: &str) {
    let mut company = presence.company();
    let became = company.wait_for(|company| told(company) == expected);
    let found = tokio::time::timeout(Duration::from_secs(60), became).await.is_ok();
    assert!(found, "{} and not {expected}", known(presence));
}

#[tokio::test(start_paused = true)]
async fn servers_know_of_each_other_until_they_leave_vanish_or_are_forgotten() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 3] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let a = begin(dirs[0].path(), &links[0], "a").await.unwrap();
    let b = begin(dirs[1].path(), &links[1], "b").await.unwrap();
    let c = begin(dirs[2].path(), &links[2], "c").await.unwrap();
    assert_eq!(known(&c), "a b c", "whoever comes last knows at once");
    becomes(&a, "a b c").await;
    b.presence().end().await;
    becomes(&a, "a c").await;
    // It can still write, but its lease is not prolonged.
    let began = Instant::now();
    drop(c);
    becomes(&a, "a (c)").await;
    assert!(began.elapsed() <= Duration::from_secs(21), "{:?}", began.elapsed());
    assert_eq!(a.presence().forget("a").await, Err(ForgetError::Alive("a".to_owned())));
    assert_eq!(a.presence().forget("b").await, Err(ForgetError::Unknown("b".to_owned())));
    assert_eq!(a.presence().forget("c").await, Ok(()));
    assert_eq!(known(&a), "a");
}

#[tokio::test(start_paused = true)]
async fn an_instance_id_is_of_one_server_at_a_time() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 2] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let first = begin(dirs[0].path(), &links[0], "a").await.unwrap();
    let began = Instant::now();
    let refused = begin(dirs[1].path(), &links[1], "a").await;
    assert!(matches!(refused, Err(PresenceError::Taken(id)) if id == "a"));
    assert!(began.elapsed() >= Duration::from_secs(15));
    // The next life of the same directory needs to wait for nothing.
    first.0.close().await;
    let began = Instant::now();
    let second = begin(dirs[0].path(), &links[0], "a").await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    // Another directory waits for the end of the lease.
    second.0.close().await;
    let third = begin(dirs[1].path(), &links[1], "a").await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(16));
    assert_eq!(known(&third), "a");
    for wrong in ["", "a/b", "ä", &"a".repeat(254)] {
        assert!(matches!(begin(dirs[0].path(), &links[0], wrong).await, Err(PresenceError::Name(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_was_cut_off_comes_back_unless_another_has_its_place() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 3] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    // The copy of the store is there for the second life.
    begin(dirs[0].path(), &links[0], "a").await.unwrap().0.close().await;
    links[0].cut(true);
    let a = begin(dirs[0].path(), &links[0], "a").await.unwrap();
    assert_eq!(known(&a), "?", "nobody answered");
    assert!(a.company().borrow().problem.as_ref().unwrap().contains("the link is cut"));
    let b = begin(dirs[1].path(), &links[1], "b").await.unwrap();
    links[0].cut(false);
    a.company().wait_for(|company| company.problem.is_none()).await.unwrap();
    becomes(&b, "a b").await;

    links[0].cut(true);
    becomes(&b, "(a) b").await;
    let other = begin(dirs[2].path(), &links[2], "a").await.unwrap();
    links[0].cut(false);
    let mut company = a.company();
    let is_told = |company: &Company| {
        company
            .problem
            .as_ref()
            .is_some_and(|problem| problem.contains("another server with the instance id"))
    };
    company.wait_for(is_told).await.unwrap();
    other.presence().end().await;
    company.wait_for(|company| company.problem.is_none()).await.unwrap();
    becomes(&b, "a b").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(known(&b), "a b", "it is prolonged");
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_another_one_only_after_it_knows_that_it_does_not() {
    let shelf = Arc::<Shelf>::default();
    let dirs: [TempDir; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let links: [_; 2] = std::array::from_fn(|n| Link::new(&shelf, n as u64));
    let leading = PresenceOptions { may_lead: true, ..PresenceOptions::default() };
    let a = begin_with(dirs[0].path(), &links[0], "a", leading).await.unwrap();
    let b = begin_with(dirs[1].path(), &links[1], "b", leading).await.unwrap();
    let both = || (a.presence().leads(), b.presence().leads());
    assert_eq!(both(), (true, false));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(both(), (true, false), "it stays");
    assert_eq!(b.company().borrow().members.as_ref().unwrap().leader.as_deref(), Some("a"));
    // Cut off, it stops to lead before its key ends.
    links[0].cut(true);
    let began = Instant::now();
    while !b.presence().leads() {
        sleep(Duration::from_millis(100)).await;
        assert_ne!(both(), (true, true), "{:?}", began.elapsed());
    }
    assert!(!a.presence().leads());
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    links[0].cut(false);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(both(), (false, true), "the other one stays");
    // One that ends in order makes room at once.
    b.presence().end().await;
    let began = Instant::now();
    while !a.presence().leads() {
        sleep(Duration::from_millis(100)).await;
        assert_ne!(both(), (true, true));
    }
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
}
