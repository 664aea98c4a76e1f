//! TLS: an authority that is known, and one that is not.

use crate::service::{Service, answer, bound, call, client_with};

use adapter_tools::ToolError;
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A service behind TLS, and its authority as PEM.
async fn service() -> (Service, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Service::with_handler(address, |_| answer(200, "text/plain", "sealed"));
    let serving = service.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, service) = (acceptor.clone(), serving.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    service.serve(stream).await;
                }
            });
        }
    });
    let der = BASE64_STANDARD.encode(authority_certificate.der());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    (service, pem)
}

#[tokio::test]
async fn a_service_is_trusted_if_its_authority_is() {
    let (service, authority) = service().await;
    let binding = json!({
        "type": "http", "method": "GET", "url": format!("https://{}/", service.address),
        "retry": {"max_attempts": 1},
    });
    let trusting = client_with(|options| options.authorities = authority.clone().into());
    let output = call(&bound(&trusting, &binding), json!({})).await.unwrap();
    assert_eq!(crate::service::text(&output), "sealed");

    let stranger = client_with(|_| {});
    let error = call(&bound(&stranger, &binding), json!({}))
        .await
        .unwrap_err();
    let ToolError::Crashed {
        message, detail, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(message, "the service cannot be reached");
    assert!(detail.contains("certificate"), "{detail}");
    assert_eq!(service.seen().len(), 1);
}
