//! The audit trail: a line of JSON for every write, every refusal and every load of credentials.
//!
//! A [`Trail`] keeps the newest lines and writes all of them to a sink that it is given. Refusals of the same kind make one line a
//! minute with their count, so that nobody fills a disk by being refused.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use xds_units::rfc3339;

/// The place where lines go. One line is one call of `write_all`.
pub type Sink = Box<dyn Write + Send>;

/// The audit trail. Shared by everything that has something to record.
pub struct Trail {
    /// True if writes are refused while lines cannot be written.
    is_required: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sink: Option<Sink>,
    newest: VecDeque<Value>,
    /// Lines that could not be written.
    waiting: VecDeque<String>,
    /// Refusals of this minute, by kind.
    refused: HashMap<String, Refused>,
    problem: Option<String>,
    n_errors: u64,
}

struct Refused {
    since: SystemTime,
    /// How many came after the one that made a line.
    n_more: u64,
    last: Entry,
}

/// A line without its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry(Map<String, Value>);

impl Entry {
    /// An entry about an event, such as `api.write`, and its outcome: `allowed`, `denied`, `failed` or `error`.
    #[must_use]
    pub fn new(event: &'static str, outcome: &'static str) -> Self {
        Self::default().with("event", event).with("outcome", outcome)
    }

    /// Adds a field. Texts are cut at 256 bytes; null is left out.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let value = value.as_str().map(|text| Value::from(cut(text))).unwrap_or(value);
        if !value.is_null() {
            self.0.insert(field.to_owned(), value);
        }
        self
    }

    /// The text of a field, if it has it.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }
}

impl Trail {
    /// A trail that keeps the newest lines and writes none until it has a [sink](Self::set_sink). `is_required` refuses writes while
    /// lines cannot be written.
    #[must_use]
    pub fn new(is_required: bool) -> Self {
        Self { is_required, inner: Mutex::default() }
    }

    /// Writes to another sink from now on, first the lines that the former one did not take.
    pub fn set_sink(&self, sink: Sink) {
        let mut inner = self.inner();
        inner.sink = Some(sink);
        inner.flush();
    }

    /// Remembers that the sink cannot be opened.
    pub fn fail(&self, problem: &str) {
        self.inner().failed(problem);
    }

    /// Records an entry.
    pub fn record(&self, entry: Entry, now: SystemTime) {
        self.inner().record(entry, now);
    }

    /// Records a refusal. Those of the same `kind`, which names who and why, make one line a minute, written by [`tick`](Self::tick).
    /// Returns `true` for the first one.
    pub fn refuse(&self, kind: &str, entry: Entry, now: SystemTime) -> bool {
        let mut inner = self.inner();
        if let Some(refused) = inner.refused.get_mut(kind) {
            (refused.n_more, refused.last) = (refused.n_more + 1, entry);
        } else if inner.refused.len() < MAX_KINDS {
            let refused = Refused { since: now, n_more: 0, last: entry.clone() };
            inner.refused.insert(kind.to_owned(), refused);
            inner.record(entry.with("count", 1), now);
            return true;
        } else {
            // Nobody is told apart any more, until a minute is over.
            let others = inner.refused.entry(OTHERS.to_owned());
            let others = others.or_insert(Refused { since: now, n_more: 0, last: Entry::default() });
            (others.n_more, others.last) = (others.n_more + 1, entry);
        }
        false
    }

    /// Records the refusals of minutes that are over. To be called every few seconds.
    pub fn tick(&self, now: SystemTime) {
        self.inner().tell_refused(now);
    }

    /// The newest lines, the newest first, as far as they are kept.
    #[must_use]
    pub fn newest(&self, limit: usize) -> Vec<Value> {
        self.inner().newest.iter().rev().take(limit).cloned().collect()
    }

    /// The reason why lines cannot be written; `None` if they can. Tries again.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let mut inner = self.inner();
        inner.flush();
        inner.problem.clone()
    }

    /// The reason why nothing may be written to the server now, because it would not be on record.
    #[must_use]
    pub fn stops_writes(&self) -> Option<String> {
        self.is_required.then(|| self.problem()).flatten()
    }

    /// How many lines could not be written at once.
    #[must_use]
    pub fn n_errors(&self) -> u64 {
        self.inner().n_errors
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Trail {
    fn default() -> Self {
        Self::new(false)
    }
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail").field("is_required", &self.is_required).finish_non_exhaustive()
    }
}

impl Inner {
    fn record(&mut self, entry: Entry, now: SystemTime) {
        let mut line = Map::from_iter([("ts".to_owned(), Value::from(rfc3339(now)))]);
        line.extend(entry.0);
        let line = Value::Object(line);
        let text = format!("{line}\n");
        if self.newest.len() >= MAX_NEWEST {
            self.newest.pop_front();
        }
        self.newest.push_back(line);
        if self.sink.is_none() && self.problem.is_none() {
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(text);
        self.flush();
    }

    fn tell_refused(&mut self, now: SystemTime) {
        let is_over = |refused: &Refused| {
            // A clock that goes back ends a minute too, so that no kind stays for ever.
            now.duration_since(refused.since).map_or(true, |passed| passed >= MINUTE)
        };
        let over: Vec<String> =
            self.refused.iter().filter(|(_, it)| is_over(it)).map(|(kind, _)| kind.clone()).collect();
        for refused in over.iter().filter_map(|kind| self.refused.remove(kind)).collect::<Vec<_>>() {
            if refused.n_more > 0 {
                self.record(refused.last.with("count", refused.n_more), now);
            }
        }
    }

    fn flush(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        while let Some(line) = self.waiting.front() {
            match sink.write_all(line.as_bytes()).and_then(|()| sink.flush()) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(error) => return self.failed(&reason(&error)),
            }
        }
        self.problem = None;
    }

    fn failed(&mut self, problem: &str) {
        self.n_errors += 1;
        self.problem = Some(problem.to_owned());
    }
}

fn reason(error: &io::Error) -> String {
    format!("the audit log cannot be written: {error}")
}

/// At most [`MAX_TEXT_BYTES`] of a text; a longer one ends with `...`.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(MAX_TEXT_BYTES)])
}

const MINUTE: Duration = Duration::from_secs(60);
/// Lines that are kept: about 500 KB.
const MAX_NEWEST: usize = 1_000;
/// Lines that wait until they can be written; older ones are lost then.
const MAX_WAITING: usize = 1_000;
/// Kinds of refusals that are told apart in a minute.
const MAX_KINDS: usize = 1_000;
const OTHERS: &str = "(others)";
/// A text that a client wrote has no end of its own.
const MAX_TEXT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;

    /// A file that may be full.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(String, bool)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            if disk.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn lines(disk: &Disk) -> Vec<Value> {
        disk.0.lock().unwrap().0.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_entry_is_one_line_whatever_a_client_wrote() {
        let (trail, disk) = (Trail::default(), Disk::default());
        trail.set_sink(Box::new(disk.clone()));
        let forged = "x\n{\"event\":\"api.write\"}\u{202e}";
        let entry = Entry::new("api.denied", "denied").with("node", forged).with("none", Value::Null);
        trail.record(entry.with("long", "é".repeat(1_000)), at(0));
        let [line] = &lines(&disk)[..] else { panic!("not one line") };
        assert_eq!((&line["ts"], &line["node"]), (&"1970-01-01T00:00:00.000Z".into(), &forged.into()));
        assert!(line.get("none").is_none() && line["long"].as_str().unwrap().len() <= 260);
        assert_eq!(trail.newest(10), std::slice::from_ref(line));
    }

    #[test]
    fn refusals_of_a_minute_are_one_line_with_their_count() {
        let (trail, disk) = (Trail::default(), Disk::default());
        trail.set_sink(Box::new(disk.clone()));
        for second in 0..50 {
            trail.refuse("a", Entry::new("xds.denied", "denied").with("n", second), at(second));
        }
        trail.refuse("b", Entry::new("xds.denied", "denied"), at(50));
        assert_eq!(lines(&disk).len(), 2);
        trail.tick(at(59));
        assert_eq!(lines(&disk).len(), 2);
        trail.tick(at(60));
        let all = lines(&disk);
        assert_eq!((all.len(), &all[2]["count"], &all[2]["n"]), (3, &49.into(), &49.into()));
        trail.refuse("a", Entry::new("xds.denied", "denied"), at(61));
        assert_eq!(lines(&disk).len(), 4, "a new minute begins with a line");
    }

    #[test]
    fn many_kinds_of_refusals_are_bounded() {
        let trail = Trail::default();
        for kind in 0..5_000 {
            trail.refuse(&kind.to_string(), Entry::new("api.denied", "denied"), at(0));
        }
        assert_eq!(trail.inner().refused.len(), MAX_KINDS + 1);
        trail.tick(at(60));
        assert_eq!(trail.newest(1)[0]["count"], 4_000);
        assert_eq!(trail.newest(5_000).len(), MAX_NEWEST);
        assert!(trail.inner().refused.is_empty());
    }

    #[test]
    fn lines_that_cannot_be_written_are_written_later() {
        let (trail, disk) = (Trail::new(true), Disk::default());
        trail.set_sink(Box::new(disk.clone()));
        disk.0.lock().unwrap().1 = true;
        trail.record(Entry::new("api.write", "allowed"), at(0));
        assert!(trail.stops_writes().is_some_and(|why| why.starts_with("the audit log cannot be written")));
        assert!(Trail::new(false).stops_writes().is_none() && trail.n_errors() > 0);
        disk.0.lock().unwrap().1 = false;
        assert_eq!(trail.stops_writes(), None);
        assert_eq!(lines(&disk).len(), 1);
    }
}
