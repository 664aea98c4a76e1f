use crate::{
    Era, ProtocolError, ProtocolVersion, RequestedVersion,
    method::is_modern_only,
    model::{ClientCapabilities, Initialize, RequestMeta},
};

/// The version of the founding documents, served as 2024-11-05 (decision D1).
pub const FOUNDING: &str = "1.0";

/// Result of the handshake on a connection: a state machine without I/O.
///
/// A modern request never reads or changes it, so one connection may carry both eras.
#[derive(Clone, Debug, Default)]
pub enum Session {
    /// No handshake yet.
    #[default]
    Unopened,
    /// `initialize` was answered.
    Legacy {
        /// The revision in force.
        version: ProtocolVersion,
        /// True for `"1.0"`, which gets the answers of the founding documents.
        is_founding: bool,
        /// Capabilities that the client declared.
        capabilities: ClientCapabilities,
    },
}

impl Session {
    /// The revision one request is written in.
    ///
    /// A request that names a modern revision is served by itself. Everything else belongs to the
    /// session; on one that is not open yet it is served as [`ProtocolVersion::ASSUMED`], since
    /// real clients exist that never initialize (decision D14).
    ///
    /// # Errors
    ///
    /// [`ProtocolError::UnsupportedVersion`] for a version that has no place in `_meta`, and
    /// [`ProtocolError::InvalidMeta`] when a modern request lacks what each must carry.
    pub fn version_of(&self, meta: &RequestMeta) -> Result<ProtocolVersion, ProtocolError> {
        match &meta.protocol_version {
            Some(requested) => modern_version(requested, meta),
            None => Ok(self.version()),
        }
    }

    /// The revision a request of `method` is written in; see [`version_of`](Self::version_of).
    ///
    /// # Errors
    ///
    /// As there; and [`ProtocolError::InvalidMeta`] where nothing is agreed on, nothing is named, and
    /// only a modern revision has the method: its sender has forgotten to name it.
    pub fn version_of_request(
        &self,
        method: &str,
        meta: &RequestMeta,
    ) -> Result<ProtocolVersion, ProtocolError> {
        let is_unopened = matches!(self, Self::Unopened);
        if is_unopened && meta.protocol_version.is_none() && is_modern_only(method) {
            return Err(ProtocolError::InvalidMeta {
                reason: "`io.modelcontextprotocol/protocolVersion` is missing".to_owned(),
            });
        }
        self.version_of(meta)
    }

    /// The revision of requests that do not name their own.
    pub fn version(&self) -> ProtocolVersion {
        match self {
            Self::Legacy { version, .. } => *version,
            Self::Unopened => ProtocolVersion::ASSUMED,
        }
    }

    /// True if requests of the session without a revision are those of [`FOUNDING`].
    pub fn is_founding(&self) -> bool {
        matches!(
            self,
            Self::Legacy {
                is_founding: true,
                ..
            }
        )
    }

    /// Capabilities that the client declared; none before `initialize`.
    pub fn capabilities(&self) -> ClientCapabilities {
        match self {
            Self::Legacy { capabilities, .. } => capabilities.clone(),
            Self::Unopened => ClientCapabilities::default(),
        }
    }

    /// Opens the session and returns the version to answer with (decision D1): the one asked for if
    /// it has a handshake, `"1.0"` for those who know only the founding documents, else the newest
    /// that has a handshake.
    ///
    /// # Errors
    ///
    /// [`ProtocolError::AlreadyInitialized`] when it is open already.
    pub fn open(&mut self, initialize: &Initialize) -> Result<&'static str, ProtocolError> {
        if matches!(self, Self::Legacy { .. }) {
            return Err(ProtocolError::AlreadyInitialized);
        }
        let (version, answer) = match initialize.protocol_version.as_str() {
            FOUNDING => (ProtocolVersion::V2024_11_05, FOUNDING),
            requested => {
                let version = requested
                    .parse::<ProtocolVersion>()
                    .ok()
                    .filter(|version| version.era() == Era::Legacy)
                    .unwrap_or(ProtocolVersion::NEWEST_LEGACY);
                (version, version.as_str())
            }
        };
        *self = Self::Legacy {
            version,
            is_founding: answer == FOUNDING,
            capabilities: initialize.capabilities.shaped_for(version),
        };
        Ok(answer)
    }
}

fn modern_version(
    requested: &RequestedVersion,
    meta: &RequestMeta,
) -> Result<ProtocolVersion, ProtocolError> {
    match requested {
        RequestedVersion::Known(version) if version.era() == Era::Modern => {
            if meta.client_capabilities.is_none() {
                return Err(ProtocolError::InvalidMeta {
                    reason: "`io.modelcontextprotocol/clientCapabilities` is missing".to_owned(),
                });
            }
            Ok(*version)
        }
        _ => Err(ProtocolError::UnsupportedVersion {
            requested: requested.as_str().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(requested: &str) -> (&'static str, ProtocolVersion) {
        let mut session = Session::default();
        let initialize = Initialize {
            protocol_version: requested.to_owned(),
            ..Initialize::default()
        };
        let answer = session.open(&initialize).unwrap();
        assert!(session.open(&initialize).is_err(), "twice");
        (answer, session.version())
    }

    #[test]
    fn negotiation_follows_d1() {
        for (requested, answer, version) in [
            ("2024-11-05", "2024-11-05", ProtocolVersion::V2024_11_05),
            ("2025-03-26", "2025-03-26", ProtocolVersion::V2025_03_26),
            ("2025-06-18", "2025-06-18", ProtocolVersion::V2025_06_18),
            ("2025-11-25", "2025-11-25", ProtocolVersion::V2025_11_25),
            ("1.0", "1.0", ProtocolVersion::V2024_11_05),
            ("2026-07-28", "2025-11-25", ProtocolVersion::V2025_11_25),
            ("2099-01-01", "2025-11-25", ProtocolVersion::V2025_11_25),
            ("", "2025-11-25", ProtocolVersion::V2025_11_25),
        ] {
            assert_eq!(open(requested), (answer, version), "{requested}");
        }
    }

    #[test]
    fn nothing_is_asked_that_a_revision_does_not_have() {
        let declared = r#"{"elicitation":{"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
        for (version, expected) in [
            ("2024-11-05", r#"{"sampling":{},"roots":{}}"#),
            ("2025-03-26", r#"{"sampling":{},"roots":{}}"#),
            (
                "2025-06-18",
                r#"{"elicitation":{},"sampling":{},"roots":{}}"#,
            ),
            ("2025-11-25", declared),
        ] {
            let mut session = Session::default();
            let initialize = Initialize {
                protocol_version: version.to_owned(),
                capabilities: serde_json::from_str(declared).unwrap(),
                ..Initialize::default()
            };
            session.open(&initialize).unwrap();
            let expected: ClientCapabilities = serde_json::from_str(expected).unwrap();
            assert_eq!(session.capabilities(), expected, "{version}");
        }
    }

    #[test]
    fn who_has_forgotten_the_version_is_told_so() {
        let unnamed = RequestMeta::default();
        let mut session = Session::default();
        for method in ["server/discover", "subscriptions/listen", "tasks/update"] {
            let refused = session.version_of_request(method, &unnamed);
            assert!(
                matches!(refused, Err(ProtocolError::InvalidMeta { .. })),
                "{method}"
            );
        }
        for method in ["tools/call", "tools/list", "tasks/get", "ping", "nope"] {
            let version = session.version_of_request(method, &unnamed);
            assert_eq!(version.unwrap(), ProtocolVersion::ASSUMED, "{method}");
        }
        session.open(&Initialize::default()).unwrap();
        let version = session.version_of_request("server/discover", &unnamed);
        assert_eq!(
            version.unwrap(),
            ProtocolVersion::NEWEST_LEGACY,
            "agreed on"
        );
    }

    #[test]
    fn a_modern_request_is_its_own_session() {
        let meta = |version: &str, capable: bool| RequestMeta {
            protocol_version: Some(version.into()),
            client_capabilities: capable.then(ClientCapabilities::default),
            ..RequestMeta::default()
        };
        let session = Session::default();
        assert_eq!(
            session.version_of(&meta("2026-07-28", true)).unwrap(),
            ProtocolVersion::V2026_07_28
        );
        assert!(matches!(
            session.version_of(&meta("2026-07-28", false)),
            Err(ProtocolError::InvalidMeta { .. })
        ));
        for version in ["2025-11-25", "v999", "1.0"] {
            assert!(matches!(
                session.version_of(&meta(version, true)),
                Err(ProtocolError::UnsupportedVersion { .. })
            ));
        }
        assert_eq!(
            session.version_of(&RequestMeta::default()).unwrap(),
            ProtocolVersion::ASSUMED
        );
    }
}
