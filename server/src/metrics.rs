//! The metrics, and their form for Prometheus.
//!
//! Label values come from closed lists; all other values become `other`.

mod access;
mod agent;
mod canaries;
mod certificates;
mod labels;
mod process;
mod requests;
mod scrape;
mod servers;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use xds_access::{AuthCounts, Trail};
use xds_api::counts::RequestCounts;
use xds_api::rollouts::Rollouts;
use xds_cache::loads::Recorded;
use xds_cache::status::Variant;
use xds_cache::wave::Share;
use xds_cache::{Publisher, Reason, Refusals, ResourceType, Revision};
use xds_control::model::wave::WavePhase;
use xds_control::{Roster, SHARES};
use xds_rollout::Phase;
use xds_routes::conditions::GrpcFeature;

use crate::listen::Tls;
use crate::metrics::access::AccessCounts;
use crate::metrics::agent::AgentCounts;
use crate::metrics::canaries::Canaries;
use crate::metrics::certificates::Certificates;
use crate::metrics::labels::{OTHER, type_name};
use crate::metrics::process::Process;
use crate::metrics::requests::ApiRequests;
use crate::metrics::scrape::Scrape;
use crate::metrics::servers::ServerCounts;
pub(crate) use crate::metrics::servers::Servers;
use crate::spiffe::Agent;

/// The metrics of the process. Shared by reference; every call is short.
pub struct Metrics {
    registry: Registry,
    streams: Family<VariantLabel, Gauge>,
    requests: Family<RequestLabels, Counter>,
    responses: Family<TypeLabel, Counter>,
    response_bytes: Family<TypeLabel, Counter>,
    nacks: Family<TypeLabel, Counter>,
    would_deny: Family<ReasonLabel, Counter>,
    held_back: Family<TypeLabel, Counter>,
    grace_expired: Family<TypeLabel, Counter>,
    publications: Family<SourceLabel, Counter>,
    publish_to_ack: Histogram,
    spread: Family<ShareLabel, Histogram>,
    waits: Gauge<f64, AtomicU64>,
    /// When the oldest publication was made that a client has not answered.
    waits_since: Mutex<Option<Instant>>,
    problems: Family<SubjectLabel, Gauge>,
    trace_spans: Family<ResultLabel, Counter>,
    canaries: Arc<OnceLock<Weak<dyn Rollouts>>>,
    aged: Counter,
    shed: Counter,
    newer_clients_left: Counter,
    load_streams: Gauge,
    load_reports: Counter,
    load_reports_left_out: Family<ReasonLabel, Counter>,
    rollouts: Family<PhaseLabel, Gauge>,
    file_errors: Gauge,
    route_tests: Family<ResultLabel, Gauge>,
    oracle_questions: Counter,
    oracle_resources: Family<ResultLabel, Counter>,
    oracle_seconds: Counter<f64, AtomicU64>,
    waves: Family<PhaseLabel, Counter>,
    wave_share: Gauge<f64, AtomicU64>,
    ready: Gauge,
    grpc_unsupported: Family<FeatureLabel, Gauge>,
    /// When the last publications were made, the oldest first.
    published: Mutex<VecDeque<(Revision, Instant)>>,
}

/// The source of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationSource {
    /// Watched files.
    Files,
    /// A write through the admin API.
    Api,
    /// The store: at start, or by another replica.
    Store,
}

/// What became of a span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanFate {
    /// The collector has it.
    Sent,
    /// There was no room for it.
    Dropped,
    /// The collector did not take it.
    Failed,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It accepted a response.
    Ack,
    /// It rejected a response.
    Nack,
    /// It answered nothing.
    Subscribe,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VariantLabel {
    variant: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    arch: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabel {
    share: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SubjectLabel {
    subject: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    r#type: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FeatureLabel {
    feature: &'static str,
}

impl Metrics {
    /// Nothing has happened yet. The contents of `publisher`, `roster`, `refusals` and `tls` are read at each scrape.
    #[must_use]
    pub(crate) fn new(
        publisher: Arc<Publisher>,
        roster: Arc<Roster>,
        refusals: Arc<Refusals>,
        tls: Vec<Arc<Tls>>,
    ) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            streams: Family::default(),
            requests: Family::default(),
            responses: Family::default(),
            response_bytes: Family::default(),
            nacks: Family::default(),
            would_deny: Family::default(),
            held_back: Family::default(),
            grace_expired: Family::default(),
            publications: Family::default(),
            publish_to_ack: Histogram::new(PUBLISH_TO_ACK_BUCKETS),
            spread: Family::new_with_constructor(|| Histogram::new(PUBLISH_TO_ACK_BUCKETS)),
            waits: Gauge::default(),
            waits_since: Mutex::default(),
            problems: Family::default(),
            trace_spans: Family::default(),
            canaries: Arc::default(),
            aged: Counter::default(),
            shed: Counter::default(),
            newer_clients_left: Counter::default(),
            load_streams: Gauge::default(),
            load_reports: Counter::default(),
            load_reports_left_out: Family::default(),
            rollouts: Family::default(),
            file_errors: Gauge::default(),
            route_tests: Family::default(),
            oracle_questions: Counter::default(),
            oracle_resources: Family::default(),
            oracle_seconds: Counter::default(),
            waves: Family::default(),
            wave_share: Gauge::default(),
            ready: Gauge::default(),
            grpc_unsupported: Family::default(),
            published: Mutex::default(),
        };
        metrics.begin_at_zero();
        metrics.grpc_unsupported(&BTreeMap::new());
        metrics.register();
        metrics.registry.register_collector(Box::new(Canaries(Arc::clone(&metrics.canaries))));
        metrics.registry.register_collector(Box::new(Scrape::new(publisher, roster, refusals)));
        metrics.registry.register_collector(Box::new(Process));
        metrics.registry.register_collector(Box::new(Certificates(tls)));
        metrics
    }

    /// Those of a server that nobody is connected to, and that serves nothing.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        let publisher = Arc::new(Publisher::new());
        let roster = Arc::new(Roster::new(Arc::clone(&publisher), xds_cache::StatusBoard::new()));
        Self::new(publisher, roster, Arc::default(), vec![])
    }

    /// Also shows requests by how they were recognised, and the state of the audit log.
    pub(crate) fn with_access(mut self, counts: Arc<AuthCounts>, trail: Arc<Trail>) -> Self {
        self.registry.register_collector(Box::new(AccessCounts(counts, trail)));
        self
    }

    /// Also shows requests to the admin API.
    pub(crate) fn with_requests(mut self, counts: Arc<RequestCounts>) -> Self {
        self.registry.register_collector(Box::new(ApiRequests(counts)));
        self
    }

    /// Also shows how the SPIFFE agent is, if there is one.
    pub(crate) fn with_agent(mut self, agent: Option<Arc<Agent>>) -> Self {
        if let Some(agent) = agent {
            self.registry.register_collector(Box::new(AgentCounts(agent)));
        }
        self
    }

    /// Also shows how the store is, and the other servers.
    pub(crate) fn with_servers(mut self, servers: &Arc<Servers>) -> Self {
        self.registry.register_collector(Box::new(ServerCounts(Arc::clone(servers))));
        self
    }

    /// Shows each of these rollouts from now on.
    pub(crate) fn show_rollouts(&self, rollouts: &Arc<dyn Rollouts>) {
        // Nobody does it twice.
        let _ = self.canaries.set(Arc::downgrade(rollouts));
    }

    /// A share of the clients that a publication concerns, in percent, has accepted it after this time.
    pub fn spread(&self, share: u8, took: Duration) {
        self.spread.get_or_create(&share_label(share)).observe(took.as_secs_f64());
    }

    /// The oldest publication that a client has not answered was made then.
    pub fn waits_since(&self, at: Option<Instant>) {
        *self.waits_since.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Spans of traces were dealt with.
    pub(crate) fn spans(&self, fate: SpanFate, n_spans: u64) {
        self.trace_spans.get_or_create(&ResultLabel { result: fate.as_str() }).inc_by(n_spans);
    }

    /// How many problems there are, by subject.
    pub fn problems(&self, n_problems: &BTreeMap<&'static str, usize>) {
        for (subject, n) in n_problems {
            let gauge = self.problems.get_or_create(&SubjectLabel { subject });
            gauge.set(i64::try_from(*n).unwrap_or(i64::MAX));
        }
    }

    /// A publication was made.
    pub fn published(&self, source: PublicationSource, revision: Revision) {
        self.publications.get_or_create(&SourceLabel { source: source.as_str() }).inc();
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.len() >= MAX_PUBLISHED {
            published.pop_front();
        }
        published.push_back((revision, Instant::now()));
    }

    /// How many watched files have errors now.
    pub fn file_errors(&self, n_errors: usize) {
        self.file_errors.set(i64::try_from(n_errors).unwrap_or(i64::MAX));
    }

    /// RouteTests were run.
    pub fn tested(&self, passed: usize, failed: usize) {
        for (result, n) in [("passed", passed), ("failed", failed)] {
            self.route_tests.get_or_create(&ResultLabel { result }).set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    /// The oracle was asked about so many resources, and took this long.
    pub fn oracle(&self, n_asked: usize, n_refused: usize, n_undecided: usize, took: Duration) {
        self.oracle_questions.inc();
        self.oracle_seconds.inc_by(took.as_secs_f64());
        let n_taken = n_asked.saturating_sub(n_refused + n_undecided);
        for (result, n) in [("taken", n_taken), ("refused", n_refused), ("undecided", n_undecided)] {
            self.oracle_resources.get_or_create(&ResultLabel { result }).inc_by(n as u64);
        }
    }

    /// A wave deployment is in this phase now, and has reached this share of the nodes; `None` if no node has its change.
    pub fn wave(&self, phase: WavePhase, share: Option<Share>) {
        self.waves.get_or_create(&PhaseLabel { phase: phase.as_str() }).inc();
        let is_under_way = !matches!(phase, WavePhase::Completed | WavePhase::Promoted);
        self.wave_share.set(share.filter(|_| is_under_way).map_or(0.0, Share::as_ratio));
    }

    /// Returns `true` if the server is ready.
    pub fn ready(&self, is_ready: bool) {
        self.ready.set(i64::from(is_ready));
    }

    /// How many rules of route documents have something that gRPC clients cannot have, by what it is.
    pub fn grpc_unsupported(&self, n_rules: &BTreeMap<GrpcFeature, usize>) {
        for feature in GrpcFeature::ALL {
            let n_rules = n_rules.get(&feature).copied().unwrap_or_default();
            let gauge = self.grpc_unsupported.get_or_create(&FeatureLabel { feature: feature.as_str() });
            gauge.set(i64::try_from(n_rules).unwrap_or(i64::MAX));
        }
    }

    /// A stream began.
    pub fn stream_opened(&self, variant: Variant) {
        self.streams.get_or_create(&variant_label(variant)).inc();
    }

    /// A stream ended.
    pub fn stream_closed(&self, variant: Variant) {
        self.streams.get_or_create(&variant_label(variant)).dec();
    }

    /// A connection ended because of its age.
    pub fn connection_aged(&self) {
        self.aged.inc();
    }

    /// A connection ended because other servers have fewer streams.
    pub fn connection_shed(&self) {
        self.shed.inc();
    }

    /// A stream ended because its client was served something newer than this server has.
    pub fn newer_client_left(&self) {
        self.newer_clients_left.inc();
    }

    /// A request came.
    pub fn request(&self, resource_type: &ResourceType, kind: RequestKind) {
        let labels = RequestLabels { r#type: type_name(resource_type), kind: kind.as_str() };
        self.requests.get_or_create(&labels).inc();
    }

    /// A response of `n_bytes` is sent.
    pub fn response(&self, resource_type: &ResourceType, n_bytes: usize) {
        let label = TypeLabel { r#type: type_name(resource_type) };
        self.responses.get_or_create(&label).inc();
        self.response_bytes.get_or_create(&label).inc_by(n_bytes as u64);
    }

    /// A client rejected a response.
    pub fn nacked(&self, resource_type: &ResourceType) {
        self.nacks.get_or_create(&TypeLabel { r#type: type_name(resource_type) }).inc();
    }

    /// A change of a resource began to wait for what a client has or lacks.
    pub fn held_back(&self, resource_type: &ResourceType) {
        self.held_back.get_or_create(&TypeLabel { r#type: type_name(resource_type) }).inc();
    }

    /// A change waited for a client as long as the grace allows, and is sent without.
    pub fn grace_expired(&self, resource_type: &ResourceType) {
        self.grace_expired.get_or_create(&TypeLabel { r#type: type_name(resource_type) }).inc();
    }

    /// A client that has been connected `since` accepted everything that `revision` owed it of a type. Counts only if it
    /// was connected at the publication.
    pub fn acked(&self, revision: Revision, since: Instant) {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let at = published.iter().rev().find(|(of, _)| *of == revision).map(|(_, at)| *at);
        drop(published);
        if let Some(at) = at.filter(|at| since <= *at) {
            self.publish_to_ack.observe(at.elapsed().as_secs_f64());
        }
    }

    /// A stream of load reports began.
    pub fn load_stream_opened(&self) {
        self.load_streams.inc();
    }

    /// A stream of load reports ended.
    pub fn load_stream_closed(&self) {
        self.load_streams.dec();
    }

    /// A load report was recorded.
    pub fn loads_reported(&self, recorded: &Recorded) {
        self.load_reports.inc_by(recorded.n_kept as u64);
        for (reason, n_left_out) in [
            ("limit", recorded.n_over_limit),
            ("unknown", recorded.n_unknown),
            ("implausible", recorded.n_implausible),
            ("name", recorded.n_bad_names),
        ] {
            self.load_reports_left_out.get_or_create(&ReasonLabel { reason }).inc_by(n_left_out as u64);
        }
    }

    /// A client of the xDS port would have been refused.
    pub fn would_deny(&self, reason: &'static str) {
        self.would_deny.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// How many rollouts of each phase are kept; those that are left out are none.
    pub fn rollouts(&self, counts: &BTreeMap<Phase, usize>) {
        for phase in PHASES {
            let n = counts.get(&phase).copied().unwrap_or_default();
            let gauge = self.rollouts.get_or_create(&PhaseLabel { phase: phase_name(phase) });
            gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    /// All metrics as OpenMetrics text; its content type is [`CONTENT_TYPE`].
    #[must_use]
    pub fn render(&self) -> String {
        let since = *self.waits_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.waits.set(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
        let mut text = String::new();
        // Writing to a string fails only if a collector does; then what was written up to there is given.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Shows a zero for what has not happened. If a series began with the first event, Prometheus would not see that as an increase.
    fn begin_at_zero(&self) {
        for variant in [Variant::Sotw, Variant::Delta] {
            let _ = self.streams.get_or_create(&variant_label(variant));
        }
        for share in SHARES {
            let _ = self.spread.get_or_create(&share_label(share));
        }
        for r#type in ResourceType::KNOWN.iter().map(type_name).chain([OTHER]) {
            for kind in [RequestKind::Ack, RequestKind::Nack, RequestKind::Subscribe] {
                let _ = self.requests.get_or_create(&RequestLabels { r#type, kind: kind.as_str() });
            }
            let counters =
                [&self.responses, &self.response_bytes, &self.nacks, &self.held_back, &self.grace_expired];
            for counter in counters {
                let _ = counter.get_or_create(&TypeLabel { r#type });
            }
        }
        for source in [PublicationSource::Files, PublicationSource::Api, PublicationSource::Store] {
            let _ = self.publications.get_or_create(&SourceLabel { source: source.as_str() });
        }
        for phase in WAVE_PHASES {
            let _ = self.waves.get_or_create(&PhaseLabel { phase: phase.as_str() });
        }
        for result in ["passed", "failed"] {
            let _ = self.route_tests.get_or_create(&ResultLabel { result });
        }
        for result in ["taken", "refused", "undecided"] {
            let _ = self.oracle_resources.get_or_create(&ResultLabel { result });
        }
        for reason in WAIVED.map(Reason::as_str) {
            let _ = self.would_deny.get_or_create(&ReasonLabel { reason });
        }
        for fate in [SpanFate::Sent, SpanFate::Dropped, SpanFate::Failed] {
            self.spans(fate, 0);
        }
        self.loads_reported(&Recorded::default());
        self.rollouts(&BTreeMap::new());
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("xds_streams", "Open discovery streams", self.streams.clone());
        registry.register("xds_requests", "Discovery requests", self.requests.clone());
        registry.register("xds_responses", "Discovery responses", self.responses.clone());
        registry.register("xds_response_bytes", "Bytes of discovery responses", self.response_bytes.clone());
        registry.register("xds_nacks", "Rejected responses", self.nacks.clone());
        let help = "Changes of resources that waited until a client was ready for them";
        registry.register("xds_held_back", help, self.held_back.clone());
        let help = "Changes of resources that were sent because a client was silent for too long";
        registry.register("xds_grace_expired", help, self.grace_expired.clone());
        registry.register("xds_publish", "Publications", self.publications.clone());
        let help = "Time from a publication until a connected client has acknowledged it";
        registry.register("xds_publish_to_ack_seconds", help, self.publish_to_ack.clone());
        let help = "Time from a publication until this share, in percent, of the clients that it concerns had acknowledged it";
        registry.register("xds_fleet_lag_seconds", help, self.spread.clone());
        let help = "Age of the oldest publication that a connected client has neither acknowledged nor rejected; 0 if there is none";
        registry.register("xds_fleet_waiting_seconds", help, self.waits.clone());
        let help = "Problems that need attention, as in GET /readyz, by what they are about";
        registry.register("xds_problems", help, self.problems.clone());
        let help = "Spans of traces (--otlp-endpoint): sent to the collector, dropped for want of room, or failed because it did not take them";
        registry.register("xds_trace_spans", help, self.trace_spans.clone());
        let build = Family::<BuildLabels, ConstGauge<u64>>::new_with_constructor(|| ConstGauge::new(1));
        let _ = build.get_or_create(&BUILD);
        registry.register("xds_build_info", "The program, as labels; always 1", build);
        let help = "Connections that were ended because of their age (--max-connection-age)";
        registry.register("xds_connections_aged", help, self.aged.clone());
        let help = "Connections that were ended because other servers with the same store have fewer clients";
        registry.register("xds_connections_shed", help, self.shed.clone());
        let help = "Streams that were ended while the store cannot be reached, because their clients were served something newer";
        registry.register("xds_newer_clients_left", help, self.newer_clients_left.clone());
        let help = "Open streams of load reports";
        registry.register("xds_load_streams", help, self.load_streams.clone());
        let help = "Load reports of clusters that were kept";
        registry.register("xds_load_reports", help, self.load_reports.clone());
        let help = "Load reports of clusters that were left out, in part or as a whole";
        registry.register("xds_load_reports_left_out", help, self.load_reports_left_out.clone());
        let help = "Clients that are served only because of --access-dry-run";
        registry.register("xds_access_would_deny", help, self.would_deny.clone());
        registry.register("xds_rollouts", "Rollouts that are kept", self.rollouts.clone());
        registry.register("xds_file_errors", "Watched files with errors", self.file_errors.clone());
        let help = "Tests of RouteTests on what is served, by result";
        registry.register("xds_route_tests", help, self.route_tests.clone());
        let help = "Questions to the oracle (--oracle)";
        registry.register("xds_oracle_questions", help, self.oracle_questions.clone());
        let help = "Resources that the oracle was asked about, by its answer";
        registry.register("xds_oracle_resources", help, self.oracle_resources.clone());
        let help = "Time for which changes waited for the oracle";
        registry.register("xds_oracle_seconds", help, self.oracle_seconds.clone());
        registry.register("xds_wave_phases", "Phases that wave deployments entered", self.waves.clone());
        let help = "The share of the nodes that the wave deployment has reached; 0 if there is none";
        registry.register("xds_wave_share_ratio", help, self.wave_share.clone());
        let help = "Rules of route documents with something that gRPC clients do not get";
        registry.register("xds_grpc_unsupported_rules", help, self.grpc_unsupported.clone());
        registry.register("xds_ready", "Whether the server is ready", self.ready.clone());
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl PublicationSource {
    fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Api => "api",
            Self::Store => "store",
        }
    }
}

impl SpanFate {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

impl RequestKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Subscribe => "subscribe",
        }
    }
}

/// `other` for a share that is not told.
fn share_label(share: u8) -> ShareLabel {
    ShareLabel {
        share: match share {
            50 => "50",
            99 => "99",
            100 => "100",
            _ => OTHER,
        },
    }
}

fn variant_label(variant: Variant) -> VariantLabel {
    VariantLabel { variant: variant.as_str() }
}

/// The label of a type: its name in REST, `other` for types that are not known.
fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Progressing => "Progressing",
        Phase::Paused => "Paused",
        Phase::Promoting => "Promoting",
        Phase::Succeeded => "Succeeded",
        Phase::Aborting => "Aborting",
        Phase::Aborted => "Aborted",
        Phase::Failed => "Failed",
    }
}

/// Why a client may be served only because of --access-dry-run.
const WAIVED: [Reason; 5] = [
    Reason::NoCredential,
    Reason::BadToken,
    Reason::Denied,
    Reason::IdentityNotAllowed,
    Reason::NodeIdMismatch,
];

const WAVE_PHASES: [WavePhase; 8] = [
    WavePhase::Progressing,
    WavePhase::Holding,
    WavePhase::Paused,
    WavePhase::Held,
    WavePhase::Completed,
    WavePhase::Promoted,
    WavePhase::Reverted,
    WavePhase::Superseded,
];

const PHASES: [Phase; 8] = [
    Phase::Pending,
    Phase::Progressing,
    Phase::Paused,
    Phase::Promoting,
    Phase::Succeeded,
    Phase::Aborting,
    Phase::Aborted,
    Phase::Failed,
];

const BUILD: BuildLabels = BuildLabels { version: env!("CARGO_PKG_VERSION"), arch: std::env::consts::ARCH };

/// The content type of what [`Metrics::render`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many publications are remembered for the time until they are acknowledged.
const MAX_PUBLISHED: usize = 64;
/// From a client on the same host to one that is stuck.
const PUBLISH_TO_ACK_BUCKETS: [f64; 12] =
    [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0];

#[cfg(test)]
mod tests {
    use xds_cache::layer::Resources;
    use xds_cache::{Layer, Resource, StatusBoard, layer};

    use super::*;

    fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')))
    }

    #[test]
    fn every_metric_of_the_contract_is_told() {
        let metrics = Metrics::of_nobody();
        metrics.stream_opened(Variant::Delta);
        metrics.request(&ResourceType::Cluster, RequestKind::Nack);
        metrics.request(&ResourceType::from_type_url("type.googleapis.com/foo"), RequestKind::Ack);
        metrics.response(&ResourceType::Listener, 100);
        metrics.nacked(&ResourceType::Cluster);
        metrics.load_stream_opened();
        metrics.loads_reported(&Recorded { n_kept: 3, n_implausible: 2, ..Recorded::default() });
        metrics.published(PublicationSource::Files, Revision(1));
        metrics.rollouts(&[(Phase::Paused, 2)].into());
        metrics.file_errors(3);
        metrics.ready(true);
        metrics.grpc_unsupported(&BTreeMap::from([(GrpcFeature::Mirror, 2)]));
        let text = metrics.render();
        for (name, value) in [
            ("xds_streams{variant=\"delta\"}", "1"),
            ("xds_streams{variant=\"sotw\"}", "0"),
            ("xds_requests_total{type=\"clusters\",kind=\"nack\"}", "1"),
            ("xds_requests_total{type=\"other\",kind=\"ack\"}", "1"),
            ("xds_responses_total{type=\"listeners\"}", "1"),
            ("xds_response_bytes_total{type=\"listeners\"}", "100"),
            ("xds_nacks_total{type=\"clusters\"}", "1"),
            ("xds_publish_total{source=\"files\"}", "1"),
            ("xds_publish_to_ack_seconds_count", "0"),
            ("xds_load_streams", "1"),
            ("xds_load_reports_total", "3"),
            ("xds_load_reports_left_out_total{reason=\"implausible\"}", "2"),
            ("xds_load_reports_left_out_total{reason=\"limit\"}", "0"),
            ("xds_rollouts{phase=\"Paused\"}", "2"),
            ("xds_rollouts{phase=\"Failed\"}", "0"),
            ("xds_file_errors", "3"),
            ("xds_ready", "1"),
            ("xds_grpc_unsupported_rules{feature=\"mirror\"}", "2"),
            ("xds_grpc_unsupported_rules{feature=\"tls\"}", "0"),
        ] {
            assert_eq!(line(&text, name), Some(value), "{name} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn only_a_client_that_was_there_counts_for_the_time_until_the_ack() {
        let metrics = Metrics::of_nobody();
        let before = Instant::now();
        metrics.published(PublicationSource::Api, Revision(7));
        metrics.acked(Revision(7), before);
        metrics.acked(Revision(6), before);
        metrics.acked(Revision(7), Instant::now());
        assert_eq!(line(&metrics.render(), "xds_publish_to_ack_seconds_count"), Some("1"));
    }

    #[test]
    fn resources_are_counted_by_group_and_type() {
        let publisher = Arc::new(Publisher::new());
        let roster = Arc::new(Roster::new(Arc::clone(&publisher), StatusBoard::new()));
        let metrics = Metrics::new(Arc::clone(&publisher), roster, Arc::default(), vec![]);
        let resource = Arc::new(Resource::plain(ResourceType::Cluster, "a", b"x".as_slice()));
        let mut base = Layer::default();
        let resources: Resources = [Arc::clone(&resource)].into_iter().collect();
        base.groups.entry(xds_cache::GroupName::default_group()).or_default().resources = resources;
        publisher.publish(Revision(1), layer::merge(&base, &Layer::default(), &layer::Generated::new()));
        let text = metrics.render();
        let name = "xds_snapshot_resources{group=\"default\",type=\"clusters\"}";
        assert_eq!(line(&text, name), Some("1"), "{text}");
    }
}
