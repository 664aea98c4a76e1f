//! Proofs of keys that tokens are bound to.

use crate::forge::{ISSUER, NOW, Pair, RESOURCE, Source, claims, issuers, now, options, text};
use identity::{Presented, Proofs, Rejection};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

const TOKEN: &str = "a.b.c";

fn sha256(bytes: &str) -> String {
    text(digest(&SHA256, bytes.as_bytes()).as_ref())
}

/// The public half as a proof has it: without a name.
fn public(pair: &Pair) -> Value {
    let mut jwk = pair.jwk("x");
    let members = jwk.as_object_mut().unwrap();
    members.remove("kid");
    members.remove("use");
    jwk
}

/// The thumbprint, made of the text that RFC 7638 has.
fn thumbprint(pair: &Pair) -> String {
    let jwk = public(pair);
    let member = |name: &str| format!("\"{name}\":{}", jwk[name]);
    let names: &[&str] = match jwk["kty"].as_str().unwrap() {
        "EC" => &["crv", "kty", "x", "y"],
        "RSA" => &["e", "kty", "n"],
        _ => &["crv", "kty", "x"],
    };
    let members: Vec<_> = names.iter().map(|it| member(it)).collect();
    sha256(&format!("{{{}}}", members.join(",")))
}

fn header(pair: &Pair, algorithm: &str) -> Value {
    json!({"typ": "dpop+jwt", "alg": algorithm, "jwk": public(pair)})
}

fn proof_claims(id: &str) -> Value {
    json!({"jti": id, "htm": "POST", "htu": RESOURCE, "iat": NOW, "ath": sha256(TOKEN)})
}

fn presented(proof: &str) -> Presented<'_> {
    Presented {
        proof,
        method: "POST",
        address: RESOURCE,
        token: TOKEN,
    }
}

fn changed(value: &Value, changes: Value) -> Value {
    let mut value = value.clone();
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => drop(value.as_object_mut().unwrap().remove(name)),
            change => value[name] = change.clone(),
        }
    }
    value
}

#[test]
fn a_proof_of_each_kind_of_key_is_good_once() {
    let proofs = Proofs::new(false, UNIX_EPOCH).unwrap();
    let pairs = [
        (Pair::p256(), "ES256"),
        (Pair::p384(), "ES384"),
        (Pair::ed25519(), "EdDSA"),
        (Pair::rsa(), "RS256"),
        (Pair::rsa(), "PS512"),
    ];
    for (pair, algorithm) in &pairs {
        let claims = proof_claims(algorithm);
        let proof = pair.token(&header(pair, algorithm), &claims);
        let check = || proofs.check(&presented(&proof), &thumbprint(pair), now());
        assert_eq!(check(), Ok(()), "{algorithm}");
        let again = check().unwrap_err().to_string();
        assert!(again.contains("used before"), "{again}");
    }
}

#[test]
fn a_proof_is_for_one_request_with_one_token_by_one_key_now() {
    let (pair, other) = (Pair::p256(), Pair::p256());
    let (good, key) = (proof_claims("x"), thumbprint(&pair));
    let proofs = Proofs::new(false, UNIX_EPOCH).unwrap();
    let refused = |header: Value, claims: Value| {
        let proof = pair.token(&header, &claims);
        match proofs.check(&presented(&proof), &key, now()) {
            Err(Rejection::Unproved { why }) => why.to_owned(),
            outcome => panic!("{claims}: {outcome:?}"),
        }
    };
    let usual = header(&pair, "ES256");
    let rows = [
        (json!({"jti": null}), "no identifier"),
        (json!({"jti": ""}), "no identifier"),
        (json!({"jti": 7}), "no identifier"),
        (json!({"jti": "x".repeat(513)}), "no identifier"),
        (json!({"htm": null}), "another method"),
        (json!({"htm": "post"}), "another method"),
        (json!({"htm": "GET"}), "another method"),
        (json!({"htu": null}), "another address"),
        (
            json!({"htu": "https://tools.example/mcp/x"}),
            "another address",
        ),
        (
            json!({"htu": "http://tools.example/mcp"}),
            "another address",
        ),
        (
            json!({"htu": "https://tools.example.evil/mcp"}),
            "another address",
        ),
        (
            json!({"htu": "https://a@tools.example/mcp"}),
            "another address",
        ),
        (json!({"ath": null}), "another token"),
        (json!({"ath": sha256("a.b.d")}), "another token"),
        (json!({"ath": TOKEN}), "another token"),
        (json!({"iat": null}), "does not say when"),
        (json!({"iat": "now"}), "does not say when"),
        (json!({"iat": -1}), "does not say when"),
        (json!({"iat": NOW - 61}), "too old"),
        (json!({"iat": NOW + 31}), "not good yet"),
    ];
    for (changes, expected) in rows {
        let why = refused(usual.clone(), changed(&good, changes.clone()));
        assert!(why.contains(expected), "{changes}: {why}");
    }
    let mut private = public(&pair);
    private["d"] = json!("AAAA");
    let rows = [
        (json!({"typ": "JWT"}), "type dpop+jwt"),
        (json!({"typ": null}), "header"),
        (json!({"jwk": null}), "header"),
        (json!({"alg": "none"}), "not signed in a way"),
        (json!({"alg": "HS256"}), "not signed in a way"),
        (json!({"alg": "ES384"}), "signature"),
        (json!({"jwk": public(&other)}), "another key"),
        (json!({"jwk": private}), "another key"),
        (json!({"jwk": {"kty": "oct", "k": "AAAA"}}), "another key"),
        (json!({"crit": ["exp"]}), "extensions"),
    ];
    for (changes, expected) in rows {
        let why = refused(changed(&usual, changes.clone()), good.clone());
        assert!(why.contains(expected), "{changes}: {why}");
    }
    // Signed by another key than the one that it names, and things that are no proofs.
    let forged = other.token(&usual, &good);
    let long = "x".repeat(20_000);
    for proof in [&*forged, "", "a.b", "a.b.c", "a.b.c.d", "ä.b.c", &long] {
        let outcome = proofs.check(&presented(proof), &key, now());
        assert!(
            matches!(outcome, Err(Rejection::Unproved { .. })),
            "{proof:.20}: {outcome:?}"
        );
    }
    // None of these has used it up; what means the same is the same.
    for (id, htu) in [
        ("1", RESOURCE),
        ("2", "https://tools.example/mcp?session=1#x"),
        ("3", "HTTPS://Tools.Example:443/mcp"),
    ] {
        let claims = changed(&good, json!({"jti": id, "htu": htu, "iat": NOW - 60}));
        let proof = pair.token(&usual, &claims);
        assert_eq!(
            proofs.check(&presented(&proof), &key, now()),
            Ok(()),
            "{htu}"
        );
    }
}

#[test]
fn a_nonce_is_this_servers_and_lasts_for_minutes() {
    let (proofs, other) = (
        Proofs::new(true, UNIX_EPOCH).unwrap(),
        Proofs::new(true, UNIX_EPOCH).unwrap(),
    );
    let (pair, mut count) = (Pair::p256(), 0);
    let mut check = |nonce: Option<String>, seconds: u64| {
        count += 1;
        let at = now() + Duration::from_secs(seconds);
        let claims = changed(
            &proof_claims(&count.to_string()),
            json!({"nonce": nonce, "iat": NOW + seconds}),
        );
        let proof = pair.token(&header(&pair, "ES256"), &claims);
        proofs.check(&presented(&proof), &thumbprint(&pair), at)
    };
    let nonce = Some(proofs.nonce(now()));
    assert_eq!(check(nonce.clone(), 0), Ok(()));
    assert_eq!(check(nonce.clone(), 299), Ok(()));
    for (nonce, seconds) in [
        (None, 0),
        (Some(String::new()), 0),
        (Some("AAAA".to_owned()), 0),
        (Some(other.nonce(now())), 0),
        (nonce, 600),
    ] {
        assert_eq!(
            check(nonce, seconds),
            Err(Rejection::NeedsNonce),
            "after {seconds} s"
        );
    }
}

#[test]
fn a_proof_from_before_the_start_needs_a_nonce() {
    // The process before this one may have taken it.
    let proofs = Proofs::new(false, now()).unwrap();
    let pair = Pair::p256();
    let check = |id: &str, made: u64, nonce: Option<String>| {
        let claims = changed(&proof_claims(id), json!({"iat": made, "nonce": nonce}));
        let proof = pair.token(&header(&pair, "ES256"), &claims);
        proofs.check(&presented(&proof), &thumbprint(&pair), now())
    };
    assert_eq!(check("a", NOW - 1, None), Err(Rejection::NeedsNonce));
    assert_eq!(check("a", NOW - 1, Some(proofs.nonce(now()))), Ok(()));
    assert_eq!(check("b", NOW, None), Ok(()));
    // One from a clock that is ahead has a nonce, which the next process does not know.
    assert_eq!(check("c", NOW + 20, None), Err(Rejection::NeedsNonce));
    let of_another = Proofs::new(false, now()).unwrap().nonce(now());
    let check_again = check("c", NOW + 20, Some(of_another.clone()));
    assert_eq!(check_again, Err(Rejection::NeedsNonce));
    assert_eq!(
        check("d", NOW, Some(of_another)),
        Err(Rejection::NeedsNonce)
    );
    assert_eq!(check("c", NOW + 20, Some(proofs.nonce(now()))), Ok(()));
}

#[tokio::test]
async fn a_token_says_which_key_it_is_bound_to() {
    let pair = Pair::p256();
    let issuers = issuers(vec![options()], &Source::of(&[pair.jwk("a")])).await;
    let header = json!({"alg": "ES256", "kid": "a"});
    for (confirmation, expected) in [(json!({"jkt": "x"}), Some("x")), (Value::Null, None)] {
        let mut claims = claims();
        claims["cnf"] = confirmation;
        let verified = issuers.verify(&pair.token(&header, &claims), now());
        let identity = verified.unwrap().unwrap();
        assert_eq!(identity.bound_to.as_deref(), expected, "{ISSUER}");
    }
}
