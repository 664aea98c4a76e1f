//! Requests for routes, as their answers see them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use transport_http::SideRequest;

use crate::inner::Inner;
use crate::reply::{Problem, Reply};
use crate::sign_in::Who;

/// Beginning of every path of the API.
pub(crate) const ROOT: &str = "/admin/v1";

/// Media type of server-sent events.
pub(crate) const EVENTS: &str = "text/event-stream";

/// Answer on its way.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send + 'a>>;

/// A request for a route.
pub(crate) struct Call<'a> {
    pub(crate) desk: &'a Arc<Inner>,
    pub(crate) request: SideRequest<'a>,
    /// Parts of the path that are in braces.
    pub(crate) names: Vec<String>,
    /// Sender, where the route takes rights.
    pub(crate) sender: Option<Who>,
}

impl Call<'_> {
    /// Sender of a request whose route takes rights.
    pub(crate) fn who(&self) -> &Who {
        self.sender.as_ref().expect("the route takes rights")
    }

    /// The first name in the path.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Query of the URL. What the type does not know is refused, as a filter that is misspelt would
    /// otherwise show everything.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let query = self.request.parts().uri.query().unwrap_or_default();
        let text = |text: &str| {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8();
            decoded.map(|it| it.into_owned())
        };
        let mut members = Map::new();
        for pair in query.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(name), Ok(value)) = (text(name), text(value)) else {
                return Err(Problem::bad("the query is not UTF-8"));
            };
            if value.is_empty() {
                continue;
            }
            if members.insert(name.clone(), Value::from(value)).is_some() {
                return Err(Problem::bad(format!("`{name}` is in the query twice")));
            }
        }
        serde_json::from_value(Value::Object(members))
            .map_err(|error| Problem::bad(format!("the query: {error}")))
    }

    /// Body, as JSON.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        if !self.bytes().trim_ascii_start().starts_with(b"{") {
            return Err(Problem::bad("the body is an object of JSON"));
        }
        serde_json::from_slice(self.bytes())
            .map_err(|error| Problem::bad(format!("the body: {error}")))
    }

    /// Body with a secret in it, as JSON. What is wrong with it is told without a word of it; `form` says how it has to be.
    pub(crate) fn secret_body<T: DeserializeOwned>(&self, form: &str) -> Result<T, Problem> {
        Some(self.bytes())
            .filter(|it| it.trim_ascii_start().starts_with(b"{"))
            .and_then(|it| serde_json::from_slice(it).ok())
            .ok_or_else(|| Problem::bad(format!("the body is not {form}")))
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        self.request.body()
    }
}
