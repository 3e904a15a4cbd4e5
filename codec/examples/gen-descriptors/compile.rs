//! Compiles the descriptor set; shared by the generator and the test that compares its output.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

/// Where `envoy-types` lies, and which version it is.
pub(crate) struct EnvoyTypes {
    /// The version that the lock file names.
    pub(crate) version: String,
    /// The directory of the crate's sources.
    pub(crate) directory: PathBuf,
}

/// The trees below `proto/` that hold imports.
const INCLUDES: [&str; 8] = [
    "data-plane-api",
    "xds",
    "protoc-gen-validate",
    "googleapis",
    "cel-spec/proto",
    "client_model",
    "opentelemetry-proto",
    "ratelimit",
];

/// Asks Cargo for the sources of `envoy-types` that this workspace builds with.
pub(crate) fn find_envoy_types() -> Result<EnvoyTypes, Box<dyn Error>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let package =
        packages.iter().find(|p| p["name"] == "envoy-types").ok_or("envoy-types is no dependency")?;
    let text = |key: &str| package[key].as_str().ok_or("a package without version or manifest");
    let manifest = PathBuf::from(text("manifest_path")?);
    let directory = manifest.parent().ok_or("a manifest without a directory")?.to_owned();
    Ok(EnvoyTypes { version: text("version")?.to_owned(), directory })
}

/// Compiles every v3 proto of `envoy-types` and our own, with extension options, without source positions.
pub(crate) fn compile(envoy_types: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let protos = envoy_types.join("proto");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors/proto");
    let mut resolvers = ChainFileResolver::new();
    for include in INCLUDES.iter().map(|include| protos.join(include)).chain([own.clone()]) {
        resolvers.add(AbsoluteNames(IncludeFileResolver::new(include)));
    }
    resolvers.add(GoogleFileResolver::new());

    let mut files = BTreeSet::new();
    for root in [protos.join("data-plane-api"), protos.join("xds"), own] {
        list_protos(&root, &root, &mut files)?;
    }
    let mut compiler = protox::Compiler::with_file_resolver(resolvers);
    compiler.include_imports(true).include_source_info(false).open_files(&files)?;
    Ok(compiler.encode_file_descriptor_set())
}

fn list_protos(root: &Path, directory: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list_protos(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.insert(path.strip_prefix(root)?.to_owned());
        }
    }
    Ok(())
}

/// Makes relative type names absolute before the compiler sees them.
///
/// Envoy's files write `config.core.v3.Address`. protoc resolves that against the packages of the file and its direct
/// imports; protox resolves it against every package it knows and so finds the wrong one.
struct AbsoluteNames<R>(R);

impl<R: FileResolver> FileResolver for AbsoluteNames<R> {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.0.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let mut file = self.0.open_file(name)?.file_descriptor_proto().clone();
        let scope = Scope::of(&file);
        for message in &mut file.message_type {
            scope.fix_message(message);
        }
        for extension in &mut file.extension {
            scope.fix_name(&mut extension.type_name);
            scope.fix_name(&mut extension.extendee);
        }
        for method in file.service.iter_mut().flat_map(|service| &mut service.method) {
            scope.fix_name(&mut method.input_type);
            scope.fix_name(&mut method.output_type);
        }
        Ok(File::from_file_descriptor_proto(file))
    }
}

/// The packages that a file sees.
struct Scope {
    package: String,
    visible: Vec<String>,
}

impl Scope {
    /// In all trees compiled here the directory of a file is its package.
    fn of(file: &FileDescriptorProto) -> Self {
        let package = file.package().to_owned();
        let directory =
            |path: &String| path.rsplit_once('/').map(|(directory, _)| directory.replace('/', "."));
        let visible = file.dependency.iter().filter_map(directory).chain([package.clone()]).collect();
        Self { package, visible }
    }

    fn fix_message(&self, message: &mut DescriptorProto) {
        for field in message.field.iter_mut().chain(&mut message.extension) {
            self.fix_name(&mut field.type_name);
            self.fix_name(&mut field.extendee);
        }
        for nested in &mut message.nested_type {
            self.fix_message(nested);
        }
    }

    /// Looks for the innermost enclosing package in which the name's first part is a visible package.
    fn fix_name(&self, name: &mut Option<String>) {
        let Some(relative) = name.as_deref().filter(|name| !name.starts_with('.')) else { return };
        let Some((first, _)) =
            relative.split_once('.').filter(|(first, _)| first.starts_with(char::is_lowercase))
        else {
            return;
        };
        let mut enclosing = self.package.as_str();
        loop {
            let prefix = if enclosing.is_empty() { String::new() } else { format!("{enclosing}.") };
            if self.sees(&format!("{prefix}{first}")) {
                *name = Some(format!(".{prefix}{relative}"));
                return;
            }
            if enclosing.is_empty() {
                return;
            }
            enclosing = enclosing.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }

    fn sees(&self, package: &str) -> bool {
        self.visible.iter().any(|visible| {
            visible.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}
