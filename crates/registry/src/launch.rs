//! A published server as a command or an address, with what an operator is shown before either is used.

use std::path::PathBuf;

use crate::input::{Answers, Asked, Asking, Words};
use crate::reading::shown;
use crate::runtime;
use crate::server_json::{Package, Remote, ServerJson, Transport};

/// A way to reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A program of this machine.
    Program {
        /// Program.
        program: String,
        /// Arguments of it.
        arguments: Vec<Words>,
        /// Variables of its environment.
        environment: Vec<(String, Words)>,
        /// Directory that it runs in.
        directory: Option<PathBuf>,
    },
    /// An address.
    Address {
        /// Address.
        url: Words,
        /// Headers of each request.
        headers: Vec<(String, Words)>,
        /// True for HTTP with SSE.
        is_sse: bool,
    },
    /// A bundle that must be fetched first.
    Bundle {
        /// Address of the file.
        url: String,
        /// SHA-256 that the file must have.
        sha256: String,
    },
}

/// A plan to run a server, for an operator to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Command or address.
    pub launch: Launch,
    /// Part of the entry that it is made of, such as `packages[0] (npm)`.
    pub from: String,
    /// Values that the operator may give.
    pub asked: Vec<Asked>,
    /// Names of values that must be given before it can be used.
    pub missing: Vec<String>,
    /// Reasons why it cannot be used, whatever is given.
    pub refused: Vec<String>,
    /// Remarks that an operator should read first.
    pub warnings: Vec<String>,
    /// SHA-256 of the package that cannot be compared, since its runtime fetches it by itself.
    pub unchecked_sha256: Option<String>,
}

/// Wish for one of the ways that an entry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// The first that can be used: packages, and then remotes.
    First,
    /// The first package of this kind, or `remote`.
    Kind(String),
}

/// An entry that has no way which can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct NoWay(pub Vec<String>);

/// The plan for an entry.
///
/// # Errors
///
/// [`NoWay`] with a reason for each of its ways, if none can be used.
pub fn plan(server: &ServerJson, way: &Way, answers: &Answers) -> Result<Plan, NoWay> {
    let mut reasons = Vec::new();
    let mut first_refused = None;
    let wanted = |kind: &str| match way {
        Way::First => true,
        Way::Kind(wanted) => wanted == kind,
    };
    for (at, package) in server.packages.iter().enumerate() {
        if !wanted(&package.kind) {
            continue;
        }
        let from = format!("packages[{at}] ({})", shown(&package.kind));
        match of_package(package, &from, answers) {
            Ok(plan) if plan.refused.is_empty() => return Ok(plan),
            Ok(plan) => {
                first_refused.get_or_insert(plan);
            }
            Err(why) => reasons.push(format!("{from}: {why}")),
        }
    }
    for (at, remote) in server.remotes.iter().enumerate() {
        if wanted("remote") {
            let plan = of_remote(remote, format!("remotes[{at}]"), answers);
            if plan.refused.is_empty() {
                return Ok(plan);
            }
            first_refused.get_or_insert(plan);
        }
    }
    if let Some(plan) = first_refused {
        return Ok(plan);
    }
    if reasons.is_empty() {
        let has = ways(server).join(", ");
        reasons.push(match (way, has.is_empty()) {
            (_, true) => {
                "it has neither packages nor remotes: nothing says how to run it".to_owned()
            }
            (Way::Kind(kind), false) => format!("it has no `{}`; it has {has}", shown(kind)),
            (Way::First, false) => "none of its packages and remotes can be used".to_owned(),
        });
    }
    Err(NoWay(reasons))
}

/// Kinds of the ways that an entry has.
#[must_use]
pub fn ways(server: &ServerJson) -> Vec<String> {
    let mut ways: Vec<String> = server.packages.iter().map(|it| shown(&it.kind)).collect();
    ways.extend(server.remotes.iter().map(|_| "remote".to_owned()));
    ways.dedup();
    ways
}

fn of_package(package: &Package, from: &str, answers: &Answers) -> Result<Plan, String> {
    if package.transport != Transport::Stdio {
        return Err(
            "it serves HTTP by itself: start it yourself, and add its address with `upstream add --url`".to_owned(),
        );
    }
    if package.kind == "mcpb" {
        return of_bundle(package, from);
    }
    let runtime = runtime::of(package)?;
    let mut asking = Asking::new(answers);
    let (mut refused, mut warnings) = (Vec::new(), Vec::new());
    let mut environment = Vec::new();
    for (name, variable) in &package.environment {
        let Some(words) = asking.value(name, variable) else {
            continue;
        };
        match steers(name, &words) {
            Some(Steering::Refused(why)) => refused.push(why),
            Some(Steering::Yours(why)) => warnings.push(why),
            None => {}
        }
        environment.push((name.clone(), words));
    }
    let of_runtime = words(&package.runtime_arguments, &mut asking, true);
    let of_runtime = runtime.judge(of_runtime, &mut refused, &mut warnings);
    let of_server = words(&package.arguments, &mut asking, false);
    let names: Vec<_> = environment.iter().map(|(name, _)| name.as_str()).collect();
    let arguments = runtime.arguments(package, of_runtime, of_server, &names)?;
    warnings.extend(runtime.warnings(package));
    let unchecked_sha256 = package.sha256.clone();
    Ok(finished(
        Launch::Program {
            program: runtime.program.to_owned(),
            arguments,
            environment,
            directory: None,
        },
        from,
        asking,
        (refused, warnings),
        unchecked_sha256,
    ))
}

fn of_bundle(package: &Package, from: &str) -> Result<Plan, String> {
    let url = &package.identifier;
    if !url.starts_with("https://") || url.contains(['@', ' ', '"', '\\']) {
        return Err("a bundle is fetched by `https://` alone".to_owned());
    }
    let sha256 = package
        .sha256
        .clone()
        .ok_or("it has no `fileSha256`, without which a bundle cannot be told from another one")?;
    Ok(Plan {
        launch: Launch::Bundle {
            url: url.clone(),
            sha256,
        },
        from: from.to_owned(),
        asked: Vec::new(),
        missing: Vec::new(),
        refused: Vec::new(),
        warnings: Vec::new(),
        unchecked_sha256: None,
    })
}

fn of_remote(remote: &Remote, from: String, answers: &Answers) -> Plan {
    let mut asking = Asking::new(answers);
    let (mut refused, mut warnings) = (Vec::new(), Vec::new());
    let url = asking.value("url", &remote.url).unwrap_or_default();
    let address = url.plain();
    let is_open = address.starts_with("http://");
    if !is_open && !address.starts_with("https://") && asking.missing().is_empty() {
        refused.push(format!("`{}` is no address of HTTP", shown(&address)));
    }
    let host = address.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        refused.push("its address has a user or a password".to_owned());
    }
    if is_open
        && !["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .any(|it| host.starts_with(it))
    {
        warnings.push("requests to it are not encrypted (`http://`)".to_owned());
    }
    let mut headers = Vec::new();
    for (name, variable) in &remote.headers {
        if let Some(words) = asking.value(name, variable) {
            headers.push((name.clone(), words));
        }
    }
    let launch = Launch::Address {
        url,
        headers,
        is_sse: remote.is_sse,
    };
    finished(launch, &from, asking, (refused, warnings), None)
}

pub(crate) fn finished(
    launch: Launch,
    from: &str,
    asking: Asking<'_>,
    (mut refused, warnings): (Vec<String>, Vec<String>),
    unchecked_sha256: Option<String>,
) -> Plan {
    refused.extend(asking.wrong.iter().cloned());
    for name in asking.strangers() {
        let known: Vec<_> = asking.asked.iter().map(|it| it.name.as_str()).collect();
        let known = match known.is_empty() {
            true => "it asks for nothing".to_owned(),
            false => format!("it asks for {}", known.join(", ")),
        };
        refused.push(format!("`{}` is not asked for: {known}", shown(&name)));
    }
    Plan {
        launch,
        from: from.to_owned(),
        missing: asking.missing(),
        asked: asking.asked,
        refused,
        warnings,
        unchecked_sha256,
    }
}

/// Arguments in their order, each a word of its own.
fn words(
    arguments: &[crate::server_json::Argument],
    asking: &mut Asking<'_>,
    of_runtime: bool,
) -> Vec<Words> {
    let mut words = Vec::new();
    for argument in arguments {
        let Some(flag) = &argument.flag else {
            words.extend(asking.values(&argument.key, &argument.value, argument.is_repeated));
            continue;
        };
        if argument.is_bare && of_runtime {
            words.push(Words::theirs(flag.clone()));
            continue;
        }
        for value in asking.values(&argument.key, &argument.value, argument.is_repeated) {
            if flag.starts_with("--") || flag.ends_with('=') {
                let between = if flag.ends_with('=') { "" } else { "=" };
                let mut all = Words::theirs(format!("{flag}{between}"));
                all.0.extend(value.0);
                words.push(all);
            } else {
                words.push(Words::theirs(flag.clone()));
                words.push(value);
            }
        }
    }
    words
}

/// Remark on a variable that decides which code is run.
pub(crate) enum Steering {
    /// The publisher would choose it.
    Refused(String),
    /// The operator has.
    Yours(String),
}

/// Remark on a variable with this value: a stranger must not decide which code is loaded, or from where, or whom the
/// program believes on the way.
pub(crate) fn steers(name: &str, value: &Words) -> Option<Steering> {
    let decides = "decides which code is run, where it comes from, or by which way";
    is_steering(name).then(|| match value.is_yours() {
        true => Steering::Yours(format!("the variable `{name}`, to which you give a value, {decides}")),
        false => Steering::Refused(format!(
            "the variable `{name}` {decides}, which is not for its publisher to say: if it is meant, give a value of your \
             own by --set where it is asked for, or add the server with `upstream add`"
        )),
    })
}

/// True if a variable decides which code a program loads, or from where, or whom it believes on the way.
#[must_use]
pub fn is_steering(name: &str) -> bool {
    const NAMES: [&str; 123] = [
        "ALL_PROXY",
        "APPDATA",
        "AR",
        "AWKLIBPATH",
        "AWKPATH",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AZURE_CONFIG_DIR",
        "AZURE_EXTENSION_DIR",
        "BASHOPTS",
        "BASH_ENV",
        "BOTO_CONFIG",
        "BROWSER",
        "CC",
        "CDPATH",
        "CFLAGS",
        "CHROME_BIN",
        "CHROME_PATH",
        "CLASSPATH",
        "CLOUDSDK_CONFIG",
        "CLOUDSDK_PYTHON",
        "COMSPEC",
        "CONTAINER_CONNECTION",
        "CONTAINER_HOST",
        "CONTAINER_SSHKEY",
        "CPATH",
        "CPPFLAGS",
        "CURL_HOME",
        "CXX",
        "CXXFLAGS",
        "ENV",
        "EXINIT",
        "FREETDS",
        "FREETDSCONF",
        "FTP_PROXY",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "GNUPGHOME",
        "GOBIN",
        "GOENV",
        "GOFLAGS",
        "GOINSECURE",
        "GONOSUMDB",
        "GOPATH",
        "GOPRIVATE",
        "GOPROXY",
        "GOROOT",
        "GOSUMDB",
        "GOTOOLCHAIN",
        "GS_LIB",
        "HELM_PLUGINS",
        "HGRCPATH",
        "HOME",
        "HOSTALIASES",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "IFS",
        "INIT_CWD",
        "INPUTRC",
        "JRE_HOME",
        "KUBECONFIG",
        "LDFLAGS",
        "LESSCLOSE",
        "LESSOPEN",
        "LIBPATH",
        "LIBRARY_PATH",
        "LOCALAPPDATA",
        "LOCALDOMAIN",
        "LOCPATH",
        "M2_HOME",
        "MAKEFLAGS",
        "MYSQL_HOME",
        "MYSQL_TEST_LOGIN_FILE",
        "NETRC",
        "NIX_PATH",
        "NLSPATH",
        "NO_PROXY",
        "OCL_ICD_VENDORS",
        "ORACLE_HOME",
        "PATH",
        "PATHEXT",
        "PGPASSFILE",
        "PGSERVICEFILE",
        "PGSSLCERT",
        "PGSSLKEY",
        "PGSSLROOTCERT",
        "PGSYSCONFDIR",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "PKG_CONFIG_PATH",
        "PROMPT_COMMAND",
        "PS4",
        "REDISCLI_RCFILE",
        "RES_OPTIONS",
        "R_HOME",
        "SHELL",
        "SHELLOPTS",
        "SHLIB_PATH",
        "SSH_ASKPASS_REQUIRE",
        "SSH_AUTH_SOCK",
        "SSH_SK_HELPER",
        "SSH_SK_PROVIDER",
        "SSLKEYLOGFILE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "SYSTEMROOT",
        "SYSTEM_WGETRC",
        "TCLLIBPATH",
        "TEMP",
        "TERMINFO",
        "TERMINFO_DIRS",
        "TF_CLI_CONFIG_FILE",
        "TMP",
        "TMPDIR",
        "TNS_ADMIN",
        "USERPROFILE",
        "VIMINIT",
        "VIMRUNTIME",
        "VIRTUAL_ENV",
        "VISUAL",
        "WGETRC",
        "WINDIR",
        "_JAVA_OPTIONS",
    ];
    /// Beginnings of the variables of programs that fetch and run code, and of what they load.
    const BEGINNINGS: [&str; 74] = [
        "ANSIBLE_",
        "BASH_FUNC_",
        "BUILDAH_",
        "BUNDLE_",
        "BUN_",
        "CARGO_",
        "CMAKE_",
        "COMPLUS_",
        "CONDA_",
        "CONTAINERS_",
        "CORECLR_",
        "COREHOST_",
        "COREPACK_",
        "COR_",
        "DENO_",
        "DOCKER_",
        "DOTNET_",
        "DYLD_",
        "ELECTRON_",
        "ELIXIR_",
        "ERL_",
        "GDK_",
        "GEM_",
        "GIO_",
        "GIT_",
        "GRADLE_",
        "GST_",
        "GTK_",
        "GUILE_",
        "JAVA_",
        "JDK_",
        "JULIA_",
        "KRB5",
        "LD_",
        "LIBGL_",
        "LIBMYSQL_",
        "LIBVA_",
        "LUA_",
        "MAGICK_",
        "MAVEN_",
        "MCP_SERVER_",
        "MONO_",
        "MSBUILD",
        "NODE_",
        "NPM_CONFIG_",
        "NUGET_",
        "ODBC",
        "OPENSSL_",
        "OWLCLAW_",
        "PERL",
        "PIP_",
        "PNPM_",
        "PODMAN_",
        "PSMODULE",
        "PYENV_",
        "PYTHON",
        "QML",
        "QT_",
        "RUBY",
        "RUSTC",
        "RUSTFLAGS",
        "RUSTUP_",
        "R_ENVIRON",
        "R_LIBS",
        "R_PROFILE",
        "SUDO_",
        "TSX_",
        "TS_NODE_",
        "UV_",
        "VK_",
        "VOLTA_",
        "XDG_",
        "YARN_",
        "ZDOTDIR",
    ];
    /// Ends of variables that name programs, what programs load, and what they are started with.
    const ENDS: [&str; 20] = [
        "EDITOR",
        "MALLOC_CONF",
        "PAGER",
        "_ASKPASS",
        "_BROWSERS_PATH",
        "_CA_BUNDLE",
        "_CPATH",
        "_DOWNLOAD_BASE_URL",
        "_DOWNLOAD_HOST",
        "_EXECUTABLE",
        "_EXECUTABLE_PATH",
        "_LIBRARY_PATH",
        "_LOAD_PATH",
        "_MODULE_DIR",
        "_MODULE_PATH",
        "_OPTS",
        "_PLUGIN_PATH",
        "_PRELOAD",
        "_RSH",
        "_WRAPPER",
    ];
    /// Variables with such a beginning that change what a program writes, and not what it runs.
    const HARMLESS: [&str; 8] = [
        "NODE_ENV",
        "NODE_NO_WARNINGS",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "XDG_CURRENT_DESKTOP",
    ];
    let upper = name.to_ascii_uppercase();
    let is_named = NAMES.contains(&upper.as_str());
    let begins = BEGINNINGS.iter().any(|it| upper.starts_with(it));
    let is_harmless = HARMLESS.contains(&upper.as_str());
    let ends = ENDS.iter().any(|it| upper.ends_with(it));
    is_named || ((begins || ends) && !is_harmless)
}
