use crate::{
    error::{AddressError, ConnectError},
    tls::{self, AUTHORITIES, CERTIFICATE, Files, KEY, Names},
};
use percent_encoding::percent_decode_str;
use std::{fmt, future::poll_fn, net::IpAddr, path::PathBuf};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Notification,
    config::{Host, SslMode},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Address of a database, and the way in which connections to it are encrypted. It never shows the
/// password.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?…`, or `key=value` pairs as libpq has them.
    ///
    /// Of libpq's parameters about encryption, `sslmode` is `verify-full`, `verify-ca` (the name of the
    /// server is not compared with its certificate) or `disable`; `require` is taken for `verify-full`.
    /// Without it, connections to other machines are `verify-full`, and those to this one are not encrypted.
    /// `sslrootcert` is the path of the authorities to trust instead of the system's, or `system`;
    /// `sslcert` and `sslkey` are paths of the client's own certificate and its key. All three are in PEM and
    /// only understood in an address that begins with `postgres://` or `postgresql://`.
    /// Unix sockets are never encrypted. Files are read once, here.
    ///
    /// # Errors
    ///
    /// [`AddressError`] when there can be no connection to such an address, or none as safe as it asks for.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        let (text, asked) = Asked::take_from(text)?;
        // What the parser says may hold a piece of the password, so it is left behind.
        let mut config: Config = text.parse().map_err(|_| AddressError::Malformed)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(AddressError::NoHost);
        }
        let names = match asked.mode.as_deref() {
            None => match config.get_ssl_mode() {
                SslMode::Disable => None,
                SslMode::Prefer if is_local(&config) => None,
                _ => Some(Names::Compared),
            },
            Some("verify-full" | "require") => Some(Names::Compared),
            Some("verify-ca") => Some(Names::Any),
            Some("disable") => None,
            Some(_) => return Err(AddressError::Mode),
        };
        if let (None, Some(key)) = (names, asked.first_file()) {
            return Err(AddressError::NotEncrypted(key));
        }
        let sockets = |host: &Host| matches!(host, Host::Unix(_));
        let names = names.filter(|_| !config.get_hosts().iter().any(sockets));
        config.ssl_mode(match names {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
        let tls = names
            .map(|names| tls::client_config(names, &asked.files))
            .transpose()?
            .map(MakeRustlsConnect::new);
        Ok(Self { config, tls })
    }

    /// Further settings of connections: name of the application, timeouts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        let mode = self.config.get_ssl_mode();
        change(&mut self.config);
        self.config.ssl_mode(mode);
        self
    }

    /// Returns true if connections to the database are encrypted, and the server proves its certificate.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects. The task carries the connection until the client is dropped, or the connection ends.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the database cannot be reached, its certificate is not accepted, or it refuses the user.
    pub async fn connect(&self) -> Result<(Client, JoinHandle<()>), ConnectError> {
        // How a connection ended is reported to the users of the client.
        Ok(match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                (client, tokio::spawn(async { drop(connection.await) }))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                (client, tokio::spawn(async { drop(connection.await) }))
            }
        })
    }

    /// Connects, and passes on what the connection hears by `LISTEN`. The channel closes when the connection
    /// ends, and the connection ends when the client or the receiver is dropped. While `max_waiting`
    /// notifications wait to be received, nothing is read from the connection.
    ///
    /// # Errors
    ///
    /// As [`Address::connect`].
    pub async fn connect_and_hear(
        &self,
        max_waiting: usize,
    ) -> Result<(Client, mpsc::Receiver<Notification>), ConnectError> {
        let (heard, hears) = mpsc::channel(max_waiting);
        Ok(match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(hear(connection, heard));
                (client, hears)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(hear(connection, heard));
                (client, hears)
            }
        })
    }

    /// Asks the server to end what a client's connection is doing, by a connection of its own, which is as safe.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the server cannot be asked.
    pub async fn cancel(&self, client: &Client) -> Result<(), ConnectError> {
        let token = client.cancel_token();
        match &self.tls {
            Some(tls) => token.cancel_query(tls.clone()).await?,
            None => token.cancel_query(NoTls).await?,
        }
        Ok(())
    }
}

/// Carries a connection, and passes on what it hears.
async fn hear<S, T>(mut connection: Connection<S, T>, heard: mpsc::Sender<Notification>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    // How a connection ended is reported to the users of the client.
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message
            && heard.send(notification).await.is_err()
        {
            return;
        }
    }
}

/// Parameters of an address about encryption that the client library does not read.
#[derive(Default)]
struct Asked {
    mode: Option<String>,
    files: Files,
}

impl Asked {
    /// Takes the parameters out of an address; gives the rest of it.
    fn take_from(text: &str) -> Result<(String, Self), AddressError> {
        let mut asked = Self::default();
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let Some((head, query)) = text.split_once('?').filter(|_| is_url) else {
            return Ok((text.to_owned(), asked));
        };
        let mut system = false;
        let mut rest = Vec::new();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = || {
                percent_decode_str(value)
                    .decode_utf8()
                    .map_err(|_| AddressError::Malformed)
            };
            let (key, file) = match key {
                "sslmode" => {
                    if asked.mode.replace(value()?.into_owned()).is_some() {
                        return Err(AddressError::Twice("sslmode"));
                    }
                    continue;
                }
                "sslrootcert" if value()? == "system" => {
                    system = true;
                    continue;
                }
                "sslrootcert" => (AUTHORITIES, &mut asked.files.authorities),
                "sslcert" => (CERTIFICATE, &mut asked.files.certificate),
                "sslkey" => (KEY, &mut asked.files.key),
                _ => {
                    rest.push(pair);
                    continue;
                }
            };
            let path = PathBuf::from(value()?.into_owned());
            if path.is_relative() {
                return Err(AddressError::Relative(key));
            }
            if file.replace(path).is_some() {
                return Err(AddressError::Twice(key));
            }
        }
        if system && asked.files.authorities.is_some() {
            return Err(AddressError::Twice(AUTHORITIES));
        }
        let text = match rest.is_empty() {
            true => head.to_owned(),
            false => format!("{head}?{}", rest.join("&")),
        };
        Ok((text, asked))
    }

    fn first_file(&self) -> Option<&'static str> {
        let files = [
            (AUTHORITIES, &self.files.authorities),
            (CERTIFICATE, &self.files.certificate),
            (KEY, &self.files.key),
        ];
        files
            .into_iter()
            .find_map(|(key, file)| file.as_ref().map(|_| key))
    }
}

/// Returns true if what is sent to these hosts does not leave this machine.
fn is_local(config: &Config) -> bool {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|it: IpAddr| it.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

/// The address without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            if 0 < index {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(name) => f.write_str(name)?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        if let Some(database) = self.config.get_dbname() {
            write!(f, "/{database}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_show() {
        for address in [
            "postgres://mary:hidden@db.example:7/ledger?sslmode=disable",
            "host=db.example user=mary password=hidden port=7 dbname=ledger sslmode=disable",
        ] {
            let address = Address::new(address).unwrap();
            assert_eq!(address.to_string(), "postgres://mary@db.example:7/ledger");
            assert!(!format!("{address:?}").contains("hidden"), "{address:?}");
        }
        for address in [
            "postgres://mary:hid?den@db.example/ledger",
            "postgres://mary:hid@den@db.example/ledger",
            "postgres://mary:hidden@db.example:port/ledger",
            "postgres://mary:hid?sslmode=den@db.example/ledger",
            "host=db.example password=hidden oops=1",
            "mysql://mary:hidden@db.example/ledger",
        ] {
            let Err(error) = Address::new(address) else {
                continue;
            };
            let said = format!("{error} {error:?}");
            assert!(!said.contains("hid") && !said.contains("den"), "{said}");
        }
    }

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_the_address_says_otherwise() {
        for (address, expected) in [
            ("postgres://db.example/x", true),
            ("host=db.example dbname=x", true),
            ("host=db.example dbname=x sslmode=require", true),
            ("host=db.example dbname=x sslmode=disable", false),
            (
                "host=/run/postgresql,db.example dbname=x sslmode=disable",
                false,
            ),
            ("postgres://10.0.0.7/x", true),
            ("postgres://127.0.0.1,10.0.0.7/x", true),
            ("postgres://localhost.example/x", true),
            ("postgres://localhost/x?hostaddr=10.0.0.7", true),
            ("postgres://db.example/x?hostaddr=127.0.0.1", false),
            ("postgres://db.example/x?sslmode=disable", false),
            ("postgres://db.example/x?sslmode=require", true),
            (
                "postgres://db.example/x?sslmode=verify-ca&connect_timeout=3",
                true,
            ),
            ("postgres://localhost/x", false),
            ("postgres://127.0.0.1/x", false),
            ("postgres://[::1]/x", false),
            ("postgres://localhost/x?sslmode=verify-full", true),
            ("postgres:///x?host=/run/postgresql", false),
            (
                "postgres:///x?host=/run/postgresql&sslmode=verify-full",
                false,
            ),
        ] {
            let read = Address::new(address).unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!(read.is_encrypted(), expected, "{address}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let check = |address: &str, expected: &str| {
            let Err(error) = Address::new(address) else {
                panic!("{address} is accepted");
            };
            assert!(error.to_string().contains(expected), "{address}: {error}");
        };
        check("ledger.sqlite", "must be like");
        check("postgres:///ledger", "names no host");
        for mode in ["prefer", "allow", "verify_full", "Disable", ""] {
            check(
                &format!("postgres://h/d?sslmode={mode}"),
                "must be verify-full",
            );
        }
        check("host=h sslmode=verify-full", "must be like");
        check(
            "postgres://h/d?sslmode=disable&sslmode=verify-full",
            "twice",
        );
        check("postgres://h/d?sslrootcert=/a&sslrootcert=system", "twice");
        check("postgres://h/d?sslrootcert=ca.pem", "absolute");
        check(
            "postgres://h/d?sslrootcert=/there/is/none.pem",
            "cannot be read",
        );
        check(
            "postgres://localhost/d?sslrootcert=/etc/ca.pem",
            "give `sslmode`",
        );
        check("postgres://h/d?sslmode=disable&sslkey=/k", "`sslkey`");
        check("postgres://h/d?sslkey=/k", "need each other");
        check("postgres://h/d?sslcrl=/c", "must be like");
    }
}
