//! Carries out what the command line asks, and decides what goes to which stream.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use config::{Loaded, Needs, Problem, Rejected, Severity, Source, Transport};
use operator::request::{ClientConfig, Doctor, ListFormat, ReportFormat, Settings, ToolCall};
use operator::terminal::{self, remark, tell};
use operator::{
    CALL, Executable, FAILED, SIGNALLED, Stop, UNUSABLE, complain, load_for, print, print_bytes,
    print_json, source, usable,
};
use server::{Finding, GUARD, Log, ResourceFilter, cure, with_causes};

use crate::cli::{self, Command, Program, ResourcesCommand, ToolsCommand};

mod configuration;
mod engine;

/// Sections of the configuration that the tools on offer depend on.
const TOOLS: &[&str] = &[
    "app",
    "commands",
    "governance",
    "prompts",
    "python",
    "resources",
    "services",
    "states",
    "tools",
    "workers",
];
/// Sections of the configuration that the resources on offer depend on.
const RESOURCES: &[&str] = &["governance", "resources"];
/// Keys of the configuration that clients need to reach the server.
const REACH: &[&str] = &[
    "governance.clients",
    "http.host",
    "http.port",
    "http.tls.enabled",
    "transport",
];

/// Runs the program to its end and gives the code to exit with; `--help` lists the codes.
///
/// `arguments` begin with the program's name.
pub fn run(program: Program, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Before anything else, since it happens for each call of such a tool.
    if arguments.get(1).is_some_and(|word| word == GUARD) {
        return adapter_tools::command::guard(arguments.into_iter().skip(2));
    }
    let (command, manner) = match cli::parse(program, arguments.clone()) {
        Ok(asked) => asked,
        Err(error) => {
            // `--help` and `--version` come this way too. A reader that has gone is no failure.
            let _ = error.print();
            if error.use_stderr() && cli::is_start_on_stdio(program, arguments) {
                server::tell_client(&cli::on_one_line(&error));
            }
            return u8::try_from(error.exit_code()).unwrap_or(UNUSABLE).into();
        }
    };
    terminal::settle(manner.quiet, manner.color);
    match carry_out(program, command) {
        Ok(code) => code,
        Err(Stop::Rejected(rejected)) => reject(&rejected),
        // `| head` has seen enough.
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Stop::Output(error)) => {
            tell(&format!(
                "error: standard output cannot be written: {error}"
            ));
            FAILED.into()
        }
        Err(Stop::Failed(failure)) => fail(&failure, FAILED),
        Err(Stop::Wrong(failure)) => fail(&failure, UNUSABLE),
        Err(Stop::Signalled) => SIGNALLED.into(),
    }
}

/// Prints a failure with its cure; returns the exit code.
fn fail(failure: &server::Failure, code: u8) -> ExitCode {
    tell(&format!("error: {}", with_causes(&**failure)));
    if let Some(cure) = cure(&**failure) {
        tell(&format!("hint: {cure}"));
    }
    code.into()
}

/// Prints the problems of the configuration; returns the exit code.
fn reject(rejected: &Rejected) -> ExitCode {
    complain(&rejected.problems);
    tell(&format!(
        "error: the configuration is not valid ({})",
        count(&rejected.problems)
    ));
    UNUSABLE.into()
}

fn carry_out(program: Program, command: Command) -> Result<ExitCode, Stop> {
    match command {
        Command::Start(settings) => start(source(settings)?),
        Command::Worker(asked) => engine::work(asked),
        Command::Config(command) => configuration::carry_out(command),
        Command::Tools(ToolsCommand::Call { settings, call }) => tools_call(settings, &call),
        Command::Tools(ToolsCommand::List {
            settings,
            view,
            tokens,
        }) => {
            let loaded = load_for(settings, TOOLS)?;
            let log = Log::start(&loaded.config.logging);
            let survey = server::survey(&loaded, view.client.as_deref()).map_err(Stop::Failed)?;
            log.flush();
            complain(&survey.problems.tools);
            match view.format {
                ListFormat::Json if tokens => print_json(&survey.views),
                ListFormat::Table if tokens => print(&operator::views_table(&survey.views)),
                ListFormat::Json => print_json(&survey.tools),
                ListFormat::Table => print(&operator::tools_table(&survey.tools)),
            }
        }
        Command::Resources(ResourcesCommand::List {
            settings,
            view,
            category,
            tag,
        }) => {
            let loaded = load_for(settings, RESOURCES)?;
            let log = Log::start(&loaded.config.logging);
            let filter = ResourceFilter { category, tag };
            let (rows, problems) =
                server::resources_list(loaded.config, view.client, filter).map_err(Stop::Failed)?;
            log.flush();
            complain(&problems);
            match view.format {
                ListFormat::Json => print_json(&rows),
                ListFormat::Table => print(&operator::resources_table(&rows)),
            }
        }
        Command::Prompts(command) => operator::prompts(command),
        Command::Ledger(command) => operator::ledger(command),
        Command::Governance(command) => operator::governance(command),
        Command::Approvals(command) => operator::approvals(command),
        Command::Sessions(command) => operator::sessions(command),
        Command::Desk(command) => desk::open(command),
        Command::Upstream(command) => operator::upstream(command),
        Command::Client(command) => operator::client(command),
        Command::Keys(command) => operator::keys(command),
        Command::Registry(command) => operator::registry(command),
        Command::Vault(command) => operator::vault(command),
        Command::Doctor(asked) => examine(asked),
        Command::ClientConfig(asked) => client_configuration(program, &asked),
        Command::Completions { shell } => print_bytes(&cli::script(program, shell)),
        Command::Man { output } => manual(program, output.as_deref()),
    }
}

fn tools_call(settings: Settings, call: &ToolCall) -> Result<ExitCode, Stop> {
    let answer = operator::call(call, || {
        let source = source(settings)?;
        let loaded = usable(source.load_for(Needs::Keys(CALL)))?;
        Ok((source, loaded))
    })?;
    operator::finish(&answer, call.format)
}

fn examine(asked: Doctor) -> Result<ExitCode, Stop> {
    let report = operator::examine(&source(asked.settings)?, !asked.no_import);
    match asked.format {
        ReportFormat::Json => print_json(&report)?,
        ReportFormat::Text => print(&report.text())?,
    };
    Ok(match report.is_ok() {
        true => ExitCode::SUCCESS,
        false => FAILED.into(),
    })
}

fn client_configuration(program: Program, asked: &ClientConfig) -> Result<ExitCode, Stop> {
    let path = std::env::current_exe()
        .map_err(|error| Stop::Failed(format!("this program has no path: {error}").into()))?;
    let words = match program {
        Program::OwlclawMcp => Vec::new(),
        Program::Owlclaw => vec!["mcp-server"],
    };
    let loaded = load_for(asked.settings.clone(), REACH)?;
    let executable = Executable { path, words };
    let printed = operator::client_config(asked, &loaded, &executable)?;
    for line in &printed.remarks {
        remark(&format!("hint: {line}"));
    }
    print(&printed.text)
}

fn manual(program: Program, output: Option<&Path>) -> Result<ExitCode, Stop> {
    let Some(directory) = output else {
        return print_bytes(&cli::manual(program).map_err(Stop::Output)?);
    };
    std::fs::create_dir_all(directory)
        .and_then(|()| cli::manuals(program, directory))
        .map_err(|error| {
            let place = directory.display();
            Stop::Failed(format!("{place} cannot be written to: {error}").into())
        })?;
    remark(&format!(
        "the pages are in {0}\nhint: man -l {0}/*.1",
        directory.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// From the first line on everything goes through the log, so that a reader of standard error that
/// does not read cannot hold the server up.
fn start(source: Source) -> Result<ExitCode, Stop> {
    let loaded = match source.load() {
        Ok(loaded) => loaded,
        Err(rejected) => {
            let code = reject(&rejected);
            let transport = source.load_for(Needs::Keys(&["transport"]));
            if transport.is_ok_and(|it| it.config.transport == Transport::Http) {
                return Ok(code);
            }
            server::tell_client(&first_mistake(&rejected.problems));
            return Ok(code);
        }
    };
    let is_stdio = loaded.config.transport == Transport::Stdio;
    let (log, level) = Log::start_adjustable(&loaded.config.logging);
    log.announce("configuration", &loaded.summary());
    for warning in &loaded.warnings {
        tracing::warn!(
            problem = warning.message,
            origin = %warning.origin,
            hint = warning.hint,
            "a setting of the configuration is questionable"
        );
    }
    if is_stdio && io::stdin().is_terminal() {
        say_that_it_waits(&loaded);
    }
    let config = loaded.config.clone();
    let beside = desk::beside(&config);
    let started = engine::runner(&config)
        .and_then(|runner| server::start(source, loaded, level, beside, runner));
    started.or_else(|failure| {
        let causes = with_causes(&*failure);
        tracing::error!(error = causes, "the server failed");
        let found = operator::cures(&config);
        for finding in &found {
            tracing::error!(
                area = finding.area,
                problem = finding.message,
                hint = finding.hint,
                "why the server may have failed"
            );
        }
        // One that was served has seen its streams end.
        if is_stdio
            && !failure.is::<transport_stdio::ServeError>()
            && !failure.is::<transport_stdio::RelayError>()
        {
            log.flush();
            server::tell_client(&with_cure(causes, &found));
        }
        let is_invalid = failure.is::<server::InvalidRules>();
        Ok(if is_invalid { UNUSABLE } else { FAILED }.into())
    })
}

/// The reason why a start failed, with the first cure that `doctor` knows.
fn with_cure(causes: String, found: &[Finding]) -> String {
    let mut cures = found
        .iter()
        .filter_map(|it| Some((&it.message, it.hint.as_ref()?)));
    match cures.next() {
        Some((problem, hint)) if causes.contains(problem) => format!("{causes} (hint: {hint})"),
        Some((problem, hint)) => format!("{causes} (hint: {problem}: {hint})"),
        None => causes,
    }
}

/// The first mistake of a configuration with its place and its cure, for one line.
fn first_mistake(problems: &[Problem]) -> String {
    let mut errors = problems.iter().filter(|it| it.severity == Severity::Error);
    let mut text = "the configuration is not valid".to_owned();
    if let Some(problem) = errors.next() {
        text = format!("{text}: {}: {}", problem.origin, problem.message);
        if let Some(hint) = &problem.hint {
            text = format!("{text} (hint: {hint})");
        }
    }
    match errors.count() {
        0 => text,
        more => format!("{text}; and {more} more, see `owlclaw-mcp config validate`"),
    }
}

/// Says on a terminal that `start` waits for a client on standard input.
fn say_that_it_waits(loaded: &Loaded) {
    if loaded.file.is_none() {
        remark(
            "hint: there is no configuration here, so everything has its default: `owlclaw-mcp config init` \
             writes one, --config names one",
        );
    }
    remark(
        "hint: the server waits for a client on standard input, which is this terminal; Control-D ends it. \
         Clients start it themselves (`owlclaw-mcp client-config`), `owlclaw-mcp tools list` shows what is \
         on offer, `owlclaw-mcp tools call` tries it, and --transport http serves many clients",
    );
}

fn count(problems: &[Problem]) -> String {
    match problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .count()
    {
        1 => "1 error".to_owned(),
        errors => format!("{errors} errors"),
    }
}
