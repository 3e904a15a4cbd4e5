//! The programs that the tests need and Cargo does not bring: an Envoy, four gRPC libraries, another xDS server, and checks by the schemas
//! of others.
//!
//! Each is installed once, pinned by the files in `tests/clients/`, by the package manager of its language, into
//! `target/clients/`, in a directory named by the hash of its pins. Test processes that want the same at the
//! same time wait for each other.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tokio::task::spawn_blocking;

/// Installs the Python packages and returns the virtual environment's interpreter.
///
/// # Errors
///
/// If there is no Python, or the packages cannot be installed.
pub async fn python() -> Result<PathBuf> {
    Ok(once(&PYTHON, install_python).await?.join("bin/python"))
}

/// Installs the Python packages and returns the Envoy among them.
///
/// # Errors
///
/// As [`python`].
pub async fn envoy() -> Result<PathBuf> {
    let venv = once(&PYTHON, install_python).await?;
    // The package's own `bin/envoy` is a script that would stay between us and the process.
    let mut found = Vec::new();
    for version in fs::read_dir(venv.join("lib"))? {
        let path = version?.path().join("site-packages/envoy/_bin/envoy");
        found.extend(path.exists().then_some(path));
    }
    found.pop().with_context(|| format!("no envoy below {}", venv.display()))
}

/// Installs the schemas of Kubernetes, and returns the program that checks manifests by them.
///
/// # Errors
///
/// As [`python`].
pub async fn kubernetes_validate() -> Result<PathBuf> {
    static KUBERNETES: Once = Once::new();
    let install = || install_pip("kubernetes", &clients_dir().join("kubernetes/requirements.txt"));
    Ok(once(&KUBERNETES, install).await?.join("bin/kubernetes-validate"))
}

/// Installs the Node packages and returns the `node_modules` to run with (`NODE_PATH`); `None` without Node.
///
/// # Errors
///
/// If the packages cannot be installed, or there is no Node and [every client is required](require_all).
pub async fn node_modules() -> Result<Option<PathBuf>> {
    static NODE: Once = Once::new();
    if !is_present("grpc-js", "node", "--version")? {
        return Ok(None);
    }
    Ok(Some(once(&NODE, || install_npm("grpc-js")).await?.join("node_modules")))
}

/// Installs the checks of accessibility, and returns the directory that they are in; `None` without Node.
///
/// # Errors
///
/// As [`node_modules`].
pub async fn axe() -> Result<Option<PathBuf>> {
    static AXE: Once = Once::new();
    if !is_present("axe", "node", "--version")? {
        return Ok(None);
    }
    Ok(Some(once(&AXE, || install_npm("axe")).await?.join("node_modules")))
}

/// Builds the Go worker and returns it; `None` without Go.
///
/// # Errors
///
/// If it cannot be built, or there is no Go and [every client is required](require_all).
pub async fn go_worker() -> Result<Option<PathBuf>> {
    static GO: Once = Once::new();
    if !is_present("grpc-go", "go", "version")? {
        return Ok(None);
    }
    Ok(Some(once(&GO, || install_go("grpc-go", "worker")).await?.join("worker")))
}

/// Builds the xDS server on go-control-plane and returns it; `None` without Go.
///
/// # Errors
///
/// As [`go_worker`].
pub async fn go_control_plane() -> Result<Option<PathBuf>> {
    static GO: Once = Once::new();
    if !is_present("go-control-plane", "go", "version")? {
        return Ok(None);
    }
    Ok(Some(once(&GO, || install_go("go-control-plane", "server")).await?.join("server")))
}

/// Builds the check of dashboards by Grafana's schemas, and returns it; `None` without Go.
///
/// # Errors
///
/// As [`go_worker`].
pub async fn grafana_check() -> Result<Option<PathBuf>> {
    static GRAFANA: Once = Once::new();
    if !is_present("grafana", "go", "version")? {
        return Ok(None);
    }
    Ok(Some(once(&GRAFANA, || install_go("grafana", "check")).await?.join("check")))
}

/// Fetches grpc-java, compiles its worker, and returns their class path; `None` without Maven.
///
/// # Errors
///
/// If it cannot be built, or there is no Maven and [every client is required](require_all).
pub async fn java_worker() -> Result<Option<String>> {
    static JAVA: Once = Once::new();
    if !is_present("grpc-java", "mvn", "--version")? {
        return Ok(None);
    }
    let dir = once(&JAVA, install_java).await?;
    Ok(Some(format!("{0}:{0}/lib/*", dir.display())))
}

/// Returns `true` if a missing toolchain is a failure: `XDS_TESTS_REQUIRE_ALL=1`, as in CI.
#[must_use]
pub fn require_all() -> bool {
    std::env::var_os("XDS_TESTS_REQUIRE_ALL").is_some_and(|value| value == "1")
}

/// The directory of the client programs and their pins.
#[must_use]
pub fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// The directory of what Cargo built together with this test, such as `target/debug`.
///
/// # Errors
///
/// If the test does not run from a target directory.
pub fn profile_dir() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let deps = test.ancestors().find(|dir| dir.file_name() == Some(OsStr::new("deps")));
    let profile = deps.and_then(Path::parent);
    Ok(profile.with_context(|| format!("{} is not in a target directory", test.display()))?.to_owned())
}

/// Runs a command to its end.
///
/// # Errors
///
/// If it fails; the error holds the command and everything it wrote.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}: {command:?}\n{stdout}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}

/// The outcome of an installation; a failed one is not tried again in this process.
type Once = OnceLock<Result<PathBuf, String>>;

static PYTHON: Once = Once::new();

async fn once(done: &'static Once, install: fn() -> Result<PathBuf>) -> Result<PathBuf> {
    let outcome =
        spawn_blocking(move || done.get_or_init(|| install().map_err(|error| format!("{error:#}")))).await?;
    outcome.clone().map_err(|error| anyhow!(error))
}

/// Returns whether a program can be run; if not, says which client is skipped, or fails.
pub(crate) fn is_present(client: &str, program: &str, version: &str) -> Result<bool> {
    match Command::new(program).arg(version).output() {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context(program.to_owned());
        }
        Err(_) => {}
    }
    if require_all() {
        bail!("no {program} on PATH, but XDS_TESTS_REQUIRE_ALL=1 wants {client}");
    }
    // Not `eprintln!`: the output of a test that passes is not shown.
    writeln!(io::stderr(), "SKIPPED: {client} (no {program} on PATH)")?;
    Ok(false)
}

fn install_python() -> Result<PathBuf> {
    install_pip("python", &clients_dir().join("requirements.txt"))
}

fn install_pip(name: &str, requirements: &Path) -> Result<PathBuf> {
    let version = run(Command::new("python3").arg("--version"))?;
    install(name, &version, &[requirements], |dir| {
        run(Command::new("python3").args(["-m", "venv"]).arg(dir))?;
        let mut pip = Command::new(dir.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
        run(pip.arg(requirements))?;
        Ok(())
    })
}

fn install_npm(name: &str) -> Result<PathBuf> {
    let sources = clients_dir().join(name);
    let (package, lock) = (sources.join("package.json"), sources.join("package-lock.json"));
    let version = run(Command::new("node").arg("--version"))?;
    install(name, &version, &[&package, &lock], |dir| {
        fs::create_dir_all(dir)?;
        fs::copy(&package, dir.join("package.json"))?;
        fs::copy(&lock, dir.join("package-lock.json"))?;
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(dir);
        run(&mut npm)?;
        Ok(())
    })
}

fn install_go(name: &str, program: &str) -> Result<PathBuf> {
    let sources = clients_dir().join(name);
    let pins = ["go.mod", "go.sum", "main.go"].map(|file| sources.join(file));
    let version = run(Command::new("go").arg("version"))?;
    install(name, &version, &pins.each_ref().map(PathBuf::as_path), |dir| {
        fs::create_dir_all(dir)?;
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-trimpath", "-o"]).arg(dir.join(program)).arg(".");
        run(go.env("CGO_ENABLED", "0").current_dir(&sources))?;
        Ok(())
    })
}

fn install_java() -> Result<PathBuf> {
    let sources = clients_dir().join("grpc-java");
    let pins = ["pom.xml", "Worker.java"].map(|file| sources.join(file));
    let version = run(Command::new("java").arg("-version"))?;
    install("grpc-java", &version, &pins.each_ref().map(PathBuf::as_path), |dir| {
        let lib = dir.join("lib");
        fs::create_dir_all(&lib)?;
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--quiet", "dependency:copy-dependencies", "--file"]).arg(&pins[0]);
        run(maven.arg(format!("-DoutputDirectory={}", lib.display())))?;
        let mut javac = Command::new("javac");
        run(javac.arg("-cp").arg(lib.join("*")).arg("-d").arg(dir).arg(&pins[1]))?;
        Ok(())
    })
}

/// Returns the directory of a finished installation, which `make` makes if it is not there yet.
fn install(
    name: &str,
    toolchain: &str,
    pins: &[&Path],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    toolchain.hash(&mut hasher);
    for pin in pins {
        fs::read(pin).with_context(|| pin.display().to_string())?.hash(&mut hasher);
    }
    let dir = profile_dir()?.with_file_name("clients").join(format!("{name}-{:016x}", hasher.finish()));
    fs::create_dir_all(dir.with_file_name(""))?;
    let lock = File::create(dir.with_extension("lock"))?;
    lock.lock()?;
    let complete = dir.join(".complete");
    if complete.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    make(&dir).with_context(|| format!("install the clients of {name}"))?;
    File::create(complete)?;
    Ok(dir)
}
