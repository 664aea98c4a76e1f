//! Secrets in what programs and requests are given: variables, headers, arguments and addresses. Of a text that has more
//! than a secret in it, such as an address with a password, the secret is told apart from the rest.

use std::ops::Range;

use crate::{
    redactor::{looks_secret, secret_spans},
    spec::is_secret_name,
};

/// A secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPart {
    /// Name that it has within the text, such as that of a parameter; empty for all of the text.
    pub name: String,
    /// Place in the text.
    pub place: Range<usize>,
    /// True for the default of a reference, as in `${NAME:-text}`.
    pub is_default: bool,
}

/// Endings of words after which a value is a secret wherever in a name the word stands.
const ENDINGS: [&str; 20] = [
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
    "COOKIES",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "JWT",
    "KEY",
    "KEYS",
    "MNEMONIC",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "PWD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];
/// Words that name a secret wherever they stand, and are parts of other words.
const WORDS: [&str; 1] = ["PAT"];
/// Words that name a secret at the end of a name.
const LAST: [&str; 7] = ["AUTH", "CRED", "PIN", "PSK", "SAS", "SIG", "SIGNATURE"];
/// Last words of names, written together: who has the identifier of a session is in it.
const TOGETHER: [&str; 2] = ["SESSIONID", "SEEDPHRASE"];
/// Words at the end of a name that say that the value is about a secret, or leads to it.
const ABOUT: [&str; 33] = [
    "ALGORITHM",
    "COMMAND",
    "COUNT",
    "DIR",
    "DIRECTORY",
    "DOMAIN",
    "ENABLED",
    "ENDPOINT",
    "EXPIRY",
    "FILE",
    "FORMAT",
    "HEADER",
    "HOST",
    "ISSUER",
    "LENGTH",
    "LIMIT",
    "METHOD",
    "MODE",
    "NAME",
    "PATH",
    "PORT",
    "PREFIX",
    "PROVIDER",
    "REGION",
    "SCOPE",
    "SCOPES",
    "SECONDS",
    "SIZE",
    "TIMEOUT",
    "TTL",
    "TYPE",
    "URI",
    "URL",
];
/// Parameters of queries that are secret there, and elsewhere have harmless namesakes.
const IN_QUERIES: [&str; 2] = ["code", "ticket"];
/// Values that choose something, and are no secrets whatever their name.
const CHOICES: [&str; 18] = [
    "auto", "basic", "bearer", "disabled", "enabled", "false", "jwt", "no", "none", "null",
    "oauth", "oauth2", "off", "on", "optional", "required", "true", "yes",
];
/// Most names that stand before a value, as in `--header=Authorization: Bearer …`.
const MAX_NAMES: usize = 4;
/// The fewest bytes beside a reference that are taken for a part of the secret.
const MIN_BESIDE: usize = 4;
/// The fewest bytes of a word behind `Bearer` and the like that is no word of a sentence.
const MIN_WORD: usize = 8;
/// The fewest characters of a part of a path that is taken for a secret by its looks.
const MIN_OPAQUE: usize = 16;

/// Returns true if a variable, a header, an option or a parameter of this name, such as `DB_PASS` or `X-Auth`, has mostly a
/// secret. More names than those of [`is_secret_name`]: what operators give to programs is less often about secrets, and
/// more often one.
#[must_use]
pub fn is_secret_setting(name: &str) -> bool {
    let words = words(name);
    let Some(last) = words.last() else {
        return false;
    };
    let is_public = matches!(&words[..], [.., first, last] if first == "PUBLIC" && last == "KEY");
    if is_public || ABOUT.contains(&last.as_str()) {
        return false;
    }
    let is_password =
        |it: &str| it.ends_with("PASS") && !it.ends_with("BYPASS") && !it.ends_with("COMPASS");
    let together = words.concat();
    is_secret_name(name)
        || LAST.contains(&last.as_str())
        || is_password(last)
        || TOGETHER.iter().any(|it| together.ends_with(it))
        || words.iter().any(|word| {
            WORDS.contains(&word.as_str()) || ENDINGS.iter().any(|it| word.ends_with(it))
        })
}

/// Words of a name in capitals, without numbers at their ends.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for it in name.chars() {
        let is_new = !it.is_alphanumeric() || (before.is_lowercase() && it.is_uppercase());
        if is_new {
            words.push(String::new());
        }
        if it.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(it.to_uppercase());
        }
        before = it;
    }
    let bare = words
        .iter()
        .map(|it| it.trim_end_matches(|it: char| it.is_ascii_digit()));
    bare.filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns true if this is a secret because of its name.
fn is_secret(name: &str, value: &str) -> bool {
    let is_number = value.len() < 10 && value.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let is_amount = is_number && words(name).last().is_some_and(|it| it == "TOKENS");
    is_secret_setting(name) && !is_amount && !is_choice(value)
}

fn is_choice(value: &str) -> bool {
    let value = value.trim();
    value.is_empty() || CHOICES.iter().any(|it| value.eq_ignore_ascii_case(it))
}

/// Secrets in the value of a variable or a header, in their order: the password and the secret parameters of an address,
/// what stands behind `Bearer`, or behind the name of a header; otherwise all of it, if it has the name of a secret or looks
/// like one. References in it, `${NAME}`, are none.
///
/// An address has no name of its own: `secret_parts("", url)`.
#[must_use]
pub fn secret_parts(name: &str, text: &str) -> Vec<SecretPart> {
    let mut found = Vec::new();
    look(name, text, 0, MAX_NAMES, &mut found);
    for span in secret_spans(text) {
        let place = behind_scheme("", &text[span.clone()])
            .map_or(span.clone(), |at| span.start + at..span.end);
        let is_new = found
            .iter()
            .all(|it: &SecretPart| it.place.end <= span.start || span.end <= it.place.start);
        if is_new {
            let name = if place == (0..text.len()) {
                ""
            } else {
                "secret"
            };
            found.push(part(name, place));
        }
    }
    let references = references(text);
    if found.is_empty() && references.is_empty() && looks_secret(text) {
        found.push(part("", 0..text.len()));
    }
    let mut found: Vec<SecretPart> = found
        .into_iter()
        .flat_map(|it| without(it, &references))
        .collect();
    for (place, default) in references {
        let Some(default) = default else { continue };
        let reference = &text[place.start + 2..default.start - 2];
        let value = &text[default.clone()];
        if is_secret(name, value) || is_secret(reference, value) || has_secret(value) {
            found.push(SecretPart {
                is_default: true,
                ..part(reference, default)
            });
        }
    }
    found.sort_by_key(|it| it.place.start);
    found
}

/// Secrets in the arguments of a program, of each by itself: as in [`secret_parts`], and the values of options with the name
/// of a secret, whether they are arguments of their own or not.
#[must_use]
pub fn secret_parts_of_arguments(arguments: &[String]) -> Vec<Vec<SecretPart>> {
    let mut option = "";
    let parts = arguments.iter().map(|argument| {
        let is_option = argument.starts_with('-');
        let name = if is_option { "" } else { option };
        option = match is_option && !argument.contains('=') {
            true => argument.trim_start_matches('-'),
            false => "",
        };
        secret_parts(name, argument)
    });
    parts.collect()
}

/// The text with what `new` makes of each of these parts in its place.
#[must_use]
pub fn with_parts(
    text: &str,
    parts: &[SecretPart],
    mut new: impl FnMut(&SecretPart) -> String,
) -> String {
    let mut out = String::new();
    let mut copied = 0;
    for part in parts {
        out.push_str(&text[copied..part.place.start]);
        out.push_str(&new(part));
        copied = part.place.end;
    }
    out + &text[copied..]
}

/// A secret without the references in it.
fn without(whole: SecretPart, references: &[Reference]) -> Vec<SecretPart> {
    let mut rest = vec![whole.place.clone()];
    for (reference, _) in references {
        let cut = |it: Range<usize>| {
            let before = it.start..it.end.min(reference.start);
            let after = it.start.max(reference.end)..it.end;
            [before, after]
        };
        rest = rest
            .into_iter()
            .flat_map(cut)
            .filter(|it| it.start < it.end)
            .collect();
    }
    let is_whole = rest == [whole.place.clone()];
    // Signs between references are none.
    rest.retain(|it| is_whole || MIN_BESIDE <= it.len());
    let parts = rest.into_iter().map(|place| SecretPart {
        place,
        ..whole.clone()
    });
    parts.collect()
}

fn part(name: &str, place: Range<usize>) -> SecretPart {
    SecretPart {
        name: name.to_owned(),
        place,
        is_default: false,
    }
}

/// Returns true if there is a secret in a text without a name.
fn has_secret(text: &str) -> bool {
    let mut found = Vec::new();
    look("", text, 0, MAX_NAMES, &mut found);
    !found.is_empty() || looks_secret(text)
}

/// Looks for secrets by names, of which `most` may stand before each other, in what stands at `at` of a text.
fn look(name: &str, text: &str, at: usize, most: usize, found: &mut Vec<SecretPart>) {
    let before = found.len();
    let place = |from: usize, to: usize| at + from..at + to;
    if let Some(sign) = text.find("://").filter(|sign| is_scheme(&text[..*sign])) {
        of_address(text, sign + 3, at, found);
    } else if let Some(start) = behind_scheme(name, text) {
        found.push(part("", place(start, text.len())));
    } else if 0 < most
        && let Some((inner, start)) = assignment(text)
    {
        let mut within = Vec::new();
        look(inner, &text[start..], at + start, most - 1, &mut within);
        for it in &mut within {
            if it.name.is_empty() {
                inner.clone_into(&mut it.name);
            }
        }
        found.append(&mut within);
    }
    if found.len() == before && is_secret(name, text) {
        found.push(part("", place(0, text.len())));
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"+-.:".contains(&it))
}

/// Start of the credential behind the scheme of an `Authorization`, whose `name` is known or not.
fn behind_scheme(name: &str, text: &str) -> Option<usize> {
    const SCHEMES: [&str; 6] = ["ApiKey", "Basic", "Bearer", "Bot", "SSWS", "Token"];
    let (scheme, rest) = text.split_once(' ')?;
    let is_named = words(name)
        .last()
        .is_some_and(|it| it.ends_with("AUTHORIZATION"));
    let is_scheme = match is_named {
        true => {
            !scheme.is_empty()
                && scheme
                    .bytes()
                    .all(|it| it.is_ascii_alphanumeric() || it == b'-')
        }
        false => SCHEMES.iter().any(|it| scheme.eq_ignore_ascii_case(it)),
    };
    let start = text.len() - rest.trim_start().len();
    let is_one_word =
        !rest.trim().contains(' ') && (MIN_WORD <= text.len() - start || is_secret_setting(name));
    (is_scheme && start < text.len() && (is_named || is_one_word)).then_some(start)
}

/// The name and the start of the value of `NAME=value`, `--name=value` and `Name: value`.
fn assignment(text: &str) -> Option<(&str, usize)> {
    let sign = text.find(['=', ':'])?;
    let name = text[..sign].trim_start_matches('-');
    let is_name = |it: u8| it.is_ascii_alphanumeric() || b"_-.".contains(&it);
    let start = text.len() - text[sign + 1..].trim_start().len();
    (!name.is_empty() && name.bytes().all(is_name) && start < text.len()).then_some((name, start))
}

/// Looks for secrets in an address, of which the authority begins at `start`.
fn of_address(text: &str, start: usize, at: usize, found: &mut Vec<SecretPart>) {
    let end_of =
        |from: usize, ends: &[char]| text[from..].find(ends).map_or(text.len(), |it| from + it);
    let authority = end_of(start, &['/', '?', '#']);
    if let Some(sign) = text[start..authority].rfind('@').map(|it| start + it) {
        match text[start..sign].find(':').map(|it| start + it + 1) {
            Some(password) if password < sign => {
                found.push(part("password", at + password..at + sign))
            }
            None if is_opaque(&text[start..sign]) => {
                found.push(part("user", at + start..at + sign))
            }
            _ => {}
        }
    }
    let path = end_of(authority, &['?', '#']);
    let mut from = authority;
    for segment in text[authority..path].split('/') {
        let place = from..from + segment.len();
        from = place.end + 1;
        if is_opaque(segment) {
            found.push(part("path", at + place.start..at + place.end));
        }
    }
    let fragment = end_of(path, &['#']);
    let mut from = path + 1;
    for pair in text
        .get(path + 1..fragment)
        .into_iter()
        .flat_map(|it| it.split('&'))
    {
        let place = from..from + pair.len();
        from = place.end + 1;
        let Some((name, value)) = pair.split_once('=') else {
            continue;
        };
        let is_here =
            IN_QUERIES.iter().any(|it| name.eq_ignore_ascii_case(it)) && !is_choice(value);
        if is_secret(name, value) || is_here || looks_secret(value) {
            found.push(part(name, at + place.end - value.len()..at + place.end));
        }
    }
}

/// Returns true for a part of a path that nobody has made up as a word: letters and digits, mixed.
fn is_opaque(segment: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_-.~%=".contains(&it);
    if segment.len() < MIN_OPAQUE || !segment.bytes().all(is_plain) {
        return looks_secret(segment);
    }
    let is_word = |it: &&str| {
        let letters = it.trim_end_matches(|it: char| it.is_ascii_digit());
        let is_version = it
            .strip_prefix(['v', 'V'])
            .is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()));
        letters.is_empty()
            || is_version
            || (it.len() - letters.len() <= 2 && letters.bytes().all(|it| it.is_ascii_alphabetic()))
    };
    let mixed = segment
        .split(['_', '-', '.', '~', '%', '='])
        .filter(|it| !is_word(it));
    12 <= mixed.map(str::len).sum::<usize>() || looks_secret(segment)
}

/// Place of a reference, and that of its default.
type Reference = (Range<usize>, Option<Range<usize>>);

/// The references of a text, each with the place of its default.
fn references(text: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find("${").map(|it| from + it) {
        let end = text[start..]
            .find('}')
            .map_or(text.len(), |it| start + it + 1);
        // `$${` is written for `${`.
        if !text[..start].ends_with('$') {
            let inner = start + 2..end.saturating_sub(1).max(start + 2);
            let default = text[inner.clone()]
                .find(":-")
                .map(|it| inner.start + it + 2..inner.end);
            found.push((start..end, default.filter(|it| it.start < it.end)));
        }
        from = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPAQUE: &str = "aB3dE5fG7hI9jK1lM3nO5pQ7";

    /// The text with its secrets in angle brackets.
    fn marked(name: &str, text: &str) -> String {
        let parts = secret_parts(name, text);
        with_parts(text, &parts, |it| format!("<{}>", &text[it.place.clone()]))
    }

    #[test]
    fn names_of_secrets_are_known_however_they_are_written() {
        for name in [
            "DB_PASS",
            "SMTP_PASS_2",
            "PGPASS",
            "PASSPHRASE",
            "API_AUTH",
            "BEARER",
            "MONGO_CREDS",
            "WALLET_MNEMONIC",
            "JWT",
            "SESSION_ID",
            "sessionId",
            "GITHUB_PAT",
            "DB_PWD",
            "dbPassword",
            "APIKEY",
            "API_KEY_PROD",
            "OPENAI_KEY_1",
            "X-Auth",
            "X-Pass",
            "x-api-key",
            "sig",
            "AWS_ACCESS_KEY_ID",
            "cookie",
            "TOKEN_GITHUB",
            "--auth",
        ] {
            assert!(is_secret_setting(name), "{name}");
        }
        for name in [
            "",
            "_",
            "REGION",
            "AUTH_MODE",
            "AUTH_URL",
            "KEY_FILE",
            "TOKEN_ENDPOINT",
            "KEYCLOAK_URL",
            "PATH",
            "PATTERN",
            "COMPASS",
            "--bypass",
            "KEYBOARD",
            "PUBLIC_KEY",
            "COUNTRY_CODE",
            "header",
            "AUTHOR",
            "SPIN",
            "PASSENGER",
        ] {
            assert!(!is_secret_setting(name), "{name}");
        }
    }

    #[test]
    fn a_secret_is_told_apart_from_what_is_around_it() {
        for (name, text, expected) in [
            ("DB_PASS", "hunter2", "<hunter2>"),
            ("REGION", "eu", "eu"),
            ("AUTH", "basic", "basic"),
            ("MAX_TOKENS", "4096", "4096"),
            ("API_TOKENS", "a1,b2", "<a1,b2>"),
            ("MONGO_CREDS", "u:hunter2horse", "<u:hunter2horse>"),
            (
                "DATABASE_URL",
                "postgresql://ana:pw@h/d",
                "postgresql://ana:<pw>@h/d",
            ),
            (
                "DATABASE_URL",
                "postgres://ana:p/w@h/d",
                "postgres://ana:<p/w>@h/d",
            ),
            ("DB_SECRET", "postgres://h/d", "<postgres://h/d>"),
            (
                "",
                "https://u:p@h/mcp?x=1&api_key=k&y=2#z",
                "https://u:<p>@h/mcp?x=1&api_key=<k>&y=2#z",
            ),
            (
                "",
                "https://h/mcp?sig=a&auth=b&code=c&lang=d",
                "https://h/mcp?sig=<a>&auth=<b>&code=<c>&lang=d",
            ),
            ("", "https://h/mcp?auth=none", "https://h/mcp?auth=none"),
            (
                "",
                "https://h/api/v1/weather-server-2025-06-18/mcp",
                "https://h/api/v1/weather-server-2025-06-18/mcp",
            ),
            (
                "",
                "https://h/u/0d1f3b5a-7c9e-4b2d-8f6a-1c3e5a7b9d0f/mcp",
                "https://h/u/<0d1f3b5a-7c9e-4b2d-8f6a-1c3e5a7b9d0f>/mcp",
            ),
            ("Authorization", "Bearer hunter2", "Bearer <hunter2>"),
            ("Authorization", "hunter2", "<hunter2>"),
            ("X-Auth", "Token hunter2", "Token <hunter2>"),
            ("", "X-Api-Key:ZXCVbnm", "X-Api-Key:<ZXCVbnm>"),
            (
                "",
                "Authorization: Bearer abc",
                "Authorization: Bearer <abc>",
            ),
            ("", "Accept: text/html", "Accept: text/html"),
            ("", "--header=X-Api-Key: abc", "--header=X-Api-Key: <abc>"),
            ("", "--token=abc", "--token=<abc>"),
            ("", "--port=80", "--port=80"),
            ("", "--db=redis://:pw@h", "--db=redis://:<pw>@h"),
            (
                "HEADERS",
                r#"{"Authorization": "Bearer ntn_123456789"}"#,
                r#"{"Authorization": "Bearer <ntn_123456789>"}"#,
            ),
            ("", "Bearer of bad news", "Bearer of bad news"),
            ("TOKEN", "${TOKEN}", "${TOKEN}"),
            ("TOKEN", "abcd${TOKEN}", "<abcd>${TOKEN}"),
            ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}"),
            (
                "",
                "postgres://u:${P}@h/d?password=x",
                "postgres://u:${P}@h/d?password=<x>",
            ),
            ("A", "${TOKEN:-hunter2}", "${TOKEN:-<hunter2>}"),
            ("A", "${B:-eu}", "${B:-eu}"),
            ("A", "${B:-redis://:pw@h}", "${B:-<redis://:pw@h>}"),
            ("TOKEN", "$${TOKEN}", "<$${TOKEN}>"),
        ] {
            assert_eq!(marked(name, text), expected, "{name}");
        }
        let url = format!("https://h/s/{OPAQUE}/mcp");
        assert_eq!(marked("", &url), format!("https://h/s/<{OPAQUE}>/mcp"));
        let parts = secret_parts("A", "${TOKEN:-hunter2}");
        assert!(parts[0].is_default && parts[0].name == "TOKEN", "{parts:?}");
    }

    #[test]
    fn an_option_names_the_argument_behind_it() {
        let arguments = [
            "-y",
            "server",
            "--api-key",
            "abc",
            "--pass",
            "hunter2",
            "--auth",
            OPAQUE,
            "--port",
            "80",
            "--token=x",
            "y",
            "--header",
            "X-Api-Key: z",
            "-e",
            "DB_PASS=w",
            "--auth",
            "--verbose",
        ];
        let parts = secret_parts_of_arguments(&arguments.map(str::to_owned));
        let found: Vec<&str> = parts
            .iter()
            .zip(arguments)
            .flat_map(|(parts, text)| parts.iter().map(|it| &text[it.place.clone()]))
            .collect();
        assert_eq!(found, ["abc", "hunter2", OPAQUE, "x", "z", "w"]);
    }
}
