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

/// The spelling in which a rule over addresses of `scheme` can match any: each character in its one encoding, without
/// segments that lead elsewhere, and without values, which rules do not look at. A `*` and the expressions of a
/// template stay as they are. The same text where it is so spelt.
pub(crate) fn spelt_for_rules(scheme: &str, pattern: &str) -> String {
    let is_path = scheme == crate::files::SCHEME;
    let (text, template) = match pattern.strip_suffix('}').and_then(|_| pattern.rfind('{')) {
        Some(at) if pattern[at + 1..].starts_with(['+', '?']) => pattern.split_at(at),
        _ => (pattern, ""),
    };
    let rest = text.get(scheme.len()..).unwrap_or_default();
    let rest = match is_path {
        true => rest,
        false => rest.split_once(['?', '#']).map_or(rest, |(path, _)| path),
    };
    let mut names: Vec<String> = Vec::new();
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match percent_decode_str(segment).decode_utf8().as_deref() {
            Ok(".") => {}
            Ok("..") => {
                // Not above the name of the place.
                if 1 < names.len() {
                    names.pop();
                }
            }
            // A directory: what is in it.
            Ok("") if is_last && template.is_empty() && !names.is_empty() => {
                names.push("*".to_owned())
            }
            Ok("") if !is_last => {}
            _ => names.push(spelt_segment(segment, is_path)),
        }
    }
    format!("{scheme}{}{template}", names.join("/"))
}

/// A segment of a rule with each character in its one encoding; expressions of templates in braces are kept, where
/// there are any.
fn spelt_segment(segment: &str, is_path: bool) -> String {
    let is_expression = |it: &str| {
        let name = it.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let is_of_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        name.is_some_and(|it| !it.is_empty() && it.chars().all(is_of_name))
    };
    if !is_path && is_expression(segment) {
        return segment.to_owned();
    }
    let mut spelt = String::new();
    let mut parts = segment.split('*').peekable();
    while let Some(part) = parts.next() {
        // An escape may be cut by the `*` after it.
        let cut = part.rfind('%').filter(|at| part.len() < at + 3);
        let (whole, rest) = part.split_at(cut.unwrap_or(part.len()));
        let bytes: Vec<u8> = percent_decode_str(whole).collect();
        for byte in bytes {
            match is_path && byte == b'/' {
                true => spelt.push('/'),
                false => spelt += &percent_encoding::percent_encode(&[byte], ENCODED).to_string(),
            }
        }
        let is_escape = rest.bytes().skip(1).all(|it| it.is_ascii_hexdigit());
        match is_escape && parts.peek().is_some() {
            true => spelt += &rest.to_ascii_uppercase(),
            false => spelt += &rest.replace('%', "%25"),
        }
        if parts.peek().is_some() {
            spelt.push('*');
        }
    }
    spelt
}

/// True if something of an operator's choice can be called that, and be part of an address as it is.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-_".contains(&it);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_the_spelling_of_addresses() {
        for (scheme, pattern, expected) in [
            ("files://", "files://a/%70riv/*", "files://a/priv/*"),
            ("files://", "files://a/\u{e9}.txt", "files://a/%C3%A9.txt"),
            ("files://", "files://a/%c3%a9.txt", "files://a/%C3%A9.txt"),
            ("files://", "files://a/ sp .txt", "files://a/%20sp%20.txt"),
            ("files://", "files://a/x/../priv/*", "files://a/priv/*"),
            ("files://", "files://a/./priv//*", "files://a/priv/*"),
            ("files://", "files://a/priv/", "files://a/priv/*"),
            ("files://", "files://a/what?.txt", "files://a/what%3F.txt"),
            ("files://", "files://a/100%", "files://a/100%25"),
            ("files://", "files://a/*100%", "files://a/*100%25"),
            ("files://", "files://a/{x}", "files://a/%7Bx%7D"),
            ("db://", "db://a/queries/q?a=1", "db://a/queries/q"),
            ("db://", "db://a/tables/\u{e9}", "db://a/tables/%C3%A9"),
            ("api://", "api://a/pieces?*", "api://a/pieces"),
        ] {
            assert_eq!(spelt_for_rules(scheme, pattern), expected, "{pattern}");
            assert_eq!(spelt_for_rules(scheme, expected), expected);
        }
        for (scheme, pattern) in [
            ("files://", "files://*"),
            ("files://", "files://a*"),
            ("files://", "files://a/*.md"),
            ("files://", "files://a/%C3*"),
            ("files://", "files://a/%C*"),
            ("files://", "files://a/%*"),
            ("files://", "files://a/%2A.txt"),
            ("files://", "files://a/{+path}"),
            ("files://", "files://a/.git/*"),
            ("db://", "db://a/tables/x%2Fy/*"),
            ("db://", "db://a/tables/{table}{?offset}"),
            ("api://", "api://a/pieces{?site,sku}"),
            ("api://", "api://a/pieces*"),
        ] {
            assert_eq!(spelt_for_rules(scheme, pattern), pattern);
        }
    }
}
