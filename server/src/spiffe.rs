//! The server's own identity from a SPIFFE agent, such as that of SPIRE: its certificate, and the authorities of trust domains.
//!
//! [`Agent`] holds what the agent sent last, and what is wrong with it. `client` follows the agent, by the
//! [Workload API](https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md). Ports take it from here as they take
//! files.

#[cfg(feature = "spiffe")]
mod client;
#[cfg(test)]
#[cfg(feature = "spiffe")]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use xds_api::rfc3339;
use xds_cache::identity::{SpiffeId, TrustDomain};

/// The socket of an agent: `unix:` and an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpiffeEndpoint(PathBuf);

/// A text that is no endpoint of an agent on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// TCP is not supported: anyone on the host could be the agent.
    #[error("the agent is reached by a Unix socket: write unix: and its path")]
    NotUnix,
    /// The path is relative or empty.
    #[error("the path of the socket must be absolute: write such as unix:/run/spire/agent/api.sock")]
    NotAbsolute,
}

/// The agent, as far as the server knows it. All clones of its state are of one moment.
#[derive(Debug)]
pub(crate) struct Agent {
    endpoint: SpiffeEndpoint,
    state: watch::Sender<AgentState>,
}

/// What the agent sent, and what went wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentState {
    /// The last usable answer.
    pub(crate) svid: Option<Arc<Svid>>,
    /// What is wrong since then.
    pub(crate) trouble: Option<Trouble>,
    /// Usable answers.
    pub(crate) n_updates: u64,
    /// Troubles, repeated ones too.
    pub(crate) n_failures: BTreeMap<Fault, u64>,
}

/// The certificate of the server, and the authorities of clients; DER without anything between the certificates.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Svid {
    pub(crate) id: SpiffeId,
    /// The certificate of the server, and intermediate ones.
    pub(crate) chain: Vec<u8>,
    /// PKCS#8.
    pub(crate) key: Vec<u8>,
    /// The authorities of each trust domain: the server's own, and those that it is federated with.
    pub(crate) bundles: BTreeMap<TrustDomain, Vec<u8>>,
    /// True if gRPC clients can accept the certificate.
    has_dns_name: bool,
    /// When an agent that works has sent a newer one, at the latest: at three quarters of the lifetime.
    renewed_by: SystemTime,
}

/// What is wrong with the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) fault: Fault,
    detail: String,
    since: SystemTime,
}

/// Kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It does not answer, or ended the stream.
    Away,
    /// It has no identity for this process.
    Denied,
    /// Its answer makes no sense.
    Unusable,
}

/// What operators are told of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentHealth {
    /// Needs attention.
    pub(crate) problem: Option<String>,
    /// Why the server is not ready.
    pub(crate) unready: Option<String>,
}

impl FromStr for SpiffeEndpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let path = text.strip_prefix("unix:").ok_or(InvalidEndpoint::NotUnix)?;
        let path = Path::new(path.strip_prefix("//").unwrap_or(path));
        if path.is_absolute() { Ok(Self(path.to_owned())) } else { Err(InvalidEndpoint::NotAbsolute) }
    }
}

impl fmt::Display for SpiffeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.0.display())
    }
}

impl Agent {
    /// An agent that has sent nothing yet.
    pub(crate) fn new(endpoint: SpiffeEndpoint) -> Arc<Self> {
        Arc::new(Self { endpoint, state: watch::Sender::default() })
    }

    /// Remembers a usable answer.
    fn take(&self, svid: Svid) {
        if !svid.has_dns_name {
            warn!(
                id = svid.id.as_str(),
                "the certificate of the SPIFFE agent has no DNS name, so gRPC clients refuse it: give the entry one, as \
                 `spire-server entry create … -dns NAME` does"
            );
        }
        info!(
            id = svid.id.as_str(),
            n_trust_domains = svid.bundles.len(),
            "the SPIFFE agent sent a certificate"
        );
        self.state.send_modify(|state| {
            state.svid = Some(Arc::new(svid));
            state.trouble = None;
            state.n_updates += 1;
        });
    }

    /// Remembers what went wrong. What the agent sent before stays.
    fn fail(&self, fault: Fault, detail: String, now: SystemTime) {
        self.state.send_modify(|state| {
            *state.n_failures.entry(fault).or_default() += 1;
            let since =
                state.trouble.as_ref().filter(|trouble| trouble.fault == fault).map(|trouble| trouble.since);
            state.trouble = Some(Trouble { fault, detail, since: since.unwrap_or(now) });
        });
    }

    /// The state, and every later one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<AgentState> {
        self.state.subscribe()
    }

    pub(crate) fn state(&self) -> AgentState {
        self.state.borrow().clone()
    }

    pub(crate) fn health(&self) -> AgentHealth {
        let (endpoint, state) = (&self.endpoint, self.state());
        let has_none = state.svid.is_none();
        let Some(Trouble { fault, detail, since }) = state.trouble else {
            let unready =
                has_none.then(|| format!("the SPIFFE agent at {endpoint} has sent no certificate yet"));
            return AgentHealth { problem: None, unready };
        };
        let since = rfc3339(since);
        let (what, is_unready) = match fault {
            Fault::Away => (format!("does not answer since {since}: {detail}"), has_none),
            Fault::Unusable => (format!("sent an answer that cannot be used: {detail}"), has_none),
            Fault::Denied => (
                format!(
                    "has no identity for this server since {since}: {detail}; register an entry that selects it"
                ),
                true,
            ),
        };
        let kept = if has_none {
            "there is no certificate yet"
        } else {
            "the last certificate is used until it ends"
        };
        let problem = format!("the SPIFFE agent at {endpoint} {what}; {kept}");
        AgentHealth { unready: is_unready.then(|| problem.clone()), problem: Some(problem) }
    }
}

impl Svid {
    /// Checks what an agent sent.
    ///
    /// # Errors
    ///
    /// If the ID is malformed or not that of the certificate.
    fn new(
        id: &str,
        chain: Vec<u8>,
        key: Vec<u8>,
        bundles: BTreeMap<TrustDomain, Vec<u8>>,
    ) -> Result<Self, String> {
        let id = SpiffeId::new(id).map_err(|error| error.to_string())?;
        let (_, leaf) =
            X509Certificate::from_der(&chain).map_err(|error| format!("not a valid certificate: {error}"))?;
        let alternatives = leaf.subject_alternative_name().map_err(|error| error.to_string())?;
        let names = alternatives.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let is_own = |name: &GeneralName<'_>| matches!(name, GeneralName::URI(uri) if *uri == id.as_str());
        if !names.iter().any(is_own) {
            return Err(format!("its certificate is not one of {}", id.as_str()));
        }
        let time = |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0).unsigned_abs());
        let (not_before, not_after) =
            (time(leaf.validity.not_before.timestamp()), time(leaf.validity.not_after.timestamp()));
        Ok(Self {
            has_dns_name: names.iter().any(|name| matches!(name, GeneralName::DNSName(_))),
            renewed_by: not_before + not_after.duration_since(not_before).unwrap_or_default() / 4 * 3,
            id,
            chain,
            key,
            bundles,
        })
    }
}

impl Fault {
    /// As it is called in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Denied => "denied",
            Self::Unusable => "unusable",
        }
    }
}

impl fmt::Debug for Svid {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Svid").field("id", &self.id).finish_non_exhaustive()
    }
}
