//! `WWW-Authenticate` of a server that refuses a request (RFC 9110, RFC 6750, RFC 9449, RFC 9728).

use http::{HeaderMap, header::WWW_AUTHENTICATE};

/// More bytes of challenges are not read.
const MAX_BYTES: usize = 16 * 1024;

/// Refusal of a request, and what the request lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// True if the scheme is `DPoP` and there is no challenge for `Bearer`.
    pub dpop: bool,
    /// Address of the protected resource's metadata.
    pub resource_metadata: Option<String>,
    /// Scopes that are needed, separated by spaces.
    pub scope: Option<String>,
    /// The error's code, such as `insufficient_scope`.
    pub error: Option<String>,
    /// The error in words.
    pub error_description: Option<String>,
}

impl Challenge {
    /// The challenge for `Bearer`, or else the one for `DPoP`, of an answer. `None` if there is neither.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut found: Option<Self> = None;
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut left = MAX_BYTES;
        for value in values.filter_map(|value| value.to_str().ok()) {
            left = left.checked_sub(value.len())?;
            for (scheme, parameters) in challenges(value) {
                let dpop = scheme.eq_ignore_ascii_case("dpop");
                if !dpop && !scheme.eq_ignore_ascii_case("bearer") {
                    continue;
                }
                let challenge = Self::read(dpop, parameters);
                match &mut found {
                    // A server that takes both may name its metadata in one of them only.
                    Some(found) if found.dpop && !dpop => {
                        *found = challenge.or_from(std::mem::take(found));
                    }
                    Some(found) => *found = std::mem::take(found).or_from(challenge),
                    None => found = Some(challenge),
                }
            }
        }
        found
    }

    fn read(dpop: bool, parameters: Vec<(&str, String)>) -> Self {
        let mut challenge = Self {
            dpop,
            ..Self::default()
        };
        for (name, value) in parameters {
            let field = match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => &mut challenge.resource_metadata,
                "scope" => &mut challenge.scope,
                "error" => &mut challenge.error,
                "error_description" => &mut challenge.error_description,
                _ => continue,
            };
            field.get_or_insert(value);
        }
        challenge
    }

    fn or_from(self, other: Self) -> Self {
        Self {
            dpop: self.dpop,
            resource_metadata: self.resource_metadata.or(other.resource_metadata),
            scope: self.scope.or(other.scope),
            error: self.error.or(other.error),
            error_description: self.error_description.or(other.error_description),
        }
    }

    /// Returns true if the server wants a proof with its nonce, and nothing else.
    pub(crate) fn wants_nonce(&self) -> bool {
        self.error.as_deref() == Some("use_dpop_nonce")
    }
}

/// Schemes and their parameters. What cannot be read ends the list.
fn challenges(text: &str) -> Vec<(&str, Vec<(&str, String)>)> {
    let mut all: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            return all;
        }
        let next = after.trim_start_matches([' ', '\t']);
        match next.strip_prefix('=') {
            // A `token68` of another scheme ends in equals signs.
            Some(value) if !value.starts_with('=') => {
                let value = value.trim_start_matches([' ', '\t']);
                let (value, after) = match value.strip_prefix('"') {
                    Some(quoted) => match unquote(quoted) {
                        Some(unquoted) => unquoted,
                        None => return all,
                    },
                    None => {
                        let (value, after) = token(value);
                        (value.to_owned(), after)
                    }
                };
                match all.last_mut() {
                    Some((_, parameters)) => parameters.push((word, value)),
                    None => return all,
                }
                rest = after;
            }
            Some(_) => rest = next.trim_start_matches('='),
            None => {
                all.push((word, Vec::new()));
                rest = after;
            }
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let is_token = |it: char| it.is_ascii_graphic() && !"()<>@,;\\\"[]?={}".contains(it);
    text.split_at(text.find(|it| !is_token(it)).unwrap_or(text.len()))
}

fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
        }
        Challenge::of(&headers)
    }

    #[test]
    fn challenges_are_told_from_their_parameters() {
        let text = |text: &str| Some(text.to_owned());
        let expected = Challenge {
            dpop: false,
            resource_metadata: text("https://a.example/x,y"),
            scope: text("a b"),
            error: text("insufficient_scope"),
            error_description: text("say \"please\", then"),
        };
        let whole = r#"Bearer error=insufficient_scope, scope = "a b",resource_metadata="https://a.example/x,y", error_description="say \"please\", then""#;
        assert_eq!(of(&[whole]).unwrap(), expected);
        let behind = format!(r#"Basic realm="Bearer scope=x", Negotiate YWJj==, {whole}"#);
        assert_eq!(of(&[&behind]).unwrap(), expected);
        assert_eq!(of(&["Basic realm=\"x\"", whole]).unwrap(), expected);
    }

    #[test]
    fn bearer_goes_before_dpop() {
        let both =
            of(&["DPoP algs=\"ES256\", resource_metadata=\"https://m\", Bearer scope=\"s\""]);
        let both = both.unwrap();
        assert!(!both.dpop);
        assert_eq!(both.scope.as_deref(), Some("s"));
        assert_eq!(both.resource_metadata.as_deref(), Some("https://m"));
        let alone = of(&["DPoP error=\"use_dpop_nonce\""]).unwrap();
        assert!(alone.dpop && alone.wants_nonce());
    }

    #[test]
    fn what_is_no_challenge_is_none() {
        for nothing in ["", "Basic", "=", "\"", "scope=\"a\"", ",,,"] {
            assert_eq!(of(&[nothing]), None, "{nothing}");
        }
        assert_eq!(of(&["Bearer"]), Some(Challenge::default()));
        assert_eq!(of(&["Bearer scope=\"a"]), Some(Challenge::default()));
    }
}
