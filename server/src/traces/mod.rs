//! Traces of changes (`--otlp-endpoint`): from a load of files or a write to the clients' answers, sent to an OpenTelemetry collector.
//!
//! A change is one trace. Its root has the stages of the work as children, and the stage `publish` has a span for each response with the
//! change, from when it was sent until the client answered. Clients begin to answer before the publication is over, so the
//! ids are chosen before it begins.
//!
//! Nothing here waits: a span that finds no room is dropped and counted, and so is a batch that the [collector](export) does not take.

mod export;
mod headers;
mod messages;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use xds_cache::status::{Sent, StreamId};
use xds_cache::{ResourceType, Revision};
use xds_control::model::TraceParent;
use xds_control::{Changed, Stage, Stages};

pub(crate) use export::{Collector, Exporter};
use export::{PATIENCE, Queued};
use messages::{KeyValue, Kind, Span, Status, StatusCode, cut, nanos, number, text};

use crate::metrics::{Metrics, SpanFate};

/// The traces that are being made. Shared by reference; every call is short.
pub(crate) struct Traces {
    /// The share of changes that are traced, from 0 to 1.
    sample: f64,
    random: SystemRandom,
    metrics: Arc<Metrics>,
    spans: mpsc::Sender<Queued>,
    open: Mutex<BTreeMap<Revision, Trace>>,
}

/// A client's answer to a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// It accepted it.
    Ack,
    /// It rejected it, in these words.
    Nack(&'a str),
}

/// The trace of a publication.
struct Trace {
    id: [u8; 16],
    /// The span of the caller that the root is a part of.
    parent: Option<[u8; 8]>,
    root: [u8; 8],
    /// The span of the publication.
    publish: [u8; 8],
    began: Instant,
    /// True once the root and the stages are told.
    is_told: bool,
    /// Whose responses have spans; at most [`MAX_STREAMS`].
    streams: HashSet<StreamId>,
    /// The responses that are not answered.
    sent: HashMap<(StreamId, u64), Waiting>,
}

/// A response without an answer.
struct Waiting {
    at: Instant,
    span: [u8; 8],
    attributes: Vec<KeyValue>,
}

impl Traces {
    /// Traces this share of the changes, and gives them to the exporter, which must be [run](Exporter::run).
    pub(crate) fn new(sample: f64, collector: Collector, metrics: Arc<Metrics>) -> (Arc<Self>, Exporter) {
        let (spans, queue) = mpsc::channel(MAX_QUEUED);
        let traces = Self {
            sample,
            random: SystemRandom::new(),
            metrics: Arc::clone(&metrics),
            spans,
            open: Mutex::default(),
        };
        (Arc::new(traces), Exporter::new(collector, queue, metrics))
    }

    /// Ends old traces, for ever.
    pub(crate) async fn tend(self: Arc<Self>) {
        loop {
            sleep(LOOK_INTERVAL).await;
            self.close_old(&mut self.lock(), Instant::now());
        }
    }

    /// Ends all traces, and waits until the exporter has dealt with their spans, or does not get on.
    pub(crate) async fn end(&self) {
        let open = std::mem::take(&mut *self.lock());
        let now = Instant::now();
        open.into_values().for_each(|trace| self.close(trace, now));
        let (flushed, is_flushed) = oneshot::channel();
        let flush = async {
            // Without an exporter nobody is waited for.
            if self.spans.send(Queued::Flush(flushed)).await.is_ok() {
                let _ = is_flushed.await;
            }
        };
        let _ = timeout(PATIENCE, flush).await;
    }

    /// A revision is about to be published. If it is a part of a caller's span, it is traced exactly if that is, and in the same trace.
    pub(crate) fn publishes(&self, revision: Revision, parent: Option<TraceParent>) {
        let now = Instant::now();
        let mut open = self.lock();
        self.close_old(&mut open, now);
        if !parent.map_or_else(|| self.is_sampled(), |parent| parent.is_sampled) {
            return;
        }
        let trace = Trace {
            id: parent.map_or_else(|| self.id(), |parent| parent.trace_id),
            parent: parent.map(|parent| parent.span_id),
            root: self.id(),
            publish: self.id(),
            began: now,
            is_told: false,
            streams: HashSet::new(),
            sent: HashMap::new(),
        };
        // What was served before it was recorded may be published twice.
        if let Some(again) = open.insert(revision, trace) {
            self.close(again, now);
        }
    }

    /// It was published.
    pub(crate) fn changed(&self, changed: Changed<'_>) {
        let mut open = self.lock();
        let Some(trace) = open.get_mut(&changed.revision).filter(|trace| !trace.is_told) else { return };
        trace.is_told = true;
        let attributes = vec![
            number("xds.revision", changed.revision.0),
            text("xds.source", changed.source.as_str()),
            text("xds.summary", changed.summary),
        ];
        let mut spans = vec![trace.root_span(changed.stages, attributes)];
        for (stage, began, ended) in changed.stages.iter() {
            let id = if stage == Stage::Publish { trace.publish } else { self.id() };
            let span = trace.span(stage.as_str(), (id, &trace.root), (began, ended));
            spans.push(Span { attributes: vec![number("xds.revision", changed.revision.0)], ..span });
        }
        drop(open);
        spans.into_iter().for_each(|span| self.export(span));
    }

    /// A response is sent to a client.
    pub(crate) fn sent(&self, stream: StreamId, node_id: &str, resource_type: &ResourceType, sent: &Sent) {
        let mut open = self.lock();
        let Some(trace) = open.get_mut(&sent.revision) else { return };
        if trace.streams.len() >= MAX_STREAMS && !trace.streams.contains(&stream) {
            return;
        }
        trace.streams.insert(stream);
        if trace.sent.len() >= MAX_WAITING {
            return;
        }
        let attributes = vec![
            number("xds.revision", sent.revision.0),
            text("xds.node.id", node_id),
            text("xds.type", resource_type.type_url()),
            text("xds.version", &sent.version_info),
        ];
        trace.sent.insert((stream, sent.nonce), Waiting { at: Instant::now(), span: self.id(), attributes });
    }

    /// A client answered a response.
    pub(crate) fn answered(&self, stream: StreamId, sent: &Sent, answer: Answer<'_>) {
        let mut open = self.lock();
        let Some(trace) = open.get_mut(&sent.revision) else { return };
        let Some(waiting) = trace.sent.remove(&(stream, sent.nonce)) else { return };
        let span = trace.of_response(waiting, Some(answer), Instant::now());
        drop(open);
        self.export(span);
    }

    /// Ends traces that are old, and the oldest if there are too many. Their unanswered responses are told as such.
    fn close_old(&self, open: &mut BTreeMap<Revision, Trace>, now: Instant) {
        while let Some(oldest) = open.first_entry() {
            let is_old = now.duration_since(oldest.get().began) >= MAX_AGE;
            if !is_old && open.len() < MAX_OPEN {
                return;
            }
            if let Some((_, trace)) = open.pop_first() {
                self.close(trace, now);
            }
        }
    }

    fn close(&self, mut trace: Trace, now: Instant) {
        for (_, waiting) in std::mem::take(&mut trace.sent) {
            self.export(trace.of_response(waiting, None, now));
        }
    }

    fn export(&self, span: Span) {
        if self.spans.try_send(Queued::Span(span)).is_err() {
            self.metrics.spans(SpanFate::Dropped, 1);
        }
    }

    fn is_sampled(&self) -> bool {
        let [a, b, c, d] = self.id();
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.sample * (f64::from(u32::MAX) + 1.0)
    }

    fn id<const N: usize>(&self) -> [u8; N] {
        let mut id = [0; N];
        // Without randomness, which does not happen, the ids would be invalid, and the collector would refuse the spans.
        let _ = self.random.fill(&mut id);
        id
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Revision, Trace>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Traces({} open)", self.lock().len())
    }
}

impl Trace {
    fn root_span(&self, stages: &Stages, attributes: Vec<KeyValue>) -> Span {
        let parent = self.parent.as_ref().map_or(&[][..], |parent| parent);
        let span = self.span("change", (self.root, parent), (stages.began(), Instant::now()));
        let kind = if self.parent.is_some() { Kind::Server } else { Kind::Internal };
        Span { kind: i32::from(kind), attributes, ..span }
    }

    fn of_response(&self, waiting: Waiting, answer: Option<Answer<'_>>, now: Instant) -> Span {
        let Waiting { at, span, mut attributes } = waiting;
        let (outcome, status) = match answer {
            None => ("unanswered", None),
            Some(Answer::Ack) => ("ack", Some((StatusCode::Ok, ""))),
            Some(Answer::Nack(message)) => ("nack", Some((StatusCode::Error, message))),
        };
        attributes.push(text("xds.outcome", outcome));
        let status =
            status.map(|(code, message)| Status { message: cut(message).to_owned(), code: i32::from(code) });
        let span = self.span("send", (span, &self.publish), (at, now));
        Span { kind: i32::from(Kind::Server), attributes, status, ..span }
    }

    fn span(&self, name: &str, (id, parent): ([u8; 8], &[u8]), (began, ended): (Instant, Instant)) -> Span {
        Span {
            trace_id: self.id.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.to_vec(),
            name: name.to_owned(),
            kind: i32::from(Kind::Internal),
            start_time_unix_nano: nanos(began),
            end_time_unix_nano: nanos(ended),
            attributes: vec![],
            status: None,
        }
    }
}

/// Spans that wait to be sent: about a kilobyte each.
const MAX_QUEUED: usize = 4_096;
/// Changes whose answers are waited for.
const MAX_OPEN: usize = 64;
/// How long they are.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Streams with spans in one trace. Tools show no more of them.
const MAX_STREAMS: usize = 100;
/// Unanswered responses of one trace: one of each type for all streams.
const MAX_WAITING: usize = 1_000;
/// How often it is looked whether one is old.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use xds_control::model::ChangeSource;

    use super::messages::Value;
    use super::*;

    fn traces(sample: f64) -> (Traces, mpsc::Receiver<Queued>) {
        let (spans, queue) = mpsc::channel(MAX_QUEUED);
        let (random, metrics) = (SystemRandom::new(), Arc::new(Metrics::of_nobody()));
        (Traces { sample, random, metrics, spans, open: Mutex::default() }, queue)
    }

    fn change(traces: &Traces, revision: u64) {
        let mut stages = Stages::begin();
        stages.end(Stage::Propose);
        traces.publishes(Revision(revision), None);
        stages.end(Stage::Publish);
        let (source, summary) = (ChangeSource::File, "a load");
        traces.changed(Changed { revision: Revision(revision), source, summary, stages: &stages });
    }

    fn response(revision: u64, nonce: u64) -> Sent {
        Sent { nonce, version_info: "v".into(), revision: Revision(revision), is_final: true }
    }

    fn all(queue: &mut mpsc::Receiver<Queued>) -> Vec<Span> {
        let queued = std::iter::from_fn(|| queue.try_recv().ok());
        let spans = queued.filter_map(|queued| match queued {
            Queued::Span(span) => Some(span),
            Queued::Flush(_) => None,
        });
        spans.collect()
    }

    fn outcome(span: &Span) -> Option<String> {
        let found = span.attributes.iter().find(|attribute| attribute.key == "xds.outcome")?;
        match found.value.as_ref()?.value.as_ref()? {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) => None,
        }
    }

    #[test]
    fn a_change_is_one_trace_down_to_the_answers() {
        let (traces, mut queue) = traces(1.0);
        traces.publishes(Revision(7), None);
        // A client may be faster than the publication.
        traces.sent(StreamId(1), "a", &ResourceType::Cluster, &response(7, 1));
        traces.answered(StreamId(1), &response(7, 1), Answer::Nack("no"));
        let early = all(&mut queue);
        let mut stages = Stages::begin();
        stages.end(Stage::Commit);
        stages.end(Stage::Publish);
        let (source, summary) = (ChangeSource::Api, "a write");
        traces.changed(Changed { revision: Revision(7), source, summary, stages: &stages });
        traces.answered(StreamId(1), &response(7, 1), Answer::Ack);
        let spans = all(&mut queue);
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["change", "commit", "publish"], "an answer counts once");
        let [root, commit, publish] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((&commit.parent_span_id, &publish.parent_span_id), (&root.span_id, &root.span_id));
        assert_eq!((early.len(), &early[0].parent_span_id), (1, &publish.span_id));
        assert!(spans.iter().chain(&early).all(|span| span.trace_id == root.trace_id));
        assert_eq!(outcome(&early[0]).as_deref(), Some("nack"));
        assert_eq!(early[0].status.as_ref().map(|status| status.message.as_str()), Some("no"));
    }

    #[test]
    fn a_change_joins_the_trace_of_its_caller() {
        // The caller has decided what is traced, whatever share of the other changes is.
        let (traces, mut queue) = traces(0.0);
        let parent = TraceParent { trace_id: [7; 16], span_id: [8; 8], is_sampled: true };
        for (revision, parent) in
            [(1, Some(parent)), (2, None), (3, Some(TraceParent { is_sampled: false, ..parent }))]
        {
            traces.publishes(Revision(revision), parent);
            traces.sent(StreamId(1), "a", &ResourceType::Cluster, &response(revision, 1));
            traces.answered(StreamId(1), &response(revision, 1), Answer::Ack);
            let mut stages = Stages::begin();
            stages.end(Stage::Publish);
            let (source, summary) = (ChangeSource::Api, "a write");
            traces.changed(Changed { revision: Revision(revision), source, summary, stages: &stages });
        }
        let spans = all(&mut queue);
        let [send, root, publish] = &spans[..] else { panic!("{spans:?}") };
        assert!(spans.iter().all(|span| span.trace_id == [7; 16]), "{spans:?}");
        assert_eq!((root.parent_span_id.as_slice(), root.kind), (&[8; 8][..], i32::from(Kind::Server)));
        assert_eq!((&publish.parent_span_id, &send.parent_span_id), (&root.span_id, &publish.span_id));
    }

    #[test]
    fn a_response_that_is_not_answered_is_told_when_the_trace_ends() {
        let (traces, mut queue) = traces(1.0);
        change(&traces, 1);
        traces.sent(StreamId(1), "a", &ResourceType::Cluster, &response(1, 1));
        all(&mut queue);
        let later = Instant::now() + MAX_AGE;
        traces.close_old(&mut traces.lock(), later);
        let told: Vec<_> = all(&mut queue).iter().filter_map(outcome).collect();
        assert_eq!(told, ["unanswered"]);
        assert!(traces.lock().is_empty());
    }

    #[test]
    fn nothing_grows_without_bound() {
        let (traces, mut queue) = traces(1.0);
        for revision in 1..=3_000 {
            change(&traces, revision);
        }
        assert_eq!(traces.lock().len(), MAX_OPEN);
        for stream in 0..2_000 {
            for nonce in 0..20 {
                traces.sent(StreamId(stream), "a", &ResourceType::Cluster, &response(3_000, nonce));
            }
        }
        let open = traces.lock();
        let trace = &open[&Revision(3_000)];
        assert_eq!((trace.streams.len(), trace.sent.len()), (MAX_STREAMS, MAX_WAITING));
        drop(open);
        let n_dropped = 3_000 * 3 - MAX_QUEUED;
        let text = traces.metrics.render();
        assert!(
            text.contains(&format!("xds_trace_spans_total{{result=\"dropped\"}} {n_dropped}\n")),
            "{text}"
        );
        assert_eq!(all(&mut queue).len(), MAX_QUEUED);
    }

    #[test]
    fn a_share_of_the_changes_is_traced() {
        for (sample, expected) in [(0.0, 0..=0), (0.5, 300..=700), (1.0, 1_000..=1_000)] {
            let (traces, mut queue) = traces(sample);
            (1..=1_000).for_each(|revision| change(&traces, revision));
            let n_traced = all(&mut queue).iter().filter(|span| span.name == "change").count();
            assert!(expected.contains(&n_traced), "{sample}: {n_traced}");
        }
    }
}
