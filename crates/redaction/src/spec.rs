use crate::names::{Meaning, Names, Place};
use std::{collections::BTreeMap, sync::LazyLock};

/// Rules for what counts as secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// True to treat values as secret by the built-in list of names: passwords, tokens, keys, card
    /// numbers and the like, in `snake_case`, `camelCase` or with `-`, and as the last words of
    /// longer names, such as `db_password`; `PGPASSWORD` is one too.
    pub built_in_keys: bool,
    /// Further names. Case and `_`, `-`, `.` and spaces in them do not count. The whole name must be
    /// the same, or, if `*` stands before it, the last words: `*ssn` is `ssn` and `customerSsn`.
    pub keys: Vec<String>,
    /// By pattern of capabilities (`tool/NAME`, `*` for any text): JSON pointers (RFC 6901) into
    /// arguments and results. `*` as a segment stands for any element or member.
    pub pointers: BTreeMap<String, Vec<String>>,
    /// Detectors that recognize secrets by their shape.
    pub detectors: Detectors,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            built_in_keys: true,
            keys: Vec::new(),
            pointers: BTreeMap::new(),
            detectors: Detectors::default(),
        }
    }
}

/// Detectors that recognize secrets by their shape, wherever they are. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detectors {
    /// Numbers of payment cards: plausible beginnings, lengths and grouping, and a right check
    /// digit.
    pub cards: bool,
    /// Text after `Bearer` or `Basic`.
    pub bearer_tokens: bool,
    /// JSON web tokens.
    pub json_web_tokens: bool,
    /// Private keys as PEM or in the file format of PuTTY.
    pub private_keys: bool,
    /// Keys of well-known services, by their prefixes.
    pub api_keys: bool,
    /// Passwords in addresses: `scheme://user:password@host`.
    pub connection_strings: bool,
    /// Values after a secret's name in running text: `password=…`, `"token": "…"`, `<pin>…</pin>`.
    pub assignments: bool,
}

impl Default for Detectors {
    fn default() -> Self {
        Self {
            cards: true,
            bearer_tokens: true,
            json_web_tokens: true,
            private_keys: true,
            api_keys: true,
            connection_strings: true,
            assignments: true,
        }
    }
}

impl Detectors {
    /// None of them.
    #[must_use]
    pub fn none() -> Self {
        Self {
            cards: false,
            bearer_tokens: false,
            json_web_tokens: false,
            private_keys: false,
            api_keys: false,
            connection_strings: false,
            assignments: false,
        }
    }
}

/// Reason why a [`Spec`] cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    /// A pointer is none.
    #[error("the pointer {pointer:?} for {capability:?} is not a JSON pointer: {problem}")]
    Pointer {
        /// The pattern it is for.
        capability: String,
        /// As it was written.
        pointer: String,
        /// Description of what is wrong.
        problem: &'static str,
    },
    /// A pattern is empty.
    #[error("a pattern of capabilities must not be empty")]
    Pattern,
    /// A name without a letter or digit, or names that are too long together.
    #[error(
        "the name {0:?} cannot be used: it needs a letter or a digit, and all of them together must not be too long"
    )]
    Key(String),
}

/// Names that are secret as the last letters of others too, since hardly another word ends in them.
const SUFFIXES: &[&str] = &[
    "password",
    "passwd",
    "pswd",
    "passphrase",
    "passwort",
    "密码",
    "口令",
    "パスワード",
];

/// Names that are secret as the last words of others too.
const ENDINGS: &[&str] = &[
    "passwords",
    "password_confirmation",
    "password_again",
    "pwd",
    "db_pass",
    "database_pass",
    "sql_pass",
    "mysql_pass",
    "postgres_pass",
    "pg_pass",
    "mongo_pass",
    "redis_pass",
    "smtp_pass",
    "mail_pass",
    "email_pass",
    "ftp_pass",
    "sftp_pass",
    "ssh_pass",
    "ldap_pass",
    "http_pass",
    "vpn_pass",
    "wifi_pass",
    "user_pass",
    "admin_pass",
    "root_pass",
    "sudo_pass",
    "become_pass",
    "login_pass",
    "key_pass",
    "store_pass",
    "keystore_pass",
    "passcode",
    "secret",
    "secrets",
    "token",
    "jwt",
    "bearer",
    "api_key",
    "api_keys",
    "access_key",
    "account_key",
    "auth_key",
    "encryption_key",
    "master_key",
    "private_key",
    "secret_key",
    "shared_key",
    "signing_key",
    "subscription_key",
    "connection_string",
    "credential",
    "credentials",
    "otp",
    "totp",
    "mfa_code",
    "pin_code",
    "verification_code",
    "recovery_code",
    "recovery_codes",
    "security_code",
    "seed_phrase",
    "cvv",
    "cvc",
    "card_number",
    "card_no",
    "credit_card",
    "ssn",
    "social_security_number",
    "amz_signature",
    "goog_signature",
    "ssh_key",
    "rediscli_auth",
    "registry_auth",
    "kennwort",
    "mot_de_passe",
    "contraseña",
    "contraseÑa",
    "contrasena",
];

/// Names that are secret by themselves, and part of harmless ones.
const WHOLE: &[&str] = &[
    "pass",
    "pin",
    "pan",
    "cc_number",
    "creds",
    "sas",
    "sid_token",
];

/// Names that are secret by themselves if their values read like tokens, since some are names of schemes or of places.
const TOKENS: &[&str] = &["auth", "sig"];

/// The same, as the last words of others too.
const ENDINGS_OF_TOKENS: &[&str] = &["dsn"];

/// Names whose values have spaces in them.
const LINES: &[&str] = &["authorization", "cookie", "cookies", "set_cookie"];

/// Names that end like those of secrets and are none: they mark places in lists and texts.
const HARMLESS: &[&str] = &[
    "page_token",
    "next_token",
    "previous_token",
    "continuation_token",
    "progress_token",
    "sync_token",
    "stop_token",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "mask_token",
    "unexpected_token",
    "expected_token",
    "nopasswd",
    "nopassword",
    "public_ssh_key",
];

/// Returns true if values of this name, `GITHUB_TOKEN` or `dbPassword`, are redacted without any configuration.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    static NAMES: LazyLock<Option<Names>> = LazyLock::new(|| Spec::default().names().ok());
    let names = NAMES.as_ref();
    let meaning = names.and_then(|it| it.meaning(name.as_bytes(), 0, name.len()));
    matches!(meaning, Some(Meaning::Secret | Meaning::SecretLine))
}

impl Spec {
    /// The names, ready to be looked up.
    pub(crate) fn names(&self) -> Result<Names, BadSpec> {
        let mut names = Names::new();
        if self.built_in_keys {
            for (list, place, meaning) in [
                (SUFFIXES, Place::Suffix, Meaning::Secret),
                (ENDINGS, Place::Ending, Meaning::Secret),
                (WHOLE, Place::Whole, Meaning::Secret),
                (TOKENS, Place::Whole, Meaning::SecretToken),
                (ENDINGS_OF_TOKENS, Place::Ending, Meaning::SecretToken),
                (LINES, Place::Ending, Meaning::SecretLine),
                (HARMLESS, Place::Ending, Meaning::Harmless),
            ] {
                for name in list {
                    names.add(name, place, meaning);
                }
            }
        }
        for name in &self.keys {
            let (place, rest) = match name.strip_prefix('*') {
                Some(rest) => (Place::Ending, rest),
                None => (Place::Whole, name.as_str()),
            };
            if !names.add(rest, place, Meaning::Secret) {
                return Err(BadSpec::Key(name.clone()));
            }
        }
        Ok(names)
    }
}
