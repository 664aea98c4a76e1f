//! Hosts that the client may talk to, by name.

/// Names of hosts; a name stands for its subdomains too, as in OwlClaw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    names: Vec<String>,
    setting: Option<&'static str>,
}

impl HostList {
    /// A list of these names; empty ones are left out.
    pub fn new<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        let clean = |name: T| bare(name.as_ref().trim()).to_ascii_lowercase();
        let names = names.into_iter().map(clean);
        Self {
            names: names.filter(|name| !name.is_empty()).collect(),
            setting: None,
        }
    }

    /// The same, read from the setting of this name, which errors name.
    #[must_use]
    pub fn of_setting(self, name: &'static str) -> Self {
        Self {
            setting: Some(name),
            ..self
        }
    }

    pub(crate) fn setting(&self) -> Option<&'static str> {
        self.setting
    }

    /// Returns true if the list is empty, in which case it allows no host.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns true if `host` is on the list, or below a domain on it.
    pub fn contains(&self, host: &str) -> bool {
        let host = bare(host).to_ascii_lowercase();
        self.names.iter().any(|name| {
            host.strip_suffix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

/// `host` without the brackets of an IPv6 address.
#[must_use]
pub fn bare(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_itself_and_what_is_below_it() {
        let list = HostList::new(["Example.com", "10.0.0.1", "[::1]", " "]);
        for (host, expected) in [
            ("example.com", true),
            ("API.example.com", true),
            ("10.0.0.1", true),
            ("[::1]", true),
            ("notexample.com", false),
            ("example.com.evil.example", false),
            ("example", false),
            ("", false),
        ] {
            assert_eq!(list.contains(host), expected, "{host}");
        }
        assert!(HostList::new([""]).is_empty());
    }
}
