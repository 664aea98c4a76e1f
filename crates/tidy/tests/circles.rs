//! Folders of a crate stand on floors: no folder uses another that uses it back.
//!
//! A folder is a module of the first level, `foo.rs` together with `foo/`. Paths are followed through
//! `use` and `pub use` to the module that defines the item, so a detour by `lib.rs` hides nothing.
//! `lib.rs` itself is above all folders, and code that only tests compile is left out.

use std::collections::{BTreeMap, BTreeSet};

use tidy::{files, packages, root, text};

/// Circles that stand, by crate: the list may only become shorter.
const STANDING: &[(&str, &str)] = &[];

/// Segments of a module's or an item's path, without `crate`.
type Path = Vec<String>;
type Crate = BTreeMap<Path, Module>;
/// Folders used by a folder, each with one place where it does.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Default)]
struct Module {
    defines: BTreeSet<String>,
    /// Paths as written, each with the name by which it is known here; `*` for all names.
    uses: Vec<(Path, String)>,
    inline: Vec<Path>,
}

#[test]
fn folders_of_a_crate_have_no_circles() {
    let (mut found, mut report) = (BTreeSet::new(), String::new());
    for package in packages() {
        let name = package["name"].as_str().expect("a package has a name");
        let manifest = package["manifest_path"].as_str().expect("and a manifest");
        let source = std::path::Path::new(manifest).with_file_name("src");
        let source = source.strip_prefix(root()).expect("it is a member");
        let (mut krate, mut for_tests) = (Crate::new(), BTreeSet::new());
        for file in files(&[".rs"]) {
            let Ok(inner) = file.strip_prefix(source) else {
                continue;
            };
            let inner = inner.with_extension("");
            let mut path: Path = inner.iter().map(|it| it.to_string_lossy().into()).collect();
            path.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
            read(path, &text(&file), &mut krate, &mut for_tests);
        }
        krate.retain(|path, _| !for_tests.iter().any(|it| path.starts_with(it)));
        let edges = edges(&krate);
        for circle in circles(&edges) {
            report += &format!("    ({name:?}, {:?}),\n", circle.join(" "));
            let inside = circle.iter().flat_map(|upper| {
                let lower = edges[upper].iter();
                let lower = lower.filter(|(lower, _)| circle.contains(lower));
                lower.map(move |(lower, place)| format!("        // {upper} -> {lower}: {place}\n"))
            });
            report.extend(inside);
            found.insert((name.to_owned(), circle.join(" ")));
        }
    }
    let standing = STANDING
        .iter()
        .map(|(name, it)| ((*name).to_owned(), (*it).to_owned()));
    let standing: BTreeSet<_> = standing.collect();
    assert!(
        found == standing,
        "circles between folders are not those of STANDING. Open what is new; take what is gone \
         off the list. There are now:\n{report}"
    );
}

/// Adds a file to `krate`, and the modules that only tests have to `for_tests`.
fn read(path: Path, text: &str, krate: &mut Crate, for_tests: &mut BTreeSet<Path>) {
    const DEFINING: [&str; 8] = [
        "fn", "struct", "enum", "trait", "type", "const", "static", "mod",
    ];
    let mut tokens = tokens(text);
    tokens.extend(["", "", ""]);
    let (mut at, mut depth, mut inside) = (0, 0, vec![(path, 0)]);
    while at < tokens.len() - 3 {
        let here = inside.last().expect("the file is never left").0.clone();
        let module = krate.entry(here.clone()).or_default();
        match tokens[at] {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inside.pop_if(|(_, since)| *since > depth);
            }
            "#" => {
                let end = closing(&tokens, at + 1);
                let attribute = &tokens[at..end];
                if attribute.contains(&"cfg")
                    && attribute.contains(&"test")
                    && !attribute.contains(&"not")
                {
                    at = end;
                    while tokens[at] == "#" {
                        at = closing(&tokens, at + 1);
                    }
                    let end = (at..tokens.len()).find(|at| ["{", ";", ""].contains(&tokens[*at]));
                    let end = end.expect("the tokens end with an empty one");
                    if let Some(named) = (at..end).find(|at| tokens[*at] == "mod") {
                        for_tests.insert(child(&here, tokens[named + 1]));
                    }
                    at = closing(&tokens, end);
                    continue;
                }
            }
            "mod" if tokens[at + 2] == "{" => {
                inside.push((child(&here, tokens[at + 1]), depth + 1))
            }
            "use" => {
                at = tree(&tokens, at + 1, &Path::new(), &mut module.uses);
                continue;
            }
            "crate" | "super" | "self" if tokens[at + 1] == "::" => {
                let mut path = vec![tokens[at].to_owned()];
                while tokens[at + 1] == "::" && is_word(tokens[at + 2]) {
                    path.push(tokens[at + 2].to_owned());
                    at += 2;
                }
                module.inline.push(path);
            }
            word if DEFINING.contains(&word) => {
                module.defines.insert(tokens[at + 1].to_owned());
            }
            _ => {}
        }
        at += 1;
    }
}

/// Reads one tree of a `use` and returns where it ends.
fn tree(tokens: &[&str], mut at: usize, prefix: &Path, uses: &mut Vec<(Path, String)>) -> usize {
    let (mut path, mut name) = (prefix.clone(), None);
    loop {
        match tokens[at] {
            "::" => {}
            "as" => {
                name = Some(tokens[at + 1].to_owned());
                at += 1;
            }
            "{" => {
                at += 1;
                while !["}", ""].contains(&tokens[at]) {
                    at = tree(tokens, at, &path, uses);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            segment if segment == "*" || is_word(segment) => path.push(segment.to_owned()),
            _ => break,
        }
        at += 1;
    }
    path.pop_if(|last| last == "self" && !prefix.is_empty());
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    uses.push((path, name));
    at
}

fn edges(krate: &Crate) -> Edges {
    let mut edges = Edges::new();
    for (from, module) in krate {
        let used = module.uses.iter().map(|(path, _)| path);
        for path in used.chain(&module.inline) {
            let home = absolute(krate, from, path).map(|path| home(krate, &path, 16));
            if let (Some(upper), Some(Some(lower))) =
                (from.first(), home.as_ref().map(|it| it.first()))
                && upper != lower
            {
                let place = format!("{} has {}", from.join("::"), path.join("::"));
                let lowers = edges.entry(upper.clone()).or_default();
                lowers.entry(lower.clone()).or_insert(place);
            }
        }
    }
    edges
}

/// The path from the root of the crate; none for what is of another crate.
fn absolute(krate: &Crate, from: &Path, path: &[String]) -> Option<Path> {
    let mut start = from.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => start.clear(),
        "self" | "super" => {}
        first => {
            return krate
                .contains_key(&child(from, first))
                .then(|| [from, path].concat());
        }
    }
    while let Some(first) = rest
        .first()
        .filter(|it| ["crate", "self", "super"].contains(&it.as_str()))
    {
        if first == "super" {
            start.pop();
        }
        rest = &rest[1..];
    }
    start.extend_from_slice(rest);
    Some(start)
}

/// The module that defines what `path` leads to.
fn home(krate: &Crate, path: &[String], steps: usize) -> Path {
    let mut at = Path::new();
    for (index, segment) in path.iter().enumerate() {
        let inner = child(&at, segment);
        if krate.contains_key(&inner) {
            at = inner;
            continue;
        }
        let Some(module) = krate
            .get(&at)
            .filter(|it| steps > 0 && !it.defines.contains(segment))
        else {
            break;
        };
        for (used, name) in module
            .uses
            .iter()
            .filter(|(_, name)| name == segment || name == "*")
        {
            let Some(mut target) = absolute(krate, &at, used).filter(|it| it != path) else {
                continue;
            };
            if name == "*" {
                target.pop();
                target.push(segment.clone());
            }
            let found = home(krate, &[&target, &path[index + 1..]].concat(), steps - 1);
            if name != "*"
                || krate
                    .get(&found)
                    .is_some_and(|it| it.defines.contains(segment))
            {
                return found;
            }
        }
        break;
    }
    at
}

/// Folders that reach each other, in order.
fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            let lower = edges.get(next).into_iter().flat_map(BTreeMap::keys);
            open.extend(lower.filter(|lower| reached.insert((*lower).clone())));
        }
        reached
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|from| (from, reached(from))).collect();
    let mut circles = BTreeSet::new();
    for (from, lower) in &reached {
        let back = lower
            .iter()
            .filter(|it| reached.get(it).is_some_and(|it| it.contains(*from)));
        let circle: Vec<_> = back.cloned().collect();
        circles.extend((!circle.is_empty()).then_some(circle));
    }
    circles.into_iter().collect()
}

fn child(of: &Path, name: &str) -> Path {
    [of.as_slice(), &[name.to_owned()]].concat()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|it: char| it.is_alphanumeric() || it == '_')
}

/// The place behind what closes the bracket at `at`; if there is none at `at`, behind that token.
fn closing(tokens: &[&str], mut at: usize) -> usize {
    let mut depth = 0;
    loop {
        match tokens[at] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth <= 0 || at == tokens.len() {
            return at;
        }
    }
}

/// Words, `::` and single characters, without comments, strings and lifetimes' ticks.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest
            .find(|it: char| !it.is_alphanumeric() && it != '_')
            .unwrap_or(rest.len());
        let hashes = rest[word..].bytes().take_while(|it| *it == b'#').count();
        let raw =
            ["r", "br", "cr"].contains(&&rest[..word]) && rest[word + hashes..].starts_with('"');
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if raw {
            let start = word + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            rest[start..]
                .find(&end)
                .map_or(rest.len(), |at| start + at + end.len())
        } else if first == '"' || rest.starts_with("'\\") {
            let mut escaped = false;
            let end = rest[1..].find(|it| {
                let ends = it == first && !escaped;
                escaped = it == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        } else if first == '\'' {
            let mut chars = rest[1..].char_indices().skip(1);
            chars
                .next()
                .filter(|(_, it)| *it == '\'')
                .map_or(1, |(at, _)| at + 2)
        } else if word > 0 {
            tokens.push(&rest[..word]);
            word
        } else if rest.starts_with("::") {
            tokens.push("::");
            2
        } else {
            let length = first.len_utf8();
            tokens.extend((!first.is_whitespace()).then_some(&rest[..length]));
            length
        };
        rest = &rest[length..];
    }
    tokens
}

#[cfg(test)]
mod samples {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let (mut krate, mut for_tests) = (Crate::new(), BTreeSet::new());
        for (path, text) in sources {
            let path = path.split("::").filter(|it| !it.is_empty());
            read(
                path.map(str::to_owned).collect(),
                text,
                &mut krate,
                &mut for_tests,
            );
        }
        krate.retain(|path, _| !for_tests.iter().any(|it| path.starts_with(it)));
        circles(&edges(&krate))
            .iter()
            .map(|circle| circle.join(" "))
            .collect()
    }

    #[test]
    fn a_circle_is_seen_by_every_way() {
        let lib = "mod a; mod b;\npub use crate::{a::{One, Other as Renamed}, b::*};";
        for b in [
            "use crate::a::One;",
            "use super::a;",
            "use crate::One;",
            "use crate::{fmt, Renamed};",
            "fn f(it: &'static str) { let _ = '\\''; super::a::g(\"//\") }",
            "mod inner { use super::super::a::One; }",
            "pub struct Two;\n#[cfg(not(test))]\nuse crate::One;",
        ] {
            let b = format!("{b} pub struct Two;");
            let sources = [
                ("", lib),
                ("a", "use crate::Two; pub struct One; pub struct Other;"),
                ("b", &b),
            ];
            assert_eq!(found(&sources), ["a b"], "{b}");
        }
    }

    #[test]
    fn a_detour_is_followed_to_the_defining_module() {
        let sources = [
            ("", "pub use a::One;"),
            ("a", "pub use self::deep::One; mod deep;"),
            ("a::deep", "pub use crate::c::One;"),
            ("b", "use crate::One;"),
            ("c", "use crate::b::Two; pub struct One;"),
        ];
        assert_eq!(found(&sources), ["b c"]);
    }

    #[test]
    fn no_circle_is_seen_where_there_is_none() {
        let a = "use crate::b::Two; pub struct One;";
        for b in [
            "// use crate::a::One;",
            "/// [`crate::a::One`]\npub struct Two;",
            "const TEXT: &str = \"use crate::a::One;\";",
            "const TEXT: &str = r#\"use \" crate::a::One;\"#;",
            "#[cfg(test)]\nmod tests { use crate::a::One; fn f() {} }",
            "#[cfg(test)]\nmod tests;",
            "mod inner; use std::a::One; pub use self::inner::Two;",
            "use crate::Root;",
        ] {
            let sources = [
                ("", "mod a; mod b; pub use a::One; pub struct Root;"),
                ("a", a),
                ("b", b),
                ("b::tests", "use crate::a::One;"),
                ("b::inner", "use super::helper; pub struct Two;"),
            ];
            let sources = &sources[..if b.contains("tests;") { 4 } else { 3 }];
            assert_eq!(found(sources), Vec::<String>::new(), "{b}");
        }
    }
}
