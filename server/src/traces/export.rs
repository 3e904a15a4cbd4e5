//! Sends spans to a collector in batches.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use xds_control::chain;

use super::headers;
use super::messages::{
    ExportRequest, ExportResponse, Resource, ResourceSpans, Scope, ScopeSpans, Span, text,
};
use crate::authorities;
use crate::metrics::{Metrics, SpanFate};

/// Where spans are sent, and who sends them.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    /// `http` or `https`, and a host.
    pub(crate) url: Uri,
    /// The authorities of its certificate; `None` for those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to it, and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The file with the headers of each request.
    pub(crate) headers: Option<PathBuf>,
    /// The name of this server.
    pub(crate) instance_id: String,
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) enum Queued {
    /// A span.
    Span(Span),
    /// Whoever waits until everything before it has been sent, or has failed to be.
    Flush(oneshot::Sender<()>),
}

/// The end of the queue of spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: Collector,
    queue: mpsc::Receiver<Queued>,
    metrics: Arc<Metrics>,
    /// The connection; `None` before the first, and after a batch that was not taken.
    connection: Option<Connection>,
    /// Why batches were not taken since the last one that was, as far as the log says it.
    told: BTreeSet<String>,
}

/// Spans that are sent together.
#[derive(Debug, Default)]
struct Batch {
    spans: Vec<Span>,
    flushed: Option<oneshot::Sender<()>>,
}

/// A connection, which is made when it is needed, and made again if it is lost.
#[derive(Clone, Debug)]
struct Connection {
    channel: Channel,
    headers: MetadataMap,
}

impl Exporter {
    pub(super) fn new(collector: Collector, queue: mpsc::Receiver<Queued>, metrics: Arc<Metrics>) -> Self {
        Self { collector, queue, metrics, connection: None, told: BTreeSet::new() }
    }

    /// Sends spans until there are no more to come.
    pub(crate) async fn run(mut self) {
        while let Some(Batch { spans, flushed }) = self.next_batch().await {
            if !spans.is_empty() {
                self.export(spans).await;
            }
            if let Some(flushed) = flushed {
                // Whoever waited may have given up.
                let _ = flushed.send(());
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>) {
        let n_spans = spans.len() as u64;
        let sent = timeout(PATIENCE, self.send(spans)).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        };
        self.metrics.spans(if failure.is_none() { SpanFate::Sent } else { SpanFate::Failed }, n_spans);
        if failure.is_some() {
            // The files may be right the next time.
            self.connection = None;
        }
        self.note(failure);
    }

    /// The spans of the next moment; `None` at the end.
    async fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        batch.add(self.queue.recv().await?);
        let until = Instant::now() + BATCH_TIME;
        while batch.spans.len() < MAX_BATCH && batch.flushed.is_none() {
            tokio::select! {
                queued = self.queue.recv() => match queued {
                    Some(queued) => batch.add(queued),
                    None => break,
                },
                () = sleep_until(until) => break,
            }
        }
        Some(batch)
    }

    async fn send(&mut self, spans: Vec<Span>) -> Result<(), String> {
        let Connection { channel, headers } = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connection.insert(self.collector.connect().await?).clone(),
        };
        let mut client = Grpc::new(channel);
        client.ready().await.map_err(|error| chain(&error))?;
        let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
        let mut request = Request::new(self.collector.request(spans));
        *request.metadata_mut() = headers;
        let answer = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
        let answer = answer.map_err(|status| reason(&status))?;
        match answer.into_inner().partial_success {
            Some(partly) if partly.rejected_spans > 0 => {
                Err(format!("{} spans were refused: {}", partly.rejected_spans, partly.error_message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Logs that the collector does not take batches, once for each reason, and that it does again.
    fn note(&mut self, failure: Option<String>) {
        match failure {
            Some(why) if self.told.len() < MAX_TOLD && !self.told.contains(&why) => {
                tracing::warn!(collector = %self.collector.url, why, "traces cannot be sent; they are dropped until that works again");
                self.told.insert(why);
            }
            None if !self.told.is_empty() => {
                tracing::info!(collector = %self.collector.url, "traces are sent again");
                self.told.clear();
            }
            Some(_) | None => {}
        }
    }
}

impl Batch {
    fn add(&mut self, queued: Queued) {
        match queued {
            Queued::Span(span) => self.spans.push(span),
            Queued::Flush(flushed) => self.flushed = Some(flushed),
        }
    }
}

impl Collector {
    /// Reads the files that a connection needs.
    async fn connect(&self) -> Result<Connection, String> {
        let mut endpoint = Endpoint::from(self.url.clone());
        if self.url.scheme_str() == Some("https") {
            let authorities = match &self.ca {
                Some(path) => vec![authorities::read(path).await?],
                None => authorities::of_system().await,
            };
            let mut tls = ClientTlsConfig::new().ca_certificates(authorities);
            if let Some((certificate, key)) = &self.identity {
                tls = tls.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| format!("TLS: {}", chain(&error)))?;
        }
        let headers = match &self.headers {
            Some(path) => {
                headers::parse(&read(path).await?).map_err(|why| format!("{}: {why}", path.display()))?
            }
            None => MetadataMap::new(),
        };
        Ok(Connection { channel: endpoint.connect_timeout(PATIENCE).connect_lazy(), headers })
    }

    fn request(&self, spans: Vec<Span>) -> ExportRequest {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = vec![
            text("service.name", SERVICE),
            text("service.version", version),
            text("service.instance.id", &self.instance_id),
        ];
        let scope = Scope { name: SERVICE.to_owned(), version: version.to_owned() };
        let resource = Some(Resource { attributes });
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        ExportRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

/// Why a call failed. If the connection did, the status itself says hardly anything.
fn reason(status: &Status) -> String {
    match status.source() {
        Some(cause) => chain(cause),
        None => format!("{}: {}", status.code(), status.message()),
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path).await.map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

const SERVICE: &str = "xds-server";
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// How long a batch may take to be sent. Meanwhile as many spans as the queue has room for can wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Reasons of failures that are logged while nothing is sent. The same fault can have several, in turns.
const MAX_TOLD: usize = 8;
/// How long spans are collected before they are sent.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Spans of one batch: about half a megabyte.
const MAX_BATCH: usize = 512;
