//! The access policy and the audit log, as files that may change while they are used.
//!
//! The policy and the key sets that it names are looked at as the files of TLS are: changed ones are used once they are the same in two
//! looks running, and those that cannot be used change nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};
use xds_access::audit::{Entry, Sink};
use xds_access::{AuthCounts, Policy, Principal, Role, Trail};
use xds_control::Control;
use xds_units::rfc3339;

use crate::config::AccessConfig;

/// The access policy and the audit log of a server.
#[derive(Debug)]
pub(crate) struct AccessFiles {
    config: AccessConfig,
    /// True if there is a token of the principal `admin` besides the policy.
    has_admin_token: bool,
    poll_interval: Duration,
    policy: watch::Sender<Arc<Policy>>,
    trail: Arc<Trail>,
    counts: Arc<AuthCounts>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The contents that the policy is made of.
    loaded: Option<Found>,
    /// What lay there at the last look.
    seen: Option<Found>,
    /// Why the files that lie there now are not used.
    fault: Option<String>,
}

/// The hash of what the files hold, or why they make no policy.
type Found = Result<blake3::Hash, String>;

impl AccessFiles {
    /// Reads the policy and opens the audit log.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used.
    pub(crate) fn open(
        config: &AccessConfig,
        has_admin_token: bool,
        poll_interval: Duration,
    ) -> anyhow::Result<Arc<Self>> {
        let trail = Arc::new(Trail::new(config.needs_audit));
        if let Some(path) = &config.audit_log {
            let sink = sink(path);
            trail.set_sink(
                sink.with_context(|| format!("the audit log {} cannot be opened", path.display()))?,
            );
        }
        let (policy, _) = watch::channel(Arc::default());
        let files = Self {
            config: config.clone(),
            has_admin_token,
            poll_interval,
            policy,
            trail,
            counts: Arc::default(),
            state: Mutex::default(),
            wake: Notify::new(),
        };
        if let Some(path) = &config.policy {
            let (policy, hash) = files.read(path).map_err(anyhow::Error::msg)?;
            files.take(policy, Ok(hash));
        }
        Ok(Arc::new(files))
    }

    /// The policy, which may change.
    pub(crate) fn policy(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    pub(crate) fn trail(&self) -> &Arc<Trail> {
        &self.trail
    }

    pub(crate) fn counts(&self) -> &Arc<AuthCounts> {
        &self.counts
    }

    /// Has the policy looked at soon.
    pub(crate) fn look_soon(&self) {
        self.wake.notify_one();
    }

    /// Opens the audit log anew, because it may have been renamed.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.config.audit_log else { return };
        match sink(path) {
            Ok(sink) => self.trail.set_sink(sink),
            Err(error) => {
                self.trail.fail(&format!("the audit log {} cannot be opened: {error}", path.display()));
            }
        }
    }

    /// Looks at the files for ever, and notes after each look how things are.
    pub(crate) async fn follow(self: Arc<Self>, control: Control) {
        loop {
            let this = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || this.look(SystemTime::now())).await;
            match looked {
                Ok((policy, audit)) => control.note_access(policy, audit),
                Err(error) => warn!(%error, "the access policy could not be looked at"),
            }
            // Woken or not: it looks.
            let _ = tokio::time::timeout(self.poll_interval, self.wake.notified()).await;
        }
    }

    /// Looks once. Returns what is wrong with the policy, and with the audit log.
    fn look(&self, now: SystemTime) -> (Option<String>, Option<String>) {
        if let Some(path) = &self.config.policy {
            self.look_at_policy(path);
        }
        self.trail.tick(now);
        let soon = now.checked_add(ENDING_SOON).unwrap_or(now);
        let fault =
            self.state().fault.clone().map(|fault| format!("the changed access policy is not used: {fault}"));
        let policy = Arc::clone(&self.policy.borrow());
        let ending = policy.ending(soon).next().map(|(principal, token, end)| {
            let verb = if end <= now { "ended" } else { "ends" };
            format!("the token {token} of the principal {principal} {verb} at {}", rfc3339(end))
        });
        (fault.or(ending), self.trail.problem())
    }

    fn look_at_policy(&self, path: &Path) {
        let read = self.read(path);
        let found: Found = read.as_ref().map(|(_, hash)| *hash).map_err(Clone::clone);
        let mut state = self.state();
        let is_steady = state.seen.as_ref() == Some(&found);
        state.seen = Some(found.clone());
        if state.loaded.as_ref() == Some(&found) {
            state.fault = None;
            return;
        }
        if !is_steady {
            // Someone may be writing it: the next look decides.
            self.wake.notify_one();
            return;
        }
        let is_known = matches!((&state.fault, &found), (Some(fault), Err(error)) if fault == error);
        drop(state);
        match read {
            Ok((policy, _)) => self.take(policy, found),
            Err(_) if is_known => {}
            Err(error) => {
                warn!(error, "access policy kept");
                let entry = Entry::new("policy.kept", "error").with("error", error.as_str());
                self.trail.record(entry, SystemTime::now());
                self.state().fault = Some(error);
            }
        }
    }

    /// Uses a policy from now on.
    fn take(&self, policy: Policy, found: Found) {
        let (principals, issuers) = (policy.principals().len(), policy.issuers().len());
        info!(principals, issuers, "access policy loaded");
        if issuers > 0 && self.config.shows_tokens {
            warn!("tokens of xDS clients can be read on their way, because the xDS port has no TLS");
        }
        let entry = Entry::new("policy.loaded", "allowed").with("principals", principals);
        self.trail.record(entry.with("issuers", issuers), SystemTime::now());
        self.policy.send_replace(Arc::new(policy));
        *self.state() = State { loaded: Some(found.clone()), seen: Some(found), fault: None };
    }

    /// Reads the policy with all that it names, and hashes them together.
    fn read(&self, path: &Path) -> Result<(Policy, blake3::Hash), String> {
        let shown = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&text);
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut read_file = |name: &str| {
            let text = std::fs::read(directory.join(name)).map_err(|error| error.to_string())?;
            hasher.update(&text.len().to_le_bytes()).update(&text);
            Ok(text)
        };
        let policy = Policy::read(&shown, &text, &mut read_file)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let had_principals = !self.policy.borrow().principals().is_empty();
        if policy.principals().is_empty() && (self.config.needs_principals || had_principals) {
            return Err(format!(
                "{shown}: it has no `principals`, and without them everyone who reaches the admin port could change \
                 everything; restart the server to go back to that"
            ));
        }
        if policy.issuers().is_empty() && self.config.needs_issuers {
            return Err(format!(
                "{shown}: it has no `issuers`, and without them no client of the xDS port could prove who it is; add one, give \
                 --xds-client-ca, or serve everyone with --allow-anonymous-xds"
            ));
        }
        let is_admin = |principal: &Arc<Principal>| principal.role == Role::Admin;
        if !policy.principals().is_empty()
            && !self.has_admin_token
            && !policy.principals().iter().any(is_admin)
        {
            return Err(format!(
                "{shown}: none of its principals has the role admin, so nobody could do everything; add one, or give \
                 --admin-token-file"
            ));
        }
        Ok((policy, hasher.finalize()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sink(path: &Path) -> io::Result<Sink> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok(Box::new(file))
}

/// How long before its end a token is reported.
const ENDING_SOON: Duration = Duration::from_secs(14 * 24 * 3600);
