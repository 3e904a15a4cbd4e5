//! TLS on a port: certificates from files or from a SPIFFE agent, which may change while they are used.
//!
//! The server looks at the files of a port every few seconds, and at what the agent sent when it comes. If something has changed, it makes a whole new configuration, which new
//! connections use. Open connections continue, and their clients' certificates are verified again if it has changed whom the port
//! trusts, or if a CRL that counts only in time is due. If the new files cannot be used, the last good configuration stays, and the
//! problem is reported. Until an agent has sent its first certificate, connections are closed. Events of the file system are not used, because a mount of Kubernetes replaces the directory that they would watch.

mod handshake;
mod material;
mod names;
mod pem;
mod revocation;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tracing::{info, warn};
use xds_access::Trail;
use xds_access::audit::Entry;
use xds_api::{CertificateEnd, rfc3339};
use xds_cache::Proofs;

use crate::spiffe::{Agent, AgentState, Svid};

pub(super) use handshake::{Agreed, CLOSED, DISPLACED, Failure, NOT_READY, REVOKED, Secured, TIMEOUT};
use material::Contents;
pub(crate) use material::Material;
pub use material::{Own, TlsFiles, TlsVersion};
pub(crate) use pem::TlsError;
use trust::End;
pub use trust::{Domains, TrustFiles};

/// When files are looked at, and how long handshakes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsTiming {
    /// How often files are looked at.
    pub poll_interval: Duration,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// Handshakes at once.
    pub max_handshakes: usize,
    /// How long before its end a certificate becomes a problem, at most: never more than a quarter of its lifetime.
    pub expiry_warning: Duration,
}

/// TLS of one port.
#[derive(Debug)]
pub(crate) struct Tls {
    port: &'static str,
    files: TlsFiles,
    /// What the SPIFFE agent says, if there is one.
    agent: Option<watch::Receiver<AgentState>>,
    timing: TlsTiming,
    trail: Arc<Trail>,
    state: Mutex<State>,
    handshakes: Mutex<BTreeMap<Outcome, u64>>,
    wake: Notify,
    /// How often it has changed whose certificates are accepted. Changed only together with the state.
    trust_generation: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// `None` until the agent has sent the first certificate.
    material: Option<Arc<Material>>,
    /// How many there have been.
    generation: u64,
    /// The contents that `material` is made of.
    loaded: Found,
    /// What lay there at the last look.
    seen: Found,
    /// Why the files that lie there now are not used.
    fault: Option<String>,
    /// What lay there when `fault` was found.
    faulty: Option<Found>,
    n_kept: u64,
    /// How many CRLs counted no more at the last look, because they should have been replaced.
    n_due: usize,
}

/// The hash of what files hold and the agent sent, or why they cannot be read; `None` as long as the agent has sent nothing.
type Found = Result<Option<blake3::Hash>, String>;

/// The end of a handshake, as it is counted: a version, or a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It was completed with this version of TLS.
    Completed(&'static str),
    /// It failed for this reason.
    Failed(&'static str),
}

/// TLS of one port as operators see it.
#[derive(Clone, Debug)]
pub(crate) struct TlsStatus {
    pub(crate) port: &'static str,
    /// How many configurations have been in use, this one included.
    pub(crate) generation: u64,
    /// How often changed files could not be used.
    pub(crate) n_kept: u64,
    /// `None` until the agent has sent the first certificate.
    pub(crate) material: Option<Arc<Material>>,
    /// Why the files that lie there now are not used.
    pub(crate) fault: Option<String>,
    /// The ends of handshakes.
    pub(crate) handshakes: BTreeMap<Outcome, u64>,
}

impl TlsStatus {
    /// Everything that ends, each part with the first of its ends.
    pub(crate) fn ends(&self) -> BTreeMap<&'static str, SystemTime> {
        let Some(material) = &self.material else { return BTreeMap::new() };
        let mut parts = BTreeMap::from([("leaf", material.not_after)]);
        for End { of, at, .. } in &material.ends {
            let first = parts.entry(of.label()).or_insert(*at);
            *first = (*first).min(*at);
        }
        parts
    }
}

/// The ports that speak TLS, as the admin API shows them.
#[derive(Debug)]
pub(crate) struct Ends(pub(crate) Vec<Arc<Tls>>);

impl xds_api::Certificates for Ends {
    fn ends(&self) -> Vec<CertificateEnd> {
        let ports = self.0.iter().map(|tls| tls.status());
        ports
            .flat_map(|status| {
                let port = status.port;
                status.ends().into_iter().map(move |(part, at)| CertificateEnd { port, part, at })
            })
            .collect()
    }
}

/// What is wrong with the certificates of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsHealth {
    /// Needs attention.
    pub(crate) problem: Option<String>,
    /// Why nobody can connect.
    pub(crate) unready: Option<String>,
}

impl Tls {
    /// Reads the files. Each time that they are used or kept is on record in `trail`.
    ///
    /// With a certificate of an `agent` that has sent none yet, the port is closed until it comes.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what cannot be used, and why.
    pub(crate) fn open(
        port: &'static str,
        files: TlsFiles,
        agent: Option<&Agent>,
        timing: TlsTiming,
        trail: Arc<Trail>,
    ) -> Result<Arc<Self>, TlsError> {
        let agent = agent.map(Agent::subscribe);
        let (contents, now) = (Contents::read(&files, svid(&agent).as_deref())?, SystemTime::now());
        let material = contents.as_ref().map(|contents| Material::new(&files, contents, now)).transpose()?;
        if let Some(material) = &material {
            record_loaded(&trail, port, 1, material, now);
        }
        let loaded: Found = Ok(contents.map(|contents| contents.hash()));
        let state = State {
            n_due: material.as_ref().map(|material| material.trust.n_due(now)).unwrap_or_default(),
            generation: material.is_some().into(),
            material: material.map(Arc::new),
            seen: loaded.clone(),
            loaded,
            fault: None,
            faulty: None,
            n_kept: 0,
        };
        let (state, handshakes) = (Mutex::new(state), Mutex::default());
        let (wake, trust_generation) = (Notify::new(), watch::Sender::new(0));
        Ok(Arc::new(Self { port, files, agent, timing, trail, state, handshakes, wake, trust_generation }))
    }

    /// Looks at the files for ever, and says after each look how things are.
    pub(crate) async fn follow(self: Arc<Self>, report: impl Fn(TlsHealth)) {
        let mut agent = self.agent.clone();
        loop {
            report(self.status().health(SystemTime::now(), self.timing.expiry_warning));
            let wait = match self.lock().is_settled() {
                true => self.timing.poll_interval,
                false => SETTLE.min(self.timing.poll_interval),
            };
            // Woken or not: it looks.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wake.notified() => {}
                () = changed(&mut agent) => {}
            }
            let this = Arc::clone(&self);
            if let Err(error) = spawn_blocking(move || this.look(SystemTime::now())).await {
                warn!(port = self.port, %error, "the files of TLS could not be looked at");
            }
        }
    }

    /// Has the files looked at soon.
    pub(crate) fn look_soon(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn status(&self) -> TlsStatus {
        let state = self.lock();
        TlsStatus {
            port: self.port,
            generation: state.generation,
            n_kept: state.n_kept,
            material: state.material.clone(),
            fault: state.fault.clone(),
            handshakes: self.handshakes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn port(&self) -> &'static str {
        self.port
    }

    pub(crate) fn timing(&self) -> &TlsTiming {
        &self.timing
    }

    /// What a new connection takes, and the generation of trust that its client's certificate is verified by; `None` while there is
    /// no certificate.
    pub(super) fn acceptor(&self) -> Option<(TlsAcceptor, u64)> {
        let state = self.lock();
        let material = state.material.as_ref()?;
        Some((TlsAcceptor::from(Arc::clone(&material.config)), self.trust_generation()))
    }

    /// The number of the trust that counts now; a larger one is newer.
    pub(super) fn trust_generation(&self) -> u64 {
        *self.trust_generation.borrow()
    }

    /// Told whenever certificates of clients that were accepted may not be any more.
    pub(super) fn trust_changes(&self) -> watch::Receiver<u64> {
        self.trust_generation.subscribe()
    }

    /// Verifies once more what a client showed in its handshake, and says by which generation of trust: as if the handshake were `now`.
    pub(super) fn verify_again(
        &self,
        chain: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> (Result<(), Failure>, u64) {
        let state = self.lock();
        let (material, generation) = (state.material.clone(), self.trust_generation());
        drop(state);
        // Who is connected has seen a certificate of the server.
        let verified = material.map_or(Ok(()), |material| material.trust.verify(chain, now));
        (verified.map_err(|error| Failure::of(&error)), generation)
    }

    /// Records that the certificate of an open connection, which proved this, is not trusted any more. Those with the same reason make
    /// one line a minute; revoked ones are told apart by their identity.
    pub(super) fn record_distrust(&self, address: &str, proofs: &Proofs, reason: &str, now: SystemTime) {
        let identity = proofs.first().map(|proof| proof.subject.to_string());
        let who = identity.as_deref().filter(|_| reason == REVOKED).unwrap_or_default();
        let kind = format!("tls.untrusted {} {reason} {who}", self.port);
        let entry = Entry::new("tls.untrusted", "denied").with("listener", self.port).with("reason", reason);
        self.trail.refuse(&kind, entry.with("identity", identity).with("peer", address), now);
    }

    /// Records that a certificate was not accepted in a handshake, or that none was shown where one is demanded: one line a minute for each
    /// reason. It has no identity, because nothing was proved.
    pub(super) fn record_refusal(&self, address: &str, reason: &str, now: SystemTime) {
        let entry = Entry::new("tls.denied", "denied").with("listener", self.port).with("reason", reason);
        self.trail.refuse(&format!("tls.denied {} {reason}", self.port), entry.with("peer", address), now);
    }

    /// Has open connections verified again if a CRL is due by `now` that counts only until then. To be called about every second.
    pub(super) fn note_due(&self, now: SystemTime) {
        let mut state = self.lock();
        let n_due = state.material.as_ref().map(|material| material.trust.n_due(now)).unwrap_or_default();
        // Fewer after a clock went back: what ended by them comes back by itself.
        if n_due > state.n_due {
            info!(
                port = self.port,
                n_due, "CRLs of clients count no more, because they should have been replaced"
            );
            self.trust_generation.send_modify(|generation| *generation += 1);
        }
        state.n_due = n_due;
    }

    pub(super) fn count(&self, outcome: Outcome) {
        *self.handshakes.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome).or_default() += 1;
    }

    /// Looks at the files once, and at what the agent sent. Changed files are used when they are the same in two looks running: someone
    /// may be writing them.
    fn look(&self, now: SystemTime) {
        let contents = Contents::read(&self.files, svid(&self.agent).as_deref());
        let found: Found = match &contents {
            Ok(contents) => Ok(contents.as_ref().map(Contents::hash)),
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.lock();
        let is_steady = found == state.seen || self.files.has_no_file();
        state.seen = found.clone();
        if found == state.loaded {
            (state.fault, state.faulty) = (None, None);
            return;
        }
        if !is_steady {
            return;
        }
        drop(state);
        // Without contents there is nothing to take yet.
        let Some(contents) = contents.transpose() else { return };
        let made = contents.and_then(|contents| Material::new(&self.files, &contents, now));
        self.take(made, found, now);
    }

    fn take(&self, made: Result<Material, TlsError>, found: Found, now: SystemTime) {
        let mut state = self.lock();
        match made {
            Ok(material) => {
                state.generation += 1;
                record_loaded(&self.trail, self.port, state.generation, &material, now);
                let before = state.material.as_ref().map(|material| material.trust_hash);
                let trusts_others = before.is_some_and(|before| before != material.trust_hash);
                state.n_due = material.trust.n_due(now);
                state.material = Some(Arc::new(material));
                state.loaded = found;
                (state.fault, state.faulty) = (None, None);
                // Under the lock, so that no connection takes the old material with the new number.
                if trusts_others {
                    self.trust_generation.send_modify(|generation| *generation += 1);
                }
            }
            Err(error) => {
                // A certificate that is not valid yet is tried again and again, and the error says what time it is.
                if state.faulty.as_ref() != Some(&found) {
                    warn!(port = self.port, %error, "tls kept: the changed files are not used");
                    state.n_kept += 1;
                    let entry = Entry::new("tls.kept", "error").with("listener", self.port);
                    self.trail.record(entry.with("error", error.to_string()), now);
                }
                (state.fault, state.faulty) = (Some(error.to_string()), Some(found));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns `true` if nothing has changed that was not judged.
    fn is_settled(&self) -> bool {
        self.seen == self.loaded || self.fault.is_some()
    }
}

impl TlsStatus {
    /// What is wrong at `now`; `warning` is how long before its end a certificate is a problem, at most.
    pub(crate) fn health(&self, now: SystemTime, warning: Duration) -> TlsHealth {
        let port = self.port;
        let fault = self.fault.as_ref();
        let Some(material) = &self.material else {
            let problem = fault.map(|fault| format!("the {port} port has no TLS certificate: {fault}"));
            return TlsHealth { problem, unready: Some(format!("the {port} port has no certificate yet")) };
        };
        let Material { not_before, not_after, ends, .. } = &**material;
        let lifetime = not_after.duration_since(*not_before).unwrap_or_default();
        let is_near =
            |end: SystemTime, warning: Duration| now.checked_add(warning).is_none_or(|then| then >= end);
        let kept = |fault| format!("the changed TLS files of the {port} port are not used: {fault}");
        let mut problems: Vec<_> = fault.map(kept).into_iter().collect();
        let is_expired = now > *not_after;
        if is_expired {
            problems.push(format!("the certificate of the {port} port expired at {}", rfc3339(*not_after)));
        } else if is_near(*not_after, warning.min(lifetime / 4)) {
            problems.push(format!("the certificate of the {port} port expires at {}", rfc3339(*not_after)));
        }
        let near = ends.iter().filter(|end| is_near(end.at, warning.min(end.margin)));
        problems.extend(near.map(|end| end.problem(port)));
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        TlsHealth {
            problem,
            unready: is_expired.then(|| format!("the certificate of the {port} port has expired")),
        }
    }
}

/// What the agent sent last.
fn svid(agent: &Option<watch::Receiver<AgentState>>) -> Option<Arc<Svid>> {
    agent.as_ref().and_then(|agent| agent.borrow().svid.clone())
}

/// Waits until the agent has something to say; for ever without one.
async fn changed(agent: &mut Option<watch::Receiver<AgentState>>) {
    if let Some(agent) = agent
        && agent.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn record_loaded(trail: &Trail, port: &'static str, generation: u64, material: &Material, now: SystemTime) {
    let (names, not_after) = (material.names.join(", "), rfc3339(material.not_after));
    info!(port, generation, names, not_after, "tls loaded");
    let entry = Entry::new("tls.loaded", "allowed").with("listener", port).with("generation", generation);
    trail.record(entry.with("names", names).with("notAfter", not_after), now);
}

/// The time between two looks at files that have changed.
const SETTLE: Duration = Duration::from_millis(300);
