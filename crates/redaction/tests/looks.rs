//! Texts that are recognized as secrets by their shape, and texts that are not.

#![allow(clippy::unwrap_used)]

use redaction::{Redactor, Spec};
use serde_json::json;

fn redactor() -> Redactor {
    Redactor::new(&Spec::default(), [1; 32]).unwrap()
}

/// A text with a secret between `«` and `»`, and what kind of secret it is.
const SECRETS: &[(&str, &str)] = &[
    // Cards of each scheme, in each way of writing them.
    ("card", "«4111111111111111»"),
    ("card", "pay with «4111 1111 1111 1111», please"),
    ("card", "«4111-1111-1111-1111»"),
    ("card", "«4111.1111.1111.1111»"),
    ("card", "«4111  1111  1111  1111»"),
    ("card", "«4111\u{a0}1111\u{a0}1111\u{a0}1111»"),
    ("card", "«4111\u{2013}1111\u{2013}1111\u{2013}1111»"),
    ("card", "«5555555555554444» 12/27 123"),
    ("card", "«5555 5555 5555 4444» 12/27"),
    ("card", "«5555-5555-5555-4444»-12/27"),
    ("card", "«2223003122003222»"),
    ("card", "«378282246310005»"),
    ("card", "«3782 822463 10005»"),
    ("card", "«30569309025904»"),
    ("card", "«3056 930902 5904»"),
    ("card", "«6011111111111117»"),
    ("card", "«3566002020360505»"),
    ("card", "«6200000000000005»"),
    ("card", "«6304000000000000»"),
    ("card", "#«4111111111111111»."),
    ("card", "(«4111111111111111»)"),
    ("card", "card_«4111111111111111»_a"),
    ("card", "1 «4111 1111 1111 1111» 1"),
    ("card", "n°«4111111111111111»"),
    // Tokens of schemes.
    ("token", "Bearer «mF_9.B5f-4.1JqM»"),
    ("token", "got 'bearer   «abcdefgh1»'"),
    ("token", "BEARER «AbCdEfGhIj»"),
    ("token", "Bearer «abcdefghijklmnopqrstuvwxyz»"),
    ("token", "Basic «QWxhZGRpbjpvcGVuIHNlc2FtZQ==»"),
    ("token", "basic «dXNlcjpwYXNz»"),
    ("token", "Basic «dTo/Pz8=»"),
    ("token", "Basic «YWI6Y2Q=»"),
    // JSON web tokens.
    (
        "jwt",
        "«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U»",
    ),
    ("jwt", "t=«eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.»"),
    ("jwt", "\"«eyJhbGciOiJSU0EtT0FFUCJ9.T0tPSw.SVY.Q1Q.VEFH»\""),
    ("jwt", "«eyAiYWxnIjoiSFMyNTYifQ.eyJzdWIiOiIxIn0.c2ln»"),
    // Private keys.
    (
        "private key",
        "«-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----»\nnext",
    ),
    (
        "private key",
        "a «-----BEGIN RSA PRIVATE KEY-----\\nMIIE\\n-----END RSA PRIVATE KEY-----» b",
    ),
    (
        "private key",
        "«-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r»",
    ),
    (
        "private key",
        "«-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----»",
    ),
    (
        "private key",
        "«-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ\n-----END PGP PRIVATE KEY BLOCK-----»",
    ),
    (
        "private key",
        "«---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/5\n---- END SSH2 ENCRYPTED PRIVATE KEY ----»",
    ),
    (
        "private key",
        "«PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nAAAA\nPrivate-MAC: 00ff»\nnext",
    ),
    // Keys of services.
    ("api key", "«AKIAIOSFODNN7EXAMPLE»"),
    ("api key", "aws «ASIAIOSFODNN7EXAMPLE», ok"),
    ("api key", "«ghp_0123456789abcdefghijABCDEFGHIJ012345»"),
    ("api key", "«gho_0123456789abcdefghijABCDEFGHIJ012345»"),
    (
        "api key",
        "«github_pat_11AAAAAAA0abcdefghijkl_mnopqrstuvwxyz»",
    ),
    ("api key", "«glpat-abcdefghij0123456789»"),
    ("api key", "x«glpat-abcdefghij0123456789»"),
    (
        "api key",
        "«owl_3f9a52c08d11_u0Wc-abcdefghijklmnopqrstuvwxyz_0123456789A»",
    ),
    ("api key", "«xoxb-123456789012-abcdefABCDEF»"),
    ("api key", "«xoxp-1-2-3-abcdef»"),
    ("api key", "«xapp-1-A0-123-abcdef»"),
    (
        "api key",
        "https://hooks.slack.com/services/«T00000000/B00000000/abcdefghijklmnopqrstuvwx»",
    ),
    ("api key", "«AIzaSyA1234567890abcdefghijklmnopqrstuv»"),
    ("api key", "«sk_live_0123456789abcdef»"),
    ("api key", "«whsec_0123456789abcdefghijklmn»"),
    ("api key", "«sk-proj-0123456789abcdefghij»"),
    ("api key", "«hf_abcdefghijklmnopqrstuvwxyzABCDEFGH»"),
    (
        "api key",
        "«SG.0123456789abcdefghijkl.0123456789abcdefghijklmnopqrstuvwxyz0123456789A»",
    ),
    ("api key", "«npm_0123456789abcdefghijABCDEFGHIJ012345»"),
    ("api key", "«hvs.0123456789abcdefghijABCDEFGHIJ»"),
    (
        "api key",
        "bot«123456789:AAabcdefghijklmnopqrstuvwxyz0123456»!",
    ),
    // Passwords in addresses.
    (
        "password",
        "postgres://user:«s3cr3t»@db.example.org:5432/shop",
    ),
    ("password", "redis://:«s3cr3t»@localhost"),
    ("password", "https://user:«p@ss:word»@example.org/a?b"),
    (
        "password",
        "mongodb+srv://u:«pa/ss»@cluster0.example.net/db",
    ),
    (
        "password",
        "git clone https://«k7Qm2vX9pL4tZ8wR1yB6»@git.example.org/a.git",
    ),
    ("password", "amqp://u:«1234»@h, then http://example.org/"),
    ("password", "see https://u:«pa/ss»@example.org/x"),
    ("password", "https://u:«a?b/c»@h"),
    // After names.
    ("secret", "password=«hunter2»"),
    ("secret", "PASSWORD: «hunter2»"),
    ("secret", "password = \"«hun ter2»\" and more"),
    ("secret", "{'db_password': '«hunter2»', 'x': 1}"),
    ("secret", r#"{"password": "«hun\"ter2»", "x": 1, }"#),
    ("secret", r#"said {\"password\":\"«hunter2»\",\"x\":1}"#),
    ("secret", "data[\"secret\"] = '«x»'"),
    ("secret", "token => '«abc»'"),
    ("secret", "apiKey: b'«abc»'"),
    ("secret", "{'pin': «1234»}"),
    ("secret", "f(password=«hunter2»)"),
    ("secret", "https://h/p?a=1&access_token=«abc»&b=2"),
    ("secret", "https://h/p?password=«a&b»"),
    ("secret", "Server=h;Password=«a,b»;Database=d"),
    ("secret", "login(user=bob, password=«hunter2», retry=1)"),
    ("secret", "Authorization: «Digest username=\"x\"»"),
    ("secret", "Cookie: «a=b; c=d»\nnext"),
    ("secret", "-H 'Authorization: «Token abc def»' -X POST"),
    ("secret", "<password>«hunter2»</password>"),
    ("secret", "<ns:Secret a='b'><pin>«1234»</pin></ns:Secret>"),
    ("secret", "credentials: «{'user': 'a', 'key': ['b']}», x"),
    ("secret", "passwords: «['a', 'b']»."),
    ("secret", "password2=«hunter2»"),
    ("secret", "密码=«abc»"),
    ("secret", "密码：«abc» 1"),
    ("secret", "数据库密码： «a:b1»"),
    ("secret", "password＝«hunter2»"),
    ("secret", "パスワード：'«hun ter2»'"),
    ("secret", "DB_PASS=«hunter2»"),
    ("secret", "{'smtp_pass': '«hunter2»'}"),
    ("secret", "mysqlPass: «hunter2»"),
    ("secret", "pswd=«a»"),
    ("secret", "password:\n  «hunter2»\nuser: a"),
    ("secret", "db:\n  password:\r\n    «hunter2»\r\n"),
    ("secret", "Password: \n«Xy7hunter2»"),
    ("secret", "PGPASSWORD=«hunter2» psql"),
    ("secret", "export PGPASSWORD='«hunter2»'"),
    ("secret", "MYSQLPASSWORD=«a»"),
    ("secret", "x dbpassword=«b» y"),
    ("secret", "userpassword: «hunter2»"),
    ("secret", "SSHPASSPHRASE=«hunter2»"),
    ("secret", "Passwort: «hunter2», x"),
    ("secret", "mot_de_passe=«hunter2»"),
    ("secret", "CONTRASEÑA=«hunter2»"),
    ("secret", "REDISCLI_AUTH=«hunter2» redis-cli"),
    ("secret", "_auth=«dXNlcjpwYXNz»"),
    ("secret", "//packages.example/:_authToken=«a-b-c»"),
    ("secret", "Auth: «Xy7hunter2»"),
    ("secret", "dsn=«shop:hunter2@tcp(db:3306)/shop»"),
    ("secret", "ssh_key: «hunter2»"),
    ("secret", "?X-Amz-Signature=«a0»&x=1"),
    (
        "secret",
        "https://a.blob.example.net/c/b?sv=2023-11-03&sig=«Z%2FRHIX5Xcg0Mq2rqI3OlWTjEg2tYkboXr1P9ZUXDtkk%3D»&sp=r",
    ),
    ("secret", "password: '«never closed"),
    ("secret", "password: «the1»"),
    ("secret", "password=«the» end"),
    ("secret", "password:«is»"),
];

/// Harmless texts that look like a secret, or nearly so.
const HARMLESS: &[&str] = &[
    // Numbers.
    "order 4711000000000001",
    "see https://example.com/a:b@c",
    // Too short or too long for what they begin like.
    "Basic Og==",
    "eyJhb.x.y",
    "AKIAIOSFODNN7EXAMPLE7",
    "4111111111111112",
    "4111 1111 1111 1112",
    "1234567890123456",
    "0000000000000000",
    "9999999999999999",
    "invoice 2024-0000-1234-5678",
    "4006381333931",
    "9780306406157",
    "490154203237518",
    "8991101200003204510",
    "1763740000000",
    "1763740000000000",
    "1763740000000000000",
    "2026-11-21T17:40:24.123456789Z",
    "20261121174024123456",
    "+49 30 1234567890",
    "+1 (415) 555-2671",
    "+86 138 0013 8000",
    "0049 4111 1111 111",
    "192.168.100.200:8080",
    "4111111111111111a",
    "deadbeef4111111111111111",
    "0.4111111111111111",
    "41111111111111110000",
    "4111-1111-1111-1111-2222-3333",
    "4111 1111-1111 1111",
    "DE89 3704 0044 0532 0130 00",
    // Identifiers.
    "550e8400-e29b-41d4-a716-446655440000",
    "41111111-1111-4111-1111-111111111111",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "d41d8cd98f00b204e9800998ecf8427e",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "W/\"67ab43\"",
    "arn:aws:iam::123456789012:role/x",
    "sha256:e3b0c44298fc1c149afbf4c8996fb924",
    // Prose.
    "the bearer of bad news",
    "Bearer authentication is required",
    "bearer responsibilities",
    "Basic information",
    "Basic English",
    "basic auth",
    "the token has expired",
    "password must not be empty",
    "a secret, he said",
    "tokens: 512",
    "max_tokens=512",
    "next_page_token=abc",
    "\"progressToken\": 7",
    "unexpected token: }",
    "OWLCLAW_API_KEY: the API key is not known",
    "OWLCLAW_API_KEY: no API key",
    "`governance.approvals.http_token`: it refers to a variable that is not set",
    "identity.jwt.corp.secret: must have 32 bytes",
    "password: missing, expected a text",
    "token: Unknown.",
    "password: null",
    "password=None, token=***",
    "password=''",
    "has_password: true",
    "NOPASSWD: /usr/bin/systemctl",
    "passwordless: yes, password_policy=strict, passwords_kept: 5",
    "author: Ann Lee; authority=example.org; design: oak; signal: 9; tokens_used=512",
    "auth: none, auth=basic, auth: bearer, auth: required, auth=oauth2",
    "auth: OAuth2PasswordBearer, auth: client_credentials, auth: AWS4-HMAC-SHA256",
    "auth: failed for Ann, oauth: 550e8400-e29b-41d4-a716-446655440000",
    "auth=https://auth.example.org/v2",
    "dsn: 5.1.1, dsn=MyData, sdsn=550e8400-e29b-41d4-a716",
    "session_id=550e8400-e29b-41d4-a716-446655440000",
    "public_ssh_key=ssh-ed25519",
    "monkey: 1, keys: 2, keyboard=us",
    "passenger: Ann; spin: left; company=x; author: y; opinion: z",
    "https://example.org:8080/a@b",
    "https://user@example.org/",
    "https://build-agent-of-warehouse-2@example.org/",
    "https://first.last%40example.com@example.org/",
    "sig=none",
    "sig: kernel-team",
    "ssh://git@github.com:owner/name.git",
    "skill://stock/counting",
    "jdbc:postgresql://localhost:5432/shop?user=a@b",
    "http://[::1]:8080/",
    "http://[::1]:8080/a@b, http://h:/a@b",
    "密码：必须至少八位，密码：the length",
    "http://registry:PORT/@scope/pkg",
    "https://api:${PORT}/users/@me",
    "http://host:{port}/x?mail=a@b",
    "password:\n  user: bob",
    "password:\nuser: bob",
    "Password:\nWelcome back",
    "password:\n  must not be empty",
    "password:\n\n  next",
    "boarding_pass=7, first_pass: ok, bypass=1, proxy_pass http://h",
    "mailto:eve@example.org",
    "C:\\Users\\x: y",
    "eyJ is how it begins",
    "eyJhbGciOiJIUzI1NiJ9",
    "eyJhbGciOiJIUzI1NiJ9.x",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "AKIA is a prefix",
    "EURAKIAIOSFODNN7EXAMPLE",
    "ghp_short",
    "task-force-one-two-three-four-five",
    "sk-learn-and-other-libraries-of-python",
    "disk-0123456789abcdefghij",
    "xoxo-hugs-and-kisses",
    "SG.1",
    "key-value",
    "a >= b, c => d, <p>e</p>, <!-- f -->",
    "",
    "会員番号: 123",
];

#[test]
fn what_looks_like_a_secret_gives_way() {
    let redactor = redactor();
    for (kind, marked) in SECRETS {
        let (before, rest) = marked.split_once('«').unwrap();
        let (secret, after) = rest.split_once('»').unwrap_or((rest, ""));
        let text = format!("{before}{secret}{after}");
        let redacted = redactor.text(&text);
        let placeholder = redacted
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .unwrap_or_else(|| panic!("{text:?} became {redacted:?}"));
        let digest = placeholder
            .strip_prefix(&format!("[redacted {kind} "))
            .and_then(|rest| rest.strip_suffix(']'));
        assert!(
            digest.is_some_and(|it| it.len() == 16 && it.bytes().all(|it| it.is_ascii_hexdigit())),
            "{text:?} became {redacted:?}"
        );
        // Once is enough.
        assert_eq!(redactor.text(&redacted), redacted, "{text:?}");

        // The same in a string of JSON, and as a name, and in JSON in a string of JSON.
        let value = json!({ "note": text });
        let expected = json!({ "note": redacted });
        let json = redactor.json("tool/a", &value.to_string()).into_owned();
        assert_eq!(json, expected.to_string(), "{text:?}");
        let name = redactor
            .json("", &json!({ (text.as_str()): null }).to_string())
            .into_owned();
        assert_eq!(name, json!({ (&*redacted): null }).to_string(), "{text:?}");
        let embedded = redactor
            .json("", &json!([value.to_string()]).to_string())
            .into_owned();
        assert_eq!(
            embedded,
            json!([expected.to_string()]).to_string(),
            "{text:?}"
        );
    }
}

/// Letters and digits that a key may have, in the order of no key.
struct Letters(u64);

impl Letters {
    fn next(&mut self, alphabet: &[u8], length: usize) -> String {
        let mut letter = || {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            char::from(alphabet[(mixed >> 33) as usize % alphabet.len()])
        };
        (0..length).map(|_| letter()).collect()
    }
}

#[test]
fn members_are_secret_by_their_names() {
    let redactor = redactor();
    for name in [
        "PGPASSWORD",
        "dbpassword",
        "auth",
        "sentry_dsn",
        "ssh_key",
        "Passwort",
    ] {
        let json = json!({ name: "Xy7-hunter2" }).to_string();
        assert!(
            !redactor.json("tool/a", &json).contains("hunter2"),
            "{name}"
        );
    }
    for (name, value) in [
        ("auth", json!("basic")),
        ("auth", json!("OAuth2PasswordBearer")),
        ("auth", json!("as the user that Ann2 is")),
        ("auth", json!({"user": "Ann2Lee7", "kind": "x"})),
        ("auth", json!(["Ann2Lee7"])),
        ("dsn", json!("postgres://db2.example.org/shop")),
        ("author", json!("Ann2Lee7")),
        ("max_tokens", json!(512)),
        ("passwordless", json!("Ann2Lee7")),
    ] {
        let json = json!({ name: value }).to_string();
        assert_eq!(redactor.json("tool/a", &json), json);
    }
}

#[test]
fn a_private_key_in_an_array_of_lines_is_taken_out_to_its_end() {
    const BODY: &str = "MIIEpAIBAAKCAQEA0123456789abcdefghijklmnopqrstuvwxyzABCD";
    let redactor = redactor();
    for (begin, end, line_end) in [
        (
            "-----BEGIN RSA PRIVATE KEY-----",
            "-----END RSA PRIVATE KEY-----",
            "",
        ),
        (
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "\r\n",
        ),
        (
            "PuTTY-User-Key-File-3: ssh-ed25519",
            "Private-MAC: 0f",
            "\n",
        ),
    ] {
        let lines = ["before", begin, BODY, "MIIE==", end, "after"];
        let lines: Vec<String> = lines.map(|it| format!("{it}{line_end}")).into();
        let given = json!({"lines": lines, "next": [BODY], "text": json!(lines).to_string()});
        let redacted: serde_json::Value =
            serde_json::from_str(&redactor.json("tool/a", &given.to_string())).unwrap();
        let text = redacted["text"].as_str().unwrap().to_owned();
        for lines in [&redacted["lines"], &serde_json::from_str(&text).unwrap()] {
            assert!(!lines.to_string().contains("MIIE"), "{lines}");
            assert_eq!(
                (&lines[0], &lines[5]),
                (&given["lines"][0], &given["lines"][5])
            );
        }
        assert_eq!(redacted["next"], given["next"]);
    }
    // One that never ends is over with its array, and what is public stays.
    for (lines, left) in [
        (json!([["-----BEGIN PRIVATE KEY-----", BODY], [BODY]]), 1),
        (
            json!([
                "-----BEGIN CERTIFICATE-----",
                BODY,
                "-----END CERTIFICATE-----"
            ]),
            1,
        ),
    ] {
        let redacted = redactor.json("tool/a", &lines.to_string()).into_owned();
        assert_eq!(redacted.matches("MIIE").count(), left, "{redacted}");
    }
}

#[test]
fn members_are_secret_by_what_stands_beside_them() {
    let redactor = redactor();
    for secret in [
        json!({"d": "hunter2", "e": "AQAB", "kty": "RSA", "n": "public", "p": "hunter2", "qi": "hunter2"}),
        json!({"keys": [{"kty": "oct", "k": "hunter2"}]}),
        json!({"text": json!({"k": "hunter2", "kty": "oct"}).to_string()}),
        json!({"name": "DB_PASSWORD", "value": "hunter2"}),
        json!([{"Key": "token", "Value": {"a": ["hunter2"]}}]),
        json!({"headers": [{"name": "Authorization", "value": "hunter2"}]}),
        json!({"name": "auth", "value": "Xy7-hunter2"}),
    ] {
        let redacted = redactor.json("tool/a", &secret.to_string()).into_owned();
        assert!(!redacted.contains("hunter2"), "{redacted}");
        assert!(
            secret.get("n").is_none() || redacted.contains("public"),
            "{redacted}"
        );
    }
    let before = r#"{"value": "hunter2", "n\u0061me": "password"}"#;
    assert!(!redactor.json("tool/a", before).contains("hunter2"));
    for harmless in [
        json!({"d": 1, "k": "v", "p": "q"}),
        json!({"kty": "EC", "crv": "P-256", "x": "a", "y": "b", "in": {"d": "c"}}),
        json!({"name": "author", "value": "Ann"}),
        json!({"name": "max_tokens", "value": 5, "in": {"value": 6}}),
        json!({"name": "auth", "value": "basic"}),
        json!({"name": "password", "type": "string", "in": {"value": 6}}),
        json!({"a": {"name": "password"}, "value": "x"}),
        json!(["name", "password", "value", "x"]),
        json!({"name": "next_page_token", "value": "abc"}),
    ] {
        let json = harmless.to_string();
        assert_eq!(redactor.json("tool/a", &json), json);
    }
    let spec = Spec {
        built_in_keys: false,
        ..Spec::default()
    };
    let json = r#"{"kty":"oct","k":"hunter2"}"#;
    let without = Redactor::new(&spec, [1; 32]).unwrap();
    assert_eq!(without.json("tool/a", json), json);
}

/// Thousands of keys as services make them, in the places where they are found: none stays.
#[test]
fn keys_of_services_are_found_wherever_they_stand() {
    const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const SMALL: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    const CAPITALS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    const DIGITS: &[u8] = b"0123456789";
    const HEXADECIMAL: &[u8] = b"0123456789abcdef";
    /// Pieces of a kind of key: a fixed text, and the alphabet and length of what follows it.
    type Kind = [(&'static str, &'static [u8], usize)];
    const KINDS: &[&Kind] = &[
        &[("sk-", LETTERS, 20), ("T3BlbkFJ", LETTERS, 20)],
        &[("sk-", LETTERS, 48)],
        &[("sk-", LETTERS, 20)],
        &[("sk-", SMALL, 32)],
        &[("sk-proj-", BASE64, 48)],
        &[("sk-proj-", BASE64, 156)],
        &[("sk-svcacct-", BASE64, 74)],
        &[("sk-ant-api03-", BASE64, 93), ("AA", b"A", 0)],
        &[("sk-ant-admin01-", BASE64, 93)],
        &[("sk-or-v1-", HEXADECIMAL, 64)],
        &[("ghp_", LETTERS, 36)],
        &[("ghs_", LETTERS, 36)],
        &[("github_pat_", LETTERS, 22), ("_", LETTERS, 59)],
        &[("glpat-", BASE64, 20)],
        &[("glptt-", SMALL, 40)],
        &[("xoxb-", DIGITS, 12), ("-", DIGITS, 12), ("-", LETTERS, 24)],
        &[
            ("xoxp-", DIGITS, 11),
            ("-", DIGITS, 11),
            ("-", DIGITS, 12),
            ("-", HEXADECIMAL, 32),
        ],
        &[
            ("xapp-1-A", CAPITALS, 10),
            ("-", DIGITS, 13),
            ("-", HEXADECIMAL, 64),
        ],
        &[("AKIA", CAPITALS, 16)],
        &[("ASIA", CAPITALS, 16)],
        &[("AIza", BASE64, 35)],
        &[("ya29.", BASE64, 100)],
        &[("GOCSPX-", BASE64, 28)],
        &[("sk_live_", LETTERS, 24)],
        &[("rk_live_", LETTERS, 99)],
        &[("whsec_", LETTERS, 32)],
        &[("hf_", LETTERS, 34)],
        &[("gsk_", LETTERS, 52)],
        &[("xai-", LETTERS, 80)],
        &[("pplx-", LETTERS, 48)],
        &[("r8_", LETTERS, 37)],
        &[("ATATT3xFfGF0", BASE64, 150), ("=", HEXADECIMAL, 8)],
        &[("SG.", BASE64, 22), (".", BASE64, 43)],
        &[("npm_", LETTERS, 36)],
        &[("pypi-AgEIcHlwaS5vcmc", BASE64, 100)],
        &[("hvs.", BASE64, 24)],
        &[("dckr_pat_", BASE64, 27)],
        &[("shpat_", HEXADECIMAL, 32)],
        &[("LTAI", LETTERS, 20)],
        &[("LTAI", LETTERS, 12)],
        &[("AKID", LETTERS, 32)],
        &[("eyJhbGciOiJIUzI1NiJ9.eyJ", BASE64, 40), (".", BASE64, 43)],
        &[("owl_", HEXADECIMAL, 12), ("_", BASE64, 43)],
    ];
    const PLACES: &[(&str, &str)] = &[
        ("", ""),
        ("it is ", "."),
        ("\"", "\""),
        ("'", "'"),
        ("(", ")"),
        ("<", ">"),
        ("x=", "&y=1"),
        ("/", "/"),
        (",", ","),
        ("\n", "\n"),
        ("\u{e9}", "\u{e9}"),
        // Escapes of a text that is quoted in another one.
        ("said\\n", "\\n"),
        ("said\\t", "\\"),
        ("\\u0022", "\\u0022"),
        ("\\x22", "\\x22"),
        ("q=a%20", "%20b"),
        ("q%3D", "%26"),
        ("\u{1b}[31m", "\u{1b}[0m"),
        ("\\u001b[1;31m", "\\u001b[0m"),
    ];
    const EACH: usize = 40;
    let redactor = redactor();
    let mut letters = Letters(1);
    let (mut left, mut all) = (Vec::new(), 0);
    for kind in KINDS {
        for place in PLACES {
            for _ in 0..EACH {
                let pieces = kind.iter().map(|(text, alphabet, length)| {
                    format!("{text}{}", letters.next(alphabet, *length))
                });
                let key: String = pieces.collect();
                let text = format!("{}{key}{}", place.0, place.1);
                all += 1;
                let kept = &key[key.len() - 10..];
                let as_json = json!({ "note": text }).to_string();
                if redactor.text(&text).contains(kept)
                    || redactor.json("tool/a", &as_json).contains(kept)
                {
                    left.push(text);
                }
            }
        }
    }
    let some = &left[..left.len().min(20)];
    assert!(left.is_empty(), "{} of {all} stay: {some:#?}", left.len());
}

#[test]
fn what_is_no_secret_stays_as_it_is() {
    let redactor = redactor();
    for text in HARMLESS {
        assert_eq!(redactor.text(text), *text);
        let json = json!({"note": text, "of": [text]}).to_string();
        assert_eq!(redactor.json("tool/a", &json), json);
    }
    let all = HARMLESS.join("\n");
    assert_eq!(redactor.text(&all), all);
}

#[test]
fn what_is_between_two_secrets_stays_and_what_overlaps_is_one() {
    let redactor = redactor();
    let text = "card 4111 1111 1111 1111, then Bearer mF_9.B5f-4.1JqM, then 5555555555554444.";
    let redacted = redactor.text(text);
    let parts: Vec<&str> = redacted.split("[redacted ").collect();
    let [before, card, token, other] = parts[..] else {
        panic!("{redacted}");
    };
    assert_eq!(before, "card ");
    for (part, label, after) in [
        (card, "card ", "], then Bearer "),
        (token, "token ", "], then "),
        (other, "card ", "]."),
    ] {
        assert!(part.starts_with(label) && part.ends_with(after), "{part}");
    }
    // The card is within the token.
    let redacted = redactor.text("Bearer a-4111111111111111-b and more");
    assert!(
        redacted.starts_with("Bearer [redacted token "),
        "{redacted}"
    );
    assert!(redacted.ends_with("] and more"), "{redacted}");
    assert_eq!(redacted.matches("redacted").count(), 1, "{redacted}");
}

#[test]
fn a_secret_has_the_same_digest_however_its_string_is_written() {
    let redactor = redactor();
    let digest = |value: &str| {
        let json = format!(r#"{{"password": {value}}}"#);
        redactor.json("tool/a", &json).into_owned()
    };
    let plain = digest(r#""hunter2""#);
    assert!(plain.contains("[redacted "), "{plain}");
    assert_eq!(digest(r#""\u0068unter2""#), plain);
    assert_eq!(digest(r#""hunte\u00722""#), plain);
    assert_ne!(digest(r#""\u0068unter3""#), plain);
}

#[test]
fn numbers_of_json_can_be_cards() {
    let redactor = redactor();
    for number in [
        "4111111111111111",
        "4111111111111111.0",
        "4111111111111111.000",
        "4.111111111111111e15",
        "4111111111111111e0",
        "41111111111111110e-1",
    ] {
        let redacted = redactor.json("", number).into_owned();
        assert!(
            redacted.starts_with("\"[redacted card "),
            "{number}: {redacted}"
        );
    }
    for number in [
        "-4111111111111111",
        "4111111111111112",
        "4111111111111111.5",
        // The digits of the double that is nearest would be a card's.
        "6200000000000019456.0",
        "1e300",
        "-0",
        "4.1e15",
        "1763740000000000",
        "5e-324",
    ] {
        assert_eq!(redactor.json("", number), number);
    }
}

#[test]
fn detectors_can_be_switched_off() {
    let spec = Spec {
        detectors: redaction::Detectors::none(),
        built_in_keys: false,
        ..Spec::default()
    };
    let redactor = Redactor::new(&spec, [1; 32]).unwrap();
    for (_, marked) in SECRETS {
        let text = marked.replace(['«', '»'], "");
        assert_eq!(redactor.text(&text), text);
    }
}
