//! `client login` and `client logout`, and where tokens are kept.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use oauth_client::{
    AuthorizationError, Authorizer, Browser, ClientIdentity, FileStore, Grant, Login, Options,
    Secret, ShownUrl, SigningKey, SystemBrowser,
};

use super::contact::{authorities, secret, text};
use super::quoted;
use crate::output::{Stop, print};
use crate::request::Identity;
use crate::terminal::{remark, tell};
use config::printable;
use server::Failure;

/// The way in which a person signs in.
pub(crate) struct Way {
    /// Port of 127.0.0.1 that the browser comes back to.
    pub(crate) port: Option<u16>,
    /// True if the address is only printed.
    pub(crate) no_browser: bool,
    /// Time for it.
    pub(crate) timeout: Duration,
}

impl Way {
    /// The sign-in itself.
    pub(crate) fn login(&self) -> Login {
        let show = |url: &str| tell(&format!("sign in at {}", printable(url)));
        match self.no_browser {
            true => with(ShownUrl::new(show), self),
            false => with(SystemBrowser::new(show), self),
        }
    }
}

/// Signs in and keeps the tokens.
pub(super) fn login(
    url: &str,
    scopes: Vec<String>,
    way: &Way,
    ca: Option<&Path>,
    identity: &Identity,
) -> Result<ExitCode, Stop> {
    let grant = Grant::Login(way.login());
    let authorities = authorities(ca).map_err(Stop::Failed)?;
    let place = directory(identity).map_err(Stop::Failed)?;
    let options = Options {
        grant,
        scopes,
        store: Arc::new(FileStore::at(&place)),
        authorities,
        ..options(identity).map_err(Stop::Failed)?
    };
    let authorizer = Authorizer::new(url, options).map_err(|error| failed(url, &error))?;
    asked(url, &authorizer, async |it| it.login().await)?;
    print(&format!(
        "signed in at {}; the tokens are kept in {}",
        printable(url),
        place.display()
    ))
}

fn with(browser: impl Browser, way: &Way) -> Login {
    Login {
        port: way.port,
        timeout: way.timeout,
        ..Login::new(browser)
    }
}

/// Forgets the tokens.
pub(super) fn logout(url: &str, identity: &Identity) -> Result<ExitCode, Stop> {
    let options = Options {
        store: Arc::new(FileStore::at(directory(identity).map_err(Stop::Failed)?)),
        ..options(identity).map_err(Stop::Failed)?
    };
    let authorizer = Authorizer::new(url, options).map_err(|error| failed(url, &error))?;
    signed_out(url, &authorizer)?;
    print(&format!(
        "no tokens are kept for {} any more",
        printable(url)
    ))
}

pub(crate) fn failed(url: &str, error: &AuthorizationError) -> Stop {
    let why = quoted(&server::with_causes(error), "  ");
    let cure = error.cure();
    let cure = cure.map_or_else(String::new, |it| format!("\nhint: {}", printable(&it)));
    Stop::Failed(format!("{}: {why}{cure}", printable(url)).into())
}

/// Has an authorizer forget its tokens, and tells which of them may be good still.
pub(crate) fn signed_out(url: &str, authorizer: &Authorizer) -> Result<(), Stop> {
    for error in asked(url, authorizer, async |it| it.logout().await)? {
        remark(&format!(
            "warning: tokens are good where they were given until they end: {}",
            printable(&server::with_causes(&error))
        ));
    }
    Ok(())
}

/// Has an authorizer do something, until it is done or the user gives it up.
pub(crate) fn asked<T>(
    url: &str,
    authorizer: &Authorizer,
    work: impl AsyncFnOnce(&Authorizer) -> Result<T, AuthorizationError>,
) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::Failed(error.into()))?;
    runtime.block_on(async {
        tokio::select! {
            done = work(authorizer) => done.map_err(|error| failed(url, &error)),
            _ = tokio::signal::ctrl_c() => Err(Stop::Signalled),
        }
    })
}

/// Settings for the client that the command line describes. They keep nothing and ask for nothing.
pub(super) fn options(identity: &Identity) -> Result<Options, Failure> {
    let secret = secret(
        identity.client_secret_env.as_deref(),
        identity.client_secret_file.as_deref(),
        "--client-secret-env",
    )?;
    let key = match &identity.client_key {
        None => None,
        Some(path) => {
            let key = SigningKey::from_pem(&text(path)?)
                .map_err(|why| format!("--client-key {} cannot be used: {why}", path.display()))?;
            Some(Arc::new(match &identity.client_key_id {
                Some(name) => key.named(name),
                None => key,
            }))
        }
    };
    Ok(Options {
        client: ClientIdentity {
            id: identity.client_id.clone(),
            secret: secret.map(Secret::new),
            key,
            issuer: identity.issuer.clone(),
            metadata_url: identity.client_metadata.clone(),
            ..ClientIdentity::default()
        },
        ..Options::default()
    })
}

/// The directory with the tokens of all servers.
pub(super) fn directory(identity: &Identity) -> Result<PathBuf, Failure> {
    let directory = identity
        .tokens
        .clone()
        .or_else(oauth_client::usual_directory);
    directory
        .ok_or_else(|| "there is no place for tokens: name one with --tokens, or set HOME".into())
}
