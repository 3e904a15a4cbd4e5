//! The access policy, the token of the principal `admin` and the audit log, as files that may change while they are used.
//!
//! The policy with the key sets that it names, and the token, are looked at as the files of TLS are: changed ones are used once they are the same in two
//! looks running, and those that cannot be used change nothing.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};
use xds_access::audit::Entry;
use xds_access::check::{Served, check};
use xds_access::{AuthCounts, Policy, Principal, Role, Trail};
use xds_api::Token;
use xds_api::access::InvalidToken;
use xds_cache::GroupName;
use xds_codec::Place;
use xds_control::Control;
use xds_control::model::ServedLoad;
use xds_settings::read_policy;
use xds_units::rfc3339;

use crate::audit_file;
use crate::config::{AccessConfig, AdminToken};

/// The access policy and the audit log of a server.
#[derive(Debug)]
pub(crate) struct AccessFiles {
    config: AccessConfig,
    poll_interval: Duration,
    policy: watch::Sender<Arc<Policy>>,
    /// The token of the principal `admin`; there is one from the start on, or there never is.
    token: watch::Sender<Option<Token>>,
    trail: Arc<Trail>,
    counts: Arc<AuthCounts>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The policy by the hash of the files that it is made of.
    policy: Watched<blake3::Hash>,
    token: Watched<AdminToken>,
}

/// Files, by what is made of them.
#[derive(Debug)]
struct Watched<T> {
    used: Option<T>,
    /// What lay there at the last look, or why it could not be used.
    seen: Option<Result<T, String>>,
    /// Why the files that lie there now are not used.
    fault: Option<String>,
}

/// What a look at files leads to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    None,
    /// Another look at once, because someone may be writing them.
    LookAgain,
    /// They are used from now on.
    Use,
    /// They cannot be used, and have just become so.
    Keep(String),
}

impl<T: Clone + PartialEq> Watched<T> {
    /// Takes in what a look found.
    fn note(&mut self, found: Result<T, String>) -> Step {
        let is_steady = self.seen.as_ref() == Some(&found);
        self.seen = Some(found.clone());
        match found {
            Ok(found) if self.used.as_ref() == Some(&found) => {
                self.fault = None;
                Step::None
            }
            _ if !is_steady => Step::LookAgain,
            Ok(found) => {
                (self.used, self.fault) = (Some(found), None);
                Step::Use
            }
            Err(fault) if self.fault.as_ref() == Some(&fault) => Step::None,
            Err(fault) => {
                self.fault = Some(fault.clone());
                Step::Keep(fault)
            }
        }
    }
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Self { used: None, seen: None, fault: None }
    }
}

impl AccessFiles {
    /// Reads the policy and opens the audit log. `token` is what the token's file holds.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used.
    pub(crate) fn open(
        config: &AccessConfig,
        token: Option<&AdminToken>,
        poll_interval: Duration,
    ) -> anyhow::Result<Arc<Self>> {
        let trail = Arc::new(Trail::new(config.needs_audit));
        if let Some(log) = &config.audit_log {
            let sink = audit_file::open(log);
            let why = || format!("the audit log {} cannot be opened", log.path.display());
            trail.set_sink(sink.with_context(why)?);
        }
        let (policy, _) = watch::channel(Arc::default());
        let files = Self {
            config: config.clone(),
            poll_interval,
            policy,
            token: watch::channel(None).0,
            trail,
            counts: Arc::default(),
            state: Mutex::default(),
            wake: Notify::new(),
        };
        if let Some(token) = token {
            files.state().token.used = Some(token.clone());
            files.take_token(token)?;
        }
        if let Some(path) = &config.policy {
            let why = || {
                format!(
                    "the server does not start without its access policy, because it would not know whom to refuse; repair the file, and \
                     check it with `xds-server validate DIRECTORY --access {}`",
                    path.display()
                )
            };
            let (policy, hash) = files.read(path).map_err(anyhow::Error::msg).with_context(why)?;
            files.state().policy.used = Some(hash);
            files.take(policy);
        }
        Ok(Arc::new(files))
    }

    /// The token of the principal `admin`, which may change.
    pub(crate) fn token(&self) -> watch::Receiver<Option<Token>> {
        self.token.subscribe()
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

    /// Has the files looked at soon.
    pub(crate) fn look_soon(&self) {
        self.wake.notify_one();
    }

    /// Opens the audit log anew, because it may have been renamed.
    pub(crate) fn reopen(&self) {
        let Some(log) = &self.config.audit_log else { return };
        match audit_file::open(log) {
            Ok(sink) => self.trail.set_sink(sink),
            Err(error) => {
                self.trail.fail(&format!("the audit log {} cannot be opened: {error}", log.path.display()));
            }
        }
    }

    /// Looks at the files for ever, and notes after each look how things are. Each policy is checked once beside what is served.
    pub(crate) async fn follow(self: Arc<Self>, control: Control) {
        let mut checked: Option<Arc<Policy>> = None;
        if self.config.is_dry_run {
            control.note_dry_run(DRY_RUN);
        }
        loop {
            let this = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || this.look(SystemTime::now())).await;
            let policy = Arc::clone(&self.policy.borrow());
            let is_new = checked.as_ref().is_none_or(|checked| !Arc::ptr_eq(checked, &policy));
            if self.config.policy.is_some() && is_new && control.served_load() != ServedLoad::None {
                checked = Some(Arc::clone(&policy));
                let control = control.clone();
                // A check that panics says so itself, and costs only its warnings.
                let _ = tokio::task::spawn_blocking(move || warn_of_doubts(&policy, &control)).await;
            }
            match looked {
                Ok((policy, audit)) => control.note_access(policy, audit),
                Err(error) => warn!(%error, "the access policy could not be looked at"),
            }
            // Woken or not: it looks.
            let _ = tokio::time::timeout(self.poll_interval, self.wake.notified()).await;
        }
    }

    /// Looks once. Returns what is wrong with the policy and the token, and with the audit log.
    fn look(&self, now: SystemTime) -> (Option<String>, Option<String>) {
        if let Some(path) = &self.config.policy {
            self.look_at_policy(path);
        }
        if let Some(path) = &self.config.token_file {
            self.look_at_token(path);
        }
        self.trail.tick(now);
        let soon = now.checked_add(ENDING_SOON).unwrap_or(now);
        let (policy, token) = {
            let state = self.state();
            (state.policy.fault.clone(), state.token.fault.clone())
        };
        let policy = policy.map(|fault| format!("the changed access policy is not used: {fault}"));
        let token = token.map(|fault| format!("the changed admin token is not used: {fault}"));
        let faults: Vec<String> = policy.into_iter().chain(token).collect();
        let fault = (!faults.is_empty()).then(|| faults.join("; "));
        let policy = Arc::clone(&self.policy.borrow());
        let ending = policy.ending(soon).next().map(|(principal, token, end)| {
            let verb = if end <= now { "ended" } else { "ends" };
            format!("the token {token} of the principal {principal} {verb} at {}", rfc3339(end))
        });
        (fault.or(ending), self.trail.problem())
    }

    fn look_at_policy(&self, path: &Path) {
        let read = self.read(path);
        let step = self.state().policy.note(read.as_ref().map(|(_, hash)| *hash).map_err(Clone::clone));
        match (step, read) {
            (Step::Use, Ok((policy, _))) => self.take(policy),
            (Step::Keep(error), _) => self.keep("access policy kept", "policy.kept", &error),
            (Step::LookAgain, _) => self.wake.notify_one(),
            (Step::None | Step::Use, _) => {}
        }
    }

    fn look_at_token(&self, path: &Path) {
        let read = AdminToken::read(path).map_err(|error| chain(&error));
        let step = self.state().token.note(read.clone());
        match (step, read) {
            (Step::Use, Ok(token)) => {
                // It has no character that a header cannot carry, or it would not have been read.
                if let Err(error) = self.take_token(&token) {
                    self.keep("admin token kept", "token.kept", &error.to_string());
                }
            }
            (Step::Keep(error), _) => self.keep("admin token kept", "token.kept", &error),
            (Step::LookAgain, _) => self.wake.notify_one(),
            (Step::None | Step::Use, _) => {}
        }
    }

    /// Notes that files that changed are not used.
    fn keep(&self, message: &str, event: &'static str, error: &str) {
        warn!(error, "{message}");
        self.trail.record(Entry::new(event, "error").with("error", error), SystemTime::now());
    }

    /// Uses a token from now on, and no other.
    fn take_token(&self, token: &AdminToken) -> Result<(), InvalidToken> {
        let token = Token::new(token.as_str())?;
        if self.token.send_replace(Some(token)).is_some() {
            info!("admin token loaded");
            self.trail.record(Entry::new("token.loaded", "allowed"), SystemTime::now());
        }
        Ok(())
    }

    /// Uses a policy from now on.
    fn take(&self, policy: Policy) {
        let (principals, issuers) = (policy.principals().len(), policy.issuers().len());
        info!(principals, issuers, "access policy loaded");
        if issuers > 0 && self.config.shows_tokens {
            warn!("tokens of xDS clients can be read on their way, because the xDS port has no TLS");
        }
        let entry = Entry::new("policy.loaded", "allowed").with("principals", principals);
        self.trail.record(entry.with("issuers", issuers), SystemTime::now());
        self.policy.send_replace(Arc::new(policy));
    }

    /// Reads the policy, and refuses one that would open what others reach.
    fn read(&self, path: &Path) -> Result<(Policy, blake3::Hash), String> {
        let shown = path.display().to_string();
        let (policy, hash) = read_policy(path)
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
            && self.config.token_file.is_none()
            && !policy.principals().iter().any(is_admin)
        {
            return Err(format!(
                "{shown}: none of its principals has the role admin, so nobody could do everything; add one, or give \
                 --admin-token-file"
            ));
        }
        Ok((policy, hash))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs what is doubtful about a policy beside the groups and documents that are served now.
fn warn_of_doubts(policy: &Policy, control: &Control) {
    let (groups, documents) = (control.groups(), control.documents());
    let mut places = control.group_places(groups.keys());
    let mut place = |name: &GroupName| places.remove(name).unwrap_or_else(nowhere);
    let served = Served {
        groups: groups.iter().map(|(name, group)| (&group.definition, place(name))).collect(),
        namespaces: documents.translated.documents.keys().map(|key| &*key.namespace).collect(),
    };
    for doubt in check(policy, &served, SystemTime::now()) {
        let Place { file, line, column } = &doubt.place;
        warn!(%file, line, column, code = doubt.code, "{doubt}");
    }
}

/// The place of a group that no file defines.
fn nowhere() -> Place {
    Place { file: "".into(), line: 0, column: 0 }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The problem that a dry run is.
const DRY_RUN: &str = "clients of the xDS port are served although `identities` or the access policy would refuse them \
    (--access-dry-run): `xds-server audit` and xds_access_would_deny_total show who; restart without the flag to refuse them";
/// How long before its end a token is reported.
const ENDING_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_used_when_they_are_the_same_in_two_looks() {
        let mut watched = Watched { used: Some(1), ..Watched::default() };
        let bad = |text: &str| Err(text.to_owned());
        for (found, step, fault) in [
            (Ok(1), Step::None, None),
            (Ok(2), Step::LookAgain, None),
            (Ok(3), Step::LookAgain, None),
            (Ok(3), Step::Use, None),
            (Ok(3), Step::None, None),
            (bad("empty"), Step::LookAgain, None),
            (bad("empty"), Step::Keep("empty".to_owned()), Some("empty")),
            (bad("empty"), Step::None, Some("empty")),
            (bad("gone"), Step::LookAgain, Some("empty")),
            (bad("gone"), Step::Keep("gone".to_owned()), Some("gone")),
            (Ok(3), Step::None, None),
        ] {
            assert_eq!(watched.note(found.clone()), step, "{found:?}");
            assert_eq!(watched.fault.as_deref(), fault, "{found:?}");
        }
    }
}
