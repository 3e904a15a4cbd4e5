//! Tests of the whole: tokens that hostile clients send, and policies as they are written.

mod check;
mod jwt;
mod policy;
mod vectors;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::Policy;

/// An issuer with one key on P-256.
struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { pair, random }
    }

    /// Its public key.
    fn key(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": "p256", "x": base64(&point[1..33]), "y": base64(&point[33..])})
    }

    fn sign(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
        let signature = self.pair.sign(&self.random, message.as_bytes()).unwrap();
        format!("{message}.{}", base64(signature.as_ref()))
    }

    /// A token with the usual header.
    fn token(&self, claims: &Value) -> String {
        self.sign(r#"{"alg":"ES256","kid":"p256"}"#, &claims.to_string())
    }
}

fn base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// 2026-09-21, the present of the tests.
const NOW: u64 = 1_790_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Good claims, with some replaced; null takes one away.
fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": ["other", "xds-server"], "sub": "alice", "iat": NOW, "exp": NOW + 600,
    });
    for (claim, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(claim);
        } else {
            claims[claim] = value.clone();
        }
    }
    claims
}

/// A policy of which every key set is this one.
fn policy(yaml: &str, jwks: &Value) -> Result<Policy, String> {
    let read = Policy::read("access.yaml", yaml.as_bytes(), &mut |_| Ok(jwks.to_string().into_bytes()));
    read.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}
