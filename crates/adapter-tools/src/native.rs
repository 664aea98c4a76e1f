use crate::{
    Arguments, Executor, IntoOutput, InvalidArguments, Tool, ToolCx, ToolError, ToolOutput,
    schema::schema_of,
};
use futures_util::future::BoxFuture;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{borrow::Cow, marker::PhantomData, sync::Arc};
use tokio::task::JoinHandle;

/// Arguments of a native tool function: any type that deserialises from an object and has a schema.
///
/// ```
/// # use adapter_tools::{Tool, ToolCx};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Greet {
///     /// Whom.
///     name: String,
/// }
///
/// Tool::native("greet", |_: ToolCx, input: Greet| async move { Ok(format!("hello {}", input.name)) });
/// ```
///
/// Without a schema nobody would know what to send:
///
/// ```compile_fail
/// # use adapter_tools::{Tool, ToolCx};
/// #[derive(serde::Deserialize)]
/// struct Greet {
///     /// Whom.
///     name: String,
/// }
///
/// Tool::native("greet", |_: ToolCx, input: Greet| async move { Ok(format!("hello {}", input.name)) });
/// ```
///
/// The arguments are gone when the call is over, so the input cannot borrow from them:
///
/// ```compile_fail
/// # use adapter_tools::{Tool, ToolCx};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Greet<'a> {
///     /// Whom.
///     name: &'a str,
/// }
///
/// Tool::native("greet", |_: ToolCx, input: Greet<'_>| async move { Ok(format!("hello {}", input.name)) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "not the arguments of a tool",
    note = "a tool function takes `(ToolCx, Input)` and returns a future of `Result<Output, ToolError>`",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for the input, which must be a struct with named fields that owns its data"
)]
pub trait ToolInput: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> ToolInput for T {}

/// The arguments of a tool that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

impl Tool {
    /// A tool that is an asynchronous Rust function. The schemas are those of its types; comments on
    /// fields become descriptions.
    ///
    /// The context tells who calls and until when, and takes what there is to tell meanwhile. Dropping
    /// the future is the cancellation. A function that needs to ask the user ends with its question,
    /// and is called again with the answer:
    ///
    /// ```
    /// use adapter_tools::{Elicited, Needed, NoArguments, Tool, ToolCx, ToolError};
    ///
    /// Tool::native("delete_everything", |cx: ToolCx, _: NoArguments| async move {
    ///     let form = serde_json::json!({"type": "object", "properties": {}});
    ///     let question = Needed::form("sure", "Really?", form);
    ///     match cx.answers().elicited("sure", &question) {
    ///         Some(Elicited::Accepted(_)) => {}
    ///         Some(_) => return Err(ToolError::failed("the user would rather not")),
    ///         None => return Err(ToolError::NeedsInput(question)),
    ///     }
    ///     cx.progress(1.0, Some(2.0), Some("half of it".into()));
    ///     cx.add_cost_micros(1_000);
    ///     Ok("all gone")
    /// });
    /// ```
    ///
    /// The function takes the context and one input, and fails with a [`ToolError`]:
    ///
    /// ```compile_fail
    /// # use adapter_tools::{NoArguments, Tool};
    /// Tool::native("one", |_: NoArguments| async { Ok("one") });
    /// ```
    ///
    /// ```compile_fail
    /// # use adapter_tools::{NoArguments, Tool, ToolCx};
    /// Tool::native("one", |_: ToolCx, _: NoArguments| async { "one" });
    /// ```
    ///
    /// Calls move between threads, and so must what they hold while they wait:
    ///
    /// ```compile_fail
    /// # use adapter_tools::{NoArguments, Tool, ToolCx};
    /// Tool::native("one", |_: ToolCx, _: NoArguments| async {
    ///     let held = std::rc::Rc::new(1);
    ///     std::future::ready(()).await;
    ///     Ok(*held)
    /// });
    /// ```
    pub fn native<I, O, F, Fut>(name: impl Into<Cow<'static, str>>, function: F) -> Self
    where
        I: ToolInput,
        O: IntoOutput + 'static,
        F: Fn(ToolCx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let types = PhantomData;
        Self::new(name, input_schema::<I>(), Native { function, types })
            .with_sure_output_schema(O::output_schema())
    }

    /// A tool that is a synchronous Rust function, which may block: it runs on a thread for that, and
    /// calls run beside each other. A call that is given up runs on unless the function looks at
    /// [`ToolCx::is_cancelled`].
    pub fn native_blocking<I, O, F>(name: impl Into<Cow<'static, str>>, function: F) -> Self
    where
        I: ToolInput,
        O: IntoOutput + 'static,
        F: Fn(ToolCx, I) -> Result<O, ToolError> + Send + Sync + 'static,
    {
        let (function, types) = (Arc::new(function), PhantomData);
        Self::new(name, input_schema::<I>(), Blocking { function, types })
            .with_sure_output_schema(O::output_schema())
    }
}

/// An asynchronous function as an executor.
struct Native<F, I, O> {
    function: F,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O, F, Fut> Executor for Native<F, I, O>
where
    I: ToolInput,
    O: IntoOutput,
    F: Fn(ToolCx, I) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
{
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let input = read(&arguments)?;
            // The function has what it needs; do not keep a second copy while it runs.
            drop(arguments);
            (self.function)(cx, input).await?.into_output()
        })
    }
}

/// A synchronous function as an executor.
struct Blocking<F, I, O> {
    function: Arc<F>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O, F> Executor for Blocking<F, I, O>
where
    I: ToolInput,
    O: IntoOutput + 'static,
    F: Fn(ToolCx, I) -> Result<O, ToolError> + Send + Sync + 'static,
{
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let function = Arc::clone(&self.function);
        Box::pin(async move {
            let input = read(&arguments)?;
            drop(arguments);
            let inner_cx = cx.clone();
            let run = move || function(inner_cx, input)?.into_output();
            let mut call = GiveUp {
                cx,
                call: tokio::task::spawn_blocking(run),
            };
            match (&mut call.call).await {
                Ok(answer) => answer,
                // Where panics are answered is decided further out, for all kinds of tools alike.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => Err(ToolError::broken(error)),
            }
        })
    }
}

/// Tells a blocking call when nobody waits for it any more, and takes it back if it has not begun.
struct GiveUp<T> {
    cx: ToolCx,
    call: JoinHandle<T>,
}

impl<T> Drop for GiveUp<T> {
    fn drop(&mut self) {
        if !self.call.is_finished() {
            self.cx.meter().cancel();
            self.call.abort();
        }
    }
}

/// The schema lets a little more through than the types do, such as `1.0` for an integer.
fn read<I: ToolInput>(arguments: &Arguments) -> Result<I, ToolError> {
    serde_json::from_slice(arguments.raw())
        .map_err(|error| ToolError::Rejected(InvalidArguments::because(error.to_string())))
}

fn input_schema<I: ToolInput>() -> Value {
    schema_of::<I>(SchemaSettings::for_deserialize)
}

#[cfg(test)]
mod tests;
