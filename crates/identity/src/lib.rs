//! Authentication of callers: proofs of identity, and the names and roles that follow from them.
//!
//! Four means, each of which yields an [`Identity`] or a [`Rejection`]:
//!
//! * [`ApiKeys`]: keys that [`KeyFile`] made. The file has digests alone; a key is seen once.
//! * [`Issuers`]: JSON web tokens (RFC 7519) of issuers that the operator trusts, verified with the
//!   public keys they publish (RFC 7517). Only asymmetric signatures; there is no `none` and no
//!   shared secret in this crate, so no header of a token can ask for either.
//!   Their ID tokens end sign-ins of people ([`Issuers::verify_id_token`]).
//! * [`Introspection`]: tokens that only their issuer can read, about which it is asked (RFC 7662).
//! * [`Certificates`]: client certificates that TLS has verified already.
//!
//! [`Challenge`] and [`ResourceMetadata`] are what a client is told that comes without (RFC 6750,
//! RFC 9728).
//!
//! Time is given with each question. Deliberately absent: HTTP, MCP, and how keys of issuers are
//! fetched and issuers asked, which is up to a [`FetchKeys`] and an [`AskIssuer`]; this crate says when, and never twice at once, and finds
//! out where they are if only the issuer is known ([`KeySource::Issuer`]).
//!
//! ```
//! use identity::{ApiKeys, KeyFile, NewKey};
//! use std::time::SystemTime;
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("keys.json");
//! let file = KeyFile::at(&path);
//! let now = SystemTime::now();
//! let made = file.create(NewKey { principal: "billing".into(), ..NewKey::default() }, now)?;
//!
//! let keys = ApiKeys::open(&path)?;
//! let identity = keys.verify(made.key.reveal(), now)?;
//! assert_eq!(&*identity.principal, "billing");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod api_key;
mod api_keys;
mod attempts;
mod certificates;
mod challenge;
mod claims;
mod compact;
mod counts;
mod discovery;
mod dpop;
mod fetch;
mod identity;
mod introspection;
mod issuer;
mod issuers;
mod jwks;
mod key_file;
mod key_record;
mod key_state;
mod pattern;
mod remembered;

pub use crate::{
    api_key::ApiKey,
    api_keys::{ApiKeys, KeyChange},
    attempts::FailedAttempts,
    certificates::{CertificateName, CertificateOptions, Certificates},
    challenge::{Challenge, PROOF_ALGORITHMS, ResourceMetadata, canonical_resource},
    counts::Counts,
    dpop::{Presented, Proofs},
    fetch::{FetchKeys, Fetched},
    identity::{Identity, MAX_PRINCIPAL, Means, Rejection, Revocation},
    introspection::{AskIssuer, Asked, BadIntrospection, Introspection, IntrospectionOptions},
    issuer::{Algorithm, ExpectedIdToken, IssuerOptions, KeySource, UnknownAlgorithm},
    issuers::{BadIssuers, IssuerHealth, Issuers},
    key_file::{KeyFile, KeyFileError, MadeKey, NewKey},
    key_record::{KeyRecord, KeyState},
};
