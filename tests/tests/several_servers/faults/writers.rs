//! Writers, who read and write objects at all servers and remember what they were told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http::StatusCode;
use tokio::time::{sleep, timeout};
use xds_tests::http::{Answer, Http};
use xds_tests::random::Random;
use xds_tests::seen::plain_cluster;

use crate::faults::checker::{Kind, Operation};
use crate::faults::world::{Address, N_SERVERS};

/// What all writers share.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) addresses: Vec<Address>,
    begun: Instant,
    /// The last value that was given to a write: each has its own.
    last_value: AtomicU64,
    /// The newest revision that a write was told, and when that write was called.
    newest: Mutex<(u64, u64)>,
    records: Mutex<Vec<Record>>,
    counts: Mutex<BTreeMap<String, u64>>,
    pub(crate) is_over: AtomicBool,
}

/// An operation that a writer was answered, or gave up.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) object: usize,
    pub(crate) operation: Operation,
    /// Of an acknowledged write, its revision; of a read, the one that it asked for at least.
    pub(crate) revision: Option<u64>,
}

/// The result of asking one server once.
enum Attempt {
    Done(u64),
    /// The object was another one.
    Refused,
    /// It has no effect.
    NotDone,
    /// It may have an effect, now or later.
    Unknown,
}

impl Board {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        Self {
            addresses,
            begun: Instant::now(),
            last_value: AtomicU64::new(0),
            newest: Mutex::new((0, 0)),
            records: Mutex::default(),
            counts: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often things happened, by name.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn count(&self, what: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The newest acknowledged revision.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn record(&self, object: usize, operation: Operation, revision: Option<u64>) {
        if let (Some(revision), Kind::Write(_) | Kind::Exchange { .. }) = (revision, operation.kind) {
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            *newest = (*newest).max((revision, operation.called));
        }
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(Record {
            object,
            operation,
            revision,
        });
    }
}

/// Writes and reads until the run is over.
///
/// # Errors
///
/// If an answer is none of those that the documentation names.
pub(crate) async fn write(board: Arc<Board>, mut random: Random) -> Result<()> {
    while !board.is_over() {
        let object = usize::try_from(random.within(0..N_OBJECTS as u64))?;
        match random.within(0..10) {
            0..3 => drop(read(&board, object, &mut random).await?),
            3..6 => put(&board, object, None, &mut random).await?,
            _ => {
                if let Some(found) = read(&board, object, &mut random).await? {
                    put(&board, object, Some(found), &mut random).await?;
                }
            }
        }
        sleep(Duration::from_millis(random.within(20..300))).await;
    }
    Ok(())
}

/// Writes each object once.
pub(crate) async fn write_all(board: &Board, random: &mut Random) -> Result<()> {
    for object in 0..N_OBJECTS {
        put(board, object, None, random).await?;
    }
    Ok(())
}

/// Reads at any server, the follower too, what is at least as new as the newest acknowledged revision. `None` without an answer.
async fn read(board: &Board, object: usize, random: &mut Random) -> Result<Option<(u64, String)>> {
    let (revision, known_since) = *board.newest.lock().unwrap_or_else(PoisonError::into_inner);
    let address = board.addresses[usize::try_from(random.within(0..board.addresses.len() as u64))?];
    let url = format!("http://{}{}?minRevision={revision}", address.admin, path(object));
    let Ok(Ok(answer)) = timeout(ATTEMPT, Http::new().get(&url)).await else { return Ok(None) };
    if answer.status == StatusCode::SERVICE_UNAVAILABLE {
        return Ok(None);
    }
    let answer = answer.success()?;
    let value = answer.json()?;
    let seconds = value["connect_timeout"].as_str().with_context(|| format!("a cluster: {value}"))?;
    let found = seconds.trim_end_matches('s').parse()?;
    // A server answers from what it has published: that is not older than the revision, but may be older than what another server has
    // answered meanwhile. So the read may take effect from the time on at which that revision was not there yet.
    let operation = Operation { called: known_since, returned: Some(board.now()), kind: Kind::Read(found) };
    board.record(object, operation, Some(revision));
    board.count("reads");
    Ok(Some((found, answer.header("etag").to_owned())))
}

/// Sets an object to a new value, at one server after the other until one has an answer. With `found`, only if it is still that.
async fn put(board: &Board, object: usize, found: Option<(u64, String)>, random: &mut Random) -> Result<()> {
    let new = board.last_value.fetch_add(1, Ordering::SeqCst) + 1;
    let kind = match &found {
        Some((expected, _)) => Kind::Exchange { expected: *expected, new },
        None => Kind::Write(new),
    };
    let tag = found.map(|(_, tag)| tag);
    let called = board.now();
    let mut is_unsure = false;
    while board.now() - called < GIVE_UP_NS {
        let server = usize::try_from(random.within(0..N_SERVERS as u64))?;
        match attempt(board, server, object, new, tag.as_deref()).await? {
            Attempt::Done(revision) => {
                let operation = Operation { called, returned: Some(board.now()), kind };
                board.record(object, operation, Some(revision));
                board.count("acknowledged writes");
                if is_unsure {
                    board.count("unknown outcomes resolved by a repeat");
                }
                return Ok(());
            }
            // An earlier attempt may still be done, by a server that knows more than the one that refused.
            Attempt::Refused => {
                board.count("conflicts (412)");
                if !is_unsure {
                    return Ok(());
                }
                break;
            }
            Attempt::NotDone => {}
            Attempt::Unknown => {
                board.count("unknown outcomes");
                is_unsure = true;
            }
        }
        sleep(Duration::from_millis(random.within(10..200))).await;
    }
    if is_unsure {
        board.count("outcomes that stayed unknown");
        board.record(object, Operation { called, returned: None, kind }, None);
    }
    Ok(())
}

async fn attempt(
    board: &Board,
    server: usize,
    object: usize,
    new: u64,
    tag: Option<&str>,
) -> Result<Attempt> {
    let url = format!("http://{}{}", board.addresses[server].admin, path(object));
    let mut request = http::Request::put(url)
        .header("content-type", "application/json")
        .header("x-actor", format!("value-{new}"))
        .header("idempotency-key", format!("value-{new}"));
    if let Some(tag) = tag {
        request = request.header("if-match", tag);
    }
    let request = request.body(plain_cluster(&name(object), new).to_string().into())?;
    match timeout(ATTEMPT, Http::new().send(request)).await {
        Ok(Ok(answer)) => judge(board, &answer).with_context(|| format!("value {new} at server {server}")),
        Ok(Err(_)) | Err(_) => Ok(Attempt::Unknown),
    }
}

fn judge(board: &Board, answer: &Answer) -> Result<Attempt> {
    let body = answer.json()?;
    if answer.status.is_success() {
        return Ok(Attempt::Done(body["revision"].as_u64().with_context(|| format!("no revision: {body}"))?));
    }
    let problem = body["type"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    board.count(&format!("answers {} {problem}", answer.status.as_u16()));
    match (answer.status, problem) {
        (StatusCode::PRECONDITION_FAILED, _) => Ok(Attempt::Refused),
        (StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown") => Ok(Attempt::Unknown),
        (StatusCode::SERVICE_UNAVAILABLE, _) | (StatusCode::INSUFFICIENT_STORAGE, "store-full") => {
            Ok(Attempt::NotDone)
        }
        (status, _) => anyhow::bail!("{status}: {body}"),
    }
}

/// The name of an object.
pub(crate) fn name(object: usize) -> String {
    format!("object-{object}")
}

fn path(object: usize) -> String {
    format!("/v1/groups/default/resources/clusters/{}", name(object))
}

pub(crate) const N_OBJECTS: usize = 5;
/// A little longer than a server takes to say that an outcome is unknown.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Longer than any fault of the run.
const GIVE_UP_NS: u64 = 60_000_000_000;
