//! The claims of a token as a proof.

use xds_cache::identity::{Claims, Token};
use xds_cache::{Proof, Scalar, Subject};
use xds_codec::document::{Node, Number, TreeValue};
use xds_codec::{Limits, Syntax};

use crate::jwt::{MAX_TOKEN_BYTES, Verified};

/// What a verified token proves.
pub(crate) fn proof(verified: &Verified<'_>) -> Proof {
    let mut claims = Claims::default();
    collect(verified.claims.root(), "", &mut claims);
    let token = Token {
        issuer: verified.issuer.name.as_str().into(),
        subject: verified.subject.as_str().into(),
        id: verified.id.as_deref().map(Into::into),
        key: verified.key,
        claims,
    };
    Proof { subject: Subject::Token(token.into()), expires: Some(verified.ends), certificate: None }
}

/// What a token with these claims, a JSON object, would prove. For questions about access: nothing was verified.
///
/// # Errors
///
/// The text is no JSON object, or longer than a token may be.
pub fn token_proof(issuer: &str, subject: &str, claims: &str) -> Result<Proof, String> {
    let limits = Limits { max_bytes: MAX_TOKEN_BYTES, ..Limits::default() };
    let trees = xds_codec::parse("", claims.as_bytes(), Syntax::Json, &limits)
        .map_err(|faults| faults.first().map(|fault| fault.message.clone()).unwrap_or_default())?;
    let root = trees.first().map(xds_codec::Tree::root).filter(|root| root.is_object());
    let root = root.ok_or(r#"expected a JSON object, such as {"groups": ["admins"]}"#)?;
    let mut found = Claims::default();
    collect(root, "", &mut found);
    let id = root.get("jti").and_then(Node::as_str).map(Into::into);
    let (issuer, subject) = (issuer.into(), subject.into());
    let token = Token { issuer, subject, id, key: [0; 32], claims: found };
    Ok(Proof { subject: Subject::Token(token.into()), expires: None, certificate: None })
}

/// Takes the scalars of an object, and those of its lists. A token has at most [`crate::MAX_TOKEN_BYTES`], so these are few.
fn collect(node: Node<'_>, pointer: &str, claims: &mut Claims) {
    match node.value() {
        TreeValue::Object(entries) => entries.for_each(|entry| {
            let key = entry.key.replace('~', "~0").replace('/', "~1");
            collect(entry.value, &format!("{pointer}/{key}"), claims);
        }),
        TreeValue::List(items) => {
            items.filter_map(scalar).for_each(|value| claims.insert(pointer, value));
        }
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {
            scalar(node).into_iter().for_each(|value| claims.insert(pointer, value));
        }
    }
}

/// A string, a number or a bool.
pub(crate) fn scalar(node: Node<'_>) -> Option<Scalar> {
    match node.value() {
        TreeValue::String(text) => Some(Scalar::String(text.to_owned())),
        TreeValue::Bool(truth) => Some(Scalar::Bool(truth)),
        TreeValue::Number(Number::Integer(integer)) => Some(Scalar::Number(integer as f64)),
        TreeValue::Number(Number::Float(float)) => Some(Scalar::Number(float)),
        TreeValue::Null | TreeValue::List(_) | TreeValue::Object(_) => None,
    }
}
