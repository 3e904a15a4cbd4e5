//! The state that the handlers share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::layer::Resources;
use xds_cache::{GroupName, LoadBoard, Name, Publisher, Refusals, ResourceType, StatusBoard, Version};
use xds_codec::Codec;
use xds_control::acks::Acks;
use xds_control::model::FileLoad;
use xds_control::peers::Peers;
use xds_control::{Control, Roster};

use crate::access::Access;
use crate::counts::RequestCounts;
use crate::events::EventHub;
use crate::models::Models;
use crate::problem::ApiError;
use crate::rollouts::Rollouts;
use crate::trials::Trials;

/// Reads files for the answers to questions.
pub trait FileTexts: Send + Sync + fmt::Debug {
    /// The bytes of a watched file, if it has at most `max` and still this hash: to find the lines of what is served. Blocks.
    fn read(&self, path: &Arc<str>, max: usize, hash: &Version) -> Option<Arc<[u8]>>;

    /// Loads texts, by path, as if these were the watched files. What can be used of them is in the load, with everything that is wrong
    /// with the rest. Blocks.
    fn load(&self, texts: BTreeMap<Arc<str>, Arc<[u8]>>) -> FileLoad;
}

/// The ports that speak TLS.
pub trait Certificates: Send + Sync + fmt::Debug {
    /// Everything that they use and that ends.
    fn ends(&self) -> Vec<CertificateEnd>;
}

/// Something of a port that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The port.
    pub port: &'static str,
    /// What it is.
    pub part: &'static str,
    /// When it ends.
    pub at: SystemTime,
}

/// Another xDS server that this one relays.
pub trait Relay: Send + Sync + fmt::Debug {
    /// The nodes as which it is asked, in the order of the file.
    fn nodes(&self) -> Vec<RelayedNode>;
}

/// A node as which a relayed server is asked.
#[derive(Clone, Debug)]
pub struct RelayedNode {
    /// The group of those who are served what it is sent.
    pub group: GroupName,
    /// Its id.
    pub node_id: String,
    /// The server that answered last; `None` before any did.
    pub server: Option<String>,
    /// Since when that server answers, or does not.
    pub since: SystemTime,
    /// Why it is not connected; `None` if it is.
    pub problem: Option<String>,
    /// How many resources are waited for before the others are served, and the first of them.
    pub awaited: Option<(usize, String)>,
    /// What it was sent.
    pub resources: Resources,
    /// Some of the resources of which an earlier version is served, or none.
    pub refused: Vec<RefusedResource>,
    /// How many of those there are.
    pub n_refused: usize,
}

/// A resource that cannot be used.
#[derive(Clone, Debug)]
pub struct RefusedResource {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Name,
    /// What is wrong with it, without secrets.
    pub why: String,
}

/// The foundations of the admin API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApiState {
    /// Makes changes.
    pub control: Control,
    /// The views that are served.
    pub publisher: Arc<Publisher>,
    /// The clients that are connected.
    pub board: Arc<StatusBoard>,
    /// How they are.
    pub roster: Arc<Roster>,
    /// The requests that clients report.
    pub loads: Arc<LoadBoard>,
    /// Counts what passes a limit.
    pub refusals: Arc<Refusals>,
    /// Drives rollouts.
    pub rollouts: Arc<dyn Rollouts>,
    /// The clients' progress in applying publications.
    pub acks: Arc<Acks>,
    /// Reads and writes resources.
    pub codec: Codec,
    /// Where validations, dry runs and explanations wait for each other.
    pub trials: Trials,
    /// Values of one document of a body.
    pub max_document_values: usize,
    /// Reads files for the answers to questions.
    pub texts: Arc<dyn FileTexts>,
    /// The clients that may ask.
    pub access: Arc<Access>,
    /// Counts the requests.
    pub counts: Arc<RequestCounts>,
    /// The events of the last while.
    pub events: EventHub,
    /// The other servers with the same store; `None` if this one shares nothing.
    pub peers: Option<Arc<dyn Peers>>,
    /// The server that this one relays; `None` if it relays none.
    pub relay: Option<Arc<dyn Relay>>,
    /// The ports that speak TLS; `None` if nobody needs to know.
    pub certificates: Option<Arc<dyn Certificates>>,
    /// What was last asked about, ready for questions.
    pub models: Models,
}

impl ApiState {
    /// Refuses a request that is about what is served, while nothing is.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotReady`] before the first complete load.
    pub(crate) fn check_loaded(&self) -> Result<(), ApiError> {
        if self.publisher.is_loaded() { Ok(()) } else { Err(ApiError::NotReady(self.control.not_ready())) }
    }
}

/// Does what may take long on a thread of its own, so that streams are not delayed by it.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::Internal("the work for the answer was stopped".to_owned()))
}

/// Reads the name of a group from a path.
pub(crate) fn group_name(text: &str) -> Result<GroupName, ApiError> {
    GroupName::new(text).map_err(|error| ApiError::BadRequest(error.to_string()))
}
