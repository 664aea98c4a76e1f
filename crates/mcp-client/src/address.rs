//! Addresses that a server wants a person to visit: which are refused, and how the others are shown.

use redaction::is_misleading;

/// An address as it is shown and opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// The address, in ASCII as far as the host goes.
    pub url: String,
    /// True if a user or a password stands before the host.
    pub has_user: bool,
    /// Reasons to look twice.
    pub warnings: Vec<String>,
}

/// Reads the address that a server wants a person to visit ([`ElicitUrl`](mcp_protocol::model::InputRequest::ElicitUrl)).
///
/// # Errors
///
/// The reason why nobody should.
pub fn visited(url: &str) -> Result<Visited, &'static str> {
    let odd = |it: char| it.is_control() || it.is_whitespace() || is_misleading(it);
    if url.contains(odd) {
        return Err("it has a space or an invisible character");
    }
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(&*scheme, "http" | "https") {
        return Err("it is no address of http or https");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // Browsers take the one for a slash, and the other for the character that it stands for.
    if authority.contains(['\\', '%']) {
        return Err("its host can be read in two ways");
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() || host.starts_with(':') {
        return Err("it has no host");
    }
    let mut warnings = Vec::new();
    let ascii = to_ascii(host).ok_or("its host is no name")?;
    if user.is_some() {
        warnings.push(format!(
            "the host is {ascii}; what stands before the @ is a user or a password"
        ));
    }
    if ascii != host.to_ascii_lowercase() {
        warnings.push(format!(
            "the host has letters that may look like others: it is {ascii}"
        ));
    }
    let has_user = user.is_some();
    let user = user.map_or_else(String::new, |it| format!("{it}@"));
    let url = format!("{scheme}://{user}{ascii}{path}");
    Ok(Visited {
        url,
        has_user,
        warnings,
    })
}

/// A host in lower case, its labels that are not in ASCII as IDNA writes them (RFC 5891). The letters are not mapped
/// otherwise.
fn to_ascii(host: &str) -> Option<String> {
    let label = |label: &str| match label.is_ascii() {
        true => Some(label.to_ascii_lowercase()),
        false => Some(format!("xn--{}", punycode(&label.to_lowercase())?)),
    };
    // IDNA takes these for dots as well.
    let labels = host.split(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']);
    let labels: Option<Vec<_>> = labels.map(label).collect();
    Some(labels?.join("."))
}

/// RFC 3492, section 6.3, with the parameters of section 5.
fn punycode(label: &str) -> Option<String> {
    const BASE: u32 = 36;
    const MOST_CHARACTERS: usize = 63;
    let characters: Vec<u32> = label.chars().map(u32::from).collect();
    if MOST_CHARACTERS < characters.len() {
        return None;
    }
    // a to z stand for 0 to 25, and 0 to 9 for 26 to 35.
    let digit = |it: u32| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[it as usize % 36]);
    let mut text: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(text.len()).ok()?;
    if 0 < basic {
        text.push('-');
    }
    let (mut next, mut delta, mut bias, mut handled) = (128_u32, 0_u32, 72_u32, basic);
    while (handled as usize) < characters.len() {
        let least = characters.iter().copied().filter(|it| next <= *it).min()?;
        delta = delta.checked_add((least - next).checked_mul(handled + 1)?)?;
        next = least;
        for character in &characters {
            if *character < next {
                delta = delta.checked_add(1)?;
            }
            if *character != next {
                continue;
            }
            let (mut rest, mut at) = (delta, BASE);
            loop {
                let threshold = at.saturating_sub(bias).clamp(1, 26);
                if rest < threshold {
                    break;
                }
                text.push(digit(threshold + (rest - threshold) % (BASE - threshold)));
                rest = (rest - threshold) / (BASE - threshold);
                at += BASE;
            }
            text.push(digit(rest));
            let mut scaled = if handled == basic {
                delta / 700
            } else {
                delta / 2
            };
            scaled += scaled / (handled + 1);
            let mut steps = 0;
            while 455 < scaled {
                scaled /= BASE - 1;
                steps += BASE;
            }
            bias = steps + BASE * scaled / (scaled + 38);
            (delta, handled) = (0, handled + 1);
        }
        delta = delta.checked_add(1)?;
        next += 1;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_shown_as_they_are_looked_up() {
        // RFC 3492, section 7.1, and names that are registered.
        for (host, expected) in [
            ("Example.COM:8443", "example.com:8443"),
            ("[::1]:80", "[::1]:80"),
            ("аpple.com", "xn--pple-43d.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("münchen。de", "xn--mnchen-3ya.de"),
            ("他们为什么不说中文", "xn--ihqwcrb4cv8a8dqg056pqjye"),
            (
                "почемужеонинеговорятпорусски",
                "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l",
            ),
            (
                "pročprostěnemluvíčesky",
                "xn--proprostnemluvesky-uyb24dma41a",
            ),
        ] {
            assert_eq!(to_ascii(host).as_deref(), Some(expected));
        }
    }

    #[test]
    fn addresses_say_where_they_lead_or_are_refused() {
        let plain = visited("HTTPS://ok.example/?a=$(b)&c=\"d\"#e@f").unwrap();
        assert_eq!(plain.url, "https://ok.example/?a=$(b)&c=\"d\"#e@f");
        assert!(!plain.has_user && plain.warnings.is_empty(), "{plain:?}");
        let odd = visited("http://good.example:x@аpple.com/a").unwrap();
        assert_eq!(odd.url, "http://good.example:x@xn--pple-43d.com/a");
        assert!(odd.has_user);
        assert_eq!(
            odd.warnings,
            [
                "the host is xn--pple-43d.com; what stands before the @ is a user or a password",
                "the host has letters that may look like others: it is xn--pple-43d.com",
            ]
        );
        for (url, why) in [
            ("javascript:alert(1)", "http or https"),
            ("file:///etc/passwd", "http or https"),
            ("data:text/html,x", "http or https"),
            ("-flag", "http or https"),
            ("", "http or https"),
            ("https://a.example/\u{1b}[2J", "invisible"),
            ("https://a.example/ --evil", "a space"),
            ("https://a.example/\u{a0}b", "a space"),
            ("https://a.example/\u{202e}b", "invisible"),
            ("https://good.example\\@evil.example/", "two ways"),
            ("https://ev%69l.example/", "two ways"),
            ("https:///a", "no host"),
            ("https://a@:80/", "no host"),
        ] {
            let refused = visited(url).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
    }
}
