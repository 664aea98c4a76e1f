//! Tools: what they look like, how they are run, and the set of them on offer.
//!
//! A tool is a description and an [`Executor`]. Rust functions ([`Tool::native`]), the handlers of a
//! Python application (`python::PythonApp`, on Unix) and programs (`command::Command`, on Unix) are
//! the kinds in this crate; whoever else
//! can carry out calls implements `Executor`. Nothing here knows about clients, transports or
//! governance.
//!
//! ```
//! use adapter_tools::{Tool, ToolCx, ToolError, ToolSet};
//! use bytes::Bytes;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     /// The first summand.
//!     a: i64,
//!     b: i64,
//! }
//!
//! let add = Tool::native("add", |_cx, Add { a, b }| async move {
//!     a.checked_add(b).ok_or_else(|| ToolError::failed("the sum is out of range"))
//! })
//! .describe("Adds two integers.")
//! .with_timeout(std::time::Duration::from_secs(5));
//!
//! let tools = ToolSet::new([add])?;
//! let add = tools.get("add").expect("it was just put there");
//! assert_eq!(add.input_schema()["properties"]["a"]["description"], "The first summand.");
//!
//! // Arguments can only be had by checking them, so no tool ever sees any that do not fit.
//! let refused = add.check(Bytes::from_static(br#"{"a": "one", "b": 2}"#)).unwrap_err();
//! assert_eq!(refused.violations()[0].to_string(), r#"/a: expected integer, found string "one""#);
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let arguments = add.check(Bytes::from_static(br#"{"a": 1, "b": 2}"#))?;
//! let output = add.execute(ToolCx::new("anna", "call-1"), arguments).await?;
//! assert_eq!(output.content, [adapter_tools::Content::text("3")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arguments;
#[cfg(unix)]
pub mod command;
mod content;
mod context;
mod errand;
mod error;
#[cfg(unix)]
mod exit_status;
mod input;
mod members;
mod meter;
mod native;
mod output;
#[cfg(unix)]
pub mod python;
mod schema;
mod set;
mod tool;
mod violation;

pub use crate::{
    arguments::{Arguments, InvalidArguments, MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH},
    content::{About, Content, EmbeddedResource, ResourceBody, ResourceLink},
    context::{
        CallFacts, Headers, LogSink, Progress, ProgressSink, ReadResources, StreamReleaseSink,
        TaskHandle, ToolCx,
    },
    errand::{Errand, Hop, OpenErrand, TraceErrands},
    error::{Failure, Repeat, ToolError},
    input::{Answers, Askable, Elicited, FormSchema, LogLevel, Needed, Question, Waiting},
    meter::CallMeter,
    native::{NoArguments, ToolInput},
    output::{IntoOutput, ToolOutput},
    schema::{
        MAX_PATTERN_LENGTH, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SCHEMA_PATTERNS, SchemaError,
    },
    set::{ToolProblem, ToolProblemReason, ToolSet},
    tool::{Annotations, Executor, RiskClass, TaskSupport, Tool, ToolKind},
    violation::Violation,
};
