//! The keys of an issuer: a JSON Web Key Set (RFC 7517), read strictly.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{Context, SHA256};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use xds_codec::document::Node;
use xds_codec::{Limits, Syntax, parse};

/// The keys that may sign tokens of one issuer, by key ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet {
    keys: BTreeMap<String, Key>,
}

/// A public key, and the algorithms that it may be used with: a token cannot choose others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    algorithms: Vec<Algorithm>,
    material: Material,
    fingerprint: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// A point as ring takes it.
    Point(Vec<u8>),
}

/// An algorithm of a signature (RFC 7518, RFC 8037). Those with shared secrets and `none` are missing on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// A file that is no key set that can be used. The texts hold nothing of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadKeySet {
    /// It is not a JSON object with a list `keys`.
    #[error("it is no JSON Web Key Set, {{\"keys\": […]}}: {0}")]
    Form(String),
    /// A key has a private part.
    #[error(
        "its key number {0} has the private part {1:?}; give this server the public keys alone, and replace the key, \
         because others may have read it"
    )]
    Private(usize, &'static str),
    /// Two keys have the same ID.
    #[error("two of its keys have the `kid` {0:?}; give each key one of its own")]
    Twice(String),
    /// No key is left.
    #[error(
        "none of its {0} keys can be used; a key needs a `kid`, and must be RSA of 2048 to 8192 bits, EC on P-256 or \
         P-384, or Ed25519"
    )]
    NoKey(usize),
}

impl KeySet {
    /// Reads a key set. Keys of other kinds and for other uses are left out, as RFC 7517 demands.
    ///
    /// # Errors
    ///
    /// [`BadKeySet`] if no key is left, and if there is anything in it that nobody should see.
    pub(crate) fn read(text: &[u8]) -> Result<Self, BadKeySet> {
        let limits = Limits { max_bytes: MAX_JWKS_BYTES, max_depth: 8, ..Limits::default() };
        let documents = parse("", text, Syntax::Json, &limits).map_err(|faults| {
            BadKeySet::Form(faults.first().map(|fault| fault.message.clone()).unwrap_or_default())
        })?;
        let list = documents.first().and_then(|tree| tree.root().get("keys")?.as_list());
        let Some(list) = list else { return Err(BadKeySet::Form("it has no list `keys`".to_owned())) };
        let n_keys = list.len();
        let mut keys = BTreeMap::new();
        for (index, key) in list.enumerate() {
            if let Some(part) = PRIVATE_PARTS.into_iter().find(|part| key.entry(part).is_some()) {
                return Err(BadKeySet::Private(index + 1, part));
            }
            let Some((id, key)) = read_key(key) else { continue };
            if keys.insert(id.clone(), key).is_some() {
                return Err(BadKeySet::Twice(id));
            }
        }
        if keys.is_empty() { Err(BadKeySet::NoKey(n_keys)) } else { Ok(Self { keys }) }
    }

    /// Returns `true` if a key has this fingerprint.
    pub(crate) fn has(&self, fingerprint: [u8; 32]) -> bool {
        self.keys.values().any(|key| key.fingerprint == fingerprint)
    }

    /// The key with that ID.
    pub(crate) fn key(&self, id: &str) -> Option<&Key> {
        self.keys.get(id)
    }
}

impl Material {
    fn fingerprint(&self) -> [u8; 32] {
        let parts = match self {
            Self::Rsa { n, e } => [&b"rsa"[..], n, e],
            Self::Point(point) => [&b"point"[..], point, b""],
        };
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }
}

impl Key {
    /// SHA-256 of the key, whatever its ID is.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Returns `true` if the key may be used with an algorithm.
    pub(crate) fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Returns `true` if this key made the signature of the message.
    pub(crate) fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { n, e } => {
                let Some(parameters) = algorithm.of_rsa() else { return false };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            Material::Point(point) => {
                let Some(of_curve) = algorithm.of_curve() else { return false };
                UnparsedPublicKey::new(of_curve, point).verify(message, signature)
            }
        };
        self.allows(algorithm) && verified.is_ok()
    }
}

impl Algorithm {
    /// The algorithm of that name, which is written in one way only.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    fn of_rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            Self::Es256 | Self::Es384 | Self::EdDsa => None,
        }
    }

    fn of_curve(self) -> Option<&'static dyn VerificationAlgorithm> {
        match self {
            Self::Es256 => Some(&ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Some(&ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => Some(&ED25519),
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => None,
        }
    }
}

/// A key with its ID; `None` if it is none that can be used here.
fn read_key(key: Node<'_>) -> Option<(String, Key)> {
    let text = |field: &str| key.get(field).and_then(Node::as_str);
    let id = text("kid").filter(|id| !id.is_empty() && id.len() <= MAX_KEY_ID_BYTES)?;
    // SPIFFE marks the keys of tokens in a use of its own.
    if key.get("use").is_some() && !matches!(text("use"), Some("sig" | "jwt-svid")) {
        return None;
    }
    if let Some(operations) = key.get("key_ops") {
        operations.as_list()?.find(|operation| operation.as_str() == Some("verify"))?;
    }
    let bytes = |field| BASE64_URL_SAFE_NO_PAD.decode(text(field)?).ok();
    let (material, possible) = match (text("kty")?, text("crv")) {
        ("RSA", _) => (rsa(bytes("n")?, bytes("e")?)?, &RSA[..]),
        ("EC", Some("P-256")) => (point(bytes("x")?, bytes("y")?, 32)?, &[Algorithm::Es256][..]),
        ("EC", Some("P-384")) => (point(bytes("x")?, bytes("y")?, 48)?, &[Algorithm::Es384][..]),
        ("OKP", Some("Ed25519")) => {
            let x = bytes("x").filter(|x| x.len() == 32)?;
            (Material::Point(x), &[Algorithm::EdDsa][..])
        }
        _ => return None,
    };
    let algorithms = match key.get("alg") {
        None => possible.to_vec(),
        Some(name) => {
            let only = Algorithm::of_name(name.as_str()?).filter(|only| possible.contains(only))?;
            vec![only]
        }
    };
    let fingerprint = material.fingerprint();
    Some((id.to_owned(), Key { algorithms, material, fingerprint }))
}

fn rsa(n: Vec<u8>, e: Vec<u8>) -> Option<Material> {
    let [n, e] = [n, e].map(|number| number.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<_>>());
    let n_bits = n.len() * 8 - usize::try_from(n.first()?.leading_zeros()).ok()?;
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    let is_strong = (2048..=8192).contains(&n_bits) && is_odd(&n) && is_odd(&e) && e != [1];
    is_strong.then_some(Material::Rsa { n, e })
}

fn point(x: Vec<u8>, y: Vec<u8>, n_bytes: usize) -> Option<Material> {
    let is_whole = x.len() == n_bytes && y.len() == n_bytes;
    is_whole.then(|| Material::Point([&[UNCOMPRESSED][..], &x, &y].concat()))
}

/// SEC 1: the point follows as both coordinates.
const UNCOMPRESSED: u8 = 4;

/// Private parts of RSA, EC and OKP keys. `k` is not one of them: a set may have shared secrets for others, which are left out.
const PRIVATE_PARTS: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "oth"];

/// An RSA key that does not name an algorithm, as those of SPIFFE do not, may be used with each of these.
const RSA: [Algorithm; 6] = [
    Algorithm::Rs256,
    Algorithm::Rs384,
    Algorithm::Rs512,
    Algorithm::Ps256,
    Algorithm::Ps384,
    Algorithm::Ps512,
];

const NAMES: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::Rs256),
    ("RS384", Algorithm::Rs384),
    ("RS512", Algorithm::Rs512),
    ("PS256", Algorithm::Ps256),
    ("PS384", Algorithm::Ps384),
    ("PS512", Algorithm::Ps512),
    ("ES256", Algorithm::Es256),
    ("ES384", Algorithm::Es384),
    ("EdDSA", Algorithm::EdDsa),
];

/// The longest file of keys in bytes: an issuer has two or three, of less than 1 KiB.
const MAX_JWKS_BYTES: usize = 1 << 20;

/// The longest ID of a key in bytes; those of use are hashes and dates.
pub(crate) const MAX_KEY_ID_BYTES: usize = 256;
