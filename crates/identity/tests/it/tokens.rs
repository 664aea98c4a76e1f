//! Tokens: which are believed, and what they make of their owner.

use crate::forge::{ISSUER, NOW, Pair, RESOURCE, Source, claims, issuers, now, options, text};
use identity::{Algorithm, BadIssuers, Identity, IssuerOptions, Issuers, Means, Rejection};
use ring::hmac;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn verify(issuers: &Issuers, token: &str) -> Result<Arc<Identity>, Rejection> {
    // What would be waited for is refused in these tests: `fetching` is about waiting.
    let unavailable = Err(Rejection::Unavailable { why: "needs keys" });
    issuers.verify(token, now()).unwrap_or(unavailable)
}

fn why(outcome: Result<Arc<Identity>, Rejection>) -> String {
    match outcome {
        Ok(identity) => panic!("{identity:?}"),
        Err(rejection) => rejection.to_string(),
    }
}

#[tokio::test]
async fn each_algorithm_works_with_its_own_kind_of_key_and_no_other() {
    let pairs = [Pair::rsa(), Pair::p256(), Pair::p384(), Pair::ed25519()];
    let names = ["rsa", "p256", "p384", "ed"];
    let keys: Vec<Value> = pairs
        .iter()
        .zip(names)
        .map(|(pair, name)| pair.jwk(name))
        .collect();
    let issuers = issuers(vec![options()], &Source::of(&keys)).await;
    for algorithm in Algorithm::ALL {
        let fitting = match algorithm {
            Algorithm::ES256 => 1,
            Algorithm::ES384 => 2,
            Algorithm::EdDSA => 3,
            _ => 0,
        };
        for (index, pair) in pairs.iter().enumerate() {
            for (signer, name) in names.iter().enumerate() {
                let header = json!({"alg": algorithm.as_str(), "kid": name, "typ": "at+jwt"});
                let outcome = verify(&issuers, &pair.token(&header, &claims()));
                let expected = index == fitting && signer == fitting;
                assert_eq!(outcome.is_ok(), expected, "{header} by key {index}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_token_says_of_itself_decides_nothing() {
    let (pair, other) = (Pair::p256(), Pair::p256());
    let issuers = issuers(vec![options()], &Source::of(&[pair.jwk("a")])).await;
    let good = pair.token(&json!({"alg": "ES256", "kid": "a"}), &claims());
    assert!(verify(&issuers, &good).is_ok());
    let signed_by_other = |header: Value| other.token(&header, &claims());
    let point = other.jwk("a");
    let rows = [
        (json!({"alg": "ES256", "kid": "a"}), "signature"),
        // A key in the token, or a place where one is said to be.
        (
            json!({"alg": "ES256", "kid": "a", "jwk": point}),
            "signature",
        ),
        (
            json!({"alg": "ES256", "kid": "a", "jku": "https://evil.example/keys"}),
            "signature",
        ),
        (
            json!({"alg": "ES256", "kid": "a", "x5u": "https://evil.example/keys"}),
            "signature",
        ),
        (
            json!({"alg": "ES256", "kid": "a", "x5c": ["AAAA"]}),
            "signature",
        ),
        (json!({"alg": "ES256"}), "signature"),
        (
            json!({"alg": "ES256", "kid": "../../../../etc/passwd"}),
            "not known here",
        ),
        (
            json!({"alg": "ES256", "kid": "' OR 1=1 --"}),
            "not known here",
        ),
        (json!({"alg": "ES256", "kid": ""}), "not known here"),
        (
            json!({"alg": "ES256", "kid": "x".repeat(513)}),
            "too long a name",
        ),
        (json!({"alg": "ES256", "kid": 7}), "header"),
        (
            json!({"alg": "ES256", "kid": "a", "crit": ["exp"]}),
            "extensions",
        ),
        (
            json!({"alg": "ES256", "kid": "a", "b64": false}),
            "extensions",
        ),
        (
            json!({"alg": "ES256", "kid": "a", "typ": "dpop+jwt"}),
            "another kind",
        ),
        (json!({"alg": "none", "kid": "a"}), "not signed in a way"),
        (json!({"alg": "None", "kid": "a"}), "not signed in a way"),
        (json!({"alg": "HS256", "kid": "a"}), "not signed in a way"),
        (json!({"alg": "es256", "kid": "a"}), "not signed in a way"),
        (json!({"alg": "ES512", "kid": "a"}), "not signed in a way"),
        (json!({"alg": ["ES256"], "kid": "a"}), "header"),
        (json!({"kid": "a"}), "header"),
        (json!(["ES256"]), "header"),
    ];
    for (header, expected) in rows {
        let why = why(verify(&issuers, &signed_by_other(header.clone())));
        assert!(why.contains(expected), "{header}: {why}");
    }
}

#[tokio::test]
async fn nothing_but_the_private_key_makes_a_signature() {
    let pair = Pair::rsa();
    let jwk = pair.jwk("a");
    let issuers = issuers(vec![options()], &Source::of(std::slice::from_ref(&jwk))).await;
    let good = pair.token(&json!({"alg": "RS256", "kid": "a"}), &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    assert!(verify(&issuers, &good).is_ok());

    // Without a signature, with an empty one, with the first half, with one of another token.
    let elsewhere = pair.token(&json!({"alg": "RS256", "kid": "a"}), &json!({"sub": "x"}));
    let elsewhere = elsewhere.rsplit_once('.').unwrap().1;
    let half = text(&[0; 128]);
    for forged in ["", &half, elsewhere, &text(&[0; 256]), &text(&[255; 256])] {
        let token = format!("{signed}.{forged}");
        assert!(
            why(verify(&issuers, &token)).contains("signature"),
            "{forged}"
        );
    }
    // Other claims under the same signature.
    let header = signed.split('.').next().unwrap();
    let mut raised = claims();
    raised["sub"] = json!("root");
    let token = format!(
        "{header}.{}.{signature}",
        text(raised.to_string().as_bytes())
    );
    assert!(why(verify(&issuers, &token)).contains("signature"));
    // The public key as if it were a shared secret.
    for secret in [
        jwk["n"].as_str().unwrap().as_bytes().to_vec(),
        jwk.to_string().into_bytes(),
    ] {
        for algorithm in ["HS256", "RS256"] {
            let header = text(json!({"alg": algorithm, "kid": "a"}).to_string().as_bytes());
            let signed = format!("{header}.{}", text(claims().to_string().as_bytes()));
            let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
            let tag = text(hmac::sign(&key, signed.as_bytes()).as_ref());
            assert!(
                verify(&issuers, &format!("{signed}.{tag}")).is_err(),
                "{algorithm}"
            );
        }
    }
    // Not quite the form.
    for malformed in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        &format!("{good}."),
        &format!(".{good}"),
        signed,
        &good.replace('.', ".."),
        &format!("{good}="),
        &format!("{signed}.{signature}\n"),
        &"x".repeat(100_000),
    ] {
        let outcome = verify(&issuers, malformed);
        assert!(
            matches!(outcome, Err(Rejection::Malformed { .. })),
            "{malformed:.50}: {outcome:?}"
        );
    }
    for text_of_claims in ["[]", "7", "{", "", "null"] {
        let token = pair.token_of("{\"alg\":\"RS256\"}", text_of_claims, "RS256");
        let outcome = verify(&issuers, &token);
        assert!(
            matches!(outcome, Err(Rejection::Malformed { .. })),
            "{text_of_claims}: {outcome:?}"
        );
    }
    // The same name twice in a header could be read in two ways.
    let twice = pair.token_of(
        "{\"alg\":\"RS256\",\"alg\":\"none\"}",
        &claims().to_string(),
        "RS256",
    );
    assert!(why(verify(&issuers, &twice)).contains("header"));
}

#[tokio::test]
async fn claims_must_be_about_here_and_now() {
    let pair = Pair::ed25519();
    let issuers = issuers(vec![options()], &Source::of(&[pair.jwk("a")])).await;
    let with = |changes: Value| {
        let mut claims = claims();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        verify(
            &issuers,
            &pair.token(&json!({"alg": "EdDSA", "kid": "a"}), &claims),
        )
    };
    for good in [
        json!({}),
        json!({"aud": [RESOURCE, "other"]}),
        json!({"aud": "HTTPS://Tools.example:443/mcp/"}),
        json!({"exp": NOW - 29}),
        json!({"exp": f64::from(u32::MAX) / 2.0 + 0.5}),
        json!({"nbf": NOW + 30, "iat": NOW + 30}),
        json!({"nbf": null}),
        json!({"cnf": null}),
    ] {
        assert!(with(good.clone()).is_ok(), "{good}");
    }
    let audience = "another audience";
    let rows = [
        (json!({"aud": "https://tools.example/other"}), audience),
        (json!({"aud": "https://tools.example/mcp/x"}), audience),
        (json!({"aud": "https://tools.example.evil/mcp"}), audience),
        (json!({"aud": "http://tools.example/mcp"}), audience),
        (json!({"aud": "https://tools.example/MCP"}), audience),
        (json!({"aud": []}), audience),
        (json!({"aud": null}), audience),
        (json!({"aud": {"x": RESOURCE}}), audience),
        (json!({"aud": "*"}), audience),
        (
            json!({"iss": "https://login.example/realms/other"}),
            "issuer that is not accepted",
        ),
        (
            json!({"iss": format!("{ISSUER}/")}),
            "issuer that is not accepted",
        ),
        (json!({"iss": null}), "who issued it"),
        (json!({"iss": [ISSUER]}), "who issued it"),
        (json!({"exp": NOW - 30}), "expired"),
        (json!({"exp": 0}), "expired"),
        (json!({"exp": null}), "when it expires"),
        (json!({"exp": "never"}), "when it expires"),
        (json!({"exp": -1}), "when it expires"),
        (json!({"exp": 1e300}), "when it expires"),
        (json!({"nbf": NOW + 31}), "not good yet"),
        (json!({"iat": NOW + 31}), "not good yet"),
        (json!({"nbf": "soon"}), "not good yet"),
        (json!({"sub": null}), "whose it is"),
        (json!({"sub": 7}), "whose it is"),
        (json!({"sub": ""}), "principal"),
        (json!({"sub": " ana"}), "principal"),
        (json!({"sub": "ana\n"}), "principal"),
        (json!({"sub": "an\u{202e}a"}), "principal"),
        (json!({"sub": "x".repeat(257)}), "principal"),
        (json!({"cnf": {"x5t#S256": "x"}}), "bound to something"),
        (
            json!({"cnf": {"jkt": "x", "x5t#S256": "x"}}),
            "bound to something",
        ),
        (json!({"cnf": {"jkt": 7}}), "bound to something"),
        (json!({"cnf": {}}), "bound to something"),
        (json!({"cnf": "x"}), "bound to something"),
    ];
    for (changes, expected) in rows {
        let why = why(with(changes.clone()));
        assert!(why.contains(expected), "{changes}: {why}");
    }
}

#[tokio::test]
async fn a_token_is_for_an_audience_that_is_configured() {
    let pair = Pair::ed25519();
    let options = IssuerOptions {
        audiences: vec!["api://shop".to_owned(), "api://stock".to_owned()],
        resource: None,
        ..options()
    };
    let issuers = issuers(vec![options], &Source::of(&[pair.jwk("a")])).await;
    let with = |audience: &str| {
        let mut claims = claims();
        claims["aud"] = audience.into();
        let header = json!({"alg": "EdDSA", "kid": "a"});
        verify(&issuers, &pair.token(&header, &claims))
    };
    for good in ["api://shop", "api://stock"] {
        assert!(with(good).is_ok(), "{good}");
    }
    for other in ["api://other", "api://shop/", RESOURCE, ""] {
        assert!(why(with(other)).contains("another audience"), "{other}");
    }
}

#[tokio::test]
async fn a_token_has_no_more_bytes_than_are_looked_at() {
    const MOST: usize = 16 * 1024;
    let source = Source::of(&[Pair::ed25519().jwk("a")]);
    let issuers = issuers(vec![options()], &source).await;
    let of = |length: usize| why(verify(&issuers, &"x".repeat(length)));
    assert!(!of(MOST).contains("too long"), "{}", of(MOST));
    assert!(of(MOST + 1).contains("too long"), "{}", of(MOST + 1));
}

#[tokio::test]
async fn kinds_of_tokens_go_by_several_names() {
    let pair = Pair::ed25519();
    let issuers = issuers(vec![options()], &Source::of(&[pair.jwk("a")])).await;
    let with = |kind: &str| {
        let token = pair.token(&json!({"alg": "EdDSA", "typ": kind}), &claims());
        verify(&issuers, &token)
    };
    // RFC 9068 §4 has both of the second, and RFC 7515 §4.1.9 any case.
    for good in ["JWT", "jwt", "at+jwt", "application/at+jwt", "AT+JWT"] {
        assert!(with(good).is_ok(), "{good}");
    }
    for other in ["", "id+jwt", "application/", "jwt+at", "logout+jwt"] {
        assert!(why(with(other)).contains("another kind"), "{other}");
    }
}

#[tokio::test]
async fn a_token_that_was_believed_is_not_believed_after_its_end() {
    let pair = Pair::ed25519();
    let issuers = issuers(vec![options()], &Source::of(&[pair.jwk("a")])).await;
    let token = pair.token(&json!({"alg": "EdDSA"}), &claims());
    let at = |seconds| {
        issuers
            .verify(&token, now() + Duration::from_secs(seconds))
            .unwrap()
    };
    assert!(at(0).is_ok());
    assert!(issuers.is_known(&token));
    assert!(at(329).is_ok());
    assert!(why(at(330)).contains("expired"));
}

#[tokio::test]
async fn claims_become_a_principal_with_roles() {
    let pair = Pair::ed25519();
    let options = IssuerOptions {
        principal_claim: "preferred_username".to_owned(),
        principal_prefix: "corp:".to_owned(),
        roles_claim: Some("realm_access.roles".to_owned()),
        scopes: BTreeMap::from([
            ("mcp:read".to_owned(), vec!["reader".into()]),
            (
                "mcp:write".to_owned(),
                vec!["writer".into(), "reader".into()],
            ),
        ]),
        required_scopes: vec!["mcp:use".to_owned()],
        ..options()
    };
    let issuers = issuers(vec![options], &Source::of(&[pair.jwk("a")])).await;
    let with = |changes: Value| {
        let mut claims = claims();
        claims["preferred_username"] = json!("ana@example.com");
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        verify(&issuers, &pair.token(&json!({"alg": "EdDSA"}), &claims))
    };
    let rows = [
        (json!({"scope": "mcp:use"}), vec![]),
        (
            json!({"scope": "mcp:write mcp:use other"}),
            vec!["reader", "writer"],
        ),
        // As large directories write it, as a text and as a list.
        (json!({"scp": "mcp:use mcp:read"}), vec!["reader"]),
        (json!({"scp": ["mcp:use", "mcp:read"]}), vec!["reader"]),
        (
            json!({"scope": "mcp:use", "realm_access": {"roles": ["b", "a", "b"]}}),
            vec!["a", "b"],
        ),
        (
            json!({"scope": "mcp:use", "realm_access.roles": "a b"}),
            vec!["a", "b"],
        ),
        (
            json!({"scope": "mcp:use", "realm_access": {"roles": ["a", 7]}}),
            vec![],
        ),
        (json!({"scope": "mcp:use", "realm_access": "a"}), vec![]),
    ];
    for (changes, roles) in rows {
        let identity = with(changes.clone()).unwrap();
        assert_eq!(&*identity.principal, "corp:ana@example.com");
        assert_eq!(
            identity.means,
            Means::Jwt {
                issuer: "corp".into()
            }
        );
        let found: Vec<&str> = identity.roles.iter().map(|it| &**it).collect();
        assert_eq!(found, roles, "{changes}");
    }
    for lacking in [
        json!({}),
        json!({"scope": "mcp:user"}),
        json!({"scope": "mcp:write"}),
    ] {
        let outcome = with(lacking.clone());
        let needed = "mcp:use".into();
        assert_eq!(
            outcome,
            Err(Rejection::InsufficientScope { needed }),
            "{lacking}"
        );
    }
    // With what is put before it, too.
    let named = |length: usize| {
        let name = "x".repeat(length);
        with(json!({"scope": "mcp:use", "preferred_username": name}))
    };
    assert!(named(251).is_ok());
    assert!(why(named(252)).contains("principal"));
    let many: Vec<String> = (0..300).map(|number| format!("r{number}")).collect();
    let outcome = with(json!({"scope": "mcp:use", "realm_access": {"roles": many}}));
    assert!(why(outcome).contains("too many"));
    let outcome = with(json!({"scope": "mcp:use", "realm_access": {"roles": ["a\u{7}"]}}));
    assert!(why(outcome).contains("no names"));
}

#[tokio::test]
async fn two_issuers_are_kept_apart() {
    let (ours, theirs) = (Pair::p256(), Pair::p256());
    let one = IssuerOptions {
        principal_prefix: "a:".to_owned(),
        ..options()
    };
    let other = IssuerOptions {
        name: "partner".into(),
        issuer: "https://partner.example".to_owned(),
        principal_prefix: "b:".to_owned(),
        algorithms: vec![Algorithm::EdDSA, Algorithm::ES256],
        ..options()
    };
    // Both publish both keys under the same name; the source does not tell them apart.
    let source = Source::of(&[ours.jwk("same")]);
    let issuers = issuers(vec![one.clone(), other.clone()], &source).await;
    let header = json!({"alg": "ES256", "kid": "same"});
    let mut claims = claims();
    assert_eq!(
        &*verify(&issuers, &ours.token(&header, &claims))
            .unwrap()
            .principal,
        "a:ana"
    );
    assert!(verify(&issuers, &theirs.token(&header, &claims)).is_err());
    claims["iss"] = json!("https://partner.example");
    assert_eq!(
        &*verify(&issuers, &ours.token(&header, &claims))
            .unwrap()
            .principal,
        "b:ana"
    );
    let rsa = Pair::rsa().token(&json!({"alg": "RS256", "kid": "same"}), &claims);
    assert!(why(verify(&issuers, &rsa)).contains("not signed in a way"));

    let with = |change: fn(&mut IssuerOptions)| {
        let mut changed = other.clone();
        change(&mut changed);
        Issuers::new(vec![one.clone(), changed]).err()
    };
    let same = |error| matches!(error, Some(BadIssuers::Same(..)));
    let same_principals = |error| matches!(error, Some(BadIssuers::SamePrincipals(..)));
    assert_eq!(with(|_| {}), None);
    assert!(same(with(|it| it.name = "corp".into())));
    assert!(same(with(|it| it.issuer = ISSUER.to_owned())));
    assert!(same_principals(with(
        |it| it.principal_prefix = "a:".to_owned()
    )));
    assert!(same_principals(with(
        |it| it.principal_prefix = "a:b".to_owned()
    )));
    assert!(same_principals(with(
        |it| it.principal_prefix = String::new()
    )));
    assert!(matches!(
        with(|it| it.resource = None),
        Some(BadIssuers::NoAudience(_))
    ));
    assert!(matches!(
        with(|it| it.algorithms.clear()),
        Some(BadIssuers::NoAlgorithms(_))
    ));
}

#[tokio::test]
async fn keys_that_are_for_something_else_verify_nothing() {
    let pair = Pair::p256();
    let mut jwk = pair.jwk("a");
    let fine = Pair::ed25519().jwk("other");
    let token = pair.token(&json!({"alg": "ES256", "kid": "a"}), &claims());
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["encrypt"])),
        ("alg", json!("ECDH-ES")),
        ("alg", json!("ES384")),
        ("crv", json!("secp256k1")),
        ("kty", json!("oct")),
        ("x", json!("AAAA")),
        ("y", json!(7)),
    ] {
        let before = jwk[name].clone();
        jwk[name] = value.clone();
        let issuers = issuers(vec![options()], &Source::of(&[jwk.clone(), fine.clone()])).await;
        assert!(verify(&issuers, &token).is_err(), "{name}: {value}");
        jwk[name] = before;
    }
    jwk["alg"] = json!("ES256");
    jwk["use"] = json!("sig");
    jwk["key_ops"] = json!(["sign", "verify"]);
    let issuers = issuers(vec![options()], &Source::of(&[jwk])).await;
    assert!(verify(&issuers, &token).is_ok());
}
