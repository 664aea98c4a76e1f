//! Hosts and addresses that a client may talk to.

use crate::{AllowPrivate, HostList};
use std::net::IpAddr;

/// Hosts and networks that requests may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any host at any address, for places that an operator has configured.
    Any,
    /// Public addresses of any host, and private ones that are allowed.
    Public(AllowPrivate),
    /// As [`Reach::Public`], for these hosts alone.
    Named(HostList, AllowPrivate),
}

/// Reason why the client may not talk to a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A host that is not on the list of allowed ones; the second field is the list's name.
    #[error("the host `{0}` is not in `{1}`")]
    NotAllowed(String, &'static str),
    /// A host in a network that is not public.
    #[error(
        "the host `{host}` is in a network that is not public{}",
        cure(*setting)
    )]
    Private {
        /// The host.
        host: String,
        /// The setting that can name it.
        setting: Option<&'static str>,
    },
}

/// The part of an error that says where a private network is allowed.
pub(crate) fn cure(setting: Option<&'static str>) -> String {
    let cure = |name| format!("; name it in `{name}` if it may be reached");
    setting.map(cure).unwrap_or_default()
}

impl Default for Reach {
    /// Public addresses alone.
    fn default() -> Self {
        Self::Public(AllowPrivate::default())
    }
}

impl Reach {
    /// Checks `host` as far as that can be done before it is looked up. The addresses that it turns out
    /// to have are checked with each connection.
    ///
    /// # Errors
    ///
    /// [`HostError`], which says what forbids it.
    pub fn check(&self, host: &str) -> Result<(), HostError> {
        self.check_name(host)?;
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let is_local = host == "localhost" || host.ends_with(".localhost");
        match host.parse().ok().or(is_local.then_some(loopback)) {
            Some(address) if !self.allows(host, address) => Err(HostError::Private {
                host: host.to_owned(),
                setting: self.private_setting(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_name(&self, host: &str) -> Result<(), HostError> {
        match self {
            Self::Named(hosts, _) if !hosts.contains(host) => {
                let list = hosts.setting().unwrap_or("the allowed hosts");
                Err(HostError::NotAllowed(host.to_owned(), list))
            }
            Self::Any | Self::Public(_) | Self::Named(..) => Ok(()),
        }
    }

    pub(crate) fn private_setting(&self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Public(private) | Self::Named(_, private) => private.setting(),
        }
    }

    /// Returns true if the client may connect to `address`, one of `host`'s addresses.
    pub(crate) fn allows(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Public(private) | Self::Named(_, private) => private.allows(host, address),
        }
    }
}
