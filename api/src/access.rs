//! Who may use the admin API: tokens, certificates, the access policy, and the limits of failed logins and writes. The
//! [guard](crate::guard) decides by it.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use xds_access::limit::{Failures, Writes};
use xds_access::{AuthCounts, Policy, Trail};

/// Who may use the admin API, and for what.
#[derive(Debug)]
pub struct Access {
    /// The token of the principal `admin`, who may do everything. It may change.
    pub token: watch::Receiver<Option<Token>>,
    /// True if a [`VerifiedClient`] needs no token while the policy has no principals. If there is neither this nor a token nor a
    /// principal, everybody may ask.
    pub accepts_certificates: bool,
    /// True if the xDS port serves only clients that show a certificate or a token.
    pub clients_need_credential: bool,
    /// Names of this server besides `localhost` and IP addresses: `xds.example.com`, or with a port, `xds.example.com:8443`.
    pub allowed_hosts: Vec<String>,
    /// The access policy, which may change.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// Failed logins and writes of the last minute.
    pub limits: Mutex<Limits>,
    /// What was done and refused.
    pub trail: Arc<Trail>,
    /// The same as numbers.
    pub counts: Arc<AuthCounts>,
}

/// Failed logins and writes of the last minute.
#[derive(Debug, Default)]
pub struct Limits {
    pub(crate) failures: Failures,
    pub(crate) writes: Writes,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            token: watch::channel(None).1,
            accepts_certificates: false,
            clients_need_credential: false,
            allowed_hosts: Vec::new(),
            policy: watch::channel(Arc::default()).1,
            limits: Mutex::default(),
            trail: Arc::default(),
            counts: Arc::default(),
        }
    }
}

/// An extension of requests whose client showed a certificate that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedClient;

/// An extension of requests by which the page asks whether somebody may sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignIn;

/// A secret token. Never printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Takes a token; surrounding white space is left out.
    ///
    /// # Errors
    ///
    /// [`InvalidToken`] if it is empty or has a character that a header cannot carry.
    pub fn new(token: &str) -> Result<Self, InvalidToken> {
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken);
        }
        Ok(Self(token.into()))
    }

    /// The token as one that never changes.
    #[must_use]
    pub fn fixed(self) -> watch::Receiver<Option<Self>> {
        watch::channel(Some(self)).1
    }

    /// Compares in a time that depends on the length alone.
    pub(crate) fn is(&self, offered: &str) -> bool {
        let (own, offered) = (self.0.as_bytes(), offered.as_bytes());
        let difference = own.iter().zip(offered).fold(0, |difference, (a, b)| difference | (a ^ b));
        own.len() == offered.len() && difference == 0
    }

    /// The token itself, to be compared by its hash.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A text that cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token consists of visible ASCII characters, at least one")]
pub struct InvalidToken;
