//! The access policy as a value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::identity::{Fingerprint, SubjectPattern, shown};
use xds_cache::{Proof, Scalar, Subject};
use xds_codec::Place;
use xds_codec::document::Position;
use xds_units::rfc3339;

use crate::claims::proof;
use crate::issuer::Issuer;
use crate::jwt::{self, BadToken};
use crate::principal::{KnownToken, Placed, Principal};
use crate::token::TokenHash;

/// Who may do what. The default knows nobody.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Its path, for messages; empty if it is of no file.
    file: Arc<str>,
    issuers: Vec<Issuer>,
    principals: Vec<Arc<Principal>>,
    /// The principals by their tokens.
    tokens: HashMap<TokenHash, (usize, Option<SystemTime>)>,
    denied: Vec<Denied>,
}

/// Somebody whom nobody serves any more, though the certificate or the token is good.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Denied {
    pub(crate) whom: Whom,
    /// What the file says about it; shown to operators only.
    pub(crate) reason: Option<String>,
    /// Where it stands in the file.
    pub(crate) at: Position,
}

/// The part of the policy file that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it stands.
    pub place: Place,
    /// Its path, as in `principals[2].certificates[0]`.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Whom {
    Subject(SubjectPattern),
    Certificate(Fingerprint),
    /// The token with that `jti`.
    TokenId {
        issuer: String,
        id: String,
    },
}

/// Somebody who was recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct Identified {
    /// The principal.
    pub principal: Arc<Principal>,
    /// The name for the history: the principal's, and for a JWT its subject too, as in `platform/alice`.
    pub actor: Arc<str>,
    /// The credential, as in `token:9f86d081`, `certificate:9f86d081` or `jwt:corp`.
    pub via: Arc<str>,
    /// When the credential ends; `None` if it does not.
    pub ends: Option<SystemTime>,
}

/// The reason why somebody was not recognised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unidentified {
    /// There is no credential.
    #[error("no-credential: this API needs a bearer token or a client certificate")]
    Nothing,
    /// The token is not believed.
    #[error("bad-credential: {0}")]
    BadToken(#[from] BadToken),
    /// A secret token has ended.
    #[error("bad-credential: the token ended at {}", rfc3339(*.0))]
    Ended(SystemTime),
    /// The credential is good, and no principal has it.
    #[error("bad-credential: no principal of the access policy has {0}")]
    NoPrincipal(String),
    /// Certificate and token are of two principals.
    #[error(
        "bad-credential: the certificate is that of {certificate}, and the token that of {token}; send one of them"
    )]
    Disagree {
        /// The principal of the certificate.
        certificate: Arc<str>,
        /// The principal of the token.
        token: Arc<str>,
    },
    /// The access policy denies it.
    #[error("denied: this identity may not be used any more")]
    Denied,
}

impl Unidentified {
    /// The reason as a label: `no-credential`, `bad-credential` or `denied`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Nothing => "no-credential",
            Self::BadToken(_) | Self::Ended(_) | Self::NoPrincipal(_) | Self::Disagree { .. } => {
                "bad-credential"
            }
            Self::Denied => "denied",
        }
    }
}

impl Policy {
    /// Puts a policy together. Principals have different names, and no token is there twice.
    pub(crate) fn new(
        file: &Arc<str>,
        issuers: Vec<Issuer>,
        principals: Vec<Principal>,
        denied: Vec<Denied>,
    ) -> Self {
        let file = Arc::clone(file);
        let empty = Self { file, issuers, principals: Vec::new(), tokens: HashMap::new(), denied };
        principals.into_iter().fold(empty, Self::with)
    }

    /// The same with one more principal.
    #[must_use]
    pub fn with(mut self, principal: Principal) -> Self {
        let index = self.principals.len();
        for Placed { value: KnownToken { hash, expires }, .. } in &principal.tokens {
            self.tokens.insert(*hash, (index, *expires));
        }
        self.principals.push(principal.into());
        self
    }

    /// The same with one more principal, `admin`, who may do everything with this token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        self.clone().with(Principal::admin("admin", TokenHash::of(token)))
    }

    /// Everyone who may use the admin API; nobody, if the policy is only about clients.
    #[must_use]
    pub fn principals(&self) -> &[Arc<Principal>] {
        &self.principals
    }

    /// The issuers whose tokens are believed.
    #[must_use]
    pub fn issuers(&self) -> &[Issuer] {
        &self.issuers
    }

    /// The tokens that have ended or end before `until`: their principals, short hashes and ends.
    pub fn ending(&self, until: SystemTime) -> impl Iterator<Item = (&str, String, SystemTime)> {
        self.principals.iter().flat_map(move |principal| {
            let ending = principal.tokens.iter().filter_map(move |token| {
                let end = token.value.expires.filter(|end| *end <= until)?;
                Some((&*principal.name, token.value.hash.short(), end))
            });
            ending.collect::<Vec<_>>()
        })
    }

    /// Checks a JSON Web Token.
    ///
    /// # Errors
    ///
    /// [`BadToken`] says why it is not believed. Its text may be shown to whoever sent the token.
    pub fn verify_bearer(&self, token: &str, now: SystemTime) -> Result<Proof, BadToken> {
        jwt::verify(token, &self.issuers, now).map(|verified| proof(&verified))
    }

    /// Returns `true` if the policy denies whoever proves this.
    #[must_use]
    pub fn is_denied(&self, proof: &Proof) -> bool {
        self.denial(proof).is_some()
    }

    /// The reason why the policy denies whoever proves this; `None` if it does not. An entry without a reason has an empty one.
    #[must_use]
    pub fn denial(&self, proof: &Proof) -> Option<&str> {
        let denied = self.denied.iter().find(|denied| denied.whom.is(proof))?;
        Some(denied.reason.as_deref().unwrap_or_default())
    }

    /// The entry of `denied` that denies whoever proves this.
    #[must_use]
    pub fn denied_by(&self, proof: &Proof) -> Option<Rule> {
        let index = self.denied.iter().position(|denied| denied.whom.is(proof))?;
        Some(self.rule(format!("denied[{index}]"), self.denied.get(index)?.at))
    }

    /// The first principal whose pattern of certificates or JSON Web Tokens matches, and that pattern.
    #[must_use]
    pub fn principal_of(&self, proof: &Proof) -> Option<(&Arc<Principal>, Rule)> {
        self.principals.iter().enumerate().find_map(|(index, principal)| {
            let (field, of_field, at) = principal.credential_of(proof)?;
            Some((principal, self.rule(format!("principals[{index}].{field}[{of_field}]"), at)))
        })
    }

    /// The principal of this name, and where it stands.
    #[must_use]
    pub fn principal(&self, name: &str) -> Option<(&Arc<Principal>, Rule)> {
        let index = self.principals.iter().position(|principal| *principal.name == *name)?;
        let principal = self.principals.get(index)?;
        Some((principal, self.rule(format!("principals[{index}]"), principal.at)))
    }

    /// A part of this policy.
    pub(crate) fn rule(&self, path: String, at: Position) -> Rule {
        let place = Place { file: Arc::clone(&self.file), line: at.line, column: at.column };
        Rule { place, path }
    }

    /// Whom nobody serves.
    pub(crate) fn denied(&self) -> &[Denied] {
        &self.denied
    }

    /// Returns `true` if a token that was [verified](Self::verify_bearer) earlier would be trusted still: its issuer is in the
    /// policy, with the same `iss`, one of the token's audiences and the key that signed it. Other proofs are not this policy's.
    #[must_use]
    pub fn trusts(&self, proof: &Proof) -> bool {
        let Subject::Token(token) = &proof.subject else { return true };
        let is = |value: &Scalar, text: &str| matches!(value, Scalar::String(value) if value == text);
        let has = |claim, text: &str| token.claims.at(claim).iter().any(|value| is(value, text));
        self.issuers.iter().any(|issuer| {
            issuer.name == *token.issuer
                && has("/iss", &issuer.issuer)
                && issuer.audiences.iter().any(|audience| has("/aud", audience))
                && issuer.keys.has(token.key)
        })
    }

    /// Finds the principal of a request. `proofs` are those of its certificate, and of a token that was verified when a stream began;
    /// they count as long as they have not ended and are [trusted](Self::trusts).
    ///
    /// If several principals match one credential, it is the first in the file.
    ///
    /// # Errors
    ///
    /// [`Unidentified`] if a credential is bad, also beside a good one, and if there is none.
    pub fn identify(
        &self,
        proofs: &[Proof],
        bearer: Option<&str>,
        now: SystemTime,
    ) -> Result<Identified, Unidentified> {
        if proofs.iter().any(|proof| self.is_denied(proof)) {
            return Err(Unidentified::Denied);
        }
        let holds = |proof: &&Proof| proof.expires.is_none_or(|end| now < end) && self.trusts(proof);
        let is_token = |proof: &&Proof| matches!(proof.subject, Subject::Token(_));
        let proved = proofs.iter().filter(holds);
        let by_token = match bearer {
            Some(token) => Some(self.of_bearer(token, now)?),
            None => self.of_proofs(proved.clone().filter(is_token)),
        };
        let by_certificate = self.of_proofs(proved.filter(|proof| !is_token(proof)));
        match (by_certificate, by_token) {
            (Some(certificate), Some(token)) if certificate.principal != token.principal => {
                Err(Unidentified::Disagree {
                    certificate: Arc::clone(&certificate.principal.name),
                    token: Arc::clone(&token.principal.name),
                })
            }
            // The token says more: the subject.
            (_, Some(token)) => Ok(token),
            (Some(certificate), None) => Ok(certificate),
            (None, None) => match proofs.iter().filter(holds).find(|proof| !is_token(proof)) {
                Some(proof) => {
                    Err(Unidentified::NoPrincipal(format!("the certificate of {}", proof.subject)))
                }
                None => Err(Unidentified::Nothing),
            },
        }
    }

    /// The principal of a credential that proves this.
    fn of_proofs<'p>(&self, proofs: impl Iterator<Item = &'p Proof> + Clone) -> Option<Identified> {
        self.principals.iter().find_map(|principal| {
            let proof = proofs.clone().find(|proof| principal.has(proof))?;
            Some(Identified::new(principal, proof))
        })
    }

    fn of_bearer(&self, token: &str, now: SystemTime) -> Result<Identified, Unidentified> {
        let hash = TokenHash::of(token);
        if let Some((index, expires)) = self.tokens.get(&hash)
            && let Some(principal) = self.principals.get(*index)
        {
            if let Some(end) = expires.filter(|end| now >= *end) {
                return Err(Unidentified::Ended(end));
            }
            return Ok(Identified {
                principal: Arc::clone(principal),
                actor: Arc::clone(&principal.name),
                via: format!("token:{}", hash.short()).into(),
                ends: *expires,
            });
        }
        if self.issuers.is_empty() || !jwt::looks_like_jwt(token) {
            return Err(BadToken::Unknown.into());
        }
        let proof = self.verify_bearer(token, now)?;
        if self.is_denied(&proof) {
            return Err(Unidentified::Denied);
        }
        self.of_proofs(std::iter::once(&proof))
            .ok_or_else(|| Unidentified::NoPrincipal(format!("the token of {}", proof.subject)))
    }
}

impl Identified {
    /// A principal by what was proved.
    fn new(principal: &Arc<Principal>, proof: &Proof) -> Self {
        let name = &principal.name;
        let (actor, via): (Arc<str>, String) = match &proof.subject {
            // A blank would look like the end of the name in the history.
            Subject::Token(token) => (
                format!("{name}/{}", shown(&token.subject).replace(' ', "\\u{20}")).into(),
                format!("jwt:{}", token.issuer),
            ),
            Subject::Spiffe(_) | Subject::Dns(_) | Subject::CommonName(_) => {
                let fingerprint = proof.certificate.map(|it| it.to_string()).unwrap_or_default();
                (Arc::clone(name), format!("certificate:{fingerprint:.8}"))
            }
        };
        Self { principal: Arc::clone(principal), actor, via: via.into(), ends: proof.expires }
    }

    /// Returns `true` if both are the same caller with the same rights.
    #[must_use]
    pub fn is_still(&self, other: &Self) -> bool {
        let rights =
            |of: &Self| (Arc::clone(&of.principal.name), of.principal.role, of.principal.scope.texts());
        self.actor == other.actor && rights(self) == rights(other)
    }
}

impl Whom {
    fn is(&self, proof: &Proof) -> bool {
        match self {
            Self::Subject(pattern) => pattern.captures(&proof.subject, None).is_some(),
            Self::Certificate(fingerprint) => proof.certificate == Some(*fingerprint),
            Self::TokenId { issuer, id } => match &proof.subject {
                Subject::Token(token) => *token.issuer == **issuer && token.id.as_deref() == Some(id),
                Subject::Spiffe(_) | Subject::Dns(_) | Subject::CommonName(_) => false,
            },
        }
    }
}
