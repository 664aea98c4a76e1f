//! Who we are to strangers, and who they are to us: certificates.

mod error;
mod files;

pub use self::{error::TlsError, files::TlsFiles};

use self::files::Loaded;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// TLS 1.2 and 1.3, with HTTP/2 and HTTP/1.1 above. What is read from its files can be read again
/// while it is in use: who is connected stays so, and who comes then sees what is new.
pub struct Tls {
    files: TlsFiles,
    current: ArcSwap<Loaded>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`], which names the file and what is wrong with it.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let loaded = files.load(SystemTime::now())?;
        Ok(Arc::new(Self {
            files,
            current: ArcSwap::from_pointee(loaded),
        }))
    }

    /// Reads the files again; tells whether they say something else than before.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`], and what was in force stays so.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let loaded = self.files.load(SystemTime::now())?;
        let differs = !self.current.load().is_same_as(&loaded);
        if differs {
            self.current.store(Arc::new(loaded));
        }
        Ok(differs)
    }

    /// When the first certificate of the chain in use expires that does.
    pub fn expires_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.current.load().expires_at)
    }

    /// The files that are read.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.load().config)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}
