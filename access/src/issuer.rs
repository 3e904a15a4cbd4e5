//! Issuers of JSON Web Tokens.

use std::time::Duration;

use crate::keys::KeySet;

/// An issuer whose tokens are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Its name in the policy.
    pub name: String,
    /// The `iss` claim of its tokens.
    pub issuer: String,
    /// Its tokens must be for one of these.
    pub audiences: Vec<String>,
    /// The longest time between `iat` and `exp` of its tokens; `None` if any.
    pub max_lifetime: Option<Duration>,
    /// How much the clocks of the issuer and of this server may differ.
    pub leeway: Duration,
    pub(crate) keys: KeySet,
}

/// The leeway of an issuer that does not say it.
pub(crate) const DEFAULT_LEEWAY: Duration = Duration::from_secs(60);
