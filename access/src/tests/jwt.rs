//! Tokens, most of them hostile.

use proptest::prelude::*;
use serde_json::{Value, json};
use xds_cache::{Scalar, Subject};

use crate::{BadToken, Policy};

use super::vectors;
use super::{NOW, Signer, base64, claims, now, policy};

const ISSUER: &str =
    "issuers: [{ name: corp, issuer: 'https://issuer.example', audiences: [xds-server], jwksFile: k }]";

fn policy_of(jwks: &Value) -> Policy {
    policy(ISSUER, jwks).unwrap()
}

fn signer() -> (Signer, Policy) {
    let signer = Signer::new();
    let policy = policy_of(&json!({"keys": [signer.key()]}));
    (signer, policy)
}

#[test]
fn a_good_token_proves_its_subject_and_claims() {
    let (signer, policy) = signer();
    let claims = claims(json!({
        "jti": "t1", "groups": ["a", "b", ["c"]], "n": 3, "kubernetes.io": {"pod": {"name": "p", "x/y~z": true}},
    }));
    let proof = policy.verify_bearer(&signer.token(&claims), now()).unwrap();
    let Subject::Token(token) = &proof.subject else { panic!("{proof:?}") };
    assert_eq!((&*token.issuer, &*token.subject, token.id.as_deref()), ("corp", "alice", Some("t1")));
    let text = |text: &str| Scalar::String(text.to_owned());
    assert_eq!(token.claims.at("/groups"), [text("a"), text("b")]);
    assert_eq!(token.claims.at("/kubernetes.io/pod/name"), [text("p")]);
    assert_eq!(token.claims.at("/kubernetes.io/pod/x~1y~0z"), [Scalar::Bool(true)]);
    assert_eq!(token.claims.at("/n"), [Scalar::Number(3.0)]);
    let ends = proof.expires.and_then(|ends| ends.duration_since(now()).ok());
    assert_eq!(ends.map(|ends| ends.as_secs()), Some(660), "with the leeway");
}

#[test]
fn signatures_of_others_are_understood() {
    let keys = json!({"keys": [
        {"kty": "RSA", "kid": "rsa", "n": vectors::RSA_N, "e": "AQAB"},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": vectors::ED25519_X, "use": "jwt-svid"},
        {"kty": "EC", "crv": "P-384", "kid": "p384", "x": vectors::P384_X, "y": vectors::P384_Y, "key_ops": ["verify"]},
    ]});
    let policy = policy_of(&keys);
    for (header, signature) in [
        (r#"{"alg":"RS256","kid":"rsa"}"#, vectors::RS256),
        (r#"{"alg":"PS384","kid":"rsa"}"#, vectors::PS384),
        (r#"{"alg":"EdDSA","kid":"ed"}"#, vectors::EDDSA),
        (r#"{"alg":"ES384","kid":"p384"}"#, vectors::ES384),
    ] {
        let message = format!("{}.{}", base64(header.as_bytes()), base64(vectors::CLAIMS.as_bytes()));
        let verified = policy.verify_bearer(&format!("{message}.{signature}"), now());
        assert!(verified.is_ok(), "{header}: {verified:?}");
        let other = if signature.starts_with('A') { 'B' } else { 'A' };
        let changed = format!("{message}.{other}{}", &signature[1..]);
        assert_eq!(policy.verify_bearer(&changed, now()), Err(BadToken::Signature), "{header}");
    }
}

#[test]
fn claims_decide_until_when_and_for_whom() {
    let (signer, policy) = signer();
    let late = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    for (changes, expected) in [
        (json!({"exp": NOW - 59}), None),
        (json!({"exp": NOW - 60}), Some(BadToken::Expired(late(NOW - 60)))),
        (json!({"exp": (NOW + 1) as f64 + 0.5}), None),
        (json!({"exp": "never"}), Some(BadToken::Claim("exp"))),
        (json!({"exp": (NOW + 600).to_string()}), Some(BadToken::Claim("exp"))),
        (json!({"exp": null}), Some(BadToken::Claim("exp"))),
        (json!({"exp": -1}), Some(BadToken::Claim("exp"))),
        (json!({"exp": 1e300}), Some(BadToken::Claim("exp"))),
        (json!({"exp": u64::MAX}), Some(BadToken::Claim("exp"))),
        (json!({"exp": [NOW + 600]}), Some(BadToken::Claim("exp"))),
        (json!({"nbf": NOW + 60}), None),
        (json!({"nbf": NOW + 61}), Some(BadToken::NotYetValid(late(NOW + 61)))),
        (json!({"nbf": "soon"}), Some(BadToken::Claim("nbf"))),
        (json!({"iat": null}), None),
        (json!({"aud": "xds-server"}), None),
        (json!({"aud": "xds-server2"}), Some(BadToken::Audience)),
        (json!({"aud": []}), Some(BadToken::Audience)),
        (json!({"aud": [["xds-server"]]}), Some(BadToken::Audience)),
        (json!({"aud": {"xds-server": 1}}), Some(BadToken::Claim("aud"))),
        (json!({"aud": null}), Some(BadToken::Claim("aud"))),
        (json!({"sub": null}), Some(BadToken::Claim("sub"))),
        (json!({"sub": ""}), Some(BadToken::Claim("sub"))),
        (json!({"sub": 7}), Some(BadToken::Claim("sub"))),
        (json!({"iss": "https://issuer.example/"}), Some(BadToken::UnknownIssuer)),
        (json!({"iss": null}), Some(BadToken::Claim("iss"))),
        (json!({"iss": ["https://issuer.example"]}), Some(BadToken::Claim("iss"))),
    ] {
        let told = policy.verify_bearer(&signer.token(&claims(changes.clone())), now());
        assert_eq!(told.err(), expected, "{changes}");
    }
}

#[test]
fn an_issuer_may_limit_the_lifetime() {
    let signer = Signer::new();
    let yaml = ISSUER.replace("jwksFile", "maxLifetime: 10m, jwksFile");
    let policy = policy(&yaml, &json!({"keys": [signer.key()]})).unwrap();
    let longest = BadToken::LongLived(std::time::Duration::from_secs(600));
    for (changes, expected) in [
        (json!({}), None),
        (json!({"exp": NOW + 601}), Some(longest)),
        (json!({"iat": null}), Some(BadToken::Claim("iat"))),
    ] {
        let told = policy.verify_bearer(&signer.token(&claims(changes.clone())), now());
        assert_eq!(told.err(), expected, "{changes}");
    }
    let future = claims(json!({"iat": NOW + 6000, "exp": NOW + 6100}));
    assert!(matches!(policy.verify_bearer(&signer.token(&future), now()), Err(BadToken::NotYetValid(_))));
}

#[test]
fn a_header_chooses_nothing() {
    let (signer, policy) = signer();
    let good = claims(json!({})).to_string();
    let header = |told: &str| Some(told.to_owned());
    for (text, expected) in [
        (r#"{"alg":"ES256","kid":"p256"}"#, None),
        (
            r#"{"alg":"ES256","kid":"p256","typ":"at+JWT","jku":"https://evil.example","jwk":{"kty":"oct"}}"#,
            None,
        ),
        (r#"{"alg":"none","kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"alg":"None","kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"alg":"es256","kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"alg":"HS256","kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"alg":["ES256"],"kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"kid":"p256"}"#, header("no algorithm of a public key")),
        (r#"{"alg":"RS256","kid":"p256"}"#, header("not one of the key's")),
        (r#"{"alg":"EdDSA","kid":"p256"}"#, header("not one of the key's")),
        (r#"{"alg":"ES384","kid":"p256"}"#, header("not one of the key's")),
        (r#"{"alg":"ES256"}"#, header("no `kid`")),
        (r#"{"alg":"ES256","kid":""}"#, header("no `kid`")),
        (r#"{"alg":"ES256","kid":0}"#, header("no `kid`")),
        (r#"{"alg":"ES256","kid":"../../dev/null"}"#, header("does not have")),
        (r#"{"alg":"ES256","kid":"p256","crit":["exp"],"exp":1}"#, header("`crit`")),
        (r#"{"alg":"ES256","kid":"p256","crit":[]}"#, header("`crit`")),
        (r#"{"alg":"ES256","kid":"p256","crit":null}"#, header("`crit`")),
        (r#"{"alg":"ES256","kid":"p256","typ":"logout+jwt"}"#, header("`typ`")),
        (r#"{"alg":"none","alg":"ES256","kid":"p256"}"#, header("no JSON object")),
        (r#"["alg","ES256"]"#, header("no JSON object")),
        ("", header("no JSON object")),
    ] {
        let told = policy.verify_bearer(&signer.sign(text, &good), now()).err().map(|bad| bad.to_string());
        assert_eq!(told.is_some(), expected.is_some(), "{text}: {told:?}");
        if let (Some(told), Some(expected)) = (told, expected) {
            assert!(told.contains(&expected), "{text}: {told}");
        }
    }
}

#[test]
fn a_public_key_is_no_shared_secret() {
    let (signer, policy) = signer();
    let message = format!(
        "{}.{}",
        base64(br#"{"alg":"HS256","kid":"p256"}"#),
        base64(claims(json!({})).to_string().as_bytes())
    );
    let public = signer.key()["x"].as_str().unwrap().to_owned();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public.as_bytes());
    let token = format!("{message}.{}", base64(ring::hmac::sign(&key, message.as_bytes()).as_ref()));
    assert!(matches!(policy.verify_bearer(&token, now()), Err(BadToken::Header(_))));
}

#[test]
fn the_form_of_a_token_is_exact() {
    let (signer, policy) = signer();
    let good = signer.token(&claims(json!({})));
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("{good}") };
    for token in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        format!("{header}.{payload}"),
        format!("{header}.{payload}."),
        format!("{header}.{payload}.{signature}."),
        format!(".{header}.{payload}.{signature}"),
        format!("{header}.{payload}.{signature}="),
        format!("{header}=.{payload}.{signature}"),
        format!(" {good}"),
        format!("{good}\n"),
        format!("{payload}.{header}.{signature}"),
        good.replace(signature, &base64(&[0; 64])),
        good.replace(signature, &base64(&[0; 63])),
        good.replace(signature, &base64(&[0xff; 64])),
    ] {
        assert!(policy.verify_bearer(&token, now()).is_err(), "{token}");
    }
    let long = signer.token(&claims(json!({"x": "x".repeat(8 << 10)})));
    assert_eq!(policy.verify_bearer(&long, now()), Err(BadToken::TooLong));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(50), "]".repeat(50));
    assert!(matches!(policy.verify_bearer(&signer.sign(&deep, "{}"), now()), Err(BadToken::Form(_))));
}

#[test]
fn a_key_of_one_issuer_signs_for_no_other() {
    let [a, b] = [Signer::new(), Signer::new()];
    let yaml = "issuers:\n- { name: a, issuer: a, audiences: [xds-server], jwksFile: a }\n\
                - { name: b, issuer: b, audiences: [xds-server], jwksFile: b }\n";
    let keys = [("a", json!({"keys": [a.key()]})), ("b", json!({"keys": [b.key()]}))];
    let policy = Policy::read("p", yaml.as_bytes(), &mut |file| {
        let set = keys.iter().find(|(name, _)| *name == file).ok_or("none")?;
        Ok(set.1.to_string().into_bytes())
    });
    let policy = policy.unwrap();
    let token = |signer: &Signer, issuer: &str| signer.token(&claims(json!({"iss": issuer})));
    assert!(policy.verify_bearer(&token(&a, "a"), now()).is_ok());
    assert_eq!(policy.verify_bearer(&token(&a, "b"), now()), Err(BadToken::Signature));
}

#[test]
fn key_sets_are_read_strictly() {
    let key = Signer::new().key();
    let with = |field: &str, value: Value| {
        let mut key = key.clone();
        key[field] = value;
        key
    };
    for (keys, expected) in [
        (json!({"keys": [key]}), None),
        (json!({"keys": [with("alg", json!("ES256"))], "other": 1}), None),
        (json!({"keys": [{"kty": "oct", "kid": "s", "k": "AAAA"}, key]}), None),
        (json!({"keys": [{"kty": "oct", "kid": "s", "k": "AAAA"}]}), Some("none of its 1 keys can be used")),
        (json!({"keys": []}), Some("none of its 0 keys can be used")),
        (json!({"keys": [with("d", json!("AAAA"))]}), Some("private part \"d\"")),
        (json!({"keys": [key, key]}), Some("two of its keys have the `kid` \"p256\"")),
        (json!({"keys": [with("kid", json!(1))]}), Some("none of its 1 keys")),
        (json!({"keys": [with("alg", json!("RS256"))]}), Some("none of its 1 keys")),
        (json!({"keys": [with("use", json!("enc"))]}), Some("none of its 1 keys")),
        (json!({"keys": [with("key_ops", json!(["sign"]))]}), Some("none of its 1 keys")),
        (json!({"keys": [with("crv", json!("P-521"))]}), Some("none of its 1 keys")),
        (json!({"keys": [with("x", json!("AAAA"))]}), Some("none of its 1 keys")),
        (
            json!({"keys": [{"kty": "RSA", "kid": "w", "n": vectors::WEAK_RSA_N, "e": "AQAB"}]}),
            Some("none of its 1 keys"),
        ),
        (
            json!({"keys": [{"kty": "RSA", "kid": "w", "n": vectors::RSA_N, "e": "AQ"}]}),
            Some("none of its 1 keys"),
        ),
        (json!([key]), Some("no list `keys`")),
        (json!({"keys": {"a": key}}), Some("no list `keys`")),
        (json!("x"), Some("no list `keys`")),
    ] {
        let told = policy(ISSUER, &keys).err();
        assert_eq!(told.is_some(), expected.is_some(), "{keys}: {told:?}");
        if let (Some(told), Some(expected)) = (told, expected) {
            assert!(told.contains(expected), "{keys}: {told}");
            assert!(
                told.contains("access.yaml:1:") && told.contains("error[bad-jwks] issuers[0].jwksFile"),
                "{told}"
            );
        }
    }
}

proptest! {

    /// No header lets a token through that is not signed by the key, and none makes the reader panic.
    #[test]
    fn random_tokens_prove_nothing(header in any_json(), payload in any_json(), signature in any::<Vec<u8>>(), text in ".*") {
        static SIGNER: std::sync::LazyLock<(Signer, Policy)> = std::sync::LazyLock::new(signer);
        let (signer, policy) = &*SIGNER;
        let unsigned = format!("{}.{}.{}", base64(header.as_bytes()), base64(payload.as_bytes()), base64(&signature));
        prop_assert!(policy.verify_bearer(&unsigned, now()).is_err());
        prop_assert!(policy.verify_bearer(&text, now()).is_err());
        // Signed, it is believed only if the header says exactly which key and algorithm, and the claims are all there.
        let signed = policy.verify_bearer(&signer.sign(&header, &claims(json!({})).to_string()), now());
        let value = serde_json::from_str::<Value>(&header).unwrap_or_default();
        let is_right = value["alg"] == "ES256" && value["kid"] == "p256" && value.get("crit").is_none();
        prop_assert!(signed.is_err() || is_right, "{}", header);
    }
}

/// Text that is JSON of the words that matter here, or nearly so.
fn any_json() -> impl Strategy<Value = String> {
    let words =
        ["alg", "kid", "crit", "typ", "iss", "exp", "aud", "sub", "ES256", "HS256", "none", "p256", "JWT"];
    let word = proptest::sample::select(words.to_vec());
    let value = prop_oneof![
        word.clone().prop_map(|word| json!(word)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        Just(Value::Null),
        Just(json!([])),
        ".{0,8}".prop_map(|text| json!(text)),
    ];
    let pairs = proptest::collection::vec((word, value), 0..6);
    // Half of them begin well.
    let start = prop_oneof![Just(""), Just(r#""alg":"ES256","kid":"p256""#)];
    (start, pairs, 0..20_usize).prop_map(|(start, pairs, cut)| {
        let start = Some(start.to_owned()).filter(|start| !start.is_empty());
        let pairs = pairs.iter().map(|(key, value)| format!("{}:{value}", json!(key)));
        let fields: Vec<String> = start.into_iter().chain(pairs).collect();
        let text = format!("{{{}}}", fields.join(","));
        // One in twenty is cut in the middle.
        if cut == 0 { text.chars().take(text.chars().count() / 2).collect() } else { text }
    })
}
