use crate::{
    Arguments, InvalidArguments, SchemaError, ToolCx, ToolError, ToolOutput, arguments,
    members::Members,
    schema::{self, CheckedSchema, NameOrder, secret_members},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};
use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Carries out calls of one tool. Boxed, because tools of all kinds share one set.
///
/// Dropping the future gives the call up: whatever must happen then is up to a `Drop` in it.
pub trait Executor: Send + Sync {
    /// Carries out one call, with arguments that fit the tool's schema.
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// A tool on offer: what clients are told of it, and what carries it out. Cheap to clone.
#[derive(Clone)]
pub struct Tool {
    name: Cow<'static, str>,
    /// Name of the handler or skill, if it is not the tool's name.
    own_name: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    description: Cow<'static, str>,
    input: Arc<Schema>,
    /// True if the schema of the arguments was guessed from code.
    input_is_derived: bool,
    output: Option<Arc<Schema>>,
    /// True if answers fit the output schema by construction.
    output_is_sure: bool,
    annotations: Annotations,
    timeout: Option<Duration>,
    estimated_cost_micros: Option<u64>,
    is_async: bool,
    /// True if its executor may read resources of the server.
    takes_context: bool,
    dry_run: Option<&'static str>,
    icons: Vec<Value>,
    task_support: TaskSupport,
    kind: ToolKind,
    source: Option<Cow<'static, str>>,
    meta: Map<String, Value>,
    /// Rules that its code states.
    rules: Vec<Value>,
    /// Parameter of its code that gets all arguments as one object.
    whole: Option<Cow<'static, str>>,
    /// Both names of each parameter of its code that has two.
    aliased: Vec<String>,
    risk: Option<RiskClass>,
    /// Reason why the tool cannot be offered, found by its maker.
    refused: Option<Cow<'static, str>>,
    held: Option<Arc<str>>,
    recorded_definition: Option<Arc<[u8; 32]>>,
    executor: Arc<dyn Executor>,
}

/// Source of a tool. For operators; clients are not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolKind {
    /// A function of this program.
    #[default]
    Native,
    /// A handler of a Python application.
    Python,
    /// A program that is started for each call.
    Command,
    /// A request to an HTTP service.
    Http,
    /// A tool of another MCP server.
    Upstream,
}

impl ToolKind {
    /// The kind in one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Python => "python",
            Self::Command => "command",
            Self::Http => "http",
            Self::Upstream => "upstream",
        }
    }
}

impl fmt::Display for ToolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Class of the effects that a call may have, the gravest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RiskClass {
    /// None: it reads.
    ReadOnly,
    /// Changes something.
    Mutating,
    /// Reaches systems of others, and may change something there.
    External,
    /// Moves money.
    Financial,
}

/// Support for calls as tasks: answered at once, with their results fetched later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never: its callers always wait.
    Forbidden,
    /// Calls become tasks where the caller knows tasks; other callers wait.
    #[default]
    Optional,
    /// Always: callers that do not know tasks are refused.
    Required,
}

/// Hints about what a tool does. They are the tool's word about itself, and no reason for trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Annotations {
    /// The tool changes nothing.
    #[serde(rename = "readOnlyHint", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// The tool's changes may destroy data.
    #[serde(rename = "destructiveHint", skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Twice does no more than once.
    #[serde(rename = "idempotentHint", skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// The tool deals with an open set of things, such as the web.
    #[serde(rename = "openWorldHint", skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

/// A schema, compiled once: when it is first asked for, which a `ToolSet` does when it is made.
#[derive(Debug)]
struct Schema {
    value: Arc<Value>,
    order: NameOrder,
    compiled: OnceLock<Result<Arc<CheckedSchema>, SchemaError>>,
}

impl Schema {
    fn new(value: Value) -> Arc<Self> {
        Self::ordered(value, NameOrder::default())
    }

    fn ordered(value: Value, order: NameOrder) -> Arc<Self> {
        Arc::new(Self {
            order,
            value: Arc::new(schema::portable(value)),
            compiled: OnceLock::new(),
        })
    }

    fn written(raw: &RawValue) -> Arc<Self> {
        let value = serde_json::from_str(raw.get()).unwrap_or_default();
        Self::ordered(value, NameOrder::of(raw))
    }

    /// Leaves out the name of the default dialect: clients that compile output schemas as draft 7
    /// refuse a dialect that they do not know, and list no tool at all.
    fn of_output(mut value: Value) -> Arc<Self> {
        if value.get("$schema").and_then(Value::as_str) == Some(schema::DIALECT)
            && let Value::Object(root) = &mut value
        {
            root.remove("$schema");
        }
        Self::new(value)
    }

    fn compiled(&self) -> Result<&Arc<CheckedSchema>, &SchemaError> {
        let compile = || schema::compile(&self.value).map(Arc::new);
        self.compiled.get_or_init(compile).as_ref()
    }
}

impl Tool {
    /// A tool whose arguments are described by `input_schema` (JSON Schema 2020-12, its root of type
    /// `object`) and that is carried out by `executor`. Whether name and schema are usable is checked
    /// when it becomes part of a [`ToolSet`](crate::ToolSet).
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        input_schema: Value,
        executor: impl Executor + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            own_name: None,
            title: None,
            description: Cow::Borrowed(""),
            input: Schema::new(input_schema),
            input_is_derived: false,
            output: None,
            output_is_sure: false,
            annotations: Annotations::default(),
            timeout: None,
            estimated_cost_micros: None,
            is_async: true,
            takes_context: false,
            dry_run: None,
            icons: Vec::new(),
            task_support: TaskSupport::default(),
            kind: ToolKind::default(),
            source: None,
            meta: Map::new(),
            rules: Vec::new(),
            whole: None,
            aliased: Vec::new(),
            risk: None,
            refused: None,
            held: None,
            recorded_definition: None,
            executor: Arc::new(executor),
        }
    }

    /// Sets what the model is told of it.
    #[must_use]
    pub fn describe(mut self, description: impl Into<Cow<'static, str>>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds a paragraph to what the model is told of it.
    #[must_use]
    pub fn describe_further(mut self, paragraph: &str) -> Self {
        let description = self.description.to_mut();
        if !description.is_empty() && !paragraph.is_empty() {
            description.push_str("\n\n");
        }
        description.push_str(paragraph);
        self
    }

    /// Sets what people call it.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Puts another schema in the place of the one that the tool was made with, for whoever knows
    /// better what it takes.
    #[must_use]
    pub fn with_input_schema(mut self, schema: Value) -> Self {
        self.input = Schema::new(schema);
        self.input_is_derived = false;
        self
    }

    /// The same schemas as `input` and `output` are written, with their members in that order for clients.
    #[must_use]
    pub fn with_written_schemas(mut self, input: &RawValue, output: Option<&RawValue>) -> Self {
        self.input = Schema::written(input);
        self.output = output.map(Schema::written);
        self.output_is_sure = false;
        self
    }

    /// Sets whether the schema of its arguments was derived from what its code happens to say, so
    /// that a schema somebody wrote for it is better.
    #[must_use]
    pub fn with_derived_schema(mut self, is_derived: bool) -> Self {
        self.input_is_derived = is_derived;
        self
    }

    /// Sets the schema of its structured answers. From then on an answer that does not fit it is
    /// [`ToolError::Failed`], since clients may rely on it.
    #[must_use]
    pub fn with_output_schema(mut self, schema: Value) -> Self {
        self.output = Some(Schema::of_output(schema));
        self.output_is_sure = false;
        self
    }

    pub(crate) fn with_sure_output_schema(mut self, schema: Option<Value>) -> Self {
        self.output = schema.map(Schema::of_output);
        self.output_is_sure = true;
        self
    }

    /// Sets the hints about what it does.
    #[must_use]
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets how long one call may take; without it the server's own bound holds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what one call is likely to cost, in millionths of the configured currency.
    #[must_use]
    pub fn with_estimated_cost_micros(mut self, micros: u64) -> Self {
        self.estimated_cost_micros = Some(micros);
        self
    }

    /// Sets whether calls of it run beside each other; one that blocks what runs it does not.
    #[must_use]
    pub fn with_async(mut self, is_async: bool) -> Self {
        self.is_async = is_async;
        self
    }

    /// Says whether calls of it may read resources of the server ([`ToolCx::resources`]).
    #[must_use]
    pub fn with_context(mut self, takes_context: bool) -> Self {
        self.takes_context = takes_context;
        self
    }

    /// Names an argument with which, if it is true, a call does nothing and says what it would do: its user is not asked to
    /// confirm that.
    #[must_use]
    pub fn with_dry_run(mut self, argument: &'static str) -> Self {
        self.dry_run = Some(argument);
        self
    }

    /// True if a call with these arguments does nothing.
    pub fn is_dry_run(&self, arguments: &Arguments) -> bool {
        let argument = self.dry_run.and_then(|it| arguments.as_object().get(it));
        argument == Some(&Value::Bool(true))
    }

    /// Sets pictures that stand for it, each as the protocol has an icon.
    #[must_use]
    pub fn with_icons(mut self, icons: Vec<Value>) -> Self {
        self.icons = icons;
        self
    }

    /// Sets whether calls of it can be tasks.
    #[must_use]
    pub fn with_task_support(mut self, support: TaskSupport) -> Self {
        self.task_support = support;
        self
    }

    /// Sets what carries its calls out.
    #[must_use]
    pub fn with_kind(mut self, kind: ToolKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets where its code is, such as `orders.py:12`. For operators; clients are not told.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Cow<'static, str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets an entry of its `_meta`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Sets rules that its code states, each an object as the `owlclaw:` block of a skill. The strictest of
    /// them and of the skill's holds. For governance; clients are not told.
    #[must_use]
    pub fn with_rules(mut self, rules: Vec<Value>) -> Self {
        self.rules = rules;
        self
    }

    /// Names a parameter of its code that gets all arguments as one object. Unless the schema names an argument
    /// like it, callers who give it mean that object ([`unwrapped`](Self::unwrapped)).
    #[must_use]
    pub fn with_whole(mut self, parameter: impl Into<Cow<'static, str>>) -> Self {
        self.whole = Some(parameter.into());
        self
    }

    /// Names parameters of its code that take a value under two names, by both of them. Each is an argument only if the
    /// schema names it: rules are about the names in the schema.
    #[must_use]
    pub fn with_aliased(mut self, names: Vec<String>) -> Self {
        self.aliased = names;
        self
    }

    /// Sets what a call may do, as the operator has it.
    #[must_use]
    pub fn with_risk(mut self, risk: RiskClass) -> Self {
        self.risk = Some(risk);
        self
    }

    /// Marks it as one that cannot be offered, for `reason`, so that the set that it was meant for tells.
    #[must_use]
    pub fn refused(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.refused = Some(reason.into());
        self
    }

    /// Holds it back for `reason`, which operators are told: it is offered, and calls are refused.
    #[must_use]
    pub fn with_hold(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.held = Some(reason.into());
        self
    }

    /// Has calls of it recorded under `digest` as that of its definition: the one by which an operator knows what was
    /// approved, where that is not what is listed.
    #[must_use]
    pub fn with_recorded_definition(mut self, digest: [u8; 32]) -> Self {
        self.recorded_definition = Some(Arc::new(digest));
        self
    }

    /// Digest of its definition for the record, if that is not the digest of what is listed.
    pub fn recorded_definition(&self) -> Option<[u8; 32]> {
        self.recorded_definition.as_deref().copied()
    }

    /// Reason why it is held back.
    pub fn held(&self) -> Option<&Arc<str>> {
        self.held.as_ref()
    }

    /// Name for programs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the tool's handler and skill. Equal to [`name`](Self::name), unless that one could
    /// not be offered.
    pub fn own_name(&self) -> &str {
        self.own_name.as_deref().unwrap_or(&self.name)
    }

    /// The same tool under a name that can be offered. People still see the one that it had.
    pub(crate) fn offered_as(mut self, name: String) -> Self {
        let own = std::mem::replace(&mut self.name, Cow::Owned(name));
        self.title.get_or_insert_with(|| own.clone());
        self.own_name.get_or_insert(own);
        self
    }

    /// Name for people.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Description for the model; may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The schema of its arguments.
    pub fn input_schema(&self) -> &Arc<Value> {
        &self.input.value
    }

    /// The text of the schema of its arguments, for clients.
    pub fn input_schema_text(&self) -> String {
        self.input.order.write(&self.input.value)
    }

    /// The text of the schema of its structured answers, for clients.
    pub fn output_schema_text(&self) -> Option<String> {
        let schema = self.output.as_ref()?;
        Some(schema.order.write(&schema.value))
    }

    /// Returns true if a schema that a person wrote for the tool should take the place of its own,
    /// by [`with_input_schema`](Self::with_input_schema).
    pub fn has_derived_schema(&self) -> bool {
        self.input_is_derived
    }

    /// The schema of its structured answers, if it promises any.
    pub fn output_schema(&self) -> Option<&Arc<Value>> {
        self.output.as_ref().map(|schema| &schema.value)
    }

    /// JSON pointers (RFC 6901, with `*` for any member or item) to the values, in arguments and structured answers,
    /// that the schemas mark as secret: `writeOnly: true`, or `format: password`, as pydantic writes `SecretStr`.
    pub fn secret_members(&self) -> BTreeSet<String> {
        let schemas = [Some(&self.input), self.output.as_ref()];
        let schemas = schemas.into_iter().flatten();
        schemas.flat_map(|it| secret_members(&it.value)).collect()
    }

    /// The hints about what it does.
    pub fn annotations(&self) -> Annotations {
        self.annotations
    }

    /// Longest time of one call, if the tool has a bound of its own.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Expected cost of one call, in millionths of the configured currency.
    pub fn estimated_cost_micros(&self) -> Option<u64> {
        self.estimated_cost_micros
    }

    /// Returns true if calls of it run beside each other.
    pub fn is_async(&self) -> bool {
        self.is_async
    }

    /// Returns true if calls of it may read resources of the server.
    pub fn takes_context(&self) -> bool {
        self.takes_context
    }

    /// Pictures that stand for it.
    pub fn icons(&self) -> &[Value] {
        &self.icons
    }

    /// Support for calls as tasks.
    pub fn task_support(&self) -> TaskSupport {
        self.task_support
    }

    /// Source of the tool.
    pub fn kind(&self) -> ToolKind {
        self.kind
    }

    /// Place of its code.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Members of its `_meta`.
    pub fn meta(&self) -> &Map<String, Value> {
        &self.meta
    }

    /// Checks the arguments of one call: `raw` is the text of a JSON object, or nothing, which
    /// stands for `{}`. This is the only way to [`Arguments`]. Where they do not fit, optional properties
    /// that are null and that null does not suit count as left out: some callers send all of them.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`] when `raw` is larger than [`MAX_ARGUMENT_BYTES`](crate::MAX_ARGUMENT_BYTES),
    /// nested deeper than [`MAX_ARGUMENT_DEPTH`](crate::MAX_ARGUMENT_DEPTH), not a JSON object, gives
    /// a member twice, or does not fit the schema; and always when the schema itself is unusable.
    pub fn check(&self, raw: Bytes) -> Result<Arguments, InvalidArguments> {
        let Ok(schema) = self.input.compiled() else {
            return Err(InvalidArguments::because(
                "the tool's own schema cannot be used",
            ));
        };
        let arguments = arguments::check(raw, schema, &self.input.value)?;
        if let Some(whole) = self.whole.as_deref()
            && self.gives(&arguments, whole)
        {
            let message = "is no argument: it stands for all of them; give its members themselves";
            return Err(InvalidArguments::at(format!("/{whole}"), message));
        }
        match self.aliased.iter().find(|it| self.gives(&arguments, it)) {
            Some(name) => {
                let message = "is no argument: the schema has another name for it";
                Err(InvalidArguments::at(format!("/{name}"), message))
            }
            None => Ok(arguments),
        }
    }

    /// True if the arguments have a member of this name, of which the schema says nothing.
    fn gives(&self, arguments: &Arguments, name: &str) -> bool {
        !schema::names(&self.input.value, name) && arguments.as_object().contains_key(name)
    }

    /// The arguments that a caller means who gives nothing but the parameter that gets them all, as
    /// `{"session": {"amount": 1}}`. Everything that judges or records a call has to begin with these.
    pub fn unwrapped<'a>(&self, raw: &'a str) -> Option<&'a RawValue> {
        let whole = self.whole.as_deref()?;
        let Members(members) = serde_json::from_str(raw).ok()?;
        let [(name, value)] = members.as_slice() else {
            return None;
        };
        let is_meant = name == whole
            && value.get().starts_with('{')
            && !schema::names(&self.input.value, whole);
        is_meant.then_some(*value)
    }

    /// The arguments `raw` as its executor gets them, where that is not as they are: without the members that
    /// are null and count as left out. For those who judge a call before it is checked.
    pub fn without_nulls(&self, raw: &str) -> Option<String> {
        // Most have none, and to find that out is cheap.
        if !raw.contains("null") {
            return None;
        }
        let arguments = self.check(Bytes::copy_from_slice(raw.as_bytes())).ok()?;
        let taken = std::str::from_utf8(arguments.raw()).ok()?;
        (taken != raw).then(|| taken.to_owned())
    }

    /// Carries out one call with what [`check`](Self::check) of this tool let through.
    ///
    /// # Errors
    ///
    /// [`ToolError`], saying whom to tell; [`ToolError::Broken`] if `arguments` come from the check of
    /// another tool.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the call up; the executor sees to what has to be undone.
    pub async fn execute(&self, cx: ToolCx, arguments: Arguments) -> Result<ToolOutput, ToolError> {
        match self.input.compiled() {
            Ok(schema) if arguments.were_checked_by(schema) => {}
            _ => {
                return Err(ToolError::broken(
                    "the arguments were checked by another tool",
                ));
            }
        }
        if let Some(why) = &self.held {
            return Err(ToolError::Held(why.to_string()));
        }
        let output = self.executor.execute(cx, arguments).await?;
        match &self.output {
            Some(schema) if !self.output_is_sure && !output.is_error => {
                check_output(schema, &output)?;
            }
            _ => {}
        }
        Ok(output)
    }

    /// Tests what was made of an answer of the tool against the schema that it promises: its structured content, as JSON.
    ///
    /// # Errors
    ///
    /// Description of the first mismatch with the schema, with its place.
    pub fn check_answer(&self, structured: Option<&str>) -> Result<(), String> {
        match &self.output {
            Some(schema) => check_structured(schema, structured).map_err(|it| it.to_string()),
            None => Ok(()),
        }
    }

    /// Rules that its code states, each an object as the `owlclaw:` block of a skill.
    pub fn rules(&self) -> &[Value] {
        &self.rules
    }

    /// True if it says that calling it twice does no more than calling it once.
    pub fn can_be_called_again(&self) -> bool {
        let says = self.annotations();
        says.idempotent == Some(true) || says.read_only == Some(true)
    }

    /// Effect that a call may have, as the operator has it.
    pub fn risk(&self) -> Option<RiskClass> {
        self.risk
    }

    /// Reason why the tool cannot be offered, according to its maker.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Reason why the tool's schemas cannot be used, if so. Compiles them.
    pub(crate) fn schema_problem(&self) -> Option<SchemaProblem> {
        if let Err(error) = self.input.compiled() {
            return Some(SchemaProblem::Input(error.clone()));
        }
        let output = self.output.as_ref()?.compiled();
        output
            .err()
            .map(|error| SchemaProblem::Output(error.clone()))
    }
}

pub(crate) enum SchemaProblem {
    Input(SchemaError),
    Output(SchemaError),
}

/// Clients may check structured answers themselves and then show nothing of one that does not fit:
/// better that the tool is seen to be at fault.
fn check_output(schema: &Schema, output: &ToolOutput) -> Result<(), ToolError> {
    check_structured(schema, output.structured.as_ref().map(|it| it.get()))
}

fn check_structured(schema: &Schema, structured: Option<&str>) -> Result<(), ToolError> {
    let compiled = schema
        .compiled()
        .map_err(|error| ToolError::broken(error.clone()))?;
    let Some(raw) = structured else {
        return Err(ToolError::failed(
            "the tool promises an object, and its answer is none",
        ));
    };
    let value = serde_json::from_str(raw).map_err(ToolError::broken)?;
    let Err((violations, _)) = compiled.check(&value, raw.len(), 5) else {
        return Ok(());
    };
    let told: Vec<_> = violations
        .iter()
        .map(|it| match it.pointer() {
            "" => format!("the answer: {}", it.message()),
            _ => it.to_string(),
        })
        .collect();
    let told = told.join("; ");
    Err(ToolError::failed(format!(
        "the tool's answer does not fit its own schema: {told}"
    )))
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
