//! Encrypted connections to a real server: which certificates are accepted, and what goes over the wire.

#![allow(clippy::unwrap_used)]

use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use postgres_connection::{Address, ConnectError};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::{
    error::Error,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use testkit::Postgres;

/// An authority of certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = pem("CERTIFICATE", params.self_signed(&key).unwrap().der());
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate of this name and its key, in PEM.
    fn certify(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // OpenSSL takes a certificate whose issuer has the same name for one that signs itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (
            pem("CERTIFICATE", certificate.der()),
            pem("PRIVATE KEY", &key.serialize_der()),
        )
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn keep(directory: &TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// True if the connection is encrypted, as the server sees it.
async fn is_encrypted(address: &str) -> Result<bool, Box<dyn Error>> {
    let (client, _driver) = Address::new(address)?.connect().await?;
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

async fn is_refused_for(address: &str, expected: &str) {
    let error = Address::new(address)
        .unwrap()
        .connect()
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Encryption(_)),
        "{address}: {error:?}"
    );
    let mut said = error.to_string();
    assert!(said.contains("sslrootcert"), "{said}");
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        said += &format!(": {next}");
        cause = next;
    }
    assert!(said.contains(expected), "{address}: {said}");
}

fn with(url: &str, mode: &str, authority: &Path) -> String {
    format!("{url}?sslmode={mode}&sslrootcert={}", authority.display())
}

#[tokio::test]
async fn only_certificates_of_the_authority_with_the_name_of_the_server_are_accepted() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url().replace("127.0.0.1", "localhost");
    let by_number = postgres.url();
    let directory = TempDir::new().unwrap();
    let authority = Authority::new();
    let ours = keep(&directory, "ours.pem", &authority.pem, 0o644);
    let other = keep(&directory, "other.pem", &Authority::new().pem, 0o644);

    // A server that offers no encryption is not used without it.
    for mode in ["verify-full", "verify-ca", "require"] {
        is_refused_for(&with(&url, mode, &ours), "does not support TLS").await;
    }
    assert!(!is_encrypted(&url).await.unwrap());

    let (certificate, key) = authority.certify("localhost");
    postgres.encrypt(&certificate, &key, None);
    for mode in ["verify-full", "verify-ca", "require"] {
        assert!(
            is_encrypted(&with(&url, mode, &ours)).await.unwrap(),
            "{mode}"
        );
        is_refused_for(&with(&url, mode, &other), "invalid peer certificate").await;
        // The system's authorities have not signed it.
        is_refused_for(&format!("{url}?sslmode={mode}"), "UnknownIssuer").await;
    }
    // Its certificate is for another name.
    is_refused_for(
        &with(&by_number, "verify-full", &ours),
        "not valid for name",
    )
    .await;
    is_refused_for(&with(&by_number, "require", &ours), "not valid for name").await;
    assert!(
        is_encrypted(&with(&by_number, "verify-ca", &ours))
            .await
            .unwrap()
    );
    // The password is bound to the encrypted connection, as no middleman could have it.
    let bound = with(&url, "verify-full", &ours) + "&channel_binding=require";
    assert!(is_encrypted(&bound).await.unwrap());
    assert!(
        !is_encrypted(&format!("{url}?sslmode=disable"))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_certificate_of_the_client_is_shown_to_a_server_that_wants_one() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url().replace("127.0.0.1", "localhost");
    let directory = TempDir::new().unwrap();
    let authority = Authority::new();
    let ours = keep(&directory, "ours.pem", &authority.pem, 0o644);
    let (certificate, key) = authority.certify("localhost");
    postgres.encrypt(&certificate, &key, Some(&authority.pem));

    let address = with(&url, "verify-full", &ours);
    let refused = is_encrypted(&address).await.unwrap_err();
    assert!(
        format!("{refused:?}").contains("client certificate"),
        "{refused:?}"
    );

    let (certificate, key) = authority.certify("owlclaw");
    let certificate = keep(&directory, "client.pem", &certificate, 0o644);
    let key = keep(&directory, "client.key", &key, 0o600);
    let address = format!(
        "{address}&sslcert={}&sslkey={}",
        certificate.display(),
        key.display()
    );
    assert!(is_encrypted(&address).await.unwrap());

    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Address::new(&address).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}
