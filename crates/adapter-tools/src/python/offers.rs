//! Resources, prompts and completions of a Python application.

use super::{PythonApp, executor::carry_out, scheduler::Kind};
use crate::{ToolCx, ToolError};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A resource of an application, or a family of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AppResource {
    /// Address, or a template of addresses.
    pub uri: String,
    /// True if it is a template.
    #[serde(rename = "template")]
    pub is_template: bool,
    /// Name.
    pub name: String,
    /// Name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Description.
    #[serde(default)]
    pub description: Option<String>,
    /// Media type.
    pub mime_type: String,
    /// Annotations, as the protocol has them.
    #[serde(default)]
    pub annotations: Value,
    /// Tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Icons, as the protocol has them.
    #[serde(default)]
    pub icons: Vec<Value>,
    /// More about it.
    #[serde(default)]
    pub meta: Map<String, Value>,
    /// True if its function is asynchronous.
    #[serde(rename = "async")]
    pub is_async: bool,
    /// True if its reads may read other resources of the server.
    #[serde(rename = "context", default)]
    pub takes_context: bool,
    /// Place of its function.
    #[serde(default)]
    pub source: Option<String>,
}

/// A prompt of an application.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AppPrompt {
    /// Name.
    pub name: String,
    /// Name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Description.
    #[serde(default)]
    pub description: Option<String>,
    /// Arguments.
    pub arguments: Vec<AppPromptArgument>,
    /// Tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Icons, as the protocol has them.
    #[serde(default)]
    pub icons: Vec<Value>,
    /// More about it.
    #[serde(default)]
    pub meta: Map<String, Value>,
    /// True if its function is asynchronous.
    #[serde(rename = "async")]
    pub is_async: bool,
    /// True if filling it in may read resources of the server.
    #[serde(rename = "context", default)]
    pub takes_context: bool,
    /// Place of its function.
    #[serde(default)]
    pub source: Option<String>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AppPromptArgument {
    /// Name.
    pub name: String,
    /// Purpose.
    #[serde(default)]
    pub description: Option<String>,
    /// True if the prompt needs it.
    pub required: bool,
}

/// Completion of an application: an argument of a prompt or template, or, with empty texts, all of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AppCompletion {
    /// Name of the prompt, or the template.
    pub of: String,
    /// Name of the argument.
    pub argument: String,
    /// True if its function is asynchronous.
    #[serde(rename = "async")]
    pub is_async: bool,
}

impl AppCompletion {
    /// Name by which the worker knows it.
    fn key(&self) -> String {
        match self.of.is_empty() {
            true => String::new(),
            false => format!("{}\n{}", self.of, self.argument),
        }
    }
}

impl PythonApp {
    /// The application's resources and families of them, in the order in which it registered them.
    pub fn resources(&self) -> Vec<AppResource> {
        self.ready.borrow().resources.clone()
    }

    /// The application's prompts, in the order in which it registered them.
    pub fn prompts(&self) -> Vec<AppPrompt> {
        self.ready.borrow().prompts.clone()
    }

    /// The application's completions.
    pub fn completions(&self) -> Vec<AppCompletion> {
        self.ready.borrow().completions.clone()
    }

    /// Reads a resource, with the values of the variables of its template: an object with `contents`, each a
    /// `text` or a `blob` and its `mime_type`.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for tools.
    pub async fn read_resource(
        &self,
        resource: &AppResource,
        variables: &Map<String, Value>,
        cx: ToolCx,
    ) -> Result<Value, ToolError> {
        let subject = (Kind::Resource, Arc::from(&*resource.uri), resource.is_async);
        self.ask(subject, variables, cx).await
    }

    /// Fills in a prompt: an object with `description` and `messages`.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for tools.
    pub async fn get_prompt(
        &self,
        prompt: &AppPrompt,
        arguments: &Map<String, Value>,
        cx: ToolCx,
    ) -> Result<Value, ToolError> {
        let subject = (Kind::Prompt, Arc::from(&*prompt.name), prompt.is_async);
        self.ask(subject, arguments, cx).await
    }

    /// Asks for values of an argument, with the parameters of `completion/complete`: an object with `values`,
    /// `total` and `has_more`.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for tools.
    pub async fn complete(
        &self,
        completion: &AppCompletion,
        request: &Map<String, Value>,
        cx: ToolCx,
    ) -> Result<Value, ToolError> {
        let subject = (
            Kind::Completion,
            completion.key().into(),
            completion.is_async,
        );
        self.ask(subject, request, cx).await
    }

    async fn ask(
        &self,
        subject: (Kind, Arc<str>, bool),
        arguments: &Map<String, Value>,
        cx: ToolCx,
    ) -> Result<Value, ToolError> {
        let arguments = serde_json::to_vec(arguments).map_err(ToolError::broken)?;
        let output = carry_out(&self.scheduler, subject, arguments.into(), cx).await?;
        let answer = output.structured;
        let answer =
            answer.ok_or_else(|| ToolError::broken("the worker has answered no object"))?;
        serde_json::from_str(answer.get()).map_err(ToolError::broken)
    }
}
