//! The commands `prompts …`, on the directory of prompts.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use adapter_prompts::{PromptCatalog, PromptEntry, PromptVersion, put_in_force};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use crate::output::{FAILED, Stop, complain, load_for, print, print_json, print_text};
use crate::request::{ListFormat, PromptsCommand, Settings};
use crate::table::table;
use crate::terminal::remark;
use server::Failure;

/// The part of the configuration that names the directory.
const NEEDED: &[&str] = &["prompts"];

/// Lists, shows, compares, puts in force or fills in prompts.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn prompts(command: PromptsCommand) -> Result<ExitCode, Stop> {
    match command {
        PromptsCommand::List {
            settings,
            format,
            category,
            tags,
        } => {
            let catalog = read(settings)?;
            complain(&server::prompt_problems(&catalog));
            let is_asked_for = |entry: &&PromptEntry| match entry.current() {
                Ok(it) => {
                    let of_category = category.is_none() || category == it.category;
                    of_category && tags.iter().all(|tag| it.tags.contains(tag))
                }
                // It may be one of them.
                Err(_) => true,
            };
            let entries: Vec<_> = catalog.iter().filter(is_asked_for).collect();
            let is_held = entries.iter().any(|it| it.current().is_err());
            match format {
                ListFormat::Json => {
                    print_json(&entries.into_iter().map(summary).collect::<Vec<_>>())?
                }
                ListFormat::Table => print(&listed(&entries))?,
            };
            Ok(match is_held {
                true => FAILED.into(),
                false => ExitCode::SUCCESS,
            })
        }
        PromptsCommand::Show {
            settings,
            name,
            format,
        } => {
            let catalog = read(settings)?;
            let entry = found(catalog.entry_of(&name), &catalog, &name)?;
            let version = match name.contains('@') {
                true => Some(version(&catalog, &name)?),
                false => None,
            };
            match (format, version) {
                (ListFormat::Json, Some(version)) => print_json(&of_version(version)),
                (ListFormat::Json, None) => print_json(&summary(entry)),
                (ListFormat::Table, Some(version)) => print_text(version.source.trim_end()),
                (ListFormat::Table, None) => print(&versions(entry)),
            }
        }
        PromptsCommand::Diff {
            settings,
            name,
            from,
            to,
        } => {
            let catalog = read(settings)?;
            let before = version(&catalog, &format!("{name}@{from}"))?;
            let after = match to {
                Some(to) => version(&catalog, &format!("{name}@{to}"))?,
                None => version(&catalog, &name)?,
            };
            let heads = format!(
                "--- {name}@{}\n+++ {name}@{}\n",
                before.version, after.version
            );
            let lines = difference(&before.source, &after.source);
            if before.includes != after.includes {
                remark("they include other files; what those say is not compared");
            }
            match lines.is_empty() {
                true => Ok(ExitCode::SUCCESS),
                false => print_text(&format!("{heads}{}", lines.join("\n"))),
            }
        }
        PromptsCommand::Rollback { settings, name, to } => {
            let catalog = read(settings)?;
            let (before, now) = put_in_force(&catalog, &name, to.as_deref())
                .map_err(|error| Stop::Failed(error.into()))?;
            let before = before.map_or_else(|| "none".to_owned(), |it| format!("version {it}"));
            print(&format!(
                "`{name}`: version {now} is in force, instead of {before}"
            ))
        }
        PromptsCommand::Render {
            settings,
            name,
            arguments,
        } => {
            let catalog = read(settings)?;
            let version = version(&catalog, &name)?;
            let mut values = BTreeMap::new();
            for argument in arguments {
                let (name, value) = argument.split_once('=').ok_or_else(|| {
                    let why = format!("`{argument}` is no argument; write NAME=VALUE");
                    Stop::Wrong(why.into())
                })?;
                values.insert(name.to_owned(), value.to_owned());
            }
            let messages = version.render(&values);
            let messages = messages.map_err(|error| Stop::Failed(error.into()))?;
            let messages = messages.iter();
            let messages: Vec<_> = messages
                .map(|it| format!("## {}\n\n{}", it.role.as_str(), it.text))
                .collect();
            print_text(&messages.join("\n\n"))
        }
    }
}

fn read(settings: Settings) -> Result<PromptCatalog, Stop> {
    let config = load_for(settings, NEEDED)?.config;
    let options = server::prompt_options(&config).map_err(Stop::Failed)?;
    let options = options.ok_or_else(|| {
        Stop::Failed("no directory of prompts is configured; set `prompts.dir`".into())
    })?;
    Ok(PromptCatalog::scan(&options))
}

/// Item found for `name`, or an error that names what was probably meant.
fn found<T>(found: Option<T>, catalog: &PromptCatalog, name: &str) -> Result<T, Stop> {
    found.ok_or_else(|| {
        let bare = name.split_once('@').map_or(name, |(bare, _)| bare);
        let why = match catalog.get(bare) {
            Some(entry) => {
                let known: Vec<_> = entry.versions().map(|(it, _)| format!("`{it}`")).collect();
                format!("there is no `{name}`; `{bare}` has {}", known.join(", "))
            }
            None => match catalog.nearest(bare) {
                Some(meant) => format!("there is no prompt `{bare}`; did you mean `{meant}`?"),
                None => format!("there is no prompt `{bare}`; `prompts list` shows what there is"),
            },
        };
        Stop::Failed(why.into())
    })
}

fn version<'a>(catalog: &'a PromptCatalog, name: &str) -> Result<&'a Arc<PromptVersion>, Stop> {
    let read = found(catalog.version(name), catalog, name)?;
    read.map_err(|problem| {
        let why: Failure = format!("{problem} ({})", problem.hint).into();
        Stop::Failed(why)
    })
}

fn of_version(version: &Arc<PromptVersion>) -> Value {
    let arguments = version.arguments.iter().map(|it| {
        json!({
            "name": it.name,
            "type": it.kind.as_str(),
            "required": it.required,
            "default": it.default,
            "description": it.described(),
        })
    });
    json!({
        "name": version.name,
        "version": version.version,
        "title": version.title,
        "description": version.description,
        "category": version.category,
        "tags": version.tags,
        "author": version.author,
        "arguments": arguments.collect::<Vec<_>>(),
        "path": version.path,
        "includes": version.includes,
        "digest": HEXLOWER.encode(&version.digest),
        "source": &*version.source,
    })
}

fn summary(entry: &PromptEntry) -> Value {
    let versions = entry.versions().map(|(version, read)| match read {
        Ok(it) => json!({ "version": version, "digest": HEXLOWER.encode(&it.digest) }),
        Err(problem) => json!({ "version": version, "problem": problem.to_string() }),
    });
    let current = entry.current().ok();
    json!({
        "name": entry.name(),
        "version": current.map(|it| &it.version),
        "title": current.and_then(|it| it.title.as_ref()),
        "description": current.and_then(|it| it.description.as_ref()),
        "category": current.and_then(|it| it.category.as_ref()),
        "tags": current.map(|it| &it.tags),
        "digest": current.map(|it| HEXLOWER.encode(&it.digest)),
        "held": entry.current().err().map(ToString::to_string),
        "versions": versions.collect::<Vec<_>>(),
    })
}

fn listed(entries: &[&PromptEntry]) -> String {
    let heads = ["NAME", "VERSION", "VERSIONS", "ARGUMENTS", "DESCRIPTION"];
    let rows = entries.iter().map(|entry| {
        let count = entry.versions().count().to_string();
        let (version, arguments, text) = match entry.current() {
            Ok(it) => {
                let arguments = it.arguments.iter().map(|it| match it.required {
                    true => it.name.clone(),
                    false => format!("[{}]", it.name),
                });
                let arguments = arguments.collect::<Vec<_>>().join(" ");
                let text = it.description.clone().unwrap_or_default();
                (it.version.clone(), arguments, text)
            }
            Err(problem) => ("held back".to_owned(), String::new(), problem.to_string()),
        };
        vec![entry.name().to_owned(), version, count, arguments, text]
    });
    table(&heads, rows.collect())
}

fn versions(entry: &PromptEntry) -> String {
    let heads = ["VERSION", "IN FORCE", "DIGEST", "DESCRIPTION"];
    let current = entry.current().ok().map(|it| it.version.as_str());
    let rows = entry.versions().map(|(version, read)| {
        let mark = if Some(version) == current { "yes" } else { "" };
        let (digest, text) = match read {
            Ok(it) => (
                HEXLOWER.encode(&it.digest)[..16].to_owned(),
                it.description.clone().unwrap_or_default(),
            ),
            Err(problem) => (String::new(), problem.to_string()),
        };
        vec![version.to_owned(), mark.to_owned(), digest, text]
    });
    table(&heads, rows.collect())
}

/// The lines that two texts do not share, with ` `, `-` or `+` in front, and three lines around them; nothing
/// for equal texts.
fn difference(before: &str, after: &str) -> Vec<String> {
    const AROUND: usize = 3;
    /// Beyond so many pairs of lines, what lies between the first and last difference is shown as replaced.
    const MAX_PAIRS: usize = 4_000_000;
    let (a, b): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[start..], &b[start..]);
    let same = rest_a.iter().rev().zip(rest_b.iter().rev());
    let end = same.take_while(|(a, b)| a == b).count();
    let (old, new) = (&rest_a[..rest_a.len() - end], &rest_b[..rest_b.len() - end]);
    if old.is_empty() && new.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<(char, &str)> = a[..start].iter().map(|it| (' ', *it)).collect();
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        lines.extend(old.iter().map(|it| ('-', *it)));
        lines.extend(new.iter().map(|it| ('+', *it)));
    } else {
        // Length of the longest common sequence of what begins at each pair.
        let width = new.len() + 1;
        let mut longest = vec![0_u32; (old.len() + 1) * width];
        for i in (0..old.len()).rev() {
            for j in (0..new.len()).rev() {
                longest[i * width + j] = match old[i] == new[j] {
                    true => longest[(i + 1) * width + j + 1] + 1,
                    false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < old.len() || j < new.len() {
            if i < old.len() && j < new.len() && old[i] == new[j] {
                lines.push((' ', old[i]));
                (i, j) = (i + 1, j + 1);
            } else if j == new.len()
                || (i < old.len() && longest[(i + 1) * width + j] >= longest[i * width + j + 1])
            {
                lines.push(('-', old[i]));
                i += 1;
            } else {
                lines.push(('+', new[j]));
                j += 1;
            }
        }
    }
    lines.extend(a[a.len() - end..].iter().map(|it| (' ', *it)));
    let changed: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].0 != ' ').collect();
    let is_near = |at: usize| changed.iter().any(|it| it.abs_diff(at) <= AROUND);
    let mut shown = Vec::new();
    let mut is_cut = false;
    for (at, (mark, line)) in lines.iter().enumerate() {
        if is_near(at) {
            shown.push(format!("{mark}{line}"));
            is_cut = false;
        } else if !is_cut {
            shown.push("…".to_owned());
            is_cut = true;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_with_the_lines_around_them() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let after = "1\n2\n3\n4\n5\nsix\n7\n8\n9\n";
        let expected = ["…", " 3", " 4", " 5", "-6", "+six", " 7", " 8", " 9"];
        assert_eq!(difference(before, after), expected);
        assert!(difference(before, before).is_empty());
        assert_eq!(
            difference("a\nb\nc\n", "a\nc\nd\n"),
            [" a", "-b", " c", "+d"]
        );
        assert_eq!(difference("", "a\n"), ["+a"]);
        let long = |word: &str| format!("{word}\n").repeat(3_000);
        assert_eq!(difference(&long("a"), &long("b")).len(), 6_000);
    }
}
