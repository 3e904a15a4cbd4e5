//! Sends spans to a collector in batches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_prost::ProstCodec;
use xds_control::chain;

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
    /// The name of this server.
    pub(crate) instance_id: String,
}

/// The end of the queue of spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: Collector,
    queue: mpsc::Receiver<Span>,
    metrics: Arc<Metrics>,
    /// The connection, once there was one.
    channel: Option<Channel>,
    /// True if the last batch was not taken.
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(collector: Collector, queue: mpsc::Receiver<Span>, metrics: Arc<Metrics>) -> Self {
        Self { collector, queue, metrics, channel: None, is_failing: false }
    }

    /// Sends spans until there are no more to come.
    pub(crate) async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            let n_spans = batch.len() as u64;
            let sent = timeout(PATIENCE, self.send(batch)).await;
            let failure = match sent {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(why),
                Err(_) => Some(format!("no answer within {PATIENCE:?}")),
            };
            self.metrics.spans(if failure.is_none() { SpanFate::Sent } else { SpanFate::Failed }, n_spans);
            self.note(failure);
        }
    }

    /// The spans of the next moment; `None` at the end.
    async fn next_batch(&mut self) -> Option<Vec<Span>> {
        let mut batch = vec![self.queue.recv().await?];
        let until = Instant::now() + BATCH_TIME;
        while batch.len() < MAX_BATCH {
            tokio::select! {
                span = self.queue.recv() => match span {
                    Some(span) => batch.push(span),
                    None => break,
                },
                () = sleep_until(until) => break,
            }
        }
        Some(batch)
    }

    async fn send(&mut self, spans: Vec<Span>) -> Result<(), String> {
        let channel = match &self.channel {
            Some(channel) => channel.clone(),
            None => self.channel.insert(self.collector.connect().await?).clone(),
        };
        let mut client = Grpc::new(channel);
        client.ready().await.map_err(|error| chain(&error))?;
        let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
        let request = Request::new(self.collector.request(spans));
        let answer = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
        let answer = answer.map_err(|status| format!("{}: {}", status.code(), status.message()))?;
        match answer.into_inner().partial_success {
            Some(partly) if partly.rejected_spans > 0 => {
                Err(format!("{} spans were refused: {}", partly.rejected_spans, partly.error_message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Logs that the collector is away, or back, once each.
    fn note(&mut self, failure: Option<String>) {
        match &failure {
            Some(why) if !self.is_failing => {
                tracing::warn!(collector = %self.collector.url, why, "traces cannot be sent; they are dropped until that works again");
            }
            None if self.is_failing => {
                tracing::info!(collector = %self.collector.url, "traces are sent again");
            }
            Some(_) | None => {}
        }
        self.is_failing = failure.is_some();
    }
}

impl Collector {
    /// The connection, which is made when it is needed, and made again if it is lost. Reads the authorities.
    async fn connect(&self) -> Result<Channel, String> {
        let mut endpoint = Endpoint::from(self.url.clone());
        if self.url.scheme_str() == Some("https") {
            let authorities = match &self.ca {
                Some(path) => vec![authorities::read(path).await?],
                None => authorities::of_system(),
            };
            let tls = ClientTlsConfig::new().ca_certificates(authorities);
            endpoint = endpoint.tls_config(tls).map_err(|error| format!("TLS: {}", chain(&error)))?;
        }
        Ok(endpoint.connect_timeout(PATIENCE).connect_lazy())
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

const SERVICE: &str = "xds-server";
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// How long a batch may take to be sent. Meanwhile as many spans as the queue has room for can wait.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long spans are collected before they are sent.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Spans of one batch: about half a megabyte.
const MAX_BATCH: usize = 512;
