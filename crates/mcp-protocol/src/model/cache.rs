use serde::{Deserialize, Serialize};

/// Time for which a client may keep a result, and for whom (2026-07-28, server/utilities/caching).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHint {
    /// Milliseconds; zero says not to keep it.
    pub ttl_ms: u64,
    /// Callers that may be answered from the copy.
    pub scope: CacheScope,
}

/// Callers that may be answered from a cached copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// All callers.
    Public,
    /// Only who asked. Also what a client takes any other word for.
    #[serde(other)]
    Private,
}

impl CacheHint {
    /// Not to be kept by any client: the safe answer.
    pub const NONE: Self = Self {
        ttl_ms: 0,
        scope: CacheScope::Private,
    };
}

impl Default for CacheHint {
    fn default() -> Self {
        Self::NONE
    }
}
