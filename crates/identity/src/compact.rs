//! A token in its compact form (RFC 7515), taken apart and believed in nothing.

use crate::{Algorithm, Rejection};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

/// Longer tokens are refused. Those of large directories have 4 KiB.
pub(crate) const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// The longest name of a key that is looked up.
const MAX_KEY_ID_BYTES: usize = 512;

/// A token that is not verified.
pub(crate) struct Compact<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    /// Signed part: the encoded header and payload.
    pub(crate) signed: &'a [u8],
    pub(crate) signature: Vec<u8>,
    pub(crate) claims: Value,
    /// True if the header says that it is an access token (RFC 9068).
    pub(crate) is_access_token: bool,
}

/// Members of a header that matter. A duplicate member is an error. Members that say where a key
/// could be had (`jku`, `x5u`, `jwk`, `x5c`) are not read: keys come from the issuer alone.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
    b64: Option<IgnoredAny>,
}

impl<'a> Compact<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, Rejection> {
        if MAX_TOKEN_BYTES < token.len() {
            return Rejection::malformed("the token is too long");
        }
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Rejection::malformed("the bearer token is neither an API key nor a JWT");
        };
        let signed = &token.as_bytes()[..header.len() + 1 + claims.len()];
        let bytes = |text: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(text);
            decoded.map_err(|_| Rejection::Malformed {
                why: "the token is not base64url",
            })
        };
        let header: Header =
            serde_json::from_slice(&bytes(header)?).map_err(|_| Rejection::Malformed {
                why: "the header of the token cannot be read",
            })?;
        let claims = bytes(claims)?;
        let signature = bytes(signature)?;
        if header.crit.is_some() || header.b64.is_some() {
            return Rejection::invalid("the token needs extensions that are not known here");
        }
        let typ = header.typ.as_ref().map(|it| it.to_ascii_lowercase());
        let typ = typ
            .as_deref()
            .map(|it| it.trim_start_matches("application/"));
        let is_access_token = match typ {
            None | Some("jwt") => false,
            Some("at+jwt") => true,
            Some(_) => {
                return Rejection::invalid("the token is of another kind than access tokens");
            }
        };
        let Ok(algorithm) = header.alg.parse() else {
            return Rejection::invalid("the token is not signed in a way that is accepted");
        };
        if header
            .kid
            .as_ref()
            .is_some_and(|kid| MAX_KEY_ID_BYTES < kid.len())
        {
            return Rejection::invalid("the key that the token names has too long a name");
        }
        let claims: Value = serde_json::from_slice(&claims).map_err(|_| Rejection::Malformed {
            why: "the claims of the token cannot be read",
        })?;
        if !claims.is_object() {
            return Rejection::malformed("the claims of the token cannot be read");
        }
        Ok(Self {
            algorithm,
            key_id: header.kid,
            signed,
            signature,
            claims,
            is_access_token,
        })
    }
}

/// The issuer that a token names, if it is a JWT. Nothing of it is verified.
pub(crate) fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
    }
    let mut parts = token.split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let Claims { iss } = serde_json::from_slice(&claims).ok()?;
    Some(iss)
}
