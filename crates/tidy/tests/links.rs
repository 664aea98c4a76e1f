//! Links of documents point at existing files.

use std::path::{Component, Path, PathBuf};

use tidy::{files, prose, root, text};

#[test]
fn relative_links_lead_somewhere() {
    let broken: Vec<_> = files(&[".md"])
        .iter()
        .filter(|path| is_document(path))
        .flat_map(|it| broken(it))
        .collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Documents about the project; fixtures and skills have rules of their own.
fn is_document(path: &Path) -> bool {
    path.starts_with("docs") || path.components().count() == 1 || path.ends_with("README.md")
}

fn broken(document: &Path) -> Vec<String> {
    let source = text(document);
    let found = prose(&source)
        .flat_map(|(number, line)| links(line).into_iter().map(move |target| (number, target)));
    found
        .filter_map(|(number, target)| {
            let wrong = follow(document, &source, target).err()?;
            Some(format!(
                "{}:{number}: {target}: {wrong}",
                document.display()
            ))
        })
        .collect()
}

/// The targets of `[text](target)` in a line, without what stands in backticks.
fn links(line: &str) -> Vec<&str> {
    let outside_code = line.split('`').step_by(2);
    let candidates = outside_code.flat_map(|part| part.split("](").skip(1));
    candidates
        .filter_map(|rest| rest.split([')', ' ']).next())
        .map(|target| target.trim_matches(['<', '>']))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

fn follow(document: &Path, source: &str, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        document.to_owned()
    } else {
        normalise(&document.parent().unwrap_or(Path::new("")).join(path))
            .ok_or("leads out of the repository")?
    };
    if !root().join(&path).exists() {
        return Err("does not exist".to_owned());
    }
    if anchor.is_empty() || path.extension().is_none_or(|ending| ending != "md") {
        return Ok(());
    }
    let there = if path == document {
        source.to_owned()
    } else {
        text(&path)
    };
    let found = prose(&there).any(|(_, line)| line.starts_with('#') && slug(line) == anchor);
    if found {
        Ok(())
    } else {
        Err("there is no such heading".to_owned())
    }
}

/// Resolves `.` and `..`; `None` above the root.
fn normalise(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => plain.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// The anchor that is made of a heading.
fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

#[test]
fn links_are_found_and_followed() {
    let line = "see [a](b.md#c), [d](<e.md>) and `[f](g.md)`, [h](https://i) or [j](k \"title\")";
    assert_eq!(links(line), ["b.md#c", "e.md", "k"]);
    let document = Path::new("docs/requirements.md");
    let source = text(document);
    for good in [
        "requirements.md",
        "../Cargo.toml",
        "../crates/tidy",
        "#r2-stdio",
        ".#x",
    ] {
        assert_eq!(follow(document, &source, good), Ok(()), "{good}");
    }
    for bad in [
        "nonsense.md",
        "../../etc",
        "/etc/passwd",
        "#r99-nonsense",
        "requirements.md#x",
    ] {
        follow(document, &source, bad).expect_err(bad);
    }
}
