//! Events of the server, as server-sent events.
//!
//! One hub numbers the events of the control and the status board, and keeps the last ones. A reader that comes back with
//! `Last-Event-ID` gets all events since, if they are still kept. If it missed some, or reads too slowly, it gets the event `lagged`.

pub(crate) mod body;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use xds_cache::status::{EventKind, News, StreamEvent, StreamId, StreamInfo};
use xds_cache::time::millis;
use xds_cache::{GroupName, Publisher, StatusBoard};
use xds_control::Control;
use xds_control::model::Event;

use crate::problem::Fault;

/// Numbers and keeps events. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct EventHub {
    shared: Arc<Shared>,
}

struct Shared {
    /// Tells this run of the server from others in the ids.
    run: u64,
    kept: Mutex<Kept>,
    sender: broadcast::Sender<Arc<Numbered>>,
    readers: Mutex<Readers>,
}

/// The readers, and when the transport last took something for each.
#[derive(Default)]
struct Readers {
    last: u64,
    taken_at: BTreeMap<u64, Instant>,
}

/// The events of one reader.
struct Reader<S> {
    events: S,
    hub: EventHub,
    number: u64,
}

struct Kept {
    next: u64,
    events: VecDeque<Arc<Numbered>>,
}

#[derive(Debug)]
struct Numbered {
    number: u64,
    name: &'static str,
    data: Value,
    about: About,
}

/// The objects that an event is about, which decide who sees it.
#[derive(Debug)]
pub(crate) enum About {
    /// None: everyone sees it.
    Nothing,
    /// A publication for the clients of these groups, or of so many that they are not told apart.
    Publication(Option<Arc<[GroupName]>>),
    /// A node with these groups.
    Node(Arc<[GroupName]>),
    /// An object by its text, as in [`ChangedObject::what`](xds_control::model::ChangedObject::what).
    Object(String),
    /// A wave deployment.
    Deployment(u64),
    /// The server as a whole: only callers without a scope see it.
    Server,
}

/// How many events are kept, and how many a slow reader may lag behind.
const CAPACITY: usize = 1_024;

/// How many groups of a publication are told apart. The events that are kept hold on to as many.
const MAX_GROUPS: usize = 100;

/// How many readers there may be: each costs a task of the runtime and a place in every broadcast.
pub(crate) const MAX_READERS: usize = 64;

/// A reader that has taken nothing for so long, not even the comments below, gives its place to a new one.
const DEAF_AFTER: Duration = Duration::from_secs(60);

/// How often a comment shows that the stream lives, in seconds: proxies give up after 30 to 60.
const KEEP_ALIVE_SECONDS: u64 = 15;

impl EventHub {
    /// A hub that collects from now on, in a task that ends with the server. Must be called in a runtime.
    #[must_use]
    pub fn start(control: &Control, board: &Arc<StatusBoard>, publisher: &Arc<Publisher>) -> Self {
        let (sender, _) = broadcast::channel(CAPACITY);
        let kept = Mutex::new(Kept { next: 1, events: VecDeque::new() });
        let run = millis(SystemTime::now());
        let hub = Self { shared: Arc::new(Shared { run, kept, sender, readers: Mutex::default() }) };
        let streams = Streams { board: Arc::downgrade(board), publisher: Arc::downgrade(publisher) };
        tokio::spawn(hub.clone().collect(control.events(), board.news(), streams));
        hub
    }

    /// Events after `last`, and those to come, as far as `shown` gives something to show for them; `None` if there are
    /// [`MAX_READERS`] already.
    pub(crate) fn read<F: Fn(&About, &Value) -> Option<Value> + Send + Sync + 'static>(
        self,
        last: Option<&str>,
        shown: F,
    ) -> Option<Sse<impl Stream<Item = Result<SseEvent, Infallible>> + use<F>>> {
        let number = self.enter(Instant::now())?;
        let reader = self.clone();
        let (missed, receiver) = self.follow(last);
        let from = (self, missed, receiver, shown);
        let events = stream::unfold(from, |(hub, mut missed, mut receiver, shown)| async move {
            loop {
                let event = match missed.pop_front() {
                    Some(event) => hub.write(&event, &shown),
                    None => match receiver.recv().await {
                        Ok(event) => hub.write(&event, &shown),
                        Err(RecvError::Lagged(n)) => {
                            let lagged = data(&body::Lagged { missed: Some(n) });
                            Some(SseEvent::default().event("lagged").data(lagged.to_string()))
                        }
                        Err(RecvError::Closed) => return None,
                    },
                };
                if let Some(event) = event {
                    return Some((event, (hub, missed, receiver, shown)));
                }
            }
        });
        let events = Reader { events: Box::pin(events), hub: reader, number };
        let keep_alive =
            KeepAlive::new().interval(Duration::from_secs(KEEP_ALIVE_SECONDS)).text("keep-alive");
        Some(Sse::new(events).keep_alive(keep_alive))
    }

    async fn collect(
        self,
        mut events: broadcast::Receiver<Event>,
        mut news: broadcast::Receiver<News>,
        streams: Streams,
    ) {
        loop {
            let told = tokio::select! {
                event = events.recv() => event.map(|event| Some(of_event(&event))),
                news = news.recv() => news.map(|news| streams.of_news(&news)),
            };
            match told {
                Ok(Some(event)) => self.tell(event),
                Ok(None) => {}
                Err(RecvError::Lagged(missed)) => {
                    self.tell(("lagged", data(&body::Lagged { missed: Some(missed) }), About::Nothing));
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn tell(&self, (name, data, about): Told) {
        let mut kept = self.lock();
        let event = Arc::new(Numbered { number: kept.next, name, data, about });
        kept.next += 1;
        if kept.events.len() >= CAPACITY {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::clone(&event));
        // Under the lock, so that a new reader gets each event once. No reader is no error.
        let _ = self.shared.sender.send(event);
    }

    /// Events after `last`, and those to come; the first value is `true` if events in between are lost.
    fn follow(&self, last: Option<&str>) -> (VecDeque<Arc<Numbered>>, broadcast::Receiver<Arc<Numbered>>) {
        let kept = self.lock();
        let receiver = self.shared.sender.subscribe();
        let Some(last) = last else { return (VecDeque::new(), receiver) };
        let number = last.split_once('-').and_then(|(run, number)| {
            (run == self.shared.run.to_string()).then(|| number.parse::<u64>().ok()).flatten()
        });
        let oldest = kept.events.front().map_or(kept.next, |event| event.number);
        let from = number.map_or(0, |number| number + 1);
        let mut missed: VecDeque<_> =
            kept.events.iter().filter(|event| event.number >= from).cloned().collect();
        if from < oldest {
            let data = data(&body::Lagged { missed: None });
            let number = oldest.saturating_sub(1);
            missed.push_front(Arc::new(Numbered { number, name: "lagged", data, about: About::Nothing }));
        }
        (missed, receiver)
    }

    /// A place for a reader: a free one, or that of one that has not read for long.
    fn enter(&self, now: Instant) -> Option<u64> {
        let mut readers = self.readers();
        if readers.taken_at.len() >= MAX_READERS {
            let is_deaf = |(_, at): &(&u64, &Instant)| now.saturating_duration_since(**at) >= DEAF_AFTER;
            let deaf = readers.taken_at.iter().filter(is_deaf).min_by_key(|(_, at)| **at)?;
            let number = *deaf.0;
            readers.taken_at.remove(&number);
        }
        readers.last += 1;
        let number = readers.last;
        readers.taken_at.insert(number, now);
        Some(number)
    }

    /// Takes down that a reader reads; `false` if it has no place any more.
    fn reads(&self, number: u64, now: Instant) -> bool {
        self.readers().taken_at.get_mut(&number).map(|at| *at = now).is_some()
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.shared.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, event: &Numbered, shown: impl Fn(&About, &Value) -> Option<Value>) -> Option<SseEvent> {
        let data = shown(&event.about, &event.data)?;
        let id = format!("{}-{}", self.shared.run, event.number);
        Some(SseEvent::default().id(id).event(event.name).data(data.to_string()))
    }
}

impl<S: Stream<Item = SseEvent> + Unpin> Stream for Reader<S> {
    type Item = Result<SseEvent, Infallible>;

    /// Called at least once in each keep-alive interval, as long as the client reads.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.hub.reads(self.number, Instant::now()) {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.events).poll_next(cx).map(|event| event.map(Ok))
    }
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        self.hub.readers().taken_at.remove(&self.number);
    }
}

impl fmt::Debug for EventHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventHub({} told)", self.lock().next - 1)
    }
}

/// The JSON of what an event says.
fn data(said: &impl Serialize) -> Value {
    serde_json::to_value(said).unwrap_or_default()
}

/// An event: its kind, what it says, and what it is about.
type Told = (&'static str, Value, About);

fn of_event(event: &Event) -> Told {
    match event {
        Event::Published { revision, source, summary, groups } => {
            let (source, summary) = (source.as_str(), summary.clone());
            let published = body::Published { revision: revision.0, source, summary };
            let groups = (groups.len() <= MAX_GROUPS).then(|| Arc::clone(groups));
            ("publish", data(&published), About::Publication(groups))
        }
        Event::FileError(diagnostic) => ("fileError", data(&Fault::of(diagnostic, "")), About::Server),
        Event::Unconfirmed { reason } => {
            ("held", data(&body::Held { reason: reason.clone() }), About::Server)
        }
        Event::Wave { deployment, phase, share, message } => {
            let share = share.map(|share| share.to_string());
            let (phase, message) = (phase.as_str(), message.clone());
            let told = data(&body::Deployment { id: *deployment, phase, share, message });
            ("wave", told, About::Deployment(*deployment))
        }
        Event::TestFailed { test, message } => {
            let failed = body::TestFailed { test: test.clone(), message: message.clone() };
            ("testFailed", data(&failed), About::Server)
        }
        Event::OverrideDropped { what, reason } => {
            let dropped = body::Dropped { what: what.clone(), reason: reason.clone() };
            ("overrideDropped", data(&dropped), About::Object(what.clone()))
        }
        Event::Rollout { rollout, event } => {
            let told = data(&body::RolloutEvent { rollout: rollout.clone(), event: data(event) });
            ("rollout", told, About::Object(format!("rollout/{rollout}")))
        }
        Event::Problem { message } => {
            ("problem", data(&body::Problem { message: message.clone() }), About::Server)
        }
    }
}

/// The streams that news are about, as long as the server runs.
struct Streams {
    board: Weak<StatusBoard>,
    publisher: Weak<Publisher>,
}

impl Streams {
    fn of_news(&self, news: &News) -> Option<Told> {
        match news {
            News::Connected(info) => Some(("connect", of_stream(info), self.about(info))),
            News::Disconnected(info) => Some(("disconnect", of_stream(info), self.about(info))),
            News::Stream { id, event } => self.of_answer(*id, event),
        }
    }

    /// The node of a stream that has just begun or ended, by the groups that it would be given now.
    fn about(&self, info: &StreamInfo) -> About {
        let publisher = self.publisher.upgrade();
        let view = publisher.and_then(|publisher| publisher.view_as(&info.node, &info.proofs).ok().flatten());
        About::Node(view.map(|view| Arc::clone(&view.key().groups)).unwrap_or_default())
    }

    fn of_answer(&self, id: StreamId, event: &StreamEvent) -> Option<Told> {
        let (sent, message) = match &event.kind {
            EventKind::Acked(sent) => (sent, None),
            EventKind::Nacked { sent, message, .. } => (sent, Some(message)),
            EventKind::Subscribed
            | EventKind::Standing(_)
            | EventKind::CameBack
            | EventKind::CameUpToDate
            | EventKind::Sent(_)
            | EventKind::Current(_)
            | EventKind::HeldBack
            | EventKind::GraceExpired => return None,
        };
        let stream = self.board.upgrade().and_then(|board| board.stream(id));
        let known = stream.map(|stream| {
            stream.with(|status| {
                let groups = status.view.as_ref().map(|view| Arc::clone(&view.groups));
                (status.info.node.id.clone(), groups.unwrap_or_default())
            })
        });
        let (node, groups) = known.unzip();
        let answered = body::Answered {
            node,
            stream: id.0,
            r#type: event.resource_type.type_url().to_owned(),
            version: sent.version_info.to_string(),
            revision: sent.revision.0,
        };
        let about = About::Node(groups.unwrap_or_default());
        Some(match message {
            None => ("ack", data(&answered), about),
            Some(message) => {
                ("nack", data(&body::Rejected { answered, message: message.to_string() }), about)
            }
        })
    }
}

fn of_stream(info: &StreamInfo) -> Value {
    data(&body::Stream {
        node: info.node.id.clone(),
        stream: info.id.0,
        address: info.address.to_string(),
        variant: info.variant.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_does_not_read_gives_its_place_to_a_new_one() {
        let (sender, _) = broadcast::channel(1);
        let kept = Mutex::new(Kept { next: 1, events: VecDeque::new() });
        let hub = EventHub { shared: Arc::new(Shared { run: 1, kept, sender, readers: Mutex::default() }) };
        let began = Instant::now();
        let numbers: Vec<u64> = (0..MAX_READERS).map(|_| hub.enter(began).unwrap()).collect();
        let later = began + DEAF_AFTER;
        assert_eq!(hub.enter(later - Duration::from_millis(1)), None);
        assert!(numbers[1..].iter().all(|number| hub.reads(*number, later)));
        assert!(hub.enter(later).is_some());
        assert!(!hub.reads(numbers[0], later), "it has no place any more");
        assert_eq!(hub.enter(later), None, "everybody else reads");
    }
}
