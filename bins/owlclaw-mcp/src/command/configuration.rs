//! Commands about the configuration itself.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use config::{Loaded, Needs, Problem, Rejected, Severity};
use operator::request::{ReportFormat, Settings};
use operator::terminal::remark;
use operator::{Stop, UNUSABLE, complain, load, print, print_json, try_load};

use crate::cli::ConfigCommand;

pub(super) fn carry_out(command: ConfigCommand) -> Result<ExitCode, Stop> {
    match command {
        ConfigCommand::Validate {
            settings,
            import,
            format,
        } => validate(settings, import, format),
        ConfigCommand::Show {
            settings,
            key,
            origin,
            format,
        } => show(settings, key.as_deref(), origin, format),
        ConfigCommand::Schema => print_json(&config::schema()),
        ConfigCommand::Reference => print(config::reference().trim_end()),
        ConfigCommand::Init { output } => init(&output),
    }
}

fn validate(settings: Settings, import: bool, format: ReportFormat) -> Result<ExitCode, Stop> {
    let result = match try_load(settings, Needs::Everything)? {
        Ok(loaded) if import => with_offer(loaded)?,
        Ok(mut loaded) => {
            let unmatched = server::unmatched_upstream_rules(&loaded).map_err(Stop::Failed)?;
            loaded.warnings.extend(unmatched);
            let of_hosts = server::host_file_problems(&loaded).map_err(Stop::Failed)?;
            loaded.warnings.extend(of_hosts);
            loaded.warnings.extend(missing_engine(&loaded));
            let mut all = loaded.warnings.iter();
            match all.any(|it| it.severity == Severity::Error) {
                true => Err(Rejected {
                    problems: loaded.warnings,
                }),
                false => Ok(loaded),
            }
        }
        result => result,
    };
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

fn missing_engine(loaded: &Loaded) -> Option<Problem> {
    server::without_engine(loaded).filter(|_| cfg!(not(feature = "temporal")))
}

/// The same with what only what is on offer can show.
fn with_offer(mut loaded: Loaded) -> Result<Result<Loaded, Rejected>, Stop> {
    let found = server::survey(&loaded, None)
        .map_err(Stop::Failed)?
        .problems;
    let mut problems = std::mem::take(&mut loaded.warnings);
    problems.extend(found.skills);
    problems.extend(found.tools);
    problems.extend(found.rules);
    problems.extend(server::host_file_problems(&loaded).map_err(Stop::Failed)?);
    problems.extend(missing_engine(&loaded));
    let mut severities = problems.iter().map(|problem| problem.severity);
    Ok(match severities.any(|it| it == Severity::Error) {
        true => Err(Rejected { problems }),
        false => {
            loaded.warnings = problems;
            Ok(loaded)
        }
    })
}

fn show(
    settings: Settings,
    key: Option<&str>,
    origin: bool,
    format: ReportFormat,
) -> Result<ExitCode, Stop> {
    let loaded = load(settings, Needs::Everything)?;
    let shown = match key {
        Some(key) => loaded.settings_of(key),
        None => loaded.settings(),
    };
    if let (Some(key), true) = (key, shown.is_empty()) {
        let all = loaded.settings();
        let names = all.iter().map(|it| it.key.as_str());
        let hint = config::nearest(key, names);
        let hint = hint.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
        let key = config::printable(key);
        return Err(Stop::Failed(
            format!("there is no setting `{key}`{hint}").into(),
        ));
    }
    match format {
        ReportFormat::Json => print_json(&shown),
        ReportFormat::Text if origin => print(&operator::origins_table(&shown)),
        ReportFormat::Text => {
            let lines: Vec<String> = shown.iter().map(ToString::to_string).collect();
            print(&lines.join("\n"))
        }
    }
}

fn init(output: &Path) -> Result<ExitCode, Stop> {
    if output == Path::new("-") {
        return print(config::STARTER.trim_end());
    }
    let place = output.display();
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(output)
        .and_then(|mut file| file.write_all(config::STARTER.as_bytes()));
    written.map_err(|error| {
        Stop::Failed(match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "{place} is there already and was left as it is; name another file with --output"
            )
            .into(),
            _ => format!("{place} cannot be written: {error}").into(),
        })
    })?;
    remark(&format!(
        "{place} is written\nhint: owlclaw-mcp config validate --config {place}"
    ));
    Ok(ExitCode::SUCCESS)
}
