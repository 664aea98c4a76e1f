//! What answers calls: Python, the application, programs, services, skills.

use adapter_skills::SkillCatalog;

use super::Finding;
use crate::config::Config;
use crate::serve;

pub(super) fn findings(config: &Config, imports: bool) -> Vec<Finding> {
    let mut findings = vec![skills(config)];
    if let Some(app) = &config.app {
        findings.push(python(config));
        if !imports {
            findings.push(Finding::warning(
                "application",
                format!("{app} was not imported, as asked"),
            ));
            return findings;
        }
    }
    findings.push(tools(config));
    findings
}

fn skills(config: &Config) -> Finding {
    const AREA: &str = "skills";
    let directory = &config.resources.skills_dir;
    let place = directory.display();
    if !directory.is_dir() {
        return Finding::warning(AREA, format!("there is no directory {place}"))
            .hint("make it, or name another one: resources.skills_dir, --skills-dir");
    }
    let options = match serve::scan_options(config) {
        Ok(options) => options,
        Err(error) => return Finding::error(AREA, error.to_string()),
    };
    let (catalog, problems) = SkillCatalog::scan(&options);
    let count = catalog
        .matching(&adapter_skills::SkillFilter::default())
        .count();
    if problems.is_empty() {
        return Finding::ok(AREA, format!("{count} skills in {place}"));
    }
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Finding::warning(
        AREA,
        format!("{count} skills in {place}\n{}", problems.join("\n")),
    )
    .hint("mend what is listed; a skill that cannot be read is not offered")
}

fn python(config: &Config) -> Finding {
    const AREA: &str = "python";
    let interpreter = serve::interpreter(config.python.as_deref());
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
    Finding::ok(AREA, format!("{place} is Python {version}"))
}

/// Everything is asked for its tools, as at the start of a server.
fn tools(config: &Config) -> Finding {
    const AREA: &str = "application";
    match serve::tools_list(config.clone(), None) {
        Ok(rows) if rows.is_empty() => Finding::warning(AREA, "there are no tools to offer")
            .hint("name an application (`app:`), programs (`commands:`) or services (`services:`)"),
        Ok(rows) => {
            let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).take(8).collect();
            let more = if names.len() < rows.len() {
                ", …"
            } else {
                ""
            };
            let count = rows.len();
            Finding::ok(AREA, format!("{count} tools: {}{more}", names.join(", ")))
        }
        Err(failure) => Finding::error(AREA, crate::command::explain(&*failure))
            .hint("mend what it says; `owlclaw-mcp tools list` tries again"),
    }
}
