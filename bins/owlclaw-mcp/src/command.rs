//! Carries out what the command line asks, and decides what goes to which stream.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use governance::Caller;
use identity::{KeyFile, MadeKey, NewKey};
use ledger::{Cursor, Decision, SigningKey};
use serde_json::json;

use crate::cli::{
    self, ApprovalsCommand, Command, ConfigCommand, Deciding, GovernanceCommand, KeyPlace,
    KeysCommand, LedgerCommand, ListFormat, Program, ReportFormat, ResourcesCommand, Settings,
    ToolsCommand,
};
use crate::config::{self, Environment, Loaded, Problem, Rejected, Severity, Source};
use crate::inspect::{self, Interrupted, Verified};
use crate::listing::{self, ResourceFilter};
use crate::logging::Log;
use crate::{Failure, serve};

/// What makes the program a guard, which becomes another program; see `adapter_tools::command`. Not
/// in `--help`: it is for the server's own use.
pub(crate) const GUARD: &str = "exec-guard";

/// The command did not do what it was asked for.
const FAILED: u8 = 1;
/// The command line, or the configuration, makes no sense.
const UNUSABLE: u8 = 2;

/// Runs the program to its end and gives the code to exit with; `--help` lists the codes.
///
/// `arguments` begin with the program's name.
pub fn run(program: Program, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Before anything else, since it happens for each call of such a tool.
    if arguments.get(1).is_some_and(|word| word == GUARD) {
        return adapter_tools::command::guard(arguments.into_iter().skip(2));
    }
    let command = match cli::parse(program, arguments) {
        Ok(command) => command,
        Err(error) => {
            // `--help` and `--version` come this way too. A reader that has gone is no failure.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(UNUSABLE).into();
        }
    };
    match carry_out(command) {
        Ok(code) => code,
        Err(Stop::Rejected(rejected)) => {
            complain(&rejected.problems);
            tell(&format!(
                "error: the configuration is not valid ({})",
                count(&rejected.problems)
            ));
            UNUSABLE.into()
        }
        // `| head` has seen enough.
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Stop::Output(error)) => {
            tell(&format!(
                "error: standard output cannot be written: {error}"
            ));
            FAILED.into()
        }
        Err(Stop::Failed(failure)) => {
            tell(&format!("error: {}", explain(&*failure)));
            FAILED.into()
        }
    }
}

/// Why a command ended early.
enum Stop {
    Rejected(Rejected),
    Output(io::Error),
    Failed(Failure),
}

impl From<Interrupted> for Stop {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Failed(failure) => Self::Failed(failure),
            Interrupted::Output(error) => Self::Output(error),
        }
    }
}

fn carry_out(command: Command) -> Result<ExitCode, Stop> {
    match command {
        Command::Start(settings) => start(source(settings)?),
        Command::Config(ConfigCommand::Validate { settings, format }) => validate(settings, format),
        Command::Config(ConfigCommand::Show { settings, format }) => show(settings, format),
        Command::Config(ConfigCommand::Schema) => print_json(&config::schema()),
        Command::Tools(ToolsCommand::List { settings, view }) => {
            let loaded = load(settings)?;
            let log = Log::start(&loaded.config.logging);
            let rows = serve::tools_list(loaded.config, view.client).map_err(Stop::Failed)?;
            log.flush();
            match view.format {
                ListFormat::Json => print_json(&rows),
                ListFormat::Table => print(&listing::tools_table(&rows)),
            }
        }
        Command::Resources(ResourcesCommand::List {
            settings,
            view,
            category,
            tag,
        }) => {
            let loaded = load(settings)?;
            let log = Log::start(&loaded.config.logging);
            let filter = ResourceFilter { category, tag };
            let rows =
                serve::resources_list(loaded.config, view.client, filter).map_err(Stop::Failed)?;
            log.flush();
            match view.format {
                ListFormat::Json => print_json(&rows),
                ListFormat::Table => print(&listing::resources_table(&rows)),
            }
        }
        Command::Ledger(command) => ledger(command),
        Command::Governance(command) => governance(command),
        Command::Approvals(command) => approvals(command),
        Command::Keys(command) => keys(command),
    }
}

fn ledger(command: LedgerCommand) -> Result<ExitCode, Stop> {
    match command {
        LedgerCommand::Query {
            settings,
            filter,
            page,
        } => {
            let config = load(settings)?.config;
            print_page(inspect::query(&config, filter, &page).map_err(Stop::Failed)?)
        }
        LedgerCommand::Unresolved { settings, page } => {
            let config = load(settings)?.config;
            print_page(inspect::unresolved(&config, &page).map_err(Stop::Failed)?)
        }
        LedgerCommand::Tail {
            settings,
            filter,
            lines,
            follow,
            format,
        } => {
            let config = load(settings)?.config;
            inspect::tail(&config, filter, lines, follow, format)?;
            Ok(ExitCode::SUCCESS)
        }
        LedgerCommand::Show {
            settings,
            id,
            format,
        } => {
            let config = load(settings)?.config;
            print(&inspect::show(&config, &id, format).map_err(Stop::Failed)?)
        }
        LedgerCommand::Verify {
            settings,
            keys,
            checkpoints,
            format,
        } => {
            let config = load(settings)?.config;
            match inspect::verify(&config, &keys, checkpoints.as_deref(), format) {
                Ok(Verified { is_sound, text }) => {
                    print(&text)?;
                    Ok(if is_sound {
                        ExitCode::SUCCESS
                    } else {
                        FAILED.into()
                    })
                }
                // That it cannot be read says nothing about it.
                Err(failure) => {
                    tell(&format!("error: {}", explain(&*failure)));
                    Ok(UNUSABLE.into())
                }
            }
        }
        LedgerCommand::Export {
            settings,
            filter,
            output,
            format,
        } => {
            let config = load(settings)?.config;
            inspect::export(&config, filter, output.as_deref(), format)?;
            Ok(ExitCode::SUCCESS)
        }
        LedgerCommand::Keygen { output } => {
            SigningKey::generate(&output).map_err(|error| Stop::Failed(error.into()))?;
            let public = SigningKey::public_path(&output);
            print(&format!("{}\n{}", output.display(), public.display()))
        }
    }
}

fn governance(command: GovernanceCommand) -> Result<ExitCode, Stop> {
    let text = match command {
        GovernanceCommand::Stats {
            settings,
            who,
            since,
            until,
            by,
            format,
        } => {
            let config = load(settings)?.config;
            inspect::stats(&config, &who, (since, until), by, format)
        }
        GovernanceCommand::Explain {
            settings,
            client,
            roles,
            what,
            args,
            format,
        } => {
            let config = load(settings)?.config;
            let caller = Caller {
                principal: &client,
                roles: &roles,
            };
            inspect::explain(&config, caller, &what, args.as_deref(), format)
        }
    };
    print(&text.map_err(Stop::Failed)?)
}

fn approvals(command: ApprovalsCommand) -> Result<ExitCode, Stop> {
    let text = match command {
        ApprovalsCommand::List {
            settings,
            who,
            state,
            limit,
            format,
        } => {
            let config = load(settings)?.config;
            inspect::list_approvals(&config, &who, state, limit, format)
        }
        ApprovalsCommand::Show {
            settings,
            id,
            format,
        } => {
            let config = load(settings)?.config;
            inspect::show_approval(&config, id, format)
        }
        ApprovalsCommand::Approve(deciding) => decide(deciding, Decision::Approve)?,
        ApprovalsCommand::Deny(deciding) => decide(deciding, Decision::Deny)?,
    };
    print(&text.map_err(Stop::Failed)?)
}

fn keys(command: KeysCommand) -> Result<ExitCode, Stop> {
    let now = SystemTime::now();
    let failed = |error: identity::KeyFileError| Stop::Failed(error.into());
    match command {
        KeysCommand::Create {
            place,
            principal,
            roles,
            expires,
            label,
            format,
        } => {
            let file = key_file(place)?;
            let new = NewKey {
                principal,
                roles,
                lifetime: expires.map(|it| it.0),
                label,
            };
            say_made(&file.create(new, now).map_err(failed)?, format)
        }
        KeysCommand::List { place, format } => {
            let file = key_file(place)?;
            print(&inspect::list_keys(&file, format).map_err(Stop::Failed)?)
        }
        KeysCommand::Revoke { place, id } => {
            let key = key_file(place)?.revoke(&id, now).map_err(failed)?;
            print(&format!("{} of {} is revoked", key.id, key.principal))
        }
        KeysCommand::Rotate {
            place,
            id,
            overlap,
            format,
        } => {
            let file = key_file(place)?;
            say_made(&file.rotate(&id, overlap.0, now).map_err(failed)?, format)
        }
    }
}

/// The key alone on standard output, and what there is to know of it beside.
fn say_made(made: &MadeKey, format: ReportFormat) -> Result<ExitCode, Stop> {
    let record = &made.record;
    let end = record.expires.as_deref().map(|it| format!("until {it}"));
    let end = end.unwrap_or_else(|| "until it is revoked".to_owned());
    let (id, principal) = (&record.id, &record.principal);
    tell(&format!(
        "key {id} of {principal} is good {end}; it is not shown again"
    ));
    print(&inspect::made_key(made, format))
}

/// Where keys are: where the command line says, else the configuration.
fn key_file(place: KeyPlace) -> Result<KeyFile, Stop> {
    if let Some(path) = place.file {
        return Ok(KeyFile::at(&path));
    }
    let config = load(place.settings)?.config;
    match &config.identity.api_keys {
        Some(keys) => Ok(KeyFile::at(&keys.file)),
        None => {
            let why = "the configuration accepts no API keys: add `identity: {api_keys: {}}` to it, \
                       or name a file with --file";
            Err(Stop::Failed(why.into()))
        }
    }
}

fn decide(deciding: Deciding, decision: Decision) -> Result<Result<String, Failure>, Stop> {
    let Deciding {
        settings,
        id,
        by,
        reason,
        format,
    } = deciding;
    let config = load(settings)?.config;
    let reason = reason.as_deref();
    Ok(inspect::decide(&config, id, decision, &by, reason, format))
}

/// A page of rows; where the next one begins is told beside them.
fn print_page((text, next): (String, Option<Cursor>)) -> Result<ExitCode, Stop> {
    let code = print(&text)?;
    if let Some(next) = next {
        tell(&format!("for older ones: --before {next}"));
    }
    Ok(code)
}

/// From the first line on everything goes through the log, so that a reader of standard error that
/// does not read cannot hold the server up.
fn start(source: Source) -> Result<ExitCode, Stop> {
    let loaded = source.load().map_err(Stop::Rejected)?;
    let (log, level) = Log::start_adjustable(&loaded.config.logging);
    log.announce("configuration", &loaded.summary());
    for warning in &loaded.warnings {
        tracing::warn!(
            problem = warning.message,
            origin = %warning.origin,
            hint = warning.hint,
            "the configuration is odd"
        );
    }
    serve::start(source, loaded, level).or_else(|failure| {
        let causes = explain(&*failure);
        tracing::error!(error = causes, "the server failed");
        Ok(FAILED.into())
    })
}

fn validate(settings: Settings, format: ReportFormat) -> Result<ExitCode, Stop> {
    let result = try_load(settings)?;
    match format {
        ReportFormat::Json => {
            let is_ok = result.is_ok();
            let report = match &result {
                Ok(loaded) => json!({
                    "ok": true,
                    "file": loaded.file,
                    "problems": loaded.warnings,
                    "summary": loaded.summary(),
                }),
                Err(rejected) => json!({ "ok": false, "problems": rejected.problems }),
            };
            print_json(&report)?;
            Ok(if is_ok {
                ExitCode::SUCCESS
            } else {
                UNUSABLE.into()
            })
        }
        ReportFormat::Text => {
            let loaded = result.map_err(Stop::Rejected)?;
            complain(&loaded.warnings);
            print(&format!("ok\n{}", loaded.summary().join("\n")))
        }
    }
}

fn show(settings: Settings, format: ReportFormat) -> Result<ExitCode, Stop> {
    let settings = load(settings)?.settings();
    match format {
        ReportFormat::Json => print_json(&settings),
        ReportFormat::Text => {
            let lines: Vec<String> = settings.iter().map(ToString::to_string).collect();
            print(&lines.join("\n"))
        }
    }
}

/// The configuration, if it can be used, its warnings told.
fn load(settings: Settings) -> Result<Loaded, Stop> {
    let loaded = try_load(settings)?.map_err(Stop::Rejected)?;
    complain(&loaded.warnings);
    Ok(loaded)
}

fn try_load(settings: Settings) -> Result<Result<Loaded, Rejected>, Stop> {
    Ok(source(settings)?.load())
}

/// Where this command's configuration comes from.
fn source(settings: Settings) -> Result<Source, Stop> {
    let directory = std::env::current_dir()
        .map_err(|error| Stop::Failed(format!("there is no current directory: {error}").into()))?;
    Ok(Source {
        overrides: settings.into_overrides(),
        environment: Environment::of_process(),
        directory,
    })
}

fn print(text: &str) -> Result<ExitCode, Stop> {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(Stop::Output)?;
    Ok(ExitCode::SUCCESS)
}

fn print_json(value: &impl serde::Serialize) -> Result<ExitCode, Stop> {
    let text = serde_json::to_string_pretty(value).expect("rows and reports are plain data");
    print(&text)
}

/// To standard error; there is nobody left to tell if that fails.
fn tell(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

fn complain(problems: &[Problem]) {
    for problem in problems {
        tell(&format!("{problem}\n"));
    }
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

/// The failure and what caused it, the nearest cause first.
pub(crate) fn explain(failure: &(dyn Error + 'static)) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
