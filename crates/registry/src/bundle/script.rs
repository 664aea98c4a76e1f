//! Arguments by which a program that runs scripts is led to a file of the bundle, and to no other code.

use crate::reading::shown;

/// Options of each program that stand before the script and change nothing of which code is run.
const NODE: [&str; 3] = ["--enable-source-maps", "--no-deprecation", "--no-warnings"];
const PYTHON: [&str; 4] = ["-B", "-O", "-s", "-u"];
const DENO: [&str; 6] = [
    "-A",
    "--cached-only",
    "--no-check",
    "--no-prompt",
    "--quiet",
    "-q",
];
const BUN: [&str; 1] = ["--silent"];
const UV: [&str; 7] = [
    "--frozen",
    "--locked",
    "--no-dev",
    "--no-progress",
    "--offline",
    "--quiet",
    "-q",
];

/// Arguments of a program that runs scripts, as the manifest has them.
pub(super) struct Script<'a> {
    /// True for the path of a file of the bundle.
    pub(super) has: &'a dyn Fn(&str) -> bool,
    /// Directories of the bundle that `PYTHONPATH` names, from its root.
    pub(super) python_path: &'a [String],
}

impl Script<'_> {
    /// Refuses arguments that do not lead to a file of the bundle. Those behind the file are its own.
    pub(super) fn check(&self, program: &str, arguments: &[String]) -> Result<(), String> {
        let texts: Vec<String> = arguments.iter().map(|it| plain(it)).collect();
        let mut words = texts.iter().map(String::as_str);
        match program {
            "node" => self.file("", &NODE, &[], words),
            "bun" | "deno" => {
                let options: (&[&str], &[&str]) = match program {
                    "bun" => (&BUN, &[]),
                    _ => (&DENO, &["--allow-"]),
                };
                let rest = words.clone();
                match (program, words.next()) {
                    (_, Some("run")) => self.file("", options.0, options.1, words),
                    ("bun", _) => self.file("", options.0, options.1, rest),
                    (_, found) => Err(outside(found)),
                }
            }
            "uv" => self.uv(words),
            _ => self.python("", words),
        }
    }

    /// The file that comes behind options.
    fn file<'w>(
        &self,
        directory: &str,
        options: &[&str],
        beginnings: &[&str],
        words: impl Iterator<Item = &'w str>,
    ) -> Result<(), String> {
        for word in words {
            let is_option = word.starts_with('-');
            if is_option
                && (options.contains(&word) || beginnings.iter().any(|it| word.starts_with(it)))
            {
                continue;
            }
            return match !is_option && self.is_there(directory, word) {
                true => Ok(()),
                false => Err(outside(Some(word))),
            };
        }
        Err(outside(None))
    }

    fn python<'w>(
        &self,
        directory: &str,
        words: impl Iterator<Item = &'w str> + Clone,
    ) -> Result<(), String> {
        let mut rest = words.clone();
        while let Some(word) = rest.next() {
            if PYTHON.contains(&word) {
                continue;
            }
            if word != "-m" {
                break;
            }
            // The directory it runs in comes first, then those of `PYTHONPATH`, and then what is installed.
            let module = rest.next().unwrap_or_default();
            let path = module.replace('.', "/");
            let mut places = self
                .python_path
                .iter()
                .map(String::as_str)
                .chain([directory]);
            let is_there = |place: &str| {
                self.is_there(place, &format!("{path}.py"))
                    || self.is_there(place, &format!("{path}/__main__.py"))
            };
            return match !module.starts_with(['-', '.']) && places.any(is_there) {
                true => Ok(()),
                false => Err(outside(Some(module))),
            };
        }
        self.file(directory, &PYTHON, &[], words)
    }

    /// `uv run`, with options before and behind `run`.
    fn uv<'w>(&self, mut words: impl Iterator<Item = &'w str> + Clone) -> Result<(), String> {
        let mut directory = String::new();
        let mut is_run = false;
        loop {
            let before = words.clone();
            let word = words.next();
            match word {
                Some(option) if UV.contains(&option) => {}
                Some("run") if !is_run => is_run = true,
                Some(option @ ("--directory" | "--project")) => {
                    let place = words.next().unwrap_or_default();
                    let Some(own) = own(place) else {
                        return Err(outside(Some(place)));
                    };
                    if option == "--directory" {
                        own.trim_end_matches('/').clone_into(&mut directory);
                    }
                }
                Some("python" | "python3") if is_run => return self.python(&directory, words),
                // A bare name that is no script is a program of the search path for `uv`.
                Some(name) if is_run && !name.contains('/') && !name.ends_with(".py") => {
                    return Err(outside(word));
                }
                _ if is_run => return self.file(&directory, &[], &[], before),
                _ => return Err(outside(word)),
            }
        }
    }

    /// True for a file of the bundle, named from its root, or from the directory it runs in.
    fn is_there(&self, directory: &str, word: &str) -> bool {
        let path = match own(word) {
            Some(own) => own.to_owned(),
            None if directory.is_empty() => word.to_owned(),
            None => format!("{directory}/{word}"),
        };
        (self.has)(&path)
    }
}

/// The text with separators of paths in the place of what stands for them.
fn plain(text: &str) -> String {
    text.replace("${/}", "/").replace("${pathSeparator}", "/")
}

/// A path within the bundle, from its root.
pub(super) fn own(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("${__dirname}")?;
    let rest = match rest {
        "" => rest,
        rest => rest.strip_prefix('/')?,
    };
    (!rest.split('/').any(|it| it == "..") && !rest.contains("${")).then_some(rest)
}

fn outside(word: Option<&str>) -> String {
    match word {
        Some(word) => format!(
            "the argument `{}` decides which code is run: before a file of the bundle stand options that are known not to, \
             and nothing else; set it yourself with `upstream add`, if it is meant",
            shown(word)
        ),
        None => "its arguments name no file of the bundle that would be run".to_owned(),
    }
}
