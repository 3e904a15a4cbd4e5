//! The claims of a verified token as a proof.

use xds_cache::identity::{Claims, Token};
use xds_cache::{Proof, Scalar, Subject};
use xds_codec::document::{Node, Number, TreeValue};

use crate::jwt::Verified;

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
