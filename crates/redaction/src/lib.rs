//! Takes secrets out of JSON and text before they are stored or logged, and compares texts of JSON
//! in canonical form.
//!
//! A [`Redactor`] knows secrets in three ways: by the names of members, by JSON pointers for what a
//! capability takes and gives, and by how they look ([`Detectors`]). Each gives way to a placeholder
//! with a digest that only who has the key can make: equal secrets can be seen to be equal, and
//! nobody can guess what they were by trying.
//!
//! Besides, [`know`] tells this process which values are secret: they are taken out wherever they stand, by every
//! redactor, and by [`without_known`] alone.
//!
//! Whatever the text, the time is proportional to its length, and so is the memory; nothing recurses
//! into it. What has no secrets is not copied.
//!
//! [`secret_parts`] tells what of a variable, a header or an address is a secret, so that the rest can stay where it is.
//!
//! [`canonical_digest`] is a digest of what a text of JSON says, not of how it is written.
//!
//! [`readable`] and [`folded`] are a text of JSON as a person who judges it should see it.
//!
//! Deliberately absent: files, clocks and randomness. Who uses this brings the key.
//!
//! ```
//! use redaction::{Redactor, Spec};
//!
//! let redactor = Redactor::new(&Spec::default(), [7; 32])?;
//! let arguments = r#"{"order": "4711", "card": "4111 1111 1111 1111", "password": "hunter2"}"#;
//! let kept = redactor.json("tool/pay", arguments);
//! assert!(kept.starts_with(r#"{"order": "4711", "card": "[redacted card "#));
//! assert!(!kept.contains("4111") && !kept.contains("hunter2"));
//! # Ok::<(), redaction::BadSpec>(())
//! ```

mod canonical;
mod company;
mod detect;
mod names;
mod placeholder;
mod pointers;
mod readable;
mod redactor;
mod scan;
mod spec;
mod string;

pub use crate::{
    canonical::{Malformed, canonical_digest, digest},
    readable::{TooLong, folded, is_misleading, readable, repeated_name},
    redactor::{
        Redactor,
        given::{
            SecretPart, is_secret_setting, secret_parts, secret_parts_of_arguments, with_parts,
        },
        known::{
            KNOWN, MAX_KNOWN_TOKENS, MIN_KNOWN_BYTES, know, know_token, knows_any, without_known,
            without_known_base64, without_known_bytes, without_known_json,
        },
        lines::OpenKey,
        looks_secret,
    },
    spec::{BadSpec, Detectors, Spec, is_secret_name},
};
