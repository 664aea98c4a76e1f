//! Checks of the tools' sources: Python, the application, programs, services, skills.

use adapter_prompts::PromptCatalog;
use config::{Config, Loaded, Problem, Severity};
use server::Finding;
use server::{self, Survey};

pub(super) fn findings(loaded: &Loaded, imports: bool) -> Vec<Finding> {
    let config = &loaded.config;
    let mut findings = Vec::new();
    if let Some(app) = &config.app {
        findings.push(python(config));
        if !imports {
            findings.push(Finding::warning(
                "application",
                format!("{app} was not imported, as asked"),
            ));
            // Which tools there are, and perhaps where the skills are, is for the application to say.
            if config.resources.skills_dir.is_some() {
                let mut alone = loaded.clone();
                alone.config.app = None;
                if let Ok(survey) = server::survey(&alone, None) {
                    findings.push(skills(&survey));
                }
            }
            return findings;
        }
    }
    const AREA: &str = "application";
    let survey = match server::survey(loaded, None) {
        Ok(survey) => survey,
        Err(failure) => {
            let finding = Finding::error(AREA, server::with_causes(&*failure));
            let hint = "correct what the message names; `owlclaw-mcp tools list` tries again";
            findings.push(finding.hint(hint));
            return findings;
        }
    };
    findings.push(skills(&survey));
    findings.extend(prompts(config));
    let has_upstreams = !config.upstreams.is_empty() || !config.upstreams_files.is_empty();
    let has_app = config.app.is_some();
    findings.push(tools(
        &survey,
        has_app,
        has_upstreams,
        config.tools.page_size,
    ));
    let told = |area| move |problem: &Problem| super::of_problem(area, problem);
    findings.extend(survey.problems.tools.iter().map(told("tools")));
    findings.extend(survey.problems.rules.iter().map(told("rules")));
    let broken = survey.problems.databases.iter();
    findings.extend(broken.map(|told| {
        let hint = "mend it, or exclude it: `exclude` of the database";
        Finding::warning("databases", told.as_str()).hint(hint)
    }));
    findings
}

fn skills(survey: &Survey) -> Finding {
    const AREA: &str = "skills";
    let place = survey.skills_dir.display();
    if !survey.skills_dir.is_dir() {
        return Finding::warning(AREA, format!("there is no directory {place}"))
            .hint("make it, or name another one: resources.skills_dir, --skills-dir");
    }
    let (count, problems) = (survey.skills, &survey.problems.skills);
    if problems.is_empty() {
        return Finding::ok(AREA, format!("{count} skills in {place}"));
    }
    let is_error = problems.iter().any(|it| it.severity == Severity::Error);
    let lines = problems.iter().map(|problem| match &problem.hint {
        Some(hint) => format!("{} ({hint})", problem.message),
        None => problem.message.clone(),
    });
    let lines: Vec<String> = lines.collect();
    let message = format!("{count} skills in {place}\n{}", lines.join("\n"));
    let finding = match is_error {
        true => Finding::error(AREA, message),
        false => Finding::warning(AREA, message),
    };
    finding.hint("correct the listed faults; the tool of an unusable skill is held back")
}

/// The finding about prompts from files, if a directory of them is configured.
fn prompts(config: &Config) -> Option<Finding> {
    const AREA: &str = "prompts";
    let options = match server::prompt_options(config) {
        Ok(options) => options?,
        Err(failure) => {
            let finding = Finding::error(AREA, server::with_causes(&*failure));
            return Some(finding.hint("make the directory, or correct `prompts.dir`"));
        }
    };
    let catalog = PromptCatalog::scan(&options);
    let (count, held) = (catalog.iter().count(), catalog.held().count());
    let problems = catalog.problems();
    let said = format!("{count} prompts, of which {held} are held back");
    if problems.is_empty() {
        return Some(Finding::ok(AREA, said));
    }
    let lines = problems.iter();
    let lines: Vec<_> = lines.map(|it| format!("{it} ({})", it.hint)).collect();
    let message = format!("{said}\n{}", lines.join("\n"));
    let finding = match held {
        0 => Finding::warning(AREA, message),
        _ => Finding::error(AREA, message),
    };
    Some(finding.hint("correct the listed faults; every use of a held prompt is refused"))
}

/// The oldest version of Python that applications run with, as `owlclaw_worker` has it.
const OLDEST: [u32; 2] = [3, 9];

fn python(config: &Config) -> Finding {
    const AREA: &str = "python";
    let interpreter = server::interpreter(config.python.as_deref());
    let place = interpreter.display();
    let asked = std::process::Command::new(&interpreter)
        .args([
            "-I",
            "-c",
            "import sys; print('%d.%d.%d' % sys.version_info[:3])",
        ])
        .stdin(std::process::Stdio::null())
        .output();
    let output = match asked {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            return Finding::error(AREA, format!("{place} does not work: {}", output.status))
                .hint("name a Python interpreter: `python:` in the configuration");
        }
        Err(error) => {
            return Finding::error(AREA, format!("{place} cannot be run: {error}"))
                .hint("install Python, or name its interpreter: `python:` in the configuration");
        }
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let numbers: Vec<u32> = version.split('.').map_while(|it| it.parse().ok()).collect();
    if numbers.as_slice() < OLDEST.as_slice() {
        let [major, minor] = OLDEST;
        let what = format!("{place} is Python {version}, and {major}.{minor} or later is needed");
        return Finding::error(AREA, what)
            .hint("name another interpreter: `python:` in the configuration");
    }
    Finding::ok(AREA, format!("{place} is Python {version}"))
}

/// The finding about all sources of tools, which are asked as at the start of a server.
fn tools(survey: &Survey, has_app: bool, has_upstreams: bool, page: usize) -> Finding {
    const AREA: &str = "application";
    let rows = &survey.tools;
    if rows.is_empty() && has_upstreams {
        return Finding::ok(AREA, "there are no tools but those of upstreams");
    }
    if rows.is_empty() {
        return Finding::warning(AREA, "there are no tools to offer").hint(match has_app {
            true => {
                "the application that `app` names registers none: register tools on the object that it names"
            }
            false => {
                "name an application (`app:`), programs (`commands:`), services (`services:`) or other servers (`upstreams:`)"
            }
        });
    }
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).take(8).collect();
    let more = if names.len() < rows.len() {
        ", …"
    } else {
        ""
    };
    let count = rows.len();
    let said = format!("{count} tools: {}{more}", names.join(", "));
    if count <= page {
        return Finding::ok(AREA, said);
    }
    let message = format!(
        "{said}\nthey are listed on pages of {page}, and many agent frameworks read the first page alone"
    );
    Finding::warning(AREA, message).hint(format!(
        "set `tools.page_size: {}`, or show such clients a search view; docs/agents.md names the frameworks",
        count.next_multiple_of(100).min(10_000)
    ))
}
