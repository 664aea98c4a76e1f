//! HTTP services as tools.
//!
//! A tool is made of what a `SKILL.md` says at `binding: {type: http}`, as OwlClaw defines it
//! ([`bind`]), or of an operation that an OpenAPI document describes ([`openapi`]). Either way a call
//! is one request of a [`Client`](http_client::Client), and its answer is the tool's.
//!
//! # What holds
//!
//! * **No argument chooses where a request goes.** Scheme and host are literal, and whatever stands
//!   in a path or a query stays there ([`UrlTemplate`]).
//! * **A request goes no further than its client's [`Reach`](http_client::Reach)**: to public addresses,
//!   unless an operator has named others. Redirects are not followed, and no proxy is asked.
//! * **Secrets are referred to.** `${NAME}` in a header is replaced when the tool is made; what it
//!   stands for is in no log, no error and no answer ([`FixedHeaders`]).
//! * **Everything has a bound**: answers, headers, connections, attempts, and time.
//! * **What may have been done is not done again**: only requests of idempotent methods are repeated,
//!   and those whose service is given a key to tell repetitions by.
//!
//! ```
//! use adapter_http::{BoundTool, Bounds};
//! use http_client::{Client, ClientOptions};
//! use serde_json::json;
//!
//! let client = Client::new(ClientOptions::default())?;
//! let binding = json!({
//!     "type": "http",
//!     "method": "GET",
//!     "url": "https://api.example.com/orders/{order_id}",
//!     "headers": {"Authorization": "Bearer ${ORDERS_TOKEN}"},
//!     "response_mapping": {"path": "$.data"},
//! });
//! let bound = BoundTool {
//!     name: "fetch-order",
//!     description: "Fetches one order.",
//!     parameters: None,
//!     binding: &binding,
//! };
//! let secrets = |name: &str| (name == "ORDERS_TOKEN").then(|| "s3cret".to_owned());
//! let (tool, warnings) = adapter_http::bind(bound, &client, Bounds::default(), &secrets)?;
//! assert!(warnings.is_empty());
//! assert_eq!(tool.input_schema()["required"], json!(["order_id"]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod binding;
mod body;
mod call;
mod header;
mod mapping;
pub mod openapi;
mod retry;
mod url;

pub use crate::{
    binding::{BindingError, BoundTool, Bounds, bind},
    call::{Mode, begin_errand},
    header::{FixedHeaders, HeaderError, Secrets},
    retry::Retry,
    url::{MAX_URL_BYTES, UnfitArgument, UrlError, UrlTemplate},
};
