use std::{fs, io, path::Path};

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../python/", $path)))),*]
    };
}

/// The Python end, as it is found in `crates/adapter-tools/python`.
const FILES: &[(&str, &str)] = files![
    "owlclaw_stand_in/owlclaw/__init__.py",
    "owlclaw_stand_in/owlclaw/app.py",
    "owlclaw_stand_in/owlclaw/integrations/__init__.py",
    "owlclaw_stand_in/owlclaw/integrations/langchain.py",
    "owlclaw_worker/__init__.py",
    "owlclaw_worker/__main__.py",
    "owlclaw_worker/around.py",
    "owlclaw_worker/asking.py",
    "owlclaw_worker/call.py",
    "owlclaw_worker/constraints.py",
    "owlclaw_worker/content.py",
    "owlclaw_worker/context.py",
    "owlclaw_worker/convert.py",
    "owlclaw_worker/describe.py",
    "owlclaw_worker/docstring.py",
    "owlclaw_worker/event_loop.py",
    "owlclaw_worker/fastmcp.py",
    "owlclaw_worker/forkable.py",
    "owlclaw_worker/hints.py",
    "owlclaw_worker/introduce.py",
    "owlclaw_worker/judge.py",
    "owlclaw_worker/launcher.py",
    "owlclaw_worker/llm_costs.py",
    "owlclaw_worker/load.py",
    "owlclaw_worker/log_lines.py",
    "owlclaw_worker/module_state.py",
    "owlclaw_worker/offers.py",
    "owlclaw_worker/own_rules.py",
    "owlclaw_worker/processes.py",
    "owlclaw_worker/protocol.py",
    "owlclaw_worker/schema.py",
    "owlclaw_worker/serve.py",
    "owlclaw_worker/streams.py",
    "owlclaw_worker/templates.py",
    "owlclaw_worker/testing.py",
    "owlclaw_worker/threads.py",
    "owlclaw_worker/worker.py",
];

/// Writes the Python end into `directory`.
pub(super) fn unpack(directory: &Path) -> io::Result<()> {
    for (path, text) in FILES {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, path::PathBuf};

    fn python_files(directory: &Path, seen: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                python_files(&path, seen);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                seen.insert(path);
            }
        }
    }

    #[test]
    fn every_file_of_the_python_end_is_bundled() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let mut there = BTreeSet::new();
        for package in ["owlclaw_worker", "owlclaw_stand_in"] {
            python_files(&root.join(package), &mut there);
        }
        let bundled: BTreeSet<_> = FILES.iter().map(|(path, _)| root.join(path)).collect();
        assert_eq!(bundled, there);
    }
}
