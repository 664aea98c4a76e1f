use std::{fmt, str::FromStr};

/// A released revision of the protocol, oldest first, so that `<` means "older than".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each name is its own date")]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// Way in which a revision establishes the identity and the capabilities of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// An `initialize` handshake opens a session.
    Legacy,
    /// Every request carries its own version, identity and capabilities.
    Modern,
}

impl ProtocolVersion {
    /// Every revision, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The newest revision of the legacy era: what `initialize` falls back to (decision D1).
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;

    /// The newest revision of all.
    pub const NEWEST: Self = Self::V2026_07_28;

    /// Version of a peer that has not agreed on one (decision D14): the specification assumes it
    /// for HTTP requests without a version header, and we for all transports.
    pub const ASSUMED: Self = Self::V2025_03_26;

    /// The revision's date, as it appears on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The era this revision belongs to.
    pub fn era(self) -> Era {
        if self <= Self::NEWEST_LEGACY {
            Era::Legacy
        } else {
            Era::Modern
        }
    }

    /// The revisions of the modern era, which are the ones `server/discover` and `-32022` name.
    pub fn modern() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|version| version.era() == Era::Modern)
    }

    /// Returns true if several messages may share a frame (decision D12). 2025-03-26 demands it,
    /// the revision before it does not say, and later ones have removed it.
    pub fn allows_batches(self) -> bool {
        self <= Self::V2025_03_26
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A string is no revision's date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no released revision has this date")]
pub struct UnknownVersion;

impl FromStr for ProtocolVersion {
    type Err = UnknownVersion;

    fn from_str(date: &str) -> Result<Self, UnknownVersion> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == date)
            .ok_or(UnknownVersion)
    }
}

/// A version a peer has named, which need not be one we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedVersion {
    /// A released revision.
    Known(ProtocolVersion),
    /// Any other text, as it was written.
    Unknown(Box<str>),
}

impl RequestedVersion {
    /// Text that the peer wrote.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(version) => version.as_str(),
            Self::Unknown(text) => text,
        }
    }

    /// Returns true if the peer means a revision without a handshake: a modern one, or one we
    /// cannot know.
    pub fn is_modern(&self) -> bool {
        match self {
            Self::Known(version) => version.era() == Era::Modern,
            // Dates sort as text. Something that is no date was never a legacy revision either.
            Self::Unknown(text) => ProtocolVersion::NEWEST_LEGACY.as_str() < &**text,
        }
    }
}

impl From<&str> for RequestedVersion {
    fn from(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Unknown(text.into()), Self::Known)
    }
}
