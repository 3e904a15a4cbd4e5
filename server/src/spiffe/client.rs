//! The client of the Workload API: one stream, on which the agent sends a certificate whenever there is a newer one.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::iter::{self, successors};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::PathAndQuery;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use xds_cache::identity::{SpiffeId, TrustDomain, shown};

use super::{Agent, AgentHealth, Fault, Svid};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct X509SvidRequest {}

/// The CRLs, field 2, are not read: no agent fills them.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct X509SvidResponse {
    /// The first is the one to use.
    #[prost(message, repeated, tag = "1")]
    pub(super) svids: Vec<X509Svid>,
    /// By the SPIFFE ID of the trust domain, or by its name.
    #[prost(map = "string, bytes", tag = "3")]
    pub(super) federated_bundles: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct X509Svid {
    #[prost(string, tag = "1")]
    pub(super) spiffe_id: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) x509_svid: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) x509_svid_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) bundle: Vec<u8>,
}

impl Agent {
    /// Follows the agent for ever, and says after each change how things are.
    pub(crate) async fn follow(self: Arc<Self>, report: impl Fn(AgentHealth)) {
        let mut wait = MIN_WAIT;
        loop {
            report(self.health());
            let (fault, detail) = self.listen(&report, &mut wait).await;
            self.fail(fault, detail, SystemTime::now());
            report(self.health());
            sleep(wait).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
    }

    /// Takes what the agent sends until something goes wrong.
    async fn listen(&self, report: &impl Fn(AgentHealth), wait: &mut Duration) -> (Fault, String) {
        let silence = || (Fault::Away, "it is silent".to_owned());
        let Ok(opened) = timeout(PATIENCE, self.open()).await else { return silence() };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(failed) => return failed,
        };
        loop {
            let svid = self.state().svid;
            let left = svid.and_then(|svid| svid.renewed_by.duration_since(SystemTime::now()).ok());
            let Ok(received) = timeout(left.unwrap_or_default().max(PATIENCE), stream.message()).await else {
                return silence();
            };
            match received.map(|response| response.map(Svid::try_from)) {
                Ok(Some(Ok(svid))) => {
                    self.take(svid);
                    *wait = MIN_WAIT;
                }
                Ok(Some(Err(detail))) => self.fail(Fault::Unusable, detail, SystemTime::now()),
                Ok(None) => return (Fault::Away, "it ended the stream".to_owned()),
                Err(status) => return failed(&status),
            }
            report(self.health());
        }
    }

    async fn open(&self) -> Result<Streaming<X509SvidResponse>, (Fault, String)> {
        let away = |error: &dyn Error| (Fault::Away, chain(error));
        let endpoint = Endpoint::from_shared(self.endpoint.to_string()).map_err(|error| away(&error))?;
        let channel = endpoint.connect().await.map_err(|error| away(&error))?;
        let mut client = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        client.ready().await.map_err(|error| away(&error))?;
        let mut request = Request::new(X509SvidRequest {});
        request.metadata_mut().insert("workload.spiffe.io", MetadataValue::from_static("true"));
        let codec = ProstCodec::<X509SvidRequest, X509SvidResponse>::default();
        let opened = client.server_streaming(request, PathAndQuery::from_static(METHOD), codec).await;
        opened.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }
}

impl TryFrom<X509SvidResponse> for Svid {
    type Error = String;

    /// Takes the first certificate, and all trust domains.
    fn try_from(response: X509SvidResponse) -> Result<Self, String> {
        let X509SvidResponse { svids, federated_bundles } = response;
        let Some(svid) = svids.into_iter().next() else { return Err("it has no certificate".to_owned()) };
        let X509Svid { spiffe_id, x509_svid, x509_svid_key, bundle } = svid;
        let mut bundles = BTreeMap::new();
        for (name, bundle) in federated_bundles {
            let domain = TrustDomain::new(name.strip_prefix("spiffe://").unwrap_or(&name))
                .map_err(|error| format!("the trust domain {}: {error}", shown(&name)))?;
            bundles.insert(domain, bundle);
        }
        // The server's own trust domain has the bundle beside the certificate, whatever else it may be federated with.
        if let Ok(own) = SpiffeId::new(&spiffe_id).map(|id| TrustDomain::new(id.trust_domain())) {
            bundles.extend(own.map(|own| (own, bundle)));
        }
        Self::new(&spiffe_id, x509_svid, x509_svid_key, bundles)
    }
}

/// The error of a call: the agent refused it, sent something that is no answer, or is gone.
fn failed(status: &Status) -> (Fault, String) {
    let code = status.code();
    // The library calls answers that are too long or malformed so.
    let fault = if matches!(code, Code::OutOfRange | Code::Internal) {
        Fault::Unusable
    } else if code == Code::PermissionDenied {
        Fault::Denied
    } else {
        Fault::Away
    };
    let detail = match (status.message(), status.source()) {
        ("", None) => code.to_string(),
        (message, None) => shown(message),
        (_, Some(source)) => chain(source),
    };
    (fault, detail)
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let causes = successors(error.source(), |cause| (*cause).source());
    let all: Vec<String> = iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect();
    shown(&all.join(": "))
}

impl fmt::Debug for X509SvidResponse {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("X509SvidResponse").field("svids", &self.svids).finish_non_exhaustive()
    }
}

impl fmt::Debug for X509Svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("X509Svid").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}

const METHOD: &str = "/SpiffeWorkloadAPI/FetchX509SVID";
/// The wait after the first failure; each further one is twice as long.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How long the agent may take to answer. SPIRE's answers at once, and with an error if it has no identity.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer. A thousand trust domains with three authorities each are 3 MB.
const MAX_ANSWER_BYTES: usize = 4 << 20;
