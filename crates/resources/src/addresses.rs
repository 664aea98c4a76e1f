//! Addresses with values in their query, of which every spelling has one form.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The longest address, in bytes.
const MAX_URI_BYTES: usize = 4_096;

/// All but the unreserved characters of RFC 3986, 2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Values by name, in the order of their names, each name once.
pub(crate) type Values = Vec<(String, String)>;

/// An address, taken apart.
pub(crate) struct Parsed<'u> {
    /// The name after the scheme.
    pub(crate) name: &'u str,
    /// Names of the path, decoded.
    pub(crate) path: Vec<String>,
    pub(crate) values: Values,
}

pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (!text.contains('\0')).then_some(text)
}

/// Takes an address apart; `None` if it is none of this scheme.
pub(crate) fn parse<'u>(scheme: &str, uri: &'u str) -> Option<Parsed<'u>> {
    if !uri.get(..scheme.len())?.eq_ignore_ascii_case(scheme)
        || MAX_URI_BYTES < uri.len()
        || uri.contains('#')
    {
        return None;
    }
    let (name, rest) = uri[scheme.len()..].split_once('/')?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut values = Vec::new();
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        values.push((decoded(name)?, decoded(value)?));
    }
    values.sort();
    if values.windows(2).any(|it| it[0].0 == it[1].0) {
        return None;
    }
    let path = path.split('/').map(decoded).collect::<Option<_>>()?;
    Some(Parsed { name, path, values })
}

/// The address with these values.
pub(crate) fn with_values(mut address: String, values: &[(String, String)]) -> String {
    for (at, (name, value)) in values.iter().enumerate() {
        address.push(if at == 0 { '?' } else { '&' });
        address += &format!("{}={}", encoded(name), encoded(value));
    }
    address
}

/// True if something of an operator's choice can be called that, and be part of an address as it is.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-_".contains(&it);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}
