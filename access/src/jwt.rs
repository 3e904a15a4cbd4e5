//! JSON Web Tokens (RFC 7519): which of them are believed, and until when.
//!
//! A token chooses neither its algorithm nor its key: both follow from the key set of its issuer. Anything that this module does not
//! understand and would have to (`crit`) makes it refuse the token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use xds_codec::document::{Node, Number, TreeValue};
use xds_codec::{Limits, Syntax, Tree, parse};
use xds_units::rfc3339;

use crate::issuer::Issuer;
use crate::keys::{Algorithm, MAX_KEY_ID_BYTES};

/// The reason why a bearer token is not believed. The texts hold nothing of the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// Nobody was given a token like this, and it is no JWT either.
    #[error("the token is unknown")]
    Unknown,
    /// It is longer than any that is looked at.
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It cannot be read.
    #[error("the token is no JWT: {0}")]
    Form(&'static str),
    /// Its header demands something else than this server does.
    #[error("the token's header is not accepted: {0}")]
    Header(&'static str),
    /// No issuer of the policy has its `iss`.
    #[error("the token's issuer is not in the access policy")]
    UnknownIssuer,
    /// The issuer has no key with its `kid`.
    #[error("the token is signed with a key that its issuer's key set does not have")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing or has another form.
    #[error("the token has no usable claim {0:?}")]
    Claim(&'static str),
    /// It is meant for others.
    #[error("the token is for another audience than this server")]
    Audience,
    /// It has ended.
    #[error("the token ended at {}", rfc3339(*.0))]
    Expired(SystemTime),
    /// It has not begun.
    #[error("the token is not valid before {}", rfc3339(*.0))]
    NotYetValid(SystemTime),
    /// It is valid for longer than its issuer's tokens may be.
    #[error("the token is valid for longer than the {} s that the access policy allows", .0.as_secs())]
    LongLived(Duration),
}

/// A token that its issuer has signed, that is meant for this server, and whose time has not ended.
pub(crate) struct Verified<'p> {
    pub(crate) issuer: &'p Issuer,
    pub(crate) subject: String,
    pub(crate) id: Option<String>,
    /// SHA-256 of the key that signed it.
    pub(crate) key: [u8; 32],
    /// The end of `exp` and the leeway of its issuer.
    pub(crate) ends: SystemTime,
    pub(crate) claims: Tree,
}

/// Returns `true` if a text has the form of a JWT, so that a secret token that nobody knows is not called one.
pub(crate) fn looks_like_jwt(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Checks a token at a time.
///
/// # Errors
///
/// [`BadToken`], of which only the first is told. The signature is checked before the claims, except for the issuer's name.
pub(crate) fn verify<'p>(
    token: &str,
    issuers: &'p [Issuer],
    now: SystemTime,
) -> Result<Verified<'p>, BadToken> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(BadToken::TooLong);
    }
    let not_three = BadToken::Form("it does not have three parts");
    let (message, signature) = token.rsplit_once('.').ok_or(not_three.clone())?;
    let (header, payload) = message.split_once('.').ok_or(not_three.clone())?;
    if payload.contains('.') {
        return Err(not_three);
    }
    let header = object(header).ok_or(BadToken::Form("its header is no JSON object in base64url"))?;
    let claims = object(payload).ok_or(BadToken::Form("its claims are no JSON object in base64url"))?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature);
    let signature = signature.map_err(|_| BadToken::Form("its signature is not base64url"))?;
    let (algorithm, key_id) = read_header(header.root())?;
    let name = claims.root().get("iss").and_then(Node::as_str).ok_or(BadToken::Claim("iss"))?;
    let issuer = issuers.iter().find(|issuer| issuer.issuer == name).ok_or(BadToken::UnknownIssuer)?;
    let key = issuer.keys.key(key_id).ok_or(BadToken::UnknownKey)?;
    if !key.allows(algorithm) {
        return Err(BadToken::Header("its `alg` is not one of the key's"));
    }
    if !key.has_signed(algorithm, message.as_bytes(), &signature) {
        return Err(BadToken::Signature);
    }
    check_claims(claims, issuer, key.fingerprint(), now)
}

/// The algorithm and the ID of the key.
fn read_header(header: Node<'_>) -> Result<(Algorithm, &str), BadToken> {
    if header.entry("crit").is_some() {
        return Err(BadToken::Header("it demands extensions (`crit`), and this server has none"));
    }
    if let Some(kind) = header.get("typ") {
        let kind = kind.as_str().unwrap_or_default();
        if !TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
            return Err(BadToken::Header("its `typ` is none of an access token; it is JWT or at+jwt"));
        }
    }
    let algorithm = header.get("alg").and_then(Node::as_str).and_then(Algorithm::of_name);
    let algorithm = algorithm.ok_or(BadToken::Header("its `alg` is no algorithm of a public key"))?;
    let key_id = header.get("kid").and_then(Node::as_str);
    let key_id = key_id.filter(|id| !id.is_empty() && id.len() <= MAX_KEY_ID_BYTES);
    Ok((algorithm, key_id.ok_or(BadToken::Header("it has no `kid`"))?))
}

fn check_claims(
    claims: Tree,
    issuer: &Issuer,
    key: [u8; 32],
    now: SystemTime,
) -> Result<Verified<'_>, BadToken> {
    let root = claims.root();
    let expires = time(root, "exp")?.ok_or(BadToken::Claim("exp"))?;
    let ends = expires.checked_add(issuer.leeway).ok_or(BadToken::Claim("exp"))?;
    if now >= ends {
        return Err(BadToken::Expired(expires));
    }
    if let Some(begins) = time(root, "nbf")?
        && now.checked_add(issuer.leeway).is_none_or(|now| now < begins)
    {
        return Err(BadToken::NotYetValid(begins));
    }
    let issued = time(root, "iat")?;
    if let Some(longest) = issuer.max_lifetime {
        let issued = issued.ok_or(BadToken::Claim("iat"))?;
        if expires.duration_since(issued).is_ok_and(|lifetime| lifetime > longest) {
            return Err(BadToken::LongLived(longest));
        }
        // A time of issue in the future would make the lifetime short.
        if now.checked_add(issuer.leeway).is_none_or(|now| now < issued) {
            return Err(BadToken::NotYetValid(issued));
        }
    }
    check_audience(root, issuer)?;
    let text = |claim| root.get(claim).and_then(Node::as_str);
    let subject = text("sub").filter(|subject| !subject.is_empty()).ok_or(BadToken::Claim("sub"))?;
    let (subject, id) = (subject.to_owned(), text("jti").map(str::to_owned));
    Ok(Verified { issuer, subject, id, key, ends, claims })
}

fn check_audience(claims: Node<'_>, issuer: &Issuer) -> Result<(), BadToken> {
    let audience = claims.get("aud").ok_or(BadToken::Claim("aud"))?;
    let is_ours =
        |node: Node<'_>| node.as_str().is_some_and(|text| issuer.audiences.iter().any(|own| own == text));
    let is_for_us = match audience.value() {
        TreeValue::String(_) => is_ours(audience),
        TreeValue::List(mut items) => items.any(is_ours),
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::Object(_) => {
            return Err(BadToken::Claim("aud"));
        }
    };
    if is_for_us { Ok(()) } else { Err(BadToken::Audience) }
}

/// A claim of seconds since 1970, as a number; another form is refused, so that nobody takes `"never"` for an end.
fn time(claims: Node<'_>, claim: &'static str) -> Result<Option<SystemTime>, BadToken> {
    let Some(entry) = claims.entry(claim) else { return Ok(None) };
    let since = match entry.value.value() {
        TreeValue::Number(Number::Integer(seconds)) => u64::try_from(seconds).ok().map(Duration::from_secs),
        TreeValue::Number(Number::Float(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
        TreeValue::Null
        | TreeValue::Bool(_)
        | TreeValue::String(_)
        | TreeValue::List(_)
        | TreeValue::Object(_) => None,
    };
    let at = since.filter(|since| since.as_secs() <= MAX_SECONDS).map(|since| UNIX_EPOCH + since);
    at.map(Some).ok_or(BadToken::Claim(claim))
}

/// A part of a token as a JSON object in which no key is there twice.
fn object(part: &str) -> Option<Tree> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    let limits = Limits { max_bytes: MAX_TOKEN_BYTES, max_depth: 16, ..Limits::default() };
    let tree = parse("", &bytes, Syntax::Json, &limits).ok()?.into_iter().next()?;
    tree.root().is_object().then_some(tree)
}

/// The longest token in bytes. Those of Kubernetes have about 1 KiB.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Types of a token that grants access; others, such as those of a logout, are signed with the same keys.
const TYPES: [&str; 5] = ["JWT", "at+jwt", "JOSE", "application/at+jwt", "application/jwt"];

/// The end of the year 9999; later times are mistakes.
const MAX_SECONDS: u64 = 253_402_300_799;
