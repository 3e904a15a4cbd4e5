//! JSON Web Tokens, as an identity provider issues them.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};

/// An issuer of tokens, signed with Ed25519.
pub struct TokenIssuer(KeyPair);

impl fmt::Debug for TokenIssuer {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenIssuer")
    }
}

impl TokenIssuer {
    /// A new issuer, which nobody else trusts.
    ///
    /// # Errors
    ///
    /// If no key can be made.
    pub fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// Its keys, as a JWKS file has them.
    #[must_use]
    pub fn key_set(&self) -> String {
        let x = BASE64_URL_SAFE_NO_PAD.encode(self.0.der_bytes());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x}]}).to_string()
    }

    /// A token with these claims.
    ///
    /// # Errors
    ///
    /// If it cannot be signed.
    pub fn token(&self, claims: &Value) -> Result<String> {
        self.token_with(&json!({"alg": "EdDSA", "kid": "1"}), claims)
    }

    /// A token with this header, which may be a lie.
    ///
    /// # Errors
    ///
    /// If it cannot be signed.
    pub fn token_with(&self, header: &Value, claims: &Value) -> Result<String> {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", part(&header.to_string()), part(&claims.to_string()));
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(self.0.sign(message.as_bytes())?)))
    }
}

/// The claims of a token of `issuer.example` for the pod of a node and the audience `xds`, which ends after this time.
///
/// # Errors
///
/// If the clock is wrong.
pub fn claims(node: &str, left: Duration) -> Result<Value> {
    let exp = (SystemTime::now().duration_since(UNIX_EPOCH)? + left).as_secs();
    Ok(json!({"iss": "https://issuer.example", "aud": "xds", "sub": "edge", "exp": exp, "pod": node}))
}

/// An access policy with that issuer, which is called `cluster`, and its keys in this file.
#[must_use]
pub fn policy(keys: &Path) -> String {
    let keys = json!(keys);
    format!(
        "issuers: [{{ name: cluster, issuer: 'https://issuer.example', audiences: [xds], jwksFile: {keys}, leeway: 1s }}]\n"
    )
}
