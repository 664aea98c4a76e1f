//! The catalogue of published servers, served for reading at the documented paths of a registry.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use config::Config;
use http::{HeaderValue, Method, Response, StatusCode, header};
use registry::{Catalogue, api};
use transport_http::{PlainResponse, SideRequest, refusal};

use crate::with_causes;

/// A catalogue that is served.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: PathBuf,
}

impl Shelf {
    /// The catalogue of a configuration, if it is to be served.
    pub(super) fn of(config: &Config) -> Option<Arc<Self>> {
        let directory = config.registry_directory();
        config.registry.serve.then(|| Arc::new(Self { directory }))
    }

    /// Answers who may call the server: the request proves who sends it like any other.
    pub(super) async fn handle(&self, request: SideRequest<'_>) -> PlainResponse {
        let parts = request.parts();
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            let why = "this method is not allowed here";
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, why);
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allowed);
            return response;
        }
        if let Err(refused) = request.principal().await {
            return *refused;
        }
        let catalogue = Catalogue::at(&self.directory);
        // It is read from the disk.
        let read = tokio::task::spawn_blocking(move || catalogue.entries()).await;
        let entries = match read {
            Ok(Ok(entries)) => entries,
            Ok(Err(error)) => {
                let error = with_causes(&error);
                tracing::error!(error, "the catalogue of servers cannot be read");
                let why = "the catalogue cannot be read; its operator finds the reason in the log";
                return refusal(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
            Err(_) => {
                let why = "the catalogue cannot be read";
                return refusal(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        };
        let query = parts.uri.query().unwrap_or_default();
        let answer = api::answer(parts.uri.path(), query, &entries);
        let status = StatusCode::from_u16(answer.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Bytes::from(answer.body.to_string()));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        match parts.method {
            Method::HEAD => response.map(|_| Bytes::new()),
            _ => response,
        }
    }
}
