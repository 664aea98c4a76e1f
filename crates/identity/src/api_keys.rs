use crate::{
    Identity, KeyFileError, KeyRecord, Means, Rejection, Revocation,
    api_key::{are_equal, digest_of, from_hexadecimal, parts},
    key_file, key_record,
};
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use tokio::sync::watch;

/// The keys of a file, as a server asks them. Reading is free of locks.
#[derive(Debug)]
pub struct ApiKeys {
    path: PathBuf,
    held: ArcSwap<Held>,
}

#[derive(Debug)]
struct Held {
    by_id: HashMap<String, HeldKey>,
    records: Vec<KeyRecord>,
}

#[derive(Debug)]
struct HeldKey {
    digest: [u8; 32],
    is_revoked: bool,
    identity: Arc<Identity>,
    /// Dropped when the key is not what it was any more. A key that is not good has none.
    keeper: Option<Arc<watch::Sender<Option<SystemTime>>>>,
}

/// Change of one key that a reload of the file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Id of the key.
    pub id: String,
    /// Principal the key belongs to.
    pub principal: String,
    /// `created`, `revoked`, `changed` (its end, its roles, its owner) or `removed`.
    pub what: &'static str,
}

impl ApiKeys {
    /// The keys of the file at `path`.
    ///
    /// # Errors
    ///
    /// [`KeyFileError`] if there is no such file, or it is not as [`KeyFile`](crate::KeyFile) makes
    /// it.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let held = Held::of(key_file::read(path)?, None);
        Ok(Self {
            path: path.to_owned(),
            held: ArcSwap::from_pointee(held),
        })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again, and says what has changed. It is read where this is called, which takes
    /// as long as the disk does.
    ///
    /// [`Identity::revocation`] of who has come with a key hears when that key is revoked, or removed, or has
    /// another principal or other roles; and until when it is good, if that is what has changed.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); what was read before stays in force then.
    pub fn reload(&self) -> Result<Vec<KeyChange>, KeyFileError> {
        let records = key_file::read(&self.path)?;
        let before = self.held.load_full();
        let now = Held::of(records, Some(&before));
        let changes = changes(&before.records, &now.records);
        self.held.store(Arc::new(now));
        Ok(changes)
    }

    /// Identity that `key` belongs to.
    ///
    /// Costs one digest, whatever is sent: a key is looked up by its id, which is no secret, and
    /// compared by its digest, so that no time tells anything about a secret.
    ///
    /// # Errors
    ///
    /// [`Rejection::Malformed`] if it has not the form of a key, [`Rejection::Invalid`] if it is not
    /// good at `now`. Who has not got the whole key is not told whether there is one of that id.
    pub fn verify(&self, key: &str, now: SystemTime) -> Result<Arc<Identity>, Rejection> {
        let Some((id, _)) = parts(key) else {
            return Rejection::malformed("the API key has not the form of one");
        };
        let given = digest_of(key);
        let held = self.held.load();
        let held = held.by_id.get(id);
        let kept = held.map_or(&[0; 32], |held| &held.digest);
        let held = held.filter(|_| are_equal(kept, &given));
        match held {
            None => Rejection::invalid("there is no such API key"),
            Some(held) if held.is_revoked => Rejection::invalid("the API key has been revoked"),
            Some(held) if held.identity.expires.is_some_and(|end| end <= now) => {
                Rejection::invalid("the API key has expired")
            }
            Some(held) => Ok(Arc::clone(&held.identity)),
        }
    }

    /// Number of keys that are valid at `now`.
    #[must_use]
    pub fn active(&self, now: SystemTime) -> usize {
        let held = self.held.load();
        let active = held.by_id.values().filter(|key| {
            !key.is_revoked && key.identity.expires.is_none_or(|expires| now < expires)
        });
        active.count()
    }
}

impl Held {
    /// The keys of `records`. Those that are as they were `before` go on being kept.
    fn of(records: Vec<KeyRecord>, before: Option<&Self>) -> Self {
        let by_id = records.iter().filter_map(|record| {
            let old = before.and_then(|before| before.by_id.get(&record.id));
            Some((record.id.clone(), HeldKey::of(record, old)?))
        });
        Self {
            by_id: by_id.collect(),
            records,
        }
    }
}

impl HeldKey {
    fn of(record: &KeyRecord, old: Option<&Self>) -> Option<Self> {
        // Records were checked when they were read.
        let digest = from_hexadecimal(&record.digest)?;
        let is_revoked = record.revoked.is_some();
        let mut identity = Identity {
            principal: record.principal.as_str().into(),
            roles: record
                .roles
                .iter()
                .map(|role| role.as_str().into())
                .collect(),
            means: Means::ApiKey {
                id: record.id.as_str().into(),
            },
            expires: record.expires.as_deref().and_then(key_record::time),
            revocation: None,
            bound_to: None,
        };
        let is_as_before = |old: &&Self| {
            old.digest == digest
                && old.identity.principal == identity.principal
                && old.identity.roles == identity.roles
        };
        let keeper = match old.filter(is_as_before) {
            _ if is_revoked => None,
            Some(Self {
                keeper: Some(keeper),
                identity: known,
                ..
            }) => {
                identity.revocation.clone_from(&known.revocation);
                keeper.send_replace(identity.expires);
                Some(Arc::clone(keeper))
            }
            _ => {
                let (keeper, revocation) = Revocation::until(identity.expires);
                identity.revocation = Some(revocation);
                Some(Arc::new(keeper))
            }
        };
        Some(Self {
            digest,
            is_revoked,
            identity: Arc::new(identity),
            keeper,
        })
    }
}

fn changes(before: &[KeyRecord], after: &[KeyRecord]) -> Vec<KeyChange> {
    let by_id = |records: &[KeyRecord]| -> HashMap<String, KeyRecord> {
        let entry = |record: &KeyRecord| (record.id.clone(), record.clone());
        records.iter().map(entry).collect()
    };
    let (old, new) = (by_id(before), by_id(after));
    let change = |key: &KeyRecord, what| KeyChange {
        id: key.id.clone(),
        principal: key.principal.clone(),
        what,
    };
    let still = after.iter().filter_map(|key| match old.get(&key.id) {
        None => Some(change(key, "created")),
        Some(old) if old == key => None,
        Some(old) if old.revoked.is_none() && key.revoked.is_some() => Some(change(key, "revoked")),
        Some(_) => Some(change(key, "changed")),
    });
    let gone = before.iter().filter(|key| !new.contains_key(&key.id));
    still
        .chain(gone.map(|key| change(key, "removed")))
        .collect()
}
